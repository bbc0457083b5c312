/* Descriptions of models: the functions that read them. */
#include "model.h"

#include <stdio.h>
#include <string.h>

model_desc_t *model_desc_find(const aclmdlDesc *handle) {
    return described_find(KIND_MODEL_DESC, handle, "modelDesc");
}

aclmdlDesc *do_aclmdlCreateDesc(void) {
    return described_new(KIND_MODEL_DESC);
}

aclError do_aclmdlDestroyDesc(aclmdlDesc *modelDesc) {
    SIM_GUARD();
    model_desc_t *desc = model_desc_find(modelDesc);
    if (desc != NULL) {
        model_info_release(desc->info);
        object_kill(&desc->object);
    }
    return desc != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

static aclError fill(model_desc_t *desc, model_info_t *info, uint32_t id) {
    if (!info->described) {
        return error_quiet(GE_FAILURE, "modelDesc: the file has no description of its inputs and outputs");
    }
    model_info_retain(info);
    model_info_release(desc->info);
    desc->info = info;
    desc->model = id;
    return ACL_SUCCESS;
}

aclError do_aclmdlGetDesc(aclmdlDesc *modelDesc, uint32_t modelId) {
    model_t *model = NULL;
    SIM_GUARD();
    model_desc_t *desc = model_desc_find(modelDesc);
    aclError rc = desc != NULL ? model_find(modelId, &model) : ACL_INVALID_PARAM;
    return rc == ACL_SUCCESS ? fill(desc, model->info, modelId) : rc;
}

/* Reads the file without sim.lock, so the description is looked up again afterwards. */
static aclError fill_from(aclmdlDesc *handle, const char *path, const void *bytes, size_t size) {
    model_info_t *info = NULL;
    sim_lock();
    bool live = model_desc_find(handle) != NULL;
    sim_unlock();
    aclError rc = live ? model_read(path, bytes, size, &info, NULL) : ACL_INVALID_PARAM;
    sim_lock();
    model_desc_t *desc = rc == ACL_SUCCESS ? model_desc_find(handle) : NULL;
    rc = rc == ACL_SUCCESS && desc == NULL ? ACL_INVALID_PARAM : rc;
    rc = rc == ACL_SUCCESS ? fill(desc, info, 0) : rc;
    model_info_release(info);
    sim_unlock();
    return rc;
}

aclError do_aclmdlGetDescFromFile(aclmdlDesc *modelDesc, const char *modelPath) {
    return modelPath != NULL ? fill_from(modelDesc, modelPath, NULL, 0)
                             : error_quiet(ACL_INVALID_PARAM, "modelPath");
}

aclError do_aclmdlGetDescFromMem(aclmdlDesc *modelDesc, const void *model, size_t modelSize) {
    if (model == NULL || modelSize == 0) {
        return error_quiet(ACL_INVALID_PARAM, model == NULL ? "model" : "modelSize");
    }
    return fill_from(modelDesc, NULL, model, modelSize);
}

/* Which list of tensors a function reads. */
typedef enum { INPUTS, OUTPUTS } side_t;

/* Called with sim.lock held. NULL: the description is not live or not filled. */
static const tensor_list_t *list_of(const aclmdlDesc *handle, side_t side) {
    const model_desc_t *desc = model_desc_find(handle);
    if (desc != NULL && desc->info == NULL) {
        error_quiet(ACL_INVALID_PARAM, "modelDesc: it was not filled");
    }
    if (desc == NULL || desc->info == NULL) {
        return NULL;
    }
    return side == INPUTS ? &desc->info->inputs : &desc->info->outputs;
}

static const tensor_info_t *tensor_of(const aclmdlDesc *handle, side_t side, size_t index) {
    const tensor_list_t *list = list_of(handle, side);
    if (list != NULL && index >= list->count) {
        error_quiet(ACL_INVALID_PARAM, "index");
    }
    return list != NULL && index < list->count ? &list->tensors[index] : NULL;
}

static size_t count_of(const aclmdlDesc *handle, side_t side) {
    SIM_GUARD();
    const tensor_list_t *list = list_of(handle, side);
    return list != NULL ? list->count : 0;
}

size_t do_aclmdlGetNumInputs(aclmdlDesc *modelDesc) {
    return count_of(modelDesc, INPUTS);
}

size_t do_aclmdlGetNumOutputs(aclmdlDesc *modelDesc) {
    return count_of(modelDesc, OUTPUTS);
}

static size_t size_of(const aclmdlDesc *handle, side_t side, size_t index) {
    SIM_GUARD();
    const tensor_info_t *tensor = tensor_of(handle, side, index);
    return tensor != NULL ? (size_t)tensor->size : 0;
}

size_t do_aclmdlGetInputSizeByIndex(aclmdlDesc *modelDesc, size_t index) {
    return size_of(modelDesc, INPUTS, index);
}

size_t do_aclmdlGetOutputSizeByIndex(aclmdlDesc *modelDesc, size_t index) {
    return size_of(modelDesc, OUTPUTS, index);
}

/* The text is valid until the description is filled again or destroyed. */
static const char *name_of(const aclmdlDesc *handle, side_t side, size_t index) {
    SIM_GUARD();
    const tensor_info_t *tensor = tensor_of(handle, side, index);
    return tensor != NULL ? tensor->name : "";
}

const char *do_aclmdlGetInputNameByIndex(const aclmdlDesc *modelDesc, size_t index) {
    return name_of(modelDesc, INPUTS, index);
}

const char *do_aclmdlGetOutputNameByIndex(const aclmdlDesc *modelDesc, size_t index) {
    return name_of(modelDesc, OUTPUTS, index);
}

static aclFormat format_of(const aclmdlDesc *handle, side_t side, size_t index) {
    SIM_GUARD();
    const tensor_info_t *tensor = tensor_of(handle, side, index);
    return tensor != NULL ? tensor->format : ACL_FORMAT_UNDEFINED;
}

aclFormat do_aclmdlGetInputFormat(const aclmdlDesc *modelDesc, size_t index) {
    return format_of(modelDesc, INPUTS, index);
}

aclFormat do_aclmdlGetOutputFormat(const aclmdlDesc *modelDesc, size_t index) {
    return format_of(modelDesc, OUTPUTS, index);
}

static aclDataType type_of(const aclmdlDesc *handle, side_t side, size_t index) {
    SIM_GUARD();
    const tensor_info_t *tensor = tensor_of(handle, side, index);
    return tensor != NULL ? tensor->type : ACL_DT_UNDEFINED;
}

aclDataType do_aclmdlGetInputDataType(const aclmdlDesc *modelDesc, size_t index) {
    return type_of(modelDesc, INPUTS, index);
}

aclDataType do_aclmdlGetOutputDataType(const aclmdlDesc *modelDesc, size_t index) {
    return type_of(modelDesc, OUTPUTS, index);
}

static aclError index_of(const aclmdlDesc *handle, side_t side, const char *name, size_t *index) {
    REFUSE_NULL(name);
    REFUSE_NULL(index);
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    const tensor_list_t *list = list_of(handle, side);
    for (size_t i = 0; list != NULL && i < list->count && rc != ACL_SUCCESS; i++) {
        if (strcmp(list->tensors[i].name, name) == 0) {
            *index = i;
            rc = ACL_SUCCESS;
        }
    }
    if (list != NULL && rc != ACL_SUCCESS) {
        error_quiet(ACL_INVALID_PARAM, "name: the model has no such tensor");
    }
    return rc;
}

aclError do_aclmdlGetInputIndexByName(const aclmdlDesc *modelDesc, const char *name, size_t *index) {
    return index_of(modelDesc, INPUTS, name, index);
}

aclError do_aclmdlGetOutputIndexByName(const aclmdlDesc *modelDesc, const char *name, size_t *index) {
    return index_of(modelDesc, OUTPUTS, name, index);
}

/* A name that does not fit the structure is replaced by an alias. aclmdlGetTensorRealName finds the name again.
 */
static void alias_of(const model_desc_t *desc, side_t side, size_t index, char alias[MODEL_NAME_BYTES]) {
    snprintf(alias, MODEL_NAME_BYTES, "acl_modelId_%u_%s_%zu", desc->model, side == INPUTS ? "input" : "output",
             index);
}

static void write_dims(const model_desc_t *desc, side_t side, size_t index, const tensor_info_t *tensor,
                       const dims_t *shape, aclmdlIODims *dims) {
    memset(dims, 0, sizeof *dims);
    if (strlen(tensor->name) < sizeof dims->name) {
        strcpy(dims->name, tensor->name);
    } else {
        alias_of(desc, side, index, dims->name);
    }
    dims->dimCount = shape->count;
    for (size_t i = 0; i < shape->count; i++) {
        dims->dims[i] = shape->values[i];
    }
}

static aclError dims_of(const aclmdlDesc *handle, side_t side, size_t index, bool second, aclmdlIODims *dims) {
    REFUSE_NULL(dims);
    SIM_GUARD();
    const tensor_info_t *tensor = tensor_of(handle, side, index);
    if (tensor != NULL) {
        const dims_t *shape = second && tensor->dims_v2.count > 0 ? &tensor->dims_v2 : &tensor->dims;
        write_dims(model_desc_find(handle), side, index, tensor, shape, dims);
    }
    return tensor != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

aclError do_aclmdlGetInputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims) {
    return dims_of(modelDesc, INPUTS, index, false, dims);
}

aclError do_aclmdlGetInputDimsV2(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims) {
    return dims_of(modelDesc, INPUTS, index, true, dims);
}

aclError do_aclmdlGetOutputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims) {
    return dims_of(modelDesc, OUTPUTS, index, false, dims);
}

/* The range of a dimension that the file does not state is the dimension itself, or 0 and -1 (no limit). */
static void write_ranges(const tensor_info_t *tensor, aclmdlIODimsRange *to) {
    bool stated = tensor->ranges.count > 0;
    memset(to, 0, sizeof *to);
    to->rangeCount = stated ? tensor->ranges.count : tensor->dims.count;
    for (size_t i = 0; i < to->rangeCount; i++) {
        int64_t dim = stated ? 0 : tensor->dims.values[i];
        to->range[i][0] = stated ? tensor->ranges.pairs[i][0] : dim < 0 ? 0 : dim;
        to->range[i][1] = stated ? tensor->ranges.pairs[i][1] : dim;
    }
}

/* A model with gears has no ranges. The graph engine does not check the index then. */
aclError do_aclmdlGetInputDimsRange(const aclmdlDesc *modelDesc, size_t index, aclmdlIODimsRange *dimsRange) {
    REFUSE_NULL(dimsRange);
    SIM_GUARD();
    if (list_of(modelDesc, INPUTS) == NULL) {
        return ACL_INVALID_PARAM;
    }
    if (model_desc_find(modelDesc)->info->gears.kind != GEARS_NONE) {
        dimsRange->rangeCount = 0;
        return ACL_SUCCESS;
    }
    const tensor_info_t *tensor = tensor_of(modelDesc, INPUTS, index);
    if (tensor != NULL) {
        write_ranges(tensor, dimsRange);
    }
    return tensor != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

static const char *real_name(const model_desc_t *desc, side_t side, const char *name) {
    const tensor_list_t *list = side == INPUTS ? &desc->info->inputs : &desc->info->outputs;
    for (size_t i = 0; i < list->count; i++) {
        char alias[MODEL_NAME_BYTES];
        alias_of(desc, side, i, alias);
        if (strcmp(name, alias) == 0 || strcmp(name, list->tensors[i].name) == 0) {
            return list->tensors[i].name;
        }
    }
    return NULL;
}

const char *do_aclmdlGetTensorRealName(const aclmdlDesc *modelDesc, const char *name) {
    if (name == NULL) {
        error_quiet(ACL_INVALID_PARAM, "name");
        return NULL;
    }
    const char *found = NULL;
    SIM_GUARD();
    if (list_of(modelDesc, INPUTS) != NULL) {
        const model_desc_t *desc = model_desc_find(modelDesc);
        found = real_name(desc, INPUTS, name);
        found = found != NULL ? found : real_name(desc, OUTPUTS, name);
    }
    return found;
}

/* The runtime knows one attribute. The files that the simulator reads do not contain it, so its value is empty.
 */
const char *do_aclmdlGetOpAttr(aclmdlDesc *modelDesc, const char *opName, const char *attr) {
    if (opName == NULL || attr == NULL) {
        error_quiet(ACL_INVALID_PARAM, opName == NULL ? "opName" : "attr");
        return NULL;
    }
    sim_lock();
    bool live = list_of(modelDesc, INPUTS) != NULL;
    sim_unlock();
    if (live && strcmp(attr, "_datadump_original_op_names") != 0) {
        error_quiet(ACL_INVALID_PARAM, "attr: expected _datadump_original_op_names");
        return NULL;
    }
    return live ? "" : NULL;
}
