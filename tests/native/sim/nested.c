/* Sets and resets of a device inside the callbacks of its own set or reset, and resets that fail. */
#include "sim_test.h"

typedef enum { NOTHING, SET, CREATE_CONTEXT } action_t;

/* An action that the callback runs once, and its result. */
typedef struct {
    action_t action;
    int at_device; /* the device state at which it runs; -1: at none */
    int at_stream;
    aclError rc;
    bool done;
} plan_t;

static plan_t plan;

static void act(void) {
    aclrtContext context = NULL;
    plan.done = true;
    plan.rc = plan.action == SET ? aclrtSetDevice(0) : aclrtCreateContext(&context, 0);
}

static void on_device(int32_t device, aclrtDeviceState state, void *arg) {
    (void)device;
    (void)arg;
    if (plan.action != NOTHING && !plan.done && (int)state == plan.at_device) {
        act();
    }
}

static void on_stream(aclrtStream stream, aclrtStreamState state, void *arg) {
    (void)stream;
    (void)arg;
    if (plan.action != NOTHING && !plan.done && (int)state == plan.at_stream) {
        act();
    }
}

static int end_all(void) {
    int resets = 0;
    while (aclsim_retain_count(0) > 0) {
        CHECK_RC(aclrtResetDevice(0), 0);
        resets++;
    }
    return resets;
}

/* Checks that the device works, and that nothing is left after its reset. */
static void check_works(void) {
    aclrtStream stream = new_stream();
    void *block = new_block(64);
    CHECK_RC(aclrtMemsetAsync(block, 64, 1, 64, NULL), 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 1, 64, stream), 0);
    CHECK_RC(aclrtSynchronizeDevice(), 0);
    END({aclrtFree, block}, {aclrtDestroyStream, stream});
}

/* While a reset tears down the primary context, its callbacks can neither set the device nor create a context.
 */
static void test_callbacks_of_a_reset_are_refused(action_t action, int at_device, int at_stream) {
    CHECK_RC(aclrtSetDevice(0), 0);
    new_stream();
    plan = (plan_t){.action = action, .at_device = at_device, .at_stream = at_stream};
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK(plan.done && plan.rc == 507033);
    CHECK(aclsim_retain_count(0) == 0 && stats().contexts == 0 && stats().streams == 0);
    plan.action = NOTHING;
    CHECK_RC(aclrtSetDevice(0), 0);
    check_works();
    CHECK(end_all() == 1);
}

/* A set by a callback works after the teardown and during a set, and is counted like any other set. */
static void test_set_counts(int at_device, int at_stream, bool resets, int want) {
    plan = (plan_t){.action = resets ? NOTHING : SET, .at_device = at_device, .at_stream = at_stream};
    CHECK_RC(aclrtSetDevice(0), 0);
    if (resets) {
        plan.action = SET;
        CHECK_RC(aclrtResetDevice(0), 0);
    }
    CHECK(plan.done && plan.rc == 0);
    plan.action = NOTHING;
    check_works();
    CHECK(end_all() == want);
    CHECK(stats().streams == 0);
}

static atomic_int reached;
static atomic_bool open;

static void on_gate(int32_t device, aclrtDeviceState state, void *arg) {
    (void)device;
    (void)arg;
    if (state == ACL_RT_DEVICE_STATE_RESET_PRE && atomic_fetch_add(&reached, 1) == 0) {
        UNTIL(atomic_load(&open));
    }
}

static void test_a_failing_reset_is_waited_for(void) {
    call_t failing;
    call_t real;
    call_t set;
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtRegDeviceStateCallback("gate", on_gate, NULL), 0);
    CHECK(aclsim_fault_add("aclrtResetDeviceForce:reset-fail=1:nth=1", NULL) == 0);
    call_start(&failing, body_reset, NULL);
    UNTIL(atomic_load(&reached) != 0);
    call_waiting(&real, body_reset, NULL, "aclrtResetDeviceForce");
    CHECK(atomic_load(&reached) == 1);
    call_waiting(&set, body_set, NULL, "aclrtSetDevice");
    atomic_store(&open, true);
    CHECK(call_join(&failing) != 0);
    CHECK_RC(call_join(&real), 0);
    CHECK_RC(call_join(&set), 0);
    CHECK_RC(aclrtRegDeviceStateCallback("gate", NULL, NULL), 0);
    aclsim_fault_clear();
    CHECK_RC(aclrtSetDevice(0), 0);
    check_works();
    end_all();
}

int main(void) {
    CHECK_RC(aclInit(NULL), 0);
    CHECK_RC(aclrtRegDeviceStateCallback("device", on_device, NULL), 0);
    CHECK_RC(aclrtRegStreamStateCallback("stream", on_stream, NULL), 0);
    for (action_t action = SET; action <= CREATE_CONTEXT; action++) {
        test_callbacks_of_a_reset_are_refused(action, ACL_RT_DEVICE_STATE_RESET_PRE, -1);
        test_callbacks_of_a_reset_are_refused(action, -1, ACL_RT_STREAM_STATE_DESTROY_PRE);
    }
    test_set_counts(ACL_RT_DEVICE_STATE_RESET_POST, -1, true, 1);
    test_set_counts(ACL_RT_DEVICE_STATE_SET_PRE, -1, false, 2);
    test_set_counts(ACL_RT_DEVICE_STATE_SET_POST, -1, false, 2);
    test_set_counts(-1, ACL_RT_STREAM_STATE_CREATE_POST, false, 2);
    test_a_failing_reset_is_waited_for();
}
