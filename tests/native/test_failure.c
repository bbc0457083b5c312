/* Failures that the runtime reports: the entries to which they are attributed, and the waits that end with
 * their codes. */
#include "links.h"

static aio_stream *stream, *other;

static void begin_with_two(void) {
    begin(AIO_WATCH);
    stream = bed_stream(0);
    other = bed_stream(0);
}

static void end(void) {
    bed_end_stream(other);
    bed_end_stream(stream);
    bed_close_copied();
}

TEST(the_first_failure_of_a_stream_reaches_every_later_ticket) {
    uint64_t later[8];
    begin_with_two();
    uint64_t good = work(stream);
    sim.hold(stream->handle);
    uint64_t bad = failing_work(stream);
    CHECK_EQ(sim.fail_next(stream->handle, 507011), 0);
    for (int i = 0; i < 8; i++) {
        later[i] = work(stream);
    }
    sim.release(stream->handle);
    for (int i = 8; i--;) {
        fails(stream, later[i]);
    }
    fails(stream, bad);
    succeeds(stream, good);
    failed_at(stream, later[7], stream, bad);
    CHECK_EQ(stream->inherited.failure == NULL, 1);
    end();
}

TEST(only_the_failed_stream_has_an_error) {
    uint64_t good = 0;
    begin_with_two();
    sim.hold(other->handle);
    for (int i = 0; i < 5; i++) {
        good = work(other);
    }
    fails(stream, failing_work(stream));
    CHECK_EQ(aio_stream_error(other, UINT64_MAX, NULL), 0);
    sim.release(other->handle);
    succeeds(other, good);
    succeeds(other, work(other));
    end();
}

/* Enqueues `count` entries on a stream, whose task ids start at `first`. The entry with index `at` fails. */
static void fail_one_of(uint32_t first, int count, int at) {
    uint64_t positions[64] = {0}, bad = 0;
    aio_stream *one = bed_stream(0);
    CHECK_EQ(sim.set_next_task(one->handle, first), 0);
    sim.hold(one->handle);
    for (int i = 0; i < count; i++) {
        positions[i] = i == at ? (bad = failing_work(one)) : work(one);
    }
    sim.release(one->handle);
    fails(one, positions[count - 1]);
    for (int i = 0; i < count; i++) {
        CHECK_EQ(aio_stream_error(one, positions[i], NULL), i < at ? 0 : FAULT);
    }
    failed_at(one, positions[count - 1], one, bad);
    bed_end_stream(one);
}

TEST(task_ids_beyond_16_bits_are_distinguished) {
    begin(AIO_WATCH);
    for (int at = 0; at < 40; at += 13) {
        fail_one_of(65536 - 20, 40, at);
    }
    fail_one_of(70001, 40, 20);
    bed_close_copied();
}

TEST(task_ids_wrap_around) {
    begin(AIO_WATCH);
    for (int at = 0; at < 40; at += 3) {
        fail_one_of(UINT32_MAX - 19, 40, at);
    }
    fail_one_of(0x80000000u - 20, 40, 20);
    bed_close_copied();
}

/* The stream gets more entries than it has places for ids, so places are reused. */
TEST(a_long_queue_keeps_the_ids_of_unfinished_work) {
    enum { ENTRIES = 1900 };
    begin_with_two();
    for (int lap = 0; lap < 2; lap++) {
        for (int i = 0; i < ENTRIES; i++) {
            work(stream);
        }
        succeeds(stream, aio_stream_tail(stream));
    }
    sim.hold(stream->handle);
    for (int i = 0; i < ENTRIES / 2; i++) {
        work(stream);
    }
    uint64_t good = aio_stream_tail(stream), bad = failing_work(stream);
    for (int i = 0; i < ENTRIES / 4; i++) {
        work(stream);
    }
    sim.release(stream->handle);
    fails(stream, aio_stream_tail(stream));
    succeeds(stream, good);
    failed_at(stream, bad, stream, bad);
    end();
}

/* A wait for an event of the same stream is not a task. The thread's newest task id then belongs to another
 * stream. */
TEST(an_entry_without_a_task_has_no_id) {
    begin_with_two();
    CHECK_EQ(sim.set_next_task(other->handle, 5000), 0);
    sim.hold(stream->handle);
    point here = record(stream);
    uint64_t elsewhere = work(other), empty = wait_at(stream, &here), behind = work(stream);
    uint64_t bad = failing_work(stream), last = work(stream);
    aio_watcher_stop(0); /* so that no work is found complete before the report is attributed */
    sim.release(stream->handle);
    UNTIL(sim.faulted(stream->handle) == 1);
    CHECK_EQ(sim.wake(0), 0);
    UNTIL(aio_reports() == 1);
    aio_failures_settle();
    CHECK_EQ(aio_stream_error(stream, empty, NULL), 0);
    CHECK_EQ(aio_stream_error(stream, behind, NULL), 0);
    failed_at(stream, last, stream, bad);
    CHECK_EQ(aio_watcher_start(0), 0);
    succeeds(stream, behind);
    succeeds(other, elsewhere);
    drop(&here);
    end();
}

/* The runtime reports the failed task before the enqueuing thread has read the task id. */
static aclError (*copy_as_it_is)(void *, size_t, const void *, size_t, aclrtMemcpyKind, aclrtStream);

static aclError copy_and_wait_for_the_report(void *target, size_t room, const void *source, size_t size,
                                             aclrtMemcpyKind kind, aclrtStream on) {
    uint64_t before = aio_reports();
    aclError code = copy_as_it_is(target, room, source, size, kind, on);
    UNTIL(sim.faulted(on) == 1);
    CHECK_EQ(sim.wake(0), 0);
    UNTIL(aio_reports() > before);
    aio_failures_settle();
    return code;
}

static aio_result copy_reported_early(void) {
    copy_as_it_is = aio_acl.aclrtMemcpyAsync;
    aio_acl.aclrtMemcpyAsync = copy_and_wait_for_the_report;
    aio_result position = bed_copy(stream);
    aio_acl.aclrtMemcpyAsync = copy_as_it_is;
    CHECK(position > 0);
    return position;
}

TEST(a_report_that_comes_before_the_count_finds_its_entry) {
    begin_with_two();
    uint64_t good = work(stream);
    CHECK_EQ(sim.fail_next(stream->handle, FAULT), 0);
    uint64_t bad = (uint64_t)copy_reported_early();
    CHECK_EQ(aio_stream_error(stream, bad, NULL), FAULT);
    failed_at(stream, bad, stream, bad);
    fails(stream, bad);
    succeeds(stream, good);
    end();
}

/* When the query finds that the work is complete, no thread of the engine has taken the report. */
TEST(a_report_is_attributed_before_its_work_counts_as_complete) {
    begin_with_two();
    aio_watcher_stop(0);
    uint64_t bad = failing_work(stream);
    UNTIL(sim.faulted(stream->handle) == 1);
    CHECK_EQ(sim.wake(0), 0);
    UNTIL(sim.pending(stream->handle) == 0);
    CHECK_EQ(aio_reports(), 1);
    CHECK_EQ(aio_stream_query(stream, bad), 1);
    CHECK_EQ(aio_stream_known(stream, bad), aio_failed(FAULT));
    end();
}

/* A task of another library on the native stream has failed, so all later work counts as failed. */
TEST(a_failed_task_of_direct_acl_calls_fails_later_work) {
    begin_with_two();
    uint64_t good = work(stream);
    succeeds(stream, good);
    CHECK_EQ(sim.fail_next(stream->handle, FAULT), 0);
    CHECK_EQ(aio_acl.aclrtMemsetAsync(bed_memory, BED_BYTES, 1, BED_BYTES, stream->handle), 0);
    UNTIL(sim.faulted(stream->handle) == 1);
    CHECK_EQ(sim.wake(0), 0);
    UNTIL(aio_reports() == 1);
    CHECK_EQ(bed_copy(stream), aio_failed(AIO_STREAM_FAILED));
    succeeds(stream, good);
    end();
}

TEST(a_failure_of_dropped_work_does_not_fail_later_work) {
    begin_with_two();
    sim.hold(stream->handle);
    failing_work(stream);
    CHECK_EQ(aio_stream_abort(stream), 0);
    sim.release(stream->handle);
    succeeds(stream, work(stream));
    CHECK_EQ(aio_stream_uncollected(stream, &error), 0);
    end();
}

TEST(a_report_of_a_foreign_stream_is_counted) {
    aclrtStream foreign = NULL;
    begin_with_two();
    CHECK_EQ(aio_acl.aclrtCreateStream(&foreign), 0);
    CHECK_EQ(sim.fail_next(foreign, FAULT), 0);
    CHECK_EQ(aio_acl.aclrtMemsetAsync(bed_memory, BED_BYTES, 1, BED_BYTES, foreign), 0);
    CHECK_EQ(aio_acl.aclrtSynchronizeStream(foreign), FAULT);
    UNTIL(aio_device_unattributed(0) == 1);
    succeeds(stream, work(stream));
    CHECK_EQ(aio_acl.aclrtDestroyStream(foreign), 0);
    end();
}

TEST(a_failed_stream_refuses_work_before_c) {
    char target[8] = {0};
    aio_event *event = NULL;
    begin_with_two();
    point good = record(other);
    fails(stream, failing_work(stream));
    uint64_t tail = aio_stream_tail(stream), copies = sim.calls("aclrtMemcpyAsync");
    CHECK_EQ(bed_copy(stream), aio_failed(AIO_STREAM_FAILED));
    CHECK_EQ(aio_fill(stream, 0, bed_memory, 8, 1, 8), aio_failed(AIO_STREAM_FAILED));
    CHECK_EQ(aio_upload(stream, 0, bed_memory, 8, target, 8), aio_failed(AIO_STREAM_FAILED));
    CHECK_EQ(aio_download(stream, 0, target, bed_memory, 8), aio_failed(AIO_STREAM_FAILED));
    CHECK_EQ(aio_record(stream, 0, 0, &event), aio_failed(AIO_STREAM_FAILED));
    CHECK_EQ(try_to_wait(stream, &good), aio_failed(AIO_STREAM_FAILED));
    CHECK_EQ(aio_stream_tail(stream), tail);
    CHECK_EQ(sim.calls("aclrtMemcpyAsync"), copies);
    CHECK_EQ(sim.calls("aclrtStreamWaitEvent"), 0);
    CHECK_EQ(aio_stream_abort(stream), 0);
    drop(&good);
    end();
}

TEST(a_new_stream_with_the_id_of_a_failed_one_works) {
    begin_with_two();
    for (int round = 0; round < 5; round++) {
        aio_stream *one = bed_stream(0);
        fails(one, failing_work(one));
        bed_end_stream(one);
        one = bed_stream(0);
        succeeds(one, work(one));
        bed_end_stream(one);
    }
    end();
}

/* The device is lost, so the report has no ids. */
TEST(a_lost_device_fails_all_its_unfinished_work) {
    enum { LOST = 507010 };
    begin_on_two_devices();
    stream = bed_stream(0);
    other = bed_stream(0);
    aio_stream *theirs = bed_stream(1), *idle = bed_stream(0);
    uint64_t good = work(idle);
    succeeds(idle, good);
    sim.hold(other->handle);
    sim.hold(theirs->handle);
    uint64_t left = work(other), apart = work(theirs);
    CHECK_EQ(sim.fail_next(stream->handle, LOST), 0);
    CHECK_EQ(bed_await(stream, work(stream)), aio_failed(LOST));
    CHECK_EQ(bed_await(other, left), aio_failed(LOST)); /* the held work may never end */
    sim.release_all();
    succeeds(theirs, apart);
    succeeds(theirs, work(theirs));
    succeeds(idle, good);
    CHECK_EQ(aio_device_unattributed(0), 0);
    bed_end_stream(theirs);
    bed_end_stream(idle);
    bed_end_stream(other);
    bed_end_stream(stream);
    end_on_two_devices();
}

TEST(a_lost_device_fails_work_being_enqueued) {
    enum { LOST = 507010 };
    begin_with_two();
    CHECK_EQ(sim.fail_next(stream->handle, LOST), 0);
    uint64_t bad = (uint64_t)copy_reported_early();
    CHECK_EQ(bed_await(stream, bad), aio_failed(LOST));
    end();
}

/* No thread takes the reports, so the ring has no room for some of them. */
TEST(lost_reports_fail_all_unfinished_work) {
    enum { MANY = 1100, RING_PLACES = 1024 };
    begin_with_two();
    aio_stream *idle = bed_stream(0);
    uint64_t good = work(idle);
    succeeds(idle, good);
    sim.hold(other->handle);
    uint64_t left = work(other);
    sim.hold(stream->handle);
    uint64_t first = failing_work(stream);
    aio_watcher_stop(0);
    uint64_t reported = 0;
    for (int i = 1; i < MANY; i++) {
        failing_work(stream);
    }
    sim.release(stream->handle);
    while (reported < MANY) {
        CHECK_EQ(sim.wake(0), 0);
        bed_yield();
        reported = aio_reports();
    }
    CHECK(MANY > RING_PLACES);
    aio_failures_settle();
    CHECK_EQ(aio_stream_error(stream, UINT64_MAX, NULL), FAULT);
    failed_at(stream, first, stream, first);
    CHECK_EQ(aio_stream_error(other, left, NULL), AIO_REPORTS_LOST);
    CHECK_EQ(aio_stream_error(idle, UINT64_MAX, NULL), 0);
    CHECK_EQ(aio_watcher_start(0), 0);
    sim.release(other->handle);
    CHECK_EQ(bed_await(other, left), aio_failed(AIO_REPORTS_LOST));
    bed_end_stream(idle);
    end();
}

/* While this thread visits the streams, it holds the last reference to a stream, and also the lock that is
 * needed to free the stream. */
TEST(a_stream_ended_during_a_walk_is_freed_after_the_walk) {
    begin_with_two();
    aio_stream *one = bed_stream(0);
    fails(one, failing_work(one));
    aio_stream *walk = aio_device_next(0, NULL);
    CHECK(walk == one);
    bed_end_stream(one);
    aio_failures_lock();
    walk = aio_device_next(0, walk);
    CHECK(walk == other);
    aio_stream_unhold(walk);
    aio_failures_unlock();
    end();
}

TEST(an_unawaited_failure_is_found_and_reported_once) {
    begin_with_two();
    uint64_t bad = failing_work(stream);
    uint64_t waited = wait_for(other, stream);
    UNTIL(aio_stream_error(stream, bad, NULL)); /* the watcher finds the failure */
    UNTIL(aio_stream_error(other, waited, NULL));
    CHECK_EQ(aio_device_take_failure(0, &error), 1);
    CHECK_EQ(error.code, FAULT);
    CHECK_EQ(error.position, bad);
    CHECK_EQ(aio_device_take_failure(0, &error), 0);
    CHECK_EQ(aio_stream_uncollected(stream, &error), 1);
    CHECK_EQ(error.position, bad);
    CHECK_EQ(aio_stream_uncollected(stream, &error), 0);
    CHECK_EQ(aio_stream_uncollected(other, &error), 0); /* its failure was collected already */
    end();
}

TEST(a_failure_that_was_raised_is_collected) {
    begin_with_two();
    uint64_t bad = failing_work(stream), waited = wait_for(other, stream);
    fails(other, waited);
    /* Neither reading the code nor the report to the listeners marks the failure as collected. */
    CHECK_EQ(aio_stream_error(other, waited, NULL), FAULT);
    CHECK_EQ(aio_device_take_failure(0, &error), 1);
    CHECK_EQ(stream->own.failure->collected, 0);
    CHECK_EQ(aio_stream_error(other, waited, &error), FAULT);
    CHECK_EQ(error.position, bad);
    CHECK_EQ(aio_stream_uncollected(stream, &error), 0);
    CHECK_EQ(aio_stream_uncollected(other, &error), 0);
    end();
}

/* The runtime stores the code of a failed stream until a synchronize returns it. aioacl synchronizes such a
 * stream, because otherwise a synchronize by another library would return the code. */
TEST(the_code_of_a_failed_stream_is_taken_once_it_is_idle) {
    enum { WITH_TEXT = 507001 };
    begin_with_two();
    CHECK_EQ(sim.fail_next(stream->handle, WITH_TEXT), 0);
    uint64_t bad = work(stream);
    sim.hold(other->handle);
    work(other);
    CHECK_EQ(bed_await(stream, bad), aio_failed(WITH_TEXT));
    CHECK_EQ(aio_stream_error(stream, bad, &error), WITH_TEXT);
    CHECK_EQ(strlen(error.text), 0); /* a report has no text */
    aio_stream_take_code(stream);
    CHECK_EQ(aio_stream_error(stream, bad, &error), WITH_TEXT);
    CHECK(strlen(error.text) > 0);
    CHECK_EQ(aio_acl.aclrtSynchronizeStream(stream->handle), 0);
    sim.release(other->handle);
    end();
}

RUN_TESTS
