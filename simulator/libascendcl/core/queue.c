/* The ring of a stream: appending, ending and dropping tasks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"
#include "sim.h"
#include "work.h"

enum { LEAST_PATIENCE_NS = 100000, WAKE_EVERY = 64, PART_BYTES = 64 << 20 };

task_t *stream_head(stream_t *stream) {
    return &stream->ring[stream->ended % SIM_RING];
}

void task_release(task_t *task, aclError rc) {
    if (task->borrowed) {
        task_drop_borrowed(task, rc);
        return;
    }
    switch (task->kind) {
    case TASK_COPY:
        free(task->copy.owned);
        break;
    case TASK_PLANE:
        free(task->plane);
        break;
    case TASK_INDIRECT:
        free(task->indirect);
        break;
    case TASK_PREFETCH:
        free(task->prefetch);
        break;
    case TASK_POOL_TAKE:
    case TASK_POOL_GIVE:
        pool_drop_task(task);
        break;
    case TASK_RECORD:
        record_end(task->event.record, false, rc);
        record_release(task->event.record);
        object_release(&task->event.event->object);
        break;
    case TASK_WAIT_RECORD:
        record_release(task->event.record);
        task->event.event->waits--;
        object_release(&task->event.event->object);
        break;
    case TASK_WAIT_FLAG:
        task->event.event->waits--;
        object_release(&task->event.event->object);
        break;
    case TASK_RESET_EVENT:
        object_release(&task->event.event->object);
        break;
    case TASK_RECORD_NOTIFY:
    case TASK_WAIT_NOTIFY:
        object_release(&task->notify->object);
        break;
    case TASK_WORK:
    case TASK_STEP:
        work_release(task->work);
        break;
    default:
        break;
    }
}

/* The stream may end during the wait, so the call holds a reference to it. */
static aclError wait_for_room(stream_t *stream, uint32_t need) {
    aclError rc = ACL_SUCCESS;
    object_retain(&stream->object);
    while (rc == ACL_SUCCESS && stream->entries + need > SIM_QUEUE_ENTRIES) {
        waiter_t waiter;
        recycler_keep_awake(stream->device);
        wait_add(&stream->room, &waiter, 0);
        wait_for(&waiter, SIM_FOREVER);
        recycler_let_sleep(stream->device);
        rc = waiter.rc;
        if (rc == ACL_SUCCESS && stream->object.state != OBJECT_LIVE) {
            rc = RT_CONTEXT_NULL;
        }
    }
    object_release(&stream->object);
    return rc == ACL_SUCCESS ? rc : error_set(rc, "stream");
}

/* A copy has one task id for each part that the device moves at once. If there are several parts, a failing
 * copy reports the id of a part before the last one. */
static void take_ids(stream_t *stream, task_t *task) {
    size_t more = task->kind == TASK_COPY && task->copy.count > 0 ? (task->copy.count - 1) / PART_BYTES : 0;
    task->id = stream->next_task + (uint32_t)more / 2;
    stream->next_task += (uint32_t)more + 1;
}

aclError stream_enqueue(stream_t *stream, task_t *task) {
    thread_t *thread = thread_self();
    task->tid = thread->tid;
    thread->last_context = stream->context;
    thread->last_graph = graph_of(stream);
    if (graph_takes(stream)) {
        return graph_take(stream, task);
    }
    task->entries = task->kind == TASK_HOST_FUNCTION ? SIM_HOST_FUNCTION_ENTRIES : 1;
    if (stream->entries + task->entries > SIM_QUEUE_ENTRIES) {
        aclError rc = wait_for_room(stream, task->entries);
        if (rc != ACL_SUCCESS) {
            task_release(task, rc);
            return rc;
        }
    }
    if (task_moves(task) || task->kind == TASK_WORK || model_is_run(task)) {
        task->code = stream->fail_next;
        stream->fail_next = 0;
    }
    fault_enqueue(task);
    take_ids(stream, task);
    sync_end_device_livelock(stream);
    stream->ring[stream->enqueued % SIM_RING] = *task;
    thread->last_task = stream->next_task - 1;
    stream->enqueued++;
    stream->entries += task->entries;
    stream_kick(stream);
    if (stream->enqueued % WAKE_EVERY == 0) {
        recycler_wake(stream->device);
    }
    return ACL_SUCCESS;
}

void stream_finish_waiters(stream_t *stream) {
    waiter_t *next = NULL;
    bool delivered = false;
    for (waiter_t *waiter = stream->waiters.first; waiter != NULL; waiter = next) {
        next = waiter->next;
        if (waiter->target <= stream->ended && !sync_livelocks(stream, waiter)) {
            if (stream->error != 0) {
                memcpy(waiter->why, stream->why, sizeof waiter->why);
            }
            wait_finish(waiter, stream->context->failure != 0 ? stream->context->failure : stream->error);
            delivered = true;
        }
    }
    if (delivered) {
        stream->error = 0;
    }
}

void stream_end_tasks(stream_t *stream, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        task_t *task = stream_head(stream);
        stream->entries -= task->entries;
        stream->ended++;
        task_release(task, 0);
    }
    sim.tasks += count;
    stream->free_ns = 0;
    stream->end_round = recycler_round(stream->device);
    if (stream->waiters.first != NULL) {
        stream_finish_waiters(stream);
    }
    wait_finish_all(&stream->room, 0);
}

void device_settle(device_t *device) {
    device->settlers++;
    pthread_cond_wait(&sim.settled, &sim.lock);
    if (--device->settlers == 0) {
        pthread_cond_signal(&device->work);
    }
}

/* Whether a model's thread still computes the head task, which is asked to stop. */
static bool leave_model(stream_t *stream) {
    if (stream->computing) {
        model_leave(stream);
    }
    return stream->computing;
}

/* Waits until no thread works on the stream and its graph. Each wait releases sim.lock, so all conditions are
 * checked again after each wait. While a model's thread computes, the executor runs other streams. */
static void leave(stream_t *stream) {
    stream->leaving++;
    while (leave_model(stream) || stream->running || !graph_leave(stream)) {
        if (stream->computing) {
            pthread_cond_wait(&sim.settled, &sim.lock);
        } else {
            device_settle(stream->device);
        }
    }
    stream->leaving--;
}

void stream_drop(stream_t *stream, aclError waiters_rc, aclError room_rc) {
    leave(stream);
    calls_forget(stream);
    stream_unpark(stream);
    stream_unready(stream);
    while (stream->ended < stream->enqueued) {
        task_t *task = stream_head(stream);
        stream->ended++;
        task_release(task, waiters_rc);
    }
    stream->entries = 0;
    stream->error = 0;
    wait_finish_all(&stream->waiters, waiters_rc);
    wait_finish_all(&stream->room, room_rc);
}

/* Whether the stream's work will continue without another call of the client. The computation of a model does
 * not count, because it can take any time, and can be stopped. */
static bool moving(stream_t *stream) {
    bool own = stream->running || stream->park == PARK_FAULT ||
               (!stream->held && (stream->ready || stream->park == PARK_DUE));
    return own || (stream->park == PARK_WORK && graph_moving(stream));
}

void stream_drain_or_drop(stream_t *stream, int64_t patience_ns) {
    device_t *device = stream->device;
    /* Never 0, because the executor needs sim.lock, and only a wait releases sim.lock. */
    int64_t each_ns = patience_ns > LEAST_PATIENCE_NS ? patience_ns : LEAST_PATIENCE_NS;
    object_retain(&stream->object);
    while (stream->object.state == OBJECT_LIVE && stream->ended < stream->enqueued) {
        uint64_t before = stream->ended;
        waiter_t waiter;
        recycler_keep_awake(device);
        wait_add(&stream->waiters, &waiter, stream->enqueued);
        bool ended = wait_for(&waiter, now_ns() + each_ns);
        recycler_let_sleep(device);
        if (ended || (stream->ended == before && !moving(stream))) {
            break;
        }
    }
    if (stream->object.state == OBJECT_LIVE) {
        stream_drop(stream, 0, RT_CONTEXT_NULL);
    }
    object_release(&stream->object);
}
