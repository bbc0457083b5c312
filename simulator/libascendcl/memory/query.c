/* Queries about memory, and the calls that keep caches coherent. */
#include <string.h>

#include "block.h"

enum {
    SMALL_PAGE_BYTES = 4096,
    HUGE_PAGE_BYTES = 2 << 20,
    CHECK_DEVICE = 0x2,
    CHECK_VIDEO = 0x8,
    CHECK_RESERVED = 0x10,
    FAULTS_MOST = 128
};

static const char usage_name[] = "APP";

/* The caches of a simulated device are always coherent, so only the arguments are checked. */
static aclError maintain_cache(const void *pointer, size_t size) {
    if (pointer == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, pointer == NULL ? "devPtr" : "size");
    }
    void *block = NULL;
    SIM_GUARD();
    aclError rc = context_need() != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS) {
        rc = memory_pin_for(pointer, size, 0, &block) ? ACL_SUCCESS : error_set(RT_DRIVER_ERROR, "devPtr");
        memory_unpin(block);
    }
    return rc;
}

aclError do_aclrtMemFlush(void *devPtr, size_t size) {
    return maintain_cache(devPtr, size);
}

aclError do_aclrtMemInvalidate(void *devPtr, size_t size) {
    return maintain_cache(devPtr, size);
}

aclrtMemLocation memory_location(const void *pointer) {
    const block_t *block = block_find(pointer);
    aclrtMemLocation location = {.type = ACL_MEM_LOCATION_TYPE_UNREGISTERED};
    if (block == NULL) {
        return location;
    }
    location.id = block->device != NULL ? (uint32_t)block->device->id : 0;
    location.type = block->device == NULL || block->kind == BLOCK_REGISTERED ? ACL_MEM_LOCATION_TYPE_HOST
                    : block->kind == BLOCK_MANAGED                           ? ACL_MEM_LOCATION_TYPE_MANAGED
                                                                             : ACL_MEM_LOCATION_TYPE_DEVICE;
    return location;
}

/* Works without a context. Large blocks of a device consist of huge pages. */
aclError do_aclrtPointerGetAttributes(const void *ptr, aclrtPtrAttributes *attributes) {
    REFUSE_NULL(ptr);
    REFUSE_NULL(attributes);
    aclrtPtrAttributes found = {.pageSize = SMALL_PAGE_BYTES};
    SIM_GUARD();
    const block_t *block = block_find(ptr);
    found.location = memory_location(ptr);
    if (block != NULL && found.location.type == ACL_MEM_LOCATION_TYPE_DEVICE &&
        block->size >= HUGE_PAGE_BYTES) {
        found.pageSize = HUGE_PAGE_BYTES;
    }
    *attributes = found;
    return ACL_SUCCESS;
}

aclError do_aclrtMemGetAddressRange(void *ptr, void **pbase, size_t *psize) {
    REFUSE_NULL(ptr);
    if (pbase == NULL && psize == NULL) {
        return error_set(RT_PARAM_INVALID, "pbase and psize");
    }
    SIM_GUARD();
    const block_t *block = block_find(ptr);
    if (block != NULL && pbase != NULL) {
        *pbase = block->base;
    }
    if (block != NULL && psize != NULL) {
        *psize = block->size;
    }
    return block != NULL ? ACL_SUCCESS : error_set(RT_DRIVER_ERROR, "ptr");
}

/* Simulated memory is neither reserved nor for video. */
aclError do_aclrtCheckMemType(void **addrList, uint32_t size, uint32_t memType, uint32_t *checkResult,
                              uint32_t reserve) {
    REFUSE_NULL(addrList);
    REFUSE_NULL(checkResult);
    if (!array_is_there(addrList, size, sizeof *addrList)) {
        return error_set(RT_PARAM_INVALID, "size");
    }
    uint32_t known = CHECK_DEVICE | CHECK_VIDEO | CHECK_RESERVED;
    if (size == 0 || memType == 0 || (memType & ~known) != 0 || reserve != 0) {
        return error_set(RT_PARAM_INVALID, size == 0 ? "size" : "memType or reserve");
    }
    SIM_GUARD();
    aclError rc = context_need() != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
    uint32_t result = (memType & CHECK_DEVICE) != 0 ? 1 : 0;
    for (uint32_t i = 0; rc == ACL_SUCCESS && i < size; i++) {
        result &= memory_location(addrList[i]).type == ACL_MEM_LOCATION_TYPE_DEVICE ? 1 : 0;
    }
    if (rc == ACL_SUCCESS) {
        *checkResult = result;
    }
    return rc;
}

/* In the simulator, all memory belongs to one component. */
aclError do_aclrtGetMemUsageInfo(int32_t deviceId, aclrtMemUsageInfo *memUsageInfo, size_t inputNum,
                                 size_t *outputNum) {
    REFUSE_NULL(memUsageInfo);
    REFUSE_NULL(outputNum);
    const device_t *device = device_find(deviceId);
    if (device == NULL || inputNum == 0) {
        return error_set(device == NULL ? RT_INVALID_DEVICE : RT_PARAM_INVALID,
                         device == NULL ? "deviceId" : "inputNum");
    }
    memset(memUsageInfo, 0, sizeof *memUsageInfo);
    memcpy(memUsageInfo->name, usage_name, sizeof usage_name);
    SIM_GUARD();
    memUsageInfo->curMemSize = device->bytes;
    memUsageInfo->memPeakSize = device->peak_bytes;
    *outputNum = 1;
    return ACL_SUCCESS;
}

/* The memory of a simulated device has no uncorrectable errors, so the list is empty. */
aclError do_aclrtGetMemUceInfo(int32_t deviceId, aclrtMemUceInfo *memUceInfoArray, size_t arraySize,
                               size_t *retSize) {
    if (memUceInfoArray == NULL || retSize == NULL || arraySize == 0) {
        return error_quiet(ACL_INVALID_PARAM, "memUceInfoArray, arraySize or retSize");
    }
    if (device_find(deviceId) == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    *retSize = 0;
    return ACL_SUCCESS;
}

aclError do_aclrtMemUceRepair(int32_t deviceId, aclrtMemUceInfo *memUceInfoArray, size_t arraySize) {
    static const aclrtMemUceInfo none;
    if (memUceInfoArray == NULL || arraySize == 0 || arraySize > FAULTS_MOST) {
        return error_quiet(ACL_INVALID_PARAM, memUceInfoArray == NULL ? "memUceInfoArray" : "arraySize");
    }
    for (size_t i = 0; i < arraySize; i++) {
        if (memcmp(memUceInfoArray[i].reserved, none.reserved, sizeof none.reserved) != 0) {
            return error_quiet(ACL_INVALID_PARAM, "memUceInfoArray: reserved");
        }
    }
    return device_find(deviceId) != NULL ? ACL_SUCCESS : error_set(RT_INVALID_DEVICE, "deviceId");
}
