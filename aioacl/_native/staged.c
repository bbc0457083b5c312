/*
 * Copies of pageable memory through staging memory. The bytes of an upload are copied to staging memory at
 * once. The bytes of a download are copied to their target when the copy is done.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static void append_staged_copy(aio_stream *stream, aio_staged_copy *staged_copy) {
    aio_lock_take(&stream->lock);
    staged_copy->position = atomic_load(&stream->tail) + 1;
    *stream->staged_copies_end = staged_copy;
    stream->staged_copies_end = &staged_copy->next;
    aio_lock_give(&stream->lock);
}

static int new_staged_copy(const aio_stream *stream, void *target, size_t size, aio_staged_copy **made) {
    aio_staged_copy *staged_copy = *made = calloc(1, sizeof *staged_copy);
    if (!staged_copy) {
        return AIO_NO_MEMORY;
    }
    staged_copy->target = target;
    staged_copy->count = size;
    staged_copy->generation = stream->generation;
    staged_copy->slot = aio_stage_take(stream->device, size);
    if (staged_copy->slot) {
        return 0;
    }
    free(staged_copy);
    return AIO_STAGE_FULL;
}

static void free_staged_copy(int device, aio_staged_copy *staged_copy) {
    aio_stage_release(device, staged_copy->slot);
    free(staged_copy);
}

static aio_result staged(aio_stream *stream, aio_frame *frame, aio_staged_copy *staged_copy, int code) {
    frame->bytes = staged_copy->count;
    if (code == 0) {
        append_staged_copy(stream, staged_copy);
    } else {
        free_staged_copy(stream->device, staged_copy);
    }
    return aio_enqueue_end(stream, frame, code);
}

aio_result aio_upload(aio_stream *stream, int held, void *target, size_t space, const void *source,
                      size_t size) {
    aio_frame frame;
    aio_staged_copy *staged_copy;
    int code = new_staged_copy(stream, NULL, size, &staged_copy);
    if (code) {
        return aio_failed(code);
    }
    memcpy(staged_copy->slot, source, size);
    code = aio_enqueue_begin(stream, &frame, held, AIO_FN_aclrtMemcpyAsync);
    if (code) {
        free_staged_copy(stream->device, staged_copy);
        return aio_failed(code);
    }
    code = aio_acl.aclrtMemcpyAsync(target, space, staged_copy->slot, size, ACL_MEMCPY_HOST_TO_DEVICE,
                                    stream->handle);
    return staged(stream, &frame, staged_copy, code);
}

aio_result aio_download(aio_stream *stream, int held, void *target, const void *source, size_t size) {
    aio_frame frame;
    aio_staged_copy *staged_copy;
    int code = new_staged_copy(stream, target, size, &staged_copy);
    if (code) {
        return aio_failed(code);
    }
    code = aio_enqueue_begin(stream, &frame, held, AIO_FN_aclrtMemcpyAsync);
    if (code) {
        free_staged_copy(stream->device, staged_copy);
        return aio_failed(code);
    }
    code = aio_acl.aclrtMemcpyAsync(staged_copy->slot, size, source, size, ACL_MEMCPY_DEVICE_TO_HOST,
                                    stream->handle);
    return staged(stream, &frame, staged_copy, code);
}
