/*
 * Host functions of models: threads subscribe to streams and wait for the host functions of these streams. No
 * function of the public interface launches such a function, so a subscribed thread waits until its time-out.
 */
#include "sim.h"

enum { PLACES = 1024 };

typedef struct {
    uint64_t thread;
    const stream_t *stream; /* NULL: the entry is free */
} subscription_t;

static subscription_t subscriptions[PLACES]; /* protected by sim.lock */
static wait_list_t waiters;

static subscription_t *find(const stream_t *stream) {
    for (int i = 0; i < PLACES; i++) {
        if (subscriptions[i].stream == stream) {
            return &subscriptions[i];
        }
    }
    return NULL;
}

void hostsubscribe_forget(const stream_t *stream) {
    subscription_t *found = find(stream);
    if (found != NULL) {
        found->stream = NULL;
    }
}

static const device_t *device_of(uint64_t thread) {
    for (int i = 0; i < PLACES; i++) {
        if (subscriptions[i].stream != NULL && subscriptions[i].thread == thread) {
            return subscriptions[i].stream->device;
        }
    }
    return NULL;
}

static aclError subscribe(uint64_t thread, const stream_t *stream) {
    const device_t *device = device_of(thread);
    if (find(stream) != NULL) {
        return error_set(RT_STREAM_SUBSCRIBE, "exeStream");
    }
    if (device != NULL && device != stream->device) {
        return error_set(RT_THREAD_SUBSCRIBE, "hostFuncThreadId");
    }
    subscription_t *place = find(NULL);
    if (place == NULL) {
        return error_set(RT_INTERNAL_ERROR, "hostFuncThreadId");
    }
    *place = (subscription_t){.thread = thread, .stream = stream};
    return ACL_SUCCESS;
}

aclError do_aclrtSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream) {
    stream_t *stream = NULL;
    SIM_GUARD();
    aclError rc = stream_need(exeStream, &stream);
    return rc == ACL_SUCCESS ? subscribe(hostFuncThreadId, stream) : rc;
}

aclError do_aclrtUnSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream) {
    stream_t *stream = NULL;
    SIM_GUARD();
    aclError rc = stream_need(exeStream, &stream);
    subscription_t *found = rc == ACL_SUCCESS ? find(stream) : NULL;
    if (rc == ACL_SUCCESS && found == NULL) {
        rc = error_set(RT_STREAM_SUBSCRIBE, "exeStream");
    } else if (rc == ACL_SUCCESS && found->thread != hostFuncThreadId) {
        rc = error_set(RT_THREAD_SUBSCRIBE, "hostFuncThreadId");
    } else if (rc == ACL_SUCCESS) {
        found->stream = NULL;
    }
    return rc;
}

aclError do_aclrtProcessHostFunc(int32_t timeout) {
    if (timeout == 0 || timeout < -1) {
        return error_quiet(ACL_INVALID_PARAM, "timeout");
    }
    int64_t deadline_ns = deadline_ms(timeout);
    waiter_t waiter;
    SIM_GUARD();
    bool subscribed = device_of((uint64_t)pthread_self()) != NULL;
    if (subscribed) {
        wait_add(&waiters, &waiter, 0);
        wait_for(&waiter, deadline_ns);
    }
    return subscribed ? error_set(RT_REPORT_TIMEOUT, "timeout")
                      : error_set(RT_THREAD_SUBSCRIBE, "calling thread");
}
