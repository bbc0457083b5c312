/* Settings of the whole process: time limits and the overflow mode. */
#include <unistd.h>

#include "soc.h"

enum { SECOND_US = 1000000, MILLISECOND_US = 1000 };

/* Protected by sim.lock. */
static aclrtFloatOverflowMode saturation = ACL_RT_OVERFLOW_MODE_INFNAN;
static uint64_t op_limit_us; /* the requested value; 0: the maximum of the chip */

aclError do_aclrtSetOpWaitTimeout(uint32_t timeout) {
    SIM_GUARD();
    sim.wait_limit_s = timeout;
    return ACL_SUCCESS;
}

static uint64_t longest_us(void) {
    return SOC_OP_TIMEOUT_STEPS * SOC_OP_TIMEOUT_TICK_US;
}

/* Returns the limit that the chip uses: whole ticks, at most as many as the chip can count. */
static uint64_t counted_us(uint64_t asked_us) {
    if (asked_us == 0 || asked_us > longest_us()) {
        return longest_us();
    }
    return (asked_us + SOC_OP_TIMEOUT_TICK_US - 1) / SOC_OP_TIMEOUT_TICK_US * SOC_OP_TIMEOUT_TICK_US;
}

/* Simulated kernels take no time, so the limit is stored but never reached. */
static aclError set_op_limit(uint64_t limit_us) {
    SIM_GUARD();
    op_limit_us = limit_us;
    return ACL_SUCCESS;
}

aclError do_aclrtSetOpExecuteTimeOut(uint32_t timeout) {
    return set_op_limit((uint64_t)timeout * SECOND_US);
}

aclError do_aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout) {
    return set_op_limit((uint64_t)timeout * MILLISECOND_US);
}

aclError do_aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t *actualTimeout) {
    REFUSE_NULL(actualTimeout);
    *actualTimeout = counted_us(timeout);
    return set_op_limit(timeout);
}

aclError do_aclrtGetOpTimeOutInterval(uint64_t *interval) {
    REFUSE_NULL(interval);
    *interval = SOC_OP_TIMEOUT_TICK_US;
    return ACL_SUCCESS;
}

aclError do_aclrtGetOpExecuteTimeout(uint32_t *const timeoutMs) {
    REFUSE_NULL(timeoutMs);
    SIM_GUARD();
    uint64_t limit_us = op_limit_us == 0 || op_limit_us > longest_us() ? longest_us() : op_limit_us;
    *timeoutMs = (uint32_t)((limit_us + MILLISECOND_US - 1) / MILLISECOND_US);
    return ACL_SUCCESS;
}

aclError do_aclrtGetDeviceSatMode(aclrtFloatOverflowMode *mode) {
    REFUSE_NULL(mode);
    SIM_GUARD();
    *mode = saturation;
    return ACL_SUCCESS;
}

/* The mode applies to kernels of streams that are created later. Simulated kernels do not use it, so it is only
 * stored. */
aclError do_aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
    if ((unsigned int)mode > ACL_RT_OVERFLOW_MODE_INFNAN) {
        return error_set(RT_PARAM_INVALID, "mode");
    }
    SIM_GUARD();
    saturation = mode;
    return ACL_SUCCESS;
}

/* The chip has one scheduler, so there is nothing to select. */
aclError do_aclrtSetTsDevice(aclrtTsId tsId) {
    return (unsigned int)tsId > ACL_TS_ID_AIVECTOR ? error_quiet(ACL_INVALID_PARAM, "tsId") : ACL_SUCCESS;
}

aclError do_aclrtDeviceGetBareTgid(int32_t *pid) {
    REFUSE_NULL(pid);
    *pid = (int32_t)getpid();
    return ACL_SUCCESS;
}

aclError do_aclrtGetThreadLastTaskId(uint32_t *taskId) {
    REFUSE_NULL(taskId);
    *taskId = thread_self()->last_task;
    return ACL_SUCCESS;
}
