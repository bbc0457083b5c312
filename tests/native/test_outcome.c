/* Outcomes: the ledger, marks, staged bytes, and in which order all of it becomes known. */
#include "bed.h"

enum { BYTES = 512 };

static void *memory;
static char *pinned;
static aio_stream *stream;

static void begin(void) {
    bed_open(0, AIO_WATCH);
    memory = bed_malloc(0, BYTES);
    pinned = bed_pinned(BYTES);
    stream = bed_stream(0);
}

static void end(void) {
    bed_end_stream(stream);
    aio_acl.aclrtFreeHost(pinned);
    bed_close(0);
}

static uint64_t copy(void) {
    aio_result result = aio_copy(stream, 0, memory, BYTES, pinned, BYTES, ACL_MEMCPY_HOST_TO_DEVICE);
    CHECK(result > 0);
    return (uint64_t)result;
}

static uint64_t forgotten_copy(void) {
    uint64_t position = copy();
    aio_stream_forget(stream, position);
    return position;
}

/* --- the ledger -------------------------------------------------------------- */
static void verdicts_cover_ranges(void) {
    char text[16];
    begin();
    aio_stream_judge(stream, 2, 5, 507015, "a long description");
    CHECK_EQ(aio_stream_error(stream, 2, NULL, 0), 0);
    CHECK_EQ(aio_stream_error(stream, 3, NULL, 0), 507015);
    CHECK_EQ(aio_stream_error(stream, 5, text, sizeof text), 507015);
    CHECK_EQ(aio_stream_error(stream, 6, NULL, 0), 0);
    CHECK(strcmp(text, "a long descript") == 0);
    end();
}

static void the_newest_verdict_counts(void) {
    char text[16] = "x";
    begin();
    aio_stream_judge(stream, 0, 5, 507015, "old");
    aio_stream_judge(stream, 3, 4, 507011, "");
    CHECK_EQ(aio_stream_error(stream, 4, text, sizeof text), 507011);
    CHECK_EQ(text[0], 0);
    CHECK_EQ(aio_stream_error(stream, 5, text, sizeof text), 507015);
    CHECK(strcmp(text, "old") == 0);
    end();
}

static void the_ledger_is_bounded(void) {
    begin();
    for (uint64_t i = 2; i < AIO_LEDGER_ENTRIES + 12; i++)
        aio_stream_judge(stream, 2 * i, 2 * i + 1, 507015, NULL);
    CHECK_EQ(stream->ledger_size, AIO_LEDGER_ENTRIES);
    CHECK_EQ(aio_stream_error(stream, 4, NULL, 0), 0);
    CHECK_EQ(aio_stream_error(stream, 5, NULL, 0), 507015);
    CHECK_EQ(aio_stream_error(stream, 24, NULL, 0), 507015); /* between two that have become one */
    CHECK_EQ(aio_stream_error(stream, 25, NULL, 0), 507015);
    CHECK_EQ(aio_stream_error(stream, 26, NULL, 0), 0);
    CHECK_EQ(aio_stream_error(stream, 2 * AIO_LEDGER_ENTRIES + 23, NULL, 0), 507015);
    end();
}

static void a_code_that_comes_again_pushes_nothing_out(void) {
    begin();
    aio_stream_judge(stream, 0, 2, 507015, "of old work");
    for (uint64_t i = 0; i < AIO_LEDGER_ENTRIES + 10; i++) {
        aio_stream_judge(stream, 4, 6, 507011, NULL);
        aio_stream_judge(stream, 4, 7 + i, 107023, NULL); /* the same wait again, with more behind it */
        aio_stream_judge(stream, 9, 9, 507015, NULL);     /* of nothing */
    }
    CHECK_EQ(stream->ledger_size, 3);
    CHECK_EQ(aio_stream_error(stream, 2, NULL, 0), 507015);
    CHECK_EQ(aio_stream_error(stream, 3, NULL, 0), 0);
    CHECK_EQ(aio_stream_error(stream, 6, NULL, 0), 107023);
    CHECK_EQ(aio_stream_error(stream, AIO_LEDGER_ENTRIES + 16, NULL, 0), 107023);
    CHECK_EQ(aio_stream_error(stream, AIO_LEDGER_ENTRIES + 17, NULL, 0), 0);
    end();
}

static void what_a_code_says_less_or_more_of_is_kept(void) {
    begin();
    aio_stream_judge(stream, 2, 6, 507015, NULL);
    aio_stream_judge(stream, 3, 5, 507015, NULL);
    CHECK_EQ(aio_stream_error(stream, 6, NULL, 0), 507015);
    aio_stream_judge(stream, 4, 8, 507015, NULL); /* neither within the other */
    CHECK_EQ(aio_stream_error(stream, 3, NULL, 0), 507015);
    CHECK_EQ(aio_stream_error(stream, 8, NULL, 0), 507015);
    aio_stream_judge(stream, 1, 6, 507015, NULL);
    CHECK_EQ(aio_stream_error(stream, 2, NULL, 0), 507015);
    CHECK_EQ(aio_stream_error(stream, 1, NULL, 0), 0);
    CHECK_EQ(stream->ledger_size, 2);
    end();
}

static void an_error_is_told_to_everybody_and_again(void) {
    char text[256];
    begin();
    uint64_t good = forgotten_copy();
    CHECK_EQ(bed_await(stream, good), (int64_t)good);
    sim.fail_next(stream->handle, 507015);
    uint64_t bad = forgotten_copy();
    for (int i = 0; i < 3; i++)
        CHECK_EQ(bed_await(stream, bad), aio_failed(507015));
    CHECK_EQ(aio_stream_poll(stream, bad), aio_failed(507015));
    CHECK_EQ(aio_stream_known(stream, good), (int64_t)good);
    CHECK_EQ(aio_stream_error(stream, bad, text, sizeof text), 507015);
    uint64_t later = forgotten_copy();
    CHECK_EQ(bed_await(stream, later), (int64_t)later);
    end();
}

static void a_query_does_not_swallow_an_error(void) {
    begin();
    sim.fail_next(stream->handle, 507015);
    uint64_t bad = forgotten_copy();
    UNTIL(aio_stream_query(stream, bad) == 1);
    CHECK_EQ(aio_stream_known(stream, bad), aio_failed(AIO_PENDING));
    aio_result result;
    CHECK(!aio_stream_over(stream, bad, &result)); /* done, but whether in an error nobody has asked */
    CHECK_EQ(bed_await(stream, bad), aio_failed(507015));
    end();
}

static void a_device_wide_code_is_owed_to_uncollected_work(void) {
    begin();
    uint64_t good = forgotten_copy();
    CHECK_EQ(bed_await(stream, good), (int64_t)good);
    uint64_t owed = forgotten_copy();
    aio_device_blame(0, 507015, "found by a wait for the device");
    CHECK_EQ(bed_await(stream, owed), aio_failed(507015));
    CHECK_EQ(bed_await(stream, good), (int64_t)good);
    end();
}

static void *copy_elsewhere(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)forgotten_copy();
}

/* An entry that somebody is just enqueueing may be the one that has failed: it is not counted yet. */
static void a_device_wide_code_is_owed_to_who_is_enqueueing(void) {
    void *position = NULL;
    begin();
    sim.hang_call("aclrtMemcpyAsync");
    pthread_t enqueuer = bed_thread(copy_elsewhere, NULL);
    UNTIL(sim.hung("aclrtMemcpyAsync"));
    aio_device_blame(0, 507015, "found by a wait for the device");
    sim.unhang("aclrtMemcpyAsync");
    CHECK_EQ(pthread_join(enqueuer, &position), 0);
    CHECK_EQ(bed_await(stream, (uintptr_t)position), aio_failed(507015));
    uint64_t later = forgotten_copy();
    CHECK_EQ(bed_await(stream, later), (int64_t)later);
    end();
}

/* --- marks ------------------------------------------------------------------- */
static void later_work_does_not_delay_a_ticket(void) {
    begin();
    sim.hold(stream->handle);
    uint64_t mine = copy(); /* somebody refers to it, so the next one records a mark first */
    uint64_t next = forgotten_copy();
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

static void a_ticket_that_was_awaited_is_not_forgotten(void) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin();
    sim.hold(stream->handle);
    uint64_t mine = copy();
    CHECK_EQ(aio_watch(stream, mine, port, 9), 0);
    aio_stream_forget(stream, mine);
    CHECK_EQ(forgotten_copy(), mine + 2); /* a mark came first, so the wait is not for this too */
    sim.release(stream->handle);
    CHECK_EQ(bed_take_one(port, &key), (int64_t)mine);
    aio_port_close(port);
    end();
}

static void a_forgotten_ticket_costs_no_mark(void) {
    begin();
    uint64_t first = forgotten_copy();
    CHECK_EQ(forgotten_copy(), first + 1);
    CHECK_EQ(sim.calls("aclrtRecordEvent"), 0);
    end();
}

static void a_wait_in_mid_stream_gets_a_mark(void) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    begin();
    sim.hold(stream->handle);
    uint64_t mine = forgotten_copy(), next = forgotten_copy();
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

static void marks_are_recorded_now_and_then(void) {
    begin();
    for (int i = 0; i < AIO_MARK_EVERY + 2; i++)
        forgotten_copy();
    CHECK_EQ(sim.calls("aclrtRecordEvent"), 1);
    end();
}

/* The watcher has all waits: what it has not taken yet may come later than what it has. */
static void until_taken(void) {
    for (unsigned turn = 0; atomic_load(&aio_devices[stream->device].incoming); turn++)
        aio_pause(turn);
}

static void waits_end_in_the_order_of_their_positions(void) {
    aio_port *port = aio_port_new();
    uint64_t positions[6], key = 0;
    begin();
    sim.hold(stream->handle);
    for (int i = 0; i < 6; i++)
        positions[i] = copy();
    for (int i = 6; i--;)
        CHECK_EQ(aio_watch(stream, positions[i], port, (uint64_t)i), 0);
    until_taken();
    sim.release(stream->handle);
    for (uint64_t i = 0; i < 6; i++) {
        bed_take_one(port, &key);
        CHECK_EQ(key, i);
    }
    aio_port_close(port);
    end();
}

static void waits_for_the_same_position_end_in_the_order_they_came(void) {
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

/* --- staging ----------------------------------------------------------------- */
static void bytes_land_before_the_wait_ends(void) {
    char source[BYTES], target[BYTES] = {0};
    begin();
    for (int round = 1; round <= 50; round++) {
        memset(source, round, BYTES);
        CHECK(aio_upload(stream, 0, memory, BYTES, source, BYTES) > 0);
        memset(source, 0, BYTES); /* it has been copied away already */
        aio_result down = aio_download(stream, 0, target, memory, BYTES);
        CHECK_EQ(bed_await(stream, (uint64_t)down), down);
        for (int i = 0; i < BYTES; i++)
            CHECK_EQ(target[i], round);
    }
    end();
}

static void an_aborted_download_leaves_its_target_alone(void) {
    char target[BYTES];
    begin();
    memset(target, 5, BYTES);
    sim.hold(stream->handle);
    aio_result down = aio_download(stream, 0, target, memory, BYTES);
    CHECK_EQ(aio_stream_abort(stream), 0);
    CHECK_EQ(bed_await(stream, (uint64_t)down), aio_failed(107023));
    CHECK_EQ(target[0], 5);
    CHECK_EQ(target[BYTES - 1], 5);
    end();
}

static void staging_runs_out_and_comes_back(void) {
    char target[8];
    begin();
    int slots = aio_stage_free_slots(0, 8), taken = 0;
    aio_result last = 0, result;
    sim.hold(stream->handle);
    while ((result = aio_download(stream, 0, target, memory, 8)) >= 0) {
        last = result;
        taken++;
    }
    CHECK_EQ(result, aio_failed(AIO_STAGE_FULL));
    CHECK_EQ(taken, slots);
    CHECK_EQ(aio_stage_free_slots(0, 8), 0);
    CHECK_EQ(aio_upload(stream, 0, memory, BYTES, target, 8), aio_failed(AIO_STAGE_FULL));
    CHECK_EQ(aio_stage_grow(0, 0), 0);
    CHECK(aio_stage_free_slots(0, 8) > 0);
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, (uint64_t)last), last);
    UNTIL(aio_stage_free_slots(0, 8) >= slots);
    CHECK_EQ(aio_download(stream, 0, target, memory, (size_t)1 << 30), aio_failed(AIO_STAGE_FULL));
    end();
}

static void each_size_has_its_slots(void) {
    enum { SMALL = 64 * 1024, LARGE = 1024 * 1024 };
    begin();
    int large = aio_stage_free_slots(0, LARGE), all = aio_stage_free_slots(0, SMALL);
    void *small_slot = aio_stage_take(0, SMALL);
    CHECK_EQ(aio_stage_free_slots(0, LARGE), large);
    CHECK_EQ(aio_stage_free_slots(0, SMALL), all - 1);
    void *large_slot = aio_stage_take(0, SMALL + 1);
    CHECK_EQ(aio_stage_free_slots(0, LARGE), large - 1);
    CHECK(!aio_stage_take(0, LARGE + 1));
    void *whole_slot = aio_stage_take(0, LARGE);
    CHECK(whole_slot != NULL);
    aio_stage_release(0, whole_slot);
    aio_stage_release(0, small_slot);
    aio_stage_release(0, large_slot);
    CHECK_EQ(aio_stage_free_slots(0, SMALL), all);
    end();
}

static void a_copy_that_was_refused_gives_its_slot_back(void) {
    char bytes[8] = {0};
    begin();
    int slots = aio_stage_free_slots(0, 8);
    CHECK_EQ(sim.fail_call("aclrtMemcpyAsync", 207001, 2), 0);
    CHECK_EQ(aio_download(stream, 0, bytes, memory, 8), aio_failed(207001));
    CHECK_EQ(aio_upload(stream, 0, memory, BYTES, bytes, 8), aio_failed(207001));
    CHECK_EQ(aio_stage_free_slots(0, 8), slots);
    end();
}

static uint64_t host_blocks(void) {
    aclsim_stats_t stats;
    sim.stats(&stats);
    return stats.host_blocks;
}

static void memory_is_not_freed_under_a_copy(void) {
    begin();
    char *slot = aio_stage_take(0, 8);
    uint64_t before = host_blocks();
    aio_stage_close(0);
    CHECK_EQ(host_blocks(), before);
    memset(slot, 1, 8);
    aio_stage_release(0, slot);
    aio_stage_close(0);
    CHECK(host_blocks() < before);
    end();
}

/* A foreign reset makes the stream stale at once, but its copies are dropped only later. */
static void *reset_from_abroad(void *unused) {
    (void)unused;
    CHECK_EQ(aio_acl.aclrtResetDeviceForce(0), 0);
    return NULL;
}

static void slots_stay_out_until_the_reset_has_ended(void) {
    char target[BYTES];
    begin();
    int slots = aio_stage_free_slots(0, BYTES);
    sim.set_abort_supported(0);
    sim.hold(stream->handle);
    CHECK(aio_download(stream, 0, target, memory, BYTES) > 0);
    CHECK_EQ(aio_enter(bed_pass(0), AIO_WAIT, AIO_FN_aclrtStreamQuery),
             0); /* keeps the tear-down from beginning */
    pthread_t foreigner = bed_thread(reset_from_abroad, NULL);
    UNTIL(aio_gate_foreign(0));
    aio_stream_drop(stream);
    CHECK_EQ(aio_stage_free_slots(0, BYTES), slots - 1);
    aio_leave(aio_make_pass(0, 1, 0), AIO_WAIT);
    bed_join(foreigner);
    bed_seize(0);
    aio_gate_met(0);
    bed_bring_back_after(0);
    CHECK_EQ(aio_stage_free_slots(0, BYTES), slots);
    aio_acl.aclrtFreeHost(pinned);
    bed_close(0);
}

TESTS(TEST(verdicts_cover_ranges), TEST(each_size_has_its_slots), TEST(memory_is_not_freed_under_a_copy),
      TEST(the_newest_verdict_counts), TEST(the_ledger_is_bounded),
      TEST(a_code_that_comes_again_pushes_nothing_out), TEST(what_a_code_says_less_or_more_of_is_kept),
      TEST(an_error_is_told_to_everybody_and_again), TEST(a_query_does_not_swallow_an_error),
      TEST(a_device_wide_code_is_owed_to_uncollected_work),
      TEST(a_device_wide_code_is_owed_to_who_is_enqueueing), TEST(later_work_does_not_delay_a_ticket),
      TEST(a_forgotten_ticket_costs_no_mark), TEST(a_ticket_that_was_awaited_is_not_forgotten),
      TEST(waits_for_the_same_position_end_in_the_order_they_came),
      TEST(a_copy_that_was_refused_gives_its_slot_back), TEST(a_wait_in_mid_stream_gets_a_mark),
      TEST(marks_are_recorded_now_and_then), TEST(waits_end_in_the_order_of_their_positions),
      TEST(bytes_land_before_the_wait_ends), TEST(an_aborted_download_leaves_its_target_alone),
      TEST(staging_runs_out_and_comes_back), TEST(slots_stay_out_until_the_reset_has_ended))
