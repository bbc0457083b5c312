/*
 * Callbacks for failed tasks. The recycle thread of a device calls all registered callbacks in order, for one
 * failure after the other. The description of a failure is valid only during the callback. Each device delivers
 * at most one description at a time, and a query looks up the given address among these descriptions.
 */
#include <stdlib.h>

#include "launch.h"
#include "models.h"
#include "runtime.h"

#pragma weak aclsim_runtime_deliver /* NULL in the library of CANN 8.1 */

enum { CALLBACKS_MAX = 32, NOTHING_KNOWN = -1 };

struct rtExceptionInfo {
    runtime_exception_t head; /* callbacks of libruntime.so read this part directly */
    struct rtExceptionInfo *next;
    exception_source_t source; /* set for kernels */
};

/* All protected by sim.lock. The first entry belongs to aclrtSetExceptionInfoCallback. */
static aclrtExceptionInfoCallback callbacks[CALLBACKS_MAX];
static struct rtExceptionInfo *delivered;

static void call(aclrtExceptionInfoCallback callback, struct rtExceptionInfo *info) {
    if (callback != NULL) {
        sim_unlock();
        callback(info);
        sim_lock();
    }
}

static void call_all(struct rtExceptionInfo *info) {
    for (int i = 0; i < CALLBACKS_MAX; i++) {
        call(callbacks[i], info);
    }
    sim_unlock();
    if (aclsim_runtime_deliver != NULL) {
        aclsim_runtime_deliver(&info->head);
    }
    if (info->source.callback != NULL) {
        info->source.callback(info, info->source.user);
    }
    sim_lock();
}

static void deliver(struct rtExceptionInfo *info) {
    info->next = delivered;
    delivered = info;
    call_all(info);
    struct rtExceptionInfo **place = &delivered;
    while (*place != info) {
        place = &(*place)->next;
    }
    *place = info->next;
}

/* Whether the code is a fault of the device itself, for which no task is known. */
static bool is_of_device(aclError code) {
    return code == RT_LOST_HEARTBEAT || code == RT_DEVICE_OOM;
}

void exception_deliver(stream_t *stream, pid_t tid, aclError code) {
    if (is_of_device(code)) {
        exception_deliver_unknown(stream->device, code);
        return;
    }
    const task_t *task = stream_head(stream);
    struct rtExceptionInfo info = {.source = launch_source(task)};
    info.head.task = task->id;
    info.head.stream = stream->id;
    model_inner_ids(task, &info.head.stream, &info.head.task);
    info.head.thread = (uint32_t)tid;
    info.head.device = (uint32_t)stream->device->id;
    info.head.code = (uint32_t)code;
    deliver(&info);
    launch_source_forget(&info.source);
}

void exception_deliver_unknown(device_t *device, aclError code) {
    struct rtExceptionInfo info = {.next = NULL};
    info.head.task = UINT32_MAX;
    info.head.stream = UINT32_MAX;
    info.head.thread = UINT32_MAX;
    info.head.device = (uint32_t)device->id;
    info.head.code = (uint32_t)code;
    deliver(&info);
}

bool exception_may_call(function_t function) {
    switch (function) {
    case FN_aclrtGetTaskIdFromExceptionInfo:
    case FN_aclrtGetStreamIdFromExceptionInfo:
    case FN_aclrtGetThreadIdFromExceptionInfo:
    case FN_aclrtGetDeviceIdFromExceptionInfo:
    case FN_aclrtGetErrorCodeFromExceptionInfo:
    case FN_aclrtGetArgsFromExceptionInfo:
    case FN_aclrtGetFuncHandleFromExceptionInfo:
        return true;
    default:
        return false;
    }
}

aclError do_aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback callback) {
    SIM_GUARD();
    callbacks[0] = callback;
    return ACL_SUCCESS;
}

/* Removes a callback. The other callbacks stay in the order of registration. */
static void forget(aclrtExceptionInfoCallback callback) {
    int kept = 1;
    for (int i = 1; i < CALLBACKS_MAX; i++) {
        if (callbacks[i] != callback) {
            callbacks[kept++] = callbacks[i];
        }
    }
    while (kept < CALLBACKS_MAX) {
        callbacks[kept++] = NULL;
    }
}

/* Registering a function twice has no effect. */
static bool keep(aclrtExceptionInfoCallback callback) {
    for (int i = 1; i < CALLBACKS_MAX; i++) {
        if (callbacks[i] == NULL || callbacks[i] == callback) {
            callbacks[i] = callback;
            return true;
        }
    }
    return false;
}

aclError do_aclrtExceptionInfoCallbackRegister(aclrtExceptionInfoCallback callback) {
    if (callback == NULL) {
        return error_quiet(RT_PARAM_INVALID, "callback");
    }
    SIM_GUARD();
    bool kept = keep(callback);
    return kept ? ACL_SUCCESS : error_set(RT_INTERNAL_ERROR, "callback");
}

aclError do_aclrtExceptionInfoCallbackUnregister(aclrtExceptionInfoCallback callback) {
    if (callback == NULL) {
        return error_quiet(RT_PARAM_INVALID, "callback");
    }
    SIM_GUARD();
    forget(callback);
    return ACL_SUCCESS;
}

/* False: the description is not being delivered. */
static bool read_info(const aclrtExceptionInfo *info, struct rtExceptionInfo *copy) {
    bool found = false;
    SIM_GUARD();
    for (const struct rtExceptionInfo *each = delivered; each != NULL && !found; each = each->next) {
        found = each == info;
    }
    if (found) {
        *copy = *info;
    }
    if (!found) {
        error_quiet(ACL_INVALID_PARAM, "info");
    }
    return found;
}

uint32_t do_aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    struct rtExceptionInfo copy;
    return read_info(info, &copy) ? copy.head.task : UINT32_MAX;
}

uint32_t do_aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    struct rtExceptionInfo copy;
    return read_info(info, &copy) ? copy.head.stream : UINT32_MAX;
}

uint32_t do_aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    struct rtExceptionInfo copy;
    return read_info(info, &copy) ? copy.head.thread : UINT32_MAX;
}

uint32_t do_aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    struct rtExceptionInfo copy;
    return read_info(info, &copy) ? copy.head.device : UINT32_MAX;
}

uint32_t do_aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo *info) {
    struct rtExceptionInfo copy;
    return read_info(info, &copy) ? copy.head.code : UINT32_MAX;
}

/* Only kernels have arguments. The result is the address that the kernel gets. */
aclError do_aclrtGetArgsFromExceptionInfo(const aclrtExceptionInfo *info, void **devArgsPtr,
                                          uint32_t *devArgsLen) {
    struct rtExceptionInfo copy;
    if (!read_info(info, &copy)) {
        return NOTHING_KNOWN;
    }
    REFUSE_NULL(devArgsPtr);
    REFUSE_NULL(devArgsLen);
    const launch_t *launch = copy.source.launch;
    if (launch == NULL) {
        return NOTHING_KNOWN;
    }
    *devArgsPtr = launch->copy != NULL ? launch->copy : (void *)(uintptr_t)launch->address;
    *devArgsLen = (uint32_t)launch->size;
    return ACL_SUCCESS;
}

aclError do_aclrtGetFuncHandleFromExceptionInfo(const aclrtExceptionInfo *info, aclrtFuncHandle *func) {
    struct rtExceptionInfo copy;
    if (!read_info(info, &copy)) {
        return NOTHING_KNOWN;
    }
    REFUSE_NULL(func);
    if (copy.source.function == NULL) {
        return error_set(RT_PARAM_INVALID, "info");
    }
    *func = copy.source.function;
    return ACL_SUCCESS;
}
