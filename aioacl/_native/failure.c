/*
 * Failures: which positions of which streams they affect.
 *
 * A stream has two error records. `own` stores the first failure of the stream's own tasks. A stream waits for
 * work of other streams by aclrtStreamWaitEvent, and `inherited` stores the first failure of such work. In both
 * records, `from` is the first failed position. All later positions count as failed too, because they ran after
 * a failed task. An entry that waits for an event has a link to the stream that recorded the event (the
 * source). Failures of sources are copied along the links until no error record changes. This happens before
 * any caller gets the answer that the work after the links is complete (aio_failures_settle).
 *
 * A position is confirmed when it is known that it neither covers nor depends on failed work. A confirmed
 * position never fails later. With the runtime's callback, the answer "complete" confirms a position. There is
 * one exception: if a wait for an event exceeds its time limit, it fails without a callback. So a wait that
 * took longer than the shortest possible limit is confirmed by synchronizing. Without the callback, every
 * position is confirmed by synchronizing.
 *
 * One lock guards all links and error records. A thread takes it before a device's lock and a stream's lock. If
 * no task fails, aio_failures_settle costs two loads. Each wait for another stream also costs a link.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { NO_ID = -1 };

static aio_failure no_memory = {.references = 1, .code = AIO_NO_MEMORY, .stream = NO_ID};

aio_failure *aio_failure_new(const aio_stream *stream, uint64_t position, int32_t code) {
    aio_failure *failure = calloc(1, sizeof *failure);
    if (!failure) {
        no_memory.references++;
        return &no_memory;
    }
    *failure = (aio_failure){.references = 1, .code = code, .position = position};
    failure->device = stream->device;
    failure->generation = stream->generation;
    failure->stream = stream->id;
    failure->stops = atomic_load(&aio_devices[stream->device].stops) == stream->generation;
    return failure;
}

void aio_failure_keep_text(aio_failure *failure, const char *text) {
    if (!failure->text && text && *text && failure != &no_memory) {
        failure->text = strdup(text);
    }
}

/* An error record is replaced only by a record with an earlier `from`. It never covers a confirmed position. */
bool aio_failure_spoil(aio_stream *stream, aio_spot *spot, uint64_t from, aio_failure *failure) {
    uint64_t confirmed = atomic_load(&stream->confirmed);
    from = from > confirmed ? from : confirmed + 1;
    if (spot->failure && spot->from <= from) {
        return false;
    }
    failure->references++;
    aio_failure_drop(spot->failure);
    *spot = (aio_spot){from, failure};
    atomic_store(&stream->failed, true);
    return true;
}

/* Positions from `from` on never complete, because work that they wait for was dropped. */
void aio_failure_strand(aio_stream *stream, uint64_t from) {
    if (from < atomic_load(&stream->stranded)) {
        atomic_store(&stream->stranded, from);
    }
    aio_watcher_wake(stream->device);
}

/* Queues the failure for the maintenance thread, which reports it to the listeners. */
static void announce(aio_failure *failure) {
    struct aio_device *device = &aio_devices[failure->device];
    aio_failure **link = &device->failures;
    if (failure == &no_memory) {
        return;
    }
    while (*link) {
        link = &(*link)->next;
    }
    failure->references++;
    *link = failure;
    atomic_fetch_add(&device->announced, 1);
    aio_device_kick(failure->device, AIO_KICK_FAULT);
}

void aio_failure_record(aio_stream *stream, uint64_t from, int32_t code, const char *text) {
    aio_failure *failure = aio_failure_new(stream, from, code);
    aio_failure_keep_text(failure, text);
    if (aio_failure_spoil(stream, &stream->own, from, failure)) {
        failure->position = stream->own.from;
        announce(failure);
        aio_flight_note(AIO_FLIGHT_FAULT, stream->device, aio_flight_entry(stream, failure->position), code,
                        (uint32_t)stream->id);
    }
    aio_failure_drop(failure);
}

const aio_spot *aio_failure_spot(const aio_stream *stream, uint64_t position) {
    if (stream->own.failure && stream->own.from <= position) {
        return &stream->own;
    }
    if (stream->inherited.failure && stream->inherited.from <= position) {
        return &stream->inherited;
    }
    return NULL;
}

void aio_device_stops(int device, uint32_t generation) {
    atomic_store(&aio_devices[device].stops, generation);
}

int aio_note_stop(int device, uint32_t generation, int code) {
    if (code > AIO_LIMIT && aio_is_of_task(code) && code / 1000 == 507) {
        atomic_store(&aio_devices[device].stop_code, code);
        atomic_store(&aio_devices[device].stopped, generation);
    }
    return code;
}

int32_t aio_device_stop_code(int device, uint32_t generation) {
    const struct aio_device *self = &aio_devices[device];
    return generation && atomic_load(&self->stopped) == generation ? atomic_load(&self->stop_code) : 0;
}

/* Merges the two oldest ranges of dropped positions, and the positions between them, into one range. The
 * positions between them then count as dropped too: a wrong error is better than a lost error.
 */
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

static void list_aborted(aio_stream *stream, aio_aborted *aborted) {
    aborted->next = stream->aborted;
    stream->aborted = aborted;
    if (++stream->aborted_count > AIO_ABORTS_KEPT) {
        merge_oldest(stream);
    }
}

/* The positions between the ranges count as dropped too, for the same reason. */
static void widen(aio_aborted *range, uint64_t from, uint64_t to) {
    range->from = range->to && range->from < from ? range->from : from;
    range->to = range->to > to ? range->to : to;
}

void aio_stream_note_abort(aio_stream *stream, uint64_t from, uint64_t to) {
    if (from >= to) {
        return;
    }
    aio_aborted *aborted = calloc(1, sizeof *aborted);
    aio_lock_take(&stream->lock);
    widen(aborted ? aborted : &stream->unlisted, from, to);
    if (aborted) {
        list_aborted(stream, aborted);
    }
    aio_lock_give(&stream->lock);
}

static bool covers(const aio_aborted *range, uint64_t position) {
    return position > range->from && position <= range->to;
}

bool aio_stream_was_aborted(aio_stream *stream, uint64_t position) {
    aio_lock_take(&stream->lock);
    bool found = covers(&stream->unlisted, position);
    for (const aio_aborted *aborted = stream->aborted; aborted && !found; aborted = aborted->next) {
        found = covers(aborted, position);
    }
    aio_lock_give(&stream->lock);
    return found;
}
