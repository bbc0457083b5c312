/* Dumps of tensors and arguments. No operator runs in the simulator, so nothing is dumped. Clients can set and
 * query the settings, which have no other effect. */
#include <stdlib.h>
#include <string.h>

#include "config.h"

enum { CHUNK_FLAG_MOST = 1 };

/* All protected by sim.lock. */
static bool dumping;
static acldumpMessageCallback listener;
static char argument_path[DUMP_PATH_BYTES];
static uint32_t argument_type;                /* 0: arguments are not dumped */
static char configured_path[DUMP_PATH_BYTES]; /* set by aclInit or aclmdlSetDump; "": not set */

void dump_set_path(const char *path) {
    SIM_GUARD();
    strcpy(configured_path, path);
}

aclError do_aclmdlInitDump(void) {
    SIM_GUARD();
    aclError rc = dumping ? error_quiet(ACL_DUMP_ALREADY_RUN, "aclmdlInitDump") : ACL_SUCCESS;
    dumping = true;
    return rc;
}

aclError do_aclmdlSetDump(const char *dumpCfgPath) {
    REFUSE_NULL(dumpCfgPath);
    sim_lock();
    bool running = dumping;
    sim_unlock();
    if (!running) {
        return error_quiet(ACL_DUMP_NOT_RUN, "aclmdlSetDump");
    }
    char *text = NULL;
    aclError rc =
        *dumpCfgPath == '\0' ? error_quiet(ACL_INVALID_FILE, "dumpCfgPath") : config_load(dumpCfgPath, &text);
    rc = rc == ACL_SUCCESS ? config_apply_dump(text) : rc;
    free(text);
    return rc;
}

aclError do_aclmdlFinalizeDump(void) {
    SIM_GUARD();
    aclError rc = dumping ? ACL_SUCCESS : error_quiet(ACL_DUMP_NOT_RUN, "aclmdlFinalizeDump");
    if (dumping) {
        configured_path[0] = '\0';
    }
    dumping = false;
    return rc;
}

/* The callback is stored, and never called. */
aclError do_acldumpRegCallback(acldumpMessageCallback messageCallback, int32_t flag) {
    if (messageCallback == NULL || flag < 0 || flag > CHUNK_FLAG_MOST) {
        return error_quiet(ACL_INVALID_PARAM, messageCallback == NULL ? "messageCallback" : "flag");
    }
    SIM_GUARD();
    listener = messageCallback;
    return ACL_SUCCESS;
}

void do_acldumpUnregCallback(void) {
    SIM_GUARD();
    listener = NULL;
}

static bool type_valid(uint32_t type) {
    return type >= AIC_ERR_BRIEF_DUMP && type <= AIC_ERR_DETAIL_DUMP;
}

aclError do_aclopStartDumpArgs(uint32_t dumpType, const char *path) {
    if (path == NULL || *path == '\0' || strlen(path) >= DUMP_PATH_BYTES || !type_valid(dumpType)) {
        return error_quiet(ACL_INVALID_PARAM, type_valid(dumpType) ? "path" : "dumpType");
    }
    SIM_GUARD();
    strcpy(argument_path, path);
    argument_type = dumpType;
    return ACL_SUCCESS;
}

aclError do_aclopStopDumpArgs(uint32_t dumpType) {
    if (!type_valid(dumpType)) {
        return error_quiet(ACL_INVALID_PARAM, "dumpType");
    }
    SIM_GUARD();
    argument_type = 0;
    return ACL_SUCCESS;
}

/* Returns NULL while dumps of that type are off. The configured path applies to all types. */
const char *do_acldumpGetPath(acldumpType dumpType) {
    bool valid = type_valid((uint32_t)dumpType) || dumpType == DATA_DUMP || dumpType == OVERFLOW_DUMP;
    SIM_GUARD();
    const char *path =
        argument_type != 0 && argument_type == (uint32_t)dumpType ? argument_path : configured_path;
    return valid && *path != '\0' ? path : NULL;
}

/* Writes nothing, because a simulated exception has no tensors. */
aclError do_acldumpSaveExceptionInfo(const char *fileName, const char *userTag,
                                     const acldumpTensorInfo *tensors, size_t tensorCount) {
    (void)userTag;
    bool empty = fileName == NULL || *fileName == '\0';
    bool missing = tensors == NULL && tensorCount > 0;
    return empty || missing ? error_quiet(ACL_INVALID_PARAM, empty ? "fileName" : "tensors") : ACL_SUCCESS;
}

aclError do_acldumpGetExceptionInfoPath(char *path, size_t maxLen) {
    if (path == NULL || maxLen == 0) {
        return error_quiet(ACL_INVALID_PARAM, path == NULL ? "path" : "maxLen");
    }
    aclError rc = ACL_SUCCESS;
    SIM_GUARD();
    const char *found = argument_type != 0 ? argument_path : configured_path;
    size_t length = strlen(found);
    if (length >= maxLen) {
        rc = error_quiet(ACL_INVALID_PARAM, "maxLen");
    } else {
        memcpy(path, found, length + 1);
    }
    return rc;
}
