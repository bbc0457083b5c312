/*
 * A library with one wrong result, or with one trait of the vendor's runtime. The build defines one of the
 * names below, and links the library with the simulator, which executes all other calls. If none of the names
 * is defined, the library has no wrong result.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl_types.h"

#ifndef ACTUAL
#define ACTUAL "libascendcl.so"
#endif
#define API __attribute__((visibility("default")))

/* Returns the simulator's function `name`. */
void *lookup(const char *name) {
    void *library = dlopen(ACTUAL, RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

#define SIMULATE(type, name, ...) ((type)(uintptr_t)lookup(name))(__VA_ARGS__)

typedef aclError (*of_pointer)(void *);
typedef aclError (*of_device)(int32_t);
typedef aclError (*of_timed)(void *, int32_t);
typedef aclError (*of_status)(void *, int *);
typedef aclError (*of_two)(void *, void *);
typedef aclError (*of_malloc)(void **, size_t, int);
typedef aclError (*of_memset)(void *, size_t, int32_t, size_t);
typedef aclError (*of_fill)(void *, size_t, int32_t, size_t, void *);
typedef aclError (*of_create)(void **);
typedef aclError (*of_model)(uint32_t);
typedef aclError (*of_load)(const char *, uint32_t *, void *, size_t, void *, size_t);
typedef aclError (*of_execute)(uint32_t, const aclmdlDataset *, aclmdlDataset *, void *);
typedef aclError (*of_dims)(const aclmdlDesc *, size_t, aclmdlIODims *);
typedef aclError (*of_copy)(void *, size_t, const void *, size_t, int, void *);

#ifdef WRONG_ZERO_LIMIT
API aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
    if (timeout == 0) {
        return 0;
    }
    return SIMULATE(of_timed, "aclrtSynchronizeStreamWithTimeout", stream, timeout);
}
#endif

#ifdef WRONG_TIMEOUT_CODE
API aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
    aclError code = SIMULATE(of_timed, "aclrtSynchronizeStreamWithTimeout", stream, timeout);
    return code == 507046 ? 0 : code;
}
#endif

#ifdef WRONG_TASK_ID
API aclError aclrtGetThreadLastTaskId(uint32_t *id) {
    *id = 1;
    return 0;
}
#endif

#ifdef WRONG_NO_REPORTS
API aclError aclrtExceptionInfoCallbackRegister(void *callback) {
    (void)callback;
    return 0;
}
#endif

#ifdef WRONG_EVENT_STATUS
API aclError aclrtQueryEventStatus(aclrtEvent event, int *status) {
    aclError code = SIMULATE(of_status, "aclrtQueryEventStatus", event, status);
    *status = !*status;
    return code;
}
#endif

#ifdef WRONG_STREAM_STATUS
API aclError aclrtStreamQuery(aclrtStream stream, int *status) {
    aclError code = SIMULATE(of_status, "aclrtStreamQuery", stream, status);
    *status = 0;
    return code;
}
#endif

#ifdef WRONG_NO_RELEASE
API aclError aclrtResetDeviceForce(int32_t device) {
    (void)device;
    return 0;
}
#endif

#ifdef WRONG_NOT_SET_CODE
API aclError aclrtResetDevice(int32_t device) {
    aclError code = SIMULATE(of_device, "aclrtResetDevice", device);
    return code == 507007 ? 107002 : code;
}
#endif

#ifdef WRONG_ERROR_TWICE
API aclError aclrtSynchronizeStream(aclrtStream stream) {
    static aclError last;
    aclError code = SIMULATE(of_pointer, "aclrtSynchronizeStream", stream);
    aclError result = code ? code : last;
    last = code;
    return result;
}
#endif

#ifdef WRONG_NO_WAIT
API aclError aclrtSynchronizeStream(aclrtStream stream) {
    int status = 0;
    return SIMULATE(of_status, "aclrtStreamQuery", stream, &status);
}
#endif

#ifdef WRONG_ABORT_CODE
API aclError aclrtSynchronizeStream(aclrtStream stream) {
    aclError code = SIMULATE(of_pointer, "aclrtSynchronizeStream", stream);
    return code == 107023 ? 0 : code;
}
#endif

#ifdef WRONG_FRESH_THREAD
API aclError aclrtGetCurrentContext(aclrtContext *context) {
    aclError code = SIMULATE(of_pointer, "aclrtGetCurrentContext", context);
    if (code) {
        *context = NULL;
    }
    return 0;
}
#endif

#ifdef WRONG_TEXT_STAYS
API const char *aclGetRecentErrMsg(void) {
    static char kept[64];
    const char *text = SIMULATE(const char *(*)(void), "aclGetRecentErrMsg");
    if (text) {
        strncpy(kept, text, sizeof kept - 1);
    }
    return text ? text : kept;
}
#endif

#ifdef WRONG_SHORT_COPY
API aclError aclrtMemcpyAsync(void *dst, size_t room, const void *src, size_t count, int kind,
                              aclrtStream stream) {
    return SIMULATE(of_copy, "aclrtMemcpyAsync", dst, room, src, count > 4000 ? count - 1 : count, kind,
                    stream);
}
#endif

#ifdef WRONG_NO_STATE_CALLBACK
API aclError aclrtRegDeviceStateCallback(const char *name, aclrtDeviceStateCallback callback, void *args) {
    (void)name;
    (void)callback;
    (void)args;
    return 0;
}
#endif

#ifdef WRONG_EARLY_STATUS
static bool copying;

API aclError aclrtMemcpyAsync(void *dst, size_t room, const void *src, size_t count, int kind,
                              aclrtStream stream) {
    copying = true;
    return SIMULATE(of_copy, "aclrtMemcpyAsync", dst, room, src, count, kind, stream);
}

API aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
    copying = false;
    return SIMULATE(of_two, "aclrtStreamWaitEvent", stream, event);
}

/* Reports an event after a running copy as complete, but not an event after a wait for an event. */
API aclError aclrtQueryEventStatus(aclrtEvent event, int *status) {
    aclError code = SIMULATE(of_status, "aclrtQueryEventStatus", event, status);
    *status = *status || copying;
    return code;
}
#endif

#ifdef WRONG_DESTROY_WAITS
static atomic_int waiting;

API aclError aclrtSynchronizeStream(aclrtStream stream) {
    waiting++;
    aclError code = SIMULATE(of_pointer, "aclrtSynchronizeStream", stream);
    waiting--;
    return code;
}

API aclError aclrtDestroyStream(aclrtStream stream) {
    while (waiting) {
        usleep(1000);
    }
    return SIMULATE(of_pointer, "aclrtDestroyStream", stream);
}
#endif

#ifdef WRONG_FEW_TASKS
API aclError aclrtMemsetAsync(void *dst, size_t room, int32_t value, size_t count, aclrtStream stream) {
    if (count == 64 && value > 32) {
        return 0;
    }
    return SIMULATE(of_fill, "aclrtMemsetAsync", dst, room, value, count, stream);
}
#endif

#ifdef WRONG_CUT_COPY
API aclError aclrtMemcpyAsync(void *dst, size_t room, const void *src, size_t count, int kind,
                              aclrtStream stream) {
    aclError code =
        SIMULATE(of_copy, "aclrtMemcpyAsync", dst, room, src, count < room ? count : room, kind, stream);
    return count > room ? 107000 : code;
}
#endif

#ifdef WRONG_RESET_CLEARS
static void *newest;

API aclError aclrtMalloc(void **made, size_t size, int policy) {
    aclError code = SIMULATE(of_malloc, "aclrtMalloc", made, size, policy);
    newest = *made;
    return code;
}

API aclError aclrtResetDevice(int32_t device) {
    if (newest) {
        (void)SIMULATE(of_memset, "aclrtMemset", newest, 64, 0, 64);
    }
    return SIMULATE(of_device, "aclrtResetDevice", device);
}
#endif

#ifdef WRONG_KEEPS_USES
API aclError aclFinalizeReference(uint64_t *left) {
    (void)left;
    return 0;
}
#endif

#ifdef WRONG_MODEL_WEIGHTS
static void *used;

API aclError aclmdlLoadFromFileWithMem(const char *path, uint32_t *id, void *work, size_t work_size,
                                       void *weights, size_t weights_size) {
    if (weights == used) {
        return 500002;
    }
    used = weights;
    return SIMULATE(of_load, "aclmdlLoadFromFileWithMem", path, id, work, work_size, weights, weights_size);
}

API aclError aclmdlUnload(uint32_t id) {
    used = NULL;
    return SIMULATE(of_model, "aclmdlUnload", id);
}
#endif

#ifdef WRONG_MODEL_BYTES
API aclError aclmdlLoadFromMemWithMem(const void *model, size_t size, uint32_t *id, void *work,
                                      size_t work_size, void *weights, size_t weights_size) {
    (void)model, (void)size, (void)id, (void)work, (void)work_size, (void)weights, (void)weights_size;
    return 145006;
}
#endif

#ifdef WRONG_MODEL_ORDER
/* Executes the model at once, and not in the order of the stream. */
API aclError aclmdlExecuteAsync(uint32_t id, const aclmdlDataset *input, aclmdlDataset *output,
                                aclrtStream stream) {
    aclrtStream other = NULL;
    (void)stream;
    aclError code = SIMULATE(of_create, "aclrtCreateStream", &other);
    code = code != 0 ? code : SIMULATE(of_execute, "aclmdlExecuteAsync", id, input, output, other);
    code = code != 0 ? code : SIMULATE(of_pointer, "aclrtSynchronizeStream", other);
    return code != 0 ? code : SIMULATE(of_pointer, "aclrtDestroyStream", other);
}
#endif

#ifdef WRONG_MODEL_STREAM
static aclrtStream first;

/* A model runs on one stream only. */
API aclError aclmdlExecuteAsync(uint32_t id, const aclmdlDataset *input, aclmdlDataset *output,
                                aclrtStream stream) {
    first = first != NULL ? first : stream;
    if (stream != first) {
        return 500002;
    }
    return SIMULATE(of_execute, "aclmdlExecuteAsync", id, input, output, stream);
}

API aclError aclmdlLoadFromFileWithMem(const char *path, uint32_t *id, void *work, size_t work_size,
                                       void *weights, size_t weights_size) {
    first = NULL;
    return SIMULATE(of_load, "aclmdlLoadFromFileWithMem", path, id, work, work_size, weights, weights_size);
}
#endif

#ifdef WRONG_MODEL_THREAD
API uint32_t aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    (void)info;
    return 1;
}
#endif

#ifdef WRONG_MODEL_GEAR
/* The description has the shapes of the largest gear only. */
API aclError aclmdlGetCurOutputDims(const aclmdlDesc *desc, size_t index, aclmdlIODims *dims) {
    return SIMULATE(of_dims, "aclmdlGetOutputDims", desc, index, dims);
}
#endif

#ifdef WRONG_MODEL_AFTER_RESET
/* The graph engine of the process works once only. */
API aclError aclmdlLoadFromFileWithMem(const char *path, uint32_t *id, void *work, size_t work_size,
                                       void *weights, size_t weights_size) {
    static bool loaded;
    if (loaded) {
        return 500002;
    }
    loaded = true;
    return SIMULATE(of_load, "aclmdlLoadFromFileWithMem", path, id, work, work_size, weights, weights_size);
}
#endif

#ifdef LATE_OLD_STATUS
/* The first queries that find the event complete return the old status. */
API aclError aclrtQueryEvent(aclrtEvent event, int *status) {
    static int late = 5;
    aclError code = SIMULATE(of_status, "aclrtQueryEvent", event, status);
    if (code == 0 && *status == 0 && late-- > 0) {
        *status = 1;
    }
    return code;
}
#endif

#ifdef CRASH_OF_STREAM_WAITERS
__attribute__((constructor)) static void make_resets_crash(void) {
    SIMULATE(void (*)(int), "aclsim_set_reset_crash", 1);
}
#endif

#ifdef CRASH
API aclError aclrtSynchronizeEvent(aclrtEvent event) {
    (void)event;
    raise(SIGSEGV);
    return 0;
}
#endif

#ifdef CRASH_ON_LOAD
__attribute__((constructor)) static void at_load(void) {
    raise(SIGSEGV);
}
#endif

#ifdef CRASH_AT_EXIT
__attribute__((destructor)) static void at_end(void) {
    raise(SIGSEGV);
}
#endif

#ifdef HANG
API aclError aclrtEventElapsedTime(float *ms, aclrtEvent start, aclrtEvent end) {
    (void)ms;
    (void)start;
    (void)end;
    for (;;) {
        pause();
    }
}
#endif

#ifdef GARBAGE
API aclError aclrtStreamQuery(aclrtStream stream, int *status) {
    (void)stream;
    *status = 77;
    return -5;
}
#endif
