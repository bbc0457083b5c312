/* The shapes of tensor descriptions: dimensions, their ranges, formats, sizes. */
#include <stdlib.h>
#include <string.h>

#include "described.h"

enum { UNKNOWN_RANK_DIM = -2, RANK_OF_FORMATS = 4 };

#define UNKNOWN_RANK UINT64_C(0xFFFFFFFFFFFFFFFE)

aclFormat do_aclGetTensorDescFormat(const aclTensorDesc *desc) {
    SIM_GUARD();
    const tensor_desc_t *found = tensor_find(desc);
    return found != NULL ? found->origin.format : ACL_FORMAT_UNDEFINED;
}

/* Returns 0 if a dimension is dynamic or the product overflows. */
static size_t count_elements(const tensor_shape_t *shape) {
    size_t count = 1;
    for (size_t i = 0; i < shape->dim_count; i++) {
        if (shape->dims[i] < 0 || __builtin_mul_overflow(count, (size_t)shape->dims[i], &count)) {
            return 0;
        }
    }
    return count;
}

size_t do_aclGetTensorDescElementCount(const aclTensorDesc *desc) {
    SIM_GUARD();
    const tensor_desc_t *found = tensor_find(desc);
    return found != NULL ? count_elements(&found->origin) : 0;
}

size_t do_aclGetTensorDescSize(const aclTensorDesc *desc) {
    size_t size = 0;
    SIM_GUARD();
    const tensor_desc_t *found = tensor_find(desc);
    if (found != NULL) {
        bool over =
            __builtin_mul_overflow(count_elements(&found->origin), do_aclDataTypeSize(found->type), &size);
        size = over ? 0 : size;
    }
    return size;
}

size_t do_aclGetTensorDescNumDims(const aclTensorDesc *desc) {
    SIM_GUARD();
    const tensor_desc_t *found = tensor_find(desc);
    size_t count = found != NULL ? found->origin.dim_count : 0;
    if (count > 0 && found->origin.dims[0] == UNKNOWN_RANK_DIM) {
        count = UNKNOWN_RANK;
    }
    return count;
}

aclError do_aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *dimSize) {
    REFUSE_NULL(dimSize);
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    const tensor_desc_t *found = tensor_find(desc);
    if (found != NULL && index < found->origin.dim_count) {
        *dimSize = found->origin.dims[index];
        rc = ACL_SUCCESS;
    } else if (found != NULL) {
        error_quiet(ACL_INVALID_PARAM, "index");
    }
    return rc;
}

int64_t do_aclGetTensorDescDim(const aclTensorDesc *desc, size_t index) {
    int64_t size = -1;
    return do_aclGetTensorDescDimV2(desc, index, &size) == ACL_SUCCESS ? size : -1;
}

static aclError set_ranges(ranges_t *ranges, size_t count, int64_t pairs[][2]) {
    int64_t (*copy)[2] = count <= DESCRIBED_DIMS_MAX ? calloc(count + 1, sizeof *copy) : NULL;
    if (copy == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "count");
    }
    memcpy(copy, pairs, count * sizeof *copy);
    free(ranges->pairs);
    *ranges = (ranges_t){.count = count, .pairs = copy};
    return ACL_SUCCESS;
}

aclError do_aclSetTensorShapeRange(aclTensorDesc *desc, size_t dimsCount, int64_t dimsRange[][2]) {
    REFUSE_NULL(dimsRange);
    SIM_GUARD();
    tensor_desc_t *found = tensor_find(desc);
    return found != NULL ? set_ranges(&found->shape_ranges, dimsCount, dimsRange) : ACL_INVALID_PARAM;
}

aclError do_aclSetTensorValueRange(aclTensorDesc *desc, size_t valueCount, int64_t valueRange[][2]) {
    REFUSE_NULL(valueRange);
    SIM_GUARD();
    tensor_desc_t *found = tensor_find(desc);
    return found != NULL ? set_ranges(&found->value_ranges, valueCount, valueRange) : ACL_INVALID_PARAM;
}

aclError do_aclGetTensorDescDimRange(const aclTensorDesc *desc, size_t index, size_t dimRangeNum,
                                     int64_t *dimRange) {
    if (dimRange == NULL || dimRangeNum < 2) {
        return error_quiet(ACL_INVALID_PARAM, dimRange == NULL ? "dimRange" : "dimRangeNum");
    }
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    const tensor_desc_t *found = tensor_find(desc);
    if (found != NULL && index < found->shape_ranges.count) {
        dimRange[0] = found->shape_ranges.pairs[index][0];
        dimRange[1] = found->shape_ranges.pairs[index][1];
        rc = ACL_SUCCESS;
    } else if (found != NULL) {
        error_quiet(ACL_INVALID_PARAM, "index");
    }
    return rc;
}

static aclError set_format(aclTensorDesc *desc, aclFormat format, bool storage) {
    SIM_GUARD();
    tensor_desc_t *found = tensor_find(desc);
    if (found != NULL) {
        *(storage ? &found->storage.format : &found->origin.format) = format;
    }
    return found != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

static aclError set_shape(aclTensorDesc *desc, int count, const int64_t *dims, bool storage) {
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    tensor_desc_t *found = tensor_find(desc);
    if (found != NULL) {
        bool kept = shape_set_dims(storage ? &found->storage : &found->origin, dims, count);
        rc = kept ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "dims");
    }
    return rc;
}

aclError do_aclSetTensorStorageFormat(aclTensorDesc *desc, aclFormat format) {
    return set_format(desc, format, true);
}

aclError do_aclSetTensorStorageShape(aclTensorDesc *desc, int numDims, const int64_t *dims) {
    return set_shape(desc, numDims, dims, true);
}

aclError do_aclSetTensorFormat(aclTensorDesc *desc, aclFormat format) {
    return set_format(desc, format, true);
}

aclError do_aclSetTensorShape(aclTensorDesc *desc, int numDims, const int64_t *dims) {
    return set_shape(desc, numDims, dims, true);
}

aclError do_aclSetTensorOriginFormat(aclTensorDesc *desc, aclFormat format) {
    return set_format(desc, format, false);
}

aclError do_aclSetTensorOriginShape(aclTensorDesc *desc, int numDims, const int64_t *dims) {
    return set_shape(desc, numDims, dims, false);
}

/* Returns the four letters of a plain format in their order, or NULL if the format is not plain. */
static const char *letters_of(aclFormat format) {
    switch (format) {
    case ACL_FORMAT_NCHW:
        return "NCHW";
    case ACL_FORMAT_NHWC:
        return "NHWC";
    case ACL_FORMAT_HWCN:
        return "HWCN";
    default:
        return NULL;
    }
}

/* Stores the dimensions in the order of `format`. False: the two formats are not orders of the same four
 * dimensions. */
static bool reorder(const tensor_shape_t *from, aclFormat format, int64_t *dims) {
    const char *source = letters_of(from->format);
    const char *target = letters_of(format);
    if (from->dim_count != RANK_OF_FORMATS || source == NULL || target == NULL) {
        return false;
    }
    for (int i = 0; i < RANK_OF_FORMATS; i++) {
        dims[i] = from->dims[strchr(source, target[i]) - source];
    }
    return true;
}

/* Creates a description of the same tensor in another order. Formats with padding are not simulated. */
aclError do_aclTransTensorDescFormat(const aclTensorDesc *srcDesc, aclFormat dstFormat,
                                     aclTensorDesc **dstDesc) {
    REFUSE_NULL(dstDesc);
    int64_t dims[RANK_OF_FORMATS];
    aclDataType type = ACL_DT_UNDEFINED;
    bool known = false;
    sim_lock();
    const tensor_desc_t *found = tensor_find(srcDesc);
    if (found != NULL) {
        type = found->type;
        known = reorder(&found->origin, dstFormat, dims);
    }
    sim_unlock();
    if (!known) {
        return found == NULL ? ACL_INVALID_PARAM : error_quiet(ACL_FORMAT_NOT_MATCH, "dstFormat");
    }
    aclTensorDesc *made = do_aclCreateTensorDesc(type, RANK_OF_FORMATS, dims, dstFormat);
    if (made != NULL) {
        *dstDesc = made;
    }
    return made != NULL ? ACL_SUCCESS : ACL_BAD_ALLOC;
}
