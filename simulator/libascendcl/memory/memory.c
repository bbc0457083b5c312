/* Allocating and freeing device memory and pinned host memory. */
#include <string.h>

#include "block.h"

enum { ROUNDING = 32, PADDING = 32, FILL_BYTE = 0xA5, FILL_MOST = 1 << 20 };

static void end_if_of_device(block_t *block, void *arg) {
    if (block->device == arg) {
        block_end(block);
    }
}

void memory_free_device(device_t *device) {
    register_end_of_device(device);
    block_each(end_if_of_device, device);
    pool_end_of_device(device);
    physical_end_of_device(device);
}

void memory_counts(aclsim_stats_t *stats) {
    stats->device_blocks = block_count_of(BLOCK_DEVICE);
    stats->device_bytes = block_bytes_of(BLOCK_DEVICE);
    stats->host_blocks = block_count_of(BLOCK_HOST);
    stats->host_bytes = block_bytes_of(BLOCK_HOST);
    stats->pools = object_count(KIND_POOL);
    stats->pool_blocks = block_count_of(BLOCK_POOL);
    stats->managed_blocks = block_count_of(BLOCK_MANAGED);
    stats->physical = object_count(KIND_PHYSICAL);
    stats->mappings = block_count_of(BLOCK_MAPPED);
    stats->registrations = register_count();
    stats->reservations = area_reserved_count();
    stats->exports = ipc_memory_count();
}

static aclError take_device(device_t *device, void **pointer, size_t size, size_t padding, bool internal) {
    bool wraps = size > SIZE_MAX - ROUNDING - padding;
    size_t capacity = wraps ? SIZE_MAX : (size + ROUNDING - 1) / ROUNDING * ROUNDING + padding;
    block_t *block = memory_fits(device, capacity) ? block_make(BLOCK_DEVICE, device, size, capacity) : NULL;
    if (block == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "size");
    }
    block->internal = internal;
    memset(block->base, FILL_BYTE, size < FILL_MOST ? size : FILL_MOST);
    *pointer = block->base;
    return ACL_SUCCESS;
}

static aclError malloc_device(void **pointer, size_t size, size_t padding) {
    bool wraps = size > SIZE_MAX - ROUNDING - padding;
    if (pointer == NULL || size == 0 || wraps) {
        return error_quiet(ACL_INVALID_PARAM, pointer == NULL ? "devPtr" : "size");
    }
    SIM_GUARD();
    const context_t *context = context_need();
    return context != NULL ? take_device(context->device, pointer, size, padding, false) : RT_CONTEXT_NULL;
}

/* The policy only selects preferred pages, and any value is accepted. Pages of 1 GiB have no padding. */
static size_t padding_of(aclrtMemMallocPolicy policy) {
    return policy == ACL_MEM_MALLOC_HUGE1G_ONLY || policy == ACL_MEM_MALLOC_HUGE1G_ONLY_P2P ? 0 : PADDING;
}

aclError do_aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    return malloc_device(devPtr, size, padding_of(policy));
}

aclError do_aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    (void)policy;
    return malloc_device(devPtr, size, 0);
}

aclError do_aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    return malloc_device(devPtr, size, padding_of(policy));
}

/* Stores the last device that the attributes name, or the caller's device if they name none. */
static aclError read_config(const aclrtMallocConfig *cfg, device_t **device) {
    if (cfg != NULL && !array_is_there(cfg->attrs, cfg->numAttrs, sizeof *cfg->attrs)) {
        return error_set(RT_PARAM_INVALID, "cfg");
    }
    for (size_t i = 0; cfg != NULL && i < cfg->numAttrs; i++) {
        const aclrtMallocAttribute *attribute = &cfg->attrs[i];
        if ((unsigned int)attribute->attr > ACL_RT_MEM_ATTR_DEVICE_ID) {
            return error_set(RT_PARAM_INVALID, "cfg");
        }
        if (attribute->attr == ACL_RT_MEM_ATTR_DEVICE_ID) {
            *device = device_find((int32_t)attribute->value.deviceId);
        }
        if (*device == NULL) {
            return error_set(RT_INVALID_DEVICE, "cfg");
        }
    }
    return ACL_SUCCESS;
}

aclError do_aclrtMallocWithCfg(void **devPtr, size_t size, aclrtMemMallocPolicy policy,
                               aclrtMallocConfig *cfg) {
    (void)policy;
    if (devPtr == NULL || (cfg != NULL && cfg->numAttrs != 0 && cfg->attrs == NULL) || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, devPtr == NULL ? "devPtr" : "cfg or size");
    }
    SIM_GUARD();
    const context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    device_t *device = context->device;
    aclError rc = read_config(cfg, &device);
    if (rc == ACL_SUCCESS && !atomic_load(&device->open) && device->explicit_contexts == 0) {
        rc = error_set(RT_DRIVER_ERROR, "cfg: its device is not set");
    }
    return rc == ACL_SUCCESS ? take_device(device, devPtr, size, 0, false) : rc;
}

/* Allocates ordinary device memory, because the simulator has no separate memory of the task scheduler. */
aclError do_aclrtMallocForTaskScheduler(void **devPtr, size_t size, aclrtMemMallocPolicy policy,
                                        aclrtMallocConfig *cfg) {
    return do_aclrtMallocWithCfg(devPtr, size, policy, cfg);
}

static aclError take_host(void **pointer, size_t size) {
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    const block_t *block = memory_fits(NULL, size) ? block_make(BLOCK_HOST, NULL, size, size) : NULL;
    if (block == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "size");
    }
    memset(block->base, 0, size < FILL_MOST ? size : 0);
    *pointer = block->base;
    return ACL_SUCCESS;
}

aclError do_aclrtMallocHost(void **hostPtr, size_t size) {
    if (hostPtr == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, hostPtr == NULL ? "hostPtr" : "size");
    }
    SIM_GUARD();
    return take_host(hostPtr, size);
}

/* Only two attributes apply to host memory: the module and the flag of the address space. Neither has an
 * effect. */
static bool host_config_valid(const aclrtMallocConfig *cfg) {
    if (cfg != NULL && (cfg->attrs == NULL || !array_is_there(cfg->attrs, cfg->numAttrs, sizeof *cfg->attrs))) {
        return false;
    }
    for (size_t i = 0; cfg != NULL && i < cfg->numAttrs; i++) {
        if (cfg->attrs[i].attr != ACL_RT_MEM_ATTR_MODULE_ID && cfg->attrs[i].attr != ACL_RT_MEM_ATTR_VA_FLAG) {
            return false;
        }
    }
    return true;
}

aclError do_aclrtMallocHostWithCfg(void **ptr, uint64_t size, aclrtMallocConfig *cfg) {
    if (ptr == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, ptr == NULL ? "ptr" : "size");
    }
    if (!host_config_valid(cfg)) {
        return error_set(RT_PARAM_INVALID, "cfg");
    }
    SIM_GUARD();
    return take_host(ptr, size);
}

static bool is_freed_as(const block_t *block, bool device) {
    bool of_device = (block->kind == BLOCK_DEVICE && !block->internal) || block->kind == BLOCK_POOL ||
                     block->kind == BLOCK_MANAGED;
    return device ? of_device : block->kind == BLOCK_HOST;
}

static aclError free_block(void *pointer, bool device, aclError refusal) {
    aclError rc = ACL_SUCCESS;
    sim_lock();
    block_t *block = block_find(pointer);
    if (block != NULL && block->base == pointer && is_freed_as(block, device)) {
        if (block->device != NULL) {
            thread_uses(block->device);
        }
        if (block->returning) {
            usage_note("frees %p, which a stream will free", pointer);
        }
        block_end(block);
    } else {
        usage_note("frees %p, which is not a live block of that kind, or belongs to the runtime", pointer);
        rc = error_set(refusal, "pointer");
    }
    sim_unlock();
    return rc;
}

aclError memory_take(device_t *device, void **pointer, size_t size) {
    return take_device(device, pointer, size, 0, true);
}

aclError memory_take_for_client(device_t *device, void **pointer, size_t size) {
    return take_device(device, pointer, size, 0, false);
}

void memory_give(void *pointer) {
    block_t *block = block_at(pointer, BLOCK_DEVICE);
    if (block != NULL && block->internal) {
        block_end(block);
    }
}

aclError do_aclrtFree(void *devPtr) {
    return devPtr != NULL ? free_block(devPtr, true, RT_DRIVER_ERROR)
                          : error_quiet(ACL_INVALID_PARAM, "devPtr");
}

aclError do_aclrtFreeHost(void *hostPtr) {
    return hostPtr != NULL ? free_block(hostPtr, false, RT_PARAM_INVALID)
                           : error_quiet(ACL_INVALID_PARAM, "hostPtr");
}

aclError do_aclrtFreeWithDevSync(void *devPtr) {
    aclError rc = devPtr != NULL ? do_aclrtSynchronizeDevice() : ACL_SUCCESS;
    return rc == ACL_SUCCESS ? do_aclrtFree(devPtr) : rc;
}

aclError do_aclrtFreeHostWithDevSync(void *hostPtr) {
    aclError rc = hostPtr != NULL ? do_aclrtSynchronizeDevice() : ACL_SUCCESS;
    return rc == ACL_SUCCESS ? do_aclrtFreeHost(hostPtr) : rc;
}

aclError do_aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total) {
    REFUSE_NULL(free);
    REFUSE_NULL(total);
    if ((unsigned int)attr > ACL_MEM_P2P_HUGE1G) {
        return error_set(RT_INVALID_MEMORY_TYPE, "attr");
    }
    SIM_GUARD();
    const context_t *context = context_need();
    aclError rc = context != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS) {
        uint64_t used = context->device->bytes;
        *total = limit_memory(context->device);
        *free = *total > used ? *total - used : 0;
    }
    return rc;
}
