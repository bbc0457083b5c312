/* Task groups. The client marks the kernels of a group while a stream is captured, and can replace these
 * kernels later. */
#include <stdlib.h>

#include "graph.h"
#include "launch.h"

/* The stream is checked before the context. */
static aclError find_captured(aclrtStream handle, stream_t **stream) {
    aclError rc = stream_find(NULL, handle, stream);
    if (rc == ACL_SUCCESS && !capture_has(*stream)) {
        return error_set(RT_STREAM_NOT_CAPTURED, "stream");
    }
    return rc == ACL_SUCCESS ? stream_need_own(handle, stream) : rc;
}

/* The runtime does not show this in the status of the capture, only at its end. */
static aclError spoil(graph_t *graph, aclError code, const char *what) {
    graph->group_code = code;
    if (graph->state == GRAPH_CAPTURING) {
        graph->state = GRAPH_INVALID;
    }
    return error_set(code, what);
}

aclError group_check(const lane_t *lane, const task_t *task) {
    const task_group_t *group = lane->graph->open_group;
    if (group == NULL || (group->lane == lane && task != NULL && launch_of(task) != NULL)) {
        return ACL_SUCCESS;
    }
    return group->lane == lane
               ? spoil(lane->graph, RT_TASK_NOT_SUPPORT, "stream: a group is open, which takes only kernels")
               : spoil(lane->graph, RT_TASK_GROUP_BROKEN, "stream: a group is open on another stream");
}

static aclError begin(const lane_t *lane) {
    graph_t *graph = lane->graph;
    if (graph->open_group != NULL) {
        return graph->open_group->lane == lane ? error_set(RT_TASK_GROUP_STATUS, "stream: a group is open")
                                               : group_check(lane, NULL);
    }
    graph->open_group = object_new(KIND_GROUP);
    if (graph->open_group == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "group");
    }
    graph->open_group->graph = graph;
    graph->open_group->lane = lane;
    return ACL_SUCCESS;
}

aclError do_aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
    stream_t *found = NULL;
    REFUSE_NULL(stream);
    SIM_GUARD();
    aclError rc = find_captured(stream, &found);
    return rc == ACL_SUCCESS ? begin(found->lane) : rc;
}

void group_free(task_group_t *group) {
    free(group->nodes);
    object_kill(&group->object);
}

/* If the capture has become invalid, the group ends with the reason, and the client gets no handle. */
static aclError end(graph_t *graph, aclrtTaskGrp *handle) {
    task_group_t *group = graph->open_group;
    graph->open_group = NULL;
    if (graph->state != GRAPH_INVALID) {
        *handle = group;
        return ACL_SUCCESS;
    }
    for (uint32_t i = 0; i < group->count; i++) {
        group->nodes[i]->group = NULL;
    }
    group_free(group);
    return error_set(graph->group_code != 0 ? graph->group_code : RT_STREAM_CAPTURE_INVALIDATED, "stream");
}

aclError do_aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp *handle) {
    stream_t *found = NULL;
    REFUSE_NULL(stream);
    REFUSE_NULL(handle);
    SIM_GUARD();
    aclError rc = find_captured(stream, &found);
    const task_group_t *group = rc == ACL_SUCCESS ? found->lane->graph->open_group : NULL;
    if (rc == ACL_SUCCESS && (group == NULL || group->lane != found->lane)) {
        return error_set(RT_TASK_GROUP_STATUS, "stream: no group is open");
    }
    return rc == ACL_SUCCESS ? end(found->lane->graph, handle) : rc;
}

/* A node that cannot be added to the group belongs to no group. */
void group_note(node_t *node) {
    task_group_t *group = node->lane->graph->open_group;
    node_t **nodes = group != NULL ? realloc(group->nodes, (group->count + 1) * sizeof *nodes) : NULL;
    if (nodes != NULL) {
        group->nodes = nodes;
        group->nodes[group->count++] = node;
        node->group = group;
    }
}

static aclError begin_update(stream_t *stream, task_group_t *group) {
    if (stream->updating != NULL || group->updater != NULL) {
        return error_set(RT_TASK_GROUP_STATUS, "stream or handle: an update is in progress");
    }
    if (group->graph->open_group == group) {
        return error_set(RT_TASK_GROUP_STATUS, "handle: the group is still open");
    }
    group->updated = 0;
    group->updater = stream;
    stream->updating = group;
    return ACL_SUCCESS;
}

/* Finds the stream of an update, which must not be captured or bound. Both are checked before the context. */
static aclError find_updater(aclrtStream handle, stream_t **stream) {
    aclError rc = stream_find(NULL, handle, stream);
    rc = rc == ACL_SUCCESS ? capture_check_asked(*stream) : rc;
    if (rc == ACL_SUCCESS && (*stream)->lane != NULL) {
        return error_set(RT_STREAM_MODEL, "stream: it is bound to a model");
    }
    return rc == ACL_SUCCESS ? stream_need_own(handle, stream) : rc;
}

aclError do_aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle) {
    stream_t *found = NULL;
    REFUSE_NULL(stream);
    REFUSE_NULL(handle);
    SIM_GUARD();
    aclError rc = find_updater(stream, &found);
    task_group_t *group = object_find(KIND_GROUP, handle);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    return group != NULL ? begin_update(found, group) : usage_bad_handle(KIND_GROUP, handle);
}

/* Returns the next node that the update has not reached, or NULL. */
static node_t *next_node(const task_group_t *group) {
    return group->updated < group->count ? group->nodes[group->updated] : NULL;
}

/* A task whose bytes are being moved cannot be changed, so the call waits until the bytes have been moved. */
static void wait_for_bytes(const stream_t *stream, const task_group_t *group) {
    const node_t *node = next_node(group);
    while (stream->updating == group && node == next_node(group) && node != NULL &&
           node->lane->runner->running && task_moves(stream_head(node->lane->runner))) {
        device_settle(stream->device);
    }
}

/* Replaces the kernel of the group's next node. If the old task is running, it completes. If the old task is
 * waiting, or if the execution has not reached the node, the new task runs instead. */
aclError group_take(stream_t *stream, task_t *task) {
    task_group_t *group = stream->updating;
    object_retain(&stream->object);
    wait_for_bytes(stream, group);
    node_t *node = stream->updating == group ? next_node(group) : NULL;
    bool fits = node != NULL && launch_of(task) != NULL;
    if (fits) {
        node_replace(node, task);
        group->updated++;
    } else {
        task_release(task, RT_TASK_GROUP_STATUS);
    }
    object_release(&stream->object);
    return fits ? ACL_SUCCESS
                : error_set(RT_TASK_GROUP_STATUS, "stream: this is not the next kernel of the group");
}

aclError do_aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
    stream_t *found = NULL;
    REFUSE_NULL(stream);
    SIM_GUARD();
    aclError rc = find_updater(stream, &found);
    task_group_t *group = rc == ACL_SUCCESS ? found->updating : NULL;
    if (rc == ACL_SUCCESS && group == NULL) {
        rc = error_set(RT_TASK_GROUP_STATUS, "stream: no update is in progress");
    } else if (rc == ACL_SUCCESS) {
        found->updating = NULL;
        group->updater = NULL;
        rc = group->updated == group->count
                 ? rc
                 : error_set(RT_INTERNAL_ERROR, "stream: tasks of the group are missing");
    }
    return rc;
}
