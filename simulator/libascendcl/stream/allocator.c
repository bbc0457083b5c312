/* Allocators that a client registers for a stream: stored and returned. The simulator does not allocate through
 * them. */
#include <string.h>

#include "described.h"

enum { REGISTERED_MAX = 256 };

typedef struct {
    const stream_t *stream; /* NULL: the entry is free */
    allocator_functions_t functions;
} registered_t;

static registered_t registry[REGISTERED_MAX]; /* protected by sim.lock */

aclrtAllocatorDesc do_aclrtAllocatorCreateDesc(void) {
    return described_new(KIND_ALLOCATOR);
}

aclError do_aclrtAllocatorDestroyDesc(aclrtAllocatorDesc allocatorDesc) {
    SIM_GUARD();
    allocator_t *found = described_find(KIND_ALLOCATOR, allocatorDesc, "allocatorDesc");
    if (found != NULL) {
        object_kill(&found->object);
    }
    return found != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

/* Sets the field at an offset to the pointer at `value`. A NULL pointer counts as a missing argument. */
static aclError set_field(aclrtAllocatorDesc desc, size_t offset, const void *value) {
    static const char nothing[sizeof(void *)];
    if (memcmp(value, nothing, sizeof nothing) == 0) {
        return error_quiet(ACL_INVALID_PARAM, "value");
    }
    SIM_GUARD();
    allocator_t *found = described_find(KIND_ALLOCATOR, desc, "allocatorDesc");
    if (found != NULL) {
        memcpy((char *)&found->functions + offset, value, sizeof nothing);
    }
    return found != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

aclError do_aclrtAllocatorSetObjToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocator allocator) {
    return set_field(allocatorDesc, offsetof(allocator_functions_t, allocator), &allocator);
}

aclError do_aclrtAllocatorSetAllocFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorAllocFunc func) {
    return set_field(allocatorDesc, offsetof(allocator_functions_t, allocate), &func);
}

aclError do_aclrtAllocatorSetFreeFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorFreeFunc func) {
    return set_field(allocatorDesc, offsetof(allocator_functions_t, release), &func);
}

aclError do_aclrtAllocatorSetAllocAdviseFuncToDesc(aclrtAllocatorDesc allocatorDesc,
                                                   aclrtAllocatorAllocAdviseFunc func) {
    return set_field(allocatorDesc, offsetof(allocator_functions_t, advise), &func);
}

aclError do_aclrtAllocatorSetGetAddrFromBlockFuncToDesc(aclrtAllocatorDesc allocatorDesc,
                                                        aclrtAllocatorGetAddrFromBlockFunc func) {
    return set_field(allocatorDesc, offsetof(allocator_functions_t, address), &func);
}

static registered_t *registered_find(const stream_t *stream) {
    for (int i = 0; i < REGISTERED_MAX; i++) {
        if (registry[i].stream == stream) {
            return &registry[i];
        }
    }
    return NULL;
}

void allocator_forget(const stream_t *stream) {
    registered_t *place = registered_find(stream);
    if (place != NULL) {
        place->stream = NULL;
    }
}

/* Copies the values of the description, which may be destroyed afterwards. */
static aclError register_for(aclrtStream handle, const allocator_t *allocator) {
    stream_t *stream = NULL;
    const allocator_functions_t *functions = &allocator->functions;
    bool whole = functions->allocator != NULL && functions->allocate != NULL && functions->release != NULL &&
                 functions->advise != NULL && functions->address != NULL;
    if (!whole) {
        return error_quiet(ACL_INVALID_PARAM, "allocatorDesc");
    }
    aclError rc = stream_find_handle(handle, &stream);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    registered_t *place = registered_find(stream);
    place = place != NULL ? place : registered_find(NULL);
    if (place == NULL) {
        return error_set(RT_INTERNAL_ERROR, "stream");
    }
    *place = (registered_t){.stream = stream, .functions = *functions};
    return ACL_SUCCESS;
}

aclError do_aclrtAllocatorRegister(aclrtStream stream, aclrtAllocatorDesc allocatorDesc) {
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    allocator_t *found = described_find(KIND_ALLOCATOR, allocatorDesc, "allocatorDesc");
    if (found != NULL) {
        found->functions.described = allocatorDesc;
        rc = register_for(stream, found);
    }
    return rc;
}

aclError do_aclrtAllocatorGetByStream(aclrtStream stream, aclrtAllocatorDesc *allocatorDesc,
                                      aclrtAllocator *allocator, aclrtAllocatorAllocFunc *allocFunc,
                                      aclrtAllocatorFreeFunc *freeFunc,
                                      aclrtAllocatorAllocAdviseFunc *allocAdviseFunc,
                                      aclrtAllocatorGetAddrFromBlockFunc *getAddrFromBlockFunc) {
    if (allocatorDesc == NULL || allocator == NULL || allocFunc == NULL || freeFunc == NULL ||
        allocAdviseFunc == NULL || getAddrFromBlockFunc == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "output");
    }
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_find_handle(stream, &found);
    const registered_t *place = rc == ACL_SUCCESS ? registered_find(found) : NULL;
    if (place != NULL) {
        *allocatorDesc = place->functions.described;
        *allocator = place->functions.allocator;
        *allocFunc = place->functions.allocate;
        *freeFunc = place->functions.release;
        *allocAdviseFunc = place->functions.advise;
        *getAddrFromBlockFunc = place->functions.address;
    } else if (rc == ACL_SUCCESS) {
        rc = error_quiet(ACL_INVALID_PARAM, "stream");
    }
    return rc;
}

/* For a stream without an allocator, the call has no effect. */
aclError do_aclrtAllocatorUnregister(aclrtStream stream) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = stream_find_handle(stream, &found);
    if (rc == ACL_SUCCESS) {
        allocator_forget(found);
    }
    return rc;
}
