/* CANN 8.1. Copies to the device and back keep their order, on many streams, contiguous or in rows. */
#include <string.h>

#include "acl/acl.h"
#include "check.h"

enum { STREAMS = 8, ROUNDS = 50, SIZE = 4096, ROWS = 16, ROW = 48, PITCH = 64 };

static void fill(unsigned char *bytes, size_t size, int seed) {
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(i * 7 + (size_t)seed);
    }
}

static void there_and_back(aclrtStream stream, int seed) {
    unsigned char *host, *device, *other, *back;
    WELL(aclrtMallocHost((void **)&host, SIZE));
    WELL(aclrtMallocHost((void **)&back, SIZE));
    WELL(aclrtMalloc((void **)&device, SIZE, ACL_MEM_MALLOC_HUGE_FIRST));
    WELL(aclrtMalloc((void **)&other, SIZE, ACL_MEM_MALLOC_NORMAL_ONLY));
    for (int round = 0; round < ROUNDS; round++) {
        fill(host, SIZE, seed + round);
        WELL(aclrtMemsetAsync(back, SIZE, 0, SIZE, stream));
        WELL(aclrtMemcpyAsync(device, SIZE, host, SIZE, ACL_MEMCPY_HOST_TO_DEVICE, stream));
        WELL(aclrtMemcpyAsync(other, SIZE, device, SIZE, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
        WELL(aclrtMemsetAsync(device, SIZE, 0xff, SIZE, stream));
        WELL(aclrtMemcpyAsync(back, SIZE, other, SIZE, ACL_MEMCPY_DEVICE_TO_HOST, stream));
        WELL(aclrtSynchronizeStream(stream));
        EXPECT(memcmp(host, back, SIZE) == 0);
    }
    WELL(aclrtFree(other));
    WELL(aclrtFree(device));
    WELL(aclrtFreeHost(back));
    WELL(aclrtFreeHost(host));
}

static void in_rows(aclrtStream stream) {
    unsigned char host[ROWS * ROW], back[ROWS * ROW] = {0};
    unsigned char *device;
    fill(host, sizeof host, 3);
    WELL(aclrtMalloc((void **)&device, ROWS * PITCH, ACL_MEM_MALLOC_HUGE_FIRST));
    WELL(aclrtMemcpy2d(device, PITCH, host, ROW, ROW, ROWS, ACL_MEMCPY_HOST_TO_DEVICE));
    WELL(aclrtMemcpy2d(back, ROW, device, PITCH, ROW, ROWS, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(memcmp(host, back, sizeof host) == 0);
    WELL(aclrtSynchronizeStream(stream));
    WELL(aclrtFree(device));
}

static void asked(aclrtStream stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
    int32_t id = -1;
    WELL(aclrtSynchronizeStreamWithTimeout(stream, 1000));
    WELL(aclrtStreamQuery(stream, &status));
    EXPECT(status == ACL_STREAM_STATUS_COMPLETE);
    WELL(aclrtStreamGetId(stream, &id));
    EXPECT(id >= 0);
}

int main(void) {
    aclrtStream streams[STREAMS];
    WELL(aclInit(NULL));
    WELL(aclrtSetDevice(0));
    for (int i = 0; i < STREAMS; i++) {
        WELL(aclrtCreateStream(&streams[i]));
    }
    for (int i = 0; i < STREAMS; i++) {
        there_and_back(streams[i], i * 31);
        asked(streams[i]);
    }
    in_rows(streams[0]);
    WELL(aclrtSynchronizeDevice());
    for (int i = 0; i < STREAMS; i++) {
        WELL(aclrtDestroyStream(streams[i]));
    }
    WELL(aclrtResetDevice(0));
    WELL(aclFinalize());
    return 0;
}
