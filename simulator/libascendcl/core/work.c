/* Tasks that compute: shared work, enqueueing it and running it. */
#include "work.h"

#include <stdlib.h>

void *work_new(const work_ops_t *ops, size_t size) {
    work_t *work = calloc(1, size);
    if (work != NULL) {
        work->ops = ops;
        work->refs = 1;
    }
    return work;
}

void work_retain(work_t *work) {
    work->refs++;
}

void work_release(work_t *work) {
    if (--work->refs > 0) {
        return;
    }
    if (work->ops->free != NULL) {
        work->ops->free(work);
    }
    free(work);
}

aclError work_enqueue_locked(aclrtStream stream, task_kind_t kind, work_t *work) {
    stream_t *target = NULL;
    aclError rc = stream_need_own(stream, &target);
    if (rc == ACL_SUCCESS) {
        task_t task = {.kind = (uint8_t)kind, .work = work};
        rc = stream_enqueue(target, &task);
    } else {
        work_release(work);
    }
    return rc;
}

aclError work_enqueue(aclrtStream stream, task_kind_t kind, work_t *work) {
    if (work == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "task");
    }
    SIM_GUARD();
    return work_enqueue_locked(stream, kind, work);
}

/* The stream can be dropped only after the executor has left the stream. So the task still exists when the work
 * has ended. */
bool work_run_task(stream_t *stream, task_t *task) {
    work_t *work = task->work;
    if (task->code != 0) {
        return true;
    }
    task->code = work->ops->begin != NULL ? work->ops->begin(work, stream) : 0;
    if (task->code == 0) {
        stream_run_begin(stream);
        aclError code = work->ops->run(work, stream);
        stream_run_end(stream);
        task->code = code;
    }
    if (work->ops->end != NULL) {
        work->ops->end(work);
    }
    value_may_have_changed();
    return true;
}

API int aclsim_trap_next(void *stream, int32_t code) {
    sim_start();
    SIM_GUARD();
    stream_t *found = object_find(KIND_STREAM, stream);
    if (found != NULL) {
        found->trap_next = code;
    }
    return found != NULL ? 0 : -1;
}
