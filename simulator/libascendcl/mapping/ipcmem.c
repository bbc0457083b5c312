/*
 * Device memory that is shared by key. The simulator shares nothing between processes: export and import are in
 * the same process, and an import returns the address of the export.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "block.h"

#define NOT_LISTED                                                                                             \
    "key: this process is not on the key's list of importing processes; let the exporter add its pid"

enum { KEY_BYTES = 65, WITHOUT_LIST = 1, PEER_ACCESS = 1 };

typedef struct export {
    struct export *next;
    char key[KEY_BYTES];
    const block_t *block;
    void *pointer;
    bool open;   /* any process may import it */
    bool listed; /* this process may import it */
    uint32_t imports;
} export_t;

static export_t *exports;
static uint64_t export_count;
static uint64_t keys;

uint64_t ipc_memory_count(void) {
    return export_count;
}

static void export_end(export_t **link) {
    export_t *ended = *link;
    *link = ended->next;
    export_count--;
    free(ended);
}

/* Keys of freed memory are no longer valid. */
void ipc_block_ended(const block_t *block) {
    export_t **link = &exports;
    while (*link != NULL) {
        if ((*link)->block == block) {
            export_end(link);
        } else {
            link = &(*link)->next;
        }
    }
}

/* Finds the link of the list that points at the export. Requires a context. */
static aclError find_key(const char *key, export_t ***link) {
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    for (*link = &exports; **link != NULL; *link = &(**link)->next) {
        if (strncmp((**link)->key, key, KEY_BYTES) == 0) {
            return ACL_SUCCESS;
        }
    }
    return error_set(RT_DRIVER_ERROR,
                     "key: it does not belong to a live export of this process; " SIM_SHARES_NOTHING);
}

/* Returns the block of device memory that contains the range, or NULL. */
static const block_t *find_shareable(const void *pointer, size_t size) {
    const block_t *block = block_find(pointer);
    bool device = block != NULL && (block->kind == BLOCK_DEVICE || block->kind == BLOCK_POOL);
    size_t offset = device ? (size_t)((const char *)pointer - block->base) : 0;
    return device && size <= block->capacity - offset ? block : NULL;
}

static aclError export_locked(void *pointer, size_t size, char *key, uint64_t flags) {
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    const block_t *block = find_shareable(pointer, size);
    if (block == NULL) {
        return error_set(RT_DRIVER_ERROR, "devPtr or size");
    }
    export_t *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "key");
    }
    *made = (export_t){.next = exports, .block = block, .pointer = pointer};
    made->open = (flags & WITHOUT_LIST) != 0;
    snprintf(made->key, sizeof made->key, "aclsim-%d-%016llx", (int)getpid(), (unsigned long long)++keys);
    exports = made;
    export_count++;
    memcpy(key, made->key, KEY_BYTES);
    return ACL_SUCCESS;
}

aclError do_aclrtIpcMemGetExportKey(void *devPtr, size_t size, char *key, size_t len, uint64_t flags) {
    REFUSE_NULL(devPtr);
    REFUSE_NULL(key);
    if (size == 0 || len < KEY_BYTES || flags > WITHOUT_LIST) {
        return error_set(RT_PARAM_INVALID, size == 0 ? "size" : "len or flags");
    }
    SIM_GUARD();
    return export_locked(devPtr, size, key, flags);
}

aclError do_aclrtIpcMemImportByKey(void **devPtr, const char *key, uint64_t flags) {
    REFUSE_NULL(devPtr);
    REFUSE_NULL(key);
    if (flags > PEER_ACCESS) {
        return error_set(RT_PARAM_INVALID, "flags");
    }
    export_t **link = NULL;
    SIM_GUARD();
    aclError rc = find_key(key, &link);
    if (rc == ACL_SUCCESS && !(*link)->open && !(*link)->listed) {
        rc = error_set(RT_DRIVER_ERROR, NOT_LISTED);
    } else if (rc == ACL_SUCCESS) {
        (*link)->imports++;
        *devPtr = (*link)->pointer;
    }
    return rc;
}

/* Closes one import of the key. If no import is left, closes the export instead. */
aclError do_aclrtIpcMemClose(const char *key) {
    REFUSE_NULL(key);
    export_t **link = NULL;
    SIM_GUARD();
    aclError rc = find_key(key, &link);
    if (rc == ACL_SUCCESS && (*link)->imports > 0) {
        (*link)->imports--;
    } else if (rc == ACL_SUCCESS) {
        export_end(link);
    }
    return rc;
}

aclError do_aclrtIpcMemSetImportPid(const char *key, int32_t *pid, size_t num) {
    REFUSE_NULL(key);
    REFUSE_NULL(pid);
    if ((int32_t)num <= 0 || !array_is_there(pid, (size_t)(int32_t)num, sizeof *pid)) {
        return error_set(RT_PARAM_INVALID, "num");
    }
    export_t **link = NULL;
    SIM_GUARD();
    aclError rc = find_key(key, &link);
    for (int32_t i = 0; rc == ACL_SUCCESS && i < (int32_t)num; i++) {
        (*link)->listed = (*link)->listed || pid[i] == getpid();
    }
    return rc;
}

/* Not supported: only other products can select links between chips and between servers. */
aclError do_aclrtIpcMemSetAttr(const char *key, aclrtIpcMemAttrType type, uint64_t attr) {
    (void)type;
    (void)attr;
    return key == NULL ? error_set(RT_PARAM_INVALID, "key")
                       : error_quiet(RT_FEATURE_NOT_SUPPORT, "aclrtIpcMemSetAttr");
}

aclError do_aclrtIpcMemImportPidInterServer(const char *key, aclrtServerPid *serverPids, size_t num) {
    if (key == NULL || serverPids == NULL || num == 0) {
        return error_set(RT_PARAM_INVALID, key == NULL ? "key" : "serverPids or num");
    }
    return error_quiet(RT_FEATURE_NOT_SUPPORT, "aclrtIpcMemImportPidInterServer");
}

/* Simulated devices access each other's memory without page tables, so only the arguments are checked. */
aclError do_aclrtMemP2PMap(void *devPtr, size_t size, int32_t dstDevId, uint64_t flags) {
    if (devPtr == NULL || size == 0 || flags != 0) {
        return error_quiet(ACL_INVALID_PARAM, devPtr == NULL ? "devPtr" : "size or flags");
    }
    if (device_find(dstDevId) == NULL) {
        return error_set(RT_INVALID_DEVICE, "dstDevId");
    }
    SIM_GUARD();
    aclError rc = context_need() != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS && find_shareable(devPtr, size) == NULL) {
        rc = error_set(RT_DRIVER_ERROR, "devPtr or size");
    }
    return rc;
}
