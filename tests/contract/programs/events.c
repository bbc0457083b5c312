/* CANN 8.1. Events: they order streams, report that work is done, and measure time on the device. */
#include <string.h>

#include "acl/acl.h"
#include "check.h"

enum { SIZE = 1 << 16, STAGES = 6 };

static aclrtEvent made(uint32_t flag) {
    aclrtEvent event;
    WELL(aclrtCreateEventExWithFlag(&event, flag));
    return event;
}

/* Each stage copies, on its own stream, the bytes that the previous stage has written. */
static void relay(void) {
    aclrtStream streams[STAGES];
    aclrtEvent passed[STAGES];
    unsigned char *memory[STAGES + 1], *host = malloc(SIZE), *back = calloc(1, SIZE);
    memset(host, 0x5a, SIZE);
    for (int i = 0; i <= STAGES; i++) {
        WELL(aclrtMalloc((void **)&memory[i], SIZE, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    for (int i = 0; i < STAGES; i++) {
        WELL(aclrtCreateStreamWithConfig(&streams[i], 0, ACL_STREAM_FAST_LAUNCH));
        passed[i] = made(ACL_EVENT_SYNC);
    }
    WELL(aclrtMemcpy(memory[0], SIZE, host, SIZE, ACL_MEMCPY_HOST_TO_DEVICE));
    for (int i = 0; i < STAGES; i++) {
        if (i > 0) {
            WELL(aclrtStreamWaitEvent(streams[i], passed[i - 1]));
        }
        WELL(aclrtMemcpyAsync(memory[i + 1], SIZE, memory[i], SIZE, ACL_MEMCPY_DEVICE_TO_DEVICE, streams[i]));
        WELL(aclrtRecordEvent(passed[i], streams[i]));
    }
    WELL(aclrtSynchronizeEvent(passed[STAGES - 1]));
    for (int i = 0; i < STAGES; i++) {
        aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
        WELL(aclrtQueryEventStatus(passed[i], &status));
        EXPECT(status == ACL_EVENT_RECORDED_STATUS_COMPLETE);
    }
    WELL(aclrtMemcpy(back, SIZE, memory[STAGES], SIZE, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(memcmp(host, back, SIZE) == 0);
    for (int i = 0; i < STAGES; i++) {
        WELL(aclrtDestroyEvent(passed[i]));
        WELL(aclrtDestroyStream(streams[i]));
    }
    for (int i = 0; i <= STAGES; i++) {
        WELL(aclrtFree(memory[i]));
    }
    free(host);
    free(back);
}

static void timed(void) {
    aclrtStream stream;
    aclrtEvent start = made(ACL_EVENT_TIME_LINE), end = made(ACL_EVENT_TIME_LINE);
    float forwards = -1.0F, backwards = 1.0F;
    void *memory;
    WELL(aclrtCreateStream(&stream));
    WELL(aclrtMalloc(&memory, SIZE, ACL_MEM_MALLOC_HUGE_FIRST));
    WELL(aclrtRecordEvent(start, stream));
    WELL(aclrtMemsetAsync(memory, SIZE, 1, SIZE, stream));
    WELL(aclrtRecordEvent(end, stream));
    WELL(aclrtSynchronizeStream(stream));
    WELL(aclrtEventElapsedTime(&forwards, start, end));
    WELL(aclrtEventElapsedTime(&backwards, end, start));
    EXPECT(forwards >= 0.0F);
    EXPECT(backwards <= 0.0F);
    WELL(aclrtFree(memory));
    WELL(aclrtDestroyEvent(end));
    WELL(aclrtDestroyEvent(start));
    WELL(aclrtDestroyStream(stream));
}

int main(void) {
    WELL(aclInit(NULL));
    WELL(aclrtSetDevice(0));
    relay();
    timed();
    WELL(aclrtResetDevice(0));
    WELL(aclFinalize());
    return 0;
}
