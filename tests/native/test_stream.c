/* Streams: the list of a device's streams, their destruction, and queue room. */
#include "bed.h"

TEST(positions_count_from_one) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK_EQ(aio_stream_tail(stream), 0);
    for (int position = 1; position <= 5; position++) {
        CHECK_EQ(bed_copy(stream), position);
    }
    CHECK_EQ(bed_await(stream, 5), 5);
    CHECK_EQ(aio_stream_completed(stream), 5);
    CHECK_EQ(aio_stream_poll(stream, 3), 3);
    bed_end_stream(stream);
    bed_close_copied();
}

static int walk(aio_stream *gone) {
    int seen = 0;
    for (aio_stream *stream = NULL; (stream = aio_device_next(0, stream)); seen++) {
        if (stream == gone) {
            bed_end_stream(gone);
            gone = NULL;
        }
    }
    return seen;
}

TEST(a_walk_continues_after_a_stream_ends) {
    aio_stream *streams[5];
    bed_open(0, AIO_WATCH);
    for (int i = 0; i < 5; i++) {
        streams[i] = bed_stream(0);
    }
    CHECK_EQ(walk(streams[2]), 5);
    CHECK_EQ(walk(streams[4]), 4);
    CHECK_EQ(walk(streams[0]), 3);
    CHECK_EQ(aio_device_ask_streams(0), 2);
    bed_end_stream(streams[1]);
    bed_end_stream(streams[3]);
    CHECK_EQ(aio_device_ask_streams(0), 0);
    bed_close(0);
}

static uint64_t native_streams(void) {
    aclsim_stats_t stats;
    sim.stats(&stats);
    return stats.streams;
}

TEST(equip_makes_one_stream_for_each_generation) {
    bed_open(0, AIO_WATCH);
    CHECK_EQ(native_streams(), 1);
    CHECK_EQ(aio_device_equip(0), 0);
    CHECK_EQ(native_streams(), 1);
    CHECK_EQ(aio_equipped(), 1);
    CHECK(bed_reset(0));
    CHECK_EQ(native_streams(), 1);
    bed_close(0);
    CHECK_EQ(native_streams(), 0);
    CHECK_EQ(aio_equipped(), 0);
}

TEST(equip_without_an_event_leaves_no_stream) {
    bed_open(0, AIO_WATCH);
    aio_device_unequip(0, aio_word_generation(aio_gate_word(0)), AIO_ALIVE);
    CHECK_EQ(native_streams(), 0);
    CHECK_EQ(sim.fail_call("aclrtCreateEventWithFlag", 207000, 1), 0);
    CHECK_EQ(aio_device_equip(0), 207000);
    CHECK_EQ(native_streams(), 0);
    CHECK_EQ(aio_equipped(), 0);
    CHECK_EQ(aio_device_equip(0), 0);
    bed_close(0);
}

TEST(a_full_queue_refuses_work_before_c) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    int accepted = 0;
    sim.hold(stream->handle);
    while (bed_copy(stream) >= 0) {
        accepted++;
    }
    CHECK(accepted > 2000 && accepted < AIO_QUEUE_ENTRIES);
    uint64_t calls = sim.calls("aclrtMemcpyAsync");
    CHECK_EQ(bed_copy(stream), aio_failed(AIO_QUEUE_FULL));
    CHECK_EQ(sim.calls("aclrtMemcpyAsync"), calls);
    CHECK(aio_stream_room(stream) < 1);
    CHECK(sim.pending(stream->handle) <
          AIO_QUEUE_ENTRIES); /* one entry is kept free: a full queue would block the watcher */
    sim.release(stream->handle);
    UNTIL(aio_stream_room(stream) > 1000);
    CHECK(bed_copy(stream) > 0);
    bed_end_stream(stream);
    bed_close_copied();
}

TEST(an_enqueue_finds_new_queue_room) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    while (bed_copy(stream) >= 0) {
        continue;
    }
    sim.release(stream->handle);
    UNTIL(sim.pending(stream->handle) == 0);
    CHECK(bed_copy(stream) > 0);
    bed_end_stream(stream);
    bed_close_copied();
}

TEST(a_busy_stream_is_not_destroyed) {
    aio_stream *stream = bed_open_with_held_copy();
    CHECK_EQ(aio_stream_destroy(stream), AIO_PENDING);
    CHECK_EQ(bed_copy(stream), 2);
    sim.release(stream->handle);
    bed_end_stream(stream);
    bed_close_copied();
}

TEST(a_used_stream_is_not_destroyed) {
    bed_open(0, AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK(aio_stream_use(stream));
    CHECK_EQ(aio_stream_destroy(stream), AIO_PENDING);
    aio_stream_unuse(stream);
    CHECK_EQ(aio_stream_destroy(stream), 0);
    CHECK(!aio_stream_use(stream));
    CHECK_EQ(aio_stream_destroy(stream), AIO_STALE);
    CHECK_EQ(sim.calls("aclrtDestroyStream"), 1);
    aio_stream_drop(stream);
    bed_close(0);
}

TEST(a_released_stream_keeps_its_native_stream) {
    int kept = 0;
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    int32_t id = aio_stream_id(stream);
    CHECK_EQ(bed_copy(stream), 1);
    UNTIL(aio_stream_release(stream, &kept) == 0);
    CHECK_EQ(kept, 1);
    CHECK_EQ(aio_stream_known(stream, 1), 1);
    CHECK(!aio_stream_use(stream));
    CHECK_EQ(sim.calls("aclrtDestroyStream"), 0);
    aio_stream *again = aio_stream_again(stream);
    aio_stream_list(again, id);
    aio_stream_drop(stream);
    CHECK_EQ(bed_copy(again), 1);
    bed_end_stream(again);
    CHECK_EQ(sim.calls("aclrtDestroyStream"), 2); /* before it, a stream was made to have the stream lock */
    bed_close_copied();
}

TEST(a_busy_stream_is_not_released) {
    int kept = 0;
    aio_stream *stream = bed_open_with_held_copy();
    CHECK_EQ(aio_stream_release(stream, &kept), AIO_PENDING);
    CHECK_EQ(kept, 0);
    CHECK_EQ(bed_copy(stream), 2);
    sim.release(stream->handle);
    bed_end_stream(stream);
    bed_close_copied();
}

TEST(a_stream_that_the_gate_refuses_is_not_kept) {
    int kept = 1;
    bed_open(0, AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    aio_gate_set(0, AIO_RESETTING, 1);
    CHECK(aio_stream_release(stream, &kept) != 0);
    CHECK_EQ(kept, 0);
    aio_gate_set(0, AIO_OPEN, 1);
    bed_end_stream(stream);
    bed_close(0);
}

TEST(a_released_stream_of_direct_calls_is_destroyed) {
    int kept = 0;
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    aio_stream_manual(stream, 0);
    UNTIL(aio_stream_release(stream, &kept) == 0);
    CHECK_EQ(kept, 0);
    CHECK_EQ(sim.calls("aclrtDestroyStream"), 2); /* as above */
    aio_stream_drop(stream);
    bed_close_copied();
}

TEST(outcomes_outlive_the_native_stream) {
    static aio_error error;
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.fail_next(stream->handle, 507015);
    CHECK_EQ(bed_copy(stream), 1);
    UNTIL(sim.faulted(stream->handle) == 1);
    CHECK_EQ(sim.wake(0), 0);
    int code;
    UNTIL((code = aio_stream_destroy(stream)) != AIO_PENDING);
    CHECK_EQ(code, 0);
    CHECK_EQ(aio_stream_poll(stream, 1), aio_failed(507015));
    CHECK_EQ(aio_stream_error(stream, 1, &error), 507015);
    CHECK_EQ(error.position, 1);
    CHECK_EQ(bed_copy(stream), aio_failed(AIO_STALE));
    aio_stream_drop(stream);
    bed_close_copied();
}

TEST(a_download_is_delivered_before_its_stream_ends) {
    char target[BED_BYTES] = {0};
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK(aio_fill(stream, 0, bed_memory, BED_BYTES, 7, BED_BYTES) > 0);
    CHECK(aio_download(stream, 0, target, bed_memory, BED_BYTES) > 0);
    bed_end_stream(stream);
    CHECK_EQ(target[0], 7);
    CHECK_EQ(target[BED_BYTES - 1], 7);
    bed_close_copied();
}

TEST(the_pool_holds_events_of_this_generation) {
    bed_open_to_copy(AIO_WATCH);
    aio_event *event = NULL;
    aio_stream *stream = bed_stream(0);
    CHECK_EQ(aio_record(stream, 0, 0, &event), 1);
    CHECK(bed_reset(0));
    aio_event_drop(event);
    aio_stream_drop(stream);
    uint64_t made = sim.calls("aclrtCreateEventExWithFlag");
    stream = bed_stream(0);
    CHECK_EQ(aio_record(stream, 0, 0, &event), 1);
    CHECK_EQ(sim.calls("aclrtCreateEventExWithFlag"), made);
    CHECK_EQ(event->generation, stream->generation);
    aio_event_drop(event);
    bed_end_stream(stream);
    bed_close_copied();
}

RUN_TESTS
