/* How streams signal each other without events: values in memory, notifies by id and key, count notifies. */
#include <string.h>

#include "sim_test.h"

static uint64_t word_at(const void *address) {
    uint64_t word = 0;
    CHECK_RC(aclrtMemcpy(&word, 8, address, 8, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    return word;
}

static bool idle(aclrtStream stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    CHECK_RC(aclrtStreamQuery(stream, &status), 0);
    return status == ACL_STREAM_STATUS_COMPLETE;
}

static void test_write(void) {
    aclrtStream stream = new_stream();
    uint64_t *words = zeros(8 * 2);
    CHECK_RC(aclrtValueWrite(words, 7, 0, stream), 0);
    CHECK_THEN(aclrtSynchronizeStream(stream), word_at(words) == 7 && word_at(words + 1) == 0);
    CHECK_RC(aclrtValueWrite(words, 7, 1, stream), 107000);
    CHECK_RC(aclrtValueWait(words, 7, 4, stream), 107000);
    CHECK_RC(aclrtValueWait(NULL, 7, 0, stream), 100000);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtValueWrite(words, 7, 0, stream), 0);
    CHECK_RC(aclrtValueWait(words + 1, 7, 0, stream), 0);
    CHECK_RC(aclrtFree(words), 0);
    CHECK_RC(aclrtValueWrite(words, 7, 0, stream), 107000);
    CHECK_RC(aclrtValueWait(words, 7, 0, stream), 107000);
    release_and_wait(stream, 507001);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

/* An address need not be a multiple of 8, but it must be in memory of a device. At the end of a block, a part
 * of the value is outside, and the task fails. A block of 24 bytes ends after 64 bytes. */
static void test_addresses(void) {
    aclrtStream stream = new_stream();
    uint64_t *host = new_host(16);
    uint64_t pageable = 0;
    char *bytes = zeros(24);
    for (size_t offset = 0; offset <= 8; offset++) {
        CHECK_RC(aclrtValueWrite(bytes + offset, UINT64_C(0x0102030405060708), 0, stream), 0);
        CHECK_RC(aclrtValueWait(bytes + offset, UINT64_C(0x0102030405060708), 1, stream), 0);
        CHECK_THEN(aclrtSynchronizeStreamWithTimeout(stream, 5000),
                   word_at(bytes + offset) == UINT64_C(0x0102030405060708));
    }
    CHECK_RC(aclrtValueWrite(host, 7, 0, stream), 107000);
    CHECK_RC(aclrtValueWait(host, 7, 0, stream), 107000);
    CHECK_RC(aclrtValueWrite(&pageable, 7, 0, stream), 107000);
    CHECK_RC(aclrtValueWait(&pageable, 7, 0, stream), 107000);
    CHECK_RC(aclrtValueWrite(bytes + 60, 7, 0, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507001);
    CHECK_RC(aclrtValueWait(bytes + 60, 7, 0, stream), 0);
    finish_stream(stream, 507001);
    END({aclrtFree, bytes}, {aclrtFreeHost, host});
}

/* Checks that a wait does not end while the value is `before`, and ends when it is `after`. */
static void wait_case(uint32_t flag, uint64_t value, uint64_t before, uint64_t after) {
    aclrtStream waiting = new_stream();
    aclrtStream writing = new_stream();
    uint64_t *word = zeros(8 * 1);
    CHECK_RC(aclrtMemcpy(word, 8, &before, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    CHECK_RC(aclrtValueWait(word, value, flag, waiting), 0);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(waiting, 5), 507046);
    CHECK_RC(aclrtValueWrite(word, after, 0, writing), 0);
    CHECK_RC(aclrtSynchronizeStream(waiting), 0);
    CHECK_RC(aclrtFree(word), 0);
    END_STREAMS(waiting, writing);
}

static void test_waits(void) {
    wait_case(0, 5, 4, 6);
    wait_case(0, 5, UINT64_MAX, 5); /* compares the difference as a signed number */
    wait_case(1, 5, 6, 5);
    wait_case(2, 6, 9, 2);
    wait_case(3, 6, UINT64_MAX - 6, 1);
}

static void test_wait_sees_copies_and_writes_of_the_host(void) {
    aclrtStream waiting = new_stream();
    aclrtStream copying = new_stream();
    uint64_t *word = zeros(8 * 1);
    uint64_t *pinned = new_host(8);
    *pinned = 3;
    CHECK_RC(aclrtValueWait(word, 3, 1, waiting), 0);
    CHECK_RC(aclrtMemcpyAsync(word, 8, pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, copying), 0);
    CHECK_RC(aclrtSynchronizeStream(waiting), 0);
    CHECK_RC(aclrtValueWait(word, 4, 1, waiting), 0);
    uint64_t four = 4;
    CHECK_RC(aclrtMemcpy(word, 8, &four, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    CHECK_RC(aclrtSynchronizeStream(waiting), 0);
    END({aclrtFreeHost, pinned}, {aclrtFree, word});
    END_STREAMS(waiting, copying);
}

/* The simulator is not notified when a host thread writes the value, so it polls the value. It polls in real
 * time, so the wait ends although the virtual clock does not move. */
static void test_wait_sees_the_host_while_the_clock_is_stopped(void) {
    aclrtStream stream = new_stream();
    uint64_t *words = zeros(8 * 1);
    aclsim_clock_virtual(1);
    int64_t start = aclsim_clock_now();
    CHECK_RC(aclrtValueWait(words, 1, 1, stream), 0);
    __atomic_store_n(words, 1, __ATOMIC_RELEASE);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(stream, 1000), 0);
    CHECK(aclsim_clock_now() == start);
    aclsim_clock_virtual(0);
    END({aclrtFree, words}, {aclrtDestroyStream, stream});
}

static void test_wait_is_aborted(void) {
    aclrtStream stream = new_stream();
    uint64_t *word = zeros(8 * 1);
    CHECK_RC(aclrtValueWait(word, 1, 1, stream), 0);
    CHECK_RC(aclrtValueWrite(word, 9, 0, stream), 0);
    CHECK_RC(aclrtStreamAbort(stream), 0);
    CHECK(idle(stream) && word_at(word) == 0);
    END({aclrtFree, word}, {aclrtDestroyStream, stream});
}

static void test_trap(void) {
    aclrtStream stream = new_stream();
    uint64_t *word = zeros(8 * 1);
    CHECK(aclsim_trap_next(NULL, 507015) == -1);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtValueWrite(word, 9, 0, stream), 0);
    CHECK(aclsim_trap_next(stream, 507015) == 0);
    release_and_wait(stream, 507015);
    CHECK(word_at(word) == 0);
    CHECK(aclsim_fail_next(stream, 507014) == 0);
    CHECK_RC(aclrtValueWrite(word, 9, 0, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507014);
    END({aclrtFree, word}, {aclrtDestroyStream, stream});
}

static void test_notify_ids(void) {
    uint32_t ids[2] = {0, 0};
    aclrtNotify first = new_notify();
    aclrtNotify second = new_notify();
    CHECK_RC(aclrtGetNotifyId(first, &ids[0]), 0);
    CHECK_THEN(aclrtGetNotifyId(second, &ids[1]), ids[0] != ids[1]);
    CHECK_RC(aclrtDestroyNotify(second), 0);
    CHECK_RC(aclrtGetNotifyId(second, &ids[1]), 107017);
    aclrtContext own = current_context();
    aclrtContext other = new_context();
    CHECK_THEN(aclrtGetNotifyId(first, &ids[1]), ids[1] == ids[0]);
    CHECK_RC(aclrtDestroyContext(other), 0);
    CHECK_RC(aclrtSetCurrentContext(own), 0);
    CHECK_RC(aclrtDestroyNotify(first), 0);
}

static void test_batch_reset(void) {
    aclrtStream stream = new_stream();
    aclrtNotify notifies[2];
    for (int i = 0; i < 2; i++) {
        CHECK_RC(aclrtCreateNotify(&notifies[i], 0), 0);
        CHECK_RC(aclrtRecordNotify(notifies[i], stream), 0);
    }
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK_RC(aclrtNotifyBatchReset(NULL, 1), 100000);
    CHECK_RC(aclrtNotifyBatchReset(notifies, 0), 107000);
    CHECK_RC(aclrtNotifyBatchReset(notifies, 1), 0);
    CHECK_RC(aclrtWaitAndResetNotify(notifies[1], stream, 0), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK_RC(aclrtWaitAndResetNotify(notifies[0], stream, 0), 0);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(stream, 5), 507046);
    CHECK_RC(aclrtStreamAbort(stream), 0);
    CHECK_RC(aclrtDestroyNotify(notifies[1]), 0);
    CHECK_RC(aclrtNotifyBatchReset(notifies, 2), 107017);
    END({aclrtDestroyNotify, notifies[0]}, {aclrtDestroyStream, stream});
}

static void test_notify_by_key(void) {
    aclrtStream stream = new_stream();
    aclrtNotify again = NULL;
    char key[65];
    int32_t pid = 1;
    aclrtNotify owner = new_notify();
    CHECK_RC(aclrtNotifyGetExportKey(owner, key, 64, 0), 107000);
    CHECK_RC(aclrtNotifyGetExportKey(owner, key, sizeof key, 1), 107000);
    CHECK_RC(aclrtNotifyGetExportKey(NULL, key, sizeof key, 0), 100000);
    CHECK_RC(aclrtNotifyGetExportKey(owner, key, sizeof key, 2), 0);
    CHECK_RC(aclrtNotifySetImportPid(owner, &pid, 1), 0);
    CHECK_RC(aclrtNotifySetImportPid(owner, &pid, 0), 107000);
    CHECK_RC(aclrtNotifySetImportPidInterServer(owner, NULL, 1), 100000);
    CHECK_RC(aclrtNotifyImportByKey(&again, "no key", 0), 107000);
    CHECK_RC(aclrtNotifyImportByKey(&again, key, 1), 107000);
    CHECK_THEN(aclrtNotifyImportByKey(&again, key, 0), stats().notifies == 2 && again != owner);
    CHECK_RC(aclrtRecordNotify(again, stream), 0);
    CHECK_RC(aclrtWaitAndResetNotify(owner, stream, 0), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK_RC(aclrtDestroyNotify(owner), 0);
    CHECK_RC(aclrtRecordNotify(again, stream), 0);
    CHECK_RC(aclrtWaitAndResetNotify(again, stream, 0), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK_RC(aclrtDestroyNotify(again), 0);
    CHECK_RC(aclrtNotifyImportByKey(&again, key, 0), 107000);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_notifies_run_out(void) {
    static aclrtNotify notifies[8192];
    aclrtNotify more = NULL;
    for (int i = 0; i < 8192; i++) {
        CHECK_RC(aclrtCreateNotify(&notifies[i], 0), 0);
    }
    CHECK_RC(aclrtCreateNotify(&more, 0), 207009);
    for (int i = 0; i < 8192; i++) {
        CHECK_RC(aclrtDestroyNotify(notifies[i]), 0);
    }
    more = new_notify();
    CHECK_RC(aclrtDestroyNotify(more), 0);
}

static void record(aclrtCntNotify notify, aclrtStream stream, aclrtCntNotifyRecordMode mode, uint32_t value) {
    aclrtCntNotifyRecordInfo info = {.mode = mode, .value = value};
    CHECK_RC(aclrtCntNotifyRecord(notify, stream, &info), 0);
}

static aclrtStream count_awaited(aclrtCntNotify notify, aclrtCntNotifyWaitMode mode, uint32_t value,
                                 bool clear) {
    aclrtStream stream = new_stream();
    aclrtCntNotifyWaitInfo info = {.mode = mode, .value = value, .isClear = clear};
    CHECK_RC(aclrtCntNotifyWaitWithTimeout(notify, stream, &info), 0);
    return stream;
}

static void count_reached(aclrtCntNotify notify, aclrtCntNotifyWaitMode mode, uint32_t value, bool clear) {
    aclrtStream stream = count_awaited(notify, mode, value, clear);
    finish_stream(stream, 0);
}

static void count_not_reached(aclrtCntNotify notify, aclrtCntNotifyWaitMode mode, uint32_t value) {
    aclrtStream stream = count_awaited(notify, mode, value, false);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(stream, 50), 507046);
    CHECK_RC(aclrtStreamAbort(stream), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_counts_are_missing(void) {
    uint32_t id = 0;
    CHECK_RC(aclrtCntNotifyCreate(NULL, 0), 107000);
    CHECK_RC(aclrtCntNotifyGetId(&id, &id), 107017);
    CHECK_RC(aclrtCntNotifyDestroy(NULL), 107000);
    CHECK_RC(aclrtCntNotifyRecord(NULL, NULL, NULL), 100000);
    CHECK_RC(aclrtCntNotifyWaitWithTimeout(NULL, NULL, NULL), 100000);
}

static void test_counts(void) {
    aclrtStream stream = new_stream();
    aclrtCntNotify notify = NULL;
    uint32_t id = 0;
    aclsim_set_count_notify_supported(1);
    CHECK_RC(aclrtCntNotifyCreate(&notify, 0), 0);
    CHECK_RC(aclrtCntNotifyGetId(notify, &id), 0);
    aclrtCntNotifyRecordInfo unknown = {.mode = (aclrtCntNotifyRecordMode)3};
    CHECK_RC(aclrtCntNotifyRecord(notify, stream, &unknown), 107000);
    record(notify, stream, ACL_RT_CNT_NOTIFY_RECORD_SET_VALUE_MODE, 4);
    record(notify, stream, ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE, 2);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    count_reached(notify, ACL_RT_CNT_NOTIFY_WAIT_EQUAL_MODE, 6, false);
    count_not_reached(notify, ACL_RT_CNT_NOTIFY_WAIT_BIGGER_MODE, 6);
    count_reached(notify, ACL_RT_CNT_NOTIFY_WAIT_BIGGER_OR_EQUAL_MODE, 6, false);
    count_reached(notify, ACL_RT_CNT_NOTIFY_WAIT_LESS_MODE, 7, false);
    count_reached(notify, ACL_RT_CNT_NOTIFY_WAIT_EQUAL_WITH_BITMASK_MODE, 2, false);
    record(notify, stream, ACL_RT_CNT_NOTIFY_RECORD_BIT_OR_MODE, 9);
    record(notify, stream, ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE, 12);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    count_reached(notify, ACL_RT_CNT_NOTIFY_WAIT_EQUAL_MODE, 12, true);
    count_reached(notify, ACL_RT_CNT_NOTIFY_WAIT_EQUAL_MODE, 0, false);
    record(notify, stream, ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE, 1);
    CHECK_RC(aclrtCntNotifyReset(notify, stream), 0);
    CHECK_RC(aclrtCntNotifyDestroy(notify), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK_RC(aclrtCntNotifyDestroy(notify), 107017);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    aclsim_set_count_notify_supported(0);
}

static void test_events_left(void) {
    uint32_t before = 0;
    uint32_t after = 0;
    CHECK_RC(aclrtGetEventAvailNum(&before), 0);
    aclrtEvent event = old_event(1);
    CHECK_THEN(aclrtGetEventAvailNum(&after), before == after + 1);
    CHECK_RC(aclrtDestroyEvent(event), 0);
    CHECK_RC(aclrtCreateEventExWithFlag(&event, 1), 0);
    CHECK_THEN(aclrtGetEventAvailNum(&after), before == after);
    aclrtIpcEventHandle handle;
    memset(&handle, 0, sizeof handle);
    CHECK_RC(aclrtIpcGetEventHandle(NULL, &handle), 100000);
    CHECK_RC(aclrtIpcGetEventHandle(event, &handle), 107000);
    CHECK_RC(aclrtDestroyEvent(event), 0);
    CHECK_RC(aclrtIpcGetEventHandle(event, &handle), 107017);
}

aclError aclrtIpcOpenEventHandle(aclrtIpcEventHandle handle, aclrtEvent *event);

static void test_shared_events_are_missing(void) {
    aclrtEvent event = NULL;
    aclrtIpcEventHandle handle;
    memset(&handle, 0, sizeof handle);
    CHECK_RC(aclrtIpcOpenEventHandle(handle, NULL), 100000);
    CHECK_RC(aclrtIpcOpenEventHandle(handle, &event), 207000);
}

static aclrtEventRecordedStatus status_of(aclrtEvent event) {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    CHECK_RC(aclrtQueryEventStatus(event, &status), 0);
    return status;
}

static void refused_for_shared(aclrtEvent event, aclrtStream stream) {
    uint64_t stamp = 0;
    uint32_t id = 0;
    float ms = 0;
    aclrtEventStatus status;
    aclrtEventWaitStatus wait_status;
    aclmdlRI model = NULL;
    CHECK_RC(aclrtResetEvent(event, stream), 207000);
    CHECK_RC(aclrtQueryEvent(event, &status), 207000);
    CHECK_RC(aclrtQueryEventWaitStatus(event, &wait_status), 207000);
    CHECK_RC(aclrtEventElapsedTime(&ms, event, event), 207000);
    CHECK_RC(aclrtEventGetTimestamp(event, &stamp), 207000);
    CHECK_RC(aclrtGetEventId(event, &id), 207000);
    CHECK_RC(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
    CHECK_RC(aclrtRecordEvent(event, stream), 207000);
    CHECK_RC(aclrtStreamWaitEvent(stream, event), 207000);
    CHECK_RC(aclmdlRICaptureEnd(stream, &model), 0);
    CHECK_RC(aclmdlRIDestroy(model), 0);
}

static void test_shared_events(void) {
    aclrtStream stream = new_stream();
    aclrtStream other = new_stream();
    aclrtEvent event = NULL;
    aclrtEvent opened = NULL;
    aclrtEvent late = NULL;
    aclrtIpcEventHandle handle;
    aclsim_set_ipc_event_supported(1);
    CHECK_RC(aclrtCreateEventExWithFlag(&event, 0x41), 107000);
    CHECK_RC(aclrtCreateEventExWithFlag(&event, 0x40), 0);
    memset(&handle, 0, sizeof handle);
    CHECK_RC(aclrtIpcOpenEventHandle(handle, &opened), 507899);
    CHECK_RC(aclrtIpcGetEventHandle(event, &handle), 0);
    CHECK_RC(aclrtIpcOpenEventHandle(handle, &opened), 0);
    CHECK(opened != event && status_of(opened) == ACL_EVENT_RECORDED_STATUS_COMPLETE);
    refused_for_shared(opened, stream);
    CHECK_RC(aclrtStreamWaitEvent(other, opened), 0);
    CHECK_RC(aclrtSynchronizeStream(other), 0); /* the event was never recorded, so the stream does not wait */
    CHECK(aclsim_hold(stream) == 0);
    CHECK_THEN(aclrtRecordEvent(event, stream), status_of(event) == ACL_EVENT_RECORDED_STATUS_NOT_READY);
    CHECK(status_of(opened) == ACL_EVENT_RECORDED_STATUS_NOT_READY);
    CHECK_RC(aclrtIpcOpenEventHandle(handle, &late), 0);
    CHECK_RC(aclrtDestroyEvent(event), 0);
    CHECK_RC(aclrtSynchronizeEventWithTimeout(late, 5), 507047);
    CHECK_RC(aclrtStreamWaitEvent(other, opened), 0);
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(other, 5), 507046);
    CHECK(aclsim_release(stream) == 0);
    CHECK_RC(aclrtSynchronizeStream(other), 0);
    CHECK_RC(aclrtSynchronizeEvent(late), 0);
    END_EVENTS(opened, late);
    CHECK_RC(aclrtIpcOpenEventHandle(handle, &late), 507899);
    aclsim_set_ipc_event_supported(0);
    END_STREAMS(stream, other);
}

int main(void) {
    start_acl();
    RUN(test_write, test_addresses, test_waits, test_wait_sees_copies_and_writes_of_the_host,
        test_wait_sees_the_host_while_the_clock_is_stopped, test_wait_is_aborted, test_trap, test_notify_ids,
        test_batch_reset, test_notify_by_key, test_notifies_run_out, test_counts_are_missing, test_counts,
        test_events_left, test_shared_events_are_missing, test_shared_events);
    end_acl();
}
