/*
 * Externals: tasks of a graph that record an event, or wait for an event, with effect outside of the graph. The
 * call that executes the graph decides to which records the externals refer. A wait in the graph waits for the
 * record that is the newest at this call. A record in the graph is the newest record of its event from this
 * call on. So a later wait for the event waits for this execution.
 */
#include <stdlib.h>

#include "graph.h"

typedef struct {
    work_t work;
    event_t *event;
} external_t;

typedef struct {
    const node_t *node;
    event_t *event;
    bool records;
    record_t *record; /* for waits: NULL if there is nothing to wait for */
} meaning_t;

struct externals {
    uint32_t count;
    uint32_t room;
    meaning_t *of;
};

static graph_t *root_of(graph_t *graph) {
    while (graph->outer != NULL) {
        graph = graph->outer;
    }
    return graph;
}

static record_t *meant(const stream_t *runner, const task_t *task, bool *known) {
    const externals_t *externals = root_of(runner->runs->graph)->externals;
    const event_t *event = ((external_t *)task->work)->event;
    for (uint32_t i = 0; externals != NULL && i < externals->count; i++) {
        /* the node's event may have been replaced since the call that executes the graph */
        if (externals->of[i].node == task->node && externals->of[i].event == event) {
            *known = true;
            return externals->of[i].record;
        }
    }
    *known = false;
    return NULL;
}

static void external_free(work_t *work) {
    object_release(&((external_t *)work)->event->object);
}

static void record_now(event_t *event, stream_t *stream) {
    record_t *record = event->object.state == OBJECT_LIVE ? record_new(stream->device) : NULL;
    if (record != NULL) {
        event_set_record(event, record);
        record_end(record, true, 0);
        record_release(record);
    }
}

static bool record_step(stream_t *stream, task_t *task) {
    bool known = false;
    record_t *record = meant(stream, task, &known);
    if (known) {
        record_end(record, true, 0);
    } else {
        record_now(((external_t *)task->work)->event, stream);
    }
    return true;
}

static bool wait_step(stream_t *stream, task_t *task) {
    const event_t *event = ((external_t *)task->work)->event;
    bool known = false;
    record_t *record = meant(stream, task, &known);
    if (!known && event->object.state == OBJECT_LIVE) {
        record = event->record;
    }
    if (record == NULL || record->signalled) {
        return true;
    }
    stream_park(stream, PARK_WORK, &record->streams, 0);
    return false;
}

static const work_ops_t record_ops = {.step = record_step, .free = external_free};
static const work_ops_t wait_ops = {.step = wait_step, .free = external_free};

/* An event that was recorded without the external flag can no longer be used with the flag. */
aclError external_new(event_t *event, graph_t *graph, bool records, work_t **work) {
    if (!event->external && event->record != NULL) {
        return error_set(RT_PARAM_INVALID, "event: it was recorded before without the external flag");
    }
    external_t *external = work_new(records ? &record_ops : &wait_ops, sizeof *external);
    if (external == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "event");
    }
    external->event = event;
    object_retain(&event->object);
    event->external = true;
    root_of(graph)->has_externals = true;
    *work = &external->work;
    return ACL_SUCCESS;
}

static bool grow(externals_t *externals) {
    uint32_t room = externals->room != 0 ? externals->room * 2 : 8;
    meaning_t *of = realloc(externals->of, room * sizeof *of);
    if (of != NULL) {
        externals->of = of;
        externals->room = room;
    }
    return of != NULL;
}

/* Takes ownership of the record, unless it returns false. */
static bool add(externals_t *externals, const node_t *node, record_t *record) {
    if (externals->count == externals->room && !grow(externals)) {
        return false;
    }
    const work_t *work = node->task.work;
    event_t *event = ((const external_t *)work)->event;
    object_retain(&event->object);
    externals->of[externals->count++] = (meaning_t){node, event, work->ops == &record_ops, record};
    return true;
}

static bool add_node(externals_t *externals, const node_t *node, stream_t *stream) {
    const work_ops_t *ops = node->task.kind == TASK_STEP ? node->task.work->ops : NULL;
    if (ops != &record_ops && ops != &wait_ops) {
        return true;
    }
    record_t *record = ((external_t *)node->task.work)->event->record;
    if (ops == &record_ops) {
        record = record_new(stream->device);
        if (record == NULL) {
            return false;
        }
        record->stream = stream;
    } else if (record != NULL) {
        record_retain(record);
    }
    if (!add(externals, node, record)) {
        if (record != NULL) {
            record_release(record);
        }
        return false;
    }
    return true;
}

/* Adds the externals of the graph, and of the graphs from which its conditions choose. */
static bool collect(externals_t *externals, const graph_t *graph, stream_t *stream) {
    bool good = true;
    for (const lane_t *lane = graph->lanes; lane != NULL; lane = lane->next) {
        for (uint32_t i = 0; good && i < lane->count; i++) {
            good = add_node(externals, lane->nodes[i], stream);
        }
    }
    for (const condition_t *condition = graph->conditions; condition != NULL; condition = condition->next) {
        for (uint32_t i = 0; good && i < condition->count; i++) {
            good = collect(externals, condition->graphs[i], stream);
        }
    }
    return good;
}

aclError externals_new(const graph_t *graph, stream_t *stream, externals_t **externals) {
    if (!graph->has_externals) {
        return ACL_SUCCESS;
    }
    *externals = calloc(1, sizeof **externals);
    if (*externals == NULL || !collect(*externals, graph, stream)) {
        externals_free(*externals);
        *externals = NULL;
        return error_set(RT_MEMORY_ALLOCATION, "modelRI");
    }
    for (uint32_t i = 0; i < (*externals)->count; i++) {
        const meaning_t *meaning = &(*externals)->of[i];
        if (meaning->records && meaning->event->object.state == OBJECT_LIVE) {
            event_set_record(meaning->event, meaning->record);
        }
    }
    return ACL_SUCCESS;
}

/* Ends the records of the externals. After a successful execution, events that the execution did not reach also
 * count as recorded.
 */
void externals_end(const externals_t *externals, bool done) {
    for (uint32_t i = 0; externals != NULL && i < externals->count; i++) {
        if (externals->of[i].records) {
            record_end(externals->of[i].record, done, 0);
        }
    }
}

void externals_free(externals_t *externals) {
    externals_end(externals, false);
    for (uint32_t i = 0; externals != NULL && i < externals->count; i++) {
        if (externals->of[i].record != NULL) {
            record_release(externals->of[i].record);
        }
        object_release(&externals->of[i].event->object);
    }
    if (externals != NULL) {
        free(externals->of);
    }
    free(externals);
}
