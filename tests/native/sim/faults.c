/* The fault engine with threads: rules that are added and removed, hangs, devices in a fault state, and the
 * clock. No test sleeps. */
#include <string.h>

#include "sim_test.h"

enum { THREADS = 4, ROUNDS = 2000 };

static const char count_calls[] = "aclrtGetDeviceCount:rc=507000:p=0.5";

static uint32_t add(const char *rule) {
    uint32_t id = 0;
    CHECK(aclsim_fault_add(rule, &id) == 0);
    CHECK(id != 0);
    return id;
}

static void *ask_main(void *failed) {
    uint32_t count = 0;
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add((atomic_int *)failed, aclrtGetDeviceCount(&count) != 0 ? 1 : 0);
    }
    return NULL;
}

/* A rule with a probability counts the calls of all threads. About half of the calls fail: as many as the rule
 * has fired on. Meanwhile other rules are added and removed. */
static void test_chance_with_several_threads(void) {
    atomic_int failed = 0;
    uint64_t hits = 0;
    uint64_t matches = 0;
    pthread_t threads[THREADS];
    uint32_t id = add(count_calls);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, ask_main, &failed) == 0);
    }
    for (int i = 0; i < 200; i++) {
        CHECK(aclsim_fault_remove(add("copy:rc=507000")) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(aclsim_fault_hits(id, &hits, &matches) == 0);
    CHECK(matches == THREADS * ROUNDS && hits == (uint64_t)atomic_load(&failed));
    CHECK(hits > matches / 3 && hits < matches * 2 / 3);
    aclsim_fault_clear();
}

static aclError body_hang(void *unused) {
    uint32_t count = 0;
    (void)unused;
    return aclrtGetDeviceCount(&count);
}

static void test_hangs(void) {
    call_t calls[THREADS];
    add("aclrtGetDeviceCount:hang=gate:rc=507000");
    for (int i = 0; i < THREADS; i++) {
        call_start(&calls[i], body_hang, NULL);
    }
    UNTIL(aclsim_hung("aclrtGetDeviceCount") >= THREADS);
    aclsim_fault_clear(); /* calls that already hang continue to hang */
    CHECK(aclsim_hung("aclrtGetDeviceCount") == THREADS);
    CHECK(aclsim_release_call("gate") == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(call_join(&calls[i]) == 507000);
    }
}

static void test_fault_state_with_waiting_calls(void) {
    aclrtStream stream = new_stream();
    void *block = new_block(64);
    call_t call;
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 1, 64, stream), 0);
    call_waiting(&call, body_sync, stream, "aclrtSynchronizeStream");
    add("copy:sticky=507018:once");
    CHECK_RC(aclrtMemsetAsync(block, 64, 1, 64, stream), 0);
    CHECK(call_join(&call) == 507018);
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 507899);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    aclsim_fault_clear();
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK(stats().streams == 0 && stats().device_blocks == 0);
}

static aclError body_set_and_create(void *stream) {
    CHECK_RC(aclrtSetDevice(0), 0);
    return aclrtCreateStream(stream);
}

/* aclsim_release_all() unlocks a process that is locked for a snapshot, and so does aclFinalize(). */
static void test_a_snapshot_lock_ends(void) {
    aclrtStream stream = NULL;
    call_t call;
    CHECK_RC(aclrtSnapShotProcessLock(getpid(), NULL), 0);
    call_waiting(&call, body_set_and_create, &stream, "aclrtCreateStream");
    aclsim_release_all();
    CHECK(call_join(&call) == 0);
    CHECK_RC(aclrtSnapShotProcessLock(getpid(), NULL), 0);
    CHECK_RC(aclFinalize(), 0);
    CHECK_RC(aclInit(NULL), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_RC(aclrtResetDevice(0), 0); /* undoes the set of the other thread */
}

static aclError body_delayed(void *unused) {
    size_t free = 0;
    size_t total = 0;
    (void)unused;
    return aclrtGetMemInfo(ACL_HBM_MEM, &free, &total);
}

static void test_clock(void) {
    call_t calls[THREADS];
    aclsim_clock_virtual(1);
    int64_t start = aclsim_clock_now();
    add("aclrtGetMemInfo:latency=3600000");
    for (int i = 0; i < THREADS; i++) {
        call_start(&calls[i], body_delayed, NULL);
    }
    until_waiting(calls, THREADS, "aclrtGetMemInfo");
    CHECK(aclsim_clock_now() == start);
    CHECK(aclsim_clock_advance(INT64_MAX - start) == -1 && aclsim_clock_advance(-1) == -1);
    CHECK(aclsim_clock_now() == start);
    CHECK(aclsim_clock_advance(3600000000000) == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(call_join(&calls[i]) == 0);
    }
    aclsim_clock_virtual(0);
    CHECK(aclsim_clock_advance(1) == -1);
    CHECK(aclsim_clock_now() >= start + 3600000000000);
    aclsim_fault_clear();
}

int main(void) {
    start_acl();
    RUN(test_chance_with_several_threads, test_hangs, test_fault_state_with_waiting_calls,
        test_a_snapshot_lock_ends, test_clock);
    CHECK(stats().violations == 0);
    CHECK_RC(aclrtResetDevice(0), 0);
}
