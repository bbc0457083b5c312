/* The computation of one execution, on the model's thread, without sim.lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "modelrun.h"

/* Returns the memory of an output that has the same buffer as this output, or NULL. */
static void *share(const model_run_t *run, run_tensor_t *tensor) {
    const run_tensor_t *outputs = &run->tensors[run->input_count];
    for (size_t i = 0; i < run->output_count && tensor->data == NULL; i++) {
        if (outputs[i].buffer == tensor->buffer) {
            tensor->data = outputs[i].data;
            tensor->size = outputs[i].size;
        }
    }
    return tensor->data;
}

static void *allocate(model_run_t *run, run_tensor_t *tensor, size_t bytes) {
    SIM_GUARD();
    if (model_run_allocate(run, tensor, bytes) == ACL_SUCCESS) {
        memory_pin(tensor->data, bytes, &tensor->pinned);
    }
    return tensor->data;
}

/* The client of a model with gears gets no shapes from an execution, so it relies on those of the file. */
static bool is_of_gear(const model_run_t *run, size_t index, const int64_t *dims, size_t dim_count, char *why) {
    int64_t stated[DESCRIBED_DIMS_MAX];
    size_t count = 0;
    if (run->model->info->gears.kind == GEARS_NONE ||
        !model_gear_output(run->model->info, run->gear_index, index, stated, &count) ||
        (count == dim_count && memcmp(stated, dims, count * sizeof *dims) == 0)) {
        return true;
    }
    char had[DIMS_TEXT_BYTES];
    char wanted[DIMS_TEXT_BYTES];
    dims_show(had, sizeof had, dims, dim_count);
    dims_show(wanted, sizeof wanted, stated, count);
    snprintf(why, SESSION_WHY_BYTES, "output %zu has the shape %s, but the model states %s for this gear",
             index, had, wanted);
    return false;
}

static void *place(void *user, size_t index, size_t bytes, const int64_t *dims, size_t dim_count, char *why) {
    static char none[1];
    model_run_t *run = user;
    run_tensor_t *tensor = &run->tensors[run->input_count + index];
    void *memory = NULL;
    if (!is_of_gear(run, index, dims, dim_count, why)) {
        return NULL;
    }
    if (!dims_set(&tensor->dims, dims, dim_count)) {
        snprintf(why, SESSION_WHY_BYTES, "no memory is left");
        return NULL;
    }
    if (bytes == 0) {
        return none;
    }
    memory = share(run, tensor);
    if (memory == NULL) {
        memory = allocate(run, tensor, bytes);
        snprintf(why, SESSION_WHY_BYTES, "no memory is left for output %zu, which has %zu bytes", index, bytes);
    } else if (bytes > tensor->size) {
        memory = NULL;
        snprintf(why, SESSION_WHY_BYTES, "output %zu has %zu bytes, but its buffer has %zu", index, bytes,
                 tensor->size);
    }
    return memory;
}

static void to_input(const run_tensor_t *tensor, session_input_t *input) {
    uint64_t bytes = 0;
    dims_bytes(tensor->dims.values, tensor->dims.count, tensor->type, &bytes);
    *input =
        (session_input_t){tensor->data, (size_t)bytes, tensor->type, tensor->dims.values, tensor->dims.count};
}

static void to_output(model_run_t *run, const run_tensor_t *tensor, session_output_t *output) {
    uint64_t bytes = 0;
    *output = (session_output_t){.type = tensor->type, .place = place, .user = run};
    if (tensor->dims.values != NULL) {
        dims_bytes(tensor->dims.values, tensor->dims.count, tensor->type, &bytes);
        output->data = tensor->data;
        output->bytes = (size_t)bytes;
        output->dims = tensor->dims.values;
        output->dim_count = tensor->dims.count;
    }
}

/* The client learns the shapes of the outputs of a dynamic model from the dataset. */
static void report_shapes(const model_run_t *run) {
    SIM_GUARD();
    dataset_t *dataset = object_find(KIND_DATASET, run->output);
    for (size_t i = 0; i < run->output_count && dataset != NULL && run->model->info->dynamic; i++) {
        const run_tensor_t *tensor = &run->tensors[run->input_count + i];
        dataset_set_shape(dataset, i, tensor->type, tensor->dims.values, tensor->dims.count);
    }
}

static void run_session(model_run_t *run) {
    char why[SESSION_WHY_BYTES] = "no memory is left";
    session_input_t *inputs = calloc(run->input_count + 1, sizeof *inputs);
    session_output_t *outputs = calloc(run->output_count + 1, sizeof *outputs);
    bool done = inputs != NULL && outputs != NULL;
    for (size_t i = 0; i < run->input_count && done; i++) {
        to_input(&run->tensors[i], &inputs[i]);
    }
    for (size_t i = 0; i < run->output_count && done; i++) {
        to_output(run, &run->tensors[run->input_count + i], &outputs[i]);
    }
    done = done && session_run(run->model->session, inputs, outputs, why);
    free(inputs);
    free(outputs);
    if (done) {
        report_shapes(run);
    } else {
        run->code = model_run_fail(run, RT_MODEL_EXECUTE, "%s", why);
    }
}

void model_compute(model_run_t *run) {
    if (model_call_registered(run)) {
        return;
    }
    if (run->model->session != NULL) {
        run_session(run);
    } else {
        run->code = model_run_fail(run, RT_MODEL_EXECUTE, "its function is no longer registered");
    }
}
