/*
 * Callbacks on failed tasks. Failures wait in a queue for a thread of the runtime's own, which calls everybody
 * that was registered, in order; the description that they get is good for the length of the call only, and so
 * is found by its address among the ones that are being delivered.
 */
#include <stdlib.h>

#include "launch.h"

enum { CALLBACKS_MAX = 32, NOTHING_KNOWN = -1 };

struct rtExceptionInfo {
    struct rtExceptionInfo *next;
    uint32_t task;
    uint32_t stream;
    uint32_t thread;
    uint32_t device;
    uint32_t code;
    exception_source_t source; /* of a kernel */
};

/* All under sim.lock. The first place belongs to aclrtSetExceptionInfoCallback. */
static aclrtExceptionInfoCallback callbacks[CALLBACKS_MAX];
static struct rtExceptionInfo *first;
static struct rtExceptionInfo *last;
static const struct rtExceptionInfo *delivered;
static bool started;
static pthread_cond_t work;

static void deliver(struct rtExceptionInfo *info) {
    delivered = info;
    for (int i = 0; i < CALLBACKS_MAX; i++) {
        aclrtExceptionInfoCallback callback = callbacks[i];
        if (callback != NULL) {
            sim_unlock();
            callback(info);
            sim_lock();
        }
    }
    if (info->source.callback != NULL) {
        sim_unlock();
        info->source.callback(info, info->source.user);
        sim_lock();
    }
    delivered = NULL;
}

static void *exception_main(void *unused) {
    (void)unused;
    sim_lock();
    thread_self()->callback_depth++;
    while (true) {
        struct rtExceptionInfo *info = first;
        if (info == NULL) {
            pthread_cond_wait(&work, &sim.lock);
            continue;
        }
        first = info->next;
        last = first != NULL ? last : NULL;
        deliver(info);
        launch_source_forget(&info->source);
        free(info);
    }
    return NULL;
}

static bool somebody_listens(void) {
    for (int i = 0; i < CALLBACKS_MAX; i++) {
        if (callbacks[i] != NULL) {
            return true;
        }
    }
    return false;
}

static bool start(void) {
    if (!started) {
        cond_init(&work);
        started = thread_start("aclsim-exc", exception_main, NULL);
    }
    return started;
}

void exception_raise(stream_t *stream, const task_t *task, aclError code) {
    exception_source_t source = launch_source(task);
    bool heard = (source.callback != NULL || somebody_listens()) && start();
    struct rtExceptionInfo *info = heard ? calloc(1, sizeof *info) : NULL;
    if (info == NULL) {
        launch_source_forget(&source);
        return;
    }
    info->source = source;
    info->task = (uint32_t)stream->ended;
    info->stream = stream->id;
    info->thread = (uint32_t)task->tid;
    info->device = (uint32_t)stream->device->id;
    info->code = (uint32_t)code;
    if (last != NULL) {
        last->next = info;
    } else {
        first = info;
    }
    last = info;
    pthread_cond_signal(&work);
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
    sim_lock();
    callbacks[0] = callback;
    sim_unlock();
    return ACL_SUCCESS;
}

/* Keeps the others in the order of their registration. */
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

/* Registering a function again changes nothing. */
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
    sim_lock();
    bool kept = keep(callback);
    sim_unlock();
    return kept ? ACL_SUCCESS : error_set(RT_INTERNAL_ERROR, "callback");
}

aclError do_aclrtExceptionInfoCallbackUnregister(aclrtExceptionInfoCallback callback) {
    if (callback == NULL) {
        return error_quiet(RT_PARAM_INVALID, "callback");
    }
    sim_lock();
    forget(callback);
    sim_unlock();
    return ACL_SUCCESS;
}

/* --- what a description says
 * ----------------------------------------------------------------------------------------- */
/* False when no such description is being delivered. */
static bool read_info(const aclrtExceptionInfo *info, struct rtExceptionInfo *copy) {
    bool found = false;
    sim_lock();
    if (info != NULL && info == delivered) {
        *copy = *info;
        found = true;
    }
    sim_unlock();
    if (!found) {
        error_quiet(ACL_INVALID_PARAM, "info");
    }
    return found;
}

uint32_t do_aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    struct rtExceptionInfo copy;
    return read_info(info, &copy) ? copy.task : UINT32_MAX;
}

uint32_t do_aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    struct rtExceptionInfo copy;
    return read_info(info, &copy) ? copy.stream : UINT32_MAX;
}

uint32_t do_aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    struct rtExceptionInfo copy;
    return read_info(info, &copy) ? copy.thread : UINT32_MAX;
}

uint32_t do_aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    struct rtExceptionInfo copy;
    return read_info(info, &copy) ? copy.device : UINT32_MAX;
}

uint32_t do_aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo *info) {
    struct rtExceptionInfo copy;
    return read_info(info, &copy) ? copy.code : UINT32_MAX;
}

/* Only kernels have arguments and a handle. They are where the kernel gets them. */
aclError do_aclrtGetArgsFromExceptionInfo(const aclrtExceptionInfo *info, void **devArgsPtr,
                                          uint32_t *devArgsLen) {
    struct rtExceptionInfo copy;
    if (!read_info(info, &copy)) {
        return NOTHING_KNOWN;
    }
    if (devArgsPtr == NULL || devArgsLen == NULL) {
        return error_quiet(ACL_INVALID_PARAM, devArgsPtr == NULL ? "devArgsPtr" : "devArgsLen");
    }
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
    if (func == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "func");
    }
    if (copy.source.function == NULL) {
        return error_set(RT_PARAM_INVALID, "info");
    }
    *func = copy.source.function;
    return ACL_SUCCESS;
}
