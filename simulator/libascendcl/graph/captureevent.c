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

static aclError check_open(const graph_t *graph) {
    return graph->state == GRAPH_READY ? error_set(RT_STREAM_MODEL, "stream") : ACL_SUCCESS;
}

/* Only events of aclrtCreateEventExWithFlag become edges of a captured graph. Events made with FLAG_EXTERNAL
 * take effect when the graph runs. */
static bool fits(const event_t *event, const stream_t *stream) {
    return !capture_has(stream) || event->mode == EVENT_EXTENDED || (event->flags & FLAG_EXTERNAL) != 0;
}

aclError capture_check_event(const event_t *event, const stream_t *stream) {
    return fits(event, stream) ? ACL_SUCCESS
                               : error_quiet(RT_FEATURE_NOT_SUPPORT, "event: it cannot be captured");
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

/* A captured stream does not record an event for which no stream can wait. */
aclError capture_record(event_t *event, stream_t *stream, bool external) {
    lane_t *lane = stream->lane;
    aclError rc = check_open(lane->graph);
    rc = rc == ACL_SUCCESS && !external ? capture_check_event(event, stream) : rc;
    if (rc == ACL_SUCCESS && capture_has(stream) && !event_is_awaitable(event)) {
        return ACL_SUCCESS;
    }
    rc = rc == ACL_SUCCESS ? group_check(lane, NULL) : rc;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    return external ? add_external(event, lane, true) : add_record(event, lane);
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
    joins->awaited = true;
    joins->awaited_by_first = joins->awaited_by_first || (lane == lane->graph->lanes && joins->lane != lane);
    return ACL_SUCCESS;
}

/* Adds a stream to the capture, because it waits for a captured event. The stream may belong to another
 * context. */
static aclError join_capture(graph_t *graph, stream_t *stream) {
    if (stream->updating != NULL) {
        return error_set(RT_STREAM_CAPTURED, "stream: it updates a task group");
    }
    if (graph->state == GRAPH_INVALID) {
        return error_set(RT_INTERNAL_ERROR, "event: its capture is invalid");
    }
    return lane_new(graph, stream) != NULL ? ACL_SUCCESS : error_set(RT_NO_STREAM_RESOURCE, "stream");
}

static aclError wait_captured(event_t *event, stream_t *stream) {
    graph_t *graph = event->captured->lane->graph;
    if (stream_never_completes(stream)) {
        return error_set(RT_INTERNAL_ERROR, "stream: it was created for models");
    }
    if (stream->is_default) {
        return error_set(RT_STREAM_CAPTURE_IMPLICIT, "stream");
    }
    aclError rc = stream->lane == NULL ? join_capture(graph, stream) : ACL_SUCCESS;
    if (rc == ACL_SUCCESS && stream->lane->graph != graph) {
        invalidate(stream->lane->graph, RT_STREAM_CAPTURE_CONFLICT, "stream");
        rc = invalidate(graph, RT_STREAM_CAPTURE_CONFLICT, "event: it belongs to another capture");
    }
    rc = rc == ACL_SUCCESS ? group_check(stream->lane, NULL) : rc;
    return rc == ACL_SUCCESS ? add_wait(event, stream->lane) : rc;
}

/* Inside a capture, a stream can wait for a record from outside of the capture only with the external flag or
 * through a hardware flag. A wait that is refused does not end the capture. */
static aclError wait_outside(event_t *event, stream_t *stream) {
    if (capture_has(stream) && event->mode == EVENT_EXTENDED && event->record != NULL) {
        return error_set(RT_CAPTURE_DEPENDENCY, "event: it was recorded outside of the capture");
    }
    return event_enqueue_wait(event, stream, 0);
}

aclError capture_wait(event_t *event, stream_t *stream, bool external) {
    const graph_t *graph = stream->lane != NULL ? stream->lane->graph : event->captured->lane->graph;
    aclError rc = check_open(graph);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (external) {
        rc = group_check(stream->lane, NULL);
        return rc == ACL_SUCCESS ? add_external(event, stream->lane, false) : rc;
    }
    if (event->captured != NULL) {
        return wait_captured(event, stream);
    }
    rc = capture_check_event(event, stream);
    return rc == ACL_SUCCESS ? wait_outside(event, stream) : rc;
}
