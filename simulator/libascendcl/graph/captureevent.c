/* Events inside captures: records become edges, and a stream that waits for such a record joins the capture. */
#include "graph.h"

enum { FLAG_EXTERNAL = 0x20 };

static aclError invalidate(graph_t *graph, aclError code, const char *what) {
    if (graph->state == GRAPH_CAPTURING) {
        graph->state = GRAPH_INVALID;
    }
    return error_set(code, what);
}

static aclError add_external(event_t *event, lane_t *lane, bool records) {
    task_t task = {.kind = TASK_STEP};
    if (lane->graph->built) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT,
                           "event: an external event cannot be used in a model that is built by hand");
    }
    aclError rc = external_new(event, lane->graph, records, &task.work);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    return node_add(lane, &task) != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "event");
}

aclError capture_update(event_t *event, stream_t *stream, event_update_t what) {
    task_t task = {.kind = TASK_STEP};
    if (what == UPDATE_RECORD) {
        task = (task_t){.kind = TASK_RECORD, .event = {.event = event, .record = record_new(stream->device)}};
        if (task.event.record == NULL) {
            return error_set(RT_MEMORY_ALLOCATION, "event");
        }
        object_retain(&event->object);
        return stream_enqueue(stream, &task);
    }
    graph_t *graph = stream->updating->graph;
    aclError rc = external_new(event, graph, what == UPDATE_EXTERNAL_RECORD, &task.work);
    return rc == ACL_SUCCESS ? stream_enqueue(stream, &task) : rc;
}

static aclError check_open(const graph_t *graph) {
    if (graph->state == GRAPH_INVALID) {
        return error_set(RT_STREAM_CAPTURE_INVALIDATED, "stream");
    }
    return graph->state == GRAPH_READY ? error_set(RT_STREAM_MODEL, "stream") : ACL_SUCCESS;
}

/* An event made with FLAG_EXTERNAL is recorded, waited for and reset when the graph runs, and can also be used
 * outside of the graph. The record of any other event is an edge of the graph. */
static aclError add_record(event_t *event, lane_t *lane) {
    record_t *record = record_new(lane->runner->device);
    if (record == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "event");
    }
    object_retain(&event->object);
    task_t task = {.kind = TASK_RECORD, .event = {.event = event, .record = record}};
    node_t *node = node_add(lane, &task);
    if (node == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "event");
    }
    event->captured = (event->flags & FLAG_EXTERNAL) == 0 ? node : NULL;
    return ACL_SUCCESS;
}

aclError capture_record(event_t *event, stream_t *stream, bool external) {
    lane_t *lane = stream->lane;
    aclError rc = check_open(lane->graph);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (external) {
        return add_external(event, lane, true);
    }
    if (event->captured != NULL && event->captured->lane->graph != lane->graph) {
        return invalidate(lane->graph, RT_STREAM_CAPTURE_CONFLICT, "event: it belongs to another capture");
    }
    return add_record(event, lane);
}

static aclError add_wait(event_t *event, lane_t *lane) {
    node_t *joins = event->captured;
    record_t *record = joins->task.event.record;
    record_retain(record);
    object_retain(&event->object);
    task_t task = {.kind = TASK_WAIT_RECORD, .event = {.event = event, .record = record}};
    event->waits++;
    node_t *node = node_add(lane, &task);
    if (node == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "event");
    }
    event->waits--; /* the wait happens when the graph runs */
    node->joins = joins;
    return ACL_SUCCESS;
}

/* Adds a stream to the capture, because it waits for a captured event. */
static aclError join_capture(graph_t *graph, stream_t *stream) {
    if (stream->is_default) {
        return invalidate(graph, RT_STREAM_CAPTURE_IMPLICIT, "stream");
    }
    if (stream->context != graph->context || stream->updating != NULL) {
        return invalidate(graph, RT_STREAM_CAPTURE_CONFLICT,
                          "stream: it belongs to another context or updates a task group");
    }
    return lane_new(graph, stream) != NULL ? ACL_SUCCESS : error_set(RT_NO_STREAM_RESOURCE, "stream");
}

/* Inside a capture, a stream can wait for a record from outside of the capture only with the external flag or
 * through a hardware flag. */
static aclError wait_outside(event_t *event, stream_t *stream) {
    if (event->mode == EVENT_FLAGGED || event->record == NULL) {
        return event_enqueue_wait(event, stream, 0);
    }
    return invalidate(stream->lane->graph, RT_CAPTURE_DEPENDENCY,
                      "event: it was recorded outside of the capture");
}

aclError capture_wait(event_t *event, stream_t *stream, bool external) {
    graph_t *graph = event->captured != NULL ? event->captured->lane->graph : stream->lane->graph;
    aclError rc = stream->lane != NULL ? check_open(stream->lane->graph) : check_open(graph);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (external) {
        return add_external(event, stream->lane, false);
    }
    if (event->captured == NULL) {
        return wait_outside(event, stream);
    }
    if (stream->lane == NULL) {
        rc = join_capture(graph, stream);
    } else if (stream->lane->graph != graph) {
        invalidate(stream->lane->graph, RT_STREAM_CAPTURE_CONFLICT, "stream");
        rc = invalidate(graph, RT_STREAM_CAPTURE_CONFLICT, "event: it belongs to another capture");
    }
    return rc == ACL_SUCCESS ? add_wait(event, stream->lane) : rc;
}
