/*
 * The reader of model files (.om).
 *
 * All numbers are little-endian. A file is a header of 256 bytes, a partition table, and the partitions.
 *
 * The header:
 *     0  u32 magic "IMOD"
 *     4  u32 size of the header, 256
 *     8  u32 version
 *    76  u32 bytes after the header
 *    84  32 bytes name
 *   156  u32 number of models, 0 or 1
 *   184  u64 bytes after the header; 0: the number at 76 counts, and the partition table is narrow
 *   193  u8 1: the shapes were not known to the compiler
 *   208  16 bytes "AIOACL-SIMULATED", if the simulator's atc has made the file
 *
 * The partition table: u32 count, u32 0, and per partition u32 type, u32 0, u64 offset, u64 size.
 * The narrow table: u32 count, and per partition u32 type, u32 offset, u32 size.
 * Offsets count from the end of the table.
 *
 * The partitions, by their types:
 *   1           the weights
 *   8           the inputs and outputs: see description.c
 *   0x41494F00  the ONNX model: 32 bytes SHA-256 of all bytes that follow, u32 version 1, u32 0, u64 length,
 *               and the bytes of the model
 *
 * This layout is the one that Huawei's graph engine writes, except for the mark in the header and the partition
 * with the ONNX model. Every number is checked before it is used.
 */
#include "container.h"

#include <string.h>

#include "reader.h"
#include "sha256.h"

enum {
    MAGIC = 0x444F4D49,
    HEADER_BYTES = 256,
    AT_HEADER_SIZE = 4,
    AT_LENGTH = 76,
    AT_NAME = 84,
    AT_MODELS = 156,
    AT_LONG_LENGTH = 184,
    AT_DYNAMIC = 193,
    AT_MARK = 208,
    PARTITIONS_MOST = 4096,
    PARTITION_WEIGHTS = 1,
    PARTITION_TENSORS = 8,
    PARTITION_ONNX = 0x41494F00,
    ONNX_VERSION = 1
};

static const char mark[16] = {'A', 'I', 'O', 'A', 'C', 'L', '-', 'S', 'I', 'M', 'U', 'L', 'A', 'T', 'E', 'D'};

static uint64_t number_at(const unsigned char *bytes, size_t offset, size_t size) {
    cursor_t cursor = {bytes + offset, size, false};
    return number(&cursor, size);
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
    memcpy(reader->info->name, bytes + AT_NAME, sizeof reader->info->name - 1);
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
