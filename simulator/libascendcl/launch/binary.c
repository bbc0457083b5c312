/* Binaries and the functions in them. The simulator does not read the content of a binary. The kernels of a
 * binary are the kernels that clients have registered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "kernel.h"

enum {
    GUARD_BYTES = 65536, /* at least a page */
    NAME_SHOWN = 128,
    OPTIONS_LAST = ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE
};

aclrtBinary do_aclrtCreateBinary(const void *data, size_t dataLen) {
    if (data == NULL || dataLen == 0 || !content_is_there(data, dataLen)) {
        error_quiet(ACL_INVALID_PARAM, data == NULL ? "data" : "dataLen");
        return NULL;
    }
    SIM_GUARD();
    binary_data_t *binary = object_new(KIND_BINARY_DATA);
    if (binary != NULL) {
        binary->data = data;
        binary->size = dataLen;
    }
    return binary;
}

aclError do_aclrtDestroyBinary(aclrtBinary binary) {
    REFUSE_NULL(binary);
    SIM_GUARD();
    binary_data_t *found = object_find(KIND_BINARY_DATA, binary);
    if (found != NULL) {
        object_kill(&found->object);
    }
    return found != NULL ? ACL_SUCCESS : usage_bad_handle(KIND_BINARY_DATA, binary);
}

/* A client can get the image's address, and access memory after the image by mistake. So no other data may
 * follow the image. */
static char *image_new(const void *data, size_t size) {
    char *image = mmap(NULL, size + GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (image == MAP_FAILED) {
        return NULL;
    }
    if (mprotect(image, size, PROT_READ | PROT_WRITE) != 0) {
        munmap(image, size + GUARD_BYTES);
        return NULL;
    }
    return memcpy(image, data, size);
}

static void image_end(char *image, size_t size) {
    munmap(image, size + GUARD_BYTES);
}

/* Called with sim.lock held. */
static aclError load(const void *data, size_t size, aclrtBinHandle *handle) {
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    char *image = image_new(data, size);
    binary_t *binary = image != NULL ? object_new(KIND_BINARY) : NULL;
    if (binary == NULL) {
        if (image != NULL) {
            image_end(image, size);
        }
        return error_set(RT_MEMORY_ALLOCATION, "binary");
    }
    binary->data = image;
    binary->size = size;
    *handle = binary;
    return ACL_SUCCESS;
}

aclError do_aclrtBinaryLoad(const aclrtBinary binary, aclrtBinHandle *binHandle) {
    REFUSE_NULL(binary);
    REFUSE_NULL(binHandle);
    SIM_GUARD();
    const binary_data_t *found = object_find(KIND_BINARY_DATA, binary);
    return found != NULL ? load(found->data, found->size, binHandle)
                         : usage_bad_handle(KIND_BINARY_DATA, binary);
}

static aclError check_options(const aclrtBinaryLoadOptions *options) {
    if (options == NULL || options->numOpt == 0) {
        return ACL_SUCCESS;
    }
    if (options->options == NULL ||
        !array_is_there(options->options, options->numOpt, sizeof *options->options)) {
        return error_set(RT_PARAM_INVALID, "options");
    }
    for (size_t i = 0; i < options->numOpt; i++) {
        int type = (int)options->options[i].type;
        if (type < ACL_RT_BINARY_LOAD_OPT_LAZY_LOAD || type > OPTIONS_LAST) {
            return error_set(RT_PARAM_INVALID, "options: type");
        }
    }
    return ACL_SUCCESS;
}

aclError do_aclrtBinaryLoadFromData(const void *data, size_t length, const aclrtBinaryLoadOptions *options,
                                    aclrtBinHandle *binHandle) {
    if (data == NULL || length == 0 || binHandle == NULL) {
        return error_quiet(ACL_INVALID_PARAM, data == NULL ? "data" : length == 0 ? "length" : "binHandle");
    }
    aclError rc = check_options(options);
    if (rc == ACL_SUCCESS && !content_is_there(data, length)) {
        rc = error_set(RT_PARAM_INVALID, "data");
    }
    if (rc == ACL_SUCCESS) {
        SIM_GUARD();
        rc = load(data, length, binHandle);
    }
    return rc;
}

/* Returns the content of a regular file that is not empty, or NULL. */
static char *read_file(const char *path, size_t *size) {
    struct stat about;
    FILE *file = fopen(path, "rbe");
    bool good = file != NULL && fstat(fileno(file), &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
    char *data = good ? malloc((size_t)about.st_size) : NULL;
    if (data != NULL) {
        *size = fread(data, 1, (size_t)about.st_size, file);
    }
    if (file != NULL) {
        fclose(file);
    }
    return data;
}

aclError do_aclrtBinaryLoadFromFile(const char *binPath, aclrtBinaryLoadOptions *options,
                                    aclrtBinHandle *binHandle) {
    REFUSE_NULL(binPath);
    REFUSE_NULL(binHandle);
    size_t size = 0;
    aclError rc = check_options(options);
    char *data = rc == ACL_SUCCESS ? read_file(binPath, &size) : NULL;
    if (rc == ACL_SUCCESS && size == 0) {
        rc = error_set(RT_PARAM_INVALID, "binPath: there is no file, or it is empty");
    }
    if (rc == ACL_SUCCESS) {
        SIM_GUARD();
        rc = load(data, size, binHandle);
    }
    free(data);
    return rc;
}

aclError binary_find(aclrtBinHandle handle, binary_t **binary) {
    *binary = object_find(KIND_BINARY, handle);
    return *binary != NULL ? ACL_SUCCESS : usage_bad_handle(KIND_BINARY, handle);
}

static void end_function(void *object, void *arg) {
    function_handle_t *function = object;
    if (function->binary == arg) {
        kernel_release(function->kernel);
        object_kill(&function->object);
    }
}

/* Queued launches hold references to what they need. */
aclError do_aclrtBinaryUnLoad(aclrtBinHandle binHandle) {
    binary_t *binary = NULL;
    REFUSE_NULL(binHandle);
    SIM_GUARD();
    aclError rc = context_need() != NULL ? binary_find(binHandle, &binary) : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS) {
        args_end_of(binary);
        object_each(KIND_FUNCTION, end_function, binary);
        image_end(binary->data, binary->size);
        object_kill(&binary->object);
    }
    return rc;
}

function_handle_t *function_new(binary_t *binary, kernel_t *kernel, bool cpu) {
    function_handle_t *function = object_new(KIND_FUNCTION);
    if (function != NULL) {
        function->binary = binary;
        function->kernel = kernel;
        function->cpu = cpu;
        kernel_retain(kernel);
    }
    return function;
}

typedef struct {
    const binary_t *binary;
    const kernel_t *kernel;
    function_handle_t *found;
} search_t;

static void match_function(void *object, void *arg) {
    search_t *search = arg;
    function_handle_t *function = object;
    if (function->binary == search->binary && function->kernel == search->kernel) {
        search->found = function;
    }
}

/* A kernel of a binary has one handle, however often it is looked up. */
static aclError name_function(binary_t *binary, const char *name, bool cpu, aclrtFuncHandle *handle) {
    char text[NAME_SHOWN + 192];
    kernel_t *kernel = kernel_find(name);
    if (kernel == NULL) {
        snprintf(text, sizeof text,
                 "kernel %.*s: AI Core kernels cannot be simulated; "
                 "register one with simulator.register_kernel (Python) or aclsim_register_kernel (C)",
                 NAME_SHOWN, name);
        return error_set(RT_FEATURE_NOT_SUPPORT, text);
    }
    search_t search = {.binary = binary, .kernel = kernel};
    object_each(KIND_FUNCTION, match_function, &search);
    function_handle_t *function = search.found != NULL ? search.found : function_new(binary, kernel, cpu);
    if (function == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "function");
    }
    *handle = function;
    return ACL_SUCCESS;
}

static aclError get_function(aclrtBinHandle handle, const char *name, bool cpu, aclrtFuncHandle *function) {
    binary_t *binary = NULL;
    SIM_GUARD();
    aclError rc = binary_find(handle, &binary);
    return rc == ACL_SUCCESS ? name_function(binary, name, cpu, function) : rc;
}

aclError do_aclrtBinaryGetFunction(const aclrtBinHandle binHandle, const char *kernelName,
                                   aclrtFuncHandle *funcHandle) {
    if (binHandle == NULL || kernelName == NULL || funcHandle == NULL) {
        return error_quiet(ACL_INVALID_PARAM, binHandle == NULL ? "binHandle" : "kernelName or funcHandle");
    }
    return get_function(binHandle, kernelName, false, funcHandle);
}

/* The name of an entry's kernel is the entry's number. */
aclError do_aclrtBinaryGetFunctionByEntry(aclrtBinHandle binHandle, uint64_t funcEntry,
                                          aclrtFuncHandle *funcHandle) {
    char name[24];
    REFUSE_NULL(binHandle);
    REFUSE_NULL(funcHandle);
    snprintf(name, sizeof name, "%llu", (unsigned long long)funcEntry);
    return get_function(binHandle, name, false, funcHandle);
}

aclError do_aclrtRegisterCpuFunc(const aclrtBinHandle handle, const char *funcName, const char *kernelName,
                                 aclrtFuncHandle *funcHandle) {
    if (handle == NULL || funcName == NULL || kernelName == NULL || funcHandle == NULL) {
        return error_quiet(ACL_INVALID_PARAM, handle == NULL ? "handle" : "funcName, kernelName or funcHandle");
    }
    return get_function(handle, kernelName, true, funcHandle);
}
