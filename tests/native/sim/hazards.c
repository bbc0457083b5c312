/* Known faults of the runtime, which the simulator reproduces on request: a query that lags, two livelocks, and
 * a crash in a reset. */
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

static void test_reset_crash(void) {
    for (int i = 0; i < 2; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            _exit(reset_child(i == 1));
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
}

int main(void) {
    test_reset_crash();
    CHECK_RC(aclrtSetDevice(0), 0);
    block = new_block(64);
    other = new_stream();
    RUN(test_query_lag, test_livelock, test_device_livelock);
}
