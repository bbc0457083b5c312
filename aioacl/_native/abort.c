/*
 * Aborts running work. Before a reset by aioacl, all busy streams are aborted in parallel. On a foreign reset,
 * the resetting thread aborts them, one after another.
 *
 * The engine handles a foreign reset in the runtime's device-state callback. The callback runs on the resetting
 * thread, before the tear-down. It takes no lock that a thread inside C may hold.
 */
#include <stdlib.h>

#include "internal.h"

/* An abort of several streams. The aborting threads and the thread that waits for them share this record, and
 * the last of these threads frees it. */
typedef struct {
    atomic_int references;
    atomic_int next;
    atomic_int left;
    atomic_int outcome[3]; /* aborted, not supported, failed */
    void *context;
    void **named; /* native streams of other code, aborted after aioacl's own */
    int device;
    int size;
    int named_size;
    aio_stream *streams[];
} abort_job;

static void release_job(abort_job *job) {
    if (atomic_fetch_sub(&job->references, 1) != 1) {
        return;
    }
    for (int i = 0; i < job->size; i++) {
        aio_stream_unhold(job->streams[i]);
    }
    free(job->named);
    free(job);
}

static bool runs(aclrtStream stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    int before = aio_calling(AIO_FN_aclrtStreamQuery);
    int code = aio_acl.aclrtStreamQuery(stream, &status);
    aio_calling(before);
    return code != 0 || status != ACL_STREAM_STATUS_COMPLETE;
}

/* Without the function, the stream counts as a stream whose abort is not supported: its work still runs. */
static int abort_if_possible(aclrtStream stream) {
    return aio_present[AIO_FN_aclrtStreamAbort] ? aio_acl.aclrtStreamAbort(stream) : RT_FEATURE_NOT_SUPPORT;
}

static void abort_native(abort_job *job, aclrtStream stream) {
    if (!runs(stream)) {
        return;
    }
    bool notes = aio_locking_begin(job->device);
    int code = abort_if_possible(stream);
    aio_locking_end(job->device, notes, AIO_UNKNOWN);
    atomic_fetch_add(&job->outcome[code == 0 ? 0 : code == RT_FEATURE_NOT_SUPPORT ? 1 : 2], 1);
}

/* A call that was admitted before the gate closed may still be destroying the stream. */
static void abort_one(abort_job *job, int i) {
    if (i >= job->size) {
        void *named = job->named[i - job->size];
        if (aio_stream_is_elsewhere(named, job->context)) {
            atomic_fetch_add(&job->outcome[2], runs(named)); /* the runtime would refuse the abort */
        } else {
            abort_native(job, named);
        }
        return;
    }
    if (!aio_stream_use(job->streams[i])) {
        return;
    }
    abort_native(job, job->streams[i]->handle);
    aio_stream_unuse(job->streams[i]);
}

static void *abort_some(void *argument) {
    abort_job *job = argument;
    aio_pass pass = aio_make_pass(job->device, 0, 0);
    aio_helper_begin(job->device, AIO_FN_aclrtStreamAbort);
    aio_outside_begin();
    bool leaving = atomic_load(&aio_exiting); /* first count, then read the flag, as in the gate */
    int before = aio_calling(AIO_FN_aclrtSetCurrentContext);
    if (!leaving) {
        aio_acl.aclrtSetCurrentContext(job->context);
    }
    aio_calling(before);
    for (int i; !leaving && (i = atomic_fetch_add(&job->next, 1)) < job->size + job->named_size;) {
        abort_one(job, i);
        atomic_fetch_sub(&job->left, 1);
    }
    aio_outside_end(0);
    aio_leave(pass, AIO_LIFETIME);
    release_job(job);
    return NULL;
}

static bool add_named(abort_job *job, void *const *named, int count) {
    job->named = calloc((size_t)count + 1, sizeof *job->named);
    if (!job->named) {
        return false;
    }
    for (; job->named_size < count; job->named_size++) {
        job->named[job->named_size] = named[job->named_size];
    }
    return true;
}

static abort_job *new_job(int device, void *const *named, int count) {
    int room = aio_device_ask_streams(device) + 16;
    abort_job *job = calloc(1, sizeof *job + (size_t)room * sizeof(aio_stream *));
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    if (!job) {
        return NULL;
    }
    if (!add_named(job, named, count)) {
        free(job);
        return NULL;
    }
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (job->size == room || stream->generation != generation || !aio_stream_is_working(stream)) {
            continue;
        }
        aio_stream_hold(stream);
        job->streams[job->size++] = stream;
    }
    job->device = device;
    job->context = atomic_load(&aio_devices[device].context);
    atomic_init(&job->references, 1);
    atomic_init(&job->left, job->size + job->named_size);
    return job;
}

/* Returns how many threads were started. */
static int start_aborters(abort_job *job) {
    int started = 0;
    for (int i = 0; i < job->size + job->named_size && i < AIO_ABORTERS; i++) {
        if (aio_helper_count(job->device)) {
            break;
        }
        atomic_fetch_add(&job->references, 1);
        if (aio_spawn("aioacl-abort", abort_some, job) == 0) {
            started++;
            continue;
        }
        atomic_fetch_sub(&job->references, 1);
        aio_count_out(aio_make_pass(job->device, 0, 0), AIO_LIFETIME);
    }
    return started;
}

/* How many streams of the generation have unfinished work. */
static int count_unfinished(int device) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    int count = 0;
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        count += stream->generation == generation && aio_stream_is_working(stream);
    }
    return count;
}

void aio_device_abort(int device, int64_t timeout_us, int32_t out[3]) {
    aio_device_abort_named(device, NULL, 0, timeout_us, out);
}

void aio_device_abort_named(int device, void *const *named, int count, int64_t timeout_us, int32_t out[3]) {
    int64_t end = aio_now_us() + timeout_us;
    struct timespec nap = {0, 200000};
    out[0] = out[1] = out[2] = 0;
    abort_job *job = new_job(device, named, count);
    if (!job) {
        out[2] = count_unfinished(device) + count;
        return;
    }
    bool started = start_aborters(job) > 0;
    while (started && atomic_load(&job->left) && aio_now_us() < end) {
        nanosleep(&nap, NULL);
    }
    for (int i = 0; i < 3; i++) {
        out[i] = atomic_load(&job->outcome[i]);
    }
    out[2] += atomic_load(&job->left);
    release_job(job);
}

static bool found(uint64_t word) {
    return aio_word_flags(word) & AIO_FOUND;
}

/* Shuts the gate for a foreign reset, and raises the generation. If a call has found this reset before, the
 * generation is already raised. False if the device is closed. */
static bool shut(struct aio_device *self, uint64_t *before) {
    uint64_t seen = atomic_load(&self->word), next;
    do {
        if (aio_word_state(seen) == AIO_CLOSED) {
            return false;
        }
        next = aio_shut_word(seen, aio_word_generation(seen) + !found(seen));
    } while (!atomic_compare_exchange_weak(&self->word, &seen, next));
    aio_flight_note(AIO_FLIGHT_STATE, (int)(self - aio_devices), aio_word_generation(next), AIO_RESETTING,
                    AIO_FOREIGN);
    *before = seen;
    return true;
}

/* The generation that the foreign reset ends. */
static uint32_t ended(uint64_t before) {
    return (aio_word_generation(before) - found(before)) & 0xfffff;
}

/* Whether the streams may be aborted now. If aioacl itself resets the device, it has already aborted the
 * streams, and the runtime may have destroyed them. If a call has found the foreign reset, the streams still
 * exist: the tear-down comes after the callback, and the gate has admitted no call since the generation was
 * raised. */
static bool streams_live(uint64_t word) {
    int state = aio_word_state(word);
    bool open = (state == AIO_OPEN || state == AIO_DRAINING) && !(aio_word_flags(word) & AIO_FOREIGN);
    return open || found(word);
}

/* Aborts the busy streams of the generation. On the resetting thread the runtime still accepts an abort. On any
 * other thread the abort would fail, because the runtime finds no context. */
static void abort_here(int device, uint32_t generation) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (stream->generation != generation || !aio_stream_is_working(stream) || !aio_stream_use(stream)) {
            continue;
        }
        aio_acl.aclrtStreamAbort(stream->handle);
        aio_stream_unuse(stream);
    }
}

/* Aborts with the device's context current. The resetting thread may have another context, or none. As in the
 * gate, another context is made current again after the aborts. */
static void abort_bound(int device, uint32_t generation) {
    void *ours = atomic_load(&aio_devices[device].context), *current = NULL;
    if (aio_acl.aclrtGetCurrentContext(&current) != 0) {
        current = NULL;
    }
    if (current != ours && aio_acl.aclrtSetCurrentContext(ours) != 0) {
        return;
    }
    abort_here(device, generation);
    if (current && current != ours) {
        aio_acl.aclrtSetCurrentContext(current);
    }
}

/* True if no call that uses the engine's events is inside. Jobs, and calls that make or destroy something else,
 * may be inside, because they do not use these events. A thread that waits in C for an event may also be
 * inside: it is counted in `blocked_waiters` of the event. */
static bool events_are_unused(int device) {
    return aio_gate_wait(device, 1 << AIO_ENQUEUE | 1 << AIO_WAIT | AIO_BLOCKED_MAY_STAY, 0);
}

/* The runtime's device-state callback. While the device is closed, for example during an open, this function
 * only counts the reset. An open compares the count before and after, and so notices the reset. */
static void on_state(int32_t device, aclrtDeviceState state, void *unused) {
    uint64_t before;
    (void)unused;
    if (device < 0 || device >= AIO_DEVICES) {
        return;
    }
    aio_self()->sets = state == ACL_RT_DEVICE_STATE_SET_PRE;
    atomic_fetch_add(&aio_devices[device].setups, state == ACL_RT_DEVICE_STATE_SET_PRE);
    atomic_fetch_add(&aio_devices[device].foreign_sets,
                     state == ACL_RT_DEVICE_STATE_SET_POST && !aio_self()->own_reset);
    if (state == ACL_RT_DEVICE_STATE_RESET_POST) {
        uint32_t ended = atomic_exchange(&aio_devices[device].ending_sets, 0);
        atomic_fetch_sub(&aio_devices[device].foreign_sets, ended);
        atomic_store(&aio_devices[device].kept_set, false);
        atomic_fetch_add(&aio_devices[device].unseen_resets,
                         atomic_load(&aio_devices[device].own_context) && !aio_self()->own_reset);
    }
    if (state != ACL_RT_DEVICE_STATE_RESET_PRE) {
        return;
    }
    /* The reset ends all sets, unless it fails. Then it has no RESET_POST. */
    atomic_store(&aio_devices[device].ending_sets, atomic_load(&aio_devices[device].foreign_sets));
    if (aio_self()->own_reset) {
        atomic_fetch_add(&aio_devices[device].own_teardowns, 1);
        return;
    }
    if (atomic_load(
            &aio_devices[device].own_context)) { /* the reset does not end the context that aioacl uses */
        aio_borrowed_reset(device);
        return;
    }
    atomic_fetch_add(&aio_devices[device].foreign, 1);
    if (!shut(&aio_devices[device], &before)) {
        return;
    }
    aio_watcher_wake(device);
    if (aio_present[AIO_FN_aclrtStreamAbort] && streams_live(before)) {
        abort_bound(device, ended(before));
    }
    if (aio_gate_wait_others(device, AIO_FOREIGN_GRACE_US) || events_are_unused(device)) {
        aio_device_destroy_events_of(device, ended(before)); /* they cannot be destroyed after the tear-down */
    }
    aio_device_kick(device, AIO_KICK_FOREIGN);
}

int aio_watch_foreign(void) {
    if (!aio_present[AIO_FN_aclrtRegDeviceStateCallback]) {
        return AIO_ABSENT;
    }
    int code = aio_acl.aclrtRegDeviceStateCallback("aioacl", on_state, NULL);
    aio_told_of_resets(code == 0);
    return code;
}
