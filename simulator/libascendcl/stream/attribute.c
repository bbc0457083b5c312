/* Queries about a stream that do not wait for it. */
#include "work.h"

aclError do_aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status) {
    REFUSE_NULL(status);
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_need_idle(stream, &found);
    if (rc == ACL_SUCCESS && found->context->failure != 0) {
        rc = error_set(found->context->failure, "stream");
    }
    if (rc == ACL_SUCCESS) {
        bool complete = found->ended == found->enqueued || stream_never_completes(found);
        *status = complete ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    }
    return rc;
}

aclError do_aclrtStreamGetPriority(aclrtStream stream, uint32_t *priority) {
    REFUSE_NULL(priority);
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_need(stream, &found);
    if (rc == ACL_SUCCESS) {
        *priority = found->priority;
    }
    return rc;
}

aclError do_aclrtStreamGetFlags(aclrtStream stream, uint32_t *flags) {
    REFUSE_NULL(flags);
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_need(stream, &found);
    if (rc == ACL_SUCCESS) {
        *flags = found->flags;
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
