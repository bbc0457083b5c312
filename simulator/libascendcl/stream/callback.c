/* Callbacks: a thread subscribes to streams and runs their callbacks inside ProcessReport. */
#include <stdlib.h>

#include "work.h"

/* All streams that report to one thread. The group ends when it has no stream and the thread is not in
 * ProcessReport. */
struct report_group {
    report_group_t *next;
    uint64_t thread;
    device_t *device;
    uint32_t streams;
    uint32_t inside; /* above 0 while the thread is in ProcessReport */
    job_queue_t queue;
    wait_list_t poller;
};

static report_group_t *groups;

static report_group_t *group_find(uint64_t thread) {
    for (report_group_t *group = groups; group != NULL; group = group->next) {
        if (group->thread == thread && group->streams > 0) {
            return group;
        }
    }
    return NULL;
}

static void group_release(report_group_t *group) {
    if (group->streams > 0 || group->inside > 0) {
        return;
    }
    report_group_t **link = &groups;
    while (*link != group) {
        link = &(*link)->next;
    }
    *link = group->next;
    for (job_t *job = job_pop(&group->queue); job != NULL; job = job_pop(&group->queue)) {
        job_free(job);
    }
    free(group);
}

static report_group_t *group_new(uint64_t thread, device_t *device) {
    report_group_t *group = calloc(1, sizeof *group);
    if (group != NULL) {
        group->thread = thread;
        group->device = device;
        group->next = groups;
        groups = group;
    }
    return group;
}

/* The callbacks of a graph go to the thread that is subscribed to the stream on which they were launched. */
static report_group_t *group_of(const stream_t *stream) {
    return graph_origin(stream)->group;
}

void report_submit(stream_t *stream, job_t *job) {
    report_group_t *group = group_of(stream);
    if (group == NULL) {
        job_free(job);
        return;
    }
    job_push(&group->queue, job);
    wait_finish_all(&group->poller, 0);
}

void report_forget(const stream_t *stream) {
    report_group_t *group = group_of(stream);
    if (group != NULL) {
        job_forget(&group->queue, stream);
    }
}

void report_unsubscribe(stream_t *stream) {
    report_group_t *group = stream->group;
    if (group != NULL) {
        report_forget(stream);
        stream->group = NULL;
        group->streams--;
        group_release(group);
    }
}

static aclError subscribe(stream_t *stream, uint64_t thread) {
    if (stream->group != NULL) {
        return error_set(RT_STREAM_SUBSCRIBE, "stream");
    }
    report_group_t *group = group_find(thread);
    if (group != NULL && group->device != stream->device) {
        return error_set(RT_THREAD_SUBSCRIBE, "threadId");
    }
    if (group == NULL) {
        group = group_new(thread, stream->device);
    }
    if (group == NULL) {
        return error_set(RT_INTERNAL_ERROR, "threadId");
    }
    group->streams++;
    stream->group = group;
    return ACL_SUCCESS;
}

/* Finds a stream that accepts callbacks, and then the caller's context. */
static aclError find_reporting(aclrtStream handle, stream_t **stream, context_t **context) {
    aclError rc = stream_find_handle(handle, stream);
    if (rc == ACL_SUCCESS && (*stream)->host_functions) {
        return error_set(RT_STREAM_SUBSCRIBE, "stream");
    }
    *context = rc == ACL_SUCCESS ? context_need() : NULL;
    return rc == ACL_SUCCESS && *context == NULL ? RT_CONTEXT_NULL : rc;
}

aclError do_aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
    stream_t *found = NULL;
    context_t *context = NULL;
    SIM_GUARD();
    aclError rc = find_reporting(stream, &found, &context);
    return rc == ACL_SUCCESS ? subscribe(found, threadId) : rc;
}

static aclError unsubscribe(uint64_t thread, stream_t *stream) {
    if (stream->group == NULL) {
        return error_set(RT_STREAM_SUBSCRIBE, "stream");
    }
    if (stream->group->thread != thread) {
        return error_set(RT_THREAD_SUBSCRIBE, "threadId");
    }
    report_unsubscribe(stream);
    return ACL_SUCCESS;
}

aclError do_aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_find_handle(stream, &found);
    return rc == ACL_SUCCESS ? unsubscribe(threadId, found) : rc;
}

/* The vendor forbids callbacks that allocate, free, synchronize or enqueue, because they may deadlock. But the
 * vendor's sample of asynchronous inference reads its results in the callback: it allocates pinned memory,
 * copies to it and frees it. A function of kind FREE uses only memory of the host. */
bool report_may_call(function_t function) {
    if (!thread_self()->reporting) {
        return false;
    }
    switch (function) {
    case FN_aclrtMemcpy:
    case FN_aclrtMallocHost:
    case FN_aclrtFreeHost:
        return true;
    default:
        return function_info[function].kind == CALL_FREE;
    }
}

static void run_job(job_t *job) {
    thread_t *thread = thread_self();
    thread->reporting = true;
    job_run(job);
    thread->reporting = false;
}

/* Runs the callbacks that have been reported so far. Callbacks that are reported while this function runs are
 * left for the next call. */
static void run_reported(report_group_t *group) {
    job_t *last = group->queue.last;
    job_t *job = NULL;
    do {
        job = job_pop(&group->queue);
        bool more = job != NULL && job != last;
        if (job != NULL) {
            run_job(job);
        }
        job = more ? group->queue.first : NULL;
    } while (job != NULL);
}

static aclError process(report_group_t *group, int64_t deadline_ns) {
    if (group->queue.first == NULL) {
        waiter_t waiter;
        wait_add(&group->poller, &waiter, 0);
        wait_for(&waiter, deadline_ns);
    }
    if (group->queue.first == NULL) {
        return error_set(RT_REPORT_TIMEOUT, "timeout");
    }
    run_reported(group);
    return ACL_SUCCESS;
}

aclError do_aclrtProcessReport(int32_t timeout) {
    if (timeout == 0 || timeout < -1) {
        return error_quiet(ACL_INVALID_PARAM, "timeout");
    }
    int64_t deadline_ns = deadline_ms(timeout);
    SIM_GUARD();
    report_group_t *group = group_find((uint64_t)pthread_self());
    if (group == NULL) {
        return error_set(RT_THREAD_SUBSCRIBE, "calling thread");
    }
    if (group->device->primary == NULL || !atomic_load(&group->device->primary->active)) {
        return error_set(RT_CONTEXT_NULL, "calling thread");
    }
    group->inside++;
    aclError rc = process(group, deadline_ns);
    group->inside--;
    group_release(group);
    return rc;
}

static aclError launch(context_t *context, stream_t *stream, const task_t *task) {
    aclError rc = stream_check_launch(context, stream);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (stream->group == NULL) {
        return error_set(RT_STREAM_NO_CALLBACK, "stream");
    }
    task_t copy = *task;
    return stream_enqueue(stream, &copy);
}

aclError do_aclrtLaunchCallback(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType,
                                aclrtStream stream) {
    if ((unsigned int)blockType > ACL_CALLBACK_BLOCK) {
        return error_quiet(ACL_INVALID_PARAM, "blockType");
    }
    if (fn == NULL) {
        return error_set(RT_PARAM_INVALID, "fn");
    }
    task_t task = {.kind = TASK_CALLBACK, .blocking = blockType == ACL_CALLBACK_BLOCK, .call = {fn, userData}};
    stream_t *target = NULL;
    context_t *context = NULL;
    SIM_GUARD();
    aclError rc = find_reporting(stream, &target, &context);
    return rc == ACL_SUCCESS ? launch(context, target, &task) : rc;
}
