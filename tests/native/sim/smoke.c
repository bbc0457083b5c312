/* The controls and the traps of the simulator, one after another. No sleeping: hold, release and ask. */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim_test.h"

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static aclsim_stats_t stats(void) {
    aclsim_stats_t now;
    aclsim_stats(&now);
    return now;
}

/* --- a second thread that makes one call
 * ---------------------------------------------------------------------- */
typedef struct {
    pthread_t thread;
    aclrtContext context;
    aclError (*body)(void *);
    void *arg;
    atomic_int rc;
} call_t;

static void *call_main(void *arg) {
    call_t *call = arg;
    if (call->context != NULL) {
        aclrtSetCurrentContext(call->context);
    }
    atomic_store(&call->rc, call->body(call->arg));
    return NULL;
}

static void call_start(call_t *call, aclError (*body)(void *), void *arg) {
    call->context = NULL;
    aclrtGetCurrentContext(&call->context);
    call->body = body;
    call->arg = arg;
    atomic_store(&call->rc, -1);
    CHECK(pthread_create(&call->thread, NULL, call_main, call) == 0);
}

static aclError call_join(call_t *call) {
    pthread_join(call->thread, NULL);
    return atomic_load(&call->rc);
}

static void until_inside(uint64_t count) {
    while (stats().inside < count) {
        sched_yield();
    }
}

static aclError body_sync(void *stream) {
    return aclrtSynchronizeStream(stream);
}

static aclError body_sync_device(void *unused) {
    (void)unused;
    return aclrtSynchronizeDevice();
}

static aclError body_query(void *stream) {
    aclrtStreamStatus status;
    return aclrtStreamQuery(stream, &status);
}

static aclError body_reset(void *unused) {
    (void)unused;
    return aclrtResetDeviceForce(0);
}

static aclError body_fill_queue(void *stream) {
    aclError rc = 0;
    void *block = NULL;
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    while (rc == 0) {
        rc = aclrtMemsetAsync(block, 64, 1, 64, stream);
    }
    return rc;
}

/* --- tests
 * ---------------------------------------------------------------------------------------------------- */
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
    until_inside(1);
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
    do {
        CHECK_RC(aclrtStreamQuery(stream, &status), 0);
    } while (status != ACL_STREAM_STATUS_COMPLETE);
    CHECK(*(unsigned char *)block == 0xA5);
    CHECK_RC(aclrtSynchronizeStream(stream), 507015);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    /* With work behind it, the queue stands still until somebody synchronises. */
    CHECK(aclsim_hold(stream) == 0);
    CHECK(aclsim_fail_next(stream, 507015) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 8, 64, stream), 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 9, 64, stream), 0);
    CHECK(aclsim_release(stream) == 0);
    while (aclsim_pending(stream) != 1) {
        sched_yield();
    }
    CHECK_RC(aclrtStreamQuery(stream, &status), 0);
    CHECK(status == ACL_STREAM_STATUS_NOT_READY);
    CHECK_RC(aclrtSynchronizeStream(stream), 507015);
    CHECK(*(unsigned char *)block == 9);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_RC(aclrtFree(block), 0);
}

static void test_stop_mode(void) {
    aclrtContext before = NULL;
    aclrtContext context = NULL;
    aclrtStream stream = NULL;
    aclrtStream other = NULL;
    aclrtStreamStatus status;
    void *block = NULL;
    CHECK_RC(aclrtGetCurrentContext(&before), 0);
    CHECK_RC(aclrtCreateContext(&context, 0), 0);
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK_RC(aclrtSetStreamFailureMode(stream, 1), 0);
    CHECK_RC(aclrtSetStreamFailureMode(stream, 0), 207000);
    CHECK(aclsim_fail_next(stream, 507015) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 7, 64, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507015);
    CHECK_RC(aclrtSynchronizeStream(stream), 507015);
    CHECK_RC(aclrtCreateStream(&other), 0);
    CHECK_RC(aclrtStreamQuery(other, &status), 507015);
    CHECK_RC(aclrtMemsetAsync(block, 64, 7, 64, other), 507015);
    CHECK_RC(aclrtDestroyContext(context), 0);
    CHECK_RC(aclrtSetCurrentContext(before), 0);
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
    CHECK(aclsim_unhang("aclrtStreamQuery") == 0);
    CHECK(call_join(&call) == 0);
    CHECK(aclsim_hung("aclrtStreamQuery") == 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_full_queue(void) {
    aclrtStream stream = NULL;
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK(aclsim_hold(stream) == 0);
    call_t call;
    call_start(&call, body_fill_queue, stream);
    while (aclsim_pending(stream) < 2046) {
        sched_yield();
    }
    until_inside(1);
    CHECK_RC(aclrtStreamAbort(stream), 0);
    /* The thread may have come to the queue only after the abort; then it fills it again. */
    while (atomic_load(&call.rc) == -1) {
        if (aclsim_pending(stream) == 2046) {
            CHECK_RC(aclrtStreamAbort(stream), 0);
        }
        sched_yield();
    }
    CHECK(call_join(&call) == 107023);
    CHECK(aclsim_release(stream) == 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_reset_drops(void) {
    aclrtStream stream = NULL;
    aclrtEvent event = NULL;
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK_RC(aclrtCreateEventWithFlag(&event, 1), 0);
    CHECK_RC(aclrtStreamWaitEvent(stream, event), 0);
    call_t call;
    call_start(&call, body_sync, stream);
    until_inside(1);
    uint64_t before = stats().violations;
    double start = now_s();
    CHECK_RC(aclrtResetDevice(0), 0);
    printf("reset with one stuck stream: %.1f ms\n", (now_s() - start) * 1e3);
    CHECK(call_join(&call) == 0);
    CHECK(stats().violations == before && stats().streams == 0 && stats().device_blocks == 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 107002);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 107017);
    CHECK(stats().violations == before + 1);
    CHECK_RC(aclrtDestroyEvent(event), 0);
}

static void test_device_sync_blocks(void) {
    aclrtStream stream = NULL;
    void *block = NULL;
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 7, 64, stream), 0);
    call_t device;
    call_start(&device, body_sync_device, NULL);
    until_inside(1);
    call_t reset;
    call_start(&reset, body_reset, NULL);
    while (aclsim_retain_count(0) != 0) {
        sched_yield();
    }
    CHECK(atomic_load(&device.rc) == -1 && atomic_load(&reset.rc) == -1);
    CHECK(aclsim_release(stream) == 0);
    CHECK(call_join(&device) == 0);
    CHECK(call_join(&reset) == 0);
    char text[256];
    CHECK(aclsim_violation(stats().violations - 1, text, sizeof text) > 0);
    CHECK(strstr(text, "aclrtSynchronizeDevice") != NULL);
    CHECK_RC(aclrtSetDevice(0), 0);
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

static void test_fork(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int32_t device = 0;
        bool good = aclrtGetDevice(&device) == 507000 && aclrtSynchronizeDevice() == 507000 &&
                    aclrtResetDevice(0) == 507000 && stats().violations > 0;
        exit(good ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
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
    test_stop_mode();
    test_armed_calls();
    test_full_queue();
    test_reset_drops();
    test_device_sync_blocks();
    test_fork();
    measure("memset", false, count);
    measure("record", true, count);
    test_journal();
    puts("ok");
    return 0;
}
