/* Physical memory, without addresses. */
#ifndef ACLSIM_PHYSICAL_H
#define ACLSIM_PHYSICAL_H

#include "block.h"

/* Physical bytes. Several handles may refer to them. */
typedef struct {
    int file;
    size_t size;
    uint32_t refs;
    uint64_t share;   /* the number from which other handles are created; 0: not exported */
    bool open;        /* any process may import it */
    bool listed;      /* this process may import it */
    device_t *device; /* NULL: host memory */
    aclrtPhysicalMemProp prop;
} storage_t;

typedef struct {
    object_t object;
    storage_t *storage;
    size_t size; /* requested bytes */
    uint32_t handles;
    uint32_t maps;
} physical_t;

/* Returns the memory of a handle, or sets the last error and returns NULL. */
physical_t *physical_find(const void *handle);
/* Creates another handle for the same bytes; NULL if no memory is left. */
physical_t *physical_new(storage_t *storage, size_t size);
/* Frees the memory if it has no handle and no mapping. */
void physical_settle(physical_t *physical);
storage_t *storage_of_share(uint64_t share);

#endif
