/* Queries about a stream that do not wait for it. */
#include "work.h"

typedef aclError (*stream_action_t)(context_t *context, stream_t *stream, uint64_t *value);

static aclError with_stream(aclrtStream handle, stream_action_t action, uint64_t *value) {
    stream_t *stream = NULL;
    aclError rc = RT_CONTEXT_NULL;
    SIM_GUARD();
    context_t *context = context_need();
    if (context != NULL) {
        rc = stream_find(context, handle, &stream);
    }
    return rc == ACL_SUCCESS ? action(context, stream, value) : rc;
}

static aclError query(context_t *context, stream_t *stream, uint64_t *value) {
    (void)context;
    if (stream->context->failure != 0) {
        return error_set(stream->context->failure, "stream");
    }
    aclError rc = capture_check_asked(stream);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    bool complete = stream->ended == stream->enqueued || stream_never_completes(stream);
    *value = complete ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return ACL_SUCCESS;
}

aclError do_aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status) {
    uint64_t value = 0;
    REFUSE_NULL(status);
    aclError rc = with_stream(stream, query, &value);
    if (rc == ACL_SUCCESS) {
        *status = (aclrtStreamStatus)value;
    }
    return rc;
}

static aclError get_priority(context_t *context, stream_t *stream, uint64_t *value) {
    (void)context;
    *value = stream->priority;
    return ACL_SUCCESS;
}

aclError do_aclrtStreamGetPriority(aclrtStream stream, uint32_t *priority) {
    uint64_t value = 0;
    REFUSE_NULL(priority);
    aclError rc = with_stream(stream, get_priority, &value);
    if (rc == ACL_SUCCESS) {
        *priority = (uint32_t)value;
    }
    return rc;
}

static aclError get_flags(context_t *context, stream_t *stream, uint64_t *value) {
    (void)context;
    *value = stream->flags;
    return ACL_SUCCESS;
}

aclError do_aclrtStreamGetFlags(aclrtStream stream, uint32_t *flags) {
    uint64_t value = 0;
    REFUSE_NULL(flags);
    aclError rc = with_stream(stream, get_flags, &value);
    if (rc == ACL_SUCCESS) {
        *flags = (uint32_t)value;
    }
    return rc;
}

/* The call needs a context only for the default stream. */
aclError do_aclrtStreamGetId(aclrtStream stream, int32_t *streamId) {
    REFUSE_NULL(streamId);
    aclError rc = RT_CONTEXT_NULL;
    SIM_GUARD();
    const stream_t *found = NULL;
    if (stream != NULL) {
        found = object_find(KIND_STREAM, stream);
        rc = found != NULL ? ACL_SUCCESS : usage_bad_handle(KIND_STREAM, stream);
    } else {
        const context_t *context = context_need();
        found = context != NULL ? context->default_stream : NULL;
    }
    if (found != NULL) {
        *streamId = (int32_t)found->id;
        rc = ACL_SUCCESS;
    }
    return rc;
}

aclError do_aclrtGetStreamAvailableNum(uint32_t *streamCount) {
    REFUSE_NULL(streamCount);
    SIM_GUARD();
    const context_t *context = context_need();
    if (context != NULL) {
        *streamCount = SIM_STREAMS_PER_DEVICE - context->device->streams;
    }
    return context != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
}
