/*
 * Theory of operation of graphs
 *
 * A graph is a set of lanes. A lane is a list of nodes: the tasks of one stream, in order. While a stream is
 * captured, or bound to a graph that is being built, enqueued tasks are added to the stream's lane.
 *
 * Each lane has a separate stream, its runner, which runs the tasks of the lane. Clients do not enqueue to a
 * runner. The task that executes a graph parks its stream. Then copies of the nodes' tasks are enqueued to the
 * runners, part by part. The executing task ends when all started lanes have reached their end. So every kind
 * of task that streams can run also works in graphs. If two executions of a graph overlap, the second waits for
 * the first. The copies are "borrowed": the nodes own the objects of the tasks, and a graph that is being
 * executed cannot be destroyed. aclmdlRIDestroy waits for the end of the execution, at most 10 s.
 *
 * Events inside a capture are edges. Recording an event creates a node with a new record, and a stream that
 * waits for the event waits for this record. Each execution resets the records of nodes. The code for events
 * that are also visible outside of the graph is in external.c. A stream that waits for a captured event joins
 * the capture. The last task of such a stream must be a record for which another stream of the capture waits.
 *
 * A failing task ends the execution, which then fails with the task's code. The remaining tasks of all lanes
 * are dropped.
 */
#ifndef ACLSIM_GRAPH_H
#define ACLSIM_GRAPH_H

#include "work.h"

typedef struct graph graph_t;

struct node {
    object_t object;
    lane_t *lane;
    uint32_t index;
    task_t task;
    struct node *joins;    /* the captured record for which this node waits */
    bool awaited;          /* for a captured record: a captured stream waits for it */
    bool awaited_by_first; /* another stream, which began the capture, waits for it */
    bool disabled;
    bool disable_next; /* disabled from the next aclmdlRIUpdate on */
    work_t *next_work; /* the node's work from the next aclmdlRIUpdate on */
    task_group_t *group;
};

struct lane {
    lane_t *next;
    graph_t *graph;
    stream_t *source; /* the stream that is captured or bound; NULL: it has none now */
    stream_t *origin; /* the same stream, for the whole life of the lane; it may have ended */
    stream_t *runner;
    node_t **nodes;
    uint32_t count;
    uint32_t room;
    uint32_t fed;    /* number of nodes whose tasks were passed to the runner */
    bool idle_start; /* the lane starts when it is activated, not with the graph */
    bool active;
};

/* GRAPH_SPOILED: the graph of a condition, after the capture of this graph has failed. */
typedef enum { GRAPH_BUILDING, GRAPH_CAPTURING, GRAPH_INVALID, GRAPH_READY, GRAPH_SPOILED } graph_state_t;

typedef struct destroy_callback {
    struct destroy_callback *next;
    aclrtCallback function;
    void *user;
} destroy_callback_t;

typedef struct condition {
    struct condition *next;
    object_t *object;
    uint64_t *address; /* in device memory */
    uint32_t initial;  /* stored before each execution, if `assign` is set */
    bool assign;
    aclmdlRICondTaskType type;
    uint32_t count; /* number of graphs from which the condition's task chooses; 0: no such task */
    graph_t **graphs;
} condition_t;

typedef struct externals externals_t;

struct graph {
    object_t object;
    graph_t *outer; /* the graph whose condition chooses this graph; NULL: clients execute this graph */
    context_t *context;
    graph_state_t state;
    char *name;
    lane_t *lanes; /* the first lane belongs to the stream that began the capture, or that was bound first */
    uint32_t nodes;
    thread_t *thread; /* the thread that began the capture */
    aclmdlRICaptureMode mode;
    bool built;         /* created by aclmdlRIBuildBegin */
    bool ended;         /* aclmdlRIEndTask has added a task */
    bool cache_op_info; /* the attribute of the stream that began the capture */
    task_group_t *open_group;
    aclError group_code; /* why a task could not be added while a group was open */
    uint32_t uses;       /* number of queued and running tasks that execute the graph */
    wait_list_t unused;  /* calls that wait until `uses` is 0 */
    stream_t *executor;  /* the stream that executes the graph now */
    uint32_t active;     /* number of started lanes that have not reached their end */
    bool over;
    aclError code;
    bool has_externals;           /* also true if a graph of its conditions has externals */
    const externals_t *externals; /* the externals of the execution in progress */
    park_list_t turn;             /* streams that wait for the end of the execution */
    stream_t *own;                /* the graph's own stream, for aclmdlRIExecute */
    destroy_callback_t *callbacks;
    condition_t *conditions;
};

/* The handle of a condition. */
typedef struct {
    object_t object;
    graph_t *graph;
    condition_t *condition;
} condition_handle_t;

struct task_group {
    object_t object;
    graph_t *graph;
    const lane_t *lane; /* the lane whose tasks the group takes */
    node_t **nodes;
    uint32_t count;
    uint32_t updated; /* number of nodes that the update in progress has replaced */
    stream_t *updater;
};

typedef struct {
    object_t object;
    context_t *context;
    bool listed;  /* belongs to a list, or belonged to one */
    node_t *node; /* the node at which the label is set; NULL: not set yet */
} label_t;

typedef struct {
    object_t object;
    label_t **labels;
    uint32_t count;
} label_list_t;

/* graph.c: all functions are called with sim.lock held. */
graph_t *graph_new(context_t *context);
/* Frees the graph, which must not be in execution. Its streams are no longer captured or bound afterwards. */
void graph_free(graph_t *graph);
void graphs_end(context_t *context);
aclError graph_find(aclmdlRI handle, graph_t **graph);
/* Checks that the caller has a context, and that it is the context of the graph. */
aclError graph_check_owner(const graph_t *graph);
/* The same as graph_find(), for a graph of the current context. */
aclError graph_find_own(aclmdlRI handle, graph_t **graph);
/* The same, for a graph that does not belong to a condition. */
aclError graph_find_whole(aclmdlRI handle, graph_t **graph);
lane_t *lane_new(graph_t *graph, stream_t *source);
node_t *node_add(lane_t *lane, const task_t *task);
void graph_detach(graph_t *graph);
aclError node_find(aclmdlRITask handle, node_t **node);

/* graphcond.c: called with sim.lock held. */
/* Frees the conditions of the graph, and the graphs from which the conditions choose. */
void conditions_free(graph_t *graph);

/* graphrun.c. */
/* Executes the graph for the head task of `stream`. False: the stream is parked, and the function must be
 * called again when the stream continues. */
bool graph_execute(graph_t *graph, stream_t *stream, const externals_t *externals, aclError *code);
/* Ends the execution in progress. */
void graph_abort(graph_t *graph);
void lane_start(lane_t *lane);
void lane_jump(lane_t *lane, uint32_t index);
void lane_cut(lane_t *lane);
/* Takes ownership of the externals, even if it returns NULL because no memory is left. */
work_t *graph_work_new(graph_t *graph, externals_t *externals);
/* Replaces the task of the node. Called while no byte of the old task is being moved. An execution in progress
 * that has not reached the node also runs the new task. */
void node_replace(node_t *node, task_t *task);

/* capture.c. */
/* Ends the capture, if there is one. */
void capture_over(graph_t *graph);

/* captureevent.c. */
aclError capture_record(event_t *event, stream_t *stream, bool external);
aclError capture_wait(event_t *event, stream_t *stream, bool external);
/* Returns 207000 if the stream is captured and the event cannot be captured. */
aclError capture_check_event(const event_t *event, const stream_t *stream);

/* external.c. */
/* Creates the work of an external: a task that records the event or waits for it, with effect outside of the
 * graph. */
aclError external_new(event_t *event, graph_t *graph, bool records, work_t **work);
/* Creates the data about the externals of an execution that is enqueued to the stream now. NULL: the graph has
 * no externals.
 */
aclError externals_new(const graph_t *graph, stream_t *stream, externals_t **externals);
void externals_end(const externals_t *externals, bool done);
void externals_free(externals_t *externals);

/* event.c. */
/* Whether streams can wait for the event. */
bool event_is_awaitable(const event_t *event);
/* Enqueues a wait that is not part of a capture. */
aclError event_enqueue_wait(event_t *event, stream_t *stream, uint32_t limit_s);

/* graphgroup.c. */
aclError group_take(stream_t *stream, task_t *task);
/* Returns why a group that is open forbids to add the task to the lane; then the capture is invalid. `task` is
 * NULL for a task of an event. */
aclError group_check(const lane_t *lane, const task_t *task);
void group_note(node_t *node);
void group_free(task_group_t *group);

#endif
