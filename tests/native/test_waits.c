/* Waits with both strategies: resets, aborts and errors while waits are in flight. */
#include "waits.h"

enum { MANY = 1000 };

static void reset_with_waits(int strategy) {
    begin(strategy);
    sim.hold(stream->handle);
    for (uint64_t i = 1; i <= 3; i++) {
        watch(copy(), i);
    }
    CHECK_EQ(aio_device_waits(0), 3);
    bed_seize(0);
    CHECK(bed_abort_and_wait(0));
    bed_reset_and_reopen(0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    }
    CHECK_EQ(aio_watch(stream, 1, port, 4), AIO_STALE);
    CHECK_EQ(aio_stream_query(stream, 1), AIO_STALE);
    end_stale();
}

TEST(a_reset_ends_the_waits_of_the_watcher) {
    reset_with_waits(AIO_WATCH);
}

TEST(a_reset_ends_the_waits_of_the_workers) {
    reset_with_waits(AIO_THREAD);
}

static bool has_deferred_waits(void) {
    aio_lock_take(&aio_devices[0].lock);
    bool some = aio_devices[0].deferred_waits != NULL;
    aio_lock_give(&aio_devices[0].lock);
    return some;
}

/* Interrupted waits end only when the reset has ended, whether it succeeded or failed. */
TEST(waits_end_with_the_reset) {
    int64_t result;
    begin(AIO_WATCH);
    sim.hold(stream->handle);
    watch(copy(), 1);
    bed_seize(0);
    aio_watcher_wake(0);
    UNTIL(has_deferred_waits());
    CHECK_EQ(aio_port_take(port, &key, &result, 1), 0);
    CHECK_EQ(aio_device_waits(0), 1);
    aio_gate_set(0, AIO_QUARANTINED, stream->generation);
    aio_device_flush(0);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    bed_seize(0);
    CHECK(bed_abort_and_wait(0));
    bed_reset_and_reopen(0);
    end_stale();
}

/* Acts as a thread other than the watcher, for example one that closes the stream. */
static void finish_and_deliver(uint64_t position) {
    aio_stream_finish(stream, position);
    aio_stream_deliver(stream);
}

TEST(a_wait_that_ended_before_a_reset_keeps_its_result) {
    begin(AIO_WATCH);
    sim.hold(stream->handle);
    uint64_t first = copy(), second = copy();
    watch(first, 1);
    watch(second, 2);
    bed_seize(0);
    aio_watcher_wake(0);
    UNTIL(has_deferred_waits());
    finish_and_deliver(first);
    CHECK(bed_abort_and_wait(0));
    bed_reset_and_reopen(0);
    for (int i = 0; i < 2; i++) {
        aio_result result = bed_take_one(port, &key);
        CHECK_EQ(result, key == 1 ? (aio_result)first : aio_failed(AIO_WAS_RESET));
    }
    end_stale();
}

/* The watcher's waits become waits of an older generation, although no reset was made. */
TEST(stale_waits_end) {
    begin(AIO_WATCH);
    sim.hold(stream->handle);
    watch(copy(), 1);
    aio_gate_set(0, AIO_OPEN, stream->generation + 1);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    aio_port_close(port);
}

TEST(a_wait_without_a_watcher_ends_at_once) {
    begin(AIO_WATCH);
    sim.hold(stream->handle);
    uint64_t position = copy();
    aio_device_stop(0);
    CHECK_EQ(bed_await(stream, position), aio_failed(AIO_WAS_RESET));
    sim.release(stream->handle);
    end();
}

static void abort_with_waits(int strategy) {
    begin(strategy);
    for (int round = 0; round < 50; round++) {
        sim.hold(stream->handle);
        for (uint64_t i = 0; i < 4; i++) {
            watch(copy(), i);
        }
        CHECK_EQ(aio_stream_abort(stream), 0);
        for (int i = 0; i < 4; i++) {
            CHECK_EQ(bed_take_one(port, &key), aio_failed(107023));
        }
        sim.release(stream->handle);
        uint64_t next = copy();
        CHECK_EQ(bed_await(stream, next), (int64_t)next);
    }
    end();
}

TEST(an_abort_ends_the_waits_of_the_watcher) {
    abort_with_waits(AIO_WATCH);
}

TEST(an_abort_ends_the_waits_of_the_workers) {
    abort_with_waits(AIO_THREAD);
}

static atomic_bool over;

static void *poll_until_over(void *one) {
    while (!atomic_load(&over)) {
        CHECK(aio_stream_poll(one, 1) < 0);
        bed_yield();
    }
    return NULL;
}

/* A failed stream stays failed, so each round uses a new stream. */
static void fail_one_while_a_thread_queries(void) {
    aio_stream *one = bed_stream(0);
    sim.hold(one->handle);
    sim.fail_next(one->handle, 507015);
    CHECK_EQ(bed_copy(one), 1);
    CHECK_EQ(aio_watch(one, 1, port, 1), 0);
    atomic_store(&over, false);
    pthread_t asker = bed_thread(poll_until_over, one);
    sim.release(one->handle);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(507015));
    CHECK_EQ(aio_stream_poll(one, 1), aio_failed(507015));
    atomic_store(&over, true);
    bed_join(asker);
    bed_end_stream(one);
}

static void no_error_is_lost_while_a_thread_queries(int strategy) {
    begin(strategy);
    for (int round = 0; round < 300; round++) {
        fail_one_while_a_thread_queries();
    }
    end();
}

TEST(no_error_is_lost_by_the_watcher) {
    no_error_is_lost_while_a_thread_queries(AIO_WATCH);
}

TEST(no_error_is_lost_by_the_workers) {
    no_error_is_lost_while_a_thread_queries(AIO_THREAD);
}

/* No query can show the state of the work any more, so the waits end. The objects that the work uses are
 * kept. */
TEST(a_query_that_fails_ends_the_waits) {
    begin(AIO_WATCH);
    sim.hold(stream->handle);
    uint64_t first = copy(), second = copy(); /* a mark is recorded between the copies */
    CHECK_EQ(sim.fail_call("aclrtQueryEventStatus", 507011, -1), 0);
    watch(first, 1);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(507011));
    sim.clear();
    CHECK_EQ(atomic_load(&stream->finished), 0);
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, second), aio_failed(507011));
    end();
}

TEST(the_watchers_call_is_listed_as_inside) {
    aio_call calls[4];
    begin(AIO_WATCH);
    sim.hang_call("aclrtStreamQuery");
    uint64_t position = copy();
    watch(position, 1);
    UNTIL(sim.hung("aclrtStreamQuery"));
    CHECK_EQ(aio_gate_inside(0, calls, 4), 1);
    CHECK_EQ(calls[0].function, AIO_FN_aclrtStreamQuery);
    sim.release_call("aclrtStreamQuery");
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    end();
}

TEST(a_thousand_waits_use_one_thread) {
    aio_stream *streams[16];
    begin(AIO_WATCH);
    for (int i = 0; i < 16; i++) {
        streams[i] = bed_stream(0);
        sim.hold(streams[i]->handle);
    }
    for (uint64_t i = 0; i < MANY; i++) {
        CHECK_EQ(aio_watch(streams[i % 16], (uint64_t)bed_ticket(streams[i % 16]), port, i), 0);
    }
    CHECK_EQ(aio_threads(), 1);
    CHECK_EQ(aio_device_waits(0), MANY);
    CHECK_EQ(bed_in_flight(port), MANY);
    sim.release_all();
    for (int i = 0; i < MANY; i++) {
        CHECK(bed_take_one(port, &key) > 0);
    }
    for (int i = 0; i < 16; i++) {
        bed_end_stream(streams[i]);
    }
    end();
}

/* The watcher then expects a wait of an hour. */
TEST(a_short_wait_after_long_waits_ends) {
    begin(AIO_WATCH);
    for (int i = 0; i < AIO_WAITS_ALIKE; i++) {
        aio_pace_learn(&stream->waits[0].pace, (aio_took){INT64_C(3600) * 1000000, INT64_C(3600) * 1000000});
    }
    sim.hold(stream->handle);
    uint64_t position = copy();
    watch(position, 1);
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    end();
}

TEST(a_wait_after_the_close_ends_at_once) {
    begin(AIO_WATCH);
    uint64_t position = copy();
    UNTIL(aio_stream_query(stream, position) == 1);
    bed_close_copied();
    CHECK_EQ(bed_await(stream, position), aio_failed(AIO_STALE));
    aio_stream_drop(stream);
    aio_port_close(port);
}

TEST(devices_open_and_close_again) {
    for (int round = 0; round < 20; round++) {
        begin(round % 2 ? AIO_WATCH : AIO_THREAD);
        uint64_t position = copy();
        CHECK_EQ(bed_await(stream, position), (int64_t)position);
        end();
    }
}

TEST(a_wait_for_another_devices_event_leaves_the_gate_of_that_device) {
    aio_event *event = NULL;
    begin(AIO_WATCH);
    bed_open(1, AIO_WATCH);
    aio_stream *first = bed_stream(1);
    sim.hold(first->handle);
    aio_result at = aio_record(first, 0, 0, &event);
    CHECK(at > 0);
    aio_result waited = aio_wait_event(stream, 0, event, first, (uint64_t)at);
    CHECK_EQ(aio_gate_wait(1, 1 << AIO_ENQUEUE | 1 << AIO_LIFETIME, 1000), 1);
    int32_t counts[3];
    aio_gate_counts(1, counts);
    CHECK_EQ(counts[0] + counts[1] + counts[2], 0);
    sim.release(first->handle);
    if (waited > 0) {
        CHECK_EQ(bed_await(stream, (uint64_t)waited), waited);
    }
    aio_event_drop(event);
    bed_end_stream(first);
    bed_end_stream(stream);
    aio_device_stop(0); /* a close waits until all threads of the engine have ended */
    bed_close(1);
    close_all();
}

TEST(a_stream_waits_for_an_event_of_another_stream) {
    aio_event *event = NULL;
    begin(AIO_WATCH);
    aio_stream *second = bed_stream(0);
    sim.hold(stream->handle);
    aio_result at = aio_record(stream, 0, 0, &event);
    CHECK(at > 0);
    aio_result waited = aio_wait_event(second, 0, event, stream, (uint64_t)at);
    CHECK(waited > 0);
    CHECK_EQ(aio_stream_query(second, (uint64_t)waited), 0);
    sim.release(stream->handle);
    CHECK_EQ(bed_await(second, (uint64_t)waited), waited);
    CHECK(bed_reset(0));
    aio_stream *third = bed_stream(0);
    CHECK_EQ(aio_wait_event(third, 0, event, stream, (uint64_t)at), aio_failed(AIO_STALE));
    aio_event_drop(event);
    aio_stream_drop(second);
    bed_end_stream(third);
    end_stale();
}

RUN_TESTS
