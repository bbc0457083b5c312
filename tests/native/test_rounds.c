/* The rounds of the thread of an instance, which this thread plays. The watcher helps while it is away. */
#include <poll.h>

#include "waits.h"

static aio_rounds rounds;
static aio_port *mine;

static void begin_rounds(void) {
    begin(AIO_WATCH);
    mine = aio_port_quiet();
    aio_rounds_lend(&rounds, 0, mine);
}

static void end_rounds(void) {
    aio_rounds_ring(&rounds);
    UNTIL(atomic_load(&rounds.due_us) == INT64_MAX); /* the watcher may be at the end of its round */
    aio_rounds_end(&rounds);
    aio_port_close(mine);
}

static uint64_t watch_here(uint64_t as) {
    aio_token *token = NULL;
    uint64_t position = copy();
    CHECK_EQ(aio_token_take(port, as, &token), 0);
    CHECK_EQ(aio_watch_by(&rounds, stream, position, token), 0);
    return position;
}

static bool more_follow(aio_rounds *self, const aio_token *token) {
    return self == &rounds && token->patient == &rounds;
}

/* Begins a wait whose completion may share a ring with others. */
static void watch_patiently(uint64_t as) {
    aio_token *token = NULL;
    rounds.before = more_follow;
    CHECK_EQ(aio_token_take(port, as, &token), 0);
    token->patient = &rounds;
    CHECK_EQ(aio_watch_by(&rounds, stream, copy(), token), 0);
}

static bool is_readable(void) {
    struct pollfd one = {aio_port_fd(port), POLLIN, 0};
    return poll(&one, 1, 0) == 1;
}

/* Two completions are in the port, and nothing has rung. */
static void hold_two(void) {
    begin_rounds();
    watch_patiently(1);
    watch_patiently(2);
    while (rounds.active) {
        aio_rounds_make(&rounds);
    }
    CHECK(rounds.held == port);
    CHECK(!is_readable());
}

static void take_two(void) {
    uint64_t keys[2];
    int64_t results[2];
    CHECK(is_readable());
    CHECK_EQ(aio_port_take(port, keys, results, 2), 2);
    CHECK(!is_readable());
}

static bool took(uint64_t *taken, int64_t *result) {
    return aio_port_take(port, taken, result, 1) == 1;
}

TEST(a_wait_ends_in_the_rounds_of_its_thread) {
    int64_t result;
    begin_rounds();
    sim.hold(stream->handle);
    uint64_t position = watch_here(1);
    aio_rounds_look(&rounds);
    CHECK(!took(&key, &result));
    CHECK(atomic_load(&rounds.due_us) != INT64_MAX);
    sim.release(stream->handle);
    for (bool ended = false; !ended; ended = took(&key, &result)) {
        aio_rounds_look(&rounds);
    }
    CHECK_EQ(result, position);
    end_rounds();
    end();
}

TEST(the_watcher_makes_the_rounds_of_a_thread_that_is_away) {
    begin_rounds();
    sim.hold(stream->handle);
    uint64_t position = watch_here(1);
    aio_rounds_away(&rounds);
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    UNTIL(atomic_load(&mine->word)); /* the thread learns of it when it is back */
    aio_rounds_back(&rounds);
    end_rounds();
    end();
}

TEST(a_reset_ends_the_waits_of_a_thread_that_is_away) {
    begin_rounds();
    sim.hold(stream->handle);
    watch_here(1);
    aio_rounds_away(&rounds);
    bed_seize(0);
    CHECK(bed_abort_and_wait(0));
    UNTIL(atomic_load(&rounds.due_us) == INT64_MAX);
    bed_reset_and_reopen(0);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    aio_rounds_back(&rounds);
    end_rounds();
    end_stale();
}

/* Any of the functions that wake the watcher may have ended the wait. */
TEST(a_thread_with_waits_is_woken_with_the_watcher) {
    int64_t result;
    begin_rounds();
    sim.hold(stream->handle);
    watch_here(1);
    aio_rounds_look(&rounds);
    uint32_t seen = atomic_load(&mine->word);
    aio_watcher_wake(0);
    UNTIL(atomic_load(&mine->word) != seen && atomic_load(&rounds.all));
    sim.release(stream->handle);
    for (bool ended = false; !ended; ended = took(&key, &result)) {
        aio_rounds_look(&rounds);
    }
    end_rounds();
    end();
}

TEST(waits_that_are_left_at_the_end_of_the_thread_are_deferred) {
    begin_rounds();
    sim.hold(stream->handle);
    watch_here(1);
    aio_rounds_end(&rounds);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    aio_port_close(mine);
    sim.release(stream->handle);
    end();
}

/* The watcher is inside a query for the thread, which gives its next wait to the watcher. */
TEST(a_wait_that_begins_while_the_watcher_helps_ends) {
    begin_rounds();
    atomic_store(&rounds.used, true);
    uint64_t position = watch_here(1);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
    atomic_store(&rounds.used, false);
    end_rounds();
    end();
}

TEST(patient_waits_share_a_ring) {
    hold_two();
    aio_rounds_ring(&rounds);
    take_two();
    end_rounds();
    end();
}

TEST(another_completion_rings_for_patient_waits) {
    uint64_t keys[4];
    int64_t results[4];
    hold_two();
    bed_post(port, 3, 0);
    CHECK_EQ(aio_port_take(port, keys, results, 4), 3);
    end_rounds();
    CHECK(!is_readable());
    end();
}

TEST(patient_waits_are_rung_for_at_the_end_of_the_thread) {
    hold_two();
    atomic_store(&rounds.due_us, INT64_MAX);
    aio_rounds_end(&rounds);
    take_two();
    aio_port_close(mine);
    end();
}

TEST(the_watcher_rings_for_a_thread_that_is_away) {
    hold_two();
    aio_rounds_back(&rounds);
    atomic_store(&rounds.due_us, 0); /* as the end of a round states it */
    aio_rounds_away(&rounds);
    UNTIL(is_readable());
    take_two();
    aio_rounds_back(&rounds);
    end_rounds();
    end();
}

TEST(a_patient_wait_that_ends_while_its_thread_is_away_is_not_held_back) {
    begin_rounds();
    sim.hold(stream->handle);
    watch_patiently(1);
    aio_rounds_away(&rounds);
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), 1);
    aio_rounds_back(&rounds);
    end_rounds();
    end();
}

RUN_TESTS
