/* Attributes of streams that can be set and read: failure mode, overflow check, tag, operator cache, priority.
 */
#include "sim.h"

enum { PRIORITY_LEAST = 7 };

/* The caller's context is asked for by all but two of them, and its ownership of the stream by fewer. */
typedef enum { NEED_NOTHING, NEED_CONTEXT, NEED_OWNER } need_t;

/* A handle is looked at before the attribute, and both before the caller's context. */
static aclError find_stream(aclrtStream handle, need_t need, stream_t **stream) {
    context_t *context = need != NEED_NOTHING || handle == NULL ? context_need() : NULL;
    if (context == NULL && (need != NEED_NOTHING || handle == NULL)) {
        return RT_CONTEXT_NULL;
    }
    aclError rc = stream_find(context, handle, stream);
    if (rc == ACL_SUCCESS && need == NEED_OWNER && (*stream)->context != context) {
        rc = referee_wrong_context(*stream);
    }
    return rc;
}

static aclError check(aclrtStream handle, aclrtStreamAttr attribute) {
    if (handle != NULL && object_find(KIND_STREAM, handle) == NULL) {
        return referee_bad_handle(KIND_STREAM, handle);
    }
    bool known = (int)attribute >= ACL_STREAM_ATTR_FAILURE_MODE && (int)attribute <= ACL_STREAM_ATTR_PRIORITY;
    return known ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "stmAttrType");
}

/* Whose stream it is matters only where something is to change. */
static aclError set_failure_mode(stream_t *stream, uint64_t mode) {
    bool stop = (mode & 1) != 0;
    if (stream->stop == stop) {
        return ACL_SUCCESS;
    }
    if (!stop) {
        return error_set(RT_FEATURE_NOT_SUPPORT, "mode");
    }
    if (stream->context != context_need()) {
        return error_set(RT_STREAM_CONTEXT, "stream");
    }
    stream->stop = true;
    stream->context->stop_on_failure = true;
    return ACL_SUCCESS;
}

static aclError set_switch(bool *target, uint32_t value) {
    if (value > 1) {
        return error_set(RT_PARAM_INVALID, "value");
    }
    *target = value == 1;
    return ACL_SUCCESS;
}

static aclError set_priority(stream_t *stream, uint32_t value) {
    if (value > PRIORITY_LEAST) {
        return error_set(RT_PARAM_INVALID, "value");
    }
    stream->options.priority = value;
    return ACL_SUCCESS;
}

static aclError set(stream_t *stream, aclrtStreamAttr attribute, const aclrtStreamAttrValue *value) {
    switch (attribute) {
    case ACL_STREAM_ATTR_FAILURE_MODE:
        return set_failure_mode(stream, value->failureMode);
    case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
        return set_switch(&stream->options.overflow_check, value->overflowSwitch);
    case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
        stream->options.tag_inverted = ~value->userCustomTag;
        return ACL_SUCCESS;
    case ACL_STREAM_ATTR_CACHE_OP_INFO:
        return set_switch(&stream->options.cache_op_info, value->cacheOpInfoSwitch);
    default:
        return set_priority(stream, value->streamPriority);
    }
}

static void get(const stream_t *stream, aclrtStreamAttr attribute, aclrtStreamAttrValue *value) {
    switch (attribute) {
    case ACL_STREAM_ATTR_FAILURE_MODE:
        value->failureMode = stream->stop ? 1 : 0;
        break;
    case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
        value->overflowSwitch = stream->options.overflow_check ? 1 : 0;
        break;
    case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
        value->userCustomTag = ~stream->options.tag_inverted;
        break;
    case ACL_STREAM_ATTR_CACHE_OP_INFO:
        value->cacheOpInfoSwitch = stream->options.cache_op_info ? 1 : 0;
        break;
    default:
        value->streamPriority = stream->options.priority;
        break;
    }
}

static need_t need_to_set(aclrtStreamAttr attribute) {
    switch (attribute) {
    case ACL_STREAM_ATTR_CACHE_OP_INFO:
        return NEED_NOTHING;
    case ACL_STREAM_ATTR_FAILURE_MODE:
        return NEED_CONTEXT;
    default:
        return NEED_OWNER;
    }
}

static need_t need_to_get(aclrtStreamAttr attribute) {
    return attribute == ACL_STREAM_ATTR_FAILURE_MODE ? NEED_NOTHING : need_to_set(attribute);
}

aclError do_aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
                                    aclrtStreamAttrValue *value) {
    stream_t *found = NULL;
    if (value == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "value");
    }
    sim_lock();
    aclError rc = check(stream, stmAttrType);
    rc = rc == ACL_SUCCESS ? find_stream(stream, need_to_set(stmAttrType), &found) : rc;
    rc = rc == ACL_SUCCESS ? set(found, stmAttrType, value) : rc;
    sim_unlock();
    return rc;
}

aclError do_aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
                                    aclrtStreamAttrValue *value) {
    stream_t *found = NULL;
    if (value == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "value");
    }
    sim_lock();
    aclError rc = check(stream, stmAttrType);
    rc = rc == ACL_SUCCESS ? find_stream(stream, need_to_get(stmAttrType), &found) : rc;
    if (rc == ACL_SUCCESS) {
        get(found, stmAttrType, value);
    }
    sim_unlock();
    return rc;
}

aclError do_aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
    stream_t *found = NULL;
    sim_lock();
    aclError rc = find_stream(stream, NEED_CONTEXT, &found);
    rc = rc == ACL_SUCCESS ? set_failure_mode(found, mode) : rc;
    sim_unlock();
    return rc;
}

aclError do_aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag) {
    aclrtStreamAttrValue value = {.overflowSwitch = flag};
    if (flag > 1) {
        return error_quiet(ACL_INVALID_PARAM, "flag");
    }
    return do_aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK, &value);
}

aclError do_aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t *flag) {
    aclrtStreamAttrValue value = {.overflowSwitch = 0};
    if (flag == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "flag");
    }
    aclError rc = do_aclrtGetStreamAttribute(stream, ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK, &value);
    if (rc == ACL_SUCCESS) {
        *flag = value.overflowSwitch;
    }
    return rc;
}

/* The simulated firmware cannot stop a stream and keep its tasks. */
aclError do_aclrtStreamStop(aclrtStream stream) {
    stream_t *found = NULL;
    if (stream == NULL) {
        return error_set(RT_PARAM_INVALID, "stream");
    }
    sim_lock();
    aclError rc = find_stream(stream, NEED_CONTEXT, &found);
    sim_unlock();
    return rc != ACL_SUCCESS ? rc : error_set(RT_FEATURE_NOT_SUPPORT, "aclrtStreamStop");
}
