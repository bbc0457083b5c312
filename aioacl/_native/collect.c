/*
 * The failures that callers get: by position, by stream, and for the listeners of a device.
 */
#include <string.h>

#include "internal.h"

enum { NO_ID = -1 };

static int32_t describe(aio_failure *failure, bool own, aio_error *out) {
    if (!out) {
        return failure->code;
    }
    failure->collected = true;
    *out = (aio_error){.code = failure->code, .device = failure->device, .stream = failure->stream};
    out->position = failure->position;
    out->own = own;
    out->stops = failure->stops || aio_device_stop_code(failure->device, failure->generation) != 0;
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
 * Else returns 0. A failure after the last position of a borrowed stream is one of its owner, and no await of
 * aioacl covers it. */
int aio_stream_uncollected(aio_stream *stream, aio_error *out) {
    aio_failures_settle();
    aio_failures_lock();
    aio_failure *failure = stream->own.failure;
    bool of_owner = failure && stream->borrowed && failure->position > atomic_load(&stream->tail);
    int found = failure && !failure->collected && !of_owner;
    if (found) {
        describe(failure, true, out);
    }
    aio_failures_unlock();
    return found;
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
