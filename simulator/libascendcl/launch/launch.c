/*
 * Launches of registered kernels. A launch is a work_t: the kernel, the shape of the launch, and the arguments.
 * The arguments are a copy made at the launch, or device memory that is read when the task runs.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"

/* The text that the kernel on this thread passed to aclsim_explain(). */
static _Thread_local char explained[SIM_WHY_BYTES - 80];

API void aclsim_explain(const char *why) {
    snprintf(explained, sizeof explained, "%s", why != NULL ? why : "");
}

const char *kernel_explained(void) {
    return explained;
}

void kernel_explain_nothing(void) {
    *explained = '\0';
}

static aclError fail(launch_t *launch, aclError code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static aclError fail(launch_t *launch, aclError code, const char *format, ...) {
    int length = snprintf(launch->why, sizeof launch->why, "kernel %.60s: ", launch->kernel->name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(launch->why + length, sizeof launch->why - (size_t)length, format, arguments);
    va_end(arguments);
    return code;
}

static aclError begin(work_t *work, const stream_t *stream) {
    launch_t *launch = (launch_t *)work;
    (void)stream;
    launch->function = launch->kernel->function;
    launch->user = launch->kernel->user;
    if (launch->function == NULL) {
        return fail(launch, RT_AICORE_EXCEPTION, "it is no longer registered");
    }
    if (launch->copy == NULL && launch->size != 0 &&
        !memory_pin(launch->address, launch->size, &launch->pinned)) {
        return fail(launch, RT_AICORE_EXCEPTION,
                    "argsData, %zu bytes at %p, is not device memory; "
                    "call aclrtLaunchKernelWithHostArgs for host memory",
                    launch->size, launch->address);
    }
    return 0;
}

static aclError code_of_answer(launch_t *launch, int answer) {
    if (answer == 0) {
        return 0;
    }
    aclError code = answer >= ACL_INVALID_PARAM ? answer : RT_AICORE_EXCEPTION;
    return *explained != '\0' ? fail(launch, code, "%s", explained)
                              : fail(launch, code, "its function returned %d", answer);
}

static aclError run(work_t *work, const stream_t *stream) {
    launch_t *launch = (launch_t *)work;
    aclsim_launch_t argument = {
        .name = launch->kernel->name,
        .args = launch->copy != NULL ? launch->copy : launch->address,
        .args_size = launch->size,
        .num_blocks = launch->shape.num_blocks,
        .dynamic_bytes = launch->shape.dynamic_bytes,
        .device = stream->device->id,
        .stream = (void *)(uintptr_t)stream,
        .user = launch->user,
    };
    memcpy(argument.grid, launch->shape.grid, sizeof argument.grid);
    memcpy(argument.block, launch->shape.block, sizeof argument.block);
    thread_t *thread = thread_self();
    thread->callback_depth++;
    kernel_explain_nothing();
    int answer = launch->function(&argument);
    thread->callback_depth--;
    return code_of_answer(launch, answer);
}

static void end(work_t *work) {
    launch_t *launch = (launch_t *)work;
    memory_unpin(launch->pinned);
    launch->pinned = NULL;
}

static void release(work_t *work) {
    launch_t *launch = (launch_t *)work;
    kernel_release(launch->kernel);
    free(launch->copy);
}

static const work_ops_t launch_ops = {.begin = begin, .run = run, .end = end, .free = release, .reports = true};

const launch_t *launch_of(const task_t *task) {
    bool launch = task->kind == TASK_WORK && task->work->ops == &launch_ops;
    return launch ? (const launch_t *)task->work : NULL;
}

const char *launch_why(const task_t *task) {
    const launch_t *launch = launch_of(task);
    return launch != NULL ? launch->why : "";
}

exception_source_t launch_source(const task_t *task) {
    launch_t *launch = launch_of(task) != NULL ? (launch_t *)task->work : NULL;
    const function_handle_t *function = launch != NULL ? object_find(KIND_FUNCTION, launch->handle) : NULL;
    if (launch != NULL) {
        work_retain(&launch->work);
    }
    if (function == NULL) {
        return (exception_source_t){.launch = launch};
    }
    const binary_t *binary = function->binary;
    return (exception_source_t){.launch = launch,
                                .function = launch->handle,
                                .callback = binary != NULL ? binary->callback : NULL,
                                .user = binary != NULL ? binary->user : NULL};
}

void launch_source_forget(const exception_source_t *source) {
    if (source->launch != NULL) {
        work_release(&source->launch->work);
    }
}

launch_t *launch_new(kernel_t *kernel, const shape_t *shape) {
    launch_t *launch = work_new(&launch_ops, sizeof *launch);
    if (launch != NULL) {
        launch->kernel = kernel;
        launch->shape = *shape;
        kernel_retain(kernel);
    }
    return launch;
}

bool launch_copy_args(launch_t *launch, const void *args, size_t size) {
    launch->copy = array_is_there(args, size, 1) ? malloc(size != 0 ? size : 1) : NULL;
    launch->size = size;
    if (launch->copy != NULL && size != 0) {
        memcpy(launch->copy, args, size);
    }
    return launch->copy != NULL;
}

static shape_t flat(uint32_t num_blocks) {
    return (shape_t){.num_blocks = num_blocks, .grid = {num_blocks, 1, 1}, .block = {1, 1, 1}};
}

/* Attributes are checked and have no effect, because a simulated kernel uses no cores. */
static aclError check_config(const aclrtLaunchKernelCfg *cfg) {
    if (cfg == NULL || cfg->numAttrs == 0) {
        return ACL_SUCCESS;
    }
    if (cfg->attrs == NULL || !array_is_there(cfg->attrs, cfg->numAttrs, sizeof *cfg->attrs)) {
        return error_set(RT_PARAM_INVALID, "cfg: attrs");
    }
    for (size_t i = 0; i < cfg->numAttrs; i++) {
        int id = (int)cfg->attrs[i].id;
        if (id < ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE || id > ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING) {
            return error_set(RT_PARAM_INVALID, "cfg: the id of an attribute");
        }
    }
    return ACL_SUCCESS;
}

static aclError check(const shape_t *shape, const aclrtLaunchKernelCfg *cfg) {
    bool empty = shape->num_blocks == 0;
    for (int i = 0; i < 3; i++) {
        empty = empty || shape->grid[i] == 0 || shape->block[i] == 0;
    }
    return empty ? error_set(RT_PARAM_INVALID, "number of blocks") : check_config(cfg);
}

/* Creates the work of a launch for a function or symbol, without arguments. Called with sim.lock held. */
static aclError make(aclrtFuncHandle handle, const shape_t *shape, launch_t **launch) {
    const function_handle_t *function = object_find(KIND_FUNCTION, handle);
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    kernel_t *kernel = function != NULL ? function->kernel : kernel_of_symbol(handle);
    if (kernel == NULL) {
        return usage_bad_handle(KIND_FUNCTION, handle);
    }
    *launch = launch_new(kernel, shape);
    if (*launch != NULL && function != NULL) {
        (*launch)->handle = handle;
    }
    return *launch != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "launch");
}

/* The arguments are in device memory, and are read when the task runs. */
aclError do_aclrtLaunchKernelV2(aclrtFuncHandle funcHandle, uint32_t numBlocks, const void *argsData,
                                size_t argsSize, aclrtLaunchKernelCfg *cfg, aclrtStream stream) {
    if (funcHandle == NULL || (argsData == NULL && argsSize != 0)) {
        return error_quiet(ACL_INVALID_PARAM, funcHandle == NULL ? "funcHandle" : "argsData");
    }
    shape_t shape = flat(numBlocks);
    aclError rc = check(&shape, cfg);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    launch_t *launch = NULL;
    SIM_GUARD();
    rc = make(funcHandle, &shape, &launch);
    if (rc == ACL_SUCCESS) {
        launch->address = argsData;
        launch->size = argsSize;
        rc = work_enqueue_locked(stream, TASK_WORK, &launch->work);
    }
    return rc;
}

aclError do_aclrtLaunchKernel(aclrtFuncHandle funcHandle, uint32_t numBlocks, const void *argsData,
                              size_t argsSize, aclrtStream stream) {
    return do_aclrtLaunchKernelV2(funcHandle, numBlocks, argsData, argsSize, NULL, stream);
}

static aclError fill_from_list(launch_t *launch, aclrtFuncHandle function, aclrtArgsHandle handle) {
    args_t *args = NULL;
    aclError rc = args_find(handle, &args);
    if (rc == ACL_SUCCESS && (!args->finalized || args->function != function)) {
        rc = error_set(RT_PARAM_INVALID, "argsHandle: it is not finalized, or belongs to another function");
    }
    if (rc == ACL_SUCCESS) {
        launch->copy = args_assemble(args, &launch->size);
        rc = launch->copy != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "argsHandle");
    }
    return rc;
}

static aclError enqueue_filled(aclrtStream stream, launch_t *launch, aclError rc) {
    if (rc == ACL_SUCCESS) {
        return work_enqueue(stream, TASK_WORK, &launch->work);
    }
    if (launch != NULL) {
        SIM_GUARD();
        work_release(&launch->work);
    }
    return rc;
}

aclError do_aclrtLaunchKernelWithConfig(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream,
                                        aclrtLaunchKernelCfg *cfg, aclrtArgsHandle argsHandle, void *reserve) {
    REFUSE_NULL(funcHandle);
    REFUSE_NULL(argsHandle);
    shape_t shape = flat(numBlocks);
    aclError rc = reserve == NULL ? check(&shape, cfg) : error_set(RT_PARAM_INVALID, "reserve");
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    launch_t *launch = NULL;
    sim_lock();
    rc = make(funcHandle, &shape, &launch);
    rc = rc == ACL_SUCCESS ? fill_from_list(launch, funcHandle, argsHandle) : rc;
    sim_unlock();
    return enqueue_filled(stream, launch, rc);
}

static bool place_holders_fit(const aclrtPlaceHolderInfo *holders, size_t count, size_t size) {
    for (size_t i = 0; i < count; i++) {
        bool fits = holders[i].addrOffset + sizeof(void *) <= size && holders[i].dataOffset < size;
        if (!fits) {
            return false;
        }
    }
    return true;
}

/* Each placeholder gets the address of its data in the launch's own copy. */
static void patch(launch_t *launch, const aclrtPlaceHolderInfo *holders, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *address = launch->copy + holders[i].dataOffset;
        memcpy(launch->copy + holders[i].addrOffset, &address, sizeof address);
    }
}

aclError launch_with_host_args(aclrtFuncHandle function, const shape_t *shape, aclrtStream stream,
                               const aclrtLaunchKernelCfg *cfg, const host_args_t *args) {
    if (function == NULL || args->bytes == NULL || (args->holders == NULL && args->holder_count != 0)) {
        return error_quiet(ACL_INVALID_PARAM, function == NULL ? "funcHandle" : "hostArgs or placeHolderArray");
    }
    aclError rc = check(shape, cfg);
    if (rc == ACL_SUCCESS && args->size == 0) {
        rc = error_set(RT_PARAM_INVALID, "argsSize");
    }
    if (rc == ACL_SUCCESS && !place_holders_fit(args->holders, args->holder_count, args->size)) {
        rc = error_set(RT_PARAM_INVALID, "placeHolderArray");
    }
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    launch_t *launch = NULL;
    sim_lock();
    rc = make(function, shape, &launch);
    if (rc == ACL_SUCCESS && !launch_copy_args(launch, args->bytes, args->size)) {
        rc = error_set(RT_MEMORY_ALLOCATION, "hostArgs");
    } else if (rc == ACL_SUCCESS) {
        patch(launch, args->holders, args->holder_count);
    }
    sim_unlock();
    return enqueue_filled(stream, launch, rc);
}

aclError do_aclrtLaunchKernelWithHostArgs(aclrtFuncHandle funcHandle, uint32_t numBlocks, aclrtStream stream,
                                          aclrtLaunchKernelCfg *cfg, void *hostArgs, size_t argsSize,
                                          aclrtPlaceHolderInfo *placeHolderArray, size_t placeHolderNum) {
    shape_t shape = flat(numBlocks);
    host_args_t args = {hostArgs, argsSize, placeHolderArray, placeHolderNum};
    return launch_with_host_args(funcHandle, &shape, stream, cfg, &args);
}

/* Copies the kernel's parameters from the addresses in the array to their places. */
static aclError gather(launch_t *launch, void *const *args) {
    const kernel_t *kernel = launch->kernel;
    if (!kernel->described) {
        return error_set(RT_FEATURE_NOT_SUPPORT, "func: set its parameters with aclsim_kernel_parameters");
    }
    launch->size = kernel->parameter_bytes;
    launch->copy = calloc(1, kernel->parameter_bytes + 1);
    if (launch->copy == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "args");
    }
    for (size_t i = 0; i < kernel->parameters; i++) {
        if (args == NULL || !array_is_there(&args[i], 1, sizeof *args) ||
            !array_is_there(args[i], kernel->sizes[i], 1)) {
            return error_set(RT_PARAM_INVALID, "args");
        }
        memcpy(launch->copy + kernel->offsets[i], args[i], kernel->sizes[i]);
    }
    return ACL_SUCCESS;
}

aclError launch_with_array(const void *func, const shape_t *shape, aclrtStream stream,
                           const aclrtLaunchKernelCfg *cfg, void *const *args) {
    REFUSE_NULL(func);
    aclError rc = check(shape, cfg);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    kernel_t *kernel = NULL;
    launch_t *launch = NULL;
    sim_lock();
    rc = context_need() != NULL ? kernel_of(func, &kernel) : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS) {
        launch = launch_new(kernel, shape);
        if (launch != NULL && object_find(KIND_FUNCTION, func) != NULL) {
            launch->handle = (aclrtFuncHandle)(uintptr_t)func;
        }
        rc = launch != NULL ? gather(launch, args) : error_set(RT_MEMORY_ALLOCATION, "launch");
    }
    sim_unlock();
    return enqueue_filled(stream, launch, rc);
}

aclError do_aclrtLaunchKernelWithArgsArray(void *func, uint32_t numBlocks, aclrtStream stream,
                                           aclrtLaunchKernelCfg *cfg, void **args) {
    shape_t shape = flat(numBlocks);
    return launch_with_array(func, &shape, stream, cfg, args);
}
