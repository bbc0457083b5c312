/*
 * Which positions of a stream are done or were dropped, which waits have ended, and which bytes are still to be
 * delivered.
 */
#include <stdlib.h>

#include "internal.h"

aio_staged_copy *aio_stream_drop_stale(aio_stream *stream) {
    for (unsigned turn = 0; atomic_exchange(&stream->delivering, true); turn++) {
        aio_pause(turn);
    }
    aio_lock_take(&stream->lock);
    aio_staged_copy *staged_copies = stream->staged_copies;
    stream->staged_copies = NULL;
    stream->staged_copies_end = &stream->staged_copies;
    aio_lock_give(&stream->lock);
    atomic_store(&stream->delivering, false);
    return staged_copies;
}

static aio_event *take_marks(aio_stream *stream, uint64_t position) {
    aio_event *gone = NULL, **gone_end = &gone;
    aio_lock_take(&stream->lock);
    aio_atomic_max(&stream->finished, position);
    while (stream->marks && stream->marks->position <= position) {
        aio_event *mark = stream->marks;
        stream->marks = mark->next;
        if (!stream->marks) {
            stream->marks_end = &stream->marks;
        }
        mark->next = NULL;
        *gone_end = mark;
        gone_end = &mark->next;
    }
    aio_lock_give(&stream->lock);
    return gone;
}

/* Records the ends of the executions up to the position. Of several threads that find an end, one records it.
 */
static void note_executions(aio_stream *stream, uint64_t position) {
    const _Atomic uint32_t *runners = atomic_load_explicit(&stream->runners, memory_order_acquire);
    uint64_t from = atomic_load_explicit(&stream->noted_to, memory_order_relaxed);
    if (!runners || from >= position || !atomic_compare_exchange_strong(&stream->noted_to, &from, position)) {
        return;
    }
    _Atomic uint64_t *ranges = atomic_load_explicit(&stream->ranges, memory_order_acquire);
    for (uint64_t at = position - from > AIO_RING ? position - AIO_RING : from; at++ < position;) {
        if (atomic_load_explicit(&runners[at % AIO_RING], memory_order_relaxed)) {
            aio_flight_note(AIO_FLIGHT_EXECUTION_ENDS, stream->device, aio_flight_entry(stream, at), 0, 0);
            if (ranges) {
                aio_range_end(atomic_exchange(&ranges[at % AIO_RING], 0));
            }
        }
    }
}

void aio_stream_finish(aio_stream *stream, uint64_t position) {
    aio_failures_settle();
    if (atomic_load(&stream->finished) < position) {
        atomic_fetch_add_explicit(&aio_devices[stream->device].progress, 1, memory_order_relaxed);
    }
    aio_marks_free(take_marks(stream, position));
    aio_stream_confirm(stream, position);
    note_executions(stream, position);
}

static aio_result outcome(aio_stream *stream, uint64_t position) {
    int32_t code = aio_stream_error(stream, position, NULL);
    return code ? aio_failed(code) : (aio_result)position;
}

/* Whether a wait for the position has ended. A wait for a failed position ends before the position is
 * confirmed. A wait for a position that is stranded, or whose query has failed, ends before the position is
 * complete. */
bool aio_stream_over(aio_stream *stream, uint64_t position, aio_result *result) {
    bool done = atomic_load(&stream->completed) >= position;
    bool confirmed = atomic_load(&stream->confirmed) >= position;
    bool hopeless =
        atomic_load(&stream->stranded) <= position || atomic_load(&stream->waits_failed) >= position;
    if (!(done || (hopeless && !confirmed))) {
        return false;
    }
    *result = outcome(stream, position);
    return confirmed || *result < 0;
}

aio_result aio_stream_known(aio_stream *stream, uint64_t position) {
    aio_result result;
    return aio_stream_over(stream, position, &result) ? result : aio_failed(AIO_PENDING);
}

static aio_staged_copy *next_staged_copy(aio_stream *stream) {
    aio_lock_take(&stream->lock);
    aio_staged_copy *staged_copy = stream->staged_copies;
    if (staged_copy && staged_copy->position > atomic_load(&stream->finished)) {
        staged_copy = NULL;
    }
    if (!staged_copy) {
        aio_atomic_max(&stream->completed, atomic_load(&stream->finished));
    }
    aio_lock_give(&stream->lock);
    return staged_copy;
}

/* The slot is released first. So when a thread sees that the copy is done, its staging memory is already
 * free. */
static void pop_staged_copy(aio_stream *stream, aio_staged_copy *staged_copy) {
    aio_stage_release(stream->device, staged_copy->slot);
    aio_lock_take(&stream->lock);
    stream->staged_copies = staged_copy->next;
    if (!stream->staged_copies) {
        stream->staged_copies_end = &stream->staged_copies;
    }
    aio_atomic_max(&stream->completed, staged_copy->position);
    aio_lock_give(&stream->lock);
    free(staged_copy);
}

static bool undelivered(aio_stream *stream) {
    aio_lock_take(&stream->lock);
    uint64_t finished = atomic_load(&stream->finished);
    bool some = stream->staged_copies && stream->staged_copies->position <= finished;
    some = some || atomic_load(&stream->completed) < finished;
    aio_lock_give(&stream->lock);
    return some;
}

void aio_stream_deliver_each(aio_stream *stream, void (*after)(aio_watched *), aio_watched *watched) {
    while (undelivered(stream) && !atomic_exchange(&stream->delivering, true)) {
        for (aio_staged_copy *staged_copy; (staged_copy = next_staged_copy(stream));) {
            bool failed = aio_stream_error(stream, staged_copy->position, NULL) != 0;
            if (staged_copy->target && !failed) {
                aio_copy_bytes(staged_copy->target, staged_copy->slot, staged_copy->count);
            }
            pop_staged_copy(stream, staged_copy);
            after(watched);
        }
        atomic_store(&stream->delivering, false);
    }
}

static void nothing(aio_watched *watched) {
    (void)watched;
}

void aio_stream_deliver(aio_stream *stream) {
    aio_stream_deliver_each(stream, nothing, NULL);
}

/* Whether bytes of a finished download still have to be copied to their target. A caller that polls leaves this
 * copy to the watcher. If there are no such bytes, the caller publishes `completed` itself, because this costs
 * little. */
bool aio_stream_has_bytes(aio_stream *stream) {
    bool some = false;
    aio_lock_take(&stream->lock);
    uint64_t finished = atomic_load(&stream->finished);
    for (aio_staged_copy *l = stream->staged_copies; l && l->position <= finished && !some; l = l->next) {
        some = l->target != NULL;
    }
    aio_lock_give(&stream->lock);
    return some;
}
