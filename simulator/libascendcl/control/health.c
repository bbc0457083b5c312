/*
 * Devices in a fault state. Calls that query the device's work return the code of the fault. Calls that wait
 * for the work also return the code, until a wait or query has returned it. After that, they return a time-out.
 * Calls that create or enqueue fail. Calls that destroy or free something do so, and return an error. The
 * device can still be set and reset, but a lost device cannot be set until the runtime has released it.
 */
#include <string.h>

#include "rule.h"
#include "sim.h"

static uint32_t faulty_devices;

bool health_any_faulty(void) {
    return faulty_devices > 0;
}

typedef struct {
    const device_t *device;
    aclError code;
} wake_t;

static void wake(void *object, void *arg) {
    stream_t *stream = object;
    const wake_t *what = arg;
    if (stream->device == what->device) {
        stream_wake_all(stream, what->code);
    }
}

void health_enter_fault_state(device_t *device, fault_state_t fault_state, aclError code,
                              uint32_t reset_fails) {
    wake_t what = {.device = device, .code = code};
    faulty_devices += device->health.fault_state == HEALTH_WELL ? 1 : 0;
    device->health = (health_t){.fault_state = fault_state, .code = code, .reset_fails = reset_fails};
    object_each(KIND_STREAM, wake, &what);
    fault_refresh();
    if (fault_state == HEALTH_LOST || code == RT_DEVICE_OOM) {
        recycler_device_fault(device, code);
    }
}

static void kick(void *object, void *arg) {
    stream_t *stream = object;
    if (stream->device == arg) {
        stream_kick(stream);
    }
}

void health_heal(device_t *device) {
    if (device->health.fault_state != HEALTH_WELL) {
        device->health = (health_t){.fault_state = HEALTH_WELL};
        faulty_devices--;
        object_each(KIND_STREAM, kick, device);
        fault_refresh();
    }
}

void health_release(device_t *device) {
    if (device->health.fault_state == HEALTH_LOST) {
        device->health.fault_state = HEALTH_STICKY;
    }
}

void health_heal_all(void) {
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        health_heal(&sim.devices[i]);
    }
}

static bool ends_object(function_t function) {
    const char *name = function_info[function].name;
    return group_has("destroy", 7, function) || strstr(name, "Abort") != NULL || strstr(name, "UnSub") != NULL;
}

static void injection_wait(injection_t *injection, health_t *health) {
    aclError late = group_has("event", 5, injection->function) ? RT_EVENT_SYNC_TIMEOUT : RT_STREAM_SYNC_TIMEOUT;
    injection_refuse(injection, injection->false_drain ? ACL_SUCCESS : health->returned ? late : health->code);
    health->returned = health->returned || !injection->false_drain;
}

static void injection_any(injection_t *injection, health_t *health) {
    if (group_has("sync", 4, injection->function)) {
        injection_wait(injection, health);
    } else if (group_has("query", 5, injection->function)) {
        injection_refuse(injection, health->code);
        health->returned = true;
    } else if (ends_object(injection->function)) {
        injection->after = RT_DRIVER_ERROR;
    } else {
        injection_refuse(injection, RT_DRIVER_ERROR);
    }
}

void health_inject(injection_t *injection) {
    health_t *health = injection->device != NULL ? &injection->device->health : NULL;
    if (health == NULL || health->fault_state == HEALTH_WELL) {
        return;
    }
    switch (function_info[injection->function].kind) {
    case CALL_FREE:
        break;
    case CALL_CONTROL:
        if (health->fault_state == HEALTH_LOST && !group_has("reset", 5, injection->function)) {
            injection_refuse(injection, health->code);
        }
        break;
    default:
        injection_any(injection, health);
    }
}
