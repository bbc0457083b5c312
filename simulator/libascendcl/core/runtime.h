/*
 * The interface between libascendcl.so and libruntime.so. As in CANN, libruntime.so holds the callbacks of
 * rtRegTaskFailCallbackByModule(), and libascendcl.so calls them when a task has failed. The library of
 * CANN 8.1 has no libruntime.so.
 */
#ifndef ACLSIM_RUNTIME_H
#define ACLSIM_RUNTIME_H

#include <stdint.h>

/* The first members of the real rtExceptionInfo. */
typedef struct {
    uint32_t task;
    uint32_t stream;
    uint32_t thread; /* the thread that enqueued the task */
    uint32_t device;
    uint32_t code;
} runtime_exception_t;

typedef void (*runtime_callback_t)(runtime_exception_t *info);

/* Returns 0, or 107000 if the name is missing or too long. A NULL callback ends the registration of that name.
 */
int32_t rtRegTaskFailCallbackByModule(const char *name, runtime_callback_t callback);
/* Calls all registered callbacks, in the order in which their names were first registered. */
void aclsim_runtime_deliver(runtime_exception_t *info);

#endif
