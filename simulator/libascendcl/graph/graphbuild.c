/* Graphs that are built without a capture. A task that is enqueued to a stream belongs to the graph to which
 * the stream is bound. */
#include "graph.h"

/* A head stream starts with the graph; the others start when they are activated. */
enum { FLAG_HEAD = 0, FLAG_ACTIVATED = 0x7FFFFFFF };

aclError do_aclmdlRIBuildBegin(aclmdlRI *modelRI, uint32_t flag) {
    REFUSE_NULL(modelRI);
    if (flag != 0) {
        return error_set(RT_PARAM_INVALID, "flag");
    }
    SIM_GUARD();
    context_t *context = context_need();
    graph_t *graph = context != NULL ? graph_new(context) : NULL;
    aclError rc = context == NULL ? RT_CONTEXT_NULL : ACL_SUCCESS;
    if (graph != NULL) {
        graph->built = true;
        *modelRI = graph;
    } else if (context != NULL) {
        rc = error_set(RT_MEMORY_ALLOCATION, "modelRI");
    }
    return rc;
}

/* Checks the two handles. Leaves *found NULL if the client passes no stream. */
static aclError find_both(aclmdlRI handle, aclrtStream stream, graph_t **graph, stream_t **found) {
    aclError rc = graph_find(handle, graph);
    return rc == ACL_SUCCESS && stream != NULL ? stream_find(NULL, stream, found) : rc;
}

/* No stream means the default stream of the caller's context. */
static aclError default_stream(stream_t **found) {
    if (*found == NULL) {
        const context_t *context = thread_context();
        *found = context != NULL ? context->default_stream : NULL;
    }
    return *found != NULL ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "stream");
}

static aclError check_built(const graph_t *graph) {
    return graph->built ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "modelRI: it was made by a capture");
}

static aclError check_kinds(const graph_t *graph, const stream_t *stream) {
    aclError rc = check_built(graph);
    return rc == ACL_SUCCESS ? capture_check_asked(stream) : rc;
}

static bool is_bound(const stream_t *stream) {
    return stream->lane != NULL && stream->lane->graph->built;
}

/* The checks that the runtime makes only if the client passes a stream. */
static aclError check_given(const stream_t *stream) {
    if ((stream->flags & ACL_STREAM_PERSISTENT) == 0) {
        return error_set(RT_PARAM_INVALID, "stream: it was made without the persistent flag");
    }
    return is_bound(stream) ? error_set(RT_STREAM_MODEL, "stream: it is bound already") : ACL_SUCCESS;
}

/* The default stream was made with the flag for fast launches, so it is refused here. */
static aclError check_bindable(const stream_t *stream) {
    bool refused = stream->stop || (stream->flags & ACL_STREAM_FAST_LAUNCH) != 0;
    return refused ? error_set(RT_FEATURE_NOT_SUPPORT, "stream: its failure mode or its flags") : ACL_SUCCESS;
}

static aclError bind(graph_t *graph, stream_t *stream, uint32_t flag) {
    if (graph->state != GRAPH_BUILDING) {
        return error_set(RT_PARAM_INVALID, "modelRI: it is built already");
    }
    if (graph_takes(stream)) {
        return error_set(RT_STREAM_MODEL, "stream: it updates tasks of a model");
    }
    lane_t *lane = lane_new(graph, stream);
    if (lane == NULL) {
        return error_set(RT_NO_STREAM_RESOURCE, "stream");
    }
    lane->idle_start = flag == FLAG_ACTIVATED;
    return ACL_SUCCESS;
}

aclError do_aclmdlRIBindStream(aclmdlRI modelRI, aclrtStream stream, uint32_t flag) {
    REFUSE_NULL(modelRI);
    if (flag != FLAG_HEAD && flag != FLAG_ACTIVATED) {
        return error_set(RT_PARAM_INVALID, "flag");
    }
    graph_t *graph = NULL;
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_both(modelRI, stream, &graph, &found);
    rc = rc == ACL_SUCCESS && found != NULL ? check_given(found) : rc;
    rc = rc == ACL_SUCCESS ? default_stream(&found) : rc;
    rc = rc == ACL_SUCCESS ? check_kinds(graph, found) : rc;
    rc = rc == ACL_SUCCESS ? check_bindable(found) : rc;
    rc = rc == ACL_SUCCESS ? graph_check_owner(graph) : rc;
    rc = rc == ACL_SUCCESS ? stream_check_launch(graph->context, found) : rc;
    return rc == ACL_SUCCESS ? bind(graph, found, flag) : rc;
}

static bool is_bound_to(const stream_t *stream, const graph_t *graph) {
    return stream->lane != NULL && stream->lane->graph == graph;
}

/* The stream's tasks stay in the model; the stream itself is no longer bound. */
aclError do_aclmdlRIUnbindStream(aclmdlRI modelRI, aclrtStream stream) {
    REFUSE_NULL(modelRI);
    graph_t *graph = NULL;
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_both(modelRI, stream, &graph, &found);
    rc = rc == ACL_SUCCESS ? default_stream(&found) : rc;
    rc = rc == ACL_SUCCESS ? check_kinds(graph, found) : rc;
    rc = rc == ACL_SUCCESS ? graph_check_owner(graph) : rc;
    rc = rc == ACL_SUCCESS ? stream_check_launch(graph->context, found) : rc;
    if (rc == ACL_SUCCESS && !is_bound_to(found, graph)) {
        rc = error_set(RT_STREAM_MODEL, "stream: it is not bound to the model");
    } else if (rc == ACL_SUCCESS && graph->uses > 0) {
        rc = error_set(RT_MODEL_RUNNING, "modelRI");
    } else if (rc == ACL_SUCCESS) {
        found->lane->source = NULL;
        found->lane = NULL;
    }
    return rc;
}

/* Ends the lane: its later tasks are skipped. */
static bool end_step(stream_t *stream, task_t *task) {
    (void)task;
    lane_cut(stream->runs);
    return true;
}

static const work_ops_t end_ops = {.step = end_step};

static aclError end_lane(graph_t *graph, stream_t *stream) {
    work_t *work = work_new(&end_ops, sizeof *work);
    task_t task = {.kind = TASK_STEP, .work = work};
    aclError rc = work != NULL ? stream_enqueue(stream, &task) : error_set(RT_MEMORY_ALLOCATION, "stream");
    graph->ended = graph->ended || rc == ACL_SUCCESS;
    return rc;
}

aclError do_aclmdlRIEndTask(aclmdlRI modelRI, aclrtStream stream) {
    REFUSE_NULL(modelRI);
    graph_t *graph = NULL;
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_both(modelRI, stream, &graph, &found);
    context_t *context = rc == ACL_SUCCESS ? context_need() : NULL;
    rc = rc == ACL_SUCCESS && context == NULL ? RT_CONTEXT_NULL : rc;
    rc = rc == ACL_SUCCESS ? default_stream(&found) : rc;
    rc = rc == ACL_SUCCESS ? stream_check_launch(context, found) : rc;
    rc = rc == ACL_SUCCESS ? check_kinds(graph, found) : rc;
    rc = rc == ACL_SUCCESS ? graph_check_owner(graph) : rc;
    if (rc == ACL_SUCCESS && !is_bound_to(found, graph)) {
        rc = error_set(RT_INTERNAL_ERROR, "stream: it is not bound to the model");
    }
    return rc == ACL_SUCCESS ? end_lane(graph, found) : rc;
}

static bool has_streams(const graph_t *graph) {
    const lane_t *lane = graph->lanes;
    while (lane != NULL && lane->source == NULL) {
        lane = lane->next;
    }
    return lane != NULL;
}

static aclError check_complete(const graph_t *graph) {
    if (graph->state != GRAPH_BUILDING) {
        return error_set(RT_PARAM_INVALID, "modelRI: it is built already");
    }
    if (!has_streams(graph)) {
        return error_set(RT_STREAM_MODEL, "modelRI: no stream is bound to it");
    }
    return graph->ended ? ACL_SUCCESS : error_set(RT_MODEL_EXECUTE, "modelRI: no task ends it");
}

aclError do_aclmdlRIBuildEnd(aclmdlRI modelRI, void *reserve) {
    REFUSE_NULL(modelRI);
    if (reserve != NULL) {
        return error_quiet(ACL_INVALID_PARAM, "reserve");
    }
    graph_t *graph = NULL;
    SIM_GUARD();
    aclError rc = graph_find(modelRI, &graph);
    rc = rc == ACL_SUCCESS ? check_built(graph) : rc;
    rc = rc == ACL_SUCCESS ? graph_check_owner(graph) : rc;
    rc = rc == ACL_SUCCESS ? check_complete(graph) : rc;
    if (rc == ACL_SUCCESS) {
        graph->state = GRAPH_READY;
    }
    return rc;
}
