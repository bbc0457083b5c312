/* Copies whose addresses are in device memory. The addresses are read when the stream reaches the copy. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum { DESCRIPTION_BYTES = 64 };

static aclError check_kind(aclrtMemcpyKind kind) {
    if ((unsigned int)kind > ACL_MEMCPY_INTER_DEVICE_TO_DEVICE) {
        return error_quiet(ACL_INVALID_PARAM, "kind");
    }
    return kind == ACL_MEMCPY_INNER_DEVICE_TO_DEVICE ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "kind");
}

aclError do_aclrtGetMemcpyDescSize(aclrtMemcpyKind kind, size_t *descSize) {
    REFUSE_NULL(descSize);
    aclError rc = check_kind(kind);
    if (rc == ACL_SUCCESS) {
        *descSize = DESCRIPTION_BYTES;
    }
    return rc;
}

static aclError write_description(void *desc, const copy_words_t *words) {
    void *block = NULL;
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    if (memory_kind(desc) != MEMORY_DEVICE || !memory_pin(desc, DESCRIPTION_BYTES, &block)) {
        return error_set(RT_DRIVER_ERROR, "desc");
    }
    memset(desc, 0, DESCRIPTION_BYTES);
    memcpy(desc, words, sizeof *words);
    memory_unpin(block);
    return ACL_SUCCESS;
}

aclError do_aclrtSetMemcpyDesc(void *desc, aclrtMemcpyKind kind, void *srcAddr, void *dstAddr, size_t count,
                               void *config) {
    bool null = desc == NULL || srcAddr == NULL || dstAddr == NULL;
    if (null || (unsigned int)kind > ACL_MEMCPY_INTER_DEVICE_TO_DEVICE || count == 0 || config != NULL) {
        return error_quiet(ACL_INVALID_PARAM, null ? "desc, srcAddr or dstAddr" : "kind, count or config");
    }
    aclError rc = check_kind(kind);
    if (rc == ACL_SUCCESS) {
        copy_words_t words = {.from = srcAddr, .to = dstAddr, .count = count};
        SIM_GUARD();
        rc = write_description(desc, &words);
    }
    return rc;
}

/* Takes ownership of `indirect`. */
static aclError enqueue(indirect_t *indirect, aclrtStream handle) {
    stream_t *stream = NULL;
    aclError rc = stream_need_own(handle, &stream);
    if (rc != ACL_SUCCESS) {
        free(indirect);
        return rc;
    }
    task_t task = {.kind = TASK_INDIRECT, .indirect = indirect};
    return stream_enqueue(stream, &task);
}

static aclError launch(const indirect_t *wanted, aclrtStream stream) {
    indirect_t *indirect = malloc(sizeof *indirect);
    if (indirect == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "stream");
    }
    *indirect = *wanted;
    SIM_GUARD();
    return enqueue(indirect, stream);
}

aclError do_aclrtMemcpyAsyncWithDesc(void *desc, aclrtMemcpyKind kind, aclrtStream stream) {
    if (desc == NULL || (unsigned int)kind > ACL_MEMCPY_INTER_DEVICE_TO_DEVICE || stream == NULL) {
        return error_quiet(ACL_INVALID_PARAM, desc == NULL ? "desc" : "kind or stream");
    }
    aclError rc = check_kind(kind);
    indirect_t indirect = {.desc = desc};
    return rc == ACL_SUCCESS ? launch(&indirect, stream) : rc;
}

aclError do_aclrtMemcpyAsyncWithOffset(void **dst, size_t destMax, size_t dstDataOffset, const void **src,
                                       size_t count, size_t srcDataOffset, aclrtMemcpyKind kind,
                                       aclrtStream stream) {
    if (count == 0) {
        return ACL_SUCCESS;
    }
    if (dst == NULL || src == NULL || count > destMax || kind != ACL_MEMCPY_INNER_DEVICE_TO_DEVICE) {
        return error_set(RT_PARAM_INVALID, dst == NULL ? "dst" : "src, count or kind");
    }
    indirect_t indirect = {
        .to = dst, .from = src, .to_offset = dstDataOffset, .from_offset = srcDataOffset, .count = count};
    return launch(&indirect, stream);
}
