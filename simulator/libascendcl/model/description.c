/*
 * The description of the inputs and outputs in a model file: partition 8 of container.c. It is a sequence of
 * parts: u32 type, u32 length, and that many bytes.
 *
 * The types, where u32[n] are n numbers:
 *   0, 1  the inputs, the outputs: u32 count, and the tensors
 *   2     gears of the batch size: u32 n, u64[n]
 *   3, 4  gears of the image size, gears of dimensions: u32 n, u32[n] numbers of values, all values as u64
 *   5, 6  shapes of the outputs, order of the inputs: u32 n, u32[n] lengths of texts, all texts
 *
 * A tensor:
 *   u64 size, i32 format, i32 data type
 *   u32 bytes of the name, of the dimensions, of the second dimensions, and of the ranges
 *   the name, the dimensions as i64, the second dimensions as i64, the ranges as pairs of i64
 *
 * A file with gears must end its inputs with the input that selects the gear.
 */
#include <stdlib.h>
#include <string.h>

#include "reader.h"

enum { TLV_TYPES = 7 };

/* A count in the file, of things that have at least `bytes` bytes each in the file. */
static bool read_count(reader_t *reader, cursor_t *cursor, size_t bytes, size_t most, size_t *count) {
    *count = u32(cursor);
    if (cursor->bad || *count > most || *count > cursor->left / bytes) {
        return refuse(reader, "a count in the description is too large");
    }
    return true;
}

static bool read_text(reader_t *reader, cursor_t *cursor, uint32_t length, char **text) {
    const unsigned char *bytes = take(cursor, length);
    if (bytes == NULL) {
        return refuse(reader, "a text of the description ends outside of it");
    }
    *text = malloc((size_t)length + 1);
    if (*text == NULL) {
        return out_of_memory(reader);
    }
    memcpy(*text, bytes, length);
    (*text)[length] = '\0';
    return true;
}

static bool read_dims(reader_t *reader, cursor_t *cursor, uint32_t bytes, dims_t *dims) {
    int64_t values[DESCRIBED_DIMS_MAX];
    size_t count = bytes / sizeof *values;
    if (bytes % sizeof *values != 0 || count > DESCRIBED_DIMS_MAX || bytes > cursor->left) {
        return refuse(reader, "the dimensions of a tensor are not 0 to 128 numbers");
    }
    for (size_t i = 0; i < count; i++) {
        values[i] = (int64_t)u64(cursor);
        if (values[i] < -1) {
            return refuse(reader, "a dimension is below -1");
        }
    }
    return dims_set(dims, values, count) || out_of_memory(reader);
}

static bool read_ranges(reader_t *reader, cursor_t *cursor, uint32_t bytes, ranges_t *ranges) {
    size_t count = bytes / sizeof *ranges->pairs;
    if (bytes % sizeof *ranges->pairs != 0 || count > DESCRIBED_DIMS_MAX || bytes > cursor->left) {
        return refuse(reader, "the ranges of a tensor are not 0 to 128 pairs");
    }
    ranges->pairs = calloc(count + 1, sizeof *ranges->pairs);
    if (ranges->pairs == NULL) {
        return out_of_memory(reader);
    }
    ranges->count = count;
    for (size_t i = 0; i < count; i++) {
        ranges->pairs[i][0] = (int64_t)u64(cursor);
        ranges->pairs[i][1] = (int64_t)u64(cursor);
    }
    return true;
}

static bool read_tensor(reader_t *reader, cursor_t *cursor, tensor_info_t *tensor) {
    tensor->size = u64(cursor);
    tensor->format = (aclFormat)(int32_t)u32(cursor);
    tensor->type = (aclDataType)(int32_t)u32(cursor);
    uint32_t name = u32(cursor);
    uint32_t dims = u32(cursor);
    uint32_t dims_v2 = u32(cursor);
    uint32_t ranges = u32(cursor);
    if (cursor->bad) {
        return refuse(reader, "a tensor of the description ends outside of it");
    }
    return read_text(reader, cursor, name, &tensor->name) && read_dims(reader, cursor, dims, &tensor->dims) &&
           read_dims(reader, cursor, dims_v2, &tensor->dims_v2) &&
           read_ranges(reader, cursor, ranges, &tensor->ranges);
}

enum { TENSOR_BYTES = 32 };

static bool read_tensors(reader_t *reader, cursor_t *cursor, tensor_list_t *list) {
    size_t count = 0;
    if (!read_count(reader, cursor, TENSOR_BYTES, MODEL_TENSORS_MOST, &count)) {
        return false;
    }
    list->tensors = calloc(count + 1, sizeof *list->tensors);
    if (list->tensors == NULL) {
        return out_of_memory(reader);
    }
    list->count = count;
    for (size_t i = 0; i < count; i++) {
        if (!read_tensor(reader, cursor, &list->tensors[i])) {
            return false;
        }
    }
    return true;
}

static bool read_gears(reader_t *reader, cursor_t *cursor, gear_kind_t kind) {
    gears_t *gears = &reader->info->gears;
    size_t count = 0;
    if (gears->kind != GEARS_NONE) {
        return refuse(reader, "the description has two kinds of gears");
    }
    if (!read_count(reader, cursor, sizeof *gears->values, MODEL_GEARS_MOST, &count)) {
        return false;
    }
    size_t width = kind == GEARS_BATCH ? 1 : 0;
    for (size_t i = 0; i < count && kind != GEARS_BATCH; i++) {
        size_t own = u32(cursor);
        width = i == 0 ? own : width;
        if (own != width || (kind == GEARS_IMAGE && own != 2)) {
            return refuse(reader, "the gears have different numbers of values");
        }
    }
    if (cursor->bad || width > cursor->left || count * width > cursor->left / sizeof *gears->values) {
        return refuse(reader, "the gears end outside of the description");
    }
    free(gears->values); /* of an earlier part without gears */
    gears->values = calloc(count * width + 1, sizeof *gears->values);
    if (gears->values == NULL) {
        return out_of_memory(reader);
    }
    gears->kind = count > 0 ? kind : GEARS_NONE;
    gears->count = count;
    gears->width = width;
    for (size_t i = 0; i < count * width; i++) {
        gears->values[i] = u64(cursor);
        if (gears->values[i] == 0 || gears->values[i] > INT32_MAX) {
            return refuse(reader, "a value of a gear is not from 1 to 2147483647");
        }
    }
    return true;
}

static bool read_texts(reader_t *reader, cursor_t *cursor, text_list_t *list) {
    size_t count = 0;
    if (!read_count(reader, cursor, sizeof(uint32_t), MODEL_TENSORS_MOST * MODEL_GEARS_MOST, &count)) {
        return false;
    }
    cursor_t lengths = {take(cursor, count * sizeof(uint32_t)), count * sizeof(uint32_t), false};
    list->texts = calloc(count + 1, sizeof *list->texts);
    if (list->texts == NULL) {
        return out_of_memory(reader);
    }
    list->count = count;
    for (size_t i = 0; i < count; i++) {
        if (!read_text(reader, cursor, u32(&lengths), &list->texts[i])) {
            return false;
        }
    }
    return true;
}

static bool read_part(reader_t *reader, cursor_t *cursor, uint32_t type) {
    model_info_t *info = reader->info;
    switch (type) {
    case 0:
        return read_tensors(reader, cursor, &info->inputs);
    case 1:
        return read_tensors(reader, cursor, &info->outputs);
    case 2:
        return read_gears(reader, cursor, GEARS_BATCH);
    case 3:
        return read_gears(reader, cursor, GEARS_IMAGE);
    case 4:
        return read_gears(reader, cursor, GEARS_DIMS);
    case 5:
        return read_texts(reader, cursor, &info->output_shapes);
    default:
        return read_texts(reader, cursor, &info->order);
    }
}

/* The number of values that a gear of dimensions needs. */
static size_t open_dims(const model_info_t *info) {
    size_t count = 0;
    for (size_t i = 0; i < model_data_inputs(info); i++) {
        const dims_t *dims = &info->inputs.tensors[i].dims;
        for (size_t j = 0; j < dims->count; j++) {
            count += dims->values[j] < 0 ? 1 : 0;
        }
    }
    return count;
}

static bool check_gears(reader_t *reader) {
    const model_info_t *info = reader->info;
    if (info->gears.kind == GEARS_NONE) {
        return true;
    }
    size_t count = info->inputs.count;
    if (count == 0 || strcmp(info->inputs.tensors[count - 1].name, MODEL_GEAR_INPUT) != 0) {
        return refuse(reader, "the model has gears, and its last input is not " MODEL_GEAR_INPUT);
    }
    if (info->gears.kind == GEARS_DIMS && open_dims(info) != info->gears.width) {
        return refuse(reader, "the gears do not have one value for each dimension that is -1");
    }
    return true;
}

bool read_description(reader_t *reader, cursor_t cursor) {
    reader->info->described = true;
    while (cursor.left > 0) {
        uint32_t type = u32(&cursor);
        uint32_t length = u32(&cursor);
        cursor_t part = {take(&cursor, length), length, false};
        if (cursor.bad) {
            return refuse(reader, "a part of the description ends outside of it");
        }
        if (type >= TLV_TYPES || (reader->seen >> type & 1) != 0) {
            return refuse(reader, "the description has an unknown part, or the same part twice");
        }
        reader->seen |= 1U << type;
        if (!read_part(reader, &part, type)) {
            return false;
        }
    }
    return check_gears(reader);
}
