/*
 * A second address of the client's memory: the window. Shared pages are mapped a second time at the window.
 * Private pages cannot be mapped twice. So the content of private pages is copied to shared pages, which then
 * replace the private pages. When the registration ends, and in a forked child, private pages replace these
 * shared pages again.
 *
 * Other threads may write while pages are exchanged, for example beside the memory in its last page. A write to
 * the old page after the copy is repeated in the new page. Until then, for about a microsecond, a thread may
 * read the old value. If a thread changes a word before the exchange, and changes it back after the exchange,
 * the second change is lost.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "block.h"

enum {
    LINE_BYTES = 8192, /* longer than any line with the name of a file */
    STEP_BYTES = 16 * HOST_PAGE_BYTES,
    STEP_WORDS = STEP_BYTES / (int)sizeof(uint64_t)
};

/* A mapped region of the process. */
typedef struct {
    char *begin;
    char *end;
    int access;
    bool shared;
    uint64_t file; /* inode of shared pages without a name; each window has its own */
} region_t;

/* The words of the current step. Protected by sim.lock. */
static uint64_t copied[STEP_WORDS];
static uint64_t latest[STEP_WORDS];

/* Reads a line of /proc/self/maps. False: the line describes no region, or the region is the caller's stack,
 * which must not be changed. */
static bool read_region(const char *line, region_t *region) {
    unsigned long begin = 0;
    unsigned long end = 0;
    unsigned long file = 0;
    char letters[5] = "";
    if (sscanf(line, "%lx-%lx %4s %*x %*s %lu", &begin, &end, letters, &file) != 4) {
        return false;
    }
    region->begin = (char *)begin;
    region->end = (char *)end;
    region->access = (letters[0] == 'r' ? PROT_READ : 0) | (letters[1] == 'w' ? PROT_WRITE : 0) |
                     (letters[2] == 'x' ? PROT_EXEC : 0);
    region->shared = letters[3] == 's';
    region->file = file;
    uintptr_t own = (uintptr_t)__builtin_frame_address(0);
    return own < (uintptr_t)begin || own >= (uintptr_t)end;
}

/* Called for a piece of the memory, which begins at `offset`. Returns false on failure. */
typedef bool visit_t(size_t offset, size_t size, const region_t *region, void *arg);

/* Visits the mapped pieces in order. False: there are gaps, or a visit has failed. */
static bool each_piece(const char *memory, size_t size, visit_t *visit, void *arg) {
    char line[LINE_BYTES];
    size_t good = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        region_t region;
        if (!read_region(line, &region) || region.end <= memory || region.begin >= memory + size) {
            continue;
        }
        size_t begin = region.begin > memory ? (size_t)(region.begin - memory) : 0;
        size_t end = region.end < memory + size ? (size_t)(region.end - memory) : size;
        good += visit(begin, end - begin, &region, arg) ? end - begin : 0;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return good == size;
}

/* Turns off the checks of sanitizers, because the last page of the memory can also contain other bytes, which
 * may be poisoned. */
#define UNCHECKED __attribute__((no_sanitize("address"), no_sanitize("thread"))) static

UNCHECKED void copy_words(void *target, const void *source, size_t size) {
    volatile uint64_t *to = target; /* volatile: a sanitizer would check a memcpy made from this loop */
    const volatile uint64_t *from = source;
    for (size_t i = 0; i < size / sizeof *to; i++) {
        to[i] = from[i];
    }
}

/* Copies to the new pages the words that were written to the old pages since the copy. A word that has changed
 * in the new pages is newer and is kept. */
UNCHECKED void carry_over(void *pages, const void *old, size_t size) {
    uint64_t *to = pages;
    const volatile uint64_t *from = old;
    for (size_t i = 0; i < size / sizeof *to; i++) {
        uint64_t was = copied[i];
        uint64_t is = from[i];
        if (is != was) {
            __atomic_compare_exchange_n(&to[i], &was, is, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        }
    }
}

/* Moves the pages into a pipe without a copy, so that they can be read after they are unmapped. Returns the
 * number of bytes; 0 for pages that cannot be written. The pages must not be shared with another process, so
 * this function writes to each page first. */
UNCHECKED size_t keep(int pipe, char *pages, size_t size, int access) {
    if (pipe < 0 || (access & PROT_WRITE) == 0) {
        return 0;
    }
    for (size_t i = 0; i < size; i += HOST_PAGE_BYTES) {
        __atomic_fetch_or(&pages[i], 0, __ATOMIC_SEQ_CST);
    }
    struct iovec range = {.iov_base = pages, .iov_len = size};
    ssize_t kept = vmsplice(pipe, &range, 1, SPLICE_F_NONBLOCK);
    return kept > 0 ? (size_t)kept : 0;
}

static bool read_kept(int pipe, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(pipe, (char *)latest + done, size - done);
        if (got <= 0) {
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

/* Returns the size of the next step. The last page may also contain other objects, so it is a separate, short
 * step. */
static size_t step_of(size_t left) {
    size_t most = left > HOST_PAGE_BYTES ? left - HOST_PAGE_BYTES : left;
    return most < STEP_BYTES ? most : STEP_BYTES;
}

typedef struct {
    char *window;
    char *memory;
    int pipe[2];   /* -1: no pipe */
    uint64_t file; /* inode of the window's pages */
} alias_t;

/* Maps the same pages at `to`, and replaces what is mapped there. */
static bool map_again(char *pages, size_t size, char *to) {
    return mremap(pages, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
}

static bool share_step(const alias_t *alias, size_t offset, size_t *size, int access) {
    char *window = alias->window + offset;
    char *pages = alias->memory + offset;
    size_t kept = keep(alias->pipe[1], pages, *size, access);
    *size = kept > 0 ? kept : *size;
    copy_words(copied, pages, *size);
    copy_words(window, copied, *size);
    bool good = map_again(window, *size, pages);
    good = good && read_kept(alias->pipe[0], kept);
    if (good) {
        carry_over(pages, latest, kept);
    }
    return good && (access == (PROT_READ | PROT_WRITE) || mprotect(pages, *size, access) == 0);
}

static bool share_piece(size_t offset, size_t size, const region_t *region, void *arg) {
    const alias_t *alias = arg;
    if (region->shared) {
        return map_again(alias->memory + offset, size, alias->window + offset);
    }
    bool good = true;
    for (size_t done = 0; good && done < size;) {
        size_t step = step_of(size - done);
        good = share_step(alias, offset + done, &step, region->access);
        done += step;
    }
    return good;
}

static bool read_file(size_t offset, size_t size, const region_t *region, void *arg) {
    uint64_t *file = arg;
    (void)offset;
    (void)size;
    *file = region->file;
    return true;
}

bool alias_make(char *window, char *memory, size_t size, uint64_t *file) {
    alias_t alias = {.window = window, .memory = memory, .pipe = {-1, -1}};
    if (mmap(window, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) != window) {
        return false;
    }
    bool piped = pipe2(alias.pipe, O_CLOEXEC) == 0;
    bool good =
        each_piece(window, HOST_PAGE_BYTES, read_file, file) && each_piece(memory, size, share_piece, &alias);
    if (piped) {
        close(alias.pipe[0]);
        close(alias.pipe[1]);
    }
    if (!good) {
        alias_end(window, memory, size, *file);
    }
    return good;
}

/* The shared pages stay mapped at the window, so writes to these pages before the exchange are not lost. */
static bool part_step(const alias_t *alias, size_t offset, size_t size, int access, char *fresh) {
    char *pages = alias->memory + offset;
    copy_words(copied, alias->window + offset, size);
    copy_words(fresh, copied, size);
    if (mremap(fresh, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, pages) != pages) {
        return false;
    }
    carry_over(pages, alias->window + offset, size);
    return access == (PROT_READ | PROT_WRITE) || mprotect(pages, size, access) == 0;
}

/* Skips pages that the client has mapped at these addresses after the registration, because such pages do not
 * belong to the window. */
static bool part_piece(size_t offset, size_t size, const region_t *region, void *arg) {
    const alias_t *alias = arg;
    if (!region->shared || region->file != alias->file) {
        return true;
    }
    char *fresh = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t done = 0;
    while (fresh != MAP_FAILED && done < size) {
        size_t step = step_of(size - done);
        if (!part_step(alias, offset + done, step, region->access, fresh + done)) {
            munmap(fresh + done, size - done);
            break;
        }
        done += step;
    }
    return done == size;
}

void alias_end(char *window, char *memory, size_t size, uint64_t file) {
    alias_t alias = {.window = window, .memory = memory, .file = file};
    if (file != 0) {
        each_piece(memory, size, part_piece, &alias);
    }
}
