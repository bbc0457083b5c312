/*
 * How far a stream is, what was dropped by aborts, how waits end, and which bytes are still to be delivered.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* --- lists -------------------------------------------------------------------- */
static void free_marks(aio_event *mark) {
    while (mark) {
        aio_event *next = mark->next;
        aio_event_drop(mark);
        mark = next;
    }
}

void aio_landings_free(int device, aio_landing *landing) {
    while (landing) {
        aio_landing *next = landing->next;
        aio_stage_release(device, landing->slot);
        free(landing);
        landing = next;
    }
}

static void free_aborted(aio_aborted *aborted) {
    while (aborted) {
        aio_aborted *next = aborted->next;
        free(aborted);
        aborted = next;
    }
}

void aio_stream_empty(aio_stream *stream) {
    free_marks(stream->marks);
    aio_landings_leave(stream->device, stream->landings);
    free_aborted(stream->aborted);
    aio_stream_forget_failures(stream);
}

aio_landing *aio_stream_forsake(aio_stream *stream) {
    for (unsigned turn = 0; atomic_exchange(&stream->delivering, true); turn++) {
        aio_pause(turn);
    }
    aio_lock_take(&stream->lock);
    aio_landing *landings = stream->landings;
    stream->landings = NULL;
    stream->landings_end = &stream->landings;
    aio_lock_give(&stream->lock);
    atomic_store(&stream->delivering, false);
    return landings;
}

/* --- how far, and how it ended ------------------------------------------------ */
void aio_raise(_Atomic uint64_t *value, uint64_t position) {
    uint64_t seen = atomic_load(value);
    while (seen < position && !atomic_compare_exchange_weak(value, &seen, position)) {
        continue;
    }
}

static aio_event *take_marks(aio_stream *stream, uint64_t position) {
    aio_event *gone = NULL, **gone_end = &gone;
    aio_lock_take(&stream->lock);
    aio_raise(&stream->finished, position);
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

void aio_stream_finish(aio_stream *stream, uint64_t position) {
    aio_failures_settle();
    if (atomic_load(&stream->finished) < position) {
        atomic_fetch_add_explicit(&aio_devices[stream->device].progress, 1, memory_order_relaxed);
    }
    free_marks(take_marks(stream, position));
    aio_stream_confirm(stream, position);
}

/* --- aborts --------------------------------------------------------------------- */
/* The two oldest become one, with what is between them: rather an error too many than one lost. */
static void merge_oldest(aio_stream *stream) {
    aio_aborted *second = stream->aborted;
    while (second->next->next) {
        second = second->next;
    }
    second->from = second->next->from;
    free(second->next);
    second->next = NULL;
    stream->aborted_count--;
}

void aio_stream_note_abort(aio_stream *stream, uint64_t from, uint64_t to) {
    aio_aborted *aborted = from < to ? calloc(1, sizeof *aborted) : NULL;
    if (!aborted) {
        return;
    }
    aio_lock_take(&stream->lock);
    *aborted = (aio_aborted){stream->aborted, from, to};
    stream->aborted = aborted;
    if (++stream->aborted_count > AIO_ABORTS_KEPT) {
        merge_oldest(stream);
    }
    aio_lock_give(&stream->lock);
}

bool aio_stream_was_aborted(aio_stream *stream, uint64_t position) {
    bool found = false;
    aio_lock_take(&stream->lock);
    for (const aio_aborted *aborted = stream->aborted; aborted && !found; aborted = aborted->next) {
        found = position > aborted->from && position <= aborted->to;
    }
    aio_lock_give(&stream->lock);
    return found;
}

/* --- outcomes -------------------------------------------------------------------- */
static aio_result outcome(aio_stream *stream, uint64_t position) {
    int32_t code = aio_stream_error(stream, position, NULL);
    return code ? aio_failed(code) : (aio_result)position;
}

/* What has failed needs not be confirmed, and what is stranded or condemned does not complete. */
bool aio_stream_over(aio_stream *stream, uint64_t position, aio_result *result) {
    bool done = atomic_load(&stream->completed) >= position;
    bool confirmed = atomic_load(&stream->confirmed) >= position;
    bool hopeless = atomic_load(&stream->stranded) <= position || atomic_load(&stream->condemned) >= position;
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

/* --- delivery of staged downloads -------------------------------------------- */
static aio_landing *next_landing(aio_stream *stream) {
    aio_lock_take(&stream->lock);
    aio_landing *landing = stream->landings;
    if (landing && landing->position > atomic_load(&stream->finished)) {
        landing = NULL;
    }
    if (!landing) {
        aio_raise(&stream->completed, atomic_load(&stream->finished));
    }
    aio_lock_give(&stream->lock);
    return landing;
}

/* The slot first: who sees that a copy is done, and needs its staging memory, finds it. */
static void pop_landing(aio_stream *stream, aio_landing *landing) {
    aio_stage_release(stream->device, landing->slot);
    aio_lock_take(&stream->lock);
    stream->landings = landing->next;
    if (!stream->landings) {
        stream->landings_end = &stream->landings;
    }
    aio_raise(&stream->completed, landing->position);
    aio_lock_give(&stream->lock);
    free(landing);
}

static bool undelivered(aio_stream *stream) {
    aio_lock_take(&stream->lock);
    uint64_t finished = atomic_load(&stream->finished);
    bool some = stream->landings && stream->landings->position <= finished;
    some = some || atomic_load(&stream->completed) < finished;
    aio_lock_give(&stream->lock);
    return some;
}

void aio_stream_deliver(aio_stream *stream) {
    while (undelivered(stream) && !atomic_exchange(&stream->delivering, true)) {
        for (aio_landing *landing; (landing = next_landing(stream));) {
            bool failed = aio_stream_error(stream, landing->position, NULL) != 0;
            if (landing->target && !failed) {
                memcpy(landing->target, landing->slot, landing->count);
            }
            pop_landing(stream, landing);
        }
        atomic_store(&stream->delivering, false);
    }
}

/* Bytes to copy are the watcher's; without any, publishing `completed` costs nothing. */
bool aio_stream_has_bytes(aio_stream *stream) {
    bool some = false;
    aio_lock_take(&stream->lock);
    uint64_t finished = atomic_load(&stream->finished);
    for (aio_landing *l = stream->landings; l && l->position <= finished && !some; l = l->next) {
        some = l->target != NULL;
    }
    aio_lock_give(&stream->lock);
    return some;
}
