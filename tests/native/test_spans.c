/* Device times of a trace: the events around work, the reader beside enqueuers, and resets. */
#include "bed.h"

enum { ENQUEUERS = 4, WORK = 500, ROOM = 64 };

static aio_span spans[ROOM];
static aio_stream *stream;

static void begin(void) {
    bed_open_to_copy(AIO_WATCH);
    stream = bed_stream(0);
    CHECK(aio_spans_start());
}

static void end(void) {
    bed_end_stream(stream);
    bed_close_copied();
}

static uint64_t copy(void) {
    aio_result result = bed_ticket(stream);
    CHECK(result > 0);
    return (uint64_t)result;
}

static int64_t timed_events(void) {
    return atomic_load(&aio_devices[0].pooled[AIO_TIMED]);
}

TEST(work_between_two_events_has_times_of_the_device) {
    begin();
    int64_t before = aio_now_ns();
    uint64_t first = copy(), second = copy();
    CHECK_EQ(first, 2); /* after the event at position 1 */
    CHECK_EQ(second, 5);
    CHECK_EQ(bed_await(stream, second), (aio_result)second);
    int count = aio_spans_read(0, spans, ROOM);
    CHECK_EQ(count, 2);
    for (int index = 0; index < count; index++) {
        const aio_span *span = &spans[index];
        CHECK_EQ(span->id & UINT32_MAX, index ? second : first);
        CHECK_EQ(span->function, AIO_FN_aclrtMemcpyAsync);
        CHECK(before <= span->since_ns && span->since_ns <= span->seen_ns && span->seen_ns <= aio_now_ns());
        /* The simulator's clock is CLOCK_MONOTONIC. */
        CHECK((int64_t)span->began_us >= span->since_ns / 1000 && span->began_us <= span->ended_us);
        CHECK((int64_t)span->ended_us <= span->seen_ns / 1000);
    }
    aio_spans_stop();
    copy();
    CHECK_EQ(aio_spans_read(0, spans, ROOM), 0);
    end();
}

TEST(only_one_caller_at_a_time_starts_the_spans) {
    CHECK(aio_spans_start());
    CHECK(!aio_spans_start());
    aio_spans_stop();
    CHECK(aio_spans_start());
    aio_spans_stop();
}

TEST(a_span_is_read_only_when_its_work_is_done) {
    begin();
    sim.hold(stream->handle);
    uint64_t position = copy();
    CHECK_EQ(aio_spans_read(0, spans, ROOM), 0);
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, position), (aio_result)position);
    CHECK_EQ(aio_spans_read(0, spans, 0), 0);
    CHECK_EQ(aio_spans_read(0, spans, ROOM), 1);
    aio_spans_stop();
    end();
}

TEST(work_that_is_refused_or_fails_gives_its_events_back) {
    begin();
    sim.fail_call("aclrtMemcpyAsync", 507000, 1);
    CHECK_EQ(bed_ticket(stream), aio_failed(507000));
    uint64_t position = copy();
    CHECK_EQ(bed_await(stream, position), (aio_result)position);
    CHECK_EQ(aio_spans_read(0, spans, ROOM), 1);
    aio_spans_stop();
    UNTIL(timed_events() >= 2);
    end();
}

TEST(a_reset_drops_the_spans_of_its_generation) {
    begin();
    sim.hold(stream->handle);
    copy();
    bed_seize(0);
    CHECK_EQ(aio_spans_read(0, spans, ROOM), 0); /* kept: the reset may fail */
    CHECK(bed_abort_and_wait(0));
    bed_reset_and_reopen(0);
    CHECK_EQ(aio_spans_read(0, spans, ROOM), 0);
    aio_spans_stop();
    aio_stream_drop(stream);
    bed_close_copied();
}

/* --- enqueuers and a reader at the same time ------------------------------------------------------------- */

static atomic_int running;

static void *enqueue(void *argument) {
    aio_stream *mine = *(aio_stream **)argument;
    for (int turn = 0; turn < WORK; turn++) {
        aio_result result = bed_ticket(mine);
        CHECK(result > 0);
        CHECK_EQ(bed_await(mine, (uint64_t)result), result);
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

TEST(a_reader_beside_four_enqueuers_gets_each_span_once_and_in_order) {
    static aio_stream *streams[ENQUEUERS];
    uint64_t last[ENQUEUERS] = {0};
    pthread_t threads[ENQUEUERS];
    int all = 0;
    begin();
    atomic_store(&running, ENQUEUERS);
    for (int index = 0; index < ENQUEUERS; index++) {
        streams[index] = bed_stream(0);
        threads[index] = bed_thread(enqueue, &streams[index]);
    }
    for (bool more = true; more;) {
        more = atomic_load(&running) > 0;
        for (int count = ROOM; count == ROOM;) {
            count = aio_spans_read(0, spans, ROOM);
            for (int at = 0; at < count; at++) {
                uint64_t stream_number = spans[at].id >> 32, position = spans[at].id & UINT32_MAX;
                for (int index = 0; index < ENQUEUERS; index++) {
                    if (streams[index]->number == stream_number) {
                        CHECK(position > last[index]);
                        last[index] = position;
                        all++;
                    }
                }
            }
        }
    }
    for (int index = 0; index < ENQUEUERS; index++) {
        bed_join(threads[index]);
    }
    CHECK_EQ(all, ENQUEUERS * WORK);
    aio_spans_stop();
    for (int index = 0; index < ENQUEUERS; index++) {
        bed_end_stream(streams[index]);
    }
    end();
}

RUN_TESTS
