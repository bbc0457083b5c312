/*
 * Blocks of memory, for the files that handle memory.
 *
 * A block is a range of addresses that the simulator manages: device memory, pinned host memory, memory of a
 * pool, managed memory, physical memory mapped at a reserved address, or memory that the client has registered.
 * In the simulator, all of it is host memory. A sorted table of all live blocks maps an address to its block. A
 * block that a running copy uses is pinned. If such a block is ended, its memory is freed when the last pin is
 * removed.
 */
#ifndef ACLSIM_BLOCK_H
#define ACLSIM_BLOCK_H

#include "sim.h"

typedef enum {
    BLOCK_DEVICE,
    BLOCK_HOST,
    BLOCK_POOL,
    BLOCK_MANAGED,
    BLOCK_MAPPED,
    BLOCK_REGISTERED,
    BLOCK_KINDS
} block_kind_t;

typedef struct block {
    char *base;
    size_t size;     /* requested bytes */
    size_t capacity; /* available bytes */
    block_kind_t kind;
    device_t *device; /* NULL: host memory */
    void *owner;      /* data of the family that handles this kind of block */
    uint8_t *written; /* one bit per byte, while reads of uninitialised memory are watched */
    uint32_t pins;
    uint32_t access; /* what copies may do: MEMORY_READS, MEMORY_WRITES */
    bool freed;
    bool internal;  /* the simulator allocated it for itself: the client cannot free it */
    bool damaged;   /* a violation has been reported */
    bool returning; /* a stream will free it */
} block_t;

/* Returns the block that contains the address, or NULL. */
block_t *block_find(const void *pointer);
/* Returns the block of the kind `kind` that starts at the address, or NULL. */
block_t *block_at(const void *pointer, block_kind_t kind);
bool block_overlaps(const void *pointer, size_t size);
/* Creates a block of new memory between two red zones; NULL if no memory is left. */
block_t *block_make(block_kind_t kind, device_t *device, size_t size, size_t capacity);
/* Creates a block for memory that already exists; NULL if no memory is left. */
block_t *block_adopt(block_kind_t kind, device_t *device, char *base, size_t size);
/* Ends the block. The memory is freed when the block is no longer pinned. */
void block_end(block_t *block);
void block_each(void (*visit)(block_t *block, void *arg), void *arg);
/* The number of live blocks of a kind, and the sum of their bytes. */
uint64_t block_count_of(block_kind_t kind);
uint64_t block_bytes_of(block_kind_t kind);

/* guard.c: red zones, and memory that was never written. */
enum { ZONE_BYTES = 64, HOST_PAGE_BYTES = 4096 };

/* Returns the number of bytes that the simulator reserves before a block. This number keeps large blocks
 * aligned to pages.
 */
size_t zone_front(block_kind_t kind, size_t capacity);
void zone_draw(const block_t *block);
/* Returns whether the red zones are unchanged. If not, notes a violation, once per block. */
bool zone_check(block_t *block);
void written_begin(block_t *block);
void written_end(block_t *block);
void written_mark(const block_t *block, size_t offset, size_t count);
/* Returns false, and notes a violation, if some of the bytes were never written. */
bool written_check(const block_t *block, size_t offset, size_t count);

/* area.c: reserved address space. */
typedef struct area {
    struct area *next;
    char *base;
    size_t size;
    uint32_t uses;    /* number of mappings in the area, including ended mappings that are still pinned */
    uint32_t leaving; /* number of these mappings that have ended */
    bool reserved;    /* reserved by the client; otherwise by the simulator */
} area_t;

/* Reserves an area that can neither be read nor written. `expect` is the address that the area must have, or
 * NULL. */
area_t *area_new(size_t size, size_t alignment, void *expect);
void area_end(area_t *area);
area_t *area_find(const void *pointer);
uint64_t area_reserved_count(void);

/* alias.c. */
/* Maps the pages of `memory` a second time at `window`, in place of the pages at `window`. alias_end() with the
 * same `file` ends the second mapping. False: some of the pages cannot be mapped twice, and so no page is
 * mapped twice. */
bool alias_make(char *window, char *memory, size_t size, uint64_t *file);
/* Replaces the shared pages that alias_make() has put at `memory` with private pages of the same content. The
 * caller must then unmap the window. */
void alias_end(char *window, char *memory, size_t size, uint64_t file);

/* register.c: called with sim.lock held. */
void register_end_of_device(const device_t *device);
uint64_t register_count(void);
/* Returns the host memory that the device accesses at the address, or NULL. Stores in `access` what kernels may
 * do with this memory. */
const void *register_host_of(const device_t *device, const void *address, uint32_t *access);

/* The `_ended` functions are called when a block ends. The `_gone` functions are called when the block is
 * freed, which is later if a copy still uses it. */
void pool_block_ended(block_t *block);
void mapping_block_ended(block_t *block);
void mapping_block_gone(block_t *block);
void register_block_ended(const block_t *block);
void managed_block_gone(block_t *block);
void ipc_block_ended(const block_t *block);
uint64_t ipc_memory_count(void);

/* Whether `size` bytes are left on the device, or on the host if `device` is NULL. Pinned, managed and physical
 * memory of the host count as host memory. */
bool memory_fits(const device_t *device, uint64_t size);
/* Adds `change` to the bytes in use on the device, or on the host if `device` is NULL. A negative change
 * subtracts. */
void memory_account(device_t *device, uint64_t change);

#endif
