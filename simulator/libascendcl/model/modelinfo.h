/* The description of a model: its inputs, outputs and gears. It does not change after it was read. */
#ifndef ACLSIM_MODELINFO_H
#define ACLSIM_MODELINFO_H

#include "described.h"

enum {
    MODEL_GEARS_MOST = 128,
    MODEL_TENSORS_MOST = 4096,
    MODEL_NAME_BYTES = 128,
    MODEL_FILE_NAME_BYTES = 33,
    DIMS_TEXT_BYTES = 128
};

/* The name of the input that selects the gear. It is the last input of a model with gears. */
#define MODEL_GEAR_INPUT "ascend_mbatch_shape_data"

typedef struct {
    size_t count;
    int64_t *values; /* owned; -1: dynamic */
} dims_t;

typedef struct {
    char *name; /* owned, of any length */
    aclDataType type;
    aclFormat format;
    uint64_t size; /* 0: not known */
    dims_t dims;
    dims_t dims_v2; /* no values: the same as `dims` */
    ranges_t ranges;
} tensor_info_t;

typedef struct {
    size_t count;
    tensor_info_t *tensors; /* owned */
} tensor_list_t;

typedef struct {
    size_t count;
    char **texts; /* owned */
} text_list_t;

typedef enum { GEARS_NONE, GEARS_BATCH, GEARS_IMAGE, GEARS_DIMS } gear_kind_t;

/* All gears have the same number of values: the batch size; the height and the width; or one value for each
 * dimension that is -1, in the order of the inputs. */
typedef struct {
    gear_kind_t kind;
    size_t count;
    size_t width;
    uint64_t *values; /* owned */
} gears_t;

typedef struct {
    uint32_t refs;
    char name[MODEL_FILE_NAME_BYTES]; /* the name in the header of the file; "": none */
    bool dynamic;                     /* the model takes shapes that were not known when it was compiled */
    bool described;
    tensor_list_t inputs;
    tensor_list_t outputs;
    gears_t gears;
    text_list_t output_shapes; /* for each gear and output: "gear,output,dimension,..." */
    text_list_t order;         /* the names of the dynamic inputs, in the order of the gears' values */
    uint64_t work_bytes;
    uint64_t weight_bytes;
} model_info_t;

/* Returns a description with one reference and no content; NULL if no memory is left. */
model_info_t *model_info_new(void);
/* These two functions are called with sim.lock held, or before other threads know the description. */
void model_info_retain(model_info_t *info);
void model_info_release(model_info_t *info);
/* Sets work_bytes from the sizes of the tensors. */
void model_info_measure(model_info_t *info);

/* Copies the values. False: no memory is left. */
bool dims_set(dims_t *dims, const int64_t *values, size_t count);
bool dims_known(const dims_t *dims);
/* The number of bytes of a tensor. False: a dimension is not known, or the number is too large. */
bool dims_bytes(const int64_t *dims, size_t count, aclDataType type, uint64_t *bytes);
/* Writes "[2,-1]". A long text is cut off. */
void dims_show(char *text, size_t size, const int64_t *dims, size_t count);
/* The number of inputs without the input that selects the gear. */
size_t model_data_inputs(const model_info_t *info);
/* The index of the input that selects the gear. False: the model has no gears. */
bool model_gear_input(const model_info_t *info, size_t *index);
/* Replaces the dimensions that are -1 by the values of the gear, in all inputs. `all` holds the dimensions of
 * all inputs, one input after the other. */
void model_gear_dims(const model_info_t *info, size_t gear, int64_t *all);
/* The number of dimensions of all inputs. */
size_t model_all_dims(const model_info_t *info);
/* Writes the shape of an output in the gear; `dims` has room for DESCRIBED_DIMS_MAX, and zeros follow the
 * shape. False: the file does not state the shape. */
bool model_gear_output(const model_info_t *info, size_t gear, size_t output, int64_t *dims, size_t *dim_count);

#endif
