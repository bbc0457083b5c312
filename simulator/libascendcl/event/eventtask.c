/* How the executor runs the tasks of events and notifies. */
#include "work.h"

bool task_wait_on(stream_t *stream, task_t *task, park_t park, park_list_t *list) {
    if (!task->started) {
        task->started = true;
        task->due_ns = task->limit_ns != 0 ? now_ns() + task->limit_ns : 0;
    }
    if (task->due_ns != 0 && now_ns() >= task->due_ns) {
        task->code = RT_TASK_ERROR;
        return true;
    }
    stream_park(stream, park, list, task->due_ns);
    return false;
}

/* The shortest time limit that a client can set for a wait. Clients rely on the limit in real time, so it does
 * not follow the simulator's clock. */
static const int64_t least_wait_ns = 1000000000;

static park_list_t *waited_for(const task_t *task) {
    return task->kind == TASK_WAIT_RECORD ? &task->event.record->streams : &task->event.event->streams;
}

/* False: the task may not fail yet, and the stream is parked until the earliest time of a failure. */
static bool may_fail(stream_t *stream, const task_t *task) {
    int64_t least_ns = task->enqueued_ns + least_wait_ns;
    bool late = real_ns() >= least_ns;
    if (!late) {
        stream_park_real(stream, task->kind == TASK_WAIT_RECORD ? PARK_RECORD : PARK_FLAG, waited_for(task),
                         least_ns);
    }
    return late;
}

static bool wait_for_event(stream_t *stream, task_t *task) {
    park_t park = task->kind == TASK_WAIT_RECORD ? PARK_RECORD : PARK_FLAG;
    if (!task_wait_on(stream, task, park, waited_for(task))) {
        return false;
    }
    bool fails = may_fail(stream, task);
    task->code = fails ? task->code : 0;
    return fails;
}

static void run_record(const task_t *task) {
    event_t *event = task->event.event;
    record_end(task->event.record, true, 0);
    if (event->mode == EVENT_FLAGGED) {
        event->flag = true;
        park_kick_all(&event->streams);
    }
}

bool event_run_task(stream_t *stream, task_t *task) {
    event_t *event = task->event.event;
    switch (task->kind) {
    case TASK_RECORD:
        run_record(task);
        return true;
    case TASK_RESET_EVENT:
        event->flag = false;
        return true;
    case TASK_WAIT_RECORD:
        return task->code != 0 ? may_fail(stream, task)
                               : task->event.record->signalled || wait_for_event(stream, task);
    default:
        return task->code != 0 ? may_fail(stream, task) : event->flag || wait_for_event(stream, task);
    }
}

bool notify_run_task(stream_t *stream, task_t *task) {
    notify_t *notify = task->notify;
    if (task->kind == TASK_RECORD_NOTIFY) {
        notify->flag = true;
        park_kick_all(&notify->streams);
        return true;
    }
    if (!notify->flag) {
        return task_wait_on(stream, task, PARK_NOTIFY, &notify->streams);
    }
    notify->flag = false;
    return true;
}
