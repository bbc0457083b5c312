/* Reserved address space. Either the client has reserved it, or its addresses represent memory that only a
 * device could access.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "block.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static area_t *areas;

static void *map(void *where, size_t size, int flags) {
    return mmap(where, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

static char *map_at(void *expect, size_t size) {
    void *found = map(expect, size, MAP_FIXED_NOREPLACE);
    if (found == MAP_FAILED) {
        return NULL;
    }
    if (found != expect) { /* the kernel of the host treats the address as a hint */
        munmap(found, size);
        return NULL;
    }
    return found;
}

static char *map_aligned(size_t size, size_t alignment) {
    char *found = size + alignment > size ? map(NULL, size + alignment, 0) : MAP_FAILED;
    if (found == MAP_FAILED) {
        return NULL;
    }
    size_t before = (alignment - (uintptr_t)found % alignment) % alignment;
    if (before > 0) {
        munmap(found, before);
    }
    munmap(found + before + size, alignment - before);
    return found + before;
}

area_t *area_new(size_t size, size_t alignment, void *expect) {
    area_t *area = calloc(1, sizeof *area);
    char *base = NULL;
    if (area != NULL) {
        base = expect != NULL ? map_at(expect, size) : map_aligned(size, alignment);
    }
    if (base == NULL) {
        free(area);
        return NULL;
    }
    *area = (area_t){.next = areas, .base = base, .size = size};
    areas = area;
    return area;
}

void area_end(area_t *area) {
    area_t **link = &areas;
    while (*link != area) {
        link = &(*link)->next;
    }
    *link = area->next;
    munmap(area->base, area->size);
    free(area);
}

area_t *area_find(const void *pointer) {
    for (area_t *area = areas; area != NULL; area = area->next) {
        if ((uintptr_t)pointer - (uintptr_t)area->base < area->size) {
            return area;
        }
    }
    return NULL;
}

uint64_t area_reserved_count(void) {
    uint64_t count = 0;
    for (const area_t *area = areas; area != NULL; area = area->next) {
        count += area->reserved ? 1 : 0;
    }
    return count;
}
