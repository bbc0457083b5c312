/* Loading onnxruntime. */
#ifndef ACLSIM_ONNXRUNTIME_H
#define ACLSIM_ONNXRUNTIME_H

#include "ortapi.h"

typedef struct {
    const ort_api_t *api;
    ort_env_t *env;
} ort_runtime_t;

/* Loads onnxruntime at the first call. NULL: that failed, and `why`, of SESSION_WHY_BYTES, has the reason; the
 * next call tries again. The library stays loaded. */
const ort_runtime_t *onnxruntime(char *why);

#endif
