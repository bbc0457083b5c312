/* Arguments drawn from the input: numbers, texts, memory, and handles from pools of existing and destroyed
 * handles. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "fuzz.h"

enum { POOL = 16, SLOTS = 64, OUTS = 24 };

typedef struct {
    void *handles[POOL];
    size_t count;
} handle_pool_t;

static const uint8_t *input;
static size_t input_left;
static handle_pool_t pools[FUZZ_KINDS_MOST];
static char *scratch; /* SLOTS slots, followed by unmapped memory */
static size_t scratch_next;
static struct {
    void **place;
    int kind;
} outs[OUTS];
static size_t out_count;

void fuzz_input(const uint8_t *data, size_t size) {
    input = data;
    input_left = size;
}

size_t fuzz_input_left(void) {
    return input_left;
}

/* An array of large structures may extend beyond the last slot, into unmapped memory. */
bool fuzz_scratch_make(void) {
    size_t size = (size_t)(SLOTS + 16) * FUZZ_SCRATCH_BYTES;
    char *pages = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    scratch = pages;
    return pages != MAP_FAILED && mprotect(pages + size, 4096, PROT_NONE) == 0;
}

uint8_t draw_byte(void) {
    if (input_left == 0) {
        return 0;
    }
    input_left--;
    return *input++;
}

uint64_t draw_number(void) {
    static const uint64_t odd[] = {128,
                                   256,
                                   512,
                                   1000,
                                   4096,
                                   65536,
                                   1 << 20,
                                   2 << 20,
                                   INT32_MAX,
                                   UINT32_MAX,
                                   1ULL << 33,
                                   1ULL << 45,
                                   (uint64_t)INT64_MAX,
                                   UINT64_MAX - 31,
                                   UINT64_MAX - 1,
                                   UINT64_MAX};
    uint8_t byte = draw_byte();
    return byte < 128 ? byte : odd[byte % (sizeof odd / sizeof *odd)];
}

/* Never draws an unlimited time-out, because no other call can end some of the waits. */
int32_t draw_timeout(void) {
    static const int32_t timeouts[] = {0, 1, 2, -2};
    return timeouts[draw_byte() % (sizeof timeouts / sizeof *timeouts)];
}

uint64_t draw_length(void) {
    return draw_byte() % 5U;
}

/* Returns the slots in turn. The input selects the content of a slot: zeros, small numbers, addresses or
 * bytes. */
void *draw_scratch(void) {
    char *slot = scratch + scratch_next++ % SLOTS * FUZZ_SCRATCH_BYTES;
    uint8_t how = draw_byte();
    uint64_t *words = (uint64_t *)(void *)slot;
    memset(slot, 0, FUZZ_SCRATCH_BYTES);
    for (size_t i = 0; i < 8 && how % 8 != 0; i++) {
        void *memory = how % 8 == 2 ? draw_memory() : NULL;
        words[i] = how % 8 == 1   ? draw_byte() % 4U
                   : how % 8 == 2 ? (uint64_t)(uintptr_t)memory
                                  : draw_byte() % 2U;
    }
    for (size_t i = 0; i < 32 && how % 8 == 7; i++) { /* small bytes, which are not valid addresses */
        slot[i] = (char)(draw_byte() % 4U);
    }
    return slot;
}

void draw_bytes(void *to, size_t size) {
    uint8_t *bytes = to;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = draw_byte();
    }
}

char *draw_text(void) {
    static const char *const texts[] = {"", "a", "kernel", "/nonexistent/file", "{}", "0", "runtime"};
    uint8_t byte = draw_byte();
    if (byte % 16 == 15) {
        return NULL;
    }
    char *slot = draw_scratch();
    if (byte % 16 != 14) { /* otherwise the slot keeps the text of an earlier call, for example a key */
        snprintf(slot, FUZZ_SCRATCH_BYTES, "%s", texts[byte % (sizeof texts / sizeof *texts)]);
    }
    slot[FUZZ_SCRATCH_BYTES - 1] = '\0';
    return slot;
}

static long answer_zero(void) {
    return 0;
}

void *draw_function(void) {
    return draw_byte() % 4 == 0 ? NULL : (void *)(uintptr_t)answer_zero;
}

void *draw_handle(int kind) {
    const handle_pool_t *pool = &pools[kind];
    uint8_t byte = draw_byte();
    if (byte < 16) {
        return NULL;
    }
    if (byte < 24) { /* an address that the runtime did not allocate */
        pool = &pools[byte % fuzz_kind_count];
    } else if (byte < 32) {
        return byte % 2 == 0 ? (void *)(uintptr_t)(byte * 4096UL) : draw_scratch();
    }
    return pool->count == 0 ? NULL : pool->handles[byte % (pool->count < POOL ? pool->count : POOL)];
}

void *draw_memory(void) {
    uint8_t byte = draw_byte();
    if (byte < 12) {
        return NULL;
    }
    if (byte < 64) {
        return scratch + byte % SLOTS * FUZZ_SCRATCH_BYTES;
    }
    uintptr_t memory = (uintptr_t)draw_handle(FUZZ_MEMORY);
    return (void *)(memory == 0 || byte < 192 ? memory : memory + byte % 64);
}

void *draw_out(int kind) {
    if (draw_byte() % 16 == 0) {
        return NULL;
    }
    void **place = draw_scratch();
    if (out_count < OUTS) {
        outs[out_count].place = place;
        outs[out_count++].kind = kind;
    }
    return place;
}

void fuzz_keep(int kind, const void *handle) {
    if (handle != NULL) {
        handle_pool_t *pool = &pools[kind];
        pool->handles[pool->count++ % POOL] = (void *)(uintptr_t)handle;
    }
}

void fuzz_done(long rc) {
    for (size_t i = 0; rc == 0 && i < out_count; i++) {
        fuzz_keep(outs[i].kind, *outs[i].place);
    }
    out_count = 0;
}

void fuzz_end_handles(void) {
    for (size_t i = 0; i < fuzz_end_count; i++) {
        const handle_pool_t *pool = &pools[fuzz_ends[i].kind];
        for (size_t j = 0; j < pool->count && j < POOL; j++) {
            fuzz_ends[i].end(pool->handles[j]);
        }
    }
    memset(pools, 0, sizeof pools);
    memset(scratch, 0, (size_t)SLOTS * FUZZ_SCRATCH_BYTES); /* so that a finding depends only on its input */
    scratch_next = 0;
}
