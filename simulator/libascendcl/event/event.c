/* Events: creating, recording and resetting events, and waits of streams for events. */
#include "graph.h"

enum {
    FLAG_SYNC = 0x1,
    FLAG_DEVICE_SYNC = 0x4,
    FLAG_LOW_BITS = 0xF,
    FLAG_DEVICE_USE_ONLY = 0x10,
    FLAG_EXTERNAL = 0x20,
    FLAG_IPC = 0x40,
    FLAGS_OF_DEFAULT = 0xE
};

static uint64_t keys; /* the last key given to an event for other processes */

static aclError event_new(aclrtEvent *handle, event_mode_t mode, uint32_t flags) {
    context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    if (mode == EVENT_FLAGGED && flags == FLAG_DEVICE_USE_ONLY) {
        return error_set(RT_FEATURE_NOT_SUPPORT, "flag");
    }
    if (mode == EVENT_EXTENDED && flags == FLAG_IPC && !sim.ipc_event_supported) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "flag");
    }
    bool hardware = mode == EVENT_FLAGGED && (flags & (FLAG_SYNC | FLAG_EXTERNAL)) != 0;
    bool full = hardware && context->device->events == SIM_EVENTS_PER_DEVICE;
    if (full || limit_reached(KIND_EVENT, context->device)) {
        return error_set(RT_NO_EVENT_RESOURCE, "event");
    }
    event_t *event = object_new(KIND_EVENT);
    if (event == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "event");
    }
    context->device->events += hardware ? 1 : 0;
    event->hardware = hardware;
    event->mode = mode;
    event->flags = flags;
    event->context = context;
    event->context_life = context->life;
    event->device = context->device;
    event->key = mode == EVENT_EXTENDED && flags == FLAG_IPC ? ++keys : 0;
    *handle = event;
    return ACL_SUCCESS;
}

static bool flags_valid(event_mode_t mode, uint32_t flags) {
    if (mode == EVENT_FLAGGED && (flags == FLAG_DEVICE_USE_ONLY || flags == FLAG_EXTERNAL)) {
        return true;
    }
    if (mode == EVENT_EXTENDED && flags == FLAG_IPC) {
        return true;
    }
    return flags != 0 && (flags & ~(uint32_t)FLAG_LOW_BITS) == 0;
}

static aclError create(aclrtEvent *event, event_mode_t mode, uint32_t flags) {
    REFUSE_NULL(event);
    if (!flags_valid(mode, flags)) {
        return error_set(RT_PARAM_INVALID, "flag");
    }
    SIM_GUARD();
    return event_new(event, mode, flags);
}

aclError do_aclrtCreateEvent(aclrtEvent *event) {
    return create(event, EVENT_DEFAULT, FLAGS_OF_DEFAULT);
}

aclError do_aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag) {
    return create(event, EVENT_FLAGGED, flag);
}

aclError do_aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag) {
    return create(event, EVENT_EXTENDED, flag);
}

aclError event_find(aclrtEvent handle, event_t **event) {
    *event = object_find(KIND_EVENT, handle);
    if (*event == NULL) {
        return usage_bad_handle(KIND_EVENT, handle);
    }
    thread_uses_in((*event)->context);
    return ACL_SUCCESS;
}

static void forget_record(event_t *event) {
    if (event->record != NULL) {
        record_release(event->record);
        event->record = NULL;
    }
}

aclError event_new_shared(aclrtEvent *handle, uint64_t key) {
    aclError rc = event_new(handle, EVENT_EXTENDED, FLAG_IPC);
    if (rc == ACL_SUCCESS) {
        ((event_t *)*handle)->key = key;
    }
    return rc;
}

/* After a reset and a set, only events without a record use objects that do not exist any more. */
static bool uses_ended_context(const event_t *event) {
    const context_t *context = event->context;
    if (context->object.state != OBJECT_LIVE || context->torn) {
        return true;
    }
    return context->life != event->context_life && event->record == NULL;
}

aclError do_aclrtDestroyEvent(aclrtEvent event) {
    REFUSE_NULL(event);
    event_t *found = NULL;
    SIM_GUARD();
    aclError rc = event_find(event, &found);
    if (rc == ACL_SUCCESS && uses_ended_context(found)) {
        event_crash();
    }
    if (rc == ACL_SUCCESS) {
        forget_record(found);
        found->device->events -= found->hardware ? 1 : 0;
        object_kill(&found->object);
    }
    return rc;
}

/* Called with the event's gate held, so that another RecordEvent of the same event waits. */
static aclError record_in_turn(event_t *event, stream_t *stream) {
    record_t *record = record_new(stream->device);
    if (record == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "event");
    }
    record->stream = stream;
    task_t task = {.kind = TASK_RECORD, .event = {.event = event, .record = record}};
    record_retain(record);
    object_retain(&event->object);
    aclError rc = stream_enqueue(stream, &task);
    if (rc == ACL_SUCCESS && event->object.state == OBJECT_LIVE) {
        event_set_record(event, record);
    }
    record_release(record);
    return rc;
}

static aclError record_on(event_t *event, stream_t *stream, bool external) {
    aclError rc = ACL_SUCCESS;
    object_retain(&event->object);
    object_retain(&stream->object);
    gate_enter(&event->gate);
    if (event->object.state != OBJECT_LIVE || stream->object.state != OBJECT_LIVE) {
        rc = error_set(RT_INVALID_HANDLE, "event");
    } else if (stream->lane != NULL) {
        rc = capture_record(event, stream, external);
    } else {
        rc = external ? error_set(RT_STREAM_NOT_CAPTURED, "stream") : record_in_turn(event, stream);
    }
    gate_leave(&event->gate);
    object_release(&stream->object);
    object_release(&event->object);
    return rc;
}

/* The first record decides how an event is recorded, with the external flag or without it. The first wait
 * decides how the event is waited for. Only an event of aclrtCreateEventExWithFlag(ACL_EVENT_SYNC) accepts the
 * external flag. */
static aclError keep_way(const event_t *event, event_way_t *way, bool external) {
    if (external && (event->mode != EVENT_EXTENDED || event->flags != FLAG_SYNC)) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "event: it was not made for the external flag");
    }
    event_way_t asked = external ? WAY_EXTERNAL : WAY_ORDINARY;
    if (*way != WAY_NONE && *way != asked) {
        return error_set(RT_PARAM_INVALID, "flag: it differs from the flag of the event's first use");
    }
    *way = asked;
    return ACL_SUCCESS;
}

/* The runtime looks for its objects before it checks them, and before it looks for the context. */
static aclError find_both(aclrtEvent event, aclrtStream stream, event_t **found) {
    aclError rc = event_find(event, found);
    return rc == ACL_SUCCESS ? stream_check_handle(stream) : rc;
}

/* Finds the stream of a call that uses the event. A stream that is bound to a model accepts only events of
 * aclrtCreateEventWithFlag. */
static aclError find_target(const event_t *event, aclrtStream handle, stream_t **stream) {
    context_t *context = context_need();
    aclError rc = context != NULL ? stream_find(context, handle, stream) : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS && event->mode != EVENT_FLAGGED && (*stream)->lane != NULL && !capture_has(*stream)) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "stream: it is bound to a model");
    }
    rc = rc == ACL_SUCCESS ? stream_check_launch(context, *stream) : rc;
    if (rc == ACL_SUCCESS && event->key != 0 && graph_takes(*stream)) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "event: an event for other processes cannot be captured");
    }
    return rc;
}

static aclError record(aclrtEvent event, aclrtStream stream, bool external) {
    event_t *found = NULL;
    stream_t *target = NULL;
    SIM_GUARD();
    aclError rc = find_both(event, stream, &found);
    rc = rc == ACL_SUCCESS ? keep_way(found, &found->recorded, external) : rc;
    rc = rc == ACL_SUCCESS ? find_target(found, stream, &target) : rc;
    return rc == ACL_SUCCESS ? record_on(found, target, external) : rc;
}

aclError do_aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
    return event != NULL ? record(event, stream, false) : error_quiet(ACL_INVALID_PARAM, "event");
}

/* The external flag has an effect in a capture only: each execution of the graph then makes the record visible
 * outside of the graph. */
aclError do_aclrtRecordEventWithFlag(aclrtEvent event, aclrtStream stream, uint32_t flag) {
    if (event == NULL || flag > 1) {
        return error_quiet(ACL_INVALID_PARAM, event == NULL ? "event" : "flag");
    }
    return record(event, stream, flag == 1);
}

bool event_is_awaitable(const event_t *event) {
    return (event->flags & (FLAG_SYNC | FLAG_DEVICE_SYNC | FLAG_EXTERNAL | FLAG_IPC)) != 0;
}

aclError do_aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
    REFUSE_NULL(event);
    event_t *found = NULL;
    stream_t *target = NULL;
    SIM_GUARD();
    aclError rc = find_both(event, stream, &found);
    if (rc == ACL_SUCCESS && (!event_is_awaitable(found) || found->key != 0)) {
        rc = error_quiet(RT_FEATURE_NOT_SUPPORT, "event");
    } else if (rc == ACL_SUCCESS && found->mode == EVENT_EXTENDED) {
        rc = context_need() != NULL ? error_quiet(RT_FEATURE_NOT_SUPPORT, "event") : RT_CONTEXT_NULL;
    } else if (rc == ACL_SUCCESS) {
        rc = find_target(found, stream, &target);
        rc = rc == ACL_SUCCESS ? capture_check_event(found, target) : rc;
    }
    if (rc == ACL_SUCCESS) {
        task_t task = {.kind = TASK_RESET_EVENT, .event = {.event = found}};
        object_retain(&found->object);
        rc = stream_enqueue(target, &task);
    }
    return rc;
}

/* Whether the record is on this stream and has not ended. Later tasks of the stream then follow the record
 * without a wait. */
static bool is_behind(const stream_t *stream, const record_t *record) {
    return !record->ended && record->stream == stream;
}

/* A wait for an event with a hardware flag waits for the flag. A wait for any other event waits for the newest
 * record, if this record has not ended. */
aclError event_enqueue_wait(event_t *event, stream_t *stream, uint32_t limit_s) {
    task_t task = {.kind = TASK_WAIT_FLAG,
                   .event = {.event = event},
                   .enqueued_ns = real_ns(),
                   .limit_ns = (int64_t)limit_s * 1000000000};
    if (event->mode != EVENT_FLAGGED) {
        if (event->record == NULL && event->mode == EVENT_DEFAULT) {
            return error_set(RT_PARAM_INVALID, "event");
        }
        if (event->record == NULL || event->record->signalled || is_behind(stream, event->record)) {
            return ACL_SUCCESS;
        }
        task.kind = TASK_WAIT_RECORD;
        task.event.record = event->record;
        record_retain(event->record);
    }
    object_retain(&event->object);
    event->waits++;
    return stream_enqueue(stream, &task);
}

static aclError wait_event(aclrtStream stream, aclrtEvent event, uint32_t limit_s, bool external) {
    event_t *found = NULL;
    stream_t *target = NULL;
    aclError rc = find_both(event, stream, &found);
    if (rc == ACL_SUCCESS && !event_is_awaitable(found)) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "event");
    }
    rc = rc == ACL_SUCCESS ? keep_way(found, &found->waited_for, external) : rc;
    rc = rc == ACL_SUCCESS ? find_target(found, stream, &target) : rc;
    if (rc == ACL_SUCCESS && (target->lane != NULL || (found->captured != NULL && !external))) {
        return capture_wait(found, target, external);
    }
    if (rc == ACL_SUCCESS && external) {
        return error_set(RT_STREAM_NOT_CAPTURED, "stream");
    }
    return rc == ACL_SUCCESS ? event_enqueue_wait(found, target, limit_s) : rc;
}

aclError do_aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
    REFUSE_NULL(event);
    SIM_GUARD();
    return wait_event(stream, event, sim.wait_limit_s, false);
}

aclError do_aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout) {
    if (timeout < 0) {
        return error_quiet(RT_PARAM_INVALID, "timeout");
    }
    SIM_GUARD();
    aclError rc = stream_check_handle(stream);
    if (rc == ACL_SUCCESS) {
        RUNTIME_REFUSES_NULL(event);
        rc = wait_event(stream, event, (uint32_t)timeout, false);
    }
    return rc;
}

aclError do_aclrtStreamWaitEventWithFlag(aclrtStream stream, aclrtEvent event, uint32_t timeout,
                                         uint32_t flag) {
    if (event == NULL || flag > 1) {
        return error_quiet(ACL_INVALID_PARAM, event == NULL ? "event" : "flag");
    }
    if (flag == 1 && timeout != 0) {
        return error_quiet(ACL_INVALID_PARAM, "timeout");
    }
    SIM_GUARD();
    return wait_event(stream, event, timeout, flag == 1);
}
