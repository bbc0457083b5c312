/* The controls, the journal and memory of the simulator. No test sleeps. Instead, the tests hold and release
 * streams, and query them. */
#include <string.h>

#include "sim_test.h"

static aclError body_query(void *stream) {
    aclrtStreamStatus status;
    return aclrtStreamQuery(stream, &status);
}

static void test_hold(void) {
    aclrtStream stream = NULL;
    aclrtStreamStatus status;
    void *block = NULL;
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 7, 64, stream), 0);
    CHECK(aclsim_pending(stream) == 1);
    CHECK_RC(aclrtStreamQuery(stream, &status), 0);
    CHECK(status == ACL_STREAM_STATUS_NOT_READY);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(stream, 5), 507046);
    call_t call;
    call_start(&call, body_sync, stream);
    until_waiting("aclrtSynchronizeStream");
    CHECK(atomic_load(&call.rc) == -1);
    CHECK(aclsim_release(stream) == 0);
    CHECK(call_join(&call) == 0);
    CHECK(aclsim_pending(stream) == 0 && *(unsigned char *)block == 7);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK(aclsim_hold(stream) == -1);
    CHECK_RC(aclrtDestroyStream(stream), 107017);
    CHECK_RC(aclrtFree(block), 0);
}

static void test_fail_next(void) {
    aclrtStream stream = NULL;
    aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
    void *block = NULL;
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK(aclsim_fail_next(stream, 507015) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 7, 64, stream), 0);
    while (aclsim_faulted(stream) != 1) {
        sched_yield();
    }
    CHECK_RC(aclrtStreamQuery(stream, &status), 0);
    CHECK(status == ACL_STREAM_STATUS_NOT_READY);
    CHECK(*(unsigned char *)block == 0xA5);
    CHECK_RC(aclrtSynchronizeStream(stream), 507015);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK(aclsim_hold(stream) == 0);
    CHECK(aclsim_fail_next(stream, 507015) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 8, 64, stream), 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 9, 64, stream), 0);
    CHECK(aclsim_release(stream) == 0);
    while (aclsim_faulted(stream) != 1) {
        sched_yield();
    }
    CHECK(aclsim_pending(stream) == 2);
    CHECK_RC(aclrtSynchronizeStream(stream), 507015);
    CHECK(*(unsigned char *)block == 9);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_RC(aclrtFree(block), 0);
}

static void test_armed_calls(void) {
    uint32_t count = 0;
    aclrtStream stream = NULL;
    CHECK(aclsim_fail_call("aclrtCreateStream", 207008, 1) == 0);
    CHECK(aclsim_fail_call("aclrtNothing", 1, 1) == -1);
    CHECK_RC(aclrtCreateStream(&stream), 207008);
    CHECK_RC(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 207008);
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK_RC(aclrtGetDeviceCount(&count), 0);
    CHECK(aclsim_hang_call("aclrtStreamQuery") == 0);
    call_t call;
    call_start(&call, body_query, stream);
    while (aclsim_hung("aclrtStreamQuery") != 1) {
        sched_yield();
    }
    CHECK(stats().inside == 1);
    CHECK(aclsim_release_call("aclrtStreamQuery") == 0);
    CHECK(call_join(&call) == 0);
    CHECK(aclsim_hung("aclrtStreamQuery") == 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_memory(void) {
    char host[64] = {0};
    char text[256];
    void *block = NULL;
    size_t free_bytes = 0;
    size_t total = 0;
    CHECK_RC(aclrtMalloc(&block, 32, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK_RC(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total), 0);
    CHECK(total == (size_t)64 << 30 && free_bytes == total - 64);
    uint64_t before = stats().violations;
    CHECK_RC(aclrtMemcpy(host, 64, block, 40, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK(stats().violations == before + 1);
    CHECK(aclsim_violation(before, text, sizeof text) > 0 && strstr(text, "aclrtMemcpy") != NULL);
    CHECK_RC(aclrtMemcpy(block, 4096, host, 4096, ACL_MEMCPY_HOST_TO_DEVICE), 507899);
    CHECK_RC(aclrtFree(block), 0);
    CHECK_RC(aclrtFree(block), 507899);
    CHECK_RC(aclrtFreeHost(block), 107000);
    CHECK_RC(aclrtMemcpy(host, 64, block, 32, ACL_MEMCPY_DEVICE_TO_HOST), 507899);
    CHECK_RC(aclrtMalloc(&block, (size_t)65 << 30, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
}

static void test_journal(void) {
    static char text[1 << 16];
    uint64_t next = 0;
    aclsim_forget();
    CHECK_RC(aclrtSetDevice(1), 0);
    CHECK_RC(aclrtResetDevice(1), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    size_t length = aclsim_journal(&next, text, sizeof text);
    CHECK(length > 0 && strstr(text, "\"call\":\"aclrtSetDevice\",\"args\":[1],\"rc\":0") != NULL);
    CHECK(aclsim_journal(&next, text, sizeof text) == 0);
    CHECK(aclsim_calls("aclrtSetDevice") == 2);
    CHECK_RC(aclrtResetDevice(0), 0);
}

static void test_text(void) {
    CHECK_RC(aclrtSetDevice(99), 107001);
    const char *text = aclGetRecentErrMsg();
    CHECK(text != NULL && strstr(text, "EE1003") != NULL && strstr(text, "deviceId") != NULL);
    CHECK(aclGetRecentErrMsg() == NULL);
}

static void measure(const char *what, bool events, long count) {
    aclrtStream stream = NULL;
    aclrtEvent event = NULL;
    void *block = NULL;
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK_RC(aclrtCreateEventExWithFlag(&event, 1), 0);
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    double start = now_s();
    for (long i = 0; i < count; i++) {
        aclError rc = events ? aclrtRecordEvent(event, stream) : aclrtMemsetAsync(block, 64, 1, 1, stream);
        CHECK_RC(rc, 0);
    }
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    double took = now_s() - start;
    printf("%s: %ld tasks in %.3f s, %.0f tasks/s\n", what, count, took, (double)count / took);
    CHECK_RC(aclrtFree(block), 0);
    CHECK_RC(aclrtDestroyEvent(event), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 1000000;
    CHECK_RC(aclrtSetDevice(0), 0);
    test_text();
    test_hold();
    test_fail_next();
    test_armed_calls();
    test_memory();
    measure("memset", false, count);
    measure("record", true, count);
    test_journal();
    puts("ok");
    return 0;
}
