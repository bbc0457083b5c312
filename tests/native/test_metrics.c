/* What the metrics count: waits of a stream, calls of models, and that a scrape takes no lock of the engine. */
#include "calls.h"
#include "one_stream.h"

static aio_device_counts counts;

static uint64_t observed(const aio_histogram *histogram) {
    uint64_t all = 0;
    for (int bucket = 0; bucket < AIO_BUCKETS; bucket++) {
        all += histogram->counts[bucket];
    }
    return all;
}

static uint64_t waits(enum aio_ending ending) {
    aio_device_counts_read(0, &counts);
    return observed(&counts.waits[AIO_OF_STREAM][ending]);
}

static int64_t in_flight(int kind) {
    aio_device_counts_read(0, &counts);
    uint64_t ended = counts.dropped[kind];
    for (int ending = 0; ending < AIO_WAIT_ENDINGS; ending++) {
        ended += observed(&counts.waits[kind][ending]);
    }
    return (int64_t)(counts.begun[kind] - ended);
}

TEST(a_wait_is_in_flight_until_its_work_has_ended) {
    stream = bed_open_with_held_copy();
    aio_port *port = aio_port_new();
    CHECK_EQ(aio_watch(stream, 1, port, 7), 0);
    CHECK_EQ(in_flight(AIO_OF_STREAM), 1);
    CHECK_EQ(waits(AIO_ENDING_DONE), 0);
    sim.release_all();
    uint64_t key;
    CHECK_EQ(bed_take_one(port, &key), 1);
    UNTIL(in_flight(AIO_OF_STREAM) == 0);
    CHECK_EQ(waits(AIO_ENDING_DONE), 1);
    aio_port_close(port);
    end();
}

TEST(a_wait_that_a_reset_ends_counts_as_reset) {
    stream = bed_open_with_held_copy();
    aio_port *port = aio_port_new();
    CHECK_EQ(aio_watch(stream, 1, port, 7), 0);
    bed_reset(0);
    uint64_t key;
    CHECK(bed_take_one(port, &key) < 0);
    UNTIL(in_flight(AIO_OF_STREAM) == 0);
    CHECK_EQ(waits(AIO_ENDING_RESET), 1);
    CHECK_EQ(waits(AIO_ENDING_FAILED), 0);
    aio_port_close(port);
    aio_stream_drop(stream);
    bed_close_copied();
}

TEST(a_wait_of_the_engine_itself_is_not_counted) {
    stream = bed_open_with_held_copy();
    aio_port *port = aio_port_quiet();
    CHECK_EQ(aio_watch(stream, 1, port, 7), 0);
    CHECK_EQ(in_flight(AIO_OF_STREAM), 0);
    sim.release_all();
    uint64_t key;
    aio_result result = 0;
    UNTIL(aio_port_take(port, &key, &result, 1));
    CHECK_EQ(result, 1);
    CHECK_EQ(waits(AIO_ENDING_DONE), 0);
    aio_port_close(port);
    end();
}

TEST(a_value_is_counted_below_the_first_bound_that_is_not_smaller) {
    aio_port *port = aio_port_quiet();
    aio_model_counts *made = aio_model_counts_new(0);
    for (int bucket = 0; bucket < AIO_BUCKETS; bucket++) {
        aio_token *token = aio_token_new(port, 0);
        aio_count_call(token, made, 1);
        /* The bounds are far apart, so that a slow machine does not change the bucket. */
        int64_t bound = bucket < AIO_BOUNDS ? aio_bound_us(bucket) : 4 * aio_bound_us(AIO_BOUNDS - 1);
        int64_t before = bucket ? aio_bound_us(bucket - 1) : 0;
        token->begun_us = aio_now_us() - (before + (bound - before) / 2);
        aio_count_slot(token, true);
        aio_token_drop(&token);
    }
    aio_model_counts copy;
    aio_model_counts_read(made, &copy);
    CHECK_EQ(observed(&copy.slot_wait), AIO_BUCKETS);
    CHECK(copy.slot_wait.counts[AIO_BUCKETS - 1] >= 1);
    CHECK_EQ(in_flight(AIO_OF_MODEL), 0);
    aio_port_close(port);
    free(made);
}

TEST(an_execution_whose_caller_has_gone_is_counted_once) {
    aio_port *port = aio_port_quiet();
    aio_model_counts *made = aio_model_counts_new(0), copy;
    aio_token *token = aio_token_new(port, 0);
    aio_count_call(token, made, 5);
    CHECK_EQ(in_flight(AIO_OF_MODEL), 1);
    aio_count_execution(token);
    aio_token_drop(&token);
    aio_model_counts_read(made, &copy);
    CHECK_EQ(copy.executions[AIO_ENDING_CANCELLED], 1);
    CHECK_EQ(copy.rows[AIO_ENDING_CANCELLED], 5);
    CHECK_EQ(observed(&copy.execution), 0);
    CHECK_EQ(in_flight(AIO_OF_MODEL), 0);
    aio_port_close(port);
    free(made);
}

/* The functions of C that a scrape calls; tests/unit/metrics/test_scrape.py compares this list. */
static void scrape(const aio_model_counts *made) {
    aio_call calls[16];
    int32_t inside[3];
    aio_model_counts copy;
    aio_forked();
    aio_library_key();
    aio_library_is_simulator();
    aio_gate_word(0);
    aio_gate_foreign(0);
    aio_gate_counts(0, inside);
    aio_gate_inside(0, calls, 16);
    aio_table_name(0);
    aio_device_counts_read(0, &counts);
    aio_model_counts_read(made, &copy);
}

/* If a lock were taken, the scrape would never return: this thread holds all of them. */
TEST(a_scrape_takes_no_lock_of_the_engine) {
    begin();
    aio_calls *calls = aio_calls_new(0, stream->generation, 0, 0, 1, 1);
    aio_model_counts *made = aio_model_counts_new(0);
    aio_calls_count(calls, made);
    aio_lock_take(&calls->lock);
    aio_lock_take(&aio_devices[0].lock);
    aio_lock_take(&stream->lock);
    scrape(made);
    aio_lock_give(&stream->lock);
    aio_lock_give(&aio_devices[0].lock);
    aio_lock_give(&calls->lock);
    aio_calls_drop(calls);
    free(made);
    end();
}

enum { THREADS = 4, TOKENS = 2000 };
static aio_model_counts *shared;

static void *count_many(void *raw) {
    aio_port *port = raw;
    for (int index = 0; index < TOKENS; index++) {
        aio_token *token = aio_token_new(port, 0);
        aio_count_call(token, shared, 1);
        aio_count_slot(token, false);
        aio_count_execution(token);
        aio_publish(token, 1);
        aio_count_request(shared, AIO_ENDING_DONE);
    }
    return NULL;
}

/* For TSan too. A number never falls between two scrapes. */
TEST(threads_lose_no_count_and_a_reader_sees_none_fall) {
    aio_port *port = aio_port_quiet();
    shared = aio_model_counts_new(0);
    pthread_t threads[THREADS];
    for (int index = 0; index < THREADS; index++) {
        threads[index] = bed_thread(count_many, port);
    }
    uint64_t before = 0;
    aio_model_counts copy;
    do {
        aio_model_counts_read(shared, &copy);
        CHECK(copy.requests[AIO_ENDING_DONE] >= before);
        before = copy.requests[AIO_ENDING_DONE];
    } while (before < THREADS * TOKENS);
    for (int index = 0; index < THREADS; index++) {
        bed_join(threads[index]);
    }
    aio_model_counts_read(shared, &copy);
    CHECK_EQ(copy.executions[AIO_ENDING_DONE], THREADS * TOKENS);
    CHECK_EQ(copy.rows[AIO_ENDING_DONE], THREADS * TOKENS);
    CHECK_EQ(observed(&copy.slot_wait), THREADS * TOKENS);
    CHECK_EQ(observed(&copy.execution), THREADS * TOKENS);
    CHECK_EQ(in_flight(AIO_OF_MODEL), 0);
    aio_port_close(port);
    free(shared);
}

RUN_TESTS
