/* Offline models on streams: the order of executions, long executions, drops, resets, and misuse. A library in
 * place of onnxruntime (standin_onnxruntime.c) computes them, so that sanitizers see all memory accesses. */
#include <dlfcn.h>

#include "clock_test.h"
#include "model_files.h"
#include "standin.h"

enum { ROWS = 2, COLUMNS = 3, NUMBERS = ROWS * COLUMNS, BYTES = NUMBERS * sizeof(float) };

static struct {
    void (*release)(void);
    void (*hold)(void);
    void (*until_held)(int);
} standin;

static void find_standin(void) {
    void *library = dlopen(getenv("AIOACL_SIM_ONNXRUNTIME"), RTLD_NOW);
    CHECK(library != NULL);
    void *found[] = {dlsym(library, "standin_release"), dlsym(library, "standin_hold"),
                     dlsym(library, "standin_until_held")};
    memcpy(&standin, found, sizeof standin);
}

/* One buffer and one dataset for the input, and the same for the output. */
typedef struct {
    float *x;
    float *y;
    aclDataBuffer *buffers[2];
    aclmdlDataset *input;
    aclmdlDataset *output;
} slot_t;

static slot_t slot_new(float first) {
    slot_t slot = {.x = new_block(BYTES), .y = new_block(BYTES)};
    slot.input = aclmdlCreateDataset();
    slot.output = aclmdlCreateDataset();
    slot.buffers[0] = aclCreateDataBuffer(slot.x, BYTES);
    slot.buffers[1] = aclCreateDataBuffer(slot.y, BYTES);
    CHECK_RC(aclmdlAddDatasetBuffer(slot.input, slot.buffers[0]), 0);
    CHECK_RC(aclmdlAddDatasetBuffer(slot.output, slot.buffers[1]), 0);
    for (int i = 0; i < NUMBERS; i++) {
        slot.x[i] = first + (float)i;
        slot.y[i] = 0;
    }
    return slot;
}

static void slot_free_host(const slot_t *slot) {
    CHECK_RC(aclmdlDestroyDataset(slot->input), 0);
    CHECK_RC(aclmdlDestroyDataset(slot->output), 0);
    CHECK_RC(aclDestroyDataBuffer(slot->buffers[0]), 0);
    CHECK_RC(aclDestroyDataBuffer(slot->buffers[1]), 0);
}

static void slot_free(const slot_t *slot) {
    slot_free_host(slot);
    END_BLOCKS(slot->x, slot->y);
}

static bool doubled(const slot_t *slot) {
    for (int i = 0; i < NUMBERS; i++) {
        if (slot->y[i] != 2 * slot->x[i]) {
            return false;
        }
    }
    return true;
}

static uint32_t load(void) {
    static bytes_t file;
    uint32_t model = 0;
    put_plain(&file, ROWS, COLUMNS, "model");
    CHECK_RC(aclmdlLoadFromMem(file.bytes, file.size, &model), 0);
    return model;
}

static bool noted(const char *part) {
    char text[256];
    for (uint64_t i = 0; aclsim_violation(i, text, sizeof text) >= 0; i++) {
        if (strstr(text, part) != NULL) {
            aclsim_forget();
            return true;
        }
    }
    return false;
}

static void test_execute(void) {
    uint32_t model = load();
    slot_t slot = slot_new(1);
    CHECK_THEN(aclmdlExecute(model, slot.input, slot.output), doubled(&slot));
    CHECK_RC(aclmdlExecuteAsync(model, slot.input, slot.output, NULL), 500002);
    CHECK(noted("mixes aclmdlExecute and aclmdlExecuteAsync"));
    CHECK(stats().offline_models == 1);
    CHECK_RC(aclmdlUnload(model), 0);
    CHECK_RC(aclmdlUnload(model), 145003);
    CHECK_RC(aclmdlExecute(model, slot.input, slot.output), 145003);
    CHECK(stats().offline_models == 0);
    slot_free(&slot);
}

static void test_stream_order(void) {
    aclrtStream stream = new_stream();
    uint32_t model = load();
    slot_t slot = slot_new(1);
    slot_t next = slot_new(0);
    CHECK(aclsim_hold(stream) == 0);
    for (int i = 0; i < 100; i++) {
        CHECK_RC(aclmdlExecuteAsync(model, slot.input, slot.output, stream), 0);
        CHECK_RC(aclrtMemcpyAsync(next.x, BYTES, slot.y, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 0);
        CHECK_RC(aclmdlExecuteAsync(model, next.input, next.output, stream), 0);
        CHECK_RC(aclrtMemsetAsync(slot.y, BYTES, 0, BYTES, stream), 0);
    }
    release_and_wait(stream, 0);
    CHECK(next.y[1] == 4 * slot.x[1] && slot.y[1] == 0);
    CHECK_RC(aclmdlUnload(model), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    slot_free(&slot);
    slot_free(&next);
}

/* While a run is held on one stream, another stream of the device copies and executes another model. */
static void test_long_run_delays_no_other_stream(void) {
    aclrtStream slow = new_stream();
    aclrtStream fast = new_stream();
    uint32_t models[] = {load(), load()};
    slot_t held = slot_new(STANDIN_HELD);
    slot_t quick = slot_new(1);
    standin.hold();
    CHECK_RC(aclmdlExecuteAsync(models[0], held.input, held.output, slow), 0);
    standin.until_held(1);
    CHECK_RC(aclmdlExecuteAsync(models[1], quick.input, quick.output, fast), 0);
    CHECK_RC(aclrtMemsetAsync(quick.x, BYTES, 0, BYTES, fast), 0);
    CHECK_THEN(aclrtSynchronizeStream(fast), quick.y[0] == 2 && quick.x[0] == 0 && aclsim_pending(slow) == 1);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(slow, 5), 507046);
    standin.release();
    CHECK_THEN(aclrtSynchronizeStream(slow), doubled(&held));
    CHECK_RC(aclmdlUnload(models[0]), 0);
    CHECK_RC(aclmdlUnload(models[1]), 0);
    END_STREAMS(slow, fast);
    slot_free(&held);
    slot_free(&quick);
}

/* An abort stops the run that is held, and drops those behind it. Other streams go on meanwhile. */
static void test_abort_stops_a_run(void) {
    aclrtStream stream = new_stream();
    aclrtStream other = new_stream();
    uint32_t model = load();
    slot_t held = slot_new(STANDIN_HELD);
    slot_t waits = slot_new(STANDIN_HELD);
    standin.hold();
    for (int i = 0; i < 3; i++) {
        CHECK_RC(aclmdlExecuteAsync(model, held.input, held.output, stream), 0);
    }
    standin.until_held(1);
    CHECK_RC(aclmdlExecuteAsync(model, waits.input, waits.output, other), 0);
    CHECK(noted("has not ended"));
    CHECK_RC(aclrtStreamAbort(other), 0); /* this run waits for the thread, and must not stop the other run */
    CHECK(aclsim_pending(other) == 0 && aclsim_pending(stream) == 3);
    CHECK_RC(aclrtStreamAbort(stream), 0);
    CHECK(aclsim_pending(stream) == 0 && held.y[0] == 0);
    standin.release();
    CHECK_RC(aclmdlExecuteAsync(model, held.input, held.output, stream), 0);
    CHECK_THEN(aclrtSynchronizeStream(stream), doubled(&held));
    CHECK_RC(aclmdlUnload(model), 0);
    END_STREAMS(stream, other);
    slot_free(&held);
    slot_free(&waits);
}

static uint32_t seen_stream;
static uint32_t seen_thread;

static void on_exception(aclrtExceptionInfo *info) {
    seen_stream = aclrtGetStreamIdFromExceptionInfo(info);
    seen_thread = aclrtGetThreadIdFromExceptionInfo(info);
}

static void test_failed_run(void) {
    aclrtStream stream = new_stream();
    uint32_t model = load();
    int32_t id = 0;
    slot_t slot = slot_new(STANDIN_BROKEN);
    CHECK_RC(aclrtStreamGetId(stream, &id), 0);
    CHECK_RC(aclrtSetExceptionInfoCallback(on_exception), 0);
    seen_stream = UINT32_MAX;
    CHECK_RC(aclmdlExecuteAsync(model, slot.input, slot.output, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507011);
    const char *text = aclGetRecentErrMsg();
    CHECK(text != NULL && strstr(text, "the operator is broken") != NULL);
    CHECK(seen_stream != UINT32_MAX && seen_stream != (uint32_t)id && seen_thread != 0);
    CHECK_RC(aclrtSetExceptionInfoCallback(NULL), 0);
    slot.x[0] = 1;
    CHECK_RC(aclmdlExecuteAsync(model, slot.input, slot.output, stream), 0);
    CHECK_THEN(aclrtSynchronizeStream(stream), doubled(&slot));
    CHECK_RC(aclmdlUnload(model), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    slot_free(&slot);
}

static void test_injected_failures(void) {
    aclrtStream stream = new_stream();
    uint32_t models[] = {load(), load()};
    slot_t slot = slot_new(1);
    CHECK(aclsim_fail_next(stream, 507011) == 0);
    CHECK_RC(aclmdlExecuteAsync(models[0], slot.input, slot.output, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507011);
    CHECK(aclsim_fault_add("model:async-error=507015:once", NULL) == 0);
    CHECK_RC(aclmdlExecuteAsync(models[0], slot.input, slot.output, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507015);
    CHECK(aclsim_fault_add("aclmdlExecute:rc=507011:once", NULL) == 0);
    CHECK_RC(aclmdlExecute(models[1], slot.input, slot.output), 507011);
    CHECK(aclsim_trap_next(stream, 507015) == 0 && slot.y[0] == 0);
    CHECK_RC(aclmdlExecuteAsync(models[0], slot.input, slot.output, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507015);
    aclsim_clear();
    CHECK_THEN(aclmdlExecute(models[1], slot.input, slot.output), doubled(&slot));
    CHECK_RC(aclmdlUnload(models[0]), 0);
    CHECK_RC(aclmdlUnload(models[1]), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    slot_free(&slot);
}

/* Memory that is freed during a run stays valid until its end. */
static void test_unload_and_free_during_a_run(void) {
    aclrtStream stream = new_stream();
    uint32_t model = load();
    slot_t held = slot_new(STANDIN_HELD);
    standin.hold();
    CHECK_RC(aclmdlExecuteAsync(model, held.input, held.output, stream), 0);
    CHECK_RC(aclmdlExecuteAsync(model, held.input, held.output, stream), 0);
    standin.until_held(1);
    CHECK_RC(aclmdlUnload(model), 0);
    CHECK(noted("have not ended"));
    slot_free(&held);
    standin.release();
    CHECK_RC(aclrtSynchronizeStream(stream), 507011);
    const char *text = aclGetRecentErrMsg();
    CHECK(text != NULL && strstr(text, "unloaded before") != NULL);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    aclsim_forget();
}

static aclError body_execute(void *arg) {
    const slot_t *slot = arg;
    return aclmdlExecute(*(const uint32_t *)slot[1].x, slot->input, slot->output);
}

/* A reset ends executions, also one that a call waits for, and the model is stale afterwards. */
static void test_reset(void) {
    aclrtStream stream = new_stream();
    uint32_t models[] = {load(), load()};
    slot_t held = slot_new(STANDIN_HELD);
    uint32_t waits = models[1];
    slot_t both[2] = {held, {.x = (float *)(void *)&waits}};
    call_t call;
    standin.hold();
    CHECK_RC(aclmdlExecuteAsync(models[0], held.input, held.output, stream), 0);
    call_start(&call, body_execute, both);
    standin.until_held(2);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK_RC(call_join(&call), 507011);
    aclsim_forget(); /* the reset during aclmdlExecute was noted */
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclmdlExecuteAsync(models[0], held.input, held.output, NULL), 107017);
    CHECK(noted("whose context has ended"));
    CHECK_RC(aclmdlUnload(models[0]), 107017);
    CHECK(noted("whose context has ended"));
    CHECK_RC(aclmdlUnload(models[0]), 145003);
    CHECK_RC(aclmdlUnload(models[1]), 107017);
    CHECK(stats().offline_models == 0);
    aclsim_forget();
    slot_free_host(&held);
}

static void test_contexts_and_threads(void) {
    aclrtContext first = current_context();
    uint32_t model = load();
    slot_t slot = slot_new(1);
    aclrtContext second = new_context();
    CHECK_RC(aclmdlExecute(model, slot.input, slot.output), 0);
    CHECK(noted("was loaded in context"));
    uint32_t inner = load();
    CHECK_RC(aclrtDestroyContext(second), 0);
    CHECK_RC(aclrtSetCurrentContext(first), 0);
    CHECK_RC(aclmdlExecute(inner, slot.input, slot.output), 107017);
    CHECK(noted("whose context has ended"));
    CHECK_RC(aclmdlUnload(inner), 107017);
    CHECK_RC(aclmdlUnload(model), 0);
    aclsim_forget();
    slot_free(&slot);
}

/* The time of a held run begins before it is held. */
static void test_cost(void) {
    aclrtStream stream = new_stream();
    uint32_t model = load();
    slot_t slot = slot_new(STANDIN_HELD);
    call_t call;
    aclsim_clock_virtual(1);
    CHECK(aclsim_set_model_cost(-1, 0, 0) == -1);
    CHECK(aclsim_set_model_cost(1000, 10, 500) == 0); /* 1000 + 2 * 10 + 48 / 2 */
    standin.hold();
    CHECK_RC(aclmdlExecuteAsync(model, slot.input, slot.output, stream), 0);
    standin.until_held(1);
    standin.release();
    call_waiting(&call, body_sync, stream, "aclrtSynchronizeStream");
    UNTIL(due_in_ns() != -1 || aclsim_pending(stream) == 0);
    CHECK(due_in_ns() == 1044);
    CHECK(aclsim_clock_advance(1044) == 0);
    CHECK_RC(call_join(&call), 0);
    CHECK(doubled(&slot));
    aclsim_clock_virtual(0);
    CHECK(aclsim_set_model_cost(0, 0, 0) == 0);
    CHECK_RC(aclmdlUnload(model), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    slot_free(&slot);
}

int main(void) {
    find_standin();
    start_acl();
    RUN(test_execute, test_stream_order, test_long_run_delays_no_other_stream, test_abort_stops_a_run,
        test_failed_run, test_injected_failures, test_unload_and_free_during_a_run, test_contexts_and_threads,
        test_cost, test_reset);
    CHECK(stats().violations == 0);
    end_acl();
}
