/* The usage checker: it reports misuse by the client. It never changes the result of a call. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { VIOLATIONS_KEPT = 256, VIOLATION_BYTES = 240 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char kept[VIOLATIONS_KEPT][VIOLATION_BYTES];
static uint64_t count;

void usage_lock(void) {
    pthread_mutex_lock(&lock);
}

void usage_unlock(void) {
    pthread_mutex_unlock(&lock);
}

void usage_note(const char *format, ...) {
    va_list arguments;
    const char *name = call_name();
    const thread_t *thread = thread_self();
    pid_t tid = thread->on_behalf != 0 ? thread->on_behalf : thread->tid;
    va_start(arguments, format);
    usage_lock();
    char *text = kept[count++ % VIOLATIONS_KEPT];
    int length = snprintf(text, VIOLATION_BYTES, "%s: thread %d ", name, tid);
    vsnprintf(text + length, VIOLATION_BYTES - (size_t)length, format, arguments);
    usage_unlock();
    va_end(arguments);
}

static const char *kind_of_handle(const void *handle) {
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        if (object_find((object_kind_t)kind, handle) != NULL) {
            return object_kind_name((object_kind_t)kind);
        }
    }
    return NULL;
}

void usage_dead(object_kind_t kind, const void *handle) {
    const char *other = kind_of_handle(handle);
    usage_note("passes handle %p: expected a live handle of kind %s, got a %s%s", handle,
               object_kind_name(kind), other != NULL ? "handle of kind " : "dead or foreign handle",
               other != NULL ? other : "");
}

aclError usage_bad_handle(object_kind_t kind, const void *handle) {
    usage_dead(kind, handle);
    return error_set(RT_INVALID_HANDLE, object_kind_name(kind));
}

aclError usage_wrong_context(const stream_t *stream) {
    usage_note("uses stream %p of context %p, which is not the current one", (const void *)stream,
               (const void *)stream->context);
    return error_set(RT_STREAM_CONTEXT, "stream");
}

/* Whether a thread may be inside the function while the device is reset. The runtime is designed so that a
 * reset may happen during its waits. The runtime also permits sets, resets and calls that use no device. */
static bool may_be_inside(int function) {
    switch (function) {
    case FN_aclrtSynchronizeStream:
    case FN_aclrtSynchronizeStreamWithTimeout:
    case FN_aclrtSynchronizeEvent:
    case FN_aclrtSynchronizeEventWithTimeout:
        return true;
    default:
        return function_info[function].kind == CALL_FREE || function_info[function].kind == CALL_CONTROL;
    }
}

static void check_inside(thread_t *thread, void *arg) {
    const device_t *device = arg;
    int function = atomic_load(&thread->function);
    bool uses = (atomic_load(&thread->devices) >> device->id & 1) != 0;
    if (thread == thread_self() || function < 0 || !uses || may_be_inside(function)) {
        return;
    }
    if (!atomic_load(&thread->in_state_cb)) {
        usage_note("resets device %d while thread %d is inside %s", device->id, thread->tid,
                   function_info[function].name);
    }
}

void usage_reset(const device_t *device) {
    if (thread_self()->foreign) {
        return; /* another library causes this reset, not the client */
    }
    thread_each(check_inside, (void *)(uintptr_t)device);
}

static void check_syncing(thread_t *thread, void *arg) {
    if (thread != thread_self() && atomic_load(&thread->syncing) == arg) {
        usage_note("destroys stream %p while thread %d synchronizes it", arg, thread->tid);
    }
}

void usage_destroy(const stream_t *stream) {
    thread_each(check_syncing, (void *)(uintptr_t)stream);
}

/* A thread that the teardown has woken may still be inside its synchronizing call. The thread must not count as
 * synchronizing a new stream that gets the same handle. */
static void forget_syncing(thread_t *thread, void *arg) {
    void *stream = arg;
    atomic_compare_exchange_strong(&thread->syncing, &stream, NULL);
}

void usage_gone(const stream_t *stream) {
    thread_each(forget_syncing, (void *)(uintptr_t)stream);
}

uint64_t usage_count(void) {
    usage_lock();
    uint64_t seen = count;
    usage_unlock();
    return seen;
}

void usage_forget(void) {
    usage_lock();
    count = 0;
    usage_unlock();
}

API int aclsim_violation(uint64_t index, char *text, size_t size) {
    usage_lock();
    if (index >= count || count - index > VIOLATIONS_KEPT) {
        usage_unlock();
        return -1;
    }
    const char *found = kept[index % VIOLATIONS_KEPT];
    int length = (int)strlen(found);
    if (text != NULL && size > 0) {
        snprintf(text, size, "%s", found);
    }
    usage_unlock();
    return length;
}
