/* Prototypes of the ACL functions under test, from the table, and checks that print the place of a failure. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

static inline void until_waiting(const char *function) {
    while (aclsim_waiting(function) < 1) {
        sched_yield();
    }
}

static inline aclError body_sync(void *stream) {
    return aclrtSynchronizeStream(stream);
}

#endif
