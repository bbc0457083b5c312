/* Which calls wait, what wakes them, and with which code; what a full queue and a failed task hold up; what is
 * dropped. */
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
} scene_t;

static aclError body_wait(void *arg) {
    const scene_t *scene = arg;
    switch (scene->way) {
    case BY_STREAM:
        return aclrtSynchronizeStream(scene->stuck);
    case BY_STREAM_LIMITED:
        return aclrtSynchronizeStreamWithTimeout(scene->stuck, 100000);
    case BY_EVENT:
        return aclrtSynchronizeEvent(scene->mark);
    default:
        return aclrtSynchronizeDevice();
    }
}

static void begin(scene_t *scene, way_t way) {
    *scene = (scene_t){.way = way};
    CHECK_RC(aclrtCreateStream(&scene->stuck), 0);
    CHECK_RC(aclrtCreateStream(&scene->other), 0);
    CHECK_RC(aclrtCreateEventWithFlag(&scene->missing, 1), 0);
    CHECK_RC(aclrtCreateEventExWithFlag(&scene->mark, 1), 0);
    CHECK_RC(aclrtStreamWaitEvent(scene->stuck, scene->missing), 0);
    CHECK_RC(aclrtRecordEvent(scene->mark, scene->stuck), 0);
    call_start(&scene->waiter, body_wait, scene);
    until_waiting(way_names[way]);
}

/* The event completes: the calls that are still inside return success. */
static void go_on(const scene_t *scene) {
    CHECK_RC(aclrtRecordEvent(scene->missing, scene->other), 0);
}

static bool still_waits(const scene_t *scene) {
    return atomic_load(&scene->waiter.rc) == -1 && aclsim_waiting(way_names[scene->way]) == 1;
}

static void end(const scene_t *scene, bool destroyed) {
    if (!destroyed) {
        CHECK_RC(aclrtSynchronizeStream(scene->stuck), 0);
        CHECK_RC(aclrtDestroyStream(scene->stuck), 0);
    }
    CHECK_RC(aclrtDestroyStream(scene->other), 0);
    CHECK_RC(aclrtDestroyEvent(scene->missing), 0);
    CHECK_RC(aclrtDestroyEvent(scene->mark), 0);
}

static void test_the_event_comes(way_t way) {
    scene_t scene;
    begin(&scene, way);
    CHECK_RC(aclFinalize(), 0); /* wakes no call */
    CHECK(still_waits(&scene));
    CHECK_RC(aclInit(NULL), 0);
    go_on(&scene);
    CHECK(call_join(&scene.waiter) == 0);
    end(&scene, false);
}

static void test_abort(way_t way) {
    scene_t scene;
    begin(&scene, way);
    CHECK_RC(aclrtStreamAbort(scene.stuck), 0);
    CHECK(call_join(&scene.waiter) == 107023);
    end(&scene, false);
    begin(&scene, way);
    CHECK_RC(aclrtDeviceTaskAbort(0, 5000), 0);
    CHECK(call_join(&scene.waiter) == 107022);
    end(&scene, false);
}

static aclError body_destroy_force(void *stream) {
    return aclrtDestroyStreamForce(stream);
}

static aclError body_destroy(void *stream) {
    return aclrtDestroyStream(stream);
}

static aclError body_abort(void *stream) {
    return aclrtStreamAbort(stream);
}

static aclError body_create(void *place) {
    return aclrtCreateStream(place);
}

static void test_destroy(way_t way) {
    scene_t scene;
    call_t act;
    begin(&scene, way);
    if (way != BY_DEVICE) {
        CHECK_RC(aclrtDestroyStreamForce(scene.stuck), 0);
    } else {
        call_start(&act, body_destroy_force, scene.stuck);
        until_waiting("aclrtDestroyStreamForce");
        go_on(&scene);
        CHECK(call_join(&act) == 0);
    }
    CHECK(call_join(&scene.waiter) == 0);
    end(&scene, true);
    begin(&scene, way); /* without force, the call waits for the stream's work */
    call_start(&act, body_destroy, scene.stuck);
    until_waiting("aclrtDestroyStream");
    CHECK(still_waits(&scene));
    go_on(&scene);
    CHECK(call_join(&act) == 0 && call_join(&scene.waiter) == 0);
    end(&scene, true);
}

static aclError body_reset(void *force) {
    return force != NULL ? aclrtResetDeviceForce(0) : aclrtResetDevice(0);
}

/* The work is dropped, and waiting calls return success. */
static void test_reset(way_t way, bool force) {
    scene_t scene;
    begin(&scene, way);
    CHECK_RC(body_reset(force ? &scene : NULL), 0);
    CHECK(call_join(&scene.waiter) == 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtSynchronizeDevice(), 0);
    CHECK_RC(aclrtDestroyEvent(scene.missing), 0);
    CHECK_RC(aclrtDestroyEvent(scene.mark), 0);
}

/* A wait for the device holds the lock for creating and ending streams. Enqueueing and querying go on. */
static void test_a_device_wait_holds_up(void) {
    scene_t scene;
    call_t create;
    call_t destroy;
    call_t abort_other;
    aclrtStream made = NULL;
    aclrtStream spare = NULL;
    aclrtStreamStatus status;
    CHECK_RC(aclrtCreateStream(&spare), 0);
    begin(&scene, BY_DEVICE);
    call_start(&create, body_create, &made);
    call_start(&destroy, body_destroy, spare);
    call_start(&abort_other, body_abort, scene.other);
    until_waiting("aclrtCreateStream");
    until_waiting("aclrtDestroyStream");
    until_waiting("aclrtStreamAbort");
    CHECK_RC(aclrtRecordEvent(scene.mark, scene.other), 107023); /* blocks until its abort gets the lock */
    CHECK_RC(aclrtStreamQuery(scene.stuck, &status), 0);
    CHECK(status == ACL_STREAM_STATUS_NOT_READY && still_waits(&scene));
    CHECK_RC(aclrtRecordEvent(scene.missing, NULL), 0);
    CHECK(call_join(&scene.waiter) == 0 && call_join(&create) == 0);
    CHECK(call_join(&destroy) == 0 && call_join(&abort_other) == 0);
    CHECK_RC(aclrtDestroyStream(made), 0);
    end(&scene, false);
}

/* A wait covers only what was enqueued before it. */
static void test_what_a_wait_covers(way_t way) {
    scene_t scene;
    aclrtEvent later = NULL;
    aclrtStreamStatus status;
    begin(&scene, way);
    CHECK_RC(aclrtCreateEventWithFlag(&later, 1), 0);
    CHECK_RC(aclrtStreamWaitEvent(scene.stuck, later), 0);
    CHECK_RC(aclrtRecordEvent(scene.mark, scene.stuck), 0);
    go_on(&scene);
    CHECK(call_join(&scene.waiter) == 0);
    CHECK_RC(aclrtStreamQuery(scene.stuck, &status), 0);
    CHECK(status == ACL_STREAM_STATUS_NOT_READY);
    CHECK_RC(aclrtSynchronizeEventWithTimeout(scene.mark, 1), 507047); /* the newer record */
    CHECK_RC(aclrtSynchronizeStreamWithTimeout(scene.stuck, 1), 507046);
    CHECK_RC(aclrtRecordEvent(later, scene.other), 0);
    end(&scene, false);
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
    scene_t scene;
    call_t calls[2];
    atomic_int called = 0;
    aclrtEvent event = NULL;
    aclrtStream made = NULL;
    void *block = NULL;
    begin(&scene, BY_STREAM);
    CHECK_RC(aclrtCreateEventExWithFlag(&event, 1), 0);
    while (aclsim_pending(scene.stuck) < 2 + 681) {
        CHECK_RC(aclrtLaunchHostFunc(scene.stuck, on_host, &called), 0);
    }
    CHECK_RC(aclrtRecordEvent(scene.mark, scene.stuck), 0); /* 2 + 3 * 681 + 1 */
    record_call_t full = {event, scene.stuck};
    record_call_t other = {event, scene.other};
    call_start(&calls[0], body_record, &full);
    until_waiting("aclrtRecordEvent");
    call_start(&calls[1], body_record, &other); /* it waits for the event, not for the stream */
    while (aclsim_waiting("aclrtRecordEvent") < 2) {
        sched_yield();
    }
    CHECK_RC(aclrtCreateStream(&made), 0);
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 0, 64, made), 0);
    CHECK_RC(aclrtDestroyStream(made), 0);
    CHECK_RC(aclrtFree(block), 0);
    go_on(&scene);
    CHECK(call_join(&calls[0]) == 0 && call_join(&calls[1]) == 0 && call_join(&scene.waiter) == 0);
    end(&scene, false);
    CHECK(atomic_load(&called) == 681);
    CHECK_RC(aclrtDestroyEvent(event), 0);
}

static aclrtStream failing(void *block, aclrtEvent mark) {
    aclrtStream stream = NULL;
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK(aclsim_hold(stream) == 0); /* so that all tasks are enqueued when the first one fails */
    CHECK(aclsim_fail_next(stream, 507001) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 1, 64, stream), 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 2, 64, stream), 0);
    CHECK_RC(aclrtRecordEvent(mark, stream), 0);
    CHECK(aclsim_release(stream) == 0);
    return stream;
}

/* No stream goes on until a call waits that has something to wait for. Then all ways but one report no failure.
 */
static void test_a_failed_task(way_t way) {
    void *block = NULL;
    aclrtStream idle = NULL;
    scene_t scene = {.way = way};
    aclrtEventRecordedStatus done;
    aclrtStreamStatus status;
    unsigned char byte = 0;
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK_RC(aclrtCreateStream(&idle), 0);
    CHECK_RC(aclrtCreateEventExWithFlag(&scene.mark, 1), 0);
    scene.stuck = failing(block, scene.mark);
    for (int i = 0; i < 50; i++) { /* the 64th task would wake the recycle thread */
        CHECK_RC(aclrtStreamQuery(scene.stuck, &status), 0);
        CHECK_RC(aclrtQueryEventStatus(scene.mark, &done), 0);
        CHECK_RC(aclrtSynchronizeStream(idle), 0);
        CHECK_RC(aclrtRecordEvent(scene.mark, scene.stuck), 0);
        CHECK(status == ACL_STREAM_STATUS_NOT_READY && done == ACL_EVENT_RECORDED_STATUS_NOT_READY);
    }
    CHECK_RC(body_wait(&scene), way == BY_EVENT ? 0 : 507001);
    CHECK_RC(aclrtSynchronizeStream(scene.stuck), way == BY_EVENT ? 507001 : 0);
    CHECK_RC(aclrtSynchronizeStream(scene.stuck), 0);
    CHECK_RC(aclrtSynchronizeDevice(), 0);
    CHECK_RC(aclrtMemcpy(&byte, 1, block, 1, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK(byte == 2);
    CHECK_RC(aclrtDestroyEvent(scene.mark), 0);
    CHECK_RC(aclrtDestroyStream(scene.stuck), 0);
    CHECK_RC(aclrtDestroyStream(idle), 0);
    CHECK_RC(aclrtFree(block), 0);
}

static aclrtStream pending_calls(aclrtEvent missing, bool host, atomic_int *called) {
    aclrtStream stream = NULL;
    CHECK_RC(aclrtCreateStream(&stream), 0);
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
    aclrtEvent missing = NULL;
    atomic_int called = 0;
    CHECK_RC(aclrtCreateEventWithFlag(&missing, 1), 0);
    aclrtStream stream = pending_calls(missing, host, &called);
    CHECK_RC(aclrtStreamAbort(stream), 0);
    CHECK(aclsim_pending(stream) == 0);
    CHECK_RC(host ? aclrtSynchronizeStream(stream) : aclrtProcessReport(1), host ? 0 : 507012);
    CHECK(atomic_load(&called) == 0);
    if (host) { /* new ones can run */
        CHECK_RC(aclrtLaunchHostFunc(stream, on_host, &called), 0);
        CHECK_RC(aclrtSynchronizeStream(stream), 0);
        CHECK(atomic_exchange(&called, 0) == 1);
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

/* A queue can use callbacks or host functions, but not both. */
static void test_callbacks_and_host_functions_do_not_mix(void) {
    aclrtStream stream = NULL;
    atomic_int called = 0;
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK_RC(aclrtLaunchHostFunc(stream, on_host, &called), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK_RC(aclrtSubscribeReport((uint64_t)pthread_self(), stream), 107011);
    CHECK_RC(aclrtLaunchCallback(on_host, &called, ACL_CALLBACK_BLOCK, stream), 107011);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_RC(aclrtCreateStream(&stream), 0);
    CHECK_RC(aclrtSubscribeReport((uint64_t)pthread_self(), stream), 0);
    CHECK_RC(aclrtLaunchHostFunc(stream, on_host, &called), 107011);
    CHECK_RC(aclrtUnSubscribeReport((uint64_t)pthread_self(), stream), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

int main(void) {
    CHECK_RC(aclInit(NULL), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    for (way_t way = 0; way < WAYS; way++) {
        test_the_event_comes(way);
        test_abort(way);
        test_destroy(way);
        test_what_a_wait_covers(way);
        test_a_failed_task(way);
        if (way != BY_DEVICE) { /* traps.c tests what happens then */
            test_reset(way, false);
            test_reset(way, true);
        }
    }
    test_a_device_wait_holds_up();
    test_a_full_queue_holds_an_event();
    test_callbacks_are_dropped(true);
    test_callbacks_are_dropped(false);
    test_callbacks_and_host_functions_do_not_mix();
    CHECK_RC(aclrtResetDevice(0), 0);
    CHECK_RC(aclFinalize(), 0);
    puts("ok");
    return 0;
}
