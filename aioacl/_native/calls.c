/*
 * Calls of models: the slots of one load, and for each instance a thread that enqueues the calls.
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
 * A slot whose stream has failed is free again when the maintenance thread has renewed the stream.
 */
#include "calls.h"

#include <stdlib.h>
#include <string.h>

/* The keys of the thread's own waits: for the previous execution, or for the work of a slot, whose address is
 * the key. */
enum { PREVIOUS = 1, TAKEN = 8, LOOK_US = 100000, NO_FUNCTION = -1 };

/* build_ffi.py generates these functions from the table. */
aclError aio_g_aclmdlSetDynamicBatchSize(aio_pass pass, uint32_t model, aclmdlDataset *dataset, size_t index,
                                         uint64_t batch);
aclError aio_g_aclmdlSetDynamicHWSize(aio_pass pass, uint32_t model, aclmdlDataset *dataset, size_t index,
                                      uint64_t height, uint64_t width);
aclError aio_g_aclmdlSetInputDynamicDims(aio_pass pass, uint32_t model, aclmdlDataset *dataset, size_t index,
                                         const aclmdlIODims *dims);

/* What is to be done after the lock was released. */
typedef struct {
    aio_runner *rings;
    bool kicks;
    bool over; /* the last slot of an ended load is back: all threads end */
} after;

static void ring_all(aio_calls *calls) {
    for (int index = 0; index < calls->runner_count; index++) {
        aio_port_ring(calls->runners[index].port);
    }
}

static void unlock(aio_calls *calls, after then) {
    aio_lock_give(&calls->lock);
    if (then.rings) {
        aio_port_ring(then.rings->port);
    }
    if (then.over) {
        ring_all(calls);
    }
    if (then.kicks || then.over) {
        aio_device_kick(calls->device, AIO_KICK_CALLS);
    }
}

/* Whether the device was reset or closed after the load. */
static bool is_stale(const aio_calls *calls) {
    return aio_word_generation(aio_gate_word(calls->device)) != calls->generation;
}

bool aio_calls_are_open(const aio_calls *calls) {
    uint64_t word = aio_gate_word(calls->device);
    return !calls->ended && aio_word_generation(word) == calls->generation &&
           aio_word_state(word) == AIO_OPEN && aio_word_flags(word) == 0;
}

/* --- slots: with the lock held -----------------------------------------------------------------------------
 */

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
    call->state = AIO_CALL_QUEUED;
    call->next = NULL;
    *runner->end = call;
    runner->end = &call->next;
}

static bool all_are_back(const aio_calls *calls) {
    return calls->free_count + calls->failed_count == calls->slot_count;
}

/* A slot that can be used is free. */
static after offer(aio_calls *calls, aio_slot *slot) {
    aio_model_call *call = first_waiting(calls);
    if (call) {
        hand_over(slot, call);
        return (after){.rings = slot->runner};
    }
    slot->next = NULL;
    *calls->free_end = slot;
    calls->free_end = &slot->next;
    calls->free_count++;
    return (after){.over = calls->ended && all_are_back(calls)};
}

static after give_back(aio_calls *calls, aio_slot *slot) {
    if (!atomic_load(&slot->stream->failed) || calls->ended || is_stale(calls)) {
        return offer(calls, slot);
    }
    slot->next = calls->failed;
    calls->failed = slot;
    calls->failed_count++;
    return (after){.kicks = true};
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

/* Removes the call from the list, which ends at `end`. */
static void unlink_call(aio_model_call **first, aio_model_call ***end, const aio_model_call *call) {
    aio_model_call **link = first;
    while (*link != call) {
        link = &(*link)->next;
    }
    *link = call->next;
    if (!*link) {
        *end = link;
    }
}

/* --- slots -------------------------------------------------------------------------------------------------
 */

/* Whether the device is done with the work of the slot. */
static bool is_idle(const aio_calls *calls, const aio_slot *slot) {
    const aio_stream *stream = slot->stream;
    return aio_stream_completed(stream) >= aio_stream_tail(stream) || is_stale(calls);
}

/* Gives the slot back, now or when its work is done. */
static void let_go(aio_calls *calls, aio_slot *slot) {
    after then = {.rings = slot->runner};
    bool idle = is_idle(calls, slot);
    aio_lock_take(&calls->lock);
    if (idle) {
        then = give_back(calls, slot);
    } else {
        slot->next = slot->runner->leaving;
        slot->runner->leaving = slot;
    }
    unlock(calls, then);
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
    after then = {.rings = NULL};
    aio_lock_take(&calls->lock);
    if (stream) {
        old = slot->stream;
        slot->stream = stream;
        then = offer(calls, slot);
    } else {
        token = keep_failed(calls, slot);
        then.kicks = calls->waiting != NULL || calls->ended;
    }
    unlock(calls, then);
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
    ring_all(calls);
}

bool aio_calls_are_back(aio_calls *calls) {
    aio_lock_take(&calls->lock);
    bool back = all_are_back(calls);
    aio_lock_give(&calls->lock);
    return back;
}

/* --- calls -------------------------------------------------------------------------------------------------
 */

/* With the lock held. The state of the gate is read under the lock: after a failed reset, the gate is shut
 * before the waits are ended. */
static int take_or_wait(aio_calls *calls, aio_model_call *call, bool wait, after *then) {
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
    if (!wait) {
        return AIO_QUEUE_FULL;
    }
    call->state = AIO_CALL_WAITING;
    call->next = NULL;
    *calls->waiting_end = call;
    calls->waiting_end = &call->next;
    calls->waiting_count++;
    then->kicks = calls->failed != NULL;
    return 0;
}

int aio_model_begin(aio_calls *calls, aio_model_call *call, aio_port *port, uint64_t key, bool wait) {
    after then = {.rings = NULL};
    aio_token *token = NULL;
    int code = aio_token_take(port, key, &token);
    if (code) {
        return code;
    }
    aio_lock_take(&calls->lock);
    call->token = token;
    code = take_or_wait(calls, call, wait, &then);
    if (code) {
        call->token = NULL;
        call->state = AIO_CALL_OVER;
    }
    unlock(calls, then);
    if (code) {
        aio_token_drop(&token);
    }
    return code;
}

bool aio_model_leave(aio_calls *calls, aio_model_call *call) {
    aio_token *token = NULL;
    aio_slot *slot = NULL;
    after then = {.rings = NULL};
    aio_lock_take(&calls->lock);
    switch (call->state) {
    case AIO_CALL_WAITING:
        unlink_call(&calls->waiting, &calls->waiting_end, call);
        calls->waiting_count--;
        token = call->token;
        break;
    case AIO_CALL_QUEUED:
        unlink_call(&call->slot->runner->first, &call->slot->runner->end, call);
        token = call->token;
        then = give_back(calls, call->slot);
        break;
    case AIO_CALL_RUNNING:
    case AIO_CALL_WRITING:
        call->left = true;
        break;
    case AIO_CALL_ENQUEUED:
        slot = call->slot;
        break;
    case AIO_CALL_NEW:
    case AIO_CALL_OVER:
        break;
    }
    bool unused = !call->left;
    if (unused) {
        call->state = AIO_CALL_OVER;
        call->token = NULL;
        call->slot = NULL;
    }
    unlock(calls, then);
    aio_token_drop(&token);
    if (slot) {
        let_go(calls, slot);
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
    unlock(calls, (after){.rings = runner});
    return 0;
}

/* With the lock held: puts a call that its caller has left, and that the thread does not use any more, into the
 * list. */
static void put_done(aio_calls *calls, aio_model_call *call) {
    call->state = AIO_CALL_OVER;
    call->slot = NULL;
    call->next = calls->done;
    calls->done = call;
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

/* --- the thread: one call ----------------------------------------------------------------------------------
 */

/* Keeps the code of a step that failed, and the runtime's text. */
static int failed(aio_model_call *call, int32_t code, int function) {
    call->code = code;
    call->function = function;
    call->text = code > AIO_LIMIT ? strdup(aio_error_text()) : NULL;
    return code;
}

static int enqueued(aio_calls *calls, aio_model_call *call, aio_result result, int function) {
    if (result < 0) {
        return failed(call, aio_code(result), function);
    }
    if (!call->begun) {
        call->begun = true;
        atomic_fetch_add(&aio_devices[calls->device].calling, 1);
    }
    call->position = (uint64_t)result;
    return 0;
}

/* Copies the arguments to the pinned memory, and fills the rest with zeros. */
static void copy_in(const aio_calls *calls, const aio_model_call *call) {
    const aio_piece *piece = call->pieces, *end = piece + call->piece_count;
    for (int input = 0; input < calls->inputs; input++) {
        char *at = call->slot->parts[input].pinned;
        size_t left = call->transfers[input];
        for (; piece < end && piece->input == input; piece++) {
            memcpy(at, piece->source, piece->count);
            at += piece->count;
            left -= piece->count;
        }
        memset(at, 0, left);
    }
}

static int upload(aio_calls *calls, aio_model_call *call) {
    const aio_slot *slot = call->slot;
    int code = 0;
    for (int input = 0; input < calls->inputs && code == 0; input++) {
        const aio_part *part = &slot->parts[input];
        size_t count = call->transfers[input];
        if (count) {
            aio_result result = aio_copy(slot->stream, call->held || call->begun, part->device, part->size,
                                         part->pinned, count, ACL_MEMCPY_HOST_TO_DEVICE);
            code = enqueued(calls, call, result, AIO_FN_aclrtMemcpyAsync);
        }
    }
    if (code == 0 && call->begun) { /* no mark shows the end of the upload, because nothing waits for it */
        aio_stream_forget(slot->stream, call->position);
    }
    return code;
}

static int set_gear(const aio_runner *runner, aio_model_call *call) {
    const aio_calls *calls = runner->calls;
    aio_pass pass = aio_make_pass(calls->device, calls->generation, call->held || call->begun);
    aclmdlDataset *data = call->slot->input;
    size_t selector = (size_t)calls->inputs; /* the input that selects the gear comes after the others */
    int code = 0, function = NO_FUNCTION;
    if (calls->gears == AIO_BATCHES) {
        function = AIO_FN_aclmdlSetDynamicBatchSize;
        code = aio_g_aclmdlSetDynamicBatchSize(pass, runner->model, data, selector, (uint64_t)call->gear[0]);
    } else if (calls->gears == AIO_IMAGES) {
        function = AIO_FN_aclmdlSetDynamicHWSize;
        code = aio_g_aclmdlSetDynamicHWSize(pass, runner->model, data, selector, (uint64_t)call->gear[0],
                                            (uint64_t)call->gear[1]);
    } else if (calls->gears == AIO_DIMS) {
        aclmdlIODims dims = {.dimCount = (size_t)call->gear_size};
        memcpy(dims.dims, call->gear, (size_t)call->gear_size * sizeof *call->gear);
        function = AIO_FN_aclmdlSetInputDynamicDims;
        code = aio_g_aclmdlSetInputDynamicDims(pass, runner->model, data, selector, &dims);
    }
    return code ? failed(call, code, function) : 0;
}

static int download(aio_calls *calls, aio_model_call *call) {
    const aio_slot *slot = call->slot;
    const aio_part *parts = slot->parts + calls->inputs;
    const size_t *counts = call->transfers + calls->inputs;
    int code = 0;
    for (int output = 0; output < calls->outputs && code == 0; output++) {
        if (counts[output]) {
            aio_result result = aio_copy(slot->stream, 1, parts[output].pinned, parts[output].size,
                                         parts[output].device, counts[output], ACL_MEMCPY_DEVICE_TO_HOST);
            code = enqueued(calls, call, result, AIO_FN_aclrtMemcpyAsync);
        }
    }
    return code;
}

/* The newest execution of the instance. *stream is a new reference; NULL: there is none. */
static uint64_t previous(aio_runner *runner, aio_stream **stream) {
    *stream = runner->last;
    if (*stream) {
        aio_stream_hold(*stream);
    }
    return runner->last_position;
}

static bool is_done(aio_stream *stream, uint64_t position) {
    return aio_stream_completed(stream) >= position ||
           aio_stream_known(stream, position) != aio_failed(AIO_PENDING);
}

/* With the lock held. Returns whether the caller may execute on the stream: no other thread does, and no
 * unfinished execution is on another stream. */
static bool claim(aio_runner *runner, const aio_stream *stream, enum aio_executing who) {
    aio_stream *last = runner->last;
    if (runner->executing != AIO_NO_THREAD_EXECUTES ||
        (last && last != stream && !is_done(last, runner->last_position))) {
        return false;
    }
    runner->executing = who;
    return true;
}

/* Ends a claim. */
static void executed(aio_runner *runner, aio_stream *stream, aio_result result) {
    aio_calls *calls = runner->calls;
    aio_stream *old = NULL;
    aio_lock_take(&calls->lock);
    if (result >= 0) {
        old = runner->last;
        aio_stream_hold(stream);
        runner->last = stream;
        runner->last_position = (uint64_t)result;
    }
    runner->executing = AIO_NO_THREAD_EXECUTES;
    aio_lock_give(&calls->lock);
    atomic_fetch_add(&runner->executed, 1);
    aio_futex_wake(&runner->executed, AIO_DEVICES);
    if (old) {
        aio_stream_unhold(old);
    }
}

/* The caller has claimed the instance. */
static int execute(aio_runner *runner, aio_model_call *call) {
    const aio_slot *slot = call->slot;
    aio_result result = aio_failed(AIO_PENDING);
    int code = set_gear(runner, call);
    if (code == 0) {
        result = aio_execute(slot->stream, call->held || call->begun, runner->model, slot->input, slot->output);
        code = enqueued(runner->calls, call, result, AIO_FN_aclmdlExecuteAsync);
    }
    executed(runner, slot->stream, result);
    return code;
}

/* The thread does not use the call any more. A caller may free it as soon as the lock is released. */
static void end_call(aio_runner *runner, int code) {
    aio_calls *calls = runner->calls;
    aio_model_call *call = runner->current;
    aio_slot *slot = call->slot;
    aio_stream *stream = slot->stream;
    uint64_t position = call->position;
    bool begun = call->begun;
    runner->current = NULL;
    aio_stream_hold(stream);
    aio_lock_take(&calls->lock);
    aio_token *token = call->token;
    bool left = call->left;
    call->token = NULL;
    call->state = AIO_CALL_ENQUEUED;
    if (left) {
        put_done(calls, call);
    }
    aio_lock_give(&calls->lock);
    if (left) {
        aio_token_drop(&token);
        let_go(calls, slot);
        aio_device_kick(calls->device, AIO_KICK_CALLS);
    } else {
        if (code == 0) {
            code = aio_watch_with(stream, position, token);
            token = code ? token : NULL;
        }
        aio_token_post(&token, aio_failed(code));
    }
    if (begun) {
        atomic_fetch_sub(&aio_devices[calls->device].calling, 1);
    }
    aio_stream_unhold(stream);
}

/* Before the first call. If the gate refuses, each call of ACL makes the context current. */
static void adopt(aio_runner *runner) {
    const aio_calls *calls = runner->calls;
    runner->adopted = true;
    if (aio_adopt_thread(aio_make_pass(calls->device, calls->generation, 0)) == 0) {
        aio_relax_captures();
    }
}

/* Begins the next call. Returns false if there is none. */
static bool begin_next(aio_runner *runner) {
    aio_calls *calls = runner->calls;
    aio_lock_take(&calls->lock);
    aio_model_call *call = runner->first;
    if (call) {
        unlink_call(&runner->first, &runner->end, call);
        call->state = AIO_CALL_RUNNING;
    }
    aio_lock_give(&calls->lock);
    if (!call) {
        return false;
    }
    if (!runner->adopted) {
        adopt(runner);
    }
    runner->current = call;
    runner->waits = false;
    runner->waited = 0;
    copy_in(calls, call);
    int code = upload(calls, call);
    if (code) {
        end_call(runner, code);
    }
    return true;
}

/* Begins a wait for the previous execution, unless it is done. Returns whether the call can go on, or has
 * failed. */
static bool wait_for_previous(aio_runner *runner) {
    aio_stream *stream;
    aio_lock_take(&runner->calls->lock);
    uint64_t position = previous(runner, &stream);
    bool executing = runner->executing != AIO_NO_THREAD_EXECUTES;
    aio_lock_give(&runner->calls->lock);
    if (executing || !stream || is_done(stream, position)) {
        if (stream) {
            aio_stream_unhold(stream);
        }
        return !executing;
    }
    int code = aio_watch(stream, position, runner->port, PREVIOUS);
    if (code) {
        runner->waited = code;
    } else {
        runner->waits = true;
    }
    aio_stream_unhold(stream);
    return code != 0;
}

/* Takes the next step of the current call. Returns false if there is nothing to do until the thread is woken.
 */
static bool step(aio_runner *runner) {
    aio_model_call *call = runner->current;
    if (!call) {
        return begin_next(runner);
    }
    if (runner->waits || (!runner->waited && !wait_for_previous(runner))) {
        return false;
    }
    int code = runner->waited ? failed(call, runner->waited, AIO_FN_aclmdlExecuteAsync) : 0;
    if (code == 0) {
        aio_lock_take(&runner->calls->lock);
        bool claimed = claim(runner, NULL, AIO_RUNNER_EXECUTES);
        aio_lock_give(&runner->calls->lock);
        if (!claimed) { /* `enqueue` came first */
            return true;
        }
        code = execute(runner, call);
    }
    if (code == 0) {
        code = download(runner->calls, call);
    }
    end_call(runner, code);
    return true;
}

/* --- the thread --------------------------------------------------------------------------------------------
 */

/* Writes the results of one call. Returns false if there is none. The slot is not needed any more then. */
static bool write_results(aio_runner *runner) {
    aio_calls *calls = runner->calls;
    aio_lock_take(&calls->lock);
    aio_model_call *call = runner->writes;
    if (call) {
        unlink_call(&runner->writes, &runner->writes_end, call);
    }
    aio_lock_give(&calls->lock);
    if (!call) {
        return false;
    }
    for (int index = 0; index < call->write_count; index++) {
        aio_copy_bytes(call->writes[index].target, call->writes[index].source, call->writes[index].count);
    }
    aio_lock_take(&calls->lock);
    aio_token *token = call->token;
    aio_slot *slot = call->slot;
    bool left = call->left;
    call->token = NULL;
    call->slot = NULL;
    call->state = AIO_CALL_OVER;
    if (left) {
        put_done(calls, call);
    }
    after then = give_back(calls, slot);
    then.kicks = then.kicks || left;
    unlock(calls, then);
    aio_token_post(&token, 0);
    return true;
}

/* Gives back the slots of the list whose work is done. Returns the others. */
static aio_slot *sort_out(aio_calls *calls, aio_slot *list) {
    aio_slot *left = NULL;
    while (list) {
        aio_slot *slot = list;
        list = slot->next;
        if (is_idle(calls, slot)) {
            let_go(calls, slot);
        } else {
            slot->next = left;
            left = slot;
        }
    }
    return left;
}

static void keep_stuck(aio_runner *runner, aio_slot *slot) {
    slot->next = runner->stuck;
    runner->stuck = slot;
}

/* Begins the waits for the work of slots that were given up. If a wait fails, the work may run until a reset.
 */
static void watch_leaving(aio_runner *runner) {
    aio_lock_take(&runner->calls->lock);
    aio_slot *leaving = runner->leaving;
    runner->leaving = NULL;
    aio_lock_give(&runner->calls->lock);
    leaving = sort_out(runner->calls, leaving);
    while (leaving) {
        aio_slot *slot = leaving;
        leaving = slot->next;
        uint64_t key = (uint64_t)(uintptr_t)slot;
        if (aio_watch(slot->stream, aio_stream_tail(slot->stream), runner->port, key)) {
            keep_stuck(runner, slot);
        }
    }
}

static void take_completion(aio_runner *runner, uint64_t key, aio_result result) {
    if (key != PREVIOUS) {
        keep_stuck(runner, (aio_slot *)(uintptr_t)key);
        return;
    }
    /* If the previous execution has failed, the failure belongs to its own call. */
    aio_stream *stream;
    aio_lock_take(&runner->calls->lock);
    uint64_t position = previous(runner, &stream);
    aio_lock_give(&runner->calls->lock);
    runner->waits = false;
    runner->waited = result < 0 && stream && !is_done(stream, position) ? aio_code(result) : 0;
    if (stream) {
        aio_stream_unhold(stream);
    }
}

static bool take_completions(aio_runner *runner) {
    uint64_t keys[TAKEN];
    int64_t results[TAKEN];
    int count = aio_port_take(runner->port, keys, results, TAKEN);
    for (int index = 0; index < count; index++) {
        take_completion(runner, keys[index], results[index]);
    }
    return count > 0;
}

/* Whether the thread ends: the load has ended, and no call uses a slot. */
static bool ends(aio_runner *runner) {
    aio_calls *calls = runner->calls;
    aio_lock_take(&calls->lock);
    bool over = calls->ended && all_are_back(calls) && runner->executing == AIO_NO_THREAD_EXECUTES;
    runner->running = !over;
    aio_lock_give(&calls->lock);
    return over;
}

static void *run(void *argument) {
    aio_runner *runner = argument;
    aio_calls *calls = runner->calls;
    for (bool over = false; !over;) {
        uint32_t seen = atomic_load(&runner->port->word);
        bool busy = take_completions(runner);
        watch_leaving(runner);
        runner->stuck = sort_out(calls, runner->stuck);
        busy = write_results(runner) || busy;
        busy = step(runner) || busy;
        over = !busy && ends(runner);
        if (!busy && !over) {
            aio_futex_wait(&runner->port->word, seen, runner->stuck ? LOOK_US : -1);
        }
    }
    aio_calls_drop(calls);
    return NULL;
}

/* --- a load ------------------------------------------------------------------------------------------------
 */

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

static int start(aio_runner *runner) {
    runner->running = true;
    atomic_fetch_add(&runner->calls->references, 1);
    if (aio_spawn("aioacl-model", run, runner) == 0) {
        return 0;
    }
    runner->running = false;
    aio_calls_drop(runner->calls);
    return AIO_NO_THREAD;
}

int aio_calls_start(aio_calls *calls) {
    int code = 0;
    for (int index = 0; index < calls->slot_count; index++) {
        aio_lock_take(&calls->lock);
        calls->slots[index].index = index;
        offer(calls, &calls->slots[index]);
        aio_lock_give(&calls->lock);
    }
    for (int index = 0; index < calls->runner_count && code == 0; index++) {
        code = start(&calls->runners[index]);
    }
    if (code) {
        aio_calls_end(calls);
    }
    return code;
}

/* --- executions with memory of the caller ------------------------------------------------------------------
 */

static int claim_or_refuse(aio_runner *runner, const aio_stream *stream) {
    if (runner->ended) {
        return AIO_MODEL_ENDED;
    }
    if (claim(runner, stream, AIO_CALLER_EXECUTES)) {
        return 0;
    }
    return runner->executing == AIO_CALLER_EXECUTES ? AIO_PENDING : AIO_MODEL_BUSY;
}

aio_result aio_calls_execute(aio_stream *stream, int held, aio_calls *calls, const aclmdlDataset *input,
                             aclmdlDataset *output) {
    aio_runner *runner = &calls->runners[calls->runner_count - 1];
    int code;
    do {
        uint32_t seen = atomic_load(&runner->executed);
        aio_lock_take(&calls->lock);
        code = claim_or_refuse(runner, stream);
        aio_lock_give(&calls->lock);
        if (code == AIO_PENDING) {
            aio_futex_wait(&runner->executed, seen, -1);
        }
    } while (code == AIO_PENDING);
    if (code) {
        return aio_failed(code);
    }
    aio_result result = aio_execute(stream, held, runner->model, input, output);
    executed(runner, stream, result);
    aio_port_ring(runner->port);
    return result;
}

void aio_calls_close(aio_calls *calls) {
    for (int index = 0; index < calls->runner_count; index++) {
        aio_runner *runner = &calls->runners[index];
        bool executing = true;
        while (executing) {
            uint32_t seen = atomic_load(&runner->executed);
            aio_lock_take(&calls->lock);
            runner->ended = true;
            executing = runner->executing != AIO_NO_THREAD_EXECUTES;
            aio_lock_give(&calls->lock);
            if (executing) {
                aio_futex_wait(&runner->executed, seen, -1);
            }
        }
    }
}
