/*
 * Functions that clients register in place of models. A function stands for all models with its name, which is
 * the name in the header of the file. It takes precedence over the ONNX model of the file. It is looked up when
 * an execution is computed, so it may be registered after the load. If it is registered before the load, the
 * load does not need onnxruntime.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"
#include "modelrun.h"

typedef int (*model_function_t)(const aclsim_execution_t *execution);

typedef struct registration {
    struct registration *next;
    char name[MODEL_FILE_NAME_BYTES];
    model_function_t function;
    void *user;
} registration_t;

static registration_t *registrations; /* protected by sim.lock */

static registration_t **find(const char *name) {
    registration_t **link = &registrations;
    while (*link != NULL && strcmp((*link)->name, name) != 0) {
        link = &(*link)->next;
    }
    return link;
}

bool model_is_registered(const model_info_t *info) {
    return *find(info->name) != NULL;
}

static bool set(const char *name, model_function_t function, void *user) {
    registration_t **link = find(name);
    if (*link == NULL) {
        *link = calloc(1, sizeof **link);
    }
    if (*link != NULL) {
        snprintf((*link)->name, sizeof(*link)->name, "%s", name);
        (*link)->function = function;
        (*link)->user = user;
    }
    return *link != NULL;
}

static bool end(const char *name) {
    registration_t **link = find(name);
    registration_t *found = *link;
    if (found != NULL) {
        *link = found->next;
        free(found);
    }
    return found != NULL;
}

API int aclsim_register_model(const char *name, model_function_t function, void *user) {
    if (name == NULL || *name == '\0' || strlen(name) >= MODEL_FILE_NAME_BYTES) {
        return -1;
    }
    sim_start();
    SIM_GUARD();
    bool done = function != NULL ? set(name, function, user) : end(name);
    return done ? 0 : -1;
}

static void fill(const model_run_t *run, aclsim_tensor_t *tensors) {
    for (size_t i = 0; i < run->input_count + run->output_count; i++) {
        const run_tensor_t *tensor = &run->tensors[i];
        uint64_t bytes = tensor->size;
        if (tensor->dims.values != NULL) {
            dims_bytes(tensor->dims.values, tensor->dims.count, tensor->type, &bytes);
        }
        tensors[i] = (aclsim_tensor_t){tensor->data, (size_t)bytes, (int32_t)tensor->type, tensor->dims.values,
                                       tensor->dims.count};
    }
}

static void note_answer(model_run_t *run, int answer) {
    const char *explained = kernel_explained();
    aclError code = answer >= ACL_INVALID_PARAM ? answer : RT_MODEL_EXECUTE;
    if (answer != 0 && *explained != '\0') {
        run->code = model_run_fail(run, code, "%s", explained);
    } else if (answer != 0) {
        run->code = model_run_fail(run, code, "its function returned %d", answer);
    }
}

static void call(model_run_t *run, model_function_t function, aclsim_execution_t *execution) {
    aclsim_tensor_t *tensors = calloc(run->input_count + run->output_count + 1, sizeof *tensors);
    if (tensors == NULL) {
        run->code = model_run_fail(run, RT_MODEL_EXECUTE, "no memory is left");
        return;
    }
    fill(run, tensors);
    execution->inputs = tensors;
    execution->outputs = tensors + run->input_count;
    kernel_explain_nothing();
    note_answer(run, function(execution));
    free(tensors);
}

bool model_call_registered(model_run_t *run) {
    aclsim_execution_t execution = {.name = run->model->info->name,
                                    .model = run->model->id,
                                    .device = run->model->device->id,
                                    .stream = run->stream,
                                    .input_count = run->input_count,
                                    .output_count = run->output_count};
    sim_lock();
    const registration_t *found = *find(execution.name);
    model_function_t function = found != NULL ? found->function : NULL;
    execution.user = found != NULL ? found->user : NULL;
    sim_unlock();
    if (function != NULL) {
        call(run, function, &execution);
    }
    return function != NULL;
}
