/* Threads that make all kinds of calls at the same time. The results of the calls are not checked. The
 * sanitizers must report nothing, and the program must end. */
#include <pthread.h>
#include <time.h>

#include "sim_test.h"

enum { SHARED = 6, BUFFER = 256 };

static atomic_bool stop;
static atomic_uintptr_t streams[SHARED];
static atomic_uintptr_t events[SHARED];
static atomic_ulong operations;
static atomic_ulong host_calls;
static pthread_t poller;

typedef struct {
    uint32_t seed;
    void *pinned;
    char pageable[BUFFER];
} state_t;

static uint32_t draw(state_t *state, uint32_t below) {
    state->seed = state->seed * 1664525U + 1013904223U;
    return (state->seed >> 8) % below;
}

static void *shared(state_t *state, atomic_uintptr_t *table) {
    return (void *)atomic_load(&table[draw(state, SHARED)]);
}

static void on_host(void *unused) {
    (void)unused;
    atomic_fetch_add(&host_calls, 1);
}

static void make(state_t *state) {
    void *handle = NULL;
    uint32_t slot = draw(state, SHARED);
    if (draw(state, 2) == 0) {
        if (aclrtCreateStream(&handle) == 0) {
            aclrtDestroyStreamForce((void *)atomic_exchange(&streams[slot], (uintptr_t)handle));
        }
        return;
    }
    aclError rc =
        draw(state, 2) == 0 ? aclrtCreateEventWithFlag(&handle, 9) : aclrtCreateEventExWithFlag(&handle, 9);
    if (rc == 0) {
        aclrtDestroyEvent((void *)atomic_exchange(&events[slot], (uintptr_t)handle));
    }
}

static void enqueue(state_t *state) {
    void *stream = shared(state, streams);
    void *block = NULL;
    switch (draw(state, 6)) {
    case 0:
        aclrtRecordEvent(shared(state, events), stream);
        break;
    case 1:
        aclrtStreamWaitEvent(stream, shared(state, events));
        break;
    case 2:
        aclrtLaunchHostFunc(stream, on_host, NULL);
        break;
    case 3:
        aclrtSubscribeReport((uint64_t)poller, stream);
        aclrtLaunchCallback(on_host, NULL, draw(state, 2) == 0 ? ACL_CALLBACK_BLOCK : ACL_CALLBACK_NO_BLOCK,
                            stream);
        break;
    default:
        if (aclrtMalloc(&block, BUFFER, ACL_MEM_MALLOC_HUGE_FIRST) == 0) {
            aclrtMemcpyAsync(block, BUFFER, state->pinned, BUFFER, ACL_MEMCPY_HOST_TO_DEVICE, stream);
            aclrtMemsetAsync(block, BUFFER, 1, BUFFER, stream);
            aclrtFree(block);
        }
        break;
    }
}

static void synchronize(state_t *state) {
    aclrtStreamStatus stream_status;
    aclrtEventRecordedStatus event_status;
    aclsim_stats_t stats;
    switch (draw(state, 6)) {
    case 0:
        aclrtSynchronizeStreamWithTimeout(shared(state, streams), 2);
        break;
    case 1:
        aclrtSynchronizeEventWithTimeout(shared(state, events), 2);
        break;
    case 2:
        aclrtSynchronizeDeviceWithTimeout(2);
        break;
    case 3:
        aclrtStreamQuery(shared(state, streams), &stream_status);
        aclsim_stats(&stats);
        break;
    case 4:
        aclrtQueryEventStatus(shared(state, events), &event_status);
        break;
    default:
        aclGetRecentErrMsg();
        break;
    }
}

static void disturb(state_t *state) {
    static char text[4096];
    static uint64_t next;
    void *stream = shared(state, streams);
    aclrtContext context = NULL;
    switch (draw(state, 7)) {
    case 0:
        aclrtStreamAbort(stream);
        break;
    case 1:
        aclrtResetDevice(0);
        break;
    case 2:
        aclrtResetDeviceForce(0);
        break;
    case 3:
        aclsim_fail_next(stream, 507015);
        break;
    case 4:
        aclsim_hold(stream);
        aclsim_release_all();
        break;
    case 5:
        if (aclrtCreateContext(&context, 0) == 0) {
            aclrtDestroyContext(context);
        }
        break;
    default:
        aclsim_journal(&next, text, sizeof text);
        break;
    }
    aclrtSetDevice(0);
}

static void *work(void *arg) {
    state_t state = {.seed = (uint32_t)(uintptr_t)arg};
    aclrtSetDevice(0);
    aclrtMallocHost(&state.pinned, BUFFER);
    for (unsigned long i = 0; !atomic_load(&stop); i++) {
        uint32_t what = draw(&state, 16);
        if (what < 2) {
            make(&state);
        } else if (what < 10) {
            enqueue(&state);
        } else if (what < 15) {
            synchronize(&state);
        } else {
            aclrtSetDevice(0);
        }
        if (state.pinned == NULL) {
            aclrtMallocHost(&state.pinned, BUFFER);
        }
        atomic_fetch_add_explicit(&operations, 1, memory_order_relaxed);
    }
    return NULL;
}

static void *disturb_all(void *arg) {
    state_t state = {.seed = (uint32_t)(uintptr_t)arg};
    aclrtSetDevice(0);
    while (!atomic_load(&stop)) {
        disturb(&state);
    }
    return NULL;
}

static void *poll(void *unused) {
    (void)unused;
    while (!atomic_load(&stop)) {
        aclrtSetDevice(0);
        aclrtProcessReport(2);
    }
    return NULL;
}

static void run_for(double seconds) {
    struct timespec start;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        struct timespec pause = {.tv_nsec = 10000000};
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
}

int main(int argc, char **argv) {
    enum { WORKERS = 4 };
    pthread_t workers[WORKERS];
    pthread_t disturber;
    double seconds = argc > 1 ? atof(argv[1]) : 3.0;
    CHECK(pthread_create(&poller, NULL, poll, NULL) == 0);
    for (uintptr_t i = 0; i < WORKERS; i++) {
        CHECK(pthread_create(&workers[i], NULL, work, (void *)(i + 1)) == 0);
    }
    CHECK(pthread_create(&disturber, NULL, disturb_all, (void *)99) == 0);
    run_for(seconds);
    atomic_store(&stop, true);
    /* A thread may be blocked by the full queue of a stream that is never released. The reset unblocks it. */
    pthread_join(disturber, NULL);
    aclrtSetDevice(0);
    aclrtResetDeviceForce(0);
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i], NULL);
    }
    pthread_join(poller, NULL);
    aclsim_stats_t stats;
    aclsim_stats(&stats);
    printf("operations %lu, calls %lu, tasks %lu, host calls %lu, violations %lu, inside %lu\n",
           atomic_load(&operations), stats.calls, stats.tasks, atomic_load(&host_calls), stats.violations,
           stats.inside);
    CHECK(stats.inside == 0);
}
