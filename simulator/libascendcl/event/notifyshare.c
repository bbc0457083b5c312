/* Notifies by id and by key, and resets of notifies by the host. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

enum { KEY_BYTES = 65, EXPORT_FLAG_NO_PID_CHECK = 0x2, IMPORT_FLAG_PEER_ACCESS = 0x2 };

static const char key_format[] = "aclsim-notify-%ld-%p";

static aclError find_in_context(aclrtNotify handle, notify_t **notify) {
    aclError rc = notify_find(handle, notify);
    return rc == ACL_SUCCESS && context_need() == NULL ? RT_CONTEXT_NULL : rc;
}

aclError do_aclrtGetNotifyId(aclrtNotify notify, uint32_t *notifyId) {
    REFUSE_NULL(notify);
    REFUSE_NULL(notifyId);
    notify_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_in_context(notify, &found);
    if (rc == ACL_SUCCESS) {
        *notifyId = found->shared != NULL ? found->shared->object.index : found->object.index;
    }
    return rc;
}

static aclError reset(aclrtNotify handle) {
    notify_t *notify = NULL;
    aclError rc = handle != NULL ? notify_find(handle, &notify) : error_set(RT_PARAM_INVALID, "notifies");
    if (rc == ACL_SUCCESS && context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    if (rc == ACL_SUCCESS) {
        notify = notify->shared != NULL ? notify->shared : notify;
        notify->flag = false;
    }
    return rc;
}

/* The host resets the notifies at once, up to the first invalid handle. */
aclError do_aclrtNotifyBatchReset(aclrtNotify *notifies, size_t num) {
    REFUSE_NULL(notifies);
    if (num == 0) {
        return error_set(RT_PARAM_INVALID, "num");
    }
    SIM_GUARD();
    aclError rc = ACL_SUCCESS;
    for (size_t i = 0; i < num && rc == ACL_SUCCESS; i++) {
        rc = reset(notifies[i]);
    }
    return rc;
}

aclError do_aclrtNotifyGetExportKey(aclrtNotify notify, char *key, size_t len, uint64_t flags) {
    REFUSE_NULL(notify);
    REFUSE_NULL(key);
    if (len < KEY_BYTES || (flags & ~(uint64_t)EXPORT_FLAG_NO_PID_CHECK) != 0) {
        return error_set(RT_PARAM_INVALID, len < KEY_BYTES ? "len" : "flags");
    }
    notify_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_in_context(notify, &found);
    if (rc == ACL_SUCCESS) {
        notify_t *owner = found->shared != NULL ? found->shared : found;
        snprintf(key, len, key_format, (long)getpid(), (void *)owner);
    }
    return rc;
}

/* Returns the live notify of a key that this process has exported. Keys of other processes are not found. */
static notify_t *find_key(const char *key) {
    char own[KEY_BYTES];
    void *handle = NULL;
    long process = 0;
    if (memchr(key, 0, KEY_BYTES) == NULL || sscanf(key, key_format, &process, &handle) != 2) {
        return NULL;
    }
    snprintf(own, sizeof own, key_format, (long)getpid(), handle);
    return strcmp(own, key) == 0 ? object_find(KIND_NOTIFY, handle) : NULL;
}

aclError do_aclrtNotifyImportByKey(aclrtNotify *notify, const char *key, uint64_t flags) {
    REFUSE_NULL(notify);
    REFUSE_NULL(key);
    if ((flags & ~(uint64_t)IMPORT_FLAG_PEER_ACCESS) != 0) {
        return error_set(RT_PARAM_INVALID, "flags");
    }
    SIM_GUARD();
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    notify_t *owner = find_key(key);
    if (owner == NULL) {
        return error_set(RT_PARAM_INVALID,
                         "key: it does not belong to a live notify of this process; " SIM_SHARES_NOTHING);
    }
    notify_t *made = notify_new(owner->device);
    if (made == NULL) {
        return error_set(RT_NO_NOTIFY_RESOURCE, "notify");
    }
    object_retain(&owner->object);
    made->shared = owner;
    *notify = made;
    return ACL_SUCCESS;
}

/* The list of processes that may import the notify is checked and not stored, because only this process can
 * import it. */
static aclError check_list(aclrtNotify notify, const void *list, size_t num) {
    if (notify == NULL || list == NULL) {
        return error_quiet(ACL_INVALID_PARAM, notify == NULL ? "notify" : "pid");
    }
    if (num == 0) {
        return error_set(RT_PARAM_INVALID, "num");
    }
    notify_t *found = NULL;
    SIM_GUARD();
    return find_in_context(notify, &found);
}

aclError do_aclrtNotifySetImportPid(aclrtNotify notify, int32_t *pid, size_t num) {
    return check_list(notify, pid, num);
}

aclError do_aclrtNotifySetImportPidInterServer(aclrtNotify notify, aclrtServerPid *serverPids, size_t num) {
    return check_list(notify, serverPids, num);
}
