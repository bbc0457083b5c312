/* Kernels that clients have registered, the binaries and functions that name these kernels, and the arguments
 * of launches.
 */
#ifndef ACLSIM_KERNEL_H
#define ACLSIM_KERNEL_H

#include "block.h"
#include "work.h"

typedef int (*kernel_function_t)(const aclsim_launch_t *launch);

/* One registration of a kernel. Launches hold references to the registration. After the registration has ended,
 * `function` is NULL. */
typedef struct kernel {
    struct kernel *next;
    uint32_t refs;
    char *name;
    kernel_function_t function;
    void *user;
    const void *symbol;
    size_t *sizes; /* the sizes of the parameters */
    size_t *offsets;
    size_t parameters;
    size_t parameter_bytes;
    bool described;
    area_t *code; /* reserved in place of the device code, when a call requests its address */
} kernel_t;

typedef struct {
    object_t object;
    const void *data; /* owned by the client; valid until the handle is destroyed */
    size_t size;
} binary_data_t;

typedef struct {
    object_t object;
    char *data; /* in pages that contain no other data */
    size_t size;
    aclrtOpExceptionCallback callback;
    void *user;
} binary_t;

typedef struct {
    object_t object;
    binary_t *binary; /* NULL: created from a symbol */
    kernel_t *kernel;
    bool cpu;
} function_handle_t;

typedef struct {
    size_t offset; /* offset of the value, or of the pointer to the data */
    size_t size;
    char *data; /* the data of a placeholder */
} parameter_t;

enum { PARAMETERS_MOST = 128, ARGS_BYTES_MOST = 65536 };

typedef struct {
    object_t object;
    const void *alias; /* the client's memory whose address is the handle; NULL: none */
    binary_t *binary;
    function_handle_t *function;
    bool finalized;
    char *bytes;
    size_t size;
    uint32_t count;
    parameter_t *parameters;
} args_t;

typedef struct {
    uint32_t num_blocks;
    uint32_t grid[3];
    uint32_t block[3];
    size_t dynamic_bytes;
} shape_t;

/* Called with sim.lock held. */
kernel_t *kernel_find(const char *name);
kernel_t *kernel_of_symbol(const void *symbol);
void kernel_retain(kernel_t *kernel);
void kernel_release(kernel_t *kernel);

/* Finds a binary by its handle, or returns an error. */
aclError binary_find(aclrtBinHandle handle, binary_t **binary);
aclError function_find_handle(aclrtFuncHandle handle, function_handle_t **function);
/* Finds the kernel of a function handle or of a symbol. */
aclError kernel_of(const void *function_or_symbol, kernel_t **kernel);
function_handle_t *function_new(binary_t *binary, kernel_t *kernel, bool cpu);
/* Ends the argument lists of the binary's functions. */
void args_end_of(const binary_t *binary);
aclError args_find(aclrtArgsHandle handle, args_t **args);
/* Returns all arguments of the kernel in one block of memory. The placeholders point into this block. */
char *args_assemble(const args_t *args, size_t *size);

#endif
