/*
 * The reader of model files (.om).
 *
 * All numbers are little-endian. A file is a header of 256 bytes, a partition table, and the partitions:
 *
 *   header      0  u32 magic "IMOD"                     156  u32 number of models, 0 or 1
 *               4  u32 size of the header, 256          184  u64 bytes after the header; 0: see at 76
 *               8  u32 version                          193  u8  1: the shapes were not known to the compiler
 *              76  u32 bytes after the header           208  16 bytes "AIOACL-SIMULATED" if the simulator's atc
 *              84  32 bytes name                                 has made the file
 *   table       u32 count, u32 0, and per partition u32 type, u32 0, u64 offset, u64 size; if the number at 184
 *               is 0: u32 count, and per partition u32 type, u32 offset, u32 size. Offsets count from the end
 * of the table. partition 1           the weights partition 8           inputs and outputs: a sequence of u32
 * type, u32 length, and that many bytes partition 0x41494F00  the ONNX model: 32 bytes SHA-256 of all bytes
 * that follow, u32 version 1, u32 0, u64 length, the model
 *
 * The types in partition 8, where u32[n] are n numbers:
 *   0, 1  inputs, outputs: u32 count, and per tensor u64 size, i32 format, i32 data type, u32 bytes of the
 * name, u32 bytes of the dimensions, u32 bytes of the second dimensions, u32 bytes of the ranges, then the
 * name, the dimensions as i64, the second dimensions as i64, the ranges as pairs of i64 2     gears of the
 * batch size: u32 n, u64[n] 3, 4  gears of the image size, gears of dimensions: u32 n, u32[n] numbers of
 * values, then all values as u64 5, 6  shapes of the outputs, order of the inputs: u32 n, u32[n] lengths of
 * texts, then all texts
 *
 * This layout is the one that Huawei's graph engine writes, except for the mark in the header and the partition
 * with the ONNX model. Every number is checked before it is used. A file with gears must end its inputs with
 * the input that selects the gear.
 */
#include "container.h"

#include <stdlib.h>
#include <string.h>

#include "sha256.h"

enum {
    MAGIC = 0x444F4D49,
    HEADER_BYTES = 256,
    AT_HEADER_SIZE = 4,
    AT_LENGTH = 76,
    AT_MODELS = 156,
    AT_LONG_LENGTH = 184,
    AT_DYNAMIC = 193,
    AT_MARK = 208,
    PARTITIONS_MOST = 4096,
    PARTITION_WEIGHTS = 1,
    PARTITION_TENSORS = 8,
    PARTITION_ONNX = 0x41494F00,
    ONNX_VERSION = 1,
    TLV_TYPES = 7
};

static const char mark[16] = {'A', 'I', 'O', 'A', 'C', 'L', '-', 'S', 'I', 'M', 'U', 'L', 'A', 'T', 'E', 'D'};

/* Bytes that are left to read. After a read behind the end, `bad` is set, and all reads return zeros. */
typedef struct {
    const unsigned char *at;
    size_t left;
    bool bad;
} cursor_t;

static const unsigned char *take(cursor_t *cursor, uint64_t count) {
    if (cursor->bad || count > cursor->left) {
        cursor->bad = true;
        return NULL;
    }
    const unsigned char *at = cursor->at;
    cursor->at += count;
    cursor->left -= (size_t)count;
    return at;
}

static uint64_t number(cursor_t *cursor, size_t bytes) {
    const unsigned char *at = take(cursor, bytes);
    uint64_t value = 0;
    for (size_t i = bytes; at != NULL && i-- > 0;) {
        value = value << 8 | at[i];
    }
    return value;
}

static uint32_t u32(cursor_t *cursor) {
    return (uint32_t)number(cursor, 4);
}

static uint64_t u64(cursor_t *cursor) {
    return number(cursor, 8);
}

static uint64_t number_at(const unsigned char *bytes, size_t offset, size_t size) {
    cursor_t cursor = {bytes + offset, size, false};
    return number(&cursor, size);
}

typedef struct {
    model_info_t *info;
    aclError rc;
    const char *why;
    uint32_t seen; /* one bit for each type of partition 8 */
} reader_t;

static bool refuse(reader_t *reader, const char *why) {
    reader->rc = GE_MODEL_DATA_SIZE_INVALID;
    reader->why = why;
    return false;
}

static bool out_of_memory(reader_t *reader) {
    reader->rc = GE_MEMORY_ALLOCATION;
    reader->why = "no memory is left";
    return false;
}

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

static bool read_description(reader_t *reader, cursor_t cursor) {
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

static bool read_onnx(reader_t *reader, cursor_t cursor, container_t *container) {
    unsigned char digest[SHA256_BYTES];
    const unsigned char *expected = take(&cursor, SHA256_BYTES);
    cursor_t rest = cursor;
    uint32_t version = u32(&cursor);
    u32(&cursor);
    uint64_t size = u64(&cursor);
    if (cursor.bad || version != ONNX_VERSION || size != cursor.left) {
        return refuse(reader, "the partition with the ONNX model has another version or size");
    }
    sha256(rest.at, rest.left, digest);
    if (memcmp(digest, expected, SHA256_BYTES) != 0) {
        return refuse(reader, "the SHA-256 of the ONNX model is wrong: the file is damaged");
    }
    container->onnx = cursor.at;
    container->onnx_size = cursor.left;
    return true;
}

static bool read_partition(reader_t *reader, uint32_t type, cursor_t bytes, container_t *container) {
    if (type == PARTITION_WEIGHTS) {
        reader->info->weight_bytes = bytes.left;
        return true;
    }
    if (type == PARTITION_TENSORS) {
        return !reader->info->described ? read_description(reader, bytes)
                                        : refuse(reader, "the file has two descriptions");
    }
    if (type == PARTITION_ONNX && container->simulated) {
        return container->onnx == NULL ? read_onnx(reader, bytes, container)
                                       : refuse(reader, "the file has two ONNX models");
    }
    return true; /* code and settings for a chip */
}

static bool read_partitions(reader_t *reader, cursor_t cursor, bool wide, container_t *container) {
    uint32_t count = u32(&cursor);
    size_t each = wide ? 24 : 12;
    if (wide) {
        u32(&cursor);
    }
    if (cursor.bad || count > PARTITIONS_MOST || count > cursor.left / each) {
        return refuse(reader, "the partition table ends outside of the file");
    }
    cursor_t table = {take(&cursor, count * each), count * each, false};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t type = u32(&table);
        if (wide) {
            u32(&table);
        }
        uint64_t offset = wide ? u64(&table) : u32(&table);
        uint64_t size = wide ? u64(&table) : u32(&table);
        cursor_t part = cursor;
        take(&part, offset);
        cursor_t bytes = {take(&part, size), (size_t)size, false};
        if (part.bad) {
            return refuse(reader, "a partition ends outside of the file");
        }
        if (!read_partition(reader, type, bytes, container)) {
            return false;
        }
    }
    return true;
}

bool container_is(const void *bytes, size_t size) {
    return size >= sizeof(uint32_t) && number_at(bytes, 0, sizeof(uint32_t)) == MAGIC;
}

static bool read_file(reader_t *reader, const unsigned char *bytes, size_t size, container_t *container) {
    if (size < HEADER_BYTES || !container_is(bytes, size) ||
        number_at(bytes, AT_HEADER_SIZE, 4) != HEADER_BYTES) {
        return refuse(reader, "the file does not begin with the header of a model");
    }
    uint64_t length = number_at(bytes, AT_LONG_LENGTH, 8);
    bool wide = length != 0;
    length = wide ? length : number_at(bytes, AT_LENGTH, 4);
    if (length != size - HEADER_BYTES) {
        return refuse(reader, "the length in the header is not the length of the file: the file is truncated "
                              "or damaged");
    }
    if (number_at(bytes, AT_MODELS, 4) > 1) {
        return refuse(reader, "the file has more than one model, which the simulator does not support");
    }
    container->simulated = memcmp(bytes + AT_MARK, mark, sizeof mark) == 0;
    reader->info->dynamic = bytes[AT_DYNAMIC] != 0;
    cursor_t rest = {bytes + HEADER_BYTES, size - HEADER_BYTES, false};
    if (!read_partitions(reader, rest, wide, container)) {
        return false;
    }
    if (container->simulated && (container->onnx == NULL || !reader->info->described)) {
        return refuse(reader, "a simulated model needs a description and an ONNX model");
    }
    return true;
}

aclError container_read(const void *bytes, size_t size, model_info_t *info, container_t *container,
                        const char **why) {
    reader_t reader = {.info = info, .why = ""};
    *container = (container_t){.simulated = false};
    if (read_file(&reader, bytes, size, container)) {
        info->weight_bytes = container->onnx != NULL ? container->onnx_size : info->weight_bytes;
        model_info_measure(info);
    }
    *why = reader.why;
    return reader.rc;
}
