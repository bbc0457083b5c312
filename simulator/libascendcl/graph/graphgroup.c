/* Task groups. The client marks the tasks of a group while a stream is captured, and can replace these tasks
 * later. */
#include <stdlib.h>

#include "graph.h"

enum { FLAG_EXTERNAL = 0x20 };

static aclError find_captured(aclrtStream handle, stream_t **stream) {
    aclError rc = stream_need_own(handle, stream);
    bool captured = rc == ACL_SUCCESS && (*stream)->lane != NULL;
    return rc == ACL_SUCCESS && !captured ? error_set(RT_STREAM_NOT_CAPTURED, "stream") : rc;
}

static aclError begin(graph_t *graph) {
    if (graph->open_group != NULL) {
        return error_set(RT_TASK_GROUP_STATUS, "stream: a group is open");
    }
    graph->open_group = object_new(KIND_GROUP);
    if (graph->open_group == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "group");
    }
    graph->open_group->graph = graph;
    return ACL_SUCCESS;
}

aclError do_aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_captured(stream, &found);
    return rc == ACL_SUCCESS ? begin(found->lane->graph) : rc;
}

aclError do_aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp *handle) {
    stream_t *found = NULL;
    REFUSE_NULL(handle);
    SIM_GUARD();
    aclError rc = find_captured(stream, &found);
    if (rc == ACL_SUCCESS && found->lane->graph->open_group == NULL) {
        rc = error_set(RT_TASK_GROUP_STATUS, "stream: no group is open");
    } else if (rc == ACL_SUCCESS) {
        *handle = found->lane->graph->open_group;
        found->lane->graph->open_group = NULL;
    }
    return rc;
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
    if (graph_takes(stream) || group->updater != NULL) {
        return error_set(RT_TASK_GROUP_STATUS, "stream or handle: an update or a capture is in progress");
    }
    if (group->graph->open_group == group) {
        return error_set(RT_TASK_GROUP_STATUS, "handle: the group is still open");
    }
    group->updated = 0;
    group->updater = stream;
    stream->updating = group;
    return ACL_SUCCESS;
}

aclError do_aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle) {
    stream_t *found = NULL;
    REFUSE_NULL(handle);
    SIM_GUARD();
    aclError rc = stream_need_own(stream, &found);
    task_group_t *group = object_find(KIND_GROUP, handle);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    return group != NULL ? begin_update(found, group) : usage_bad_handle(KIND_GROUP, handle);
}

static bool from_outside(const task_t *task) {
    return (task->event.event->flags & FLAG_EXTERNAL) != 0;
}

/* A task can only replace a task of the same kind. The edges of a graph cannot be replaced. */
static bool replaces(const task_t *task, const task_t *old) {
    if (task->kind != old->kind) {
        return false;
    }
    switch (task->kind) {
    case TASK_RECORD:
        return from_outside(task) && from_outside(old);
    case TASK_WORK:
    case TASK_STEP:
        return task->work->ops == old->work->ops;
    case TASK_WAIT_RECORD:
    case TASK_CALLBACK:
    case TASK_POOL_TAKE:
    case TASK_POOL_GIVE:
        return false;
    default:
        return true;
    }
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

/* Replaces the task of the group's next node. If the old task is running, it completes. If the old task is
 * waiting, or if the execution has not reached the node, the new task runs instead. */
aclError group_take(stream_t *stream, task_t *task) {
    task_group_t *group = stream->updating;
    object_retain(&stream->object);
    wait_for_bytes(stream, group);
    node_t *node = stream->updating == group ? next_node(group) : NULL;
    bool fits = node != NULL && replaces(task, &node->task);
    if (fits) {
        node_replace(node, task);
        group->updated++;
    } else {
        task_release(task, RT_TASK_GROUP_STATUS);
    }
    object_release(&stream->object);
    return fits ? ACL_SUCCESS
                : error_set(RT_TASK_GROUP_STATUS, "stream: this is not the next task of the group");
}

aclError do_aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_need_own(stream, &found);
    task_group_t *group = rc == ACL_SUCCESS ? found->updating : NULL;
    if (rc == ACL_SUCCESS && group == NULL) {
        rc = error_set(RT_TASK_GROUP_STATUS, "stream: no update is in progress");
    } else if (rc == ACL_SUCCESS) {
        found->updating = NULL;
        group->updater = NULL;
        rc = group->updated == group->count
                 ? rc
                 : error_set(RT_MODEL_UPDATE_FAILED, "stream: tasks of the group are missing");
    }
    return rc;
}
