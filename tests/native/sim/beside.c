/* What other code in the process can notice or cause: ids of streams, contexts and their ends, and waits that
 * end late. */
#include "failure_test.h"

/* A stream gets the handle of a stream that was destroyed, and another id. */
static void test_ids_of_reused_handles(void) {
    enum { PAIRS = 300 };
    static bool seen[4096];
    aclrtStream first = new_stream();
    for (int i = 0; i < PAIRS; i++) {
        aclrtStream stream = new_stream();
        uint32_t id = id_of(stream);
        CHECK(id > 0 && id < 4096 && !seen[id]);
        seen[id] = true;
        END_STREAMS(stream);
    }
    CHECK(!seen[id_of(first)]);
    END_STREAMS(first);
}

/* After the last id, the ids begin again. No two live streams have the same id. */
static void test_ids_begin_again(void) {
    enum { ROUNDS = 2100 };
    aclrtStream kept = new_stream();
    bool again = false;
    uint32_t before = 0;
    for (int i = 0; i < ROUNDS; i++) {
        aclrtStream stream = new_stream();
        uint32_t id = id_of(stream);
        CHECK(id != 0 && id != id_of(kept));
        again = again || id < before;
        before = id;
        END_STREAMS(stream);
    }
    CHECK(again);
    END_STREAMS(kept);
}

typedef struct {
    aclrtEvent event;
    int32_t timeout;
} event_wait_t;

static aclError body_wait_event(void *arg) {
    const event_wait_t *wait = arg;
    return aclrtSynchronizeEventWithTimeout(wait->event, wait->timeout);
}

static void until_waiters(const char *function, int count) {
    UNTIL(aclsim_waiting(function) == count);
}

static void advance_ms(int64_t ms) {
    CHECK(aclsim_clock_advance(ms * 1000000) == 0);
}

/* Records an event on the stream of a new context, behind a task that does not end. */
static aclrtEvent event_behind_a_hang(aclrtStream *held) {
    *held = held_stream();
    fill(*held, new_block(64), 0);
    aclrtEvent event = new_event(SYNC_FLAG);
    CHECK_RC(aclrtRecordEvent(event, *held), 0);
    return event;
}

/* The end of a context waits 3.5 s for a stream that makes no progress. Then waits for its events return 0. */
static void test_end_of_a_context_with_a_hang(void) {
    aclrtStream held = NULL;
    call_t destroy, short_wait, long_wait, last_wait;
    aclrtContext before = current_context(), context = new_context();
    aclrtEvent event = event_behind_a_hang(&held);
    event_wait_t one = {event, 1000}, more = {event, 3400}, most = {event, -1};
    aclsim_clock_virtual(1);
    call_start(&short_wait, body_wait_event, &one);
    call_start(&long_wait, body_wait_event, &more);
    call_start(&last_wait, body_wait_event, &most);
    until_waiters("aclrtSynchronizeEventWithTimeout", 3);
    call_waiting(&destroy, aclrtDestroyContext, context, "aclrtDestroyContext");
    advance_ms(1000);
    CHECK(call_join(&short_wait) == 507047);
    advance_ms(2400);
    CHECK(call_join(&long_wait) == 507047);
    CHECK(aclsim_waiting("aclrtDestroyContext") == 1);
    advance_ms(100);
    CHECK(call_join(&last_wait) == 0);
    CHECK(call_join(&destroy) == 0);
    aclsim_clock_virtual(0);
    CHECK_RC(aclrtSetCurrentContext(before), 0);
    CHECK_RC(aclrtDestroyEvent(event), 0);
}

/* After an abort of the stream, the end of the context does not wait: the clock does not advance. */
static void test_end_of_a_context_after_an_abort(void) {
    aclrtStream held = NULL;
    aclrtContext before = current_context(), context = new_context();
    aclrtEvent event = event_behind_a_hang(&held);
    aclsim_clock_virtual(1);
    int64_t began = aclsim_clock_now();
    CHECK_RC(aclrtStreamAbort(held), 0);
    CHECK_RC(aclrtDestroyContext(context), 0);
    CHECK(aclsim_clock_now() == began);
    aclsim_clock_virtual(0);
    CHECK_RC(aclrtSetCurrentContext(before), 0);
    CHECK_RC(aclrtDestroyEvent(event), 0);
}

/* A destroy waits for the record for which the thread waits. Returns the result of the thread. */
static aclError wait_during_destroy(int32_t timeout, aclError (*destroy)(aclrtStream), const char *name) {
    call_t waiter, destroyer;
    aclrtStream held = NULL;
    aclrtEvent event = event_behind_a_hang(&held);
    event_wait_t wait = {event, timeout};
    call_waiting(&waiter, body_wait_event, &wait, "aclrtSynchronizeEventWithTimeout");
    call_waiting(&destroyer, destroy, held, name);
    CHECK(aclsim_release(held) == 0);
    CHECK(call_join(&destroyer) == 0);
    CHECK(is_complete(event));
    advance_ms(timeout > 0 ? timeout : 0);
    aclError rc = call_join(&waiter);
    CHECK_RC(aclrtSynchronizeEventWithTimeout(event, timeout), 0); /* a new wait returns */
    CHECK_RC(aclrtDestroyEvent(event), 0);
    return rc;
}

static void test_wait_that_a_destroy_loses(void) {
    const char *const plain = "aclrtDestroyStream", *const force = "aclrtDestroyStreamForce";
    aclsim_clock_virtual(1);
    CHECK(wait_during_destroy(1500, aclrtDestroyStream, plain) == 0);
    aclsim_set_lost_wait(1);
    CHECK(wait_during_destroy(1500, aclrtDestroyStream, plain) == 507047);
    CHECK(wait_during_destroy(-1, aclrtDestroyStream, plain) ==
          0); /* without a time-out it would never return */
    CHECK(wait_during_destroy(1500, aclrtDestroyStreamForce, force) == 0);
    aclsim_set_lost_wait(0);
    CHECK(wait_during_destroy(1500, aclrtDestroyStream, plain) == 0);
    aclsim_clock_virtual(0);
}

static aclrtContext ending; /* the context that a callback destroys */
static aclrtStream held_at_reset;

static void on_stream_state(aclrtStream stream, aclrtStreamState state, void *unused) {
    (void)stream;
    (void)unused;
    aclrtContext context = ending;
    if (context != NULL && state == ACL_RT_STREAM_STATE_CREATE_POST) {
        ending = NULL;
        CHECK_RC(aclrtDestroyContext(context), 0);
    }
}

static void on_device_state(int32_t device, aclrtDeviceState state, void *unused) {
    (void)device;
    (void)unused;
    aclrtContext context = ending;
    if (context != NULL && state == ACL_RT_DEVICE_STATE_RESET_PRE) {
        ending = NULL;
        CHECK_RC(aclrtDestroyContext(context), 0);
        CHECK(aclsim_release(held_at_reset) == 0);
    }
}

/* While the primary context is being made, it keeps the memory, although the set is not counted yet. */
static void test_last_context_ends_during_a_set(void) {
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    ending = new_context();
    void *block = new_block(64);
    CHECK_RC(aclrtRegStreamStateCallback("end", on_stream_state, NULL), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK(ending == NULL);
    CHECK_RC(aclrtRegStreamStateCallback("end", NULL, NULL), 0);
    CHECK_RC(aclrtFree(block), 0);
}

/* While the primary context is being ended, its tasks still use the memory. */
static void test_last_context_ends_during_a_reset(void) {
    uint64_t before = stats().violations;
    aclrtContext context = new_context();
    CHECK_RC(aclrtSetDevice(0), 0);
    held_at_reset = held_stream();
    fill(held_at_reset, new_block(64), 0);
    ending = context;
    CHECK_RC(aclrtRegDeviceStateCallback("end", on_device_state, NULL), 0);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK(ending == NULL && stats().device_blocks == 0 && stats().violations == before);
    CHECK_RC(aclrtRegDeviceStateCallback("end", NULL, NULL), 0);
    CHECK_RC(aclrtSetDevice(0), 0);
}

int main(void) {
    start_acl();
    RUN(test_ids_of_reused_handles, test_ids_begin_again, test_end_of_a_context_with_a_hang,
        test_end_of_a_context_after_an_abort, test_wait_that_a_destroy_loses,
        test_last_context_ends_during_a_set, test_last_context_ends_during_a_reset);
    reset_and_set();
    end_acl();
}
