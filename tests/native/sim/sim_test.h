/* Prototypes of the ACL functions under test, from the table, checks that print the place of a failure, and
 * functions that make and end objects. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aclsim.h"
#include "sim_types.h"

#define ACL_FN(kind, ret, name, params, args, since) ret name params;
#include "sim_api.inc"
#undef ACL_FN

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

#define CHECK_RC(call, want)                                                                                   \
    do {                                                                                                       \
        int rc_ = (call);                                                                                      \
        if (rc_ != (want)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s: expected %d, got %d\n", __FILE__, __LINE__, #call, (want), rc_);       \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

/* Checks that the call succeeds, and that the condition holds afterwards. */
#define CHECK_THEN(call, condition)                                                                            \
    do {                                                                                                       \
        CHECK_RC(call, 0);                                                                                     \
        CHECK(condition);                                                                                      \
    } while (0)

#define UNTIL(condition)                                                                                       \
    while (!(condition))                                                                                       \
    sched_yield()

/* Runs the tests in this order. */
#define RUN(...)                                                                                               \
    do {                                                                                                       \
        void (*tests_[])(void) = {__VA_ARGS__};                                                                \
        for (size_t i_ = 0; i_ < sizeof tests_ / sizeof *tests_; i_++) {                                       \
            tests_[i_]();                                                                                      \
        }                                                                                                      \
    } while (0)

/* Runs each test in a process of its own. */
#define RUN_IN_CHILDREN(...)                                                                                   \
    do {                                                                                                       \
        void (*tests_[])(void) = {__VA_ARGS__};                                                                \
        for (size_t i_ = 0; i_ < sizeof tests_ / sizeof *tests_; i_++) {                                       \
            run_in_child(tests_[i_], NULL, NULL);                                                              \
        }                                                                                                      \
    } while (0)

/* Ends objects in this order: `END({aclrtFree, block}, {aclrtDestroyStream, stream})`. */
#define END(...)                                                                                               \
    do {                                                                                                       \
        const end_t ends_[] = {__VA_ARGS__};                                                                   \
        for (size_t i_ = 0; i_ < sizeof ends_ / sizeof *ends_; i_++) {                                         \
            CHECK_RC(ends_[i_].end(ends_[i_].object), 0);                                                      \
        }                                                                                                      \
    } while (0)

#define EACH(end, ...)                                                                                         \
    do {                                                                                                       \
        void *ended_[] = {__VA_ARGS__};                                                                        \
        for (size_t i_ = 0; i_ < sizeof ended_ / sizeof *ended_; i_++) {                                       \
            CHECK_RC(end(ended_[i_]), 0);                                                                      \
        }                                                                                                      \
    } while (0)
#define END_STREAMS(...) EACH(aclrtDestroyStream, __VA_ARGS__)
#define END_EVENTS(...) EACH(aclrtDestroyEvent, __VA_ARGS__)
#define END_BLOCKS(...) EACH(aclrtFree, __VA_ARGS__)

typedef struct {
    aclError (*end)(void *);
    void *object;
} end_t;

static inline aclrtStream new_stream(void) {
    aclrtStream stream = NULL;
    CHECK_RC(aclrtCreateStream(&stream), 0);
    return stream;
}

static inline aclrtStream held_stream(void) {
    aclrtStream stream = new_stream();
    CHECK(aclsim_hold(stream) == 0);
    return stream;
}

static inline void release_and_wait(aclrtStream stream, aclError want) {
    CHECK(aclsim_release(stream) == 0);
    CHECK_RC(aclrtSynchronizeStream(stream), want);
}

static inline void finish_stream(aclrtStream stream, aclError want) {
    CHECK_RC(aclrtSynchronizeStream(stream), want);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static inline aclrtNotify new_notify(void) {
    aclrtNotify notify = NULL;
    CHECK_RC(aclrtCreateNotify(&notify, 0), 0);
    return notify;
}

static inline aclrtEvent new_event(uint32_t flags) {
    aclrtEvent event = NULL;
    CHECK_RC(aclrtCreateEventExWithFlag(&event, flags), 0);
    return event;
}

static inline aclrtEvent old_event(uint32_t flag) {
    aclrtEvent event = NULL;
    CHECK_RC(aclrtCreateEventWithFlag(&event, flag), 0);
    return event;
}

static inline aclrtContext new_context(void) {
    aclrtContext context = NULL;
    CHECK_RC(aclrtCreateContext(&context, 0), 0);
    return context;
}

static inline aclrtContext current_context(void) {
    aclrtContext context = NULL;
    CHECK_RC(aclrtGetCurrentContext(&context), 0);
    return context;
}

static inline void *new_block(size_t size) {
    void *block = NULL;
    CHECK_RC(aclrtMalloc(&block, size, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    return block;
}

static inline void *zeros(size_t size) {
    void *block = new_block(size);
    CHECK_RC(aclrtMemset(block, size, 0, size), 0);
    return block;
}

static inline void *new_host(size_t size) {
    void *block = NULL;
    CHECK_RC(aclrtMallocHost(&block, size), 0);
    return block;
}

static inline double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline aclsim_stats_t stats(void) {
    aclsim_stats_t now;
    aclsim_stats(&now);
    return now;
}

static inline void start_acl(void) {
    CHECK_RC(aclInit(NULL), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
}

/* Checks that the tests have ended all their objects. */
static inline void check_nothing_left(void) {
    aclsim_stats_t left = stats();
    CHECK(left.streams == 0 && left.events == 0 && left.notifies == 0 && left.labels == 0);
    CHECK(left.models == 0 && left.device_blocks == 0 && left.host_blocks == 0 && left.descriptions == 0);
}

static inline void end_acl(void) {
    check_nothing_left();
    CHECK_RC(aclrtResetDevice(0), 0);
    CHECK_RC(aclFinalize(), 0);
}

static inline void reset_and_set(void) {
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
}

/* Runs the test in a process of its own, with the variable if there is one. */
static inline void run_in_child(void (*test)(void), const char *variable, const char *value) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        CHECK(variable == NULL || setenv(variable, value, 1) == 0);
        test();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A second thread that makes one call. */
typedef struct {
    pthread_t thread;
    aclrtContext context;
    aclError (*body)(void *);
    void *arg;
    atomic_int rc;
} call_t;

static inline void *call_main(void *arg) {
    call_t *call = arg;
    if (call->context != NULL) {
        aclrtSetCurrentContext(call->context);
    }
    atomic_store(&call->rc, call->body(call->arg));
    return NULL;
}

static inline void call_start(call_t *call, aclError (*body)(void *), void *arg) {
    call->context = NULL;
    aclrtGetCurrentContext(&call->context);
    call->body = body;
    call->arg = arg;
    atomic_store(&call->rc, -1);
    CHECK(pthread_create(&call->thread, NULL, call_main, call) == 0);
}

static inline aclError call_join(call_t *call) {
    pthread_join(call->thread, NULL);
    return atomic_load(&call->rc);
}

/* Makes the call on another thread, and returns its result. */
static inline aclError elsewhere(aclError (*body)(void *), void *arg) {
    call_t call;
    call_start(&call, body, arg);
    return call_join(&call);
}

/* Returns when as many calls as these wait inside `function`. Fails if one of these calls returns before. */
static inline void until_waiting(const call_t *calls, int count, const char *function) {
    while (aclsim_waiting(function) < count) {
        for (int i = 0; i < count; i++) {
            CHECK_RC(atomic_load(&calls[i].rc), -1);
        }
        sched_yield();
    }
}

/* Makes the call on another thread, and returns when the call waits inside `function`. */
static inline void call_waiting(call_t *call, aclError (*body)(void *), void *arg, const char *function) {
    call_start(call, body, arg);
    until_waiting(call, 1, function);
}

static inline aclError body_sync(void *stream) {
    return aclrtSynchronizeStream(stream);
}

static inline aclError body_sync_device(void *unused) {
    (void)unused;
    return aclrtSynchronizeDevice();
}

static inline aclError body_create(void *place) {
    return aclrtCreateStream(place);
}

static inline aclError body_destroy(void *stream) {
    return aclrtDestroyStream(stream);
}

static inline aclError body_abort(void *stream) {
    return aclrtStreamAbort(stream);
}

static inline aclError body_set(void *unused) {
    (void)unused;
    return aclrtSetDevice(0);
}

static inline aclError body_reset(void *unused) {
    (void)unused;
    return aclrtResetDeviceForce(0);
}

/* Enqueues tasks until a call fails. */
static inline aclError body_fill_queue(void *stream) {
    aclError rc = 0;
    void *block = new_block(64);
    while (rc == 0) {
        rc = aclrtMemsetAsync(block, 64, 1, 64, stream);
    }
    return rc;
}

#endif
