/* Executions from datasets: the checks of the call, and the shapes of the tensors. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "modelrun.h"

/* The graph engine accepts a buffer that is up to 64 bytes smaller than the tensor. Such an execution fails on
 * the device if the tensor does not fit. The graph engine checks no sizes if the model is dynamic or has gears.
 */
enum { SLACK_BYTES = 64, TEXT_BYTES = 448 };

static aclError refuse(aclError code, const char *format, ...) __attribute__((format(printf, 2, 3)));

static aclError refuse(aclError code, const char *format, ...) {
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return error_quiet(code, text);
}

static aclError check_count(const dataset_t *dataset, const tensor_list_t *list, const char *what) {
    if (dataset->count == list->count) {
        return ACL_SUCCESS;
    }
    return refuse(GE_PARAM_INVALID, "%s: the model has %zu tensors, but the dataset has %zu buffers", what,
                  list->count, dataset->count);
}

static aclError take_buffer(const dataset_entry_t *entry, run_tensor_t *tensor) {
    const data_buffer_t *buffer =
        described_find(KIND_DATA_BUFFER, entry->buffer, "a data buffer of the dataset");
    if (buffer == NULL) {
        return ACL_INVALID_PARAM;
    }
    tensor->buffer = entry->buffer;
    tensor->data = buffer->data;
    tensor->size = buffer->size;
    return ACL_SUCCESS;
}

static aclError check_size(const run_tensor_t *tensor, const tensor_info_t *info, const char *what,
                           size_t index) {
    uint64_t size = info->size;
    if (size <= tensor->size || size - tensor->size <= SLACK_BYTES) {
        return ACL_SUCCESS;
    }
    return refuse(GE_PARAM_INVALID, "%s: the tensor %zu (%.60s) has %" PRIu64 " bytes, but its buffer has %zu",
                  what, index, info->name, size, tensor->size);
}

static bool sizes_are_checked(const model_info_t *info) {
    return info->gears.kind == GEARS_NONE && !info->dynamic;
}

/* Without the range of each dimension, every shape is in range. */
static bool shape_in_ranges(const ranges_t *ranges, const tensor_shape_t *given) {
    bool inside = true;
    for (size_t i = 0; i < ranges->count && ranges->count == given->dim_count && inside; i++) {
        const int64_t *range = ranges->pairs[i];
        inside = given->dims[i] >= range[0] && (range[1] < 0 || given->dims[i] <= range[1]);
    }
    return inside;
}

static bool shape_agrees(const dims_t *known, const tensor_shape_t *given) {
    bool agrees = known->count == given->dim_count;
    for (size_t i = 0; i < known->count && agrees; i++) {
        agrees = given->dims[i] >= 0 && (known->values[i] < 0 || known->values[i] == given->dims[i]);
    }
    return agrees;
}

static aclError check_shape(const tensor_info_t *info, const tensor_shape_t *given, size_t index) {
    char got[DIMS_TEXT_BYTES];
    char wanted[DIMS_TEXT_BYTES];
    dims_show(got, sizeof got, given->dims, given->dim_count);
    dims_show(wanted, sizeof wanted, info->dims.values, info->dims.count);
    if (!shape_agrees(&info->dims, given)) {
        return refuse(GE_SHAPE_INVALID,
                      "input: the shape %s in the dataset does not fit the shape %s of the tensor %zu (%.60s)",
                      got, wanted, index, info->name);
    }
    if (!shape_in_ranges(&info->ranges, given)) {
        return refuse(ACL_INVALID_PARAM,
                      "input: the shape %s in the dataset is outside of the ranges of the tensor %zu (%.60s); "
                      "aclmdlGetInputDimsRange returns them",
                      got, index, info->name);
    }
    return ACL_SUCCESS;
}

/* The shape of an input comes from the description in the dataset, or from the file. The shapes of a model with
 * gears are known when the stream reaches the task. */
static aclError take_shape(const model_t *model, const dataset_entry_t *entry, const tensor_info_t *info,
                           run_tensor_t *tensor, size_t index) {
    const tensor_shape_t *given = entry->desc != NULL ? &entry->desc->origin : NULL;
    bool known = dims_known(&info->dims);
    if (model->info->gears.kind != GEARS_NONE) {
        return ACL_SUCCESS;
    }
    if (given == NULL && !known) {
        return refuse(GE_SHAPE_INVALID,
                      "input: the shape of the tensor %zu (%.60s) is dynamic; call aclmdlSetDatasetTensorDesc",
                      index, info->name);
    }
    aclError rc = given != NULL ? check_shape(info, given, index) : ACL_SUCCESS;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    bool set = given != NULL ? dims_set(&tensor->dims, given->dims, given->dim_count)
                             : dims_set(&tensor->dims, info->dims.values, info->dims.count);
    return set ? ACL_SUCCESS : refuse(GE_MEMORY_ALLOCATION, "input");
}

static aclError take_inputs(model_run_t *run, const dataset_t *dataset) {
    const model_info_t *info = run->model->info;
    bool checked = sizes_are_checked(info);
    size_t selector = 0;
    aclError rc = check_count(dataset, &info->inputs, "input");
    for (size_t i = 0; i < run->input_count && rc == ACL_SUCCESS; i++) {
        run_tensor_t *tensor = &run->tensors[i];
        const tensor_info_t *described = &info->inputs.tensors[i];
        tensor->type = described->type;
        rc = take_buffer(&dataset->entries[i], tensor);
        rc = rc == ACL_SUCCESS && checked ? check_size(tensor, described, "input", i) : rc;
        rc = rc == ACL_SUCCESS ? take_shape(run->model, &dataset->entries[i], described, tensor, i) : rc;
    }
    if (rc == ACL_SUCCESS && model_gear_input(info, &selector)) {
        rc = take_buffer(&dataset->entries[selector], &run->gear);
    }
    return rc;
}

/* A call that waits for the execution gives memory to the client's buffers without memory, before the execution
 * begins. If the model is dynamic, the sizes are known after the computation. */
static aclError take_absent_output(model_run_t *run, const tensor_info_t *described, run_tensor_t *tensor,
                                   size_t index) {
    if (tensor->data == NULL && described->size > 0 && run->waits) {
        return model_run_allocate(run, tensor, (size_t)described->size);
    }
    tensor->data = NULL;
    return described->size == 0 ? ACL_SUCCESS
                                : refuse(ACL_INVALID_PARAM,
                                         "output: the buffer of the tensor %zu (%.60s) is NULL or has no bytes",
                                         index, described->name);
}

static aclError take_output(model_run_t *run, const dataset_entry_t *entry, size_t index) {
    const model_info_t *info = run->model->info;
    const tensor_info_t *described = &info->outputs.tensors[index];
    run_tensor_t *tensor = &run->tensors[run->input_count + index];
    tensor->type = described->type;
    aclError rc = take_buffer(entry, tensor);
    bool absent = rc == ACL_SUCCESS && (tensor->data == NULL || tensor->size == 0);
    if (absent && info->dynamic) {
        tensor->data = NULL;
    } else if (absent) {
        rc = take_absent_output(run, described, tensor, index);
    }
    return rc == ACL_SUCCESS && sizes_are_checked(info) ? check_size(tensor, described, "output", index) : rc;
}

/* Outputs with a fixed shape are bound to the client's memory. The shapes of all others are known after the
 * computation. */
static aclError take_outputs(model_run_t *run, const dataset_t *dataset) {
    const model_info_t *info = run->model->info;
    aclError rc = check_count(dataset, &info->outputs, "output");
    for (size_t i = 0; i < run->output_count && rc == ACL_SUCCESS; i++) {
        const dims_t *dims = &info->outputs.tensors[i].dims;
        rc = take_output(run, &dataset->entries[i], i);
        if (rc == ACL_SUCCESS && sizes_are_checked(info) && dims_known(dims) &&
            !dims_set(&run->tensors[run->input_count + i].dims, dims->values, dims->count)) {
            rc = refuse(GE_MEMORY_ALLOCATION, "output");
        }
    }
    return rc;
}

static aclError fill(model_run_t *run, const aclmdlDataset *input, aclmdlDataset *output) {
    const dataset_t *inputs = dataset_find(input, "input");
    const dataset_t *outputs = inputs != NULL ? dataset_find(output, "output") : NULL;
    if (outputs == NULL) {
        return ACL_INVALID_PARAM;
    }
    run->output = output;
    run->input_count = model_data_inputs(run->model->info);
    run->output_count = run->model->info->outputs.count;
    run->tensors = calloc(run->input_count + run->output_count + 1, sizeof *run->tensors);
    if (run->tensors == NULL) {
        return refuse(GE_MEMORY_ALLOCATION, "modelId");
    }
    aclError rc = take_inputs(run, inputs);
    return rc == ACL_SUCCESS ? take_outputs(run, outputs) : rc;
}

aclError model_run_allocate(model_run_t *run, run_tensor_t *tensor, size_t bytes) {
    data_buffer_t *buffer = object_find(KIND_DATA_BUFFER, tensor->buffer);
    void *memory = NULL;
    if (buffer == NULL) {
        return ACL_INVALID_PARAM;
    }
    aclError rc = memory_take_for_client(run->model->device, &memory, bytes);
    if (rc == ACL_SUCCESS) {
        buffer->data = memory;
        buffer->size = bytes;
        tensor->data = memory;
        tensor->size = bytes;
    }
    return rc;
}

aclError model_run_new(model_t *model, bool waits, const aclmdlDataset *input, aclmdlDataset *output,
                       model_run_t **run) {
    model_run_t *made = work_new(&model_run_ops, sizeof *made);
    if (made == NULL) {
        return refuse(GE_MEMORY_ALLOCATION, "modelId");
    }
    made->model = model;
    made->waits = waits;
    model->refs++;
    model->pending++;
    aclError rc = fill(made, input, output);
    if (rc != ACL_SUCCESS) {
        work_release(&made->work);
        return rc;
    }
    made->inner_stream = model->stream->id;
    made->inner_task = model->stream->next_task++;
    *run = made;
    return ACL_SUCCESS;
}

void model_run_free(model_run_t *run) {
    for (size_t i = 0; run->tensors != NULL && i < run->input_count + run->output_count; i++) {
        free(run->tensors[i].dims.values);
    }
    free(run->tensors);
    run->model->pending--;
    model_release(run->model);
}
