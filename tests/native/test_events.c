/*
 * Native events while a foreign reset begins. The runtime does not free events with their device, so the
 * reset's callback destroys them. The reset is held in the abort of a busy stream: the generation is raised
 * then, and the events are not destroyed yet.
 */
#include "bed.h"

static aio_stream *busy, *stream;

static uint64_t native_events(void) {
    aclsim_stats_t stats;
    sim.stats(&stats);
    return stats.events;
}

static void open_busy(void) {
    bed_open_to_copy(AIO_WATCH);
    stream = bed_stream(0);
    busy = bed_stream(0);
    sim.hold(busy->handle);
    CHECK(bed_copy(busy) > 0);
    sim.hang_call("aclrtStreamAbort");
}

static pthread_t begin_reset(void) {
    pthread_t resetter = bed_thread(bed_reset_as_other_code, NULL);
    UNTIL(sim.hung("aclrtStreamAbort"));
    return resetter;
}

static void end_reset(pthread_t resetter) {
    sim.release_call("aclrtStreamAbort");
    bed_join(resetter);
    CHECK_EQ(native_events(), 0);
    aio_gate_met(0);
    bed_reopen(0);
    aio_stream_drop(busy);
    aio_stream_drop(stream);
    bed_close_copied();
    CHECK_EQ(native_events(), 0);
}

static aio_event *record_and_finish(void) {
    aio_event *event = NULL;
    aio_result position = aio_record(stream, 0, 0, &event);
    CHECK(position > 0);
    UNTIL(aio_stream_poll(stream, (uint64_t)position) == position);
    return event;
}

TEST(an_event_dropped_while_a_foreign_reset_begins_is_destroyed) {
    open_busy();
    aio_event *event = record_and_finish();
    pthread_t resetter = begin_reset();
    aio_event_drop(event);
    end_reset(resetter);
}

/* The flag of the foreign reset is cleared as soon as the maintenance thread has met it. */
TEST(an_event_dropped_after_a_foreign_reset_is_met_is_destroyed) {
    open_busy();
    aio_event *event = record_and_finish();
    pthread_t resetter = begin_reset();
    bed_seize(0);
    aio_gate_met(0);
    aio_event_drop(event);
    end_reset(resetter);
}

TEST(marks_that_finish_while_a_foreign_reset_begins_are_destroyed) {
    open_busy();
    aio_result first = bed_ticket(stream);
    CHECK(bed_ticket(stream) > 0); /* records a mark after the first copy */
    CHECK(atomic_load(&stream->last_mark) > (uint64_t)first);
    UNTIL(sim.pending(stream->handle) == 0);
    pthread_t resetter = begin_reset();
    aio_stream_finish(stream, atomic_load(&stream->tail));
    end_reset(resetter);
}

static void *record(void *event) {
    return (void *)(intptr_t)aio_record(stream, 0, 0, event);
}

/* The record fails, because the runtime has marked the context as gone. */
TEST(an_event_whose_record_fails_while_a_foreign_reset_begins_is_destroyed) {
    aio_event *event = NULL;
    void *result = NULL;
    open_busy();
    sim.hang_call("aclrtRecordEvent");
    pthread_t recorder = bed_thread(record, &event);
    UNTIL(sim.hung("aclrtRecordEvent"));
    pthread_t resetter = begin_reset();
    sim.release_call("aclrtRecordEvent");
    CHECK_EQ(pthread_join(recorder, &result), 0);
    CHECK_EQ((intptr_t)result, aio_failed(RT_CONTEXT_NULL));
    end_reset(resetter);
}

static aclError (*create_as_it_is)(aclrtEvent *, uint32_t);

/* The reset waits a second for the call. The set then makes the context valid again, at the same address. */
static aclError create_after_a_reset(aclrtEvent *event, uint32_t flags) {
    aio_acl.aclrtCreateEventExWithFlag = create_as_it_is;
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    CHECK_EQ(native_events(), 0);
    aio_gate_met(0);
    bed_reopen(0);
    return create_as_it_is(event, flags);
}

TEST(a_refill_that_is_stuck_during_a_foreign_reset_makes_no_more_events) {
    bed_open(0, AIO_WATCH);
    create_as_it_is = aio_acl.aclrtCreateEventExWithFlag;
    aio_acl.aclrtCreateEventExWithFlag = create_after_a_reset;
    CHECK_EQ(aio_device_refill(0, 1, 4), 0);
    bed_close(0);
    CHECK_EQ(native_events(), 1); /* the event of the stuck call is abandoned */
}

/* A thread that was stuck inside during the whole reset goes on with the old generation. */
TEST(an_event_for_an_older_generation_takes_none_of_the_newer) {
    aio_event *stale = NULL;
    bed_open(0, AIO_WATCH);
    uint32_t before = aio_word_generation(aio_gate_word(0));
    CHECK(bed_reset(0));
    int pooled = atomic_load(&aio_devices[0].pooled[0]);
    CHECK_EQ(aio_event_take(0, before, false, &stale), 0);
    CHECK_EQ(atomic_load(&aio_devices[0].pooled[0]), pooled);
    aio_event_drop(stale);
    bed_close(0);
    CHECK_EQ(native_events(), 1); /* the stale one is abandoned */
}

RUN_TESTS
