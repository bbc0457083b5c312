/*
 * Work: the actions of tasks that do more than move bytes. A work_t describes one such action. Running the work
 * does not change the work_t, except for what begin() stores for end(). The queued task and other objects share
 * the work_t.
 */
#ifndef ACLSIM_WORK_H
#define ACLSIM_WORK_H

#include "sim.h"

typedef struct {
    /* Called with sim.lock: pins what run() accesses. Returns 0, or the code with which the task fails. */
    aclError (*begin)(work_t *work, const stream_t *stream);
    /* Called without sim.lock. Returns 0, or the code with which the task fails. */
    aclError (*run)(work_t *work, const stream_t *stream);
    /* Called with sim.lock, also after a begin() that failed. */
    void (*end)(work_t *work);
    /* For TASK_STEP, instead of the three functions above. Called with sim.lock. Returns false if the stream is
     * parked. */
    bool (*step)(stream_t *stream, task_t *task);
    /* Called with sim.lock: frees what the work holds; may be NULL. */
    void (*free)(work_t *work);
    bool reports; /* a failure calls the exception callbacks */
} work_ops_t;

struct work {
    const work_ops_t *ops;
    uint32_t refs;
};

/* Creates a work with one reference. Everything except its header is zero. NULL if no memory is left. */
void *work_new(const work_ops_t *ops, size_t size);
void work_retain(work_t *work);
void work_release(work_t *work);
bool work_run_task(stream_t *stream, task_t *task);

/*
 * Checks the caller's context, then the stream, and enqueues the work as a task of the kind `kind`. Consumes
 * the work's first reference. If `work` is NULL, because no memory was left, the call fails.
 */
aclError work_enqueue(aclrtStream stream, task_kind_t kind, work_t *work);

/* The same for a caller that holds sim.lock. `work` must not be NULL. */
aclError work_enqueue_locked(aclrtStream stream, task_kind_t kind, work_t *work);

/* Parks the stream on `list` until the time limit of the task. Returns true when the time is over and the task
 * has failed. */
bool task_wait_on(stream_t *stream, task_t *task, park_t park, park_list_t *list);

/* A task that reads or writes a value in memory. */
typedef struct {
    void *address;
    uint64_t value;
    uint32_t flag;
    bool waits;
} value_task_t;

/* Describes the task in `value`. False: the task does not read or write a value. */
bool value_of(const task_t *task, value_task_t *value);
/* Returns NULL if the value is not valid, or no memory is left. */
work_t *value_work_new(const value_task_t *value);

/* random.c: creates a task that makes random numbers; NULL if its parameters are not valid, or no memory is
 * left. */
work_t *random_work_new(const aclrtRandomNumTaskInfo *info);
bool random_is(const task_t *task);

/* Called with sim.lock when memory may have changed. Streams that wait for a value check the value again. */
void value_may_have_changed(void);

/* Graphs: the functions that other files use, all with sim.lock held. */
/* Whether enqueueing adds to a graph instead of the queue. graph_take() then takes the task. */
static inline bool graph_takes(const stream_t *stream) {
    return stream->lane != NULL || stream->updating != NULL;
}
aclError graph_take(stream_t *stream, task_t *task);
/* Returns the handle of the model to which tasks of the stream are added; NULL: none. */
void *graph_of(const stream_t *stream);
/* Whether the stream is bound to a model whose build has ended. */
bool graph_is_built(const stream_t *stream);
/* Returns 0 if the profiler can store information about a task that was added to the model `handle`. */
aclError graph_check_op_info(const void *handle, bool extended);
/* Ends the graph's execution after the failure of a runner's task was handled. Releases sim.lock while other
 * runners of the graph work. */
void graph_fault(stream_t *runner, aclError code);
/* Returns the client's stream for which a runner works. For any other stream, returns the stream itself. */
stream_t *graph_client(stream_t *stream);
/* Called before a stream is dropped. If the stream executes a graph, ends this execution. False: a runner is at
 * work, and the caller must wait for it. */
bool graph_leave(stream_t *stream);
/* Called when the stream is about to end. Its capture or its place in a graph ends too. */
void graph_lose_stream(stream_t *stream);
/* Whether the stream executes a graph that continues without another call of the client. */
bool graph_moving(stream_t *stream);
void graphs_end(context_t *context);
void task_drop_borrowed(task_t *task, aclError rc);
/* Gives the task the current content of its node. The content may have been replaced since the task was
 * enqueued. */
void task_borrow_again(task_t *task);
/* Whether a capture forbids this thread to do anything that is not enqueued. `context` is the caller's. */
bool capture_forbidding(const context_t *context);
/* Returns 107030 if a capture forbids this call on this thread. */
aclError capture_forbids(const context_t *context, const char *what);
bool capture_has(const stream_t *stream);
/* Returns 107027 if the stream is captured. */
aclError capture_check_asked(const stream_t *stream);
/* The stream that was captured or bound for a runner. For any other stream, returns the stream itself. */
const stream_t *graph_origin(const stream_t *stream);

/* Calls the callbacks for the failed head task of the stream. Called with sim.lock held, which is released for
 * each callback. `tid` is the thread that enqueued the task. */
void exception_deliver(stream_t *stream, pid_t tid, aclError code);
/* The same for a fault whose task is not known. */
void exception_deliver_unknown(device_t *device, aclError code);

#endif
