/*
 * Copies of pageable memory, through staging memory: the bytes of an upload are taken at once, those of a
 * download are delivered when its copy is done.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static void append_landing(aio_stream *stream, aio_landing *landing) {
    aio_lock_take(&stream->lock);
    landing->position = atomic_load(&stream->tail) + 1;
    *stream->landings_end = landing;
    stream->landings_end = &landing->next;
    aio_lock_give(&stream->lock);
}

static aio_landing *new_landing(const aio_stream *stream, void *target, size_t size) {
    aio_landing *landing = calloc(1, sizeof *landing);
    if (!landing) {
        return NULL;
    }
    landing->target = target;
    landing->count = size;
    landing->generation = stream->generation;
    landing->slot = aio_stage_take(stream->device, size);
    if (landing->slot) {
        return landing;
    }
    free(landing);
    return NULL;
}

static void free_landing(int device, aio_landing *landing) {
    aio_stage_release(device, landing->slot);
    free(landing);
}

static aio_result staged(aio_stream *stream, aio_frame *frame, aio_landing *landing, int code) {
    if (code == 0) {
        append_landing(stream, landing);
    } else {
        free_landing(stream->device, landing);
    }
    return aio_enqueue_end(stream, frame, code);
}

aio_result aio_upload(aio_stream *stream, int held, void *target, size_t space, const void *source,
                      size_t size) {
    aio_frame frame;
    aio_landing *landing = new_landing(stream, NULL, size);
    if (!landing) {
        return aio_failed(AIO_STAGE_FULL);
    }
    memcpy(landing->slot, source, size);
    int code = aio_enqueue_begin(stream, &frame, held, AIO_FN_aclrtMemcpyAsync);
    if (code) {
        free_landing(stream->device, landing);
        return aio_failed(code);
    }
    code =
        aio_acl.aclrtMemcpyAsync(target, space, landing->slot, size, ACL_MEMCPY_HOST_TO_DEVICE, stream->handle);
    return staged(stream, &frame, landing, code);
}

aio_result aio_download(aio_stream *stream, int held, void *target, const void *source, size_t size) {
    aio_frame frame;
    aio_landing *landing = new_landing(stream, target, size);
    if (!landing) {
        return aio_failed(AIO_STAGE_FULL);
    }
    int code = aio_enqueue_begin(stream, &frame, held, AIO_FN_aclrtMemcpyAsync);
    if (code) {
        free_landing(stream->device, landing);
        return aio_failed(code);
    }
    code =
        aio_acl.aclrtMemcpyAsync(landing->slot, size, source, size, ACL_MEMCPY_DEVICE_TO_HOST, stream->handle);
    return staged(stream, &frame, landing, code);
}
