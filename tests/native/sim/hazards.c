/* Known faults of the runtime, which the simulator reproduces on request: a query that lags, two livelocks, and
 * crashes at and after the end of a context. */
#include <signal.h>

#include "failure_test.h"

static char *block;
static aclrtStream other;

static aclError body_sync_limited(void *stream) {
    return aclrtSynchronizeStreamWithTimeout(stream, 10000);
}

static void test_query_lag(void) {
    aclrtEvent old = old_event(SYNC_FLAG);
    aclsim_set_query_lag(1);
    CHECK_RC(aclrtRecordEvent(old, other), 0);
    CHECK_THEN(aclrtSynchronizeStream(other), !old_complete(old));
    CHECK(old_complete(old));
    aclsim_set_query_lag(0);
    CHECK_RC(aclrtRecordEvent(old, other), 0);
    CHECK_THEN(aclrtSynchronizeStream(other), old_complete(old));
    CHECK_RC(aclrtDestroyEvent(old), 0);
}

static void feed(call_t *call, aclrtStream stream) {
    CHECK(aclsim_hold(stream) == 0);
    fill(stream, block, 0);
    call_waiting(call, body_sync, stream, "aclrtSynchronizeStream");
    fill(stream, block, 0);
    CHECK(aclsim_release(stream) == 0);
    UNTIL(is_idle(stream));
}

static void test_livelock(void) {
    aclrtStream fed = new_stream();
    call_t call;
    feed(&call, fed);
    CHECK(call_join(&call) == 0);
    aclsim_set_sync_livelock(1);
    feed(&call, fed);
    CHECK(aclsim_waiting("aclrtSynchronizeStream") == 1 && atomic_load(&call.rc) == -1);
    CHECK_RC(aclrtSynchronizeStream(fed), 0); /* a new synchronize returns */
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(fed, 10), 0);
    CHECK(aclsim_waiting("aclrtSynchronizeStream") == 1);
    CHECK_RC(aclrtStreamAbort(fed), 0);
    CHECK(call_join(&call) == 107023);
    feed(&call, fed);
    CHECK(aclsim_waiting("aclrtSynchronizeStream") == 1);
    aclsim_set_sync_livelock(0);
    CHECK(call_join(&call) == 0);
    CHECK_RC(aclrtDestroyStream(fed), 0);
}

static void feed_device(call_t *call, aclrtStream stream) {
    CHECK(aclsim_hold(stream) == 0);
    fill(stream, block, 0);
    call_waiting(call, body_sync_device, NULL, "aclrtSynchronizeDevice");
    fill(stream, block, 0);
    CHECK(aclsim_release(stream) == 0);
    UNTIL(is_idle(stream));
}

static void test_device_livelock(void) {
    aclrtStream fed = new_stream(), unused = new_stream(), made = NULL;
    aclrtEvent event = old_event(SYNC_FLAG);
    call_t call, create, destroy;
    feed_device(&call, fed);
    CHECK(call_join(&call) == 0);
    aclsim_set_device_livelock(1);
    feed_device(&call, fed);
    call_waiting(&create, body_create, &made, "aclrtCreateStream");
    call_waiting(&destroy, body_destroy, unused, "aclrtDestroyStream");
    CHECK_RC(aclrtSynchronizeStream(fed), 0);
    CHECK_RC(aclrtRecordEvent(event, other), 0); /* on another stream: ends nothing */
    CHECK(aclsim_waiting("aclrtSynchronizeDevice") == 1 && atomic_load(&call.rc) == -1);
    CHECK_RC(aclrtRecordEvent(event, fed), 0);
    CHECK(call_join(&call) == 0 && call_join(&create) == 0 && call_join(&destroy) == 0);
    feed_device(&call, fed);
    CHECK_RC(aclrtStreamAbort(fed), 0);
    CHECK(call_join(&call) == 107023);
    feed_device(&call, fed);
    CHECK_RC(aclrtSynchronizeDeviceWithTimeout(10), 507046); /* waits for the lock only */
    aclsim_set_device_livelock(0);
    CHECK(call_join(&call) == 0);
    END_STREAMS(made, fed);
    CHECK_RC(aclrtDestroyEvent(event), 0);
}

/* Runs in its own process, which is forked before this process has called ACL. */
static int reset_child(bool limited) {
    call_t call;
    CHECK_RC(aclrtSetDevice(0), 0);
    block = new_block(64);
    aclrtStream held = held_stream();
    fill(held, block, 0);
    call_start(&call, limited ? body_sync_limited : body_sync, held);
    until_waiting(&call, 1, limited ? "aclrtSynchronizeStreamWithTimeout" : "aclrtSynchronizeStream");
    aclsim_set_reset_crash(1);
    aclrtResetDeviceForce(0);
    return 0;
}

static int reset_untimed(void) {
    return reset_child(false);
}

static int reset_timed(void) {
    return reset_child(true);
}

/* Starts a thread that synchronizes a held stream of the current context. */
static aclrtStream synchronized_elsewhere(call_t *call) {
    aclrtStream held = held_stream();
    fill(held, block, 0);
    call_start(call, body_sync, held);
    until_waiting(call, 1, "aclrtSynchronizeStream");
    return held;
}

static int destroy_context(void) {
    call_t call;
    aclrtContext context = new_context();
    block = new_block(64);
    synchronized_elsewhere(&call);
    aclsim_set_reset_crash(1);
    aclrtDestroyContext(context);
    return 0;
}

/* Starts a thread that waits for room in the queue of a held stream. */
static aclrtStream full_elsewhere(call_t *call) {
    aclrtStream held = held_stream();
    call_waiting(call, body_fill_queue, held, "aclrtMemsetAsync");
    return held;
}

static int enqueue_in(aclError (*end)(void *), aclrtContext context) {
    call_t call;
    full_elsewhere(&call);
    aclsim_set_reset_crash(1);
    end(context);
    return 0;
}

static int reset_full(void) {
    CHECK_RC(aclrtSetDevice(0), 0);
    return enqueue_in(body_reset, NULL);
}

static int destroy_full(void) {
    return enqueue_in(aclrtDestroyContext, new_context());
}

/* An abort ends the call that waits for room, so the context can be destroyed. */
static int destroy_aborted(void) {
    call_t call;
    aclrtContext context = new_context();
    aclrtStream full = full_elsewhere(&call);
    aclsim_set_reset_crash(1);
    CHECK_RC(aclrtStreamAbort(full), 0);
    CHECK(call_join(&call) == 107023);
    CHECK_RC(aclrtDestroyContext(context), 0);
    return 0;
}

static aclrtEvent recorded_event(void) {
    aclrtEvent event = NULL;
    aclrtStream stream = new_stream();
    CHECK_RC(aclrtCreateEventExWithFlag(&event, SYNC_FLAG), 0);
    CHECK_RC(aclrtRecordEvent(event, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    return event;
}

static aclrtEvent event_of_reset_device(void) {
    CHECK_RC(aclrtSetDevice(0), 0);
    aclrtEvent event = recorded_event();
    aclsim_set_reset_crash(1);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    return event;
}

static int query_after_reset(void) {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    aclrtQueryEventStatus(event_of_reset_device(), &status);
    return 0;
}

static int wait_after_reset(void) {
    aclrtSynchronizeEventWithTimeout(event_of_reset_device(), 100);
    return 0;
}

static int destroy_after_reset(void) {
    aclrtDestroyEvent(event_of_reset_device());
    return 0;
}

static int destroy_after_set(void) {
    CHECK_RC(aclrtSetDevice(0), 0);
    aclrtEvent event = new_event(SYNC_FLAG);
    aclsim_set_reset_crash(1);
    reset_and_set();
    aclrtDestroyEvent(event);
    return 0;
}

/* After the next set, a recorded event can be queried, waited for, recorded and destroyed again. */
static int recorded_event_after_set(void) {
    aclrtEvent event = event_of_reset_device();
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK(is_complete(event));
    CHECK_RC(aclrtSynchronizeEventWithTimeout(event, 1000), 0);
    aclrtStream stream = new_stream();
    CHECK_RC(aclrtRecordEvent(event, stream), 0);
    finish_stream(stream, 0);
    CHECK_RC(aclrtDestroyEvent(event), 0);
    return 0;
}

static int query_after_destroy(void) {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    aclrtContext context = new_context();
    aclrtEvent event = recorded_event();
    aclsim_set_reset_crash(1);
    CHECK_RC(aclrtDestroyContext(context), 0);
    aclrtQueryEventStatus(event, &status);
    return 0;
}

/* The end of the primary context does not concern the streams and events of another context. */
static int reset_beside_a_context(void) {
    call_t call;
    CHECK_RC(aclrtSetDevice(0), 0);
    aclrtContext context = new_context();
    block = new_block(64);
    aclrtEvent event = recorded_event();
    aclrtStream held = synchronized_elsewhere(&call);
    aclsim_set_reset_crash(1);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK(is_complete(event));
    CHECK(aclsim_release(held) == 0);
    CHECK(call_join(&call) == 0);
    CHECK_RC(aclrtSetCurrentContext(context), 0);
    CHECK_RC(aclrtDestroyEvent(event), 0);
    return 0;
}

static int ending_of(int (*body)(void)) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        _exit(body());
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void test_end_of_a_context_crashes(void) {
    int (*const crashing[])(void) = {
        reset_untimed,       reset_timed,       destroy_context,     query_after_reset, wait_after_reset,
        destroy_after_reset, destroy_after_set, query_after_destroy, reset_full,        destroy_full};
    for (size_t i = 0; i < sizeof crashing / sizeof *crashing; i++) {
        int status = ending_of(crashing[i]);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    int (*const fine[])(void) = {reset_beside_a_context, recorded_event_after_set, destroy_aborted};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        int status = ending_of(fine[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static size_t device_bytes(void) {
    aclsim_stats_t stats;
    aclsim_stats(&stats);
    return (size_t)stats.device_bytes;
}

/* The memory of an ended context stays allocated while the device has another context, and not longer. */
static int last_context_releases_the_device(void) {
    CHECK_RC(aclrtSetDevice(0), 0);
    aclrtContext first = new_context(), second = new_context();
    new_block(4096);
    CHECK_RC(aclrtDestroyContext(second), 0);
    CHECK(device_bytes() > 0);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK(device_bytes() > 0);
    CHECK_RC(aclrtDestroyContext(first), 0);
    CHECK(device_bytes() == 0);
    return 0;
}

static void test_last_context_releases_the_device(void) {
    int status = ending_of(last_context_releases_the_device);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* In STOP mode, a wait for an event behind the failed task returns the code of the task. */
static int event_in_stop_mode(void) {
    aclrtEvent event = NULL;
    CHECK_RC(aclrtSetDevice(0), 0);
    block = new_block(64);
    aclrtStream stopping = new_stream(), failing = new_stream();
    CHECK_RC(aclrtSetStreamFailureMode(stopping, 1), 0);
    CHECK_RC(aclrtCreateEventExWithFlag(&event, SYNC_FLAG), 0);
    fill(failing, block, 507015);
    CHECK_RC(aclrtRecordEvent(event, failing), 0);
    CHECK_RC(aclrtSynchronizeEventWithTimeout(event, 10000), 507015);
    return 0;
}

static void test_event_in_stop_mode(void) {
    int status = ending_of(event_in_stop_mode);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    RUN(test_end_of_a_context_crashes, test_last_context_releases_the_device, test_event_in_stop_mode);
    CHECK_RC(aclrtSetDevice(0), 0);
    block = new_block(64);
    other = new_stream();
    RUN(test_query_lag, test_livelock, test_device_livelock);
}
