/* Hardware faults and their repair. The simulated hardware reports none. */
#include <string.h>

#include "sim.h"

static aclError check_device(int32_t id) {
    return device_find(id) != NULL ? ACL_SUCCESS : error_set(RT_INVALID_DEVICE, "deviceId");
}

aclError do_aclrtGetErrorVerbose(int32_t deviceId, aclrtErrorInfo *errorInfo) {
    REFUSE_NULL(errorInfo);
    aclError rc = check_device(deviceId);
    if (rc == ACL_SUCCESS) {
        memset(errorInfo, 0, sizeof *errorInfo);
        errorInfo->errorType = ACL_RT_NO_ERROR;
    }
    return rc;
}

/* For "no error" the call succeeds and does nothing. Every other error is refused, because the simulator never
 * reports one. */
aclError do_aclrtRepairError(int32_t deviceId, const aclrtErrorInfo *errorInfo) {
    REFUSE_NULL(errorInfo);
    aclError rc = check_device(deviceId);
    bool reported = rc == ACL_SUCCESS && errorInfo->errorType == ACL_RT_NO_ERROR;
    return rc != ACL_SUCCESS || reported ? rc : error_set(RT_PARAM_INVALID, "errorInfo");
}
