/* Stream attributes that can be set and read: failure mode, overflow check, tag, operator cache, priority. */
#include "graph.h"

/* What an attribute requires: nothing, a current context, or the context that owns the stream. */
typedef enum { NEED_NOTHING, NEED_CONTEXT, NEED_OWNER } need_t;

static aclError find_stream(aclrtStream handle, need_t need, stream_t **stream) {
    context_t *context = need != NEED_NOTHING || handle == NULL ? context_need() : NULL;
    if (context == NULL && (need != NEED_NOTHING || handle == NULL)) {
        return RT_CONTEXT_NULL;
    }
    aclError rc = stream_find(context, handle, stream);
    if (rc == ACL_SUCCESS && need == NEED_OWNER && (*stream)->context != context) {
        rc = usage_wrong_context(*stream);
    }
    return rc;
}

/* NULL means the default stream. The failure mode requires a context before any other check, and the priority
 * does not accept NULL. */
static aclError check_null(aclrtStreamAttr attribute) {
    bool no_context = attribute == ACL_STREAM_ATTR_FAILURE_MODE && thread_context() == NULL;
    return no_context || attribute == ACL_STREAM_ATTR_PRIORITY ? error_set(RT_PARAM_INVALID, "stream")
                                                               : ACL_SUCCESS;
}

/* Checks the handle, then the attribute. The caller's context is checked after both. */
static aclError check(aclrtStream handle, aclrtStreamAttr attribute) {
    aclError rc = stream_check_handle(handle);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    bool known = (int)attribute >= ACL_STREAM_ATTR_FAILURE_MODE && (int)attribute <= ACL_STREAM_ATTR_PRIORITY;
    if (!known) {
        return error_set(RT_PARAM_INVALID, "stmAttrType");
    }
    return handle == NULL ? check_null(attribute) : ACL_SUCCESS;
}

/* error_set or error_quiet: the function that reports that the mode cannot be changed. */
typedef aclError (*refuse_t)(aclError code, const char *what);

/* The call checks the owner of the stream only if it changes the mode. */
static aclError set_failure_mode(stream_t *stream, uint64_t mode, refuse_t refuse) {
    bool stop = (mode & 1) != 0;
    bool bound = stream->lane != NULL &&
                 (stream->lane->graph->state == GRAPH_BUILDING || stream->lane->graph->state == GRAPH_READY);
    if (stream->stop == stop && !bound) {
        return ACL_SUCCESS;
    }
    if (!stop || bound) {
        return refuse(RT_FEATURE_NOT_SUPPORT, bound ? "stream: it is bound to a model" : "mode");
    }
    if (stream->context != context_need()) {
        return error_set(RT_STREAM_CONTEXT, "stream");
    }
    stream->stop = true;
    stream->context->stop_on_failure = true;
    return ACL_SUCCESS;
}

/* Checks the value of a switch. Called before the check of the context. */
static aclError check_value(aclrtStreamAttr attribute, const aclrtStreamAttrValue *value) {
    bool refused = (attribute == ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK && value->overflowSwitch > 1) ||
                   (attribute == ACL_STREAM_ATTR_CACHE_OP_INFO && value->cacheOpInfoSwitch > 1);
    return refused ? error_set(RT_PARAM_INVALID, "value") : ACL_SUCCESS;
}

/* Called before the check of the context, too. */
static aclError check_capture(aclrtStream handle, aclrtStreamAttr attribute) {
    const stream_t *stream = handle != NULL ? object_find(KIND_STREAM, handle) : NULL;
    bool fixed =
        attribute == ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK || attribute == ACL_STREAM_ATTR_USER_CUSTOM_TAG;
    return fixed && stream != NULL ? capture_check_asked(stream) : ACL_SUCCESS;
}

/* The stream keeps the value for its next capture. Reading returns the value of the capture in progress, which
 * has the value of the stream that began it. */
static void set_cache_op_info(stream_t *stream, bool on) {
    stream->options.cache_op_info = on;
    if (capture_has(stream) && stream->lane == stream->lane->graph->lanes) {
        stream->lane->graph->cache_op_info = on;
    }
}

static aclError set(stream_t *stream, aclrtStreamAttr attribute, const aclrtStreamAttrValue *value) {
    switch (attribute) {
    case ACL_STREAM_ATTR_FAILURE_MODE:
        return set_failure_mode(stream, value->failureMode, error_set);
    case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
        stream->options.overflow_check = value->overflowSwitch == 1;
        return ACL_SUCCESS;
    case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
        stream->options.tag_inverted = ~value->userCustomTag;
        return ACL_SUCCESS;
    case ACL_STREAM_ATTR_CACHE_OP_INFO:
        set_cache_op_info(stream, value->cacheOpInfoSwitch == 1);
        return ACL_SUCCESS;
    default:
        return ACL_SUCCESS; /* the driver accepts any priority, and does not store it */
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
        value->cacheOpInfoSwitch = capture_has(stream) && stream->lane->graph->cache_op_info ? 1 : 0;
        break;
    default:
        value->streamPriority = 0;
        break;
    }
}

static need_t need_to_set(aclrtStreamAttr attribute) {
    switch (attribute) {
    case ACL_STREAM_ATTR_CACHE_OP_INFO:
        return NEED_NOTHING;
    case ACL_STREAM_ATTR_FAILURE_MODE:
    case ACL_STREAM_ATTR_PRIORITY:
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
    REFUSE_NULL(value);
    SIM_GUARD();
    aclError rc = check(stream, stmAttrType);
    rc = rc == ACL_SUCCESS ? check_value(stmAttrType, value) : rc;
    rc = rc == ACL_SUCCESS ? check_capture(stream, stmAttrType) : rc;
    rc = rc == ACL_SUCCESS ? find_stream(stream, need_to_set(stmAttrType), &found) : rc;
    return rc == ACL_SUCCESS ? set(found, stmAttrType, value) : rc;
}

aclError do_aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
                                    aclrtStreamAttrValue *value) {
    stream_t *found = NULL;
    REFUSE_NULL(value);
    SIM_GUARD();
    aclError rc = check(stream, stmAttrType);
    rc = rc == ACL_SUCCESS ? find_stream(stream, need_to_get(stmAttrType), &found) : rc;
    if (rc == ACL_SUCCESS) {
        get(found, stmAttrType, value);
    }
    return rc;
}

aclError do_aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = check(stream, ACL_STREAM_ATTR_FAILURE_MODE);
    rc = rc == ACL_SUCCESS ? find_stream(stream, NEED_CONTEXT, &found) : rc;
    return rc == ACL_SUCCESS ? set_failure_mode(found, mode, error_quiet) : rc;
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
    REFUSE_NULL(flag);
    aclError rc = do_aclrtGetStreamAttribute(stream, ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK, &value);
    if (rc == ACL_SUCCESS) {
        *flag = value.overflowSwitch;
    }
    return rc;
}

/* The simulated firmware cannot stop a stream without dropping its tasks. */
aclError do_aclrtStreamStop(aclrtStream stream) {
    stream_t *found = NULL;
    if (stream == NULL) {
        return error_set(RT_PARAM_INVALID, "stream");
    }
    SIM_GUARD();
    aclError rc = find_stream(stream, NEED_CONTEXT, &found);
    return rc != ACL_SUCCESS ? rc : error_set(RT_FEATURE_NOT_SUPPORT, "aclrtStreamStop");
}
