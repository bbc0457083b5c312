/*
 * The engine's record of a stream: the references to it, the device's list of records, and its end.
 *
 * The last reference may be dropped under the lock of the failures, which freeing a record takes. So this lock
 * is here too.
 */
#include <stdlib.h>

#include "internal.h"

static aio_lock failures;
static _Thread_local bool inside; /* this thread has the lock */
static _Atomic(aio_stream *) to_free;

bool aio_stream_use(aio_stream *stream) {
    atomic_fetch_add(&stream->callers, 1);
    if (!atomic_load(&stream->dropped)) {
        return true;
    }
    atomic_fetch_sub(&stream->callers, 1);
    return false;
}

void aio_stream_unuse(aio_stream *stream) {
    atomic_fetch_sub(&stream->callers, 1);
}

void aio_stream_hold(aio_stream *stream) {
    atomic_fetch_add(&stream->references, 1);
}

void aio_marks_free(aio_event *mark) {
    while (mark) {
        aio_event *next = mark->next;
        aio_event_drop(mark);
        mark = next;
    }
}

void aio_staged_copies_free(int device, aio_staged_copy *staged_copy) {
    while (staged_copy) {
        aio_staged_copy *next = staged_copy->next;
        aio_stage_release(device, staged_copy->slot);
        free(staged_copy);
        staged_copy = next;
    }
}

/* True if no work of the generation can run any more. A foreign reset raises the generation before the
 * tear-down, while work of the older generation may still be running. */
bool aio_work_is_gone(int device, uint32_t generation) {
    uint64_t word = aio_gate_word(device);
    int state = aio_word_state(word);
    return aio_word_generation(word) != generation && !(aio_word_flags(word) & AIO_FOREIGN) &&
           (state == AIO_OPEN || state == AIO_DRAINING || state == AIO_CLOSED);
}

static void leave_one(int device, aio_staged_copy *staged_copy) {
    struct aio_device *self = &aio_devices[device];
    staged_copy->next = NULL;
    if (aio_work_is_gone(device, staged_copy->generation)) {
        aio_staged_copies_free(device, staged_copy);
        return;
    }
    aio_lock_take(&self->lock);
    staged_copy->next = self->left;
    self->left = staged_copy;
    aio_lock_give(&self->lock);
}

void aio_staged_copies_leave(int device, aio_staged_copy *staged_copy) {
    while (staged_copy) {
        aio_staged_copy *next = staged_copy->next;
        leave_one(device, staged_copy);
        staged_copy = next;
    }
}

static void free_aborted(aio_aborted *aborted) {
    while (aborted) {
        aio_aborted *next = aborted->next;
        free(aborted);
        aborted = next;
    }
}

void aio_failure_drop(aio_failure *failure) {
    if (!failure || --failure->references) {
        return;
    }
    free(failure->text);
    free(failure);
}

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

void aio_links_free(aio_link *link) {
    while (link) {
        aio_link *next = link->next;
        if (link->source) {
            aio_stream_unhold(link->source);
        }
        free(link);
        link = next;
    }
}

void aio_stream_forget_failures(aio_stream *stream) {
    aio_links_free(atomic_load(&stream->links));
    aio_failures_lock();
    aio_failure_drop(stream->own.failure);
    aio_failure_drop(stream->inherited.failure);
    aio_failures_unlock();
}

void aio_stream_empty(aio_stream *stream) {
    aio_marks_free(stream->marks);
    aio_staged_copies_leave(stream->device, stream->staged_copies);
    free_aborted(stream->aborted);
    aio_stream_forget_failures(stream);
}

/* Ends the ranges of executions whose end was not seen, for example because of a reset. */
static void end_ranges(aio_stream *stream) {
    _Atomic uint64_t *ranges = atomic_load(&stream->ranges);
    for (int at = 0; ranges && at < AIO_RING; at++) {
        aio_range_end(atomic_load(&ranges[at]));
    }
    free(ranges);
}

void aio_stream_free(aio_stream *stream) {
    aio_stream_empty(stream);
    end_ranges(stream);
    free(atomic_load(&stream->runners));
    free(stream);
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

void aio_stream_unhold(aio_stream *stream) {
    if (atomic_fetch_sub(&stream->references, 1) == 1) {
        aio_stream_free_unlocked(stream);
    }
}

/* Returns the stream after `previous`. The list is in the order of the streams' numbers, so the next stream can
 * be found even if `previous` is no longer in the list. */
static aio_stream *following(const struct aio_device *self, const aio_stream *previous) {
    if (previous && previous->listed) {
        return previous->next;
    }
    aio_stream *stream = self->streams;
    while (previous && stream && stream->number >= previous->number) {
        stream = stream->next;
    }
    return stream;
}

aio_stream *aio_device_next(int device, aio_stream *previous) {
    struct aio_device *self = &aio_devices[device];
    aio_lock_take(&self->lock);
    aio_stream *stream = following(self, previous);
    if (stream) {
        aio_stream_hold(stream);
    }
    aio_lock_give(&self->lock);
    if (previous) {
        aio_stream_unhold(previous);
    }
    return stream;
}
