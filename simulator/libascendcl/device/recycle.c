/* The recycle thread of a device, which handles failed tasks, and the functions that wake it. sim.h has the
 * theory of operation. */
#include <stdio.h>

#include "launch.h"
#include "models.h"

static const int64_t monitor_ns = 1000000000;

void recycler_wake(device_t *device) {
    device->round++;
    device->woken = device->faults;
    if (device->faulted.first != NULL) {
        pthread_cond_signal(&device->recycle);
    }
}

void recycler_keep_awake(device_t *device) {
    device->wakers++;
    recycler_wake(device);
}

void recycler_let_sleep(device_t *device) {
    device->wakers--;
}

/* While the thread is kept awake, the host sees at once that work has ended. So the work counts as ended in the
 * previous round. */
uint64_t recycler_round(const device_t *device) {
    return device->wakers > 0 ? device->round - 1 : device->round;
}

bool recycler_seen(const device_t *device, uint64_t round) {
    return round < device->round;
}

void stream_note_failure(stream_t *stream, aclError code, const char *why) {
    stream->error = code;
    snprintf(stream->why, sizeof stream->why, "%s", why);
    stream->stopped = stream->stopped || stream->stop || stream->context->stop_on_failure;
    if (stream->stopped && stream->context->failure == 0) {
        stream->context->failure = code;
    }
}

/* Whether a failure of the task calls the exception callbacks. A failure of another kind of task only sets the
 * stream's error code. */
static bool reports(const task_t *task) {
    bool work = task->kind == TASK_WORK || task->kind == TASK_STEP;
    return task_moves(task) || task->kind == TASK_WAIT_NOTIFY || (work && task->work->ops->reports);
}

/* Ends the head task, and lets the queue continue. */
static void resume(stream_t *stream, aclError code) {
    if (stream->runs != NULL) {
        graph_fault(stream, code);
    } else {
        stream_end_tasks(stream, 1);
        stream_kick(stream);
    }
}

/* Handles a failure in this order: the error code, the callbacks, the queue. */
static void handle(stream_t *stream) {
    const task_t *task = stream_head(stream);
    stream_t *client = graph_client(stream);
    aclError code = task->code;
    stream_note_failure(client, code, model_is_run(task) ? model_why(task) : launch_why(task));
    stream->running = true;
    stream_unpark(stream);
    if (reports(task)) {
        exception_deliver(stream, stream_head(client)->tid, code);
    }
    stream_left(stream);
    resume(stream, code);
}

static int64_t monitor_due(const device_t *device) {
    int64_t due_ns = SIM_FOREVER;
    for (const stream_t *stream = device->faulted.first; stream != NULL; stream = stream->parked_next) {
        due_ns = stream->monitor_ns < due_ns ? stream->monitor_ns : due_ns;
    }
    return due_ns;
}

static void rest(device_t *device) {
    int64_t due_ns = monitor_due(device);
    clock_wait(&device->recycle, due_ns);
    if (due_ns != SIM_FOREVER && now_ns() >= due_ns) {
        recycler_wake(device);
    }
}

static void *recycler(void *arg) {
    device_t *device = arg;
    sim_lock();
    thread_self()->callback_depth++;
    while (true) {
        stream_t *stream = device->faulted.first;
        aclError lost = device->lost_code;
        if (lost != 0) {
            device->lost_code = 0;
            exception_deliver_unknown(device, lost);
        } else if (stream != NULL && stream->fault_number <= device->woken) {
            handle(stream);
        } else {
            rest(device);
        }
    }
    return NULL;
}

static void start(device_t *device) {
    char name[16];
    if (!device->recycler_started) {
        snprintf(name, sizeof name, "aclsim-rec%d", device->id);
        device->recycler_started = thread_start(name, recycler, device);
    }
}

void stream_fault(stream_t *stream, aclError code) {
    device_t *device = stream->device;
    task_t *task = stream_head(stream);
    if (task->handled) {
        resume(stream, code);
        return;
    }
    start(device);
    task->code = code;
    stream->fault_number = ++device->faults;
    stream->monitor_ns = launch_of(task) != NULL ? now_ns() + monitor_ns : SIM_FOREVER;
    stream_park(stream, PARK_FAULT, &device->faulted, 0);
    if (device->wakers > 0) {
        recycler_wake(device);
    } else if (stream->monitor_ns != SIM_FOREVER) {
        pthread_cond_signal(&device->recycle);
    }
}

void recycler_device_fault(device_t *device, aclError code) {
    start(device);
    device->lost_code = code;
    pthread_cond_signal(&device->recycle);
}
