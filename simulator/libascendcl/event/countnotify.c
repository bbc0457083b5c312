/*
 * Count notifies: numbers that streams write and wait for. The simulated chip has no count notifies, and the
 * functions for count notifies return 207000. aclsim_set_count_notify_supported() enables the count notifies of
 * a newer chip.
 */
#include "work.h"

static const int64_t second_ns = 1000000000;

typedef struct {
    work_t work;
    count_notify_t *notify;
    uint32_t mode;
    uint32_t value;
    uint32_t timeout_s;
    bool clear;
} count_work_t;

static void work_free(work_t *work) {
    object_release(&((count_work_t *)work)->notify->object);
}

static uint32_t recorded(const count_work_t *work, uint32_t now) {
    switch (work->mode) {
    case ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE:
        return now + work->value;
    case ACL_RT_CNT_NOTIFY_RECORD_BIT_OR_MODE:
        return now | work->value;
    case ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE:
        return now & work->value;
    default:
        return work->value;
    }
}

static bool record_step(stream_t *stream, task_t *task) {
    const count_work_t *work = (const count_work_t *)task->work;
    (void)stream;
    work->notify->value = recorded(work, work->notify->value);
    park_kick_all(&work->notify->streams);
    return true;
}

static bool holds(const count_work_t *work) {
    uint32_t now = work->notify->value;
    switch (work->mode) {
    case ACL_RT_CNT_NOTIFY_WAIT_LESS_MODE:
        return now < work->value;
    case ACL_RT_CNT_NOTIFY_WAIT_EQUAL_MODE:
        return now == work->value;
    case ACL_RT_CNT_NOTIFY_WAIT_BIGGER_MODE:
        return now > work->value;
    case ACL_RT_CNT_NOTIFY_WAIT_BIGGER_OR_EQUAL_MODE:
        return now >= work->value;
    default:
        return (now & work->value) == work->value;
    }
}

static bool wait_step(stream_t *stream, task_t *task) {
    const count_work_t *work = (const count_work_t *)task->work;
    if (!holds(work)) {
        task->limit_ns = (int64_t)work->timeout_s * second_ns;
        return task_wait_on(stream, task, PARK_WORK, &work->notify->streams);
    }
    if (work->clear) {
        work->notify->value = 0;
    }
    return true;
}

static const work_ops_t record_ops = {.step = record_step, .free = work_free};
static const work_ops_t wait_ops = {.step = wait_step, .free = work_free, .reports = true};

/* A missing context does not set the thread's last error. The other errors of this function do. */
aclError do_aclrtCntNotifyCreate(aclrtCntNotify *cntNotify, uint64_t flag) {
    if (flag != 0) {
        return error_set(RT_PARAM_INVALID, "flag");
    }
    SIM_GUARD();
    const context_t *context = thread_context();
    if (context == NULL) {
        return error_quiet(RT_CONTEXT_NULL, "current context");
    }
    if (cntNotify == NULL) {
        return error_set(RT_PARAM_INVALID, "cntNotify");
    }
    if (!sim.count_notify_supported) {
        return error_set(RT_FEATURE_NOT_SUPPORT, "cntNotify");
    }
    count_notify_t *notify = object_new(KIND_COUNT_NOTIFY);
    if (notify == NULL) {
        return error_set(RT_NO_NOTIFY_RESOURCE, "cntNotify");
    }
    notify->device = context->device;
    *cntNotify = notify;
    return ACL_SUCCESS;
}

/* Checks the handle, then the caller's context. */
static aclError find(aclrtCntNotify handle, count_notify_t **notify) {
    if (handle == NULL) {
        return error_set(RT_PARAM_INVALID, "cntNotify");
    }
    *notify = object_find(KIND_COUNT_NOTIFY, handle);
    if (*notify == NULL) {
        return usage_bad_handle(KIND_COUNT_NOTIFY, handle);
    }
    thread_uses((*notify)->device);
    return context_need() != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
}

aclError do_aclrtCntNotifyDestroy(aclrtCntNotify cntNotify) {
    count_notify_t *notify = NULL;
    SIM_GUARD();
    aclError rc = find(cntNotify, &notify);
    if (rc == ACL_SUCCESS) {
        object_kill(&notify->object);
    }
    return rc;
}

aclError do_aclrtCntNotifyGetId(aclrtCntNotify cntNotify, uint32_t *notifyId) {
    count_notify_t *notify = NULL;
    if (notifyId == NULL) {
        return error_set(RT_PARAM_INVALID, "notifyId");
    }
    SIM_GUARD();
    aclError rc = find(cntNotify, &notify);
    if (rc == ACL_SUCCESS) {
        *notifyId = notify->object.index;
    }
    return rc;
}

/* The notify may be destroyed while its tasks are queued, so each task holds a reference to it. */
static aclError enqueue(aclrtCntNotify handle, aclrtStream stream, const work_ops_t *ops, count_work_t what,
                        bool known) {
    sim_lock();
    aclError rc = find(handle, &what.notify);
    rc = rc == ACL_SUCCESS && !known ? error_set(RT_PARAM_INVALID, "info->mode") : rc;
    count_work_t *work = rc == ACL_SUCCESS ? work_new(ops, sizeof *work) : NULL;
    if (work != NULL) {
        what.work = work->work;
        *work = what;
        object_retain(&what.notify->object);
    }
    sim_unlock();
    return rc == ACL_SUCCESS ? work_enqueue(stream, TASK_STEP, (work_t *)work) : rc;
}

static bool is_record_mode(uint32_t mode) {
    return mode <= ACL_RT_CNT_NOTIFY_RECORD_BIT_OR_MODE || mode == ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE;
}

aclError do_aclrtCntNotifyRecord(aclrtCntNotify cntNotify, aclrtStream stream, aclrtCntNotifyRecordInfo *info) {
    REFUSE_NULL(info);
    return enqueue(cntNotify, stream, &record_ops,
                   (count_work_t){.mode = (uint32_t)info->mode, .value = info->value},
                   is_record_mode((uint32_t)info->mode));
}

/* The time-out is in seconds. Zero and the largest value of the type both mean no limit. */
aclError do_aclrtCntNotifyWaitWithTimeout(aclrtCntNotify cntNotify, aclrtStream stream,
                                          aclrtCntNotifyWaitInfo *info) {
    REFUSE_NULL(info);
    return enqueue(cntNotify, stream, &wait_ops,
                   (count_work_t){.mode = (uint32_t)info->mode,
                                  .value = info->value,
                                  .timeout_s = info->timeout != UINT32_MAX ? info->timeout : 0,
                                  .clear = info->isClear != 0},
                   (uint32_t)info->mode <= ACL_RT_CNT_NOTIFY_WAIT_EQUAL_WITH_BITMASK_MODE);
}

aclError do_aclrtCntNotifyReset(aclrtCntNotify cntNotify, aclrtStream stream) {
    return enqueue(cntNotify, stream, &record_ops,
                   (count_work_t){.mode = ACL_RT_CNT_NOTIFY_RECORD_SET_VALUE_MODE}, true);
}

API void aclsim_set_count_notify_supported(int supported) {
    sim_start();
    SIM_GUARD();
    sim.count_notify_supported = supported != 0;
}
