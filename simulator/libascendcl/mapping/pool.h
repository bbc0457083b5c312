/* Pools of device memory. */
#ifndef ACLSIM_POOL_H
#define ACLSIM_POOL_H

#include "sim.h"

typedef struct {
    object_t object;
    device_t *device;
    uint64_t most;
    uint64_t threshold; /* bytes of free memory that the pool keeps when a call synchronizes */
    uint64_t used;
    uint64_t used_high;
    uint64_t reserved; /* bytes taken from the device */
    uint64_t reserved_high;
    int32_t reuse[ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES + 1];
} mempool_t;

/* Returns the pool of a handle, or sets the last error and returns NULL. */
mempool_t *pool_find(const void *handle);

#endif
