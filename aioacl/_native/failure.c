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

static aio_lock failures;
static _Thread_local bool inside; /* this thread has the lock */
static _Atomic(aio_stream *) to_free;
static aio_failure no_memory = {.references = 1, .code = AIO_NO_MEMORY, .stream = NO_ID};

void aio_failures_lock(void) {
    aio_lock_take(&failures);
    inside = true;
}

/* Frees the streams whose last reference was dropped under the lock. Freeing a stream takes the lock, so the
 * streams could not be freed before. */
void aio_failures_unlock(void) {
    inside = false;
    aio_lock_give(&failures);
    aio_stream *dead = atomic_exchange(&to_free, NULL);
    while (dead) {
        aio_stream *next = dead->next;
        aio_stream_free(dead);
        dead = next;
    }
}

void aio_stream_free_unlocked(aio_stream *stream) {
    if (!inside) {
        aio_stream_free(stream);
        return;
    }
    stream->next = atomic_load(&to_free);
    while (!atomic_compare_exchange_weak(&to_free, &stream->next, stream)) {
        continue;
    }
}

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

void aio_failure_drop(aio_failure *failure) {
    if (!failure || --failure->references) {
        return;
    }
    free(failure->text);
    free(failure);
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
    aio_device_kick(failure->device, AIO_KICK_FAULT);
}

void aio_failure_record(aio_stream *stream, uint64_t from, int32_t code, const char *text) {
    aio_failure *failure = aio_failure_new(stream, from, code);
    aio_failure_keep_text(failure, text);
    if (aio_failure_spoil(stream, &stream->own, from, failure)) {
        failure->position = stream->own.from;
        announce(failure);
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

static int32_t describe(aio_failure *failure, bool own, aio_error *out) {
    if (!out) {
        return failure->code;
    }
    failure->collected = true;
    *out = (aio_error){.code = failure->code, .device = failure->device, .stream = failure->stream};
    out->position = failure->position;
    out->own = own;
    out->stops = failure->stops;
    out->generation = failure->generation;
    out->text[0] = 0;
    if (failure->text) {
        strncat(out->text, failure->text, sizeof out->text - 1);
    }
    return failure->code;
}

int32_t aio_stream_error(aio_stream *stream, uint64_t position, aio_error *out) {
    int32_t code = 0;
    if (out) {
        *out = (aio_error){.code = 0, .stream = NO_ID};
    }
    if (atomic_load(&stream->failed)) {
        aio_failures_lock();
        const aio_spot *spot = aio_failure_spot(stream, position);
        code = spot ? describe(spot->failure, spot == &stream->own, out) : 0;
        aio_failures_unlock();
    }
    if (!code && aio_stream_was_aborted(stream, position)) {
        code = RT_STREAM_ABORT;
    }
    if (out && !out->code) {
        out->code = code;
    }
    return code;
}

/* If the stream's own failure is not collected yet, describes it in `out`, marks it as collected and returns 1.
 * Else returns 0. */
int aio_stream_uncollected(aio_stream *stream, aio_error *out) {
    aio_failures_settle();
    aio_failures_lock();
    aio_failure *failure = stream->own.failure;
    int found = failure && !failure->collected;
    if (found) {
        describe(failure, true, out);
    }
    aio_failures_unlock();
    return found;
}

void aio_device_stops(int device, uint32_t generation) {
    atomic_store(&aio_devices[device].stops, generation);
}

int aio_device_take_failure(int device, aio_error *out) {
    aio_failures_settle();
    aio_failures_lock();
    aio_failure *failure = aio_devices[device].failures;
    if (failure) {
        bool collected = failure->collected;
        aio_devices[device].failures = failure->next;
        failure->next = NULL;
        describe(failure, true, out);
        failure->collected = collected;
        aio_failure_drop(failure);
    }
    aio_failures_unlock();
    return failure != NULL;
}

void aio_stream_forget_failures(aio_stream *stream) {
    aio_links_free(atomic_load(&stream->links));
    aio_failures_lock();
    aio_failure_drop(stream->own.failure);
    aio_failure_drop(stream->inherited.failure);
    aio_failures_unlock();
}
