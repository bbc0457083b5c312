/*
 * What the engine asks the runtime about a stream, without waiting, and whether the answer is valid. The
 * functions that call the runtime are called inside the gate.
 */
#include "internal.h"

uint32_t aio_last_task(void) {
    uint32_t id = 0;
    if (aio_present[AIO_FN_aclrtGetThreadLastTaskId]) {
        aio_acl.aclrtGetThreadLastTaskId(&id);
    }
    return id;
}

/* A borrowed stream is not queried, because its owner may enqueue for ever, capture it, or destroy it. */
int aio_stream_idle(aio_stream *stream) {
    if (stream->borrowed) {
        return atomic_load(&stream->finished) >= atomic_load(&stream->tail);
    }
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    int before = aio_calling(AIO_FN_aclrtStreamQuery);
    int code = aio_acl.aclrtStreamQuery(stream->handle, &status);
    aio_calling(before);
    aio_note_stop(stream->device, stream->generation, code);
    aio_note_end(stream->device, stream->generation, code);
    return code ? code : status == ACL_STREAM_STATUS_COMPLETE;
}

bool aio_stream_current(const aio_stream *stream) {
    uint64_t word = aio_gate_word(stream->device);
    int state = aio_word_state(word);
    unsigned ended = atomic_load(&stream->aborts_ended);
    return aio_word_generation(word) == stream->generation && !(aio_word_flags(word) & AIO_FOREIGN) &&
           (state == AIO_OPEN || state == AIO_DRAINING) && atomic_load(&stream->aborts) == ended;
}

aio_event *aio_stream_mark_for(aio_stream *stream, uint64_t position) {
    aio_lock_take(&stream->lock);
    aio_event *mark = stream->marks;
    while (mark && mark->position < position) {
        mark = mark->next;
    }
    if (mark) {
        aio_event_hold(mark);
    }
    aio_lock_give(&stream->lock);
    return mark;
}

static int query_event(aclrtEvent handle, aclrtEventRecordedStatus *status) {
    int before = aio_calling(AIO_FN_aclrtQueryEventStatus);
    int code = aio_acl.aclrtQueryEventStatus(handle, status);
    aio_calling(before);
    return code;
}

int aio_event_ask(aio_event *event, aclrtEventRecordedStatus *status) {
    aclrtEvent handle = aio_event_enter(event);
    if (!handle) {
        return 0;
    }
    int code = query_event(handle, status);
    aio_event_leave(event);
    return code;
}

static int ask_mark(aio_stream *stream, aio_event *mark, bool *done) {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    *done = false;
    if (!aio_may_ask(stream->device, stream->generation)) {
        return RT_CONTEXT_NULL;
    }
    bool theirs = mark->kind == AIO_THEIRS; /* its codes show nothing about the context of the device */
    int code = theirs ? aio_event_ask(mark, &status) : query_event(mark->handle, &status);
    if (!theirs) {
        aio_note_stop(stream->device, stream->generation, code);
        aio_note_end(stream->device, stream->generation, code);
    }
    *done = code == 0 && status == ACL_EVENT_RECORDED_STATUS_COMPLETE && aio_stream_current(stream);
    if (*done) {
        aio_stream_finish(stream, mark->position);
    }
    return code;
}

int aio_stream_ask_mark(aio_stream *stream, aio_event *mark, bool *done) {
    int code = ask_mark(stream, mark, done);
    aio_event_drop(mark);
    return code;
}

int aio_stream_ask_marks(aio_stream *stream) {
    for (;;) {
        aio_event *mark = aio_stream_mark_for(stream, 0);
        bool done = false;
        if (!mark) {
            return 0;
        }
        int code = aio_stream_ask_mark(stream, mark, &done);
        if (!done) {
            return code;
        }
    }
}
