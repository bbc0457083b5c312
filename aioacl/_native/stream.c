/*
 * Streams: their life, and asking how far they are.
 *
 * Whoever collects, the watcher or an await that finds the stream idle, writes what it learns to the ledger,
 * for every position that the collection covered: the runtime tells an error once.
 */
#include <stdlib.h>

#include "internal.h"

/* --- life -------------------------------------------------------------------- */
aio_stream *aio_stream_new(aio_pass pass, aclrtStream handle) {
    aio_stream *stream = calloc(1, sizeof *stream);
    struct aio_device *device = &aio_devices[aio_pass_device(pass)];
    if (!stream)
        return NULL;
    stream->handle = handle;
    stream->device = aio_pass_device(pass);
    stream->generation = aio_pass_generation(pass);
    atomic_init(&stream->references, 2); /* the handle's and the device's list */
    stream->marks_end = &stream->marks;
    stream->landings_end = &stream->landings;
    aio_lock_take(&device->lock);
    stream->number = ++device->stream_numbers;
    stream->listed = true;
    stream->next = device->streams;
    device->streams = stream;
    aio_lock_give(&device->lock);
    return stream;
}

void aio_stream_hold(aio_stream *stream) {
    atomic_fetch_add(&stream->references, 1);
}

void aio_stream_unhold(aio_stream *stream) {
    if (atomic_fetch_sub(&stream->references, 1) != 1)
        return;
    aio_stream_empty(stream);
    free(stream);
}

static bool unlink_stream(aio_stream *stream) {
    struct aio_device *device = &aio_devices[stream->device];
    aio_lock_take(&device->lock);
    bool found = stream->listed;
    aio_stream **link = &device->streams;
    while (found && *link != stream)
        link = &(*link)->next;
    if (found)
        *link = stream->next;
    stream->listed = false;
    aio_lock_give(&device->lock);
    return found;
}

bool aio_stream_use(aio_stream *stream) {
    atomic_fetch_add(&stream->callers, 1);
    if (!atomic_load(&stream->dropped))
        return true;
    atomic_fetch_sub(&stream->callers, 1);
    return false;
}

void aio_stream_unuse(aio_stream *stream) {
    atomic_fetch_sub(&stream->callers, 1);
}

/* A forked child leaves the lists as the fork found them. */
void aio_stream_drop(aio_stream *stream) {
    if (atomic_load(&aio_in_child))
        return;
    atomic_store(&stream->dropped, true);
    if (unlink_stream(stream))
        aio_stream_unhold(stream);
    aio_stream_unhold(stream);
}

/* --- asking ------------------------------------------------------------------ */
static void keep_verdict(aio_stream *stream, int32_t code, uint64_t to) {
    uint64_t from = atomic_load(&stream->collected);
    if (code)
        aio_keep_text();
    if (code)
        aio_stream_judge(stream, from, to, code, aio_error_text());
}

aio_event *aio_stream_mark_for(aio_stream *stream, uint64_t position) {
    aio_lock_take(&stream->lock);
    aio_event *mark = stream->marks;
    while (mark && mark->position < position)
        mark = mark->next;
    if (mark)
        aio_event_hold(mark);
    aio_lock_give(&stream->lock);
    return mark;
}

bool aio_stream_current(const aio_stream *stream) {
    uint64_t word = aio_gate_word(stream->device);
    int state = aio_word_state(word);
    return aio_word_generation(word) == stream->generation && !(aio_word_flags(word) & AIO_FOREIGN) &&
           (state == AIO_OPEN || state == AIO_DRAINING) && !atomic_load(&stream->aborting);
}

/* "Complete" is not "success": synchronizing returns at once now, and in STOP mode it carries the code. */
static int ask_mark(aio_stream *stream, aio_event *mark, bool *done) {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    int before = aio_calling(AIO_FN_aclrtQueryEventStatus);
    int code = aio_acl.aclrtQueryEventStatus(mark->handle, &status);
    *done = code == 0 && status == ACL_EVENT_RECORDED_STATUS_COMPLETE;
    if (*done) {
        aio_calling(AIO_FN_aclrtSynchronizeEvent);
        code = aio_acl.aclrtSynchronizeEvent(mark->handle);
    }
    aio_calling(before);
    if (!*done)
        return code;
    *done = aio_stream_current(stream);
    if (*done)
        keep_verdict(stream, code, mark->position);
    if (*done)
        aio_stream_finish(stream, mark->position);
    return 0;
}

int aio_stream_ask_marks(aio_stream *stream) {
    for (;;) {
        aio_event *mark = aio_stream_mark_for(stream, 0);
        bool done = false;
        if (!mark)
            return 0;
        int code = ask_mark(stream, mark, &done);
        aio_event_drop(mark);
        if (!done)
            return code;
    }
}

static bool take_owner(aio_stream *stream, uint32_t as) {
    uint32_t nobody = AIO_NOBODY;
    return atomic_compare_exchange_strong(&stream->owner, &nobody, as);
}

static void give_owner(aio_stream *stream) {
    atomic_store_explicit(&stream->owner, AIO_NOBODY, memory_order_release);
}

/* 1 idle, 0 busy, or the code that the query answered. */
static int idle(aio_stream *stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    int before = aio_calling(AIO_FN_aclrtStreamQuery);
    int code = aio_acl.aclrtStreamQuery(stream->handle, &status);
    aio_calling(before);
    return code ? code : status == ACL_STREAM_STATUS_COMPLETE;
}

static int32_t synchronize(aio_stream *stream) {
    int before = aio_calling(AIO_FN_aclrtSynchronizeStream);
    int32_t code = aio_acl.aclrtSynchronizeStream(stream->handle);
    aio_calling(before);
    return code;
}

/*
 * A query that fails ends the waits, for nobody can say more; but the device may still be at work, so nothing
 * is given back: what the work needs stays until the stream is seen idle, or the device is reset.
 */
void aio_stream_condemn(aio_stream *stream, int32_t code) {
    uint64_t tail = atomic_load(&stream->tail);
    keep_verdict(stream, code, tail);
    aio_raise(&stream->condemned, tail);
}

/*
 * Nobody can enqueue while the collector owns the stream, so an idle stream stays idle and the synchronize
 * returns at once; without that, it would park in C behind whatever was enqueued in between.
 */
static bool collect_all(aio_stream *stream) {
    uint64_t tail = atomic_load(&stream->tail);
    int answer = idle(stream);
    int32_t code = answer == 1 ? synchronize(stream) : 0;
    if (answer == 0 || !aio_stream_current(stream))
        return false;
    if (answer != 1) {
        aio_stream_condemn(stream, answer);
        return false;
    }
    keep_verdict(stream, code, tail);
    aio_stream_finish(stream, tail);
    aio_raise(&stream->collected, tail);
    return true;
}

static bool collect_asking(aio_stream *stream) {
    if (idle(stream) == 0 || !take_owner(stream, AIO_COLLECTOR))
        return false;
    bool done = collect_all(stream);
    give_owner(stream);
    return done;
}

/* The runtime hands a code to one, some or all of those who synchronize: so there is only ever one. */
static bool collect_used(aio_stream *stream) {
    if (atomic_exchange(&stream->asking, true))
        return false;
    bool done = collect_asking(stream);
    atomic_store(&stream->asking, false);
    return done;
}

bool aio_stream_collect(aio_stream *stream) {
    if (atomic_load(&stream->collected) == atomic_load(&stream->tail))
        return true;
    if (!aio_stream_use(stream))
        return false;
    bool done = collect_used(stream);
    aio_stream_unuse(stream);
    return done;
}

/*
 * The owner word stays taken for ever: whoever would enqueue sees that the stream is dropped.  A stream that
 * cannot be asked is not destroyed, for a busy one never returns; it stays until a reset, and this says why.
 */
static int destroy_owned(aio_stream *stream) {
    int answer = idle(stream);
    atomic_store(&stream->dropped, true);
    if (atomic_load(&stream->callers) == 0 && collect_all(stream)) {
        aio_stream_deliver(stream);
        return 0;
    }
    atomic_store(&stream->dropped, false);
    give_owner(stream);
    return answer == 0 || answer == 1 ? AIO_PENDING : answer;
}

int aio_stream_destroy(aio_stream *stream) {
    aio_frame frame;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_LIFETIME, AIO_FN_aclrtDestroyStream);
    if (code)
        return code;
    code = atomic_load(&stream->dropped) ? AIO_STALE : AIO_PENDING;
    if (code == AIO_PENDING && take_owner(stream, AIO_COLLECTOR))
        code = destroy_owned(stream);
    bool gone = code == 0;
    if (gone)
        code = aio_acl.aclrtDestroyStream(stream->handle);
    aio_end(&frame, code > 0 ? code : 0);
    if (gone && unlink_stream(stream))
        aio_stream_unhold(stream);
    return code;
}

static aio_result poll_inside(aio_stream *stream, uint64_t position) {
    aio_result result;
    if (aio_stream_collect(stream) && !aio_stream_has_bytes(stream))
        aio_stream_deliver(stream);
    return aio_stream_over(stream, position, &result) ? result : aio_failed(AIO_PENDING);
}

aio_result aio_stream_poll(aio_stream *stream, uint64_t position) {
    aio_frame frame;
    aio_result result = aio_stream_known(stream, position);
    if (result != aio_failed(AIO_PENDING))
        return result;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamQuery);
    if (code)
        return aio_failed(code);
    result = poll_inside(stream, position);
    aio_end(&frame, 0);
    return result;
}

static int query_inside(aio_stream *stream, uint64_t position) {
    int code = aio_stream_ask_marks(stream);
    if (code == 0 && atomic_load(&stream->finished) < position && aio_stream_use(stream)) {
        uint64_t tail = atomic_load(&stream->tail);
        int answer = idle(stream);
        if (answer == 1 && aio_stream_current(stream))
            aio_stream_finish(stream, tail);
        else if (answer != 1)
            code = answer;
        aio_stream_unuse(stream);
    }
    aio_stream_deliver(stream);
    return code ? code : atomic_load(&stream->completed) >= position;
}

int aio_stream_query(aio_stream *stream, uint64_t position) {
    aio_frame frame;
    if (atomic_load(&stream->completed) >= position)
        return 1;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamQuery);
    if (code)
        return code;
    code = query_inside(stream, position);
    aio_end(&frame, code == 1 ? 0 : code);
    return code;
}
