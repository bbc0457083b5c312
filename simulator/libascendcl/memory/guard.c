/* Red zones around blocks, and the record of which bytes of device memory were ever written. */
#include <stdlib.h>
#include <string.h>

#include "block.h"

enum { ZONE_BYTE = 0xFB, PAGED_FROM = 1 << 20 };

/* Large blocks start at a page. Pinned blocks of at least one page also start at a page, because such blocks
 * can be registered. */
size_t zone_front(block_kind_t kind, size_t capacity) {
    size_t paged_from = kind == BLOCK_HOST ? HOST_PAGE_BYTES : PAGED_FROM;
    return capacity >= paged_from ? HOST_PAGE_BYTES : ZONE_BYTES;
}

static bool has_zones(const block_t *block) {
    return block->kind != BLOCK_MAPPED && block->kind != BLOCK_REGISTERED;
}

/* The zone after a block starts directly after the requested size, and includes the padding that the runtime
 * adds. */
void zone_draw(const block_t *block) {
    memset(block->base - ZONE_BYTES, ZONE_BYTE, ZONE_BYTES);
    memset(block->base + block->size, ZONE_BYTE, block->capacity - block->size + ZONE_BYTES);
}

/* Finds the first byte with an unexpected value. `offset` is counted from the block's start. */
static bool find_damage(const block_t *block, ptrdiff_t begin, ptrdiff_t end, ptrdiff_t *offset) {
    for (ptrdiff_t i = begin; i < end; i++) {
        if ((uint8_t)block->base[i] != ZONE_BYTE) {
            *offset = i;
            return true;
        }
    }
    return false;
}

bool zone_check(block_t *block) {
    ptrdiff_t offset = 0;
    if (!has_zones(block) || block->damaged) {
        return !block->damaged;
    }
    ptrdiff_t end = (ptrdiff_t)block->capacity + ZONE_BYTES;
    if (!find_damage(block, -ZONE_BYTES, 0, &offset) &&
        !find_damage(block, (ptrdiff_t)block->size, end, &offset)) {
        return true;
    }
    block->damaged = true;
    usage_note("finds block %p (%zu bytes) written outside its bounds, at offset %td", (void *)block->base,
               block->size, offset);
    return false;
}

static void count_damage(block_t *block, void *arg) {
    int64_t *damaged = arg;
    *damaged += zone_check(block) ? 0 : 1;
}

API int64_t aclsim_check_memory(void) {
    int64_t damaged = 0;
    sim_start();
    SIM_GUARD();
    block_each(count_damage, &damaged);
    return damaged;
}

/* Blocks that existed before this call count as written. */
API void aclsim_watch_uninitialised(int on) {
    sim_start();
    SIM_GUARD();
    sim.settings.watch_uninitialised = on != 0;
}

void written_begin(block_t *block) {
    bool watched = block->kind == BLOCK_DEVICE || block->kind == BLOCK_POOL;
    if (watched && sim.settings.watch_uninitialised) {
        block->written = calloc(1, block->capacity / 8 + 1);
    }
}

void written_end(block_t *block) {
    free(block->written);
    block->written = NULL;
}

static bool is_written(const block_t *block, size_t i) {
    return (block->written[i / 8] >> i % 8 & 1) != 0;
}

void written_mark(const block_t *block, size_t offset, size_t count) {
    size_t end = offset + count;
    for (; offset < end && offset % 8 != 0; offset++) {
        block->written[offset / 8] |= (uint8_t)(1U << offset % 8);
    }
    if (offset < end) {
        memset(block->written + offset / 8, 0xFF, (end - offset) / 8);
        offset += (end - offset) / 8 * 8;
    }
    for (; offset < end; offset++) {
        block->written[offset / 8] |= (uint8_t)(1U << offset % 8);
    }
}

bool written_check(const block_t *block, size_t offset, size_t count) {
    for (size_t i = offset; i < offset + count; i++) {
        if (i % 8 == 0 && i + 8 <= offset + count && block->written[i / 8] == 0xFF) {
            i += 7;
        } else if (!is_written(block, i)) {
            usage_note(
                "reads %zu bytes at offset %zu of block %p (%zu bytes), where byte %zu was never written",
                count, offset, (void *)block->base, block->size, i);
            return false;
        }
    }
    return true;
}
