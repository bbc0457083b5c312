/* Managed memory, page by page. */
#ifndef ACLSIM_MANAGED_H
#define ACLSIM_MANAGED_H

#include "sim.h"

typedef struct {
    bool read_mostly;
    aclrtMemManagedLocation preferred;
    aclrtMemManagedLocation last;
    uint64_t devices; /* devices that access the page */
} managed_page_t;

typedef struct {
    managed_page_t *first;
    size_t count;
} managed_range_t;

/* False: the range does not lie in a block of managed memory. */
bool managed_find(const void *pointer, size_t size, managed_range_t *range);
/* Checks the location. If the location is not valid, sets the last error and returns 107001 or 107000. */
aclError managed_check_location(aclrtMemManagedLocation location);

#endif
