/*
 * The watcher: one thread per device that queries the runtime for all awaits, except those of calls of models.
 *
 * A blocking wait of the runtime is a busy loop that cannot be stopped. After a reset, such a wait returns
 * wrong results, and at exit it crashes the process. So the watcher makes rounds of queries, which never block:
 * rounds.c has their rules.
 *
 * Threads submit new waits through a lock-free list. All other data in this file is used by the watcher only.
 *
 * With both strategies, the watcher also checks work that no caller awaits, ten times a second. If a stream has
 * such work and no wait, the watcher then wakes the runtime's thread in any case.
 */
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "internal.h"

enum { TICK_US = 100000, STOP_US = 1000000, SLACK_NS = 1000 };

typedef struct {
    aio_rounds rounds;
    int device;
    unsigned epoch;
    bool guarding;
    int64_t tick_us; /* the time of the next check of work that no caller awaits */
    aio_lock_look lock;
} watcher;

static void take_incoming(watcher *self) {
    aio_token *token = aio_tokens_reverse(atomic_exchange(&aio_devices[self->device].incoming, NULL));
    while (token) {
        aio_token *next = token->next;
        aio_rounds_take(&self->rounds, token);
        token = next;
    }
}

static bool is_unfinished(aio_stream *stream, uint32_t generation) {
    uint64_t tail = atomic_load(&stream->tail);
    if (stream->generation != generation || aio_stream_is_event(stream)) {
        return false;
    }
    if (atomic_load(&stream->completed) < tail || aio_stream_has_manual(stream)) {
        return true;
    }
    /* The finished work may have a failure that only a synchronize finds. */
    return atomic_load(&stream->confirmed) < tail && aio_stream_needs_sync(stream);
}

/* Checks work that was enqueued by direct ACL calls. No mark shows the end of such work, and without reports
 * only a synchronize finds its failures. `manual_over` is raised only when no failure of the work can be
 * missed. Until then, if a wait for the device takes the failure's code, the wait records the code on all
 * streams with such work. `manual` is read before the query, because more such work may be enqueued during the
 * query. */
static void look_at_manual(aio_stream *stream) {
    uint32_t seen = atomic_load(&stream->manual);
    if (!aio_stream_has_manual(stream) || !aio_stream_use(stream)) {
        return;
    }
    if (aio_stream_idle(stream) == 1 && (aio_stream_is_exact(stream) || aio_stream_sync(stream))) {
        atomic_store(&stream->manual_over, seen);
    }
    aio_stream_unuse(stream);
}

static bool some_unfinished(int device, uint32_t generation) {
    bool some = false;
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        some = some || is_unfinished(stream, generation);
    }
    return some;
}

/* Whether a stream has unfinished work and no wait. */
static bool some_without_waits(int device, uint32_t generation) {
    bool some = false;
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        some = some || (!atomic_load(&stream->watched) && is_unfinished(stream, generation));
    }
    return some;
}

/* Whether the maintenance thread has to release references to objects of finished work. */
static bool some_referred(int device) {
    bool some = false;
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        uint64_t completed = atomic_load(&stream->completed), referred = atomic_load(&stream->referred);
        some = some || atomic_load(&stream->released) < (completed < referred ? completed : referred);
    }
    return some;
}

static void look_after(int device, uint32_t generation) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (!is_unfinished(stream, generation)) {
            continue;
        }
        aio_stream_look_after(stream);
        look_at_manual(stream);
    }
}

/* Whether to check work that no caller awaits. The first check is one tick after work was enqueued, because
 * most work is awaited or done by then. */
static bool tick_is_due(watcher *self, int64_t now_us) {
    bool guarded = atomic_load(&aio_devices[self->device].guarded);
    if (guarded && !self->guarding) {
        self->tick_us = now_us + TICK_US;
    }
    self->guarding = guarded;
    return guarded && now_us >= self->tick_us;
}

/* Checks work that no caller awaits. If no work is left, this thread clears `guarded` and then checks once
 * more. An enqueuer first counts its entry, or stores the position of its reference, and then reads `guarded`.
 * So either the last check finds the entry or reference, or the enqueuer sets `guarded` again. */
static void tick(watcher *self, uint32_t generation, int64_t now_us) {
    struct aio_device *device = &aio_devices[self->device];
    self->tick_us = now_us + TICK_US;
    look_after(self->device, generation);
    bool some = some_unfinished(self->device, generation);
    if (some_referred(self->device)) {
        aio_device_kick(self->device, AIO_KICK_DONE);
    }
    if (some) {
        /* While the waits of other streams take the usual time, `nudge_if_stuck` does nothing. */
        if (some_without_waits(self->device, generation)) {
            aio_device_nudge(self->device);
        }
        return;
    }
    atomic_store(&device->guarded, false);
    if (some_unfinished(self->device, generation) || some_referred(self->device)) {
        atomic_store(&device->guarded, true);
    }
}

static void tick_inside(watcher *self) {
    uint32_t generation;
    aio_frame frame;
    int code = aio_round_begin(self->device, &frame, &generation);
    if (code == 0) {
        tick(self, generation, aio_now_us());
        aio_end(&frame, 0);
    } else if (code != AIO_CROWDED) {
        self->tick_us = aio_now_us() + TICK_US;
    }
}

static int64_t first_due(const watcher *self) {
    int64_t first = self->guarding ? self->tick_us : INT64_MAX;
    int64_t others[] = {
        self->rounds.expected_us ? self->rounds.expected_us : INT64_MAX,
        self->lock.due_us ? self->lock.due_us : INT64_MAX,
        aio_rounds_due(&self->rounds),
        aio_rounds_help_due(self->device),
    };
    for (size_t index = 0; index < sizeof others / sizeof *others; index++) {
        first = others[index] < first ? others[index] : first;
    }
    return first;
}

/*
 * The watcher sets the word `asleep` before it sleeps, and then reads the list again. If a thread submits a
 * wait and finds that `asleep` is set, it clears `asleep` and wakes the watcher, unless the watcher wakes by
 * itself before the wait is due. The value of `asleep` depends on the watcher's epoch. So a watcher that ends
 * late does not clear the value of its successor.
 */
static void rest(watcher *self) {
    struct aio_device *device = &aio_devices[self->device];
    int64_t now = aio_now_us();
    if (self->rounds.expected_us <= now) {
        self->rounds.expected_us = 0;
    }
    int64_t due = first_due(self);
    if (due <= now) {
        sched_yield();
        return;
    }
    if (atomic_load(&device->epoch) != self->epoch) {
        return;
    }
    uint32_t mine = self->epoch + 1;
    atomic_store(&device->wakes_us, due);
    atomic_store(&device->asleep, mine);
    bool news =
        atomic_load(&device->incoming) || atomic_load(&device->guarded) != self->guarding || aio_reports_wait();
    news = news || (atomic_load(&device->locking) && !self->lock.due_us) || atomic_load(&device->look_at_all) ||
           aio_rounds_help_due(self->device) < due;
    if (!news && atomic_load(&device->epoch) == self->epoch) {
        aio_futex_wait(&device->asleep, mine, due == INT64_MAX ? -1 : due - now);
    }
    atomic_compare_exchange_strong(&device->asleep, &mine, 0);
}

static void *watch(void *argument) {
    watcher *self = argument;
    prctl(PR_SET_TIMERSLACK, SLACK_NS); /* by default, a sleep may end 50 us late */
    struct aio_device *device = &aio_devices[self->device];
    while (atomic_load(&device->epoch) == self->epoch) {
        take_incoming(self);
        aio_failures_settle();
        bool all = atomic_exchange(&device->look_at_all, false);
        aio_rounds_help(self->device, all);
        if (all) {
            atomic_store(&self->rounds.all, true);
        }
        if (self->rounds.active) {
            aio_rounds_make(&self->rounds);
        }
        if (tick_is_due(self, aio_now_us())) {
            tick_inside(self);
        }
        if (self->lock.due_us || atomic_load(&device->locking)) {
            aio_stream_lock_look(self->device, &self->lock);
        }
        rest(self);
    }
    if (atomic_fetch_sub(&device->watching, 1) == 1) {
        take_incoming(self); /* no other watcher runs */
    }
    /* This watcher may have changed `wakes_us` after its successor did. */
    atomic_store(&device->wakes_us, INT64_MAX);
    aio_futex_wake(&device->asleep, INT_MAX);
    aio_rounds_defer(&self->rounds);
    free(self);
    return NULL;
}

int aio_watcher_start(int device) {
    watcher *self = calloc(1, sizeof *self);
    if (!self) {
        return AIO_NO_MEMORY;
    }
    self->device = self->rounds.device = device;
    self->epoch = atomic_load(&aio_devices[device].epoch);
    atomic_fetch_add(&aio_devices[device].watching, 1);
    if (aio_spawn("aioacl-wait", watch, self) == 0) {
        return 0;
    }
    atomic_fetch_sub(&aio_devices[device].watching, 1);
    free(self);
    return AIO_NO_THREAD;
}

void aio_watcher_stop(int device) {
    int64_t end = aio_now_us() + STOP_US;
    struct timespec nap = {0, 100000};
    atomic_fetch_add(&aio_devices[device].epoch, 1);
    aio_watcher_wake(device);
    while (atomic_load(&aio_devices[device].watching) && aio_now_us() < end) {
        nanosleep(&nap, NULL);
    }
}

static void defer_incoming_waits(int device) {
    aio_token *token = atomic_exchange(&aio_devices[device].incoming, NULL);
    while (token) {
        aio_token *next = token->next;
        aio_defer_wait(token);
        token = next;
    }
}

/* Before a watcher ends, it lowers `watching`, and then takes the list once more. So either this watcher or the
 * submitting thread handles a late wait. */
void aio_watcher_submit(aio_token *token) {
    int index = token->stream->device;
    struct aio_device *device = &aio_devices[index];
    int64_t first_us = atomic_load(&token->stream->waits[0].first_us);
    int64_t due = first_us ? token->born_us + first_us : 0; /* the token may be freed once it is in the list */
    aio_token *first = atomic_load(&device->incoming);
    do {
        token->next = first;
    } while (!atomic_compare_exchange_weak(&device->incoming, &first, token));
    if (!atomic_load(&device->watching)) {
        defer_incoming_waits(index);
    } else if (!due || due < atomic_load(&device->wakes_us)) {
        aio_watcher_stir(index);
    }
}

int aio_watch_by(aio_rounds *rounds, aio_stream *stream, uint64_t position, aio_token *token) {
    int code = aio_gate_check(aio_stream_pass(stream, 0), AIO_WAIT);
    if (code) {
        return code;
    }
    token->stream = stream;
    token->position = position;
    int64_t now_ns = aio_now_ns();
    token->born_us = now_ns / 1000;
    aio_flight_note_at(now_ns, AIO_FLIGHT_WAIT_BEGINS, stream->device, aio_flight_entry(stream, position), 0,
                       0);
    aio_stream_hold(stream);
    atomic_fetch_add(&aio_devices[stream->device].waits, 1);
    aio_count_wait(token);
    if (position == atomic_load(&stream->tail)) {
        aio_atomic_max(&stream->waited, position); /* now no dropped ticket clears `wanted` */
        aio_atomic_max(&stream->wanted, position); /* an enqueue may already have raised `wanted` */
    }
    if (position < atomic_load(&stream->tail) || aio_stream_is_launching(stream)) {
        aio_stream_mark_now(stream, position);
    }
    if (atomic_load(&aio_devices[stream->device].strategy) == AIO_THREAD) {
        return aio_waiter_submit(token);
    }
    if (!rounds || !aio_rounds_add(rounds, token)) {
        aio_watcher_submit(token);
    }
    return 0;
}

int aio_watch(aio_stream *stream, uint64_t position, aio_port *port, uint64_t key) {
    aio_token *token = NULL;
    int code = aio_token_take(port, key, &token);
    if (code == 0 && (code = aio_watch_by(NULL, stream, position, token))) {
        aio_token_drop(&token);
    }
    return code;
}

int aio_device_start(int device, int strategy, aio_port *kick) {
    struct aio_device *self = &aio_devices[device];
    atomic_store(&self->strategy, strategy);
    atomic_store(&self->kicks, 0); /* an old reason would suppress the next wake-up for this reason */
    atomic_store(&self->kick, kick);
    return aio_watcher_start(device);
}

void aio_device_stop(int device) {
    struct aio_device *self = &aio_devices[device];
    aio_watcher_stop(device);
    aio_waiters_stop(device);
    atomic_store(&self->kick, NULL);
    atomic_store(&self->relief, NULL);
}
