/*
 * Reserved addresses, and mappings at reserved addresses. A mapping is a block. Any location may be granted
 * access to a mapping. A copy may do everything that at least one location may do. If no location has access,
 * copies are refused.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "physical.h"

enum { HUGE_BYTES = 2 << 20 };

/* The addresses that a client may request. */
static const uintptr_t expect_first = (uintptr_t)16 << 40;
static const uintptr_t expect_last = (uintptr_t)24 << 40;
static const size_t reserve_most = (size_t)8 << 40;

typedef struct {
    physical_t *physical;
    area_t *area;
    size_t size;
    uint8_t host;
    uint8_t devices[SIM_MAX_DEVICES];
} mapping_t;

static aclError reserve(void **virPtr, size_t size, size_t alignment, void *expect) {
    uintptr_t first = (uintptr_t)expect;
    bool placed = expect == NULL || (first >= expect_first && first < expect_last && first % HUGE_BYTES == 0);
    if (alignment != 0 || !placed) {
        return error_set(RT_PARAM_INVALID, alignment != 0 ? "alignment" : "expectPtr");
    }
    size_t whole = size <= reserve_most ? (size + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES : 0;
    area_t *area = whole != 0 ? area_new(whole, HUGE_BYTES, expect) : NULL;
    if (area == NULL) {
        return error_set(expect == NULL ? RT_MEMORY_ALLOCATION : RT_DRIVER_ERROR, "size or expectPtr");
    }
    area->reserved = true;
    *virPtr = area->base;
    return ACL_SUCCESS;
}

static aclError check_reserve(void **virPtr, size_t size, uint64_t flags) {
    bool valid = virPtr != NULL && size != 0 && flags <= 1;
    return valid ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, virPtr == NULL ? "virPtr" : "size or flags");
}

/* Needs no context, because addresses belong to the whole process. */
aclError do_aclrtReserveMemAddress(void **virPtr, size_t size, size_t alignment, void *expectPtr,
                                   uint64_t flags) {
    aclError rc = check_reserve(virPtr, size, flags);
    if (rc == ACL_SUCCESS) {
        SIM_GUARD();
        rc = reserve(virPtr, size, alignment, expectPtr);
    }
    return rc;
}

/* Not supported by this chip. */
aclError do_aclrtReserveMemAddressNoUCMemory(void **virPtr, size_t size, size_t alignment, void *expectPtr,
                                             uint64_t flags) {
    (void)alignment;
    (void)expectPtr;
    aclError rc = check_reserve(virPtr, size, flags);
    return rc == ACL_SUCCESS ? error_quiet(RT_FEATURE_NOT_SUPPORT, "aclrtReserveMemAddressNoUCMemory") : rc;
}

aclError do_aclrtReleaseMemAddress(void *virPtr) {
    REFUSE_NULL(virPtr);
    aclError rc = ACL_SUCCESS;
    SIM_GUARD();
    area_t *area = area_find(virPtr);
    if (area == NULL || !area->reserved || area->base != virPtr || area->uses != 0) {
        usage_note("releases %p, which is not the start of reserved and unmapped addresses", virPtr);
        rc = error_set(RT_DRIVER_ERROR, "virPtr");
    } else {
        area_end(area);
    }
    return rc;
}

static void grant(block_t *block) {
    const mapping_t *mapping = block->owner;
    uint32_t access = mapping->host;
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        access |= mapping->devices[i];
    }
    block->access = access;
}

/* Whether the range is free. While a copy still uses an ended mapping of the area, no range of the area counts
 * as free. */
static bool range_is_free(const area_t *area, const char *base, size_t size) {
    size_t offset = (size_t)(base - area->base);
    return size <= area->size && offset <= area->size - size && !block_overlaps(base, size) &&
           area->leaving == 0;
}

static aclError map_block(char *base, physical_t *physical, area_t *area, bool access) {
    const storage_t *storage = physical->storage;
    mapping_t *mapping = calloc(1, sizeof *mapping);
    bool there = mapping != NULL && mmap(base, storage->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                                         storage->file, 0) != MAP_FAILED;
    block_t *block = there ? block_adopt(BLOCK_MAPPED, storage->device, base, physical->size) : NULL;
    if (block == NULL) {
        free(mapping);
        return error_set(RT_MEMORY_ALLOCATION, "virPtr");
    }
    *mapping = (mapping_t){.physical = physical, .area = area, .size = storage->size};
    uint8_t granted = access ? ACL_RT_MEM_ACCESS_FLAGS_READWRITE : ACL_RT_MEM_ACCESS_FLAGS_NONE;
    if (storage->device != NULL) {
        mapping->devices[storage->device->id] = granted;
    } else {
        mapping->host = granted;
    }
    block->owner = mapping;
    grant(block);
    physical->maps++;
    area->uses++;
    return ACL_SUCCESS;
}

static aclError map_locked(char *base, size_t size, size_t offset, aclrtDrvMemHandle handle, bool access) {
    physical_t *physical = physical_find(handle);
    if (physical == NULL) {
        return RT_DRIVER_ERROR;
    }
    if (size != physical->size || offset != 0 || (uintptr_t)base % HUGE_BYTES != 0) {
        return error_set(RT_PARAM_INVALID, offset != 0 ? "offset" : "size or virPtr");
    }
    area_t *area = area_find(base);
    if (area == NULL || !area->reserved || !range_is_free(area, base, physical->storage->size)) {
        usage_note("maps %zu bytes at %p, which are not reserved, or are in use", size, (void *)base);
        return error_set(RT_DRIVER_ERROR, "virPtr");
    }
    return map_block(base, physical, area, access);
}

static aclError map(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags,
                    bool access) {
    if (virPtr == NULL || handle == NULL || size == 0 || flags != 0) {
        return error_quiet(ACL_INVALID_PARAM, virPtr == NULL ? "virPtr" : "handle, size or flags");
    }
    SIM_GUARD();
    return map_locked(virPtr, size, offset, handle, access);
}

aclError do_aclrtMapMem(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
    return map(virPtr, size, offset, handle, flags, true);
}

aclError do_aclrtMemMapNoAccess(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                                uint64_t flags) {
    return map(virPtr, size, offset, handle, flags, false);
}

void mapping_block_ended(block_t *block) {
    mapping_t *mapping = block->owner;
    mapping->area->leaving++;
}

void mapping_block_gone(block_t *block) {
    mapping_t *mapping = block->owner;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    (void)mmap(block->base, mapping->size, PROT_NONE, flags, -1, 0);
    mapping->area->leaving--;
    mapping->area->uses--;
    mapping->physical->maps--;
    physical_settle(mapping->physical);
    free(mapping);
}

/* Returns the mapping that begins at the address, or sets the last error and returns NULL. */
static block_t *find_mapping(const void *pointer) {
    block_t *block = block_at(pointer, BLOCK_MAPPED);
    if (block == NULL) {
        usage_note("passes %p, which is not the start of a mapping", pointer);
        error_set(RT_DRIVER_ERROR, "virPtr");
    }
    return block;
}

aclError do_aclrtUnmapMem(void *virPtr) {
    REFUSE_NULL(virPtr);
    SIM_GUARD();
    block_t *block = find_mapping(virPtr);
    if (block != NULL) {
        block_end(block);
    }
    return block != NULL ? ACL_SUCCESS : RT_DRIVER_ERROR;
}

/* Returns the place that stores the access of a location, or sets the last error and returns NULL. */
static uint8_t *access_of(mapping_t *mapping, aclrtMemLocation location) {
    if (location.type == ACL_MEM_LOCATION_TYPE_HOST) {
        return &mapping->host;
    }
    bool device = location.type == ACL_MEM_LOCATION_TYPE_DEVICE;
    if (!device || device_find((int32_t)location.id) == NULL) {
        error_set(device ? RT_INVALID_DEVICE : RT_PARAM_INVALID, "location");
        return NULL;
    }
    return &mapping->devices[location.id];
}

static aclError set_access(block_t *block, const aclrtMemAccessDesc *desc) {
    uint8_t *access = access_of(block->owner, desc->location);
    if (access == NULL) {
        return thread_self()->last_error;
    }
    if (desc->flags != ACL_RT_MEM_ACCESS_FLAGS_NONE && desc->flags != ACL_RT_MEM_ACCESS_FLAGS_READ &&
        desc->flags != ACL_RT_MEM_ACCESS_FLAGS_READWRITE) {
        return error_set(RT_PARAM_INVALID, "desc: flags");
    }
    *access = (uint8_t)desc->flags;
    grant(block);
    return ACL_SUCCESS;
}

aclError do_aclrtMemSetAccess(void *virPtr, size_t size, aclrtMemAccessDesc *desc, size_t count) {
    if (virPtr == NULL || desc == NULL || count == 0 || !array_is_there(desc, count, sizeof *desc)) {
        return error_set(RT_PARAM_INVALID, virPtr == NULL ? "virPtr" : "desc or count");
    }
    SIM_GUARD();
    block_t *block = find_mapping(virPtr);
    aclError rc = block != NULL ? ACL_SUCCESS : RT_DRIVER_ERROR;
    if (block != NULL && block->size != size) {
        rc = error_set(RT_DRIVER_ERROR, "size");
    }
    for (size_t i = 0; rc == ACL_SUCCESS && i < count; i++) {
        rc = set_access(block, &desc[i]);
    }
    return rc;
}

aclError do_aclrtMemGetAccess(void *virPtr, aclrtMemLocation *location, uint64_t *flag) {
    if (virPtr == NULL || location == NULL || flag == NULL) {
        return error_quiet(ACL_INVALID_PARAM, virPtr == NULL ? "virPtr" : "location or flag");
    }
    sim_lock();
    const block_t *block = find_mapping(virPtr);
    const uint8_t *access = block != NULL ? access_of(block->owner, *location) : NULL;
    if (access != NULL) {
        *flag = *access;
    }
    sim_unlock();
    return access != NULL ? ACL_SUCCESS : thread_self()->last_error;
}

/* Returns the handle of the mapped memory again. The client must free the handle once for each time that it was
 * returned. */
aclError do_aclrtMemRetainAllocationHandle(void *virPtr, aclrtDrvMemHandle *handle) {
    REFUSE_NULL(virPtr);
    REFUSE_NULL(handle);
    SIM_GUARD();
    const block_t *block = find_mapping(virPtr);
    if (block != NULL) {
        const mapping_t *mapping = block->owner;
        mapping->physical->handles++;
        *handle = mapping->physical;
    }
    return block != NULL ? ACL_SUCCESS : RT_DRIVER_ERROR;
}
