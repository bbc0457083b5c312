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
/* What a thread is about to wait for. */
typedef struct {
    uint64_t done;   /* the position of a mark, or the tail of the stream; 0: nothing */
    unsigned aborts; /* of the stream until now */
    bool whole;      /* it waits for the stream, and not for the mark */
} question;

static question about(const aio_stream *stream, uint64_t done, bool whole) {
    return (question){done, atomic_load(&stream->aborts), whole};
}

/* An abort of ours writes down itself what it ends: what has been enqueued since is none of that. */
static bool tells(const aio_stream *stream, const question *asked, int32_t code) {
    if (code == ABORTED)
        return atomic_load(&stream->aborts) == asked->aborts;
    return code || aio_stream_current(stream);
}

/*
 * A code says that something has failed or was aborted, not that the rest is over: the device may still be at
 * work on what comes behind.  Then the wait is repeated.  It may belong to what was enqueued during the wait.
 */
static void settle(aio_stream *stream, const question *asked, int32_t code) {
    uint64_t from = atomic_load(code == ABORTED ? &stream->finished : &stream->collected);
    if (!tells(stream, asked, code))
        return;
    if (code)
        aio_keep_text();
    if (code && asked->whole)
        aio_stream_blame(stream, from, code, aio_error_text());
    else if (code)
        aio_stream_judge(stream, from, asked->done, code, aio_error_text());
    else
        aio_stream_finish(stream, asked->done);
    if (!code && asked->whole)
        aio_raise(&stream->collected, asked->done);
}

static int enter_again(aio_pass pass) {
    int code;
    for (unsigned turn = 0; (code = aio_count_in(pass, AIO_LIFETIME)) == AIO_CROWDED; turn++)
        aio_pause(turn);
    return code;
}

/*
 * A reset does not wait for a wait that cannot be aborted, but it does for whoever is let in here: so what was
 * answered is of this generation, and the bytes are delivered in it.  Not 0: it means nothing any more.
 */
static int conclude(aio_stream *stream, const question *asked, int32_t code) {
    aio_pass pass = aio_stream_pass(stream, 0);
    int refusal = enter_again(pass);
    if (!refusal && asked->done)
        settle(stream, asked, code);
    if (asked->whole)
        atomic_store(&stream->asking, false);
    if (refusal)
        return refusal;
    aio_stream_collect(stream);
    aio_stream_deliver(stream);
    aio_count_out(pass, AIO_LIFETIME);
    return 0;
}

static int sit_in_event(aio_stream *stream, uint64_t position) {
    aio_event *mark = aio_stream_mark_for(stream, position);
    question asked = about(stream, mark ? mark->position : 0, false);
    if (!mark)
        return conclude(stream, &asked, 0);
    aclrtEvent handle = aio_event_enter(mark);
    if (!handle) { /* a reset has destroyed it: nobody is let in at the end */
        aio_event_drop(mark);
        asked.done = 0;
        return conclude(stream, &asked, 0);
    }
    atomic_fetch_add(&aio_devices[stream->device].sitting, 1);
    int code = aio_acl.aclrtSynchronizeEvent(handle);
    atomic_fetch_sub(&aio_devices[stream->device].sitting, 1);
    aio_event_leave(mark);
    int refusal = conclude(stream, &asked, code);
    aio_event_drop(mark);
    return refusal;
}

static int sit_in_stream(aio_stream *stream) {
    for (unsigned turn = 0; atomic_exchange(&stream->asking, true); turn++)
        aio_pause(turn);
    bool used = aio_stream_use(stream);
    question asked = about(stream, used ? atomic_load(&stream->tail) : 0, true);
    if (!used)
        return conclude(stream, &asked, 0);
    atomic_fetch_add(&aio_devices[stream->device].sitting, 1);
    int code = aio_acl.aclrtSynchronizeStream(stream->handle);
    atomic_fetch_sub(&aio_devices[stream->device].sitting, 1);
    aio_stream_unuse(stream);
    return conclude(stream, &asked, code);
}

/* 0, or why the gate refused: at the beginning, or at the end, when the device was reset meanwhile. */
static int sit(aio_stream *stream, uint64_t position, bool whole) {
    aio_frame frame;
    int function = whole ? AIO_FN_aclrtSynchronizeStream : AIO_FN_aclrtSynchronizeEvent;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, function);
    if (code)
        return code;
    code = whole ? sit_in_stream(stream) : sit_in_event(stream, position);
    aio_end(&frame, 0);
    return code;
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
        int refusal = sit(stream, position, position == 0);
        if (!hand_out(stream, refusal == 0 || refusal == AIO_CROWDED))
            nanosleep(&nap, NULL);
    }
}

static void serve(aio_token *token) {
    aio_stream *stream = token->stream;
    aio_result result;
    aio_stream_hold(stream);
    aio_event *mark = aio_stream_mark_for(stream, token->position);
    int refusal = 0;
    if (mark) {
        aio_event_drop(mark);
        refusal = sit(stream, token->position, false);
    }
    if (refusal == AIO_CROWDED)
        aio_publish(token, aio_failed(refusal));
    else if (refusal)
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
