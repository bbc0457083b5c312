/* Events inside captures: records become edges, and who waits for one joins. */
#include "graph.h"

enum { FLAG_EXTERNAL = 0x20 };

static aclError invalidate(graph_t *graph, aclError code, const char *what) {
    if (graph->state == GRAPH_CAPTURING) {
        graph->state = GRAPH_INVALID;
    }
    return error_set(code, what);
}

/* --- external ones: seen outside of the graph, each time that it runs
 * --------------------------------------- */
typedef struct {
    work_t work;
    event_t *event;
} external_t;

static void external_free(work_t *work) {
    object_release(&((external_t *)work)->event->object);
}

static bool record_step(stream_t *stream, task_t *task) {
    event_t *event = ((external_t *)task->work)->event;
    record_t *record = event->object.state == OBJECT_LIVE ? record_new(stream->device) : NULL;
    if (record != NULL) {
        if (event->record != NULL) {
            record_end(event->record, true, 0);
            record_release(event->record);
        }
        event->record = record;
        record_end(record, true, 0);
    }
    return true;
}

static bool wait_step(stream_t *stream, task_t *task) {
    const event_t *event = ((external_t *)task->work)->event;
    if (event->object.state != OBJECT_LIVE || event->record == NULL || event->record->ended) {
        return true;
    }
    stream_park(stream, PARK_WORK, &event->record->streams, 0);
    return false;
}

static const work_ops_t record_ops = {.step = record_step, .free = external_free};
static const work_ops_t wait_ops = {.step = wait_step, .free = external_free};

static work_t *external_new(event_t *event, const work_ops_t *ops) {
    external_t *external = work_new(ops, sizeof *external);
    if (external == NULL) {
        return NULL;
    }
    external->event = event;
    object_retain(&event->object);
    event->recorded = true;
    event->external = true;
    return &external->work;
}

static aclError add_external(event_t *event, lane_t *lane, const work_ops_t *ops) {
    task_t task = {.kind = TASK_STEP, .work = external_new(event, ops)};
    bool added = task.work != NULL && node_add(lane, &task) != NULL;
    return added ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "event");
}

/* Only an event of the new mode with exactly the flag for streams may be seen from both sides. */
static aclError check_external(const event_t *event) {
    bool fits = event->mode == EVENT_EXTENDED && event->flags == 1;
    return fits ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "event: not one for the external flag");
}

aclError capture_update(event_t *event, stream_t *stream, event_update_t what) {
    task_t task = {.kind = TASK_STEP};
    aclError rc = what != UPDATE_RECORD ? check_external(event) : ACL_SUCCESS;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (what == UPDATE_RECORD) {
        task = (task_t){.kind = TASK_RECORD, .event = {.event = event, .record = record_new(stream->device)}};
    } else {
        task.work = external_new(event, what == UPDATE_EXTERNAL_RECORD ? &record_ops : &wait_ops);
    }
    if (what == UPDATE_RECORD ? task.event.record == NULL : task.work == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "event");
    }
    if (what == UPDATE_RECORD) {
        object_retain(&event->object);
    }
    return stream_enqueue(stream, &task);
}

/* --- inner ones
 * ----------------------------------------------------------------------------------------------- */
static aclError check_open(const graph_t *graph) {
    if (graph->state == GRAPH_INVALID) {
        return error_set(RT_STREAM_CAPTURE_INVALIDATED, "stream");
    }
    return graph->state == GRAPH_READY ? error_set(RT_STREAM_MODEL, "stream") : ACL_SUCCESS;
}

/* An event that is made for it is recorded, waited for and reset when the graph runs, also from outside; the
 * record of any other is an edge of the graph. */
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
    rc = rc == ACL_SUCCESS && external ? check_external(event) : rc;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (external) {
        return add_external(event, lane, &record_ops);
    }
    if (event->captured != NULL && event->captured->lane->graph != lane->graph) {
        return invalidate(lane->graph, RT_STREAM_CAPTURE_CONFLICT, "event: of another capture");
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
    event->waits--; /* the event is waited for when the graph runs */
    node->joins = joins;
    return ACL_SUCCESS;
}

/* A stream that was not captured is from now on. */
static aclError join_capture(graph_t *graph, stream_t *stream) {
    if (stream->is_default) {
        return invalidate(graph, RT_STREAM_CAPTURE_IMPLICIT, "stream");
    }
    if (stream->context != graph->context || stream->updating != NULL) {
        return invalidate(graph, RT_STREAM_CAPTURE_CONFLICT, "stream: of another context");
    }
    return lane_new(graph, stream) != NULL ? ACL_SUCCESS : error_set(RT_NO_STREAM_RESOURCE, "stream");
}

/* What was recorded outside cannot be waited for inside, but with the external flag or by a hardware flag. */
static aclError wait_outside(event_t *event, stream_t *stream) {
    if (event->mode == EVENT_FLAGGED || event->record == NULL) {
        return event_enqueue_wait(event, stream, 0);
    }
    return invalidate(stream->lane->graph, RT_CAPTURE_DEPENDENCY, "event: recorded outside of the capture");
}

aclError capture_wait(event_t *event, stream_t *stream, bool external) {
    graph_t *graph = event->captured != NULL ? event->captured->lane->graph : stream->lane->graph;
    aclError rc = stream->lane != NULL ? check_open(stream->lane->graph) : check_open(graph);
    rc = rc == ACL_SUCCESS && external ? check_external(event) : rc;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (external && stream->lane != NULL) {
        return add_external(event, stream->lane, &wait_ops);
    }
    if (event->captured == NULL) {
        return wait_outside(event, stream);
    }
    if (stream->lane == NULL) {
        rc = join_capture(graph, stream);
    } else if (stream->lane->graph != graph) {
        invalidate(stream->lane->graph, RT_STREAM_CAPTURE_CONFLICT, "stream");
        rc = invalidate(graph, RT_STREAM_CAPTURE_CONFLICT, "event: of another capture");
    }
    return rc == ACL_SUCCESS ? add_wait(event, stream->lane) : rc;
}
