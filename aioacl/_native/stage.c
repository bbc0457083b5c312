/*
 * Staging memory: pinned host memory in slots of two sizes. Copies from and to pageable memory go through
 * staging memory, because otherwise the runtime would block the caller.
 *
 * Memory is added in chunks, up to a limit for each device. It stays valid after a reset. The first word of a
 * free slot points to the next free slot.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum {
    SMALL = 64 * 1024,
    LARGE = 1024 * 1024,
    SMALL_SLOTS = 64,
    LARGE_SLOTS = 4,
    SMALL_LOW = 16,
    LARGE_LOW = 2,
    CHUNKS = 16
};

typedef struct {
    char *memory;
    size_t slot_size;
    int slots;
    int out;
} chunk;

static struct {
    aio_lock lock;
    chunk chunks[CHUNKS];
    int count;
    void *free_slots[2];
    int free_count[2];
} stages[AIO_DEVICES];

static int class_of(size_t size) {
    return size > SMALL;
}

static void push(int device, int large, void *slot) {
    memcpy(slot, &stages[device].free_slots[large], sizeof(void *));
    stages[device].free_slots[large] = slot;
    stages[device].free_count[large]++;
}

static void *pop(int device, int large) {
    void *slot = stages[device].free_slots[large];
    if (!slot) {
        return NULL;
    }
    memcpy(&stages[device].free_slots[large], slot, sizeof(void *));
    stages[device].free_count[large]--;
    return slot;
}

/* Returns the chunk that contains the slot. The loop ends, because every slot is in a chunk. */
static chunk *home_of(int device, const void *slot) {
    const char *at = slot;
    chunk *c = stages[device].chunks;
    while (at < c->memory || at >= c->memory + c->slot_size * (size_t)c->slots) {
        c++;
    }
    return c;
}

/* Returns which slots the maintenance thread must make. That thread makes slots before the last slot is taken,
 * because no caller here may wait for new slots. */
static int to_make(int device) {
    int kicks = 0;
    if (stages[device].count == CHUNKS) {
        return 0;
    }
    if (stages[device].free_count[0] < SMALL_LOW) {
        kicks |= AIO_KICK_SMALL;
    }
    if (stages[device].free_count[1] < LARGE_LOW) {
        kicks |= AIO_KICK_LARGE;
    }
    return kicks;
}

void *aio_stage_take(int device, size_t size) {
    if (size > LARGE) {
        return NULL;
    }
    aio_lock_take(&stages[device].lock);
    void *slot = pop(device, class_of(size));
    if (!slot && !class_of(size)) {
        slot = pop(device, 1);
    }
    if (slot) {
        home_of(device, slot)->out++;
    }
    int kicks = to_make(device);
    aio_lock_give(&stages[device].lock);
    if (kicks) {
        aio_device_kick(device, kicks);
    }
    return slot;
}

void aio_stage_release(int device, void *slot) {
    aio_lock_take(&stages[device].lock);
    chunk *c = home_of(device, slot);
    c->out--;
    push(device, c->slot_size == LARGE, slot);
    aio_lock_give(&stages[device].lock);
}

int aio_stage_free_slots(int device, size_t size) {
    aio_lock_take(&stages[device].lock);
    int count = stages[device].free_count[1];
    if (!class_of(size)) {
        count += stages[device].free_count[0];
    }
    aio_lock_give(&stages[device].lock);
    return count;
}

static int add(int device, char *memory, size_t slot_size, int slots) {
    aio_lock_take(&stages[device].lock);
    bool room = stages[device].count < CHUNKS;
    if (room) {
        stages[device].chunks[stages[device].count++] = (chunk){memory, slot_size, slots, 0};
        for (int i = slots; i--;) {
            push(device, slot_size == LARGE, memory + slot_size * (size_t)i);
        }
    }
    aio_lock_give(&stages[device].lock);
    return room ? 0 : AIO_STAGE_FULL;
}

static bool is_full(int device) {
    aio_lock_take(&stages[device].lock);
    bool full = stages[device].count == CHUNKS;
    aio_lock_give(&stages[device].lock);
    return full;
}

int aio_stage_grow(int device, int large) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    size_t slot_size = large ? LARGE : SMALL;
    int slots = large ? LARGE_SLOTS : SMALL_SLOTS;
    void *memory = NULL;
    aio_frame frame;
    if (is_full(device)) {
        return AIO_STAGE_FULL;
    }
    int code = aio_begin(&frame, aio_make_pass(device, generation, 0), AIO_LIFETIME, AIO_FN_aclrtMallocHost);
    if (code) {
        return code;
    }
    code = aio_acl.aclrtMallocHost(&memory, slot_size * (size_t)slots);
    aio_end(&frame, code);
    if (code) {
        return code;
    }
    code = add(device, memory, slot_size, slots);
    if (code) {
        aio_acl.aclrtFreeHost(memory);
    }
    return code;
}

static void free_host(void *memory) {
    aio_frame frame;
    aio_free_begin(&frame, AIO_FN_aclrtFreeHost);
    aio_free_end(&frame, aio_acl.aclrtFreeHost(memory));
}

/* If a slot is still in use, all memory is leaked, because a running copy may still use it. */
void aio_stage_close(int device) {
    aio_lock_take(&stages[device].lock);
    int count = stages[device].count;
    chunk chunks[CHUNKS];
    memcpy(chunks, stages[device].chunks, sizeof chunks);
    bool whole = true;
    for (int i = 0; i < count; i++) {
        whole = whole && chunks[i].out == 0;
    }
    if (whole) {
        stages[device].count = 0;
        memset(stages[device].free_slots, 0, sizeof stages[device].free_slots);
        memset(stages[device].free_count, 0, sizeof stages[device].free_count);
    }
    aio_lock_give(&stages[device].lock);
    for (int i = 0; whole && i < count; i++) {
        free_host(chunks[i].memory);
    }
}
