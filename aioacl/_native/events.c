/*
 * Native events. Each device has a pool of events. So if an enqueue records an event, it need not make one.
 *
 * An event returns to the pool when no reference to it is left. Then it can be recorded again. If other streams
 * have already queued waits for the event, these waits still refer to the earlier record.
 *
 * A list contains all events that were made. Before a reset, these events are destroyed: the runtime does not
 * free events with their device. Destroying an event after the tear-down is undefined, because
 * aclrtDestroyEvent uses the device object that the event was made with. So if a thread still waits for an
 * event in C when the device is reset, or is still making it, the event is abandoned. All events are abandoned
 * if aioacl does not learn of foreign resets, because such a reset may have come before.
 */
#include <stdlib.h>

#include "internal.h"

enum { EVENT_TIME_LINE = 0x8, POOL_LOW = 8, POOL_HIGH = 32, BLOCKED_US = 1500000 };

static void link_event(struct aio_device *self, aio_event *event) {
    aio_lock_take(&self->lock);
    event->older = &self->events;
    event->newer = self->events;
    if (event->newer) {
        event->newer->older = &event->newer;
    }
    self->events = event;
    aio_lock_give(&self->lock);
}

/* The caller holds the device's lock. */
static void unlink_event(aio_event *event) {
    if (!event->older) {
        return; /* take_handle has unlinked it */
    }
    *event->older = event->newer;
    if (event->newer) {
        event->newer->older = event->older;
    }
    event->older = NULL;
}

static void free_event(struct aio_device *self, aio_event *event) {
    aio_lock_take(&self->lock);
    unlink_event(event);
    aio_lock_give(&self->lock);
    free(event);
}

/* An event that was made by aclrtCreateEventWithFlag is plain: a stream that captures refuses to record it. */
static int create_native(int kind, bool timed, aclrtEvent *made) {
    uint32_t flags = timed ? AIO_EVENT_SYNC | EVENT_TIME_LINE : AIO_EVENT_SYNC;
    if (kind == AIO_PLAIN && !aio_present[AIO_FN_aclrtCreateEventWithFlag]) {
        return AIO_ABSENT;
    }
    int before =
        aio_calling(kind == AIO_PLAIN ? AIO_FN_aclrtCreateEventWithFlag : AIO_FN_aclrtCreateEventExWithFlag);
    int code = kind == AIO_PLAIN ? aio_acl.aclrtCreateEventWithFlag(made, flags)
                                 : aio_acl.aclrtCreateEventExWithFlag(made, flags);
    if (code) {
        aio_keep_text();
    }
    aio_calling(before);
    return code;
}

/* The context of a borrowed stream may be current. An event belongs to the context in which it is made, and may
 * not outlive it, so each event is made in the context of the device. */
static int create(const struct aio_device *self, int kind, bool timed, aclrtEvent *made) {
    void *current = NULL, *ours = atomic_load(&self->context);
    if (kind != AIO_PLAIN || aio_acl.aclrtGetCurrentContext(&current) != 0 || current == ours) {
        return create_native(kind, timed, made);
    }
    int code = aio_acl.aclrtSetCurrentContext(ours);
    if (code == 0) {
        code = create_native(kind, timed, made);
        aio_acl.aclrtSetCurrentContext(current);
    }
    return code;
}

static int new_event(int device, uint32_t generation, int kind, bool timed, aio_event **made) {
    aio_event *event = calloc(1, sizeof *event);
    if (!event) {
        return AIO_NO_MEMORY;
    }
    *event = (aio_event){.device = device, .generation = generation, .kind = kind};
    int code = create(&aio_devices[device], kind, timed, &event->handle);
    if (code) {
        free(event);
        return code;
    }
    link_event(&aio_devices[device], event);
    *made = event;
    return 0;
}

/* Returns NULL if the pool has no event of the generation. */
static aio_event *pop_event(struct aio_device *self, int kind, uint32_t generation) {
    aio_lock_take(&self->lock);
    aio_event **link = &self->pool[kind], *event;
    while ((event = *link) && event->generation != generation) {
        link = &event->next;
    }
    if (event) {
        *link = event->next;
        atomic_fetch_sub(&self->pooled[kind], 1);
    }
    aio_lock_give(&self->lock);
    return event;
}

/* Removes events of other generations from the pool, because they are not used again. A native event that an
 * older generation has left is abandoned, because a stale handle is never passed to C. */
static void purge(struct aio_device *self, int kind, uint32_t generation) {
    aio_event *stale = NULL;
    aio_lock_take(&self->lock);
    for (aio_event **link = &self->pool[kind]; *link;) {
        aio_event *event = *link;
        if (event->generation == generation) {
            link = &event->next;
            continue;
        }
        *link = event->next;
        atomic_fetch_sub(&self->pooled[kind], 1);
        event->next = stale;
        stale = event;
    }
    aio_lock_give(&self->lock);
    while (stale) {
        aio_event *next = stale->next;
        free_event(self, stale);
        stale = next;
    }
}

static void push_event(struct aio_device *self, aio_event *event) {
    int kind = event->kind, device = event->device; /* in the pool, another thread may free the event */
    aio_lock_take(&self->lock);
    event->next = self->pool[kind];
    self->pool[kind] = event;
    int pooled = atomic_fetch_add(&self->pooled[kind], 1) + 1;
    aio_lock_give(&self->lock);
    if (kind == AIO_PLAIN && pooled % POOL_HIGH == 0) {
        aio_device_kick(device, AIO_KICK_REFILL);
    }
}

/* Takes an event from the pool, or makes an event if the pool is empty. Making an event is cheap, because the
 * runtime allocates no hardware id before the event is recorded. Without an event no mark could be recorded,
 * and a wait would also last until later work is done.
 *
 * A stream that waits for a plain event goes on if the event was ever recorded, also if its newest record is
 * not done. So only a fresh event may be given to a caller. Later it is used for marks, which are queried. */
int aio_event_take(int device, uint32_t generation, int kind, aio_event **taken) {
    struct aio_device *self = &aio_devices[device];
    bool fresh = kind == AIO_FRESH || kind == AIO_FRESH_TIMED;
    aio_event *event = fresh ? NULL : pop_event(self, kind, generation);
    int code = 0;
    if (kind == AIO_UNTIMED && atomic_load(&self->pooled[0]) < POOL_LOW) {
        aio_device_kick(device, AIO_KICK_REFILL);
    }
    if (!event) {
        bool timed = kind == AIO_TIMED || kind == AIO_FRESH_TIMED;
        code = new_event(device, generation, fresh ? AIO_PLAIN : kind, timed, &event);
    }
    if (code == 0) {
        atomic_store(&event->references, 1);
    }
    *taken = event;
    return code;
}

void aio_event_hold(aio_event *event) {
    atomic_fetch_add(&event->references, 1);
}

static bool is_current(const struct aio_device *self, uint32_t generation) {
    return aio_word_generation(atomic_load(&self->word)) == generation;
}

static bool has_handle(struct aio_device *self, const aio_event *event) {
    aio_lock_take(&self->lock);
    bool has = event->handle != NULL;
    aio_lock_give(&self->lock);
    return has;
}

/* Drops a reference. A foreign reset raises the generation before it destroys the native events, and finds them
 * in the list of all events. So an event with a native event stays in the list, and `purge` frees it later. */
void aio_event_drop(aio_event *event) {
    struct aio_device *self = &aio_devices[event->device];
    if (atomic_load(&aio_in_child) || atomic_fetch_sub(&event->references, 1) != 1) {
        return;
    }
    if (event->kind != AIO_THEIRS && (is_current(self, event->generation) || has_handle(self, event))) {
        push_event(self, event);
    } else {
        free_event(self, event);
    }
}

aio_event *aio_event_wrap(int device, uint32_t generation, aclrtEvent handle) {
    aio_event *event = calloc(1, sizeof *event);
    if (event) {
        *event = (aio_event){.device = device, .generation = generation, .kind = AIO_THEIRS, .handle = handle};
        atomic_init(&event->references, 1);
    }
    return event;
}

void aio_event_unwrap(aio_event *event) {
    struct aio_device *self = &aio_devices[event->device];
    bool used = true;
    for (unsigned turn = 0; used; turn++) {
        aio_lock_take(&self->lock);
        event->handle = NULL;
        used = event->blocked_waiters > 0;
        aio_lock_give(&self->lock);
        if (used) {
            aio_pause(turn);
        }
    }
}

int aio_event_is_ours(aclrtEvent handle) {
    bool ours = false;
    for (int device = 0; device < AIO_DEVICES; device++) {
        struct aio_device *self = &aio_devices[device];
        aio_lock_take(&self->lock);
        for (const aio_event *event = self->events; event; event = event->newer) {
            ours = ours || event->handle == handle;
        }
        aio_lock_give(&self->lock);
    }
    return ours;
}

aclrtEvent aio_event_handle(const aio_event *event) {
    return event->handle;
}

int aio_wait_outside(aio_pass pass, aclrtStream stream, aclrtEvent event, void *context) {
    void *before = NULL;
    int code = aio_enter(pass, AIO_ENQUEUE, AIO_FN_aclrtStreamWaitEvent);
    if (code) {
        return code;
    }
    if (context) {
        aio_acl.aclrtGetCurrentContext(&before);
        code = aio_acl.aclrtSetCurrentContext(context);
    }
    if (code == 0) {
        code = aio_acl.aclrtStreamWaitEvent(stream, event);
    }
    if (code) {
        aio_keep_text();
    }
    if (before) {
        aio_acl.aclrtSetCurrentContext(before);
    }
    aio_leave(pass, AIO_ENQUEUE);
    return code;
}

aclrtEvent aio_event_enter(aio_event *event) {
    struct aio_device *self = &aio_devices[event->device];
    aio_lock_take(&self->lock);
    aclrtEvent handle = event->handle;
    event->blocked_waiters += handle != NULL;
    aio_lock_give(&self->lock);
    return handle;
}

void aio_event_leave(aio_event *event) {
    struct aio_device *self = &aio_devices[event->device];
    aio_lock_take(&self->lock);
    event->blocked_waiters--;
    aio_lock_give(&self->lock);
}

/* Each record of a caller on a borrowed stream makes an event, so the pool of plain events would grow for ever.
 * The caller is inside the gate. If resets by other code are not known, no event can be destroyed safely. */
static void trim_plain(struct aio_device *self, uint32_t generation) {
    while (aio_context_is_known((int)(self - aio_devices)) &&
           atomic_load(&self->pooled[AIO_PLAIN]) >= POOL_HIGH) {
        aio_event *event = pop_event(self, AIO_PLAIN, generation);
        if (!event) {
            return;
        }
        aio_lock_take(&self->lock);
        aclrtEvent handle = event->handle;
        event->handle = NULL;
        aio_lock_give(&self->lock);
        if (handle) {
            aio_acl.aclrtDestroyEvent(handle);
        }
        free_event(self, event);
    }
}

int aio_device_refill(int device, int timing, int count) {
    struct aio_device *self = &aio_devices[device];
    uint32_t generation = aio_word_generation(atomic_load(&self->word));
    aio_frame frame;
    int code = aio_begin(&frame, aio_make_pass(device, generation, 0), AIO_LIFETIME,
                         AIO_FN_aclrtCreateEventExWithFlag);
    if (code) {
        return code;
    }
    for (int kind = 0; kind < AIO_EVENT_KINDS; kind++) {
        purge(self, kind, generation);
    }
    trim_plain(self, generation);
    while (code == 0 && is_current(self, generation) && self->pooled[timing != 0] < count) {
        aio_event *event = NULL;
        code = new_event(device, generation, timing != 0, timing != 0, &event);
        if (code == 0) {
            push_event(self, event);
        }
    }
    /* new_event has already stored the error text, so the code is not passed. */
    aio_end(&frame, 0);
    return code;
}

/* Takes the handle out of an event of the generation, so that the caller can destroy the handle. The event
 * leaves the list, so that the next call need not pass it again. After a failed reset the generation is the
 * same, and the next reset must not find the handle again. */
static aclrtEvent take_handle(struct aio_device *self, uint32_t generation) {
    aio_lock_take(&self->lock);
    aio_event *event = self->events;
    while (event && !(event->handle && event->blocked_waiters == 0 && event->generation == generation)) {
        event = event->newer;
    }
    aclrtEvent handle = event ? event->handle : NULL;
    if (event) {
        event->handle = NULL;
        unlink_event(event);
    }
    aio_lock_give(&self->lock);
    return handle;
}

int aio_device_destroy_events_of(int device, uint32_t generation) {
    int destroyed = 0;
    aio_device_unequip(device, generation, AIO_BEFORE_FOREIGN_RESET);
    for (aclrtEvent handle; (handle = take_handle(&aio_devices[device], generation));) {
        destroyed += aio_acl.aclrtDestroyEvent(handle) == 0;
    }
    return destroyed;
}

/* Waits until no thread waits in C for an event, but at most BLOCKED_US. The gate admits no new waits, and each
 * wait inside returns at the end of its slice. */
static void await_blocked_waiters(const struct aio_device *self) {
    struct timespec nap = {0, 200000};
    int64_t end = aio_now_us() + BLOCKED_US;
    while (atomic_load(&self->blocked) && aio_now_us() < end) {
        nanosleep(&nap, NULL);
    }
}

/* This thread first counts itself as inside and then reads the generation. A foreign reset first raises the
 * generation and then waits for counted threads. So this thread destroys events only before the tear-down, and
 * the foreign reset's callback destroys the other events. */
int aio_device_destroy_events(int device) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    int destroyed = 0;
    if (aio_helper_count(device)) {
        return 0;
    }
    aio_helper_begin(device, AIO_FN_aclrtDestroyEvent);
    await_blocked_waiters(&aio_devices[device]);
    bool known = aio_context_is_known(device);
    aio_device_unequip(device, generation, known ? AIO_ALIVE : AIO_PERHAPS_ENDED);
    while (aio_word_generation(aio_gate_word(device)) == generation && !atomic_load(&aio_exiting)) {
        aclrtEvent handle = take_handle(&aio_devices[device], generation);
        if (!handle) {
            break;
        }
        destroyed += known && aio_acl.aclrtDestroyEvent(handle) == 0; /* otherwise the event is abandoned */
    }
    aio_leave(aio_make_pass(device, 0, 0), AIO_LIFETIME);
    return destroyed;
}
