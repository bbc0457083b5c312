/* Events that graphs share with streams outside of the graph. An event has one flag for recording and one for
 * waiting. */
#include "graph_test.h"

enum { COUNT = 1024, DEFAULT = 0, EXTERNAL = 1 };

static const aclmdlRICaptureMode GLOBAL = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
static const size_t BYTES = COUNT * sizeof(int32_t);

static int32_t *numbers_new(bool device) {
    void *block = NULL;
    CHECK_RC(device ? aclrtMalloc(&block, BYTES, ACL_MEM_MALLOC_HUGE_FIRST) : aclrtMallocHost(&block, BYTES),
             0);
    return block;
}

static void number(int32_t *numbers, int32_t first) {
    for (int32_t i = 0; i < COUNT; i++) {
        numbers[i] = first + i;
    }
}

static bool numbered(const int32_t *numbers, int32_t first) {
    bool good = true;
    for (int32_t i = 0; i < COUNT; i++) {
        good = good && numbers[i] == first + i;
    }
    return good;
}

static void copy(void *to, const void *from, aclrtMemcpyKind kind, aclrtStream stream) {
    CHECK_RC(aclrtMemcpyAsync(to, BYTES, from, BYTES, kind, stream), 0);
}

typedef struct {
    aclrtStream stream;
    aclrtStream other;
    aclrtEvent event;
    int32_t *device[2];
    int32_t *host[2];
} setup_t;

static setup_t setup_new(void) {
    return (setup_t){.stream = new_stream(),
                     .other = new_stream(),
                     .event = new_event(1),
                     .device = {numbers_new(true), numbers_new(true)},
                     .host = {numbers_new(false), numbers_new(false)}};
}

static void setup_end(const setup_t *setup) {
    for (int i = 0; i < 2; i++) {
        END({aclrtFree, setup->device[i]}, {aclrtFreeHost, setup->host[i]});
    }
    CHECK_RC(aclrtDestroyEvent(setup->event), 0);
    END_STREAMS(setup->stream, setup->other);
}

/* The graph waits for an ordinary record of a stream outside. */
static void test_an_external_wait_for_an_ordinary_record(void) {
    setup_t setup = setup_new();
    aclrtStream runs = new_stream();
    CHECK_RC(aclmdlRICaptureBegin(setup.stream, GLOBAL), 0);
    CHECK_RC(aclrtStreamWaitEventWithFlag(setup.stream, setup.event, 0, EXTERNAL), 0);
    copy(setup.host[1], setup.device[0], ACL_MEMCPY_DEVICE_TO_HOST, setup.stream);
    aclmdlRI model = end_capture(setup.stream);
    for (int32_t turn = 1; turn <= 2; turn++) {
        number(setup.host[0], turn * 10000);
        CHECK(aclsim_hold(setup.other) == 0);
        copy(setup.device[0], setup.host[0], ACL_MEMCPY_HOST_TO_DEVICE, setup.other);
        CHECK_RC(aclrtRecordEvent(setup.event, setup.other), 0);
        CHECK_RC(aclmdlRIExecuteAsync(model, runs), 0);
        CHECK_RC(aclrtSynchronizeStreamWithTimeout(runs, 20), 507046);
        CHECK(!numbered(setup.host[1], turn * 10000));
        CHECK(aclsim_release(setup.other) == 0);
        CHECK_THEN(aclrtSynchronizeStream(runs), numbered(setup.host[1], turn * 10000));
    }
    CHECK_RC(aclrtSynchronizeStream(setup.other), 0);
    END({aclmdlRIDestroy, model}, {aclrtDestroyStream, runs});
    setup_end(&setup);
}

/* A stream outside waits, without the flag, for a record of the graph. The wait refers to this record if the
 * graph's execution was enqueued before the wait. */
static void test_an_ordinary_wait_for_an_external_record(void) {
    setup_t setup = setup_new();
    aclrtStream runs = new_stream();
    CHECK_RC(aclmdlRICaptureBegin(setup.stream, GLOBAL), 0);
    copy(setup.device[0], setup.host[0], ACL_MEMCPY_HOST_TO_DEVICE, setup.stream);
    CHECK_RC(aclrtRecordEventWithFlag(setup.event, setup.stream, EXTERNAL), 0);
    aclmdlRI model = end_capture(setup.stream);
    for (int32_t turn = 1; turn <= 2; turn++) {
        aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_COMPLETE;
        number(setup.host[0], turn * 10000);
        CHECK(aclsim_hold(runs) == 0);
        CHECK_RC(aclmdlRIExecuteAsync(model, runs), 0);
        CHECK_THEN(aclrtQueryEventStatus(setup.event, &status), status == ACL_EVENT_RECORDED_STATUS_NOT_READY);
        CHECK_RC(aclrtStreamWaitEvent(setup.other, setup.event), 0);
        copy(setup.host[1], setup.device[0], ACL_MEMCPY_DEVICE_TO_HOST, setup.other);
        CHECK_RC(aclrtSynchronizeStreamWithTimeout(setup.other, 20), 507046);
        CHECK(aclsim_release(runs) == 0);
        CHECK_THEN(aclrtSynchronizeStream(setup.other), numbered(setup.host[1], turn * 10000));
        CHECK_RC(aclrtSynchronizeEvent(setup.event), 0);
    }
    CHECK_RC(aclrtSynchronizeStream(runs), 0);
    END({aclmdlRIDestroy, model}, {aclrtDestroyStream, runs});
    setup_end(&setup);
}

/* One graph waits for the other, each on its own stream. */
static void test_two_graphs_in_order(void) {
    setup_t setup = setup_new();
    aclrtStream runs = new_stream();
    CHECK_RC(aclmdlRICaptureBegin(setup.stream, GLOBAL), 0);
    copy(setup.device[0], setup.host[0], ACL_MEMCPY_HOST_TO_DEVICE, setup.stream);
    CHECK_RC(aclrtRecordEventWithFlag(setup.event, setup.stream, EXTERNAL), 0);
    aclmdlRI first = end_capture(setup.stream);
    CHECK_RC(aclmdlRICaptureBegin(setup.other, GLOBAL), 0);
    CHECK_RC(aclrtStreamWaitEventWithFlag(setup.other, setup.event, 0, EXTERNAL), 0);
    copy(setup.host[1], setup.device[0], ACL_MEMCPY_DEVICE_TO_HOST, setup.other);
    aclmdlRI second = end_capture(setup.other);
    number(setup.host[0], 5);
    CHECK(aclsim_hold(runs) == 0);
    CHECK_RC(aclmdlRIExecuteAsync(first, runs), 0);
    CHECK_RC(aclmdlRIExecuteAsync(second, setup.other), 0);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(setup.other, 20), 507046);
    CHECK(aclsim_release(runs) == 0);
    CHECK_THEN(aclrtSynchronizeStream(setup.other), numbered(setup.host[1], 5));
    CHECK_RC(aclrtSynchronizeStream(runs), 0);
    END({aclmdlRIDestroy, first}, {aclmdlRIDestroy, second}, {aclrtDestroyStream, runs});
    setup_end(&setup);
}

/* If a graph executes an inner graph, the start of the inner graph decides to which records the inner graph's
 * events refer. */
static void test_a_graph_inside_a_graph(void) {
    setup_t setup = setup_new();
    CHECK_RC(aclmdlRICaptureBegin(setup.stream, RELAXED), 0);
    copy(setup.host[1], setup.device[0], ACL_MEMCPY_DEVICE_TO_HOST, setup.stream);
    CHECK_RC(aclrtRecordEventWithFlag(setup.event, setup.stream, EXTERNAL), 0);
    aclmdlRI inner = end_capture(setup.stream);
    CHECK_RC(aclmdlRICaptureBegin(setup.stream, RELAXED), 0);
    CHECK_RC(aclmdlRIExecuteAsync(inner, setup.stream), 0);
    aclmdlRI outer = end_capture(setup.stream);
    for (int32_t turn = 1; turn <= 2; turn++) {
        number(setup.host[0], turn);
        CHECK_RC(aclrtMemcpy(setup.device[0], BYTES, setup.host[0], BYTES, ACL_MEMCPY_HOST_TO_DEVICE), 0);
        execute_on(setup.other, outer, 0);
        CHECK_THEN(aclrtSynchronizeEvent(setup.event), numbered(setup.host[1], turn));
    }
    END({aclmdlRIDestroy, outer}, {aclmdlRIDestroy, inner});
    setup_end(&setup);
}

/* The host does not wait for a record that was dropped together with the execution. */
static void test_a_dropped_execution(void) {
    setup_t setup = setup_new();
    CHECK_RC(aclmdlRICaptureBegin(setup.stream, GLOBAL), 0);
    CHECK_RC(aclrtRecordEventWithFlag(setup.event, setup.stream, EXTERNAL), 0);
    aclmdlRI model = end_capture(setup.stream);
    CHECK(aclsim_hold(setup.other) == 0);
    CHECK_RC(aclmdlRIExecuteAsync(model, setup.other), 0);
    CHECK_RC(aclrtSynchronizeEventWithTimeout(setup.event, 20), 507047);
    CHECK_RC(aclrtStreamAbort(setup.other), 0);
    CHECK(aclsim_release(setup.other) == 0);
    CHECK_RC(aclrtSynchronizeEvent(setup.event), 0);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    setup_end(&setup);
}

/* An event has one flag for records and one for waits. The first use fixes the flag, even if the call is
 * refused for another reason. */
static void test_flags_that_change(void) {
    aclrtStream stream = new_stream();
    aclrtEvent event = new_event(1);
    aclrtEvent recorded = new_event(1);
    CHECK_RC(aclrtStreamWaitEventWithFlag(stream, event, 0, EXTERNAL), 107029);
    CHECK_RC(aclrtStreamWaitEvent(stream, event), 107000);
    CHECK_RC(aclrtStreamWaitEventWithTimeout(stream, event, 1), 107000);
    CHECK_RC(aclrtRecordEvent(event, stream), 0);
    CHECK_RC(aclrtRecordEventWithFlag(event, stream, EXTERNAL), 107000);
    CHECK_RC(aclrtRecordEvent(recorded, stream), 0);
    CHECK_RC(aclmdlRICaptureBegin(stream, GLOBAL), 0);
    CHECK_RC(aclrtStreamWaitEventWithFlag(stream, recorded, 0, EXTERNAL), 107000); /* already fixed */
    CHECK_RC(aclrtStreamWaitEventWithFlag(stream, event, 0, DEFAULT), 107000);
    CHECK_RC(aclrtStreamWaitEventWithFlag(stream, event, 1, EXTERNAL), 100000);
    aclmdlRI model = end_capture(stream); /* the refused calls have not changed the capture */
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    END_EVENTS(event, recorded);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

/* Graphs and streams outside can share only events that aclrtCreateEventExWithFlag has created with exactly the
 * flag 1. */
static void test_events_for_one_side(void) {
    static const uint32_t others[] = {0x8, 0x9, 0x3};
    aclrtStream stream = new_stream();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        aclrtEvent event = new_event(others[i]);
        CHECK_RC(aclrtRecordEventWithFlag(event, stream, EXTERNAL), 207000);
        CHECK_RC(aclmdlRICaptureBegin(stream, GLOBAL), 0);
        CHECK_RC(aclrtRecordEventWithFlag(event, stream, EXTERNAL), 207000);
        CHECK_RC(aclrtStreamWaitEventWithFlag(stream, event, 0, EXTERNAL), 207000);
        CHECK_RC(aclmdlRIDestroy(end_capture(stream)), 0);
        CHECK_RC(aclrtRecordEvent(event, stream), 0); /* a refused flag is not fixed */
        CHECK_RC(aclrtSynchronizeStream(stream), 0);
        CHECK_RC(aclrtDestroyEvent(event), 0);
    }
    aclrtEvent old = old_event(1);
    CHECK_RC(aclrtRecordEventWithFlag(old, stream, EXTERNAL), 207000);
    END({aclrtDestroyEvent, old}, {aclrtDestroyStream, stream});
}

static void test_a_model_built_by_hand(void) {
    aclrtStream stream = new_persistent_stream();
    aclrtEvent event = new_event(1);
    aclmdlRI model = new_model(stream);
    CHECK_RC(aclrtRecordEventWithFlag(event, stream, EXTERNAL), 207000);
    CHECK_RC(aclrtStreamWaitEventWithFlag(stream, event, 0, EXTERNAL), 207000);
    CHECK_RC(aclmdlRIUnbindStream(model, stream), 0);
    END({aclmdlRIDestroy, model}, {aclrtDestroyEvent, event}, {aclrtDestroyStream, stream});
}

int main(void) {
    start_acl();
    aclrtContext context = new_context();
    RUN(test_an_external_wait_for_an_ordinary_record, test_an_ordinary_wait_for_an_external_record,
        test_two_graphs_in_order, test_a_graph_inside_a_graph, test_a_dropped_execution, test_flags_that_change,
        test_events_for_one_side, test_a_model_built_by_hand);
    CHECK(stats().violations == 0);
    check_nothing_left();
    CHECK_RC(aclrtDestroyContext(context), 0);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK_RC(aclFinalize(), 0);
}
