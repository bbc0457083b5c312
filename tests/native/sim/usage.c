/* Violations that the usage checker reports. Each misuse is reported once, with the call and the handle.
 * Correct use is not reported. */
#include <string.h>

#include "sim_test.h"

/* Checks that there is exactly one violation, whose text contains the three arguments. */
static void check_reported(const char *call, const char *what, const void *handle) {
    char text[512];
    char address[32] = "";
    CHECK(stats().violations == 1);
    CHECK(aclsim_violation(0, text, sizeof text) > 0);
    if (handle != NULL) {
        snprintf(address, sizeof address, "%p", handle);
    }
    if (strstr(text, call) != text || strstr(text, what) == NULL || strstr(text, address) == NULL) {
        fprintf(stderr, "expected a report of %s with \"%s\" and %s, got \"%s\"\n", call, what, address, text);
        exit(1);
    }
    aclsim_forget();
}

static void check_quiet(void) {
    CHECK(stats().violations == 0);
}

static void nothing(void *unused) {
    (void)unused;
}

static void test_a_stream_is_used_in_its_own_context_only(void) {
    aclrtEvent event = NULL;
    static const char what[] = "which is not the current one";
    aclrtContext owner = new_context();
    aclrtStream stream = new_stream();
    aclrtContext other = new_context();
    CHECK_RC(aclrtCreateEvent(&event), 0);
    CHECK_RC(aclrtRecordEvent(event, stream), 107003);
    check_reported("aclrtRecordEvent: thread", what, stream);
    CHECK_RC(aclrtLaunchHostFunc(stream, nothing, NULL), 107003);
    check_reported("aclrtLaunchHostFunc: thread", what, stream);
    CHECK_RC(aclrtStreamAbort(stream), 107003);
    check_reported("aclrtStreamAbort: thread", what, stream);
    CHECK_RC(aclrtDestroyStream(stream), 107003);
    check_reported("aclrtDestroyStream: thread", what, owner);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    END({aclrtDestroyEvent, event}, {aclrtDestroyContext, other});
    CHECK_RC(aclrtSetCurrentContext(owner), 0);
    END({aclrtDestroyStream, stream}, {aclrtDestroyContext, owner});
    CHECK_RC(aclrtSetDevice(0), 0);
    check_quiet();
}

static void test_a_dead_context_is_a_dead_handle(void) {
    aclrtContext context = NULL;
    static const char what[] = "expected a live handle of kind context, got a dead or foreign handle";
    aclrtContext primary = current_context();
    CHECK_RC(aclrtCreateContext(&context, 0), 0);
    CHECK_RC(aclrtDestroyContext(context), 0);
    check_quiet();
    CHECK(aclrtDestroyContext(context) != 0);
    check_reported("aclrtDestroyContext: thread", what, context);
    CHECK_RC(aclrtSetCurrentContext(context), 107000);
    check_reported("aclrtSetCurrentContext: thread", what, context);
    CHECK_RC(aclrtSetCurrentContext(&context), 107000);
    check_reported("aclrtSetCurrentContext: thread", what, &context);
    CHECK_RC(aclrtSetCurrentContext(primary), 0);
    check_quiet();
}

static void test_a_stream_in_a_wait_outlives_its_context(void) {
    call_t call;
    aclrtContext context = new_context();
    aclrtStream stream = new_stream();
    void *block = new_block(64);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 0, 64, stream), 0);
    call_waiting(&call, body_sync, stream, "aclrtSynchronizeStream");
    CHECK_RC(aclrtDestroyContext(context), 0);
    check_reported("aclrtDestroyContext: thread", "synchronizes it", stream);
    call_join(&call);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtFree(block), 0);
    check_quiet();
}

/* The client cannot destroy the primary context, but its handle is valid. */
static void test_the_primary_context_between_two_sets_is_not_dead(void) {
    CHECK_RC(aclrtSetDevice(1), 0);
    aclrtContext primary = current_context();
    CHECK_RC(aclrtResetDevice(1), 0);
    CHECK_RC(aclrtSetCurrentContext(primary), 107000);
    check_quiet();
    CHECK_RC(aclrtSetDevice(0), 0);
}

static void test_nothing_is_called_after_finalize(void) {
    int32_t device = 0;
    static const char what[] = "calls ACL after aclFinalize";
    CHECK_RC(aclInit(NULL), 0);
    aclrtStream stream = new_stream();
    CHECK_RC(aclFinalize(), 0);
    CHECK_RC(aclFinalize(), 100037);
    CHECK_RC(aclrtGetDevice(&device), 0);
    check_quiet();
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    check_reported("aclrtSynchronizeStream: thread", what, NULL);
    CHECK_RC(aclInit(NULL), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    check_quiet();
}

/* After the last aclFinalizeReference, libraries that have not initialised ACL may still call ACL functions. */
static void test_the_last_reference_does_not_affect_other_libraries(void) {
    CHECK_RC(aclInit(NULL), 100002);
    CHECK_RC(aclFinalizeReference(NULL), 0);
    CHECK_RC(aclFinalizeReference(NULL), 0);
    CHECK_RC(aclrtSynchronizeStream(NULL), 0);
    check_quiet();
}

static void test_a_call_that_reads_many_unwritten_rows_is_reported_once(void) {
    char bytes[64];
    aclsim_watch_uninitialised(1);
    void *block = new_block(64);
    CHECK_RC(aclrtMemset(block, 64, 1, 8), 0);
    CHECK_RC(aclrtMemcpy2d(bytes, 8, block, 16, 8, 4, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    check_reported("aclrtMemcpy2d: thread", "where byte 16 was never written", block);
    aclsim_watch_uninitialised(0);
    CHECK_RC(aclrtFree(block), 0);
    check_quiet();
}

static void test_a_task_is_reported_by_the_thread_that_enqueued_it(void) {
    char call[64];
    void *block = new_block(64);
    CHECK_RC(aclrtMemsetAsync((char *)block + 32, 64, 1, 64, NULL), 0);
    aclrtSynchronizeStream(NULL);
    snprintf(call, sizeof call, "device task: thread %d moves 64 bytes", (int)getpid());
    check_reported(call, "past the end of block", block);
    CHECK_RC(aclrtFree(block), 0);
    check_quiet();
}

static void test_a_forked_child_is_reported_by_its_own_thread(void) {
    char call[64];
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_RC(aclrtSetDevice(0), 507000);
        snprintf(call, sizeof call, "aclrtSetDevice: thread %d ", (int)getpid());
        check_reported(call, "calls ACL in a forked child", NULL);
        CHECK(aclCreateDataBuffer(NULL, 0) == NULL);
        check_reported("aclCreateDataBuffer", "calls ACL in a forked child", NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    check_quiet();
}

int main(void) {
    CHECK_RC(aclrtSetDevice(0), 0);
    RUN(test_a_stream_is_used_in_its_own_context_only, test_a_dead_context_is_a_dead_handle,
        test_a_stream_in_a_wait_outlives_its_context, test_the_primary_context_between_two_sets_is_not_dead,
        test_nothing_is_called_after_finalize, test_the_last_reference_does_not_affect_other_libraries,
        test_a_call_that_reads_many_unwritten_rows_is_reported_once,
        test_a_task_is_reported_by_the_thread_that_enqueued_it,
        test_a_forked_child_is_reported_by_its_own_thread);
}
