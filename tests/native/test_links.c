/* Work that depends on other streams through events: the failures that it inherits, and those that it does not
 * inherit. */
#include "links.h"

enum { DEPTH = 5 };

static aio_stream *streams[DEPTH + 1];

static void make(int count) {
    for (int i = 0; i < count; i++) {
        streams[i] = bed_stream(0);
    }
}

static void end_all(int count) {
    for (int i = 0; i < count; i++) {
        bed_end_stream(streams[i]);
    }
}

/* Each stream also has work before and after its wait. */
static void inherit_along_a_chain(int strategy) {
    uint64_t before[DEPTH + 1], behind[DEPTH + 1];
    begin(strategy);
    make(DEPTH + 1);
    sim.hold(streams[0]->handle);
    uint64_t bad = failing_work(streams[0]);
    for (int i = 1; i <= DEPTH; i++) {
        before[i] = work(streams[i]);
        wait_for(streams[i], streams[i - 1]);
        behind[i] = work(streams[i]);
    }
    sim.release(streams[0]->handle);
    for (int i = DEPTH; i; i--) {
        fails(streams[i], behind[i]);
        succeeds(streams[i], before[i]);
        failed_at(streams[i], behind[i], streams[0], bad);
    }
    end_all(DEPTH + 1);
    bed_close_copied();
}

TEST(a_chain_of_five_inherits_in_the_watcher) {
    inherit_along_a_chain(AIO_WATCH);
}

TEST(a_chain_of_five_inherits_in_a_worker) {
    inherit_along_a_chain(AIO_THREAD);
}

TEST(a_failure_in_mid_chain_does_not_fail_earlier_streams) {
    begin(AIO_WATCH);
    make(3);
    sim.hold(streams[0]->handle);
    uint64_t first = work(streams[0]);
    wait_for(streams[1], streams[0]);
    uint64_t bad = failing_work(streams[1]);
    uint64_t waited = wait_for(streams[2], streams[1]);
    sim.release(streams[0]->handle);
    fails(streams[2], waited);
    succeeds(streams[0], first);
    failed_at(streams[2], waited, streams[1], bad);
    CHECK_EQ(aio_stream_error(streams[0], UINT64_MAX, NULL), 0);
    end_all(3);
    bed_close_copied();
}

/* Work that waits for an event before the failed task does not fail. */
TEST(an_event_before_the_failure_succeeds) {
    begin(AIO_WATCH);
    make(2);
    sim.hold(streams[0]->handle);
    point good = record(streams[0]);
    uint64_t bad = failing_work(streams[0]);
    uint64_t waited = wait_at(streams[1], &good), behind = work(streams[1]);
    sim.release(streams[0]->handle);
    fails(streams[0], bad);
    succeeds(streams[1], waited);
    succeeds(streams[1], behind);
    CHECK_EQ(aio_stream_error(streams[1], UINT64_MAX, NULL), 0);
    drop(&good);
    end_all(2);
    bed_close_copied();
}

/* For positions after a stream's own failure, the stream reports this failure, even if the positions also
 * depend on another failure. */
TEST(an_own_failure_comes_before_an_inherited_one) {
    begin(AIO_WATCH);
    make(2);
    for (int i = 0; i < 2; i++) {
        sim.hold(streams[i]->handle);
    }
    uint64_t inherited = failing_work(streams[0]);
    uint64_t waited = wait_for(streams[1], streams[0]), own = failing_work(streams[1]);
    sim.release_all();
    fails(streams[1], own);
    failed_at(streams[1], own, streams[1], own);
    failed_at(streams[1], waited, streams[0], inherited);
    end_all(2);
    bed_close_copied();
}

/* Streams 0 and 1 fail. Stream 2 waits for both, and stream 3 waits for stream 2. The failure of stream 1 is
 * reported first. */
TEST(an_earlier_failure_of_the_source_is_inherited_though_reported_later) {
    begin(AIO_WATCH);
    make(4);
    uint64_t bad[2], end = 0;
    for (int i = 0; i < 2; i++) {
        sim.hold(streams[i]->handle);
        bad[i] = failing_work(streams[i]);
        wait_for(streams[2], streams[i]);
    }
    end = wait_for(streams[3], streams[2]);
    for (int i = 1; i >= 0; i--) {
        sim.release(streams[i]->handle);
        fails(streams[i], bad[i]);
        failed_at(streams[3], end, streams[i], bad[i]);
    }
    fails(streams[3], end);
    end_all(4);
    bed_close_copied();
}

TEST(a_link_made_before_the_failure_is_known_inherits_it) {
    begin(AIO_WATCH);
    make(2);
    uint64_t bad = failing_work(streams[0]);
    point behind = record(streams[0]);
    UNTIL(sim.faulted(streams[0]->handle) == 1);
    uint64_t waited = wait_at(streams[1], &behind);
    CHECK_EQ(aio_stream_error(streams[1], waited, NULL), 0);
    CHECK_EQ(sim.wake(0), 0);
    fails(streams[1], waited);
    failed_at(streams[1], waited, streams[0], bad);
    drop(&behind);
    end_all(2);
    bed_close_copied();
}

TEST(an_event_of_a_failed_stream_is_refused) {
    begin(AIO_WATCH);
    make(2);
    point before = record(streams[0]);
    uint64_t bad = failing_work(streams[0]);
    point behind = record(streams[0]);
    fails(streams[0], bad);
    CHECK_EQ(try_to_wait(streams[1], &behind), aio_failed(AIO_EVENT_FAILED));
    CHECK_EQ(aio_stream_tail(streams[1]), 0);
    uint64_t good = wait_at(streams[1], &before);
    succeeds(streams[1], good);
    succeeds(streams[1], work(streams[1]));
    drop(&before);
    drop(&behind);
    end_all(2);
    bed_close_copied();
}

/* The runtime reports the failure while the enqueuing thread is inside the call. */
static aclError (*wait_as_it_is)(aclrtStream, aclrtEvent);

static aclError fail_before_the_wait(aclrtStream on, aclrtEvent event) {
    uint64_t before = aio_reports();
    CHECK_EQ(sim.wake(0), 0);
    UNTIL(aio_reports() > before);
    return wait_as_it_is(on, event);
}

TEST(a_failure_reported_during_the_enqueue_is_inherited) {
    begin(AIO_WATCH);
    make(2);
    aio_watcher_stop(0); /* the watcher would take the report */
    uint64_t bad = failing_work(streams[0]);
    point behind = record(streams[0]);
    UNTIL(sim.faulted(streams[0]->handle) == 1);
    wait_as_it_is = aio_acl.aclrtStreamWaitEvent;
    aio_acl.aclrtStreamWaitEvent = fail_before_the_wait;
    uint64_t waited = wait_at(streams[1], &behind);
    aio_acl.aclrtStreamWaitEvent = wait_as_it_is;
    failed_at(streams[1], waited, streams[0], bad);
    CHECK_EQ(aio_fill(streams[1], 0, bed_memory, 1, 1, 1), aio_failed(AIO_STREAM_FAILED));
    drop(&behind);
    end_all(2);
    bed_close_copied();
}

TEST(a_wait_that_was_refused_leaves_no_link) {
    begin(AIO_WATCH);
    make(2);
    sim.hold(streams[0]->handle);
    uint64_t bad = failing_work(streams[0]);
    point behind = record(streams[0]);
    CHECK_EQ(sim.fail_call("aclrtStreamWaitEvent", 207001, 1), 0);
    CHECK_EQ(try_to_wait(streams[1], &behind), aio_failed(207001));
    CHECK(atomic_load(&streams[1]->links) == NULL);
    uint64_t good = work(streams[1]);
    sim.release(streams[0]->handle);
    fails(streams[0], bad);
    succeeds(streams[1], good);
    drop(&behind);
    end_all(2);
    bed_close_copied();
}

TEST(a_link_is_freed_when_its_work_is_confirmed) {
    begin(AIO_WATCH);
    make(2);
    sim.hold(streams[0]->handle);
    uint64_t waited = wait_for(streams[1], streams[0]);
    CHECK(atomic_load(&streams[1]->links) != NULL);
    sim.release(streams[0]->handle);
    succeeds(streams[1], waited);
    CHECK(atomic_load(&streams[1]->links) == NULL);
    end_all(2);
    bed_close_copied();
}

TEST(a_wait_on_its_own_stream_makes_no_link) {
    begin(AIO_WATCH);
    make(1);
    uint64_t waited = wait_for(streams[0], streams[0]);
    CHECK(atomic_load(&streams[0]->links) == NULL);
    succeeds(streams[0], waited);
    end_all(1);
    bed_close_copied();
}

/* In this order of queries, the source is confirmed while no thread checks the work that depends on it. */
static void finish_the_dependent_first(int strategy) {
    begin(strategy);
    make(2);
    aio_watcher_stop(0);
    uint64_t waited = wait_for(streams[1], streams[0]);
    UNTIL(sim.pending(streams[1]->handle) == 0);
    CHECK_EQ(aio_stream_query(streams[1], waited), 1);
    CHECK_EQ(atomic_load(&streams[1]->confirmed), 0);
    CHECK_EQ(aio_stream_query(streams[0], 1), 1);
    CHECK_EQ(atomic_load(&streams[0]->confirmed), 1);
}

TEST(a_poll_confirms_work_that_finished_before_its_source) {
    finish_the_dependent_first(AIO_WATCH);
    CHECK_EQ(aio_stream_poll(streams[1], 1), 1);
    end_all(2);
    bed_close_copied();
}

TEST(a_worker_confirms_work_that_finished_before_its_source) {
    finish_the_dependent_first(AIO_THREAD);
    succeeds(streams[1], 1);
    end_all(2);
    bed_close_copied();
}

/* Stream 0 waits for stream 1, and then stream 1 for stream 0. Before that, stream 1 waits for stream 2. No
 * position of streams 0 and 1 is confirmed. */
static void wait_for_each_other(int strategy) {
    begin(strategy);
    make(3);
    aio_watcher_stop(0);
    wait_for(streams[1], streams[2]);
    atomic_load(&streams[1]->links)->since_us -= 1000000; /* so stream 1 must be synchronized */
    wait_for(streams[0], streams[1]);
    wait_for(streams[1], streams[0]);
    for (int i = 3; i--;) {
        UNTIL(sim.pending(streams[i]->handle) == 0);
        CHECK_EQ(aio_stream_query(streams[i], aio_stream_tail(streams[i])), 1);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(atomic_load(&streams[i]->confirmed), 0);
    }
}

TEST(streams_that_wait_for_each_other_are_confirmed_by_a_poll) {
    wait_for_each_other(AIO_WATCH);
    CHECK_EQ(aio_stream_poll(streams[0], 1), 1);
    CHECK_EQ(aio_stream_poll(streams[1], 3), 3);
    end_all(3);
    bed_close_copied();
}

TEST(streams_that_wait_for_each_other_are_confirmed_by_a_worker) {
    wait_for_each_other(AIO_THREAD);
    succeeds(streams[0], 1);
    succeeds(streams[1], 3);
    end_all(3);
    bed_close_copied();
}

/* Each of the two streams has a link to the other, with a reference. */
TEST(stale_streams_that_wait_for_each_other_are_freed) {
    begin(AIO_WATCH);
    make(2);
    sim.hold(streams[0]->handle);
    wait_for(streams[1], streams[0]);
    wait_for(streams[0], streams[1]);
    for (int i = 0; i < 2; i++) {
        CHECK(atomic_load(&streams[i]->links) != NULL);
        aio_stream_hold(streams[i]);
        streams[i]->generation--; /* as if the generation was raised, but aio_device_flush was not called yet */
    }
    for (int i = 0; i < 2; i++) {
        aio_stream_drop(streams[i]);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(atomic_load(&streams[i]->references), 1);
        aio_stream_unhold(streams[i]);
    }
    sim.release_all();
    bed_close_copied();
}

/* A wait for an event that takes longer than the shortest time limit may fail without a report. */
TEST(a_slow_wait_is_confirmed_by_a_synchronize) {
    begin(AIO_WATCH);
    make(2);
    sim.hold(streams[0]->handle);
    uint64_t quick = wait_for(streams[1], streams[0]), slow = wait_for(streams[1], streams[0]);
    atomic_load(&streams[1]->links)->next->since_us -= 1000000;
    sim.release(streams[0]->handle);
    succeeds(streams[1], slow);
    succeeds(streams[1], quick);
    CHECK(atomic_load(&streams[1]->synced) >= slow);
    CHECK_EQ(atomic_load(&streams[0]->synced), 0); /* stream 0 did not wait for an event */
    end_all(2);
    bed_close_copied();
}

TEST(a_failure_crosses_to_another_device_and_back) {
    begin_on_two_devices();
    aio_stream *first = bed_stream(0), *theirs = bed_stream(1), *last = bed_stream(0), *apart = bed_stream(1);
    sim.hold(first->handle);
    uint64_t bad = failing_work(first), there = wait_for(theirs, first), back = wait_for(last, theirs);
    uint64_t good = work(apart);
    sim.release(first->handle);
    fails(last, back);
    fails(theirs, there);
    succeeds(apart, good);
    failed_at(last, back, first, bad);
    failed_at(theirs, there, first, bad);
    bed_end_stream(last);
    bed_end_stream(theirs);
    bed_end_stream(apart);
    bed_end_stream(first);
    end_on_two_devices();
}

TEST(work_that_depends_on_a_reset_device_fails) {
    begin_on_two_devices();
    aio_stream *theirs = bed_stream(1), *ours = bed_stream(0);
    sim.hold(theirs->handle);
    work(theirs);
    uint64_t good = ticket(ours), waited = wait_for(ours, theirs);
    CHECK(bed_reset(1));
    CHECK_EQ(bed_await(ours, waited), aio_failed(AIO_WAS_RESET));
    succeeds(ours, good);
    CHECK_EQ(aio_stream_stranded(ours), waited);
    CHECK_EQ(aio_stream_error(ours, waited, &error), AIO_WAS_RESET);
    CHECK_EQ(error.device, 1);
    CHECK_EQ(aio_stream_abort(ours), 0);
    bed_end_stream(ours);
    aio_stream_drop(theirs);
    end_on_two_devices();
}

TEST(work_confirmed_before_a_reset_still_succeeds) {
    begin_on_two_devices();
    aio_stream *theirs = bed_stream(1), *ours = bed_stream(0);
    point done = record(theirs);
    succeeds(theirs, done.at);
    sim.hold(ours->handle);
    uint64_t waited = wait_at(ours, &done);
    CHECK(bed_reset(1));
    sim.release(ours->handle);
    succeeds(ours, waited);
    drop(&done);
    bed_end_stream(ours);
    aio_stream_drop(theirs);
    end_on_two_devices();
}

TEST(work_that_depends_on_aborted_work_fails_and_is_stranded) {
    begin(AIO_WATCH);
    make(3);
    sim.hold(streams[0]->handle);
    work(streams[0]);
    uint64_t good = ticket(streams[1]);
    uint64_t waited = wait_for(streams[1], streams[0]), further = wait_for(streams[2], streams[1]);
    CHECK_EQ(aio_stream_abort(streams[0]), 0);
    CHECK_EQ(bed_await(streams[1], waited), aio_failed(107023));
    CHECK_EQ(bed_await(streams[2], further), aio_failed(107023));
    succeeds(streams[1], good);
    CHECK_EQ(aio_stream_stranded(streams[1]), waited);
    CHECK_EQ(aio_stream_stranded(streams[2]), further);
    CHECK_EQ(aio_stream_stranded(streams[0]), UINT64_MAX);
    CHECK_EQ(aio_stream_uncollected(streams[1], &error), 0); /* an abort is not a failure */
    sim.release(streams[0]->handle);
    succeeds(streams[0], work(streams[0])); /* the aborted stream itself stays usable */
    for (int i = 2; i; i--) {
        CHECK_EQ(aio_stream_abort(streams[i]), 0);
    }
    end_all(3);
    bed_close_copied();
}

TEST(an_event_of_aborted_work_is_refused) {
    begin(AIO_WATCH);
    make(2);
    sim.hold(streams[0]->handle);
    point dropped = record(streams[0]);
    CHECK_EQ(aio_stream_abort(streams[0]), 0);
    CHECK_EQ(try_to_wait(streams[1], &dropped), aio_failed(AIO_EVENT_FAILED));
    sim.release(streams[0]->handle);
    drop(&dropped);
    end_all(2);
    bed_close_copied();
}

/* Every time limit is at least one second, so a wait that has just been enqueued has not timed out. */
TEST(a_device_wide_code_does_not_fail_a_new_wait) {
    begin(AIO_WATCH);
    make(2);
    sim.hold(streams[0]->handle);
    uint64_t waited = wait_for(streams[1], streams[0]);
    aio_device_fail(0, FAULT, "of another library's work");
    sim.release(streams[0]->handle);
    succeeds(streams[1], waited);
    end_all(2);
    bed_close_copied();
}

TEST(a_device_wide_code_fails_an_old_wait) {
    begin(AIO_WATCH);
    make(2);
    sim.hold(streams[0]->handle);
    uint64_t good = work(streams[1]), waited = wait_for(streams[1], streams[0]);
    atomic_load(&streams[1]->links)->since_us -= 1000000;
    aio_device_fail(0, FAULT, "of a wait that has timed out");
    sim.release(streams[0]->handle);
    fails(streams[1], waited);
    succeeds(streams[1], good);
    end_all(2);
    bed_close_copied();
}

RUN_TESTS
