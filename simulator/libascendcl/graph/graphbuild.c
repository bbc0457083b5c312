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

static aclError find_both(aclmdlRI handle, aclrtStream stream, graph_t **graph, stream_t **found) {
    aclError rc = graph_find_own(handle, graph);
    return rc == ACL_SUCCESS ? stream_find_own((*graph)->context, stream, found) : rc;
}

static aclError bind(graph_t *graph, stream_t *stream, uint32_t flag) {
    if (graph->state != GRAPH_BUILDING || stream->is_default) {
        return error_set(RT_PARAM_INVALID, stream->is_default ? "stream: the default stream cannot be bound"
                                                              : "modelRI: it is built already");
    }
    if (graph_takes(stream)) {
        return error_set(RT_STREAM_MODEL, "stream: it is bound or captured already");
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
    return rc == ACL_SUCCESS ? bind(graph, found, flag) : rc;
}

static aclError check_bound(const graph_t *graph, const stream_t *stream) {
    bool bound = stream->lane != NULL && stream->lane->graph == graph;
    return bound ? ACL_SUCCESS : error_set(RT_STREAM_MODEL, "stream: it is not bound to the model");
}

/* The stream's tasks stay in the model; the stream itself is no longer bound. */
aclError do_aclmdlRIUnbindStream(aclmdlRI modelRI, aclrtStream stream) {
    REFUSE_NULL(modelRI);
    graph_t *graph = NULL;
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_both(modelRI, stream, &graph, &found);
    rc = rc == ACL_SUCCESS ? check_bound(graph, found) : rc;
    if (rc == ACL_SUCCESS && (graph->uses > 0 || graph->state == GRAPH_CAPTURING)) {
        rc = error_set(graph->uses > 0 ? RT_MODEL_RUNNING : RT_MODEL_CAPTURED, "modelRI");
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

aclError do_aclmdlRIEndTask(aclmdlRI modelRI, aclrtStream stream) {
    REFUSE_NULL(modelRI);
    graph_t *graph = NULL;
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_both(modelRI, stream, &graph, &found);
    rc = rc == ACL_SUCCESS ? check_bound(graph, found) : rc;
    work_t *work = rc == ACL_SUCCESS ? work_new(&end_ops, sizeof *work) : NULL;
    if (rc == ACL_SUCCESS) {
        task_t task = {.kind = TASK_STEP, .work = work};
        rc = work != NULL ? stream_enqueue(found, &task) : error_set(RT_MEMORY_ALLOCATION, "stream");
    }
    return rc;
}

aclError do_aclmdlRIBuildEnd(aclmdlRI modelRI, void *reserve) {
    REFUSE_NULL(modelRI);
    graph_t *graph = NULL;
    SIM_GUARD();
    aclError rc = graph_find_own(modelRI, &graph);
    if (rc == ACL_SUCCESS && (graph->state != GRAPH_BUILDING || reserve != NULL)) {
        rc = error_set(RT_PARAM_INVALID, reserve != NULL ? "reserve" : "modelRI");
    } else if (rc == ACL_SUCCESS) {
        graph->state = GRAPH_READY;
    }
    return rc;
}
