/*
 * The runtime's lock on the streams of a context, the stream lock.
 *
 * Calls that create, destroy or abort a stream take the lock for a moment, and so does a reset.
 * aclrtSynchronizeDevice holds the lock until it returns. Without a time-out it may never return: it waits for
 * the last task that a stream has when the wait for this stream begins. If later tasks of the stream end before
 * the wait notices its task, the wait goes on although the stream is idle. Other libraries call it at any time.
 * A task that is enqueued later ends such a wait, and aclrtRecordEvent does not take the lock.
 *
 * So calls of the engine that take the lock are counted in `locking`. If such a call has been inside for a
 * second, the watcher records an event on each idle stream of the device, and repeats this while the call is
 * inside. These records have no position, because nothing waits for them and a record never fails.
 *
 * No record is made on a stream that is being destroyed, because its handle is invalid as soon as the call has
 * the lock. This is not needed either: a wait that begins after the last task of a stream was enqueued returns.
 * So before a stream is destroyed, another call must have had the lock since the last task was enqueued
 * (`passed`). If no call had it, the engine makes a stream for this purpose.
 */
#include "internal.h"

enum { PATIENCE_US = 1000000, AGAIN_US = 100000, PASSES = 16 };

/* Grows with each task that may have been enqueued on the stream. */
static uint64_t activity(const aio_stream *stream) {
    return atomic_load(&stream->tail) + atomic_load(&stream->manual) + atomic_load(&stream->roused);
}

static void note_activity(int device) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        atomic_store(&stream->noted, activity(stream));
    }
}

static void note_passed(int device) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        atomic_store(&stream->passed, atomic_load(&stream->noted));
    }
}

bool aio_stream_passed(const aio_stream *stream) {
    return atomic_load(&stream->passed) == activity(stream);
}

/* Of calls that overlap, only one notes the activity of the streams. */
bool aio_locking_begin(int device) {
    struct aio_device *self = &aio_devices[device];
    bool notes = !atomic_exchange(&self->noting, true);
    if (notes) {
        note_activity(device);
    }
    atomic_fetch_add(&self->locking, 1);
    aio_watcher_stir(device);
    return notes;
}

void aio_locking_end(int device, bool notes, int code) {
    struct aio_device *self = &aio_devices[device];
    if (notes && code == 0) {
        note_passed(device);
    }
    if (notes) {
        atomic_store(&self->noting, false);
    }
    atomic_fetch_add(&self->locked, 1);
    atomic_fetch_sub(&self->locking, 1);
}

int aio_stream_lock_create(int device, aclrtStream *made) {
    bool notes = aio_locking_begin(device);
    int code = aio_acl.aclrtCreateStream(made);
    aio_locking_end(device, notes, code);
    return code;
}

int aio_stream_lock_destroy(int device, aclrtStream stream) {
    bool notes = aio_locking_begin(device);
    int code = aio_acl.aclrtDestroyStream(stream);
    aio_locking_end(device, notes, code);
    return code;
}

/* Has the lock for a moment: makes a stream. Destroys the spare stream of an earlier call. */
static bool pass(int device, aclrtStream *spare) {
    aclrtStream earlier = *spare;
    *spare = NULL;
    int before = aio_calling(AIO_FN_aclrtCreateStream);
    int code = aio_stream_lock_create(device, spare);
    if (code) {
        aio_keep_text(); /* clears the text, which a later failure would get too */
        *spare = NULL;
    }
    aio_calling(before);
    aio_stream_lock_drop(device, earlier, 0);
    return code == 0;
}

bool aio_stream_pass_lock(aio_stream *stream, aclrtStream *spare) {
    uint64_t seen = activity(stream);
    bool done = pass(stream->device, spare);
    if (done) {
        atomic_store(&stream->passed, seen);
    }
    return done;
}

void aio_stream_lock_drop(int device, aclrtStream spare, int code) {
    if (!spare) {
        return;
    }
    if (code > 0) {
        aio_keep_text(); /* the text of the call that has returned the code, without that of the next call */
    }
    int before = aio_calling(AIO_FN_aclrtDestroyStream);
    aio_stream_lock_destroy(device, spare);
    aio_calling(before);
}

/* A full queue would block the record, so the stream must be idle. A stream that has failed may be idle too.
 * The record is counted after it was made, so it is seen as a task that may come after a call that began
 * before. */
static void record_on(aio_stream *stream) {
    aio_event *event = NULL;
    if (aio_stream_idle(stream) != 1 || aio_event_take(stream->device, stream->generation, false, &event)) {
        return;
    }
    int before = aio_calling(AIO_FN_aclrtRecordEvent);
    int code = aio_acl.aclrtRecordEvent(event->handle, stream->handle);
    aio_note_end(stream->device, stream->generation, code);
    aio_calling(before);
    if (code == 0) {
        atomic_store_explicit(&stream->last_task, aio_last_task(), memory_order_relaxed);
    }
    atomic_fetch_add(&stream->roused, 1);
    aio_event_drop(event);
}

/* Owns the stream, or keeps the cache from using it again. */
static bool change_owner(aio_stream *stream, uint32_t from, uint32_t to) {
    return atomic_compare_exchange_strong(&stream->owner, &from, to);
}

static void try_record_on(aio_stream *stream) {
    if (change_owner(stream, AIO_NOBODY, AIO_COLLECTOR)) {
        if (!atomic_load(&stream->dropped)) {
            record_on(stream);
        }
        change_owner(stream, AIO_COLLECTOR, AIO_NOBODY);
    } else if (change_owner(stream, AIO_KEPT, AIO_KEPT_BUSY)) {
        record_on(stream);
        change_owner(stream, AIO_KEPT_BUSY, AIO_KEPT);
    }
}

void aio_stream_keep(aio_stream *stream) {
    atomic_store(&stream->owner, AIO_KEPT);
}

void aio_stream_unkeep(aio_stream *stream) {
    for (unsigned turn = 0; !change_owner(stream, AIO_KEPT, AIO_COLLECTOR); turn++) {
        if (atomic_load(&stream->owner) == AIO_COLLECTOR) {
            return; /* an earlier attempt to use it again has failed */
        }
        aio_pause(turn);
    }
}

static void record_on_all(int device, uint32_t generation) {
    struct aio_device *self = &aio_devices[device];
    atomic_fetch_add(&self->rousings, 1);
    int before = aio_calling(AIO_FN_aclrtSetCurrentContext);
    int code = aio_acl.aclrtSetCurrentContext(atomic_load(&self->context));
    aio_calling(before);
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (code == 0 && stream->generation == generation && !stream->borrowed) {
            try_record_on(stream);
        }
    }
    if (code == 0 && atomic_load(&self->equipped) == generation) {
        aio_device_nudge(device); /* the wait may be for the engine's own stream */
    }
}

/* A reset does not begin while a call that takes the lock is inside the gate. This thread first counts itself
 * and then looks for such a call. So if it finds one, no reset begins before this thread has left, although the
 * gate may be closed. */
static void rouse(int device) {
    struct aio_device *self = &aio_devices[device];
    if (aio_helper_count(device)) {
        return;
    }
    aio_helper_begin(device, AIO_FN_aclrtRecordEvent);
    atomic_store(&self->rousing, true);
    uint64_t word = aio_gate_word(device);
    bool foreign = aio_word_flags(word) & AIO_FOREIGN;
    if (atomic_load(&self->locking) && !foreign && !atomic_load(&aio_exiting)) {
        record_on_all(device, aio_word_generation(word));
    }
    atomic_store(&self->rousing, false);
    aio_leave(aio_make_pass(device, 0, 0), AIO_LIFETIME);
}

void aio_stream_lock_look(int device, aio_lock_look *look) {
    struct aio_device *self = &aio_devices[device];
    unsigned locked = atomic_load(&self->locked);
    bool inside = atomic_load(&self->locking) > 0;
    int64_t now = aio_now_us();
    if (!inside || !look->due_us || locked != look->locked) {
        atomic_store(&self->held_up, false);
        *look = (aio_lock_look){.locked = locked, .due_us = inside ? now + PATIENCE_US : 0};
    } else if (now >= look->due_us) {
        atomic_store(&self->held_up, true);
        rouse(device);
        aio_port_kick(atomic_load(&self->relief));
        look->due_us = aio_now_us() + AGAIN_US;
    }
}

int aio_device_held_up(int device) {
    return atomic_load(&aio_devices[device].held_up) && atomic_load(&aio_devices[device].locking) > 0;
}

void aio_device_relieve_by(int device, aio_port *port) {
    atomic_store(&aio_devices[device].relief, port);
}

/* No gate keeps the watcher out. If it finds that a call is inside, its records end before `rousing` is
 * cleared. */
static void await_records(const struct aio_device *self) {
    struct timespec nap = {0, 100000};
    while (atomic_load(&self->rousing)) {
        nanosleep(&nap, NULL);
    }
}

/* If the watcher has made records meanwhile, the lock must be had once more. */
int aio_device_pass_lock(int device) {
    struct aio_device *self = &aio_devices[device];
    if (aio_helper_count(device)) {
        return AIO_CROWDED;
    }
    aio_helper_begin(device, AIO_FN_aclrtCreateStream);
    for (int i = 0; i < PASSES; i++) {
        unsigned before = atomic_load(&self->rousings);
        aclrtStream spare = NULL;
        bool done = pass(device, &spare);
        aio_stream_lock_drop(device, spare, 0);
        await_records(self);
        if (!done || before == atomic_load(&self->rousings)) {
            break;
        }
    }
    aio_leave(aio_make_pass(device, 0, 0), AIO_LIFETIME);
    return 0;
}
