/*
 * Registered host memory. The memory is either the client's own memory, which copies treat as pinned while it
 * is registered, or pinned memory of ACL. Kernels access the memory at a second address, its window. Copies
 * cannot use the window.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "block.h"

enum {
    TYPE_IO = 0x4,
    TYPE_READ_ONLY = 0x8,
    FLAG_MAPPED = 0x2,
    FLAG_PINNED = 0x10000000,
    FLAGS_OF_MAPPING = FLAG_MAPPED | TYPE_IO | TYPE_READ_ONLY
};

typedef struct registration {
    struct registration *next;
    char *base;
    size_t size;
    device_t *device;
    block_t *block;  /* the block that contains the memory */
    area_t *window;  /* NULL: the memory is only pinned */
    uint64_t file;   /* inode of the window's pages that replaced private pages; 0: none */
    uint32_t access; /* what kernels may do through the window; 0: the pages could not be mapped */
} registration_t;

static registration_t *registrations;
static uint64_t registration_count;

static registration_t *registration_of(const void *pointer) {
    registration_t *found = registrations;
    while (found != NULL && (uintptr_t)pointer - (uintptr_t)found->base >= found->size) {
        found = found->next;
    }
    return found;
}

static bool is_registered(const char *base, size_t size) {
    for (const registration_t *other = registrations; other != NULL; other = other->next) {
        if ((uintptr_t)base < (uintptr_t)other->base + other->size &&
            (uintptr_t)other->base < (uintptr_t)base + size) {
            return true;
        }
    }
    return false;
}

/* If the pages of the memory cannot be mapped twice, the memory gets a window without access. */
static aclError window_new(registration_t *registration, uint32_t access) {
    size_t whole = (registration->size + HOST_PAGE_BYTES - 1) / HOST_PAGE_BYTES * HOST_PAGE_BYTES;
    area_t *area = area_new(whole, HOST_PAGE_BYTES, NULL);
    if (area == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "size");
    }
    bool made = alias_make(area->base, registration->base, whole, &registration->file);
    if (!made || (access & MEMORY_WRITES) == 0) {
        mprotect(area->base, whole, made ? PROT_READ : PROT_NONE);
    }
    registration->file = made ? registration->file : 0;
    registration->window = area;
    registration->access = made ? access : 0;
    return ACL_SUCCESS;
}

/* Returns the pinned block of ACL that contains all of the memory, and whose pages contain no other block; NULL
 * if there is none. Waits for copies that use the block, because its pages may be replaced. */
static block_t *pinned_block(const char *base, size_t size) {
    block_t *block = block_find(base);
    while (block != NULL && block->kind == BLOCK_HOST && block->pins > 0) {
        sim_unlock();
        sched_yield();
        sim_lock();
        block = block_find(base);
    }
    bool fits = block != NULL && block->kind == BLOCK_HOST && block->size >= HOST_PAGE_BYTES &&
                size <= block->size - (size_t)(base - block->base);
    return fits ? block : NULL;
}

static void window_part(const registration_t *registration) {
    const area_t *window = registration->window;
    if (window != NULL) {
        alias_end(window->base, registration->base, window->size, registration->file);
    }
}

static void unlink_and_free(registration_t *registration) {
    registration_t **link = &registrations;
    while (*link != registration) {
        link = &(*link)->next;
    }
    *link = registration->next;
    registration_count--;
    window_part(registration);
    if (registration->window != NULL) {
        area_end(registration->window);
    }
    free(registration);
}

static aclError add(block_t *block, device_t *device, char *base, size_t size, uint32_t access, bool mapped) {
    registration_t *registration = calloc(1, sizeof *registration);
    if (registration == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "ptr");
    }
    *registration =
        (registration_t){.next = registrations, .base = base, .size = size, .device = device, .block = block};
    registrations = registration;
    registration_count++;
    aclError rc = mapped ? window_new(registration, access) : ACL_SUCCESS;
    if (rc != ACL_SUCCESS) {
        unlink_and_free(registration);
    }
    return rc;
}

/* Called with sim.lock held, which is released while the memory is checked. */
static aclError register_locked(void *pointer, uint64_t size, bool writable, bool mapped) {
    const context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    device_t *device = context->device;
    if ((uintptr_t)pointer % HOST_PAGE_BYTES != 0) {
        return error_set(RT_PARAM_INVALID, "ptr: it is not aligned to 4096 bytes");
    }
    sim_unlock();
    bool there = move_is_there(pointer, size, writable);
    sim_lock();
    block_t *pinned = pinned_block(pointer, size);
    if (!there || (pinned == NULL && arena_owns(pointer))) {
        return error_set(RT_DRIVER_ERROR, "ptr");
    }
    if (is_registered(pointer, size) || (pinned == NULL && block_overlaps(pointer, size))) {
        return error_set(RT_HOST_MEMORY_ALREADY_REGISTERED, "ptr");
    }
    uint32_t access = writable ? MEMORY_READS | MEMORY_WRITES : MEMORY_READS;
    block_t *block = pinned != NULL ? pinned : block_adopt(BLOCK_REGISTERED, device, pointer, size);
    if (block == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "ptr");
    }
    block->access = pinned != NULL ? block->access : access;
    aclError rc = add(block, device, pointer, size, access, mapped);
    if (rc != ACL_SUCCESS && pinned == NULL) {
        block_end(block);
    }
    return rc;
}

static void registration_end(registration_t *registration) {
    block_t *block = registration->block;
    unlink_and_free(registration);
    if (block->kind == BLOCK_REGISTERED) {
        block_end(block);
    }
}

static void end_those(const device_t *device, const block_t *block) {
    registration_t *next = NULL;
    for (registration_t *each = registrations; each != NULL; each = next) {
        next = each->next;
        if (each->device == device || each->block == block) {
            registration_end(each);
        }
    }
}

void register_end_of_device(const device_t *device) {
    end_those(device, NULL);
}

void register_block_ended(const block_t *block) {
    end_those(NULL, block);
}

/* Called in a forked child. The child must not share private memory with its parent. The child also loses the
 * windows, because it cannot use the parent's devices. */
void register_forked(void) {
    for (registration_t *each = registrations; each != NULL; each = each->next) {
        window_part(each);
        if (each->window != NULL) {
            mmap(each->window->base, each->window->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                 0);
        }
    }
}

uint64_t register_count(void) {
    return registration_count;
}

static void *window_of(const registration_t *registration, const void *pointer) {
    return registration->window->base + ((const char *)pointer - registration->base);
}

const void *register_host_of(const device_t *device, const void *address, uint32_t *access) {
    for (const registration_t *each = registrations; each != NULL; each = each->next) {
        size_t offset = each->window != NULL ? (uintptr_t)address - (uintptr_t)each->window->base : SIZE_MAX;
        if (offset < each->size && each->device == device) {
            *access = each->access;
            return each->base + offset;
        }
    }
    return NULL;
}

aclError do_aclrtHostRegister(void *ptr, uint64_t size, aclrtHostRegisterType type, void **devPtr) {
    if (ptr == NULL || devPtr == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, ptr == NULL ? "ptr" : "devPtr or size");
    }
    if (((uint32_t)type & ~(uint32_t)(TYPE_IO | TYPE_READ_ONLY)) != 0) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "type");
    }
    SIM_GUARD();
    aclError rc = register_locked(ptr, size, ((uint32_t)type & TYPE_READ_ONLY) == 0, true);
    if (rc == ACL_SUCCESS) {
        *devPtr = window_of(registration_of(ptr), ptr);
    }
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
    SIM_GUARD();
    return register_locked(ptr, size, (flag & TYPE_READ_ONLY) == 0, (flag & FLAGS_OF_MAPPING) != 0);
}

aclError do_aclrtHostGetDevicePointer(void *pHost, void **pDevice, uint32_t flag) {
    if (pHost == NULL || pDevice == NULL || flag != 0) {
        return error_quiet(ACL_INVALID_PARAM, pHost == NULL ? "pHost" : "pDevice or flag");
    }
    SIM_GUARD();
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    const registration_t *found = registration_of(pHost);
    if (found == NULL || found->window == NULL) {
        return error_set(RT_PARAM_INVALID, "pHost");
    }
    *pDevice = window_of(found, pHost);
    return ACL_SUCCESS;
}

aclError do_aclrtHostUnregister(void *ptr) {
    REFUSE_NULL(ptr);
    SIM_GUARD();
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    registration_t *found = registration_of(ptr);
    if (found == NULL || found->base != ptr) {
        return error_set(RT_HOST_MEMORY_NOT_REGISTERED, "ptr");
    }
    registration_end(found);
    return ACL_SUCCESS;
}

/* Not supported by this chip. */
aclError do_aclrtHostMemMapCapabilities(uint32_t deviceId, aclrtHacType hacType,
                                        aclrtHostMemMapCapability *capabilities) {
    REFUSE_NULL(capabilities);
    if (device_find((int32_t)deviceId) == NULL || (unsigned int)hacType > ACL_RT_HAC_TYPE_CCU) {
        bool device = device_find((int32_t)deviceId) == NULL;
        return error_set(device ? RT_INVALID_DEVICE : RT_PARAM_INVALID, device ? "deviceId" : "hacType");
    }
    SIM_GUARD();
    aclError rc = context_need() != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
    return rc == ACL_SUCCESS ? error_quiet(RT_FEATURE_NOT_SUPPORT, "aclrtHostMemMapCapabilities") : rc;
}
