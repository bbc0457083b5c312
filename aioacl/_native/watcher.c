/*
 * The watcher: one thread per device that queries the runtime for all awaits.
 *
 * A blocking wait of the runtime is a busy loop that cannot be stopped. After a reset, such a wait returns
 * wrong results, and at exit it crashes the process. So the watcher makes no blocking waits, only queries,
 * which never block. pace.c decides when.
 *
 * Waits of a stream end in order, so only the first wait is queried. Threads submit new waits through a
 * lock-free list. All other data in this file is used by the watcher only.
 *
 * After a failure a queue stops until the runtime's own thread handles the failure. Queries do not wake that
 * thread. So while the device makes no progress, the watcher wakes the runtime's thread, at growing intervals.
 * It does not do so while each wait is within its usual time, because it is then normal that no work ends. With
 * both strategies, the watcher also checks work that no caller awaits, ten times a second. If a stream has such
 * work and no wait, the watcher then wakes the runtime's thread in any case.
 *
 * One round over the streams enters the gate once. If the gate refuses, the device is being reset or was reset.
 * Then the waits become the device's deferred waits, which end when the reset ends.
 */
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "internal.h"

enum { FIRST_NUDGE_US = 1500, RARE_NUDGE_US = 100000, TICK_US = 100000, STOP_US = 1000000, SLACK_NS = 1000 };

enum { LONG_US = 1000, LONG_AT_ONCE = 8 };

typedef struct {
    int device;
    unsigned epoch;
    aio_stream *active;
    unsigned progress; /* the device's progress at the last check */
    int64_t nudge_us;  /* the time at which the runtime is woken unless there is progress */
    int64_t patience_us;
    unsigned announced; /* how many failures the device had announced at the last check */
    bool guarding;
    int64_t tick_us;     /* the time of the next check of work that no caller awaits */
    int64_t expected_us; /* the time at which a wait that has not begun will be due; 0: none is expected */
    aio_lock_look lock;
} watcher;

/* Most waits begin in the order of their positions, so the last wait is compared first. */
static void queue(aio_token *token) {
    aio_stream *stream = token->stream;
    bool at_end = stream->tokens && stream->last_token->position <= token->position;
    aio_token **link = at_end ? &stream->last_token->next : &stream->tokens;
    while (*link && (*link)->position <= token->position) {
        link = &(*link)->next;
    }
    token->next = *link;
    *link = token;
    if (!token->next) {
        stream->last_token = token;
    }
}

static void remember(aio_stream *stream, const aio_token *token) {
    int64_t after = stream->asked_us - token->born_us;
    aio_took took = {after > 0 ? after : 0, aio_now_us() - token->born_us};
    aio_pace_learn(&stream->pace, took);
    atomic_store(&stream->first_us, aio_pace_first_us(&stream->pace));
}

void aio_stream_publish_ended(aio_stream *stream) {
    aio_result result;
    while (stream->tokens && aio_stream_over(stream, stream->tokens->position, &result)) {
        aio_token *token = stream->tokens;
        stream->tokens = token->next;
        remember(stream, token);
        aio_publish(token, result);
    }
}

void aio_stream_defer_waits(aio_stream *stream) {
    while (stream->tokens) {
        aio_token *token = stream->tokens;
        stream->tokens = token->next;
        aio_defer_wait(token);
    }
}

static void activate(watcher *self, aio_stream *stream) {
    int64_t first = atomic_load(&stream->first_us);
    aio_result ignored;
    if (first && aio_stream_over(stream, stream->tokens->position, &ignored)) {
        first = 0; /* the bytes of the download were delivered before the wait began */
    }
    if (!first) {
        stream->due_us = 0;
    }
    if (stream->active) {
        return;
    }
    if (first) { /* the caller has just queried the stream */
        int64_t age = aio_now_us() - stream->tokens->born_us;
        stream->due_us = age + age / 2 >= first ? 0 : stream->tokens->born_us + first;
    }
    stream->active = true;
    aio_stream_hold(stream);
    stream->next_active = self->active;
    self->active = stream;
}

static void take_incoming(watcher *self) {
    aio_token *token = aio_tokens_reverse(atomic_exchange(&aio_devices[self->device].incoming, NULL));
    while (token) {
        aio_token *next = token->next;
        aio_stream *stream = token->stream;
        queue(token);
        activate(self, stream);
        token = next;
    }
}

/* The stream's next wait probably begins soon. So the watcher wakes when this wait will be due, and the thread
 * that submits it need not wake the watcher. */
static void expect(watcher *self, const aio_stream *stream) {
    int64_t first = atomic_load(&stream->first_us);
    if (first) {
        self->expected_us = aio_now_us() + first;
    }
}

static void drop_idle(watcher *self) {
    aio_stream **link = &self->active;
    while (*link) {
        aio_stream *stream = *link;
        if (stream->tokens) {
            link = &stream->next_active;
            continue;
        }
        *link = stream->next_active;
        stream->active = false;
        expect(self, stream);
        aio_stream_unhold(stream);
    }
}

static void defer_all_waits(watcher *self) {
    for (aio_stream *stream = self->active; stream; stream = stream->next_active) {
        aio_stream_defer_waits(stream);
    }
    drop_idle(self);
}

static void ask(aio_stream *stream, int64_t now_us) {
    aio_stream_advance(stream, stream->tokens->position, true);
    /* Ends each wait before the bytes of later downloads are copied, so that its caller can run meanwhile. A
     * wait that begins meanwhile is seen in the next round. */
    aio_stream_deliver_each(stream, aio_stream_publish_ended);
    aio_stream_publish_ended(stream);
    if (stream->tokens) {
        stream->asked_us = now_us;
        stream->due_us = now_us + aio_pace_pause_us(&stream->pace, now_us - stream->tokens->born_us);
    }
}

/* Whether to query the stream in this round. A stream is also queried if it will be due within half of its
 * interval. */
static bool is_due(const aio_stream *stream, int64_t now_us) {
    if (now_us >= stream->due_us) {
        return true;
    }
    int64_t early = aio_interval_us(now_us - stream->tokens->born_us) / 2;
    return stream->due_us - early <= now_us;
}

/* A round over many long waits that are unfinished lets other threads run now and then. Such a round takes as
 * long as several tasks of an event loop, and the loop may have to share a processor with the watcher. A round
 * over short waits does not let other threads run: if waits end together, it is cheaper to deliver them
 * together. */
static bool lets_others_run(const aio_stream *stream, int64_t now_us, int *long_waits) {
    if (stream->tokens && now_us - stream->tokens->born_us > LONG_US) {
        *long_waits += 1;
        return *long_waits % LONG_AT_ONCE == 0;
    }
    return false;
}

static void ask_due(watcher *self, uint32_t generation, int64_t now_us) {
    bool all = atomic_exchange(&aio_devices[self->device].look_at_all, false);
    int long_waits = 0;
    for (aio_stream *stream = self->active; stream; stream = stream->next_active) {
        if (stream->generation != generation) {
            aio_stream_defer_waits(stream);
        } else if (all || is_due(stream, now_us)) {
            ask(stream, now_us);
            if (lets_others_run(stream, now_us, &long_waits)) {
                sched_yield();
            }
        }
    }
    drop_idle(self);
}

/* Whether each wait is within the usual time of its stream's waits, and this time is short. */
static bool all_usual(const watcher *self, int64_t now_us) {
    for (const aio_stream *stream = self->active; stream; stream = stream->next_active) {
        int64_t usual = aio_pace_usual_us(&stream->pace);
        if (usual > RARE_NUDGE_US || now_us - stream->tokens->born_us > usual) {
            return false;
        }
    }
    return true;
}

static void nudge_if_stuck(watcher *self, int64_t now_us) {
    unsigned progress = atomic_load(&aio_devices[self->device].progress);
    if (progress != self->progress || !self->nudge_us) {
        self->progress = progress;
        self->patience_us = FIRST_NUDGE_US;
    } else if (now_us < self->nudge_us || all_usual(self, now_us)) {
        return;
    } else {
        aio_device_nudge(self->device);
        self->patience_us = self->patience_us < RARE_NUDGE_US / 2 ? self->patience_us * 2 : RARE_NUDGE_US;
    }
    self->nudge_us = now_us + self->patience_us;
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
        some = some || (!stream->active && is_unfinished(stream, generation));
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

static int bind_thread(aio_pass pass) {
    aio_thread *thread = aio_self();
    if (thread->own_device == aio_pass_device(pass) && thread->own_generation == aio_pass_generation(pass)) {
        return 0;
    }
    return aio_adopt_thread(pass);
}

/* After a failed task, asks once whether other code has made the failure stop the context. Callers that get the
 * failure then know whether a new stream helps. */
static void ask_for_stop(watcher *self, uint32_t generation) {
    struct aio_device *device = &aio_devices[self->device];
    unsigned announced = atomic_load(&device->announced);
    aclrtStreamStatus ignored = ACL_STREAM_STATUS_NOT_READY;
    if (announced != self->announced && atomic_load(&device->equipped) == generation) {
        int code = aio_acl.aclrtStreamQuery(device->nudge_stream, &ignored);
        aio_note_stop(self->device, generation, code);
        aio_note_end(self->device, generation, code);
    }
    self->announced = announced;
}

static void look(watcher *self, uint32_t generation, bool due) {
    int64_t now = aio_now_us();
    ask_for_stop(self, generation);
    ask_due(self, generation, now);
    if (self->active) {
        nudge_if_stuck(self, now);
    } else {
        self->nudge_us = 0;
    }
    if (due) {
        tick(self, generation, now);
    }
}

static void pass_over(watcher *self, bool due) {
    uint32_t generation = aio_word_generation(aio_gate_word(self->device));
    aio_pass pass = aio_make_pass(self->device, generation, 0);
    aio_frame frame;
    int code = bind_thread(pass);
    if (code == 0) {
        code = aio_begin(&frame, pass, AIO_WAIT, AIO_FN_aclrtStreamQuery);
    }
    if (code == 0) {
        look(self, generation, due);
        aio_end(&frame, 0);
    } else if (code != AIO_CROWDED) { /* the gate has room again when other calls leave */
        defer_all_waits(self);
        self->tick_us = aio_now_us() + TICK_US;
    }
}

static int64_t first_due(const watcher *self) {
    int64_t first = self->guarding ? self->tick_us : INT64_MAX;
    if (self->expected_us && self->expected_us < first) {
        first = self->expected_us;
    }
    if (self->lock.due_us && self->lock.due_us < first) {
        first = self->lock.due_us;
    }
    for (const aio_stream *stream = self->active; stream; stream = stream->next_active) {
        if (stream->due_us < first) {
            first = stream->due_us;
        }
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
    if (self->expected_us <= now) {
        self->expected_us = 0;
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
    news = news || (atomic_load(&device->locking) && !self->lock.due_us);
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
        bool due = tick_is_due(self, aio_now_us());
        if (self->active || due) {
            pass_over(self, due);
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
    defer_all_waits(self);
    free(self);
    return NULL;
}

int aio_watcher_start(int device) {
    watcher *self = calloc(1, sizeof *self);
    if (!self) {
        return AIO_NO_MEMORY;
    }
    self->device = device;
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
    int64_t first_us = atomic_load(&token->stream->first_us);
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

int aio_watch_with(aio_stream *stream, uint64_t position, aio_token *token) {
    int code = aio_gate_check(aio_stream_pass(stream, 0), AIO_WAIT);
    if (code) {
        return code;
    }
    token->stream = stream;
    token->position = position;
    token->born_us = aio_now_us();
    aio_stream_hold(stream);
    atomic_fetch_add(&aio_devices[stream->device].waits, 1);
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
    aio_watcher_submit(token);
    return 0;
}

int aio_watch(aio_stream *stream, uint64_t position, aio_port *port, uint64_t key) {
    aio_token *token = NULL;
    int code = aio_token_take(port, key, &token);
    if (code == 0 && (code = aio_watch_with(stream, position, token))) {
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
