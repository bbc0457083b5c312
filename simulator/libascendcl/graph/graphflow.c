/* Branches inside graphs: jumps to labels, and tasks that activate a stream on a condition. */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

/* A captured stream is not bound to the model of its capture, so it cannot have branches. */
static aclError check_bound(const stream_t *stream) {
    bool bound = stream->lane != NULL && stream->lane->graph->built;
    return bound ? ACL_SUCCESS : error_set(RT_STREAM_MODEL, "stream: it is not bound to a model");
}

static aclError add(stream_t *stream, work_t *work) {
    task_t task = {.kind = TASK_STEP, .work = work};
    return work != NULL ? stream_enqueue(stream, &task) : error_set(RT_MEMORY_ALLOCATION, "stream");
}

static bool pass(stream_t *stream, task_t *task) {
    (void)stream;
    (void)task;
    return true;
}

static const work_ops_t label_ops = {.step = pass};

aclError do_aclrtCreateLabel(aclrtLabel *label) {
    REFUSE_NULL(label);
    SIM_GUARD();
    context_t *context = context_need();
    aclError rc = context != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
    label_t *made = rc == ACL_SUCCESS ? object_new(KIND_LABEL) : NULL;
    if (made != NULL) {
        made->context = context;
        *label = made;
    } else if (rc == ACL_SUCCESS) {
        rc = error_set(RT_MEMORY_ALLOCATION, "label");
    }
    return rc;
}

static aclError label_find(aclrtLabel handle, label_t **label) {
    *label = object_find(KIND_LABEL, handle);
    return *label != NULL ? ACL_SUCCESS : usage_bad_handle(KIND_LABEL, handle);
}

static aclError check_label_owner(const label_t *label, const context_t *context) {
    return label->context == context ? ACL_SUCCESS : error_set(RT_LABEL_CONTEXT, "label");
}

static aclError label_find_own(aclrtLabel handle, context_t **context, label_t **label) {
    aclError rc = label_find(handle, label);
    *context = rc == ACL_SUCCESS ? context_need() : NULL;
    if (rc == ACL_SUCCESS && *context == NULL) {
        return RT_CONTEXT_NULL;
    }
    return rc == ACL_SUCCESS ? check_label_owner(*label, *context) : rc;
}

/* The list stores the device address of its labels, and a label without an address cannot be set. */
static aclError set_label(label_t *label, stream_t *stream) {
    lane_t *lane = stream->lane;
    if (label->node != NULL || !label->listed) {
        return error_set(RT_INTERNAL_ERROR,
                         label->listed ? "label: it is set already" : "label: it does not belong to a list");
    }
    aclError rc = add(stream, work_new(&label_ops, sizeof(work_t)));
    if (rc == ACL_SUCCESS) {
        label->node = lane->nodes[lane->count - 1];
    }
    return rc;
}

aclError do_aclrtSetLabel(aclrtLabel label, aclrtStream stream) {
    REFUSE_NULL(label);
    REFUSE_NULL(stream);
    label_t *made = NULL;
    stream_t *found = NULL;
    context_t *context = NULL;
    SIM_GUARD();
    aclError rc = label_find(label, &made);
    rc = rc == ACL_SUCCESS ? stream_find(NULL, stream, &found) : rc;
    rc = rc == ACL_SUCCESS ? label_find_own(label, &context, &made) : rc;
    rc = rc == ACL_SUCCESS ? stream_check_launch(context, found) : rc;
    rc = rc == ACL_SUCCESS ? check_bound(found) : rc;
    return rc == ACL_SUCCESS ? set_label(made, found) : rc;
}

aclError do_aclrtDestroyLabel(aclrtLabel label) {
    REFUSE_NULL(label);
    label_t *made = NULL;
    context_t *context = NULL;
    SIM_GUARD();
    aclError rc = label_find_own(label, &context, &made);
    if (rc == ACL_SUCCESS) {
        object_kill(&made->object);
    }
    return rc;
}

/* A label can belong to one list only, and only once. */
static aclError list_label(label_t *label, const context_t *context) {
    aclError rc = check_label_owner(label, context);
    if (rc == ACL_SUCCESS && label->listed) {
        rc = error_set(RT_INTERNAL_ERROR, "labels: one belongs to a list already");
    }
    label->listed = label->listed || rc == ACL_SUCCESS;
    return rc;
}

static aclError list_new(label_t **labels, size_t num, aclrtLabelList *handle) {
    label_list_t *list = object_new(KIND_LABEL_LIST);
    if (list == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "labels");
    }
    for (size_t i = 0; i < num; i++) {
        object_retain(&labels[i]->object);
    }
    list->labels = labels;
    list->count = (uint32_t)num;
    *handle = list;
    return ACL_SUCCESS;
}

static aclError find_labels(const aclrtLabel *handles, size_t num, label_t **labels) {
    aclError rc = ACL_SUCCESS;
    bool all = true;
    for (size_t i = 0; rc == ACL_SUCCESS && i < num; i++) {
        all = all && handles[i] != NULL;
        rc = handles[i] != NULL ? label_find(handles[i], &labels[i]) : ACL_SUCCESS;
    }
    return rc == ACL_SUCCESS && !all ? error_set(RT_PARAM_INVALID, "labels") : rc;
}

static aclError list_labels(const aclrtLabel *handles, size_t num, label_t **labels) {
    aclError rc = find_labels(handles, num, labels);
    const context_t *context = rc == ACL_SUCCESS ? context_need() : NULL;
    if (rc == ACL_SUCCESS && context == NULL) {
        return RT_CONTEXT_NULL;
    }
    for (size_t i = 0; rc == ACL_SUCCESS && i < num; i++) {
        rc = list_label(labels[i], context);
    }
    return rc;
}

aclError do_aclrtCreateLabelList(aclrtLabel *labels, size_t num, aclrtLabelList *labelList) {
    REFUSE_NULL(labels);
    REFUSE_NULL(labelList);
    if (num == 0 || num > UINT16_MAX) {
        return error_set(RT_PARAM_INVALID, "num");
    }
    SIM_GUARD();
    label_t **found = calloc(num, sizeof *found);
    aclError rc = found != NULL ? list_labels(labels, num, found) : error_set(RT_MEMORY_ALLOCATION, "labels");
    rc = rc == ACL_SUCCESS ? list_new(found, num, labelList) : rc;
    if (rc != ACL_SUCCESS) {
        free(found);
    }
    return rc;
}

static void list_release(label_list_t *list) {
    if (list->object.refs == 1) {
        for (uint32_t i = 0; i < list->count; i++) {
            object_release(&list->labels[i]->object);
        }
        free(list->labels);
    }
    object_release(&list->object);
}

/* Queued jumps hold a reference to the list. */
aclError do_aclrtDestroyLabelList(aclrtLabelList labelList) {
    REFUSE_NULL(labelList);
    SIM_GUARD();
    label_list_t *list = object_find(KIND_LABEL_LIST, labelList);
    aclError rc = list != NULL ? ACL_SUCCESS : usage_bad_handle(KIND_LABEL_LIST, labelList);
    if (list != NULL) {
        object_retain(&list->object);
        object_kill(&list->object);
        list_release(list);
    }
    return rc;
}

typedef struct {
    work_t work;
    const uint32_t *index;
    uint32_t most;
    label_list_t *list;
} jump_t;

static void jump_free(work_t *work) {
    list_release(((jump_t *)work)->list);
}

/* If the index is too large, the last label is used. */
static bool jump_step(stream_t *stream, task_t *task) {
    const jump_t *jump = (const jump_t *)task->work;
    if (memory_kind(jump->index) != MEMORY_DEVICE) {
        task->code = RT_TASK_ERROR;
        return true;
    }
    uint32_t most = jump->most < jump->list->count ? jump->most : jump->list->count;
    uint32_t index = *jump->index < most ? *jump->index : most - 1;
    const node_t *node = jump->list->labels[index]->node;
    if (node == NULL || node->lane != stream->runs) {
        task->code = RT_TASK_ERROR;
        return true;
    }
    lane_jump(stream->runs, node->index);
    return true;
}

static const work_ops_t jump_ops = {.step = jump_step, .free = jump_free};

static aclError add_jump(stream_t *stream, const void *index, uint32_t most, aclrtLabelList handle) {
    label_list_t *list = object_find(KIND_LABEL_LIST, handle);
    jump_t *jump = list != NULL ? work_new(&jump_ops, sizeof *jump) : NULL;
    if (list == NULL) {
        return usage_bad_handle(KIND_LABEL_LIST, handle);
    }
    if (jump != NULL) {
        jump->index = index;
        jump->most = most;
        jump->list = list;
        object_retain(&list->object);
    }
    return add(stream, (work_t *)jump);
}

aclError do_aclrtSwitchLabelByIndex(void *ptr, uint32_t maxValue, aclrtLabelList labelList,
                                    aclrtStream stream) {
    REFUSE_NULL(ptr);
    REFUSE_NULL(labelList);
    REFUSE_NULL(stream);
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_find(NULL, stream, &found);
    rc = rc == ACL_SUCCESS && maxValue == 0 ? error_set(RT_PARAM_INVALID, "maxValue") : rc;
    rc = rc == ACL_SUCCESS ? stream_need_own(stream, &found) : rc;
    rc = rc == ACL_SUCCESS ? check_bound(found) : rc;
    return rc == ACL_SUCCESS ? add_jump(found, ptr, maxValue, labelList) : rc;
}

typedef struct {
    work_t work;
    lane_t *target;
    const void *left; /* NULL: no condition */
    const void *right;
    aclrtCondition condition;
    uint32_t bytes;
} activate_t;

static int64_t read_value(const void *from, uint32_t bytes) {
    int32_t narrow = 0;
    int64_t wide = 0;
    memcpy(&narrow, from, sizeof narrow);
    if (bytes == sizeof wide) {
        memcpy(&wide, from, sizeof wide);
    }
    return bytes == sizeof wide ? wide : narrow;
}

static bool holds(const activate_t *activate) {
    int64_t left = read_value(activate->left, activate->bytes);
    int64_t right = read_value(activate->right, activate->bytes);
    switch ((int)activate->condition) {
    case ACL_RT_EQUAL:
        return left == right;
    case ACL_RT_NOT_EQUAL:
        return left != right;
    case ACL_RT_GREATER:
        return left > right;
    case ACL_RT_GREATER_OR_EQUAL:
        return left >= right;
    case ACL_RT_LESS:
        return left < right;
    default:
        return left <= right;
    }
}

/* If the condition of a switch is true, the later tasks of the switch's own stream are skipped. */
static bool activate_step(stream_t *stream, task_t *task) {
    const activate_t *activate = (const activate_t *)task->work;
    bool conditional = activate->left != NULL;
    if (conditional &&
        (memory_kind(activate->left) != MEMORY_DEVICE || memory_kind(activate->right) != MEMORY_DEVICE)) {
        task->code = RT_TASK_ERROR;
        return true;
    }
    if (!conditional || holds(activate)) {
        lane_start(activate->target);
        if (conditional) {
            lane_cut(stream->runs);
        }
    }
    return true;
}

static const work_ops_t activate_ops = {.step = activate_step};

static aclError add_activate(aclrtStream target, aclrtStream stream, activate_t what) {
    stream_t *from = NULL;
    stream_t *to = NULL;
    aclError rc = stream_need_own(stream, &from);
    rc = rc == ACL_SUCCESS ? check_bound(from) : rc;
    rc = rc == ACL_SUCCESS ? stream_need_own(target, &to) : rc;
    rc = rc == ACL_SUCCESS ? check_bound(to) : rc;
    if (rc == ACL_SUCCESS && (to->lane->graph != from->lane->graph || to == from)) {
        rc = error_set(RT_STREAM_MODEL, "stream: it must be another stream of the same model");
    }
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    activate_t *activate = work_new(&activate_ops, sizeof *activate);
    if (activate != NULL) {
        what.work = activate->work;
        what.target = to->lane;
        *activate = what;
    }
    return add(from, (work_t *)activate);
}

aclError do_aclrtActiveStream(aclrtStream activeStream, aclrtStream stream) {
    REFUSE_NULL(activeStream);
    SIM_GUARD();
    aclError rc = add_activate(activeStream, stream, (activate_t){.left = NULL});
    return rc;
}

aclError do_aclrtSwitchStream(void *leftValue, aclrtCondition cond, void *rightValue,
                              aclrtCompareDataType dataType, aclrtStream trueStream, aclrtStream falseStream,
                              aclrtStream stream) {
    if (leftValue == NULL || rightValue == NULL || trueStream == NULL) {
        return error_quiet(ACL_INVALID_PARAM, leftValue == NULL ? "leftValue" : "rightValue or trueStream");
    }
    if ((unsigned int)cond > ACL_RT_LESS_OR_EQUAL || (unsigned int)dataType > ACL_RT_SWITCH_INT64) {
        return error_set(RT_PARAM_INVALID, (unsigned int)cond > ACL_RT_LESS_OR_EQUAL ? "cond" : "dataType");
    }
    if (falseStream != NULL) {
        return error_set(RT_PARAM_INVALID, "falseStream");
    }
    activate_t what = {.left = leftValue,
                       .right = rightValue,
                       .condition = cond,
                       .bytes = dataType == ACL_RT_SWITCH_INT64 ? 8 : 4};
    SIM_GUARD();
    return add_activate(trueStream, stream, what);
}
