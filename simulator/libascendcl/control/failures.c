/* The controls for failed tasks: their ids, the recycle thread, and known faults of the runtime. */
#include <signal.h>

#include "work.h"

API int aclsim_set_next_task(void *stream, uint32_t id) {
    sim_start();
    SIM_GUARD();
    stream_t *found = object_find(KIND_STREAM, stream);
    if (found != NULL) {
        found->next_task = id;
    }
    return found != NULL ? 0 : -1;
}

static bool is_faulted(const stream_t *stream) {
    for (stream_t *each = stream->device->faulted.first; each != NULL; each = each->parked_next) {
        if (graph_client(each) == stream) {
            return true;
        }
    }
    return false;
}

API int aclsim_faulted(void *stream) {
    sim_start();
    SIM_GUARD();
    const stream_t *found = object_find(KIND_STREAM, stream);
    return found != NULL ? is_faulted(found) : -1;
}

API int64_t aclsim_wakes(int32_t device) {
    sim_start();
    SIM_GUARD();
    const device_t *found = device_find(device);
    return found != NULL ? (int64_t)found->round - 1 : -1;
}

API int aclsim_wake(int32_t device) {
    sim_start();
    SIM_GUARD();
    device_t *found = device_find(device);
    if (found != NULL) {
        recycler_wake(found);
    }
    return found != NULL ? 0 : -1;
}

static void switch_to(bool *what, int on) {
    sim_start();
    SIM_GUARD();
    *what = on != 0;
}

API void aclsim_set_query_lag(int on) {
    switch_to(&sim.query_lag, on);
}

API void aclsim_set_reset_crash(int on) {
    switch_to(&sim.reset_crash, on);
}

API void aclsim_set_lost_wait(int on) {
    switch_to(&sim.lost_wait, on);
}

/* A lost wait stays on the list until its time-out. Its waiter keeps the record. */
void record_finish_waiters(record_t *record, aclError rc) {
    bool loses = sim.lost_wait && record->stream != NULL && record->stream->draining;
    waiter_t *next = NULL;
    for (waiter_t *waiter = record->waiters.first; waiter != NULL; waiter = next) {
        next = waiter->next;
        if (waiter->untimed || !loses) {
            wait_finish(waiter, rc);
        }
    }
}

static void end_livelock(void *object, void *arg) {
    (void)arg;
    stream_finish_waiters(object);
}

static void switch_livelock(bool *what, int on) {
    switch_to(what, on);
    SIM_GUARD();
    object_each(KIND_STREAM, end_livelock, NULL);
}

API void aclsim_set_sync_livelock(int on) {
    switch_livelock(&sim.sync_livelock, on);
}

API void aclsim_set_device_livelock(int on) {
    switch_livelock(&sim.device_livelock, on);
}

bool sync_livelocks(const stream_t *stream, const waiter_t *waiter) {
    bool livelock = (sim.sync_livelock && waiter->untimed) || (sim.device_livelock && waiter->whole);
    return livelock && stream->enqueued > waiter->target;
}

/* With the new target, a wait ends as if no later task was enqueued. */
void sync_end_device_livelock(stream_t *stream) {
    bool idle = stream->ended == stream->enqueued;
    for (waiter_t *waiter = stream->waiters.first; idle && waiter != NULL; waiter = waiter->next) {
        waiter->target = waiter->whole ? stream->enqueued : waiter->target;
    }
    if (idle && stream->waiters.first != NULL) {
        stream_finish_waiters(stream);
    }
}

static void find_syncing(thread_t *thread, void *arg) {
    const context_t **context = arg;
    const stream_t *stream = atomic_load(&thread->syncing);
    if (thread != thread_self() && stream != NULL && stream->context == *context) {
        *context = NULL;
    }
}

/* Restores the default action of the signal, because a signal handler of the program, such as the handler of
 * faulthandler, must not change the crash. */
static void crash(void) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

static bool is_enqueueing(const context_t *context) {
    bool found = context->default_stream->room.first != NULL;
    for (const stream_t *stream = context->streams; stream != NULL; stream = stream->next) {
        found = found || stream->room.first != NULL;
    }
    return found;
}

void sync_crash(const context_t *context) {
    const context_t *found = context;
    if (sim.reset_crash) {
        thread_each(find_syncing, (void *)&found);
    }
    if (found != context || (sim.reset_crash && is_enqueueing(context))) {
        crash();
    }
}

void event_crash(void) {
    if (sim.reset_crash) {
        crash();
    }
}
