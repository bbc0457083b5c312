/* The functions and what their parameters are. Read by vecrun_calls.c only. */
#ifndef VECRUN_SPECS_H
#define VECRUN_SPECS_H

/*
 * One letter per parameter: . input; and outputs, each followed by its name: H handle, M memory, i int32,
 * u uint32, l 64 bits, f float of which the sign is reported, t time of which its being is, - not reported.
 */
typedef struct {
    const char *name;
    const char *parameters;
    char special; /* d: destroys its argument, c: which context, s: which stream, n: which number, p: pointer */
} spec_t;

static const spec_t specs[] = {
    {"aclInit", ".", 0},
    {"aclFinalize", "", 0},
    {"aclFinalizeReference", "l:refCount", 0},
    {"aclGetRecentErrMsg", "", 'p'},
    {"aclsysGetVersionStr", ". -:version", 0},
    {"aclsysGetVersionNum", ". -:version", 0},
    {"aclrtGetSocName", "", 'p'},
    {"aclrtGetRunMode", "i:runMode", 0},
    {"aclrtPeekAtLastError", ".", 0},
    {"aclrtGetLastError", ".", 0},
    {"aclrtGetSysParamOpt", ". l:value", 0},
    {"aclrtSetSysParamOpt", ". .", 0},
    {"aclrtSetOpWaitTimeout", ".", 0},
    {"aclrtSetDevice", ".", 0},
    {"aclrtResetDevice", ".", 0},
    {"aclrtResetDeviceForce", ".", 0},
    {"aclrtGetDevice", "i:device", 0},
    {"aclrtGetDeviceCount", "u:count", 0},
    {"aclrtQueryDeviceStatus", ". -:status", 0},
    {"aclrtGetPrimaryCtxState", ". u:flags i:active", 0},
    {"aclrtRegDeviceStateCallback", ". . .", 0},
    {"aclrtDeviceGetStreamPriorityRange", "i:least i:greatest", 0},
    {"aclrtSynchronizeDevice", "", 0},
    {"aclrtSynchronizeDeviceWithTimeout", ".", 0},
    {"aclrtCreateContext", "H:context .", 0},
    {"aclrtDestroyContext", ".", 'd'},
    {"aclrtSetCurrentContext", ".", 0},
    {"aclrtGetCurrentContext", "H:context", 'c'},
    {"aclrtCtxGetCurrentDefaultStream", "H:stream", 's'},
    {"aclrtCtxGetSysParamOpt", ". l:value", 0},
    {"aclrtCtxSetSysParamOpt", ". .", 0},
    {"aclrtCreateStream", "H:stream", 0},
    {"aclrtCreateStreamWithConfig", "H:stream . .", 0},
    {"aclrtDestroyStream", ".", 'd'},
    {"aclrtDestroyStreamForce", ".", 'd'},
    {"aclrtSetStreamFailureMode", ". .", 0},
    {"aclrtSynchronizeStream", ".", 0},
    {"aclrtSynchronizeStreamWithTimeout", ". .", 0},
    {"aclrtStreamQuery", ". i:status", 0},
    {"aclrtStreamAbort", ".", 0},
    {"aclrtStreamGetId", ". i:streamId", 'n'},
    {"aclrtStreamGetPriority", ". u:priority", 0},
    {"aclrtStreamGetFlags", ". u:flags", 0},
    {"aclrtGetStreamAvailableNum", "-:count", 0},
    {"aclrtStreamWaitEvent", ". .", 0},
    {"aclrtStreamWaitEventWithTimeout", ". . .", 0},
    {"aclrtStreamWaitEventWithFlag", ". . . .", 0},
    {"aclrtRegStreamStateCallback", ". . .", 0},
    {"aclrtCreateEvent", "H:event", 0},
    {"aclrtCreateEventWithFlag", "H:event .", 0},
    {"aclrtCreateEventExWithFlag", "H:event .", 0},
    {"aclrtDestroyEvent", ".", 'd'},
    {"aclrtRecordEvent", ". .", 0},
    {"aclrtRecordEventWithFlag", ". . .", 0},
    {"aclrtResetEvent", ". .", 0},
    {"aclrtQueryEvent", ". i:status", 0},
    {"aclrtQueryEventStatus", ". i:status", 0},
    {"aclrtQueryEventWaitStatus", ". i:status", 0},
    {"aclrtSynchronizeEvent", ".", 0},
    {"aclrtSynchronizeEventWithTimeout", ". .", 0},
    {"aclrtEventElapsedTime", "f:ms . .", 0},
    {"aclrtEventGetTimestamp", ". t:timestamp", 0},
    {"aclrtGetEventId", ". -:eventId", 0},
    {"aclrtCreateNotify", "H:notify .", 0},
    {"aclrtDestroyNotify", ".", 'd'},
    {"aclrtRecordNotify", ". .", 0},
    {"aclrtWaitAndResetNotify", ". . .", 0},
    {"aclrtMalloc", "M:ptr . .", 0},
    {"aclrtMallocAlign32", "M:ptr . .", 0},
    {"aclrtMallocCached", "M:ptr . .", 0},
    {"aclrtFree", ".", 'd'},
    {"aclrtMallocHost", "M:ptr .", 0},
    {"aclrtFreeHost", ".", 'd'},
    {"aclrtGetMemInfo", ". -:free -:total", 0},
    {"aclrtMemcpy", ". . . . .", 0},
    {"aclrtMemset", ". . . .", 0},
    {"aclrtMemcpyAsync", ". . . . . .", 0},
    {"aclrtMemsetAsync", ". . . . .", 0},
    {"aclrtSubscribeReport", ". .", 0},
    {"aclrtUnSubscribeReport", ". .", 0},
    {"aclrtProcessReport", ".", 0},
    {"aclrtLaunchCallback", ". . . .", 0},
    {"aclrtLaunchHostFunc", ". . .", 0},
};

/* The table of functions and the table above must name the same ones. */
#define ACL_FN(kind, ret, name, params, args, since) #name,
static const char *const table_names[] = {
#include "acl_api.inc"
};
#undef ACL_FN

#endif
