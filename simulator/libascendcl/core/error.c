/* The thread's last error, and the text that aclGetRecentErrMsg returns. The text belongs to the thread or is
 * shared by all threads. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

typedef struct {
    aclError code;
    const char *label;
    const char *sentence;
} error_text_t;

/* Codes that are not listed add no text. */
static const error_text_t texts[] = {
    {ACL_INVALID_PARAM, "EH0008",
     "The argument is not valid: it is NULL, zero or not one of the listed values."},
    {RT_PARAM_INVALID, "EE1001", "The runtime rejects the argument."},
    {RT_INVALID_DEVICE, "EE1003", "There is no such device."},
    {RT_CONTEXT_NULL, "EE1018", "The calling thread has no usable context: set a device or a context first."},
    {RT_STREAM_CONTEXT, "EE1011", "The stream does not belong to the current context."},
    {RT_STREAM_MODEL, "EE9999", "The binding of the stream to a model does not allow this."},
    {RT_EVENT_TIMESTAMP_INVALID, "EE1012", "The event has no time that can be read."},
    {RT_STREAM_SUBSCRIBE, "EE1013", "The stream's callback subscription does not allow this."},
    {RT_INVALID_HANDLE, "EE1017", "The handle does not belong to a live object of the expected kind."},
    {RT_STREAM_ABORT, "EE9999", "The stream was aborted."},
    {RT_CAPTURE_DEPENDENCY, "EE9999", "The capture depends on work outside of it."},
    {RT_MODEL_CAPTURED, "EE9999", "The model is being captured."},
    {RT_STREAM_CAPTURED, "EE9999", "The stream is being captured."},
    {RT_STREAM_NOT_CAPTURED, "EE9999", "The stream is not being captured."},
    {RT_TASK_GROUP_STATUS, "EE9999", "The task group or its update does not allow this."},
    {RT_MODEL_RUNNING, "EE9999", "The model is being executed."},
    {RT_INVALID_DEVICE_FUNCTION, "EE9999", "The function is not a kernel of a binary."},
    {RT_SUB_GRAPH_CAPTURING, "EE9999", "A graph of a condition is not complete."},
    {RT_NO_DEVICE, "EE9999", "The process sees no device."},
    {RT_DEVICE_SETUP_ERROR, "EE9999", "The device is not set up, or cannot be set up."},
    {RT_DEVICE_TASK_ABORT, "EE9999", "The tasks of the device are being aborted."},
    {RT_FEATURE_NOT_SUPPORT, "EE1005", "The simulator does not support this call with these arguments."},
    {RT_INTERNAL_ERROR, "EE9999", "The runtime cannot do this in the present state."},
    {RT_TASK_ERROR, "EE9999", "A task of the stream failed on the device."},
    {RT_CONTEXT_RELEASE_ERROR, "EE9999", "There is nothing to release: the count is zero already."},
    {RT_STREAM_SYNC_TIMEOUT, "EE1002", "The work did not end before the time-out."},
    {RT_EVENT_SYNC_TIMEOUT, "EE1002", "The device did not reach the event before the time-out."},
    {RT_SYMBOL_NOT_FOUND, "EE9999", "There is no such symbol."},
    {RT_MODEL_EXECUTE, "EE9999", "The execution of a model failed on the device."},
    {RT_DRIVER_ERROR, "EE9999", "The driver refuses the address."},
    {RT_HOST_MEMORY_ALREADY_REGISTERED, "EE1018", "All or part of the memory is registered already."},
    {RT_HOST_MEMORY_NOT_REGISTERED, "EE1018", "The memory is not registered."},
    {GE_PARAM_INVALID, "E19999", "The graph engine rejects the argument."},
    {GE_MODEL_PATH_INVALID, "E19999", "The model file cannot be read."},
    {GE_MODEL_ID_INVALID, "E19999", "The model is not loaded."},
    {GE_MODEL_DATA_SIZE_INVALID, "E19999", "The content of the model file is not valid."},
    {GE_MODEL_ADDR_INVALID, "E19999", "The address is not valid for a model."},
    {GE_DYNAMIC_INPUT_ADDR_INVALID, "E19999", "The address of the input that selects the gear is not valid."},
    {GE_DYNAMIC_INPUT_LENGTH_INVALID, "E19999", "The input that selects the gear has the wrong length."},
    {GE_DYNAMIC_BATCH_SIZE_INVALID, "E19999", "The model does not have the gear."},
    {GE_SHAPE_INVALID, "E19999", "The shape is not valid."},
    {GE_MEMORY_ALLOCATION, "E19999", "No memory is left for the model."},
    {GE_LOAD_MODEL, "E19999", "The model cannot be loaded."},
    {GE_FAILURE, "E19999", "The graph engine cannot do this in the present state."},
    {ACL_INVALID_FILE, "EH0001", "The file cannot be read."},
    {ACL_FAILURE, "EH9999", "The call has failed."},
    {ACL_FEATURE_UNSUPPORTED, "EH9999", "The simulator does not support the option."},
    {ACL_API_NOT_SUPPORT, "EH0006", "The function does not support this model or option."},
    {ACL_NOT_STATIC_AIPP, "EH0009", "The input has no static AIPP."},
};

static const error_text_t *find_text(aclError code) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].code == code) {
            return &texts[i];
        }
    }
    return NULL;
}

/* The text that all threads share, if the configuration requests a shared text. */
static said_t together;
static pthread_mutex_t together_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool keeps_together;

void error_keep_together(bool wanted) {
    atomic_store(&keeps_together, wanted);
}

/* Returns the text to which the thread adds its paragraphs. said_leave() must be called afterwards. */
static said_t *said_enter(thread_t *thread) {
    if (!atomic_load(&keeps_together)) {
        return &thread->said;
    }
    pthread_mutex_lock(&together_lock);
    return &together;
}

static void said_leave(const said_t *said) {
    if (said == &together) {
        pthread_mutex_unlock(&together_lock);
    }
}

/* Whether a whole paragraph fits. A paragraph that does not fit is left out. */
static bool has_room(const said_t *said) {
    return said->length + 512 <= sizeof said->bytes;
}

static void append(said_t *said, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(said_t *said, const char *format, ...) {
    va_list arguments;
    size_t room = sizeof said->bytes - said->length;
    va_start(arguments, format);
    int length = vsnprintf(said->bytes + said->length, room, format, arguments);
    va_end(arguments);
    if (length > 0) {
        said->length += (size_t)length < room ? (size_t)length : room - 1;
    }
}

static void add_text(said_t *said, aclError code, const char *what) {
    const error_text_t *text = find_text(code);
    if (text == NULL || !has_room(said)) {
        return;
    }
    append(said, "%s: [PID: simulator] %s\n        Argument: %s. Result: %d.\n", text->label, text->sentence,
           what, code);
    append(said, "        TraceBack (most recent call last):\n        %s[FUNC:%s]\n", text->sentence,
           call_name());
}

void error_explain(aclError code, const char *why) {
    if (*why == '\0') {
        return;
    }
    said_t *said = said_enter(thread_self());
    if (has_room(said)) {
        append(said, "EE9999: [PID: simulator] A task failed on the device.\n        %s. Result: %d.\n", why,
               code);
    }
    said_leave(said);
}

aclError error_quiet(aclError code, const char *what) {
    said_t *said = said_enter(thread_self());
    add_text(said, code, what);
    said_leave(said);
    return code;
}

aclError error_set(aclError code, const char *what) {
    thread_t *thread = thread_self();
    thread->last_error = code;
    thread->keeps = true;
    return error_quiet(code, what);
}

void error_leave(thread_t *thread) {
    if (thread->keeps) {
        thread->keeps = false;
        SIM_GUARD();
        thread_context();
    }
}

/* Copies the new text to the buffer that the client reads. False: there is no new text. */
static bool show(thread_t *thread, bool no_context) {
    said_t *said = said_enter(thread);
    if (no_context) {
        add_text(said, RT_CONTEXT_NULL, "current context");
    }
    size_t length = thread->text_fault != TEXT_STALE ? said->length : 0;
    if (length > 0) {
        memcpy(thread->shown, said->bytes, length + 1);
        said->length = no_context ? length : 0;
    }
    said_leave(said);
    return length > 0;
}

/* If the thread has no context, the call adds an error about the missing context to the text, and does not
 * clear the text. */
const char *do_aclGetRecentErrMsg(void) {
    thread_t *thread = thread_self();
    sim_lock();
    bool no_context = thread_context() == NULL;
    sim_unlock();
    bool shown = show(thread, no_context) || thread->text_fault == TEXT_STALE;
    return fault_text(thread, shown ? thread->shown : NULL);
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
