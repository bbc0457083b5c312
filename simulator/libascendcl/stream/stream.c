/* Streams: creating, finding and ending them. */
#include <stdlib.h>

#include "graph.h"

enum { FLAG_DEVICE_USE_ONLY = 0x20, PRIORITY_LEAST = 7, LAST_ID = SIM_STREAM_IDS - 1 };

/* Rings are large, so freed rings are reused. The ring that was freed last is reused first. */
typedef union ring {
    union ring *next;
    task_t tasks[SIM_RING];
} ring_t;

static ring_t *free_rings;

static task_t *ring_take(void) {
    ring_t *ring = free_rings;
    if (ring == NULL) {
        ring = malloc(sizeof *ring);
        return ring != NULL ? ring->tasks : NULL;
    }
    free_rings = ring->next;
    return ring->tasks;
}

static void ring_give(task_t *tasks) {
    ring_t *ring = (ring_t *)(void *)tasks;
    ring->next = free_rings;
    free_rings = ring;
}

static bool id_used(const device_t *device, uint32_t id) {
    return (device->stream_ids[id / 64] >> id % 64 & 1) != 0;
}

/* Returns the first free id behind `id`. After the last id, the ids begin again with 1. */
static uint32_t id_behind(const device_t *device, uint32_t id) {
    do {
        id = id % LAST_ID + 1;
    } while (id_used(device, id));
    return id;
}

/* Id 0 of a device belongs to the default stream of its primary context. The default stream of another context
 * takes the lowest free id, even if an ended stream had it. The other ids are given in turn: so a new stream,
 * which often has the handle of an ended stream, has another id. */
static uint32_t id_take(const context_t *context) {
    device_t *device = context->device;
    bool is_default = context->default_stream == NULL;
    if (context->primary && is_default) {
        return 0;
    }
    uint32_t id = id_behind(device, is_default ? 0 : device->last_id);
    device->stream_ids[id / 64] |= 1ULL << id % 64;
    device->last_id = is_default ? device->last_id : id;
    return id;
}

static void id_give(device_t *device, uint32_t id) {
    device->stream_ids[id / 64] &= ~(1ULL << id % 64);
}

stream_t *stream_new(context_t *context, uint32_t priority, uint32_t flags) {
    bool room = context->device->streams < SIM_STREAMS_PER_DEVICE;
    stream_t *stream = room ? object_new(KIND_STREAM) : NULL;
    if (stream == NULL) {
        return NULL;
    }
    stream->ring = ring_take();
    if (stream->ring == NULL) {
        object_kill(&stream->object);
        return NULL;
    }
    stream->context = context;
    stream->device = context->device;
    stream->device->streams++;
    stream->id = id_take(context);
    stream->priority = priority;
    stream->flags = flags;
    return stream;
}

static void link_stream(stream_t *stream) {
    context_t *context = stream->context;
    stream->next = context->streams;
    if (stream->next != NULL) {
        stream->next->prev = stream;
    }
    context->streams = stream;
}

static void unlink_stream(stream_t *stream) {
    if (stream->prev != NULL) {
        stream->prev->next = stream->next;
    } else if (!stream->is_default && !stream->hidden) {
        stream->context->streams = stream->next;
    }
    if (stream->next != NULL) {
        stream->next->prev = stream->prev;
    }
}

void stream_free(stream_t *stream) {
    usage_gone(stream);
    if (stream->lane != NULL) {
        graph_lose_stream(stream);
    }
    if (stream->updating != NULL) {
        stream->updating->updater = NULL;
    }
    unlink_stream(stream);
    report_unsubscribe(stream);
    allocator_forget(stream);
    hostsubscribe_forget(stream);
    stream->device->streams--;
    id_give(stream->device, stream->id);
    ring_give(stream->ring);
    stream->ring = NULL;
    object_kill(&stream->object);
}

aclError stream_find(context_t *context, aclrtStream handle, stream_t **stream) {
    *stream = handle == NULL ? context->default_stream : object_find(KIND_STREAM, handle);
    if (*stream == NULL) {
        return handle == NULL ? error_set(RT_CONTEXT_NULL, "stream") : usage_bad_handle(KIND_STREAM, handle);
    }
    thread_uses_in((*stream)->context);
    return ACL_SUCCESS;
}

aclError stream_need(aclrtStream handle, stream_t **stream) {
    context_t *context = context_need();
    return context != NULL ? stream_find(context, handle, stream) : RT_CONTEXT_NULL;
}

aclError stream_check_handle(aclrtStream handle) {
    bool valid = handle == NULL || object_find(KIND_STREAM, handle) != NULL;
    return valid ? ACL_SUCCESS : usage_bad_handle(KIND_STREAM, handle);
}

aclError stream_find_handle(aclrtStream handle, stream_t **stream) {
    return handle != NULL ? stream_find(NULL, handle, stream) : stream_need(handle, stream);
}

aclError stream_need_idle(aclrtStream handle, stream_t **stream) {
    const stream_t *found = handle != NULL ? object_find(KIND_STREAM, handle) : NULL;
    aclError rc = found != NULL ? capture_check_asked(found) : ACL_SUCCESS;
    return rc == ACL_SUCCESS ? stream_need(handle, stream) : rc;
}

aclError stream_check_launch(context_t *context, stream_t *stream) {
    if (stream->context != context) {
        return usage_wrong_context(stream);
    }
    if (stream->hidden) {
        return error_set(RT_STREAM_MODEL, "stream: it belongs to a model");
    }
    if (context->failure != 0) {
        return error_set(context->failure, "stream");
    }
    if (stream->device->aborting) {
        return error_set(RT_DEVICE_TASK_ABORT, "stream");
    }
    return stream->aborting ? error_set(RT_STREAM_ABORT, "stream") : ACL_SUCCESS;
}

aclError stream_find_own(context_t *context, aclrtStream handle, stream_t **stream) {
    aclError rc = stream_find(context, handle, stream);
    return rc != ACL_SUCCESS ? rc : stream_check_launch(context, *stream);
}

aclError stream_need_own(aclrtStream handle, stream_t **stream) {
    context_t *context = context_need();
    return context != NULL ? stream_find_own(context, handle, stream) : RT_CONTEXT_NULL;
}

static aclError create(aclrtStream *handle, uint32_t priority, uint32_t flags) {
    context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    gate_enter(&context->gate);
    aclError rc = ACL_SUCCESS;
    stream_t *stream = NULL;
    if (!context_usable(context) || context->torn) {
        rc = error_set(RT_CONTEXT_NULL, "current context");
    } else {
        bool room = !limit_reached(KIND_STREAM, context->device);
        stream = room ? stream_new(context, priority, flags) : NULL;
        rc = stream != NULL ? ACL_SUCCESS : error_set(RT_NO_STREAM_RESOURCE, "stream");
    }
    if (stream != NULL) {
        link_stream(stream);
        *handle = stream;
    }
    gate_leave(&context->gate);
    if (stream != NULL) {
        state_stream(stream, ACL_RT_STREAM_STATE_CREATE_POST);
    }
    return rc;
}

aclError do_aclrtCreateStream(aclrtStream *stream) {
    return do_aclrtCreateStreamWithConfig(stream, 0, 0);
}

aclError do_aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag) {
    REFUSE_NULL(stream);
    if (flag == FLAG_DEVICE_USE_ONLY) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "flag");
    }
    if ((flag & FLAG_DEVICE_USE_ONLY) != 0) {
        return error_set(RT_PARAM_INVALID, "flag");
    }
    uint32_t clamped = priority > PRIORITY_LEAST ? PRIORITY_LEAST : priority;
    SIM_GUARD();
    return create(stream, (int32_t)priority < 0 ? 0 : clamped, flag);
}

static aclError wait_empty(stream_t *stream, bool force) {
    if (force || stream->device->health.fault_state != HEALTH_WELL) {
        stream_drain_or_drop(stream, sim.settings.reset_drop_ns);
    } else if (stream->ended < stream->enqueued) {
        stream->draining = true;
        stream_wait(stream, stream->enqueued, SIM_FOREVER, 0);
    }
    return stream->object.state == OBJECT_LIVE ? ACL_SUCCESS : error_set(RT_CONTEXT_NULL, "stream");
}

/* Takes and releases the stream lock before the wait for the stream's work, and takes the lock again to end the
 * stream. The lock is not held during the wait. */
static aclError destroy_live(stream_t *stream, bool force) {
    context_t *context = stream->context;
    usage_destroy(stream);
    stream->dying = true;
    object_retain(&stream->object);
    state_stream(stream, ACL_RT_STREAM_STATE_DESTROY_PRE);
    gate_enter(&context->gate);
    gate_leave(&context->gate);
    aclError rc = stream->object.state == OBJECT_LIVE ? wait_empty(stream, force) : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS) {
        gate_enter(&context->gate);
        fault_teardown();
        if (stream->object.state == OBJECT_LIVE) {
            stream_drop(stream, 0, RT_CONTEXT_NULL);
            stream_free(stream);
        }
        gate_leave(&context->gate);
    }
    object_release(&stream->object);
    return rc;
}

static aclError destroy(aclrtStream handle, bool force) {
    stream_t *stream = object_find(KIND_STREAM, handle);
    aclError captured = stream != NULL ? capture_check_asked(stream) : ACL_SUCCESS;
    if (captured != ACL_SUCCESS) {
        return captured;
    }
    const context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    if (stream == NULL || stream->dying) {
        return usage_bad_handle(KIND_STREAM, handle);
    }
    thread_uses_in(stream->context);
    if (stream->context != context) {
        return usage_wrong_context(stream);
    }
    if (stream->hidden || stream->lane != NULL) {
        return error_set(RT_STREAM_MODEL, "stream");
    }
    if (stream->is_default) {
        usage_note("destroys the default stream %p, which stays alive", handle);
        return ACL_SUCCESS;
    }
    return destroy_live(stream, force);
}

static aclError destroy_locked(aclrtStream stream, bool force) {
    REFUSE_NULL(stream);
    SIM_GUARD();
    return destroy(stream, force);
}

aclError do_aclrtDestroyStream(aclrtStream stream) {
    return destroy_locked(stream, false);
}

aclError do_aclrtDestroyStreamForce(aclrtStream stream) {
    return destroy_locked(stream, true);
}
