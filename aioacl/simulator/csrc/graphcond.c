/* Conditions: values in device memory by which a task of a graph chooses the graphs that it executes. */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

enum { GRAPHS_MOST = 64, CONDITION_BYTES = 64, EMPTY_TURN_NS = 100000 };

static aclError condition_new(graph_t *graph, uint64_t *address, uint32_t initial, bool assign,
                              aclmdlRICondHandle *handle) {
    condition_t *condition = calloc(1, sizeof *condition);
    condition_handle_t *made = condition != NULL ? object_new(KIND_CONDITION) : NULL;
    if (made == NULL) {
        free(condition);
        return error_set(RT_MEMORY_ALLOCATION, "handle");
    }
    *condition = (condition_t){graph->conditions, &made->object, address, initial, assign};
    graph->conditions = condition;
    made->graph = graph;
    made->condition = condition;
    *address = initial;
    *handle = made;
    return ACL_SUCCESS;
}

/* Memory is taken before, and given back if there is no graph for it: both need sim.lock for themselves. */
aclError do_aclmdlRICondHandleCreate(aclmdlRI modelRI, uint32_t defaultLaunchValue, aclmdlRICondHandleFlag flag,
                                     aclmdlRICondHandle *handle) {
    void *memory = NULL;
    graph_t *graph = NULL;
    if (modelRI == NULL || handle == NULL) {
        return error_quiet(ACL_INVALID_PARAM, modelRI == NULL ? "modelRI" : "handle");
    }
    if ((unsigned int)flag > ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT) {
        return error_set(RT_PARAM_INVALID, "flag");
    }
    aclError rc = do_aclrtMalloc(&memory, CONDITION_BYTES, ACL_MEM_MALLOC_HUGE_FIRST);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    sim_lock();
    rc = graph_find_own(modelRI, &graph);
    bool assign = flag == ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT;
    rc = rc == ACL_SUCCESS ? condition_new(graph, memory, defaultLaunchValue, assign, handle) : rc;
    sim_unlock();
    if (rc != ACL_SUCCESS) {
        do_aclrtFree(memory);
    }
    return rc;
}

static aclError find(aclmdlRICondHandle handle, condition_handle_t **found) {
    *found = object_find(KIND_CONDITION, handle);
    return *found != NULL ? ACL_SUCCESS : referee_bad_handle(KIND_CONDITION, handle);
}

aclError do_aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle handle, uint64_t **ptr) {
    condition_handle_t *found = NULL;
    if (handle == NULL || ptr == NULL) {
        return error_quiet(ACL_INVALID_PARAM, handle == NULL ? "handle" : "ptr");
    }
    sim_lock();
    aclError rc = find(handle, &found);
    if (rc == ACL_SUCCESS) {
        *ptr = found->condition->address;
    }
    sim_unlock();
    return rc;
}

/* --- the task
 * ------------------------------------------------------------------------------------------------- */
typedef struct {
    work_t work;
    const uint64_t *address;
    aclmdlRICondTaskType type;
    graph_t *running;
    uint32_t count;
    graph_t *graphs[GRAPHS_MOST];
} choose_t;

static void choose_free(work_t *work) {
    choose_t *choose = (choose_t *)work;
    for (uint32_t i = 0; i < choose->count; i++) {
        choose->graphs[i]->uses--;
        object_release(&choose->graphs[i]->object);
    }
}

/* If: the first when it is not zero, else the second. While: the first. Switch: by number. */
static graph_t *chosen(const choose_t *choose) {
    uint64_t value = *choose->address;
    uint64_t index = value;
    if (choose->type == ACL_MODEL_RI_COND_TYPE_IF) {
        index = value != 0 ? 0 : 1;
    } else if (choose->type == ACL_MODEL_RI_COND_TYPE_WHILE) {
        index = value != 0 ? 0 : choose->count;
    }
    return index < choose->count ? choose->graphs[index] : NULL;
}

static bool usable(const graph_t *graph) {
    return graph->object.state == OBJECT_LIVE && graph->state == GRAPH_READY;
}

/* Begins with nothing running; a dropped execution may have left something behind. */
static bool choose_step(stream_t *stream, task_t *task) {
    choose_t *choose = (choose_t *)task->work;
    aclError code = 0;
    if (!task->started) {
        task->started = true;
        choose->running = NULL;
    }
    while (code == 0) {
        bool begins = choose->running == NULL;
        bool there = memory_kind(choose->address) == MEMORY_DEVICE;
        graph_t *graph = choose->running;
        if (graph == NULL && there) {
            graph = chosen(choose);
        }
        if (!there || (graph != NULL && !usable(graph))) {
            code = RT_TASK_ERROR;
            break;
        }
        choose->running = graph;
        if (graph == NULL) {
            return true;
        }
        if (!graph_execute(graph, stream, &code)) {
            return false;
        }
        choose->running = NULL;
        if (choose->type != ACL_MODEL_RI_COND_TYPE_WHILE) {
            break;
        }
        if (begins && code == 0) { /* over as soon as begun: others get sim.lock before the next turn */
            stream_park_polling(stream, NULL, EMPTY_TURN_NS);
            return false;
        }
    }
    task->code = code;
    return true;
}

static const work_ops_t choose_ops = {.step = choose_step, .free = choose_free};

static aclError fill(choose_t *choose, const aclmdlRICondTaskParams *params, const graph_t *outer) {
    for (uint32_t i = 0; i < params->size; i++) {
        graph_t *graph = NULL;
        aclError rc = graph_find_own(params->modelRIArray[i], &graph);
        if (rc != ACL_SUCCESS || graph == outer) {
            return rc != ACL_SUCCESS ? rc : error_set(RT_PARAM_INVALID, "params: the model itself");
        }
        graph->uses++;
        object_retain(&graph->object);
        choose->graphs[choose->count++] = graph;
    }
    return ACL_SUCCESS;
}

static aclError add(const aclmdlRICondTaskParams *params, stream_t *stream) {
    condition_handle_t *handle = NULL;
    aclError rc = find(params->handle, &handle);
    choose_t *choose = rc == ACL_SUCCESS ? work_new(&choose_ops, sizeof *choose) : NULL;
    if (choose == NULL) {
        return rc != ACL_SUCCESS ? rc : error_set(RT_MEMORY_ALLOCATION, "params");
    }
    choose->address = handle->condition->address;
    choose->type = params->type;
    rc = fill(choose, params, stream->lane->graph);
    if (rc != ACL_SUCCESS) {
        work_release(&choose->work);
        return rc;
    }
    task_t task = {.kind = TASK_STEP, .work = &choose->work};
    return stream_enqueue(stream, &task);
}

static aclError check(const aclmdlRICondTaskParams *params, uint32_t flags) {
    if (params->handle == NULL || params->modelRIArray == NULL) {
        return error_quiet(ACL_INVALID_PARAM,
                           params->handle == NULL ? "params: handle" : "params: modelRIArray");
    }
    bool known = (unsigned int)params->type <= ACL_MODEL_RI_COND_TYPE_SWITCH && flags == 0;
    uint32_t most = params->type == ACL_MODEL_RI_COND_TYPE_IF      ? 2
                    : params->type == ACL_MODEL_RI_COND_TYPE_WHILE ? 1
                                                                   : GRAPHS_MOST;
    bool fits = known && params->size > 0 && params->size <= most;
    return fits ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, known ? "params: size" : "params: type, or flags");
}

aclError do_aclmdlRIAddCondTask(aclmdlRICondTaskParams params, aclrtStream stream, uint32_t flags) {
    stream_t *found = NULL;
    aclError rc = check(&params, flags);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    sim_lock();
    context_t *context = context_need();
    rc = context != NULL ? stream_find_own(context, stream, &found) : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS && found->lane == NULL) {
        rc = error_set(RT_STREAM_NOT_CAPTURED, "stream");
    }
    rc = rc == ACL_SUCCESS ? add(&params, found) : rc;
    sim_unlock();
    return rc;
}
