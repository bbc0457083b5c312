/* Cache operations and other markers for the device. The arguments are checked and the tasks are queued, but
 * they have no effect, because there is no cache. */
#include <string.h>

#include "block.h"
#include "work.h"

enum {
    DESCRIPTOR_BYTES = 64,
    BARRIERS_MOST = 6,
    TRACE_BYTES_MOST = 18,
    OP_INFO_BYTES_MOST = 65536,
    SYNC_BYTES = 65536 /* at least a page, for area_new */
};

static bool nothing(stream_t *stream, task_t *task) {
    (void)stream;
    (void)task;
    return true;
}

static const work_ops_t nothing_ops = {.step = nothing};

static aclError enqueue_nothing(aclrtStream stream) {
    SIM_GUARD();
    aclError rc = stream_check_handle(stream);
    work_t *work = rc == ACL_SUCCESS ? work_new(&nothing_ops, sizeof *work) : NULL;
    if (rc == ACL_SUCCESS && work == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "task");
    }
    return rc == ACL_SUCCESS ? work_enqueue_locked(stream, TASK_STEP, work) : rc;
}

static bool is_known(aclrtCmoType type) {
    return (unsigned int)type <= ACL_RT_CMO_TYPE_FLUSH;
}

aclError do_aclrtCmoAsync(void *src, size_t size, aclrtCmoType cmoType, aclrtStream stream) {
    if (src == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, src == NULL ? "src" : "size");
    }
    return is_known(cmoType) ? enqueue_nothing(stream) : error_quiet(RT_FEATURE_NOT_SUPPORT, "cmoType");
}

aclError do_aclrtCmoAsyncWithBarrier(void *src, size_t size, aclrtCmoType cmoType, uint32_t barrierId,
                                     aclrtStream stream) {
    (void)barrierId;
    REFUSE_NULL(src);
    bool valid = size != 0 && is_known(cmoType);
    return valid ? enqueue_nothing(stream) : error_set(RT_PARAM_INVALID, size == 0 ? "size" : "cmoType");
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

/* The arguments of the three functions for descriptions are checked by the runtime, not by the ACL layer. */
aclError do_aclrtCmoGetDescSize(size_t *size) {
    if (size == NULL) {
        return error_set(RT_PARAM_INVALID, "size");
    }
    *size = DESCRIPTOR_BYTES;
    return ACL_SUCCESS;
}

typedef struct {
    const void *address;
    size_t size;
} descriptor_t;

aclError do_aclrtCmoSetDesc(void *cmoDesc, void *src, size_t size) {
    if (cmoDesc == NULL || src == NULL || size == 0) {
        return error_set(RT_PARAM_INVALID, "cmoDesc, src or size");
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
    bool valid = cmoDesc != NULL && is_known(cmoType) && reserve == NULL;
    return valid ? enqueue_nothing(stream) : error_set(RT_PARAM_INVALID, "cmoDesc, cmoType or reserve");
}

/* Queues a marker, which has no effect because there is no profiler. */
aclError do_aclrtProfTrace(void *userdata, int32_t length, aclrtStream stream) {
    REFUSE_NULL(userdata);
    bool fits = length > 0 && length <= TRACE_BYTES_MOST;
    return fits ? enqueue_nothing(stream) : error_set(RT_PARAM_INVALID, "length");
}

/* The information is checked and not stored. */
static aclError cache_info(const void *info, size_t size, size_t most, bool extended) {
    if (info == NULL || size == 0) {
        return error_quiet(ACL_INVALID_PARAM, info == NULL ? "infoPtr" : "infoSize");
    }
    if (size > most) {
        return error_set(RT_PARAM_INVALID, "infoSize");
    }
    SIM_GUARD();
    const context_t *context = context_need();
    const thread_t *thread = thread_self();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    if (thread->last_context != NULL && thread->last_context != context) {
        return error_set(RT_STREAM_CONTEXT, "the stream of the last task");
    }
    return graph_check_op_info(thread->last_graph, extended);
}

aclError do_aclrtCacheLastTaskOpInfo(const void *const infoPtr, const size_t infoSize) {
    return cache_info(infoPtr, infoSize, OP_INFO_BYTES_MOST, false);
}

/* Longer information is cut off. */
aclError do_aclrtCacheLastTaskExtendInfo(const char *const extendInfoPtr, const size_t infoSize) {
    return cache_info(extendInfoPtr, infoSize, SIZE_MAX, true);
}

static aclError check_cleanable(const stream_t *stream) {
    bool persistent = (stream->flags & ACL_STREAM_PERSISTENT) != 0;
    bool complete = persistent && graph_is_built(stream);
    return complete
               ? ACL_SUCCESS
               : error_set(RT_INTERNAL_ERROR, persistent ? "stream: it is not bound to a complete model"
                                                         : "stream: it was made without the persistent flag");
}

/* The state of the stream is checked before the context. In the simulator, the tasks of a bound stream belong
 * to the model, so there is nothing to clean. */
aclError do_aclrtPersistentTaskClean(aclrtStream stream) {
    stream_t *found = NULL;
    if (stream == NULL) {
        return error_set(RT_PARAM_INVALID, "stream");
    }
    SIM_GUARD();
    aclError rc = stream_find(NULL, stream, &found);
    rc = rc == ACL_SUCCESS ? check_cleanable(found) : rc;
    return rc == ACL_SUCCESS ? stream_need_own(stream, &found) : rc;
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
