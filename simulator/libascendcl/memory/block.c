/* The sorted table of live blocks. */
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "work.h"

static block_t **blocks; /* sorted by address */
static size_t block_count;
static size_t block_room;
static uint64_t counts[BLOCK_KINDS];
static uint64_t bytes[BLOCK_KINDS];
static uint64_t host_bytes; /* host memory allocated by ACL */

/* Returns the index of the first block that begins above the address. */
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

block_t *block_find(const void *pointer) {
    size_t index = upper_bound(pointer);
    if (index == 0) {
        return NULL;
    }
    block_t *block = blocks[index - 1];
    return (uintptr_t)pointer < (uintptr_t)block->base + block->capacity ? block : NULL;
}

block_t *block_at(const void *pointer, block_kind_t kind) {
    block_t *block = block_find(pointer);
    return block != NULL && block->base == pointer && block->kind == kind ? block : NULL;
}

bool block_overlaps(const void *pointer, size_t size) {
    if (block_find(pointer) != NULL) {
        return true;
    }
    size_t above = upper_bound(pointer);
    return above < block_count && (uintptr_t)blocks[above]->base - (uintptr_t)pointer < size;
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

bool memory_fits(const device_t *device, uint64_t size) {
    uint64_t whole = limit_memory(device);
    uint64_t used = device != NULL ? device->bytes : host_bytes;
    return used <= whole && size <= whole - used;
}

void memory_account(device_t *device, uint64_t change) {
    if (device == NULL) {
        host_bytes += change;
        return;
    }
    device->bytes += change;
    if (device->bytes > device->peak_bytes) {
        device->peak_bytes = device->bytes;
    }
}

static void count_block(const block_t *block, uint64_t sign) {
    counts[block->kind] += sign;
    bytes[block->kind] += sign * block->size;
    if (block->kind == BLOCK_DEVICE) {
        memory_account(block->device, sign * block->capacity);
    } else if (block->kind == BLOCK_HOST || block->kind == BLOCK_MANAGED) {
        memory_account(NULL, sign * block->capacity);
    }
}

static void insert(block_t *block) {
    size_t index = upper_bound(block->base);
    memmove(&blocks[index + 1], &blocks[index], (block_count - index) * sizeof *blocks);
    blocks[index] = block;
    block_count++;
    count_block(block, 1);
}

block_t *block_adopt(block_kind_t kind, device_t *device, char *base, size_t size) {
    block_t *block = make_room() ? calloc(1, sizeof *block) : NULL;
    if (block != NULL) {
        *block = (block_t){.base = base, .size = size, .capacity = size, .kind = kind, .device = device};
        block->access = MEMORY_READS | MEMORY_WRITES;
        insert(block);
    }
    return block;
}

static size_t whole_size(block_kind_t kind, size_t capacity) {
    return zone_front(kind, capacity) + capacity + ZONE_BYTES;
}

block_t *block_make(block_kind_t kind, device_t *device, size_t size, size_t capacity) {
    size_t whole = whole_size(kind, capacity);
    block_t *block = make_room() && whole > capacity ? calloc(1, sizeof *block) : NULL;
    char *piece = block != NULL ? arena_take(whole) : NULL;
    if (piece == NULL) {
        free(block);
        return NULL;
    }
    *block = (block_t){.size = size, .capacity = capacity, .kind = kind, .device = device};
    block->base = piece + zone_front(kind, capacity);
    block->access = MEMORY_READS | MEMORY_WRITES;
    zone_draw(block);
    written_begin(block);
    insert(block);
    return block;
}

static void block_free(block_t *block) {
    switch (block->kind) {
    case BLOCK_MAPPED:
        mapping_block_gone(block);
        break;
    case BLOCK_REGISTERED:
        break;
    case BLOCK_MANAGED:
        managed_block_gone(block);
        __attribute__((fallthrough));
    default:
        arena_give(block->base - zone_front(block->kind, block->capacity),
                   whole_size(block->kind, block->capacity));
        break;
    }
    written_end(block);
    free(block);
}

void block_end(block_t *block) {
    size_t index = upper_bound(block->base) - 1;
    block_count--;
    memmove(&blocks[index], &blocks[index + 1], (block_count - index) * sizeof *blocks);
    count_block(block, UINT64_MAX);
    zone_check(block);
    ipc_block_ended(block);
    if (block->kind == BLOCK_POOL) {
        pool_block_ended(block);
    } else if (block->kind == BLOCK_MAPPED) {
        mapping_block_ended(block);
    } else if (block->kind == BLOCK_HOST) {
        register_block_ended(block);
    }
    block->freed = true;
    if (block->pins == 0) {
        block_free(block);
    }
}

/* Visits the blocks from the end, so that the visitor may end the block that it visits. */
void block_each(void (*visit)(block_t *block, void *arg), void *arg) {
    for (size_t i = block_count; i-- > 0;) {
        visit(blocks[i], arg);
    }
}

uint64_t block_count_of(block_kind_t kind) {
    return counts[kind];
}

uint64_t block_bytes_of(block_kind_t kind) {
    return bytes[kind];
}

memory_t memory_kind(const void *pointer) {
    const block_t *block = block_find(pointer);
    if (block == NULL) {
        return arena_owns(pointer) || area_find(pointer) != NULL ? MEMORY_STALE : MEMORY_PAGEABLE;
    }
    bool host = block->device == NULL || block->kind == BLOCK_REGISTERED;
    return host ? MEMORY_PINNED : MEMORY_DEVICE;
}

static bool may(const block_t *block, const void *pointer, uint32_t access) {
    if ((block->access & access) != access) {
        usage_note("%s %p, which is mapped without that access", (access & MEMORY_WRITES) ? "writes" : "reads",
                   pointer);
        return false;
    }
    return true;
}

/* If several rows read bytes that were never written, only the first such row is reported. */
static void watch(const block_t *block, size_t offset, size_t width, size_t pitch, size_t height,
                  uint32_t access) {
    bool reported = (access & MEMORY_READS) == 0;
    for (size_t row = 0; row < height; row++, offset += pitch) {
        reported = reported || !written_check(block, offset, width);
        if ((access & MEMORY_WRITES) != 0) {
            written_mark(block, offset, width);
        }
    }
}

/* False: the client has unmapped memory that is still registered. */
static bool is_left(const block_t *block, const void *pointer, size_t count, uint32_t access) {
    bool left = block->kind != BLOCK_REGISTERED || access == 0 ||
                move_is_there(pointer, count, (access & MEMORY_WRITES) != 0);
    if (!left) {
        usage_note("uses %zu bytes at %p, which are registered but no longer mapped", count, pointer);
    }
    return left;
}

bool memory_pin_rows(const void *pointer, size_t width, size_t pitch, size_t height, uint32_t access,
                     void **pinned) {
    block_t *block = block_find(pointer);
    size_t count = move_span(width, pitch, height);
    *pinned = NULL;
    if (block == NULL) {
        usage_note("uses %p, which is not in a live block", pointer);
        return false;
    }
    size_t offset = (size_t)((const char *)pointer - block->base);
    if (count > block->size || offset > block->size - count) {
        usage_note("moves %zu bytes at %p, past the end of block %p (%zu bytes)", count, pointer,
                   (void *)block->base, block->size);
        block->damaged = block->damaged || (access & MEMORY_WRITES) != 0; /* the write has been reported */
    }
    if (count > block->capacity - offset || !may(block, pointer, access) ||
        !is_left(block, pointer, count, access)) {
        return false;
    }
    if (block->written != NULL) {
        watch(block, offset, width, pitch, height, access);
    }
    block->pins++;
    *pinned = block;
    return true;
}

bool memory_pin_for(const void *pointer, size_t count, uint32_t access, void **pinned) {
    return memory_pin_rows(pointer, count, count, 1, access, pinned);
}

bool memory_pin(const void *pointer, size_t count, void **pinned) {
    return memory_pin_for(pointer, count, MEMORY_WRITES, pinned);
}

/* Kernels have the same access as copies. If kernels may write, all bytes then count as written, because a
 * kernel may write each of them. */
static int reach(const device_t *device, const block_t *block, const void *address, size_t size) {
    size_t offset = (size_t)((const char *)address - block->base);
    bool own = block->device == NULL || block->device == device || block->kind == BLOCK_REGISTERED;
    bool near = own || (device->peers >> block->device->id & 1) != 0;
    if (!near || size > block->size || offset > block->size - size) {
        return 0;
    }
    if (block->written != NULL && (block->access & MEMORY_WRITES) != 0) {
        written_mark(block, offset, size);
    }
    return (int)block->access;
}

API int aclsim_reach(int32_t device, const void *address, size_t size) {
    sim_start();
    sim_lock();
    const device_t *found = device_find(device);
    uint32_t most = MEMORY_READS | MEMORY_WRITES;
    const void *host = found != NULL ? register_host_of(found, address, &most) : NULL;
    address = host != NULL ? host : address;
    const block_t *block = found != NULL ? block_find(address) : NULL;
    int access = block != NULL ? reach(found, block, address, size) & (int)most : 0;
    bool registered = block != NULL && block->kind == BLOCK_REGISTERED;
    sim_unlock();
    /* The client may have freed or unmapped the memory that it registered. */
    bool gone = registered && access != 0 && !move_is_there(address, size, (access & MEMORY_WRITES) != 0);
    return gone ? 0 : access;
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
