/* Conditions of captured models. Adding the condition's task creates the graphs from which the task chooses.
 * The content of these graphs is captured afterwards. */
#include "graph_test.h"

enum { LOOPS = 3, GRAPHS = 4 };

static const aclmdlRICaptureMode LOCAL = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
static const aclmdlRICondHandleFlag ASSIGN = ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT;
static const aclmdlRICondHandleFlag KEEP = (aclmdlRICondHandleFlag)0;

aclError aclmdlRIAddCondTask(aclmdlRICondTaskParams params, aclrtStream stream, uint32_t flags);

/* A condition, its task, the model that contains both, and the graphs to capture. */
typedef struct {
    aclrtStream stream;
    aclrtStream inner;
    aclmdlRI model;
    aclmdlRICondHandle handle;
    uint64_t *value;
    aclmdlRI graphs[GRAPHS];
} choice_t;

static aclmdlRI captured_into(aclrtStream stream) {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    aclmdlRI model = NULL;
    CHECK_THEN(aclmdlRICaptureGetInfo(stream, &status, &model), status == ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
    return model;
}

static aclError add_task(const choice_t *choice, aclmdlRICondTaskType type, uint32_t size, aclmdlRI *graphs) {
    aclmdlRICondTaskParams params = {choice->handle, type, size, graphs};
    return aclmdlRIAddCondTask(params, choice->stream, 0);
}

static choice_t choice_on(aclrtStream stream, aclmdlRICondTaskType type, uint32_t size, uint32_t initial,
                          aclmdlRICondHandleFlag flag) {
    choice_t choice = {.stream = stream, .inner = new_stream(), .model = captured_into(stream)};
    CHECK_RC(aclmdlRICondHandleCreate(choice.model, initial, flag, &choice.handle), 0);
    CHECK_RC(aclmdlRICondHandleGetCondPtr(choice.handle, &choice.value), 0);
    CHECK_RC(add_task(&choice, type, size, choice.graphs), 0);
    for (uint32_t i = 0; i < size; i++) {
        CHECK(choice.graphs[i] != NULL && choice.graphs[i] != choice.model);
    }
    CHECK(choice.graphs[size] == NULL);
    return choice;
}

static choice_t choice_new(aclmdlRICondTaskType type, uint32_t size, uint32_t initial,
                           aclmdlRICondHandleFlag flag) {
    aclrtStream stream = new_stream();
    CHECK_RC(aclmdlRICaptureBegin(stream, LOCAL), 0);
    return choice_on(stream, type, size, initial, flag);
}

static void begin_graph(const choice_t *choice, uint32_t index) {
    CHECK_RC(aclmdlRICaptureToModelRIBegin(choice->inner, choice->graphs[index], LOCAL), 0);
    CHECK(captured_into(choice->inner) == choice->graphs[index]);
}

static void end_graph(const choice_t *choice, uint32_t index) {
    CHECK(end_capture(choice->inner) == choice->graphs[index]);
}

static void graph_of_add(const choice_t *choice, uint32_t index, uint64_t *word, uint64_t add) {
    begin_graph(choice, index);
    launch_add(choice->inner, word, add);
    end_graph(choice, index);
}

static void end_choice(const choice_t *choice) {
    CHECK(end_capture(choice->stream) == choice->model);
}

static void choice_end(const choice_t *choice) {
    CHECK_RC(aclmdlRIDestroy(choice->model), 0);
    END_STREAMS(choice->inner, choice->stream);
}

static void execute_with(const choice_t *choice, uint64_t value) {
    CHECK_RC(aclrtMemcpy(choice->value, 8, &value, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    execute_on(choice->stream, choice->model, 0);
}

static void test_if(void) {
    uint64_t *words = words_new(2);
    choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_IF, 2, 1, KEEP);
    graph_of_add(&choice, 0, &words[0], 1);
    graph_of_add(&choice, 1, &words[1], 1);
    end_choice(&choice);
    execute_with(&choice, 7);
    CHECK(words[0] == 1 && words[1] == 0);
    execute_with(&choice, 0);
    CHECK(words[0] == 1 && words[1] == 1);
    choice_end(&choice);
    CHECK_RC(aclrtFree(words), 0);
}

static void test_if_without_else(void) {
    uint64_t *words = words_new(2);
    choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_IF, 1, 0, KEEP);
    launch_add(choice.stream, &words[1], 1); /* runs after the condition */
    graph_of_add(&choice, 0, &words[0], 1);
    end_choice(&choice);
    CHECK(*choice.value == 0); /* a value that is not assigned starts as 0 */
    execute_with(&choice, 0);
    CHECK(words[0] == 0 && words[1] == 1);
    execute_with(&choice, 1);
    CHECK(words[0] == 1 && words[1] == 2);
    choice_end(&choice);
    CHECK_RC(aclrtFree(words), 0);
}

/* The body of a loop changes the value of its own condition: it counts down, or directly writes another
 * value. */
static void test_while(void) {
    uint64_t *words = words_new(2);
    choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_WHILE, 1, LOOPS, ASSIGN);
    begin_graph(&choice, 0);
    launch_add(choice.inner, &words[0], 1);
    launch_add(choice.inner, choice.value, UINT64_MAX); /* subtracts one each time */
    end_graph(&choice, 0);
    end_choice(&choice);
    for (uint64_t i = 1; i <= 2; i++) {
        CHECK_RC(aclmdlRIExecute(choice.model, 5000), 0); /* the condition's value is assigned again */
        CHECK(words[0] == i * LOOPS && *choice.value == 0);
    }
    choice_end(&choice);
    choice = choice_new(ACL_MODEL_RI_COND_TYPE_WHILE, 1, 1, ASSIGN);
    begin_graph(&choice, 0);
    launch_add(choice.inner, &words[0], 1);
    CHECK_RC(aclrtMemcpyAsync(choice.value, 8, &words[1], 8, ACL_MEMCPY_DEVICE_TO_DEVICE, choice.inner), 0);
    CHECK_RC(aclmdlRICaptureEnd(choice.inner, NULL), 0); /* the graph need not be returned */
    end_choice(&choice);
    words[0] = 0;
    execute_with(&choice, 0); /* the value is assigned here too */
    CHECK(words[0] == 1 && *choice.value == 0);
    choice_end(&choice);
    CHECK_RC(aclrtFree(words), 0);
}

static void test_switch(void) {
    uint64_t *words = words_new(4);
    choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_SWITCH, 3, 2, ASSIGN);
    for (uint32_t i = 0; i < 3; i++) {
        graph_of_add(&choice, i, &words[i], 1);
    }
    end_choice(&choice);
    execute_with(&choice, 0);
    CHECK(words[0] == 0 && words[1] == 0 && words[2] == 1);
    choice_end(&choice);
    choice = choice_new(ACL_MODEL_RI_COND_TYPE_SWITCH, 3, 0, KEEP);
    for (uint32_t i = 0; i < 3; i++) {
        graph_of_add(&choice, i, &words[i], 1);
    }
    end_choice(&choice);
    for (uint64_t value = 0; value < 4; value++) { /* the last value chooses no graph */
        execute_with(&choice, value);
    }
    CHECK(words[0] == 1 && words[1] == 1 && words[2] == 2);
    choice_end(&choice);
    CHECK_RC(aclrtFree(words), 0);
}

/* Values are assigned once per execution, not each time that the graph with the condition is chosen. */
static void test_nested(void) {
    uint64_t *words = words_new(1);
    choice_t loop = choice_new(ACL_MODEL_RI_COND_TYPE_WHILE, 1, 3, ASSIGN);
    begin_graph(&loop, 0);
    choice_t once = choice_on(loop.inner, ACL_MODEL_RI_COND_TYPE_IF, 1, 1, ASSIGN);
    begin_graph(&once, 0);
    launch_add(once.inner, words, 1);
    launch_add(once.inner, once.value, UINT64_MAX);
    end_graph(&once, 0);
    launch_add(loop.inner, loop.value, UINT64_MAX);
    end_graph(&loop, 0);
    end_choice(&loop);
    for (uint64_t i = 1; i <= 2; i++) {
        CHECK_THEN(aclmdlRIExecute(loop.model, 5000), *words == i && *once.value == 0 && *loop.value == 0);
    }
    choice_end(&loop);
    END({aclrtDestroyStream, once.inner}, {aclrtFree, words});
}

/* When an inner graph records an event with the external flag, streams outside can wait for it. */
static void test_an_external_record_inside(void) {
    aclrtEvent event = new_event(1);
    uint64_t *words = words_new(1);
    choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_IF, 1, 0, KEEP);
    begin_graph(&choice, 0);
    launch_add(choice.inner, words, 1);
    CHECK_RC(aclrtRecordEventWithFlag(event, choice.inner, 1), 0);
    end_graph(&choice, 0);
    end_choice(&choice);
    for (uint64_t value = 0; value < 2; value++) { /* the value 0 does not choose the graph */
        execute_with(&choice, value);
        CHECK_THEN(aclrtSynchronizeEvent(event), *words == value);
    }
    choice_end(&choice);
    END({aclrtDestroyEvent, event}, {aclrtFree, words});
}

static void test_a_failing_graph(void) {
    uint64_t *words = words_new(1);
    choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_IF, 1, 1, ASSIGN);
    begin_graph(&choice, 0);
    CHECK_RC(aclrtLaunchKernel(function_of("fail"), 1, NULL, 0, choice.inner), 0);
    end_graph(&choice, 0);
    launch_add(choice.stream, words, 1);
    end_choice(&choice);
    execute_on(choice.stream, choice.model, 507014);
    CHECK(*words == 0);
    choice_end(&choice);
    CHECK_RC(aclrtFree(words), 0);
}

/* A capture must not end before the captures of its inner graphs have ended. Otherwise the end fails, and the
 * captured graphs are lost. */
static void test_a_capture_that_ends_too_early(void) {
    for (int begun = 0; begun < 2; begun++) {
        aclmdlRI model = NULL;
        choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_IF, 2, 1, ASSIGN);
        graph_of_add(&choice, 0, choice.value, 1);
        if (begun != 0) {
            begin_graph(&choice, 1);
        }
        CHECK_RC(aclmdlRICaptureEnd(choice.stream, &model), 107045);
        CHECK(model == NULL && stats().models == 0 && stats().device_blocks == 0);
        CHECK_RC(aclmdlRICaptureEnd(choice.stream, &model), 107029);
        CHECK_RC(aclmdlRICaptureEnd(choice.inner, &model), 107029);
        CHECK_RC(aclmdlRICondHandleGetCondPtr(choice.handle, &choice.value), 107017);
        END({aclrtDestroyStream, choice.inner}, {aclrtDestroyStream, choice.stream});
    }
}

/* If the capture of an inner graph fails, the whole capture fails. */
static void test_a_capture_that_fails_inside(void) {
    aclmdlRI model = NULL;
    aclrtStream third = new_stream();
    aclrtEvent event = new_event(1);
    choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_WHILE, 1, 1, ASSIGN);
    begin_graph(&choice, 0);
    CHECK_RC(aclrtRecordEvent(event, choice.inner), 0);
    CHECK_RC(aclrtStreamWaitEvent(third, event), 0);
    launch_add(third, choice.value, 1); /* no stream joins this work */
    CHECK_RC(aclmdlRICaptureEnd(choice.inner, &model), 107025);
    CHECK_RC(aclmdlRICaptureToModelRIBegin(choice.inner, choice.graphs[0], LOCAL), 107026);
    CHECK_RC(aclmdlRICaptureEnd(choice.stream, &model), 107045);
    CHECK(model == NULL && stats().models == 0 && stats().device_blocks == 0);
    END_STREAMS(choice.inner, choice.stream, third);
    CHECK_RC(aclrtDestroyEvent(event), 0);
}

/* When a context ends, its streams end in any order, and so do the captures of these streams. */
static void test_a_context_that_ends(void) {
    aclrtContext before = current_context();
    aclrtContext context = new_context();
    choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_IF, 2, 1, ASSIGN);
    graph_of_add(&choice, 0, choice.value, 1);
    begin_graph(&choice, 1);
    choice = choice_new(ACL_MODEL_RI_COND_TYPE_WHILE, 1, 1, ASSIGN);
    graph_of_add(&choice, 0, choice.value, 1);
    end_choice(&choice);
    CHECK_RC(aclrtDestroyContext(context), 0);
    CHECK(stats().models == 0 && stats().streams == 0 && stats().device_blocks == 0);
    CHECK_RC(aclrtSetCurrentContext(before), 0);
}

static void test_handles_that_are_refused(void) {
    aclrtStream stream = new_stream();
    aclmdlRICondHandle handle = NULL;
    aclmdlRI built = NULL;
    CHECK_RC(aclmdlRIBuildBegin(&built, 0), 0);
    CHECK_RC(aclmdlRICondHandleCreate(built, 1, ASSIGN, &handle), 207000);
    CHECK_RC(aclmdlRICaptureToModelRIBegin(stream, built, LOCAL), 107000);
    CHECK_RC(aclmdlRIDestroy(built), 0);
    choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_IF, 1, 1, ASSIGN);
    CHECK_RC(aclmdlRICondHandleCreate(choice.graphs[0], 1, ASSIGN, &handle), 107000);
    CHECK_RC(aclmdlRICondHandleCreate(choice.model, 1, (aclmdlRICondHandleFlag)2, &handle), 107000);
    CHECK_RC(aclmdlRICaptureToModelRIBegin(choice.stream, choice.graphs[0], LOCAL), 107027);
    CHECK_RC(aclmdlRICaptureToModelRIBegin(choice.inner, choice.model, LOCAL), 107000);
    graph_of_add(&choice, 0, choice.value, 1);
    CHECK_RC(aclmdlRICaptureToModelRIBegin(choice.inner, choice.graphs[0], LOCAL), 107026);
    CHECK_RC(aclmdlRICaptureEnd(choice.stream, NULL), 107000);
    end_choice(&choice);
    CHECK_RC(aclmdlRICondHandleCreate(choice.model, 1, ASSIGN, &handle), 107000);
    CHECK_RC(aclmdlRIExecute(choice.graphs[0], 1000), 207000);
    CHECK_RC(aclmdlRIExecuteAsync(choice.graphs[0], stream), 207000);
    CHECK_RC(aclmdlRIDestroy(choice.graphs[0]), 207000);
    choice_end(&choice);
    CHECK_RC(aclmdlRIDestroy(choice.graphs[0]), 107017);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_tasks_that_are_refused(void) {
    aclmdlRI graphs[GRAPHS] = {NULL};
    choice_t choice = {.stream = new_stream()};
    choice_t other = choice_new(ACL_MODEL_RI_COND_TYPE_IF, 1, 1, ASSIGN);
    CHECK_RC(aclmdlRICaptureBegin(choice.stream, LOCAL), 0);
    choice.model = captured_into(choice.stream);
    CHECK_RC(add_task(&choice, ACL_MODEL_RI_COND_TYPE_IF, 1, graphs), 107000);
    CHECK_RC(aclmdlRICondHandleCreate(choice.model, 1, ASSIGN, &choice.handle), 0);
    CHECK_RC(add_task(&choice, ACL_MODEL_RI_COND_TYPE_IF, 3, graphs), 107000);
    CHECK_RC(add_task(&choice, ACL_MODEL_RI_COND_TYPE_WHILE, 2, graphs), 107000);
    CHECK_RC(add_task(&choice, ACL_MODEL_RI_COND_TYPE_SWITCH, 0, graphs), 107000);
    CHECK_RC(add_task(&choice, (aclmdlRICondTaskType)3, 1, graphs), 107000);
    CHECK_RC(add_task(&choice, ACL_MODEL_RI_COND_TYPE_IF, 1, NULL), 107000);
    aclmdlRICondTaskParams params = {choice.handle, ACL_MODEL_RI_COND_TYPE_IF, 1, graphs};
    CHECK_RC(aclmdlRIAddCondTask(params, choice.stream, 1), 107000);
    CHECK_RC(aclmdlRIAddCondTask(params, NULL, 0), 100000);
    CHECK_RC(aclmdlRIAddCondTask(params, other.stream, 0), 107000); /* the stream belongs to another model */
    CHECK_RC(aclmdlRIAddCondTask(params, other.inner, 0), 107029);
    params.handle = other.handle;
    CHECK_RC(aclmdlRIAddCondTask(params, other.stream, 0), 107000); /* the condition already has its task */
    CHECK(graphs[0] == NULL);
    end_choice(&choice); /* the refused calls have not changed the condition */
    CHECK_RC(aclmdlRIExecute(choice.model, 1000), 0);
    graph_of_add(&other, 0, other.value, 1);
    end_choice(&other);
    END({aclmdlRIDestroy, choice.model}, {aclrtDestroyStream, choice.stream});
    choice_end(&other);
}

/* The condition's value belongs to the runtime. Only the destruction of the model frees the value. */
static void test_a_value_that_is_freed_from_outside(void) {
    choice_t choice = choice_new(ACL_MODEL_RI_COND_TYPE_IF, 1, 1, ASSIGN);
    graph_of_add(&choice, 0, choice.value, 1);
    end_choice(&choice);
    aclsim_stats_t before = stats();
    CHECK_RC(aclrtFree(choice.value), 507899);
    CHECK_RC(aclrtFreeWithDevSync(choice.value), 507899);
    CHECK_RC(aclrtMemPoolFreeAsync(choice.value, choice.stream), 107000);
    CHECK(stats().violations == before.violations + 3 && stats().device_blocks == before.device_blocks);
    CHECK_THEN(aclmdlRIExecute(choice.model, 1000), *choice.value == 2);
    choice_end(&choice);
    CHECK(stats().device_blocks == before.device_blocks - 1);
}

int main(void) {
    start_acl();
    CHECK(aclsim_register_kernel("add", kernel_add, NULL) == 0);
    CHECK(aclsim_register_kernel("fail", kernel_fail, NULL) == 0);
    RUN(test_if, test_if_without_else, test_while, test_switch, test_nested, test_an_external_record_inside,
        test_a_failing_graph, test_a_capture_that_ends_too_early, test_a_capture_that_fails_inside,
        test_a_context_that_ends);
    CHECK(stats().violations == 2); /* the two uses of destroyed condition handles */
    RUN(test_handles_that_are_refused, test_tasks_that_are_refused, test_a_value_that_is_freed_from_outside);
    end_acl();
}
