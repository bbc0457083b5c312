/*
 * Snapshots of a process. A client locks, backs up, restores and unlocks the process. While the process is
 * locked, calls that create or launch something wait. A real runtime moves the data of the devices to the host
 * and back. The simulator moves no data, because all memory is host memory.
 */
#include <unistd.h>

#include "registry.h"

enum { STAGES = ACL_RT_SNAPSHOT_UNLOCK_POST + 1, CALLBACKS_MAX = 32 };

typedef enum { RUNNING, LOCKED, BACKED_UP } state_t;

typedef struct {
    aclrtSnapShotCallBack function; /* NULL: the entry is free */
    void *arg;
} told_t;

static told_t callbacks[STAGES][CALLBACKS_MAX]; /* protected by sim.lock */
static _Atomic state_t state;                   /* changed under sim.lock */
static wait_list_t waiters;

void snapshot_pass(void) {
    if (atomic_load_explicit(&state, memory_order_relaxed) == RUNNING) {
        return;
    }
    SIM_GUARD();
    while (atomic_load(&state) != RUNNING) {
        waiter_t waiter;
        wait_add(&waiters, &waiter, 0);
        wait_for(&waiter, SIM_FOREVER);
    }
}

void snapshot_end(void) {
    atomic_store(&state, RUNNING);
    wait_finish_all(&waiters, 0);
}

/* Checks the arguments of the four aclrtSnapShotProcess functions. Before 9.1 they had no second argument. */
static aclError check(int pid, const void *reserve) {
    bool reserved = reserve != NULL && sim.settings.cann >= CANN_9_1;
    if (pid != (int)getpid() || reserved) {
        return error_quiet(ACL_INVALID_PARAM, reserved ? "reserve" : "pid");
    }
    return ACL_SUCCESS;
}

static aclError tell_device(int32_t device, aclrtSnapShotStage stage) {
    aclError rc = ACL_SUCCESS;
    for (int i = 0; i < CALLBACKS_MAX && rc == ACL_SUCCESS; i++) {
        told_t entry = callbacks[stage][i];
        if (entry.function != NULL) {
            bool before = registry_leave();
            bool agreed = entry.function(device, entry.arg) == 0;
            registry_return(before);
            rc = agreed ? ACL_SUCCESS : error_set(RT_SNAPSHOT_CALLBACK_FAILED, "callback");
        }
    }
    return rc;
}

/* Calls the callbacks once for each device that is set. */
static aclError tell(aclrtSnapShotStage stage) {
    aclError rc = ACL_SUCCESS;
    for (int i = 0; i < sim.settings.devices && rc == ACL_SUCCESS; i++) {
        rc = sim.devices[i].retains > 0 ? tell_device(i, stage) : ACL_SUCCESS;
    }
    return rc;
}

aclError do_aclrtSnapShotProcessLock(int pid, void *reserve) {
    aclError rc = check(pid, reserve);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    SIM_GUARD();
    rc = atomic_load(&state) == RUNNING ? tell(ACL_RT_SNAPSHOT_LOCK_PRE)
                                        : error_set(RT_SNAPSHOT_LOCK_FAILED, "state");
    if (rc == ACL_SUCCESS) {
        atomic_store(&state, LOCKED);
    }
    return rc;
}

aclError do_aclrtSnapShotProcessUnlock(int pid, void *reserve) {
    aclError rc = check(pid, reserve);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    SIM_GUARD();
    if (atomic_load(&state) == LOCKED) {
        snapshot_end();
        rc = tell(ACL_RT_SNAPSHOT_UNLOCK_POST);
    } else {
        rc = error_set(RT_SNAPSHOT_UNLOCK_FAILED, "state");
    }
    return rc;
}

/* Changes the state from `from` to `to`, and calls the callbacks before and after the change. */
static aclError move(state_t from, state_t to, aclrtSnapShotStage before, aclError refusal) {
    SIM_GUARD();
    aclError rc = atomic_load(&state) == from ? tell(before) : error_set(refusal, "state");
    if (rc == ACL_SUCCESS) {
        atomic_store(&state, to);
        rc = tell((aclrtSnapShotStage)(before + 1));
    }
    return rc;
}

aclError do_aclrtSnapShotProcessBackup(int pid, aclrtSnapShotBackupArgs *args) {
    aclError rc = check(pid, args);
    return rc != ACL_SUCCESS ? rc
                             : move(LOCKED, BACKED_UP, ACL_RT_SNAPSHOT_BACKUP_PRE, RT_SNAPSHOT_BACKUP_FAILED);
}

aclError do_aclrtSnapShotProcessRestore(int pid, aclrtSnapShotRestoreArgs *args) {
    aclError rc = check(pid, args);
    return rc != ACL_SUCCESS ? rc
                             : move(BACKED_UP, LOCKED, ACL_RT_SNAPSHOT_RESTORE_PRE, RT_SNAPSHOT_RESTORE_FAILED);
}

static aclError check_callback(aclrtSnapShotStage stage, aclrtSnapShotCallBack callback) {
    bool valid = (unsigned int)stage < STAGES && callback != NULL;
    return valid ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, callback == NULL ? "callback" : "stage");
}

static told_t *find(aclrtSnapShotStage stage, aclrtSnapShotCallBack callback) {
    for (int i = 0; i < CALLBACKS_MAX; i++) {
        if (callbacks[stage][i].function == callback) {
            return &callbacks[stage][i];
        }
    }
    return NULL;
}

aclError do_aclrtSnapShotCallbackRegister(aclrtSnapShotStage stage, aclrtSnapShotCallBack callback,
                                          void *args) {
    aclError rc = check_callback(stage, callback);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    SIM_GUARD();
    told_t *place = find(stage, callback) == NULL ? find(stage, NULL) : NULL;
    if (place != NULL) {
        *place = (told_t){.function = callback, .arg = args};
    } else {
        rc = error_set(RT_SNAPSHOT_REGISTER_FAILED, "callback");
    }
    return rc;
}

aclError do_aclrtSnapShotCallbackUnregister(aclrtSnapShotStage stage, aclrtSnapShotCallBack callback) {
    aclError rc = check_callback(stage, callback);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    SIM_GUARD();
    told_t *place = find(stage, callback);
    if (place != NULL) {
        place->function = NULL;
    } else {
        rc = error_set(RT_PARAM_INVALID, "callback");
    }
    return rc;
}
