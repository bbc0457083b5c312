/*
 * Enqueueing.  Every function here enters the gate, owns the stream for the call, counts the entry and leaves.
 *
 * The runtime blocks without limit when a queue is full, and when staging memory runs out there is nowhere to
 * copy to; both are refused before C.  Before later work hides a position that somebody refers to, a mark is
 * recorded.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { ABORTED = 107023 };

/* --- owning the stream ------------------------------------------------------- */
static int own(aio_stream *stream) {
    for (unsigned turn = 0;; turn++) {
        uint32_t nobody = AIO_NOBODY;
        if (atomic_compare_exchange_strong(&stream->owner, &nobody, AIO_ENQUEUER)) {
            stream->aborts_seen = atomic_load(&stream->aborts);
            stream->blames_seen = atomic_load(&stream->blames);
            return 0;
        }
        if (atomic_load(&stream->dropped))
            return AIO_STALE;
        /* The owner may be stuck in C; then a reset must be able to get us out of here. */
        uint64_t word = aio_gate_word(stream->device);
        if (turn > 64 && aio_word_generation(word) != stream->generation)
            return AIO_STALE;
        if (turn > 64 && (aio_word_state(word) == AIO_RESETTING || (aio_word_flags(word) & AIO_FOREIGN)))
            return AIO_RESETTING_NOW;
        aio_pause(turn);
    }
}

static void disown(aio_stream *stream) {
    atomic_store_explicit(&stream->owner, AIO_NOBODY, memory_order_release);
}

static int64_t room(const aio_stream *stream) {
    /* One entry is kept for the mark that an enqueue may have to record first. */
    return AIO_QUEUE_ENTRIES - 1 - (int64_t)(atomic_load(&stream->tail) - atomic_load(&stream->finished));
}

static void ask_everything(aio_stream *stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    uint64_t tail = atomic_load(&stream->tail);
    aio_stream_ask_marks(stream);
    if (!aio_stream_use(stream))
        return;
    bool idle = aio_acl.aclrtStreamQuery(stream->handle, &status) == 0 && status == ACL_STREAM_STATUS_COMPLETE;
    if (idle && aio_stream_current(stream))
        aio_stream_finish(stream, tail);
    aio_stream_unuse(stream);
}

int64_t aio_stream_room(aio_stream *stream) {
    aio_frame frame;
    if (room(stream) > AIO_QUEUE_ENTRIES / 2)
        return room(stream);
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamQuery) == 0) {
        ask_everything(stream);
        aio_end(&frame, 0);
    }
    return room(stream);
}

/* An abort that did not wait for us may have dropped the entry, and a code that somebody has collected may be
 * its own: counted first and asked then, they know of it or we do. */
static uint64_t count(aio_stream *stream) {
    uint64_t position = atomic_load(&stream->tail) + 1;
    atomic_store(&stream->tail, position);
    if (atomic_load(&stream->aborts) != stream->aborts_seen)
        aio_stream_judge(stream, position - 1, position, ABORTED, "");
    else if (atomic_load(&stream->blames) != stream->blames_seen)
        aio_stream_judge(stream, position - 1, position, atomic_load(&stream->blame), "");
    return position;
}

/* --- marks ------------------------------------------------------------------- */
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

/* The caller owns the stream.  On success the caller has a reference of its own. */
static int record_owned(aio_stream *stream, bool timing, aio_event **made) {
    aio_event *event = NULL;
    int code = aio_event_take(stream->device, stream->generation, timing, &event);
    if (code)
        return code;
    code = aio_acl.aclrtRecordEvent(event->handle, stream->handle);
    if (code) {
        aio_keep_text();
        aio_event_drop(event);
        return code;
    }
    append_mark(stream, event, count(stream));
    *made = event;
    return 0;
}

/* A mark that cannot be had is no error: the wait is then for later work too. */
static void mark(aio_stream *stream) {
    aio_event *event = NULL;
    if (record_owned(stream, false, &event) == 0)
        aio_event_drop(event);
}

static void mark_if_due(aio_stream *stream) {
    uint64_t tail = atomic_load(&stream->tail), last = atomic_load(&stream->last_mark);
    bool wanted = tail && atomic_load(&stream->wanted) == tail && last < tail;
    if (wanted || tail - last >= AIO_MARK_EVERY)
        mark(stream);
}

/* --- one enqueue ------------------------------------------------------------- */
static int admit(aio_stream *stream, aio_frame *frame, int held, int function) {
    int code = aio_begin(frame, aio_stream_pass(stream, held), AIO_ENQUEUE, function);
    if (code)
        return code;
    code = own(stream);
    if (code) {
        aio_end(frame, 0);
        return code;
    }
    if (room(stream) < 1)
        ask_everything(stream);
    if (room(stream) >= 1) {
        mark_if_due(stream);
        return 0;
    }
    disown(stream);
    aio_end(frame, 0);
    return AIO_QUEUE_FULL;
}

static aio_result settle(aio_stream *stream, aio_frame *frame, int code) {
    aio_result result = aio_failed(code);
    if (code == 0) {
        result = (aio_result)count(stream);
        atomic_store(&stream->wanted, (uint64_t)result);
    }
    disown(stream);
    aio_end(frame, code);
    return result;
}

aio_result aio_copy(aio_stream *stream, int held, void *target, size_t space, const void *source, size_t size,
                    int kind) {
    aio_frame frame;
    int code = admit(stream, &frame, held, AIO_FN_aclrtMemcpyAsync);
    if (code)
        return aio_failed(code);
    code = aio_acl.aclrtMemcpyAsync(target, space, source, size, (aclrtMemcpyKind)kind, stream->handle);
    return settle(stream, &frame, code);
}

aio_result aio_fill(aio_stream *stream, int held, void *target, size_t space, int value, size_t size) {
    aio_frame frame;
    int code = admit(stream, &frame, held, AIO_FN_aclrtMemsetAsync);
    if (code)
        return aio_failed(code);
    code = aio_acl.aclrtMemsetAsync(target, space, value, size, stream->handle);
    return settle(stream, &frame, code);
}

static aio_result wait_event_inside(aio_stream *stream, int held, aio_event *event) {
    aio_frame frame;
    int code = admit(stream, &frame, held, AIO_FN_aclrtStreamWaitEvent);
    if (code)
        return aio_failed(code);
    code = aio_acl.aclrtStreamWaitEvent(stream->handle, event->handle);
    return settle(stream, &frame, code);
}

/* An event of another device is used under that device's gate too. */
aio_result aio_wait_event(aio_stream *stream, int held, aio_event *event) {
    aio_pass theirs = aio_make_pass(event->device, event->generation, 0);
    if (event->device == stream->device && event->generation != stream->generation)
        return aio_failed(AIO_STALE);
    if (event->device == stream->device)
        return wait_event_inside(stream, held, event);
    int code = aio_count_in(theirs, AIO_WAIT);
    if (code)
        return aio_failed(code);
    aio_result result = wait_event_inside(stream, held, event);
    aio_count_out(theirs, AIO_WAIT);
    return result;
}

aio_result aio_record(aio_stream *stream, int held, int timing, aio_event **event) {
    aio_frame frame;
    int code = admit(stream, &frame, held, AIO_FN_aclrtRecordEvent);
    if (code)
        return aio_failed(code);
    code = record_owned(stream, timing != 0, event);
    aio_result result = code ? aio_failed(code) : (aio_result)(*event)->position;
    disown(stream);
    /* record_owned has kept the text on this thread already. */
    aio_end(&frame, 0);
    return result;
}

/* --- through staging memory -------------------------------------------------- */
static void append_landing(aio_stream *stream, aio_landing *landing) {
    aio_lock_take(&stream->lock);
    landing->position = atomic_load(&stream->tail) + 1;
    *stream->landings_end = landing;
    stream->landings_end = &landing->next;
    aio_lock_give(&stream->lock);
}

static aio_landing *new_landing(const aio_stream *stream, void *target, size_t size) {
    aio_landing *landing = calloc(1, sizeof *landing);
    if (!landing)
        return NULL;
    landing->target = target;
    landing->count = size;
    landing->generation = stream->generation;
    landing->slot = aio_stage_take(stream->device, size);
    if (landing->slot)
        return landing;
    free(landing);
    return NULL;
}

static void free_landing(int device, aio_landing *landing) {
    aio_stage_release(device, landing->slot);
    free(landing);
}

static aio_result staged(aio_stream *stream, aio_frame *frame, aio_landing *landing, int code) {
    if (code == 0)
        append_landing(stream, landing);
    else
        free_landing(stream->device, landing);
    return settle(stream, frame, code);
}

aio_result aio_upload(aio_stream *stream, int held, void *target, size_t space, const void *source,
                      size_t size) {
    aio_frame frame;
    aio_landing *landing = new_landing(stream, NULL, size);
    if (!landing)
        return aio_failed(AIO_STAGE_FULL);
    memcpy(landing->slot, source, size);
    int code = admit(stream, &frame, held, AIO_FN_aclrtMemcpyAsync);
    if (code) {
        free_landing(stream->device, landing);
        return aio_failed(code);
    }
    code =
        aio_acl.aclrtMemcpyAsync(target, space, landing->slot, size, ACL_MEMCPY_HOST_TO_DEVICE, stream->handle);
    return staged(stream, &frame, landing, code);
}

aio_result aio_download(aio_stream *stream, int held, void *target, const void *source, size_t size) {
    aio_frame frame;
    aio_landing *landing = new_landing(stream, target, size);
    if (!landing)
        return aio_failed(AIO_STAGE_FULL);
    int code = admit(stream, &frame, held, AIO_FN_aclrtMemcpyAsync);
    if (code) {
        free_landing(stream->device, landing);
        return aio_failed(code);
    }
    code =
        aio_acl.aclrtMemcpyAsync(landing->slot, size, source, size, ACL_MEMCPY_DEVICE_TO_HOST, stream->handle);
    return staged(stream, &frame, landing, code);
}

/* --- the rest ---------------------------------------------------------------- */
void aio_stream_mark_now(aio_stream *stream, uint64_t position) {
    aio_frame frame;
    if (atomic_load(&stream->last_mark) >= position)
        return;
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_ENQUEUE, AIO_FN_aclrtRecordEvent))
        return;
    if (own(stream) == 0) {
        if (room(stream) >= 0 && atomic_load(&stream->last_mark) < position)
            mark(stream);
        disown(stream);
    }
    aio_end(&frame, 0);
}

void aio_stream_forget(aio_stream *stream, uint64_t position) {
    if (atomic_load(&stream->waited) != position)
        atomic_compare_exchange_strong(&stream->wanted, &position, 0);
}

uint64_t aio_stream_tail(const aio_stream *stream) {
    return atomic_load(&stream->tail);
}

uint64_t aio_stream_completed(const aio_stream *stream) {
    return atomic_load(&stream->completed);
}

/* Without the owner the tail would be a guess; but an enqueuer that is stuck in C must not keep us from
 * aborting. */
static bool own_for_a_moment(aio_stream *stream) {
    for (unsigned turn = 0; turn < 1000; turn++) {
        uint32_t nobody = AIO_NOBODY;
        if (atomic_compare_exchange_strong(&stream->owner, &nobody, AIO_ENQUEUER))
            return true;
        aio_pause(turn);
    }
    return false;
}

/* What was done before the abort keeps its own outcome; what it drops looks complete until it is judged. */
static int abort_inside(aio_stream *stream) {
    ask_everything(stream);
    bool owned = own_for_a_moment(stream);
    atomic_fetch_add(&stream->aborting, 1);
    atomic_fetch_add(&stream->aborts, 1);
    uint64_t tail = atomic_load(&stream->tail);
    uint64_t from = atomic_load(&stream->finished);
    int code = aio_acl.aclrtStreamAbort(stream->handle);
    if (code)
        atomic_fetch_sub(&stream->aborts, 1);
    if (code == 0 && from < tail) {
        aio_stream_judge(stream, from, tail, ABORTED, "");
        aio_stream_finish(stream, tail);
    }
    atomic_fetch_sub(&stream->aborting, 1);
    aio_stream_deliver(stream);
    if (owned)
        disown(stream);
    return code;
}

int aio_stream_abort(aio_stream *stream) {
    aio_frame frame;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamAbort);
    if (code)
        return code;
    code = AIO_STALE;
    if (aio_stream_use(stream)) {
        code = abort_inside(stream);
        aio_stream_unuse(stream);
    }
    aio_end(&frame, code == AIO_STALE ? 0 : code);
    return code;
}
