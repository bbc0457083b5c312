/*
 * The thread of one instance of a model, which enqueues the calls; calls.c has the theory of operation.
 */
#include "calls.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* The keys of the thread's own waits: for the previous execution, or for the work of a slot, whose address is
 * the key. */
enum { PREVIOUS = 1, TAKEN = 8, LOOK_US = 100000, LATE_US = 5000, NO_FUNCTION = -1 };

enum { SHORT_DOWNLOAD = 64 * 1024 };

/* --- the thread: one call -------------------------------------------------------------------------------- */

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

/* The function that sets a gear; NO_FUNCTION if the model has one gear. */
static int gear_function(const aio_calls *calls) {
    switch (calls->gears) {
    case AIO_BATCHES:
        return AIO_FN_aclmdlSetDynamicBatchSize;
    case AIO_IMAGES:
        return AIO_FN_aclmdlSetDynamicHWSize;
    case AIO_DIMS:
        return AIO_FN_aclmdlSetInputDynamicDims;
    default:
        return NO_FUNCTION;
    }
}

/* Inside the gate. */
static int call_gear_function(const aio_runner *runner, const aio_model_call *call) {
    uint32_t model = runner->model;
    aclmdlDataset *data = call->slot->input;
    size_t selector = (size_t)runner->calls->inputs; /* the input that selects the gear is after the others */
    if (runner->calls->gears == AIO_BATCHES) {
        return aio_acl.aclmdlSetDynamicBatchSize(model, data, selector, (uint64_t)call->gear[0]);
    }
    if (runner->calls->gears == AIO_IMAGES) {
        return aio_acl.aclmdlSetDynamicHWSize(model, data, selector, (uint64_t)call->gear[0],
                                              (uint64_t)call->gear[1]);
    }
    aclmdlIODims dims = {.dimCount = (size_t)call->gear_size};
    memcpy(dims.dims, call->gear, (size_t)call->gear_size * sizeof *call->gear);
    return aio_acl.aclmdlSetInputDynamicDims(model, data, selector, &dims);
}

static int set_gear(const aio_runner *runner, aio_model_call *call) {
    const aio_calls *calls = runner->calls;
    int function = gear_function(calls);
    if (function == NO_FUNCTION) {
        return 0;
    }
    aio_frame frame;
    aio_pass pass = aio_make_pass(calls->device, calls->generation, call->held || call->begun);
    int code = aio_begin(&frame, pass, AIO_WAIT, function);
    if (code == 0) {
        code = call_gear_function(runner, call);
        aio_end(&frame, code);
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
    bool awaited = runner->awaited;
    runner->awaited = false;
    aio_lock_give(&calls->lock);
    atomic_fetch_add(&runner->executed, 1);
    if (awaited) {
        aio_futex_wake(&runner->executed, INT_MAX);
    }
    if (old) {
        aio_stream_unhold(old);
    }
}

static size_t bytes_of_results(const aio_calls *calls, const aio_model_call *call) {
    size_t size = 0;
    for (int output = 0; output < calls->outputs; output++) {
        size += call->transfers[calls->inputs + output];
    }
    return size;
}

/* Whether the next execution may begin before the download of this call has ended. A mark behind the execution
 * allows this. But a mark takes a microsecond, and a short download does not delay the next call by much. */
static bool needs_mark(aio_calls *calls, const aio_model_call *call) {
    aio_lock_take(&calls->lock);
    bool alone = calls->free_count + calls->failed_count == calls->slot_count - 1;
    aio_lock_give(&calls->lock);
    return !alone || bytes_of_results(calls, call) > SHORT_DOWNLOAD;
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
    if (code == 0) {
        aio_count_execution(call->token);
    }
    executed(runner, slot->stream, result);
    if (code == 0 && !needs_mark(runner->calls, call)) {
        aio_stream_forget(slot->stream, call->position);
    }
    return code;
}

/* The call ends when a reset that is running has ended, because the outcome and the report of the reset are not
 * known before. */
static void end_with_reset(aio_stream *stream, aio_token *token, int step_code) {
    token->stream = stream;
    token->born_us = aio_now_us();
    aio_stream_hold(stream);
    atomic_fetch_add(&aio_devices[stream->device].waits, 1);
    if (step_code) {
        token->position = UINT64_MAX; /* the code of the step is not that of other work */
        aio_defer_end(token, aio_failed(step_code));
    } else {
        aio_defer_wait(token);
    }
}

/* Begins the wait for the work of a call, or ends the call with the code of a step that has failed. A call that
 * has not begun is repeated, or refused at once. */
static void end_wait(aio_runner *runner, aio_stream *stream, uint64_t position, bool begun, int code,
                     aio_token *token) {
    if (code && (begun || code > AIO_LIMIT)) {
        end_with_reset(stream, token, code);
        return;
    }
    if (code == 0) {
        code = aio_watch_by(&runner->rounds, stream, position, token);
        if (code == AIO_RESETTING_NOW) {
            token->position = position;
            end_with_reset(stream, token, 0);
            return;
        }
    }
    if (code) {
        aio_token_post(&token, aio_failed(code));
    }
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
    token->patient = call->patient ? slot : NULL;
    if (left) {
        aio_model_put_done(calls, call);
    }
    aio_lock_give(&calls->lock);
    if (left) {
        aio_token_give_up(&token);
        aio_slot_leave(calls, slot);
        aio_device_kick(calls->device, AIO_KICK_CALLS);
    } else {
        end_wait(runner, stream, position, begun, code, token);
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
        aio_model_unlink(&runner->first, &runner->end, call);
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

/* Begins a wait of this thread. Returns 0 or a refusal. */
static int watch(aio_runner *runner, aio_stream *stream, uint64_t position, uint64_t key) {
    aio_token *token = NULL;
    int code = aio_token_take(runner->port, key, &token);
    if (code == 0 && (code = aio_watch_by(&runner->rounds, stream, position, token))) {
        aio_token_drop(&token);
    }
    return code;
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
    int code = watch(runner, stream, position, PREVIOUS);
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
    if (!runner->current && !begin_next(runner)) {
        return false;
    }
    aio_model_call *call = runner->current;
    if (!call) { /* its upload has failed */
        return true;
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

/* --- the thread ------------------------------------------------------------------------------------------ */

/* Writes the results of one call. Returns false if there is none. The slot is not needed any more then. */
static bool write_results(aio_runner *runner) {
    aio_calls *calls = runner->calls;
    aio_lock_take(&calls->lock);
    aio_model_call *call = runner->writes;
    if (call) {
        aio_model_unlink(&runner->writes, &runner->writes_end, call);
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
        aio_model_put_done(calls, call);
    }
    aio_after then = aio_slot_give(calls, slot);
    then.kicks = then.kicks || left;
    aio_calls_unlock(calls, then);
    aio_token_post(&token, 0);
    return true;
}

/* Returns the call of the slot if its caller could have taken the results for a while. */
static aio_model_call *late_call(aio_calls *calls, aio_slot *slot, int64_t now) {
    aio_lock_take(&calls->lock);
    aio_model_call *call = slot->call;
    aio_stream *stream = slot->stream;
    bool enqueued = call && call->state == AIO_CALL_ENQUEUED && !call->code;
    aio_stream_hold(stream); /* the caller may give the slot back, and the stream may be renewed */
    aio_lock_give(&calls->lock);
    bool done = enqueued && aio_stream_is_settled(stream) && !atomic_load(&stream->failed);
    aio_stream_unhold(stream);
    if (!done || aio_calls_are_stale(calls)) {
        return NULL;
    }
    aio_lock_take(&calls->lock);
    slot->late_us = slot->late_us ? slot->late_us : now;
    bool late = slot->call == call && now - slot->late_us >= LATE_US;
    aio_lock_give(&calls->lock);
    return late ? call : NULL;
}

static void copy_out(const aio_calls *calls, const aio_slot *slot, char *at, const size_t *counts) {
    for (int output = 0; output < calls->outputs; output++) {
        memcpy(at, slot->parts[calls->inputs + output].pinned, counts[output]);
        at += counts[output];
    }
}

/* With the lock held. Returns the call of the slot if its results can be saved. The caller may take them or
 * leave the call until then. */
static aio_model_call *begin_save(const aio_slot *slot) {
    aio_model_call *call = slot->call;
    if (!call || call->state != AIO_CALL_ENQUEUED) {
        return NULL;
    }
    call->state = AIO_CALL_SAVING;
    return call;
}

/* Copies the results of a call out of its slot, which other calls can then use. */
static void save(aio_calls *calls, aio_slot *slot, aio_model_call *call) {
    char *memory = malloc(bytes_of_results(calls, call) + 1);
    if (memory) {
        copy_out(calls, slot, memory, call->transfers + calls->inputs);
    }
    aio_after then = {.rings = NULL};
    aio_lock_take(&calls->lock);
    call->saved = memory;
    call->state = memory ? AIO_CALL_SAVED : AIO_CALL_ENQUEUED;
    if (memory) {
        call->slot = NULL;
    }
    bool left = call->left;
    if (left) {
        aio_model_put_done(calls, call);
    }
    if (memory || left) {
        then = aio_slot_give(calls, slot);
        then.kicks = then.kicks || left;
    }
    aio_calls_unlock(calls, then);
}

/* If calls wait for slots, frees those whose results are not taken. */
static void save_late(aio_runner *runner) {
    aio_calls *calls = runner->calls;
    int64_t now = aio_now_us();
    for (int index = 0; index < calls->slot_count; index++) {
        aio_slot *slot = &calls->slots[index];
        const aio_model_call *late = slot->runner == runner ? late_call(calls, slot, now) : NULL;
        aio_lock_take(&calls->lock);
        aio_model_call *call = late && slot->call == late ? begin_save(slot) : NULL;
        aio_lock_give(&calls->lock);
        if (call) {
            save(calls, slot, call);
        }
    }
}

static bool calls_wait(aio_calls *calls) {
    aio_lock_take(&calls->lock);
    bool some = calls->waiting != NULL;
    aio_lock_give(&calls->lock);
    return some;
}

/* Before the completion of a patient call. Saves its results, so that the slot can be used before the caller
 * takes them. Whether calls still wait for slots, so that more completions follow soon. */
static bool before(aio_rounds *rounds, const aio_token *token) {
    aio_slot *slot = token->patient;
    aio_calls *calls = slot->runner->calls;
    (void)rounds;
    aio_lock_take(&calls->lock);
    bool same = slot->call && slot->stream == token->stream && slot->call->position == token->position;
    aio_model_call *call = same ? begin_save(slot) : NULL;
    aio_lock_give(&calls->lock);
    if (!call) {
        return false;
    }
    save(calls, slot, call);
    return calls_wait(calls);
}

/* A wait may also end because there was no memory or no thread for it. Nothing would query the stream then. */
static void watch_stuck_again(aio_runner *runner) {
    aio_lock_take(&runner->calls->lock);
    for (aio_slot *slot; (slot = runner->stuck);) {
        runner->stuck = slot->next;
        slot->next = runner->leaving;
        runner->leaving = slot;
    }
    aio_lock_give(&runner->calls->lock);
}

static int64_t least(int64_t one, int64_t other) {
    return one < other ? one : other;
}

/* Returns until when the thread may sleep. */
static int64_t next_due(const aio_runner *runner, bool some_wait, int64_t now) {
    int64_t until = atomic_load(&runner->rounds.due_us);
    until = some_wait ? least(until, now + LATE_US) : until;
    return runner->stuck ? least(until, now + LOOK_US) : until;
}

/* Makes the rounds that are due, and sleeps, until there is something else to do. */
static void rest(aio_runner *runner, uint32_t seen) {
    bool some_wait = calls_wait(runner->calls);
    int64_t now = aio_now_us(), until = next_due(runner, some_wait, now);
    if (until > now) {
        aio_rounds_ring(&runner->rounds);
        until = next_due(runner, some_wait, now);
    }
    while (until <= now && atomic_load(&runner->port->word) == seen) {
        sched_yield();
        aio_rounds_look(&runner->rounds);
        now = aio_now_us();
        until = next_due(runner, some_wait, now);
    }
    if (until > now) {
        aio_port_sleep(runner->port, seen, until == INT64_MAX ? -1 : until - now);
    }
    if (some_wait && now >= runner->saves_us) {
        runner->saves_us = now + LATE_US / 2;
        save_late(runner);
    }
    watch_stuck_again(runner);
}

/* Gives back the slots of the list whose work is done. Returns the others. */
static aio_slot *sort_out(aio_calls *calls, aio_slot *list) {
    aio_slot *left = NULL;
    while (list) {
        aio_slot *slot = list;
        list = slot->next;
        if (aio_slot_is_idle(calls, slot)) {
            aio_slot_leave(calls, slot);
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

/* Begins the waits for the work of slots that were given up. If a wait fails, a later one may succeed, or a
 * reset ends the work. */
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
        if (watch(runner, slot->stream, aio_stream_tail(slot->stream), key)) {
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
    bool over = calls->ended && aio_calls_all_back(calls) && runner->executing == AIO_NO_THREAD_EXECUTES &&
                atomic_load(&runner->rounds.due_us) == INT64_MAX;
    runner->running = !over;
    aio_lock_give(&calls->lock);
    return over;
}

/* Takes one step of each kind. Returns whether there was something to do. */
static bool work(aio_runner *runner) {
    aio_rounds_away(&runner->rounds);
    bool busy = take_completions(runner);
    watch_leaving(runner);
    runner->stuck = sort_out(runner->calls, runner->stuck);
    busy = write_results(runner) || busy;
    busy = step(runner) || busy;
    aio_rounds_back(&runner->rounds);
    return busy;
}

static void *run(void *argument) {
    aio_runner *runner = argument;
    aio_calls *calls = runner->calls;
    runner->rounds.before = before;
    aio_rounds_lend(&runner->rounds, calls->device, runner->port);
    for (bool over = false; !over;) {
        uint32_t seen = atomic_load(&runner->port->word);
        aio_rounds_look(&runner->rounds);
        bool busy = work(runner);
        over = !busy && ends(runner);
        if (!busy && !over) {
            rest(runner, seen);
        }
    }
    aio_rounds_end(&runner->rounds);
    aio_calls_drop(calls);
    return NULL;
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
        aio_slot_offer(calls, &calls->slots[index]);
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

/* --- executions with memory of the caller ---------------------------------------------------------------- */

static int claim_or_refuse(aio_runner *runner, const aio_stream *stream) {
    if (runner->ended) {
        return AIO_MODEL_ENDED;
    }
    if (claim(runner, stream, AIO_CALLER_EXECUTES)) {
        return 0;
    }
    if (runner->executing == AIO_CALLER_EXECUTES) {
        runner->awaited = true;
        return AIO_PENDING;
    }
    return AIO_MODEL_BUSY;
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
            runner->awaited = runner->awaited || executing;
            aio_lock_give(&calls->lock);
            if (executing) {
                aio_futex_wait(&runner->executed, seen, -1);
            }
        }
    }
}
