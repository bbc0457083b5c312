/* The thread's last error, and the text that aclGetRecentErrMsg hands out. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

typedef struct {
    aclError code;
    const char *label;
    const char *sentence;
} error_text_t;

/* Codes that are not listed leave no text. */
static const error_text_t texts[] = {
    {ACL_INVALID_PARAM, "EH0008",
     "The argument is not acceptable: it is NULL, zero or not one of the listed values."},
    {RT_PARAM_INVALID, "EE1001", "The runtime rejects the argument."},
    {RT_INVALID_DEVICE, "EE1003", "There is no such device."},
    {RT_CONTEXT_NULL, "EE1018", "The calling thread has no usable context: set a device or a context first."},
    {RT_STREAM_CONTEXT, "EE1011", "The stream belongs to another context than the one that is current."},
    {RT_EVENT_TIMESTAMP_INVALID, "EE1012", "The event holds no time that could be read."},
    {RT_STREAM_SUBSCRIBE, "EE1013", "The stream's callback subscription does not allow this."},
    {RT_INVALID_HANDLE, "EE1017", "The handle is dead, foreign or of another kind."},
    {RT_STREAM_ABORT, "EE9999", "The stream was aborted."},
    {RT_DEVICE_TASK_ABORT, "EE9999", "The tasks of the device are being aborted."},
    {RT_FEATURE_NOT_SUPPORT, "EE1005", "This is not supported here."},
    {RT_INTERNAL_ERROR, "EE9999", "The runtime cannot do this in the present state."},
    {RT_TASK_ERROR, "EE9999", "A task of the stream failed on the device."},
    {RT_CONTEXT_RELEASE_ERROR, "EE9999", "There is nothing to release: the count is zero already."},
    {RT_STREAM_SYNC_TIMEOUT, "EE1002", "The work did not end in the time allowed."},
    {RT_EVENT_SYNC_TIMEOUT, "EE1002", "The event was not reached in the time allowed."},
    {RT_DRIVER_ERROR, "EE9999", "The driver refuses the address."},
    {RT_HOST_MEMORY_ALREADY_REGISTERED, "EE1018", "The memory has been registered before, or part of it."},
    {RT_HOST_MEMORY_NOT_REGISTERED, "EE1018", "The memory has not been registered."},
};

static const error_text_t *find_text(aclError code) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].code == code) {
            return &texts[i];
        }
    }
    return NULL;
}

static void append(thread_t *thread, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(thread_t *thread, const char *format, ...) {
    va_list arguments;
    size_t room = sizeof thread->text - thread->text_length;
    va_start(arguments, format);
    int length = vsnprintf(thread->text + thread->text_length, room, format, arguments);
    va_end(arguments);
    if (length > 0) {
        thread->text_length += (size_t)length < room ? (size_t)length : room - 1;
    }
}

static void add_text(thread_t *thread, aclError code, const char *what) {
    const error_text_t *text = find_text(code);
    /* A paragraph that would not fit whole is left out. */
    if (text == NULL || thread->text_length + 512 > sizeof thread->text) {
        return;
    }
    append(thread, "%s: [PID: simulator] %s\n        Argument: %s. Result: %d.\n", text->label, text->sentence,
           what, code);
    append(thread, "        TraceBack (most recent call last):\n        %s[FUNC:%s]\n", text->sentence,
           call_name());
}

void error_explain(aclError code, const char *why) {
    thread_t *thread = thread_self();
    if (*why != '\0' && thread->text_length + 512 <= sizeof thread->text) {
        append(thread, "EE9999: [PID: simulator] A task failed on the device.\n        %s. Result: %d.\n", why,
               code);
    }
}

aclError error_quiet(aclError code, const char *what) {
    add_text(thread_self(), code, what);
    return code;
}

aclError error_set(aclError code, const char *what) {
    thread_self()->last_error = code;
    return error_quiet(code, what);
}

/* A thread without a context gets the reader's own complaint on top, and its text is not cleared. */
const char *do_aclGetRecentErrMsg(void) {
    thread_t *thread = thread_self();
    sim_lock();
    bool homeless = thread_context() == NULL;
    sim_unlock();
    if (homeless) {
        add_text(thread, RT_CONTEXT_NULL, "current context");
    }
    bool stale = thread->text_fault == TEXT_STALE;
    if (thread->text_length == 0 || stale) {
        return fault_text(thread, stale ? thread->shown : NULL);
    }
    memcpy(thread->shown, thread->text, thread->text_length + 1);
    if (!homeless) {
        thread->text_length = 0;
    }
    return fault_text(thread, thread->shown);
}

static aclError last_error(aclrtLastErrLevel level, bool clear) {
    if ((int)level != ACL_RT_THREAD_LEVEL) {
        return error_quiet(ACL_INVALID_PARAM, "level");
    }
    thread_t *thread = thread_self();
    aclError code = thread->last_error;
    if (clear) {
        thread->last_error = 0;
    }
    return code;
}

aclError do_aclrtPeekAtLastError(aclrtLastErrLevel level) {
    return last_error(level, false);
}

aclError do_aclrtGetLastError(aclrtLastErrLevel level) {
    return last_error(level, true);
}
