/* Physical memory, without addresses. */
#ifndef ACLSIM_PHYSICAL_H
#define ACLSIM_PHYSICAL_H

#include "block.h"

/* Bytes for which there may be several handles. */
typedef struct {
    int file;
    size_t size;
    uint32_t refs;
    uint64_t share;   /* the number from which other handles are created; 0: it has not been exported */
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

/* The memory behind a handle, or NULL; then the error is kept. */
physical_t *physical_find(const void *handle);
/* Another handle for the same bytes; NULL if no memory is left. */
physical_t *physical_new(storage_t *storage, size_t size);
/* Frees the memory if it has neither a handle nor a mapping. */
void physical_settle(physical_t *physical);
storage_t *storage_of_share(uint64_t share);
/* Whether memory with these attributes exists; if not, keeps the text and returns 100000. */
aclError physical_check_prop(const aclrtPhysicalMemProp *prop);
size_t physical_granularity(const aclrtPhysicalMemProp *prop);

#endif
