/* Which calls wait, which events wake them, and which code they then return. Which calls are blocked by a full
 * queue or a failed task, and which work is dropped. */
#include <string.h>

#include "sim_test.h"

typedef enum { BY_STREAM, BY_STREAM_LIMITED, BY_EVENT, BY_DEVICE, WAYS } way_t;

static const char *const way_names[] = {"aclrtSynchronizeStream", "aclrtSynchronizeStreamWithTimeout",
                                        "aclrtSynchronizeEvent", "aclrtSynchronizeDevice"};

typedef struct {
    way_t way;
    aclrtStream stuck;
    aclrtStream other;
    aclrtEvent missing;
    aclrtEvent mark;
    call_t waiter;
} setup_t;

static aclError body_wait(void *arg) {
    const setup_t *setup = arg;
    switch (setup->way) {
    case BY_STREAM:
        return aclrtSynchronizeStream(setup->stuck);
    case BY_STREAM_LIMITED:
        return aclrtSynchronizeStreamWithTimeout(setup->stuck, 100000);
    case BY_EVENT:
        return aclrtSynchronizeEvent(setup->mark);
    default:
        return aclrtSynchronizeDevice();
    }
}

static void begin(setup_t *setup, way_t way) {
    *setup = (setup_t){.way = way, .stuck = new_stream(), .other = new_stream()};
    setup->missing = old_event(1);
    setup->mark = new_event(1);
    CHECK_RC(aclrtStreamWaitEvent(setup->stuck, setup->missing), 0);
    CHECK_RC(aclrtRecordEvent(setup->mark, setup->stuck), 0);
    call_waiting(&setup->waiter, body_wait, setup, way_names[way]);
}

/* Completes the event, so the calls that are still inside return success. */
static void go_on(const setup_t *setup) {
    CHECK_RC(aclrtRecordEvent(setup->missing, setup->other), 0);
}

static bool still_waits(const setup_t *setup) {
    return atomic_load(&setup->waiter.rc) == -1 && aclsim_waiting(way_names[setup->way]) == 1;
}

static void end(const setup_t *setup, bool destroyed) {
    if (!destroyed) {
        finish_stream(setup->stuck, 0);
    }
    CHECK_RC(aclrtDestroyStream(setup->other), 0);
    END_EVENTS(setup->missing, setup->mark);
}

static void test_a_completed_event_ends_the_waiting_calls(way_t way) {
    setup_t setup;
    begin(&setup, way);
    CHECK_RC(aclFinalize(), 0); /* wakes no call */
    CHECK(still_waits(&setup));
    CHECK_RC(aclInit(NULL), 0);
    go_on(&setup);
    CHECK(call_join(&setup.waiter) == 0);
    end(&setup, false);
}

static void test_abort(way_t way) {
    setup_t setup;
    begin(&setup, way);
    CHECK_RC(aclrtStreamAbort(setup.stuck), 0);
    CHECK(call_join(&setup.waiter) == 107023);
    end(&setup, false);
    begin(&setup, way);
    CHECK_RC(aclrtDeviceTaskAbort(0, 5000), 0);
    CHECK(call_join(&setup.waiter) == 107022);
    end(&setup, false);
}

static aclError body_destroy_force(void *stream) {
    return aclrtDestroyStreamForce(stream);
}

static void test_destroy(way_t way) {
    setup_t setup;
    call_t act;
    begin(&setup, way);
    if (way != BY_DEVICE) {
        CHECK_RC(aclrtDestroyStreamForce(setup.stuck), 0);
    } else {
        call_waiting(&act, body_destroy_force, setup.stuck, "aclrtDestroyStreamForce");
        go_on(&setup);
        CHECK(call_join(&act) == 0);
    }
    CHECK(call_join(&setup.waiter) == 0);
    end(&setup, true);
    begin(&setup, way); /* without force, the destroying call waits for the stream's work */
    call_waiting(&act, body_destroy, setup.stuck, "aclrtDestroyStream");
    CHECK(still_waits(&setup));
    go_on(&setup);
    CHECK(call_join(&act) == 0 && call_join(&setup.waiter) == 0);
    end(&setup, true);
}

/* The work is dropped, and waiting calls return success. */
static void test_reset(way_t way, bool force) {
    setup_t setup;
    begin(&setup, way);
    CHECK_RC(force ? aclrtResetDeviceForce(0) : aclrtResetDevice(0), 0);
    CHECK(call_join(&setup.waiter) == 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtSynchronizeDevice(), 0);
    END_EVENTS(setup.missing, setup.mark);
}

/* A wait for the device holds the lock for creating and ending streams. Enqueueing and querying are still
 * possible. */
static void test_device_wait_blocks_creation(void) {
    setup_t setup;
    call_t create;
    call_t destroy;
    call_t abort_other;
    aclrtStream made = NULL;
    aclrtStream spare = new_stream();
    aclrtStreamStatus status;
    begin(&setup, BY_DEVICE);
    call_start(&create, body_create, &made);
    call_start(&destroy, body_destroy, spare);
    call_start(&abort_other, body_abort, setup.other);
    until_waiting(&create, 1, "aclrtCreateStream");
    until_waiting(&destroy, 1, "aclrtDestroyStream");
    until_waiting(&abort_other, 1, "aclrtStreamAbort");
    CHECK_RC(aclrtRecordEvent(setup.mark, setup.other), 107023); /* returns when the abort gets the lock */
    CHECK_RC(aclrtStreamQuery(setup.stuck, &status), 0);
    CHECK(status == ACL_STREAM_STATUS_NOT_READY && still_waits(&setup));
    CHECK_RC(aclrtRecordEvent(setup.missing, NULL), 0);
    CHECK(call_join(&setup.waiter) == 0 && call_join(&create) == 0);
    CHECK(call_join(&destroy) == 0 && call_join(&abort_other) == 0);
    CHECK_RC(aclrtDestroyStream(made), 0);
    end(&setup, false);
}

/* A wait covers only work that was enqueued before it. */
static void test_wait_covers_earlier_work(way_t way) {
    setup_t setup;
    aclrtStreamStatus status;
    begin(&setup, way);
    aclrtEvent later = old_event(1);
    CHECK_RC(aclrtStreamWaitEvent(setup.stuck, later), 0);
    CHECK_RC(aclrtRecordEvent(setup.mark, setup.stuck), 0);
    go_on(&setup);
    CHECK(call_join(&setup.waiter) == 0);
    CHECK_THEN(aclrtStreamQuery(setup.stuck, &status), status == ACL_STREAM_STATUS_NOT_READY);
    CHECK_RC(aclrtSynchronizeEventWithTimeout(setup.mark, 1), 507047); /* waits for the newer record */
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(setup.stuck, 1), 507046);
    CHECK_RC(aclrtRecordEvent(later, setup.other), 0);
    end(&setup, false);
    CHECK_RC(aclrtDestroyEvent(later), 0);
}

typedef struct {
    aclrtEvent event;
    aclrtStream stream;
} record_call_t;

static aclError body_record(void *arg) {
    const record_call_t *call = arg;
    return aclrtRecordEvent(call->event, call->stream);
}

static void on_host(void *count) {
    atomic_fetch_add((atomic_int *)count, 1);
}

/* A host function takes three of the 2046 entries. */
static void test_a_full_queue_holds_an_event(void) {
    setup_t setup;
    call_t calls[2];
    atomic_int called = 0;
    begin(&setup, BY_STREAM);
    aclrtEvent event = new_event(1);
    while (aclsim_pending(setup.stuck) < 2 + 681) {
        CHECK_RC(aclrtLaunchHostFunc(setup.stuck, on_host, &called), 0);
    }
    CHECK_RC(aclrtRecordEvent(setup.mark, setup.stuck), 0); /* 2 + 3 * 681 + 1 */
    record_call_t full = {event, setup.stuck};
    record_call_t other = {event, setup.other};
    call_waiting(&calls[0], body_record, &full, "aclrtRecordEvent");
    call_start(&calls[1], body_record, &other); /* this call waits for the event, not for the stream */
    until_waiting(calls, 2, "aclrtRecordEvent");
    aclrtStream made = new_stream();
    void *block = new_block(64);
    CHECK_RC(aclrtMemsetAsync(block, 64, 0, 64, made), 0);
    END({aclrtDestroyStream, made}, {aclrtFree, block});
    go_on(&setup);
    CHECK(call_join(&calls[0]) == 0 && call_join(&calls[1]) == 0 && call_join(&setup.waiter) == 0);
    end(&setup, false);
    CHECK(atomic_load(&called) == 681);
    CHECK_RC(aclrtDestroyEvent(event), 0);
}

static aclrtStream failing(void *block, aclrtEvent mark) {
    aclrtStream stream = new_stream();
    CHECK(aclsim_hold(stream) == 0); /* so that all tasks are enqueued when the first one fails */
    CHECK(aclsim_fail_next(stream, 507001) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 1, 64, stream), 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 2, 64, stream), 0);
    CHECK_RC(aclrtRecordEvent(mark, stream), 0);
    CHECK(aclsim_release(stream) == 0);
    return stream;
}

/* The failed stream does not continue until a call waits for the stream's unfinished work. A wait for the
 * stream or the device returns the failure's code, once. A wait for an event does not return it. */
static void test_a_failed_task_stops_its_stream_until_a_wait(way_t way) {
    void *block = new_block(64);
    setup_t setup = {.way = way};
    aclrtEventRecordedStatus done;
    aclrtStreamStatus status;
    unsigned char byte = 0;
    aclrtStream idle = new_stream();
    CHECK_RC(aclrtCreateEventExWithFlag(&setup.mark, 1), 0);
    setup.stuck = failing(block, setup.mark);
    for (int i = 0; i < 50; i++) { /* the 64th task would wake the recycle thread */
        CHECK_RC(aclrtStreamQuery(setup.stuck, &status), 0);
        CHECK_RC(aclrtQueryEventStatus(setup.mark, &done), 0);
        CHECK_RC(aclrtSynchronizeStream(idle), 0);
        CHECK_RC(aclrtRecordEvent(setup.mark, setup.stuck), 0);
        CHECK(status == ACL_STREAM_STATUS_NOT_READY && done == ACL_EVENT_RECORDED_STATUS_NOT_READY);
    }
    CHECK_RC(body_wait(&setup), way == BY_EVENT ? 0 : 507001);
    CHECK_RC(aclrtSynchronizeStream(setup.stuck), way == BY_EVENT ? 507001 : 0);
    CHECK_RC(aclrtSynchronizeStream(setup.stuck), 0);
    CHECK_RC(aclrtSynchronizeDevice(), 0);
    CHECK_THEN(aclrtMemcpy(&byte, 1, block, 1, ACL_MEMCPY_DEVICE_TO_HOST), byte == 2);
    CHECK_RC(aclrtDestroyEvent(setup.mark), 0);
    END_STREAMS(setup.stuck, idle);
    CHECK_RC(aclrtFree(block), 0);
}

static aclrtStream pending_calls(aclrtEvent missing, bool host, atomic_int *called) {
    aclrtStream stream = new_stream();
    if (!host) {
        CHECK_RC(aclrtSubscribeReport((uint64_t)pthread_self(), stream), 0);
    }
    CHECK_RC(aclrtStreamWaitEvent(stream, missing), 0);
    for (int i = 0; i < 5; i++) {
        CHECK_RC(host ? aclrtLaunchHostFunc(stream, on_host, called)
                      : aclrtLaunchCallback(on_host, called, ACL_CALLBACK_BLOCK, stream),
                 0);
    }
    return stream;
}

static void test_callbacks_are_dropped(bool host) {
    atomic_int called = 0;
    aclrtEvent missing = old_event(1);
    aclrtStream stream = pending_calls(missing, host, &called);
    CHECK_RC(aclrtStreamAbort(stream), 0);
    CHECK(aclsim_pending(stream) == 0);
    CHECK_RC(host ? aclrtSynchronizeStream(stream) : aclrtProcessReport(1), host ? 0 : 507012);
    CHECK(atomic_load(&called) == 0);
    if (host) { /* new host functions can run */
        CHECK_RC(aclrtLaunchHostFunc(stream, on_host, &called), 0);
        CHECK_THEN(aclrtSynchronizeStream(stream), atomic_exchange(&called, 0) == 1);
    }
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_RC(aclrtDestroyStreamForce(pending_calls(missing, host, &called)), 0);
    (void)pending_calls(missing, host, &called);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK_RC(aclrtProcessReport(1), 107012);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtSynchronizeDevice(), 0);
    CHECK(atomic_load(&called) == 0);
    CHECK_RC(aclrtDestroyEvent(missing), 0);
}

int main(void) {
    start_acl();
    for (way_t way = 0; way < WAYS; way++) {
        test_a_completed_event_ends_the_waiting_calls(way);
        test_abort(way);
        test_destroy(way);
        test_wait_covers_earlier_work(way);
        test_a_failed_task_stops_its_stream_until_a_wait(way);
        if (way != BY_DEVICE) { /* traps.c tests a reset during a wait for the device */
            test_reset(way, false);
            test_reset(way, true);
        }
    }
    RUN(test_device_wait_blocks_creation, test_a_full_queue_holds_an_event);
    test_callbacks_are_dropped(true);
    test_callbacks_are_dropped(false);
    end_acl();
}
