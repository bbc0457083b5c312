/* Queries about the tasks of a graph, and replacing the tasks. */
#include <string.h>

#include "graph.h"
#include "launch.h"

static aclmdlRITaskType type_of(const task_t *task) {
    value_task_t value;
    switch (task->kind) {
    case TASK_RECORD:
        return ACL_MODEL_RI_TASK_EVENT_RECORD;
    case TASK_WAIT_RECORD:
    case TASK_WAIT_FLAG:
        return ACL_MODEL_RI_TASK_EVENT_WAIT;
    case TASK_RESET_EVENT:
        return ACL_MODEL_RI_TASK_EVENT_RESET;
    default:
        break;
    }
    if (launch_of(task) != NULL) {
        return ACL_MODEL_RI_TASK_KERNEL;
    }
    if (!value_of(task, &value)) {
        return ACL_MODEL_RI_TASK_DEFAULT;
    }
    return value.waits ? ACL_MODEL_RI_TASK_VALUE_WAIT : ACL_MODEL_RI_TASK_VALUE_WRITE;
}

static aclError list_tasks(const lane_t *lane, aclmdlRITask *tasks, uint32_t *count) {
    bool fits = tasks == NULL || lane->count <= *count;
    for (uint32_t i = 0; tasks != NULL && i < lane->count && i < *count; i++) {
        tasks[i] = lane->nodes[i];
    }
    *count = lane->count;
    return fits ? ACL_SUCCESS : error_set(RT_ARRAY_TOO_SMALL, "numTasks");
}

aclError do_aclmdlRIGetTasksByStream(aclrtStream stream, aclmdlRITask *tasks, uint32_t *numTasks) {
    RUNTIME_REFUSES_NULL(stream);
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_find(NULL, stream, &found);
    if (rc == ACL_SUCCESS) {
        RUNTIME_REFUSES_NULL(numTasks);
        const lane_t *lane = found->lane != NULL && !capture_has(found) ? found->lane : found->runs;
        rc = lane != NULL ? list_tasks(lane, tasks, numTasks)
                          : error_set(RT_PARAM_INVALID, "stream: it belongs to no model");
    }
    return rc;
}

aclError do_aclmdlRITaskGetType(aclmdlRITask task, aclmdlRITaskType *type) {
    RUNTIME_REFUSES_NULL(task);
    RUNTIME_REFUSES_NULL(type);
    node_t *node = NULL;
    SIM_GUARD();
    aclError rc = node_find(task, &node);
    if (rc == ACL_SUCCESS) {
        *type = type_of(&node->task);
    }
    return rc;
}

/* Returns the task's index among the tasks of its stream, from 0. */
aclError do_aclmdlRITaskGetSeqId(aclmdlRITask task, uint32_t *id) {
    RUNTIME_REFUSES_NULL(task);
    RUNTIME_REFUSES_NULL(id);
    node_t *node = NULL;
    SIM_GUARD();
    aclError rc = node_find(task, &node);
    if (rc == ACL_SUCCESS) {
        *id = node->index;
    }
    return rc;
}

static void tell_launch(const launch_t *launch, aclmdlRIKernelTaskParams *params) {
    params->funcHandle = launch->handle;
    params->args = launch->copy != NULL ? launch->copy : (void *)(uintptr_t)launch->address;
    params->isHostArgs = launch->copy != NULL ? 1 : 0;
    params->argsSize = launch->size;
    params->numBlocks = launch->shape.num_blocks;
}

static void tell(const node_t *node, aclmdlRITaskParams *params) {
    value_task_t value;
    event_t *event = node->task.event.event;
    memset(params, 0, sizeof *params);
    params->type = type_of(&node->task);
    params->taskGrp = node->group;
    switch (params->type) {
    case ACL_MODEL_RI_TASK_KERNEL:
        tell_launch(launch_of(&node->task), &params->kernelTaskParams);
        break;
    case ACL_MODEL_RI_TASK_EVENT_RECORD:
    case ACL_MODEL_RI_TASK_EVENT_WAIT:
    case ACL_MODEL_RI_TASK_EVENT_RESET: /* these have the same members at the same places */
        params->eventRecordTaskParams.event = event;
        params->eventRecordTaskParams.eventFlag = event->flags;
        break;
    case ACL_MODEL_RI_TASK_VALUE_WRITE:
    case ACL_MODEL_RI_TASK_VALUE_WAIT:
        value_of(&node->task, &value);
        params->valueWaitTaskParams.devAddr = value.address;
        params->valueWaitTaskParams.value = value.value;
        params->valueWaitTaskParams.flag = value.flag;
        break;
    default:
        break;
    }
}

aclError do_aclmdlRITaskGetParams(aclmdlRITask task, aclmdlRITaskParams *params) {
    RUNTIME_REFUSES_NULL(task);
    RUNTIME_REFUSES_NULL(params);
    node_t *node = NULL;
    SIM_GUARD();
    aclError rc = node_find(task, &node);
    if (rc == ACL_SUCCESS) {
        tell(node, params);
    }
    return rc;
}

static work_t *other_launch(const aclmdlRIKernelTaskParams *params) {
    const function_handle_t *function = object_find(KIND_FUNCTION, params->funcHandle);
    shape_t shape = {.num_blocks = params->numBlocks, .grid = {params->numBlocks, 1, 1}, .block = {1, 1, 1}};
    bool fits = function != NULL && params->numBlocks != 0 && (params->args != NULL || params->argsSize == 0);
    launch_t *launch = fits ? launch_new(function->kernel, &shape) : NULL;
    if (launch == NULL) {
        return NULL;
    }
    launch->handle = params->funcHandle;
    launch->address = params->args;
    launch->size = params->argsSize;
    if (params->isHostArgs != 0 && !launch_copy_args(launch, params->args, params->argsSize)) {
        work_release(&launch->work);
        return NULL;
    }
    return &launch->work;
}

/* The new parameters must be for the same type of task. Tasks of events cannot be changed, because they are the
 * edges of the graph. */
static aclError set_params(node_t *node, const aclmdlRITaskParams *params) {
    aclmdlRITaskType type = type_of(&node->task);
    value_task_t value = {.address = params->valueWaitTaskParams.devAddr,
                          .value = params->valueWaitTaskParams.value,
                          .flag = params->valueWaitTaskParams.flag,
                          .waits = type == ACL_MODEL_RI_TASK_VALUE_WAIT};
    if (params->type != type) {
        return error_set(RT_PARAM_INVALID, "params: type");
    }
    work_t *work = NULL;
    if (type == ACL_MODEL_RI_TASK_KERNEL) {
        work = other_launch(&params->kernelTaskParams);
    } else if (type == ACL_MODEL_RI_TASK_VALUE_WRITE || type == ACL_MODEL_RI_TASK_VALUE_WAIT) {
        value.flag = value.waits ? value.flag : 0;
        work = value_work_new(&value);
    } else {
        return error_set(RT_FEATURE_NOT_SUPPORT, "task: only kernels and values can be changed");
    }
    if (work == NULL) {
        return error_set(RT_PARAM_INVALID, "params");
    }
    if (node->next_work != NULL) {
        work_release(node->next_work);
    }
    node->next_work = work;
    return ACL_SUCCESS;
}

aclError do_aclmdlRITaskSetParams(aclmdlRITask task, aclmdlRITaskParams *params) {
    RUNTIME_REFUSES_NULL(task);
    RUNTIME_REFUSES_NULL(params);
    node_t *node = NULL;
    SIM_GUARD();
    aclError rc = node_find(task, &node);
    return rc == ACL_SUCCESS ? set_params(node, params) : rc;
}

/* Edges cannot be removed, because other nodes wait for them. */
aclError do_aclmdlRITaskDisable(aclmdlRITask task) {
    RUNTIME_REFUSES_NULL(task);
    node_t *node = NULL;
    SIM_GUARD();
    aclError rc = node_find(task, &node);
    if (rc == ACL_SUCCESS && node->task.kind == TASK_RECORD) {
        rc = error_set(RT_FEATURE_NOT_SUPPORT, "task: other tasks wait for it");
    } else if (rc == ACL_SUCCESS) {
        node->disable_next = true;
    }
    return rc;
}

static void update_node(node_t *node) {
    if (node->next_work != NULL) {
        work_release(node->task.work);
        node->task.work = node->next_work;
        node->next_work = NULL;
    }
    node->disabled = node->disable_next;
}

static void update_graph(const graph_t *graph) {
    for (const lane_t *lane = graph->lanes; lane != NULL; lane = lane->next) {
        for (uint32_t i = 0; i < lane->count; i++) {
            update_node(lane->nodes[i]);
        }
    }
    for (const condition_t *condition = graph->conditions; condition != NULL; condition = condition->next) {
        for (uint32_t i = 0; i < condition->count; i++) {
            update_graph(condition->graphs[i]);
        }
    }
}

/* Applies the changes to all executions that begin from now on. */
aclError do_aclmdlRIUpdate(aclmdlRI modelRI) {
    RUNTIME_REFUSES_NULL(modelRI);
    graph_t *graph = NULL;
    SIM_GUARD();
    aclError rc = graph_find_whole(modelRI, &graph);
    if (rc == ACL_SUCCESS && (graph->state != GRAPH_READY || graph->executor != NULL)) {
        rc = error_set(graph->executor != NULL ? RT_MODEL_RUNNING : RT_MODEL_CAPTURED, "modelRI");
    }
    if (rc == ACL_SUCCESS) {
        update_graph(graph);
    }
    return rc;
}

/* Attributes of launches are checked and not stored. */
aclError do_aclmdlRIKernelTaskGetAttribute(aclmdlRITask task, aclrtLaunchKernelAttrId attrId,
                                           aclrtLaunchKernelAttrValue *attrValue) {
    (void)attrId;
    RUNTIME_REFUSES_NULL(task);
    RUNTIME_REFUSES_NULL(attrValue);
    node_t *node = NULL;
    SIM_GUARD();
    aclError rc = node_find(task, &node);
    return rc != ACL_SUCCESS
               ? rc
               : error_set(
                     RT_FEATURE_NOT_SUPPORT,
                     "aclmdlRIKernelTaskGetAttribute: the simulator does not store attributes of launches");
}
