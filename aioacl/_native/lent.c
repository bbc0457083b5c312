/*
 * The rounds of the thread of a model's instance, which lends them to the watcher.
 *
 * The thread makes no rounds while it is in a call of ACL or in a copy, which may take long. So it states when
 * it leaves its waits (aio_rounds_away). If it is away for longer than GUARD_US, or if waits may have ended
 * early, the watcher makes the rounds in its place. `used` shows which of the two threads uses the record. The
 * thread never waits for the watcher, except at its end.
 */
#include <limits.h>

#include "internal.h"

enum { GUARD_US = 2000, HELPED_US = 1000 };

static bool try_to_use(aio_rounds *self) {
    return !atomic_exchange_explicit(&self->used, true, memory_order_acquire);
}

/* States when the next round is due. */
static void give_back(aio_rounds *self) {
    int64_t due = aio_rounds_due(self);
    atomic_store(&self->due_us, self->held && self->held_us < due ? self->held_us : due);
    atomic_store_explicit(&self->used, false, memory_order_release);
}

bool aio_rounds_add(aio_rounds *self, aio_token *token) {
    if (!try_to_use(self)) {
        return false;
    }
    aio_rounds_take(self, token);
    give_back(self);
    return true;
}

static void ring(aio_rounds *self) {
    aio_port *held = self->held;
    self->held = NULL;
    if (held) {
        aio_port_ring_held(held);
    }
}

void aio_rounds_ring(aio_rounds *self) {
    if (try_to_use(self)) {
        ring(self);
        give_back(self);
    }
}

void aio_rounds_look(aio_rounds *self) {
    int64_t due = atomic_load(&self->due_us);
    if (due == INT64_MAX || (!atomic_load(&self->all) && due > aio_now_us())) {
        return;
    }
    if (try_to_use(self)) { /* else the watcher makes a round, and then wakes this thread */
        aio_rounds_make(self);
        if (self->held && self->held_us <= aio_now_us()) {
            ring(self);
        }
        give_back(self);
    }
}

void aio_rounds_away(aio_rounds *self) {
    if (atomic_load(&self->due_us) == INT64_MAX) {
        return;
    }
    int64_t now = aio_now_us();
    atomic_store(&self->away_us, now);
    if (atomic_load(&aio_devices[self->device].wakes_us) > now + GUARD_US) {
        aio_watcher_stir(self->device);
    }
}

void aio_rounds_back(aio_rounds *self) {
    atomic_store(&self->away_us, 0);
}

void aio_rounds_lend(aio_rounds *self, int device, aio_port *port) {
    self->device = device;
    self->of_instance = true;
    self->port = port;
    atomic_store(&self->due_us, INT64_MAX);
    aio_lock_take(&aio_devices[device].lock);
    self->next = aio_devices[device].lent;
    aio_devices[device].lent = self;
    aio_lock_give(&aio_devices[device].lock);
}

static bool unlink_lent(aio_rounds *self) {
    struct aio_device *device = &aio_devices[self->device];
    aio_lock_take(&device->lock);
    bool unused = !self->helpers;
    aio_rounds **link = &device->lent;
    while (unused && *link && *link != self) {
        link = &(*link)->next;
    }
    if (unused && *link) {
        *link = self->next;
    }
    aio_lock_give(&device->lock);
    return unused;
}

void aio_rounds_end(aio_rounds *self) {
    while (!unlink_lent(self)) { /* the watcher rings the port after its round */
        aio_port_sleep(self->port, atomic_load(&self->port->word), HELPED_US);
    }
    aio_rounds_defer(self);
    ring(self);
}

/* Returns the record after `previous` (NULL: the first one), which stays in the list until the next call. */
static aio_rounds *next_lent(int device, aio_rounds *previous) {
    struct aio_device *self = &aio_devices[device];
    aio_lock_take(&self->lock);
    aio_rounds *next = previous ? previous->next : self->lent;
    if (previous) {
        previous->helpers--;
    }
    if (next) {
        next->helpers++;
    }
    aio_lock_give(&self->lock);
    return next;
}

/* When the watcher makes the next round in place of the thread; INT64_MAX: never. */
static int64_t help_due(aio_rounds *self) {
    int64_t away = atomic_load(&self->away_us), due = atomic_load(&self->due_us);
    if (!away || due == INT64_MAX) {
        return INT64_MAX;
    }
    return due > away + GUARD_US ? due : away + GUARD_US;
}

static void help(aio_rounds *self, bool all) {
    bool away = atomic_load(&self->away_us) != 0;
    if (all) {
        atomic_store(&self->all, true);
    }
    if (((all && away) || help_due(self) <= aio_now_us()) && try_to_use(self)) {
        aio_rounds_make(self);
        ring(self);
        give_back(self);
        aio_port_ring(self->port);
    } else if (all) {
        aio_port_ring(self->port);
    }
}

void aio_rounds_help(int device, bool all) {
    for (aio_rounds *each = NULL; (each = next_lent(device, each));) {
        help(each, all);
    }
}

int64_t aio_rounds_help_due(int device) {
    int64_t first = INT64_MAX;
    for (aio_rounds *each = NULL; (each = next_lent(device, each));) {
        int64_t due = help_due(each);
        first = due < first ? due : first;
    }
    return first;
}
