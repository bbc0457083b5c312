/* Waits under both strategies: resets, aborts and errors while they are in flight. */
#include "bed.h"

enum { BYTES = 64, MANY = 1000 };

static void *memory, *pinned;

static void begin(int strategy) {
    bed_open(0, strategy);
    memory = bed_malloc(0, BYTES);
    pinned = bed_pinned(BYTES);
}

static void end(void) {
    aio_acl.aclrtFreeHost(pinned);
    bed_close(0);
    CHECK_EQ(aio_threads(), 0);
}

static uint64_t copy(aio_stream *stream) {
    aio_result result = aio_copy(stream, 0, memory, BYTES, pinned, BYTES, ACL_MEMCPY_HOST_TO_DEVICE);
    CHECK(result > 0);
    return (uint64_t)result;
}

/* --- a reset while waits are in flight --------------------------------------- */
static void reset_with_waits(int strategy) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin(strategy);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    for (uint64_t i = 1; i <= 3; i++)
        CHECK_EQ(aio_watch(stream, copy(stream), port, i), 0);
    CHECK_EQ(aio_device_waits(0), 3);
    bed_seize(0);
    CHECK(bed_abort_and_wait(0));
    bed_bring_back(0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    CHECK_EQ(aio_watch(stream, 1, port, 4), AIO_STALE);
    CHECK_EQ(aio_stream_query(stream, 1), AIO_STALE);
    aio_stream_drop(stream);
    aio_port_close(port);
    end();
}

static void a_reset_ends_the_waits_of_the_watcher(void) {
    reset_with_waits(AIO_WATCH);
}

static void a_reset_ends_the_waits_of_the_workers(void) {
    reset_with_waits(AIO_THREAD);
}

static bool has_orphans(void) {
    aio_lock_take(&aio_devices[0].lock);
    bool some = aio_devices[0].orphans != NULL;
    aio_lock_give(&aio_devices[0].lock);
    return some;
}

/* Interrupted waits end when the reset has ended, one way or the other, and not before. */
static void waits_end_with_the_reset(void) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    int64_t result;
    begin(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    CHECK_EQ(aio_watch(stream, copy(stream), port, 1), 0);
    bed_seize(0);
    aio_watcher_nudge(0);
    UNTIL(has_orphans());
    CHECK_EQ(aio_port_take(port, &key, &result, 1), 0);
    CHECK_EQ(aio_device_waits(0), 1);
    aio_gate_set(0, AIO_QUARANTINED, stream->generation);
    aio_device_flush(0);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    bed_seize(0);
    CHECK(bed_abort_and_wait(0));
    bed_bring_back(0);
    aio_stream_drop(stream);
    aio_port_close(port);
    end();
}

/* As somebody who collects it beside the watcher: a stream is closed, say. */
static void collect_beside(aio_stream *stream, uint64_t position) {
    aio_stream_finish(stream, position);
    aio_raise(&stream->collected, position);
    aio_stream_deliver(stream);
}

static void what_has_ended_before_a_reset_is_not_ended_by_it(void) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    uint64_t first = copy(stream), second = copy(stream);
    CHECK_EQ(aio_watch(stream, first, port, 1), 0);
    CHECK_EQ(aio_watch(stream, second, port, 2), 0);
    bed_seize(0);
    aio_watcher_nudge(0);
    UNTIL(has_orphans());
    collect_beside(stream, first);
    CHECK(bed_abort_and_wait(0));
    bed_bring_back(0);
    for (int i = 0; i < 2; i++) {
        aio_result result = bed_take_one(port, &key);
        CHECK_EQ(result, key == 1 ? (aio_result)first : aio_failed(AIO_WAS_RESET));
    }
    aio_stream_drop(stream);
    aio_port_close(port);
    end();
}

static int waiting(void) {
    int32_t counts[3];
    aio_gate_counts(0, counts);
    return counts[1];
}

static void a_reset_need_not_wait_for_who_sits_in_a_wait(void) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin(AIO_THREAD);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    uint64_t position = copy(stream);
    CHECK_EQ(aio_watch(stream, position, port, 1), 0);
    UNTIL(atomic_load(&aio_devices[0].sitting) == 1);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_WAIT, 1000), 0);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_WAIT | AIO_SITTERS_MAY_STAY, 1000), 1);
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    bed_end_stream(stream);
    aio_port_close(port);
    end();
}

/* The mark that a wait has seen is gone when it would sit down in it: somebody has seen that it is done. */
static void a_wait_whose_mark_has_gone_ends_as_its_work_did(void) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin(AIO_THREAD);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    uint64_t first = copy(stream), second = copy(stream); /* with the mark in between */
    sim.hang_call("aclrtGetCurrentContext");
    CHECK_EQ(aio_watch(stream, first, port, 1), 0);
    UNTIL(sim.hung("aclrtGetCurrentContext"));
    sim.release(stream->handle);
    UNTIL(aio_stream_query(stream, second) == 1);
    CHECK(!aio_stream_mark_for(stream, 0));
    sim.unhang("aclrtGetCurrentContext");
    CHECK_EQ(bed_take_one(port, &key), (int64_t)first);
    bed_end_stream(stream);
    aio_port_close(port);
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
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin(AIO_THREAD);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    uint64_t position = copy(stream);
    for (uint64_t i = 0; i < 2; i++)
        CHECK_EQ(aio_watch(stream, position, port, i), 0);
    UNTIL(anybody_idle() || aio_threads() == 1); /* an idle one goes after a while */
    UNTIL(atomic_load(&aio_devices[0].sitting) == 1);
    CHECK_EQ(waiting(), 1);
    sim.release(stream->handle);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    bed_end_stream(stream);
    aio_port_close(port);
    end();
}

/* What the watcher has is of an older generation, though it has seen nothing of a reset. */
static void stale_waits_end(void) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    CHECK_EQ(aio_watch(stream, copy(stream), port, 1), 0);
    aio_gate_set(0, AIO_OPEN, stream->generation + 1);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    aio_port_close(port);
}

static void a_wait_without_a_watcher_ends_at_once(void) {
    begin(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    uint64_t position = copy(stream);
    aio_device_stop(0);
    CHECK_EQ(bed_await(stream, position), aio_failed(AIO_WAS_RESET));
    sim.release(stream->handle);
    bed_end_stream(stream);
    end();
}

/* --- an abort while waits are in flight -------------------------------------- */
static void abort_with_waits(int strategy) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin(strategy);
    aio_stream *stream = bed_stream(0);
    for (int round = 0; round < 50; round++) {
        sim.hold(stream->handle);
        for (uint64_t i = 0; i < 4; i++)
            CHECK_EQ(aio_watch(stream, copy(stream), port, i), 0);
        CHECK_EQ(aio_stream_abort(stream), 0);
        for (int i = 0; i < 4; i++)
            CHECK_EQ(bed_take_one(port, &key), aio_failed(107023));
        sim.release(stream->handle);
        uint64_t next = copy(stream);
        CHECK_EQ(bed_await(stream, next), (int64_t)next);
    }
    bed_end_stream(stream);
    aio_port_close(port);
    end();
}

static void an_abort_ends_the_waits_of_the_watcher(void) {
    abort_with_waits(AIO_WATCH);
}

static void an_abort_ends_the_waits_of_the_workers(void) {
    abort_with_waits(AIO_THREAD);
}

/* What an abort drops looks complete until it is written down: a worker that wakes up in between sits down
 * again. */
static void a_worker_does_not_believe_what_it_is_told_during_an_abort(void) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin(AIO_THREAD);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    uint64_t position = copy(stream);
    CHECK_EQ(aio_watch(stream, position, port, 1), 0);
    UNTIL(atomic_load(&aio_devices[0].sitting) == 1);
    atomic_fetch_add(&stream->aborting, 1);
    sim.release(stream->handle);
    UNTIL(sim.calls("aclrtSynchronizeStream") >= 3 || atomic_load(&stream->finished));
    CHECK_EQ(atomic_load(&stream->finished), 0);
    atomic_fetch_sub(&stream->aborting, 1);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    bed_end_stream(stream);
    aio_port_close(port);
    end();
}

/* --- errors ------------------------------------------------------------------ */
static void *poll_all_the_time(void *argument) {
    aio_stream *stream = argument;
    while (!atomic_load(&aio_exiting)) {
        aio_stream_poll(stream, aio_stream_tail(stream));
        bed_yield();
    }
    return NULL;
}

/* Whoever asks besides the one who waits takes the code away from him, or gets none himself. */
static void errors_survive_many_askers(int strategy) {
    begin(strategy);
    aio_stream *stream = bed_stream(0);
    pthread_t asker = bed_thread(poll_all_the_time, stream);
    for (int round = 0; round < 300; round++) {
        sim.hold(stream->handle);
        sim.fail_next(stream->handle, 507015);
        uint64_t bad = copy(stream);
        aio_stream_forget(stream, bad);
        aio_port *port = aio_port_new();
        uint64_t key = 0;
        CHECK_EQ(aio_watch(stream, bad, port, 1), 0);
        sim.release(stream->handle);
        CHECK_EQ(bed_take_one(port, &key), aio_failed(507015));
        CHECK_EQ(aio_stream_poll(stream, bad), aio_failed(507015));
        aio_port_close(port);
    }
    atomic_store(&aio_exiting, true);
    bed_join(asker);
    atomic_store(&aio_exiting, false);
    bed_end_stream(stream);
    end();
}

static void no_error_is_lost_by_the_watcher(void) {
    errors_survive_many_askers(AIO_WATCH);
}

static void no_error_is_lost_by_the_workers(void) {
    errors_survive_many_askers(AIO_THREAD);
}

/* Nobody can say more, so whoever waits is told; what the work needs is kept. */
static void a_query_that_fails_ends_the_waits(void) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    uint64_t first = copy(stream), second = copy(stream); /* with a mark in between */
    CHECK_EQ(sim.fail_call("aclrtQueryEventStatus", 507011, -1), 0);
    CHECK_EQ(aio_watch(stream, first, port, 1), 0);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(507011));
    sim.clear();
    CHECK_EQ(atomic_load(&stream->finished), 0);
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, second), aio_failed(507011));
    bed_end_stream(stream);
    aio_port_close(port);
    end();
}

/* --- many -------------------------------------------------------------------- */
static void a_thousand_waits_use_one_thread(void) {
    aio_port *port = aio_port_new();
    aio_stream *streams[16];
    uint64_t key = 0;
    begin(AIO_WATCH);
    for (int i = 0; i < 16; i++) {
        streams[i] = bed_stream(0);
        sim.hold(streams[i]->handle);
    }
    for (uint64_t i = 0; i < MANY; i++)
        CHECK_EQ(aio_watch(streams[i % 16], copy(streams[i % 16]), port, i), 0);
    CHECK_EQ(aio_threads(), 1);
    CHECK_EQ(aio_device_waits(0), MANY);
    CHECK_EQ(aio_port_in_flight(port), MANY);
    sim.release_all();
    for (int i = 0; i < MANY; i++)
        CHECK(bed_take_one(port, &key) > 0);
    for (int i = 0; i < 16; i++)
        bed_end_stream(streams[i]);
    aio_port_close(port);
    end();
}

static void a_wait_after_the_close_ends_at_once(void) {
    begin(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    uint64_t position = copy(stream);
    UNTIL(aio_stream_query(stream, position) == 1);
    aio_acl.aclrtFreeHost(pinned);
    bed_close(0);
    CHECK_EQ(bed_await(stream, position), aio_failed(AIO_STALE));
    aio_stream_drop(stream);
}

static void devices_open_and_close_again(void) {
    for (int round = 0; round < 20; round++) {
        begin(round % 2 ? AIO_WATCH : AIO_THREAD);
        aio_stream *stream = bed_stream(0);
        uint64_t position = copy(stream);
        CHECK_EQ(bed_await(stream, position), (int64_t)position);
        bed_end_stream(stream);
        end();
    }
}

static void who_waits_for_an_event_of_another_device_leaves_that_device_too(void) {
    aio_event *event = NULL;
    begin(AIO_WATCH);
    bed_open(1, AIO_WATCH);
    aio_stream *first = bed_stream(1), *second = bed_stream(0);
    sim.hold(first->handle);
    CHECK(aio_record(first, 0, 0, &event) > 0);
    aio_result waited = aio_wait_event(second, 0, event);
    CHECK_EQ(aio_gate_wait(1, 1 << AIO_ENQUEUE | 1 << AIO_LIFETIME, 1000), 1);
    int32_t counts[3];
    aio_gate_counts(1, counts);
    CHECK_EQ(counts[0] + counts[1] + counts[2], 0);
    sim.release(first->handle);
    if (waited > 0)
        CHECK_EQ(bed_await(second, (uint64_t)waited), waited);
    aio_event_drop(event);
    bed_end_stream(first);
    bed_end_stream(second);
    aio_device_stop(0); /* a close sees all threads off */
    bed_close(1);
    end();
}

/* --- events ------------------------------------------------------------------ */
static void another_stream_waits_on_the_device(void) {
    aio_event *event = NULL;
    begin(AIO_WATCH);
    aio_stream *first = bed_stream(0), *second = bed_stream(0);
    sim.hold(first->handle);
    CHECK(aio_record(first, 0, 0, &event) > 0);
    aio_result waited = aio_wait_event(second, 0, event);
    CHECK(waited > 0);
    CHECK_EQ(aio_stream_query(second, (uint64_t)waited), 0);
    sim.release(first->handle);
    CHECK_EQ(bed_await(second, (uint64_t)waited), waited);
    CHECK(bed_reset(0));
    aio_stream *third = bed_stream(0);
    CHECK_EQ(aio_wait_event(third, 0, event), aio_failed(AIO_STALE));
    aio_event_drop(event);
    aio_stream_drop(first);
    aio_stream_drop(second);
    bed_end_stream(third);
    end();
}

TESTS(TEST(a_reset_ends_the_waits_of_the_watcher), TEST(a_reset_ends_the_waits_of_the_workers),
      TEST(waits_end_with_the_reset), TEST(a_reset_need_not_wait_for_who_sits_in_a_wait),
      TEST(one_worker_sits_for_all_who_wait_for_a_stream), TEST(stale_waits_end),
      TEST(a_wait_whose_mark_has_gone_ends_as_its_work_did), TEST(a_wait_without_a_watcher_ends_at_once),
      TEST(a_worker_does_not_believe_what_it_is_told_during_an_abort), TEST(a_query_that_fails_ends_the_waits),
      TEST(who_waits_for_an_event_of_another_device_leaves_that_device_too),
      TEST(what_has_ended_before_a_reset_is_not_ended_by_it), TEST(an_abort_ends_the_waits_of_the_watcher),
      TEST(an_abort_ends_the_waits_of_the_workers), TEST(no_error_is_lost_by_the_watcher),
      TEST(no_error_is_lost_by_the_workers), TEST(a_thousand_waits_use_one_thread),
      TEST(a_wait_after_the_close_ends_at_once), TEST(devices_open_and_close_again),
      TEST(another_stream_waits_on_the_device))
