/* Calls into the client's code: the common part of host functions and callbacks. */
#include <stdlib.h>

#include "sim.h"

static job_t *free_jobs;

static job_t *job_new(stream_t *stream, const task_t *task) {
    job_t *job = free_jobs;
    if (job != NULL) {
        free_jobs = job->next;
    } else {
        job = malloc(sizeof *job);
    }
    if (job != NULL) {
        object_retain(&stream->object);
        *job = (job_t){.stream = stream, .function = task->call.function, .arg = task->call.arg};
        job->blocking = task->kind == TASK_HOST_FUNCTION || task->blocking;
    }
    return job;
}

void job_free(job_t *job) {
    object_release(&job->stream->object);
    job->next = free_jobs;
    free_jobs = job;
}

void job_push(job_queue_t *queue, job_t *job) {
    job->next = NULL;
    if (queue->last != NULL) {
        queue->last->next = job;
    } else {
        queue->first = job;
    }
    queue->last = job;
}

job_t *job_pop(job_queue_t *queue) {
    job_t *job = queue->first;
    if (job != NULL) {
        queue->first = job->next;
        if (queue->first == NULL) {
            queue->last = NULL;
        }
    }
    return job;
}

/* If the stream was aborted or ended while the function ran, it no longer waits for this job. */
static void acknowledge(const job_t *job) {
    stream_t *stream = job->stream;
    if (stream->job == job) {
        stream->job = NULL;
        stream_unpark(stream);
        stream_end_tasks(stream, 1);
        stream_kick(stream);
    }
}

void job_run(job_t *job) {
    thread_t *thread = thread_self();
    thread->callback_depth++;
    sim_unlock();
    job->function(job->arg);
    sim_lock();
    thread->callback_depth--;
    acknowledge(job);
    job_free(job);
}

void job_forget(job_queue_t *queue, const stream_t *stream) {
    job_queue_t kept = {NULL, NULL};
    for (job_t *job = job_pop(queue); job != NULL; job = job_pop(queue)) {
        if (job->stream == stream) {
            job_free(job);
        } else {
            job_push(&kept, job);
        }
    }
    *queue = kept;
}

void calls_forget(stream_t *stream) {
    if (stream->context->host != NULL) {
        job_forget(&stream->context->host->queue, stream);
    }
    report_forget(stream);
    stream->job = NULL;
}

bool call_run_task(stream_t *stream, task_t *task) {
    job_t *job = job_new(stream, task);
    if (job == NULL) {
        task->code = RT_MEMORY_ALLOCATION;
        return true;
    }
    if (job->blocking) {
        stream->job = job;
        stream_park(stream, PARK_CALL, NULL, 0);
    }
    bool blocking = job->blocking;
    if (task->kind == TASK_HOST_FUNCTION) {
        host_submit(stream, job);
    } else {
        report_submit(stream, job);
    }
    return !blocking;
}
