/* Queries of events, waits for events, and the times of events. */
#include "sim.h"

enum { FLAG_EXTERNAL = 0x20, FLAG_TIME_LINE = 0x8, FLAG_SYNC = 0x1 };

static aclError find_timed(aclrtEvent handle, event_t **event) {
    aclError rc = event_find(handle, event);
    bool external = rc == ACL_SUCCESS && ((*event)->flags & FLAG_EXTERNAL) != 0;
    if (rc == ACL_SUCCESS && (*event)->captured != NULL) {
        return error_set(RT_EVENT_CAPTURED, "event");
    }
    return external ? error_quiet(RT_FEATURE_NOT_SUPPORT, "event") : rc;
}

/* Finds an event for a query or a wait. The caller needs no current context, but the event's own context must
 * be alive. From master on, a primary context that was reset and set again counts as alive. */
static aclError find_asked(aclrtEvent handle, event_t **event) {
    aclError rc = find_timed(handle, event);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    const context_t *context = (*event)->context;
    bool same =
        (context->primary && sim.settings.cann >= CANN_MASTER) || context->life == (*event)->context_life;
    if (context->object.state != OBJECT_LIVE || context->torn || !same) {
        event_crash();
        return error_set(RT_CONTEXT_NULL, "event");
    }
    return context->failure != 0 ? error_set(context->failure, "event") : ACL_SUCCESS;
}

static bool pending(const event_t *event) {
    return event->record != NULL && !event->record->ended;
}

aclError do_aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status) {
    REFUSE_NULL(event);
    REFUSE_NULL(status);
    event_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_asked(event, &found);
    if (rc == ACL_SUCCESS) {
        bool complete = found->record != NULL ? !pending(found) : found->mode == EVENT_EXTENDED;
        *status = complete ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    }
    return rc;
}

static aclError find_old_mode(aclrtEvent handle, event_t **event) {
    aclError rc = find_asked(handle, event);
    bool extended = rc == ACL_SUCCESS && (*event)->mode == EVENT_EXTENDED;
    return extended ? error_quiet(RT_FEATURE_NOT_SUPPORT, "event") : rc;
}

/* Whether this query lags. Queries lag only if a test has called aclsim_set_query_lag(). */
static bool lags(record_t *record) {
    bool lags = sim.query_lag && record->ended && !record->lagged;
    record->lagged = record->lagged || lags;
    return lags;
}

/* Returns what the host sees before this query wakes the recycle thread. So the first query after a record
 * always wakes the thread, even if the device has already ended the record. */
static bool old_query(const event_t *event) {
    record_t *record = event->record;
    if (record == NULL) {
        return true;
    }
    bool by_host = event->mode == EVENT_FLAGGED && (event->flags & FLAG_SYNC) != 0;
    bool unseen = by_host && !recycler_seen(record->device, record->round);
    bool complete = record->ended && !unseen && !lags(record);
    if ((by_host && !complete) || ((event->flags & FLAG_TIME_LINE) != 0 && complete)) {
        recycler_wake(record->device);
    }
    return complete;
}

aclError do_aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status) {
    REFUSE_NULL(event);
    REFUSE_NULL(status);
    event_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_old_mode(event, &found);
    if (rc == ACL_SUCCESS) {
        *status = old_query(found) ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
    }
    return rc;
}

aclError do_aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status) {
    REFUSE_NULL(event);
    REFUSE_NULL(status);
    event_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_old_mode(event, &found);
    if (rc == ACL_SUCCESS) {
        *status = found->waits > 0 ? ACL_EVENT_WAIT_STATUS_NOT_READY : ACL_EVENT_WAIT_STATUS_COMPLETE;
    }
    return rc;
}

static aclError wait_record(record_t *record, int64_t deadline_ns) {
    waiter_t waiter;
    device_t *device = record->device;
    record_retain(record);
    recycler_keep_awake(device);
    wait_add(&record->waiters, &waiter, 0);
    waiter.untimed = deadline_ns == SIM_FOREVER;
    bool ended = wait_for(&waiter, deadline_ns);
    recycler_let_sleep(device);
    record_release(record);
    return ended ? waiter.rc : RT_EVENT_SYNC_TIMEOUT;
}

static aclError synchronize(aclrtEvent event, int64_t deadline_ns) {
    event_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_asked(event, &found);
    if (rc == ACL_SUCCESS && pending(found)) {
        const context_t *context = found->context;
        rc = wait_record(found->record, deadline_ns);
        rc = rc == ACL_SUCCESS ? context->failure : rc; /* a task has failed meanwhile, in STOP mode */
        rc = rc != ACL_SUCCESS ? error_set(rc, "event") : ACL_SUCCESS;
    } else if (rc == ACL_SUCCESS && found->record != NULL) {
        recycler_wake(found->record->device);
    }
    return rc;
}

aclError do_aclrtSynchronizeEvent(aclrtEvent event) {
    return event != NULL ? synchronize(event, SIM_FOREVER) : error_quiet(ACL_INVALID_PARAM, "event");
}

aclError do_aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
    if (timeout < -1) {
        return error_quiet(RT_PARAM_INVALID, "timeout");
    }
    REFUSE_NULL(event);
    return timeout != 0 ? synchronize(event, deadline_ms(timeout)) : error_set(RT_PARAM_INVALID, "timeout");
}

static aclError stamp_of(const event_t *event, int64_t *stamp_ns) {
    if (!event->record->ended || (event->flags & FLAG_TIME_LINE) == 0) {
        return error_set(RT_EVENT_TIMESTAMP_INVALID, "event");
    }
    *stamp_ns = event->record->stamp_ns;
    return ACL_SUCCESS;
}

static aclError find_recorded(aclrtEvent handle, event_t **event) {
    aclError rc = find_timed(handle, event);
    if (rc == ACL_SUCCESS && (*event)->key != 0) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "event: it is for other processes");
    }
    bool never = rc == ACL_SUCCESS && (*event)->record == NULL;
    return never ? error_set(RT_INTERNAL_ERROR, "event: it was never recorded") : rc;
}

aclError do_aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent) {
    if (ms == NULL || startEvent == NULL || endEvent == NULL) {
        return error_quiet(ACL_INVALID_PARAM, ms == NULL ? "ms" : "event");
    }
    event_t *start = NULL;
    event_t *end = NULL;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    SIM_GUARD();
    aclError rc = find_recorded(startEvent, &start);
    rc = rc == ACL_SUCCESS ? find_recorded(endEvent, &end) : rc;
    rc = rc == ACL_SUCCESS ? stamp_of(start, &start_ns) : rc;
    rc = rc == ACL_SUCCESS ? stamp_of(end, &end_ns) : rc;
    if (rc == ACL_SUCCESS) {
        *ms = (float)((double)(end_ns - start_ns) / 1e6);
    }
    return rc;
}

aclError do_aclrtEventGetTimestamp(aclrtEvent event, uint64_t *timestamp) {
    REFUSE_NULL(event);
    REFUSE_NULL(timestamp);
    event_t *found = NULL;
    int64_t stamp_ns = 0;
    SIM_GUARD();
    aclError rc = find_recorded(event, &found);
    rc = rc == ACL_SUCCESS ? stamp_of(found, &stamp_ns) : rc;
    if (rc == ACL_SUCCESS) {
        *timestamp = (uint64_t)stamp_ns / 1000;
    }
    return rc;
}

/* Whether the event has an id. The id belongs to the hardware event, which an event takes at creation or at the
 * first record.
 */
static bool has_id(const event_t *event) {
    if (event->mode == EVENT_FLAGGED) {
        return event->hardware;
    }
    return event->mode == EVENT_DEFAULT && event->record != NULL;
}

aclError do_aclrtGetEventId(aclrtEvent event, uint32_t *eventId) {
    REFUSE_NULL(event);
    REFUSE_NULL(eventId);
    event_t *found = NULL;
    SIM_GUARD();
    aclError rc = event_find(event, &found);
    if (rc == ACL_SUCCESS && found->key != 0) {
        rc = error_quiet(RT_FEATURE_NOT_SUPPORT, "event: it is for other processes");
    } else if (rc == ACL_SUCCESS && !has_id(found)) {
        rc = error_set(RT_INTERNAL_ERROR, "event: it has no id");
    }
    if (rc == ACL_SUCCESS) {
        *eventId = found->object.index;
    }
    return rc;
}
