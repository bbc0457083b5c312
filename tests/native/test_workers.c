/* The strategy AIO_THREAD: each wait blocks a worker thread. */
#include "waits.h"

TEST(a_reset_may_leave_blocked_waits_inside) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t position = copy();
    watch(position, 1);
    UNTIL(atomic_load(&aio_devices[0].blocked) == 1);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_WAIT, 1000), 0);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_WAIT | AIO_BLOCKED_MAY_STAY, 1000), 1);
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    end();
}

/* A wait finds a mark. Before the wait blocks, another thread finds that the work is done, and frees the
 * mark. */
TEST(a_wait_whose_mark_is_gone_gets_its_result) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t first = copy(), second = copy(); /* the mark is between the copies */
    sim.hang_call("aclrtGetCurrentContext");
    watch(first, 1);
    UNTIL(sim.hung("aclrtGetCurrentContext"));
    sim.release(stream->handle);
    UNTIL(aio_stream_query(stream, second) == 1);
    CHECK(!aio_stream_mark_for(stream, 0));
    sim.release_call("aclrtGetCurrentContext");
    CHECK_EQ(bed_take_one(port, &key), (int64_t)first);
    end();
}

static bool any_worker_idle(void) {
    aio_lock_take(&aio_devices[0].lock);
    bool some = aio_devices[0].idle != NULL;
    aio_lock_give(&aio_devices[0].lock);
    return some;
}

TEST(each_wait_has_its_own_worker) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t position = copy();
    for (uint64_t i = 0; i < 2; i++) {
        watch(position, i);
    }
    UNTIL(atomic_load(&aio_devices[0].blocked) == 2);
    CHECK_EQ(aio_threads(), 3); /* two workers, and the watcher, which checks work that no caller awaits */
    CHECK_EQ(aio_stream_tail(stream), position + 1); /* one mark for both */
    sim.release(stream->handle);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    }
    end();
}

TEST(an_idle_worker_serves_the_next_wait) {
    begin(AIO_THREAD);
    for (int round = 0; round < 3; round++) {
        uint64_t position = copy();
        CHECK_EQ(bed_await(stream, position), (int64_t)position);
        UNTIL(any_worker_idle() || aio_threads() == 1); /* an idle worker ends after a while */
        CHECK(aio_threads() <= 2);
    }
    end();
}

/* If an abort drops work, queries report the work as complete until the engine has recorded the abort. If a
 * worker wakes up earlier, it waits again. */
TEST(a_worker_ignores_a_result_during_an_abort) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t position = copy();
    watch(position, 1);
    UNTIL(atomic_load(&aio_devices[0].blocked) == 1);
    atomic_fetch_add(&stream->aborts, 1);
    sim.release(stream->handle);
    UNTIL(sim.calls("aclrtSynchronizeEventWithTimeout") >= 3 || atomic_load(&stream->finished));
    CHECK_EQ(atomic_load(&stream->finished), 0);
    atomic_fetch_sub(&stream->aborts, 1);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    end();
}

/* If an abort ends a worker's wait with a code, this code does not apply to work that was enqueued later. */
TEST(an_abort_code_does_not_fail_later_work) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t old = copy();
    sim.hang_call("aclrtSynchronizeEventWithTimeout");
    CHECK_EQ(sim.fail_call("aclrtSynchronizeEventWithTimeout", 107023, 1), 0);
    watch(old, 1);
    UNTIL(sim.hung("aclrtSynchronizeEventWithTimeout"));
    CHECK_EQ(aio_stream_abort(stream), 0);
    sim.release(stream->handle);
    uint64_t later = copy();
    sim.release_call("aclrtSynchronizeEventWithTimeout");
    CHECK_EQ(bed_take_one(port, &key), aio_failed(107023));
    CHECK_EQ(bed_await(stream, later), (int64_t)later);
    end();
}

/* An earlier task fails while the enqueuing thread is inside the runtime. */
static void *copy_elsewhere(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)copy();
}

TEST(a_failure_fails_later_work_being_enqueued) {
    void *position = NULL;
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    sim.fail_next(stream->handle, 507015);
    watch(copy(), 1);
    UNTIL(atomic_load(&aio_devices[0].blocked) == 1);
    sim.hang_call("aclrtMemcpyAsync");
    pthread_t enqueuer = bed_thread(copy_elsewhere, NULL);
    UNTIL(sim.hung("aclrtMemcpyAsync"));
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(507015));
    sim.release_call("aclrtMemcpyAsync");
    CHECK_EQ(pthread_join(enqueuer, &position), 0);
    CHECK_EQ(bed_await(stream, (uintptr_t)position), aio_failed(507015));
    end();
}

TEST(a_wait_without_a_mark_queries_the_stream) {
    begin(AIO_THREAD);
    aio_watcher_stop(0);
    sim.hold(stream->handle);
    uint64_t position = copy();
    CHECK_EQ(sim.fail_call("aclrtRecordEvent", 207001, -1), 0);
    watch(position, 1);
    UNTIL(sim.calls("aclrtStreamQuery") > 1);
    CHECK(!aio_stream_mark_for(stream, 0));
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    sim.clear();
    end();
}

/* The maintenance thread synchronizes a stream to take a code. It does not deliver the bytes, so the waiting
 * thread must deliver them. */
TEST(a_wait_delivers_bytes_of_work_that_another_thread_finished) {
    begin(AIO_THREAD);
    aio_watcher_stop(0);
    uint64_t position = copy();
    UNTIL(sim.pending(stream->handle) == 0);
    aio_stream_take_code(stream);
    CHECK_EQ(atomic_load(&stream->finished), position);
    CHECK_EQ(aio_stream_completed(stream), 0);
    CHECK_EQ(bed_await(stream, position), (int64_t)position);
    end();
}

static int fill_gate(int kind) {
    int entered = 0;
    while (aio_enter(bed_pass(0), kind, AIO_FN_aclrtStreamQuery) == 0) {
        entered++;
    }
    return entered;
}

static void leave_all(int kind, int entered) {
    while (entered--) {
        aio_leave(bed_pass(0), kind);
    }
}

/* The worker must own the stream to record a mark. The test owns the stream until the gate is full, so the
 * worker then finds a full gate. */
TEST(a_wait_refused_by_a_full_gate_returns_crowded) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t position = copy();
    bed_own(stream);
    watch(position, 1);
    int entered = fill_gate(AIO_WAIT);
    atomic_store(&stream->owner, AIO_NOBODY);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_CROWDED));
    leave_all(AIO_WAIT, entered);
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, position), (int64_t)position);
    end();
}

/* A worker that returns from the runtime waits until the gate admits it, so the result is not lost. */
TEST(a_wait_that_ends_at_a_full_gate_waits_for_room) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t position = copy();
    watch(position, 1);
    UNTIL(atomic_load(&aio_devices[0].blocked) == 1);
    int entered = fill_gate(AIO_LIFETIME);
    sim.release(stream->handle);
    UNTIL(atomic_load(&aio_devices[0].blocked) == 0);
    int64_t result;
    CHECK_EQ(aio_port_take(port, &key, &result, 1), 0);
    leave_all(AIO_LIFETIME, entered);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    end();
}

RUN_TESTS
