/* A launch as work, and the common part of all ways to launch. */
#ifndef ACLSIM_LAUNCH_H
#define ACLSIM_LAUNCH_H

#include "kernel.h"

typedef struct {
    work_t work;
    kernel_t *kernel;
    shape_t shape;
    aclrtFuncHandle handle; /* the launched function; NULL: a symbol was launched */
    size_t size;
    char *copy;          /* the arguments, if the launch copied them */
    const void *address; /* otherwise the address of the arguments on the device */
    void *pinned;
    kernel_function_t function; /* the function that was registered when the task began */
    void *user;
    char why[SIM_WHY_BYTES]; /* why the task failed */
} launch_t;

typedef struct {
    const void *bytes;
    size_t size;
    const aclrtPlaceHolderInfo *holders;
    size_t holder_count;
} host_args_t;

/* The data about a failed kernel: the launch with its arguments, the function, and the callback of its
 * binary. */
typedef struct {
    launch_t *launch; /* kept by a reference; NULL: not a kernel */
    aclrtFuncHandle function;
    aclrtOpExceptionCallback callback;
    void *user;
} exception_source_t;

exception_source_t launch_source(const task_t *task);
void launch_source_forget(const exception_source_t *source);
/* The launch of a task, or NULL. */
const launch_t *launch_of(const task_t *task);
/* Called with sim.lock held. */
launch_t *launch_new(kernel_t *kernel, const shape_t *shape);
bool launch_copy_args(launch_t *launch, const void *args, size_t size);
aclError launch_with_host_args(aclrtFuncHandle function, const shape_t *shape, aclrtStream stream,
                               const aclrtLaunchKernelCfg *cfg, const host_args_t *args);
/* `func` is a function handle or the symbol of a kernel. */
aclError launch_with_array(const void *func, const shape_t *shape, aclrtStream stream,
                           const aclrtLaunchKernelCfg *cfg, void *const *args);

/* The text that the function on this thread passed to aclsim_explain(), "" if it passed none. */
const char *kernel_explained(void);
void kernel_explain_nothing(void);

#endif
