/* Failed tasks: the order of error code, callbacks and queue; task ids; registrations; kinds without a
 * callback. */
#include <sys/syscall.h>
#include <unistd.h>

#include "failure_test.h"

enum { ROUNDS = 300 };

static aclrtStream idle_stream;
static aclrtEvent nudge_event;

static void on_exception(aclrtExceptionInfo *info) {
    void *arguments = NULL;
    uint32_t length = 0;
    CHECK(aclrtGetErrorCodeFromExceptionInfo(info) != 0);
    CHECK_RC(aclrtGetArgsFromExceptionInfo(info, &arguments, &length), -1); /* the failed task is no kernel */
    atomic_fetch_add(&reported, 1);
}

static aclrtStream failing;
static aclrtStream dependent;
static aclrtEvent behind;
static aclrtEvent later;

static bool seen(int round) {
    switch (round % 4) {
    case 0:
        return is_complete(later);
    case 1:
        return is_complete(behind);
    case 2:
        return is_idle(failing);
    default:
        return is_idle(dependent);
    }
}

/* Queries later work in different ways. No query reports that the work is complete before the callback. */
static void try_order(char *block, int round) {
    int before = atomic_load(&reported);
    failing = new_stream(); /* new, because the 64th task of a stream also wakes the thread */
    dependent = new_stream();
    fill(failing, block, 507001);
    CHECK_RC(aclrtRecordEvent(behind, failing), 0);
    CHECK_RC(aclrtStreamWaitEvent(dependent, behind), 0);
    CHECK_RC(aclrtRecordEvent(later, dependent), 0);
    until_faulted(failing);
    CHECK(!is_complete(behind) && !is_complete(later) && !is_idle(failing) && !is_idle(dependent));
    CHECK(atomic_load(&reported) == before);
    nudge(nudge_event, idle_stream);
    UNTIL(seen(round));
    CHECK(atomic_load(&reported) == before + 1);
    CHECK_RC(aclrtSynchronizeStream(dependent), 0);
    CHECK_RC(aclrtSynchronizeStream(failing), 507001);
    END_STREAMS(failing, dependent);
}

static void test_order(void) {
    char *block = new_block(64);
    behind = new_event(SYNC_FLAG);
    later = new_event(SYNC_FLAG);
    atomic_store(&callback_slow, 1);
    for (int i = 0; i < ROUNDS; i++) {
        try_order(block, i);
    }
    atomic_store(&callback_slow, 0);
    END_EVENTS(behind, later);
    CHECK_RC(aclrtFree(block), 0);
}

/* One wake handles the failures of all streams of the device, but only failures that happened before the
 * wake. */
static void test_one_wake(void) {
    aclrtStream streams[3];
    char *block = new_block(64);
    int before = atomic_load(&reported);
    for (int i = 0; i < 3; i++) {
        streams[i] = new_stream();
        fill(streams[i], block, 507001);
        fill(streams[i], block, 507015);
        until_faulted(streams[i]);
    }
    nudge(nudge_event, idle_stream);
    until_reported(before + 3);
    for (int i = 0; i < 3; i++) {
        until_faulted(streams[i]);
        CHECK(aclsim_pending(streams[i]) == 1);
    }
    CHECK(atomic_load(&reported) == before + 3);
    nudge(nudge_event, idle_stream);
    until_reported(before + 6);
    for (int i = 0; i < 3; i++) {
        finish_stream(streams[i], 507015);
    }
    CHECK_RC(aclrtFree(block), 0);
}

/* While a callback runs, its stream does not continue. Destroying the stream by force waits for the callback.
 */
static void test_reset_during_callback(void) {
    char *block = new_block(64);
    for (int i = 0; i < 20; i++) {
        int before = atomic_load(&reported);
        aclrtStream stream = new_stream();
        atomic_store(&callback_slow, 1);
        fill(stream, block, 507001);
        fill(stream, block, 0);
        until_faulted(stream);
        nudge(nudge_event, idle_stream);
        CHECK_RC(aclrtDestroyStreamForce(stream), 0);
        CHECK(atomic_load(&reported) == before + 1);
    }
    atomic_store(&callback_slow, 0);
    CHECK_RC(aclrtFree(block), 0);
}

static uint32_t last_task(void) {
    uint32_t id = 0;
    CHECK_RC(aclrtGetThreadLastTaskId(&id), 0);
    return id;
}

static void test_ids(void) {
    static const uint32_t starts[] = {0, 65530, UINT32_MAX - 2};
    aclrtStream stream = new_stream();
    char *block = new_block(64);
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        CHECK(aclsim_set_next_task(stream, starts[i]) == 0);
        for (uint32_t k = 0; k < 8; k++) {
            int before = atomic_load(&reported);
            fill(stream, block, k % 2 == 0 ? 507001 : 0);
            CHECK(last_task() == starts[i] + k);
            CHECK_RC(aclrtSynchronizeStream(stream), k % 2 == 0 ? 507001 : 0);
            CHECK(atomic_load(&reported) == before + (k % 2 == 0 ? 1 : 0));
            runtime_exception_t info = last_reported();
            CHECK(info.task == starts[i] + k - k % 2 && info.stream == id_of(stream) && info.code == 507001);
            CHECK(info.device == 0 && info.thread == (uint32_t)syscall(SYS_gettid));
        }
    }
    CHECK(aclsim_set_next_task(NULL, 0) == -1);
    END({aclrtDestroyStream, stream}, {aclrtFree, block});
}

static void copy(aclrtStream stream, char *to, char *from, size_t count) {
    CHECK(aclsim_fail_next(stream, 507001) == 0);
    CHECK_RC(aclrtMemcpyAsync(to, count, from, count, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 0);
}

/* An operation may consist of several tasks. The failing task is not the last one. */
static void test_windows(void) {
    static const size_t part = 64UL << 20;
    aclrtStream stream = new_stream();
    char *block = new_block(16 * part);
    uint32_t first = 4294967290U;
    CHECK(aclsim_set_next_task(stream, first) == 0);
    static const uint32_t parts[] = {1, 1, 2, 8};
    const size_t counts[] = {1, part, part + 1, 8 * part};
    for (int i = 0; i < 4; i++) {
        copy(stream, block, block + 8 * part, counts[i]);
        CHECK(aclsim_pending(stream) == 1);
        CHECK(last_task() == first + parts[i] - 1);
        CHECK_RC(aclrtSynchronizeStream(stream), 507001);
        CHECK(last_reported().task - first < parts[i]);
        CHECK(parts[i] == 1 || last_reported().task != last_task());
        first += parts[i];
    }
    END({aclrtDestroyStream, stream}, {aclrtFree, block});
}

/* Calls that enqueue no task do not change the id of the thread's last task, which may be on another stream. */
static void test_no_task(void) {
    aclrtStream stream = new_stream();
    aclrtStream other = new_stream();
    aclrtEvent event = new_event(SYNC_FLAG);
    char *block = new_block(64);
    CHECK(aclsim_set_next_task(stream, 100) == 0 && aclsim_set_next_task(other, 200) == 0);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtRecordEvent(event, stream), 0);
    fill(other, block, 0);
    CHECK(last_task() == 200);
    CHECK_RC(aclrtStreamWaitEvent(stream, event), 0); /* an event of the same stream */
    CHECK_RC(aclrtMemcpyAsync(block, 0, block + 8, 0, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 0);
    CHECK(last_task() == 200 && aclsim_pending(stream) == 1);
    release_and_wait(stream, 0);
    CHECK_RC(aclrtStreamWaitEvent(other, event), 0); /* the event is complete */
    CHECK(last_task() == 200);
    fill(stream, block, 0);
    CHECK(last_task() == 101);
    CHECK_RC(aclrtSynchronizeDevice(), 0);
    CHECK_RC(aclrtDestroyEvent(event), 0);
    END_STREAMS(stream, other);
    CHECK_RC(aclrtFree(block), 0);
}

static void fail_one(aclError code) {
    aclrtStream stream = new_stream();
    char *block = new_block(64);
    fill(stream, block, code);
    CHECK_RC(aclrtSynchronizeStream(stream), code);
    END({aclrtDestroyStream, stream}, {aclrtFree, block});
}

static void test_registrations(void) {
    int before = atomic_load(&reported);
    CHECK_RC(rtRegTaskFailCallbackByModule(NULL, on_failure), 107000);
    CHECK_RC(rtRegTaskFailCallbackByModule("again", on_failure), 0);
    CHECK_RC(rtRegTaskFailCallbackByModule("again", on_failure), 0);
    CHECK_RC(aclrtSetExceptionInfoCallback(on_exception), 0);
    CHECK_RC(aclrtExceptionInfoCallbackRegister(on_exception), 0);
    fail_one(507001);
    CHECK(atomic_load(&reported) == before + 4);
    CHECK_RC(aclrtSetExceptionInfoCallback(NULL), 0);
    CHECK_RC(rtRegTaskFailCallbackByModule("again", NULL), 0);
    reset_and_set();
    fail_one(507015);
    CHECK(atomic_load(&reported) == before + 6); /* both callbacks are still registered after the reset */
    CHECK_RC(aclrtExceptionInfoCallbackUnregister(on_exception), 0);
    CHECK_RC(aclrtExceptionInfoCallbackRegister(NULL), 107000);
    CHECK(aclrtGetErrorCodeFromExceptionInfo((aclrtExceptionInfo *)(void *)&before) == UINT32_MAX);
}

/* The whole device has failed, so the callback gets no task id. */
static void test_unknown_task(void) {
    uint32_t rule = 0;
    int before = atomic_load(&reported);
    fail_one(207018);
    CHECK(atomic_load(&reported) == before + 1 && last_reported().code == 207018);
    CHECK(last_reported().task == UINT32_MAX && last_reported().stream == UINT32_MAX &&
          last_reported().device == 0);
    aclrtStream stream = new_stream();
    char *block = new_block(64);
    CHECK(aclsim_fault_add("aclrtMemsetAsync:lost=507010", &rule) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 1, 64, stream), 0);
    until_reported(before + 2);
    CHECK(last_reported().task == UINT32_MAX && last_reported().stream == UINT32_MAX &&
          last_reported().code == 507010);
    aclsim_fault_clear();
    reset_and_set();
}

int main(void) {
    CHECK_RC(rtRegTaskFailCallbackByModule("failures", on_failure), 0); /* before all other ACL calls */
    start_acl();
    idle_stream = new_stream();
    nudge_event = old_event(SYNC_FLAG);
    RUN(test_order, test_one_wake, test_reset_during_callback, test_ids, test_windows, test_no_task,
        test_registrations, test_unknown_task);
}
