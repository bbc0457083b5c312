/* Captured and built graphs: the tasks that they accept, how they run, and which calls are refused during a
 * capture. */
#include <string.h>
#include <unistd.h>

#include "graph_test.h"

static const aclmdlRICaptureMode GLOBAL = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

static void test_everything_runs_again_in_order(void) {
    aclrtStream stream = new_stream();
    uint64_t *words = words_new(4);
    atomic_int called = 0;
    uint64_t *pinned = new_host(8);
    aclrtNotify notify = new_notify();
    CHECK_RC(aclmdlRICaptureBegin(stream, GLOBAL), 0);
    CHECK_RC(aclrtMemsetAsync(words, 8, 0, 8, stream), 0);
    CHECK_RC(aclrtMemcpyAsync(words + 1, 8, pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
    launch_add(stream, words, 5);
    launch_add(stream, words + 1, 1);
    CHECK_RC(aclrtValueWrite(words + 2, 9, 0, stream), 0);
    CHECK_RC(aclrtValueWait(words + 2, 9, 1, stream), 0);
    CHECK_RC(aclrtRecordNotify(notify, stream), 0);
    CHECK_RC(aclrtWaitAndResetNotify(notify, stream, 0), 0);
    CHECK_RC(aclrtLaunchHostFunc(stream, on_host, &called), 0);
    aclmdlRI model = end_capture(stream);
    CHECK(words[0] == 0 && words[2] == 0 && atomic_load(&called) == 0);
    for (uint64_t i = 1; i <= 3; i++) {
        *pinned = i * 10;
        words[2] = 0;
        execute_on(stream, model, 0);
        CHECK(words[0] == 5 && words[1] == i * 10 + 1 && words[2] == 9);
        CHECK(atomic_load(&called) == (int)i);
    }
    CHECK_THEN(aclmdlRIExecute(model, 5000), atomic_load(&called) == 4);
    CHECK_RC(aclmdlRIExecute(model, 0), 107000);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK_RC(aclmdlRIDestroy(model), 107017);
    CHECK_RC(aclmdlRIExecuteAsync(model, stream), 107017);
    END({aclrtDestroyNotify, notify}, {aclrtFreeHost, pinned}, {aclrtFree, words},
        {aclrtDestroyStream, stream});
}

/* A graph with more nodes than a queue has entries. */
static void test_long_graphs(void) {
    aclrtStream stream = new_stream();
    uint64_t *words = words_new(1);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    for (int i = 0; i < 5000; i++) {
        launch_add(stream, words, 1);
    }
    aclmdlRI model = end_capture(stream);
    for (int i = 0; i < 2; i++) {
        CHECK_RC(aclmdlRIExecuteAsync(model, stream), 0);
    }
    CHECK_THEN(aclrtSynchronizeStream(stream), words[0] == 10000);
    END({aclmdlRIDestroy, model}, {aclrtFree, words}, {aclrtDestroyStream, stream});
}

/* Two streams execute the same graph. The executions run one after the other, and no addition is lost. */
static void test_two_streams_execute_one_graph(void) {
    aclrtStream streams[2] = {new_stream(), new_stream()};
    uint64_t *words = words_new(1);
    CHECK_RC(aclmdlRICaptureBegin(streams[0], GLOBAL), 0);
    launch_add(streams[0], words, 1);
    aclmdlRI model = end_capture(streams[0]);
    for (int i = 0; i < 50; i++) {
        CHECK_RC(aclmdlRIExecuteAsync(model, streams[i % 2]), 0);
    }
    CHECK_RC(aclrtSynchronizeStream(streams[0]), 0);
    CHECK_THEN(aclrtSynchronizeStream(streams[1]), words[0] == 50);
    END({aclmdlRIDestroy, model}, {aclrtFree, words});
    END_STREAMS(streams[0], streams[1]);
}

static void test_fork_and_join(void) {
    aclrtStream main_stream = new_stream();
    aclrtStream side = new_stream();
    aclrtEvent forked = new_event(1);
    aclrtEvent joined = new_event(1);
    uint64_t *words = words_new(2);
    uint32_t count = 8;
    aclrtStream streams[8];
    CHECK_RC(aclmdlRICaptureBegin(main_stream, GLOBAL), 0);
    CHECK_RC(aclrtValueWrite(words, 3, 0, main_stream), 0);
    CHECK_RC(aclrtRecordEvent(forked, main_stream), 0);
    CHECK_RC(aclrtStreamWaitEvent(side, forked), 0);
    launch_add(side, words, 4);
    CHECK_RC(aclrtRecordEvent(joined, side), 0);
    aclrtEventRecordedStatus status;
    CHECK_RC(aclrtQueryEventStatus(joined, &status), 107028);
    CHECK_RC(aclrtSynchronizeEvent(joined), 107028);
    CHECK_RC(aclrtStreamWaitEvent(main_stream, joined), 0);
    launch_add(main_stream, words, 10);
    aclmdlRI model = end_capture(main_stream);
    CHECK_RC(aclrtQueryEventStatus(joined, &status), 0);
    for (int i = 0; i < 3; i++) {
        execute_on(main_stream, model, 0);
        CHECK(words[0] == 17);
    }
    CHECK_THEN(aclmdlRIGetStreams(model, NULL, &count), count == 2);
    count = 1;
    CHECK_RC(aclmdlRIGetStreams(model, streams, &count), 107039);
    CHECK_RC(aclmdlRIGetStreams(model, streams, &count), 0);
    CHECK_RC(aclrtDestroyStream(streams[0]), 107005);
    CHECK_RC(aclrtMemsetAsync(words, 8, 0, 8, streams[1]), 107005);
    END({aclmdlRIDestroy, model}, {aclrtFree, words});
    END_EVENTS(forked, joined);
    END_STREAMS(main_stream, side);
}

static void test_unjoined_streams_and_conflicts(void) {
    aclrtStream first = new_stream();
    aclrtStream second = new_stream();
    aclrtStream third = new_stream();
    aclrtEvent event = new_event(1);
    aclrtEvent other = new_event(1);
    uint64_t *words = words_new(1);
    aclmdlRI model = NULL;
    CHECK_RC(aclmdlRICaptureBegin(first, GLOBAL), 0);
    CHECK_RC(aclrtRecordEvent(event, first), 0);
    CHECK_RC(aclrtStreamWaitEvent(second, event), 0);
    CHECK_RC(aclrtValueWrite(words, 1, 0, second), 0);
    CHECK_RC(aclmdlRICaptureEnd(second, &model), 107036);
    CHECK_RC(aclmdlRICaptureEnd(first, &model), 107025);
    CHECK_RC(aclmdlRICaptureEnd(first, &model), 107029);
    CHECK_RC(aclrtValueWrite(words, 1, 0, second), 0);
    CHECK_RC(aclrtSynchronizeStream(second), 0);
    /* a stream of one capture cannot join another capture */
    CHECK_RC(aclmdlRICaptureBegin(first, RELAXED), 0);
    CHECK_RC(aclmdlRICaptureBegin(second, RELAXED), 0);
    CHECK_RC(aclrtRecordEvent(event, first), 0);
    CHECK_RC(aclrtStreamWaitEvent(second, event), 107032);
    CHECK_RC(aclrtValueWrite(words, 1, 0, second), 0);
    CHECK_RC(aclrtStreamWaitEvent(third, event), 507000);
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    CHECK_RC(aclmdlRICaptureGetInfo(first, &status, &model), 0);
    CHECK(status == ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE && model != NULL);
    CHECK_RC(aclmdlRICaptureEnd(first, &model), 507903);
    CHECK_RC(aclmdlRICaptureEnd(second, &model), 507903);
    /* a captured stream cannot wait for a record from outside */
    CHECK_RC(aclrtRecordEvent(other, second), 0);
    CHECK_RC(aclmdlRICaptureBegin(first, RELAXED), 0);
    CHECK_RC(aclrtStreamWaitEvent(first, other), 107024);
    CHECK_RC(aclmdlRIDestroy(end_capture(first)), 0);
    END({aclrtFree, words}, {aclrtDestroyStream, third});
    END_EVENTS(event, other);
    END_STREAMS(first, second);
}

static void test_external_events(void) {
    aclrtStream stream = new_stream();
    aclrtStream other = new_stream();
    aclrtEvent event = new_event(1);
    CHECK_RC(aclrtRecordEventWithFlag(event, stream, 1), 107029);
    CHECK_RC(aclmdlRICaptureBegin(stream, GLOBAL), 0);
    CHECK_RC(aclrtRecordEventWithFlag(event, stream, 1), 0);
    CHECK_RC(aclrtRecordEventWithFlag(event, stream, 0), 107000);
    CHECK_RC(aclrtStreamWaitEventWithFlag(stream, event, 5, 1), 100000);
    CHECK_RC(aclrtStreamWaitEventWithFlag(stream, event, 0, 1), 0);
    aclmdlRI model = end_capture(stream);
    execute_on(other, model, 0);
    CHECK_RC(aclrtSynchronizeEvent(event), 0);
    END({aclmdlRIDestroy, model}, {aclrtDestroyEvent, event});
    END_STREAMS(stream, other);
}

static aclError body_copy(void *words) {
    uint64_t word = 0;
    return aclrtMemcpy(&word, 8, words, 8, ACL_MEMCPY_DEVICE_TO_HOST);
}

static aclError body_copy_relaxed(void *words) {
    aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    CHECK_THEN(aclmdlRICaptureThreadExchangeMode(&mode), mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL);
    return body_copy(words);
}

static aclError body_copy_in_another_context(void *words) {
    aclrtContext context = new_context();
    aclError rc = body_copy(words);
    CHECK_RC(aclrtDestroyContext(context), 0);
    return rc;
}

static aclError body_end(void *stream) {
    aclmdlRI model = NULL;
    return aclmdlRICaptureEnd(stream, &model);
}

static aclError body_end_and_destroy(void *stream) {
    return aclmdlRIDestroy(end_capture(stream));
}

static aclError body_begin_local(void *stream) {
    return aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL);
}

/* Only a relaxed capture can be ended by another thread. Any other capture then ends without a model. */
static void test_an_end_on_another_thread(void) {
    aclrtStream stream = new_stream();
    aclmdlRICaptureStatus status;
    aclmdlRI model = NULL;
    CHECK_RC(elsewhere(body_begin_local, stream), 0);
    CHECK_RC(body_end(stream), 107038);
    CHECK_THEN(aclmdlRICaptureGetInfo(stream, &status, NULL), status == ACL_MODEL_RI_CAPTURE_STATUS_NONE);
    CHECK_RC(aclmdlRICaptureEnd(stream, &model), 107029);
    CHECK(stats().models == 0);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(elsewhere(body_end_and_destroy, stream), 0);
    CHECK_RC(aclmdlRICaptureEnd(stream, &model), 107029);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_modes(void) {
    aclrtStream stream = new_stream();
    uint64_t *words = words_new(1);
    const aclError own[] = {107030, 107030, 0};
    const aclError others[] = {107030, 0, 0};
    for (int mode = 0; mode < 3; mode++) {
        aclmdlRI model = NULL;
        CHECK_RC(aclmdlRICaptureBegin(stream, (aclmdlRICaptureMode)mode), 0);
        CHECK_RC(body_copy(words), own[mode]);
        CHECK_RC(aclrtMemset(words, 8, 0, 8), own[mode]);
        CHECK_RC(elsewhere(body_copy, words), others[mode]);
        CHECK_RC(elsewhere(body_copy_relaxed, words), 0);
        CHECK_RC(elsewhere(body_copy_in_another_context, words), 0);
        CHECK_RC(aclrtSynchronizeDevice(), 107027);
        CHECK_RC(aclrtSynchronizeDeviceWithTimeout(100), 107027);
        CHECK_RC(aclmdlRICaptureEnd(stream, &model), 0);
        CHECK_RC(aclmdlRIDestroy(model), 0);
        CHECK_RC(body_copy(words), 0);
        CHECK_RC(aclrtSynchronizeDevice(), 0);
    }
    CHECK_RC(aclmdlRICaptureBegin(stream, (aclmdlRICaptureMode)3), 107000);
    END({aclrtFree, words}, {aclrtDestroyStream, stream});
}

static void test_a_captured_stream(void) {
    aclrtStream stream = new_stream();
    aclrtStream standard = NULL;
    uint64_t *words = words_new(1);
    uint64_t pageable = 0;
    aclmdlRI model = NULL;
    aclmdlRI found = NULL;
    aclmdlRICaptureStatus info = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
    aclrtStreamStatus status;
    CHECK_RC(aclrtCtxGetCurrentDefaultStream(&standard), 0);
    CHECK_RC(aclmdlRICaptureBegin(standard, GLOBAL), 207000);
    CHECK_RC(aclmdlRICaptureBegin(NULL, GLOBAL), 100000);
    CHECK_RC(aclmdlRICaptureEnd(stream, &model), 107029);
    CHECK_RC(aclmdlRICaptureGetInfo(stream, &info, &found), 0);
    CHECK(info == ACL_MODEL_RI_CAPTURE_STATUS_NONE && found == NULL);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 107027);
    CHECK_RC(aclmdlRICaptureGetInfo(stream, &info, &found), 0);
    CHECK(info == ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE && found != NULL);
    CHECK_RC(aclmdlRIExecuteAsync(found, NULL), 107026);
    CHECK_RC(aclmdlRIDestroy(found), 107026);
    CHECK_RC(aclrtSynchronizeStream(stream), 107027);
    CHECK_RC(aclrtStreamQuery(stream, &status), 107027);
    CHECK_RC(aclrtDestroyStream(stream), 107027);
    CHECK_RC(aclrtMemcpyAsync(words, 8, &pageable, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream), 107000);
    model = end_capture(stream);
    CHECK(model == found);
    CHECK_RC(aclmdlRIExecute(model, 1000), 0); /* the model is empty */
    END({aclmdlRIDestroy, model}, {aclrtFree, words}, {aclrtDestroyStream, stream});
}

static void test_a_failing_task_ends_the_execution(void) {
    aclrtStream stream = new_stream();
    uint64_t *words = words_new(1);
    CHECK_RC(aclmdlRICaptureBegin(stream, GLOBAL), 0);
    launch_add(stream, words, 1);
    CHECK_RC(aclrtLaunchKernel(function_of("fail"), 1, NULL, 0, stream), 0);
    launch_add(stream, words, 100);
    aclmdlRI model = end_capture(stream);
    execute_on(stream, model, 507014);
    CHECK(words[0] == 1);
    CHECK_RC(aclmdlRIExecute(model, 5000), 507014);
    CHECK(words[0] == 2);
    END({aclmdlRIDestroy, model}, {aclrtFree, words}, {aclrtDestroyStream, stream});
}

static aclmdlRI waiting_model(aclrtStream stream, uint64_t *word) {
    CHECK_RC(aclmdlRICaptureBegin(stream, GLOBAL), 0);
    CHECK_RC(aclrtValueWait(word, 1, 1, stream), 0);
    return end_capture(stream);
}

static void test_abort(void) {
    aclrtStream stream = new_stream();
    uint64_t *words = words_new(1);
    aclmdlRI model = waiting_model(stream, words);
    CHECK_RC(aclmdlRIExecute(model, 5), 507046);
    CHECK_RC(aclmdlRIAbort(model), 0);
    CHECK_RC(aclmdlRIExecuteAsync(model, stream), 0);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(stream, 5), 507046);
    CHECK_RC(aclrtStreamAbort(stream), 0);
    CHECK_RC(aclrtValueWrite(words, 1, 0, stream), 0);
    execute_on(stream, model, 0);
    END({aclmdlRIDestroy, model}, {aclrtFree, words}, {aclrtDestroyStream, stream});
}

static void test_reset_ends_graphs(void) {
    aclrtStream stream = new_stream();
    aclrtStream captured = new_stream();
    uint64_t *words = words_new(1);
    aclmdlRI model = waiting_model(stream, words);
    CHECK_RC(aclmdlRIExecuteAsync(model, stream), 0);
    CHECK_RC(aclmdlRICaptureBegin(captured, GLOBAL), 0);
    launch_add(captured, words, 1);
    reset_and_set();
    CHECK_RC(aclmdlRIDestroy(model), 107017);
    words = words_new(1); /* no capture forbids an allocation any longer */
    CHECK_RC(aclrtFree(words), 0);
    CHECK(stats().streams == 0 && stats().models == 0);
}

static void test_destroy_callbacks(void) {
    aclrtStream stream = new_stream();
    atomic_int called = 0;
    CHECK_RC(aclmdlRICaptureBegin(stream, GLOBAL), 0);
    aclmdlRI model = end_capture(stream);
    CHECK_RC(aclmdlRIDestroyRegisterCallback(model, on_host, &called), 0);
    CHECK_RC(aclmdlRIDestroyRegisterCallback(model, on_host, &called), 0);
    CHECK_RC(aclmdlRIDestroyUnregisterCallback(model, on_host), 0);
    CHECK_RC(aclmdlRIDestroyRegisterCallback(model, NULL, NULL), 107000);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK(atomic_load(&called) == 1);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_tasks(void) {
    aclrtStream stream = new_stream();
    aclrtStream own = NULL;
    uint64_t *words = words_new(2);
    uint32_t count = 1;
    aclmdlRITask tasks[4];
    aclmdlRITaskType type = ACL_MODEL_RI_TASK_DEFAULT;
    aclmdlRITaskParams params;
    CHECK_RC(aclmdlRICaptureBegin(stream, GLOBAL), 0);
    launch_add(stream, words, 1);
    CHECK_RC(aclrtValueWrite(words + 1, 5, 0, stream), 0);
    CHECK_RC(aclrtMemsetAsync(words, 8, 0, 0, stream), 0);
    aclmdlRI model = end_capture(stream);
    CHECK_RC(aclmdlRIGetStreams(model, &own, &count), 0);
    count = 4;
    CHECK_THEN(aclmdlRIGetTasksByStream(own, tasks, &count), count == 2);
    CHECK_RC(aclmdlRIGetTasksByStream(stream, tasks, &count), 107000);
    CHECK_THEN(aclmdlRITaskGetType(tasks[0], &type), type == ACL_MODEL_RI_TASK_KERNEL);
    CHECK_THEN(aclmdlRITaskGetSeqId(tasks[1], &count), count == 1);
    CHECK_RC(aclmdlRITaskGetParams(tasks[0], &params), 0);
    CHECK(params.type == ACL_MODEL_RI_TASK_KERNEL && params.kernelTaskParams.numBlocks == 1);
    CHECK(params.kernelTaskParams.funcHandle == function_of("add") && params.kernelTaskParams.isHostArgs == 1);
    add_t args = {words, 20};
    params.kernelTaskParams.args = &args;
    CHECK_RC(aclmdlRITaskSetParams(tasks[0], &params), 0);
    CHECK_RC(aclmdlRITaskSetParams(tasks[1], &params), 107000);
    CHECK_RC(aclmdlRITaskDisable(tasks[1]), 0);
    CHECK_THEN(aclmdlRIExecute(model, 5000), words[0] == 1 && words[1] == 5);
    words[1] = 0;
    CHECK_RC(aclmdlRIUpdate(model), 0);
    CHECK_THEN(aclmdlRIExecute(model, 5000), words[0] == 21 && words[1] == 0);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK_RC(aclmdlRITaskGetType(tasks[0], &type), 107017);
    END({aclrtFree, words}, {aclrtDestroyStream, stream});
}

static void test_groups(void) {
    aclrtStream stream = new_stream();
    aclrtStream updater = new_stream();
    aclrtTaskGrp group = NULL;
    uint64_t *words = words_new(1);
    aclmdlRI model = NULL;
    CHECK_RC(aclmdlRICaptureTaskGrpBegin(stream), 107029);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(aclmdlRICaptureTaskGrpEnd(stream, &group), 107033);
    CHECK_RC(aclmdlRICaptureTaskGrpBegin(stream), 0);
    aclGetRecentErrMsg(); /* reading the text clears it */
    CHECK_RC(aclmdlRICaptureTaskGrpBegin(stream), 107033);
    const char *text = aclGetRecentErrMsg();
    CHECK(text != NULL && strstr(text, "a group is open") != NULL);
    CHECK_RC(aclmdlRICaptureEnd(stream, &model), 107033);
    CHECK_RC(aclmdlRICaptureTaskGrpEnd(stream, &group), 107029);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(aclmdlRICaptureTaskGrpBegin(stream), 0);
    launch_add(stream, words, 1);
    CHECK_RC(aclmdlRICaptureTaskUpdateBegin(stream, stream), 107027);
    CHECK_RC(aclmdlRICaptureTaskGrpEnd(stream, &group), 0);
    launch_add(stream, words, 10);
    model = end_capture(stream);
    CHECK_RC(aclmdlRICaptureTaskUpdateEnd(updater), 107033);
    CHECK_RC(aclmdlRICaptureTaskUpdateBegin(updater, group), 0);
    CHECK_RC(aclrtMemsetAsync(words, 8, 0, 8, updater), 107033);
    launch_add(updater, words, 3);
    CHECK_RC(aclmdlRICaptureTaskUpdateEnd(updater), 0);
    CHECK_THEN(aclmdlRIExecute(model, 5000), words[0] == 13);
    CHECK_RC(aclmdlRICaptureTaskUpdateBegin(updater, group), 0);
    CHECK_RC(aclmdlRICaptureTaskUpdateEnd(updater), 507000);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK_RC(aclmdlRICaptureTaskUpdateBegin(updater, group), 107017);
    CHECK_RC(aclrtFree(words), 0);
    END_STREAMS(stream, updater);
}

/* A group takes only kernels, and while it is open, no other stream of the capture gets a task. The capture
 * fails after any other task. */
static void test_groups_take_only_kernels(void) {
    aclrtStream stream = new_stream();
    aclrtStream side = new_stream();
    uint64_t *words = words_new(1);
    aclrtEvent event = new_event(1);
    aclrtTaskGrp group = NULL;
    aclmdlRI model = NULL;
    for (int round = 0; round < 2; round++) {
        CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
        CHECK_RC(aclrtRecordEvent(event, stream), 0);
        CHECK_RC(aclrtStreamWaitEvent(side, event), 0);
        CHECK_RC(aclmdlRICaptureTaskGrpBegin(stream), 0);
        launch_add(stream, words, 1);
        CHECK_RC(round == 0 ? aclrtValueWrite(words, 1, 0, side) : aclrtRecordEvent(event, stream),
                 round == 0 ? 107034 : 507009);
        CHECK_RC(aclmdlRICaptureTaskGrpEnd(side, &group), 107033);
        CHECK_RC(aclmdlRICaptureTaskGrpEnd(stream, &group), round == 0 ? 107034 : 507009);
        CHECK_RC(aclmdlRICaptureEnd(stream, &model), 507903);
    }
    END({aclrtFree, words}, {aclrtDestroyEvent, event});
    END_STREAMS(stream, side);
}

/* A stream that has joined must end with a record for which another stream of the capture waits. */
static void test_the_last_task_of_a_joined_stream(void) {
    aclrtStream stream = new_stream();
    aclrtStream side = new_stream();
    aclrtEvent event = new_event(1);
    aclmdlRI model = NULL;
    for (int tasks = 1; tasks <= 4; tasks++) {
        CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
        CHECK_RC(aclrtRecordEvent(event, stream), 0);
        CHECK_RC(aclrtStreamWaitEvent(side, event), 0);
        if (tasks >= 2) {
            CHECK_RC(aclrtRecordEvent(event, side), 0);
        }
        if (tasks >= 3) {
            CHECK_RC(aclrtStreamWaitEvent(stream, event), 0);
        }
        if (tasks >= 4) {
            CHECK_RC(aclrtRecordEvent(event, side), 0);
        }
        CHECK_RC(aclmdlRICaptureEnd(stream, &model), tasks == 3 ? 0 : 107025);
        if (tasks == 3) {
            CHECK_RC(aclmdlRIDestroy(model), 0);
        }
    }
    CHECK_RC(aclrtDestroyEvent(event), 0);
    END_STREAMS(stream, side);
}

/* Each execution passes the callback to the thread that is subscribed to the captured stream. */
static void test_callbacks(void) {
    aclrtStream stream = new_stream();
    aclrtStream other = new_stream();
    atomic_int called = 0;
    uint64_t thread = (uint64_t)pthread_self();
    CHECK_RC(aclmdlRICaptureBegin(stream, GLOBAL), 0);
    CHECK_RC(aclrtLaunchCallback(on_host, &called, ACL_CALLBACK_BLOCK, stream), 107015);
    CHECK_RC(aclrtSubscribeReport(thread, stream), 0);
    CHECK_RC(aclrtLaunchCallback(on_host, &called, ACL_CALLBACK_BLOCK, stream), 0);
    aclmdlRI model = end_capture(stream);
    for (int i = 1; i <= 2; i++) {
        CHECK_RC(aclmdlRIExecuteAsync(model, other), 0);
        CHECK_RC(aclrtSynchronizeStreamWithTimeout(other, 5), 507046);
        CHECK_THEN(aclrtProcessReport(5000), atomic_load(&called) == i);
        CHECK_RC(aclrtSynchronizeStream(other), 0);
    }
    CHECK_RC(aclmdlRIExecuteAsync(model, other), 0);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(other, 5), 507046);
    CHECK_RC(aclrtStreamAbort(other), 0);
    CHECK_RC(aclrtProcessReport(5), 507012); /* the callback was dropped with the execution */
    CHECK_RC(aclrtUnSubscribeReport(thread, stream), 0);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    END_STREAMS(stream, other);
}

static void test_names_and_prints(void) {
    aclrtStream stream = new_stream();
    uint64_t *words = words_new(1);
    char name[8];
    uint32_t id = 0;
    char path[] = "/tmp/aclsim-graph-XXXXXX";
    char text[512];
    CHECK_RC(aclmdlRICaptureBegin(stream, GLOBAL), 0);
    launch_add(stream, words, 1);
    aclmdlRI model = end_capture(stream);
    CHECK_THEN(aclmdlRIGetName(model, sizeof name, name), name[0] == 0);
    CHECK_RC(aclmdlRISetName(model, "sum\""), 0);
    CHECK_RC(aclmdlRIGetName(model, 4, name), 507000);
    CHECK_THEN(aclmdlRIGetName(model, 5, name), strcmp(name, "sum\"") == 0);
    CHECK_RC(aclmdlRIGetId(model, &id), 0);
    int file = mkstemp(path);
    CHECK(file >= 0);
    CHECK_RC(aclmdlRIDebugJsonPrint(model, path, 0), 0);
    ssize_t length = read(file, text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    CHECK(strstr(text, "\"name\": \"sum\\\"\"") != NULL && strstr(text, "\"kernel\": \"add\"") != NULL);
    close(file);
    unlink(path);
    CHECK_RC(aclmdlRIDebugJsonPrint(model, "/no/such/folder/file", 0), 107000);
    CHECK_RC(aclmdlRIDebugPrint(NULL), 100000);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK_RC(aclmdlRIDebugPrint(model), 107017);
    END({aclrtFree, words}, {aclrtDestroyStream, stream});
}

static void test_build(void) {
    aclrtStream head = new_persistent_stream();
    aclrtStream later = new_persistent_stream();
    uint64_t *words = words_new(3);
    CHECK_RC(aclrtActiveStream(later, head), 107005);
    aclmdlRI model = new_model(head);
    CHECK_RC(aclmdlRIBindStream(model, head, 0), 107005);
    CHECK_RC(aclmdlRIBindStream(model, later, 0x7FFFFFFF), 0);
    CHECK_RC(aclmdlRIBindStream(model, later, 5), 107000);
    launch_add(head, words, 1);
    CHECK_RC(aclrtSwitchStream(words, ACL_RT_GREATER, words + 2, ACL_RT_SWITCH_INT64, later, NULL, head), 0);
    CHECK_RC(aclrtSwitchStream(words, ACL_RT_GREATER, words + 2, ACL_RT_SWITCH_INT64, later, later, head),
             107000);
    launch_add(head, words + 1, 1);
    CHECK_RC(aclmdlRIEndTask(model, head), 0);
    launch_add(later, words + 1, 100);
    CHECK_RC(aclmdlRIEndTask(model, later), 0);
    CHECK_RC(aclmdlRIExecuteAsync(model, NULL), 107000);
    CHECK_RC(aclmdlRIBuildEnd(model, NULL), 0);
    CHECK_RC(aclmdlRIBuildEnd(model, NULL), 107000);
    CHECK_RC(aclrtValueWrite(words, 1, 0, head), 107005);
    words[2] = 1; /* the first execution does not switch, the second does */
    CHECK_THEN(aclmdlRIExecute(model, 5000), words[0] == 1 && words[1] == 1);
    CHECK_THEN(aclmdlRIExecute(model, 5000), words[0] == 2 && words[1] == 101);
    CHECK_RC(aclrtDestroyStream(head), 107005);
    CHECK_RC(aclmdlRIUnbindStream(model, head), 0);
    CHECK_RC(aclmdlRIUnbindStream(model, head), 107005);
    CHECK_RC(aclmdlRIUnbindStream(model, later), 0);
    END({aclmdlRIDestroy, model}, {aclrtFree, words});
    END_STREAMS(head, later);
}

/* Counts down in a loop: jumps to the label at the beginning until the index is 1. */
static void test_labels(void) {
    aclrtStream stream = new_persistent_stream();
    uint64_t *words = words_new(2);
    aclrtLabel labels[2];
    aclrtLabelList list = NULL;
    CHECK_RC(aclrtCreateLabel(&labels[0]), 0);
    CHECK_RC(aclrtCreateLabel(&labels[1]), 0);
    CHECK_RC(aclrtSetLabel(labels[0], stream), 107005);
    CHECK_RC(aclrtCreateLabelList(labels, 0, &list), 107000);
    aclmdlRI model = new_model(stream);
    CHECK_RC(aclrtSetLabel(labels[0], stream), 507000); /* it belongs to no list */
    CHECK_RC(aclrtCreateLabelList(labels, 2, &list), 0);
    CHECK_RC(aclrtCreateLabelList(labels, 2, &list), 507000);
    CHECK_RC(aclrtSetLabel(labels[0], NULL), 100000);
    CHECK_RC(aclrtSetLabel(labels[0], stream), 0);
    CHECK_RC(aclrtSetLabel(labels[0], stream), 507000);
    launch_add(stream, words, 1);     /* the index: -1, 0, 1 */
    launch_add(stream, words + 1, 1); /* the number of passes */
    CHECK_RC(aclrtSwitchLabelByIndex(words, 2, list, stream), 0);
    launch_add(stream, words + 1, 1000);
    CHECK_RC(aclrtSetLabel(labels[1], stream), 0);
    launch_add(stream, words + 1, 50);
    CHECK_RC(aclmdlRIEndTask(model, stream), 0);
    CHECK_RC(aclmdlRIBuildEnd(model, NULL), 0);
    words[0] = (uint64_t)0;
    CHECK_THEN(aclmdlRIExecute(model, 5000), words[1] == 51);
    words[0] = UINT64_MAX; /* the first pass sets the index to 0, so it jumps back to the beginning */
    CHECK_THEN(aclmdlRIExecute(model, 5000), words[1] == 51 + 52);
    CHECK_RC(aclrtDestroyLabelList(list), 0);
    CHECK_RC(aclrtDestroyLabelList(list), 107017);
    CHECK_RC(aclmdlRIUnbindStream(model, stream), 0);
    END({aclmdlRIDestroy, model}, {aclrtDestroyLabel, labels[0]}, {aclrtDestroyLabel, labels[1]});
    CHECK_RC(aclrtDestroyLabel(labels[1]), 107017);
    END({aclrtFree, words}, {aclrtDestroyStream, stream});
}

/* A captured stream is not bound to the model of its capture, so it has no labels. */
static void test_labels_in_a_capture(void) {
    aclrtStream stream = new_stream();
    aclrtLabel label = NULL;
    CHECK_RC(aclrtCreateLabel(&label), 0);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(aclrtSetLabel(label, stream), 107005);
    CHECK_RC(aclmdlRIDestroy(end_capture(stream)), 0);
    END({aclrtDestroyLabel, label}, {aclrtDestroyStream, stream});
}

/* The profiler's information about a task is stored in captures, if the stream has the attribute. */
static void test_operator_information(void) {
    aclrtStream stream = new_stream();
    uint64_t *words = words_new(1);
    aclrtStreamAttrValue value = {.cacheOpInfoSwitch = 1};
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    launch_add(stream, words, 1);
    CHECK_RC(aclrtCacheLastTaskOpInfo("info", 4), 507000);
    CHECK_RC(aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_CACHE_OP_INFO, &value), 0);
    CHECK_RC(aclrtCacheLastTaskOpInfo("info", 4), 0);
    CHECK_RC(aclrtCacheLastTaskOpInfo("info", 0), 100000);
    value.cacheOpInfoSwitch = 0;
    CHECK_THEN(aclrtGetStreamAttribute(stream, ACL_STREAM_ATTR_CACHE_OP_INFO, &value),
               value.cacheOpInfoSwitch == 1);
    CHECK_RC(aclmdlRIDestroy(end_capture(stream)), 0);
    CHECK_RC(aclrtCacheLastTaskOpInfo("info", 4), 507000);
    CHECK_THEN(aclrtGetStreamAttribute(stream, ACL_STREAM_ATTR_CACHE_OP_INFO, &value),
               value.cacheOpInfoSwitch == 0);
    END({aclrtFree, words}, {aclrtDestroyStream, stream});
}

int main(void) {
    CHECK(aclsim_register_kernel("add", kernel_add, NULL) == 0);
    CHECK(aclsim_register_kernel("fail", kernel_fail, NULL) == 0);
    start_acl();
    RUN(test_everything_runs_again_in_order, test_long_graphs, test_two_streams_execute_one_graph,
        test_fork_and_join, test_unjoined_streams_and_conflicts, test_the_last_task_of_a_joined_stream,
        test_external_events, test_modes, test_an_end_on_another_thread, test_callbacks, test_a_captured_stream,
        test_a_failing_task_ends_the_execution, test_abort, test_destroy_callbacks, test_tasks, test_groups,
        test_groups_take_only_kernels, test_names_and_prints, test_build, test_labels, test_labels_in_a_capture,
        test_operator_information, test_reset_ends_graphs);
    end_acl();
}
