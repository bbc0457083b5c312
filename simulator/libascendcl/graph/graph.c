/* Graphs, their lanes and nodes: creating, finding and freeing them. */
#include "graph.h"

#include <stdlib.h>

graph_t *graph_new(context_t *context) {
    graph_t *graph = object_new(KIND_GRAPH);
    if (graph != NULL) {
        graph->context = context;
        graph->thread = thread_self();
    }
    return graph;
}

aclError graph_find(aclmdlRI handle, graph_t **graph) {
    *graph = object_find(KIND_GRAPH, handle);
    if (*graph == NULL) {
        return usage_bad_handle(KIND_GRAPH, handle);
    }
    thread_uses((*graph)->context->device);
    return ACL_SUCCESS;
}

aclError graph_check_owner(const graph_t *graph) {
    const context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    return graph->context == context ? ACL_SUCCESS : error_set(RT_MODEL_CONTEXT, "modelRI");
}

aclError graph_find_own(aclmdlRI handle, graph_t **graph) {
    aclError rc = graph_find(handle, graph);
    return rc == ACL_SUCCESS ? graph_check_owner(*graph) : rc;
}

aclError graph_find_whole(aclmdlRI handle, graph_t **graph) {
    aclError rc = graph_find_own(handle, graph);
    bool inner = rc == ACL_SUCCESS && (*graph)->outer != NULL;
    return inner ? error_quiet(RT_FEATURE_NOT_SUPPORT, "modelRI: it belongs to a condition of another model")
                 : rc;
}

aclError node_find(aclmdlRITask handle, node_t **node) {
    *node = object_find(KIND_NODE, handle);
    return *node != NULL ? ACL_SUCCESS : usage_bad_handle(KIND_NODE, handle);
}

static lane_t *lane_make(graph_t *graph, stream_t *source) {
    lane_t *lane = calloc(1, sizeof *lane);
    stream_t *runner = lane != NULL ? stream_new(graph->context, source->priority, 0) : NULL;
    if (runner == NULL) {
        free(lane);
        return NULL;
    }
    runner->hidden = true;
    runner->runs = lane;
    runner->host_functions = true;
    lane->graph = graph;
    lane->source = source;
    lane->origin = source;
    object_retain(&source->object);
    lane->runner = runner;
    source->lane = lane;
    return lane;
}

/* Lanes are kept in the order in which their streams joined. */
lane_t *lane_new(graph_t *graph, stream_t *source) {
    lane_t *lane = lane_make(graph, source);
    graph->cache_op_info = graph->lanes == NULL ? source->options.cache_op_info : graph->cache_op_info;
    lane_t **link = &graph->lanes;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = lane;
    return lane;
}

void *graph_of(const stream_t *stream) {
    return stream->lane != NULL ? stream->lane->graph : NULL;
}

bool graph_is_built(const stream_t *stream) {
    return stream->lane != NULL && stream->lane->graph->built && stream->lane->graph->state == GRAPH_READY;
}

/* The attribute of a stream has an effect only for captures. */
aclError graph_check_op_info(const void *handle, bool extended) {
    const graph_t *graph = object_find(KIND_GRAPH, handle);
    bool stored = graph != NULL && (extended || (!graph->built && graph->cache_op_info));
    return stored ? ACL_SUCCESS : error_set(RT_INTERNAL_ERROR, "the last task: it belongs to no capture");
}

static bool lane_grow(lane_t *lane) {
    uint32_t room = lane->room != 0 ? lane->room * 2 : 32;
    node_t **nodes = realloc(lane->nodes, room * sizeof *nodes);
    if (nodes != NULL) {
        lane->nodes = nodes;
        lane->room = room;
    }
    return nodes != NULL;
}

/* Takes ownership of the task's references. If the node cannot be created, the references are released. */
node_t *node_add(lane_t *lane, const task_t *task) {
    bool room = lane->count < lane->room || lane_grow(lane);
    node_t *node = room ? object_new(KIND_NODE) : NULL;
    if (node == NULL) {
        task_t lost = *task;
        task_release(&lost, 0);
        return NULL;
    }
    node->lane = lane;
    node->index = lane->count;
    node->task = *task;
    lane->nodes[lane->count++] = node;
    lane->graph->nodes++;
    group_note(node);
    return node;
}

static void node_free(node_t *node) {
    if (node->task.kind == TASK_RECORD && node->task.event.event->captured == node) {
        node->task.event.event->captured = NULL;
    }
    if (node->next_work != NULL) {
        work_release(node->next_work);
    }
    if (node->task.kind == TASK_WAIT_FLAG || node->task.kind == TASK_WAIT_RECORD) {
        node->task.event.event->waits++; /* the release below subtracts 1 again */
    }
    task_release(&node->task, 0);
    object_kill(&node->object);
}

static void release_source(lane_t *lane) {
    if (lane->source != NULL) {
        lane->source->lane = NULL;
        lane->source = NULL;
    }
}

static void forget_captured(const lane_t *lane) {
    for (uint32_t i = 0; i < lane->count; i++) {
        const node_t *node = lane->nodes[i];
        if (node->task.kind == TASK_RECORD && node->task.event.event->captured == node) {
            node->task.event.event->captured = NULL;
        }
    }
}

void graph_detach(graph_t *graph) {
    for (lane_t *lane = graph->lanes; lane != NULL; lane = lane->next) {
        release_source(lane);
        forget_captured(lane);
    }
}

static void runner_free(stream_t *runner) {
    if (runner != NULL && runner->object.state == OBJECT_LIVE) {
        stream_drop(runner, 0, RT_CONTEXT_NULL);
        stream_free(runner);
    }
}

static void lane_free(lane_t *lane) {
    release_source(lane);
    runner_free(lane->runner);
    for (uint32_t i = lane->count; i-- > 0;) {
        node_free(lane->nodes[i]);
    }
    object_release(&lane->origin->object);
    free(lane->nodes);
    free(lane);
}

static void end_group(void *object, void *arg) {
    task_group_t *group = object;
    if (group->graph == arg) {
        if (group->updater != NULL) {
            group->updater->updating = NULL;
        }
        group_free(group);
    }
}

static void free_callbacks(graph_t *graph) {
    for (destroy_callback_t *callback = graph->callbacks; callback != NULL; callback = graph->callbacks) {
        graph->callbacks = callback->next;
        free(callback);
    }
}

static void forget_label(void *object, void *arg) {
    label_t *label = object;
    if (label->node != NULL && label->node->lane->graph == arg) {
        label->node = NULL;
    }
}

void graph_free(graph_t *graph) {
    capture_over(graph);
    object_each(KIND_LABEL, forget_label, graph);
    object_each(KIND_GROUP, end_group, graph);
    graph_detach(graph);
    while (graph->lanes != NULL) {
        lane_t *lane = graph->lanes;
        graph->lanes = lane->next;
        lane_free(lane);
    }
    runner_free(graph->own);
    conditions_free(graph);
    free_callbacks(graph);
    free(graph->name);
    graph->name = NULL;
    wait_finish_all(&graph->unused, 0);
    object_kill(&graph->object);
}

static void end_of_context(void *object, void *arg) {
    graph_t *graph = object;
    if (graph->context == arg && graph->outer == NULL) { /* an outer graph frees its inner graphs */
        graph_free(graph);
    }
}

static void end_execution(void *object, void *arg) {
    const graph_t *graph = object;
    if (graph->context == arg && graph->own != NULL) {
        stream_drop(graph->own, 0, RT_CONTEXT_NULL);
    }
}

/* The streams of the context and of its graphs have been dropped, so no graph is being executed. */
void graphs_end(context_t *context) {
    object_each(KIND_GRAPH, end_execution, context);
    object_each(KIND_GRAPH, end_of_context, context);
}
