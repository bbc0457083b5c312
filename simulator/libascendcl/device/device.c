/* Devices: the retain count of each device, the thread that sets or resets the device, and queries about the
 * device. */
#include "sim.h"

device_t *device_find(int32_t id) {
    return id >= 0 && id < sim.settings.devices ? &sim.devices[id] : NULL;
}

/* Waits while another thread sets or resets the device. A call in a callback of that set or reset does not
 * wait, because it runs on the thread that changes the device. A set or reset in the callback is part of the
 * change in progress. The change ends only when the call that began it ends. */
void device_wait_change(device_t *device) {
    while (device->changer != NULL && device->changer != thread_self()) {
        waiter_t waiter;
        wait_add(&device->changed, &waiter, 0);
        wait_for(&waiter, SIM_FOREVER);
    }
}

bool device_begin_change(device_t *device) {
    bool outer = device->changer == NULL;
    device->changer = thread_self();
    return outer;
}

void device_end_change(device_t *device) {
    device->changer = NULL;
    wait_finish_all(&device->changed, 0);
}

bool device_releasing(const device_t *device) {
    return device->primary != NULL && device->primary->resetter != NULL;
}

static bool primary_active(const device_t *device) {
    return device->primary != NULL && atomic_load(&device->primary->active);
}

static context_t *primary_of(device_t *device) {
    if (device->primary == NULL) {
        device->primary = object_new(KIND_CONTEXT);
        if (device->primary != NULL) {
            device->primary->primary = true;
            device->primary->device = device;
        }
    }
    if (device->retired != NULL) {
        object_release(&device->retired->object);
        device->retired = NULL;
    }
    return device->primary;
}

void device_retire_primary(device_t *device) {
    if (sim.settings.cann < CANN_MASTER) {
        device->retired = device->primary;
        device->primary = NULL;
        object_retain(&device->retired->object);
        object_kill(&device->retired->object);
    }
}

static aclError device_open(device_t *device) {
    if (device->explicit_contexts == 0) {
        state_device(device->id, ACL_RT_DEVICE_STATE_SET_PRE);
    }
    if (primary_active(device)) {
        return ACL_SUCCESS; /* the callback has set the device */
    }
    context_t *primary = primary_of(device);
    bool made = primary != NULL && executor_start(device) && context_activate(primary);
    if (!made || !atomic_load(&primary->active)) { /* or a callback has reset the new context */
        return error_set(RT_DEVICE_SETUP_ERROR, "deviceId");
    }
    atomic_store(&device->open, true);
    return ACL_SUCCESS;
}

aclError device_set(int32_t id) {
    aclError rc = ACL_SUCCESS;
    device_t *device = device_find(id);
    if (device == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    device_wait_change(device);
    if (device_releasing(device)) {
        return error_set(RT_DEVICE_SETUP_ERROR, "deviceId");
    }
    bool outer = device_begin_change(device);
    if (!primary_active(device)) {
        rc = device_open(device);
    }
    if (rc == ACL_SUCCESS) {
        device->retains++;
        thread_bind_slot(id);
    }
    if (outer) {
        device_end_change(device);
    }
    if (rc == ACL_SUCCESS) {
        state_device(id, ACL_RT_DEVICE_STATE_SET_POST);
    }
    return rc;
}

aclError do_aclrtSetDevice(int32_t deviceId) {
    SIM_GUARD();
    return device_set(deviceId);
}

static aclError device_reset(int32_t id, bool force) {
    device_t *device = device_find(id);
    if (device == NULL) {
        return force ? error_quiet(RT_INVALID_DEVICE, "deviceId") : error_set(RT_INVALID_DEVICE, "deviceId");
    }
    if (device->retains > 0) {
        device_wait_change(device); /* a reset in progress may fail, so this call waits until it ends */
    }
    if (device->retains == 0) {
        return force ? error_quiet(RT_CONTEXT_RELEASE_ERROR, "deviceId")
                     : error_set(RT_CONTEXT_RELEASE_ERROR, "deviceId");
    }
    if (force || device->retains == 1) {
        aclError rc = fault_reset(device);
        if (rc != ACL_SUCCESS) {
            return error_set(rc, "deviceId");
        }
        device_release(device);
        fault_was_reset(device, force);
    } else {
        device->retains--;
    }
    return ACL_SUCCESS;
}

aclError do_aclrtResetDevice(int32_t deviceId) {
    SIM_GUARD();
    return device_reset(deviceId, false);
}

aclError do_aclrtResetDeviceForce(int32_t deviceId) {
    SIM_GUARD();
    return device_reset(deviceId, true);
}

aclError do_aclrtGetDevice(int32_t *deviceId) {
    REFUSE_NULL(deviceId);
    SIM_GUARD();
    const context_t *context = thread_context();
    int id = context != NULL ? context->device->id : sim.default_device;
    if (id >= 0) {
        *deviceId = id;
    }
    return id >= 0 ? ACL_SUCCESS : error_quiet(RT_CONTEXT_NULL, "current context");
}

aclError do_aclrtGetDeviceCount(uint32_t *count) {
    REFUSE_NULL(count);
    if (sim.settings.devices == 0) {
        return error_set(RT_NO_DEVICE, "ASCEND_RT_VISIBLE_DEVICES");
    }
    *count = (uint32_t)sim.settings.devices;
    return ACL_SUCCESS;
}

/* Returns the status that the driver reports: whether the driver can reach the device. The status does not show
 * whether tasks make progress. */
aclError do_aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus *deviceStatus) {
    REFUSE_NULL(deviceStatus);
    const device_t *device = device_find(deviceId);
    if (device == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    SIM_GUARD();
    bool lost = device->health.fault_state == HEALTH_LOST;
    *deviceStatus = lost ? ACL_RT_DEVICE_STATUS_ABNORMAL : ACL_RT_DEVICE_STATUS_NORMAL;
    return ACL_SUCCESS;
}

aclError do_aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t *flags, int32_t *active) {
    if (flags != NULL || active == NULL) {
        return error_quiet(ACL_INVALID_PARAM, flags != NULL ? "flags" : "active");
    }
    const device_t *device = device_find(deviceId);
    if (device == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    SIM_GUARD();
    *active = device->retains > 0 ? 1 : 0;
    return ACL_SUCCESS;
}

aclError do_aclrtDeviceGetStreamPriorityRange(int32_t *leastPriority, int32_t *greatestPriority) {
    if (leastPriority != NULL) {
        *leastPriority = 7;
    }
    if (greatestPriority != NULL) {
        *greatestPriority = 0;
    }
    return ACL_SUCCESS;
}
