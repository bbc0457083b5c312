/*
 * Work: what tasks do beyond moving bytes. A work_t says what is to be done, is not changed by being done (but
 * for what begin() notes for end()), and is shared by the queued task and whatever else refers to it.
 */
#ifndef ACLSIM_WORK_H
#define ACLSIM_WORK_H

#include "sim.h"

typedef struct {
    /* With sim.lock: pins what run() touches. 0, or the code with which the task fails. */
    aclError (*begin)(work_t *work, const stream_t *stream);
    /* Without sim.lock. 0, or the code with which the task fails. */
    aclError (*run)(work_t *work, const stream_t *stream);
    /* With sim.lock, also after a begin() that failed. */
    void (*end)(work_t *work);
    /* TASK_STEP instead of the three: with sim.lock; false when the stream is parked. */
    bool (*step)(stream_t *stream, task_t *task);
    /* With sim.lock: what the work holds; may be NULL. */
    void (*free)(work_t *work);
} work_ops_t;

struct work {
    const work_ops_t *ops;
    uint32_t refs;
};

/* Zeroed but for its header, with one reference; NULL when memory is out. */
void *work_new(const work_ops_t *ops, size_t size);
void work_retain(work_t *work);
void work_release(work_t *work);
bool work_run_task(stream_t *stream, task_t *task);

/*
 * Checks the caller's context, then the stream, and enqueues the work as a task of that kind. The work's first
 * reference is used up; NULL stands for memory that is out.
 */
aclError work_enqueue(aclrtStream stream, task_kind_t kind, work_t *work);

/* Parks the stream on `list` for as long as the task may wait; true when that is over: the task has failed. */
bool task_wait_on(stream_t *stream, task_t *task, park_t park, park_list_t *list);

/* With sim.lock: memory may have changed, so streams that wait for a value look again. */
void value_may_have_changed(void);

/* With sim.lock: a device task has failed. Who informs the client of exceptions defines it; it never waits. */
void exception_raise(stream_t *stream, const task_t *task, aclError code);

#endif
