/* Cache operations and other markers for the device. The arguments are checked and the tasks are queued, but
 * they have no effect, because there is no cache. */
#include <string.h>

#include "block.h"
#include "work.h"

enum {
    DESCRIPTOR_BYTES = 64,
    BARRIERS_MOST = 6,
    TRACE_BYTES_MOST = 18,
    FLAG_PERSISTENT = 0x4,
    SYNC_BYTES = 65536 /* at least a page, for area_new */
};

static bool nothing(stream_t *stream, task_t *task) {
    (void)stream;
    (void)task;
    return true;
}

static const work_ops_t nothing_ops = {.step = nothing};

static aclError enqueue_nothing(aclrtStream stream) {
    return work_enqueue(stream, TASK_STEP, work_new(&nothing_ops, sizeof(work_t)));
}

static aclError check(const void *address, size_t size, aclrtCmoType type) {
    if (address == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "src");
    }
    if ((unsigned int)type > ACL_RT_CMO_TYPE_FLUSH || size == 0) {
        return error_set(RT_PARAM_INVALID, size == 0 ? "size" : "cmoType");
    }
    return ACL_SUCCESS;
}

aclError do_aclrtCmoAsync(void *src, size_t size, aclrtCmoType cmoType, aclrtStream stream) {
    aclError rc = check(src, size, cmoType);
    return rc == ACL_SUCCESS ? enqueue_nothing(stream) : rc;
}

aclError do_aclrtCmoAsyncWithBarrier(void *src, size_t size, aclrtCmoType cmoType, uint32_t barrierId,
                                     aclrtStream stream) {
    (void)barrierId;
    return do_aclrtCmoAsync(src, size, cmoType, stream);
}

/* The operations of the barrier have ended when the stream reaches the barrier, so the barrier does not wait.
 */
aclError do_aclrtCmoWaitBarrier(aclrtBarrierTaskInfo *taskInfo, aclrtStream stream, uint32_t flag) {
    REFUSE_NULL(taskInfo);
    if (taskInfo->barrierNum == 0 || taskInfo->barrierNum > BARRIERS_MOST || flag != 0) {
        return error_set(RT_PARAM_INVALID, flag != 0 ? "flag" : "taskInfo: barrierNum");
    }
    return enqueue_nothing(stream);
}

aclError do_aclrtCmoGetDescSize(size_t *size) {
    REFUSE_NULL(size);
    *size = DESCRIPTOR_BYTES;
    return ACL_SUCCESS;
}

typedef struct {
    const void *address;
    size_t size;
} descriptor_t;

aclError do_aclrtCmoSetDesc(void *cmoDesc, void *src, size_t size) {
    REFUSE_NULL(cmoDesc);
    REFUSE_NULL(src);
    if (size == 0) {
        return error_set(RT_PARAM_INVALID, "size");
    }
    descriptor_t descriptor = {src, size};
    void *block = NULL;
    SIM_GUARD();
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    if (!memory_pin(cmoDesc, DESCRIPTOR_BYTES, &block)) {
        return error_set(RT_PARAM_INVALID, "cmoDesc: it is not in memory of the device");
    }
    memset(cmoDesc, 0, DESCRIPTOR_BYTES);
    memcpy(cmoDesc, &descriptor, sizeof descriptor);
    memory_unpin(block);
    return ACL_SUCCESS;
}

aclError do_aclrtCmoAsyncWithDesc(void *cmoDesc, aclrtCmoType cmoType, aclrtStream stream,
                                  const void *reserve) {
    aclError rc = check(cmoDesc, DESCRIPTOR_BYTES, cmoType);
    if (rc == ACL_SUCCESS && reserve != NULL) {
        rc = error_set(RT_PARAM_INVALID, "reserve");
    }
    return rc == ACL_SUCCESS ? enqueue_nothing(stream) : rc;
}

/* Queues a marker, which has no effect because there is no profiler. */
aclError do_aclrtProfTrace(void *userdata, int32_t length, aclrtStream stream) {
    REFUSE_NULL(userdata);
    bool fits = length > 0 && length <= TRACE_BYTES_MOST;
    return fits ? enqueue_nothing(stream) : error_set(RT_PARAM_INVALID, "length");
}

static aclError check_info(const void *info, size_t size) {
    if (info == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "infoPtr");
    }
    return size != 0 ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "infoSize");
}

/* The profiler's information about the thread's last task is checked and not stored. */
aclError do_aclrtCacheLastTaskOpInfo(const void *const infoPtr, const size_t infoSize) {
    return check_info(infoPtr, infoSize);
}

aclError do_aclrtCacheLastTaskExtendInfo(const char *const extendInfoPtr, const size_t infoSize) {
    return check_info(extendInfoPtr, infoSize);
}

/* In the simulator, tasks of a persistent stream run only once, like all other tasks. So there is nothing to
 * clean. */
aclError do_aclrtPersistentTaskClean(aclrtStream stream) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_need_own(stream, &found);
    if (rc == ACL_SUCCESS && (found->flags & FLAG_PERSISTENT) == 0) {
        rc = error_set(RT_PARAM_INVALID, "stream: it was made without the persistent flag");
    }
    return rc;
}

/* Returns an address that only kernels may use. Neither the host nor copies can read or write there. */
static aclError find_sync_area(const context_t *context, void **addr) {
    static const area_t *areas[SIM_MAX_DEVICES];
    const area_t **area = &areas[context->device->id];
    if (*area == NULL) {
        *area = area_new(SYNC_BYTES, SYNC_BYTES, NULL);
    }
    if (*area == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "addr");
    }
    *addr = (*area)->base;
    return ACL_SUCCESS;
}

aclError do_aclrtGetHardwareSyncAddr(void **addr) {
    REFUSE_NULL(addr);
    SIM_GUARD();
    const context_t *context = context_need();
    return context != NULL ? find_sync_area(context, addr) : RT_CONTEXT_NULL;
}
