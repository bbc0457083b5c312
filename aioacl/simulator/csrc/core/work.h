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
    bool reports; /* exception callbacks are called when it fails */
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

/* The same for who has sim.lock, and the work. */
aclError work_enqueue_locked(aclrtStream stream, task_kind_t kind, work_t *work);

/* Parks the stream on `list` for as long as the task may wait; true when that is over: the task has failed. */
bool task_wait_on(stream_t *stream, task_t *task, park_t park, park_list_t *list);

/* What a task does with a value in memory. */
typedef struct {
    uint64_t *address;
    uint64_t value;
    uint32_t flag;
    bool waits;
} value_task_t;

/* False: the task does nothing of the kind. */
bool value_of(const task_t *task, value_task_t *value);
/* NULL when it is not acceptable, or memory is out. */
work_t *value_work_new(const value_task_t *value);

/* random.c: a task that makes random numbers; NULL when what it says is not acceptable, or memory is out. */
work_t *random_work_new(const aclrtRandomNumTaskInfo *info);
bool random_is(const task_t *task);

/* With sim.lock: memory may have changed, so streams that wait for a value look again. */
void value_may_have_changed(void);

/* Graphs: what the rest has to know of them, all with sim.lock. */
/* Whether enqueuing adds to a graph instead of the queue; graph_take() then takes the task over. */
static inline bool graph_takes(const stream_t *stream) {
    return stream->lane != NULL || stream->updating != NULL;
}
aclError graph_take(stream_t *stream, task_t *task);
/* A task of a runner has failed and was handled: its graph ends. Gives up sim.lock while other runners of it
 * work. */
void graph_fault(stream_t *runner, aclError code);
/* The client's stream that a runner works for; of any other stream that one itself. */
stream_t *graph_client(stream_t *stream);
/* The stream is about to be dropped, and leaves the graph that it executes. False: a runner is at work, and has
 * to be waited for. */
bool graph_leave(stream_t *stream);
/* The stream is about to go, and its capture or its place in a graph with it. */
void graph_lose_stream(stream_t *stream);
/* Whether the graph that the stream executes goes on by itself. */
bool graph_moving(stream_t *stream);
void graphs_end(context_t *context);
void task_drop_borrowed(task_t *task, aclError rc);
/* A node may have been given another task since it lent this one: the stream that comes to it runs that. */
void task_borrow_again(task_t *task);
/* Whether a capture forbids this thread what is done at once. */
bool capture_forbidding(void);
/* 107030 when a capture forbids this call to this thread. */
aclError capture_forbids(const char *what);
bool capture_has(const stream_t *stream);
/* 107027 when the stream is captured. */
aclError capture_check_asked(const stream_t *stream);

/* With sim.lock, which is given up for each callback: the head task of the stream has failed. The thread is the
 * one that enqueued it. */
void exception_deliver(stream_t *stream, pid_t tid, aclError code);
/* The same for a fault that no task is known to have caused. */
void exception_deliver_unknown(device_t *device, aclError code);

#endif
