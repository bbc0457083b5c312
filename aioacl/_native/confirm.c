/*
 * Confirms positions by synchronizing, on a thread that may wait.
 *
 * The runtime returns the code of a failure without a report only once: to the first synchronize that covers
 * the failed work. So at most one thread at a time synchronizes a stream. The call has a time limit. Without a
 * limit it may spin for ever on a stream to which other threads enqueue, and so delay a reset. A reset by
 * aioacl waits until the call has returned. An abort of the stream makes the call return at once.
 *
 * The runtime may crash if other code resets the device while a thread is in this call. If the runtime can
 * abort no stream, only the time limit ends the call. So one call (a slice) is shorter than the time for which
 * the callback of a foreign reset waits. It is not much shorter, because a timeout is expensive: the runtime
 * makes a hidden stream, and logs.
 */
#include <time.h>

#include "internal.h"

enum { SLICE_MS = 500, NAP_NS = 200000 };

_Static_assert(2 * SLICE_MS * 1000 <= AIO_FOREIGN_GRACE_US, "a slice ends while a foreign reset waits");

static void nap(void) {
    struct timespec time = {0, NAP_NS};
    nanosleep(&time, NULL);
}

/* Whether the code of a synchronize shows the outcome of the work. If an abort began or was in progress during
 * the synchronize, the code does not show the outcome. The abort itself records the work that it drops. */
static bool concludes(const aio_stream *stream, int32_t code, unsigned aborts) {
    if (code == RT_STREAM_SYNC_TIMEOUT || !aio_is_of_task(code)) {
        return false;
    }
    return aio_stream_current(stream) && atomic_load(&stream->aborts) == aborts;
}

/* `shared`: a wait for the whole device was in progress too, and may have taken the code. Then the code 0 does
 * not show a success until the code of that wait is known (aio_device_sync_end). */
static bool conclude(aio_stream *stream, uint64_t to, int32_t code, unsigned aborts, bool shared) {
    if (code) {
        aio_keep_text();
    }
    if (!concludes(stream, code, aborts)) {
        return false;
    }
    if (code == 0 && shared) {
        aio_atomic_max(&stream->presumed, to);
        aio_stream_finish(stream, to);
        return false;
    }
    aio_stream_synced(stream, to, code, code ? aio_error_text() : NULL);
    if (code == 0) {
        aio_stream_finish(stream, to);
    }
    return true;
}

bool aio_stream_sync(aio_stream *stream) {
    if (stream->borrowed || atomic_exchange(&stream->asking, true)) {
        return false;
    }
    uint64_t tail = atomic_load(&stream->tail);
    unsigned aborts = atomic_load(&stream->aborts_ended);
    const struct aio_device *device = &aio_devices[stream->device];
    unsigned syncs = atomic_load(&device->syncs);
    aio_keep_text(); /* drops the unread text of an earlier call */
    int before = aio_calling(AIO_FN_aclrtSynchronizeStreamWithTimeout);
    int32_t code = aio_acl.aclrtSynchronizeStreamWithTimeout(stream->handle, SLICE_MS);
    aio_calling(before);
    aio_note_end(stream->device, stream->generation, code);
    bool shared = syncs % 2 || atomic_load(&device->syncs) != syncs;
    bool useful = conclude(stream, tail, code, aborts, shared);
    atomic_store(&stream->asking, false);
    return useful;
}

bool aio_stream_sync_once(aio_stream *stream) {
    aio_frame frame;
    int function = AIO_FN_aclrtSynchronizeStreamWithTimeout;
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, function)) {
        return false;
    }
    bool used = aio_stream_use(stream);
    if (used && !aio_stream_sync(stream)) {
        nap();
    }
    if (used) {
        aio_stream_unuse(stream);
    }
    aio_end(&frame, 0);
    return used;
}

/* Synchronizes for one slice. False if no synchronize is needed, if the gate refuses the call, or if the native
 * stream is destroyed. */
static bool slice(aio_stream *stream) {
    return aio_stream_needs_sync(stream) && aio_stream_sync_once(stream);
}

/* Confirms the position, without the streams that it depends on. Also delivers the bytes of finished downloads,
 * because a caller that only polls leaves this to the thread that waits. */
static void confirm_alone(aio_stream *stream, uint64_t position, bool aside) {
    (void)aside; /* this thread may wait */
    aio_frame frame;
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamQuery)) {
        return;
    }
    aio_stream_ask_marks(stream);
    aio_stream_deliver(stream);
    aio_end(&frame, 0);
    if (atomic_load(&stream->finished) < position) {
        return;
    }
    aio_stream_confirm(stream, atomic_load(&stream->finished));
    aio_result result;
    while (!aio_stream_over(stream, position, &result) && slice(stream)) {
        continue;
    }
}

void aio_stream_confirm_here(aio_stream *stream, uint64_t position) {
    aio_links_follow(stream, position, confirm_alone, false);
    confirm_alone(stream, position, false);
}

static void *confirm_aside(void *argument) {
    aio_stream *stream = argument;
    while (slice(stream)) {
        continue;
    }
    atomic_store(&stream->confirming, false);
    aio_watcher_wake(stream->device);
    aio_stream_unhold(stream);
    return NULL;
}

/* If no thread can be started, the watcher's next round tries again. */
void aio_stream_confirm_aside(aio_stream *stream) {
    if (atomic_exchange(&stream->confirming, true)) {
        return;
    }
    aio_stream_hold(stream);
    if (aio_spawn("aioacl-confirm", confirm_aside, stream) == 0) {
        return;
    }
    atomic_store(&stream->confirming, false);
    aio_stream_unhold(stream);
}
