/* The common part of the programs about failed tasks: a log of the callbacks, and events of the older kind,
 * whose query wakes the recycle thread. */
#ifndef FAILURE_TEST_H
#define FAILURE_TEST_H

#include <pthread.h>
#include <string.h>

#include "runtime.h"
#include "sim_test.h"

enum { SYNC_FLAG = 1, TIME_LINE_FLAG = 8, LOG_ROOM = 64 };

static pthread_mutex_t reported_lock =
    PTHREAD_MUTEX_INITIALIZER;                     /* each device has its own thread for callbacks */
static runtime_exception_t reported_log[LOG_ROOM]; /* under reported_lock */
static atomic_int reported;                        /* callbacks that have returned */
static atomic_int callback_slow;

static inline void on_failure(runtime_exception_t *info) {
    double until = now_s() + (atomic_load(&callback_slow) != 0 ? 0.0003 : 0);
    UNTIL(now_s() >= until);
    CHECK(pthread_mutex_lock(&reported_lock) == 0);
    reported_log[atomic_load(&reported) % LOG_ROOM] = *info;
    atomic_fetch_add(&reported, 1);
    CHECK(pthread_mutex_unlock(&reported_lock) == 0);
}

/* Returns the log entry of the newest callback. */
static inline runtime_exception_t last_reported(void) {
    CHECK(pthread_mutex_lock(&reported_lock) == 0);
    runtime_exception_t newest = reported_log[(atomic_load(&reported) - 1) % LOG_ROOM];
    CHECK(pthread_mutex_unlock(&reported_lock) == 0);
    return newest;
}

static inline void until_reported(int count) {
    UNTIL(atomic_load(&reported) >= count);
}

static inline uint32_t id_of(aclrtStream stream) {
    int32_t id = -1;
    CHECK_RC(aclrtStreamGetId(stream, &id), 0);
    return (uint32_t)id;
}

static inline void fill(aclrtStream stream, void *block, aclError code) {
    CHECK(code == 0 || aclsim_fail_next(stream, code) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 1, 64, stream), 0);
}

static inline bool is_complete(aclrtEvent event) {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    CHECK_RC(aclrtQueryEventStatus(event, &status), 0);
    return status == ACL_EVENT_RECORDED_STATUS_COMPLETE;
}

static inline bool is_idle(aclrtStream stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    CHECK_RC(aclrtStreamQuery(stream, &status), 0);
    return status == ACL_STREAM_STATUS_COMPLETE;
}

static inline bool old_complete(aclrtEvent event) {
    aclrtEventStatus status = ACL_EVENT_STATUS_NOT_READY;
    CHECK_RC(aclrtQueryEvent(event, &status), 0);
    return status == ACL_EVENT_STATUS_COMPLETE;
}

static inline void until_faulted(aclrtStream stream) {
    UNTIL(aclsim_faulted(stream) == 1);
}

/* Wakes the recycle thread without waiting, as aioacl does. */
static inline void nudge(aclrtEvent event, aclrtStream idle) {
    CHECK_THEN(aclrtRecordEvent(event, idle), !old_complete(event));
}

#endif
