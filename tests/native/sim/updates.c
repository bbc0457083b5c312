/* Updates of graph tasks: by groups (also while the graph runs), by events of a stream that is not
 * captured, and by a task. */
#include <string.h>

#include "graph_test.h"

/* An event for task updates: at each execution, the graph waits until a stream outside records the event. */
static void test_an_event_from_outside(void) {
    aclrtStream stream = new_stream();
    aclrtStream other = new_stream();
    uint64_t *words = words_new(1);
    aclrtEvent event = old_event(0x20);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(aclrtStreamWaitEvent(stream, event), 0);
    CHECK_RC(aclrtResetEvent(event, stream), 0);
    launch_add(stream, words, 1);
    aclmdlRI model = end_capture(stream);
    for (uint64_t round = 1; round <= 2; round++) {
        CHECK_RC(aclmdlRIExecuteAsync(model, stream), 0);
        CHECK_RC(aclrtSynchronizeStreamWithTimeout(stream, 5), 507046);
        CHECK(words[0] == round - 1);
        CHECK_RC(aclrtRecordEvent(event, other), 0);
        CHECK_THEN(aclrtSynchronizeStream(stream), words[0] == round);
    }
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(aclrtRecordEvent(event, stream), 0);
    model = end_capture(stream);
    CHECK_RC(aclrtStreamWaitEvent(other, event), 0); /* this wait is not captured */
    CHECK_RC(aclmdlRIExecute(model, 5000), 0);
    CHECK_RC(aclrtSynchronizeStream(other), 0);
    END({aclmdlRIDestroy, model}, {aclrtDestroyEvent, event}, {aclrtFree, words});
    END_STREAMS(stream, other);
}

/* Only kernels belong to a group, and each kernel replaces the next one of the group. */
static void test_an_update_of_kernels(void) {
    aclrtStream stream = new_stream();
    aclrtStream updater = new_stream();
    uint64_t *words = words_new(3);
    aclrtTaskGrp group = NULL;
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(aclmdlRICaptureTaskGrpBegin(stream), 0);
    launch_add(stream, words, 1);
    launch_add(stream, words + 1, 2);
    CHECK_RC(aclmdlRICaptureTaskGrpEnd(stream, &group), 0);
    launch_add(stream, words + 2, 3);
    aclmdlRI model = end_capture(stream);
    CHECK_RC(aclmdlRICaptureTaskUpdateBegin(updater, group), 0);
    CHECK_RC(aclrtValueWrite(words, 1, 0, updater), 107033);
    launch_add(updater, words, 10);
    launch_add(updater, words + 1, 20);
    CHECK_RC(aclrtLaunchHostFunc(updater, on_host, NULL), 107033);
    CHECK_RC(aclmdlRICaptureTaskUpdateEnd(updater), 0);
    CHECK_THEN(aclmdlRIExecute(model, 5000), words[0] == 10 && words[1] == 20 && words[2] == 3);
    END({aclmdlRIDestroy, model}, {aclrtFree, words});
    END_STREAMS(stream, updater);
}

/* The group is updated while the graph's execution waits for the event, so the execution has not reached the
 * group yet. The execution then runs the new tasks. */
static void test_an_update_while_the_graph_runs(void) {
    aclrtStream stream = new_stream();
    aclrtStream updater = new_stream();
    uint64_t *words = words_new(4);
    aclrtTaskGrp group = NULL;
    aclrtEvent event = old_event(0x20);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(aclrtStreamWaitEvent(stream, event), 0);
    CHECK_RC(aclrtResetEvent(event, stream), 0);
    CHECK_RC(aclmdlRICaptureTaskGrpBegin(stream), 0);
    launch_add(stream, words, 1);
    launch_add(stream, words + 2, 1);
    CHECK_RC(aclmdlRICaptureTaskGrpEnd(stream, &group), 0);
    aclmdlRI model = end_capture(stream);
    for (uint64_t round = 1; round <= 3; round++) {
        words[0] = words[2] = words[3] = 0;
        CHECK_RC(aclmdlRIExecuteAsync(model, stream), 0);
        CHECK_RC(aclmdlRICaptureTaskUpdateBegin(updater, group), 0);
        launch_add(updater, words, round * 10);
        launch_add(updater, words + 3, 3);
        CHECK_RC(aclmdlRICaptureTaskUpdateEnd(updater), 0);
        CHECK_RC(aclrtRecordEvent(event, updater), 0);
        CHECK_THEN(aclrtSynchronizeStream(stream), words[0] == round * 10 && words[2] == 0 && words[3] == 3);
    }
    END({aclmdlRIDestroy, model}, {aclrtDestroyEvent, event}, {aclrtFree, words});
    END_STREAMS(stream, updater);
}

static aclrtRandomNumTaskInfo random_info(uint64_t *result, uint64_t *counter, uint32_t low, uint32_t high) {
    aclrtRandomNumTaskInfo info;
    uint64_t count = 1;
    memset(&info, 0, sizeof info);
    info.dataType = ACL_UINT32;
    info.randomResultAddr = result;
    info.randomCounterAddr = counter;
    info.randomSeed.size = 8;
    info.randomNum.size = 8;
    memcpy(info.randomNum.valueOrAddr, &count, 8);
    info.randomNumFuncParaInfo.funcType = ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS;
    info.randomNumFuncParaInfo.paramInfo.uniformDisInfo.min.size = 4;
    info.randomNumFuncParaInfo.paramInfo.uniformDisInfo.max.size = 4;
    memcpy(info.randomNumFuncParaInfo.paramInfo.uniformDisInfo.min.valueOrAddr, &low, 4);
    memcpy(info.randomNumFuncParaInfo.paramInfo.uniformDisInfo.max.valueOrAddr, &high, 4);
    return info;
}

/* Each range of random numbers has size one, so the numbers show which task has run. */
static void test_an_update_by_a_task(void) {
    aclrtStream bound = new_persistent_stream();
    aclrtStream stream = new_stream();
    uint64_t *words = words_new(3);
    aclrtRandomNumTaskInfo info = random_info(words, words + 1, 5, 6);
    aclrtTaskUpdateInfo update = {.id = ACL_RT_UPDATE_RANDOM_TASK};
    void *source = new_block(sizeof info);
    uint32_t task = 9;
    aclmdlRI model = new_model(bound);
    CHECK_RC(aclrtMemsetAsync(words, 8, 0, 8, bound), 0);
    CHECK_RC(aclrtRandomNumAsync(&info, bound, NULL), 0);
    CHECK_RC(aclrtGetThreadLastTaskId(&task), 0);
    CHECK_RC(aclmdlRIEndTask(model, bound), 0);
    CHECK_RC(aclmdlRIBuildEnd(model, NULL), 0);
    CHECK_THEN(aclmdlRIExecute(model, 5000), words[0] == 5);

    info = random_info(words, words + 1, 8, 9);
    CHECK_RC(aclrtMemcpy(source, sizeof info, &info, sizeof info, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    update.val.randomTaskAttr.size = sizeof info;
    CHECK_RC(aclrtTaskUpdateAsync(bound, task, NULL, stream), 100000);
    CHECK_RC(aclrtTaskUpdateAsync(bound, task, &update, stream), 107000); /* the source is missing */
    update.val.randomTaskAttr.srcAddr = source;
    CHECK_RC(aclrtTaskUpdateAsync(NULL, task, &update, stream), 107000);
    CHECK_RC(aclrtTaskUpdateAsync(bound, task - 1, &update, stream), 107000);
    CHECK_RC(aclrtTaskUpdateAsync(bound, task + 9, &update, stream), 107000);
    CHECK_RC(aclrtTaskUpdateAsync(bound, task, &update, bound), 107005);
    CHECK_RC(aclrtTaskUpdateAsync(bound, task, &update, stream), 0);
    execute_on(stream, model, 0);
    CHECK(words[0] == 8);

    CHECK_RC(aclrtTaskUpdateAsync(bound, task, &update, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtTaskUpdateAsync(bound, task, &update, stream), 0);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK(aclsim_release(stream) == 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507001); /* the task has been destroyed */
    update.id = ACL_RT_UPDATE_AIC_AIV_TASK;
    CHECK_RC(aclrtTaskUpdateAsync(bound, task, &update, stream), 207000);
    CHECK(strstr(aclGetRecentErrMsg(), "AI cores") != NULL);
    END_BLOCKS(source, words);
    END_STREAMS(stream, bound);
}

int main(void) {
    CHECK(aclsim_register_kernel("add", kernel_add, NULL) == 0);
    start_acl();
    RUN(test_an_event_from_outside, test_an_update_of_kernels, test_an_update_while_the_graph_runs,
        test_an_update_by_a_task);
    end_acl();
}
