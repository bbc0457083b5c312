/*
 * Blocks of memory, as the families that deal in memory see them.
 *
 * A block is a stretch of address space that the simulator knows: device memory, pinned host memory, memory out
 * of a pool, managed memory, physical memory mapped at a reserved address, or memory of the client's that it
 * has registered. All of it is host memory. One sorted table of live blocks tells what an address is. A block
 * that a running copy uses is pinned, and ends for good when the last pin goes.
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
    size_t size;     /* asked for */
    size_t capacity; /* there */
    block_kind_t kind;
    device_t *device; /* NULL: host memory */
    void *owner;      /* of the kind's family */
    uint8_t *written; /* a bit a byte, while the reading of uninitialised memory is watched */
    uint32_t pins;
    uint32_t access; /* what copies may do: MEMORY_READS, MEMORY_WRITES */
    bool freed;
    bool internal;  /* the simulator allocated it for itself: the client cannot free it */
    bool damaged;   /* known, and told */
    bool returning; /* a stream is going to free it */
} block_t;

/* The block in which an address lies, or NULL. */
block_t *block_find(const void *pointer);
/* The block that begins there, if it is of that kind. */
block_t *block_at(const void *pointer, block_kind_t kind);
bool block_overlaps(const void *pointer, size_t size);
/* Memory of the simulator's own, between two red zones; NULL when memory is out. */
block_t *block_make(block_kind_t kind, device_t *device, size_t size, size_t capacity);
/* Memory that its family has found elsewhere; NULL when memory is out. */
block_t *block_adopt(block_kind_t kind, device_t *device, char *base, size_t size);
/* The block is no more; its memory goes when nobody uses it any longer. */
void block_end(block_t *block);
void block_each(void (*visit)(block_t *block, void *arg), void *arg);
/* Counts of live blocks of a kind. */
uint64_t block_count_of(block_kind_t kind);
uint64_t block_bytes_of(block_kind_t kind);

/* guard.c: red zones, and memory that nobody has written. */
enum { ZONE_BYTES = 64, HOST_PAGE_BYTES = 4096 };

/* The bytes before a block that are the simulator's: big blocks keep the alignment of pages. */
size_t zone_front(block_kind_t kind, size_t capacity);
void zone_draw(const block_t *block);
/* Notes a violation if a red zone has been written, once for each block. True: it is whole. */
bool zone_check(block_t *block);
void written_begin(block_t *block);
void written_end(block_t *block);
void written_mark(const block_t *block, size_t offset, size_t count);
/* Notes a violation if bytes of it were never written; then answers false. */
bool written_check(const block_t *block, size_t offset, size_t count);

/* area.c: address space that is set aside. */
typedef struct area {
    struct area *next;
    char *base;
    size_t size;
    uint32_t uses;    /* mappings into it, ended ones that are still pinned included */
    uint32_t leaving; /* of these, the ended ones */
    bool reserved;    /* by the client; else the simulator's own */
} area_t;

/* Nothing can be read or written there. expect: where it has to be, or NULL. */
area_t *area_new(size_t size, size_t alignment, void *expect);
void area_end(area_t *area);
area_t *area_find(const void *pointer);
uint64_t area_reserved_count(void);

/* alias.c. */
/* The pages at `memory` are at `window` as well, in place of what is there, until `alias_end` is given the same
 * file. False: not all of them can be, and none is. */
bool alias_make(char *window, char *memory, size_t size, uint64_t *file);
/* Private pages are private again, with what they hold. The window is to be unmapped then. */
void alias_end(char *window, char *memory, size_t size, uint64_t file);

/* register.c: with sim.lock. */
void register_end_of_device(const device_t *device);
uint64_t register_count(void);
/* The host memory that the device sees at that address, and what its kernels may do with it; or NULL. */
const void *register_host_of(const device_t *device, const void *address, uint32_t *access);

/* What ends with a block, by kind. */
void pool_block_ended(block_t *block);
void mapping_block_ended(block_t *block);
void mapping_block_gone(block_t *block);
void register_block_ended(const block_t *block);
void managed_block_gone(block_t *block);
void ipc_block_ended(const block_t *block);
uint64_t ipc_memory_count(void);

/* Whether the device has as much left, or for NULL the host, of which ACL takes pinned, managed and physical
 * memory. */
bool memory_fits(const device_t *device, uint64_t size);
/* So many bytes more are in use there, or fewer. */
void memory_account(device_t *device, uint64_t change);

#endif
