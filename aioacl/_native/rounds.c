/*
 * Rounds: how a thread queries the runtime for the waits that it has taken.
 *
 * Two kinds of threads make rounds: the watcher of a device, for all awaits, and the thread of a model's
 * instance, for its own calls. Each has a record `aio_rounds`, which only one thread uses at a time. Both make
 * the same rounds, so the rules stand here only (lent.c has what an instance needs besides):
 *
 * - A round makes no blocking wait, only queries. pace.c decides when.
 * - Waits of a stream end in order, so only the first wait is queried.
 * - One round enters the gate once. If the gate refuses, the device is being reset or was reset. Then the waits
 *   become the device's deferred waits, which end when the reset ends.
 * - After a failure a queue stops until the runtime's own thread handles the failure. Queries do not wake that
 *   thread. So while the device makes no progress, a round wakes the runtime's thread, at growing intervals. It
 *   does not do so while each wait is within its usual time, because it is then normal that no work ends.
 */
#include <limits.h>
#include <sched.h>

#include "internal.h"

enum { FIRST_NUDGE_US = 1500, RARE_NUDGE_US = 100000, HOLD_US = 100 };

enum { LONG_US = 1000, LONG_AT_ONCE = 8 };

/* --- the waits of a stream ------------------------------------------------------------------------------- */

/* Most waits begin in the order of their positions, so the last wait is compared first. */
static void queue(aio_watched *watched, aio_token *token) {
    bool at_end = watched->tokens && watched->last_token->position <= token->position;
    aio_token **link = at_end ? &watched->last_token->next : &watched->tokens;
    while (*link && (*link)->position <= token->position) {
        link = &(*link)->next;
    }
    token->next = *link;
    *link = token;
    if (!token->next) {
        watched->last_token = token;
    }
}

static void remember(aio_watched *watched, aio_token *token) {
    int64_t after = watched->asked_us - token->born_us;
    token->ended_us = aio_now_us();
    aio_took took = {after > 0 ? after : 0, token->ended_us - token->born_us};
    aio_pace_learn(&watched->pace, took);
    atomic_store(&watched->first_us, aio_pace_first_us(&watched->pace));
}

/* Completions that come within HOLD_US can share one wake-up of their loop. */
static void hold(aio_rounds *self, aio_token *token, aio_result result) {
    aio_port *before = self->held;
    if (!before) {
        self->held_us = aio_now_us() + HOLD_US;
    }
    self->held = aio_publish_held(token, result);
    if (before) { /* the same port, or that of another loop */
        before == self->held ? aio_port_close(before) : aio_port_ring_held(before);
    }
}

static void publish(aio_rounds *self, aio_token *token, aio_result result) {
    bool more = self->before && token->patient && result >= 0 && self->before(self, token);
    if (more && !atomic_load(&self->away_us)) {
        hold(self, token, result);
    } else {
        aio_publish(token, result);
    }
}

static void publish_ended(aio_watched *watched) {
    aio_result result;
    while (watched->tokens && aio_stream_over(watched->stream, watched->tokens->position, &result)) {
        aio_token *token = watched->tokens;
        watched->tokens = token->next;
        remember(watched, token);
        publish(watched->rounds, token, result);
    }
}

/* Passes the waits to aio_defer_wait, because a reset has interrupted them. */
static void defer_waits(aio_watched *watched) {
    while (watched->tokens) {
        aio_token *token = watched->tokens;
        watched->tokens = token->next;
        aio_defer_wait(token);
    }
}

static void activate(aio_rounds *self, aio_watched *watched) {
    int64_t first = atomic_load(&watched->first_us);
    aio_result ignored;
    if (first && aio_stream_over(watched->stream, watched->tokens->position, &ignored)) {
        first = 0; /* the bytes of the download were delivered before the wait began */
    }
    if (!first) {
        watched->due_us = 0;
    }
    if (watched->active) {
        return;
    }
    if (first) { /* the caller has just queried the stream, or enqueued on it */
        int64_t age = aio_now_us() - watched->tokens->born_us;
        watched->due_us = age + age / 2 >= first ? 0 : watched->tokens->born_us + first;
    }
    watched->active = true;
    atomic_fetch_add(&watched->stream->watched, 1);
    aio_stream_hold(watched->stream);
    watched->next_active = self->active;
    self->active = watched;
}

void aio_rounds_take(aio_rounds *self, aio_token *token) {
    aio_watched *watched = &token->stream->waits[self->of_instance];
    watched->stream = token->stream;
    watched->rounds = self;
    queue(watched, token);
    activate(self, watched);
}

/* The stream's next wait probably begins soon. So the watcher wakes when this wait will be due, and the thread
 * that submits it need not wake the watcher. */
static void expect(aio_rounds *self, const aio_watched *watched) {
    int64_t first = atomic_load(&watched->first_us);
    if (first) {
        self->expected_us = aio_now_us() + first;
    }
}

static void drop_idle(aio_rounds *self) {
    aio_watched **link = &self->active;
    while (*link) {
        aio_watched *watched = *link;
        if (watched->tokens) {
            link = &watched->next_active;
            continue;
        }
        *link = watched->next_active;
        watched->active = false;
        expect(self, watched);
        atomic_fetch_sub(&watched->stream->watched, 1);
        aio_stream_unhold(watched->stream);
    }
}

void aio_rounds_defer(aio_rounds *self) {
    for (aio_watched *watched = self->active; watched; watched = watched->next_active) {
        defer_waits(watched);
    }
    drop_idle(self);
}

/* --- one round ------------------------------------------------------------------------------------------- */

static void ask(aio_watched *watched, int64_t now_us) {
    aio_stream_advance(watched->stream, watched->tokens->position, true);
    /* Ends each wait before the bytes of later downloads are copied, so that its caller can run meanwhile. A
     * wait that begins meanwhile is seen in the next round. */
    aio_stream_deliver_each(watched->stream, publish_ended, watched);
    publish_ended(watched);
    if (watched->tokens) {
        watched->asked_us = now_us;
        watched->due_us = now_us + aio_pace_pause_us(&watched->pace, now_us - watched->tokens->born_us);
    }
}

/* Whether to query the stream in this round. A stream is also queried if it will be due within half of its
 * interval. */
static bool is_due(const aio_watched *watched, int64_t now_us) {
    if (now_us >= watched->due_us) {
        return true;
    }
    int64_t early = aio_interval_us(now_us - watched->tokens->born_us) / 2;
    return watched->due_us - early <= now_us;
}

/* A round over many long waits that are unfinished lets other threads run now and then. Such a round takes as
 * long as several tasks of an event loop, and the loop may have to share a processor with this thread. A round
 * over short waits does not let other threads run: if waits end together, it is cheaper to deliver them
 * together. */
static bool lets_others_run(const aio_watched *watched, int64_t now_us, int *long_waits) {
    if (watched->tokens && now_us - watched->tokens->born_us > LONG_US) {
        *long_waits += 1;
        return *long_waits % LONG_AT_ONCE == 0;
    }
    return false;
}

static void ask_due(aio_rounds *self, uint32_t generation, int64_t now_us) {
    bool all = atomic_exchange(&self->all, false);
    int long_waits = 0;
    for (aio_watched *watched = self->active; watched; watched = watched->next_active) {
        if (watched->stream->generation != generation) {
            defer_waits(watched);
        } else if (all || is_due(watched, now_us)) {
            ask(watched, now_us);
            if (lets_others_run(watched, now_us, &long_waits)) {
                sched_yield();
            }
        }
    }
    drop_idle(self);
}

/* Whether each wait is within the usual time of its stream's waits, and this time is short. */
static bool all_usual(const aio_rounds *self, int64_t now_us) {
    for (const aio_watched *watched = self->active; watched; watched = watched->next_active) {
        int64_t usual = aio_pace_usual_us(&watched->pace);
        if (usual > RARE_NUDGE_US || now_us - watched->tokens->born_us > usual) {
            return false;
        }
    }
    return true;
}

static void nudge_if_stuck(aio_rounds *self, int64_t now_us) {
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

/* After a failed task, asks once whether other code has made the failure stop the context. Callers that get the
 * failure then know whether a new stream helps. */
static void ask_for_stop(aio_rounds *self, uint32_t generation) {
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

static int bind_thread(aio_pass pass) {
    aio_thread *thread = aio_self();
    if (thread->own_device == aio_pass_device(pass) && thread->own_generation == aio_pass_generation(pass)) {
        return 0;
    }
    return aio_adopt_thread(pass);
}

int aio_round_begin(int device, aio_frame *frame, uint32_t *generation) {
    *generation = aio_word_generation(aio_gate_word(device));
    aio_pass pass = aio_make_pass(device, *generation, 0);
    int code = bind_thread(pass);
    return code ? code : aio_begin(frame, pass, AIO_WAIT, AIO_FN_aclrtStreamQuery);
}

void aio_rounds_make(aio_rounds *self) {
    uint32_t generation;
    aio_frame frame;
    int code = aio_round_begin(self->device, &frame, &generation);
    if (code == 0) {
        int64_t now = aio_now_us();
        ask_for_stop(self, generation);
        ask_due(self, generation, now);
        if (self->active) {
            nudge_if_stuck(self, now);
        } else {
            self->nudge_us = 0;
        }
        aio_end(&frame, 0);
    } else if (code != AIO_CROWDED) { /* the gate has room again when other calls leave */
        aio_rounds_defer(self);
    }
}

int64_t aio_rounds_due(const aio_rounds *self) {
    int64_t first = INT64_MAX;
    for (const aio_watched *watched = self->active; watched; watched = watched->next_active) {
        if (watched->due_us < first) {
            first = watched->due_us;
        }
    }
    return first;
}
