/* What the executor does with the tasks of events and notifies. */
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
        return task->event.record->signalled ||
               task_wait_on(stream, task, PARK_RECORD, &task->event.record->streams);
    default:
        return event->flag || task_wait_on(stream, task, PARK_FLAG, &event->streams);
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
