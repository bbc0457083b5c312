/* The end of a device's primary context and of the streams of any context. */
#include <string.h>

#include "models.h"
#include "sim.h"
#include "work.h"

static void end_stream(stream_t *stream) {
    bool reset = stream->context->primary;
    stream_drain_or_drop(stream, reset ? sim.settings.reset_drop_ns : sim.settings.context_drop_ns);
    if (stream->object.state == OBJECT_LIVE) {
        stream_free(stream);
    }
}

static void end_own_streams(context_t *context) {
    while (context->streams != NULL) {
        stream_t *stream = context->streams;
        object_retain(&stream->object);
        state_stream(stream, ACL_RT_STREAM_STATE_DESTROY_PRE);
        if (stream->object.state == OBJECT_LIVE) {
            end_stream(stream);
        }
        object_release(&stream->object);
    }
}

void context_teardown(context_t *context) {
    gate_enter(&context->gate);
    fault_teardown();
    end_own_streams(context);
    end_stream(context->default_stream);
    context->default_stream = NULL;
    graphs_end(context);
    models_end(context);
    host_stop(context);
    context->torn = true;
    gate_leave(&context->gate);
}

/* A reset of a device also waits for host functions of explicit contexts. */
static void wait_host_functions(void *object, void *arg) {
    context_t *context = object;
    if (context->device == arg && !context->primary) {
        host_wait(context);
    }
}

/* A primary context that is being made or ended still uses the device, although no set is counted. */
static bool primary_uses(const device_t *device) {
    const context_t *primary = device->primary;
    return primary != NULL && (atomic_load(&primary->active) || primary->resetter != NULL);
}

void device_close_unused(device_t *device) {
    if (device->explicit_contexts == 0 && !primary_uses(device)) {
        memory_free_device(device);
        health_release(device);
    }
}

void device_release(device_t *device) {
    context_t *primary = device->primary;
    bool outer = device_begin_change(device);
    device->retains = 0;
    device->resets++;
    fault_release_device(device);
    primary->resetter = thread_self();
    atomic_store(&primary->active, false);
    atomic_store(&device->open, false);
    state_stream(primary->default_stream, ACL_RT_STREAM_STATE_DESTROY_PRE);
    state_device(device->id, ACL_RT_DEVICE_STATE_RESET_PRE);
    sync_crash(primary); /* the callbacks may have ended the calls, for example by an abort */
    usage_reset(device); /* reports calls that the callbacks could not end */
    context_teardown(primary);
    object_each(KIND_CONTEXT, wait_host_functions, device);
    primary->resetter = NULL;
    device_close_unused(device);
    device->peers = 0;
    memset(device->cores, 0, sizeof device->cores);
    thread_self()->slot = -1;
    device_retire_primary(device);
    state_device(device->id, ACL_RT_DEVICE_STATE_RESET_POST);
    if (outer) {
        device_end_change(device);
    }
}
