/*
 * Address space for device and pinned memory. The space is divided into pieces whose sizes are powers of two.
 * It is never returned to the system. So an address in this space that is in no live block is stale. The piece
 * that was freed last is used first. Pieces of more than a page start at a page boundary.
 */
#include <sys/mman.h>

#include "sim.h"

enum {
    SMALLEST = 6,
    PAGE_BYTES = 4096,
    SMALL_MOST = 20,
    LARGEST = 40,
    CHUNK_BYTES = 1 << 24,
    RANGES_MAX = 4096
};

typedef struct piece {
    struct piece *next;
} piece_t;

typedef struct {
    char *base;
    size_t size;
} range_t;

static piece_t *free_pieces[LARGEST + 1];
static range_t ranges[RANGES_MAX];
static uint32_t range_count;
static char *chunk_next;
static size_t chunk_left;

static unsigned int class_of(size_t size) {
    unsigned int class = SMALLEST;
    while (((size_t)1 << class) < size) {
        class++;
    }
    return class;
}

static char *range_new(size_t size) {
    if (range_count == RANGES_MAX) {
        return NULL;
    }
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return NULL;
    }
    madvise(base, size, MADV_HUGEPAGE); /* as device memory; if the kernel refuses, copies are slower */
    ranges[range_count++] = (range_t){.base = base, .size = size};
    return base;
}

static char *carve(size_t size) {
    size_t aside = size > PAGE_BYTES ? -(uintptr_t)chunk_next % PAGE_BYTES : 0;
    if (chunk_next != NULL && chunk_left >= aside) {
        chunk_next += aside;
        chunk_left -= aside;
    }
    if (chunk_left < size) {
        chunk_next = range_new(CHUNK_BYTES);
        chunk_left = chunk_next != NULL ? CHUNK_BYTES : 0;
    }
    if (chunk_left < size) {
        return NULL;
    }
    char *piece = chunk_next;
    chunk_next += size;
    chunk_left -= size;
    return piece;
}

char *arena_take(size_t size) {
    if (size > (size_t)1 << LARGEST) {
        return NULL;
    }
    unsigned int class = class_of(size);
    piece_t *piece = free_pieces[class];
    if (piece != NULL) {
        free_pieces[class] = piece->next;
        return (char *)piece;
    }
    size_t whole = (size_t)1 << class;
    return class <= SMALL_MOST ? carve(whole) : range_new(whole);
}

void arena_give(char *base, size_t size) {
    unsigned int class = class_of(size);
    piece_t *piece = (piece_t *)(void *)base;
    if (class > SMALL_MOST) {
        madvise(base, (size_t)1 << class, MADV_DONTNEED);
    }
    piece->next = free_pieces[class];
    free_pieces[class] = piece;
}

bool arena_owns(const void *pointer) {
    for (uint32_t i = 0; i < range_count; i++) {
        if ((uintptr_t)pointer - (uintptr_t)ranges[i].base < ranges[i].size) {
            return true;
        }
    }
    return false;
}
