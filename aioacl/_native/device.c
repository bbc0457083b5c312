/*
 * Functions for a whole device: the list of its streams, the waits that a reset interrupted, and waking the
 * runtime's thread.
 */
#include "internal.h"

int aio_device_kicks(int device) {
    return atomic_exchange(&aio_devices[device].kicks, 0);
}

int64_t aio_device_waits(int device) {
    return atomic_load(&aio_devices[device].waits);
}

static bool is_busy(aio_stream *stream) {
    return aio_stream_is_working(stream) && aio_stream_query(stream, atomic_load(&stream->tail)) == 0;
}

int aio_device_busy(int device) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    int busy = atomic_load(&aio_devices[device].calling); /* read first: they enqueue, and then end */
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (stream->generation == generation) {
            busy += is_busy(stream);
        }
    }
    return busy;
}

int aio_device_unfinished(int device) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    int streams = 0;
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        streams += stream->generation == generation && aio_stream_is_working(stream);
    }
    return streams;
}

int aio_device_ask_streams(int device) {
    int streams = 0;
    aio_device_busy(device);
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        streams++;
    }
    return streams;
}

/* Whether the stream's work may have failed without a report. The open launch block and the owner are read
 * first, because a block and an enqueuer count their entries before they end. A task that is not counted yet
 * may be the failed task. */
static bool may_have_failed(aio_stream *stream) {
    bool launching = aio_stream_is_launching_unreported(stream);
    bool enqueueing = atomic_load(&stream->owner) == AIO_ENQUEUER;
    bool unknown = enqueueing || aio_stream_has_manual(stream) ||
                   atomic_load(&stream->confirmed) < atomic_load(&stream->tail);
    return launching || (unknown && !aio_stream_is_exact(stream)) || atomic_load(&stream->links);
}

/* The failed work may be work of another library. But if the code may be from aioacl's work, the code is
 * recorded as a failure of aioacl's work. */
void aio_device_fail(int device, int32_t code, const char *text) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    aio_failures_settle();
    if (!aio_is_of_task(code)) {
        return;
    }
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (stream->generation == generation && may_have_failed(stream)) {
            aio_stream_share(stream, code, text);
        }
    }
}

void aio_device_sync_begin(int device) {
    atomic_fetch_add(&aio_devices[device].syncs, 1);
}

/* The code of the wait for the device is attributed by now. So synchronizes that returned 0 during this wait
 * now count. */
void aio_device_sync_end(int device) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        uint64_t presumed = atomic_load(&stream->presumed);
        if (atomic_load(&stream->synced) < presumed) {
            aio_stream_synced(stream, presumed, 0, NULL);
        }
    }
    atomic_fetch_add(&aio_devices[device].syncs, 1);
    aio_watcher_wake(device);
}

uint32_t aio_device_unattributed(int device) {
    aio_failures_settle();
    return atomic_load(&aio_devices[device].unattributed);
}

/* Publishes the outcome of the position if it was known before the reset, because the reset then has not
 * interrupted the wait. Otherwise returns false. */
static bool ended_before(aio_token *token) {
    aio_result known = aio_stream_known(token->stream, token->position);
    if (known == aio_failed(AIO_PENDING)) {
        return false;
    }
    aio_publish(token, known);
    return true;
}

void aio_defer_end(aio_token *token, aio_result otherwise) {
    const aio_stream *stream = token->stream;
    struct aio_device *self = &aio_devices[stream->device];
    aio_lock_take(&self->lock);
    uint64_t word = atomic_load(&self->word);
    bool later = aio_word_state(word) == AIO_RESETTING && aio_word_generation(word) == stream->generation;
    if (later) {
        token->next = self->deferred_waits;
        self->deferred_waits = token;
    }
    aio_lock_give(&self->lock);
    if (!later) {
        aio_publish(token, otherwise);
    }
}

void aio_defer_wait(aio_token *token) {
    if (!ended_before(token)) {
        aio_defer_end(token, aio_failed(AIO_WAS_RESET));
    }
}

/* Frees the staging memory of stale streams now, without waiting for the last references to the streams. */
static void drop_stale(int device) {
    struct aio_device *self = &aio_devices[device];
    aio_lock_take(&self->lock);
    aio_staged_copy *left = self->left;
    self->left = NULL;
    aio_lock_give(&self->lock);
    aio_staged_copies_leave(device, left);
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (!aio_work_is_gone(device, stream->generation)) {
            continue;
        }
        aio_staged_copies_free(device, aio_stream_drop_stale(stream));
        aio_stream_unlist(stream);
    }
}

void aio_device_flush(int device) {
    struct aio_device *self = &aio_devices[device];
    aio_failures_after_reset();
    aio_watcher_wake(device);
    drop_stale(device);
    aio_lock_take(&self->lock);
    aio_token *token = self->deferred_waits;
    self->deferred_waits = NULL;
    aio_lock_give(&self->lock);
    while (token) {
        aio_token *next = token->next;
        if (!ended_before(token)) {
            aio_publish(token, aio_failed(AIO_WAS_RESET));
        }
        token = next;
    }
}

static int make_equipment(int device) {
    struct aio_device *self = &aio_devices[device];
    aclrtStream stream = NULL;
    aclrtEvent event = NULL;
    int code = aio_stream_lock_create(device, &stream);
    aio_calling(AIO_FN_aclrtCreateEventWithFlag);
    if (code == 0) {
        code = aio_acl.aclrtCreateEventWithFlag(&event, AIO_EVENT_SYNC);
    }
    if (code && stream) {
        aio_acl.aclrtDestroyStreamForce(stream);
    }
    self->nudge_stream = stream;
    self->nudge_event = event;
    return code;
}

static void wake_by_synchronizing(int device, uint32_t generation) {
    bool woken = false;
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (!woken && stream->generation == generation && aio_stream_is_working(stream)) {
            woken = aio_stream_sync_once(stream);
        }
    }
}

int aio_device_equip(int device) {
    struct aio_device *self = &aio_devices[device];
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    aio_frame frame;
    if (atomic_load(&self->equipped) == generation) {
        if (atomic_exchange(&self->nudge_failed, false)) {
            wake_by_synchronizing(device, generation);
        }
        return 0;
    }
    int code = aio_begin(&frame, aio_make_pass(device, generation, 0), AIO_LIFETIME, AIO_FN_aclrtCreateStream);
    if (code) {
        return code;
    }
    code = make_equipment(device);
    if (code == 0) {
        atomic_store(&self->equipped, generation);
        aio_device_nudge(device);
    }
    aio_end(&frame, code);
    if (code) {
        wake_by_synchronizing(device, generation);
    }
    return code;
}

int aio_equipped(void) {
    int count = 0;
    for (int device = 0; device < AIO_DEVICES; device++) {
        count += atomic_load(&aio_devices[device].equipped) != 0;
    }
    return count;
}
