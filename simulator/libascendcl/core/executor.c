/*
 * One thread per device runs the tasks of all its streams.
 *
 * Most tasks begin when the executor reaches them. That is later than a card would begin them, by a time that
 * depends on the host's threads. So executions of models, and copies that a rule delays, begin when the task
 * before them was due to end, if that task took a time too. An execution on a stream without work begins when
 * it is enqueued. Otherwise the delays of all tasks of a queue would add up.
 */
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "models.h"
#include "sim.h"
#include "work.h"

enum { BATCH = 64, TURN = 256, SLACK_NS = 1 };

typedef struct {
    task_t *task;
    void *to;
    void *from;
} step_t;

static bool may_run(const stream_t *stream) {
    bool well = stream->device->health.fault_state == HEALTH_WELL;
    bool free = !stream->held && stream->leaving == 0 && stream->park == PARK_NONE;
    return well && free && stream->ended < stream->enqueued;
}

static int64_t latency_of(const task_t *task) {
    return task->late_ns + (task_moves(task) ? sim.settings.copy_latency_ns : 0);
}

static void note_free(stream_t *stream) {
    if (stream->free_ns == 0 && model_is_run(stream_head(stream))) {
        stream->free_ns = now_ns();
    }
}

int64_t stream_free_ns(const stream_t *stream) {
    return stream->free_ns != 0 ? stream->free_ns : now_ns();
}

void stream_kick(stream_t *stream) {
    device_t *device = stream->device;
    if (stream->ready || stream->running) {
        return;
    }
    if (!may_run(stream)) {
        stream->free_ns = 0;
        return;
    }
    note_free(stream);
    stream->ready = true;
    stream->ready_next = NULL;
    if (device->ready_last != NULL) {
        device->ready_last->ready_next = stream;
    } else {
        device->ready_first = stream;
    }
    device->ready_last = stream;
    if (device->executor_idle) {
        device->executor_idle = false;
        pthread_cond_signal(&device->work);
    }
}

void stream_unready(stream_t *stream) {
    device_t *device = stream->device;
    stream_t *before = NULL;
    if (!stream->ready) {
        return;
    }
    for (stream_t *other = device->ready_first; other != stream; other = other->ready_next) {
        before = other;
    }
    if (before != NULL) {
        before->ready_next = stream->ready_next;
    } else {
        device->ready_first = stream->ready_next;
    }
    if (device->ready_last == stream) {
        device->ready_last = before;
    }
    stream->ready = false;
    stream->free_ns = 0;
}

static stream_t *ready_pop(device_t *device) {
    stream_t *stream = device->ready_first;
    if (stream != NULL) {
        device->ready_first = stream->ready_next;
        if (device->ready_first == NULL) {
            device->ready_last = NULL;
        }
        stream->ready = false;
    }
    return stream;
}

/* Whether the task may end. */
static bool is_due(const stream_t *stream, task_t *task) {
    if (latency_of(task) == 0) {
        return true;
    }
    if (!task->started) {
        task->started = true;
        task->due_ns = stream_free_ns(stream) + latency_of(task);
    }
    return task->due_ns <= now_ns();
}

/* Whether the task moves its bytes when the stream reaches it, and ends later. */
static bool ends_late(const task_t *task) {
    return task->late_ns != 0 && !task->late_copy && !task->moved;
}

static bool prepare(task_t *task, step_t *step) {
    step->task = task;
    step->to = NULL;
    step->from = NULL;
    if (task->code != 0 || task->moved) {
        return task->moved;
    }
    thread_t *thread = thread_self();
    thread->on_behalf = task->tid;
    bool there = move_prepare(task, &step->to, &step->from);
    thread->on_behalf = 0;
    task->code = there ? 0 : RT_TASK_ERROR;
    return there;
}

static void perform(const task_t *task) {
    if (task->code != 0 || task->moved) {
        return;
    }
    move_perform(task);
}

/* Collects the head tasks that can run together. The last of them may fail. */
static uint32_t gather(stream_t *stream, step_t *steps) {
    uint32_t count = 0;
    while (count < BATCH && stream->ended + count < stream->enqueued) {
        task_t *task = &stream->ring[(stream->ended + count) % SIM_RING];
        if (task->node != NULL && !task->moved) {
            task_borrow_again(task);
        }
        bool late = latency_of(task) != 0;
        bool alone = late || task->kind == TASK_INDIRECT; /* an indirect copy must read its addresses only after
                                                             earlier tasks have ended */
        if (!task_moves(task) || (count > 0 && alone) || !(is_due(stream, task) || ends_late(task))) {
            break;
        }
        count++;
        if (!prepare(task, &steps[count - 1]) || late) {
            break;
        }
    }
    return count;
}

void stream_run_begin(stream_t *stream) {
    stream->running = true;
    sim_unlock();
}

void stream_run_end(stream_t *stream) {
    sim_lock();
    stream_left(stream);
}

void stream_left(stream_t *stream) {
    stream->running = false;
    if (stream->device->settlers > 0) {
        pthread_cond_broadcast(&sim.settled);
    }
}

void stream_compute_begin(stream_t *stream) {
    stream->computing = true;
    stream_park(stream, PARK_COMPUTE, NULL, 0);
}

/* A call that waits in stream_drop() is not a settler, so the executor does not wait for it. */
void stream_compute_end(stream_t *stream) {
    stream->computing = false;
    stream_unpark(stream);
    stream_kick(stream);
    pthread_cond_broadcast(&sim.settled);
}

static void run_outside(stream_t *stream, const step_t *steps, uint32_t count) {
    stream_run_begin(stream);
    for (uint32_t i = 0; i < count; i++) {
        perform(steps[i].task);
    }
    stream_run_end(stream);
}

static void run_data(stream_t *stream) {
    step_t steps[BATCH];
    uint32_t count = gather(stream, steps);
    if (count == 0) {
        stream_park(stream, PARK_DUE, NULL, stream_head(stream)->due_ns);
        return;
    }
    stream->device->busy_ns += count * sim.settings.copy_latency_ns;
    run_outside(stream, steps, count);
    for (uint32_t i = 0; i < count; i++) {
        memory_unpin(steps[i].to);
        memory_unpin(steps[i].from);
    }
    task_t *last = steps[count - 1].task;
    aclError code = last->code;
    if (code == 0 && ends_late(last)) {
        last->moved = true;
        return;
    }
    int64_t end_ns = latency_of(last) != 0 ? last->due_ns : 0;
    stream_end_tasks(stream, code != 0 ? count - 1 : count);
    stream->free_ns = end_ns;
    if (code != 0) {
        stream_fault(stream, code);
    }
}

/* Whether the task does its work although it fails. Tasks for which other streams may wait do their work. */
static bool ends_anyway(const task_t *task) {
    return task->kind == TASK_RECORD || task->kind == TASK_RESET_EVENT || task->kind == TASK_RECORD_NOTIFY;
}

/* False: the stream is parked. */
static bool run_control(stream_t *stream, task_t *task) {
    if (task->node != NULL) {
        task_borrow_again(task);
    }
    if (task->late_ns != 0 && !is_due(stream, task)) {
        stream_park(stream, PARK_DUE, NULL, task->due_ns);
        return false;
    }
    if (task->late_ns != 0) {
        task->late_ns = 0;
        task->started = false; /* the time limit of a wait begins now, after the delay */
    }
    bool event_wait = task->kind == TASK_WAIT_RECORD || task->kind == TASK_WAIT_FLAG;
    if (task->code != 0 && !ends_anyway(task) && !event_wait) {
        return true;
    }
    switch (task->kind) {
    case TASK_POOL_TAKE:
    case TASK_POOL_GIVE:
        pool_run_task(task);
        return true;
    case TASK_PREFETCH:
        prefetch_run_task(task);
        return true;
    case TASK_RECORD_NOTIFY:
    case TASK_WAIT_NOTIFY:
        return notify_run_task(stream, task);
    case TASK_HOST_FUNCTION:
    case TASK_CALLBACK:
        return call_run_task(stream, task);
    case TASK_WORK:
        return work_run_task(stream, task);
    case TASK_STEP:
        return task->work->ops->step(stream, task);
    default:
        return event_run_task(stream, task);
    }
}

static void run_one(stream_t *stream) {
    task_t *task = stream_head(stream);
    if (stream->trap_next != 0 && (task_moves(task) || task->kind == TASK_WORK || model_is_run(task))) {
        task->code = stream->trap_next;
        stream->trap_next = 0;
    }
    if (stream->stopped) {
        stream_end_tasks(stream, 1);
    } else if (task_moves(task)) {
        run_data(stream);
    } else if (run_control(stream, task)) {
        aclError code = task->code;
        int64_t end_ns = model_end_ns(task);
        if (code != 0) {
            stream_fault(stream, code);
        } else {
            stream_end_tasks(stream, 1);
            stream->free_ns = end_ns;
        }
    }
}

static void run_turn(stream_t *stream) {
    for (int i = 0; i < TURN && may_run(stream) && stream->device->settlers == 0; i++) {
        run_one(stream);
    }
    stream_kick(stream);
}

/* Lets threads in device_settle() run first. Otherwise such a thread would find the stream running again each
 * time it gets sim.lock. */
static void give_way(device_t *device) {
    while (device->settlers > 0) {
        pthread_cond_wait(&device->work, &sim.lock);
    }
}

typedef struct {
    int64_t due_ns;
    int64_t poll_ns; /* in real time */
} wake_t;

/* Unparks the streams whose time is over, so that they check their head task again. Returns the earliest two
 * times for which the other streams wait: a time of the simulator's clock, and a real time for streams that
 * poll. SIM_FOREVER: no stream waits for such a time. */
static wake_t wake_timed(device_t *device) {
    wake_t earliest = {SIM_FOREVER, SIM_FOREVER};
    int64_t now = device->timed != NULL ? now_ns() : 0;
    int64_t real = device->timed != NULL ? real_ns() : 0;
    stream_t *next = NULL;
    for (stream_t *stream = device->timed; stream != NULL; stream = next) {
        int64_t *first = stream->polls ? &earliest.poll_ns : &earliest.due_ns;
        next = stream->timed_next;
        if (stream->wake_ns <= (stream->polls ? real : now)) {
            stream_unpark(stream);
            stream_kick(stream);
        } else if (stream->wake_ns < *first) {
            *first = stream->wake_ns;
        }
    }
    return earliest;
}

static void idle(device_t *device, wake_t wake) {
    device->executor_idle = true;
    clock_wait_polling(&device->work, wake.due_ns, wake.poll_ns);
    device->executor_idle = false;
}

/* Yields, because a thread that enqueues will probably enqueue more. Without the yield, each single task would
 * wake this thread, and the two threads would alternate. */
static void make_room(void) {
    sim_unlock();
    sched_yield();
    sim_lock();
}

static void *executor(void *arg) {
    device_t *device = arg;
    bool fresh = false;                 /* there was work since the last make_room() */
    prctl(PR_SET_TIMERSLACK, SLACK_NS); /* by default, a sleep may end 50 us late */
    sim_lock();
    while (true) {
        wake_t wake = wake_timed(device);
        stream_t *stream = ready_pop(device);
        if (stream == NULL && fresh) {
            make_room();
            fresh = false;
            continue;
        }
        if (stream == NULL) {
            idle(device, wake);
            continue;
        }
        fresh = true;
        int64_t began_ns = now_ns();
        run_turn(stream);
        device->busy_ns += now_ns() - began_ns;
        sim_unlock(); /* lets other threads take the lock between two rounds */
        sim_lock();
        give_way(device);
    }
    return NULL;
}

bool executor_start(device_t *device) {
    char name[16];
    if (!device->executor_started) {
        snprintf(name, sizeof name, "aclsim-dev%d", device->id);
        device->executor_started = thread_start(name, executor, device);
    }
    return device->executor_started;
}
