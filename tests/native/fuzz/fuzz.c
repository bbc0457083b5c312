/*
 * Builds programs of calls from bytes. The first byte selects how a program begins. For each call, two bytes
 * select one function of the whole ABI, and the next bytes give its arguments. Handles come from pools of
 * existing and destroyed handles. Calls write their outputs to scratch memory of 512 bytes. After each program,
 * the harness destroys all objects and checks that no object is left.
 *
 * No call may block for ever. If a call has not returned after 20 ms, a watching thread drops the queued work
 * of all streams, as an abort would. A call that has not returned after 20 seconds is a finding.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "fuzz.h"
#include "sim.h"

#define ACL_FN(kind, ret, name, params, args, since) ret name params;
#include "sim_api.inc"
#undef ACL_FN

enum {
    CALLS_MOST = 24,
    BEGIN_SET = 1,
    BEGIN_STREAM = 2,
    BEGIN_MEMORY = 4,
    BEGIN_EVENT = 8,
    ON_OTHER_THREAD = 0x80,
    RESCUE_MS = 20,
    HANG_MS = 20000
};

static const char *current;
static atomic_llong call_since_ms; /* 0: no call is inside */

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void drop(void *object, void *arg) {
    (void)arg;
    stream_drop(object, RT_STREAM_ABORT, RT_STREAM_ABORT);
}

static void drop_everything(void) {
    sim_lock();
    object_each(KIND_STREAM, drop, NULL);
    sim_unlock();
}

static void *watch(void *arg) {
    const struct timespec nap = {.tv_nsec = 5000000};
    (void)arg;
    while (true) {
        nanosleep(&nap, NULL);
        long long since = atomic_load(&call_since_ms);
        long long stood = since != 0 ? now_ms() - since : 0;
        if (stood > HANG_MS) {
            fprintf(stderr, "%s does not return\n", current);
            abort();
        }
        if (stood > RESCUE_MS) {
            drop_everything();
        }
    }
    return NULL;
}

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void (*wanted)(void);
static bool other_used; /* whether this program has used the other thread */

static void *other_thread(void *arg) {
    (void)arg;
    pthread_mutex_lock(&turn);
    while (true) {
        while (wanted == NULL) {
            pthread_cond_wait(&changed, &turn);
        }
        wanted();
        wanted = NULL;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static void run_on_other(void (*body)(void)) {
    other_used = true;
    pthread_mutex_lock(&turn);
    wanted = body;
    pthread_cond_broadcast(&changed);
    while (wanted != NULL) {
        pthread_cond_wait(&changed, &turn);
    }
    pthread_mutex_unlock(&turn);
}

static void run(const char *name, void (*body)(void), bool elsewhere) {
    current = name;
    atomic_store(&call_since_ms, now_ms());
    if (elsewhere) {
        run_on_other(body);
    } else {
        body();
    }
    atomic_store(&call_since_ms, 0);
}

static void begin(uint8_t how) {
    void *got = NULL;
    if ((how & BEGIN_SET) != 0) {
        aclrtSetDevice(0);
    }
    if ((how & BEGIN_STREAM) != 0 && aclrtCreateStream(&got) == 0) {
        fuzz_keep(fuzz_kind_of("aclrtStream"), got);
    }
    if ((how & BEGIN_EVENT) != 0 && aclrtCreateEvent(&got) == 0) {
        fuzz_keep(fuzz_kind_of("aclrtEvent"), got);
    }
    if ((how & BEGIN_MEMORY) != 0 && aclrtMalloc(&got, 4096, ACL_MEM_MALLOC_HUGE_FIRST) == 0) {
        fuzz_keep(FUZZ_MEMORY, got);
    }
    if ((how & BEGIN_MEMORY) != 0 && aclrtMallocHost(&got, 4096) == 0) {
        fuzz_keep(FUZZ_MEMORY, got);
    }
}

static void end_other_thread(void) {
    aclrtGetLastError(ACL_RT_THREAD_LEVEL);
}

static void end_program(void) {
    drop_everything();
    aclrtSetDevice(0);
    fuzz_end_handles();
    for (int32_t i = 0; i < sim.settings.devices; i++) {
        while (aclsim_retain_count(i) > 0) {
            aclrtResetDeviceForce(i);
        }
    }
    aclFinalize();
    aclrtSetOpWaitTimeout(0);
    aclrtGetLastError(ACL_RT_THREAD_LEVEL);
    if (other_used) {
        run_on_other(end_other_thread);
    }
    other_used = false;
    aclsim_fault_clear();
    aclsim_forget();
}

/* Checks that a program has left no objects, mappings or calls. */
static void check_clean(void) {
    aclsim_stats_t left;
    aclsim_stats(&left);
    uint64_t things = left.contexts + left.streams + left.device_blocks + left.pools + left.pool_blocks +
                      left.managed_blocks + left.mappings + left.registrations + left.exports + left.inside;
    if (things != 0) {
        fprintf(stderr, "objects left (contexts streams blocks pools mappings registrations keys calls):");
        fprintf(stderr, " %ju %ju %ju %ju %ju %ju %ju %ju\n", left.contexts, left.streams,
                left.device_blocks + left.pool_blocks + left.managed_blocks, left.pools, left.mappings,
                left.registrations, left.exports, left.inside);
        abort();
    }
}

static void start(void) {
    pthread_t thread;
    if (!fuzz_scratch_make() || pthread_create(&thread, NULL, watch, NULL) != 0 ||
        pthread_create(&thread, NULL, other_thread, NULL) != 0) {
        abort();
    }
    setenv("AIOACL_SIM_RESET_DROP_MS", "0", 1);
    sim_start();
    aclsim_set_limits("mem=64M,host=64M"); /* all bytes of memory up to these limits exist and can be filled */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    fuzz_input(data, size);
    begin(draw_byte());
    for (int i = 0; i < CALLS_MOST && fuzz_input_left() > 0; i++) {
        uint8_t high = draw_byte();
        size_t index = (size_t)((high & 0x7F) << 8 | draw_byte()) % fuzz_call_count;
        run(fuzz_calls[index].name, fuzz_calls[index].call, (high & ON_OTHER_THREAD) != 0);
    }
    end_program();
    check_clean();
    return 0;
}
