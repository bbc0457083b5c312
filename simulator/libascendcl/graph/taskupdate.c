/*
 * Updates of a model's tasks by a task. When a stream reaches the updating task, the new parameters of the
 * model's task are read from device memory. Only tasks that generate random numbers can be updated this way.
 * Tasks of AI cores are not simulated.
 */
#include <string.h>

#include "graph.h"

typedef struct {
    work_t work;
    node_t *node;
    const void *source;
} update_t;

static aclError update(const update_t *what) {
    aclrtRandomNumTaskInfo info;
    void *block = NULL;
    bool there = what->node->object.state == OBJECT_LIVE &&
                 memory_pin_for(what->source, sizeof info, MEMORY_READS, &block);
    if (!there) {
        return RT_TASK_ERROR;
    }
    memcpy(&info, what->source, sizeof info);
    memory_unpin(block);
    task_t task = {.kind = TASK_WORK, .work = random_work_new(&info)};
    if (task.work == NULL) {
        return RT_TASK_ERROR;
    }
    node_replace(what->node, &task);
    return 0;
}

static bool step(stream_t *stream, task_t *task) {
    (void)stream;
    task->code = update((const update_t *)task->work);
    return true;
}

static void release(work_t *work) {
    object_release(&((update_t *)work)->node->object);
}

static const work_ops_t update_ops = {.step = step, .free = release};

/* Returns the task with that number in a model's stream, if that task generates random numbers. */
static node_t *find_task(const stream_t *stream, uint32_t number) {
    const lane_t *lane = stream->lane != NULL ? stream->lane : stream->runs;
    node_t *node = lane != NULL && number < lane->count ? lane->nodes[number] : NULL;
    return node != NULL && random_is(&node->task) ? node : NULL;
}

static aclError enqueue(aclrtStream handle, uint32_t number, const void *source, aclrtStream stream) {
    const stream_t *found = object_find(KIND_STREAM, handle);
    if (found == NULL) {
        return usage_bad_handle(KIND_STREAM, handle);
    }
    node_t *node = find_task(found, number);
    if (node == NULL) {
        return error_set(RT_PARAM_INVALID, "taskId: expected a model's task that generates random numbers");
    }
    update_t *made = work_new(&update_ops, sizeof *made);
    if (made == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "task");
    }
    object_retain(&node->object);
    made->node = node;
    made->source = source;
    return work_enqueue_locked(stream, TASK_STEP, &made->work);
}

aclError do_aclrtTaskUpdateAsync(aclrtStream taskStream, uint32_t taskId, aclrtTaskUpdateInfo *info,
                                 aclrtStream execStream) {
    REFUSE_NULL(info);
    if (info->id == ACL_RT_UPDATE_AIC_AIV_TASK) {
        return error_set(RT_FEATURE_NOT_SUPPORT, "aclrtTaskUpdateAsync: tasks of AI cores cannot be updated");
    }
    const aclrtRandomTaskUpdateAttr *given = &info->val.randomTaskAttr;
    bool fits = given->srcAddr != NULL && given->size == sizeof(aclrtRandomNumTaskInfo);
    if (info->id != ACL_RT_UPDATE_RANDOM_TASK || taskStream == NULL || !fits) {
        return error_set(RT_PARAM_INVALID, taskStream == NULL ? "taskStream" : "info");
    }
    SIM_GUARD();
    return enqueue(taskStream, taskId, given->srcAddr, execStream);
}
