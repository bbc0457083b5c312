/* Which kinds of failed tasks cause callbacks, and which ids the callbacks get; waits that time out; several
 * devices at the same time. */
#include <sys/syscall.h>
#include <unistd.h>

#include "failure_test.h"

static aclrtStream stream;
static char *block;

static uint32_t own_id(void) {
    return (uint32_t)syscall(SYS_gettid);
}

static void fail_next_call(const char *function, aclError code) {
    char rule[96];
    snprintf(rule, sizeof rule, "%s:once:async-error=%d", function, code);
    CHECK(aclsim_fault_add(rule, NULL) == 0);
}

static void check_callback(int before, aclError code) {
    CHECK_RC(aclrtSynchronizeStream(stream), code);
    CHECK(atomic_load(&reported) == before + 1);
    CHECK(last_reported().code == (uint32_t)code && last_reported().stream == id_of(stream));
    CHECK(last_reported().thread == own_id());
}

static int kernel_passes(const aclsim_launch_t *launch) {
    (void)launch;
    return 0;
}

static aclrtFuncHandle function_made(aclrtBinHandle *binary) {
    aclrtFuncHandle function = NULL;
    CHECK(aclsim_register_kernel("passes", kernel_passes, NULL) == 0);
    CHECK_RC(aclrtBinaryLoadFromData("code", 4, NULL, binary), 0);
    CHECK_RC(aclrtBinaryGetFunction(*binary, "passes", &function), 0);
    return function;
}

static atomic_int own_reported;

/* The callback of the kernel's binary runs after the other callbacks, on the same thread, while the stream is
 * still stopped. */
static void on_kernel(aclrtExceptionInfo *info, void *count) {
    CHECK(aclrtGetErrorCodeFromExceptionInfo(info) == 507015 && aclsim_pending(stream) == 1);
    atomic_store(&own_reported, atomic_load((atomic_int *)count));
}

static void test_with_callback(void) {
    aclrtBinHandle binary = NULL;
    uint64_t args = 0;
    int before = atomic_load(&reported);
    fail_next_call("aclrtMemcpyAsync", 507011);
    CHECK_RC(aclrtMemcpyAsync(block, 8, block + 8, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 0);
    check_callback(before, 507011);
    fail_next_call("aclrtMemsetAsync", 507012);
    CHECK_RC(aclrtMemsetAsync(block, 64, 1, 64, stream), 0);
    check_callback(before + 1, 507012);
    aclrtNotify notify = new_notify();
    fail_next_call("aclrtWaitAndResetNotify", 507013);
    CHECK_RC(aclrtWaitAndResetNotify(notify, stream, 0), 0);
    check_callback(before + 2, 507013);
    aclrtFuncHandle function = function_made(&binary);
    CHECK_RC(aclrtBinarySetExceptionCallback(binary, on_kernel, &reported), 0);
    fail_next_call("launch", 507015);
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function, 1, stream, NULL, &args, sizeof args, NULL, 0), 0);
    check_callback(before + 3, 507015);
    CHECK(atomic_load(&own_reported) == before + 4);
    CHECK_RC(aclrtDestroyNotify(notify), 0);
}

/* The failure stops the stream until the recycle thread is woken. The stream then has the code, and no callback
 * is called. */
static void check_silent(int before, aclError code) {
    until_faulted(stream);
    CHECK(!is_idle(stream));
    CHECK(aclsim_wake(0) == 0);
    UNTIL(is_idle(stream));
    CHECK_RC(aclrtSynchronizeStream(stream), code);
    CHECK(atomic_load(&reported) == before);
}

static void test_without_callback(void) {
    int before = atomic_load(&reported);
    aclrtNotify notify = new_notify();
    fail_next_call("aclrtValueWrite", 507001);
    CHECK_RC(aclrtValueWrite(block, 1, 0, stream), 0);
    check_silent(before, 507001);
    fail_next_call("aclrtValueWait", 507002);
    CHECK_RC(aclrtValueWait(block, 1, 0, stream), 0);
    check_silent(before, 507002);
    fail_next_call("aclrtRecordNotify", 507003);
    CHECK_RC(aclrtRecordNotify(notify, stream), 0);
    check_silent(before, 507003);
    CHECK_RC(aclrtDestroyNotify(notify), 0);
}

static void check_wait(aclrtEvent event, const char *rule) {
    int before = atomic_load(&reported);
    double began = now_s();
    if (rule != NULL) {
        fail_next_call(rule, 507001);
    }
    CHECK_RC(aclrtStreamWaitEvent(stream, event), 0);
    aclsim_clock_advance(60000000000);
    check_silent(before, 507001);
    CHECK(now_s() - began >= 1.0);
}

/* A timed-out wait fails no earlier than after one second of real time, even with the virtual clock. */
static void test_waits(void) {
    aclrtEvent flagged = old_event(SYNC_FLAG);
    aclrtEvent mark = new_event(SYNC_FLAG);
    aclrtStream held = held_stream();
    CHECK_RC(aclrtRecordEvent(mark, held), 0);
    aclsim_clock_virtual(1);
    CHECK_RC(aclrtSetOpWaitTimeout(1), 0);
    check_wait(flagged, NULL);
    check_wait(mark, NULL);
    CHECK_RC(aclrtSetOpWaitTimeout(0), 0);
    check_wait(mark, "aclrtStreamWaitEvent");
    aclsim_clock_virtual(0);
    /* the wait fails although the event is recorded in time */
    double began = now_s();
    fail_next_call("aclrtStreamWaitEvent", 507001);
    CHECK_RC(aclrtStreamWaitEvent(stream, mark), 0);
    release_and_wait(held, 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507001);
    CHECK(now_s() - began >= 1.0);
    /* Without the fault, the wait ends as soon as the event is recorded. */
    CHECK_RC(aclrtStreamWaitEvent(stream, mark), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK_RC(aclrtDestroyStream(held), 0);
    END_EVENTS(flagged, mark);
}

static aclmdlRI captured(void) {
    aclmdlRI model = NULL;
    CHECK_RC(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 1, 64, stream), 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 2, 64, stream), 0);
    CHECK_RC(aclmdlRICaptureEnd(stream, &model), 0);
    return model;
}

static aclError body_execute(void *model) {
    return aclmdlRIExecuteAsync(model, stream) != 0 ? -2 : (aclError)own_id();
}

/* A callback gets the ids of the inner stream, and the thread that enqueued the execution. */
static void test_models(void) {
    aclmdlRI model = captured();
    aclrtEvent behind = new_event(SYNC_FLAG);
    for (int i = 0; i < 100; i++) {
        int before = atomic_load(&reported);
        CHECK(aclsim_hold(stream) == 0);
        uint32_t enqueuer = (uint32_t)elsewhere(body_execute, model);
        CHECK_RC(aclrtRecordEvent(behind, stream), 0);
        CHECK_RC(aclrtFree(block), 0); /* the fill fails because its memory is freed */
        CHECK(aclsim_release(stream) == 0);
        until_faulted(stream);
        CHECK(!is_complete(behind) && !is_idle(stream) && atomic_load(&reported) == before);
        CHECK(aclsim_wake(0) == 0);
        UNTIL(i % 2 == 0 ? is_complete(behind) : is_idle(stream));
        CHECK(atomic_load(&reported) == before + 1);
        CHECK(last_reported().thread == enqueuer && last_reported().stream != id_of(stream));
        CHECK_RC(aclrtSynchronizeStream(stream), 507001);
        CHECK_RC(aclrtMalloc((void **)&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
        CHECK_RC(aclmdlRIDestroy(model), 0);
        model = captured();
    }
    END({aclmdlRIDestroy, model}, {aclrtDestroyEvent, behind});
}

static atomic_int inside;

/* Each callback waits for the other callback. So each description is read while both descriptions are being
 * delivered. */
static void on_both(aclrtExceptionInfo *info) {
    uint32_t device = aclrtGetDeviceIdFromExceptionInfo(info);
    atomic_fetch_add(&inside, 1);
    UNTIL(atomic_load(&inside) >= 2);
    CHECK(device <= 1 && aclrtGetDeviceIdFromExceptionInfo(info) == device);
    CHECK(aclrtGetErrorCodeFromExceptionInfo(info) == (device == 0 ? 507001 : 507015));
}

static void test_devices(void) {
    CHECK_RC(aclrtSetExceptionInfoCallback(on_both), 0);
    CHECK_RC(aclrtSetDevice(1), 0);
    aclrtStream other = new_stream();
    char *there = new_block(64);
    fill(other, there, 507015);
    until_faulted(other);
    CHECK_RC(aclrtSetDevice(0), 0);
    fill(stream, block, 507001);
    until_faulted(stream);
    CHECK(aclsim_wake(0) == 0 && aclsim_wake(1) == 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507001);
    CHECK_RC(aclrtSetDevice(1), 0);
    CHECK_RC(aclrtSynchronizeStream(other), 507015);
    CHECK_RC(aclrtSetExceptionInfoCallback(NULL), 0);
    CHECK_RC(aclrtResetDeviceForce(1), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
}

int main(void) {
    CHECK_RC(rtRegTaskFailCallbackByModule("kinds", on_failure), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    stream = new_stream();
    block = new_block(64);
    RUN(test_with_callback, test_without_callback, test_waits, test_models, test_devices);
}
