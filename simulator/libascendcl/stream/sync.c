/* Waits for streams and devices, and aborts of streams. */
#include "work.h"

static aclError take_error(stream_t *stream) {
    aclError code = stream->context->failure != 0 ? stream->context->failure : stream->error;
    if (stream->error != 0) {
        error_explain(stream->error, stream->why);
    }
    stream->error = 0;
    return code;
}

static aclError wait_as(stream_t *stream, uint64_t target, int64_t deadline_ns, aclError timeout_rc,
                        bool whole) {
    device_t *device = stream->device;
    waiter_t waiter;
    if (stream->ended >= target) {
        if (!recycler_seen(device, stream->end_round)) {
            recycler_wake(device);
        }
        pool_trim_all();
        return take_error(stream);
    }
    recycler_keep_awake(device);
    wait_add(&stream->waiters, &waiter, target);
    waiter.untimed = deadline_ns == SIM_FOREVER && atomic_load(&thread_self()->syncing) == stream;
    waiter.whole = deadline_ns == SIM_FOREVER && whole;
    bool ended = wait_for(&waiter, deadline_ns);
    recycler_let_sleep(device);
    if (ended) {
        pool_trim_all();
    }
    if (!ended) {
        return timeout_rc;
    }
    error_explain(waiter.rc, waiter.why);
    return waiter.rc;
}

aclError stream_wait(stream_t *stream, uint64_t target, int64_t deadline_ns, aclError timeout_rc) {
    return wait_as(stream, target, deadline_ns, timeout_rc, false);
}

static aclError sync_stream(aclrtStream handle, int64_t deadline_ns) {
    stream_t *stream = NULL;
    aclError rc = stream_need_idle(handle, &stream);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (stream->device->aborting) {
        return error_set(RT_DEVICE_TASK_ABORT, "stream");
    }
    if (stream->aborting) {
        return error_set(RT_STREAM_ABORT, "stream");
    }
    if (stream_never_completes(stream)) {
        return ACL_SUCCESS;
    }
    thread_t *thread = thread_self();
    atomic_store(&thread->syncing, stream);
    rc = stream_wait(stream, stream->enqueued, deadline_ns, RT_STREAM_SYNC_TIMEOUT);
    atomic_store(&thread->syncing, NULL);
    return rc != ACL_SUCCESS ? error_set(rc, "stream") : ACL_SUCCESS;
}

aclError do_aclrtSynchronizeStream(aclrtStream stream) {
    SIM_GUARD();
    return sync_stream(stream, SIM_FOREVER);
}

/* -1 means no time-out. The ACL layer refuses other negative values, and sets no last error. The runtime layer
 * refuses 0, and sets the last error. */
static aclError check_timeout(int32_t timeout) {
    if (timeout < -1) {
        return error_quiet(RT_PARAM_INVALID, "timeout");
    }
    return timeout == 0 ? error_set(RT_PARAM_INVALID, "timeout") : ACL_SUCCESS;
}

aclError do_aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
    aclError rc = check_timeout(timeout);
    if (rc == ACL_SUCCESS) {
        int64_t deadline_ns = deadline_ms(timeout);
        SIM_GUARD();
        rc = sync_stream(stream, deadline_ns);
    }
    return rc;
}

static aclError sync_one(stream_t *stream, int64_t deadline_ns) {
    return wait_as(stream, stream->sync_target, deadline_ns, RT_STREAM_SYNC_TIMEOUT, true);
}

static aclError sync_each(context_t *context, int64_t deadline_ns) {
    stream_t *stream = context->default_stream;
    aclError rc = sync_one(stream, deadline_ns);
    for (stream = context->streams; stream != NULL && rc == ACL_SUCCESS; stream = stream->next) {
        if (stream->aborting) {
            return RT_STREAM_ABORT;
        }
        if (!stream_never_completes(stream)) {
            rc = sync_one(stream, deadline_ns);
        }
    }
    return rc;
}

/* The stream lock is held until the end, so that no stream of the context is created or destroyed during the
 * call. */
static aclError sync_device(int64_t deadline_ns) {
    context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    if (!gate_enter_until(&context->gate, deadline_ns)) {
        return error_set(RT_STREAM_SYNC_TIMEOUT, "device");
    }
    aclError rc = RT_CONTEXT_NULL;
    if (context_usable(context) && !context->torn) {
        context->default_stream->sync_target = context->default_stream->enqueued;
        rc = ACL_SUCCESS;
        for (stream_t *stream = context->streams; stream != NULL; stream = stream->next) {
            stream->sync_target = stream->enqueued;
            rc = capture_has(stream) ? RT_STREAM_CAPTURED : rc;
        }
        rc = rc == ACL_SUCCESS ? context->failure : rc;
        rc = rc == ACL_SUCCESS ? sync_each(context, deadline_ns) : rc;
    }
    gate_leave(&context->gate);
    return rc != ACL_SUCCESS ? error_set(rc, "device") : ACL_SUCCESS;
}

aclError do_aclrtSynchronizeDevice(void) {
    SIM_GUARD();
    return sync_device(SIM_FOREVER);
}

aclError do_aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
    aclError rc = check_timeout(timeout);
    if (rc == ACL_SUCCESS) {
        int64_t deadline_ns = deadline_ms(timeout);
        SIM_GUARD();
        rc = sync_device(deadline_ns);
    }
    return rc;
}

void stream_wake_all(stream_t *stream, aclError rc) {
    for (uint64_t i = stream->ended; i < stream->enqueued; i++) {
        task_t *task = &stream->ring[i % SIM_RING];
        if (task->kind == TASK_RECORD) {
            wait_finish_all(&task->event.record->waiters, rc);
        }
    }
    wait_finish_all(&stream->waiters, rc);
    wait_finish_all(&stream->room, rc);
}

/* Calls that wait for the stream return at once, and so does a SynchronizeDevice that holds the stream lock. */
void stream_announce_abort(stream_t *stream, aclError code) {
    stream->aborting = true;
    stream_wake_all(stream, code);
}

void stream_finish_abort(stream_t *stream, aclError code) {
    context_t *context = stream->context;
    object_retain(&stream->object);
    gate_enter(&context->gate);
    if (stream->object.state == OBJECT_LIVE) {
        stream_drop(stream, code, code);
        stream->aborting = false;
    }
    gate_leave(&context->gate);
    object_release(&stream->object);
}

aclError do_aclrtStreamAbort(aclrtStream stream) {
    if (stream == NULL) {
        return error_set(RT_PARAM_INVALID, "stream");
    }
    stream_t *found = NULL;
    SIM_GUARD();
    context_t *context = context_need();
    aclError rc = context != NULL ? stream_find(context, stream, &found) : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS && found->context != context) {
        rc = usage_wrong_context(found);
    } else if (rc == ACL_SUCCESS && !sim.abort_supported) {
        rc = error_set(RT_FEATURE_NOT_SUPPORT, "stream");
    } else if (rc == ACL_SUCCESS) {
        stream_announce_abort(found, RT_STREAM_ABORT);
        stream_finish_abort(found, RT_STREAM_ABORT);
    }
    return rc;
}
