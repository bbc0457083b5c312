/* Staging memory: copies through staging memory, and the use of its slots. */
#include "one_stream.h"

TEST(bytes_are_delivered_before_the_wait_ends) {
    char source[BED_BYTES], target[BED_BYTES] = {0};
    begin();
    for (int round = 1; round <= 50; round++) {
        memset(source, round, BED_BYTES);
        CHECK(aio_upload(stream, 0, bed_memory, BED_BYTES, source, BED_BYTES) > 0);
        memset(source, 0, BED_BYTES); /* the upload has copied it already */
        aio_result down = aio_download(stream, 0, target, bed_memory, BED_BYTES);
        CHECK_EQ(bed_await(stream, (uint64_t)down), down);
        for (int i = 0; i < BED_BYTES; i++) {
            CHECK_EQ(target[i], round);
        }
    }
    end();
}

TEST(an_aborted_download_does_not_change_its_target) {
    char target[BED_BYTES];
    begin();
    memset(target, 5, BED_BYTES);
    sim.hold(stream->handle);
    aio_result down = aio_download(stream, 0, target, bed_memory, BED_BYTES);
    CHECK_EQ(aio_stream_abort(stream), 0);
    CHECK_EQ(bed_await(stream, (uint64_t)down), aio_failed(107023));
    CHECK_EQ(target[0], 5);
    CHECK_EQ(target[BED_BYTES - 1], 5);
    end();
}

TEST(a_failed_download_does_not_change_its_target) {
    char target[BED_BYTES];
    begin();
    memset(target, 5, BED_BYTES);
    CHECK(aio_fill(stream, 0, bed_memory, BED_BYTES, 7, BED_BYTES) > 0);
    sim.fail_next(stream->handle, 507015);
    aio_result down = aio_download(stream, 0, target, bed_memory, BED_BYTES);
    CHECK_EQ(bed_await(stream, (uint64_t)down), aio_failed(507015));
    CHECK_EQ(target[0], 5);
    CHECK_EQ(target[BED_BYTES - 1], 5);
    end();
}

TEST(staging_memory_runs_out_and_is_freed) {
    char target[8];
    begin();
    int slots = aio_stage_free_slots(0, 8), taken = 0;
    aio_result last = 0, result;
    sim.hold(stream->handle);
    while ((result = aio_download(stream, 0, target, bed_memory, 8)) >= 0) {
        last = result;
        taken++;
    }
    CHECK_EQ(result, aio_failed(AIO_STAGE_FULL));
    CHECK_EQ(taken, slots);
    CHECK_EQ(aio_stage_free_slots(0, 8), 0);
    CHECK_EQ(aio_upload(stream, 0, bed_memory, BED_BYTES, target, 8), aio_failed(AIO_STAGE_FULL));
    CHECK_EQ(aio_stage_grow(0, 0), 0);
    CHECK(aio_stage_free_slots(0, 8) > 0);
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, (uint64_t)last), last);
    UNTIL(aio_stage_free_slots(0, 8) >= slots);
    CHECK_EQ(aio_download(stream, 0, target, bed_memory, (size_t)1 << 30), aio_failed(AIO_STAGE_FULL));
    end();
}

TEST(each_size_has_its_slots) {
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

TEST(a_refused_copy_frees_its_slot) {
    char bytes[8] = {0};
    begin();
    int slots = aio_stage_free_slots(0, 8);
    CHECK_EQ(sim.fail_call("aclrtMemcpyAsync", 207001, 2), 0);
    CHECK_EQ(aio_download(stream, 0, bytes, bed_memory, 8), aio_failed(207001));
    CHECK_EQ(aio_upload(stream, 0, bed_memory, BED_BYTES, bytes, 8), aio_failed(207001));
    CHECK_EQ(aio_stage_free_slots(0, 8), slots);
    end();
}

static uint64_t host_blocks(void) {
    aclsim_stats_t stats;
    sim.stats(&stats);
    return stats.host_blocks;
}

TEST(memory_is_not_freed_during_a_copy) {
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

TEST(finished_work_that_no_caller_awaits_is_reported) {
    aio_port *kicks = aio_port_new();
    char target[BED_BYTES];
    begin();
    atomic_store(&aio_devices[0].kick, kicks);
    aio_result down = aio_download(stream, 0, target, bed_memory, BED_BYTES);
    CHECK(down > 0);
    aio_stream_refer(stream, (uint64_t)down);
    while (!(bed_kicked(0, kicks) & AIO_KICK_DONE)) {
        continue;
    }
    CHECK_EQ(aio_stream_completed(stream), down);
    end();
    aio_port_close(kicks);
}

/* Acts as a thread that needs queue room: this thread finds that the work is done, but delivers no bytes. */
TEST(bytes_that_no_caller_awaits_are_delivered) {
    char source[BED_BYTES], target[BED_BYTES] = {0};
    begin();
    memset(source, 7, BED_BYTES);
    CHECK(aio_upload(stream, 0, bed_memory, BED_BYTES, source, BED_BYTES) > 0);
    aio_result down = aio_download(stream, 0, target, bed_memory, BED_BYTES);
    UNTIL(sim.pending(stream->handle) == 0);
    aio_stream_finish(stream, (uint64_t)down);
    UNTIL(aio_stream_completed(stream) == (uint64_t)down);
    CHECK_EQ(target[0], 7);
    CHECK_EQ(target[BED_BYTES - 1], 7);
    end();
}

static char targets[2][BED_BYTES];
static uint64_t ends[2];
static int deliveries;

/* When a download has been delivered, its wait is over, and the bytes of the next download are not copied yet.
 */
static void delivered(aio_watched *watched) {
    aio_result result;
    for (int i = 0; i < 2; i++) {
        bool over = i <= deliveries;
        CHECK_EQ(aio_stream_over(watched->stream, ends[i], &result), over);
        CHECK_EQ(targets[i][0], over ? 7 : 0);
    }
    deliveries++;
}

TEST(downloads_are_delivered_one_at_a_time) {
    begin();
    aio_watcher_stop(0); /* it would deliver the bytes */
    CHECK(aio_fill(stream, 0, bed_memory, BED_BYTES, 7, BED_BYTES) > 0);
    for (int i = 0; i < 2; i++) {
        ends[i] = (uint64_t)aio_download(stream, 0, targets[i], bed_memory, BED_BYTES);
    }
    UNTIL(sim.pending(stream->handle) == 0);
    CHECK_EQ(aio_stream_advance(stream, ends[1], false), 0);
    aio_watched watched = {.stream = stream};
    aio_stream_deliver_each(stream, delivered, &watched);
    CHECK_EQ(deliveries, 2);
    end();
}

/* A foreign reset makes the stream stale at once, but drops its copies later. */
TEST(slots_stay_in_use_until_the_reset_has_ended) {
    char target[BED_BYTES];
    begin();
    int slots = aio_stage_free_slots(0, BED_BYTES);
    sim.set_abort_supported(0);
    sim.hold(stream->handle);
    CHECK(aio_download(stream, 0, target, bed_memory, BED_BYTES) > 0);
    CHECK_EQ(aio_enter(bed_pass(0), AIO_WAIT, AIO_FN_aclrtStreamQuery), 0); /* delays the tear-down */
    pthread_t resetting = bed_thread(bed_reset_as_other_code, NULL);
    UNTIL(aio_gate_foreign(0));
    aio_stream_drop(stream);
    CHECK_EQ(aio_stage_free_slots(0, BED_BYTES), slots - 1);
    aio_leave(aio_make_pass(0, 1, 0), AIO_WAIT);
    bed_join(resetting);
    bed_seize(0);
    aio_gate_met(0);
    bed_reopen(0);
    CHECK_EQ(aio_stage_free_slots(0, BED_BYTES), slots);
    bed_close_copied();
}

RUN_TESTS
