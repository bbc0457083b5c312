/* Executing graphs: enqueueing tasks to the runners, waiting for other executions, ends and failures. */
#include "graph.h"

enum { PART = 1024 };

static bool lane_step(stream_t *stream, task_t *task);

static const work_ops_t lane_ops = {.step = lane_step};
/* Never freed, because each user releases only its own reference, and the first reference stays. */
static work_t lane_work = {.ops = &lane_ops, .refs = 1};

static bool has_work(const task_t *task) {
    return task->kind == TASK_WORK || task->kind == TASK_STEP;
}

const stream_t *graph_origin(const stream_t *stream) {
    return stream->runs != NULL ? stream->runs->origin : stream;
}

static void push(stream_t *runner, const task_t *task, node_t *node) {
    task_t *copy = &runner->ring[runner->enqueued % SIM_RING];
    *copy = *task;
    copy->borrowed = true;
    copy->node = node;
    copy->entries = 1;
    copy->id = runner->next_task++;
    if (copy->kind == TASK_WAIT_FLAG || copy->kind == TASK_WAIT_RECORD) {
        copy->enqueued_ns = real_ns();
    }
    if (has_work(copy)) {
        work_retain(copy->work); /* the node may get another work before the copy runs */
    }
    runner->enqueued++;
    runner->entries++;
}

/* Enqueues the next part of the lane, and then the task that will enqueue the part after it. */
static void feed(lane_t *lane) {
    const task_t look = {.kind = TASK_STEP, .work = &lane_work};
    for (int i = 0; i < PART && lane->fed < lane->count; i++) {
        node_t *node = lane->nodes[lane->fed++];
        if (!node->disabled) {
            push(lane->runner, &node->task, node);
        }
    }
    push(lane->runner, &look, NULL);
}

static void finish(graph_t *graph) {
    stream_t *stream = graph->executor;
    graph->over = true;
    if (stream != NULL && stream->park != PARK_NONE) {
        stream_unpark(stream);
        stream_kick(stream);
    }
}

static void lane_end(lane_t *lane) {
    lane->active = false;
    if (--lane->graph->active == 0) {
        finish(lane->graph);
    }
}

static bool lane_step(stream_t *stream, task_t *task) {
    lane_t *lane = stream->runs;
    (void)task;
    if (lane->fed < lane->count) {
        feed(lane);
    } else {
        lane_end(lane);
    }
    return true;
}

void lane_start(lane_t *lane) {
    if (!lane->active) {
        lane->active = true;
        lane->graph->active++;
        lane->fed = 0;
        feed(lane);
        stream_kick(lane->runner);
    }
}

/* Drops all tasks of the runner after its head task. */
static void forget_rest(stream_t *runner) {
    while (runner->enqueued > runner->ended + 1) {
        task_t *task = &runner->ring[--runner->enqueued % SIM_RING];
        runner->entries -= task->entries;
        task_release(task, 0);
    }
}

void lane_jump(lane_t *lane, uint32_t index) {
    forget_rest(lane->runner);
    lane->fed = index;
    feed(lane);
}

/* Skips everything after the head task. */
void lane_cut(lane_t *lane) {
    lane_jump(lane, lane->count);
}

void task_drop_borrowed(task_t *task, aclError rc) {
    if (task->kind == TASK_RECORD) {
        record_end(task->event.record, false, rc);
    } else if (has_work(task)) {
        work_release(task->work);
    }
}

void task_borrow_again(task_t *task) {
    task_t fresh = task->node->task;
    if (has_work(&fresh)) {
        work_retain(fresh.work);
        work_release(task->work);
    }
    fresh.borrowed = true;
    fresh.node = task->node;
    fresh.entries = task->entries;
    fresh.started = task->started;
    fresh.moved = task->moved;
    fresh.late_copy = task->late_copy;
    fresh.code = task->code;
    fresh.id = task->id;
    fresh.enqueued_ns = task->enqueued_ns;
    fresh.due_ns = task->due_ns;
    fresh.late_ns = task->late_ns;
    *task = fresh;
}

/* If the runner waits in the old task, makes the runner check the new task. */
static void look_again(stream_t *runner, const node_t *node) {
    bool waits = runner->park == PARK_WORK || runner->park == PARK_FLAG || runner->park == PARK_NOTIFY;
    if (waits && runner->ended < runner->enqueued && stream_head(runner)->node == node) {
        stream_unpark(runner);
        stream_kick(runner);
    }
}

void node_replace(node_t *node, task_t *task) {
    task_t old = node->task;
    node->task = *task;
    if (old.kind == TASK_RECORD) {
        node->task.event.record = old.event.record; /* executions reset this record */
        old.event.record = task->event.record;
    } else if (old.kind == TASK_WAIT_FLAG) {
        node->task.event.event->waits--; /* the wait happens when the graph runs */
        old.event.event->waits++;        /* the release below subtracts 1 again */
    }
    task_release(&old, 0);
    look_again(node->lane->runner, node);
}

static void begin_records(const lane_t *lane) {
    for (uint32_t i = 0; i < lane->count; i++) {
        const task_t *task = &lane->nodes[i]->task;
        if (task->kind == TASK_RECORD) {
            task->event.record->ended = false;
            task->event.record->signalled = false;
        }
    }
}

/* Sets the conditions to their initial values. Called once per execution: a graph that a condition chooses
 * again does not reset its own conditions. */
static void begin_conditions(const graph_t *graph) {
    for (const condition_t *condition = graph->conditions; condition != NULL; condition = condition->next) {
        if (condition->assign && memory_kind(condition->address) == MEMORY_DEVICE) {
            *condition->address = condition->initial;
        }
        for (uint32_t i = 0; i < condition->count; i++) {
            begin_conditions(condition->graphs[i]);
        }
    }
}

static void start(graph_t *graph, stream_t *stream) {
    graph->executor = stream;
    graph->over = false;
    graph->code = 0;
    if (graph->outer == NULL) {
        begin_conditions(graph);
    }
    for (const lane_t *lane = graph->lanes; lane != NULL; lane = lane->next) {
        begin_records(lane);
    }
    graph->active = 1; /* prevents the end until all lanes have started */
    for (lane_t *lane = graph->lanes; lane != NULL; lane = lane->next) {
        if (!lane->idle_start) {
            lane_start(lane);
        }
    }
    graph->over = --graph->active == 0;
}

static void end_turn(graph_t *graph, bool done) {
    graph->executor = NULL;
    externals_end(graph->externals, done);
    graph->externals = NULL;
    park_kick_all(&graph->turn);
}

bool graph_execute(graph_t *graph, stream_t *stream, const externals_t *externals, aclError *code) {
    if (graph->executor != NULL && graph->executor != stream) {
        stream_park(stream, PARK_WORK, &graph->turn, 0);
        return false;
    }
    if (graph->executor == NULL) {
        graph->externals = externals;
        start(graph, stream);
    }
    if (!graph->over) {
        stream_park(stream, PARK_WORK, NULL, 0);
        return false;
    }
    *code = graph->code;
    end_turn(graph, graph->code == 0);
    return true;
}

typedef struct {
    const stream_t *stream;
    graph_t *graph;
} executed_t;

static void match_executor(void *object, void *arg) {
    graph_t *graph = object;
    executed_t *executed = arg;
    executed->graph = graph->executor == executed->stream ? graph : executed->graph;
}

/* Returns the graph that the stream is executing, or NULL. */
static graph_t *executed_by(stream_t *stream) {
    executed_t executed = {.stream = stream};
    if (stream->ended < stream->enqueued && stream_head(stream)->kind == TASK_STEP) {
        object_each(KIND_GRAPH, match_executor, &executed);
    }
    return executed.graph;
}

/* Whether a runner of the graph is at work. Runners of the graphs that its conditions have chosen count too. */
static bool at_work(const graph_t *graph) {
    bool found = false;
    for (const lane_t *lane = graph->lanes; lane != NULL && !found; lane = lane->next) {
        const graph_t *inner = executed_by(lane->runner);
        found = lane->runner->running || (inner != NULL && at_work(inner));
    }
    return found;
}

/* Called while no runner works, so that sim.lock is held throughout. */
static void drop_lanes(graph_t *graph) {
    for (lane_t *lane = graph->lanes; lane != NULL; lane = lane->next) {
        stream_drop(lane->runner, 0, 0);
        lane->active = false;
    }
    graph->active = 0;
}

static bool is_executed(const graph_t *graph, const stream_t *executor) {
    return graph->object.state == OBJECT_LIVE && graph->executor == executor;
}

/* Waits until no runner works, then ends the execution with the code. During the wait, the execution and the
 * graph may end by themselves. */
static void end_with(graph_t *graph, aclError code) {
    const stream_t *executor = graph->executor;
    device_t *device = graph->context->device;
    object_retain(&graph->object);
    graph->code = code; /* the next execution clears it */
    while (is_executed(graph, executor) && graph->code == code && at_work(graph)) {
        device_settle(device);
    }
    if (is_executed(graph, executor) && graph->code == code) {
        drop_lanes(graph);
        finish(graph);
    }
    object_release(&graph->object);
}

stream_t *graph_client(stream_t *stream) {
    while (stream->runs != NULL && stream->runs->graph->executor != NULL) {
        stream = stream->runs->graph->executor;
    }
    return stream;
}

void graph_fault(stream_t *runner, aclError code) {
    end_with(runner->runs->graph, code);
}

void graph_abort(graph_t *graph) {
    if (graph->executor != NULL) {
        stream_note_failure(graph_client(graph->executor), RT_STREAM_ABORT, "");
    }
    end_with(graph, RT_STREAM_ABORT);
}

bool graph_leave(stream_t *stream) {
    graph_t *graph = executed_by(stream);
    if (graph != NULL && at_work(graph)) {
        return false;
    }
    if (graph != NULL) {
        drop_lanes(graph);
        end_turn(graph, false);
    }
    return true;
}

bool graph_moving(stream_t *stream) {
    const graph_t *graph = executed_by(stream);
    bool moving = false;
    for (const lane_t *lane = graph != NULL ? graph->lanes : NULL; lane != NULL; lane = lane->next) {
        const stream_t *runner = lane->runner;
        moving = moving || runner->running || runner->ready || runner->park == PARK_DUE;
    }
    return moving;
}

typedef struct {
    work_t work;
    graph_t *graph;
    externals_t *externals; /* the externals of the next execution */
} execute_t;

/* Decides to which records the externals refer, if the task is in a graph and its stream has just reached it.
 * For any other task, the call that enqueued it has already decided. */
static aclError decide(execute_t *execute, stream_t *stream, task_t *task) {
    if (!task->borrowed || task->started) {
        return ACL_SUCCESS;
    }
    task->started = true;
    externals_free(execute->externals);
    execute->externals = NULL;
    return externals_new(execute->graph, stream, &execute->externals);
}

static bool execute_step(stream_t *stream, task_t *task) {
    execute_t *execute = (execute_t *)task->work;
    graph_t *graph = execute->graph;
    aclError code = graph->object.state != OBJECT_LIVE ? RT_INVALID_HANDLE : decide(execute, stream, task);
    if (code != 0) {
        task->code = code;
        return true;
    }
    if (!graph_execute(graph, stream, execute->externals, &code)) {
        return false;
    }
    externals_free(execute->externals);
    execute->externals = NULL;
    task->code = code;
    task->handled = code != 0;
    return true;
}

static void execute_free(work_t *work) {
    execute_t *execute = (execute_t *)work;
    externals_free(execute->externals);
    if (--execute->graph->uses == 0) {
        wait_finish_all(&execute->graph->unused, 0);
    }
    object_release(&execute->graph->object);
}

static const work_ops_t execute_ops = {.step = execute_step, .free = execute_free, .reports = true};

work_t *graph_work_new(graph_t *graph, externals_t *externals) {
    execute_t *execute = work_new(&execute_ops, sizeof *execute);
    if (execute == NULL) {
        externals_free(externals);
    } else {
        execute->graph = graph;
        execute->externals = externals;
        graph->uses++;
        object_retain(&graph->object);
    }
    return (work_t *)execute;
}
