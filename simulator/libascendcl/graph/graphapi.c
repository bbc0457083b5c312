/* The graph API of clients: executing, aborting, destroying, names, ids, streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

enum { DESTROY_MS = 10000 };

static aclError find_ready(aclmdlRI handle, graph_t **graph) {
    aclError rc = graph_find_whole(handle, graph);
    if (rc != ACL_SUCCESS || (*graph)->state == GRAPH_READY) {
        return rc;
    }
    return error_set((*graph)->state == GRAPH_BUILDING ? RT_PARAM_INVALID : RT_MODEL_CAPTURED, "modelRI");
}

static aclError enqueue(graph_t *graph, stream_t *stream) {
    externals_t *externals = NULL;
    aclError rc = graph_takes(stream) ? ACL_SUCCESS : externals_new(graph, stream, &externals);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    task_t task = {.kind = TASK_STEP, .work = graph_work_new(graph, externals)};
    return task.work != NULL ? stream_enqueue(stream, &task) : error_set(RT_MEMORY_ALLOCATION, "modelRI");
}

aclError do_aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream) {
    REFUSE_NULL(modelRI);
    graph_t *graph = NULL;
    stream_t *target = NULL;
    SIM_GUARD();
    aclError rc = graph_find(modelRI, &graph);
    rc = rc == ACL_SUCCESS ? stream_check_handle(stream) : rc;
    rc = rc == ACL_SUCCESS ? find_ready(modelRI, &graph) : rc;
    rc = rc == ACL_SUCCESS ? stream_find_own(graph->context, stream, &target) : rc;
    return rc == ACL_SUCCESS ? enqueue(graph, target) : rc;
}

/* Returns the graph's own stream, which executes the graph if the client passes no stream. */
static aclError own_stream(graph_t *graph, stream_t **stream) {
    if (graph->own == NULL) {
        graph->own = stream_new(graph->context, 0, 0);
        if (graph->own != NULL) {
            graph->own->hidden = true;
        }
    }
    *stream = graph->own;
    return *stream != NULL ? ACL_SUCCESS : error_set(RT_NO_STREAM_RESOURCE, "modelRI");
}

static aclError execute(graph_t *graph, int64_t deadline_ns) {
    stream_t *stream = NULL;
    aclError rc = own_stream(graph, &stream);
    rc = rc == ACL_SUCCESS ? enqueue(graph, stream) : rc;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    object_retain(&stream->object);
    rc = stream_wait(stream, stream->enqueued, deadline_ns, RT_STREAM_SYNC_TIMEOUT);
    object_release(&stream->object);
    return rc != ACL_SUCCESS ? error_set(rc, "modelRI") : rc;
}

aclError do_aclmdlRIExecute(aclmdlRI modelRI, int32_t timeout) {
    REFUSE_NULL(modelRI);
    graph_t *graph = NULL;
    int64_t deadline_ns = deadline_ms(timeout);
    SIM_GUARD();
    aclError rc = graph_find(modelRI, &graph);
    if (rc == ACL_SUCCESS && (timeout == 0 || timeout < -1)) {
        return error_set(RT_PARAM_INVALID, "timeout");
    }
    rc = rc == ACL_SUCCESS ? find_ready(modelRI, &graph) : rc;
    return rc == ACL_SUCCESS ? execute(graph, deadline_ns) : rc;
}

/* Drops the rest of the execution. The task that executes the graph ends with 107023, and the graph can be
 * executed again. */
aclError do_aclmdlRIAbort(aclmdlRI modelRI) {
    RUNTIME_REFUSES_NULL(modelRI);
    graph_t *graph = NULL;
    SIM_GUARD();
    aclError rc = find_ready(modelRI, &graph);
    if (rc == ACL_SUCCESS && graph->executor != NULL) {
        graph_abort(graph);
    }
    return rc;
}

static void run_callbacks(destroy_callback_t *callbacks) {
    while (callbacks != NULL) {
        destroy_callback_t *callback = callbacks;
        callbacks = callback->next;
        callback->function(callback->user);
        free(callback);
    }
}

static aclError find_to_destroy(aclmdlRI handle, graph_t **graph) {
    aclError rc = graph_find_whole(handle, graph);
    bool captured =
        rc == ACL_SUCCESS && ((*graph)->state == GRAPH_CAPTURING || (*graph)->state == GRAPH_INVALID);
    return captured ? error_set(RT_MODEL_CAPTURED, "modelRI") : rc;
}

/* Like the runtime, waits for the end of all executions. Releases sim.lock during the wait. Another call can
 * destroy the graph meanwhile, so the graph is looked up again. */
static aclError find_unused(aclmdlRI handle, graph_t **graph) {
    int64_t deadline_ns = deadline_ms(DESTROY_MS);
    aclError rc = find_to_destroy(handle, graph);
    while (rc == ACL_SUCCESS && (*graph)->uses > 0) {
        waiter_t waiter;
        wait_add(&(*graph)->unused, &waiter, 0);
        rc = wait_for(&waiter, deadline_ns) ? find_to_destroy(handle, graph)
                                            : error_set(RT_MODEL_RUNNING, "modelRI");
    }
    return rc;
}

/* Callbacks run on the calling thread after the graph has been destroyed. */
aclError do_aclmdlRIDestroy(aclmdlRI modelRI) {
    REFUSE_NULL(modelRI);
    graph_t *graph = NULL;
    destroy_callback_t *callbacks = NULL;
    sim_lock();
    aclError rc = find_unused(modelRI, &graph);
    if (rc == ACL_SUCCESS) {
        callbacks = graph->callbacks;
        graph->callbacks = NULL;
        graph_free(graph);
    }
    sim_unlock();
    run_callbacks(callbacks);
    return rc;
}

aclError do_aclmdlRIDestroyRegisterCallback(aclmdlRI modelRI, aclrtCallback func, void *userData) {
    RUNTIME_REFUSES_NULL(modelRI);
    RUNTIME_REFUSES_NULL(func);
    graph_t *graph = NULL;
    destroy_callback_t *callback = calloc(1, sizeof *callback);
    sim_lock();
    aclError rc = callback != NULL ? graph_find(modelRI, &graph) : error_set(RT_MEMORY_ALLOCATION, "func");
    if (rc == ACL_SUCCESS) {
        destroy_callback_t **link = &graph->callbacks;
        while (*link != NULL) {
            link = &(*link)->next;
        }
        *callback = (destroy_callback_t){.function = func, .user = userData};
        *link = callback;
        callback = NULL;
    }
    sim_unlock();
    free(callback);
    return rc;
}

aclError do_aclmdlRIDestroyUnregisterCallback(aclmdlRI modelRI, aclrtCallback func) {
    RUNTIME_REFUSES_NULL(modelRI);
    RUNTIME_REFUSES_NULL(func);
    graph_t *graph = NULL;
    SIM_GUARD();
    aclError rc = graph_find(modelRI, &graph);
    if (rc == ACL_SUCCESS) {
        destroy_callback_t **link = &graph->callbacks;
        while (*link != NULL && (*link)->function != func) {
            link = &(*link)->next;
        }
        destroy_callback_t *found = *link;
        rc = found != NULL ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "func: it is not registered");
        if (found != NULL) {
            *link = found->next;
            free(found);
        }
    }
    return rc;
}

aclError do_aclmdlRISetName(aclmdlRI modelRI, const char *name) {
    REFUSE_NULL(modelRI);
    REFUSE_NULL(name);
    graph_t *graph = NULL;
    SIM_GUARD();
    aclError rc = graph_find(modelRI, &graph);
    char *copy = rc == ACL_SUCCESS ? strdup(name) : NULL;
    if (copy != NULL) {
        free(graph->name);
        graph->name = copy;
    }
    return rc;
}

static aclError check_name(aclmdlRI handle, uint32_t room, graph_t **graph) {
    aclError rc = graph_find(handle, graph);
    rc = rc == ACL_SUCCESS && room == 0 ? error_set(RT_PARAM_INVALID, "maxLen") : rc;
    return rc == ACL_SUCCESS ? graph_find_own(handle, graph) : rc;
}

/* A buffer that is too small is refused only when the name is copied, so this has another code than 0 bytes. */
aclError do_aclmdlRIGetName(aclmdlRI modelRI, uint32_t maxLen, char *name) {
    REFUSE_NULL(modelRI);
    REFUSE_NULL(name);
    graph_t *graph = NULL;
    SIM_GUARD();
    aclError rc = check_name(modelRI, maxLen, &graph);
    const char *found = rc == ACL_SUCCESS && graph->name != NULL ? graph->name : "";
    if (rc == ACL_SUCCESS && strlen(found) >= maxLen) {
        rc = error_set(RT_INTERNAL_ERROR, "maxLen");
    } else if (rc == ACL_SUCCESS) {
        strcpy(name, found);
    }
    return rc;
}

aclError do_aclmdlRIGetId(aclmdlRI modelRI, uint32_t *modelRIId) {
    REFUSE_NULL(modelRI);
    REFUSE_NULL(modelRIId);
    graph_t *graph = NULL;
    SIM_GUARD();
    aclError rc = graph_find(modelRI, &graph);
    if (rc == ACL_SUCCESS) {
        *modelRIId = graph->object.index;
    }
    return rc;
}

/* Lists one stream for each lane: the client's stream if it is still captured or bound, otherwise the runner of
 * the lane. */
static aclError list_streams(const graph_t *graph, aclrtStream *streams, uint32_t *count) {
    uint32_t found = 0;
    for (const lane_t *lane = graph->lanes; lane != NULL; lane = lane->next) {
        if (streams != NULL && found < *count) {
            streams[found] = lane->source != NULL ? lane->source : lane->runner;
        }
        found++;
    }
    bool fits = streams == NULL || found <= *count;
    *count = found;
    return fits ? ACL_SUCCESS : error_set(RT_ARRAY_TOO_SMALL, "numStreams");
}

aclError do_aclmdlRIGetStreams(aclmdlRI modelRI, aclrtStream *streams, uint32_t *numStreams) {
    RUNTIME_REFUSES_NULL(modelRI);
    graph_t *graph = NULL;
    SIM_GUARD();
    aclError rc = graph_find(modelRI, &graph);
    if (rc == ACL_SUCCESS) {
        RUNTIME_REFUSES_NULL(numStreams);
        rc = graph_check_owner(graph);
    }
    return rc == ACL_SUCCESS ? list_streams(graph, streams, numStreams) : rc;
}
