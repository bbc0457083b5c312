/*
 * Theory of operation of graphs
 *
 * A graph is a set of lanes, and a lane is what one stream was told: a list of nodes, each with the task that
 * it stands for. While a stream is captured, or bound to a graph that is being built, its lane takes what is
 * enqueued.
 *
 * To run a graph, each lane has a stream of its own that no client enqueues to, its runner. The task that
 * executes a graph parks its stream, feeds the runners with copies of the nodes' tasks, part by part, and is
 * over when all lanes that were started have come to their end. So all that streams can do works in graphs, and
 * a graph that is executed twice at a time takes its turn. The copies own nothing ("borrowed"): the nodes do,
 * and a graph that is executed is not destroyed.
 *
 * Events inside a capture are edges: recording makes a node with a record of its own, and who waits for it,
 * waits for that record. Records of nodes begin anew with each execution. Events that the outside sees, too,
 * are in external.c. A stream that waits for a captured event joins the capture; all that it did must be waited
 * for, in the end, by the stream that began.
 *
 * A failing task ends the execution with its code; what is left of all lanes is dropped.
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
    struct node *joins; /* the captured record that it waits for */
    bool disabled;
    bool disable_next; /* from the next aclmdlRIUpdate on */
    work_t *next_work; /* what it does from then on */
    task_group_t *group;
};

struct lane {
    lane_t *next;
    graph_t *graph;
    stream_t *source; /* which is captured or bound; NULL: no more */
    stream_t *runner;
    node_t **nodes;
    uint32_t count;
    uint32_t room;
    uint32_t fed;    /* nodes that the runner has been given */
    uint32_t joined; /* nodes that the beginning stream has waited for; for the check at the end */
    bool idle_start; /* begins when it is activated, not with the graph */
    bool active;
};

/* A spoiled one belongs to a condition, and its capture went wrong. */
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
    uint32_t initial;  /* before each execution, if it is assigned */
    bool assign;
    aclmdlRICondTaskType type;
    uint32_t count; /* of the graphs that its task chooses from; 0: it has none */
    graph_t **graphs;
} condition_t;

typedef struct externals externals_t;

struct graph {
    object_t object;
    graph_t *outer; /* whose condition chooses it; NULL: it is executed for itself */
    context_t *context;
    graph_state_t state;
    char *name;
    lane_t *lanes; /* the first is the beginning stream's */
    uint32_t nodes;
    thread_t *thread; /* that began the capture */
    aclmdlRICaptureMode mode;
    bool built; /* made by aclmdlRIBuildBegin */
    task_group_t *open_group;
    uint32_t uses;      /* tasks that execute it, queued or running */
    stream_t *executor; /* the stream that executes it now */
    uint32_t active;    /* lanes that are not at their end */
    bool over;
    aclError code;
    bool has_externals;           /* or one of those that its conditions choose from has */
    const externals_t *externals; /* of the execution that is going on */
    park_list_t turn;             /* streams that wait until it is free */
    stream_t *own;                /* for aclmdlRIExecute */
    destroy_callback_t *callbacks;
    condition_t *conditions;
};

/* A handle for a condition, found among the objects. */
typedef struct {
    object_t object;
    graph_t *graph;
    condition_t *condition;
} condition_handle_t;

struct task_group {
    object_t object;
    graph_t *graph;
    node_t **nodes;
    uint32_t count;
    uint32_t updated; /* by the update that is going on */
    stream_t *updater;
};

typedef struct {
    object_t object;
    node_t *node; /* where it is set; NULL: nowhere yet */
} label_t;

typedef struct {
    object_t object;
    label_t **labels;
    uint32_t count;
} label_list_t;

/* graph.c: all with sim.lock. */
graph_t *graph_new(context_t *context);
/* What is captured or bound goes free; nothing executes it. */
void graph_free(graph_t *graph);
void graphs_end(context_t *context);
aclError graph_find(aclmdlRI handle, graph_t **graph);
/* The same for one of the current context. */
aclError graph_find_own(aclmdlRI handle, graph_t **graph);
/* The same for one that belongs to no condition. */
aclError graph_find_whole(aclmdlRI handle, graph_t **graph);
lane_t *lane_new(graph_t *graph, stream_t *source);
node_t *node_add(lane_t *lane, const task_t *task);
void graph_detach(graph_t *graph);
aclError node_find(aclmdlRITask handle, node_t **node);

/* graphcond.c: with sim.lock. */
/* With the graphs that they choose from. */
void conditions_free(graph_t *graph);

/* graphrun.c. */
/* Executes it on behalf of the head task of `stream`. False: the stream is parked, and is to ask again. */
bool graph_execute(graph_t *graph, stream_t *stream, const externals_t *externals, aclError *code);
/* Ends the execution that is going on. */
void graph_abort(graph_t *graph);
void lane_start(lane_t *lane);
void lane_jump(lane_t *lane, uint32_t index);
void lane_cut(lane_t *lane);
/* Uses up the externals, also when memory is out, which is NULL. */
work_t *graph_work_new(graph_t *graph, externals_t *externals);
/* With no byte of it being moved: the node does the task from now on, also in an execution that has not come to
 * it. */
void node_replace(node_t *node, task_t *task);

/* capture.c. */
/* The capture has ended, if there was one. */
void capture_over(graph_t *graph);

/* captureevent.c. */
aclError capture_record(event_t *event, stream_t *stream, bool external);
aclError capture_wait(event_t *event, stream_t *stream, bool external);
typedef enum { UPDATE_RECORD, UPDATE_EXTERNAL_RECORD, UPDATE_EXTERNAL_WAIT } event_update_t;
/* The event takes the place of another in a group that is being updated; outside nothing happens. */
aclError capture_update(event_t *event, stream_t *stream, event_update_t what);

/* external.c. */
/* A task that records the event, or waits for it, as the outside sees it. */
aclError external_new(event_t *event, graph_t *graph, bool records, work_t **work);
/* What an execution means that is enqueued to the stream now; NULL when the graph has no such tasks. */
aclError externals_new(const graph_t *graph, stream_t *stream, externals_t **externals);
void externals_end(const externals_t *externals, bool done);
void externals_free(externals_t *externals);

/* event.c: as outside of captures. */
aclError event_enqueue_wait(event_t *event, stream_t *stream, uint32_t limit_s);

/* graphgroup.c. */
aclError group_take(stream_t *stream, task_t *task);
void group_note(node_t *node);

#endif
