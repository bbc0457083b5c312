/* Reading the bytes of a model file within their bounds. */
#ifndef ACLSIM_READER_H
#define ACLSIM_READER_H

#include "modelinfo.h"

/* Bytes that are left to read. After a read behind the end, `bad` is set, and all reads return zeros. */
typedef struct {
    const unsigned char *at;
    size_t left;
    bool bad;
} cursor_t;

static inline const unsigned char *take(cursor_t *cursor, uint64_t count) {
    if (cursor->bad || count > cursor->left) {
        cursor->bad = true;
        return NULL;
    }
    const unsigned char *at = cursor->at;
    cursor->at += count;
    cursor->left -= (size_t)count;
    return at;
}

static inline uint64_t number(cursor_t *cursor, size_t bytes) {
    const unsigned char *at = take(cursor, bytes);
    uint64_t value = 0;
    for (size_t i = bytes; at != NULL && i-- > 0;) {
        value = value << 8 | at[i];
    }
    return value;
}

static inline uint32_t u32(cursor_t *cursor) {
    return (uint32_t)number(cursor, 4);
}

static inline uint64_t u64(cursor_t *cursor) {
    return number(cursor, 8);
}

typedef struct {
    model_info_t *info;
    aclError rc;
    const char *why;
    uint32_t seen; /* one bit for each type of partition 8 */
} reader_t;

static inline bool refuse(reader_t *reader, const char *why) {
    reader->rc = GE_MODEL_DATA_SIZE_INVALID;
    reader->why = why;
    return false;
}

static inline bool out_of_memory(reader_t *reader) {
    reader->rc = GE_MEMORY_ALLOCATION;
    reader->why = "no memory is left";
    return false;
}

/* description.c: reads partition 8. Returns false after a failure, which it stores in the reader. */
bool read_description(reader_t *reader, cursor_t cursor);

#endif
