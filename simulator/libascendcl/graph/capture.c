/* Captures of streams: begin, end, and the calls that a capture forbids. */
#include "graph.h"

static bool capturing(const graph_t *graph) {
    return graph->state == GRAPH_CAPTURING || graph->state == GRAPH_INVALID;
}

/* An invalid capture still accepts tasks; its end reports the code. */
aclError graph_take(stream_t *stream, task_t *task) {
    if (stream->updating != NULL) {
        return group_take(stream, task);
    }
    aclError rc = ACL_SUCCESS;
    if (stream->lane->graph->state == GRAPH_READY) {
        rc = error_set(RT_STREAM_MODEL, "stream: it is bound to a model that is built already");
    } else if (task->kind == TASK_POOL_TAKE || task->kind == TASK_POOL_GIVE) {
        rc = error_set(RT_FEATURE_NOT_SUPPORT, "stream: memory of pools cannot be captured");
    } else {
        rc = group_check(stream->lane, task);
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

/* Returns the strictest mode that has a capture, or CAPTURE_MODES. Modes are ordered, the strictest first. */
static int strictest(const uint32_t *captures) {
    int mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
    while (mode < CAPTURE_MODES && captures[mode] == 0) {
        mode++;
    }
    return mode;
}

bool capture_forbidding(const context_t *context) {
    const thread_t *thread = thread_self();
    int begun = strictest(thread->captures);
    int mode = strictest(context->captures);
    if (mode == CAPTURE_MODES || thread->capture_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return false;
    }
    if (thread->capture_mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL) {
        return mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || begun == ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
    }
    return begun <= ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
}

aclError capture_forbids(const context_t *context, const char *what) {
    return capture_forbidding(context) ? error_set(RT_CAPTURE_MODE_NOT_SUPPORT, what) : ACL_SUCCESS;
}

aclError do_aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *mode) {
    REFUSE_NULL(mode);
    if ((unsigned int)*mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return error_set(RT_PARAM_INVALID, "mode");
    }
    SIM_GUARD();
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    thread_t *thread = thread_self();
    aclmdlRICaptureMode before = (aclmdlRICaptureMode)thread->capture_mode;
    thread->capture_mode = (int)*mode;
    *mode = before;
    return ACL_SUCCESS;
}

/* Finds a stream for the begin or the end of a capture. The checks of the stream itself come before the check
 * of the context. */
static aclError find_stream(aclrtStream handle, stream_t **stream) {
    aclError rc = stream_find(NULL, handle, stream);
    bool special = rc == ACL_SUCCESS && stream_never_completes(*stream);
    return special ? error_set(RT_INTERNAL_ERROR, "stream: it was created for models") : rc;
}

static aclError check_own(stream_t *stream) {
    context_t *context = context_need();
    aclError rc = context != NULL ? stream_check_launch(context, stream) : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS && stream->lane != NULL && !capturing(stream->lane->graph)) {
        rc = error_set(RT_STREAM_MODEL, "stream");
    }
    if (rc == ACL_SUCCESS && stream->is_default) {
        rc = error_quiet(RT_FEATURE_NOT_SUPPORT, "stream: the default stream cannot be captured");
    }
    return rc;
}

static aclError check_free(const stream_t *stream) {
    return stream->lane != NULL ? error_set(RT_STREAM_CAPTURED, "stream") : ACL_SUCCESS;
}

static aclError begin(graph_t *graph, stream_t *stream, aclmdlRICaptureMode mode) {
    if (lane_new(graph, stream) == NULL) {
        return error_set(RT_NO_STREAM_RESOURCE, "stream");
    }
    graph->state = GRAPH_CAPTURING;
    graph->thread = thread_self();
    graph->mode = mode;
    graph->context->captures[mode]++;
    graph->thread->captures[mode]++;
    return ACL_SUCCESS;
}

static aclError find_capturable(aclrtStream handle, aclmdlRICaptureMode mode, stream_t **stream) {
    *stream = object_find(KIND_STREAM, handle);
    if (*stream != NULL && (unsigned int)mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        return error_set(RT_PARAM_INVALID, "mode");
    }
    return find_stream(handle, stream);
}

aclError do_aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
    stream_t *found = NULL;
    REFUSE_NULL(stream);
    SIM_GUARD();
    aclError rc = find_capturable(stream, mode, &found);
    rc = rc == ACL_SUCCESS ? check_own(found) : rc;
    rc = rc == ACL_SUCCESS ? check_free(found) : rc;
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
    if (graph->context != context_need()) {
        return error_set(RT_MODEL_CONTEXT, "modelRI");
    }
    return graph->state == GRAPH_BUILDING ? ACL_SUCCESS : error_set(RT_MODEL_CAPTURED, "modelRI");
}

aclError do_aclmdlRICaptureToModelRIBegin(aclrtStream stream, aclmdlRI modelRI, aclmdlRICaptureMode mode) {
    stream_t *found = NULL;
    graph_t *graph = NULL;
    REFUSE_NULL(stream);
    REFUSE_NULL(modelRI);
    SIM_GUARD();
    aclError rc = find_capturable(stream, mode, &found);
    rc = rc == ACL_SUCCESS ? graph_find(modelRI, &graph) : rc;
    if (rc == ACL_SUCCESS && graph->outer == NULL) {
        rc = error_set(RT_PARAM_INVALID, "modelRI: it was not made by aclmdlRIAddCondTask");
    }
    rc = rc == ACL_SUCCESS ? check_own(found) : rc;
    rc = rc == ACL_SUCCESS ? check_inner(graph) : rc;
    rc = rc == ACL_SUCCESS ? check_free(found) : rc;
    return rc == ACL_SUCCESS ? begin(graph, found, mode) : rc;
}

/* The call looks for no context. */
aclError do_aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *modelRI) {
    REFUSE_NULL(stream);
    if (status == NULL && modelRI == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "status and modelRI");
    }
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_find(NULL, stream, &found);
    bool captured = rc == ACL_SUCCESS && capture_has(found);
    if (rc == ACL_SUCCESS && status != NULL) {
        *status = captured ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE : ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    }
    if (rc == ACL_SUCCESS && modelRI != NULL) {
        *modelRI = captured ? found->lane->graph : NULL;
    }
    return rc;
}

/* Whether the last task of the lane is the record of an event for which a captured stream waits. */
static bool is_joined(const lane_t *lane) {
    const node_t *last = lane->count > 0 ? lane->nodes[lane->count - 1] : NULL;
    return last != NULL && last->awaited;
}

/* Whether each stream that joined the capture has ended its part with a join, and at least one of these joins
 * is with the stream that began the capture. The runtime looks at no earlier task. */
static bool all_joined(const graph_t *graph) {
    bool with_first = graph->lanes->next == NULL;
    for (const lane_t *lane = graph->lanes->next; lane != NULL; lane = lane->next) {
        if (!is_joined(lane)) {
            return false;
        }
        with_first = with_first || lane->nodes[lane->count - 1]->awaited_by_first;
    }
    return with_first;
}

void capture_over(graph_t *graph) {
    if (capturing(graph)) {
        graph->state = GRAPH_READY;
        graph->context->captures[graph->mode]--;
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

static aclError check_end(const graph_t *graph) {
    if (graph->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && graph->thread != thread_self()) {
        return error_set(RT_STREAM_CAPTURE_WRONG_THREAD, "stream");
    }
    if (graph->state == GRAPH_INVALID) {
        return error_set(RT_STREAM_CAPTURE_INVALIDATED, "stream");
    }
    if (!inner_captured(graph)) {
        return error_set(RT_SUB_GRAPH_CAPTURING, "stream: a graph of a condition is not captured");
    }
    if (graph->open_group != NULL) {
        return error_set(RT_TASK_GROUP_STATUS, "stream: a group is open");
    }
    return all_joined(graph) ? ACL_SUCCESS : error_set(RT_STREAM_UNJOINED, "stream");
}

/* Ends the capture. Its streams are no longer captured afterwards, even if the capture fails. The runtime
 * counts the end for the calling thread, even if another thread began the capture. */
static aclError end(graph_t *graph) {
    uint32_t *begun = &thread_self()->captures[graph->mode];
    if (*begun > 0) {
        --*begun;
    }
    aclError rc = check_end(graph);
    if (rc == ACL_SUCCESS) {
        capture_over(graph);
        graph_detach(graph);
    } else {
        give_up(graph);
    }
    return rc;
}

static aclError find_graph(const stream_t *stream, graph_t **graph) {
    if (!capture_has(stream)) {
        return error_set(RT_STREAM_NOT_CAPTURED, "stream");
    }
    *graph = stream->lane->graph;
    bool began = stream->lane == (*graph)->lanes;
    return began ? ACL_SUCCESS : error_set(RT_STREAM_CAPTURE_UNMATCHED, "stream");
}

/* The place for the graph must be given if the stream is captured, but not for the graph of a condition. */
static aclError check_place(const stream_t *stream, const aclmdlRI *modelRI) {
    bool needed = capture_has(stream) && stream->lane->graph->outer == NULL;
    return needed && modelRI == NULL ? error_set(RT_PARAM_INVALID, "modelRI") : ACL_SUCCESS;
}

aclError do_aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *modelRI) {
    stream_t *found = NULL;
    graph_t *graph = NULL;
    REFUSE_NULL(stream);
    SIM_GUARD();
    aclError rc = find_stream(stream, &found);
    rc = rc == ACL_SUCCESS ? check_place(found, modelRI) : rc;
    rc = rc == ACL_SUCCESS ? check_own(found) : rc;
    rc = rc == ACL_SUCCESS ? find_graph(found, &graph) : rc;
    rc = rc == ACL_SUCCESS ? end(graph) : rc;
    if (rc == ACL_SUCCESS && modelRI != NULL) {
        *modelRI = graph;
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
