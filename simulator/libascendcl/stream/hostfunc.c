/* Host functions. Each context has one hidden thread, which runs the host functions of its streams. */
#include <stdlib.h>

#include "work.h"

static void *host_main(void *arg) {
    host_thread_t *host = arg;
    sim_lock();
    while (!host->stop) {
        job_t *job = job_pop(&host->queue);
        if (job == NULL) {
            pthread_cond_wait(&host->cond, &sim.lock);
            continue;
        }
        host->busy = true;
        job_run(job);
        host->busy = false;
        wait_finish_all(&host->idle, 0);
    }
    for (job_t *job = job_pop(&host->queue); job != NULL; job = job_pop(&host->queue)) {
        job_free(job);
    }
    sim_unlock();
    pthread_cond_destroy(&host->cond);
    free(host);
    return NULL;
}

static host_thread_t *host_of(context_t *context) {
    if (context->host == NULL) {
        host_thread_t *host = calloc(1, sizeof *host);
        if (host == NULL) {
            return NULL;
        }
        cond_init(&host->cond);
        if (!thread_start("aclsim-host", host_main, host)) {
            free(host);
            return NULL;
        }
        context->host = host;
    }
    return context->host;
}

/* The hidden thread uses the device's primary context. Without that context, no host function runs. */
void host_submit(stream_t *stream, job_t *job) {
    const context_t *primary = stream->device->primary;
    host_thread_t *host = stream->context->host;
    if (host == NULL || primary == NULL || !atomic_load(&primary->active)) {
        job_free(job);
        return;
    }
    job_push(&host->queue, job);
    pthread_cond_signal(&host->cond);
}

void host_wait(context_t *context) {
    while (context->host != NULL && context->host->busy) {
        waiter_t waiter;
        wait_add(&context->host->idle, &waiter, 0);
        wait_for(&waiter, SIM_FOREVER);
    }
}

void host_stop(context_t *context) {
    host_wait(context);
    if (context->host != NULL) {
        context->host->stop = true;
        pthread_cond_signal(&context->host->cond);
        context->host = NULL;
    }
}

/* A launch on a captured stream makes no hidden subscription. */
static aclError launch(context_t *context, stream_t *stream, const task_t *task) {
    bool subscribes = !capture_has(stream);
    if (subscribes && stream->group != NULL) {
        return error_set(RT_STREAM_SUBSCRIBE, "stream");
    }
    aclError rc = stream_check_launch(context, stream);
    if (rc == ACL_SUCCESS && host_of(context) == NULL) {
        rc = error_set(RT_INTERNAL_ERROR, "host function thread");
    }
    if (rc == ACL_SUCCESS) {
        task_t copy = *task;
        stream->host_functions = stream->host_functions || subscribes;
        rc = stream_enqueue(stream, &copy);
    }
    return rc;
}

aclError do_aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args) {
    if (fn == NULL) {
        return error_set(RT_PARAM_INVALID, "fn");
    }
    task_t task = {.kind = TASK_HOST_FUNCTION, .call = {.function = fn, .arg = args}};
    stream_t *target = NULL;
    SIM_GUARD();
    context_t *context = context_need();
    aclError rc = context != NULL ? stream_find(context, stream, &target) : RT_CONTEXT_NULL;
    return rc == ACL_SUCCESS ? launch(context, target, &task) : rc;
}
