/* Which calls wake the recycle thread of a device, and which calls do not. */
#include "clock_test.h"
#include "failure_test.h"
#include "graph_test.h"

static char *block;
static aclrtStream failing;
static aclrtStream other;
static int reported_before;
static int64_t wakes_before;

/* Stops a stream at a failed task that is followed by another task. */
static void stop(void) {
    reported_before = atomic_load(&reported);
    failing = new_stream();
    fill(failing, block, 507001);
    fill(failing, block, 0);
    until_faulted(failing);
    wakes_before = aclsim_wakes(0);
}

static void check_stopped(void) {
    CHECK(aclsim_wakes(0) == wakes_before && aclsim_faulted(failing) == 1);
    CHECK(atomic_load(&reported) == reported_before && aclsim_pending(failing) == 2);
}

static void check_woken(void) {
    CHECK(aclsim_wakes(0) > wakes_before);
    until_reported(reported_before + 1);
    UNTIL(aclsim_pending(failing) <= 0);
    finish_stream(failing, 507001);
}

static void test_not_waking(void) {
    aclrtEvent mark = new_event(SYNC_FLAG);
    aclrtEvent waited = old_event(4);
    aclrtStream idle = new_stream();
    aclrtEventWaitStatus status;
    stop();
    CHECK_RC(aclrtRecordEvent(mark, failing), 0);
    CHECK_RC(aclrtRecordEvent(waited, other), 0);
    for (int i = 0; i < 100; i++) {
        CHECK(!is_complete(mark) && !is_idle(failing));
        is_idle(other);
        is_complete(waited);
    }
    old_complete(waited); /* the event has neither SYNC nor TIME_LINE */
    CHECK_RC(aclrtQueryEventWaitStatus(waited, &status), 0);
    CHECK_RC(aclrtSynchronizeStream(idle), 0);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(idle, 10), 0);
    CHECK_RC(aclrtStreamWaitEvent(idle, mark), 0);
    fill(other, block, 0);
    CHECK(aclsim_wakes(0) == wakes_before && aclsim_faulted(failing) == 1 &&
          atomic_load(&reported) == reported_before);
    CHECK(aclsim_wake(0) == 0 && aclsim_wake(99) == -1 && aclsim_wakes(99) == -1);
    CHECK_RC(aclrtSynchronizeStream(idle), 0);
    check_woken();
    CHECK_RC(aclrtSynchronizeStream(other), 0);
    CHECK_RC(aclrtDestroyStream(idle), 0);
    END_EVENTS(mark, waited);
}

static aclError sync_stream_limited(aclrtStream stream) {
    return aclrtSynchronizeStreamWithTimeout(stream, 10000);
}

static aclError sync_device(aclrtStream stream) {
    (void)stream;
    return aclrtSynchronizeDevice();
}

static aclError sync_device_limited(aclrtStream stream) {
    (void)stream;
    return aclrtSynchronizeDeviceWithTimeout(10000);
}

/* Synchronizes a stream other than the failed one. In half of the rounds, the device has done the work of this
 * stream before, but the host has not seen the end yet. */
static void test_synchronizing(void) {
    aclError (*const calls[])(aclrtStream) = {aclrtSynchronizeStream, sync_stream_limited, sync_device,
                                              sync_device_limited};
    for (int i = 0; i < 40; i++) {
        aclrtStream fresh = new_stream();
        stop();
        fill(fresh, block, 0);
        UNTIL(!(i % 8 < 4 && aclsim_pending(fresh) > 0));
        aclError rc = calls[i % 4](fresh);
        CHECK(rc == 0 || (i % 4 >= 2 && rc == 507001));
        CHECK(aclsim_wakes(0) > wakes_before);
        until_reported(reported_before + 1);
        aclrtSynchronizeStream(failing); /* the device's synchronizing call may have returned the error code */
        END({aclrtDestroyStream, failing}, {aclrtDestroyStream, fresh});
    }
}

static void test_events(void) {
    aclrtEvent old = old_event(SYNC_FLAG);
    aclrtEvent timed = old_event(TIME_LINE_FLAG);
    aclrtEvent mark = new_event(SYNC_FLAG);
    for (int i = 0; i < 100; i++) {
        stop();
        CHECK_RC(aclrtRecordEvent(old, other), 0);
        UNTIL(!(i % 2 == 0 && aclsim_pending(other) > 0));
        wakes_before = aclsim_wakes(0); /* the 64th task of `other` also wakes it */
        CHECK(!old_complete(old));      /* not complete, even if the device has finished */
        check_woken();
    }
    CHECK_RC(aclrtRecordEvent(mark, other), 0);
    CHECK_RC(aclrtRecordEvent(timed, other), 0);
    CHECK_THEN(aclrtSynchronizeStream(other), old_complete(old));
    stop();
    CHECK(old_complete(old));
    check_stopped();
    CHECK(old_complete(timed));
    check_woken();
    stop();
    CHECK_RC(aclrtSynchronizeEvent(mark), 0);
    check_woken();
    stop();
    CHECK_RC(aclrtSynchronizeEventWithTimeout(mark, 1), 0);
    check_woken();
    END_EVENTS(old, timed, mark);
}

static void test_enqueuing(void) {
    aclrtStream fresh = new_stream();
    stop();
    for (int i = 0; i < 63; i++) {
        fill(fresh, block, 0);
    }
    check_stopped();
    fill(fresh, block, 0);
    check_woken();
    CHECK_RC(aclrtDestroyStream(fresh), 0);
}

static aclError body_fill(void *stream) {
    return aclrtMemsetAsync(block, 64, 1, 64, stream);
}

static void test_full_queue(void) {
    aclrtStream full = held_stream();
    for (int i = 0; i < 2046; i++) {
        fill(full, block, 0);
    }
    stop();
    call_t call;
    call_waiting(&call, body_fill, full, "aclrtMemsetAsync");
    check_woken();
    CHECK(aclsim_release(full) == 0);
    CHECK(call_join(&call) == 0);
    finish_stream(full, 0);
}

/* A synchronizing thread keeps the recycle thread awake, so later failures are handled too. */
static void test_waiting_thread(void) {
    aclrtStream held = held_stream();
    fill(held, block, 0);
    call_t call;
    call_waiting(&call, body_sync, held, "aclrtSynchronizeStream");
    for (int i = 0; i < 20; i++) {
        int before = atomic_load(&reported);
        aclrtStream fresh = new_stream();
        fill(fresh, block, 507015);
        until_reported(before + 1);
        finish_stream(fresh, 507015);
    }
    CHECK(aclsim_release(held) == 0);
    CHECK(call_join(&call) == 0);
    CHECK_RC(aclrtDestroyStream(held), 0);
}

static int kernel_fails(const aclsim_launch_t *launch) {
    (void)launch;
    return 507015;
}

static void launch(aclrtStream stream) {
    uint64_t args = 0;
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function_of("fails"), 1, stream, NULL, &args, sizeof args, NULL, 0),
             0);
}

/* Without a call, only the failure of a kernel is found: the monitor finds it one second later. The test
 * advances the virtual clock by this second. */
static void test_monitor(void) {
    aclrtStream kernels = new_stream();
    stop();
    aclsim_clock_virtual(1);
    CHECK(aclsim_clock_advance(5000000000) == 0);
    check_stopped();
    finish_stream(failing, 507001);
    CHECK(aclsim_register_kernel("fails", kernel_fails, NULL) == 0);
    int before = atomic_load(&reported);
    launch(kernels);
    until_faulted(kernels);
    UNTIL(due_in_ns() != -1 || atomic_load(&reported) != before);
    CHECK(due_in_ns() == 1000000000 && atomic_load(&reported) == before);
    CHECK(aclsim_clock_advance(1000000000) == 0);
    until_reported(before + 1);
    aclsim_clock_virtual(0);
    CHECK(last_reported().code == 507015 && last_reported().stream == id_of(kernels));
    finish_stream(kernels, 507015);
}

int main(void) {
    CHECK_RC(rtRegTaskFailCallbackByModule("wakes", on_failure), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    block = new_block(64);
    other = new_stream();
    RUN(test_not_waking, test_synchronizing, test_events, test_enqueuing, test_full_queue, test_waiting_thread,
        test_monitor);
}
