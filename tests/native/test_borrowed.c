/* Borrowed events, and the plain events that borrowed streams record. */
#include "bed.h"

enum { KEPT = 32 }; /* as many plain events stay in the pool */

static aclrtEvent new_event(void) {
    aclrtEvent made = NULL;
    CHECK_EQ(aio_acl.aclrtCreateEventExWithFlag(&made, AIO_EVENT_SYNC), 0);
    return made;
}

static aclrtStream new_stream(void) {
    aclrtStream made = NULL;
    CHECK_EQ(aio_acl.aclrtCreateStream(&made), 0);
    return made;
}

/* Other code records its event on a stream that is held. */
typedef struct {
    aclrtStream stream;
    aclrtEvent event;
    aio_stream *record;
    aio_event *mark;
} theirs;

static theirs borrow(void) {
    theirs made = {new_stream(), new_event(), NULL, NULL};
    sim.hold(made.stream);
    CHECK_EQ(aio_acl.aclrtRecordEvent(made.event, made.stream), 0);
    made.record = aio_event_borrow(bed_pass(0), made.event, &made.mark);
    CHECK(made.record != NULL);
    return made;
}

static void give_back(const theirs *made) {
    sim.release(made->stream);
    CHECK_EQ(aio_acl.aclrtSynchronizeStream(made->stream), 0);
    aio_event_drop(made->mark);
    aio_stream_drop(made->record);
    CHECK_EQ(aio_acl.aclrtDestroyEvent(made->event), 0); /* aioacl has not destroyed it */
    CHECK_EQ(aio_acl.aclrtDestroyStream(made->stream), 0);
}

TEST(the_position_of_a_borrowed_event_is_done_when_the_event_is) {
    bed_open_to_copy(AIO_WATCH);
    theirs made = borrow();
    CHECK_EQ(aio_event_is_ours(made.event), 0);
    CHECK_EQ(aio_stream_query(made.record, 1), 0);
    sim.release(made.stream);
    CHECK_EQ(bed_await(made.record, 1), 1);
    give_back(&made);
    bed_close_copied();
}

TEST(a_stream_waits_for_a_borrowed_event) {
    bed_open_to_copy(AIO_WATCH);
    theirs made = borrow();
    aio_stream *stream = bed_stream(0);
    CHECK(aio_wait_event(stream, 0, made.mark, made.record, 1) > 0);
    aio_result position = bed_ticket(stream);
    CHECK_EQ(aio_stream_query(stream, (uint64_t)position), 0);
    sim.release(made.stream);
    CHECK_EQ(bed_await(stream, (uint64_t)position), position);
    bed_end_stream(stream);
    give_back(&made);
    bed_close_copied();
}

TEST(a_reset_by_other_code_ends_waits_for_a_borrowed_event) {
    bed_open_to_copy(AIO_WATCH);
    theirs made = borrow();
    aio_stream *stream = bed_stream(0);
    aio_borrowed_reset(0);
    CHECK_EQ(aio_code(bed_await(made.record, 1)), RT_STREAM_ABORT);
    CHECK(aio_code(aio_wait_event(stream, 0, made.mark, made.record, 1)) != 0);
    bed_end_stream(stream);
    give_back(&made);
    bed_close_copied();
}

static uint64_t events(void) {
    aclsim_stats_t stats;
    sim.stats(&stats);
    return stats.events;
}

static aio_event *take(int kind) {
    aio_event *taken = NULL;
    CHECK_EQ(aio_event_take(0, aio_pass_generation(bed_pass(0)), kind, &taken), 0);
    return taken;
}

TEST(a_fresh_event_never_comes_from_the_pool) {
    bed_open_to_copy(AIO_WATCH);
    aio_event *first = take(AIO_FRESH);
    CHECK_EQ(aio_event_is_ours(aio_event_handle(first)), 1);
    uint64_t before = events();
    aio_event_drop(first);
    CHECK_EQ(events(), before); /* the pool has it */
    aio_event *fresh = take(AIO_FRESH), *plain = take(AIO_PLAIN);
    CHECK(fresh != first && plain == first);
    CHECK_EQ(events(), before + 1);
    aio_event_drop(fresh);
    aio_event_drop(plain);
    bed_close_copied();
}

TEST(each_record_on_a_borrowed_stream_has_an_event_that_was_never_recorded) {
    bed_open_to_copy(AIO_WATCH);
    aclrtStream native = new_stream();
    aio_stream *borrowed = aio_stream_borrow(bed_pass(0), native, NULL);
    aio_event *event = NULL;
    aio_result position = aio_record(borrowed, 0, 0, &event);
    CHECK_EQ(bed_await(borrowed, (uint64_t)position), position);
    uint64_t before = events();
    aio_event_drop(event);
    position = aio_record(borrowed, 0, 0, &event);
    CHECK_EQ(bed_await(borrowed, (uint64_t)position), position);
    CHECK_EQ(events(), before + 1);
    aio_event_drop(event);
    aio_stream_drop(borrowed);
    CHECK_EQ(aio_acl.aclrtDestroyStream(native), 0);
    bed_close_copied();
}

TEST(a_refill_destroys_plain_events_that_are_too_many) {
    aio_event *taken[2 * KEPT];
    bed_open_to_copy(AIO_WATCH);
    for (int i = 0; i < 2 * KEPT; i++) {
        taken[i] = take(AIO_FRESH);
    }
    uint64_t before = events();
    for (int i = 0; i < 2 * KEPT; i++) {
        aio_event_drop(taken[i]);
    }
    CHECK_EQ(events(), before);
    CHECK_EQ(aio_device_refill(0, 0, 0), 0);
    CHECK_EQ(events(), before - KEPT - 1); /* fewer than KEPT stay */
    for (int i = 0; i < KEPT - 1; i++) {
        taken[i] = take(AIO_PLAIN);
    }
    CHECK_EQ(events(), before - KEPT - 1);
    taken[KEPT - 1] = take(AIO_PLAIN); /* the pool is empty */
    CHECK_EQ(events(), before - KEPT);
    for (int i = 0; i < KEPT; i++) {
        aio_event_drop(taken[i]);
    }
    bed_close_copied();
}

static __typeof__(aio_acl.aclmdlRICaptureGetInfo) get_info;
static bool begins; /* the owner begins a capture right after the next question */

static aclError get_info_first(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *model) {
    aclError code = get_info(stream, status, model);
    if (begins) {
        begins = false;
        CHECK_EQ(aio_acl.aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
    }
    return code;
}

static void end_capture(aclrtStream stream) {
    aclmdlRI graph = NULL;
    CHECK_EQ(aio_acl.aclmdlRICaptureEnd(stream, &graph), 0);
    CHECK_EQ(aio_acl.aclmdlRIDestroy(graph), 0);
}

TEST(a_capture_that_begins_after_the_question_is_named_and_stays_intact) {
    bed_open_to_copy(AIO_WATCH);
    aclrtStream native = new_stream();
    aio_stream *borrowed = aio_stream_borrow(bed_pass(0), native, NULL);
    aio_event *event = NULL;
    get_info = aio_acl.aclmdlRICaptureGetInfo;
    aio_acl.aclmdlRICaptureGetInfo = get_info_first;
    begins = true;
    CHECK_EQ(aio_code(aio_record(borrowed, 0, 0, &event)), RT_STREAM_CAPTURED);
    end_capture(native);
    begins = true;
    CHECK_EQ(aio_code(aio_fill(borrowed, 0, bed_memory, BED_BYTES, 1, BED_BYTES)), RT_STREAM_CAPTURED);
    end_capture(native);
    aio_acl.aclmdlRICaptureGetInfo = get_info;
    aio_stream_drop(borrowed);
    CHECK_EQ(aio_acl.aclrtDestroyStream(native), 0);
    bed_close_copied();
}

static void *wait_outside(void *stream) {
    aio_event *event = NULL;
    void *current = NULL;
    CHECK_EQ(aio_acl.aclrtSetCurrentContext(atomic_load(&aio_devices[0].context)), 0);
    CHECK_EQ(aio_context_is_foreign(), 1); /* it is the primary one */
    CHECK(aio_record(stream, 0, 0, &event) > 0);
    void *context = NULL;
    aclrtStream theirs_stream = NULL;
    CHECK_EQ(aio_acl.aclrtCreateContext(&context, 0), 0);
    theirs_stream = new_stream();
    CHECK_EQ(aio_acl.aclrtSetCurrentContext(atomic_load(&aio_devices[0].context)), 0);
    CHECK_EQ(aio_wait_outside(bed_pass(0), theirs_stream, aio_event_handle(event), context), 0);
    CHECK_EQ(aio_acl.aclrtGetCurrentContext(&current), 0);
    CHECK(current == atomic_load(&aio_devices[0].context));
    sim.release(((aio_stream *)stream)->handle);
    CHECK_EQ(aio_acl.aclrtSetCurrentContext(context), 0);
    CHECK_EQ(aio_acl.aclrtSynchronizeStream(theirs_stream), 0);
    CHECK_EQ(aio_acl.aclrtDestroyStream(theirs_stream), 0);
    CHECK_EQ(aio_acl.aclrtDestroyContext(context), 0);
    aio_event_drop(event);
    return NULL;
}

TEST(a_wait_outside_is_made_in_the_given_context_and_restores_the_current_one) {
    aio_stream *stream = bed_open_with_held_copy();
    bed_join(bed_thread(wait_outside, stream));
    aio_result tail = (aio_result)aio_stream_tail(stream);
    CHECK_EQ(bed_await(stream, (uint64_t)tail), tail);
    bed_end_stream(stream);
    bed_close_copied();
}

RUN_TESTS
