/* Threads that each sit in a wait: the strategy that is literal. */
#include "waits.h"

static int waiting(void) {
    int32_t counts[3];
    aio_gate_counts(0, counts);
    return counts[1];
}

static void a_reset_need_not_wait_for_who_sits_in_a_wait(void) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t position = copy();
    watch(position, 1);
    UNTIL(atomic_load(&aio_devices[0].sitting) == 1);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_WAIT, 1000), 0);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_WAIT | AIO_SITTERS_MAY_STAY, 1000), 1);
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    end();
}

/* The mark that a wait has seen is gone when it would sit down in it: somebody has seen that it is done. */
static void a_wait_whose_mark_has_gone_ends_as_its_work_did(void) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t first = copy(), second = copy(); /* with the mark in between */
    sim.hang_call("aclrtGetCurrentContext");
    watch(first, 1);
    UNTIL(sim.hung("aclrtGetCurrentContext"));
    sim.release(stream->handle);
    UNTIL(aio_stream_query(stream, second) == 1);
    CHECK(!aio_stream_mark_for(stream, 0));
    sim.unhang("aclrtGetCurrentContext");
    CHECK_EQ(bed_take_one(port, &key), (int64_t)first);
    end();
}

static bool anybody_idle(void) {
    aio_lock_take(&aio_devices[0].lock);
    bool some = aio_devices[0].idle != NULL;
    aio_lock_give(&aio_devices[0].lock);
    return some;
}

/* The runtime hands a code to one, some or all of those who synchronize. */
static void one_worker_sits_for_all_who_wait_for_a_stream(void) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t position = copy();
    for (uint64_t i = 0; i < 2; i++)
        watch(position, i);
    UNTIL(anybody_idle() || aio_threads() == 1); /* an idle one goes after a while */
    UNTIL(atomic_load(&aio_devices[0].sitting) == 1);
    CHECK_EQ(waiting(), 1);
    sim.release(stream->handle);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    end();
}

/* What an abort drops looks complete until it is written down: a worker that wakes up in between sits down
 * again. */
static void a_worker_does_not_believe_what_it_is_told_during_an_abort(void) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t position = copy();
    watch(position, 1);
    UNTIL(atomic_load(&aio_devices[0].sitting) == 1);
    atomic_fetch_add(&stream->aborting, 1);
    sim.release(stream->handle);
    UNTIL(sim.calls("aclrtSynchronizeStream") >= 3 || atomic_load(&stream->finished));
    CHECK_EQ(atomic_load(&stream->finished), 0);
    atomic_fetch_sub(&stream->aborting, 1);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    end();
}

/* What a worker brings home of an abort says nothing of what has been enqueued since. */
static void an_abort_is_not_told_again_of_later_work(void) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t old = copy();
    sim.hang_call("aclrtSynchronizeStream");
    CHECK_EQ(sim.fail_call("aclrtSynchronizeStream", 107023, 1), 0);
    watch(old, 1);
    UNTIL(sim.hung("aclrtSynchronizeStream"));
    CHECK_EQ(aio_stream_abort(stream), 0);
    sim.release(stream->handle);
    uint64_t later = copy();
    sim.unhang("aclrtSynchronizeStream");
    CHECK_EQ(bed_take_one(port, &key), aio_failed(107023));
    CHECK_EQ(bed_await(stream, later), (int64_t)later);
    end();
}

/* A code from a wait for the whole stream may be that of an entry which is not counted yet. */
static void *copy_elsewhere(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)copy();
}

static void a_workers_code_is_owed_to_who_is_enqueueing(void) {
    void *position = NULL;
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    sim.fail_next(stream->handle, 507015);
    watch(copy(), 1);
    UNTIL(atomic_load(&aio_devices[0].sitting) == 1);
    sim.hang_call("aclrtMemcpyAsync");
    pthread_t enqueuer = bed_thread(copy_elsewhere, NULL);
    UNTIL(sim.hung("aclrtMemcpyAsync"));
    sim.release(stream->handle);
    UNTIL(atomic_load(&stream->blames));
    sim.unhang("aclrtMemcpyAsync");
    CHECK_EQ(pthread_join(enqueuer, &position), 0);
    CHECK_EQ(bed_await(stream, (uintptr_t)position), aio_failed(507015));
    CHECK_EQ(bed_take_one(port, &key), aio_failed(507015));
    end();
}

/* --- many -------------------------------------------------------------------- */
/* Lets the worker of a wait that has begun find the gate full. */
static void crowd_out(uint64_t position) {
    aio_lock_take(&stream->lock); /* he looks for a mark first */
    watch(position, 1);
    while (aio_enter(bed_pass(0), AIO_WAIT, AIO_FN_aclrtStreamQuery) == 0)
        continue;
    aio_lock_give(&stream->lock);
}

static void leave_all(void) {
    for (int count = waiting(); count--;)
        aio_leave(bed_pass(0), AIO_WAIT);
}

static void a_wait_for_a_mark_that_is_crowded_out_says_so(void) {
    begin(AIO_THREAD);
    sim.hold(stream->handle);
    uint64_t first = copy(), second = copy();
    crowd_out(first);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_CROWDED));
    leave_all();
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, second), (int64_t)second);
    end();
}

static bool served(void) {
    aio_lock_take(&aio_devices[0].lock);
    bool syncing = stream->syncing;
    aio_lock_give(&aio_devices[0].lock);
    return syncing;
}

/* Whoever is inside sees that it is done; the worker says so, who can only have been refused by then. */
static void a_wait_for_a_stream_that_is_crowded_out_waits_for_room(void) {
    begin(AIO_THREAD);
    uint64_t position = copy();
    crowd_out(position);
    UNTIL(served());
    UNTIL(aio_stream_collect(stream));
    aio_stream_deliver(stream);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    leave_all();
    position = copy();
    CHECK_EQ(bed_await(stream, position), (int64_t)position);
    end();
}

TESTS(TEST(an_abort_is_not_told_again_of_later_work), TEST(a_workers_code_is_owed_to_who_is_enqueueing),
      TEST(a_wait_for_a_mark_that_is_crowded_out_says_so),
      TEST(a_wait_for_a_stream_that_is_crowded_out_waits_for_room),
      TEST(a_reset_need_not_wait_for_who_sits_in_a_wait), TEST(one_worker_sits_for_all_who_wait_for_a_stream),
      TEST(a_wait_whose_mark_has_gone_ends_as_its_work_did),
      TEST(a_worker_does_not_believe_what_it_is_told_during_an_abort))
