/*
 * Argument lists of kernels, built parameter by parameter. Each parameter begins at a multiple of 8. A
 * placeholder is a pointer to data that is part of the list. Lists belong to their function and end with its
 * binary.
 */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum { SLOT = 8, HANDLE_BYTES = 256 };

static size_t rounded(size_t size) {
    return (size + SLOT - 1) / SLOT * SLOT;
}

static void args_free(args_t *args) {
    for (uint32_t i = 0; i < args->count; i++) {
        free(args->parameters[i].data);
    }
    free(args->bytes);
    free(args->parameters);
    object_kill(&args->object);
}

static void end_one(void *object, void *arg) {
    args_t *args = object;
    if (args->binary == arg) {
        args_free(args);
    }
}

void args_end_of(const binary_t *binary) {
    object_each(KIND_ARGS, end_one, (void *)binary);
}

typedef struct {
    const void *alias;
    args_t *found;
} search_t;

static void match_alias(void *object, void *arg) {
    search_t *search = arg;
    args_t *args = object;
    if (args->alias == search->alias) {
        search->found = args;
    }
}

/* Finds a list. Its handle may be an address of the client's own memory. That memory is never read. */
static args_t *find(aclrtArgsHandle handle) {
    search_t search = {.alias = handle, .found = object_find(KIND_ARGS, handle)};
    if (search.found == NULL && handle != NULL) {
        object_each(KIND_ARGS, match_alias, &search);
    }
    return search.found;
}

aclError args_find(aclrtArgsHandle handle, args_t **args) {
    *args = find(handle);
    return *args != NULL ? ACL_SUCCESS : usage_bad_handle(KIND_ARGS, handle);
}

static args_t *args_new(function_handle_t *function) {
    char *bytes = malloc(ARGS_BYTES_MOST);
    parameter_t *parameters = calloc(PARAMETERS_MOST, sizeof *parameters);
    args_t *args = bytes != NULL && parameters != NULL ? object_new(KIND_ARGS) : NULL;
    if (args == NULL) {
        free(bytes);
        free(parameters);
        return NULL;
    }
    args->function = function;
    args->binary = function->binary;
    args->bytes = bytes;
    args->parameters = parameters;
    return args;
}

static aclError init(aclrtFuncHandle handle, const void *alias, args_t **args) {
    function_handle_t *function = NULL;
    aclError rc = function_find_handle(handle, &function);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    args_t *old = alias != NULL ? find((aclrtArgsHandle)(uintptr_t)alias) : NULL;
    if (old != NULL) {
        args_free(old);
    }
    *args = args_new(function);
    if (*args == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "argsHandle");
    }
    (*args)->alias = alias;
    return ACL_SUCCESS;
}

aclError do_aclrtKernelArgsInit(aclrtFuncHandle funcHandle, aclrtArgsHandle *argsHandle) {
    REFUSE_NULL(funcHandle);
    REFUSE_NULL(argsHandle);
    args_t *args = NULL;
    SIM_GUARD();
    aclError rc = init(funcHandle, NULL, &args);
    if (rc == ACL_SUCCESS) {
        *argsHandle = args;
    }
    return rc;
}

/* Only the address of the client's memory is used. The simulator stores the arguments in its own memory. */
aclError do_aclrtKernelArgsInitByUserMem(aclrtFuncHandle funcHandle, aclrtArgsHandle argsHandle,
                                         void *userHostMem, size_t actualArgsSize) {
    if (funcHandle == NULL || argsHandle == NULL || userHostMem == NULL) {
        return error_quiet(ACL_INVALID_PARAM, funcHandle == NULL ? "funcHandle" : "argsHandle or userHostMem");
    }
    if (actualArgsSize == 0) {
        return error_set(RT_PARAM_INVALID, "actualArgsSize");
    }
    args_t *args = NULL;
    SIM_GUARD();
    return init(funcHandle, argsHandle, &args);
}

static aclError sizes_of(aclrtFuncHandle handle, size_t *out, size_t size) {
    function_handle_t *function = NULL;
    SIM_GUARD();
    aclError rc = function_find_handle(handle, &function);
    if (rc == ACL_SUCCESS) {
        *out = size;
    }
    return rc;
}

aclError do_aclrtKernelArgsGetHandleMemSize(aclrtFuncHandle funcHandle, size_t *memSize) {
    REFUSE_NULL(funcHandle);
    REFUSE_NULL(memSize);
    return sizes_of(funcHandle, memSize, HANDLE_BYTES);
}

aclError do_aclrtKernelArgsGetMemSize(aclrtFuncHandle funcHandle, size_t userArgsSize, size_t *actualArgsSize) {
    REFUSE_NULL(funcHandle);
    REFUSE_NULL(actualArgsSize);
    return sizes_of(funcHandle, actualArgsSize, rounded(userArgsSize));
}

static aclError open_list(aclrtArgsHandle handle, args_t **args) {
    aclError rc = args_find(handle, args);
    return rc == ACL_SUCCESS && (*args)->finalized ? error_set(RT_PARAM_INVALID, "argsHandle: finalized") : rc;
}

static aclError append(args_t *args, size_t size, parameter_t **parameter) {
    if (args->count == PARAMETERS_MOST || size > ARGS_BYTES_MOST - args->size) {
        return error_set(RT_PARAM_INVALID, "argsHandle: no room for more arguments");
    }
    *parameter = &args->parameters[args->count++];
    **parameter = (parameter_t){.offset = args->size, .size = size};
    memset(args->bytes + args->size, 0, rounded(size));
    args->size += rounded(size);
    return ACL_SUCCESS;
}

aclError do_aclrtKernelArgsAppend(aclrtArgsHandle argsHandle, void *param, size_t paramSize,
                                  aclrtParamHandle *paramHandle) {
    if (argsHandle == NULL || param == NULL || paramHandle == NULL) {
        return error_quiet(ACL_INVALID_PARAM, argsHandle == NULL ? "argsHandle" : "param or paramHandle");
    }
    if (paramSize == 0 || !array_is_there(param, paramSize, 1)) {
        return error_set(RT_PARAM_INVALID, "param or paramSize");
    }
    args_t *args = NULL;
    parameter_t *parameter = NULL;
    SIM_GUARD();
    aclError rc = open_list(argsHandle, &args);
    rc = rc == ACL_SUCCESS ? append(args, paramSize, &parameter) : rc;
    if (rc == ACL_SUCCESS) {
        memcpy(args->bytes + parameter->offset, param, paramSize);
        *paramHandle = parameter;
    }
    return rc;
}

aclError do_aclrtKernelArgsAppendPlaceHolder(aclrtArgsHandle argsHandle, aclrtParamHandle *paramHandle) {
    REFUSE_NULL(argsHandle);
    REFUSE_NULL(paramHandle);
    args_t *args = NULL;
    parameter_t *parameter = NULL;
    SIM_GUARD();
    aclError rc = open_list(argsHandle, &args);
    rc = rc == ACL_SUCCESS ? append(args, sizeof(void *), &parameter) : rc;
    if (rc == ACL_SUCCESS) {
        parameter->size = 0;
        *paramHandle = parameter;
    }
    return rc;
}

static aclError find_parameter(const args_t *args, aclrtParamHandle handle, parameter_t **parameter) {
    for (uint32_t i = 0; i < args->count; i++) {
        if (&args->parameters[i] == handle) {
            *parameter = &args->parameters[i];
            return ACL_SUCCESS;
        }
    }
    return error_set(RT_PARAM_INVALID, "paramHandle: it does not belong to this list");
}

static aclError give_buffer(parameter_t *parameter, size_t size, void **buffer) {
    char *data = calloc(1, size);
    if (data == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "dataSize");
    }
    parameter->data = data;
    parameter->size = size;
    *buffer = data;
    return ACL_SUCCESS;
}

aclError do_aclrtKernelArgsGetPlaceHolderBuffer(aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle,
                                                size_t dataSize, void **bufferAddr) {
    if (argsHandle == NULL || paramHandle == NULL || bufferAddr == NULL) {
        return error_quiet(ACL_INVALID_PARAM, argsHandle == NULL ? "argsHandle" : "paramHandle or bufferAddr");
    }
    args_t *args = NULL;
    parameter_t *parameter = NULL;
    SIM_GUARD();
    aclError rc = open_list(argsHandle, &args);
    rc = rc == ACL_SUCCESS ? find_parameter(args, paramHandle, &parameter) : rc;
    if (rc == ACL_SUCCESS && (parameter->size != 0 || dataSize == 0 || dataSize > ARGS_BYTES_MOST)) {
        rc = error_set(RT_PARAM_INVALID,
                       parameter->size != 0 ? "paramHandle: it is not a free placeholder" : "dataSize");
    }
    return rc == ACL_SUCCESS ? give_buffer(parameter, dataSize, bufferAddr) : rc;
}

aclError do_aclrtKernelArgsParaUpdate(aclrtArgsHandle argsHandle, aclrtParamHandle paramHandle, void *param,
                                      size_t paramSize) {
    if (argsHandle == NULL || paramHandle == NULL || param == NULL) {
        return error_quiet(ACL_INVALID_PARAM, argsHandle == NULL ? "argsHandle" : "paramHandle or param");
    }
    args_t *args = NULL;
    parameter_t *parameter = NULL;
    SIM_GUARD();
    aclError rc = args_find(argsHandle, &args);
    rc = rc == ACL_SUCCESS ? find_parameter(args, paramHandle, &parameter) : rc;
    bool fits = rc == ACL_SUCCESS && parameter->data == NULL && paramSize == parameter->size;
    if (rc == ACL_SUCCESS && !(fits && array_is_there(param, paramSize, 1))) {
        rc = error_set(RT_PARAM_INVALID, "param or paramSize");
    }
    if (rc == ACL_SUCCESS) {
        memcpy(args->bytes + parameter->offset, param, paramSize);
    }
    return rc;
}

aclError do_aclrtKernelArgsFinalize(aclrtArgsHandle argsHandle) {
    args_t *args = NULL;
    REFUSE_NULL(argsHandle);
    SIM_GUARD();
    aclError rc = args_find(argsHandle, &args);
    if (rc == ACL_SUCCESS) {
        args->finalized = true;
    }
    return rc;
}

char *args_assemble(const args_t *args, size_t *size) {
    size_t end = args->size;
    for (uint32_t i = 0; i < args->count; i++) {
        end += args->parameters[i].data != NULL ? rounded(args->parameters[i].size) : 0;
    }
    char *block = malloc(end != 0 ? end : 1);
    if (block == NULL) {
        return NULL;
    }
    memcpy(block, args->bytes, args->size);
    *size = end;
    end = args->size;
    for (uint32_t i = 0; i < args->count; i++) {
        const parameter_t *parameter = &args->parameters[i];
        if (parameter->data != NULL) {
            const char *address = block + end;
            memcpy(block + end, parameter->data, parameter->size);
            memcpy(block + parameter->offset, &address, sizeof address);
            end += rounded(parameter->size);
        }
    }
    return block;
}
