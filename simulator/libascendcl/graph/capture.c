/* Captures of streams: begin, end, and the calls that a capture forbids. */
#include "graph.h"

static uint32_t captures; /* number of captures in progress */

static bool capturing(const graph_t *graph) {
    return graph->state == GRAPH_CAPTURING || graph->state == GRAPH_INVALID;
}

aclError graph_take(stream_t *stream, task_t *task) {
    if (stream->updating != NULL) {
        return group_take(stream, task);
    }
    aclError rc = ACL_SUCCESS;
    const graph_t *graph = stream->lane->graph;
    if (graph->state == GRAPH_INVALID) {
        rc = error_set(RT_STREAM_CAPTURE_INVALIDATED, "stream");
    } else if (graph->state == GRAPH_READY) {
        rc = error_set(RT_STREAM_MODEL, "stream: it is bound to a model that is built already");
    } else if (task->kind == TASK_CALLBACK || task->kind == TASK_POOL_TAKE || task->kind == TASK_POOL_GIVE) {
        rc = error_set(RT_FEATURE_NOT_SUPPORT, "stream: callbacks and pools cannot be captured");
    }
    if (rc != ACL_SUCCESS) {
        task_release(task, rc);
        return rc;
    }
    if (task->kind == TASK_WAIT_FLAG || task->kind == TASK_WAIT_RECORD) {
        task->event.event->waits--; /* the wait happens when the graph runs */
    }
    const node_t *node = node_add(stream->lane, task);
    if (node != NULL) {
        thread_self()->last_task = node->index;
    }
    return node != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "stream");
}

typedef struct {
    const thread_t *thread;
    bool forbidden;
} ask_t;

static void ask(void *object, void *arg) {
    const graph_t *graph = object;
    ask_t *question = arg;
    if (!capturing(graph) || graph->mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return;
    }
    bool all_threads = graph->mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL &&
                       question->thread->capture_mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
    question->forbidden = question->forbidden || all_threads || graph->thread == question->thread;
}

bool capture_forbidding(void) {
    ask_t question = {.thread = thread_self()};
    if (captures > 0 && question.thread->capture_mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        object_each(KIND_GRAPH, ask, &question);
    }
    return question.forbidden;
}

aclError capture_forbids(const char *what) {
    return capture_forbidding() ? error_set(RT_CAPTURE_MODE_NOT_SUPPORT, what) : ACL_SUCCESS;
}

aclError do_aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *mode) {
    REFUSE_NULL(mode);
    if ((unsigned int)*mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return error_set(RT_PARAM_INVALID, "mode");
    }
    thread_t *thread = thread_self();
    aclmdlRICaptureMode before = (aclmdlRICaptureMode)thread->capture_mode;
    thread->capture_mode = (int)*mode;
    *mode = before;
    return ACL_SUCCESS;
}

static aclError find_stream(aclrtStream handle, stream_t **stream) {
    context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    if (handle == NULL || handle == context->default_stream) {
        return error_set(RT_STREAM_CAPTURE_IMPLICIT, "stream");
    }
    return stream_find_own(context, handle, stream);
}

static aclError find_free(aclrtStream handle, stream_t **stream) {
    aclError rc = find_stream(handle, stream);
    if (rc == ACL_SUCCESS && (*stream)->lane != NULL) {
        bool bound = !capturing((*stream)->lane->graph);
        rc = error_set(bound ? RT_STREAM_MODEL : RT_STREAM_CAPTURED, "stream");
    }
    return rc;
}

static aclError begin(graph_t *graph, stream_t *stream, aclmdlRICaptureMode mode) {
    if (lane_new(graph, stream) == NULL) {
        return error_set(RT_NO_STREAM_RESOURCE, "stream");
    }
    graph->state = GRAPH_CAPTURING;
    graph->thread = thread_self();
    graph->mode = mode;
    captures++;
    return ACL_SUCCESS;
}

aclError do_aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
    stream_t *found = NULL;
    if ((unsigned int)mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return error_set(RT_PARAM_INVALID, "mode");
    }
    SIM_GUARD();
    aclError rc = find_free(stream, &found);
    graph_t *graph = rc == ACL_SUCCESS ? graph_new(found->context) : NULL;
    if (rc == ACL_SUCCESS) {
        rc = graph != NULL ? begin(graph, found, mode) : error_set(RT_MEMORY_ALLOCATION, "stream");
    }
    if (rc != ACL_SUCCESS && graph != NULL) {
        graph_free(graph);
    }
    return rc;
}

/* The graph of a condition can be captured only once. */
static aclError check_inner(const graph_t *graph) {
    if (graph->outer == NULL) {
        return error_set(RT_PARAM_INVALID, "modelRI: it was not made by aclmdlRIAddCondTask");
    }
    return graph->state == GRAPH_BUILDING ? ACL_SUCCESS : error_set(RT_MODEL_CAPTURED, "modelRI");
}

aclError do_aclmdlRICaptureToModelRIBegin(aclrtStream stream, aclmdlRI modelRI, aclmdlRICaptureMode mode) {
    stream_t *found = NULL;
    graph_t *graph = NULL;
    REFUSE_NULL(modelRI);
    if ((unsigned int)mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return error_set(RT_PARAM_INVALID, "mode");
    }
    SIM_GUARD();
    aclError rc = find_free(stream, &found);
    rc = rc == ACL_SUCCESS ? graph_find_own(modelRI, &graph) : rc;
    rc = rc == ACL_SUCCESS ? check_inner(graph) : rc;
    return rc == ACL_SUCCESS ? begin(graph, found, mode) : rc;
}

aclError do_aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *modelRI) {
    REFUSE_NULL(status);
    REFUSE_NULL(modelRI);
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_stream(stream, &found);
    if (rc == ACL_SUCCESS) {
        graph_t *graph = found->lane != NULL && capturing(found->lane->graph) ? found->lane->graph : NULL;
        bool good = graph != NULL && graph->state == GRAPH_CAPTURING;
        *status = graph == NULL ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
                  : good        ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE
                                : ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
        *modelRI = good ? graph : NULL;
    }
    return rc;
}

/* Marks the first `count` nodes of the lane as joined, and also the nodes of other lanes for which these nodes
 * wait. */
static void join(lane_t *lane, uint32_t count) {
    while (lane->joined < count) {
        const node_t *node = lane->nodes[lane->joined++];
        if (node->joins != NULL) {
            join(node->joins->lane, node->joins->index + 1);
        }
    }
}

/* Whether all nodes of the lane are joined. Event records and event waits at the end of the lane do not have to
 * be joined. */
static bool is_joined(const lane_t *lane) {
    for (uint32_t i = lane->joined; i < lane->count; i++) {
        uint8_t kind = lane->nodes[i]->task.kind;
        if (kind != TASK_RECORD && kind != TASK_WAIT_RECORD) {
            return false;
        }
    }
    return true;
}

static bool all_joined(const graph_t *graph) {
    join(graph->lanes, graph->lanes->count);
    for (const lane_t *lane = graph->lanes; lane != NULL; lane = lane->next) {
        if (!is_joined(lane)) {
            return false;
        }
    }
    return true;
}

static aclError check_end(const stream_t *stream) {
    if (stream->lane == NULL || !capturing(stream->lane->graph)) {
        return error_set(RT_STREAM_NOT_CAPTURED, "stream");
    }
    const graph_t *graph = stream->lane->graph;
    if (stream->lane != graph->lanes) {
        return error_set(RT_STREAM_CAPTURE_UNMATCHED, "stream");
    }
    if (graph->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && graph->thread != thread_self()) {
        return error_set(RT_STREAM_CAPTURE_WRONG_THREAD, "stream");
    }
    return graph->open_group != NULL ? error_set(RT_TASK_GROUP_STATUS, "stream") : ACL_SUCCESS;
}

void capture_over(graph_t *graph) {
    if (capturing(graph)) {
        graph->state = GRAPH_READY;
        captures--;
    }
}

/* Ends a failed capture, and frees its graph. But the graph of a condition stays until the condition ends. */
static void give_up(graph_t *graph) {
    if (graph->outer == NULL) {
        graph_free(graph);
        return;
    }
    capture_over(graph);
    graph_detach(graph);
    graph->state = GRAPH_SPOILED;
}

static bool inner_captured(const graph_t *graph) {
    bool good = true;
    for (const condition_t *condition = graph->conditions; condition != NULL; condition = condition->next) {
        for (uint32_t i = 0; i < condition->count; i++) {
            good = good && condition->graphs[i]->state == GRAPH_READY;
        }
    }
    return good;
}

/* Ends the capture. Its streams are no longer captured afterwards, even if the capture fails. */
static aclError end(graph_t *graph) {
    aclError rc = ACL_SUCCESS;
    if (graph->state == GRAPH_INVALID) {
        rc = error_set(RT_STREAM_CAPTURE_INVALIDATED, "stream");
    } else if (!all_joined(graph)) {
        rc = error_set(RT_STREAM_UNJOINED, "stream");
    } else if (!inner_captured(graph)) {
        rc = error_set(RT_SUB_GRAPH_CAPTURING, "stream: a graph of a condition is not captured");
    }
    if (rc == ACL_SUCCESS) {
        capture_over(graph);
        graph_detach(graph);
    } else {
        give_up(graph);
    }
    return rc;
}

aclError do_aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *modelRI) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_stream(stream, &found);
    rc = rc == ACL_SUCCESS ? check_end(found) : rc;
    if (rc == ACL_SUCCESS && modelRI == NULL && found->lane->graph->outer == NULL) {
        rc = error_set(RT_PARAM_INVALID, "modelRI");
    }
    if (rc == ACL_SUCCESS) {
        graph_t *graph = found->lane->graph;
        rc = end(graph);
        if (rc == ACL_SUCCESS && modelRI != NULL) {
            *modelRI = graph;
        }
    }
    return rc;
}

/* Called when the stream ends. If the stream is captured, the capture can then no longer succeed. */
void graph_lose_stream(stream_t *stream) {
    lane_t *lane = stream->lane;
    lane->source = NULL;
    stream->lane = NULL;
    if (capturing(lane->graph)) {
        lane->graph->state = GRAPH_INVALID;
        if (lane == lane->graph->lanes) {
            give_up(lane->graph); /* no stream is left that could end the capture */
        }
    }
}

bool capture_has(const stream_t *stream) {
    return stream->lane != NULL && capturing(stream->lane->graph);
}

aclError capture_check_asked(const stream_t *stream) {
    return capture_has(stream) ? error_set(RT_STREAM_CAPTURED, "stream") : ACL_SUCCESS;
}
