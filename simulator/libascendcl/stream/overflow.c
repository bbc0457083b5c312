/*
 * The overflow status of floating-point work. No task of a simulated device can overflow, so the status is 64
 * bytes of zero. A read of the status is a task that writes these bytes. A reset of the status has no effect.
 */
#include "sim.h"

enum { STATUS_BYTES = 64, CHECK_MODE_MOST = 1 };

static aclError read_status(void *output, uint64_t size, aclrtStream handle) {
    if (output == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "outputAddr");
    }
    if (size < STATUS_BYTES) {
        return error_set(RT_PARAM_INVALID, "outputSize");
    }
    stream_t *stream = NULL;
    SIM_GUARD();
    aclError rc = stream_need_own(handle, &stream);
    if (rc == ACL_SUCCESS) {
        task_t task = {.kind = TASK_SET, .set = {.dst = output, .count = STATUS_BYTES, .value = 0}};
        rc = stream_enqueue(stream, &task);
    }
    return rc;
}

static aclError reset_status(aclrtStream handle) {
    stream_t *stream = NULL;
    SIM_GUARD();
    return stream_need_own(handle, &stream);
}

aclError do_aclrtGetOverflowStatus(void *outputAddr, size_t outputSize, aclrtStream stream) {
    return read_status(outputAddr, outputSize, stream);
}

aclError do_aclrtResetOverflowStatus(aclrtStream stream) {
    return reset_status(stream);
}

aclError do_aclrtGetFloatOverflowStatus(void *outputAddr, uint64_t outputSize, aclrtStream stream) {
    return read_status(outputAddr, outputSize, stream);
}

aclError do_aclrtResetFloatOverflowStatus(aclrtStream stream) {
    return reset_status(stream);
}

aclError do_aclrtNpuGetFloatOverFlowStatus(void *outputAddr, uint64_t outputSize, uint32_t checkMode,
                                           aclrtStream stream) {
    return checkMode > CHECK_MODE_MOST ? error_set(RT_PARAM_INVALID, "checkMode")
                                       : read_status(outputAddr, outputSize, stream);
}

aclError do_aclrtNpuClearFloatOverFlowStatus(uint32_t checkMode, aclrtStream stream) {
    return checkMode > CHECK_MODE_MOST ? error_set(RT_PARAM_INVALID, "checkMode") : reset_status(stream);
}

/* Returns the address of a status that belongs to the context's device. Blocking copies can read the status. */
aclError do_aclrtCtxGetFloatOverflowAddr(void **overflowAddr) {
    static _Alignas(STATUS_BYTES) char statuses[SIM_MAX_DEVICES][STATUS_BYTES];
    if (overflowAddr == NULL) {
        return error_set(RT_PARAM_INVALID, "overflowAddr");
    }
    SIM_GUARD();
    const context_t *context = context_need();
    if (context != NULL) {
        *overflowAddr = statuses[context->device->id];
    }
    return context != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
}
