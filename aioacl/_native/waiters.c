/*
 * The literal strategy: each wait occupies a worker thread in the blocking call.
 *
 * A wait for a mark sits in aclrtSynchronizeEvent on a thread of its own.  Waits for a whole stream share one
 * thread per stream in aclrtSynchronizeStream: the runtime hands a task's error to one, some or all of those
 * who synchronize, by race, so only one may ask, and it writes the ledger for the others.  Idle threads are
 * kept for a second.  The list of waits of a stream and the list of idle threads are guarded by the device's
 * lock.
 */
#include <stdlib.h>

#include "internal.h"

enum { LINGER_US = 1000000, ABORTED = 107023 };

typedef struct aio_worker {
    struct aio_worker *next;
    _Atomic uint32_t called;
    aio_token *token;
    int device;
} worker;

/* --- one wait ---------------------------------------------------------------- */
/*
 * A code says that something has failed or was aborted, not that the rest is over: the device may still be at
 * work on what comes behind.  Then the wait is repeated.  It may belong to what was enqueued during the wait.
 */
static void settle(aio_stream *stream, int32_t code, uint64_t done, bool whole) {
    if (!code && !aio_stream_current(stream))
        return;
    if (code) {
        uint64_t from = atomic_load(code == ABORTED ? &stream->finished : &stream->collected);
        aio_keep_text();
        aio_stream_judge(stream, from, whole ? atomic_load(&stream->tail) : done, code, aio_error_text());
        return;
    }
    aio_stream_finish(stream, done);
    if (whole)
        aio_raise(&stream->collected, done);
}

/*
 * A reset does not wait for a wait that cannot be aborted, but it does for whoever is let in here: so what was
 * answered is of this generation, and the bytes are delivered in it.  False: it means nothing any more.
 */
static bool conclude(aio_stream *stream, int32_t code, uint64_t done, bool whole) {
    aio_pass pass = aio_stream_pass(stream, 0);
    bool current = aio_count_in(pass, AIO_LIFETIME) == 0;
    if (current && done)
        settle(stream, code, done, whole);
    if (whole)
        atomic_store(&stream->asking, false);
    if (!current)
        return false;
    aio_stream_collect(stream);
    aio_stream_deliver(stream);
    aio_count_out(pass, AIO_LIFETIME);
    return true;
}

static bool sit_in_event(aio_stream *stream, uint64_t position) {
    aio_event *mark = aio_stream_mark_for(stream, position);
    if (!mark)
        return conclude(stream, 0, 0, false);
    atomic_fetch_add(&aio_devices[stream->device].sitting, 1);
    int code = aio_acl.aclrtSynchronizeEvent(mark->handle);
    atomic_fetch_sub(&aio_devices[stream->device].sitting, 1);
    bool current = conclude(stream, code, mark->position, false);
    aio_event_drop(mark);
    return current;
}

static bool sit_in_stream(aio_stream *stream) {
    for (unsigned turn = 0; atomic_exchange(&stream->asking, true); turn++)
        aio_pause(turn);
    uint64_t tail = atomic_load(&stream->tail);
    int code = 0;
    if (!aio_stream_use(stream))
        return conclude(stream, 0, 0, true);
    atomic_fetch_add(&aio_devices[stream->device].sitting, 1);
    code = aio_acl.aclrtSynchronizeStream(stream->handle);
    atomic_fetch_sub(&aio_devices[stream->device].sitting, 1);
    aio_stream_unuse(stream);
    return conclude(stream, code, tail, true);
}

/* False when the gate refused or the device was reset meanwhile. */
static bool sit(aio_stream *stream, uint64_t position, bool whole) {
    aio_frame frame;
    int function = whole ? AIO_FN_aclrtSynchronizeStream : AIO_FN_aclrtSynchronizeEvent;
    if (aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, function))
        return false;
    bool current = whole ? sit_in_stream(stream) : sit_in_event(stream, position);
    aio_end(&frame, 0);
    return current;
}

/* --- waits for a whole stream ------------------------------------------------ */
/* Adds the wait to the stream's; true when the caller is to sit for all of them. */
static bool join(aio_token *token) {
    aio_stream *stream = token->stream;
    struct aio_device *device = &aio_devices[stream->device];
    aio_lock_take(&device->lock);
    bool first = !stream->syncing;
    stream->syncing = true;
    aio_stream_queue(token);
    aio_lock_give(&device->lock);
    return first;
}

static aio_token *pop(aio_stream *stream, bool current) {
    struct aio_device *device = &aio_devices[stream->device];
    aio_result result;
    aio_lock_take(&device->lock);
    aio_token *token = stream->tokens;
    if (token && current && !aio_stream_over(stream, token->position, &result))
        token = NULL;
    if (token)
        stream->tokens = token->next;
    aio_lock_give(&device->lock);
    return token;
}

/* False when there was nothing to hand out. */
static bool hand_out(aio_stream *stream, bool current) {
    bool some = false;
    for (aio_token *token; (token = pop(stream, current)); some = true) {
        aio_result result;
        if (current && aio_stream_over(stream, token->position, &result))
            aio_publish(token, result);
        else
            aio_orphan(token);
    }
    return some;
}

static bool more(aio_stream *stream) {
    struct aio_device *device = &aio_devices[stream->device];
    aio_lock_take(&device->lock);
    bool some = stream->tokens != NULL;
    if (!some)
        stream->syncing = false;
    aio_lock_give(&device->lock);
    return some;
}

/* Where the first wait can sit in a mark: one that has come since, with what was enqueued behind it. */
static uint64_t marked(aio_stream *stream) {
    struct aio_device *device = &aio_devices[stream->device];
    aio_lock_take(&device->lock);
    uint64_t position = stream->tokens ? stream->tokens->position : 0;
    aio_lock_give(&device->lock);
    aio_event *mark = position > atomic_load(&stream->finished) ? aio_stream_mark_for(stream, position) : NULL;
    if (mark)
        aio_event_drop(mark);
    return mark ? position : 0;
}

/*
 * A wait that has ended in an error, or during an abort, may end at once when it is repeated.  What is enqueued
 * between our look for a mark and the runtime's own look at the queue is waited for too: only this strategy has
 * that.
 */
static void serve_stream(aio_stream *stream) {
    struct timespec nap = {0, 100000};
    while (more(stream)) {
        uint64_t position = marked(stream);
        if (!hand_out(stream, sit(stream, position, position == 0)))
            nanosleep(&nap, NULL);
    }
}

static void serve(aio_token *token) {
    aio_stream *stream = token->stream;
    aio_result result;
    aio_stream_hold(stream);
    aio_event *mark = aio_stream_mark_for(stream, token->position);
    bool current = true;
    if (mark) {
        aio_event_drop(mark);
        current = sit(stream, token->position, false);
    }
    if (!current)
        aio_orphan(token);
    else if (aio_stream_over(stream, token->position, &result))
        aio_publish(token, result);
    else if (join(token))
        serve_stream(stream);
    aio_stream_unhold(stream);
}

/* --- threads ----------------------------------------------------------------- */
static void put_idle(worker *self) {
    struct aio_device *device = &aio_devices[self->device];
    aio_lock_take(&device->lock);
    self->next = device->idle;
    device->idle = self;
    aio_lock_give(&device->lock);
}

static bool leave_idle(worker *self) {
    struct aio_device *device = &aio_devices[self->device];
    aio_lock_take(&device->lock);
    worker **link = &device->idle;
    while (*link && *link != self)
        link = &(*link)->next;
    bool found = *link != NULL;
    if (found)
        *link = self->next;
    aio_lock_give(&device->lock);
    return found;
}

static worker *take_idle(int index) {
    struct aio_device *device = &aio_devices[index];
    aio_lock_take(&device->lock);
    worker *self = device->idle;
    if (self)
        device->idle = self->next;
    aio_lock_give(&device->lock);
    return self;
}

static void call(worker *self, aio_token *token) {
    self->token = token;
    atomic_store(&self->called, 1);
    aio_futex_wake(&self->called, 1);
}

/* False when nobody called for a second.  Somebody who has taken us from the list will call. */
static bool await_call(worker *self) {
    put_idle(self);
    if (!atomic_load(&self->called))
        aio_futex_wait(&self->called, 0, LINGER_US);
    if (!atomic_load(&self->called) && leave_idle(self))
        return false;
    while (!atomic_load(&self->called))
        aio_futex_wait(&self->called, 0, -1);
    atomic_store(&self->called, 0);
    return self->token != NULL;
}

static void *work(void *argument) {
    worker *self = argument;
    do {
        aio_token *token = self->token;
        self->token = NULL;
        serve(token);
    } while (await_call(self));
    free(self);
    return NULL;
}

static int start_worker(aio_token *token) {
    worker *self = calloc(1, sizeof *self);
    if (!self)
        return AIO_NO_MEMORY;
    self->device = token->stream->device;
    self->token = token;
    if (aio_spawn("aioacl-wait", work, self) == 0)
        return 0;
    free(self);
    return AIO_NO_THREAD;
}

/* A wait for which no thread can be had ends at once, with that as its result. */
int aio_waiter_submit(aio_token *token) {
    worker *self = take_idle(token->stream->device);
    int code = 0;
    if (self)
        call(self, token);
    else
        code = start_worker(token);
    if (code)
        aio_publish(token, aio_failed(code));
    return 0;
}

void aio_waiters_stop(int device) {
    for (worker *self; (self = take_idle(device));)
        call(self, NULL);
}
