/*
 * Borrowed streams: records of native streams that other code owns.
 *
 * The owner may destroy the stream at any time, and the runtime gives the handle to a new stream at once. So
 * the state callback ends the record before the stream is destroyed. Without the callback, the id of the stream
 * is compared before each enqueue. If work was not known to be done when the stream was destroyed, it counts as
 * dropped: after a forced destroy, the events read as complete although the work was dropped.
 *
 * A mark on a borrowed stream is a plain event. If the owner captures the stream, the runtime refuses to record
 * it, while it would add an event of aclrtCreateEventExWithFlag to the owner's graph.
 *
 * A borrowed event is the only mark of a record without a native stream.
 */
#include "internal.h"

static atomic_bool told; /* the callback is registered */

void aio_told_of_streams(bool registered) {
    atomic_store(&told, registered);
}

int aio_stream_capture_code(const aio_stream *stream) {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    aclmdlRI model = NULL;
    if (!aio_present[AIO_FN_aclmdlRICaptureGetInfo]) {
        return 0;
    }
    int code = aio_acl.aclmdlRICaptureGetInfo(stream->handle, &status, &model);
    return code == 0 && status != ACL_MODEL_RI_CAPTURE_STATUS_NONE ? RT_STREAM_CAPTURED : code;
}

/* Whether the handle belongs to another stream by now. With the callback, the record has ended then. */
static int stale_code(const aio_stream *stream) {
    int32_t id = -1;
    if (atomic_load(&told)) {
        return 0;
    }
    int code = aio_present[AIO_FN_aclrtStreamGetId] ? aio_acl.aclrtStreamGetId(stream->handle, &id) : 0;
    return code ? code : aio_present[AIO_FN_aclrtStreamGetId] && id != stream->id ? AIO_STALE : 0;
}

static int use_context(void *context) {
    int code = aio_acl.aclrtSetCurrentContext(context);
    return code == RT_PARAM_INVALID ? RT_CONTEXT_NULL : code;
}

int aio_borrowed_enter(const aio_stream *stream) {
    if (atomic_load(&stream->dropped)) {
        return AIO_STALE;
    }
    int code = use_context(stream->context);
    if (code == 0) {
        code = stale_code(stream);
    }
    if (code == 0) {
        code = aio_stream_capture_code(stream);
    }
    if (code) {
        aio_keep_text();
        aio_borrowed_leave(stream);
    }
    return code;
}

void aio_borrowed_bind(const aio_stream *stream) {
    use_context(stream->context);
}

void aio_borrowed_leave(const aio_stream *stream) {
    use_context(atomic_load(&aio_devices[stream->device].context));
}

/* Work that is done keeps its outcome. Returns whether the gate admits the queries: if it does not, a reset
 * destroys the stream, and the record is stale. */
static bool ask(aio_stream *stream) {
    aio_frame frame;
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtQueryEventStatus)) {
        return false;
    }
    aio_stream_ask_marks(stream);
    aio_end(&frame, 0);
    return true;
}

/* A thread that owns the record has perhaps checked it, and is about to pass the handle to the runtime. If the
 * thread is blocked in the runtime, for example because the queue is full, the owner of the stream goes on. */
static void await_enqueuer(const aio_stream *stream) {
    int64_t limit = aio_now_us() + AIO_FOREIGN_GRACE_US;
    for (unsigned turn = 0; atomic_load(&stream->owner) == AIO_ENQUEUER && aio_now_us() < limit; turn++) {
        aio_pause(turn);
    }
}

static void end(aio_stream *stream) {
    if (!ask(stream) || atomic_exchange(&stream->dropped, true)) {
        return;
    }
    await_enqueuer(stream);
    if (aio_stream_is_event(stream)) {
        aio_borrowed_event_drop(stream);
    }
    atomic_fetch_add(&stream->aborts, 1);
    uint64_t from = atomic_load(&stream->finished), tail = atomic_load(&stream->tail);
    aio_stream_dropped(stream, from, tail);
    aio_stream_finish(stream, tail);
    atomic_fetch_add(&stream->aborts_ended, 1);
    aio_stream_deliver(stream);
    atomic_store(&aio_devices[stream->device].look_at_all, true);
    aio_watcher_wake(stream->device);
}

void aio_borrowed_ends(aclrtStream handle) {
    for (int device = 0; device < AIO_DEVICES; device++) {
        for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
            if (stream->borrowed && stream->handle == handle) {
                end(stream);
            }
        }
    }
}

/* The runtime crashes if an event is queried between a reset of its context and the next set. */
void aio_borrowed_reset(int device) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (aio_stream_is_event(stream)) {
            end(stream);
        }
    }
}

void aio_borrowed_event_drop(aio_stream *stream) {
    aio_event *mark = aio_stream_mark_for(stream, 0);
    if (mark) {
        aio_event_unwrap(mark);
        aio_event_drop(mark);
    }
}

int aio_stream_is_borrowed(const aio_stream *stream) {
    return stream->borrowed;
}

/* The native stream of a record exists while the record is in use, and while the cache has it. */
static bool owns(const aio_stream *stream, uint32_t generation) {
    uint32_t owner = atomic_load(&stream->owner);
    bool kept = owner == AIO_KEPT || owner == AIO_KEPT_BUSY;
    return !stream->borrowed && stream->generation == generation && (kept || !atomic_load(&stream->dropped));
}

int aio_stream_is_ours(aclrtStream handle) {
    bool ours = false;
    for (int device = 0; device < AIO_DEVICES; device++) {
        uint32_t generation = aio_word_generation(aio_gate_word(device));
        for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
            ours = ours || (stream->handle == handle && owns(stream, generation));
        }
        const struct aio_device *self = &aio_devices[device];
        ours = ours || (atomic_load(&self->equipped) == generation && self->nudge_stream == handle);
    }
    return ours;
}
