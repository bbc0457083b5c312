/*
 * The strategy AIO_THREAD: each wait occupies a worker thread, which blocks in ACL.
 *
 * A worker blocks in aclrtSynchronizeEventWithTimeout, in slices of a second, until an event that is recorded
 * after the position is complete. It never blocks in a wait for a stream, because such a wait crashes the
 * process if the device is reset during the wait. If a worker finds that work is complete, it checks and
 * confirms the work in the same way as the watcher. An idle worker thread ends after a second. The device's
 * lock guards the list of idle workers.
 */
#include <stdlib.h>

#include "internal.h"

enum { LINGER_US = 1000000, SLICE_MS = 1000 };

typedef struct aio_worker {
    struct aio_worker *next;
    _Atomic uint32_t called;
    aio_token *token;
    int device;
} worker;

static int enter_again(aio_pass pass) {
    int code;
    for (unsigned turn = 0; (code = aio_count_in(pass, AIO_LIFETIME)) == AIO_CROWDED; turn++) {
        aio_pause(turn);
    }
    return code;
}

/*
 * Uses the runtime's answer after a blocking wait. A reset does not wait for a blocking wait that cannot be
 * aborted, but it waits for a thread that this function has counted. So the runtime's answer belongs to this
 * generation, and the bytes are delivered before the generation ends. If this function returns a refusal, the
 * answer was not used.
 */
static int conclude(aio_stream *stream, uint64_t position, int32_t code) {
    aio_pass pass = aio_stream_pass(stream, 0);
    int refusal = enter_again(pass);
    if (refusal) {
        return refusal;
    }
    if (code == 0 && position && aio_stream_current(stream)) {
        aio_stream_finish(stream, position);
    }
    aio_stream_deliver(stream);
    aio_count_out(pass, AIO_LIFETIME);
    return 0;
}

/* Waits in C for the mark. If the code of the wait is not 0, later queries of the stream show whether an abort
 * or a failure ended the wait. */
static int block_in(aio_stream *stream, aio_event *mark) {
    struct aio_device *device = &aio_devices[stream->device];
    bool may_ask = aio_may_ask(stream->device, stream->generation);
    aclrtEvent handle = may_ask ? aio_event_enter(mark) : NULL;
    if (!handle) { /* a reset has ended the event, so the gate refuses in conclude() */
        return conclude(stream, 0, 0);
    }
    atomic_fetch_add(&device->blocked, 1);
    int code = aio_acl.aclrtSynchronizeEventWithTimeout(handle, SLICE_MS);
    aio_note_end(stream->device, stream->generation, code);
    atomic_fetch_sub(&device->blocked, 1);
    aio_event_leave(mark);
    return conclude(stream, mark->position, code);
}

/* Queries the stream. Called if it is borrowed, or has no mark, because the queue is full or no event could be
 * made. */
static int look(aio_stream *stream, uint64_t position) {
    struct timespec nap = {0, 500000};
    aio_stream_advance(stream, position, false);
    aio_stream_deliver(stream);
    nanosleep(&nap, NULL);
    return 0;
}

/* What other code owns is only queried: if the owner destroys it, a wait in C may miss its end. */
static int wait_inside(aio_stream *stream, uint64_t position) {
    aio_event *mark = stream->borrowed ? NULL : aio_stream_mark_for(stream, position);
    if (!mark) {
        return look(stream, position);
    }
    int refusal = block_in(stream, mark);
    aio_event_drop(mark);
    return refusal;
}

/* Returns 0 or a refusal. The gate can refuse before the wait. It can also refuse after the wait, if the device
 * was reset during the wait. */
static int wait_once(aio_stream *stream, uint64_t position) {
    aio_frame frame;
    int function = AIO_FN_aclrtSynchronizeEventWithTimeout;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, function);
    if (code) {
        return code;
    }
    code = wait_inside(stream, position);
    aio_end(&frame, 0);
    return code;
}

/* One step of a wait. If no position was finished, the thread sleeps for a short time, because each wait in C
 * may end at once while an abort is in progress. */
static int step(aio_stream *stream, uint64_t position) {
    struct timespec nap = {0, 100000};
    uint64_t finished = atomic_load(&stream->finished);
    if (finished >= position) {
        aio_stream_confirm_here(stream, position);
        nanosleep(&nap, NULL);
        return aio_gate_check(aio_stream_pass(stream, 0), AIO_WAIT);
    }
    aio_stream_mark_now(stream, position);
    int refusal = wait_once(stream, position);
    if (refusal == 0 && atomic_load(&stream->finished) == finished) {
        nanosleep(&nap, NULL);
    }
    return refusal;
}

static void serve(aio_token *token) {
    aio_stream *stream = token->stream;
    aio_result result = 0;
    int refusal = 0;
    aio_stream_hold(stream);
    while (refusal == 0 && !aio_stream_over(stream, token->position, &result)) {
        refusal = step(stream, token->position);
    }
    if (refusal == AIO_CROWDED) {
        aio_publish(token, aio_failed(refusal));
    } else if (refusal) {
        aio_defer_wait(token);
    } else {
        aio_publish(token, result);
    }
    aio_stream_unhold(stream);
}

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
    while (*link && *link != self) {
        link = &(*link)->next;
    }
    bool found = *link != NULL;
    if (found) {
        *link = self->next;
    }
    aio_lock_give(&device->lock);
    return found;
}

static worker *take_idle(int index) {
    struct aio_device *device = &aio_devices[index];
    aio_lock_take(&device->lock);
    worker *self = device->idle;
    if (self) {
        device->idle = self->next;
    }
    aio_lock_give(&device->lock);
    return self;
}

static void call(worker *self, aio_token *token) {
    self->token = token;
    atomic_store(&self->called, 1);
    aio_futex_wake(&self->called, 1);
}

/* Sleeps until this worker has a wait to serve. False if no wait came for a second, or if the worker must end.
 * If another thread has taken this worker from the list, that thread is about to set `called`. */
static bool await_call(worker *self) {
    put_idle(self);
    if (!atomic_load(&self->called)) {
        aio_futex_wait(&self->called, 0, LINGER_US);
    }
    if (!atomic_load(&self->called) && leave_idle(self)) {
        return false;
    }
    while (!atomic_load(&self->called)) {
        aio_futex_wait(&self->called, 0, -1);
    }
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
    if (!self) {
        return AIO_NO_MEMORY;
    }
    self->device = token->stream->device;
    self->token = token;
    if (aio_spawn("aioacl-wait", work, self) == 0) {
        return 0;
    }
    free(self);
    return AIO_NO_THREAD;
}

/* If no thread can be started, the wait ends at once, and its result is the error code. */
int aio_waiter_submit(aio_token *token) {
    worker *self = take_idle(token->stream->device);
    int code = 0;
    if (self) {
        call(self, token);
    } else {
        code = start_worker(token);
    }
    if (code) {
        aio_publish(token, aio_failed(code));
    }
    return 0;
}

void aio_waiters_stop(int device) {
    for (worker *self; (self = take_idle(device));) {
        call(self, NULL);
    }
}
