/* The rounds of the thread of an instance, which this thread plays. The watcher helps while it is away. */
#include "waits.h"

static aio_rounds rounds;
static aio_port *mine;

static void begin_rounds(void) {
    begin(AIO_WATCH);
    mine = aio_port_quiet();
    aio_rounds_lend(&rounds, 0, mine);
}

static void end_rounds(void) {
    CHECK_EQ(atomic_load(&rounds.due_us), INT64_MAX);
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

RUN_TESTS
