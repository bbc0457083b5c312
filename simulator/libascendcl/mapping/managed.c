/*
 * Managed memory: the same address is valid on the host and on all devices. In the simulator, no page has to be
 * moved. So advice and prefetching only change what queries return, for each page of 2 MiB. The vendor's
 * documents call these functions reserved. The behaviour here is derived from the runtime's checks. The values
 * of attributes are derived from the names of the attributes.
 */
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "managed.h"

enum { PAGE_BYTES = 2 << 20, NO_LOCATION = -2, HOST = -1 };

static const uint64_t managed_most = 3ULL << 40;

bool managed_find(const void *pointer, size_t size, managed_range_t *range) {
    const block_t *block = block_find(pointer);
    if (block == NULL || block->kind != BLOCK_MANAGED) {
        return false;
    }
    size_t offset = (size_t)((const char *)pointer - block->base);
    if (size == 0 || size > block->capacity - offset) {
        return false;
    }
    range->first = (managed_page_t *)block->owner + offset / PAGE_BYTES;
    range->count = (offset + size - 1) / PAGE_BYTES - offset / PAGE_BYTES + 1;
    return true;
}

void managed_block_gone(block_t *block) {
    free(block->owner);
}

aclError do_aclrtMemAllocManaged(void **ptr, uint64_t size, uint32_t flag) {
    if (ptr == NULL || flag != 1) {
        return error_quiet(ACL_INVALID_PARAM, ptr == NULL ? "ptr" : "flag");
    }
    if (size == 0 || size > managed_most) {
        return error_set(RT_PARAM_INVALID, "size");
    }
    SIM_GUARD();
    const context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    uint64_t capacity = (size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    managed_page_t *pages = memory_fits(NULL, capacity) ? calloc(capacity / PAGE_BYTES, sizeof *pages) : NULL;
    block_t *block = pages != NULL ? block_make(BLOCK_MANAGED, context->device, capacity, capacity) : NULL;
    if (block == NULL) {
        free(pages);
        return error_set(RT_MEMORY_ALLOCATION, "size");
    }
    block->owner = pages;
    *ptr = block->base;
    return ACL_SUCCESS;
}

aclError managed_check_location(aclrtMemManagedLocation location) {
    if (location.type == ACL_MEM_LOCATIONTYPE_DEVICE && device_find(location.id) == NULL) {
        return error_set(RT_INVALID_DEVICE, "location");
    }
    bool known =
        location.type >= ACL_MEM_LOCATIONTYPE_DEVICE && location.type <= ACL_MEM_LOCATIONTYPE_HOST_NUMA_CURRENT;
    return known ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "location");
}

static uint64_t mask_of(aclrtMemManagedLocation location) {
    return location.type == ACL_MEM_LOCATIONTYPE_DEVICE ? 1ULL << location.id : 0;
}

static void advise_page(managed_page_t *page, aclrtMemManagedAdviseType advise,
                        aclrtMemManagedLocation location) {
    switch (advise) {
    case ACL_MEM_ADVISE_SET_READ_MOSTLY:
    case ACL_MEM_ADVISE_UNSET_READ_MOSTLY:
        page->read_mostly = advise == ACL_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case ACL_MEM_ADVISE_SET_PREFERRED_LOCATION:
        page->preferred = location;
        break;
    case ACL_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        page->preferred = (aclrtMemManagedLocation){.type = ACL_MEM_LOCATIONTYPE_INVALID};
        break;
    case ACL_MEM_ADVISE_SET_ACCESSED_BY:
        page->devices |= mask_of(location);
        break;
    default:
        page->devices &= ~mask_of(location);
        break;
    }
}

static bool needs_location(aclrtMemManagedAdviseType advise) {
    return advise == ACL_MEM_ADVISE_SET_PREFERRED_LOCATION || advise == ACL_MEM_ADVISE_SET_ACCESSED_BY ||
           advise == ACL_MEM_ADVISE_UNSET_ACCESSED_BY;
}

aclError do_aclrtMemManagedAdvise(const void *const ptr, uint64_t size, aclrtMemManagedAdviseType advise,
                                  aclrtMemManagedLocation location) {
    if (ptr == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, ptr == NULL ? "ptr" : "size");
    }
    managed_range_t range;
    SIM_GUARD();
    aclError rc = context_need() != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS && (unsigned int)advise > ACL_MEM_ADVISE_UNSET_ACCESSED_BY) {
        rc = error_set(RT_PARAM_INVALID, "advise");
    }
    if (rc == ACL_SUCCESS && needs_location(advise)) {
        rc = managed_check_location(location);
    }
    if (rc == ACL_SUCCESS && (size % PAGE_BYTES != 0 || !managed_find(ptr, size, &range))) {
        rc = error_set(RT_PARAM_INVALID, "ptr or size");
    }
    for (size_t i = 0; rc == ACL_SUCCESS && i < range.count; i++) {
        advise_page(&range.first[i], advise, location);
    }
    return rc;
}

static int32_t id_of(aclrtMemManagedLocation location) {
    switch (location.type) {
    case ACL_MEM_LOCATIONTYPE_DEVICE:
        return location.id;
    case ACL_MEM_LOCATIONTYPE_INVALID:
        return NO_LOCATION;
    default:
        return HOST;
    }
}

static int32_t value_of(const managed_page_t *page, aclrtMemManagedRangeAttribute attribute) {
    switch (attribute) {
    case ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        return page->read_mostly;
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        return (int32_t)page->preferred.type;
    case ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        return (int32_t)page->last.type;
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        return id_of(page->preferred);
    default:
        return id_of(page->last);
    }
}

/* Returns the value that all pages of the range have. If their values differ, returns the value of a page
 * without any setting. */
static int32_t common_value(const managed_range_t *range, aclrtMemManagedRangeAttribute attribute) {
    static const managed_page_t neutral;
    int32_t value = value_of(range->first, attribute);
    for (size_t i = 1; i < range->count; i++) {
        if (value_of(&range->first[i], attribute) != value) {
            return value_of(&neutral, attribute);
        }
    }
    return value;
}

static void list_devices(const managed_range_t *range, int32_t *ids, size_t room) {
    uint64_t mask = UINT64_MAX;
    for (size_t i = 0; i < range->count; i++) {
        mask &= range->first[i].devices;
    }
    for (size_t i = 0; i < room; i++) {
        ids[i] = mask != 0 ? __builtin_ctzll(mask) : NO_LOCATION;
        mask &= mask - (mask != 0);
    }
}

static aclError get_attribute(aclrtMemManagedRangeAttribute attribute, const managed_range_t *range, void *data,
                              size_t size) {
    bool list = attribute == ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    bool known = attribute >= ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY &&
                 attribute <= ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID;
    if (!known || data == NULL || size == 0 || size % sizeof(int32_t) != 0 ||
        (!list && size != sizeof(int32_t))) {
        return error_set(RT_PARAM_INVALID, "attribute or dataSize");
    }
    if (!place_is_there(data, size)) {
        return error_set(RT_PARAM_INVALID, "data");
    }
    int32_t ids[SIM_MAX_DEVICES];
    size_t room = size / sizeof *ids < SIM_MAX_DEVICES ? size / sizeof *ids : SIM_MAX_DEVICES;
    if (list) {
        list_devices(range, ids, room);
    } else {
        ids[0] = common_value(range, attribute);
    }
    memcpy(data, ids, room * sizeof *ids);
    return ACL_SUCCESS;
}

/* Both queries work without a context. */
static aclError get_attributes(const aclrtMemManagedRangeAttribute *attributes, size_t count,
                               const void *pointer, size_t size, void **data, const size_t *dataSizes) {
    managed_range_t range;
    SIM_GUARD();
    aclError rc =
        managed_find(pointer, size, &range) ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "ptr or size");
    for (size_t i = 0; rc == ACL_SUCCESS && i < count; i++) {
        rc = get_attribute(attributes[i], &range, data[i], dataSizes[i]);
    }
    return rc;
}

aclError do_aclrtMemManagedGetAttr(aclrtMemManagedRangeAttribute attribute, const void *ptr, size_t size,
                                   void *data, size_t dataSize) {
    if (ptr == NULL || data == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, "ptr, data or size");
    }
    return get_attributes(&attribute, 1, ptr, size, &data, &dataSize);
}

aclError do_aclrtMemManagedGetAttrs(aclrtMemManagedRangeAttribute *attributes, size_t numAttributes,
                                    const void *ptr, size_t size, void **data, size_t *dataSizes) {
    if (ptr == NULL || attributes == NULL || data == NULL || dataSizes == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, "ptr, attributes, data, dataSizes or size");
    }
    if (numAttributes == 0 || !array_is_there(attributes, numAttributes, sizeof *attributes) ||
        !array_is_there(data, numAttributes, sizeof *data) ||
        !array_is_there(dataSizes, numAttributes, sizeof *dataSizes)) {
        return error_set(RT_PARAM_INVALID, "numAttributes");
    }
    return get_attributes(attributes, numAttributes, ptr, size, data, dataSizes);
}
