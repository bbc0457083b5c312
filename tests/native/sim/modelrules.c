/* How long calls about models wait, and which buffers and shapes they take, as the runtime and the graph engine
 * do. A library in place of onnxruntime (standin_onnxruntime.c) computes the offline models. */
#include "clock_test.h"
#include "graph_test.h"
#include "model_test.h"

static const int64_t DESTROY_NS = 10000000000;

static aclError body_destroy_model(void *model) {
    return aclmdlRIDestroy(model);
}

/* A model whose execution ends when the word is 1. The execution has begun: an abort would ignore a later one.
 */
static aclmdlRI executing_model(aclrtStream stream, uint64_t *word) {
    static atomic_int begun;
    int before = atomic_load(&begun);
    CHECK_RC(aclrtMemset(word, 8, 0, 8), 0);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(aclrtLaunchHostFunc(stream, on_host, &begun), 0);
    CHECK_RC(aclrtValueWait(word, 1, 1, stream), 0);
    aclmdlRI model = end_capture(stream);
    CHECK_RC(aclmdlRIExecuteAsync(model, stream), 0);
    UNTIL(atomic_load(&begun) != before);
    return model;
}

static void end_execution(uint64_t *word) {
    const uint64_t one = 1;
    CHECK_RC(aclrtMemcpy(word, 8, &one, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0);
}

static void test_destroy_waits_for_the_execution(void) {
    aclrtStream stream = new_stream();
    uint64_t *word = words_new(1);
    aclmdlRI model = executing_model(stream, word);
    call_t call;
    call_waiting(&call, body_destroy_model, model, "aclmdlRIDestroy");
    end_execution(word);
    CHECK_RC(call_join(&call), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK_RC(aclmdlRIDestroy(model), 107017);
    CHECK(stats().models == 0);
    aclsim_forget();
    END({aclrtFree, word}, {aclrtDestroyStream, stream});
}

/* The limit follows the clock of the simulator. */
static void test_destroy_of_a_long_execution_fails(void) {
    aclrtStream stream = new_stream();
    uint64_t *word = words_new(1);
    aclmdlRI model = executing_model(stream, word);
    call_t call;
    aclsim_clock_virtual(1);
    call_waiting(&call, body_destroy_model, model, "aclmdlRIDestroy");
    CHECK(due_in_ns() == DESTROY_NS);
    CHECK(aclsim_clock_advance(DESTROY_NS) == 0);
    CHECK_RC(call_join(&call), 107037);
    aclsim_clock_virtual(0);
    CHECK_RC(aclmdlRIAbort(model), 0);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 107023);
    END({aclrtFree, word}, {aclrtDestroyStream, stream});
}

/* One of two calls destroys the model. The other call then finds no model. */
static void test_two_calls_destroy_a_model(void) {
    aclrtStream stream = new_stream();
    uint64_t *word = words_new(1);
    aclmdlRI model = executing_model(stream, word);
    call_t calls[2];
    call_start(&calls[0], body_destroy_model, model);
    call_start(&calls[1], body_destroy_model, model);
    until_waiting(calls, 2, "aclmdlRIDestroy");
    end_execution(word);
    aclError first = call_join(&calls[0]);
    aclError second = call_join(&calls[1]);
    CHECK((first == 0 && second == 107017) || (first == 107017 && second == 0));
    aclsim_forget();
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    END({aclrtFree, word}, {aclrtDestroyStream, stream});
}

static void test_reset_ends_a_destroy_that_waits(void) {
    aclmdlRI model = executing_model(new_stream(), words_new(1));
    call_t call;
    call_waiting(&call, body_destroy_model, model, "aclmdlRIDestroy");
    reset_and_set();
    CHECK(call_join(&call) != 107037);
    CHECK(stats().models == 0);
    aclsim_forget();
}

typedef struct {
    aclrtContext context;
    aclrtStream stream;
    aclmdlRI model;
} home_t;

/* Another context, with an empty model. */
static home_t other_home(void) {
    aclrtContext own = current_context();
    home_t home = {.context = new_context(), .stream = new_stream()};
    CHECK_RC(aclmdlRICaptureBegin(home.stream, RELAXED), 0);
    home.model = end_capture(home.stream);
    CHECK_RC(aclrtSetCurrentContext(own), 0);
    return home;
}

/* A model of this context that executes the model of the other context. */
static aclmdlRI model_that_executes(const home_t *home, aclrtStream stream) {
    aclrtContext own = current_context();
    aclrtEvent event = new_event(1);
    CHECK_RC(aclmdlRICaptureBegin(stream, RELAXED), 0);
    CHECK_RC(aclrtRecordEvent(event, stream), 0);
    CHECK_RC(aclrtSetCurrentContext(home->context), 0);
    CHECK_RC(aclrtStreamWaitEvent(home->stream, event), 0);
    CHECK_RC(aclmdlRIExecuteAsync(home->model, home->stream), 0);
    CHECK_RC(aclrtRecordEvent(event, home->stream), 0);
    CHECK_RC(aclrtSetCurrentContext(own), 0);
    CHECK_RC(aclrtStreamWaitEvent(stream, event), 0);
    CHECK_RC(aclrtDestroyEvent(event), 0);
    return end_capture(stream);
}

static aclError body_destroy_at_home(void *arg) {
    const home_t *home = arg;
    CHECK_RC(aclrtSetCurrentContext(home->context), 0);
    return aclmdlRIDestroy(home->model);
}

/* A model of another context still refers to the model that ends. */
static void test_end_of_the_context_ends_a_destroy_that_waits(void) {
    aclrtStream stream = new_stream();
    home_t home = other_home();
    aclmdlRI outer = model_that_executes(&home, stream);
    call_t call;
    aclsim_clock_virtual(1);
    call_waiting(&call, body_destroy_at_home, &home, "aclmdlRIDestroy");
    CHECK_RC(aclrtDestroyContext(home.context), 0);
    CHECK(aclsim_clock_advance(DESTROY_NS) == 0);
    CHECK_RC(call_join(&call), 107017);
    aclsim_clock_virtual(0);
    aclsim_forget();
    END({aclmdlRIDestroy, outer}, {aclrtDestroyStream, stream});
}

static void set_rows(aclmdlDataset *dataset, int64_t rows) {
    const int64_t dims[] = {rows, COLUMNS};
    aclTensorDesc *desc = aclCreateTensorDesc(ACL_FLOAT, 2, dims, ACL_FORMAT_ND);
    CHECK_RC(aclmdlSetDatasetTensorDesc(dataset, desc, 0), 0);
    aclDestroyTensorDesc(desc);
}

static float *numbers_new(void) {
    float *numbers = new_block(BYTES);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        numbers[i] = (float)i;
    }
    return numbers;
}

static bool doubled(const float *y, const float *x) {
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        if (y[i] != 2 * x[i]) {
            return false;
        }
    }
    return true;
}

/* The buffers of a dynamic model hold the shape of the execution, not the end of the range. */
static void test_buffers_of_a_dynamic_model_hold_the_shape(void) {
    static bytes_t file;
    put_dynamic(&file, "model");
    uint32_t model = load_bytes(&file);
    aclrtStream stream = new_stream();
    float *x = numbers_new();
    float *y = zeros(BYTES);
    aclmdlDataset *input = dataset_of(x, BYTES);
    aclmdlDataset *output = dataset_of(y, BYTES);
    set_rows(input, ROWS);
    CHECK_RC(aclmdlExecuteAsync(model, input, output, stream), 0);
    CHECK_THEN(aclrtSynchronizeStream(stream), doubled(y, x));
    CHECK_THEN(aclmdlExecute(model, input, output), doubled(y, x));
    set_rows(input, ROWS + 1);
    CHECK_RC(aclmdlExecuteAsync(model, input, output, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507011);
    for (int64_t rows = 0; rows <= 9; rows += 9) {
        set_rows(input, rows);
        CHECK_RC(aclmdlExecuteAsync(model, input, output, stream), NO);
    }
    dataset_free(input);
    dataset_free(output);
    CHECK_RC(aclmdlUnload(model), 0);
    END({aclrtFree, x}, {aclrtFree, y}, {aclrtDestroyStream, stream});
}

/* A static model keeps the check: 64 bytes may be missing. */
static void test_buffers_of_a_static_model_hold_the_tensor(void) {
    static bytes_t file;
    put_plain(&file, 16, COLUMNS, "model");
    uint32_t model = load_bytes(&file);
    void *block = zeros(192);
    aclmdlDataset *input = dataset_of(block, 192 - 65);
    aclmdlDataset *output = dataset_of(block, 192);
    CHECK_RC(aclmdlExecute(model, input, output), 145000);
    dataset_free(input);
    dataset_free(output);
    CHECK_RC(aclmdlUnload(model), 0);
    END_BLOCKS(block);
}

static aclmdlDesc *desc_of(const bytes_t *file) {
    aclmdlDesc *desc = aclmdlCreateDesc();
    CHECK_RC(aclmdlGetDescFromMem(desc, file->bytes, file->size), 0);
    return desc;
}

static void test_ranges_of_inputs(void) {
    static bytes_t file;
    static aclmdlIODimsRange ranges;
    put_batched(&file, "model");
    aclmdlDesc *desc = desc_of(&file);
    for (size_t index = 0; index < 4; index++) {
        ranges.rangeCount = 7;
        CHECK_THEN(aclmdlGetInputDimsRange(desc, index, &ranges), ranges.rangeCount == 0);
    }
    CHECK_RC(aclmdlGetInputDimsRange(desc, 0, NULL), NO);
    CHECK_RC(aclmdlDestroyDesc(desc), 0);
    put_dynamic(&file, "model");
    desc = desc_of(&file);
    CHECK_THEN(aclmdlGetInputDimsRange(desc, 0, &ranges), ranges.rangeCount == 2 && ranges.range[0][1] == 8);
    CHECK_RC(aclmdlGetInputDimsRange(desc, 1, &ranges), NO);
    CHECK_RC(aclmdlDestroyDesc(desc), 0);
}

static aclError execute_v2(uint32_t model, aclmdlDataset *input, aclmdlDataset *output, aclrtStream stream) {
    aclmdlExecConfigHandle *config = aclmdlCreateExecConfigHandle();
    aclError rc = aclmdlExecuteV2(model, input, output, stream, config);
    CHECK_RC(aclmdlDestroyExecConfigHandle(config), 0);
    return rc;
}

/* The client frees the memory that the call gave to its buffer. */
static void check_given(aclmdlDataset *output, const float *x) {
    aclDataBuffer *buffer = aclmdlGetDatasetBuffer(output, 0);
    float *given = aclGetDataBufferAddr(buffer);
    CHECK(given != NULL && aclGetDataBufferSizeV2(buffer) == BYTES && doubled(given, x));
    CHECK_RC(aclrtFree(given), 0);
    CHECK_RC(aclUpdateDataBuffer(buffer, NULL, 0), 0);
}

static void test_calls_that_wait_give_memory_to_an_output(void) {
    uint32_t model = load_plain();
    aclrtStream stream = new_stream();
    float *x = numbers_new();
    aclmdlDataset *input = dataset_of(x, BYTES);
    aclmdlDataset *output = dataset_of(NULL, 0);
    uint64_t blocks = stats().device_blocks;
    CHECK_RC(aclmdlExecute(model, input, output), 0);
    check_given(output, x);
    CHECK_RC(execute_v2(model, input, output, stream), 0);
    check_given(output, x);
    CHECK(aclsim_set_limits("mem=1") == 0);
    CHECK_RC(aclmdlExecute(model, input, output), 207001);
    CHECK(aclsim_set_limits("") == 0);
    CHECK_RC(aclmdlUnload(model), 0);
    model = load_plain();
    CHECK_RC(aclmdlExecuteAsync(model, input, output, stream), NO);
    CHECK(stats().device_blocks == blocks && aclGetDataBufferAddr(aclmdlGetDatasetBuffer(output, 0)) == NULL);
    dataset_free(input);
    dataset_free(output);
    CHECK_RC(aclmdlUnload(model), 0);
    END({aclrtFree, x}, {aclrtDestroyStream, stream});
}

/* x has `rows` rows, or 1 to 8 rows if `rows` is -1. The outputs y and z have the same shape. */
static uint32_t load_pair(int64_t rows) {
    static bytes_t file;
    static bytes_t part;
    static bytes_t description;
    const int64_t dims[] = {rows, COLUMNS};
    description.size = 0;
    part.size = 0;
    put_u32(&part, 1);
    put_tensor(&part, "x", dims, 2);
    put_part(&description, 0, &part);
    part.size = 0;
    put_u32(&part, 2);
    put_tensor(&part, "y", dims, 2);
    put_tensor(&part, "z", dims, 2);
    put_part(&description, 1, &part);
    put_file(&file, &description, "pair");
    file.bytes[193] = rows < 0;
    return load_bytes(&file);
}

/* The outputs share the memory, as they do if the client has given memory to their buffer. */
static void test_outputs_with_one_buffer_are_given_one_block(void) {
    float *x = numbers_new();
    aclmdlDataset *input = dataset_of(x, BYTES);
    aclmdlDataset *output = dataset_of(NULL, 0);
    CHECK_RC(aclmdlAddDatasetBuffer(output, aclmdlGetDatasetBuffer(output, 0)), 0);
    set_rows(input, ROWS);
    for (int64_t rows = -1; rows <= ROWS; rows += ROWS + 1) {
        uint32_t model = load_pair(rows);
        uint64_t blocks = stats().device_blocks;
        CHECK_THEN(aclmdlExecute(model, input, output), stats().device_blocks == blocks + 1);
        check_given(output, x);
        CHECK(stats().device_blocks == blocks);
        CHECK_RC(aclmdlUnload(model), 0);
    }
    dataset_free(input);
    dataset_free(output);
    END_BLOCKS(x);
}

/* The memory is large enough for each gear. */
static void test_output_of_a_model_with_gears_is_given_memory(void) {
    static bytes_t file;
    put_batched(&file, "model");
    uint32_t model = load_bytes(&file);
    float *x = new_block(4 * COLUMNS * sizeof(float));
    uint64_t *gear = words_new(1);
    memset(x, 0, 4 * COLUMNS * sizeof(float));
    aclmdlDataset *input = dataset_of(x, 4 * COLUMNS * sizeof(float));
    aclmdlDataset *output = dataset_of(NULL, 0);
    aclDataBuffer *selector = aclCreateDataBuffer(gear, sizeof *gear);
    CHECK_RC(aclmdlAddDatasetBuffer(input, selector), 0);
    CHECK_RC(aclmdlSetDynamicBatchSize(model, input, 1, 2), 0);
    CHECK_RC(aclmdlExecute(model, input, output), 0);
    aclDataBuffer *buffer = aclmdlGetDatasetBuffer(output, 0);
    CHECK(aclGetDataBufferAddr(buffer) != NULL &&
          aclGetDataBufferSizeV2(buffer) == 8 * COLUMNS * sizeof(float));
    END_BLOCKS(aclGetDataBufferAddr(buffer), x, gear);
    dataset_free(input);
    dataset_free(output);
    CHECK_RC(aclDestroyDataBuffer(selector), 0);
    CHECK_RC(aclmdlUnload(model), 0);
}

int main(void) {
    start_acl();
    RUN(test_destroy_waits_for_the_execution, test_destroy_of_a_long_execution_fails,
        test_two_calls_destroy_a_model, test_reset_ends_a_destroy_that_waits,
        test_end_of_the_context_ends_a_destroy_that_waits, test_buffers_of_a_dynamic_model_hold_the_shape,
        test_buffers_of_a_static_model_hold_the_tensor, test_ranges_of_inputs,
        test_calls_that_wait_give_memory_to_an_output, test_outputs_with_one_buffer_are_given_one_block,
        test_output_of_a_model_with_gears_is_given_memory);
    CHECK(stats().violations == 0);
    end_acl();
}
