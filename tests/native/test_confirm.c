/* Failures that are found by synchronizing, because the runtime does not report them. Tests use both
 * strategies. */
#include "bed.h"

static aio_stream *stream, *other;
static aio_error error;

static void begin(int strategy) {
    bed_reports = AIO_CONFIRMED;
    bed_open_to_copy(strategy);
    CHECK_EQ(aio_failure_detection(), AIO_CONFIRMED);
    stream = bed_stream(0);
    other = bed_stream(0);
}

static void end(void) {
    bed_end_stream(other);
    bed_end_stream(stream);
    bed_close_copied();
}

static uint64_t copy(aio_stream *on) {
    aio_result result = bed_copy(on);
    CHECK(result > 0);
    return (uint64_t)result;
}

static uint64_t bad_copy(aio_stream *on, int32_t code) {
    sim.fail_next(on->handle, code);
    return copy(on);
}

static uint64_t wait_for(aio_stream *on, aio_stream *source) {
    aio_event *event = NULL;
    aio_result at = aio_record(source, 0, 0, &event);
    CHECK(at > 0);
    aio_result waited = aio_wait_event(on, 0, event, source, (uint64_t)at);
    CHECK(waited > 0);
    aio_event_drop(event);
    return (uint64_t)waited;
}

static void await_a_failure(int strategy) {
    begin(strategy);
    uint64_t good = copy(stream);
    CHECK_EQ(bed_await(stream, good), (int64_t)good);
    uint64_t bad = bad_copy(stream, 507015), later = copy(stream);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(bed_await(stream, later), aio_failed(507015));
        CHECK_EQ(bed_await(stream, bad), aio_failed(507015));
        CHECK_EQ(bed_await(stream, good), (int64_t)good);
    }
    CHECK_EQ(bed_copy(stream), aio_failed(AIO_STREAM_FAILED));
    end();
}

TEST(an_await_raises_the_code_that_the_watcher_synchronized) {
    await_a_failure(AIO_WATCH);
}

TEST(an_await_raises_the_code_that_a_worker_synchronized) {
    await_a_failure(AIO_THREAD);
}

static void await_an_event(int strategy) {
    aio_event *event = NULL;
    begin(strategy);
    bad_copy(stream, 507015);
    aio_result at = aio_record(stream, 0, 0, &event);
    CHECK(at > 0);
    copy(stream);
    CHECK_EQ(bed_await(stream, (uint64_t)at), aio_failed(507015));
    aio_event_drop(event);
    end();
}

TEST(an_event_after_a_failure_raises_in_the_watcher) {
    await_an_event(AIO_WATCH);
}

TEST(an_event_after_a_failure_raises_in_a_worker) {
    await_an_event(AIO_THREAD);
}

/* The wait for the second stream also synchronizes the first stream. */
static void await_a_dependent(int strategy) {
    begin(strategy);
    uint64_t before = copy(other);
    uint64_t bad = bad_copy(stream, 507015), waited = wait_for(other, stream), behind = copy(other);
    CHECK_EQ(bed_await(other, behind), aio_failed(507015));
    CHECK_EQ(bed_await(other, waited), aio_failed(507015));
    CHECK_EQ(bed_await(other, before), (int64_t)before);
    CHECK_EQ(aio_stream_error(other, behind, &error), 507015);
    CHECK_EQ(error.stream, aio_stream_id(stream));
    CHECK(error.position <= bad);
    end();
}

TEST(a_dependent_of_a_failure_raises_in_the_watcher) {
    await_a_dependent(AIO_WATCH);
}

TEST(a_dependent_of_a_failure_raises_in_a_worker) {
    await_a_dependent(AIO_THREAD);
}

TEST(a_dependent_of_success_is_confirmed) {
    begin(AIO_WATCH);
    uint64_t first = copy(stream), waited = wait_for(other, stream);
    CHECK_EQ(bed_await(other, waited), (int64_t)waited);
    CHECK(atomic_load(&stream->synced) >= first);
    end();
}

TEST(a_query_confirms_nothing) {
    begin(AIO_WATCH);
    uint64_t bad = bad_copy(stream, 507015);
    UNTIL(sim.faulted(stream->handle) == 1);
    CHECK_EQ(sim.wake(0), 0);
    UNTIL(aio_stream_query(stream, bad) == 1);
    CHECK_EQ(atomic_load(&stream->confirmed), 0);
    aio_result result;
    CHECK(!aio_stream_over(stream, bad, &result));
    CHECK_EQ(aio_stream_known(stream, bad), aio_failed(AIO_PENDING));
    CHECK_EQ(bed_await(stream, bad), aio_failed(507015));
    end();
}

/* A stream is synchronized before it is destroyed, so its failure is found without an await. */
TEST(a_failure_is_found_when_the_stream_is_destroyed) {
    begin(AIO_WATCH);
    uint64_t bad = bad_copy(stream, 507015);
    UNTIL(sim.faulted(stream->handle) == 1);
    CHECK_EQ(sim.wake(0), 0);
    int code;
    UNTIL((code = aio_stream_destroy(stream)) != AIO_PENDING);
    CHECK_EQ(code, 0);
    CHECK_EQ(aio_stream_error(stream, bad, NULL), 507015);
    CHECK_EQ(aio_stream_uncollected(stream, &error), 1);
    aio_stream_drop(stream);
    stream = bed_stream(0);
    end();
}

/* The engine has registered for reports, but on this chip later work may be complete before the report
 * arrives. */
TEST(untrusted_reports_confirm_nothing) {
    bed_open_to_copy(AIO_WATCH);
    CHECK(aio_failure_detection() != AIO_CONFIRMED);
    aio_failures_trust(0);
    CHECK(aio_failure_reports() != AIO_CONFIRMED);
    CHECK_EQ(aio_failure_detection(), AIO_CONFIRMED);
    stream = bed_stream(0);
    uint64_t position = copy(stream);
    CHECK_EQ(bed_await(stream, position), (int64_t)position);
    CHECK_EQ(atomic_load(&stream->synced), position);
    bed_end_stream(stream);
    bed_close_copied();
}

static void *await_first(void *unused) {
    (void)unused;
    CHECK_EQ(bed_await(stream, 1), 1);
    return NULL;
}

/* A synchronize waits in slices, and also waits for later work. The end of a slice does not show that work is
 * done. */
TEST(an_expired_slice_is_not_a_failure) {
    begin(AIO_WATCH);
    CHECK_EQ(bed_ticket(stream), 1);
    copy(stream); /* a mark is recorded before this copy */
    uint64_t before = sim.calls("aclrtSynchronizeStreamWithTimeout");
    UNTIL(sim.pending(stream->handle) == 0);
    sim.hold(stream->handle);
    uint64_t later = copy(stream);
    pthread_t waiter = bed_thread(await_first, NULL);
    UNTIL(sim.calls("aclrtSynchronizeStreamWithTimeout") >= before + 2);
    CHECK_EQ(aio_stream_error(stream, later, NULL), 0);
    sim.release(stream->handle);
    bed_join(waiter);
    CHECK_EQ(bed_await(stream, later), (int64_t)later);
    end();
}

static void *await_until_reset(void *unused) {
    (void)unused;
    CHECK_EQ(bed_await(stream, 1), aio_failed(AIO_WAS_RESET));
    return NULL;
}

/* The simulator crashes if a thread is still in the synchronize when the callback of the reset has returned.
 * Without an abort, the synchronize ends at its time limit. */
static void reset_during_a_slice(bool abort_supported) {
    begin(AIO_WATCH);
    CHECK_EQ(bed_ticket(stream), 1);
    copy(stream); /* a mark is recorded before this copy */
    UNTIL(sim.pending(stream->handle) == 0);
    sim.hold(stream->handle);
    copy(stream);
    sim.clock_virtual(1);
    sim.set_abort_supported(abort_supported);
    sim.set_reset_crash(1);
    pthread_t waiter = bed_thread(await_until_reset, NULL);
    UNTIL(sim.waiting("aclrtSynchronizeStreamWithTimeout"));
    pthread_t other_code = bed_thread(bed_reset_as_other_code, NULL);
    UNTIL(aio_gate_foreign(0));
    if (!abort_supported) {
        CHECK_EQ(sim.clock_advance(AIO_FOREIGN_GRACE_US * INT64_C(1000) / 2), 0);
    }
    bed_join(other_code);
    sim.clock_virtual(0);
    sim.set_abort_supported(1);
    aio_gate_met(0);
    bed_reopen(0);
    bed_join(waiter);
    aio_stream_drop(stream);
    aio_stream_drop(other);
    bed_close_copied();
}

TEST(a_foreign_reset_aborts_a_synchronize) {
    reset_during_a_slice(true);
}

TEST(a_foreign_reset_outlasts_a_synchronize_that_cannot_be_aborted) {
    reset_during_a_slice(false);
}

TEST(a_device_wide_code_fails_unconfirmed_work) {
    begin(AIO_WATCH);
    uint64_t good = copy(stream);
    CHECK_EQ(bed_await(stream, good), (int64_t)good);
    uint64_t owed = copy(stream);
    aio_device_fail(0, 507015, "found by a wait for the device");
    CHECK_EQ(bed_await(stream, owed), aio_failed(507015));
    CHECK_EQ(bed_await(stream, good), (int64_t)good);
    CHECK_EQ(aio_stream_error(stream, owed, &error), 507015);
    CHECK(strcmp(error.text, "found by a wait for the device") == 0);
    uint64_t unharmed = copy(other);
    CHECK_EQ(bed_await(other, unharmed), (int64_t)unharmed);
    end();
}

static void *copy_elsewhere(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)copy(stream);
}

/* A thread is enqueueing an entry that is not counted yet. The task of this entry may be the failed task. */
TEST(a_device_wide_code_fails_work_being_enqueued) {
    void *position = NULL;
    begin(AIO_WATCH);
    sim.hang_call("aclrtMemcpyAsync");
    pthread_t enqueuer = bed_thread(copy_elsewhere, NULL);
    UNTIL(sim.hung("aclrtMemcpyAsync"));
    aio_device_fail(0, 507015, "found by a wait for the device");
    sim.release_call("aclrtMemcpyAsync");
    CHECK_EQ(pthread_join(enqueuer, &position), 0);
    CHECK_EQ(bed_await(stream, (uintptr_t)position), aio_failed(507015));
    uint64_t later = copy(other);
    CHECK_EQ(bed_await(other, later), (int64_t)later);
    end();
}

/* While the watcher queries a stream that has work from direct ACL calls, a wait for the whole device takes the
 * code of this work. */
TEST(a_device_wide_code_fails_manual_work_being_queried) {
    begin(AIO_WATCH);
    sim.hang_call("aclrtStreamQuery");
    aio_stream_manual(stream, aio_last_task());
    UNTIL(sim.hung("aclrtStreamQuery"));
    aio_device_sync_begin(0);
    aio_device_fail(0, 507015, "found by a wait for the device");
    aio_device_sync_end(0);
    sim.release_call("aclrtStreamQuery");
    CHECK_EQ(aio_stream_error(stream, UINT64_MAX, &error), 507015);
    end();
}

/* The watcher has synchronized the stream without an error, so a later code for the whole device does not come
 * from that stream. */
TEST(a_device_wide_code_does_not_fail_successful_manual_work) {
    begin(AIO_WATCH);
    uint64_t before = sim.calls("aclrtSynchronizeStreamWithTimeout");
    aio_stream_manual(stream, aio_last_task());
    UNTIL(sim.calls("aclrtSynchronizeStreamWithTimeout") > before);
    UNTIL(!atomic_load(&aio_devices[0].guarded));
    aio_device_fail(0, 507015, "found by a wait for the device");
    CHECK_EQ(aio_stream_error(stream, UINT64_MAX, NULL), 0);
    end();
}

RUN_TESTS
