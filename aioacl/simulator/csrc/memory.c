/*
 * Blocks of device memory and pinned host memory. Both are host memory; a sorted table of live blocks tells
 * which kind a pointer is and where its block ends. A block that a running copy uses is freed when the copy
 * is over.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "work.h"

enum { PADDING = 32, FILL_BYTE = 0xA5, FILL_MOST = 1 << 20 };

static const uint64_t device_capacity = 64ULL << 30;

typedef struct {
    char *base;
    size_t size;      /* asked for */
    size_t capacity;  /* there */
    device_t *device; /* NULL: pinned host memory */
    uint32_t pins;
    bool freed;
} block_t;

static block_t **blocks; /* sorted by address */
static size_t block_count;
static size_t block_room;
static uint64_t host_blocks;
static uint64_t host_bytes;
static uint64_t device_blocks;
static uint64_t device_bytes;

/* Index of the first block that begins above the address. */
static size_t upper_bound(const void *pointer) {
    size_t low = 0;
    size_t high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)blocks[middle]->base <= (uintptr_t)pointer) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static block_t *find_block(const void *pointer) {
    size_t index = upper_bound(pointer);
    if (index == 0) {
        return NULL;
    }
    block_t *block = blocks[index - 1];
    return (uintptr_t)pointer < (uintptr_t)block->base + block->capacity ? block : NULL;
}

static bool make_room(void) {
    if (block_count < block_room) {
        return true;
    }
    size_t room = block_room != 0 ? block_room * 2 : 256;
    block_t **grown = realloc(blocks, room * sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    blocks = grown;
    block_room = room;
    return true;
}

static void block_free(block_t *block) {
    arena_give(block->base, block->capacity);
    free(block);
}

static void count_block(const block_t *block, uint64_t sign) {
    if (block->device != NULL) {
        block->device->bytes += sign * block->capacity;
        device_blocks += sign;
        device_bytes += sign * block->size;
    } else {
        host_blocks += sign;
        host_bytes += sign * block->size;
    }
}

static block_t *block_new(device_t *device, size_t size, size_t capacity) {
    block_t *block = make_room() ? calloc(1, sizeof *block) : NULL;
    char *base = block != NULL ? arena_take(capacity) : NULL;
    if (base == NULL) {
        free(block);
        return NULL;
    }
    *block = (block_t){.base = base, .size = size, .capacity = capacity, .device = device};
    size_t index = upper_bound(base);
    memmove(&blocks[index + 1], &blocks[index], (block_count - index) * sizeof *blocks);
    blocks[index] = block;
    block_count++;
    count_block(block, 1);
    return block;
}

static void block_end(block_t *block) {
    size_t index = upper_bound(block->base) - 1;
    block_count--;
    memmove(&blocks[index], &blocks[index + 1], (block_count - index) * sizeof *blocks);
    count_block(block, UINT64_MAX);
    block->freed = true;
    if (block->pins == 0) {
        block_free(block);
    }
}

memory_t memory_kind(const void *pointer) {
    const block_t *block = find_block(pointer);
    if (block == NULL) {
        return arena_owns(pointer) ? MEMORY_STALE : MEMORY_PAGEABLE;
    }
    return block->device != NULL ? MEMORY_DEVICE : MEMORY_PINNED;
}

static void note_overrun(const block_t *block, const void *pointer, size_t count) {
    referee_note("moves %zu bytes at %p, past the end of block %p (%zu bytes)", count, pointer,
                 (void *)block->base, block->size);
}

bool memory_pin(const void *pointer, size_t count, void **pinned) {
    block_t *block = find_block(pointer);
    *pinned = NULL;
    if (block == NULL) {
        referee_note("uses %p, which lies in no live block", pointer);
        return false;
    }
    size_t offset = (size_t)((const char *)pointer - block->base);
    if (count > block->size || offset > block->size - count) {
        note_overrun(block, pointer, count);
    }
    if (count > block->capacity - offset) {
        return false;
    }
    block->pins++;
    *pinned = block;
    return true;
}

void memory_unpin(void *pinned) {
    block_t *block = pinned;
    if (block != NULL) {
        value_may_have_changed();
    }
    if (block != NULL && --block->pins == 0 && block->freed) {
        block_free(block);
    }
}

void memory_free_device(device_t *device) {
    for (size_t i = block_count; i-- > 0;) {
        if (blocks[i]->device == device) {
            block_end(blocks[i]);
        }
    }
}

void memory_counts(aclsim_stats_t *stats) {
    stats->device_blocks = device_blocks;
    stats->device_bytes = device_bytes;
    stats->host_blocks = host_blocks;
    stats->host_bytes = host_bytes;
}

static aclError malloc_device(void **pointer, size_t size, size_t padding) {
    if (pointer == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, pointer == NULL ? "devPtr" : "size");
    }
    aclError rc = RT_CONTEXT_NULL;
    sim_lock();
    const context_t *context = context_need();
    if (context != NULL) {
        device_t *device = context->device;
        uint64_t whole = limit_memory(device_capacity);
        uint64_t left = whole > device->bytes ? whole - device->bytes : 0;
        size_t capacity = (size + 31) / 32 * 32 + padding;
        bool fits = size < whole && capacity <= left;
        const block_t *block = fits ? block_new(device, size, capacity) : NULL;
        rc = block != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "size");
        if (block != NULL) {
            memset(block->base, FILL_BYTE, capacity < FILL_MOST ? capacity : FILL_MOST);
            *pointer = block->base;
        }
    }
    sim_unlock();
    return rc;
}

/* The policy only says which pages to prefer, and any value is taken. */
aclError do_aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    (void)policy;
    return malloc_device(devPtr, size, PADDING);
}

aclError do_aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    (void)policy;
    return malloc_device(devPtr, size, 0);
}

aclError do_aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    (void)policy;
    return malloc_device(devPtr, size, PADDING);
}

aclError do_aclrtMallocHost(void **hostPtr, size_t size) {
    if (hostPtr == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, hostPtr == NULL ? "hostPtr" : "size");
    }
    aclError rc = RT_CONTEXT_NULL;
    sim_lock();
    if (context_need() != NULL) {
        const block_t *block = block_new(NULL, size, size);
        rc = block != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "size");
        if (block != NULL) {
            memset(block->base, 0, size < FILL_MOST ? size : 0);
            *hostPtr = block->base;
        }
    }
    sim_unlock();
    return rc;
}

static aclError free_block(void *pointer, bool device, aclError refusal) {
    aclError rc = ACL_SUCCESS;
    sim_lock();
    block_t *block = find_block(pointer);
    if (block != NULL && block->base == pointer && (block->device != NULL) == device) {
        if (block->device != NULL) {
            thread_uses(block->device);
        }
        block_end(block);
    } else {
        referee_note("frees %p, which is no live block of that kind", pointer);
        rc = error_set(refusal, "pointer");
    }
    sim_unlock();
    return rc;
}

aclError do_aclrtFree(void *devPtr) {
    return devPtr != NULL ? free_block(devPtr, true, RT_DRIVER_ERROR)
                          : error_quiet(ACL_INVALID_PARAM, "devPtr");
}

aclError do_aclrtFreeHost(void *hostPtr) {
    return hostPtr != NULL ? free_block(hostPtr, false, RT_PARAM_INVALID)
                           : error_quiet(ACL_INVALID_PARAM, "hostPtr");
}

aclError do_aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total) {
    if (free == NULL || total == NULL) {
        return error_quiet(ACL_INVALID_PARAM, free == NULL ? "free" : "total");
    }
    aclError rc = RT_CONTEXT_NULL;
    sim_lock();
    const context_t *context = context_need();
    if (context != NULL) {
        rc = (unsigned int)attr <= ACL_MEM_P2P_HUGE1G ? ACL_SUCCESS : error_set(RT_INVALID_MEMORY_TYPE, "attr");
    }
    if (rc == ACL_SUCCESS) {
        uint64_t used = context->device->bytes;
        *total = limit_memory(device_capacity);
        *free = *total > used ? *total - used : 0;
    }
    sim_unlock();
    return rc;
}
