/* Copies and fills, at once and through a stream. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

typedef struct {
    void *dst;
    const void *src;
    size_t count;
    aclrtMemcpyKind kind;
    memory_t to;
    memory_t from;
} copy_t;

static bool is_host(memory_t kind) {
    return kind == MEMORY_PINNED || kind == MEMORY_PAGEABLE;
}

/* An argument that both copies refuse; count 0 needs nothing of the pointers, and was refused before 9.1. */
static aclError check_copy(const copy_t *copy, size_t destMax) {
    if ((unsigned int)copy->kind > ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
        return error_quiet(ACL_INVALID_PARAM, "kind");
    }
    bool nothing = copy->count == 0 && sim.settings.cann >= CANN_9_1;
    if (!nothing && (copy->dst == NULL || copy->src == NULL)) {
        return error_quiet(ACL_INVALID_PARAM, copy->dst == NULL ? "dst" : "src");
    }
    bool refused = copy->count > destMax || (copy->count == 0 && !nothing);
    return refused ? error_set(RT_PARAM_INVALID, "count") : ACL_SUCCESS;
}

/* Pageable memory has no block; whether it is there is between the client and the kernel. */
static bool pin(const void *pointer, memory_t kind, size_t count, void **block) {
    *block = NULL;
    return kind == MEMORY_PAGEABLE || memory_pin(pointer, count, block);
}

static bool pin_both(const copy_t *copy, void **to, void **from) {
    *from = NULL;
    return pin(copy->dst, copy->to, copy->count, to) && pin(copy->src, copy->from, copy->count, from);
}

/* With sim.lock held, which is given up for the copy itself. */
static aclError copy_now(copy_t *copy) {
    void *to = NULL;
    void *from = NULL;
    bool there = pin_both(copy, &to, &from);
    if (there) {
        fault_pause(sim.settings.copy_latency_ns);
        sim_unlock();
        memmove(copy->dst, copy->src, copy->count);
        sim_lock();
    }
    memory_unpin(to);
    memory_unpin(from);
    return there ? ACL_SUCCESS : error_set(RT_DRIVER_ERROR, "address");
}

aclError do_aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind) {
    copy_t copy = {.dst = dst, .src = src, .count = count, .kind = kind};
    aclError rc = check_copy(&copy, destMax);
    if (rc != ACL_SUCCESS || count == 0) {
        return rc;
    }
    sim_lock();
    if (context_need() == NULL) {
        rc = RT_CONTEXT_NULL;
    } else {
        copy.to = memory_kind(dst);
        copy.from = memory_kind(src);
        rc = copy_now(&copy);
    }
    sim_unlock();
    return rc;
}

static aclError take_failure(stream_t *stream) {
    bool live = stream->object.state == OBJECT_LIVE;
    aclError code = live ? stream->fail_next : RT_CONTEXT_NULL;
    stream->fail_next = 0;
    return code != 0 ? code : fault_copy();
}

/* Pageable memory makes the call wait for the stream, and the copy happen inside the call. */
static aclError copy_pageable(context_t *context, aclrtStream handle, copy_t *copy) {
    stream_t *stream = NULL;
    aclError rc = stream_find(context, handle, &stream);
    if (rc == ACL_SUCCESS && stream->aborting) {
        rc = error_set(RT_STREAM_ABORT, "stream");
    }
    if (rc == ACL_SUCCESS) {
        object_retain(&stream->object);
        rc = stream_wait(stream, stream->enqueued, SIM_FOREVER, 0);
        rc = rc == ACL_SUCCESS ? take_failure(stream) : rc;
        rc = rc != ACL_SUCCESS ? error_set(rc, "stream") : copy_now(copy);
        object_release(&stream->object);
    }
    return rc;
}

static aclError copy_queued(context_t *context, aclrtStream handle, const copy_t *copy) {
    stream_t *stream = NULL;
    aclError rc = stream_find_own(context, handle, &stream);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    task_t task = {.kind = TASK_COPY, .copy = {.dst = copy->dst, .src = copy->src, .count = copy->count}};
    if (copy->kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
        task.copy.owned = malloc(copy->count);
        if (task.copy.owned == NULL) {
            return error_set(RT_MEMORY_ALLOCATION, "count");
        }
        memcpy(task.copy.owned, copy->src, copy->count);
    }
    return stream_enqueue(stream, &task);
}

/* Pageable memory may stand for either side. */
static bool side_contradicts(memory_t memory, bool kind_says_device) {
    return memory != MEMORY_PAGEABLE && (memory == MEMORY_DEVICE) != kind_says_device;
}

/* With pageable memory the named direction decides, with pinned memory the pointers do. */
static aclError check_pageable(const copy_t *copy) {
    bool to_device = copy->kind == ACL_MEMCPY_HOST_TO_DEVICE || copy->kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    bool from_device = copy->kind == ACL_MEMCPY_DEVICE_TO_HOST || copy->kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    if (copy->kind == ACL_MEMCPY_DEFAULT && (copy->to == MEMORY_DEVICE || copy->from == MEMORY_DEVICE)) {
        return ACL_SUCCESS;
    }
    if (copy->kind == ACL_MEMCPY_DEFAULT || copy->kind == ACL_MEMCPY_HOST_TO_HOST) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "kind");
    }
    bool wrong = side_contradicts(copy->to, to_device) || side_contradicts(copy->from, from_device);
    return wrong ? error_set(RT_PARAM_INVALID, "kind") : ACL_SUCCESS;
}

static aclError copy_buffered(context_t *context, aclrtStream stream, const copy_t *copy) {
    if (is_host(copy->to) || !is_host(copy->from)) {
        return error_set(RT_PARAM_INVALID, "kind");
    }
    return copy_queued(context, stream, copy);
}

static aclError copy_async(aclrtStream stream, copy_t *copy) {
    context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    copy->to = memory_kind(copy->dst);
    copy->from = memory_kind(copy->src);
    if (copy->to == MEMORY_STALE || copy->from == MEMORY_STALE) {
        referee_note("passes %p, which is freed memory", copy->to == MEMORY_STALE ? copy->dst : copy->src);
        return error_set(RT_DRIVER_ERROR, "address");
    }
    if (copy->kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
        return copy_buffered(context, stream, copy);
    }
    if (copy->to == MEMORY_PAGEABLE || copy->from == MEMORY_PAGEABLE) {
        aclError rc = check_pageable(copy);
        return rc == ACL_SUCCESS ? copy_pageable(context, stream, copy) : rc;
    }
    if (is_host(copy->to) && is_host(copy->from)) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "kind");
    }
    return copy_queued(context, stream, copy);
}

aclError do_aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind,
                             aclrtStream stream) {
    copy_t copy = {.dst = dst, .src = src, .count = count, .kind = kind};
    aclError rc = check_copy(&copy, destMax);
    if (rc != ACL_SUCCESS || count == 0) {
        return rc;
    }
    sim_lock();
    rc = copy_async(stream, &copy);
    sim_unlock();
    return rc;
}

/* The caller's context, with the length checked after it. */
static aclError check_set(size_t maxCount, size_t count, context_t **context) {
    if (count == 0 && sim.settings.cann < CANN_9_1) {
        return error_set(RT_PARAM_INVALID, "count");
    }
    *context = context_need();
    if (*context == NULL) {
        return RT_CONTEXT_NULL;
    }
    return count > maxCount ? error_set(RT_PARAM_INVALID, "count") : ACL_SUCCESS;
}

static aclError set_now(void *devPtr, int32_t value, size_t count) {
    void *block = NULL;
    if (count == 0) {
        return ACL_SUCCESS;
    }
    if (!memory_pin(devPtr, count, &block)) {
        return error_set(RT_DRIVER_ERROR, "devPtr");
    }
    sim_unlock();
    memset(devPtr, value, count);
    sim_lock();
    memory_unpin(block);
    return ACL_SUCCESS;
}

aclError do_aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count) {
    if (devPtr == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "devPtr");
    }
    context_t *context = NULL;
    sim_lock();
    aclError rc = check_set(maxCount, count, &context);
    rc = rc == ACL_SUCCESS ? set_now(devPtr, value, count) : rc;
    sim_unlock();
    return rc;
}

aclError do_aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
    if (devPtr == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "devPtr");
    }
    context_t *context = NULL;
    stream_t *target = NULL;
    sim_lock();
    aclError rc = check_set(maxCount, count, &context);
    rc = rc == ACL_SUCCESS ? stream_find_own(context, stream, &target) : rc;
    if (rc == ACL_SUCCESS && count != 0) {
        task_t task = {.kind = TASK_SET, .set = {.dst = devPtr, .count = count, .value = value}};
        rc = stream_enqueue(target, &task);
    }
    sim_unlock();
    return rc;
}
