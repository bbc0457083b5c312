/* Explicit contexts, the current context, and the functions for contexts of both kinds. */
#include <string.h>

#include "sim.h"

bool context_usable(const context_t *context) {
    bool live = context->object.state == OBJECT_LIVE;
    return live &&
           (atomic_load(&context->active) || (context->resetter != NULL && context->resetter == thread_self()));
}

context_t *context_need(void) {
    context_t *context = thread_context();
    if (context == NULL && sim.default_device >= 0 && device_set(sim.default_device) == ACL_SUCCESS) {
        context = thread_context();
    }
    if (context == NULL) {
        error_set(RT_CONTEXT_NULL, "current context");
    }
    return context;
}

bool context_activate(context_t *context) {
    context->torn = false;
    context->life = ++sim.lives;
    context->failure = 0;
    context->stop_on_failure = false;
    memset(context->option_set, 0, sizeof context->option_set);
    context->default_stream = stream_new(context, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC);
    if (context->default_stream == NULL) {
        return false;
    }
    context->default_stream->is_default = true;
    atomic_store(&context->active, true);
    state_stream(context->default_stream, ACL_RT_STREAM_STATE_CREATE_POST);
    return true;
}

static context_t *context_new(device_t *device) {
    if (device->retains == 0 && device->explicit_contexts == 0) {
        state_device(device->id, ACL_RT_DEVICE_STATE_SET_PRE);
    }
    bool room = !limit_reached(KIND_CONTEXT, device);
    context_t *context = room && executor_start(device) ? object_new(KIND_CONTEXT) : NULL;
    if (context == NULL) {
        return NULL;
    }
    context->device = device;
    device->explicit_contexts++;
    if (!context_activate(context)) {
        device->explicit_contexts--;
        object_kill(&context->object);
        return NULL;
    }
    return context;
}

aclError do_aclrtCreateContext(aclrtContext *context, int32_t deviceId) {
    REFUSE_NULL(context);
    aclError rc = ACL_SUCCESS;
    SIM_GUARD();
    device_t *device = device_find(deviceId);
    if (device == NULL) {
        rc = error_set(RT_INVALID_DEVICE, "deviceId");
    } else {
        device_wait_change(device);
        context_t *made = device_releasing(device) ? NULL : context_new(device);
        rc = made != NULL ? ACL_SUCCESS : error_set(RT_DEVICE_SETUP_ERROR, "deviceId");
        if (made != NULL) {
            thread_bind_context(made);
            *context = made;
        }
    }
    return rc;
}

/* The calling thread loses the context at once. Other threads lose it at their next lookup. */
static void unbind_caller(context_t *context) {
    if (thread_self()->current == context) {
        thread_context();
    }
}

/* Checks all streams of the context, because they end with the context. */
static void usage_destroy_all(const context_t *context) {
    usage_destroy(context->default_stream);
    for (const stream_t *stream = context->streams; stream != NULL; stream = stream->next) {
        usage_destroy(stream);
    }
}

static void context_destroy(context_t *context) {
    device_t *device = context->device;
    thread_uses(device);
    usage_destroy_all(context);
    context->resetter = thread_self();
    atomic_store(&context->active, false);
    state_stream(context->default_stream, ACL_RT_STREAM_STATE_DESTROY_PRE);
    sync_crash(context);
    context_teardown(context);
    context->resetter = NULL;
    device->explicit_contexts--;
    device_close_unused(device);
    object_kill(&context->object);
    unbind_caller(context);
}

aclError do_aclrtDestroyContext(aclrtContext context) {
    REFUSE_NULL(context);
    aclError rc = ACL_SUCCESS;
    SIM_GUARD();
    context_t *found = object_find(KIND_CONTEXT, context);
    bool half_alive = sim.settings.cann >= CANN_MASTER && object_state(KIND_CONTEXT, context) == OBJECT_DEAD;
    if (found == NULL) {
        usage_dead(KIND_CONTEXT, context);
    }
    if (half_alive || (found != NULL && found->resetter != NULL)) {
        rc = error_set(RT_CONTEXT_RELEASE_ERROR, "context");
    } else if (found == NULL || found->primary) {
        rc = error_set(RT_CONTEXT_NULL, "context");
    } else {
        context_destroy(found);
    }
    return rc;
}

aclError do_aclrtSetCurrentContext(aclrtContext context) {
    REFUSE_NULL(context);
    SIM_GUARD();
    context_t *found = object_find(KIND_CONTEXT, context);
    aclError rc = ACL_SUCCESS;
    if (found == NULL) {
        usage_dead(KIND_CONTEXT, context);
    }
    if (found != NULL && context_usable(found)) {
        thread_bind_context(found);
    } else if (sim.settings.cann <= CANN_8_5) {
        thread_bind_slot(-1); /* accepts any handle; the thread has no context afterwards */
    } else {
        rc = error_set(RT_PARAM_INVALID, "context");
    }
    return rc;
}

aclError do_aclrtGetCurrentContext(aclrtContext *context) {
    REFUSE_NULL(context);
    SIM_GUARD();
    context_t *current = thread_context();
    if (current != NULL) {
        *context = current;
    }
    return current != NULL ? ACL_SUCCESS : error_quiet(RT_CONTEXT_NULL, "current context");
}

aclError do_aclrtCtxGetCurrentDefaultStream(aclrtStream *stream) {
    REFUSE_NULL(stream);
    SIM_GUARD();
    context_t *context = context_need();
    if (context != NULL) {
        *stream = context->default_stream;
    }
    return context != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
}
