/* Notifies: binary flags that one stream sets and another consumes. */
#include "sim.h"

enum { FLAG_DEVICE_USE_ONLY = 1, NOTIFIES_PER_DEVICE = 8192 };

notify_t *notify_new(device_t *device) {
    bool room = device->notifies < NOTIFIES_PER_DEVICE && !limit_reached(KIND_NOTIFY, device);
    notify_t *notify = room ? object_new(KIND_NOTIFY) : NULL;
    if (notify != NULL) {
        notify->device = device;
        device->notifies++;
    }
    return notify;
}

aclError do_aclrtCreateNotify(aclrtNotify *notify, uint64_t flag) {
    REFUSE_NULL(notify);
    if (flag > FLAG_DEVICE_USE_ONLY) {
        return error_set(RT_PARAM_INVALID, "flag");
    }
    SIM_GUARD();
    const context_t *context = thread_context();
    if (context == NULL) {
        return error_quiet(RT_CONTEXT_NULL, "current context");
    }
    if (flag == FLAG_DEVICE_USE_ONLY) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "flag");
    }
    notify_t *made = notify_new(context->device);
    if (made == NULL) {
        return error_set(RT_NO_NOTIFY_RESOURCE, "notify");
    }
    *notify = made;
    return ACL_SUCCESS;
}

aclError notify_find(aclrtNotify handle, notify_t **notify) {
    *notify = object_find(KIND_NOTIFY, handle);
    if (*notify == NULL) {
        return usage_bad_handle(KIND_NOTIFY, handle);
    }
    thread_uses((*notify)->device);
    return ACL_SUCCESS;
}

/* The runtime looks for its objects before it looks for the context. */
static aclError find(aclrtNotify handle, aclrtStream stream, context_t **context, notify_t **notify) {
    aclError rc = notify_find(handle, notify);
    rc = rc == ACL_SUCCESS ? stream_check_handle(stream) : rc;
    *context = rc == ACL_SUCCESS ? context_need() : NULL;
    return rc == ACL_SUCCESS && *context == NULL ? RT_CONTEXT_NULL : rc;
}

aclError do_aclrtDestroyNotify(aclrtNotify notify) {
    REFUSE_NULL(notify);
    context_t *context = NULL;
    notify_t *found = NULL;
    SIM_GUARD();
    aclError rc = find(notify, NULL, &context, &found);
    if (rc == ACL_SUCCESS) {
        found->device->notifies--;
        if (found->shared != NULL) {
            object_release(&found->shared->object);
        }
        object_kill(&found->object);
    }
    return rc;
}

static aclError enqueue(aclrtNotify notify, aclrtStream stream, task_t *task) {
    REFUSE_NULL(notify);
    context_t *context = NULL;
    stream_t *target = NULL;
    SIM_GUARD();
    aclError rc = find(notify, stream, &context, &task->notify);
    rc = rc == ACL_SUCCESS ? stream_find_own(context, stream, &target) : rc;
    if (rc == ACL_SUCCESS) {
        task->notify = task->notify->shared != NULL ? task->notify->shared : task->notify;
        object_retain(&task->notify->object);
        rc = stream_enqueue(target, task);
    }
    return rc;
}

aclError do_aclrtRecordNotify(aclrtNotify notify, aclrtStream stream) {
    task_t task = {.kind = TASK_RECORD_NOTIFY};
    return enqueue(notify, stream, &task);
}

/* The time-out is in seconds. Zero and the largest value of the type both mean no limit. */
aclError do_aclrtWaitAndResetNotify(aclrtNotify notify, aclrtStream stream, uint32_t timeout) {
    task_t task = {.kind = TASK_WAIT_NOTIFY};
    task.limit_ns = timeout != UINT32_MAX ? (int64_t)timeout * 1000000000 : 0;
    return enqueue(notify, stream, &task);
}
