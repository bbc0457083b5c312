/*
 * Enqueueing. Each function that enqueues enters the gate, owns the stream during the ACL call, counts the
 * entry, and leaves the gate.
 *
 * The runtime blocks without limit when a queue is full, and a staged copy needs a free slot of staging memory.
 * So work is refused before the call if the queue is full, if no slot is free, or if the stream has failed. If
 * a ticket refers to the last position, a mark is recorded before the next entry. The mark shows the end of
 * this position while later work runs.
 *
 * An entry may consist of several tasks of the runtime, or of none. The entry's id is the id of its last task,
 * which the runtime returns to this thread right after the call. After a call that submits nothing, the runtime
 * still returns the id of the task that the thread enqueued before, perhaps on another stream. So after a call
 * that may submit nothing, this thread uses the id only if the id has changed.
 *
 * A launch block is a time in which other code enqueues on the native stream. The engine does not own the
 * stream meanwhile, because an enqueuer spins until it owns the stream. Instead it refuses to enqueue. At the
 * end of the block it records a mark, whose id is above the ids of all tasks of the block. Each of these tasks
 * counts as one entry of the queue, so the position of the mark is that many positions later. The positions in
 * between have the id of the entry before the block. So a failed task of the block is attributed to the mark,
 * or to a mark that another thread has recorded during the block.
 */
#include <stdlib.h>

#include "internal.h"

enum { SPAN_ENTRIES = 4 }; /* the events before and after the work, the work, and another mark */

static int own(aio_stream *stream) {
    for (unsigned turn = 0;; turn++) {
        uint32_t unowned = AIO_NOBODY;
        if (atomic_compare_exchange_strong(&stream->owner, &unowned, AIO_ENQUEUER)) {
            stream->aborts_seen = atomic_load(&stream->aborts_ended);
            return 0;
        }
        if (atomic_load(&stream->dropped)) {
            return AIO_STALE;
        }
        /* The owner may be blocked in C, so a reset must be able to end this wait. */
        uint64_t word = aio_gate_word(stream->device);
        if (turn > 64 && aio_word_generation(word) != stream->generation) {
            return AIO_STALE;
        }
        if (turn > 64 && (aio_word_state(word) == AIO_RESETTING || (aio_word_flags(word) & AIO_FOREIGN))) {
            return AIO_RESETTING_NOW;
        }
        aio_pause(turn);
    }
}

static int lock_enqueue(aio_stream *stream) {
    int code = own(stream);
    if (code == 0 && stream->borrowed && (code = aio_borrowed_enter(stream))) {
        atomic_store(&stream->owner, AIO_NOBODY);
    }
    return code;
}

/* While this thread owned the stream, another thread may have set `pending` for a report about a task that was
 * not counted. This thread first releases the stream and then reads `pending`. So either the other thread sees
 * that the stream has no owner, or this thread sees the report. */
static void unlock_enqueue(aio_stream *stream) {
    if (stream->borrowed) {
        aio_borrowed_leave(stream);
    }
    atomic_store(&stream->owner, AIO_NOBODY);
    if (atomic_load(&stream->pending)) {
        aio_failures_unlocked(stream);
    }
}

int aio_stream_launches(const aio_stream *stream) {
    int32_t launcher = atomic_load(&stream->launcher);
    bool here = launcher == atomic_load_explicit(&aio_self()->id, memory_order_relaxed);
    return launcher == 0 ? 0 : here ? AIO_LAUNCHING_HERE : AIO_LAUNCHING;
}

static int64_t room(const aio_stream *stream) {
    /* One entry is reserved for the mark that an enqueue may have to record first. */
    return AIO_QUEUE_ENTRIES - 1 - (int64_t)(atomic_load(&stream->tail) - atomic_load(&stream->finished));
}

static void ask_everything(aio_stream *stream) {
    uint64_t tail = atomic_load(&stream->tail);
    aio_stream_ask_marks(stream);
    if (!aio_stream_use(stream)) {
        return;
    }
    if (aio_stream_idle(stream) == 1 && aio_stream_current(stream)) {
        aio_stream_finish(stream, tail);
    }
    aio_stream_unuse(stream);
}

int64_t aio_stream_room(aio_stream *stream) {
    aio_frame frame;
    if (room(stream) > AIO_QUEUE_ENTRIES / 2) {
        return room(stream);
    }
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamQuery) == 0) {
        ask_everything(stream);
        aio_end(&frame, 0);
    }
    return room(stream);
}

static void number(aio_stream *stream, uint64_t position, uint32_t id, bool submitted) {
    if (submitted) {
        atomic_store_explicit(&stream->last_task, id, memory_order_relaxed);
    } else {
        id = atomic_load_explicit(&stream->last_task, memory_order_relaxed);
    }
    atomic_store_explicit(&stream->ids[position % AIO_RING], id, memory_order_relaxed);
    if (submitted && !atomic_load_explicit(&stream->numbered, memory_order_relaxed)) {
        atomic_store(&stream->numbered, position);
    }
}

/* Makes the watcher check the device at intervals. The watcher clears `guarded` before its last check. */
static void guard(int device) {
    atomic_store(&aio_devices[device].guarded, true);
    aio_watcher_wake(device);
}

void aio_stream_refer(aio_stream *stream, uint64_t position) {
    aio_atomic_max(&stream->referred, position);
    if (!atomic_load(&aio_devices[stream->device].guarded)) {
        guard(stream->device);
    }
}

/* Counts the entry, and the positions before it that are not counted yet. An abort that does not own the stream
 * may have dropped the entry: either it began after this thread took the stream, or it had not ended by then.
 * This thread first counts the entry and then reads the number of aborts. So either the abort or this thread
 * records that the entry was dropped. `pending` is also read after the entry is counted. So a report that came
 * before the count is attributed now. */
static uint64_t count_at(aio_stream *stream, uint64_t position, uint32_t id, bool submitted) {
    uint64_t tail = atomic_load(&stream->tail);
    _Atomic uint32_t *runners = atomic_load_explicit(&stream->runners, memory_order_relaxed);
    number(stream, position, id, submitted);
    if (runners) {
        atomic_store(&runners[position % AIO_RING], stream->runner);
    }
    atomic_store(&stream->tail, position);
    if (atomic_load(&stream->aborts) != stream->aborts_seen) {
        aio_stream_note_abort(stream, tail, position);
    }
    if (atomic_load(&stream->pending)) {
        aio_failures_counted(stream);
    }
    if (!atomic_load(&aio_devices[stream->device].guarded)) {
        guard(stream->device);
    }
    return position;
}

static uint64_t count_as(aio_stream *stream, uint32_t id, bool submitted) {
    return count_at(stream, atomic_load(&stream->tail) + 1, id, submitted);
}

static uint64_t count(aio_stream *stream) {
    return count_as(stream, aio_last_task(), true);
}

static void append_mark(aio_stream *stream, aio_event *event, uint64_t position) {
    event->position = position;
    event->next = NULL;
    aio_event_hold(event);
    aio_lock_take(&stream->lock);
    *stream->marks_end = event;
    stream->marks_end = &event->next;
    aio_lock_give(&stream->lock);
    atomic_store(&stream->last_mark, position);
}

/* How many entries the tasks of the open launch block are, without the mark at its end, whose id is `id`. If
 * the ids are not known, these are as many as were promised. */
static uint64_t launched(const aio_stream *stream, uint32_t id) {
    uint32_t marks = (uint32_t)(atomic_load(&stream->tail) - stream->launch_tail);
    uint32_t tasks = id - stream->launch_task - marks - 1;
    if (!stream->launch_numbered || !aio_stream_is_exact(stream)) {
        tasks = (uint32_t)stream->launch_tasks;
    }
    int64_t most = room(stream); /* a queue has room for no more tasks */
    return most < 0 ? 0 : tasks < most ? tasks : (uint64_t)most;
}

/* Counts the mark at the end of a launch block, and the tasks of the block. */
static uint64_t count_launch(aio_stream *stream, uint32_t id) {
    _Atomic uint32_t *runners = atomic_load_explicit(&stream->runners, memory_order_relaxed);
    uint32_t before = atomic_load_explicit(&stream->last_task, memory_order_relaxed);
    uint64_t first = atomic_load(&stream->tail) + 1, last = first + launched(stream, id);
    for (uint64_t at = first; at < last; at++) {
        atomic_store_explicit(&stream->ids[at % AIO_RING], before, memory_order_relaxed);
        if (runners) {
            atomic_store(&runners[at % AIO_RING], 0);
        }
    }
    return count_at(stream, last, id, true);
}

/* The caller owns the stream. On success, *made is a reference to the event, which the caller must drop.
 * `ends`: it is the mark at the end of a launch block. */
static int record_owned(aio_stream *stream, int kind, bool ends, aio_event **made) {
    aio_event *event = NULL;
    int code = aio_event_take(stream->device, stream->generation, kind, &event);
    if (code) {
        return code;
    }
    int before = aio_calling(AIO_FN_aclrtRecordEvent);
    code = aio_acl.aclrtRecordEvent(event->handle, stream->handle);
    if (code) {
        aio_keep_text();
        aio_note_stop(stream->device, stream->generation, code);
        aio_note_end(stream->device, stream->generation, code);
    }
    aio_calling(before);
    if (code) {
        aio_event_drop(event);
        /* The owner may have begun a capture after the thread has asked for one. */
        bool captures = stream->borrowed && aio_stream_capture_code(stream) == RT_STREAM_CAPTURED;
        return captures ? RT_STREAM_CAPTURED : code;
    }
    append_mark(stream, event, ends ? count_launch(stream, aio_last_task()) : count(stream));
    *made = event;
    return 0;
}

static int mark_kind(const aio_stream *stream) {
    return stream->borrowed ? AIO_PLAIN : AIO_UNTIMED;
}

/* It is not an error if the mark cannot be recorded: a wait then also lasts until later work is done. */
static void mark(aio_stream *stream) {
    aio_event *event = NULL;
    if (record_owned(stream, mark_kind(stream), false, &event) == 0) {
        aio_event_drop(event);
    }
}

static void mark_if_due(aio_stream *stream) {
    uint64_t tail = atomic_load(&stream->tail), last = atomic_load(&stream->last_mark);
    bool unfinished = atomic_load(&stream->finished) < tail;
    bool wanted = unfinished && atomic_load(&stream->wanted) == tail && last < tail;
    if (wanted || tail - last >= AIO_MARK_EVERY) {
        mark(stream);
    }
}

static void refuse(aio_stream *stream, aio_frame *frame) {
    unlock_enqueue(stream);
    aio_end(frame, 0);
}

/* Whether the stream has failed, according to the reports until now. This thread owns the stream, so no
 * enqueuer is about to count an entry. So if the failed task is not counted, it was enqueued by direct ACL
 * calls. */
static bool has_failed(aio_stream *stream) {
    aio_failures_settle();
    if (atomic_load(&stream->pending)) {
        aio_failures_counted(stream);
    }
    return atomic_load(&stream->failed);
}

static int admit_owned(aio_stream *stream) {
    if (aio_stream_is_launching(stream)) {
        return aio_stream_launches(stream);
    }
    if (has_failed(stream)) {
        return AIO_STREAM_FAILED;
    }
    if (room(stream) < 1) {
        ask_everything(stream);
    }
    if (room(stream) < 1) {
        return AIO_QUEUE_FULL;
    }
    mark_if_due(stream);
    return 0;
}

/* A trace wants device times: records an event before the work, and end_span one after it. Both are marks, so
 * the queue needs room for them. Without the events, the trace has no device times of this work. */
static void begin_span(aio_stream *stream, aio_frame *frame) {
    int of = frame->function;
    bool work =
        of == AIO_FN_aclrtMemcpyAsync || of == AIO_FN_aclrtMemsetAsync || of == AIO_FN_aclmdlExecuteAsync;
    frame->since_ns = aio_now_ns();
    if (work && !stream->borrowed && room(stream) >= SPAN_ENTRIES) {
        record_owned(stream, AIO_TIMED, false, &frame->timed);
    }
}

static void end_span(aio_stream *stream, const aio_frame *frame, aio_result result) {
    aio_event *end = NULL;
    if (result >= 0) {
        record_owned(stream, AIO_TIMED, false, &end);
    }
    aio_spans_add(stream, frame, result < 0 ? 0 : (uint64_t)result, end);
}

int aio_enqueue_begin(aio_stream *stream, aio_frame *frame, int held, int function) {
    int code = aio_begin(frame, aio_stream_pass(stream, held), AIO_ENQUEUE, function);
    if (code) {
        return code;
    }
    code = lock_enqueue(stream);
    if (code) {
        aio_end(frame, 0);
        return code;
    }
    code = admit_owned(stream);
    if (code) {
        refuse(stream, frame);
    } else if (atomic_load_explicit(&aio_spans_wanted, memory_order_relaxed)) {
        begin_span(stream, frame);
    }
    return code;
}

/* Counts the entry if the call has succeeded. `before`: for a call that may submit nothing, the id of the
 * thread's last task before the call; else NULL. */
static aio_result count_result(aio_stream *stream, int code, const uint32_t *before) {
    aio_result result = aio_failed(aio_note_stop(stream->device, stream->generation, code));
    if (code == 0) {
        uint32_t id = aio_last_task();
        result = (aio_result)count_as(stream, id, before == NULL || id != *before);
        atomic_store(&stream->wanted, (uint64_t)result);
    }
    return result;
}

/* On a borrowed stream only a mark shows that work is done. If no mark can be recorded, the owner may have
 * begun a capture, which now contains the work. */
static aio_result marked(aio_stream *stream, aio_result result) {
    aio_event *event = NULL;
    int code = stream->borrowed && result >= 0 ? record_owned(stream, mark_kind(stream), false, &event) : 0;
    if (event) {
        aio_event_drop(event);
    }
    return code ? aio_failed(code) : result;
}

/* Records the entry, or its failure, with the time at which the call has left the gate. */
static aio_result noted(const aio_stream *stream, const aio_frame *frame, aio_result result) {
    int kind = frame->bytes ? AIO_FLIGHT_COPY : AIO_FLIGHT_ENQUEUE;
    uint64_t value = frame->bytes ? frame->bytes : (uint64_t)frame->function;
    uint64_t id = aio_flight_entry(stream, result < 0 ? 0 : (uint64_t)result);
    uint64_t what = aio_flight_what(kind, stream->device, result < 0 ? aio_code(result) : 0);
    aio_flight_put(frame->ended_ns, id, what, aio_flight_where(frame->thread, value));
    return result;
}

static aio_result end_counted(aio_stream *stream, aio_frame *frame, int code, const uint32_t *before) {
    aio_result result = marked(stream, count_result(stream, code, before));
    if (frame->timed) {
        end_span(stream, frame, result);
    }
    unlock_enqueue(stream);
    aio_end(frame, code);
    return noted(stream, frame, result);
}

aio_result aio_enqueue_end(aio_stream *stream, aio_frame *frame, int code) {
    return end_counted(stream, frame, code, NULL);
}

/* The runtime submits nothing for a copy of memory onto itself. */
aio_result aio_copy(aio_stream *stream, int held, void *target, size_t space, const void *source, size_t size,
                    int kind) {
    aio_frame frame;
    int code = aio_enqueue_begin(stream, &frame, held, AIO_FN_aclrtMemcpyAsync);
    if (code) {
        return aio_failed(code);
    }
    frame.bytes = size;
    bool onto_itself = target == source;
    uint32_t before = onto_itself ? aio_last_task() : 0;
    code = aio_acl.aclrtMemcpyAsync(target, space, source, size, (aclrtMemcpyKind)kind, stream->handle);
    return end_counted(stream, &frame, code, onto_itself ? &before : NULL);
}

aio_result aio_fill(aio_stream *stream, int held, void *target, size_t space, int value, size_t size) {
    aio_frame frame;
    int code = aio_enqueue_begin(stream, &frame, held, AIO_FN_aclrtMemsetAsync);
    if (code) {
        return aio_failed(code);
    }
    code = aio_acl.aclrtMemsetAsync(target, space, value, size, stream->handle);
    return aio_enqueue_end(stream, &frame, code);
}

/* The caller owns the stream. */
static bool can_execute(aio_stream *stream) {
    if (!atomic_load(&stream->runners)) {
        atomic_store(&stream->runners, calloc(AIO_RING, sizeof(_Atomic uint32_t)));
    }
    return atomic_load(&stream->runners) != NULL;
}

/* Ends the range of that position, and puts another one in its place. Without memory, it ends at once. */
static void replace_range(aio_stream *stream, uint64_t position, uint64_t range) {
    _Atomic uint64_t *ranges = atomic_load(&stream->ranges);
    if (range && !ranges) {
        ranges = calloc(AIO_RING, sizeof *ranges);
        atomic_store(&stream->ranges, ranges);
    }
    aio_range_end(ranges ? atomic_exchange(&ranges[position % AIO_RING], range) : range);
}

aio_result aio_execute(aio_stream *stream, int held, uint32_t model, const aclmdlDataset *input,
                       aclmdlDataset *output) {
    aio_frame frame;
    int code = aio_enqueue_begin(stream, &frame, held, AIO_FN_aclmdlExecuteAsync);
    if (code) {
        return aio_failed(code);
    }
    if (!can_execute(stream)) {
        if (frame.timed) {
            aio_event_drop(frame.timed);
        }
        refuse(stream, &frame);
        return aio_failed(AIO_NO_MEMORY);
    }
    /* Before the call, because another thread may see the end as soon as the entry is counted. */
    uint64_t range = aio_range_of_model(model), position = atomic_load(&stream->tail) + 1;
    if (range) {
        replace_range(stream, position, range);
    }
    aio_failures_running(stream, (uint32_t)atomic_load_explicit(&aio_self()->id, memory_order_relaxed));
    code = aio_acl.aclmdlExecuteAsync(model, input, output, stream->handle);
    aio_result result = marked(stream, count_result(stream, code, NULL));
    aio_failures_ran(stream);
    if (range && result < 0) {
        replace_range(stream, position, 0);
    }
    if (frame.timed) {
        end_span(stream, &frame, result);
    }
    unlock_enqueue(stream);
    aio_end(&frame, code);
    if (result < 0) {
        return noted(stream, &frame, result);
    }
    aio_flight_note_at(frame.ended_ns, AIO_FLIGHT_EXECUTION_BEGINS, stream->device,
                       aio_flight_entry(stream, (uint64_t)result), 0, model);
    return result;
}

/* A call that submits nothing does not change the id of the thread's last task. */
static aio_result count_wait(aio_stream *stream, bool linked, uint32_t before) {
    uint32_t now = aio_last_task();
    aio_result result = (aio_result)count_as(stream, now, now != before);
    if (linked) {
        aio_failures_settle();
        aio_link_check(stream);
    }
    atomic_store(&stream->wanted, (uint64_t)result);
    return result;
}

/* A query refuses an event that belongs to a capture: the wait would make the end of the capture fail. */
static int wait_for_theirs(const aio_stream *stream, aio_event *event) {
    aclrtEventRecordedStatus ignored = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    int code = aio_event_ask(event, &ignored);
    aclrtEvent handle = code ? NULL : aio_event_enter(event);
    if (!handle) {
        return code ? code : AIO_STALE;
    }
    code = aio_acl.aclrtStreamWaitEvent(stream->handle, handle);
    aio_event_leave(event);
    return code;
}

static aio_result call_wait(aio_stream *stream, aio_frame *frame, aio_event *event, bool linked) {
    uint32_t before = aio_last_task();
    int code = event->kind == AIO_THEIRS ? wait_for_theirs(stream, event)
                                         : aio_acl.aclrtStreamWaitEvent(stream->handle, event->handle);
    aio_result result = code ? aio_failed(code) : marked(stream, count_wait(stream, linked, before));
    if (code && linked) {
        aio_link_remove(stream);
    }
    unlock_enqueue(stream);
    aio_end(frame, code);
    return noted(stream, frame, result);
}

static aio_result wait_event_inside(aio_stream *stream, int held, aio_event *event, aio_stream *source,
                                    uint64_t at) {
    aio_frame frame;
    int code = aio_enqueue_begin(stream, &frame, held, AIO_FN_aclrtStreamWaitEvent);
    if (code) {
        return aio_failed(code);
    }
    bool linked = source != stream; /* on the same stream the order of the queue is enough */
    code = aio_stream_error(source, at, NULL) ? AIO_EVENT_FAILED : 0;
    if (code == 0 && linked) {
        code = aio_link_add(stream, event->kind == AIO_THEIRS ? NULL : source, at);
    }
    if (code == 0) {
        return call_wait(stream, &frame, event, linked);
    }
    refuse(stream, &frame);
    return aio_failed(code);
}

/* If the event belongs to another device, this thread also enters the gate of that device. */
aio_result aio_wait_event(aio_stream *stream, int held, aio_event *event, aio_stream *source, uint64_t at) {
    aio_pass theirs = aio_make_pass(event->device, event->generation, 0);
    if (event->device == stream->device && event->generation != stream->generation) {
        return aio_failed(AIO_STALE);
    }
    if (event->device == stream->device) {
        return wait_event_inside(stream, held, event, source, at);
    }
    int code = aio_count_in(theirs, AIO_WAIT);
    if (code) {
        return aio_failed(code);
    }
    aio_result result = wait_event_inside(stream, held, event, source, at);
    aio_count_out(theirs, AIO_WAIT);
    return result;
}

aio_result aio_record(aio_stream *stream, int held, int timing, aio_event **event) {
    static const int kinds[2][2] = {{AIO_UNTIMED, AIO_TIMED}, {AIO_FRESH, AIO_FRESH_TIMED}};
    aio_frame frame;
    int code = aio_enqueue_begin(stream, &frame, held, AIO_FN_aclrtRecordEvent);
    if (code) {
        return aio_failed(code);
    }
    code = record_owned(stream, kinds[stream->borrowed][timing != 0], false, event);
    aio_result result = code ? aio_failed(code) : (aio_result)(*event)->position;
    unlock_enqueue(stream);
    /* record_owned has already stored the error text, so the code is not passed. */
    aio_end(&frame, 0);
    return noted(stream, &frame, result);
}

void aio_stream_mark_now(aio_stream *stream, uint64_t position) {
    aio_frame frame;
    if (atomic_load(&stream->last_mark) >= position) {
        return;
    }
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_ENQUEUE, AIO_FN_aclrtRecordEvent)) {
        return;
    }
    if (lock_enqueue(stream) == 0) {
        int64_t needed = aio_stream_is_launching(stream) ? stream->launch_tasks + 1 : 0;
        bool captures = needed && aio_stream_capture_code(stream);
        if (!captures && room(stream) >= needed && atomic_load(&stream->last_mark) < position) {
            mark(stream);
        }
        unlock_enqueue(stream);
    }
    aio_end(&frame, 0);
}

void aio_stream_forget(aio_stream *stream, uint64_t position) {
    if (atomic_load(&stream->waited) != position) {
        atomic_compare_exchange_strong(&stream->wanted, &position, 0);
    }
}

/* Tries to own the stream, because only its owner can read the exact tail. But an enqueuer that is blocked in C
 * must not prevent the abort. */
static bool lock_enqueue_briefly(aio_stream *stream) {
    for (unsigned turn = 0; turn < 1000; turn++) {
        uint32_t unowned = AIO_NOBODY;
        if (atomic_compare_exchange_strong(&stream->owner, &unowned, AIO_ENQUEUER)) {
            return true;
        }
        aio_pause(turn);
    }
    return false;
}

/* Whether the code shows that the runtime refused the abort without an effect. After any other code, work may
 * have been dropped. */
static bool was_refused(int code) {
    return (code > 0 && code < RT_WAIT_TIMEOUT) || code == RT_FEATURE_NOT_SUPPORT;
}

/* Work that was done before the abort keeps its own outcome. Queries report dropped work as complete, so the
 * abort is counted before the call. If the abort fails after it has dropped work, only a query can show when
 * the work has ended. */
static int abort_inside(aio_stream *stream) {
    ask_everything(stream);
    bool owned = lock_enqueue_briefly(stream);
    atomic_fetch_add(&stream->aborts, 1);
    uint64_t tail = atomic_load(&stream->tail);
    uint64_t from = atomic_load(&stream->finished);
    bool notes = aio_locking_begin(stream->device);
    int code = aio_acl.aclrtStreamAbort(stream->handle);
    aio_locking_end(stream->device, notes, AIO_UNKNOWN);
    if (was_refused(code)) {
        atomic_fetch_sub(&stream->aborts, 1);
    } else {
        aio_stream_dropped(stream, from, tail);
        if (code == 0) {
            aio_stream_finish(stream, tail);
        }
        atomic_fetch_add(&stream->aborts_ended, 1);
    }
    aio_stream_deliver(stream);
    if (owned) {
        unlock_enqueue(stream);
    }
    return code;
}

int aio_stream_abort(aio_stream *stream) {
    aio_frame frame;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamAbort);
    if (code) {
        return code;
    }
    code = AIO_STALE;
    if (aio_stream_use(stream)) {
        code = abort_inside(stream);
        aio_stream_unuse(stream);
    }
    aio_end(&frame, code == AIO_STALE ? 0 : code);
    return code;
}

/* If the id has not changed, the direct calls probably submitted nothing, and the id is that of an older task,
 * perhaps on another stream. But a new task of this stream may have the same id as that older task. So the id
 * is used if it is the next id of this stream, or if no id of this stream is known. */
static void note_manual(aio_stream *stream, uint32_t before) {
    uint32_t now = aio_last_task(), next = stream->last_task + 1;
    if (!atomic_load(&stream->numbered)) {
        atomic_store(&stream->numbered, atomic_load(&stream->tail) + 1);
    } else if ((now == before && now != next) ||
               (int32_t)(now - next) < 0) { /* another thread has enqueued a later task */
        return;
    }
    stream->last_task = now;
}

void aio_stream_manual(aio_stream *stream, uint32_t before) {
    aio_frame frame;
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_ENQUEUE, AIO_FN_aclrtStreamQuery)) {
        return;
    }
    if (lock_enqueue(stream) == 0) {
        note_manual(stream, before);
        unlock_enqueue(stream);
    }
    atomic_fetch_add(&stream->manual, 1);
    guard(stream->device);
    aio_end(&frame, 0);
}

int aio_stream_doubt(aio_stream *stream) {
    aio_frame frame;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_ENQUEUE, AIO_FN_aclrtStreamQuery);
    if (code) {
        return code;
    }
    code = lock_enqueue(stream);
    if (code == 0) {
        code = aio_link_add(stream, NULL, 0);
        unlock_enqueue(stream);
    }
    aio_end(&frame, 0);
    return code;
}

int aio_launch_most(void) {
    return AIO_QUEUE_ENTRIES - 2; /* a mark may be recorded before the block, and one is recorded at its end */
}

/* The caller owns the stream, and is inside the gate. */
static int open_block(aio_stream *stream, int tasks, int reported) {
    if (room(stream) <= tasks) {
        ask_everything(stream);
    }
    if (room(stream) <= tasks) {
        return AIO_QUEUE_FULL;
    }
    if (!aio_stream_use(stream)) {
        return AIO_STALE;
    }
    stream->launch_aborts = stream->aborts_seen;
    stream->launch_tasks = tasks;
    atomic_store(&stream->launch_reported, reported != 0);
    stream->launch_tail = atomic_load(&stream->tail);
    stream->launch_task = atomic_load(&stream->last_task);
    stream->launch_numbered = atomic_load(&stream->numbered) != 0;
    atomic_store(&stream->launched_us, aio_now_us());
    atomic_store(&stream->launcher, atomic_load(&aio_self()->id));
    return 0;
}

/* The thread keeps the context of the stream until the end of the block, because other code calls the runtime.
 * So calls for other devices give this context back (`left`). */
static void bind_block(const aio_stream *stream, aio_frame *frame, aio_block *block) {
    aio_thread *thread = aio_self();
    void *ours = atomic_load(&aio_devices[stream->device].context);
    bool elsewhere = stream->borrowed && stream->context != ours;
    void *before = elsewhere && !frame->foreign ? ours : frame->foreign;
    *block = (aio_block){1, before, thread->left};
    frame->foreign = NULL;
    thread->left = NULL;
}

static int open_inside(aio_stream *stream, int held, int tasks, int reported, aio_block *block) {
    aio_frame frame;
    int code = aio_enqueue_begin(stream, &frame, held, AIO_FN_aclrtRecordEvent);
    if (code) {
        return code;
    }
    code = open_block(stream, tasks, reported);
    if (code == 0) {
        bind_block(stream, &frame, block);
    }
    refuse(stream, &frame);
    if (code == 0 && stream->borrowed) {
        aio_borrowed_bind(stream);
    }
    return code;
}

int aio_launch_begin(aio_stream *stream, int held, int tasks, int reported, aio_block *block) {
    aio_pass pass = aio_stream_pass(stream, held);
    int code = aio_count_in(pass, AIO_ENQUEUE);
    if (code) {
        return code;
    }
    code = open_inside(stream, held, tasks, reported, block);
    if (code) {
        aio_count_out(pass, AIO_ENQUEUE);
    }
    return code;
}

/* If other code has begun a capture in the block and not ended it, the mark would become a part of the graph.
 */
static int record_end(aio_stream *stream) {
    bool reported = atomic_load(&stream->launch_reported);
    aio_event *event = NULL;
    int code = aio_stream_capture_code(stream);
    if (code == 0 && !reported) {
        code = aio_link_add(stream, NULL, 0);
    }
    if (code) {
        return code;
    }
    code = record_owned(stream, mark_kind(stream), true, &event);
    if (code == 0) {
        aio_event_drop(event);
    } else if (!reported) {
        aio_link_remove(stream);
    }
    return code;
}

/* The caller owns the stream. `refusal`: the gate has refused the record, so a reset drops the work, and a
 * position without a task shows this. If the record fails, the work is checked like that of direct ACL calls.
 */
static aio_result end_block(aio_stream *stream, int refusal) {
    int code = 0;
    stream->aborts_seen = stream->launch_aborts;
    if (refusal) {
        count_as(stream, 0, false);
    } else {
        code = record_end(stream);
    }
    if (code) {
        atomic_fetch_add(&stream->manual, 1);
        guard(stream->device);
        return aio_failed(code);
    }
    uint64_t position = atomic_load(&stream->tail);
    atomic_store(&stream->wanted, position);
    return (aio_result)position;
}

static void unbind_block(const aio_block *block) {
    aio_self()->left = block->left;
    if (block->before) {
        aio_outside_begin();
        aio_acl.aclrtSetCurrentContext(block->before);
        aio_outside_end(0);
    }
}

static aio_result end_inside(aio_stream *stream) {
    aio_frame frame;
    int refusal = aio_begin(&frame, aio_stream_pass(stream, 1), AIO_ENQUEUE, AIO_FN_aclrtRecordEvent);
    int code = lock_enqueue(stream);
    aio_result result = code ? aio_failed(code) : end_block(stream, refusal);
    atomic_store(&stream->launcher, 0);
    if (code == 0) {
        unlock_enqueue(stream);
    }
    if (refusal == 0) {
        aio_end(&frame, 0);
        noted(stream, &frame, result);
    }
    return result;
}

/* The context is restored on the thread that has opened the block. On another thread nothing was changed. */
aio_result aio_launch_end(aio_stream *stream, aio_block *block) {
    if (atomic_load(&aio_in_child)) {
        return aio_failed(AIO_FORKED);
    }
    if (!block->open) {
        return aio_failed(AIO_PENDING);
    }
    bool here = aio_stream_launches(stream) == AIO_LAUNCHING_HERE;
    block->open = 0;
    aio_result result = end_inside(stream);
    aio_stream_unuse(stream);
    if (here) {
        unbind_block(block);
    }
    aio_count_out(aio_stream_pass(stream, 0), AIO_ENQUEUE);
    return result;
}

int aio_launch_inside(int device, aio_call *calls, int size) {
    int64_t now = aio_now_us();
    int found = 0;
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        int32_t launcher = atomic_load(&stream->launcher);
        int64_t since = atomic_load(&stream->launched_us);
        if (launcher && found < size) {
            calls[found++] = (aio_call){-1, launcher, since, now - since};
        }
    }
    return found;
}
