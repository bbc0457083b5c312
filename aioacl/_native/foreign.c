/*
 * Resets by other code: what a call does that finds one, and how many there were. The callback that the runtime
 * calls before the tear-down is in abort.c.
 */
#include "internal.h"

static atomic_bool told_of_resets;

void aio_told_of_resets(bool told) {
    atomic_store(&told_of_resets, told);
}

int aio_tells_of_resets(void) {
    return atomic_load(&told_of_resets);
}

bool aio_context_is_known(int device) {
    return atomic_load(&told_of_resets) || atomic_load(&aio_devices[device].own_context);
}

/* The context that is current on this thread, or NULL. */
static void *current_context(void) {
    void *current = NULL;
    int before = aio_calling(AIO_FN_aclrtGetCurrentContext);
    int code = aio_acl.aclrtGetCurrentContext(&current);
    if (code && aio_present[AIO_FN_aclGetRecentErrMsg]) {
        aio_acl.aclGetRecentErrMsg(); /* drops the text, which belongs to no call of the caller */
    }
    aio_calling(before);
    return code ? NULL : current;
}

static bool has_our_context(int device) {
    void *current = current_context();
    return current && current == atomic_load(&aio_devices[device].context);
}

int aio_context_is_foreign(void) {
    void *current = current_context();
    bool foreign = current != NULL;
    for (int device = 0; device < AIO_DEVICES; device++) {
        const struct aio_device *self = &aio_devices[device];
        foreign = foreign && !(atomic_load(&self->own_context) && atomic_load(&self->context) == current);
    }
    return foreign;
}

bool aio_may_ask(int device, uint32_t generation) {
    if (aio_context_is_known(device)) {
        return true;
    }
    if (has_our_context(device)) {
        return aio_word_generation(atomic_load(&aio_devices[device].word)) == generation;
    }
    aio_foreign_found(device, generation);
    return false;
}

/* Whether the stream of the engine still exists. The runtime ends it together with the context. */
static bool equipment_lives(const struct aio_device *self, uint32_t generation) {
    aclrtStreamStatus ignored = ACL_STREAM_STATUS_NOT_READY;
    if (atomic_load(&self->equipped) != generation) {
        return false;
    }
    int before = aio_calling(AIO_FN_aclrtStreamQuery);
    int code = aio_acl.aclrtStreamQuery(self->nudge_stream, &ignored);
    aio_calling(before);
    return code != RT_CONTEXT_NULL && code != RT_INVALID_HANDLE;
}

void aio_note_end(int device, uint32_t generation, int code) {
    bool sign = code == RT_CONTEXT_NULL || code == RT_INVALID_HANDLE;
    if (!sign || aio_context_is_known(device) || !aio_may_ask(device, generation)) {
        return;
    }
    if (code == RT_INVALID_HANDLE && !equipment_lives(&aio_devices[device], generation)) {
        aio_foreign_found(device, generation);
    }
}

uint64_t aio_shut_word(uint64_t word, uint32_t generation) {
    uint64_t kept = word & ~((0xfffffull << 36) | ((uint64_t)AIO_FOUND << 56));
    return kept | ((uint64_t)(generation & 0xfffff) << 36) | ((uint64_t)AIO_FOREIGN << 56);
}

static void shut_found(int device, uint32_t generation, uint64_t flags) {
    _Atomic uint64_t *word = &aio_devices[device].word;
    uint64_t seen = atomic_load(word), next;
    do {
        int state = aio_word_state(seen);
        if (aio_word_generation(seen) != generation || (state != AIO_OPEN && state != AIO_DRAINING)) {
            return;
        }
        next = aio_shut_word(seen, generation + 1) | flags;
    } while (!atomic_compare_exchange_weak(word, &seen, next));
    aio_flight_note(AIO_FLIGHT_STATE, device, aio_word_generation(next), AIO_RESETTING, AIO_FOREIGN);
    aio_watcher_wake(device);
    aio_device_kick(device, AIO_KICK_FOREIGN);
}

/* Called when a call of the generation has found that its context is gone: other code has reset the device, or
 * is resetting it. */
void aio_foreign_found(int device, uint32_t generation) {
    shut_found(device % AIO_DEVICES, generation, (uint64_t)AIO_FOUND << 56);
}

uint32_t aio_device_foreign(int device) {
    return atomic_load(&aio_devices[device].foreign);
}

/* An aclrtResetDevice that only lowers the runtime's count of sets tears nothing down, and has no callback. */
uint32_t aio_device_teardowns(int device) {
    return atomic_load(&aio_devices[device].foreign) + atomic_load(&aio_devices[device].own_teardowns);
}

uint32_t aio_device_setups(int device) {
    return atomic_load(&aio_devices[device].setups);
}

uint32_t aio_device_foreign_sets(int device) {
    return atomic_load(&aio_devices[device].foreign_sets);
}

uint32_t aio_device_unseen_resets(int device) {
    return atomic_load(&aio_devices[device].unseen_resets);
}

void aio_device_leave_set(int device) {
    atomic_fetch_add(&aio_devices[device].foreign_sets, 1);
    atomic_store(&aio_devices[device].kept_set, true);
}

int aio_device_has_left_set(int device) {
    return atomic_load(&aio_devices[device].kept_set);
}

/*
 * The callback raises the count of foreign resets before it shuts the gate. This function first reads the
 * gate's word, then reads the count, and then swaps the word. So the swap never undoes the effect of a later
 * callback.
 */
void aio_foreign_settle(int device, uint32_t foreign_resets) {
    struct aio_device *self = &aio_devices[device % AIO_DEVICES];
    uint64_t seen = atomic_load(&self->word);
    while (atomic_load(&self->foreign) == foreign_resets) {
        if (atomic_compare_exchange_weak(&self->word, &seen,
                                         seen & ~((uint64_t)(AIO_FOREIGN | AIO_FOUND) << 56))) {
            return;
        }
    }
    seen = atomic_load(&self->word);
    if (!(aio_word_flags(seen) & AIO_FOREIGN)) {
        shut_found(device % AIO_DEVICES, aio_word_generation(seen), 0); /* for the later foreign resets */
    }
}
