/* The kernels that clients have registered. */
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

static kernel_t *kernels;

kernel_t *kernel_find(const char *name) {
    kernel_t *kernel = kernels;
    while (kernel != NULL && strcmp(kernel->name, name) != 0) {
        kernel = kernel->next;
    }
    return kernel;
}

kernel_t *kernel_of_symbol(const void *symbol) {
    kernel_t *kernel = kernels;
    while (kernel != NULL && (symbol == NULL || kernel->symbol != symbol)) {
        kernel = kernel->next;
    }
    return kernel;
}

void kernel_retain(kernel_t *kernel) {
    kernel->refs++;
}

void kernel_release(kernel_t *kernel) {
    if (--kernel->refs == 0) {
        free(kernel->name);
        free(kernel->sizes);
        free(kernel->offsets);
        if (kernel->code != NULL) {
            area_end(kernel->code);
        }
        free(kernel);
    }
}

static void end_registration(kernel_t *kernel) {
    kernel_t **link = &kernels;
    while (*link != kernel) {
        link = &(*link)->next;
    }
    *link = kernel->next;
    kernel->function = NULL;
    kernel->symbol = NULL;
    kernel_release(kernel);
}

static bool begin_registration(const char *name, kernel_function_t function, void *user) {
    kernel_t *kernel = kernel_find(name);
    if (kernel == NULL) {
        kernel = calloc(1, sizeof *kernel);
        char *copy = kernel != NULL ? strdup(name) : NULL;
        if (copy == NULL) {
            free(kernel);
            return false;
        }
        *kernel = (kernel_t){.next = kernels, .refs = 1, .name = copy};
        kernels = kernel;
    }
    kernel->function = function;
    kernel->user = user;
    return true;
}

API int aclsim_register_kernel(const char *name, kernel_function_t function, void *user) {
    if (name == NULL || *name == 0) {
        return -1;
    }
    sim_start();
    SIM_GUARD();
    kernel_t *kernel = kernel_find(name);
    bool done = function != NULL ? begin_registration(name, function, user) : kernel != NULL;
    if (function == NULL && kernel != NULL) {
        end_registration(kernel);
    }
    return done ? 0 : -1;
}

/* Returns the offset of the next parameter. The alignment is the parameter's size, rounded up to a power of
 * two, and at most 8. */
static size_t place(size_t end, size_t size) {
    size_t unit = 1;
    while (unit < 8 && unit < size) {
        unit *= 2;
    }
    return (end + unit - 1) / unit * unit;
}

static bool describe(kernel_t *kernel, const size_t *sizes, size_t count) {
    size_t *copies = calloc(count + 1, sizeof *copies);
    size_t *offsets = calloc(count + 1, sizeof *offsets);
    size_t end = 0;
    if (copies == NULL || offsets == NULL) {
        free(copies);
        free(offsets);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        copies[i] = sizes[i];
        offsets[i] = place(end, sizes[i]);
        end = offsets[i] + sizes[i];
    }
    free(kernel->sizes);
    free(kernel->offsets);
    kernel->sizes = copies;
    kernel->offsets = offsets;
    kernel->parameters = count;
    kernel->parameter_bytes = end;
    kernel->described = true;
    return true;
}

static bool sizes_valid(const size_t *sizes, size_t count) {
    bool valid = count <= PARAMETERS_MOST && (sizes != NULL || count == 0);
    for (size_t i = 0; valid && i < count; i++) {
        valid = sizes[i] > 0 && sizes[i] <= ARGS_BYTES_MOST / PARAMETERS_MOST;
    }
    return valid;
}

API int aclsim_kernel_parameters(const char *name, const size_t *sizes, size_t count) {
    if (name == NULL || !sizes_valid(sizes, count)) {
        return -1;
    }
    sim_start();
    SIM_GUARD();
    kernel_t *kernel = kernel_find(name);
    bool done = kernel != NULL && describe(kernel, sizes, count);
    return done ? 0 : -1;
}

API int aclsim_kernel_symbol(const char *name, const void *symbol) {
    if (name == NULL || symbol == NULL) {
        return -1;
    }
    sim_start();
    SIM_GUARD();
    kernel_t *kernel = kernel_find(name);
    if (kernel != NULL) {
        kernel->symbol = symbol;
    }
    return kernel != NULL ? 0 : -1;
}
