/*
 * Functions outside of libascendcl.so that torch_npu links with. In CANN, these functions are in libruntime.so
 * and libprofapi.so, which CANN's libascendcl.so loads. No public header of CANN declares them.
 *
 * Kernels by address are refused, because the simulator finds kernels by their names only. Reports to the
 * profiler are accepted and dropped.
 */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "codes.h"

#define API __attribute__((visibility("default")))

enum { SECOND_NS = 1000000000 };

API int32_t rtDevBinaryRegister(const void *bin, void **hdl);
API int32_t rtFunctionRegister(void *binHandle, const void *stubFunc, const char *stubName,
                               const void *kernelInfoExt, uint32_t funcMode);
API int32_t rtKernelLaunch(const void *stubFunc, uint32_t blockDim, void *args, uint32_t argsSize, void *smDesc,
                           void *stm);
API int32_t rtGetC2cCtrlAddr(uint64_t *addr, uint32_t *len);

int32_t rtDevBinaryRegister(const void *bin, void **hdl) {
    (void)bin;
    (void)hdl;
    return RT_FEATURE_NOT_SUPPORT;
}

int32_t rtFunctionRegister(void *binHandle, const void *stubFunc, const char *stubName,
                           const void *kernelInfoExt, uint32_t funcMode) {
    (void)binHandle;
    (void)stubFunc;
    (void)stubName;
    (void)kernelInfoExt;
    (void)funcMode;
    return RT_FEATURE_NOT_SUPPORT;
}

int32_t rtKernelLaunch(const void *stubFunc, uint32_t blockDim, void *args, uint32_t argsSize, void *smDesc,
                       void *stm) {
    (void)stubFunc;
    (void)blockDim;
    (void)args;
    (void)argsSize;
    (void)smDesc;
    (void)stm;
    return RT_FEATURE_NOT_SUPPORT;
}

int32_t rtGetC2cCtrlAddr(uint64_t *addr, uint32_t *len) {
    (void)addr;
    (void)len;
    return RT_FEATURE_NOT_SUPPORT;
}

typedef int32_t (*command_t)(uint32_t type, void *data, uint32_t length);

API int32_t MsprofRegisterCallback(uint32_t moduleId, command_t handle);
API int32_t MsprofReportApi(uint32_t agingFlag, const void *api);
API int32_t MsprofReportCompactInfo(uint32_t agingFlag, const void *data, uint32_t length);
API int32_t MsprofReportAdditionalInfo(uint32_t agingFlag, const void *data, uint32_t length);
API uint64_t MsprofGetHashId(const char *hashInfo, size_t length);
API uint64_t MsprofSysCycleTime(void);

/* The runtime calls the callback to start and stop a profile. The simulator never calls it. */
int32_t MsprofRegisterCallback(uint32_t moduleId, command_t handle) {
    (void)moduleId;
    (void)handle;
    return 0;
}

int32_t MsprofReportApi(uint32_t agingFlag, const void *api) {
    (void)agingFlag;
    (void)api;
    return 0;
}

int32_t MsprofReportCompactInfo(uint32_t agingFlag, const void *data, uint32_t length) {
    (void)agingFlag;
    (void)data;
    (void)length;
    return 0;
}

int32_t MsprofReportAdditionalInfo(uint32_t agingFlag, const void *data, uint32_t length) {
    return MsprofReportCompactInfo(agingFlag, data, length);
}

/* FNV-1a. */
uint64_t MsprofGetHashId(const char *hashInfo, size_t length) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < length && hashInfo != NULL; i++) {
        hash = (hash ^ (unsigned char)hashInfo[i]) * 0x100000001b3;
    }
    return hash;
}

uint64_t MsprofSysCycleTime(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}
