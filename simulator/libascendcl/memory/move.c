/* The effects of data tasks, and moving rows of bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

bool move_rows_fit(size_t width, size_t pitch, size_t height) {
    size_t before = 0;
    size_t whole = 0;
    return !__builtin_mul_overflow(pitch, height - 1, &before) &&
           !__builtin_add_overflow(before, width, &whole);
}

size_t move_span(size_t width, size_t pitch, size_t height) {
    return pitch * (height - 1) + width;
}

void move_rows(const plane_t *plane) {
    char *to = plane->dst;
    const char *from = plane->src;
    for (size_t row = 0; row < plane->height; row++) {
        memmove(to + row * plane->dpitch, from + row * plane->spitch, plane->width);
    }
}

/* Checks each page with mincore(), because older kernels have no MADV_POPULATE. */
static bool resident(char *page, size_t length, size_t page_size) {
    unsigned char state[1024];
    size_t chunk = sizeof state * page_size;
    for (size_t done = 0; done < length; done += chunk) {
        size_t piece = length - done < chunk ? length - done : chunk;
        if (mincore(page + done, piece, state) != 0 && errno == ENOMEM) {
            return false;
        }
    }
    return true;
}

/* madvise() fails with the same error if permission is missing and if the host's kernel does not know the
 * advice. A call for a page that exists distinguishes the two cases. */
static bool can_populate(size_t page_size) {
    char here = 0;
    char *page = (char *)((uintptr_t)&here / page_size * page_size);
    return madvise(page, page_size, MADV_POPULATE_READ) == 0;
}

bool move_is_there(const void *pointer, size_t count, bool write) {
    size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)pointer / page_size * page_size;
    uintptr_t end = (uintptr_t)pointer + count;
    uintptr_t last = (end + page_size - 1) / page_size * page_size;
    if (end < (uintptr_t)pointer || last < end) {
        return false;
    }
    char *page = (char *)first;
    if (madvise(page, last - first, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) {
        return true;
    }
    bool permitted = errno != ENOMEM && errno != EFAULT && (errno != EINVAL || !can_populate(page_size));
    return permitted && resident(page, last - first, page_size);
}

/* A length above this limit counts as wrong, because a check of so large an array would create all its
 * pages. */
enum { ARRAY_BYTES_MOST = 16 << 20, FILE_BYTES_MOST = 1 << 30 };

bool array_is_there(const void *array, size_t count, size_t size) {
    size_t bytes = 0;
    size_t alignment = size & -size; /* the alignment of its elements, or more than any element needs */
    bool aligned = (uintptr_t)array % (alignment < sizeof(void *) ? alignment : sizeof(void *)) == 0;
    bool fits = aligned && !__builtin_mul_overflow(count, size, &bytes) && bytes <= ARRAY_BYTES_MOST;
    return fits && (bytes == 0 || move_is_there(array, bytes, false));
}

bool content_is_there(const void *content, size_t size) {
    return size <= FILE_BYTES_MOST && move_is_there(content, size, false);
}

bool place_is_there(const void *place, size_t size) {
    return move_is_there(place, size, true);
}

/* Reads words from device memory when the task runs, so that the writes of earlier tasks count. */
static bool read_words(const void *pointer, void *words, size_t size) {
    void *block = NULL;
    if (!memory_pin_for(pointer, size, MEMORY_READS, &block)) {
        return false;
    }
    memcpy(words, pointer, size);
    memory_unpin(block);
    return true;
}

/* Replaces the indirect copy by a copy with the addresses that are now in device memory. */
static bool resolve(task_t *task) {
    indirect_t *indirect = task->indirect;
    copy_words_t words = {.count = indirect->count};
    bool known = indirect->desc != NULL ? read_words(indirect->desc, &words, sizeof words)
                                        : read_words(indirect->to, &words.to, sizeof words.to) &&
                                              read_words(indirect->from, &words.from, sizeof words.from);
    uintptr_t to = (uintptr_t)words.to + indirect->to_offset;
    uintptr_t from = (uintptr_t)words.from + indirect->from_offset;
    if (!task->borrowed) { /* a node keeps the objects of its task for later executions */
        free(indirect);
    }
    task->kind = TASK_COPY;
    task->copy.dst = (void *)to;
    task->copy.src = (const void *)from;
    task->copy.count = words.count;
    task->copy.owned = NULL;
    return known;
}

static bool prepare_copy(const task_t *task, void **to, void **from) {
    size_t count = task->copy.count;
    return (task->copy.owned != NULL || memory_pin_for(task->copy.src, count, MEMORY_READS, from)) &&
           memory_pin(task->copy.dst, count, to);
}

bool move_prepare(task_t *task, void **to, void **from) {
    const plane_t *plane = task->plane;
    switch (task->kind) {
    case TASK_SET:
        return memory_pin(task->set.dst, task->set.count, to);
    case TASK_PLANE:
        return memory_pin_rows(plane->src, plane->width, plane->spitch, plane->height, MEMORY_READS, from) &&
               memory_pin_rows(plane->dst, plane->width, plane->dpitch, plane->height, MEMORY_WRITES, to);
    case TASK_INDIRECT:
        return resolve(task) && prepare_copy(task, to, from);
    default:
        return prepare_copy(task, to, from);
    }
}

void move_perform(const task_t *task) {
    switch (task->kind) {
    case TASK_SET:
        fill_memory(task->set.dst, task->set.value, task->set.count, task->set.words);
        break;
    case TASK_PLANE:
        move_rows(task->plane);
        break;
    default:
        memmove(task->copy.dst, task->copy.owned != NULL ? task->copy.owned : task->copy.src, task->copy.count);
        break;
    }
}
