/* Physical memory that is shared by number. The simulator shares nothing between processes: export and import
 * are in the same process. The process id is part of the number, so numbers of other processes are not valid
 * here. */
#include <string.h>
#include <unistd.h>

#include "physical.h"

enum { WITHOUT_LIST = 1 };

static uint64_t shares;

static aclError export_handle(aclrtDrvMemHandle handle, uint64_t flags, void *share) {
    if (flags > WITHOUT_LIST || !place_is_there(share, sizeof(uint64_t))) {
        return error_set(RT_PARAM_INVALID, "flags or shareableHandle");
    }
    SIM_GUARD();
    physical_t *physical = physical_find(handle);
    if (physical == NULL) {
        return RT_DRIVER_ERROR;
    }
    storage_t *storage = physical->storage;
    if (storage->share == 0) {
        storage->share = (uint64_t)getpid() << 32 | ++shares;
    }
    storage->open = storage->open || (flags & WITHOUT_LIST) != 0;
    memcpy(share, &storage->share, sizeof storage->share);
    return ACL_SUCCESS;
}

aclError do_aclrtMemExportToShareableHandle(aclrtDrvMemHandle handle, aclrtMemHandleType handleType,
                                            uint64_t flags, uint64_t *shareableHandle) {
    if (handle == NULL || handleType != ACL_MEM_HANDLE_TYPE_NONE || shareableHandle == NULL) {
        return error_quiet(ACL_INVALID_PARAM, handle == NULL ? "handle" : "handleType or shareableHandle");
    }
    return export_handle(handle, flags, shareableHandle);
}

/* Only other products support sharing between servers. */
static aclError check_type(aclrtMemSharedHandleType type) {
    if (type == ACL_MEM_SHARE_HANDLE_TYPE_FABRIC) {
        return error_quiet(RT_FEATURE_NOT_SUPPORT, "shareType: fabric");
    }
    return type == ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "shareType");
}

aclError do_aclrtMemExportToShareableHandleV2(aclrtDrvMemHandle handle, uint64_t flags,
                                              aclrtMemSharedHandleType shareType, void *shareableHandle) {
    REFUSE_NULL(handle);
    REFUSE_NULL(shareableHandle);
    aclError rc = check_type(shareType);
    return rc == ACL_SUCCESS ? export_handle(handle, flags, shareableHandle) : rc;
}

static bool read_share(const void *from, uint64_t *share) {
    bool there = array_is_there(from, sizeof *share, 1);
    if (there) {
        memcpy(share, from, sizeof *share);
    }
    return there;
}

/* Returns the memory that has the number, or sets the last error and returns NULL. */
static storage_t *find_share(uint64_t share) {
    storage_t *storage = storage_of_share(share);
    if (storage == NULL) {
        usage_note("passes %llu, which is not the handle of live shared memory", (unsigned long long)share);
        error_set(RT_DRIVER_ERROR,
                  "shareableHandle: it does not belong to live memory of this process; " SIM_SHARES_NOTHING);
    }
    return storage;
}

static aclError import_locked(uint64_t share, aclrtDrvMemHandle *handle) {
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    storage_t *storage = find_share(share);
    if (storage == NULL) {
        return RT_DRIVER_ERROR;
    }
    if (!storage->open && !storage->listed) {
        return error_set(RT_DRIVER_ERROR, "shareableHandle: this process is not on the handle's list of "
                                          "importing processes; let the exporter add its pid");
    }
    physical_t *physical = physical_new(storage, storage->size);
    if (physical == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "handle");
    }
    *handle = physical;
    return ACL_SUCCESS;
}

aclError do_aclrtMemImportFromShareableHandle(uint64_t shareableHandle, int32_t deviceId,
                                              aclrtDrvMemHandle *handle) {
    REFUSE_NULL(handle);
    if (device_find(deviceId) == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    SIM_GUARD();
    return import_locked(shareableHandle, handle);
}

aclError do_aclrtMemImportFromShareableHandleV2(void *shareableHandle, aclrtMemSharedHandleType shareType,
                                                uint64_t flags, aclrtDrvMemHandle *handle) {
    if (shareableHandle == NULL || handle == NULL || flags != 0) {
        return error_quiet(ACL_INVALID_PARAM, shareableHandle == NULL ? "shareableHandle" : "handle or flags");
    }
    uint64_t share = 0;
    if (!read_share(shareableHandle, &share)) {
        return error_set(RT_PARAM_INVALID, "shareableHandle");
    }
    SIM_GUARD();
    aclError rc = thread_context() != NULL ? ACL_SUCCESS : error_quiet(RT_CONTEXT_NULL, "current context");
    rc = rc == ACL_SUCCESS ? check_type(shareType) : rc;
    return rc == ACL_SUCCESS ? import_locked(share, handle) : rc;
}

static aclError list_processes(uint64_t share, const int32_t *pids, size_t count) {
    if (!array_is_there(pids, count, sizeof *pids)) {
        return error_set(RT_PARAM_INVALID, "pidNum");
    }
    SIM_GUARD();
    storage_t *storage = find_share(share);
    for (size_t i = 0; storage != NULL && i < count; i++) {
        storage->listed = storage->listed || pids[i] == getpid();
    }
    return storage != NULL ? ACL_SUCCESS : RT_DRIVER_ERROR;
}

aclError do_aclrtMemSetPidToShareableHandle(uint64_t shareableHandle, int32_t *pid, size_t pidNum) {
    if (pid == NULL || pidNum == 0) {
        return error_quiet(ACL_INVALID_PARAM, pid == NULL ? "pid" : "pidNum");
    }
    return list_processes(shareableHandle, pid, pidNum);
}

aclError do_aclrtMemSetPidToShareableHandleV2(void *shareableHandle, aclrtMemSharedHandleType shareType,
                                              int32_t *pid, size_t pidNum) {
    if (shareableHandle == NULL || pid == NULL || pidNum == 0) {
        return error_quiet(ACL_INVALID_PARAM, shareableHandle == NULL ? "shareableHandle" : "pid or pidNum");
    }
    uint64_t share = 0;
    if (!read_share(shareableHandle, &share)) {
        return error_set(RT_PARAM_INVALID, "shareableHandle");
    }
    aclError rc = check_type(shareType);
    return rc == ACL_SUCCESS ? list_processes(share, pid, pidNum) : rc;
}

/* Not supported: only other products can select the link of a mapping. */
aclError do_aclrtMemMapSelectedLink(void *virPtrDst, size_t size, void *virPtrSrc, uint32_t linkIdx) {
    if (virPtrDst == NULL || virPtrSrc == NULL || size == 0 || linkIdx > 1) {
        return error_quiet(ACL_INVALID_PARAM, "virPtrDst, virPtrSrc, size or linkIdx");
    }
    return error_quiet(RT_FEATURE_NOT_SUPPORT, "aclrtMemMapSelectedLink");
}

aclError do_aclrtMemMapSetLink(aclrtDrvMemHandle handle, aclrtMemLinkType adviceLink) {
    (void)adviceLink;
    return handle == NULL ? error_quiet(ACL_INVALID_PARAM, "handle")
                          : error_quiet(RT_FEATURE_NOT_SUPPORT, "aclrtMemMapSetLink");
}
