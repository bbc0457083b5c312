/* Model files: reading their bytes. container.c describes the format. */
#ifndef ACLSIM_CONTAINER_H
#define ACLSIM_CONTAINER_H

#include "modelinfo.h"

typedef struct {
    bool simulated;   /* made by the simulator's atc */
    const void *onnx; /* inside the bytes that were read; NULL: the file has no ONNX model */
    size_t onnx_size;
} container_t;

/* Whether the bytes are a container, and not an ONNX model. */
bool container_is(const void *bytes, size_t size);
/* Reads a container. Returns 0, 145006 with a reason in `why`, or 245000 if no memory is left. On failure, the
 * content of `info` is partial, and model_info_release() frees it. Needs no lock. */
aclError container_read(const void *bytes, size_t size, model_info_t *info, container_t *container,
                        const char **why);

#endif
