/* Aborts, resets by aioacl and foreign resets: which work they end, and which results of concurrent queries are
 * ignored. */
#include "bed.h"

#include <unistd.h>

TEST(an_abort_ends_unfinished_work) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK_EQ(bed_copy(stream), 1);
    CHECK_EQ(bed_await(stream, 1), 1);
    sim.hold(stream->handle);
    aio_result second = bed_copy(stream), third = bed_copy(stream);
    CHECK_EQ(aio_stream_abort(stream), 0);
    CHECK_EQ(bed_await(stream, 1), 1);
    CHECK_EQ(bed_await(stream, (uint64_t)second), aio_failed(107023));
    CHECK_EQ(bed_await(stream, (uint64_t)third), aio_failed(107023));
    sim.release(stream->handle);
    aio_result later = bed_copy(stream);
    CHECK_EQ(bed_await(stream, (uint64_t)later), later);
    bed_end_stream(stream);
    bed_close_copied();
}

TEST(a_refused_abort_ends_nothing) {
    aio_stream *stream = bed_open_with_held_copy();
    sim.set_abort_supported(0);
    CHECK(aio_stream_abort(stream) > 0);
    sim.set_abort_supported(1);
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, 1), 1);
    bed_end_stream(stream);
    bed_close_copied();
}

/* If an abort drops work, the work looks complete until the engine has noted the abort. */
TEST(a_result_during_an_abort_is_ignored) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK_EQ(bed_copy(stream), 1);
    UNTIL(sim.pending(stream->handle) == 0);
    atomic_fetch_add(&stream->aborts, 1);
    CHECK_EQ(aio_stream_poll(stream, 1), aio_failed(AIO_PENDING));
    CHECK_EQ(aio_stream_query(stream, 1), 0);
    atomic_fetch_sub(&stream->aborts, 1);
    CHECK_EQ(aio_stream_poll(stream, 1), 1);
    bed_end_stream(stream);
    bed_close_copied();
}

static void *copy_elsewhere(void *stream) {
    return (void *)(uintptr_t)bed_copy(stream);
}

/* If a thread is inside the runtime to enqueue, an abort may or may not drop the enqueued work. In both cases
 * the wait fails as aborted. */
TEST(an_enqueue_in_c_during_an_abort_is_aborted) {
    void *position = NULL;
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hang_call("aclrtMemcpyAsync");
    pthread_t enqueuer = bed_thread(copy_elsewhere, stream);
    UNTIL(sim.hung("aclrtMemcpyAsync"));
    CHECK_EQ(aio_stream_abort(stream), 0);
    sim.release_call("aclrtMemcpyAsync");
    CHECK_EQ(pthread_join(enqueuer, &position), 0);
    CHECK_EQ((uintptr_t)position, 1);
    CHECK_EQ(bed_await(stream, 1), aio_failed(107023));
    aio_result later = bed_copy(stream);
    CHECK_EQ(bed_await(stream, (uint64_t)later), later);
    bed_end_stream(stream);
    bed_close_copied();
}

/* Between a reset by aioacl and the next generation, the native streams no longer exist, but the handles are
 * not stale yet. */
TEST(a_foreign_reset_does_not_touch_dead_streams) {
    aio_stream *stream = bed_open_with_held_copy();
    bed_seize(0);
    CHECK(bed_abort_and_wait(0));
    aio_device_destroy_events(0);
    CHECK_EQ(aio_acl.aclrtResetDeviceForce(0), 0);
    CHECK_EQ(aio_acl.aclrtSetDevice(0), 0);
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    aio_gate_met(0);
    bed_reopen(0);
    aio_stream_drop(stream);
    bed_close_copied();
}

/* A foreign reset waits for a query for a limited time. If the query is still inside after this time, it
 * returns the code for a missing context, although no task has failed. */
static aclError query_after_a_reset(aclrtStream handle, aclrtStreamStatus *status) {
    (void)handle;
    (void)status;
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    return 107002;
}

TEST(a_query_during_a_foreign_reset_fails_no_task) {
    aclError (*query_as_it_is)(aclrtStream, aclrtStreamStatus *);
    aio_stream *stream = bed_open_with_held_copy();
    query_as_it_is = aio_acl.aclrtStreamQuery;
    aio_acl.aclrtStreamQuery = query_after_a_reset;
    aio_stream_poll(stream, 1);
    aio_acl.aclrtStreamQuery = query_as_it_is;
    CHECK_EQ(aio_stream_error(stream, 1, NULL), 0);
    aio_gate_met(0);
    bed_reopen(0);
    CHECK_EQ(bed_await(stream, 1), aio_failed(AIO_STALE));
    aio_stream_drop(stream);
    bed_close_copied();
}

/* A state callback of other code, which runs before the engine's callback. It waits until the watcher has
 * queried, although the context no longer exists. */
static void let_the_watcher_query(int32_t device, aclrtDeviceState state, void *unused) {
    uint64_t before = sim.calls("aclrtStreamQuery");
    (void)unused;
    if (state == ACL_RT_DEVICE_STATE_RESET_PRE) {
        UNTIL(sim.calls("aclrtStreamQuery") > before + 1 || aio_gate_foreign(device) ||
              aio_device_waits(device) == 0);
    }
}

TEST(a_query_before_the_report_of_a_foreign_reset_fails_no_task) {
    uint64_t key = 0;
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    aio_port *port = aio_port_new();
    CHECK_EQ(aio_acl.aclrtRegDeviceStateCallback("aioacl", NULL, NULL), 0);
    CHECK_EQ(aio_acl.aclrtRegDeviceStateCallback("first", let_the_watcher_query, NULL), 0);
    CHECK_EQ(aio_watch_foreign(), 0);
    sim.hold(stream->handle);
    CHECK_EQ(bed_copy(stream), 1);
    CHECK_EQ(aio_watch(stream, 1, port, 1), 0);
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    CHECK_EQ(aio_stream_error(stream, 1, NULL), 0);
    CHECK_EQ(aio_acl.aclrtRegDeviceStateCallback("first", NULL, NULL), 0);
    aio_gate_met(0);
    bed_reopen(0);
    aio_device_flush(0);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    aio_port_close(port);
    aio_stream_drop(stream);
    bed_close_copied();
}

/* A call by aioacl may find the reset before the engine's callback reports it, for example while the callback
 * of another library runs. */
TEST(a_found_foreign_reset_is_handled_once) {
    aio_stream *stream = bed_open_with_held_copy();
    uint32_t before = aio_word_generation(aio_gate_word(0));
    aio_foreign_found(0, before);
    CHECK_EQ(aio_word_generation(aio_gate_word(0)), before + 1);
    bed_seize(0);
    aio_gate_met(0);
    CHECK_EQ(sim.calls("aclrtStreamAbort"), 0);
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    CHECK_EQ(aio_word_generation(aio_gate_word(0)), before + 1);
    CHECK_EQ(aio_gate_foreign(0), 1);
    CHECK_EQ(sim.calls("aclrtStreamAbort"), 1);
    CHECK_EQ(aio_device_destroy_events_of(0, before), 0);
    aio_gate_met(0);
    bed_reopen(0);
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    CHECK_EQ(aio_word_generation(aio_gate_word(0)), before + 3);
    aio_gate_met(0);
    bed_reopen(0);
    aio_stream_drop(stream);
    bed_close_copied();
}

/* If the callback has not reported the reset, the set that follows the reset settles it. */
TEST(a_found_foreign_reset_is_settled_by_the_set) {
    bed_open(0, AIO_WATCH);
    uint32_t before = aio_word_generation(aio_gate_word(0));
    aio_foreign_found(0, before);
    aio_foreign_settle(0, aio_device_foreign(0));
    CHECK_EQ(aio_gate_foreign(0), 0);
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    CHECK_EQ(aio_word_generation(aio_gate_word(0)), before + 2);
    aio_gate_met(0);
    bed_reopen(0);
    bed_close(0);
}

static aclError (*set_as_it_is)(int32_t);

static aclError set_after_a_reset(int32_t device) {
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    return set_as_it_is(device);
}

static aclError set_before_a_reset(int32_t device) {
    aclError code = set_as_it_is(device);
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    return code;
}

static aclError fail_after_a_reset(int32_t device) {
    (void)device;
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    return 507033;
}

static aio_counted counted(aclError (*set)(int32_t)) {
    aio_counted made = {0};
    aio_acl.aclrtSetDevice = set;
    aio_count_set(0, &made);
    aio_acl.aclrtSetDevice = set_as_it_is;
    CHECK_EQ(made.returned, 1);
    return made;
}

TEST(a_set_counts_foreign_resets_that_did_not_undo_it) {
    bed_load();
    set_as_it_is = aio_acl.aclrtSetDevice;
    uint32_t seen = aio_device_foreign(0);
    aio_counted made = counted(set_as_it_is);
    CHECK_EQ(made.code, 0);
    CHECK_EQ(made.foreign_resets, seen);
    made = counted(set_after_a_reset);
    CHECK_EQ(made.code, 0);
    CHECK_EQ(made.foreign_resets, seen + 1);
    CHECK_EQ(aio_device_foreign(0), seen + 1);
    made = counted(set_before_a_reset);
    CHECK_EQ(made.code, 0);
    CHECK_EQ(made.foreign_resets, seen + 1);
    CHECK_EQ(aio_device_foreign(0), seen + 2);
    CHECK_EQ(counted(set_as_it_is).code, 0);
    made = counted(fail_after_a_reset);
    CHECK_EQ(made.code, 507033);
    CHECK_EQ(made.foreign_resets, seen + 2);
    CHECK_EQ(aio_device_foreign(0), seen + 3);
}

/* A reset that only lowers the runtime's count of sets is not counted. */
TEST(a_reset_counts_as_a_teardown_only_if_it_tears_down) {
    aio_counted made = {0};
    bed_load();
    aio_count_set(0, &made);
    aio_count_set(0, &made);
    uint32_t seen = aio_device_teardowns(0);
    aio_count_reset(0, 0, &made);
    CHECK_EQ(made.code, 0);
    CHECK_EQ(aio_device_teardowns(0), seen);
    aio_count_reset(0, 0, &made);
    CHECK_EQ(made.code, 0);
    CHECK_EQ(aio_device_teardowns(0), seen + 1);
    aio_count_reset(0, 0, &made);
    CHECK_EQ(made.code, 507007);
    CHECK_EQ(aio_device_teardowns(0), seen + 1);
}

/* If the thread was marked before the reset as a thread whose resets are not foreign, the mark stays set. */
TEST(an_own_reset_is_not_counted_as_foreign) {
    aio_counted made = {0};
    bed_load();
    uint32_t seen = aio_device_foreign(0);
    for (int force = 0; force < 2; force++) {
        aio_count_set(0, &made);
        made.returned = 0;
        aio_count_reset(0, force, &made);
        CHECK_EQ(made.returned, 1);
        CHECK_EQ(made.code, 0);
        CHECK_EQ(aio_device_foreign(0), seen);
    }
    aio_self()->own_reset = true;
    aio_count_reset(0, 0, &made);
    CHECK_EQ(made.code, 507007);
    CHECK(aio_self()->own_reset);
    aio_self()->own_reset = false;
}

static void *destroy_events(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)aio_device_destroy_events(0);
}

/* The destroying thread counts as inside, so a foreign reset waits for it, then destroys the other events. */
TEST(destroying_events_stops_when_the_generation_changes) {
    int32_t counts[3];
    aio_call calls[4];
    void *destroyed = NULL;
    bed_open(0, AIO_WATCH);
    /* Otherwise the event that wakes the runtime is destroyed first. */
    aio_device_unequip(0, aio_word_generation(aio_gate_word(0)), AIO_ALIVE);
    sim.hang_call("aclrtDestroyEvent");
    pthread_t destroyer = bed_thread(destroy_events, NULL);
    UNTIL(sim.hung("aclrtDestroyEvent"));
    aio_gate_counts(0, counts);
    CHECK_EQ(counts[2], 1);
    CHECK_EQ(aio_gate_inside(0, calls, 4), 1);
    CHECK_EQ(calls[0].function, AIO_FN_aclrtDestroyEvent);
    aio_foreign_found(0, aio_word_generation(aio_gate_word(0)));
    sim.release_call("aclrtDestroyEvent");
    CHECK_EQ(pthread_join(destroyer, &destroyed), 0);
    CHECK_EQ((uintptr_t)destroyed, 1);
    aio_gate_counts(0, counts);
    CHECK_EQ(counts[2], 0);
    aio_gate_met(0);
    CHECK(aio_device_destroy_events_of(0, aio_word_generation(aio_gate_word(0)) - 1) > 1);
    bed_close(0);
}

TEST(a_device_abort_counts_its_streams) {
    int32_t outcome[3];
    aio_stream *streams[3];
    bed_open_to_copy(AIO_WATCH);
    for (int i = 0; i < 3; i++) {
        streams[i] = bed_stream(0);
        CHECK_EQ(bed_copy(streams[i]), 1);
        CHECK_EQ(bed_await(streams[i], 1), 1);
    }
    for (int i = 0; i < 2; i++) {
        sim.hold(streams[i]->handle);
        CHECK(bed_copy(streams[i]) > 1);
    }
    sim.set_abort_supported(0);
    aio_device_abort(0, 5000000, outcome);
    CHECK_EQ(outcome[1], 2);
    sim.set_abort_supported(1);
    bed_seize(0);
    aio_device_abort(0, 5000000, outcome);
    CHECK_EQ(outcome[0], 2);
    CHECK_EQ(outcome[1] + outcome[2], 0);
    CHECK(bed_abort_and_wait(0));
    bed_reset_and_reopen(0);
    aio_device_abort(0, 5000000, outcome); /* stale streams are not touched */
    CHECK_EQ(outcome[0] + outcome[1] + outcome[2], 0);
    for (int i = 0; i < 3; i++) {
        aio_stream_drop(streams[i]);
    }
    bed_close_copied();
}

TEST(a_device_abort_skips_finished_work) {
    int32_t outcome[3];
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK_EQ(bed_copy(stream), 1);
    UNTIL(sim.pending(stream->handle) == 0);
    bed_seize(0); /* otherwise another thread could find before the abort that the work is done */
    aio_device_abort(0, 5000000, outcome);
    CHECK_EQ(outcome[0] + outcome[1] + outcome[2], 0);
    CHECK_EQ(sim.calls("aclrtStreamAbort"), 0);
    CHECK(bed_abort_and_wait(0));
    bed_reset_and_reopen(0);
    aio_stream_drop(stream);
    bed_close_copied();
}

TEST(an_abort_that_hangs_is_counted_as_failed) {
    int32_t outcome[3];
    aio_stream *stream = bed_open_with_held_copy();
    bed_seize(0);
    sim.hang_call("aclrtStreamAbort");
    aio_device_abort(0, 1000, outcome);
    CHECK_EQ(outcome[0] + outcome[1], 0);
    CHECK_EQ(outcome[2], 1);
    UNTIL(sim.hung("aclrtStreamAbort"));
    sim.release_call("aclrtStreamAbort");
    CHECK(bed_abort_and_wait(0));
    bed_reset_and_reopen(0);
    aio_stream_drop(stream);
    bed_close_copied();
}

static aclrtContext theirs, seen_by_them;

static void look(int32_t device, aclrtDeviceState state, void *unused) {
    (void)unused;
    if (device == 0 && state == ACL_RT_DEVICE_STATE_RESET_PRE) {
        CHECK_EQ(aio_acl.aclrtGetCurrentContext(&seen_by_them), 0);
    }
}

static void *reset_with_a_context(void *unused) {
    (void)unused;
    CHECK_EQ(aio_acl.aclrtCreateContext(&theirs, 1), 0);
    CHECK_EQ(aio_acl.aclrtResetDeviceForce(0), 0);
    return NULL;
}

/* Callbacks that were registered after the engine's callback run on the same thread. So they must find the
 * context that the thread had. */
TEST(a_foreign_reset_keeps_its_threads_context) {
    bed_open_to_copy(AIO_THREAD);
    CHECK_EQ(aio_acl.aclrtRegDeviceStateCallback("behind", look, NULL), 0);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    CHECK_EQ(bed_copy(stream), 1);
    bed_join(bed_thread(reset_with_a_context, NULL));
    CHECK_EQ(sim.calls("aclrtStreamAbort"), 1);
    CHECK(theirs && seen_by_them == theirs);
}

static void *query_elsewhere(void *stream) {
    return (void *)(uintptr_t)aio_stream_query(stream, 1);
}

static void *poll_elsewhere(void *stream) {
    return (void *)(uintptr_t)(aio_stream_poll(stream, 1) == aio_failed(AIO_PENDING));
}

/* A reset begins while a thread is inside a query. The result may be about work that the reset has dropped. */
static void query_across_a_reset(const char *function, void *(*ask)(void *), aio_stream *stream,
                                 uintptr_t answer) {
    void *answered = NULL;
    aio_watcher_stop(0); /* otherwise the watcher's query would hang instead */
    UNTIL(sim.pending(stream->handle) == 0);
    sim.hang_call(function);
    pthread_t asker = bed_thread(ask, stream);
    UNTIL(sim.hung(function));
    bed_seize(0);
    sim.release_call(function);
    CHECK_EQ(pthread_join(asker, &answered), 0);
    CHECK_EQ((uintptr_t)answered, answer);
    CHECK_EQ(atomic_load(&stream->finished), 0);
    CHECK(bed_abort_and_wait(0));
    bed_reset_and_reopen(0);
    aio_stream_drop(stream);
    bed_close_copied();
}

TEST(an_event_query_across_a_reset_is_ignored) {
    aio_event *event = NULL;
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK_EQ(aio_record(stream, 0, 0, &event), 1);
    aio_event_drop(event);
    query_across_a_reset("aclrtQueryEventStatus", query_elsewhere, stream, 0);
}

TEST(a_stream_query_across_a_reset_is_ignored) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK_EQ(bed_copy(stream), 1);
    query_across_a_reset("aclrtStreamQuery", poll_elsewhere, stream, 1);
}

static uint64_t announced(const aio_port *port) {
    uint64_t count = 0;
    return read(aio_port_fd(port), &count, sizeof count) == sizeof count ? count : 0;
}

TEST(a_kick_is_announced_once_until_it_is_taken) {
    aio_port *port = aio_port_new();
    CHECK_EQ(aio_device_start(0, AIO_THREAD, port), 0);
    aio_device_kick(0, AIO_KICK_REFILL);
    aio_device_kick(0, AIO_KICK_SMALL);
    aio_device_kick(0, AIO_KICK_REFILL);
    CHECK_EQ(announced(port), 2);
    CHECK_EQ(aio_device_kicks(0), AIO_KICK_REFILL | AIO_KICK_SMALL);
    aio_device_kick(0, AIO_KICK_REFILL);
    CHECK_EQ(announced(port), 1);
    aio_device_stop(0);
    CHECK_EQ(aio_device_start(0, AIO_THREAD, port), 0); /* the reason was not taken, so it is announced again */
    aio_device_kick(0, AIO_KICK_REFILL);
    CHECK_EQ(announced(port), 1);
    aio_device_stop(0);
    aio_port_close(port);
}

/* If a wake-up does not reveal the failure, another wake-up is requested. */
static void until_a_fault(aio_port *kicks) {
    for (int reasons = 0; !(reasons & AIO_KICK_FAULT);) {
        reasons = bed_kicked(0, kicks);
        CHECK_EQ(reasons & ~(AIO_KICK_FAULT | AIO_KICK_NUDGE), 0);
    }
}

static void wait_for_a_failure_that_only_a_wake_shows(bool event) {
    aio_port *port = aio_port_new(), *kicks = aio_port_new();
    uint64_t key = 0;
    bed_open_to_copy(AIO_WATCH);
    aio_device_unequip(0, aio_word_generation(aio_gate_word(0)), AIO_ALIVE);
    atomic_store(&aio_devices[0].kick, kicks);
    aio_stream *stream = bed_stream(0);
    if (!event) {
        CHECK_EQ(sim.fail_call("aclrtCreateEventWithFlag", 207005, -1), 0);
    }
    sim.fail_next(stream->handle, 507015);
    CHECK_EQ(bed_copy(stream), 1);
    CHECK_EQ(aio_watch(stream, 1, port, 1), 0);
    CHECK_EQ(bed_kicked(0, kicks), AIO_KICK_NUDGE);
    bed_serve(0, AIO_KICK_NUDGE);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(507015));
    until_a_fault(kicks);
    CHECK_EQ(bed_serve(0, AIO_KICK_FAULT), 1);
    bed_end_stream(stream);
    bed_close_copied();
    aio_port_close(port);
    aio_port_close(kicks);
}

TEST(a_wait_without_progress_requests_a_nudge) {
    wait_for_a_failure_that_only_a_wake_shows(true);
}

TEST(without_an_event_a_synchronize_wakes_the_runtime) {
    wait_for_a_failure_that_only_a_wake_shows(false);
}

RUN_TESTS
