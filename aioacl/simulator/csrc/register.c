/*
 * The client's own memory, registered: copies take it for pinned. A device would see it at an address of its
 * own, which no copy may use; that address is set aside, so that it is known.
 */
#include "block.h"

enum {
    PAGE_BYTES = 4096,
    TYPE_IO = 0x4,
    TYPE_READ_ONLY = 0x8,
    FLAG_MAPPED = 0x2,
    FLAG_PINNED = 0x10000000,
    FLAGS_OF_MAPPING = FLAG_MAPPED | TYPE_IO | TYPE_READ_ONLY
};

static aclError window_new(block_t *block) {
    area_t *area = area_new((block->size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES, NULL);
    block->owner = area;
    return area != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "size");
}

/* With sim.lock held, which is given up while the memory is looked at. */
static aclError register_locked(void *pointer, uint64_t size, bool writable, bool mapped, block_t **made) {
    const context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    device_t *device = context->device;
    if ((uintptr_t)pointer % PAGE_BYTES != 0) {
        return error_set(RT_PARAM_INVALID, "ptr: not aligned to 4096 bytes");
    }
    sim_unlock();
    bool there = move_is_there(pointer, size, writable);
    sim_lock();
    if (!there || arena_owns(pointer)) {
        return error_set(RT_DRIVER_ERROR, "ptr");
    }
    if (block_overlaps(pointer, size)) {
        return error_set(RT_HOST_MEMORY_ALREADY_REGISTERED, "ptr");
    }
    block_t *block = block_adopt(BLOCK_REGISTERED, device, pointer, size);
    aclError rc = block != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "ptr");
    rc = rc == ACL_SUCCESS && mapped ? window_new(block) : rc;
    if (block != NULL && rc != ACL_SUCCESS) {
        block_end(block);
    } else if (block != NULL) {
        block->access = writable ? MEMORY_READS | MEMORY_WRITES : MEMORY_READS;
        *made = block;
    }
    return rc;
}

void register_block_gone(block_t *block) {
    if (block->owner != NULL) {
        area_end(block->owner);
    }
}

static void *window_of(const block_t *block, const void *pointer) {
    const area_t *area = block->owner;
    return area->base + ((const char *)pointer - block->base);
}

aclError do_aclrtHostRegister(void *ptr, uint64_t size, aclrtHostRegisterType type, void **devPtr) {
    if (ptr == NULL || devPtr == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, ptr == NULL ? "ptr" : "devPtr or size");
    }
    if (((uint32_t)type & ~(uint32_t)(TYPE_IO | TYPE_READ_ONLY)) != 0) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "type");
    }
    block_t *block = NULL;
    sim_lock();
    aclError rc = register_locked(ptr, size, ((uint32_t)type & TYPE_READ_ONLY) == 0, true, &block);
    if (rc == ACL_SUCCESS) {
        *devPtr = window_of(block, ptr);
    }
    sim_unlock();
    return rc;
}

aclError do_aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag) {
    if (ptr == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, ptr == NULL ? "ptr" : "size");
    }
    uint32_t known = FLAGS_OF_MAPPING | FLAG_PINNED;
    if ((flag & known) == 0 || (flag & ~known) != 0 ||
        (flag & (TYPE_IO | FLAG_PINNED)) == (TYPE_IO | FLAG_PINNED)) {
        return error_set(RT_PARAM_INVALID, "flag");
    }
    block_t *block = NULL;
    sim_lock();
    aclError rc =
        register_locked(ptr, size, (flag & TYPE_READ_ONLY) == 0, (flag & FLAGS_OF_MAPPING) != 0, &block);
    sim_unlock();
    return rc;
}

aclError do_aclrtHostGetDevicePointer(void *pHost, void **pDevice, uint32_t flag) {
    if (pHost == NULL || pDevice == NULL || flag != 0) {
        return error_quiet(ACL_INVALID_PARAM, pHost == NULL ? "pHost" : "pDevice or flag");
    }
    aclError rc = RT_CONTEXT_NULL;
    sim_lock();
    if (context_need() != NULL) {
        const block_t *block = block_find(pHost);
        bool mapped = block != NULL && block->kind == BLOCK_REGISTERED && block->owner != NULL;
        rc = mapped ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "pHost");
        if (mapped) {
            *pDevice = window_of(block, pHost);
        }
    }
    sim_unlock();
    return rc;
}

aclError do_aclrtHostUnregister(void *ptr) {
    if (ptr == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "ptr");
    }
    aclError rc = RT_CONTEXT_NULL;
    sim_lock();
    if (context_need() != NULL) {
        block_t *block = block_at(ptr, BLOCK_REGISTERED);
        rc = block != NULL ? ACL_SUCCESS : error_set(RT_HOST_MEMORY_NOT_REGISTERED, "ptr");
        if (block != NULL) {
            block_end(block);
        }
    }
    sim_unlock();
    return rc;
}

/* No engine of this chip reaches host memory that is merely mapped. */
aclError do_aclrtHostMemMapCapabilities(uint32_t deviceId, aclrtHacType hacType,
                                        aclrtHostMemMapCapability *capabilities) {
    if (capabilities == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "capabilities");
    }
    if (device_find((int32_t)deviceId) == NULL || (unsigned int)hacType > ACL_RT_HAC_TYPE_CCU) {
        bool device = device_find((int32_t)deviceId) == NULL;
        return error_set(device ? RT_INVALID_DEVICE : RT_PARAM_INVALID, device ? "deviceId" : "hacType");
    }
    sim_lock();
    aclError rc = context_need() != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
    sim_unlock();
    return rc == ACL_SUCCESS ? error_quiet(RT_FEATURE_NOT_SUPPORT, "aclrtHostMemMapCapabilities") : rc;
}
