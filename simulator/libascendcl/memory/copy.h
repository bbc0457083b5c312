/* The common part of all copies. A copy of a plane has more than one row. */
#ifndef ACLSIM_COPY_H
#define ACLSIM_COPY_H

#include "sim.h"

typedef struct {
    void *dst;
    const void *src;
    size_t count; /* the bytes of a row */
    size_t height;
    size_t dpitch;
    size_t spitch;
    aclrtMemcpyKind kind;
    bool pinned_only; /* pageable memory is refused */
    memory_t to;
    memory_t from;
} copy_t;

/* Called with sim.lock held, which is released during the copy itself. */
aclError copy_now(copy_t *copy);
/* Checks the pointers. Then enqueues the copy on the stream or, with pageable memory, makes the copy at
 * once. */
aclError copy_async(aclrtStream stream, copy_t *copy);
void copy_classify(copy_t *copy);

#endif
