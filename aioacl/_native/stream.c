/*
 * Streams: making, destroying and querying streams.
 *
 * The engine uses the answer "complete" only after it has attributed the reports that came before the answer
 * (aio_stream_finish). If this does not confirm the positions, the stream is synchronized: at once if it is
 * idle and no caller can enqueue, else on a separate thread (confirm.c).
 */
#include <stdlib.h>

#include "internal.h"

/* Returns the stream's id. Returns -1 if the runtime has no id for the stream. Then the stream's failures are
 * found by synchronizing. */
static int32_t native_id(const aio_stream *stream) {
    int32_t id = -1;
    aio_frame frame;
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamGetId)) {
        return -1;
    }
    int code = aio_acl.aclrtStreamGetId(stream->handle, &id);
    aio_end(&frame, code);
    return code ? -1 : id;
}

void aio_stream_list(aio_stream *stream, int32_t id) {
    struct aio_device *device = &aio_devices[stream->device];
    aio_stream_number(stream, id);
    aio_stream_hold(stream);
    aio_lock_take(&device->lock);
    stream->number = ++device->stream_numbers;
    stream->listed = true;
    stream->next = device->streams;
    device->streams = stream;
    aio_lock_give(&device->lock);
}

static aio_stream *new_record(int device, unsigned generation, aclrtStream handle) {
    aio_stream *stream = calloc(1, sizeof *stream);
    if (!stream) {
        return NULL;
    }
    stream->handle = handle;
    stream->device = device;
    stream->generation = generation;
    atomic_init(&stream->references, 1); /* `aio_stream_list` adds one for the device's list */
    atomic_init(&stream->stranded, UINT64_MAX);
    stream->marks_end = &stream->marks;
    stream->staged_copies_end = &stream->staged_copies;
    return stream;
}

aio_stream *aio_stream_borrow(aio_pass pass, aclrtStream handle, void *context) {
    aio_stream *stream = new_record(aio_pass_device(pass), aio_pass_generation(pass), handle);
    if (stream) {
        stream->borrowed = true;
        void *usual = atomic_load(&aio_devices[stream->device].context);
        stream->context = context ? context : usual;
        aio_stream_list(stream, native_id(stream));
    }
    return stream;
}

/* The record of the event's stream has one position, whose mark is the event. */
static aio_stream *new_event_record(aio_pass pass, aio_event *event) {
    aio_stream *stream = new_record(aio_pass_device(pass), aio_pass_generation(pass), NULL);
    if (stream) {
        stream->borrowed = true;
        event->position = 1;
        stream->marks = event;
        stream->marks_end = &event->next;
        atomic_init(&stream->tail, 1);
        atomic_init(&stream->last_mark, 1);
        aio_stream_list(stream, -1);
    }
    return stream;
}

aio_stream *aio_event_borrow(aio_pass pass, aclrtEvent handle, aio_event **event) {
    aio_event *made = aio_event_wrap(aio_pass_device(pass), aio_pass_generation(pass), handle);
    aio_stream *stream = made ? new_event_record(pass, made) : NULL;
    if (stream) {
        aio_event_hold(made);
        *event = made;
    } else if (made) {
        aio_event_drop(made);
    }
    return stream;
}

aio_stream *aio_stream_new(aio_pass pass, aclrtStream handle) {
    aio_stream *stream = new_record(aio_pass_device(pass), aio_pass_generation(pass), handle);
    if (stream) {
        aio_stream_list(stream, native_id(stream));
    }
    return stream;
}

static bool unlink_stream(aio_stream *stream) {
    struct aio_device *device = &aio_devices[stream->device];
    aio_lock_take(&device->lock);
    bool found = stream->listed;
    aio_stream **link = &device->streams;
    while (found && *link != stream) {
        link = &(*link)->next;
    }
    if (found) {
        *link = stream->next;
    }
    stream->listed = false;
    aio_lock_give(&device->lock);
    return found;
}

/* A stream must stay in the list while its work runs, and while it depends on work whose outcome is unknown.
 * Only a stream in the list inherits failures, and other streams may inherit them from this stream. */
static bool may_be_unlinked(aio_stream *stream) {
    bool stale = aio_word_generation(aio_gate_word(stream->device)) != stream->generation;
    return stale || aio_stream_is_event(stream) ||
           (atomic_load(&stream->finished) == atomic_load(&stream->tail) && !aio_links_are_open(stream));
}

/* Removes the stream from the list. Also frees its links, because otherwise streams that wait for each other
 * would keep each other alive for ever. */
static void unlist(aio_stream *stream) {
    if (!unlink_stream(stream)) {
        return;
    }
    aio_links_release(stream);
    aio_stream_unhold(stream);
}

/* In a forked child this function does nothing, because the lists may have been in use at the fork. */
void aio_stream_drop(aio_stream *stream) {
    if (atomic_load(&aio_in_child)) {
        return;
    }
    atomic_store(&stream->dropped, true);
    if (aio_stream_is_event(stream)) {
        aio_borrowed_event_drop(stream);
    }
    if (may_be_unlinked(stream)) {
        unlist(stream);
    }
    aio_stream_unhold(stream);
}

void aio_stream_unlist(aio_stream *stream) {
    if (atomic_load(&stream->dropped)) {
        unlist(stream);
    }
}

/* The next waits probably take as long as the waits of the released record. */
aio_stream *aio_stream_again(aio_stream *released) {
    aio_stream *stream = new_record(released->device, released->generation, released->handle);
    if (stream) {
        aio_stream_unkeep(released);
        unlist(released);
        for (int who = 0; who < 2; who++) {
            stream->waits[who].pace = released->waits[who].pace;
            atomic_init(&stream->waits[who].first_us, atomic_load(&released->waits[who].first_us));
        }
        atomic_init(&stream->roused, 1); /* the released record has had tasks */
    }
    return stream;
}

/* In a launch block other code may enqueue, although the stream has no owner. */
static bool take_owner(aio_stream *stream) {
    uint32_t unowned = AIO_NOBODY;
    return !aio_stream_is_launching(stream) &&
           atomic_compare_exchange_strong(&stream->owner, &unowned, AIO_COLLECTOR);
}

static void give_owner(aio_stream *stream) {
    atomic_store_explicit(&stream->owner, AIO_NOBODY, memory_order_release);
}

/*
 * A query that fails ends the waits, because no further query can give an answer. But the device may still be
 * working. So the objects that the work uses are kept until a query shows that the stream is idle, or the
 * device is reset.
 */
void aio_stream_fail_waits(aio_stream *stream, int32_t code) {
    uint64_t tail = atomic_load(&stream->tail);
    aio_keep_text();
    aio_failures_settle();
    aio_stream_fail(stream, atomic_load(&stream->confirmed) + 1, code, aio_error_text());
    aio_atomic_max(&stream->waits_failed, tail);
}

/* The tail is read before the query: an idle stream is done at least up to that position. While other code
 * captures the stream in a launch block, the runtime refuses the query, which shows nothing about the work. */
static int ask_stream(aio_stream *stream) {
    uint64_t tail = atomic_load(&stream->tail);
    if (atomic_load(&stream->finished) == tail || !aio_stream_use(stream)) {
        return 0;
    }
    int answer = aio_stream_idle(stream);
    if (answer == 1 && aio_stream_current(stream)) {
        aio_stream_finish(stream, tail);
    }
    aio_stream_unuse(stream);
    return answer == 1 || answer == RT_STREAM_CAPTURED ? 0 : answer;
}

/* While this thread owns the stream, no other thread can enqueue. So an idle stream stays idle, and the
 * synchronize returns. */
static bool sync_owned(aio_stream *stream) {
    bool done = aio_stream_idle(stream) == 1 && aio_stream_sync(stream);
    give_owner(stream);
    return done;
}

static bool sync_idle(aio_stream *stream) {
    if (!aio_stream_use(stream)) {
        return false;
    }
    bool owned = aio_stream_idle(stream) == 1 && take_owner(stream);
    bool done = owned && sync_owned(stream);
    aio_stream_unuse(stream);
    return done;
}

void aio_stream_take_code(aio_stream *stream) {
    aio_frame frame;
    int function = AIO_FN_aclrtSynchronizeStreamWithTimeout;
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, function)) {
        return;
    }
    sync_idle(stream);
    aio_end(&frame, 0);
}

static bool has_mark(aio_stream *stream, uint64_t position) {
    aio_event *mark = aio_stream_mark_for(stream, position);
    if (mark) {
        aio_event_drop(mark);
    }
    return mark != NULL;
}

/* Whether the code means that other code is resetting the device, so that no task has failed. The gate has
 * bound this thread to the device's context. If the thread has no context now, the device is being reset. The
 * state callback may report this reset later, or never. */
static bool lost_its_context(const aio_stream *stream, int code) {
    void *current = NULL;
    if (code != RT_CONTEXT_NULL || aio_acl.aclrtGetCurrentContext(&current) == 0) {
        return false;
    }
    aio_keep_text();
    aio_foreign_found(stream->device, stream->generation);
    return true;
}

/* Handles the code of a query. If a reset or an abort is the reason for the code, no task has failed. */
static int answered(aio_stream *stream, int code) {
    if (code && aio_stream_current(stream) && !lost_its_context(stream, code)) {
        aio_stream_fail_waits(stream, code);
    }
    return code;
}

/* Queries the marks. If no mark covers the position, also queries the whole stream. */
static int ask(aio_stream *stream, uint64_t position) {
    int code = aio_stream_ask_marks(stream);
    if (code == 0 && atomic_load(&stream->finished) < position && !has_mark(stream, position)) {
        code = ask_stream(stream);
    }
    return answered(stream, code);
}

/* Like ask(), but with at most two queries, and without a search if the work up to the oldest mark is not
 * done. */
static int ask_briefly(aio_stream *stream, uint64_t position) {
    if (atomic_load(&stream->last_mark) < position) {
        return answered(stream, ask_stream(stream));
    }
    bool done = true;
    int code = 0;
    aio_event *mark = aio_stream_mark_for(stream, 0);
    if (mark && mark->position < position) {
        code = aio_stream_ask_mark(stream, mark, &done);
        mark = done ? aio_stream_mark_for(stream, position) : NULL;
    }
    if (mark) {
        code = aio_stream_ask_mark(stream, mark, &done);
    }
    return answered(stream, code);
}

static bool is_known(aio_stream *stream, uint64_t position) {
    return atomic_load(&stream->confirmed) >= position || aio_stream_error(stream, position, NULL) != 0;
}

/* Confirms this stream only. Called after an attempt to confirm the work that the stream depends on. This work
 * may have been confirmed after the stream's own work was finished, so aio_stream_confirm is called again. */
static void confirm_alone(aio_stream *stream, bool aside) {
    aio_stream_confirm(stream, atomic_load(&stream->finished));
    if (aio_stream_needs_sync(stream) && !sync_idle(stream) && aside) {
        aio_stream_confirm_aside(stream);
    }
}

/* Queries and confirms a source. The source may be on another device, so this function enters the gate of the
 * source's device. */
static void advance_source(aio_stream *source, uint64_t at, bool aside) {
    aio_frame frame;
    if (aio_begin(&frame, aio_stream_pass(source, 0), AIO_WAIT, AIO_FN_aclrtStreamQuery)) {
        return;
    }
    if (atomic_load(&source->finished) < at) {
        ask(source, at);
    }
    if (atomic_load(&source->finished) >= at && !is_known(source, at)) {
        confirm_alone(source, aside);
    }
    aio_end(&frame, 0);
}

int aio_stream_advance(aio_stream *stream, uint64_t position, bool aside) {
    int code = atomic_load(&stream->finished) < position ? ask(stream, position) : 0;
    if (code || atomic_load(&stream->finished) < position || is_known(stream, position)) {
        return code;
    }
    aio_links_follow(stream, position, advance_source, aside);
    confirm_alone(stream, aside);
    return 0;
}

/* The synchronize is needed because a stream that depends on failed work may also have a failed task. */
void aio_stream_look_after(aio_stream *stream) {
    uint64_t tail = atomic_load(&stream->tail);
    aio_stream_advance(stream, tail, false);
    if (atomic_load(&stream->finished) >= tail && aio_stream_needs_sync(stream)) {
        sync_idle(stream);
    }
    aio_stream_deliver(stream);
}

/* Finds the outcome of all work before the native stream is destroyed. The outcome cannot be found later,
 * because then the stream's id may belong to another stream. False if the outcome cannot be found now. */
static bool drain_owned(aio_stream *stream) {
    if (!aio_stream_current(stream)) {
        return false;
    }
    aio_stream_finish(stream, atomic_load(&stream->tail));
    if (aio_stream_needs_sync(stream) && !aio_stream_sync(stream)) {
        return false;
    }
    if (aio_links_are_open(stream) && !atomic_load(&stream->failed)) {
        return false; /* only a stream in the list inherits the failures of sources */
    }
    aio_stream_unnumber(stream);
    aio_stream_deliver(stream);
    return true;
}

/*
 * On success `owner` stays taken for ever. A thread that waits to enqueue then reads `dropped`. A stream whose
 * query fails may be busy, and destroying a busy stream may never return. So such a stream is kept until a
 * reset, and the query's code is returned.
 */
static int destroy_owned(aio_stream *stream, bool *busy) {
    int answer = aio_stream_idle(stream);
    *busy = answer == 0;
    atomic_store(&stream->dropped, true);
    if (atomic_load(&stream->callers) == 0 && answer == 1 && drain_owned(stream)) {
        return 0;
    }
    atomic_store(&stream->dropped, false);
    give_owner(stream);
    return answer == 0 || answer == 1 ? AIO_PENDING : answer;
}

/* Whether a new record of the native stream can take the place of this one. Other code may have changed the
 * stream, and may still use it, if direct ACL calls have enqueued on it. */
static bool is_reusable(const aio_stream *stream) {
    return !atomic_load(&stream->failed) && !atomic_load(&stream->aborts) && !atomic_load(&stream->manual) &&
           !atomic_load(&stream->waits_failed) && atomic_load(&stream->stranded) == UINT64_MAX;
}

int aio_stream_is_spent(aio_stream *stream) {
    return aio_stream_known(stream, atomic_load(&stream->tail)) >= 0 && is_reusable(stream) &&
           !aio_links_are_open(stream) && aio_stream_current(stream) && !atomic_load(&stream->dropped) &&
           !aio_stream_is_launching(stream);
}

/* Owns the stream and ends its record. Before a native stream is destroyed, a call must have had the stream
 * lock since the stream's last task was enqueued. If no stream can be made for such a call, none is made. */
static int own_and_end(aio_stream *stream, bool *busy, bool keep, aclrtStream *spare) {
    for (bool sure = stream->borrowed;; sure = !aio_stream_pass_lock(stream, spare)) {
        if (!take_owner(stream)) {
            return AIO_PENDING;
        }
        if (sure || (keep && is_reusable(stream)) || aio_stream_passed(stream) ||
            aio_stream_idle(stream) != 1) {
            return destroy_owned(stream, busy);
        }
        give_owner(stream);
    }
}

static int end_stream(aio_stream *stream, bool keep, int *kept) {
    aio_frame frame;
    aclrtStream spare = NULL;
    bool busy = false;
    *kept = 0;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_LIFETIME, AIO_FN_aclrtDestroyStream);
    if (code) {
        return code;
    }
    code = atomic_load(&stream->dropped) ? AIO_STALE : AIO_PENDING;
    if (code == AIO_PENDING) {
        code = own_and_end(stream, &busy, keep, &spare);
    }
    bool gone = code == 0;
    *kept = gone && keep && is_reusable(stream);
    if (gone && !*kept && !stream->borrowed) {
        code = aio_stream_lock_destroy(stream->device, stream->handle);
    }
    aio_stream_lock_drop(stream->device, spare, code);
    aio_end(&frame, code > 0 ? code : 0);
    if (busy && atomic_load(&stream->finished) == atomic_load(&stream->tail)) {
        aio_stream_mark_now(stream,
                            atomic_load(&stream->tail) + 1); /* marks the end of work of direct ACL calls */
    }
    if (*kept) {
        aio_stream_keep(stream);
    } else if (gone && !aio_links_are_open(stream)) {
        unlist(stream);
    }
    return code;
}

int aio_stream_destroy(aio_stream *stream) {
    int kept;
    return end_stream(stream, false, &kept);
}

int aio_stream_release(aio_stream *stream, int *kept) {
    return end_stream(stream, true, kept);
}

static aio_result poll_inside(aio_stream *stream, uint64_t position) {
    aio_result result;
    int code = atomic_load(&stream->finished) < position ? ask_briefly(stream, position) : 0;
    if (code == 0 && atomic_load(&stream->finished) >= position) {
        aio_stream_advance(stream, position, false);
    }
    if (!aio_stream_has_bytes(stream)) {
        aio_stream_deliver(stream);
    }
    return aio_stream_over(stream, position, &result) ? result : aio_failed(AIO_PENDING);
}

static void note_no_wait(const aio_stream *stream, uint64_t position, aio_result result, int64_t now_ns,
                         const aio_thread *thread) {
    uint64_t what = aio_flight_what(AIO_FLIGHT_NO_WAIT, stream->device, result < 0 ? aio_code(result) : 0);
    aio_flight_put(now_ns, aio_flight_entry(stream, position), what, aio_flight_where(thread, 0));
}

void aio_flight_no_wait(const aio_stream *stream, uint64_t position, aio_result result) {
    note_no_wait(stream, position, result, aio_now_ns(), aio_self());
}

aio_result aio_stream_poll(aio_stream *stream, uint64_t position) {
    aio_frame frame;
    aio_result result = aio_stream_known(stream, position);
    if (result != aio_failed(AIO_PENDING)) {
        aio_flight_no_wait(stream, position, result);
        return result;
    }
    if (aio_stream_launches(stream) == AIO_LAUNCHING_HERE) {
        return aio_failed(AIO_LAUNCHING_HERE); /* the caller would keep the block open until the wait ends */
    }
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamQuery);
    if (code) {
        return aio_failed(code);
    }
    result = poll_inside(stream, position);
    aio_end(&frame, 0);
    if (result != aio_failed(AIO_PENDING)) {
        note_no_wait(stream, position, result, frame.ended_ns, frame.thread);
    }
    return result;
}

static int query_inside(aio_stream *stream, uint64_t position) {
    int code = aio_stream_ask_marks(stream);
    if (code == 0 && atomic_load(&stream->finished) < position) {
        code = ask_stream(stream);
    }
    aio_stream_deliver(stream);
    return code ? code : atomic_load(&stream->completed) >= position;
}

int aio_stream_query(aio_stream *stream, uint64_t position) {
    aio_frame frame;
    if (atomic_load(&stream->completed) >= position) {
        return 1;
    }
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamQuery);
    if (code) {
        return code;
    }
    code = query_inside(stream, position);
    aio_end(&frame, code == 1 ? 0 : code);
    return code;
}

uint64_t aio_stream_tail(const aio_stream *stream) {
    return atomic_load(&stream->tail);
}

uint64_t aio_stream_completed(const aio_stream *stream) {
    return atomic_load(&stream->completed);
}

uint64_t aio_stream_stranded(const aio_stream *stream) {
    return atomic_load(&stream->stranded);
}

int32_t aio_stream_id(const aio_stream *stream) {
    return stream->id;
}
