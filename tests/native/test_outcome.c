/* Outcomes: error records, aborted ranges, marks, and the order in which waits end. */
#include "one_stream.h"

static uint64_t copy(void) {
    aio_result result = bed_ticket(stream);
    CHECK(result > 0);
    return (uint64_t)result;
}

static uint64_t copy_with_dropped_ticket(void) {
    return (uint64_t)bed_copy(stream);
}

static aio_error error;

TEST(a_failure_covers_its_position_and_all_later_ones) {
    begin();
    aio_stream_fail(stream, 3, 507015, "a description");
    CHECK_EQ(aio_stream_error(stream, 2, NULL), 0);
    CHECK_EQ(aio_stream_error(stream, 3, NULL), 507015);
    CHECK_EQ(aio_stream_error(stream, UINT64_MAX, &error), 507015);
    CHECK_EQ(error.code, 507015);
    CHECK_EQ(error.device, 0);
    CHECK_EQ(error.generation, stream->generation);
    CHECK_EQ(error.stream, aio_stream_id(stream));
    CHECK_EQ(error.position, 3);
    CHECK(strcmp(error.text, "a description") == 0);
    CHECK_EQ(aio_stream_error(stream, 2, &error), 0);
    CHECK_EQ(error.code, 0);
    end();
}

TEST(the_earliest_failure_is_kept) {
    begin();
    aio_stream_fail(stream, 5, 507015, "later");
    aio_stream_fail(stream, 3, 507011, NULL);
    aio_stream_fail(stream, 4, 507018, "between");
    CHECK_EQ(aio_stream_error(stream, 9, &error), 507011);
    CHECK_EQ(error.position, 3);
    CHECK_EQ(strlen(error.text), 0);
    CHECK_EQ(aio_stream_error(stream, 2, NULL), 0);
    end();
}

/* A failure is announced to the listeners only if it changes the error record. */
TEST(a_repeated_failure_changes_nothing) {
    begin();
    aio_stream_fail(stream, 5, 507015, "first");
    for (uint64_t i = 5; i < 100; i++) {
        aio_stream_fail(stream, i, 507011, "again");
    }
    CHECK_EQ(aio_stream_error(stream, 99, &error), 507015);
    CHECK(strcmp(error.text, "first") == 0);
    CHECK_EQ(bed_serve(0, AIO_KICK_FAULT), 1);
    CHECK_EQ(bed_serve(0, AIO_KICK_FAULT), 0);
    end();
}

TEST(confirmed_work_never_fails) {
    begin();
    uint64_t good = copy_with_dropped_ticket();
    CHECK_EQ(bed_await(stream, good), (int64_t)good);
    aio_stream_fail(stream, good, 507015, NULL);
    CHECK_EQ(aio_stream_error(stream, good, NULL), 0);
    CHECK_EQ(aio_stream_known(stream, good), (int64_t)good);
    CHECK_EQ(aio_stream_error(stream, good + 1, &error), 507015);
    CHECK_EQ(error.position, good + 1);
    end();
}

TEST(every_wait_raises_the_error) {
    begin();
    uint64_t good = copy_with_dropped_ticket();
    CHECK_EQ(bed_await(stream, good), (int64_t)good);
    sim.fail_next(stream->handle, 507015);
    uint64_t bad = copy_with_dropped_ticket();
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(bed_await(stream, bad), aio_failed(507015));
    }
    CHECK_EQ(aio_stream_poll(stream, bad), aio_failed(507015));
    CHECK_EQ(aio_stream_known(stream, good), (int64_t)good);
    CHECK_EQ(aio_stream_error(stream, bad, &error), 507015);
    CHECK_EQ(error.position, bad);
    CHECK_EQ(bed_await(stream, good), (int64_t)good);
    end();
}

TEST(a_query_does_not_consume_an_error) {
    begin();
    sim.fail_next(stream->handle, 507015);
    uint64_t bad = copy_with_dropped_ticket();
    UNTIL(sim.faulted(stream->handle) == 1);
    CHECK_EQ(sim.wake(0), 0);
    UNTIL(aio_stream_query(stream, bad) == 1);
    CHECK_EQ(aio_stream_known(stream, bad), aio_failed(507015));
    CHECK_EQ(bed_await(stream, bad), aio_failed(507015));
    end();
}

TEST(an_aborted_range_has_two_ends) {
    begin();
    aio_stream_note_abort(stream, 2, 5);
    CHECK_EQ(aio_stream_error(stream, 2, NULL), 0);
    CHECK_EQ(aio_stream_error(stream, 3, NULL), 107023);
    CHECK_EQ(aio_stream_error(stream, 5, &error), 107023);
    CHECK_EQ(error.code, 107023);
    CHECK_EQ(aio_stream_error(stream, 6, NULL), 0);
    aio_stream_note_abort(stream, 7, 7); /* an empty range */
    CHECK_EQ(stream->aborted_count, 1);
    end();
}

TEST(aborted_ranges_are_bounded) {
    begin();
    for (uint64_t i = 2; i < AIO_ABORTS_KEPT + 12; i++) {
        aio_stream_note_abort(stream, 2 * i, 2 * i + 1);
    }
    CHECK_EQ(stream->aborted_count, AIO_ABORTS_KEPT);
    CHECK_EQ(aio_stream_error(stream, 4, NULL), 0);
    CHECK_EQ(aio_stream_error(stream, 5, NULL), 107023);
    CHECK_EQ(aio_stream_error(stream, 24, NULL), 107023); /* between two ranges that were merged */
    CHECK_EQ(aio_stream_error(stream, 25, NULL), 107023);
    CHECK_EQ(aio_stream_error(stream, 26, NULL), 0);
    CHECK_EQ(aio_stream_error(stream, 2 * AIO_ABORTS_KEPT + 23, NULL), 107023);
    end();
}

TEST(later_work_does_not_delay_a_ticket) {
    begin();
    sim.hold(stream->handle);
    uint64_t mine = copy(); /* a ticket refers to `mine`, so the next copy records a mark first */
    uint64_t next = copy_with_dropped_ticket();
    CHECK_EQ(next, mine + 2);
    aio_event *mark = aio_stream_mark_for(stream, mine);
    CHECK(mark != NULL);
    CHECK_EQ(mark->position, mine + 1);
    aio_event_drop(mark);
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, mine), (int64_t)mine);
    CHECK_EQ(bed_await(stream, next), (int64_t)next);
    end();
}

TEST(an_awaited_ticket_keeps_its_mark) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin();
    sim.hold(stream->handle);
    uint64_t mine = copy();
    CHECK_EQ(aio_watch(stream, mine, port, 9), 0);
    aio_stream_forget(stream, mine);
    CHECK_EQ(copy_with_dropped_ticket(),
             mine + 2); /* a mark was recorded first, so the wait does not cover this copy */
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)mine);
    aio_port_close(port);
    end();
}

TEST(a_dropped_ticket_records_no_mark) {
    begin();
    uint64_t first = copy_with_dropped_ticket();
    CHECK_EQ(copy_with_dropped_ticket(), first + 1);
    CHECK_EQ(atomic_load(&stream->last_mark), 0);
    end();
}

TEST(a_wait_in_mid_stream_gets_a_mark) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin();
    sim.hold(stream->handle);
    uint64_t mine = copy_with_dropped_ticket(), next = copy_with_dropped_ticket();
    CHECK_EQ(aio_watch(stream, mine, port, 9), 0);
    aio_event *mark = aio_stream_mark_for(stream, mine);
    CHECK(mark != NULL);
    CHECK_EQ(mark->position, next + 1);
    aio_event_drop(mark);
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)mine);
    CHECK_EQ(key, 9);
    aio_port_close(port);
    end();
}

TEST(a_mark_is_recorded_after_many_entries) {
    begin();
    for (int i = 0; i < AIO_MARK_EVERY; i++) {
        CHECK_EQ(copy_with_dropped_ticket(), i + 1);
    }
    CHECK_EQ(copy_with_dropped_ticket(), AIO_MARK_EVERY + 2);
    CHECK_EQ(atomic_load(&stream->last_mark), AIO_MARK_EVERY + 1);
    CHECK_EQ(copy_with_dropped_ticket(), AIO_MARK_EVERY + 3);
    end();
}

/* Waits until the watcher has taken all waits from the list, because a wait that the watcher takes later may
 * end later. */
static void until_taken(void) {
    for (unsigned turn = 0; atomic_load(&aio_devices[stream->device].incoming); turn++) {
        aio_pause(turn);
    }
}

TEST(waits_end_in_the_order_of_their_positions) {
    aio_port *port = aio_port_new();
    uint64_t positions[6], key = 0;
    begin();
    sim.hold(stream->handle);
    for (int i = 0; i < 6; i++) {
        positions[i] = copy();
    }
    for (int i = 6; i--;) {
        CHECK_EQ(aio_watch(stream, positions[i], port, (uint64_t)i), 0);
    }
    until_taken();
    sim.release(stream->handle);
    for (uint64_t i = 0; i < 6; i++) {
        bed_take_one(port, &key);
        CHECK_EQ(key, i);
    }
    aio_port_close(port);
    end();
}

TEST(waits_for_the_same_position_end_in_the_order_of_their_start) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin();
    sim.hold(stream->handle);
    uint64_t position = copy();
    for (uint64_t i = 0; i < 6; i++) {
        CHECK_EQ(aio_watch(stream, position, port, i), 0);
        until_taken();
    }
    sim.release(stream->handle);
    for (uint64_t i = 0; i < 6; i++) {
        CHECK_EQ(bed_take_one(port, &key), (int64_t)position);
        CHECK_EQ(key, i);
    }
    aio_port_close(port);
    end();
}

RUN_TESTS
