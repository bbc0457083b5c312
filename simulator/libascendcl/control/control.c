/* The controls for tests. The controls hold sim.lock only briefly, and do not wait. */
#include <string.h>

#include "model.h"

API int aclsim_control_version(void) {
    return ACLSIM_CONTROL_VERSION;
}

static void count_inside(thread_t *thread, void *arg) {
    uint64_t *inside = arg;
    *inside += atomic_load(&thread->function) >= 0 ? 1 : 0;
}

typedef struct {
    int function;
    int count;
} waiting_t;

static void count_waiting(thread_t *thread, void *arg) {
    waiting_t *waiting = arg;
    bool blocked = atomic_load(&thread->waiting) && atomic_load(&thread->function) == waiting->function;
    waiting->count += blocked ? 1 : 0;
}

API int aclsim_waiting(const char *function) {
    waiting_t waiting = {.function = function_find(function), .count = 0};
    if (waiting.function < 0) {
        return -1;
    }
    sim_start();
    SIM_GUARD();
    thread_each(count_waiting, &waiting);
    return waiting.count;
}

static void count_stream(void *object, void *arg) {
    const stream_t *stream = object;
    uint64_t *streams = arg;
    *streams += stream->is_default || stream->hidden ? 0 : 1;
}

API void aclsim_stats(aclsim_stats_t *stats) {
    if (stats == NULL) {
        return;
    }
    sim_start();
    memset(stats, 0, sizeof *stats);
    sim_lock();
    for (int i = 0; i < sim.settings.devices; i++) {
        stats->contexts += sim.devices[i].explicit_contexts;
    }
    object_each(KIND_STREAM, count_stream, &stats->streams);
    stats->events = object_count(KIND_EVENT);
    stats->notifies = object_count(KIND_NOTIFY);
    stats->descriptions = described_count();
    stats->count_notifies = object_count(KIND_COUNT_NOTIFY);
    stats->binaries = object_count(KIND_BINARY);
    stats->models = object_count(KIND_GRAPH);
    stats->labels = object_count(KIND_LABEL);
    stats->offline_models = model_count();
    memory_counts(stats);
    stats->tasks = sim.tasks;
    thread_each(count_inside, &stats->inside);
    sim_unlock();
    stats->calls = calls_all();
    stats->violations = usage_count();
}

API int aclsim_retain_count(int32_t device) {
    sim_start();
    SIM_GUARD();
    const device_t *found = device_find(device);
    return found != NULL ? (int)found->retains : -1;
}

API uint64_t aclsim_resets(int32_t device) {
    sim_start();
    SIM_GUARD();
    const device_t *found = device_find(device);
    return found != NULL ? found->resets : 0;
}

static void set_held(stream_t *stream, bool held) {
    stream->held = held;
    stream_kick(stream);
}

static int hold(void *handle, bool held) {
    sim_start();
    SIM_GUARD();
    stream_t *stream = object_find(KIND_STREAM, handle);
    if (stream != NULL) {
        set_held(stream, held);
    }
    return stream != NULL ? 0 : -1;
}

API int aclsim_hold(void *stream) {
    return hold(stream, true);
}

API int aclsim_release(void *stream) {
    return hold(stream, false);
}

static void release_stream(void *object, void *arg) {
    (void)arg;
    set_held(object, false);
}

API void aclsim_release_all(void) {
    sim_start();
    SIM_GUARD();
    object_each(KIND_STREAM, release_stream, NULL);
    fault_release_all();
    snapshot_end();
}

API int aclsim_fail_next(void *stream, int32_t code) {
    sim_start();
    SIM_GUARD();
    stream_t *found = object_find(KIND_STREAM, stream);
    if (found != NULL) {
        found->fail_next = code;
    }
    return found != NULL ? 0 : -1;
}

API int64_t aclsim_pending(void *stream) {
    sim_start();
    SIM_GUARD();
    const stream_t *found = object_find(KIND_STREAM, stream);
    return found != NULL ? (int64_t)(found->enqueued - found->ended) : -1;
}

API void aclsim_set_abort_supported(int supported) {
    sim_start();
    SIM_GUARD();
    sim.abort_supported = supported != 0;
}

API void aclsim_forget(void) {
    calls_forget_counts();
    usage_forget();
    journal_forget();
}
