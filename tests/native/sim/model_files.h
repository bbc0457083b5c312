/* Model files for tests, written byte by byte. */
#ifndef MODEL_FILES_H
#define MODEL_FILES_H

#include <string.h>

#include "sha256.h"
#include "sim_test.h"

enum { FILE_BYTES = 8192, HEADER_BYTES = 256, PART_TENSORS = 8, PART_ONNX = 0x41494F00 };

typedef struct {
    unsigned char bytes[FILE_BYTES];
    size_t size;
} bytes_t;

static inline void put(bytes_t *to, const void *bytes, size_t size) {
    CHECK(to->size + size <= sizeof to->bytes);
    if (size > 0) {
        memcpy(to->bytes + to->size, bytes, size);
    }
    to->size += size;
}

static inline void put_u32(bytes_t *to, uint32_t value) {
    put(to, &value, sizeof value);
}

static inline void put_u64(bytes_t *to, uint64_t value) {
    put(to, &value, sizeof value);
}

static inline void put_text(bytes_t *to, const char *text) {
    put(to, text, strlen(text));
}

static inline void put_all(bytes_t *to, const bytes_t *from) {
    put(to, from->bytes, from->size);
}

/* A tensor of 32-bit floats. `ranges` may be NULL. */
static inline void put_ranged_tensor(bytes_t *to, const char *name, const int64_t *dims, uint32_t count,
                                     const int64_t (*ranges)[2]) {
    uint32_t range_bytes = ranges != NULL ? count * (uint32_t)sizeof *ranges : 0;
    uint64_t size = sizeof(float);
    for (uint32_t i = 0; i < count; i++) {
        size *= dims[i] > 0 ? (uint64_t)dims[i] : 8;
    }
    put_u64(to, size);
    put_u32(to, ACL_FORMAT_ND);
    put_u32(to, ACL_FLOAT);
    put_u32(to, (uint32_t)strlen(name));
    put_u32(to, count * (uint32_t)sizeof *dims);
    put_u32(to, 0);
    put_u32(to, range_bytes);
    put_text(to, name);
    put(to, dims, count * sizeof *dims);
    put(to, ranges, range_bytes);
}

static inline void put_tensor(bytes_t *to, const char *name, const int64_t *dims, uint32_t count) {
    put_ranged_tensor(to, name, dims, count, NULL);
}

static inline void put_part(bytes_t *to, uint32_t type, const bytes_t *part) {
    put_u32(to, type);
    put_u32(to, (uint32_t)part->size);
    put_all(to, part);
}

/* A file with a description and, if `onnx` is not NULL, an ONNX model. */
static inline void put_file(bytes_t *to, const bytes_t *description, const char *onnx) {
    static bytes_t rest;
    static bytes_t table;
    unsigned char digest[SHA256_BYTES];
    size_t onnx_size = onnx != NULL ? strlen(onnx) : 0;
    rest.size = 0;
    put_u32(&rest, 1);
    put_u32(&rest, 0);
    put_u64(&rest, onnx_size);
    put(&rest, onnx, onnx_size);
    table.size = 0;
    put_u32(&table, onnx != NULL ? 2 : 1);
    put_u32(&table, 0);
    put_u32(&table, PART_TENSORS);
    put_u32(&table, 0);
    put_u64(&table, 0);
    put_u64(&table, description->size);
    if (onnx != NULL) {
        put_u32(&table, PART_ONNX);
        put_u32(&table, 0);
        put_u64(&table, description->size);
        put_u64(&table, SHA256_BYTES + rest.size);
    }
    put_all(&table, description);
    if (onnx != NULL) {
        sha256(rest.bytes, rest.size, digest);
        put(&table, digest, sizeof digest);
        put_all(&table, &rest);
    }
    memset(to->bytes, 0, HEADER_BYTES);
    to->size = HEADER_BYTES;
    uint32_t start[] = {0x444F4D49, HEADER_BYTES, 0x10000000};
    uint64_t length = table.size;
    memcpy(to->bytes, start, sizeof start);
    memcpy(to->bytes + 184, &length, sizeof length);
    if (onnx != NULL) {
        memcpy(to->bytes + 208, "AIOACL-SIMULATED", 16);
    }
    put_all(to, &table);
}

/* x and y have the shape rows by columns. The inputs and outputs of the stand-in for onnxruntime are the same.
 */
static inline void put_plain(bytes_t *to, int64_t rows, int64_t columns, const char *onnx) {
    static bytes_t part;
    static bytes_t description;
    const int64_t dims[] = {rows, columns};
    description.size = 0;
    for (uint32_t type = 0; type < 2; type++) {
        part.size = 0;
        put_u32(&part, 1);
        put_tensor(&part, type == 0 ? "x" : "y", dims, 2);
        put_part(&description, type, &part);
    }
    put_file(to, &description, onnx);
}

/* A dynamic model: x and y have 1 to 8 rows of three numbers. */
static inline void put_dynamic(bytes_t *to, const char *onnx) {
    static bytes_t part;
    static bytes_t description;
    const int64_t dims[] = {-1, 3};
    const int64_t ranges[][2] = {{1, 8}, {3, 3}};
    description.size = 0;
    for (uint32_t type = 0; type < 2; type++) {
        part.size = 0;
        put_u32(&part, 1);
        put_ranged_tensor(&part, type == 0 ? "x" : "y", dims, 2, type == 0 ? ranges : NULL);
        put_part(&description, type, &part);
    }
    put_file(to, &description, onnx);
    to->bytes[193] = 1;
}

/* A model with batches of 1, 2 and 4 rows of three numbers. */
static inline void put_batched(bytes_t *to, const char *onnx) {
    static bytes_t part;
    static bytes_t description;
    const int64_t dims[] = {-1, 3};
    const int64_t one[] = {1};
    static const char *const shapes[] = {"0,0,1,3", "1,0,2,3", "2,0,4,3"};
    description.size = 0;
    part.size = 0;
    put_u32(&part, 2);
    put_tensor(&part, "x", dims, 2);
    put_tensor(&part, "ascend_mbatch_shape_data", one, 1);
    put_part(&description, 0, &part);
    part.size = 0;
    put_u32(&part, 1);
    put_tensor(&part, "y", dims, 2);
    put_part(&description, 1, &part);
    part.size = 0;
    put_u32(&part, 3);
    for (uint64_t batch = 1; batch <= 4; batch *= 2) {
        put_u64(&part, batch);
    }
    put_part(&description, 2, &part);
    part.size = 0;
    put_u32(&part, 3);
    for (int i = 0; i < 3; i++) {
        put_u32(&part, (uint32_t)strlen(shapes[i]));
    }
    for (int i = 0; i < 3; i++) {
        put_text(&part, shapes[i]);
    }
    put_part(&description, 5, &part);
    put_file(to, &description, onnx);
}

#endif
