/* Profiling. The order of the calls of a session is checked, and nothing is recorded. Subscriptions to models
 * are in subscription.c, and the marks of clients are in stamps.c. */
#include <stdlib.h>
#include <string.h>

#include "described.h"

enum { PATH_MOST = 4096, METRICS_NONE = 255 };

/* Protected by sim.lock. */
static bool initialised;
static uint32_t running;

bool metrics_valid(aclprofAicoreMetrics metrics) {
    return (unsigned int)metrics <= ACL_AICORE_MEMORY_ACCESS || (int)metrics == METRICS_NONE;
}

aclError do_aclprofInit(const char *profilerResultPath, size_t length) {
    if (profilerResultPath == NULL || length == 0 || length > PATH_MOST ||
        strnlen(profilerResultPath, length + 1) != length) {
        return error_quiet(ACL_INVALID_PARAM, "profilerResultPath");
    }
    SIM_GUARD();
    aclError rc = initialised ? error_quiet(ACL_PROF_ALREADY_RUN, "aclprofInit") : ACL_SUCCESS;
    initialised = true;
    return rc;
}

aclError do_aclprofFinalize(void) {
    SIM_GUARD();
    aclError rc = initialised ? ACL_SUCCESS : error_quiet(ACL_PROF_NOT_RUN, "aclprofFinalize");
    initialised = false;
    running = 0;
    return rc;
}

profile_t *profile_find(profile_kind_t kind, const void *handle, const char *what) {
    profile_t *found = described_find(KIND_PROFILE, handle, what);
    if (found != NULL && found->kind != kind) {
        error_quiet(ACL_INVALID_PARAM, what);
        return NULL;
    }
    return found;
}

void *profile_new(profile_kind_t kind) {
    SIM_GUARD();
    profile_t *made = object_new(KIND_PROFILE);
    if (made != NULL) {
        made->kind = kind;
    }
    return made;
}

aclError profile_destroy(profile_kind_t kind, const void *handle, const char *what) {
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    profile_t *found = profile_find(kind, handle, what);
    if (found != NULL && found->running) {
        rc = error_quiet(ACL_PROF_ALREADY_RUN, what);
    } else if (found != NULL) {
        rc = ACL_SUCCESS;
        object_kill(&found->object);
    }
    return rc;
}

aclprofConfig *do_aclprofCreateConfig(uint32_t *deviceIdList, uint32_t deviceNums,
                                      aclprofAicoreMetrics aicoreMetrics,
                                      const aclprofAicoreEvents *aicoreEvents, uint64_t dataTypeConfig) {
    bool listed = deviceNums <= SIM_MAX_DEVICES && (deviceIdList != NULL || deviceNums == 0);
    if (!listed || !metrics_valid(aicoreMetrics) || aicoreEvents != NULL) {
        error_quiet(ACL_INVALID_PARAM, listed ? "aicoreMetrics" : "deviceIdList");
        return NULL;
    }
    for (uint32_t i = 0; i < deviceNums; i++) {
        if (device_find((int32_t)deviceIdList[i]) == NULL) {
            error_quiet(ACL_INVALID_PARAM, "deviceIdList");
            return NULL;
        }
    }
    profile_t *made = profile_new(PROFILE_CONFIG);
    if (made != NULL) {
        made->devices = deviceNums;
        made->data_types = dataTypeConfig;
        for (uint32_t i = 0; i < deviceNums; i++) {
            made->device_ids[i] = deviceIdList[i];
        }
    }
    return (aclprofConfig *)made;
}

aclError do_aclprofDestroyConfig(const aclprofConfig *profilerConfig) {
    return profile_destroy(PROFILE_CONFIG, profilerConfig, "profilerConfig");
}

static aclError set_running(const aclprofConfig *config, bool run) {
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    profile_t *found = profile_find(PROFILE_CONFIG, config, "profilerConfig");
    if (found != NULL && (!initialised || (!run && !found->running))) {
        rc = error_quiet(ACL_PROF_NOT_RUN, "profilerConfig");
    } else if (found != NULL && run && found->running) {
        rc = error_quiet(ACL_PROF_ALREADY_RUN, "profilerConfig");
    } else if (found != NULL) {
        rc = ACL_SUCCESS;
        found->running = run;
        running += run ? 1 : UINT32_MAX;
    }
    return rc;
}

aclError do_aclprofStart(const aclprofConfig *profilerConfig) {
    return set_running(profilerConfig, true);
}

aclError do_aclprofStop(const aclprofConfig *profilerConfig) {
    return set_running(profilerConfig, false);
}

aclError do_aclprofSetConfig(aclprofConfigType configType, const char *config, size_t configLength) {
    bool valid = (int)configType > ACL_PROF_ARGS_MIN && (int)configType < ACL_PROF_ARGS_MAX;
    bool text = config != NULL && configLength > 0 && strnlen(config, configLength + 1) == configLength;
    return valid && text ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, valid ? "config" : "configType");
}

aclError do_aclprofGetOpDescSize(size_t *opDescSize) {
    enum { RECORD_BYTES = 320 };
    REFUSE_NULL(opDescSize);
    *opDescSize = RECORD_BYTES;
    return ACL_SUCCESS;
}

static aclError no_record(const void *output) {
    return error_quiet(ACL_INVALID_PARAM, output == NULL ? "output" : "opInfo");
}

aclError do_aclprofGetOpNum(const void *opInfo, size_t opInfoLen, uint32_t *opNumber) {
    if (opInfo == NULL || opNumber == NULL || opInfoLen != 0) {
        return no_record(opNumber);
    }
    *opNumber = 0;
    return ACL_SUCCESS;
}

aclError do_aclprofGetOpTypeLen(const void *opInfo, size_t opInfoLen, uint32_t index, size_t *opTypeLen) {
    (void)opInfo;
    (void)opInfoLen;
    (void)index;
    return no_record(opTypeLen);
}

aclError do_aclprofGetOpType(const void *opInfo, size_t opInfoLen, uint32_t index, char *opType,
                             size_t opTypeLen) {
    (void)opInfo;
    (void)opInfoLen;
    (void)index;
    (void)opTypeLen;
    return no_record(opType);
}

aclError do_aclprofGetOpNameLen(const void *opInfo, size_t opInfoLen, uint32_t index, size_t *opNameLen) {
    (void)opInfo;
    (void)opInfoLen;
    (void)index;
    return no_record(opNameLen);
}

aclError do_aclprofGetOpName(const void *opInfo, size_t opInfoLen, uint32_t index, char *opName,
                             size_t opNameLen) {
    (void)opInfo;
    (void)opInfoLen;
    (void)index;
    (void)opNameLen;
    return no_record(opName);
}

uint64_t do_aclprofGetOpStart(const void *opInfo, size_t opInfoLen, uint32_t index) {
    (void)opInfo;
    (void)opInfoLen;
    (void)index;
    return 0;
}

uint64_t do_aclprofGetOpEnd(const void *opInfo, size_t opInfoLen, uint32_t index) {
    return do_aclprofGetOpStart(opInfo, opInfoLen, index);
}

uint64_t do_aclprofGetOpDuration(const void *opInfo, size_t opInfoLen, uint32_t index) {
    return do_aclprofGetOpStart(opInfo, opInfoLen, index);
}

size_t do_aclprofGetModelId(const void *opInfo, size_t opInfoLen, uint32_t index) {
    return do_aclprofGetOpStart(opInfo, opInfoLen, index);
}

aclprofSubscribeOpFlag do_aclprofGetOpFlag(const void *opInfo, size_t opInfoLen, uint32_t index) {
    (void)do_aclprofGetOpStart(opInfo, opInfoLen, index);
    return ACL_SUBSCRIBE_NONE;
}

const char *do_aclprofGetOpAttriValue(const void *opInfo, size_t opInfoLen, uint32_t index,
                                      aclprofSubscribeOpAttri attri) {
    (void)do_aclprofGetOpStart(opInfo, opInfoLen, index);
    (void)attri;
    return NULL;
}
