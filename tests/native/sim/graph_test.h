/* The common part of the programs about graphs: captures, and a kernel that adds. */
#ifndef GRAPH_TEST_H
#define GRAPH_TEST_H

#include "sim_test.h"

static const aclmdlRICaptureMode RELAXED = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;

static inline uint64_t *words_new(size_t count) {
    return zeros(count * 8);
}

static inline aclmdlRI end_capture(aclrtStream stream) {
    aclmdlRI model = NULL;
    CHECK_RC(aclmdlRICaptureEnd(stream, &model), 0);
    return model;
}

/* Only such a stream can be bound to a model. */
static inline aclrtStream new_persistent_stream(void) {
    aclrtStream stream = NULL;
    CHECK_RC(aclrtCreateStreamWithConfig(&stream, 0, ACL_STREAM_PERSISTENT), 0);
    return stream;
}

/* Begins to build a model, whose first stream is `head`. */
static inline aclmdlRI new_model(aclrtStream head) {
    aclmdlRI model = NULL;
    CHECK_RC(aclmdlRIBuildBegin(&model, 0), 0);
    CHECK_RC(aclmdlRIBindStream(model, head, 0), 0);
    return model;
}

static inline void execute_on(aclrtStream stream, aclmdlRI model, aclError want) {
    CHECK_RC(aclmdlRIExecuteAsync(model, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), want);
}

static inline aclrtFuncHandle function_of(const char *name) {
    static aclrtBinHandle binary;
    aclrtFuncHandle function = NULL;
    if (binary == NULL) {
        CHECK_RC(aclrtBinaryLoadFromData("code", 4, NULL, &binary), 0);
    }
    CHECK_RC(aclrtBinaryGetFunction(binary, name, &function), 0);
    return function;
}

typedef struct {
    uint64_t *word;
    uint64_t add;
} add_t;

static inline int kernel_add(const aclsim_launch_t *launch) {
    const add_t *args = launch->args;
    *args->word += args->add;
    return 0;
}

static inline int kernel_fail(const aclsim_launch_t *launch) {
    (void)launch;
    return 507014;
}

static inline void launch_add(aclrtStream stream, uint64_t *word, uint64_t add) {
    add_t args = {word, add};
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function_of("add"), 1, stream, NULL, &args, sizeof args, NULL, 0),
             0);
}

static inline void on_host(void *count) {
    atomic_fetch_add((atomic_int *)count, 1);
}

#endif
