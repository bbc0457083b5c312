/*
 * What belongs to a device as a whole: its streams, the waits interrupted by a reset, and the heartbeat.
 */
#include <stdlib.h>

#include "internal.h"

enum { BEAT_MS = 100, BEAT_BATCHES = 4, BEAT_RECORDS = 16 };

/* --- life -------------------------------------------------------------------- */
int aio_device_start(int device, int strategy, aio_port *kick) {
    struct aio_device *self = &aio_devices[device];
    atomic_store(&self->strategy, strategy);
    atomic_store(&self->kicks, 0); /* reasons that nobody took would keep new ones from being told */
    atomic_store(&self->kick, kick);
    return strategy == AIO_WATCH ? aio_watcher_start(device) : 0;
}

void aio_device_stop(int device) {
    struct aio_device *self = &aio_devices[device];
    if (atomic_load(&self->strategy) == AIO_WATCH)
        aio_watcher_stop(device);
    else
        aio_waiters_stop(device);
    atomic_store(&self->kick, NULL);
}

void aio_device_kick(int device, int reason) {
    aio_port *port = atomic_load(&aio_devices[device].kick);
    int before = atomic_fetch_or(&aio_devices[device].kicks, reason);
    if (port && (before & reason) != reason)
        aio_port_post(port, 0, reason);
}

int aio_device_kicks(int device) {
    return atomic_exchange(&aio_devices[device].kicks, 0);
}

int64_t aio_device_waits(int device) {
    return atomic_load(&aio_devices[device].waits);
}

/* --- streams ----------------------------------------------------------------- */
/* The list is in the order of the numbers, so the walk goes on even if `previous` has left it meanwhile. */
static aio_stream *following(const struct aio_device *self, const aio_stream *previous) {
    if (previous && previous->listed)
        return previous->next;
    aio_stream *stream = self->streams;
    while (previous && stream && stream->number >= previous->number)
        stream = stream->next;
    return stream;
}

aio_stream *aio_device_next(int device, aio_stream *previous) {
    struct aio_device *self = &aio_devices[device];
    aio_lock_take(&self->lock);
    aio_stream *stream = following(self, previous);
    if (stream)
        aio_stream_hold(stream);
    aio_lock_give(&self->lock);
    if (previous)
        aio_stream_unhold(previous);
    return stream;
}

static bool unfinished(const aio_stream *stream) {
    return atomic_load(&stream->finished) < atomic_load(&stream->tail);
}

static bool is_busy(aio_stream *stream) {
    return unfinished(stream) && aio_stream_query(stream, atomic_load(&stream->tail)) == 0;
}

int aio_device_busy(int device) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    int busy = 0;
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));)
        if (stream->generation == generation)
            busy += is_busy(stream);
    return busy;
}

/* As far as is known here: asks nothing, so it works behind a gate that is shut. */
int aio_device_unfinished(int device) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    int streams = 0;
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));)
        streams += stream->generation == generation && unfinished(stream);
    return streams;
}

int aio_device_sweep(int device) {
    int streams = 0;
    aio_device_busy(device);
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));)
        streams++;
    return streams;
}

void aio_device_blame(int device, int32_t code, const char *text) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));)
        aio_stream_blame(stream, atomic_load(&stream->collected), code, text);
}

/* --- waits interrupted by a reset -------------------------------------------- */
/* What is known to have ended before the reset has not been ended by it. */
static bool ended_before(aio_token *token) {
    aio_result known = aio_stream_known(token->stream, token->position);
    if (known == aio_failed(AIO_PENDING))
        return false;
    aio_publish(token, known);
    return true;
}

void aio_orphan(aio_token *token) {
    const aio_stream *stream = token->stream;
    struct aio_device *self = &aio_devices[stream->device];
    if (ended_before(token))
        return;
    aio_lock_take(&self->lock);
    uint64_t word = atomic_load(&self->word);
    bool later = aio_word_state(word) == AIO_RESETTING && aio_word_generation(word) == stream->generation;
    if (later) {
        token->next = self->orphans;
        self->orphans = token;
    }
    aio_lock_give(&self->lock);
    if (!later)
        aio_publish(token, aio_failed(AIO_WAS_RESET));
}

/* --- staging memory of work that a reset has dropped -------------------------- */
/* A foreign reset raises the generation before it tears down: then, copies of the older one are still under
 * way. */
static bool work_is_gone(int device, uint32_t generation) {
    uint64_t word = aio_gate_word(device);
    int state = aio_word_state(word);
    return aio_word_generation(word) != generation && !(aio_word_flags(word) & AIO_FOREIGN) &&
           (state == AIO_OPEN || state == AIO_DRAINING || state == AIO_CLOSED);
}

static void leave_one(int device, aio_landing *landing) {
    struct aio_device *self = &aio_devices[device];
    landing->next = NULL;
    if (work_is_gone(device, landing->generation)) {
        aio_landings_free(device, landing);
        return;
    }
    aio_lock_take(&self->lock);
    landing->next = self->left;
    self->left = landing;
    aio_lock_give(&self->lock);
}

void aio_landings_leave(int device, aio_landing *landing) {
    while (landing) {
        aio_landing *next = landing->next;
        leave_one(device, landing);
        landing = next;
    }
}

/* Staging memory must not wait for the last reference to a stream that is stale. */
static void forsake_stale(int device) {
    struct aio_device *self = &aio_devices[device];
    aio_lock_take(&self->lock);
    aio_landing *left = self->left;
    self->left = NULL;
    aio_lock_give(&self->lock);
    aio_landings_leave(device, left);
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));)
        if (work_is_gone(device, stream->generation))
            aio_landings_free(device, aio_stream_forsake(stream));
}

void aio_device_flush(int device) {
    struct aio_device *self = &aio_devices[device];
    aio_watcher_nudge(device);
    forsake_stale(device);
    aio_lock_take(&self->lock);
    aio_token *token = self->orphans;
    self->orphans = NULL;
    aio_lock_give(&self->lock);
    while (token) {
        aio_token *next = token->next;
        if (!ended_before(token))
            aio_publish(token, aio_failed(AIO_WAS_RESET));
        token = next;
    }
}

/* --- heartbeat --------------------------------------------------------------- */
/*
 * After a fault a queue can stand still until somebody synchronizes something that has work.  The wait right
 * behind a batch of records has something to wait for, unless we were interrupted in between; a few batches
 * make sure.
 */
static int record_batch(aclrtEvent event, aclrtStream stream) {
    int code = 0;
    aio_calling(AIO_FN_aclrtRecordEvent);
    for (int i = 0; i < BEAT_RECORDS && code == 0; i++)
        code = aio_acl.aclrtRecordEvent(event, stream);
    return code;
}

static int beat(aclrtStream stream) {
    aclrtEvent event = NULL;
    aio_calling(AIO_FN_aclrtCreateEventExWithFlag);
    int code = aio_acl.aclrtCreateEventExWithFlag(&event, AIO_EVENT_SYNC);
    for (int i = 0; i < BEAT_BATCHES && code == 0; i++) {
        code = record_batch(event, stream);
        aio_calling(AIO_FN_aclrtSynchronizeEventWithTimeout);
        if (code == 0)
            code = aio_acl.aclrtSynchronizeEventWithTimeout(event, BEAT_MS);
    }
    aio_calling(AIO_FN_aclrtDestroyEvent);
    if (event)
        aio_acl.aclrtDestroyEvent(event);
    return code;
}

int aio_device_heartbeat(int device) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    aclrtStream stream = NULL;
    aio_frame frame;
    int code = aio_begin(&frame, aio_make_pass(device, generation, 0), AIO_LIFETIME, AIO_FN_aclrtCreateStream);
    if (code)
        return code;
    code = aio_acl.aclrtCreateStream(&stream);
    if (code == 0)
        code = beat(stream);
    aio_calling(AIO_FN_aclrtDestroyStreamForce);
    if (stream)
        aio_acl.aclrtDestroyStreamForce(stream);
    aio_end(&frame, code);
    return code;
}
