/*
 * Aborting all tasks of a device. First, calls that wait for the device's work return 107022 at once, and so do
 * calls that enqueue during the abort. Then the queues are emptied, and the stored failures of STOP mode are
 * cleared. Callbacks run before and after the abort, on the calling thread.
 */
#include "registry.h"

enum { TIMEOUT_MOST_MS = 36 * 60 * 1000 };

static registry_t registry;

aclError do_aclrtSetDeviceTaskAbortCallback(const char *regName, aclrtDeviceTaskAbortCallback callback,
                                            void *args) {
    return registry_change(&registry, regName, (void *)(uintptr_t)callback, args);
}

/* False: a callback returned an error. */
static bool tell(int32_t device, aclrtDeviceTaskAbortStage stage, uint32_t timeout) {
    bool agreed = true;
    for (int i = 0; i < REGISTRY_PLACES && agreed; i++) {
        registered_t entry = registry.entries[i];
        if (entry.function != NULL) {
            bool before = registry_leave();
            agreed = ((aclrtDeviceTaskAbortCallback)(uintptr_t)entry.function)(device, stage, timeout,
                                                                               entry.arg) == 0;
            registry_return(before);
        }
    }
    return agreed;
}

static void announce(void *object, void *arg) {
    stream_t *stream = object;
    if (stream->device == arg) {
        stream_announce_abort(stream, RT_DEVICE_TASK_ABORT);
    }
}

static void finish(void *object, void *arg) {
    stream_t *stream = object;
    if (stream->device == arg) {
        stream_finish_abort(stream, RT_DEVICE_TASK_ABORT);
        stream->stopped = false;
    }
}

static void clear_failure(void *object, void *arg) {
    context_t *context = object;
    if (context->device == arg) {
        context->failure = 0;
    }
}

static aclError abort_device(device_t *device, uint32_t timeout) {
    device->aborting = true;
    bool agreed = tell(device->id, ACL_RT_DEVICE_TASK_ABORT_PRE, timeout);
    if (agreed) {
        object_each(KIND_STREAM, announce, device);
        object_each(KIND_STREAM, finish, device);
        object_each(KIND_CONTEXT, clear_failure, device);
        agreed = tell(device->id, ACL_RT_DEVICE_TASK_ABORT_POST, timeout);
    }
    device->aborting = false;
    return agreed ? ACL_SUCCESS : error_set(RT_TASK_ABORT_STOP, "callback");
}

static aclError check(const device_t *device) {
    if (!sim.abort_supported) {
        return error_set(RT_FEATURE_NOT_SUPPORT, "aclrtDeviceTaskAbort");
    }
    if (device->retains == 0 && device->explicit_contexts == 0) {
        return error_set(RT_CONTEXT_NULL, "deviceId");
    }
    return device->aborting ? error_set(RT_DEVICE_TASK_ABORT, "deviceId") : ACL_SUCCESS;
}

/* Emptying a queue waits only for one running copy, so the time-out is never reached. */
aclError do_aclrtDeviceTaskAbort(int32_t deviceId, uint32_t timeout) {
    if (timeout > TIMEOUT_MOST_MS) {
        return error_set(RT_PARAM_INVALID, "timeout");
    }
    device_t *device = device_find(deviceId);
    if (device == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    SIM_GUARD();
    thread_uses(device);
    aclError rc = check(device);
    return rc == ACL_SUCCESS ? abort_device(device, timeout) : rc;
}
