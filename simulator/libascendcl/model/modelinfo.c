/* Descriptions of models: memory, sizes, and the shapes of gears. */
#include "modelinfo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORK_ALIGNMENT = 512, BYTE_BITS = 8 };

model_info_t *model_info_new(void) {
    model_info_t *info = calloc(1, sizeof *info);
    if (info != NULL) {
        info->refs = 1;
    }
    return info;
}

void model_info_retain(model_info_t *info) {
    info->refs++;
}

static void free_tensors(const tensor_list_t *list) {
    for (size_t i = 0; i < list->count; i++) {
        const tensor_info_t *tensor = &list->tensors[i];
        free(tensor->name);
        free(tensor->dims.values);
        free(tensor->dims_v2.values);
        free(tensor->ranges.pairs);
    }
    free(list->tensors);
}

static void free_texts(const text_list_t *list) {
    for (size_t i = 0; i < list->count; i++) {
        free(list->texts[i]);
    }
    free(list->texts);
}

void model_info_release(model_info_t *info) {
    if (info == NULL || --info->refs > 0) {
        return;
    }
    free_tensors(&info->inputs);
    free_tensors(&info->outputs);
    free(info->gears.values);
    free_texts(&info->output_shapes);
    free_texts(&info->order);
    free(info);
}

static uint64_t aligned_sizes(const tensor_list_t *list) {
    uint64_t sum = 0;
    for (size_t i = 0; i < list->count; i++) {
        uint64_t size = list->tensors[i].size;
        size = size <= SIZE_MAX / 2 ? (size + WORK_ALIGNMENT - 1) / WORK_ALIGNMENT * WORK_ALIGNMENT : size;
        sum = sum <= UINT64_MAX - size ? sum + size : UINT64_MAX;
    }
    return sum;
}

/* The sizes come from a file, so they can be absurd. Then the allocation of the memory fails. */
void model_info_measure(model_info_t *info) {
    uint64_t inputs = aligned_sizes(&info->inputs);
    uint64_t outputs = aligned_sizes(&info->outputs);
    info->work_bytes = inputs <= UINT64_MAX - outputs ? inputs + outputs : UINT64_MAX;
    info->work_bytes = info->work_bytes > WORK_ALIGNMENT ? info->work_bytes : WORK_ALIGNMENT;
}

bool dims_set(dims_t *dims, const int64_t *values, size_t count) {
    int64_t *copy = malloc((count + 1) * sizeof *copy);
    if (copy == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        copy[i] = values[i];
    }
    free(dims->values);
    *dims = (dims_t){.count = count, .values = copy};
    return true;
}

bool dims_known(const dims_t *dims) {
    for (size_t i = 0; i < dims->count; i++) {
        if (dims->values[i] < 0) {
            return false;
        }
    }
    return true;
}

/* Elements of four bits are packed in pairs. aclDataTypeSize() does not know that. */
static uint64_t bits_of(aclDataType type) {
    bool half = type == ACL_INT4 || type == ACL_FLOAT4_E2M1 || type == ACL_FLOAT4_E1M2;
    return half ? BYTE_BITS / 2 : do_aclDataTypeSize(type) * BYTE_BITS;
}

bool dims_bytes(const int64_t *dims, size_t count, aclDataType type, uint64_t *bytes) {
    uint64_t bits = bits_of(type);
    for (size_t i = 0; i < count; i++) {
        if (dims[i] < 0 || __builtin_mul_overflow(bits, (uint64_t)dims[i], &bits)) {
            return false;
        }
    }
    *bytes = bits / BYTE_BITS + (bits % BYTE_BITS != 0 ? 1 : 0);
    return true;
}

void dims_show(char *text, size_t size, const int64_t *dims, size_t count) {
    size_t length = (size_t)snprintf(text, size, "[");
    for (size_t i = 0; i < count && length < size; i++) {
        length += (size_t)snprintf(text + length, size - length, "%s%" PRId64, i > 0 ? "," : "", dims[i]);
    }
    if (length < size) {
        snprintf(text + length, size - length, "]");
    }
}

bool model_gear_input(const model_info_t *info, size_t *index) {
    if (info->gears.kind == GEARS_NONE) {
        return false;
    }
    *index = info->inputs.count - 1;
    return true;
}

size_t model_data_inputs(const model_info_t *info) {
    return info->inputs.count - (info->gears.kind != GEARS_NONE ? 1 : 0);
}

size_t model_all_dims(const model_info_t *info) {
    size_t count = 0;
    for (size_t i = 0; i < model_data_inputs(info); i++) {
        count += info->inputs.tensors[i].dims.count;
    }
    return count;
}

/* Where the values of the input begin among the values of a gear of dimensions. The order of the names decides,
 * if the file has it; otherwise the order of the inputs. */
static size_t values_before(const model_info_t *info, size_t input) {
    size_t before = 0;
    size_t place = SIZE_MAX;
    for (size_t i = 0; i < info->order.count; i++) {
        place = strcmp(info->order.texts[i], info->inputs.tensors[input].name) == 0 ? i : place;
    }
    for (size_t i = 0; i < model_data_inputs(info); i++) {
        const tensor_info_t *other = &info->inputs.tensors[i];
        bool earlier = place == SIZE_MAX && i < input;
        for (size_t j = 0; j < info->order.count && j < place && place != SIZE_MAX; j++) {
            earlier = earlier || strcmp(info->order.texts[j], other->name) == 0;
        }
        for (size_t j = 0; j < other->dims.count && earlier && i != input; j++) {
            before += other->dims.values[j] < 0 ? 1 : 0;
        }
    }
    return before;
}

/* The height and the width of an image replace the first two dimensions that are -1. */
static void fill(const model_info_t *info, size_t input, const uint64_t *gear, int64_t *dims) {
    const gears_t *gears = &info->gears;
    size_t next = gears->kind == GEARS_DIMS ? values_before(info, input) : 0;
    const dims_t *shape = &info->inputs.tensors[input].dims;
    for (size_t i = 0; i < shape->count; i++) {
        bool open = shape->values[i] < 0;
        size_t value = gears->kind == GEARS_BATCH ? 0 : next;
        dims[i] = open && value < gears->width ? (int64_t)gear[value] : shape->values[i];
        next += open ? 1 : 0;
    }
}

void model_gear_dims(const model_info_t *info, size_t gear, int64_t *all) {
    const uint64_t *values = info->gears.values + gear * info->gears.width;
    for (size_t i = 0; i < model_data_inputs(info); i++) {
        fill(info, i, values, all);
        all += info->inputs.tensors[i].dims.count;
    }
}

/* Reads "gear,output,dimension,dimension,...". Returns the number of numbers; 0: the text has another form. */
static size_t read_numbers(const char *text, int64_t *numbers, size_t most) {
    size_t count = 0;
    while (count < most) {
        char *end = NULL;
        numbers[count++] = strtoll(text, &end, 10);
        if (end == text || (*end != ',' && *end != '\0')) {
            return 0;
        }
        if (*end == '\0') {
            return count;
        }
        text = end + 1;
    }
    return 0;
}

bool model_gear_output(const model_info_t *info, size_t gear, size_t output, int64_t *dims, size_t *dim_count) {
    int64_t numbers[DESCRIBED_DIMS_MAX + 2];
    for (size_t i = 0; i < info->output_shapes.count; i++) {
        size_t count = read_numbers(info->output_shapes.texts[i], numbers, sizeof numbers / sizeof *numbers);
        if (count >= 2 && numbers[0] == (int64_t)gear && numbers[1] == (int64_t)output) {
            *dim_count = count - 2;
            memset(dims, 0, DESCRIBED_DIMS_MAX * sizeof *dims);
            memcpy(dims, numbers + 2, *dim_count * sizeof *dims);
            return true;
        }
    }
    return false;
}
