/* Functions that are registered in place of models. */
#include "model_files.h"

enum { COUNT = 3, BYTES = COUNT * sizeof(float), NAME_AT = 84 };

static aclDataBuffer *buffers[2];
static aclmdlDataset *sets[2];
static float *memory[2];

static void make_data(void) {
    for (int i = 0; i < 2; i++) {
        void *made = NULL;
        CHECK_RC(aclrtMalloc(&made, BYTES, ACL_MEM_MALLOC_HUGE_FIRST), 0);
        memory[i] = made;
        memset(made, 0, BYTES);
        buffers[i] = aclCreateDataBuffer(made, BYTES);
        sets[i] = aclmdlCreateDataset();
        CHECK_RC(aclmdlAddDatasetBuffer(sets[i], buffers[i]), 0);
    }
}

static void free_data(void) {
    for (int i = 0; i < 2; i++) {
        CHECK_RC(aclmdlDestroyDataset(sets[i]), 0);
        CHECK_RC(aclDestroyDataBuffer(buffers[i]), 0);
        CHECK_RC(aclrtFree(memory[i]), 0);
    }
}

static uint32_t load(const char *name) {
    static bytes_t file;
    uint32_t model = 0;
    put_plain(&file, 1, COUNT, NULL);
    memcpy(file.bytes + NAME_AT, name, strlen(name));
    CHECK_RC(aclmdlLoadFromMem(file.bytes, file.size, &model), 0);
    return model;
}

/* Adds the user's number to each number. */
static int add(const aclsim_execution_t *execution) {
    const aclsim_tensor_t *input = &execution->inputs[0];
    const aclsim_tensor_t *output = &execution->outputs[0];
    const float *from = input->data;
    float *to = output->data;
    bool right = execution->input_count == 1 && execution->output_count == 1 && input->size == BYTES &&
                 input->type == ACL_FLOAT && input->dim_count == 2 && input->dims[1] == COUNT &&
                 output->size == BYTES && execution->device == 0 && strcmp(execution->name, "adder") == 0;
    if (!right) {
        aclsim_explain("the description is wrong");
        return 1;
    }
    for (int i = 0; i < COUNT; i++) {
        to[i] = from[i] + *(const float *)execution->user;
    }
    return 0;
}

static void test_function(void) {
    float amount = 5;
    uint32_t model = load("adder");
    memory[0][2] = 2;
    CHECK_RC(aclmdlExecute(model, sets[0], sets[1]), 207000);
    CHECK(aclsim_register_model("adder", add, &amount) == 0);
    CHECK_RC(aclmdlExecute(model, sets[0], sets[1]), 0);
    CHECK(memory[1][2] == 7);
    amount = 6;
    CHECK(aclsim_register_model("adder", add, &amount) == 0);
    CHECK_RC(aclmdlExecute(model, sets[0], sets[1]), 0);
    CHECK(memory[1][2] == 8);
    CHECK_RC(aclmdlUnload(model), 0);
    CHECK(aclsim_register_model("adder", NULL, NULL) == 0);
}

/* The function is looked up when the execution is computed. */
static void test_end_of_the_registration(void) {
    float amount = 5;
    aclrtStream stream = new_stream();
    CHECK(aclsim_register_model("adder", add, &amount) == 0);
    uint32_t model = load("adder");
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclmdlExecuteAsync(model, sets[0], sets[1], stream), 0);
    CHECK(aclsim_register_model("adder", NULL, NULL) == 0);
    CHECK(aclsim_register_model("adder", NULL, NULL) == -1);
    CHECK(aclsim_release(stream) == 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507011);
    const char *text = aclGetRecentErrMsg();
    CHECK(text != NULL && strstr(text, "no longer registered") != NULL);
    CHECK_RC(aclmdlUnload(model), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

int main(void) {
    CHECK_RC(aclInit(NULL), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    make_data();
    RUN(test_function, test_end_of_the_registration);
    free_data();
    CHECK(stats().violations == 0 && stats().device_blocks == 0 && stats().offline_models == 0);
    CHECK_RC(aclrtResetDevice(0), 0);
}
