/* Behaviour of the runtime that programmers may not expect: full queues that block, and locks that are held. No
 * test sleeps. */
#include <string.h>

#include "graph_test.h"

static void test_full_queue(void) {
    aclrtStream stream = held_stream();
    call_t call;
    call_waiting(&call, body_fill_queue, stream, "aclrtMemsetAsync");
    CHECK(aclsim_pending(stream) == 2046);
    CHECK_RC(aclrtStreamAbort(stream), 0);
    CHECK(call_join(&call) == 107023);
    release_and_wait(stream, 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_device_sync_blocks(void) {
    aclrtStream stream = new_stream();
    void *block = new_block(64);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 7, 64, stream), 0);
    call_t device;
    call_waiting(&device, body_sync_device, NULL, "aclrtSynchronizeDevice");
    call_t reset;
    call_start(&reset, body_reset, NULL);
    UNTIL(aclsim_retain_count(0) == 0);
    CHECK(atomic_load(&device.rc) == -1 && atomic_load(&reset.rc) == -1);
    CHECK(aclsim_release(stream) == 0);
    CHECK(call_join(&device) == 0);
    CHECK(call_join(&reset) == 0);
    char text[256];
    CHECK(aclsim_violation(stats().violations - 1, text, sizeof text) > 0);
    CHECK(strstr(text, "aclrtSynchronizeDevice") != NULL);
    CHECK_RC(aclrtSetDevice(0), 0);
}

/* Neither failure mode can be set for a stream of a model. */
static void test_failure_mode_of_a_bound_stream(void) {
    aclrtStream stream = new_persistent_stream();
    aclrtStreamAttrValue value = {.failureMode = 1};
    aclmdlRI model = new_model(stream);
    CHECK_RC(aclrtSetStreamFailureMode(stream, 0), 207000);
    CHECK_RC(aclrtSetStreamFailureMode(stream, 1), 207000);
    CHECK_RC(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
    CHECK_RC(aclmdlRIEndTask(model, stream), 0);
    CHECK_RC(aclmdlRIBuildEnd(model, NULL), 0);
    CHECK_RC(aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_FAILURE_MODE, &value), 207000);
    CHECK_RC(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 207000);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK_RC(aclrtSetStreamFailureMode(stream, 0), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

typedef struct {
    aclrtStream stuck;
    aclrtContext context;
    char trace[64];
} watch_t;

static void on_state(int32_t device, aclrtDeviceState state, void *arg) {
    watch_t *watch = arg;
    size_t used = strlen(watch->trace);
    snprintf(watch->trace + used, sizeof watch->trace - used, "%d", (int)state);
    if (device != 0 || state != ACL_RT_DEVICE_STATE_RESET_PRE) {
        return;
    }
    int32_t active = 1;
    CHECK(current_context() == watch->context);
    CHECK_THEN(aclrtGetPrimaryCtxState(0, NULL, &active), active == 0);
    aclrtStream made = NULL;
    CHECK_RC(elsewhere(body_create, &made), 107002);
    CHECK_RC(aclrtStreamAbort(watch->stuck), 0);
}

static void test_state_callbacks(void) {
    watch_t watch = {.stuck = new_stream(), .context = current_context(), .trace = ""};
    aclrtEvent event = old_event(1);
    CHECK_RC(aclrtStreamWaitEvent(watch.stuck, event), 0);
    CHECK_RC(aclrtRegDeviceStateCallback("smoke", on_state, &watch), 0);
    CHECK_RC(aclrtRegDeviceStateCallback("smoke", on_state, &watch), 107000);
    call_t waiting;
    call_waiting(&waiting, body_sync, watch.stuck, "aclrtSynchronizeStream");
    CHECK_RC(aclrtResetDevice(0), 0);
    CHECK(call_join(&waiting) == 107023); /* aborted; if the reset had dropped the work, this would be 0 */
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtResetDevice(0), 0);
    CHECK_RC(aclrtRegDeviceStateCallback("smoke", NULL, NULL), 0);
    CHECK(strcmp(watch.trace, "23011") == 0);
    CHECK(current_context() == watch.context);
    CHECK_RC(aclrtDestroyEvent(event), 0);
}

static atomic_bool gate_open;
static atomic_bool gate_reached;

static void on_gate(void *unused) {
    (void)unused;
    atomic_store(&gate_reached, true);
    UNTIL(atomic_load(&gate_open));
}

static void test_host_function_holds_reset(void) {
    aclrtStream stream = new_stream();
    CHECK_RC(aclrtLaunchHostFunc(stream, on_gate, NULL), 0);
    UNTIL(atomic_load(&gate_reached));
    CHECK_RC(aclrtStreamAbort(stream), 0);
    call_t reset;
    call_start(&reset, body_reset, NULL);
    UNTIL(aclsim_retain_count(0) == 0);
    call_t set;
    call_waiting(&set, body_set, NULL, "aclrtSetDevice");
    CHECK(atomic_load(&reset.rc) == -1 && atomic_load(&set.rc) == -1);
    atomic_store(&gate_open, true);
    CHECK(call_join(&reset) == 0);
    CHECK(call_join(&set) == 0);
    CHECK(aclsim_retain_count(0) == 1);
    CHECK_RC(aclrtSynchronizeStream(NULL), 107002); /* call_start looked for a context during the reset */
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtResetDevice(0), 0);
}

int main(void) {
    CHECK_RC(aclrtSetDevice(0), 0);
    RUN(test_failure_mode_of_a_bound_stream, test_full_queue, test_device_sync_blocks, test_state_callbacks,
        test_host_function_holds_reset);
}
