/*
 * Conditions: values in device memory by which a task of a graph chooses the graph that it executes. The call
 * that adds the task also creates the graphs from which the task chooses ("inner" graphs). The client captures
 * the inner graphs afterwards, so the inner graphs can use the condition too. Inner graphs belong to the graph
 * of the condition: they are executed with this graph and end with it.
 */
#include <stdlib.h>

#include "graph.h"

enum { GRAPHS_MOST = 1024, EMPTY_TURN_NS = 100000 };

static aclError condition_new(graph_t *graph, uint32_t initial, bool assign, aclmdlRICondHandle *handle) {
    void *memory = NULL;
    void *block = NULL;
    condition_t *condition = calloc(1, sizeof *condition);
    condition_handle_t *made = condition != NULL ? object_new(KIND_CONDITION) : NULL;
    aclError rc = made != NULL ? memory_take(graph->context->device, &memory, sizeof *condition->address)
                               : error_set(RT_MEMORY_ALLOCATION, "handle");
    if (rc != ACL_SUCCESS) {
        if (made != NULL) {
            object_kill(&made->object);
        }
        free(condition);
        return rc;
    }
    *condition = (condition_t){.next = graph->conditions,
                               .object = &made->object,
                               .address = memory,
                               .initial = initial,
                               .assign = assign};
    graph->conditions = condition;
    made->graph = graph;
    made->condition = condition;
    memory_pin(memory, sizeof *condition->address, &block);
    *condition->address = 0;
    memory_unpin(block);
    *handle = made;
    return ACL_SUCCESS;
}

/* Only a captured graph can have a condition. */
static aclError check_captured(const graph_t *graph) {
    if (graph->built) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "modelRI: it was built by hand");
    }
    return graph->state == GRAPH_CAPTURING ? ACL_SUCCESS
                                           : error_set(RT_PARAM_INVALID, "modelRI: it is not being captured");
}

aclError do_aclmdlRICondHandleCreate(aclmdlRI modelRI, uint32_t defaultLaunchValue, aclmdlRICondHandleFlag flag,
                                     aclmdlRICondHandle *handle) {
    graph_t *graph = NULL;
    REFUSE_NULL(modelRI);
    REFUSE_NULL(handle);
    if ((unsigned int)flag > ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT) {
        return error_set(RT_PARAM_INVALID, "flag");
    }
    SIM_GUARD();
    aclError rc = graph_find_own(modelRI, &graph);
    rc = rc == ACL_SUCCESS ? check_captured(graph) : rc;
    bool assign = flag == ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT;
    return rc == ACL_SUCCESS ? condition_new(graph, defaultLaunchValue, assign, handle) : rc;
}

static aclError find(aclmdlRICondHandle handle, condition_handle_t **found) {
    *found = object_find(KIND_CONDITION, handle);
    return *found != NULL ? ACL_SUCCESS : usage_bad_handle(KIND_CONDITION, handle);
}

aclError do_aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle handle, uint64_t **ptr) {
    condition_handle_t *found = NULL;
    REFUSE_NULL(handle);
    REFUSE_NULL(ptr);
    SIM_GUARD();
    aclError rc = find(handle, &found);
    if (rc == ACL_SUCCESS) {
        *ptr = found->condition->address;
    }
    return rc;
}

typedef struct {
    work_t work;
    const condition_t *condition;
    graph_t *running;
} choose_t;

/* Returns the graph that the condition chooses, or NULL. A condition of type IF chooses the first graph if the
 * value is not zero, otherwise the second. Type WHILE chooses the first graph if the value is not zero. Type
 * SWITCH chooses the graph whose number is the value. */
static graph_t *chosen(const condition_t *condition) {
    uint64_t value = *condition->address;
    uint64_t index = value;
    if (condition->type == ACL_MODEL_RI_COND_TYPE_IF) {
        index = value != 0 ? 0 : 1;
    } else if (condition->type == ACL_MODEL_RI_COND_TYPE_WHILE) {
        index = value != 0 ? 0 : condition->count;
    }
    return index < condition->count ? condition->graphs[index] : NULL;
}

/* The first step clears `running`, because a dropped execution may have left it set. */
static bool choose_step(stream_t *stream, task_t *task) {
    choose_t *choose = (choose_t *)task->work;
    const condition_t *condition = choose->condition;
    aclError code = 0;
    if (!task->started) {
        task->started = true;
        choose->running = NULL;
    }
    while (code == 0) {
        bool begins = choose->running == NULL;
        if (memory_kind(condition->address) != MEMORY_DEVICE) {
            code = RT_TASK_ERROR;
            break;
        }
        choose->running = begins ? chosen(condition) : choose->running;
        if (choose->running == NULL) {
            return true;
        }
        if (!graph_execute(choose->running, stream, NULL, &code)) {
            return false;
        }
        choose->running = NULL;
        if (condition->type != ACL_MODEL_RI_COND_TYPE_WHILE) {
            break;
        }
        /* The body ended at once, so sim.lock is released before the next iteration. */
        if (begins && code == 0) {
            stream_park_polling(stream, NULL, EMPTY_TURN_NS);
            return false;
        }
    }
    task->code = code;
    return true;
}

static const work_ops_t choose_ops = {.step = choose_step};

static void free_graphs(condition_t *condition) {
    while (condition->count > 0) {
        graph_free(condition->graphs[--condition->count]);
    }
    free(condition->graphs);
    condition->graphs = NULL;
}

void conditions_free(graph_t *graph) {
    for (condition_t *condition = graph->conditions; condition != NULL; condition = graph->conditions) {
        graph->conditions = condition->next;
        free_graphs(condition);
        memory_give(condition->address);
        object_kill(condition->object);
        free(condition);
    }
}

static aclError make_graphs(graph_t *outer, condition_t *condition, uint32_t count) {
    condition->graphs = calloc(count, sizeof *condition->graphs);
    graph_t *graph = NULL;
    for (uint32_t i = 0; condition->graphs != NULL && i < count; i++) {
        graph = graph_new(outer->context);
        if (graph == NULL) {
            break;
        }
        graph->outer = outer;
        condition->graphs[condition->count++] = graph;
    }
    if (graph == NULL) {
        free_graphs(condition);
        return error_set(RT_MEMORY_ALLOCATION, "params");
    }
    return ACL_SUCCESS;
}

static aclError add(const aclmdlRICondTaskParams *params, condition_t *condition, stream_t *stream) {
    choose_t *choose = work_new(&choose_ops, sizeof *choose);
    if (choose == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "params");
    }
    choose->condition = condition;
    task_t task = {.kind = TASK_STEP, .work = &choose->work};
    aclError rc = make_graphs(stream->lane->graph, condition, params->size);
    if (rc != ACL_SUCCESS) {
        work_release(&choose->work);
        return rc;
    }
    rc = stream_enqueue(stream, &task);
    if (rc != ACL_SUCCESS) {
        free_graphs(condition);
        return rc;
    }
    condition->type = params->type;
    for (uint32_t i = 0; i < condition->count; i++) {
        params->modelRIArray[i] = condition->graphs[i];
    }
    return ACL_SUCCESS;
}

static aclError check(const aclmdlRICondTaskParams *params, uint32_t flags) {
    if (params->handle == NULL || params->modelRIArray == NULL) {
        return error_set(RT_PARAM_INVALID, params->handle == NULL ? "params: handle" : "params: modelRIArray");
    }
    bool known = (unsigned int)params->type <= ACL_MODEL_RI_COND_TYPE_SWITCH && flags == 0;
    uint32_t most = params->type == ACL_MODEL_RI_COND_TYPE_IF      ? 2
                    : params->type == ACL_MODEL_RI_COND_TYPE_WHILE ? 1
                                                                   : GRAPHS_MOST;
    bool fits = known && params->size > 0 && params->size <= most;
    if (!fits) {
        return error_set(RT_PARAM_INVALID, known ? "params: size" : "params: type or flags");
    }
    bool there = place_is_there(params->modelRIArray, params->size * sizeof *params->modelRIArray);
    return there ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "params: modelRIArray");
}

/* Finds the condition and the stream of a new task. Each condition has at most one task, and the stream of the
 * task must be captured into the condition's graph. */
static aclError find_place(aclmdlRICondHandle handle, aclrtStream stream, condition_handle_t **condition,
                           stream_t **found) {
    aclError rc = find(handle, condition);
    if (rc == ACL_SUCCESS && (*condition)->condition->count > 0) {
        rc = error_set(RT_PARAM_INVALID, "params: the handle belongs to another task");
    }
    rc = rc == ACL_SUCCESS ? stream_need_own(stream, found) : rc;
    if (rc == ACL_SUCCESS && !capture_has(*found)) {
        rc = error_set(RT_STREAM_NOT_CAPTURED, "stream");
    } else if (rc == ACL_SUCCESS && (*found)->lane->graph != (*condition)->graph) {
        rc = error_set(RT_PARAM_INVALID, "params: the handle belongs to another model");
    }
    return rc;
}

aclError do_aclmdlRIAddCondTask(aclmdlRICondTaskParams params, aclrtStream stream, uint32_t flags) {
    condition_handle_t *handle = NULL;
    stream_t *found = NULL;
    REFUSE_NULL(stream);
    aclError rc = check(&params, flags);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    SIM_GUARD();
    rc = find_place(params.handle, stream, &handle, &found);
    return rc == ACL_SUCCESS ? add(&params, handle->condition, found) : rc;
}
