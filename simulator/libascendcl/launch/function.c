/* Queries about binaries, functions and symbols. */
#include <string.h>

#include "kernel.h"

enum {
    UNIFIED_BUFFER_BYTES = 192 * 1024, /* per vector core of the simulated chip */
    CODE_BYTES = 65536                 /* at least a page, for area_new */
};

aclError function_find_handle(aclrtFuncHandle handle, function_handle_t **function) {
    *function = object_find(KIND_FUNCTION, handle);
    return *function != NULL ? ACL_SUCCESS : usage_bad_handle(KIND_FUNCTION, handle);
}

aclError kernel_of(const void *function_or_symbol, kernel_t **kernel) {
    const function_handle_t *function = object_find(KIND_FUNCTION, function_or_symbol);
    *kernel = function != NULL ? function->kernel : kernel_of_symbol(function_or_symbol);
    return *kernel != NULL ? ACL_SUCCESS : error_set(RT_INVALID_DEVICE_FUNCTION, "func");
}

typedef struct {
    const kernel_t *kernel;
    function_handle_t *found;
} search_t;

static void match_symbol(void *object, void *arg) {
    search_t *search = arg;
    function_handle_t *function = object;
    if (function->binary == NULL && function->kernel == search->kernel) {
        search->found = function;
    }
}

aclError do_aclrtGetFuncBySymbol(const void *symbol, aclrtFuncHandle *funcHandle) {
    REFUSE_NULL(symbol);
    REFUSE_NULL(funcHandle);
    SIM_GUARD();
    aclError rc = ACL_SUCCESS;
    kernel_t *kernel = kernel_of_symbol(symbol);
    search_t search = {.kernel = kernel};
    object_each(KIND_FUNCTION, match_symbol, &search);
    if (kernel != NULL && search.found == NULL) {
        search.found = function_new(NULL, kernel, false);
    }
    if (search.found != NULL && kernel != NULL) {
        *funcHandle = search.found;
    } else {
        rc = error_set(RT_SYMBOL_NOT_FOUND,
                       "symbol: register its kernel with aclsim_register_kernel and aclsim_kernel_symbol");
    }
    return rc;
}

aclError do_aclrtGetFunctionName(aclrtFuncHandle funcHandle, uint32_t maxLen, char *name) {
    REFUSE_NULL(funcHandle);
    REFUSE_NULL(name);
    function_handle_t *function = NULL;
    SIM_GUARD();
    aclError rc = function_find_handle(funcHandle, &function);
    if (rc == ACL_SUCCESS && strlen(function->kernel->name) >= maxLen) {
        rc = error_set(RT_PARAM_INVALID, "maxLen");
    } else if (rc == ACL_SUCCESS) {
        strcpy(name, function->kernel->name);
    }
    return rc;
}

static aclError find_code(kernel_t *kernel, void **address) {
    if (kernel->code == NULL) {
        kernel->code = area_new(CODE_BYTES, CODE_BYTES, NULL);
    }
    if (kernel->code == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "code");
    }
    *address = kernel->code->base;
    return ACL_SUCCESS;
}

/* Returns an address in place of the address of the code. Neither the host nor copies can read there. */
aclError do_aclrtGetFunctionAddr(aclrtFuncHandle funcHandle, void **aicAddr, void **aivAddr) {
    if (funcHandle == NULL || aicAddr == NULL || aivAddr == NULL) {
        return error_quiet(ACL_INVALID_PARAM, funcHandle == NULL ? "funcHandle" : "aicAddr or aivAddr");
    }
    function_handle_t *function = NULL;
    SIM_GUARD();
    aclError rc = function_find_handle(funcHandle, &function);
    rc = rc == ACL_SUCCESS ? find_code(function->kernel, aicAddr) : rc;
    if (rc == ACL_SUCCESS) {
        *aivAddr = *aicAddr;
    }
    return rc;
}

/* A kernel of the simulator is a function of the host, so its device code has no size. */
aclError do_aclrtGetFunctionSize(aclrtFuncHandle funcHandle, size_t *aicSize, size_t *aivSize) {
    if (funcHandle == NULL || aicSize == NULL || aivSize == NULL) {
        return error_quiet(ACL_INVALID_PARAM, funcHandle == NULL ? "funcHandle" : "aicSize or aivSize");
    }
    return error_set(RT_FEATURE_NOT_SUPPORT, "aclrtGetFunctionSize: a registered kernel has no device code");
}

/* A kernel has the type MIX, unless it was registered for the AI CPU. Ratio and scheduling mode are not
 * modelled, and are 0. */
static aclError attribute(const function_handle_t *function, aclrtFuncAttribute type, int64_t *value) {
    switch ((int)type) {
    case ACL_FUNC_ATTR_KERNEL_TYPE:
        *value = function->cpu ? ACL_KERNEL_TYPE_AICPU : ACL_KERNEL_TYPE_MIX;
        return ACL_SUCCESS;
    case ACL_FUNC_ATTR_KERNEL_RATIO:
    case ACL_FUNC_ATTR_KERNEL_SCHED_MODE:
        *value = 0;
        return ACL_SUCCESS;
    default:
        return error_set(RT_PARAM_INVALID, "attrType");
    }
}

aclError do_aclrtGetFunctionAttribute(aclrtFuncHandle funcHandle, aclrtFuncAttribute attrType,
                                      int64_t *attrValue) {
    REFUSE_NULL(funcHandle);
    REFUSE_NULL(attrValue);
    function_handle_t *function = NULL;
    SIM_GUARD();
    aclError rc = function_find_handle(funcHandle, &function);
    return rc == ACL_SUCCESS ? attribute(function, attrType, attrValue) : rc;
}

aclError do_aclrtFunctionGetBinary(const aclrtFuncHandle funcHandle, aclrtBinHandle *binHandle) {
    REFUSE_NULL(funcHandle);
    REFUSE_NULL(binHandle);
    function_handle_t *function = NULL;
    SIM_GUARD();
    aclError rc = function_find_handle(funcHandle, &function);
    if (rc == ACL_SUCCESS && function->binary == NULL) {
        rc = error_set(RT_INVALID_DEVICE_FUNCTION, "funcHandle: it was made from a symbol and is in no binary");
    } else if (rc == ACL_SUCCESS) {
        *binHandle = function->binary;
    }
    return rc;
}

static aclError find_described(const void *func, kernel_t **kernel) {
    aclError rc = kernel_of(func, kernel);
    if (rc == ACL_SUCCESS && !(*kernel)->described) {
        rc = error_set(RT_FEATURE_NOT_SUPPORT, "func: set its parameters with aclsim_kernel_parameters");
    }
    return rc;
}

aclError do_aclrtFunctionGetParamCount(const void *func, size_t *paramCount) {
    REFUSE_NULL(func);
    REFUSE_NULL(paramCount);
    kernel_t *kernel = NULL;
    SIM_GUARD();
    aclError rc = find_described(func, &kernel);
    if (rc == ACL_SUCCESS) {
        *paramCount = kernel->parameters;
    }
    return rc;
}

aclError do_aclrtFunctionGetParamInfo(const void *func, size_t paramIndex, size_t *paramOffset,
                                      size_t *paramSize) {
    if (func == NULL || paramOffset == NULL || paramSize == NULL) {
        return error_quiet(ACL_INVALID_PARAM, func == NULL ? "func" : "paramOffset or paramSize");
    }
    kernel_t *kernel = NULL;
    SIM_GUARD();
    aclError rc = find_described(func, &kernel);
    if (rc == ACL_SUCCESS && paramIndex >= kernel->parameters) {
        rc = error_set(RT_PARAM_INVALID, "paramIndex");
    } else if (rc == ACL_SUCCESS) {
        *paramOffset = kernel->offsets[paramIndex];
        *paramSize = kernel->sizes[paramIndex];
    }
    return rc;
}

aclError do_aclrtFunctionGetAvailDynUbufPerBlock(void *func, uint32_t flags, size_t *dynamicUbufSize) {
    REFUSE_NULL(func);
    REFUSE_NULL(dynamicUbufSize);
    if (flags != 0) {
        return error_set(RT_PARAM_INVALID, "flags");
    }
    kernel_t *kernel = NULL;
    SIM_GUARD();
    aclError rc = kernel_of(func, &kernel);
    if (rc == ACL_SUCCESS) {
        *dynamicUbufSize = UNIFIED_BUFFER_BYTES;
    }
    return rc;
}

/* Returns the host's copy of the binary in place of the copy on the device. */
aclError do_aclrtBinaryGetDevAddress(const aclrtBinHandle binHandle, void **binAddr, size_t *binSize) {
    if (binHandle == NULL || binAddr == NULL || binSize == NULL) {
        return error_quiet(ACL_INVALID_PARAM, binHandle == NULL ? "binHandle" : "binAddr or binSize");
    }
    binary_t *binary = NULL;
    SIM_GUARD();
    aclError rc = binary_find(binHandle, &binary);
    if (rc == ACL_SUCCESS) {
        *binAddr = binary->data;
        *binSize = binary->size;
    }
    return rc;
}

aclError do_aclrtBinarySetExceptionCallback(aclrtBinHandle binHandle, aclrtOpExceptionCallback callback,
                                            void *userData) {
    REFUSE_NULL(binHandle);
    binary_t *binary = NULL;
    SIM_GUARD();
    aclError rc = binary_find(binHandle, &binary);
    if (rc == ACL_SUCCESS) {
        binary->callback = callback;
        binary->user = userData;
    }
    return rc;
}
