/*
 * Gears: the batch sizes, image sizes or dimensions for which a model was compiled. A model with gears has one
 * more input, which selects the gear. The functions here write the gear to the buffer of that input, at once
 * and not in the order of a stream. The device reads the buffer when a stream reaches the execution.
 */
#include <stdio.h>
#include <string.h>

#include "model.h"

/* Called with sim.lock held. NULL: the description is not live or not filled. */
static const model_info_t *info_of(const aclmdlDesc *handle) {
    const model_desc_t *desc = model_desc_find(handle);
    if (desc != NULL && desc->info == NULL) {
        error_quiet(ACL_INVALID_PARAM, "modelDesc: it was not filled");
    }
    return desc != NULL ? desc->info : NULL;
}

static const gears_t *gears_of(const aclmdlDesc *handle, gear_kind_t kind) {
    static const gears_t none = {.kind = GEARS_NONE};
    const model_info_t *info = info_of(handle);
    if (info == NULL) {
        return NULL;
    }
    return info->gears.kind == kind ? &info->gears : &none;
}

aclError do_aclmdlGetDynamicBatch(const aclmdlDesc *modelDesc, aclmdlBatch *batch) {
    REFUSE_NULL(batch);
    SIM_GUARD();
    const gears_t *gears = gears_of(modelDesc, GEARS_BATCH);
    if (gears != NULL) {
        memset(batch, 0, sizeof *batch);
        batch->batchCount = gears->count;
        for (size_t i = 0; i < gears->count; i++) {
            batch->batch[i] = gears->values[i];
        }
    }
    return gears != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

/* The index is not used: all gears belong to one input. */
aclError do_aclmdlGetDynamicHW(const aclmdlDesc *modelDesc, size_t index, aclmdlHW *hw) {
    (void)index;
    REFUSE_NULL(hw);
    SIM_GUARD();
    const gears_t *gears = gears_of(modelDesc, GEARS_IMAGE);
    if (gears != NULL) {
        memset(hw, 0, sizeof *hw);
        hw->hwCount = gears->count;
        for (size_t i = 0; i < gears->count; i++) {
            hw->hw[i][0] = gears->values[i * 2];
            hw->hw[i][1] = gears->values[i * 2 + 1];
        }
    }
    return gears != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

/* The only index of the gears of dimensions is -1. */
static bool index_is_right(size_t index) {
    if (index != SIZE_MAX) {
        error_quiet(ACL_INVALID_PARAM, "index: expected -1");
    }
    return index == SIZE_MAX;
}

aclError do_aclmdlGetInputDynamicGearCount(const aclmdlDesc *modelDesc, size_t index, size_t *gearCount) {
    if (gearCount == NULL || !index_is_right(index)) {
        return gearCount == NULL ? error_quiet(ACL_INVALID_PARAM, "gearCount") : ACL_INVALID_PARAM;
    }
    SIM_GUARD();
    const gears_t *gears = gears_of(modelDesc, GEARS_DIMS);
    if (gears != NULL) {
        *gearCount = gears->count;
    }
    return gears != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

/* Each gear is written as the dimensions of all inputs, one input after the other. */
static aclError write_gears(const model_info_t *info, aclmdlIODims *dims, size_t room) {
    size_t count = info->gears.kind == GEARS_DIMS ? info->gears.count : 0;
    size_t all = model_all_dims(info);
    if (room < count) {
        return error_quiet(ACL_INVALID_PARAM, "gearCount: it is below the number of gears");
    }
    if (count > 0 && all > sizeof dims->dims / sizeof *dims->dims) {
        return error_quiet(GE_FAILURE, "modelDesc: the inputs have more than 128 dimensions");
    }
    for (size_t i = 0; i < count; i++) {
        memset(&dims[i], 0, sizeof dims[i]);
        dims[i].dimCount = all;
        model_gear_dims(info, i, dims[i].dims);
    }
    return ACL_SUCCESS;
}

aclError do_aclmdlGetInputDynamicDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims,
                                      size_t gearCount) {
    if (dims == NULL || !index_is_right(index)) {
        return dims == NULL ? error_quiet(ACL_INVALID_PARAM, "dims") : ACL_INVALID_PARAM;
    }
    SIM_GUARD();
    const model_info_t *info = info_of(modelDesc);
    return info != NULL ? write_gears(info, dims, gearCount) : ACL_INVALID_PARAM;
}

static aclError current_dims(const model_desc_t *desc, size_t index, aclmdlIODims *dims) {
    model_t *model = NULL;
    if (desc->info->dynamic) {
        return error_quiet(ACL_API_NOT_SUPPORT,
                           "modelDesc: the model is dynamic; read the shapes from the output dataset");
    }
    if (desc->info->gears.kind == GEARS_NONE || desc->model == 0) {
        return ACL_SUCCESS;
    }
    aclError rc = model_find(desc->model, &model);
    if (rc == ACL_SUCCESS && model->gear != SIZE_MAX) {
        model_gear_output(desc->info, model->gear, index, dims->dims, &dims->dimCount);
    }
    return rc;
}

/* Without gears, or before a gear was set, the result is that of aclmdlGetOutputDims. */
aclError do_aclmdlGetCurOutputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims) {
    aclError rc = do_aclmdlGetOutputDims(modelDesc, index, dims);
    SIM_GUARD();
    const model_desc_t *desc = rc == ACL_SUCCESS ? model_desc_find(modelDesc) : NULL;
    return desc != NULL && desc->info != NULL ? current_dims(desc, index, dims) : rc;
}

/* Returns SIZE_MAX if the model has no such gear. */
static size_t find_gear(const gears_t *gears, gear_kind_t kind, const uint64_t *values) {
    for (size_t i = 0; i < gears->count && gears->kind == kind; i++) {
        if (memcmp(gears->values + i * gears->width, values, gears->width * sizeof *values) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* Writes numbers of 8 bytes, or of 4 bytes if the buffer is too small for that. */
static aclError write_values(const data_buffer_t *buffer, const uint64_t *values, size_t count) {
    char *to = buffer->data;
    void *block = NULL;
    size_t width = buffer->size >= count * sizeof *values ? sizeof *values : sizeof(uint32_t);
    if (to == NULL) {
        return error_quiet(GE_DYNAMIC_INPUT_ADDR_INVALID,
                           "dataset: the buffer of " MODEL_GEAR_INPUT " is NULL");
    }
    if (buffer->size < count * width) {
        return error_quiet(GE_DYNAMIC_INPUT_LENGTH_INVALID,
                           "dataset: the buffer of " MODEL_GEAR_INPUT " is too small for the gear");
    }
    if (!memory_pin(to, count * width, &block)) {
        return error_quiet(GE_DYNAMIC_INPUT_ADDR_INVALID,
                           "dataset: the buffer of " MODEL_GEAR_INPUT " is not in live memory of a device");
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(to + i * width, &values[i], width);
    }
    memory_unpin(block);
    value_may_have_changed();
    return ACL_SUCCESS;
}

static aclError check_index(const model_t *model, const dataset_t *dataset, size_t index) {
    size_t right = 0;
    if (!model_gear_input(model->info, &right)) {
        return error_quiet(GE_DYNAMIC_BATCH_SIZE_INVALID, "modelId: the model has no gears");
    }
    if (index != right || index >= dataset->count) {
        return error_quiet(ACL_INVALID_PARAM, "index: expected the index of the input " MODEL_GEAR_INPUT);
    }
    return ACL_SUCCESS;
}

static aclError set_gear(model_t *model, const dataset_t *dataset, size_t index, size_t gear) {
    const gears_t *gears = &model->info->gears;
    if (gear == SIZE_MAX) {
        return error_quiet(
            GE_DYNAMIC_BATCH_SIZE_INVALID,
            "the gear: the model was not compiled for it; aclmdlGetDynamicBatch, aclmdlGetDynamicHW "
            "and aclmdlGetInputDynamicDims return the gears");
    }
    const data_buffer_t *buffer =
        described_find(KIND_DATA_BUFFER, dataset->entries[index].buffer, "a data buffer of the dataset");
    if (buffer == NULL) {
        return ACL_INVALID_PARAM;
    }
    aclError rc = write_values(buffer, gears->values + gear * gears->width, gears->width);
    model->gear = rc == ACL_SUCCESS ? gear : model->gear;
    return rc;
}

/* The arguments that all functions have that set a gear. */
typedef struct {
    uint32_t model;
    const aclmdlDataset *dataset;
    size_t index;
} target_t;

static aclError find_target(const target_t *target, model_t **model, const dataset_t **dataset) {
    *dataset = dataset_find(target->dataset, "dataset");
    if (*dataset == NULL) {
        return ACL_INVALID_PARAM;
    }
    aclError rc = model_find_usable(target->model, model);
    return rc == ACL_SUCCESS ? check_index(*model, *dataset, target->index) : rc;
}

static aclError set_values(const target_t *target, gear_kind_t kind, const uint64_t *values) {
    model_t *model = NULL;
    const dataset_t *dataset = NULL;
    SIM_GUARD();
    aclError rc = find_target(target, &model, &dataset);
    return rc == ACL_SUCCESS
               ? set_gear(model, dataset, target->index, find_gear(&model->info->gears, kind, values))
               : rc;
}

aclError do_aclmdlSetDynamicBatchSize(uint32_t modelId, aclmdlDataset *dataset, size_t index,
                                      uint64_t batchSize) {
    if (dataset == NULL || batchSize == 0) {
        return error_quiet(ACL_INVALID_PARAM, dataset == NULL ? "dataset" : "batchSize");
    }
    target_t target = {modelId, dataset, index};
    return set_values(&target, GEARS_BATCH, &batchSize);
}

aclError do_aclmdlSetDynamicHWSize(uint32_t modelId, aclmdlDataset *dataset, size_t index, uint64_t height,
                                   uint64_t width) {
    if (dataset == NULL || height == 0 || width == 0) {
        return error_quiet(ACL_INVALID_PARAM, dataset == NULL ? "dataset" : "height or width");
    }
    target_t target = {modelId, dataset, index};
    uint64_t values[] = {height, width};
    return set_values(&target, GEARS_IMAGE, values);
}

/* The dimensions of all inputs must be those of the gear, not only the dynamic ones. */
static size_t find_dims(const model_info_t *info, const aclmdlIODims *dims) {
    int64_t all[DESCRIBED_DIMS_MAX];
    size_t count = model_all_dims(info);
    for (size_t i = 0; i < info->gears.count && info->gears.kind == GEARS_DIMS; i++) {
        model_gear_dims(info, i, all);
        if (memcmp(all, dims->dims, count * sizeof *all) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

static aclError set_dims(const target_t *target, const aclmdlIODims *dims) {
    char text[128];
    model_t *model = NULL;
    const dataset_t *dataset = NULL;
    aclError rc = find_target(target, &model, &dataset);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    size_t count = model_all_dims(model->info);
    if (dims->dimCount != count || count > DESCRIBED_DIMS_MAX) {
        snprintf(text, sizeof text, "dims: the inputs have %zu dimensions, got %zu", count, dims->dimCount);
        return error_quiet(GE_PARAM_INVALID, text);
    }
    return set_gear(model, dataset, target->index, find_dims(model->info, dims));
}

aclError do_aclmdlSetInputDynamicDims(uint32_t modelId, aclmdlDataset *dataset, size_t index,
                                      const aclmdlIODims *dims) {
    REFUSE_NULL(dataset);
    REFUSE_NULL(dims);
    target_t target = {modelId, dataset, index};
    SIM_GUARD();
    return set_dims(&target, dims);
}
