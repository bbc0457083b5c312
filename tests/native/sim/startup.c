/* Initialising and finalizing ACL: configurations, callbacks, default device, releases, dumps and profiles.
 * Each case runs in its own process. */
#include <string.h>

#include "sim_test.h"
#include "sim_types.h"

#define ACL_FN(kind, ret, name, params, args, since) ret name params;
#include "sim_api.inc"
#undef ACL_FN

/* Creates a file with the text and returns its path. */
static const char *file_of(const char *text) {
    static char path[64];
    strcpy(path, "/tmp/aclsim-startup-XXXXXX");
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
    return path;
}

static aclError init_with(const char *text) {
    const char *path = file_of(text);
    aclError rc = aclInit(path);
    unlink(path);
    return rc;
}

static void test_bad_files(void) {
    char deep[64] = "";
    for (int i = 0; i < 11; i++) {
        strcat(deep, "[");
    }
    for (int i = 0; i < 11; i++) {
        strcat(deep, "]");
    }
    CHECK_RC(aclInit("/tmp"), 100003);
    CHECK_RC(init_with("{"), 100006);
    CHECK_RC(init_with("{\"a\": 01}"), 100006);
    CHECK_RC(init_with("{\"a\": \"\\x\"}"), 100006);
    CHECK_RC(init_with("{\"a\": 1} b"), 100006);
    CHECK_RC(init_with("{\"a\": tru}"), 100006);
    CHECK_RC(init_with(deep), 100006);
    CHECK_RC(init_with("{\"err_msg_mode\": \"2\"}"), 100000);
    CHECK_RC(init_with("{\"dump\": 3}"), 100009);
    CHECK_RC(init_with("{\"profiler\": []}"), 100010);
    CHECK_RC(init_with("{\"StackSize\": {\"aicore_stack_size\": 0}}"), 500001);
    CHECK_RC(init_with("{\"defaultDevice\": {\"default_device\": \"01\"}}"), 500001);
    CHECK_RC(init_with("{\"defaultDevice\": {\"default_device\": 1}}"), 500001);
    CHECK_RC(init_with("{\"defaultDevice\": {\"default_device\": \"9\"}}"), 107001);
    CHECK_RC(init_with("{\"acl_graph\": {\"event_mode\": \"x\"}}"), 100000);
    CHECK_RC(aclFinalizeReference(NULL), 100037); /* none of these calls has initialised ACL */
    CHECK_RC(init_with(""), 0);
}

static void test_good_files(void) {
    size_t stack = 0;
    uint64_t count = 9;
    const char *text =
        "{\"x\": [1, -2.5e3, null, true, {\"y\": \"\\u00e9\\n\"}],\n \"err_msg_mode\": \"0\", \"dump\": {},"
        "\"StackSize\": {\"aicore_stack_size\": 49152, \"simt_stack_size\": 1}}";
    CHECK_RC(init_with(text), 0);
    CHECK_THEN(aclrtDeviceGetLimit(ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, &stack), stack == 49152);
    CHECK_RC(aclInit(NULL), 100002);
    CHECK_THEN(aclFinalizeReference(&count), count == 1);
    CHECK_RC(aclFinalize(), 0);
    CHECK_RC(aclFinalize(), 100037);
    CHECK_RC(init_with("{}"), 100000); /* differs from the first configuration */
    CHECK_RC(init_with(text), 0);
    CHECK_RC(aclFinalize(), 0);
    CHECK_RC(aclInit(NULL), 0);
    /* finalizing does not destroy objects */
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclFinalize(), 0);
    CHECK_RC(aclrtSynchronizeDevice(), 0);
    CHECK_RC(aclrtResetDevice(0), 0);
}

static void test_default_device(void) {
    int32_t device = -1;
    CHECK_RC(init_with("{\"defaultDevice\": {\"default_device\": \"1\"}}"), 0);
    CHECK_RC(aclrtGetDevice(&device), 0);
    CHECK(device == 1 && aclsim_retain_count(1) == 0); /* the default device is selected, but not set */
    aclrtStream stream = new_stream();
    CHECK(aclsim_retain_count(1) == 1);
    CHECK_THEN(aclrtSynchronizeStream(stream), aclsim_retain_count(1) == 1);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_RC(aclrtResetDevice(1), 0);
    CHECK_RC(aclFinalize(), 0);
    CHECK_RC(aclrtGetDevice(&device), 107002);
    CHECK_RC(aclrtCreateStream(&stream), 107002);
}

static aclError body_fail(void *unused) {
    (void)unused;
    return aclrtMalloc(NULL, 0, ACL_MEM_MALLOC_HUGE_FIRST);
}

static aclError body_take_text(void *unused) {
    const char *text = aclGetRecentErrMsg();
    (void)unused;
    return text != NULL && strstr(text, "devPtr") != NULL ? 0 : 1;
}

/* A call fails on one thread, and a second thread fetches the error text. The second thread gets the text only
 * if `together` is true. The main thread never gets the text. */
static void test_error_texts(const char *mode, bool together) {
    char text[64];
    snprintf(text, sizeof text, "{\"err_msg_mode\": \"%s\"}", mode);
    CHECK_RC(init_with(text), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(elsewhere(body_fail, NULL), 100000);
    CHECK_RC(elsewhere(body_take_text, NULL), together ? 0 : 1);
    CHECK(aclGetRecentErrMsg() == NULL); /* the text is another thread's, or has been fetched */
    end_acl();
}

static void test_texts_apart(void) {
    test_error_texts("0", false);
}

static void test_texts_together(void) {
    test_error_texts("1", true);
}

static char said[16];

static aclError on_start(const char *config, size_t length, void *user) {
    CHECK(strlen(config) == length);
    strcat(said, user);
    return *(char *)user == '!' ? 500005 : 0;
}

static aclError on_end(void *user) {
    strcat(said, user);
    return *(char *)user == '!' ? 500006 : 0;
}

static void test_callbacks(void) {
    char words[] = "m\0o\0n\0!";
    CHECK_RC(aclInitCallbackRegister(ACL_REG_TYPE_OTHER, on_start, words + 2), 0);
    CHECK_RC(aclInitCallbackRegister(ACL_REG_TYPE_OTHER, on_start, words + 4), 0);
    CHECK_RC(aclInitCallbackRegister(ACL_REG_TYPE_ACL_MODEL, on_start, words), 0);
    CHECK_RC(aclInitCallbackRegister(ACL_REG_TYPE_ACL_MODEL, on_start, words), 500000);
    CHECK_RC(aclInitCallbackRegister(ACL_REG_TYPE_ACL_DVPP, NULL, words), 100000);
    CHECK_RC(aclInitCallbackRegister(ACL_REG_TYPE_ACL_DVPP, on_start, words + 6), 0);
    CHECK_RC(aclInit(NULL), 500005);
    CHECK(strcmp(said, "m!") == 0);
    CHECK_RC(aclInitCallbackUnRegister(ACL_REG_TYPE_ACL_DVPP, on_start), 0);
    CHECK_RC(aclInitCallbackUnRegister(ACL_REG_TYPE_ACL_DVPP, on_start), 500000);
    said[0] = '\0';
    CHECK_RC(aclInit(NULL), 0);
    CHECK(strcmp(said, "mon") == 0);
    CHECK_RC(aclInitCallbackRegister(ACL_REG_TYPE_ACL_DVPP, on_start, words + 6), 0); /* called at once */
    CHECK(strcmp(said, "mon!") == 0);
    said[0] = '\0';
    CHECK_RC(aclFinalizeCallbackRegister(ACL_REG_TYPE_ACL_MODEL, on_end, words), 0);
    CHECK_RC(aclFinalizeCallbackRegister(ACL_REG_TYPE_OTHER, on_end, words + 6), 0);
    CHECK_RC(aclFinalizeCallbackRegister(ACL_REG_TYPE_OTHER, NULL, NULL), 100000);
    CHECK_RC(aclFinalize(), 500006);
    CHECK_RC(aclInit(NULL), 100002); /* ACL is still initialised */
    CHECK_RC(aclFinalizeCallbackUnRegister(ACL_REG_TYPE_OTHER, on_end), 0);
    CHECK_RC(aclFinalizeCallbackUnRegister(ACL_REG_TYPE_OTHER, on_end), 500000);
    CHECK_RC(aclFinalize(), 0);
    CHECK(strcmp(said, "m!m") == 0);
}

/* Behaviour of resets and contexts that differs in older releases. */
static void test_release_8_5(void) {
    char bytes[8];
    CHECK_RC(aclrtSetDevice(0), 0);
    void *device = new_block(8);
    CHECK_RC(aclrtMemcpy(bytes, 8, device, 0, ACL_MEMCPY_DEVICE_TO_HOST), 107000);
    CHECK_RC(aclrtMemsetAsync(device, 8, 0, 0, NULL), 107000);
    CHECK_RC(aclrtFree(device), 0);
    aclrtContext before = current_context();
    aclrtContext context = new_context();
    CHECK_RC(aclrtDestroyContext(context), 0);
    CHECK_RC(aclrtSetCurrentContext(context), 0); /* accepted, but has no effect */
    CHECK_RC(aclrtSynchronizeDevice(), 107002);
    CHECK_RC(aclrtResetDevice(0), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    aclrtContext after = current_context();
    CHECK(after != before); /* the reset has created a new context */
    CHECK_RC(aclrtDestroyContext(before), 107002);
    CHECK_RC(aclrtResetDevice(0), 0);
}

/* A lookup without a context removes the thread's binding only on the release `master`. */
static aclError query_and_bind_again(void) {
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(elsewhere(body_reset, NULL), 0);
    CHECK_RC(aclrtSynchronizeDevice(), 107002);
    CHECK_RC(elsewhere(body_set, NULL), 0);
    return aclrtSynchronizeDevice();
}

static void test_release_9_1(void) {
    CHECK_RC(query_and_bind_again(), 0);
    CHECK_RC(aclrtMemcpy(NULL, 0, NULL, 0, ACL_MEMCPY_DEVICE_TO_HOST), 0);
}

static void test_release_9_0(void) {
    aclrtContext context = new_context();
    CHECK_RC(aclrtDestroyContext(context), 0);
    CHECK_RC(aclrtSetCurrentContext(context), 107000);
}

static void test_release_master(void) {
    CHECK_RC(query_and_bind_again(), 107002);
}

static void test_visible(void) {
    uint32_t count = 0;
    int32_t id = -1;
    CHECK_RC(aclrtGetDeviceCount(&count), 0);
    CHECK_THEN(aclrtGetLogicDevIdByUserDevId(1, &id), count == 2 && id == 3);
    CHECK_RC(aclrtSetDevice(1), 0);
    CHECK_RC(aclrtSetDevice(2), 107001);
    CHECK_RC(aclrtResetDevice(1), 0);
}

static void test_visible_none(void) {
    uint32_t count = 7;
    CHECK_RC(aclrtGetDeviceCount(&count), 207004);
    const char *text = aclGetRecentErrMsg();
    CHECK(text != NULL && strstr(text, "ASCEND_RT_VISIBLE_DEVICES") != NULL);
    CHECK_RC(aclrtSetDevice(0), 107001);
    CHECK(count == 7);
}

static int32_t on_chunk(const acldumpChunk *chunk, int32_t size) {
    return chunk != NULL ? size : 0;
}

static void test_dumps(void) {
    char path[32] = "x";
    CHECK_RC(aclmdlSetDump("/tmp/x"), 100045);
    CHECK_RC(aclmdlInitDump(), 0);
    CHECK_RC(aclmdlInitDump(), 100044);
    CHECK_RC(aclmdlSetDump(NULL), 100000);
    CHECK_RC(aclmdlSetDump("/tmp/there/is/no/such.json"), 100003);
    const char *config = file_of("{\"dump\": {}}");
    CHECK_RC(aclmdlSetDump(config), 0);
    unlink(config);
    CHECK_RC(aclmdlFinalizeDump(), 0);
    CHECK_RC(aclmdlFinalizeDump(), 100045);
    CHECK_RC(acldumpRegCallback(NULL, 0), 100000);
    CHECK_RC(acldumpRegCallback(on_chunk, 0), 0);
    acldumpUnregCallback();
    CHECK_RC(aclopStartDumpArgs(9, "/tmp"), 100000);
    CHECK_RC(acldumpGetExceptionInfoPath(path, sizeof path), 0);
    CHECK(path[0] == '\0' && acldumpGetPath(AIC_ERR_NORM_DUMP) == NULL);
    CHECK_RC(aclopStartDumpArgs(AIC_ERR_NORM_DUMP, "/tmp/args"), 0);
    CHECK(strcmp(acldumpGetPath(AIC_ERR_NORM_DUMP), "/tmp/args") == 0);
    CHECK_RC(acldumpGetExceptionInfoPath(path, 4), 100000);
    CHECK_RC(acldumpSaveExceptionInfo("x", NULL, NULL, 1), 100000);
    CHECK_RC(acldumpSaveExceptionInfo("x", NULL, NULL, 0), 0);
    CHECK_RC(aclopStopDumpArgs(AIC_ERR_NORM_DUMP), 0);
}

static void test_profiles(void) {
    uint32_t devices[] = {0, 9};
    uint32_t range = 0;
    size_t size = 0;
    CHECK_RC(aclprofFinalize(), 100043);
    CHECK(aclprofCreateConfig(devices, 2, ACL_AICORE_NONE, NULL, 0) == NULL);
    aclprofConfig *config = aclprofCreateConfig(devices, 1, ACL_AICORE_NONE, NULL, 1);
    CHECK_RC(aclprofStart(config), 100043);
    CHECK_RC(aclprofInit("/tmp", 9), 100000);
    CHECK_RC(aclprofInit("/tmp", 4), 0);
    CHECK_RC(aclprofInit("/tmp", 4), 100042);
    CHECK_RC(aclprofSetConfig(ACL_PROF_ARGS_MAX, "x", 1), 100000);
    CHECK_RC(aclprofSetConfig(ACL_PROF_LLC_MODE, "x", 1), 0);
    CHECK_RC(aclprofStart(config), 0);
    CHECK_RC(aclprofStart(config), 100042);
    CHECK_RC(aclprofDestroyConfig(config), 100042);
    CHECK_RC(aclprofStop(config), 0);
    CHECK_RC(aclprofStop(config), 100043);
    void *stamp = aclprofCreateStamp();
    CHECK_RC(aclprofStart(stamp), 100000); /* a profile of another kind */
    CHECK_RC(aclprofSetStampTraceMessage(stamp, "hello", 5), 0);
    CHECK_RC(aclprofMark(stamp), 0);
    CHECK_RC(aclprofPop(), 500001);
    CHECK_RC(aclprofPush(stamp), 0);
    CHECK_RC(aclprofRangePop(), 0);
    CHECK_RC(aclprofRangePushEx(NULL), 100000);
    CHECK_RC(aclprofRangeStart(stamp, &range), 0);
    CHECK_RC(aclprofRangeStop(range + 1), 100000);
    CHECK_RC(aclprofRangeStop(range), 0);
    aclprofDestroyStamp(stamp);
    CHECK_RC(aclprofMark(stamp), 100000);
    CHECK_RC(aclprofMarkEx("x", 1, NULL), 107002);
    CHECK(aclprofStr2Id("a") != aclprofStr2Id("b") && aclprofStr2Id("a") == aclprofStr2Id("a"));
    aclprofStepInfo *step = aclprofCreateStepInfo();
    CHECK_RC(aclprofGetStepTimestamp(step, (aclprofStepTag)2, NULL), 100000);
    CHECK_RC(aclprofGetStepTimestamp(step, ACL_STEP_START, NULL), 107002);
    aclprofDestroyStepInfo(step);
    CHECK_RC(aclprofGetOpDescSize(&size), 0);
    CHECK_RC(aclprofGetOpNum(devices, 0, &range), 0);
    CHECK(range == 0 && aclprofGetOpFlag(devices, 8, 0) == ACL_SUBSCRIBE_NONE);
    CHECK_RC(aclprofGetOpTypeLen(devices, 8, 0, &size), 100000);
    CHECK(aclprofGetOpDuration(devices, 8, 0) == 0 && aclprofGetOpAttriValue(devices, 8, 0, 0) == NULL);
    CHECK_RC(aclprofDestroyConfig(config), 0);
    CHECK_RC(aclprofFinalize(), 0);
    CHECK(stats().descriptions == 0);
}

/* It is no violation if a callback of a reset makes ACL calls. It is a violation if a call is still inside
 * after the callbacks. */
static void on_state(int32_t device, aclrtDeviceState state, void *stream) {
    (void)device;
    if (state == ACL_RT_DEVICE_STATE_RESET_PRE) {
        CHECK_RC(aclrtStreamAbort(stream), 0);
        CHECK_RC(aclrtStreamAbort(NULL), 107000);
    }
}

static void test_usage_checker_checks_after_the_callbacks(void) {
    call_t call;
    CHECK_RC(aclrtSetDevice(0), 0);
    aclrtStream stream = new_stream();
    CHECK_RC(aclrtRegDeviceStateCallback("abort", on_state, stream), 0);
    void *block = new_block(64);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 0, 64, stream), 0);
    call_waiting(&call, body_sync, stream, "aclrtSynchronizeStream");
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK(call_join(&call) == 107023 && stats().violations == 0);
    CHECK_RC(aclrtRegDeviceStateCallback("abort", NULL, NULL), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    stream = held_stream();
    call_waiting(&call, body_fill_queue, stream, "aclrtMemsetAsync");
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK(call_join(&call) == 107002 && stats().violations >= 1);
}

/* This process never calls ACL itself, so its children do not count as forked. */
int main(void) {
    RUN_IN_CHILDREN(test_bad_files, test_good_files, test_default_device, test_texts_apart, test_texts_together,
                    test_callbacks, test_dumps, test_profiles, test_usage_checker_checks_after_the_callbacks);
    run_in_child(test_release_8_5, "AIOACL_SIM_CANN", "8.5");
    run_in_child(test_release_9_0, "AIOACL_SIM_CANN", "9.0");
    run_in_child(test_release_9_1, "AIOACL_SIM_CANN", "9.1");
    run_in_child(test_release_master, "AIOACL_SIM_CANN", "master");
    setenv("AIOACL_SIM_DEVICES", "4", 1);
    run_in_child(test_visible, "ASCEND_RT_VISIBLE_DEVICES", "1,3,x");
    run_in_child(test_visible_none, "ASCEND_RT_VISIBLE_DEVICES", "3,1");
    unsetenv("AIOACL_SIM_DEVICES");
}
