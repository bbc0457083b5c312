/*
 * A second address for memory of the client's. Pages that are shared are mapped again there. Private ones
 * cannot be: what they hold is copied to shared pages, which then take their place. Nobody may write to them
 * meanwhile.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "block.h"

enum { LINE_BYTES = 8192 }; /* more than the longest name of a file */

/* What lies at the memory's addresses. */
typedef struct {
    char *begin;
    char *end;
    int access;
    bool shared;
} region_t;

/* A line of /proc/self/maps. False: no region, or one that must stay as it is: the caller's stack. */
static bool read_region(const char *line, region_t *region) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char letters[5] = "";
    if (sscanf(line, "%lx-%lx %4s", &begin, &end, letters) != 3) {
        return false;
    }
    region->begin = (char *)begin;
    region->end = (char *)end;
    region->access = (letters[0] == 'r' ? PROT_READ : 0) | (letters[1] == 'w' ? PROT_WRITE : 0) |
                     (letters[2] == 'x' ? PROT_EXEC : 0);
    region->shared = letters[3] == 's';
    uintptr_t own = (uintptr_t)__builtin_frame_address(0);
    return own < (uintptr_t)begin || own >= (uintptr_t)end;
}

/* The same pages at `to`, whatever lies there. */
static bool map_again(char *pages, size_t size, char *to) {
    return mremap(pages, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
}

/* Not checked, since what lies beside the memory in its last page may be what nobody is to touch. */
__attribute__((no_sanitize("address"), no_sanitize("thread"))) static void
copy_pages(char *window, const char *pages, size_t size) {
    volatile uint64_t *to = (volatile uint64_t *)(void *)window; /* so that it becomes no checked memcpy */
    const volatile uint64_t *from = (const volatile uint64_t *)(const void *)pages;
    for (size_t i = 0; i < size / sizeof *to; i++) {
        to[i] = from[i];
    }
}

static bool alias_pages(char *window, char *pages, size_t size, const region_t *region) {
    if (region->shared) {
        return map_again(pages, size, window);
    }
    copy_pages(window, pages, size);
    return map_again(window, size, pages) &&
           (region->access == (PROT_READ | PROT_WRITE) || mprotect(pages, size, region->access) == 0);
}

/* What shares the last page with the memory is somebody else's, so that page is dealt with in no time. */
static bool alias_region(char *window, char *pages, size_t size, const region_t *region) {
    size_t last = size - HOST_PAGE_BYTES;
    return (last == 0 || alias_pages(window, pages, last, region)) &&
           alias_pages(window + last, pages + last, HOST_PAGE_BYTES, region);
}

bool alias_make(char *window, char *memory, size_t size) {
    char line[LINE_BYTES];
    size_t done = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    bool good = maps != NULL && mmap(window, size, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == window;
    while (good && done < size && fgets(line, sizeof line, maps) != NULL) {
        region_t region;
        char *from = memory + done;
        if (!read_region(line, &region) || region.end <= from) {
            continue;
        }
        size_t left = size - done;
        size_t there = (size_t)(region.end - from);
        size_t piece = there < left ? there : left;
        good = region.begin <= from && alias_region(window + done, from, piece, &region);
        done += good ? piece : 0;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return good && done == size;
}
