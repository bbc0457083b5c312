/* CANN 8.1. Graphs: captured work can run several times. The test is skipped if the runtime cannot capture. */
#include <string.h>

#include "acl/acl.h"
#include "check.h"

enum { SIZE = 512, RUNS = 5 };

int main(void) {
    aclrtStream stream;
    aclmdlRI graph = NULL;
    unsigned char host[SIZE], *source, *target;
    WELL(aclInit(NULL));
    WELL(aclrtSetDevice(0));
    WELL(aclrtCreateStream(&stream));
    WELL(aclrtMalloc((void **)&source, SIZE, ACL_MEM_MALLOC_HUGE_FIRST));
    WELL(aclrtMalloc((void **)&target, SIZE, ACL_MEM_MALLOC_HUGE_FIRST));
    aclError begun = aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL);
    if (begun == FEATURE_NOT_SUPPORT) {
        return NOT_HERE;
    }
    WELL(begun);
    WELL(aclrtMemcpyAsync(target, SIZE, source, SIZE, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
    WELL(aclmdlRICaptureEnd(stream, &graph));
    for (int run = 1; run <= RUNS; run++) {
        WELL(aclrtMemset(source, SIZE, run, SIZE));
        WELL(aclmdlRIExecuteAsync(graph, stream));
        WELL(aclrtSynchronizeStream(stream));
        WELL(aclrtMemcpy(host, SIZE, target, SIZE, ACL_MEMCPY_DEVICE_TO_HOST));
        for (int i = 0; i < SIZE; i++) {
            EXPECT(host[i] == run);
        }
    }
    WELL(aclmdlRIDestroy(graph));
    WELL(aclrtFree(target));
    WELL(aclrtFree(source));
    WELL(aclrtDestroyStream(stream));
    WELL(aclrtResetDevice(0));
    WELL(aclFinalize());
    return 0;
}
