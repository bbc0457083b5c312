/* Immediate copies, and copies of a stream. */
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "work.h"

static bool is_host(memory_t kind) {
    return kind == MEMORY_PINNED || kind == MEMORY_PAGEABLE;
}

/* A copy of 0 bytes succeeds, and its other arguments are not checked. Before 9.1 it was refused. */
static bool is_nothing(const copy_t *copy) {
    return copy->count == 0 && sim.settings.cann >= CANN_9_1;
}

/* Checks the arguments that both kinds of copies check. */
static aclError check_copy(const copy_t *copy, size_t destMax) {
    if (copy->dst == NULL || copy->src == NULL) {
        return error_quiet(ACL_INVALID_PARAM, copy->dst == NULL ? "dst" : "src");
    }
    if ((unsigned int)copy->kind > ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
        return error_quiet(ACL_INVALID_PARAM, "kind");
    }
    bool refused = copy->count > destMax || copy->count == 0;
    return refused ? error_set(RT_PARAM_INVALID, "count") : ACL_SUCCESS;
}

static plane_t plane_of(const copy_t *copy) {
    return (plane_t){.dst = copy->dst,
                     .src = copy->src,
                     .width = copy->count,
                     .height = copy->height,
                     .dpitch = copy->dpitch,
                     .spitch = copy->spitch};
}

/* Pins the blocks of the source and of the target. Pageable memory has no block, and is not pinned. */
static bool pin_both(const copy_t *copy, void **to, void **from) {
    *to = NULL;
    *from = NULL;
    return (copy->from == MEMORY_PAGEABLE ||
            memory_pin_rows(copy->src, copy->count, copy->spitch, copy->height, MEMORY_READS, from)) &&
           (copy->to == MEMORY_PAGEABLE ||
            memory_pin_rows(copy->dst, copy->count, copy->dpitch, copy->height, MEMORY_WRITES, to));
}

/* Returns false if pageable memory is not mapped. The real runtime would then crash or get an error from the
 * operating system. */
static bool is_mapped(memory_t memory, const void *pointer, size_t span, bool write) {
    bool there = memory != MEMORY_PAGEABLE || move_is_there(pointer, span, write);
    if (!there) {
        usage_note("%s %zu bytes at %p, which are not mapped", write ? "writes" : "reads", span, pointer);
    }
    return there;
}

static bool source_is_mapped(const copy_t *copy) {
    return is_mapped(copy->from, copy->src, move_span(copy->count, copy->spitch, copy->height), false);
}

static bool move_outside(const copy_t *copy) {
    size_t span = move_span(copy->count, copy->dpitch, copy->height);
    if (!source_is_mapped(copy) || !is_mapped(copy->to, copy->dst, span, true)) {
        return false;
    }
    plane_t plane = plane_of(copy);
    move_rows(&plane);
    return true;
}

aclError copy_now(copy_t *copy) {
    void *to = NULL;
    void *from = NULL;
    bool there = pin_both(copy, &to, &from);
    if (there) {
        fault_pause(sim.settings.copy_latency_ns);
        sim_unlock();
        there = move_outside(copy);
        sim_lock();
    }
    memory_unpin(to);
    memory_unpin(from);
    return there ? ACL_SUCCESS : error_set(RT_DRIVER_ERROR, "address");
}

void copy_classify(copy_t *copy) {
    copy->to = memory_kind(copy->dst);
    copy->from = memory_kind(copy->src);
}

aclError do_aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind) {
    copy_t copy = {.dst = dst, .src = src, .count = count, .height = 1, .kind = kind};
    aclError rc = is_nothing(&copy) ? ACL_SUCCESS : check_copy(&copy, destMax);
    if (rc != ACL_SUCCESS || count == 0 || dst == src) {
        return rc;
    }
    SIM_GUARD();
    const context_t *context = context_need();
    if (context == NULL) {
        rc = RT_CONTEXT_NULL;
    } else {
        copy_classify(&copy);
        rc = capture_forbids(context, "aclrtMemcpy");
        rc = rc == ACL_SUCCESS ? copy_now(&copy) : rc;
    }
    return rc;
}

static aclError take_failure(stream_t *stream) {
    bool live = stream->object.state == OBJECT_LIVE;
    aclError code = live ? stream->fail_next : RT_CONTEXT_NULL;
    stream->fail_next = 0;
    return code != 0 ? code : fault_copy();
}

/* Waits for the work of the stream. Does not wait if the stream is for models, because the work of such a
 * stream does not end. */
static aclError wait_before(const context_t *context, stream_t *stream) {
    aclError rc = ACL_SUCCESS;
    if (!stream_never_completes(stream)) {
        rc = stream_wait(stream, stream->enqueued, SIM_FOREVER, 0);
    }
    rc = rc == ACL_SUCCESS ? take_failure(stream) : rc;
    return rc == ACL_SUCCESS && capture_forbidding(context) ? RT_CAPTURE_BLOCKS_ASYNC : rc;
}

/* With pageable memory, the call waits for the stream and then copies the bytes itself. So the copy is not part
 * of a model to which the stream is bound, and it cannot be captured. */
static aclError copy_pageable(context_t *context, aclrtStream handle, copy_t *copy) {
    stream_t *stream = NULL;
    aclError rc = stream_find(context, handle, &stream);
    if (rc == ACL_SUCCESS && stream->aborting) {
        rc = error_set(RT_STREAM_ABORT, "stream");
    }
    if (rc == ACL_SUCCESS && capture_has(stream)) {
        rc = error_set(RT_PARAM_INVALID, "stream: a copy of pageable memory cannot be captured");
    }
    if (rc == ACL_SUCCESS) {
        object_retain(&stream->object);
        rc = wait_before(context, stream);
        rc = rc != ACL_SUCCESS ? error_set(rc, "stream") : copy_now(copy);
        object_release(&stream->object);
    }
    return rc;
}

/* Copies the source into a new buffer. Called with sim.lock held, which is released during the copy. */
static aclError buffer_source(const copy_t *copy, void **buffer) {
    void *from = NULL;
    if (copy->from != MEMORY_PAGEABLE && !memory_pin_for(copy->src, copy->count, MEMORY_READS, &from)) {
        return error_set(RT_DRIVER_ERROR, "src");
    }
    sim_unlock();
    bool there = source_is_mapped(copy);
    *buffer = there ? malloc(copy->count) : NULL;
    if (*buffer != NULL) {
        memcpy(*buffer, copy->src, copy->count);
    }
    sim_lock();
    memory_unpin(from);
    if (!there) {
        return error_set(RT_DRIVER_ERROR, "src");
    }
    return *buffer != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "count");
}

static aclError describe_plane(const copy_t *copy, task_t *task) {
    plane_t *plane = malloc(sizeof *plane);
    if (plane == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "height");
    }
    *plane = plane_of(copy);
    task->kind = TASK_PLANE;
    task->plane = plane;
    return ACL_SUCCESS;
}

static aclError copy_queued(context_t *context, aclrtStream handle, const copy_t *copy) {
    stream_t *stream = NULL;
    aclError rc = stream_find_own(context, handle, &stream);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    task_t task = {.kind = TASK_COPY, .copy = {.dst = copy->dst, .src = copy->src, .count = copy->count}};
    if (copy->height > 1) {
        rc = describe_plane(copy, &task);
    }
    return rc == ACL_SUCCESS ? stream_enqueue(stream, &task) : rc;
}

/* Whether the direction that the client passes contradicts the kind of the source or target. Pageable memory
 * contradicts no direction. */
static bool side_contradicts(memory_t memory, bool kind_says_device) {
    return memory != MEMORY_PAGEABLE && (memory == MEMORY_DEVICE) != kind_says_device;
}

/* Checks the given direction of a copy with pageable memory. Without pageable memory, the pointers decide, and
 * the direction is not checked. */
static aclError check_pageable(const copy_t *copy) {
    bool to_device = copy->kind == ACL_MEMCPY_HOST_TO_DEVICE || copy->kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    bool from_device = copy->kind == ACL_MEMCPY_DEVICE_TO_HOST || copy->kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    bool with_device = copy->to == MEMORY_DEVICE || copy->from == MEMORY_DEVICE;
    if (copy->kind == ACL_MEMCPY_DEFAULT && with_device) {
        return ACL_SUCCESS;
    }
    if (!with_device && (copy->kind == ACL_MEMCPY_DEFAULT || copy->kind == ACL_MEMCPY_HOST_TO_HOST)) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "kind");
    }
    bool wrong = side_contradicts(copy->to, to_device) || side_contradicts(copy->from, from_device);
    return wrong ? error_set(RT_PARAM_INVALID, "kind") : ACL_SUCCESS;
}

/* The stream is looked up before the source is read, and again afterwards, because the reading releases
 * sim.lock. */
static aclError copy_buffered(context_t *context, aclrtStream handle, const copy_t *copy) {
    stream_t *stream = NULL;
    void *buffer = NULL;
    if (is_host(copy->to) || !is_host(copy->from)) {
        return error_set(RT_PARAM_INVALID, "kind");
    }
    aclError rc = stream_find_own(context, handle, &stream);
    rc = rc == ACL_SUCCESS ? buffer_source(copy, &buffer) : rc;
    if (rc == ACL_SUCCESS) {
        rc = stream_need_own(handle, &stream);
    }
    if (rc != ACL_SUCCESS) {
        free(buffer);
        return rc;
    }
    task_t task = {.kind = TASK_COPY, .copy = {.dst = copy->dst, .count = copy->count, .owned = buffer}};
    return stream_enqueue(stream, &task);
}

aclError copy_async(aclrtStream stream, copy_t *copy) {
    context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    bool onto_itself = copy->dst == copy->src && copy->dpitch == 0; /* then the stream is not checked */
    copy_classify(copy);
    if (copy->to == MEMORY_STALE || copy->from == MEMORY_STALE) {
        usage_note("passes %p, which is freed memory", copy->to == MEMORY_STALE ? copy->dst : copy->src);
        return error_set(RT_DRIVER_ERROR, "address");
    }
    if (copy->kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
        return copy_buffered(context, stream, copy);
    }
    if (copy->to == MEMORY_PAGEABLE || copy->from == MEMORY_PAGEABLE) {
        if (copy->pinned_only) {
            return error_set(RT_PARAM_INVALID, "address: it is not pinned");
        }
        aclError rc = check_pageable(copy);
        return rc == ACL_SUCCESS && !onto_itself ? copy_pageable(context, stream, copy) : rc;
    }
    if (is_host(copy->to) && is_host(copy->from)) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "kind");
    }
    return onto_itself ? ACL_SUCCESS : copy_queued(context, stream, copy);
}

static aclError memcpy_async(copy_t *copy, size_t destMax, aclrtStream stream) {
    aclError rc = is_nothing(copy) ? ACL_SUCCESS : check_copy(copy, destMax);
    if (rc != ACL_SUCCESS || copy->count == 0) {
        return rc;
    }
    SIM_GUARD();
    return copy_async(stream, copy);
}

aclError do_aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind,
                             aclrtStream stream) {
    copy_t copy = {.dst = dst, .src = src, .count = count, .height = 1, .kind = kind};
    return memcpy_async(&copy, destMax, stream);
}

/* Refuses pageable memory: this is the condition in the function's name. */
aclError do_aclrtMemcpyAsyncWithCondition(void *dst, size_t destMax, const void *src, size_t count,
                                          aclrtMemcpyKind kind, aclrtStream stream) {
    copy_t copy = {.dst = dst, .src = src, .count = count, .height = 1, .kind = kind, .pinned_only = true};
    return memcpy_async(&copy, destMax, stream);
}
