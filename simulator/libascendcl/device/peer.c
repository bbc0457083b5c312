/* Permission of devices to access each other's memory. Copies in the simulator do not need this permission,
 * because all memory is host memory. */
#include "sim.h"

/* The runtime first converts the peer's id to a board id, so it reports a bad peer and a bad device
 * differently. */
static aclError check_peer(int32_t device, int32_t peer) {
    if (device == peer) {
        return error_quiet(ACL_INVALID_PARAM, "peerDeviceId");
    }
    return device_find(peer) == NULL ? error_set(RT_INVALID_DEVICE, "peerDeviceId") : ACL_SUCCESS;
}

aclError do_aclrtDeviceCanAccessPeer(int32_t *canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
    aclError rc = check_peer(deviceId, peerDeviceId);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (canAccessPeer == NULL || device_find(deviceId) == NULL) {
        return error_set(RT_PARAM_INVALID, canAccessPeer == NULL ? "canAccessPeer" : "deviceId");
    }
    *canAccessPeer = 1;
    return ACL_SUCCESS;
}

/* Called with sim.lock held. A missing context sets no last error, as in aclrtGetDevice. */
static aclError set_access(int32_t peer, bool access) {
    const context_t *context = thread_context();
    if (context == NULL) {
        return error_quiet(RT_CONTEXT_NULL, "current context");
    }
    aclError rc = check_peer(context->device->id, peer);
    if (rc == ACL_SUCCESS) {
        uint64_t bit = UINT64_C(1) << peer;
        context->device->peers = access ? context->device->peers | bit : context->device->peers & ~bit;
    }
    return rc;
}

aclError do_aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags) {
    if (flags != 0) {
        return error_quiet(ACL_FEATURE_UNSUPPORTED, "flags");
    }
    SIM_GUARD();
    return set_access(peerDeviceId, true);
}

aclError do_aclrtDeviceDisablePeerAccess(int32_t peerDeviceId) {
    SIM_GUARD();
    return set_access(peerDeviceId, false);
}

aclError do_aclrtDevicePeerAccessStatus(int32_t deviceId, int32_t peerDeviceId, int32_t *status) {
    REFUSE_NULL(status);
    const device_t *device = device_find(deviceId);
    if (device == NULL || device_find(peerDeviceId) == NULL) {
        return error_set(RT_INVALID_DEVICE, device == NULL ? "deviceId" : "peerDeviceId");
    }
    SIM_GUARD();
    *status = (int32_t)(device->peers >> peerDeviceId & 1);
    return ACL_SUCCESS;
}

/* HCCS links connect the devices of one host. */
aclError do_aclrtGetDevicesTopo(uint32_t deviceId, uint32_t otherDeviceId, uint64_t *value) {
    REFUSE_NULL(value);
    if (device_find((int32_t)deviceId) == NULL || device_find((int32_t)otherDeviceId) == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    *value = 1;
    return ACL_SUCCESS;
}

/* This chip's atomic operations do not cross the bus: every operation has the capability 0. */
static aclError no_atomics(uint32_t *capabilities, const aclrtAtomicOperation *operations, uint32_t count) {
    if (capabilities == NULL || operations == NULL || count == 0) {
        return error_set(RT_PARAM_INVALID, capabilities == NULL ? "capabilities" : "operations");
    }
    for (uint32_t i = 0; i < count; i++) {
        if ((unsigned int)operations[i] > ACL_RT_ATOMIC_OPERATION_SIMD_SCALAR_EXCH) {
            return error_set(RT_PARAM_INVALID, "operations");
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        capabilities[i] = 0;
    }
    return ACL_SUCCESS;
}

aclError do_aclrtDeviceGetHostAtomicCapabilities(uint32_t *capabilities, const aclrtAtomicOperation *operations,
                                                 const uint32_t count, int32_t deviceId) {
    if (device_find(deviceId) == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    return no_atomics(capabilities, operations, count);
}

aclError do_aclrtDeviceGetP2PAtomicCapabilities(uint32_t *capabilities, const aclrtAtomicOperation *operations,
                                                const uint32_t count, int32_t srcDeviceId,
                                                int32_t dstDeviceId) {
    if (device_find(srcDeviceId) == NULL || device_find(dstDeviceId) == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    return no_atomics(capabilities, operations, count);
}
