/*
 * What belongs to a device as a whole: its streams, the pool of events, waits interrupted by a reset, the abort
 * before a reset, the heartbeat, and the reset that somebody else makes.
 */
#include <stdlib.h>

#include "internal.h"

enum { EVENT_SYNC = 0x1, EVENT_TIME_LINE = 0x8, POOL_LOW = 8, FOREIGN_GRACE_US = 1000000, BEAT_MS = 100 };

/* --- life -------------------------------------------------------------------- */
int aio_device_start(int device, int strategy, aio_port *kick) {
    struct aio_device *self = &aio_devices[device];
    atomic_store(&self->strategy, strategy);
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
/* A stream that has left the list ends the walk early; the callers come again or do not mind. */
aio_stream *aio_device_next(int device, aio_stream *previous) {
    struct aio_device *self = &aio_devices[device];
    aio_lock_take(&self->lock);
    aio_stream *stream = self->streams;
    if (previous)
        stream = atomic_load(&previous->dropped) ? NULL : previous->next;
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

int aio_device_sweep(int device) {
    int streams = 0;
    aio_device_busy(device);
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));)
        streams++;
    return streams;
}

void aio_device_blame(int device, int32_t code, const char *text) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        uint64_t from = atomic_load(&stream->collected), to = atomic_load(&stream->tail);
        if (from < to)
            aio_stream_judge(stream, from, to, code, text);
    }
}

/* --- waits interrupted by a reset -------------------------------------------- */
void aio_orphan(aio_token *token) {
    const aio_stream *stream = token->stream;
    struct aio_device *self = &aio_devices[stream->device];
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

void aio_device_flush(int device) {
    struct aio_device *self = &aio_devices[device];
    aio_watcher_wake(device);
    aio_lock_take(&self->lock);
    aio_token *token = self->orphans;
    self->orphans = NULL;
    aio_lock_give(&self->lock);
    while (token) {
        aio_token *next = token->next;
        aio_publish(token, aio_failed(AIO_WAS_RESET));
        token = next;
    }
}

/* --- the pool of events ------------------------------------------------------ */
static void link_event(struct aio_device *self, aio_event *event) {
    aio_lock_take(&self->lock);
    event->older = &self->events;
    event->newer = self->events;
    if (event->newer)
        event->newer->older = &event->newer;
    self->events = event;
    aio_lock_give(&self->lock);
}

static void free_event(struct aio_device *self, aio_event *event) {
    aio_lock_take(&self->lock);
    *event->older = event->newer;
    if (event->newer)
        event->newer->older = event->older;
    aio_lock_give(&self->lock);
    free(event);
}

static aio_event *new_event(int device, uint32_t generation, bool timing) {
    aio_event *event = calloc(1, sizeof *event);
    uint32_t flags = timing ? EVENT_SYNC | EVENT_TIME_LINE : EVENT_SYNC;
    if (!event)
        return NULL;
    *event = (aio_event){.device = device, .generation = generation, .timing = timing};
    if (aio_acl.aclrtCreateEventExWithFlag(&event->handle, flags)) {
        aio_keep_text();
        free(event);
        return NULL;
    }
    link_event(&aio_devices[device], event);
    return event;
}

static aio_event *pop_event(struct aio_device *self, bool timing) {
    aio_lock_take(&self->lock);
    aio_event *event = self->pool[timing];
    if (event) {
        self->pool[timing] = event->next;
        self->pooled[timing]--;
    }
    aio_lock_give(&self->lock);
    return event;
}

static void push_event(struct aio_device *self, aio_event *event) {
    aio_lock_take(&self->lock);
    event->next = self->pool[event->timing];
    self->pool[event->timing] = event;
    self->pooled[event->timing]++;
    aio_lock_give(&self->lock);
}

/* Making one here is cheap on the runtime (no hardware id before the record), and better than a wait that lies.
 */
aio_event *aio_event_take(int device, uint32_t generation, bool timing) {
    struct aio_device *self = &aio_devices[device];
    aio_event *event;
    while ((event = pop_event(self, timing)) && event->generation != generation)
        free_event(self, event);
    if (!timing && self->pooled[0] < POOL_LOW)
        aio_device_kick(device, AIO_KICK_REFILL);
    if (!event)
        event = new_event(device, generation, timing);
    if (event)
        atomic_store(&event->references, 1);
    return event;
}

void aio_event_hold(aio_event *event) {
    atomic_fetch_add(&event->references, 1);
}

/* A native event of an older generation is left to the runtime: a dead handle never goes back to C. */
void aio_event_drop(aio_event *event) {
    struct aio_device *self = &aio_devices[event->device];
    if (atomic_fetch_sub(&event->references, 1) != 1)
        return;
    if (aio_word_generation(atomic_load(&self->word)) == event->generation)
        push_event(self, event);
    else
        free_event(self, event);
}

aclrtEvent aio_event_handle(const aio_event *event) {
    return event->handle;
}

int aio_device_refill(int device, int timing, int count) {
    struct aio_device *self = &aio_devices[device];
    uint32_t generation = aio_word_generation(atomic_load(&self->word));
    aio_frame frame;
    int code = aio_begin(&frame, aio_make_pass(device, generation, 0), AIO_LIFETIME,
                         AIO_FN_aclrtCreateEventExWithFlag);
    if (code)
        return code;
    while (self->pooled[timing != 0] < count) {
        aio_event *event = new_event(device, generation, timing != 0);
        if (!event)
            break;
        push_event(self, event);
    }
    aio_end(&frame, 0);
    return 0;
}

/* A handle that is destroyed is forgotten too: a reset that fails leaves the generation, and there is a next
 * one. */
int aio_device_destroy_events(int device) {
    struct aio_device *self = &aio_devices[device];
    uint32_t generation = aio_word_generation(atomic_load(&self->word));
    int destroyed = 0;
    for (;;) {
        aio_lock_take(&self->lock);
        aio_event *event = self->events;
        while (event && !(event->handle && event->generation == generation))
            event = event->newer;
        aclrtEvent handle = event ? event->handle : NULL;
        if (event)
            event->handle = NULL;
        aio_lock_give(&self->lock);
        if (!handle)
            return destroyed;
        destroyed += aio_acl.aclrtDestroyEvent(handle) == 0;
    }
}

/* --- abort before a reset ---------------------------------------------------- */
/* Shared by the aborting threads and whoever waits for them; the last one frees it. */
typedef struct {
    atomic_int references;
    atomic_int next;
    atomic_int left;
    atomic_int outcome[3]; /* aborted, not supported, failed */
    void *context;
    int size;
    aio_stream *streams[];
} abort_job;

static void release_job(abort_job *job) {
    if (atomic_fetch_sub(&job->references, 1) != 1)
        return;
    for (int i = 0; i < job->size; i++)
        aio_stream_unhold(job->streams[i]);
    free(job);
}

static bool runs(aio_stream *stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    return aio_acl.aclrtStreamQuery(stream->handle, &status) != 0 || status != ACL_STREAM_STATUS_COMPLETE;
}

static void abort_one(abort_job *job, aio_stream *stream) {
    if (!runs(stream))
        return;
    int code = aio_acl.aclrtStreamAbort(stream->handle);
    atomic_fetch_add(&job->outcome[code == 0 ? 0 : code == 207000 ? 1 : 2], 1);
}

static void *abort_some(void *argument) {
    abort_job *job = argument;
    aio_outside_begin();
    aio_acl.aclrtSetCurrentContext(job->context);
    for (int i; (i = atomic_fetch_add(&job->next, 1)) < job->size;) {
        abort_one(job, job->streams[i]);
        atomic_fetch_sub(&job->left, 1);
    }
    aio_outside_end(0);
    release_job(job);
    return NULL;
}

static abort_job *new_job(int device) {
    int room = aio_device_sweep(device) + 16;
    abort_job *job = calloc(1, sizeof *job + (size_t)room * sizeof(aio_stream *));
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    if (!job)
        return NULL;
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (job->size == room || stream->generation != generation || !unfinished(stream))
            continue;
        aio_stream_hold(stream);
        job->streams[job->size++] = stream;
    }
    job->context = atomic_load(&aio_devices[device].context);
    atomic_init(&job->references, 1);
    atomic_init(&job->left, job->size);
    return job;
}

static void start_aborters(abort_job *job) {
    for (int i = 0; i < job->size && i < AIO_ABORTERS; i++) {
        atomic_fetch_add(&job->references, 1);
        if (aio_spawn("aioacl-abort", abort_some, job))
            atomic_fetch_sub(&job->references, 1);
    }
}

void aio_device_abort(int device, int64_t timeout_us, int32_t out[3]) {
    int64_t end = aio_now_us() + timeout_us;
    struct timespec nap = {0, 200000};
    abort_job *job = aio_present[AIO_FN_aclrtStreamAbort] ? new_job(device) : NULL;
    out[0] = out[1] = out[2] = 0;
    if (!job)
        return;
    start_aborters(job);
    while (atomic_load(&job->left) && aio_now_us() < end)
        nanosleep(&nap, NULL);
    for (int i = 0; i < 3; i++)
        out[i] = atomic_load(&job->outcome[i]);
    out[2] += atomic_load(&job->left);
    release_job(job);
}

/* --- heartbeat --------------------------------------------------------------- */
/*
 * After a fault a queue can stand still until somebody synchronizes something that has work.  A record takes
 * long enough that the wait right behind it has something to wait for; a few of them make sure.
 */
static int beat(aclrtStream stream) {
    aclrtEvent event = NULL;
    int code = aio_acl.aclrtCreateEventExWithFlag(&event, EVENT_SYNC);
    for (int i = 0; i < 4 && code == 0; i++) {
        code = aio_acl.aclrtRecordEvent(event, stream);
        if (code == 0)
            code = aio_acl.aclrtSynchronizeEventWithTimeout(event, BEAT_MS);
    }
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
    if (stream)
        aio_acl.aclrtDestroyStreamForce(stream);
    aio_end(&frame, code);
    return code;
}

/* --- a reset by somebody else ------------------------------------------------ */
static bool shut(struct aio_device *self) {
    uint64_t seen = atomic_load(&self->word), next;
    do {
        uint64_t generation = (aio_word_generation(seen) + 1) & 0xfffff;
        if (aio_word_state(seen) == AIO_CLOSED)
            return false;
        next = (seen & ~(0xfffffull << 36)) | (generation << 36) | ((uint64_t)AIO_FOREIGN << 56);
    } while (!atomic_compare_exchange_weak(&self->word, &seen, next));
    return true;
}

/* On the resetting thread the runtime still takes an abort; on any other it answers that there is no context.
 */
static void abort_here(int device) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));)
        if (unfinished(stream) && aio_present[AIO_FN_aclrtStreamAbort])
            aio_acl.aclrtStreamAbort(stream->handle);
}

static void on_state(int32_t device, aclrtDeviceState state, void *unused) {
    (void)unused;
    if (device < 0 || device >= AIO_DEVICES || state != ACL_RT_DEVICE_STATE_RESET_PRE || aio_self()->own_reset)
        return;
    if (!shut(&aio_devices[device]))
        return;
    aio_watcher_wake(device);
    abort_here(device);
    aio_gate_wait(device, 1 << AIO_ENQUEUE | 1 << AIO_WAIT | 1 << AIO_LIFETIME, FOREIGN_GRACE_US);
    atomic_fetch_add(&aio_devices[device].foreign, 1);
    aio_device_kick(device, AIO_KICK_FOREIGN);
}

uint32_t aio_device_foreign(int device) {
    return atomic_load(&aio_devices[device].foreign);
}

int aio_watch_foreign(void) {
    if (!aio_present[AIO_FN_aclrtRegDeviceStateCallback])
        return AIO_ABSENT;
    return aio_acl.aclrtRegDeviceStateCallback("aioacl", on_state, NULL);
}
