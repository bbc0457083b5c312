/* Physical memory: its properties, and handles of it. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "physical.h"

enum { HUGE_BYTES = 2 << 20, GIGANTIC_BYTES = 1 << 30 };

physical_t *physical_find(const void *handle) {
    physical_t *physical = object_find(KIND_PHYSICAL, handle);
    if (physical == NULL || physical->handles == 0) {
        usage_note("passes handle %p: expected a live handle of physical memory", handle);
        error_set(RT_DRIVER_ERROR, "handle");
        return NULL;
    }
    return physical;
}

static bool is_host(const aclrtPhysicalMemProp *prop) {
    return prop->location.type == ACL_MEM_LOCATION_TYPE_HOST ||
           prop->location.type == ACL_MEM_LOCATION_TYPE_HOST_NUMA;
}

static bool is_gigantic(aclrtMemAttr attr) {
    return attr == ACL_HBM_MEM_HUGE1G || attr == ACL_MEM_HUGE1G || attr == ACL_MEM_P2P_HUGE1G;
}

/* Attributes with DDR in their names are valid for the host only. */
static bool attribute_exists(const aclrtPhysicalMemProp *prop) {
    switch (prop->memAttr) {
    case ACL_DDR_MEM_HUGE:
    case ACL_DDR_MEM_NORMAL:
    case ACL_DDR_MEM_P2P_HUGE:
    case ACL_DDR_MEM_P2P_NORMAL:
        return prop->location.type != ACL_MEM_LOCATION_TYPE_DEVICE;
    case ACL_HBM_MEM_HUGE:
    case ACL_HBM_MEM_NORMAL:
    case ACL_HBM_MEM_HUGE1G:
        return true;
    default:
        return prop->memAttr >= ACL_MEM_NORMAL && prop->memAttr <= ACL_MEM_P2P_HUGE1G;
    }
}

static aclError check_prop(const aclrtPhysicalMemProp *prop) {
    return attribute_exists(prop) ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "prop: memAttr");
}

static size_t granularity_of(const aclrtPhysicalMemProp *prop) {
    return is_gigantic(prop->memAttr) ? GIGANTIC_BYTES : HUGE_BYTES;
}

/* Finds the device of the memory; NULL for host memory. */
static aclError find_place(const aclrtPhysicalMemProp *prop, device_t **device) {
    *device = NULL;
    if (prop->location.type == ACL_MEM_LOCATION_TYPE_DEVICE) {
        *device = device_find((int32_t)prop->location.id);
        return *device != NULL ? ACL_SUCCESS : error_set(RT_INVALID_DEVICE, "prop: location");
    }
    return is_host(prop) ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "prop: location");
}

static storage_t *storage_new(device_t *device, size_t size, const aclrtPhysicalMemProp *prop) {
    storage_t *storage = calloc(1, sizeof *storage);
    int file = storage != NULL ? memfd_create("aclsim", MFD_CLOEXEC) : -1;
    if (file < 0 || ftruncate(file, (off_t)size) != 0) {
        if (file >= 0) {
            close(file);
        }
        free(storage);
        return NULL;
    }
    *storage = (storage_t){.file = file, .size = size, .refs = 1, .device = device, .prop = *prop};
    memory_account(device, size);
    return storage;
}

static void storage_release(storage_t *storage) {
    if (--storage->refs == 0) {
        memory_account(storage->device, -(uint64_t)storage->size);
        close(storage->file);
        free(storage);
    }
}

physical_t *physical_new(storage_t *storage, size_t size) {
    physical_t *physical = object_new(KIND_PHYSICAL);
    if (physical != NULL) {
        storage->refs++;
        physical->storage = storage;
        physical->size = size;
        physical->handles = 1;
    }
    return physical;
}

void physical_settle(physical_t *physical) {
    if (physical->handles == 0 && physical->maps == 0) {
        storage_release(physical->storage);
        object_kill(&physical->object);
    }
}

static void end_if_of_device(void *object, void *arg) {
    physical_t *physical = object;
    if (physical->storage->device == arg && physical->handles > 0) {
        physical->handles = 0;
        physical_settle(physical);
    }
}

void physical_end_of_device(device_t *device) {
    object_each(KIND_PHYSICAL, end_if_of_device, device);
}

static void match_share(void *object, void *arg) {
    physical_t *physical = object;
    storage_t **found = arg;
    uint64_t share = (*found)->share;
    if (physical->storage->share == share) {
        *found = physical->storage;
    }
}

storage_t *storage_of_share(uint64_t share) {
    storage_t wanted = {.share = share};
    storage_t *found = &wanted;
    if (share != 0) {
        object_each(KIND_PHYSICAL, match_share, &found);
    }
    return found != &wanted ? found : NULL;
}

static aclError allocate(aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *prop) {
    device_t *device = NULL;
    aclError rc = find_place(prop, &device);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (prop->location.type == ACL_MEM_LOCATION_TYPE_HOST_NUMA && context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    if (device != NULL && device->retains == 0 && device->explicit_contexts == 0) {
        return error_set(RT_DRIVER_ERROR, "prop: its device is not set");
    }
    size_t grain = granularity_of(prop);
    size_t whole = size <= PTRDIFF_MAX - grain ? (size + grain - 1) / grain * grain : SIZE_MAX;
    bool fits = whole != SIZE_MAX && memory_fits(device, whole);
    storage_t *storage = fits ? storage_new(device, whole, prop) : NULL;
    physical_t *physical = storage != NULL ? physical_new(storage, size) : NULL;
    if (storage != NULL) {
        storage_release(storage); /* a created handle has its own reference */
    }
    if (physical == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "size");
    }
    *handle = physical;
    return ACL_SUCCESS;
}

static bool request_valid(size_t size, const aclrtPhysicalMemProp *prop, uint64_t flags) {
    return size != 0 && flags == 0 && prop->handleType == ACL_MEM_HANDLE_TYPE_NONE &&
           prop->allocationType == ACL_MEM_ALLOCATION_TYPE_PINNED &&
           prop->location.type != ACL_MEM_LOCATION_TYPE_UNREGISTERED &&
           prop->location.type != ACL_MEM_LOCATION_TYPE_MANAGED;
}

aclError do_aclrtMallocPhysical(aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *prop,
                                uint64_t flags) {
    if (handle == NULL || prop == NULL || !request_valid(size, prop, flags)) {
        return error_quiet(ACL_INVALID_PARAM, handle == NULL ? "handle" : "size, prop or flags");
    }
    aclError rc = check_prop(prop);
    if (rc == ACL_SUCCESS) {
        SIM_GUARD();
        rc = allocate(handle, size, prop);
    }
    return rc;
}

/* Mapped memory stays until it is unmapped. */
aclError do_aclrtFreePhysical(aclrtDrvMemHandle handle) {
    REFUSE_NULL(handle);
    SIM_GUARD();
    physical_t *physical = physical_find(handle);
    if (physical != NULL) {
        physical->handles--;
        physical_settle(physical);
    }
    return physical != NULL ? ACL_SUCCESS : RT_DRIVER_ERROR;
}

aclError do_aclrtMemGetAllocationPropertiesFromHandle(aclrtDrvMemHandle handle, aclrtPhysicalMemProp *prop) {
    REFUSE_NULL(handle);
    REFUSE_NULL(prop);
    SIM_GUARD();
    const physical_t *physical = physical_find(handle);
    if (physical != NULL) {
        *prop = physical->storage->prop;
    }
    return physical != NULL ? ACL_SUCCESS : RT_DRIVER_ERROR;
}

aclError do_aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp *prop, aclrtMemGranularityOptions option,
                                             size_t *granularity) {
    REFUSE_NULL(prop);
    REFUSE_NULL(granularity);
    device_t *device = NULL;
    aclError rc = check_prop(prop);
    rc = rc == ACL_SUCCESS ? find_place(prop, &device) : rc;
    if (rc == ACL_SUCCESS && (unsigned int)option > ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
        rc = error_set(RT_PARAM_INVALID, "option");
    }
    if (rc == ACL_SUCCESS) {
        *granularity = granularity_of(prop);
    }
    return rc;
}
