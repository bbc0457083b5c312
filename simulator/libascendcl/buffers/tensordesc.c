/* Tensor descriptions. Their shapes are in tensorshape.c. */
#include <stdlib.h>
#include <string.h>

#include "described.h"

tensor_desc_t *tensor_find(const aclTensorDesc *desc) {
    return described_find(KIND_TENSOR_DESC, desc, "desc");
}

bool shape_set_dims(tensor_shape_t *shape, const int64_t *dims, int count) {
    bool valid = count >= 0 && count <= DESCRIBED_DIMS_MAX && (count == 0 || dims != NULL);
    int64_t *copy = valid ? malloc(((size_t)count + 1) * sizeof *copy) : NULL;
    if (copy == NULL) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        copy[i] = dims[i];
    }
    free(shape->dims);
    shape->dims = copy;
    shape->dim_count = (size_t)count;
    return true;
}

aclTensorDesc *do_aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t *dims,
                                      aclFormat format) {
    SIM_GUARD();
    tensor_desc_t *desc = object_new(KIND_TENSOR_DESC);
    if (desc != NULL && !shape_set_dims(&desc->origin, dims, numDims)) {
        error_quiet(ACL_INVALID_PARAM, "dims");
        object_kill(&desc->object);
        desc = NULL;
    }
    if (desc != NULL) {
        desc->type = dataType;
        desc->origin.format = format;
        desc->storage.format = ACL_FORMAT_UNDEFINED;
    }
    return (aclTensorDesc *)desc;
}

void tensor_end(tensor_desc_t *desc) {
    free(desc->origin.dims);
    free(desc->storage.dims);
    free(desc->shape_ranges.pairs);
    free(desc->value_ranges.pairs);
    free(desc->name);
    free(desc->dynamic_input);
    free(desc->constant);
    object_kill(&desc->object);
}

void do_aclDestroyTensorDesc(const aclTensorDesc *desc) {
    SIM_GUARD();
    tensor_desc_t *found = desc != NULL ? tensor_find(desc) : NULL;
    if (found != NULL) {
        tensor_end(found);
    }
}

static void *copy_bytes(const void *bytes, size_t size, bool *copied) {
    void *copy = bytes != NULL ? malloc(size + 1) : NULL;
    *copied = *copied && (bytes == NULL || copy != NULL);
    if (copy != NULL) {
        memcpy(copy, bytes, size);
    }
    return copy;
}

static void *copy_text(const char *text, bool *copied) {
    return copy_bytes(text, text != NULL ? strlen(text) + 1 : 0, copied);
}

static bool copy_content(const tensor_desc_t *from, tensor_desc_t *to) {
    const size_t pair = sizeof *from->shape_ranges.pairs;
    bool copied = true;
    to->type = from->type;
    to->placement = from->placement;
    to->origin = from->origin;
    to->origin.dims = copy_bytes(from->origin.dims, from->origin.dim_count * sizeof(int64_t), &copied);
    to->storage = from->storage;
    to->storage.dims = copy_bytes(from->storage.dims, from->storage.dim_count * sizeof(int64_t), &copied);
    to->shape_ranges.count = from->shape_ranges.count;
    to->shape_ranges.pairs = copy_bytes(from->shape_ranges.pairs, from->shape_ranges.count * pair, &copied);
    to->value_ranges.count = from->value_ranges.count;
    to->value_ranges.pairs = copy_bytes(from->value_ranges.pairs, from->value_ranges.count * pair, &copied);
    to->name = copy_text(from->name, &copied);
    to->dynamic_input = copy_text(from->dynamic_input, &copied);
    to->constant = copy_bytes(from->constant, from->constant_size, &copied);
    to->constant_size = from->constant_size;
    return copied;
}

tensor_desc_t *tensor_copy(const tensor_desc_t *desc) {
    tensor_desc_t *copy = object_new(KIND_TENSOR_DESC);
    if (copy != NULL && !copy_content(desc, copy)) {
        tensor_end(copy);
        copy = NULL;
    }
    return copy;
}

aclDataType do_aclGetTensorDescType(const aclTensorDesc *desc) {
    SIM_GUARD();
    const tensor_desc_t *found = tensor_find(desc);
    return found != NULL ? found->type : ACL_DT_UNDEFINED;
}

static bool set_text(char **text, const char *value) {
    char *copy = strdup(value);
    if (copy != NULL) {
        free(*text);
        *text = copy;
    }
    return copy != NULL;
}

void do_aclSetTensorDescName(aclTensorDesc *desc, const char *name) {
    SIM_GUARD();
    tensor_desc_t *found = tensor_find(desc);
    if (found != NULL) {
        set_text(&found->name, name != NULL ? name : "");
    }
}

/* The result is valid until the name is set again or the description is destroyed. */
const char *do_aclGetTensorDescName(aclTensorDesc *desc) {
    SIM_GUARD();
    const tensor_desc_t *found = tensor_find(desc);
    return found != NULL && found->name != NULL ? found->name : "";
}

aclError do_aclSetTensorDynamicInput(aclTensorDesc *desc, const char *dynamicInputName) {
    REFUSE_NULL(dynamicInputName);
    SIM_GUARD();
    tensor_desc_t *found = tensor_find(desc);
    bool kept = found != NULL && set_text(&found->dynamic_input, dynamicInputName);
    return kept ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

aclError do_aclSetTensorConst(aclTensorDesc *desc, void *dataBuffer, size_t length) {
    if (dataBuffer == NULL || length == 0 || !content_is_there(dataBuffer, length)) {
        return error_quiet(ACL_INVALID_PARAM, dataBuffer == NULL ? "dataBuffer" : "length");
    }
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    tensor_desc_t *found = tensor_find(desc);
    if (found != NULL) {
        void *copy = malloc(length);
        rc = copy != NULL ? ACL_SUCCESS : error_quiet(ACL_BAD_ALLOC, "length");
        if (copy != NULL) {
            memcpy(copy, dataBuffer, length);
            free(found->constant);
            found->constant = copy;
            found->constant_size = length;
        }
    }
    return rc;
}

aclError do_aclSetTensorPlaceMent(aclTensorDesc *desc, aclMemType memType) {
    if ((unsigned int)memType > ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT) {
        return error_quiet(ACL_INVALID_PARAM, "memType");
    }
    SIM_GUARD();
    tensor_desc_t *found = tensor_find(desc);
    if (found != NULL) {
        found->placement = memType;
    }
    return found != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

/* Only models return arrays of descriptions, and only a description in such an array has an address. */
aclTensorDesc *do_aclGetTensorDescByIndex(aclTensorDesc *desc, size_t index) {
    SIM_GUARD();
    tensor_desc_t *found = tensor_find(desc);
    return found != NULL && index == 0 ? desc : NULL;
}

void *do_aclGetTensorDescAddress(const aclTensorDesc *desc) {
    SIM_GUARD();
    tensor_find(desc);
    return NULL;
}
