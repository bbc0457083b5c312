/*
 * Calls of models: the slots of one load, and the queue for them. For each instance, a thread enqueues the
 * calls (runner.c).
 *
 * A call takes a free slot, or waits in the queue for one. It then is in the queue of the slot's instance. The
 * thread copies the arguments to the pinned memory of the slot, and enqueues the upload. It waits until the
 * previous execution of the instance is done, sets the gear, and enqueues the execution and the downloads. Then
 * it begins the engine's wait for the last position, whose completion goes to the caller's port. So
 *
 * - an upload and a download run while the execution of another call runs;
 * - one id of the runtime is on one stream at a time;
 * - at most one execution of a thread is unfinished. The runtime reports a failed execution only by its thread,
 *   so the failure belongs to exactly one call. A thread does not end before its executions are settled,
 * because the ids of threads are used again.
 *
 * The thread is inside the gate only during calls of ACL. So a reset waits neither for a copy nor for a wait of
 * the thread. The engine ends these waits, like all others, when the reset ends.
 *
 * The lock is held for a few instructions, and never during an ACL call. No code of Python runs meanwhile.
 * A caller may give a call up at any time. If the thread reads the arguments of the call at that time, it puts
 * the call into the list `done` later, and wakes the maintenance thread, which frees the arguments under the
 * GIL. The slot of such a call stays in use until its stream is idle: the thread waits for this.
 *
 * A caller may not take its results for long, because its event loop is blocked. If other calls wait for slots
 * then, the thread copies the results out of the slot.
 *
 * A slot whose stream has failed is free again when the maintenance thread has renewed the stream.
 */
#include "calls.h"

#include <stdlib.h>

void aio_calls_ring(aio_calls *calls) {
    for (int index = 0; index < calls->runner_count; index++) {
        aio_port_ring(calls->runners[index].port);
    }
}

void aio_calls_unlock(aio_calls *calls, aio_after then) {
    aio_lock_give(&calls->lock);
    if (then.rings) {
        aio_port_ring(then.rings->port);
    }
    if (then.over || then.all) {
        aio_calls_ring(calls);
    }
    if (then.kicks || then.over) {
        aio_device_kick(calls->device, AIO_KICK_CALLS);
    }
}

bool aio_calls_are_stale(const aio_calls *calls) {
    return aio_word_generation(aio_gate_word(calls->device)) != calls->generation;
}

bool aio_calls_are_open(const aio_calls *calls) {
    uint64_t word = aio_gate_word(calls->device);
    return !calls->ended && aio_word_generation(word) == calls->generation &&
           aio_word_state(word) == AIO_OPEN && aio_word_flags(word) == 0;
}

/* --- slots: with the lock held --------------------------------------------------------------------------- */

static aio_model_call *first_waiting(aio_calls *calls) {
    aio_model_call *call = calls->waiting;
    if (call) {
        calls->waiting = call->next;
        calls->waiting_count--;
        if (!calls->waiting) {
            calls->waiting_end = &calls->waiting;
        }
    }
    return call;
}

static void hand_over(aio_slot *slot, aio_model_call *call) {
    aio_runner *runner = slot->runner;
    call->slot = slot;
    slot->call = call;
    slot->late_us = 0;
    slot->number = call->number;
    aio_flight_note(AIO_FLIGHT_SLOT_TAKEN, runner->calls->device, call->number, slot->index,
                    slot->stream->number);
    aio_count_slot(call->token, call->state == AIO_CALL_WAITING);
    call->state = AIO_CALL_QUEUED;
    call->next = NULL;
    *runner->end = call;
    runner->end = &call->next;
}

bool aio_calls_all_back(const aio_calls *calls) {
    return calls->free_count + calls->failed_count == calls->slot_count;
}

aio_after aio_slot_offer(aio_calls *calls, aio_slot *slot) {
    aio_model_call *call = first_waiting(calls);
    if (call) {
        hand_over(slot, call);
        return (aio_after){.rings = slot->runner};
    }
    slot->next = NULL;
    *calls->free_end = slot;
    calls->free_end = &slot->next;
    calls->free_count++;
    return (aio_after){.over = calls->ended && aio_calls_all_back(calls)};
}

aio_after aio_slot_give(aio_calls *calls, aio_slot *slot) {
    slot->call = NULL;
    aio_flight_note(AIO_FLIGHT_SLOT_GIVEN, calls->device, slot->number, slot->index, slot->stream->number);
    if (!atomic_load(&slot->stream->failed) || calls->ended || aio_calls_are_stale(calls)) {
        return aio_slot_offer(calls, slot);
    }
    slot->next = calls->failed;
    calls->failed = slot;
    calls->failed_count++;
    return (aio_after){.kicks = true};
}

static aio_slot *first_free(aio_calls *calls) {
    aio_slot *slot = calls->waiting ? NULL : calls->free;
    if (slot) {
        calls->free = slot->next;
        calls->free_count--;
        if (!calls->free) {
            calls->free_end = &calls->free;
        }
    }
    return slot;
}

void aio_model_unlink(aio_model_call **first, aio_model_call ***end, const aio_model_call *call) {
    aio_model_call **link = first;
    while (*link != call) {
        link = &(*link)->next;
    }
    *link = call->next;
    if (!*link) {
        *end = link;
    }
}

/* --- slots ----------------------------------------------------------------------------------------------- */

bool aio_stream_is_settled(aio_stream *stream) {
    uint64_t tail = aio_stream_tail(stream);
    return aio_stream_completed(stream) >= tail && aio_stream_known(stream, tail) != aio_failed(AIO_PENDING);
}

bool aio_slot_is_idle(const aio_calls *calls, const aio_slot *slot) {
    return aio_stream_is_settled(slot->stream) || aio_calls_are_stale(calls);
}

void aio_slot_leave(aio_calls *calls, aio_slot *slot) {
    aio_after then = {.rings = slot->runner};
    bool idle = aio_slot_is_idle(calls, slot);
    aio_lock_take(&calls->lock);
    if (idle) {
        then = aio_slot_give(calls, slot);
    } else {
        slot->call = NULL;
        slot->next = slot->runner->leaving;
        slot->runner->leaving = slot;
    }
    aio_calls_unlock(calls, then);
}

aio_slot *aio_calls_take_failed(aio_calls *calls) {
    aio_lock_take(&calls->lock);
    aio_slot *slot = calls->failed;
    if (slot) {
        calls->failed = slot->next;
        calls->failed_count--;
    }
    aio_lock_give(&calls->lock);
    return slot;
}

/* After a renewal that has failed, the next call that waits lets the maintenance thread try again. */
static aio_token *keep_failed(aio_calls *calls, aio_slot *slot) {
    aio_model_call *call = first_waiting(calls);
    aio_token *token = call ? call->token : NULL;
    if (call) {
        call->token = NULL;
        call->state = AIO_CALL_OVER;
        call->code = AIO_STREAM_FAILED;
        aio_flight_note(AIO_FLIGHT_SLOT_REFUSED, calls->device, call->number, AIO_STREAM_FAILED, 0);
    }
    slot->next = calls->failed;
    calls->failed = slot;
    calls->failed_count++;
    return token;
}

void aio_calls_renewed(aio_slot *slot, aio_stream *stream) {
    aio_calls *calls = slot->runner->calls;
    aio_stream *old = NULL;
    aio_token *token = NULL;
    aio_after then = {.rings = NULL};
    aio_lock_take(&calls->lock);
    if (stream) {
        old = slot->stream;
        slot->stream = stream;
    }
    if (stream || calls->ended) {
        then = aio_slot_offer(calls, slot);
    } else {
        token = keep_failed(calls, slot);
        then.kicks = calls->waiting != NULL;
    }
    aio_calls_unlock(calls, then);
    aio_token_post(&token, aio_failed(AIO_STREAM_FAILED));
    if (old) {
        aio_stream_unhold(old);
    }
}

static void end_waits(aio_calls *calls, bool ends, int32_t code) {
    for (bool more = true; more;) {
        aio_lock_take(&calls->lock);
        calls->ended = calls->ended || ends;
        aio_model_call *call = first_waiting(calls);
        aio_token *token = call ? call->token : NULL;
        if (call) {
            call->token = NULL;
            call->state = AIO_CALL_OVER;
            call->code = code;
            aio_flight_note(AIO_FLIGHT_SLOT_REFUSED, calls->device, call->number, code, 0);
        }
        more = call != NULL;
        aio_lock_give(&calls->lock);
        aio_token_post(&token, aio_failed(code));
    }
}

void aio_calls_wake(aio_calls *calls, int32_t code) {
    end_waits(calls, false, code);
}

void aio_calls_end(aio_calls *calls) {
    end_waits(calls, true, AIO_STALE);
    for (aio_slot *slot; (slot = aio_calls_take_failed(calls));) { /* no call uses them any more */
        aio_lock_take(&calls->lock);
        aio_calls_unlock(calls, aio_slot_offer(calls, slot));
    }
    aio_calls_ring(calls);
}

bool aio_calls_are_back(aio_calls *calls) {
    aio_lock_take(&calls->lock);
    bool back = aio_calls_all_back(calls);
    aio_lock_give(&calls->lock);
    return back;
}

/* --- calls ----------------------------------------------------------------------------------------------- */

/* With the lock held. The state of the gate is read under the lock: after a failed reset, the gate is shut
 * before the waits are ended. */
static int take_or_wait(aio_calls *calls, aio_model_call *call, bool wait, aio_after *then) {
    uint64_t word = aio_gate_word(calls->device);
    if (calls->ended || aio_word_generation(word) != calls->generation) {
        return AIO_STALE;
    }
    if (aio_word_state(word) == AIO_QUARANTINED) {
        return AIO_QUARANTINE;
    }
    aio_slot *slot = first_free(calls);
    if (slot) {
        hand_over(slot, call);
        then->rings = slot->runner;
        return 0;
    }
    then->kicks = calls->failed != NULL; /* the maintenance thread renews their streams, or tries again */
    if (!wait) {
        return AIO_QUEUE_FULL;
    }
    call->state = AIO_CALL_WAITING;
    call->next = NULL;
    *calls->waiting_end = call;
    calls->waiting_end = &call->next;
    calls->waiting_count++;
    aio_flight_note(AIO_FLIGHT_SLOT_WANTED, calls->device, call->number, 0, (uint64_t)calls->waiting_count);
    then->all = calls->waiting_count == 1; /* the threads look for slots whose results are not taken */
    return 0;
}

int aio_model_begin(aio_calls *calls, aio_model_call *call, aio_port *port, uint64_t key, bool wait) {
    static _Atomic uint64_t numbers;
    aio_after then = {.rings = NULL};
    aio_token *token = NULL;
    int code = aio_token_take(port, key, &token);
    if (code) {
        return code;
    }
    aio_count_call(token, calls->counts, call->rows);
    aio_lock_take(&calls->lock);
    call->token = token;
    call->number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
    code = take_or_wait(calls, call, wait, &then);
    if (code) {
        call->token = NULL;
        call->state = AIO_CALL_OVER;
    }
    aio_calls_unlock(calls, then);
    if (code) {
        aio_token_drop(&token);
    }
    return code;
}

/* With the lock held. Whether the thread has taken the call, and has perhaps enqueued something. */
static bool has_begun(const aio_model_call *call) {
    bool taken = call->state >= AIO_CALL_RUNNING && call->state != AIO_CALL_OVER;
    return taken && (call->begun || call->state != AIO_CALL_ENQUEUED);
}

bool aio_model_leave(aio_calls *calls, aio_model_call *call, bool *begun) {
    aio_token *token = NULL;
    aio_slot *slot = NULL;
    aio_after then = {.rings = NULL};
    aio_lock_take(&calls->lock);
    *begun = has_begun(call);
    switch (call->state) {
    case AIO_CALL_WAITING:
        aio_model_unlink(&calls->waiting, &calls->waiting_end, call);
        calls->waiting_count--;
        token = call->token;
        aio_flight_note(AIO_FLIGHT_SLOT_REFUSED, calls->device, call->number, 0, 0);
        break;
    case AIO_CALL_QUEUED:
        aio_model_unlink(&call->slot->runner->first, &call->slot->runner->end, call);
        token = call->token;
        then = aio_slot_give(calls, call->slot);
        break;
    case AIO_CALL_RUNNING:
    case AIO_CALL_WRITING:
    case AIO_CALL_SAVING:
        call->left = true;
        break;
    case AIO_CALL_ENQUEUED:
    case AIO_CALL_TAKEN:
        slot = call->slot;
        break;
    case AIO_CALL_NEW:
    case AIO_CALL_SAVED:
    case AIO_CALL_OVER:
        break;
    }
    bool unused = !call->left;
    if (unused) {
        call->state = AIO_CALL_OVER;
        call->token = NULL;
        call->slot = NULL;
    }
    aio_calls_unlock(calls, then);
    aio_token_give_up(&token);
    if (slot) {
        aio_slot_leave(calls, slot);
    }
    return unused;
}

int aio_model_write(aio_calls *calls, aio_model_call *call, aio_port *port, uint64_t key) {
    aio_token *token = NULL;
    int code = aio_token_take(port, key, &token);
    if (code) {
        return code;
    }
    aio_lock_take(&calls->lock);
    aio_runner *runner = call->slot->runner;
    call->token = token;
    call->state = AIO_CALL_WRITING;
    call->next = NULL;
    *runner->writes_end = call;
    runner->writes_end = &call->next;
    aio_calls_unlock(calls, (aio_after){.rings = runner});
    return 0;
}

int aio_calls_busy(aio_calls *calls) {
    aio_lock_take(&calls->lock);
    int busy = calls->slot_count - calls->free_count - calls->failed_count;
    aio_lock_give(&calls->lock);
    return busy;
}

int aio_calls_writing(aio_calls *calls) {
    int count = 0;
    aio_lock_take(&calls->lock);
    for (int index = 0; index < calls->runner_count; index++) {
        for (const aio_model_call *call = calls->runners[index].writes; call; call = call->next) {
            count++;
        }
    }
    aio_lock_give(&calls->lock);
    return count;
}

void aio_model_put_done(aio_calls *calls, aio_model_call *call) {
    call->state = AIO_CALL_OVER;
    call->slot = NULL;
    call->next = calls->done;
    calls->done = call;
}

void aio_model_take(aio_calls *calls, aio_model_call *call) {
    bool saving = true;
    for (unsigned turn = 0; saving; turn++) {
        aio_lock_take(&calls->lock);
        saving = call->state == AIO_CALL_SAVING;
        if (call->state == AIO_CALL_ENQUEUED) {
            call->state = AIO_CALL_TAKEN;
        }
        aio_lock_give(&calls->lock);
        aio_pause(turn);
    }
}

aio_model_call *aio_calls_take_done(aio_calls *calls) {
    aio_lock_take(&calls->lock);
    aio_model_call *call = calls->done;
    if (call) {
        calls->done = call->next;
    }
    aio_lock_give(&calls->lock);
    return call;
}

/* --- a load ---------------------------------------------------------------------------------------------- */

static void free_calls(aio_calls *calls) {
    for (int index = 0; calls->runners && index < calls->runner_count; index++) {
        aio_runner *runner = &calls->runners[index];
        if (runner->port) {
            aio_port_close(runner->port);
        }
        if (runner->last) {
            aio_stream_unhold(runner->last);
        }
    }
    for (int index = 0; calls->slots && index < calls->slot_count; index++) {
        if (calls->slots[index].stream) {
            aio_stream_unhold(calls->slots[index].stream);
        }
    }
    free(calls->parts);
    free(calls->runners);
    free(calls->slots);
    free(calls);
}

void aio_calls_drop(aio_calls *calls) {
    if (atomic_fetch_sub(&calls->references, 1) == 1) {
        free_calls(calls);
    }
}

static bool make_runner(aio_calls *calls, int index) {
    aio_runner *runner = &calls->runners[index];
    runner->calls = calls;
    runner->end = &runner->first;
    runner->writes_end = &runner->writes;
    runner->port = aio_port_quiet();
    return runner->port != NULL;
}

void aio_calls_count(aio_calls *calls, aio_model_counts *counts) {
    calls->counts = counts;
}

aio_calls *aio_calls_new(int device, uint32_t generation, int inputs, int outputs, int slots, int runners) {
    aio_calls *calls = calloc(1, sizeof *calls);
    if (!calls) {
        return NULL;
    }
    calls->device = device;
    calls->generation = generation;
    calls->inputs = inputs;
    calls->outputs = outputs;
    calls->slot_count = slots;
    calls->runner_count = runners;
    calls->free_end = &calls->free;
    calls->waiting_end = &calls->waiting;
    atomic_init(&calls->references, 1);
    calls->slots = calloc((size_t)slots, sizeof *calls->slots);
    calls->runners = calloc((size_t)runners, sizeof *calls->runners);
    bool made = calls->slots && calls->runners;
    for (int index = 0; made && index < runners; index++) {
        made = make_runner(calls, index);
    }
    if (!made) {
        aio_calls_drop(calls);
        return NULL;
    }
    return calls;
}
