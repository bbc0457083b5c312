/* Streams: their lists, their ends, queue room, and aborts. */
#include "bed.h"

enum { BYTES = 256 };

static void *memory, *pinned;

static void open_with_memory(int strategy) {
    bed_open(0, strategy);
    memory = bed_malloc(0, BYTES);
    pinned = bed_pinned(BYTES);
}

/* Nobody refers to its position, so no mark is recorded behind it and the positions are plain to see. */
static aio_result copy(aio_stream *stream) {
    aio_result result = aio_copy(stream, 0, memory, BYTES, pinned, BYTES, ACL_MEMCPY_HOST_TO_DEVICE);
    if (result > 0)
        aio_stream_forget(stream, (uint64_t)result);
    return result;
}

static void close_all(void) {
    aio_acl.aclrtFreeHost(pinned);
    bed_close(0);
}

static void positions_count_from_one(void) {
    open_with_memory(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK_EQ(aio_stream_tail(stream), 0);
    for (int position = 1; position <= 5; position++)
        CHECK_EQ(copy(stream), position);
    CHECK_EQ(bed_await(stream, 5), 5);
    CHECK_EQ(aio_stream_completed(stream), 5);
    CHECK_EQ(aio_stream_poll(stream, 3), 3);
    bed_end_stream(stream);
    close_all();
}

/* --- the list of a device's streams ------------------------------------------ */
static int walk(aio_stream *gone) {
    int seen = 0;
    for (aio_stream *stream = NULL; (stream = aio_device_next(0, stream)); seen++)
        if (stream == gone) {
            bed_end_stream(gone);
            gone = NULL;
        }
    return seen;
}

static void a_walk_survives_a_stream_that_leaves(void) {
    aio_stream *streams[5];
    bed_open(0, AIO_WATCH);
    for (int i = 0; i < 5; i++)
        streams[i] = bed_stream(0);
    CHECK_EQ(walk(streams[2]), 5);
    CHECK_EQ(walk(streams[4]), 4);
    CHECK_EQ(walk(streams[0]), 3);
    CHECK_EQ(aio_device_sweep(0), 2);
    bed_end_stream(streams[1]);
    bed_end_stream(streams[3]);
    CHECK_EQ(aio_device_sweep(0), 0);
    bed_close(0);
}

static uint64_t native_streams(void) {
    aclsim_stats_t stats;
    sim.stats(&stats);
    return stats.streams;
}

static void a_heartbeat_leaves_no_stream(void) {
    bed_open(0, AIO_WATCH);
    uint64_t before = native_streams();
    CHECK_EQ(aio_device_heartbeat(0), 0);
    CHECK_EQ(native_streams(), before);
    bed_close(0);
}

/* --- room -------------------------------------------------------------------- */
static void a_full_queue_refuses_before_c(void) {
    open_with_memory(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    int accepted = 0;
    sim.hold(stream->handle);
    while (copy(stream) >= 0)
        accepted++;
    CHECK(accepted > 2000 && accepted < AIO_QUEUE_ENTRIES);
    uint64_t calls = sim.calls("aclrtMemcpyAsync");
    CHECK_EQ(copy(stream), aio_failed(AIO_QUEUE_FULL));
    CHECK_EQ(sim.calls("aclrtMemcpyAsync"), calls);
    CHECK(aio_stream_room(stream) < 1);
    CHECK(sim.pending(stream->handle) <
          AIO_QUEUE_ENTRIES); /* one is left: a full queue would block the watcher */
    sim.release(stream->handle);
    UNTIL(aio_stream_room(stream) > 1000);
    CHECK(copy(stream) > 0);
    bed_end_stream(stream);
    close_all();
}

/* --- destroying -------------------------------------------------------------- */
static void a_busy_stream_is_not_destroyed(void) {
    open_with_memory(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    CHECK_EQ(copy(stream), 1);
    CHECK_EQ(aio_stream_destroy(stream), AIO_PENDING);
    CHECK_EQ(copy(stream), 2);
    sim.release(stream->handle);
    bed_end_stream(stream);
    close_all();
}

static void a_used_stream_is_not_destroyed(void) {
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

static void outcomes_outlive_the_native_stream(void) {
    char text[256];
    open_with_memory(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.fail_next(stream->handle, 507015);
    CHECK_EQ(copy(stream), 1);
    int code;
    UNTIL((code = aio_stream_destroy(stream)) != AIO_PENDING);
    CHECK_EQ(code, 0);
    CHECK_EQ(aio_stream_poll(stream, 1), aio_failed(507015));
    CHECK_EQ(aio_stream_error(stream, 1, text, sizeof text), 507015);
    CHECK_EQ(copy(stream), aio_failed(AIO_STALE));
    aio_stream_drop(stream);
    close_all();
}

static void a_download_lands_before_its_stream_is_gone(void) {
    char target[BYTES] = {0};
    open_with_memory(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK(aio_fill(stream, 0, memory, BYTES, 7, BYTES) > 0);
    CHECK(aio_download(stream, 0, target, memory, BYTES) > 0);
    bed_end_stream(stream);
    CHECK_EQ(target[0], 7);
    CHECK_EQ(target[BYTES - 1], 7);
    close_all();
}

/* --- aborting ---------------------------------------------------------------- */
static void an_abort_ends_what_was_left(void) {
    open_with_memory(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK_EQ(copy(stream), 1);
    CHECK_EQ(bed_await(stream, 1), 1);
    sim.hold(stream->handle);
    aio_result second = copy(stream), third = copy(stream);
    CHECK_EQ(aio_stream_abort(stream), 0);
    CHECK_EQ(bed_await(stream, 1), 1);
    CHECK_EQ(bed_await(stream, (uint64_t)second), aio_failed(107023));
    CHECK_EQ(bed_await(stream, (uint64_t)third), aio_failed(107023));
    sim.release(stream->handle);
    aio_result later = copy(stream);
    CHECK_EQ(bed_await(stream, (uint64_t)later), later);
    bed_end_stream(stream);
    close_all();
}

static void *copy_elsewhere(void *stream) {
    return (void *)(uintptr_t)copy(stream);
}

/* Whoever is inside the runtime may be dropped or not: either way his wait says that it was aborted. */
static void an_abort_meets_an_enqueuer(void) {
    void *position = NULL;
    open_with_memory(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hang_call("aclrtMemcpyAsync");
    pthread_t enqueuer = bed_thread(copy_elsewhere, stream);
    UNTIL(sim.hung("aclrtMemcpyAsync"));
    CHECK_EQ(aio_stream_abort(stream), 0);
    sim.unhang("aclrtMemcpyAsync");
    CHECK_EQ(pthread_join(enqueuer, &position), 0);
    CHECK_EQ((uintptr_t)position, 1);
    CHECK_EQ(bed_await(stream, 1), aio_failed(107023));
    aio_result later = copy(stream);
    CHECK_EQ(bed_await(stream, (uint64_t)later), later);
    bed_end_stream(stream);
    close_all();
}

static void *reset_from_abroad(void *unused) {
    (void)unused;
    CHECK_EQ(aio_acl.aclrtResetDeviceForce(0), 0);
    return NULL;
}

/* Between a reset of ours and the next generation the streams are dead, though they are not stale yet. */
static void a_foreign_reset_finds_dead_streams(void) {
    open_with_memory(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    CHECK_EQ(copy(stream), 1);
    bed_seize(0);
    CHECK(bed_abort_and_wait(0));
    aio_device_destroy_events(0);
    CHECK_EQ(aio_acl.aclrtResetDeviceForce(0), 0);
    CHECK_EQ(aio_acl.aclrtSetDevice(0), 0);
    bed_join(bed_thread(reset_from_abroad, NULL));
    aio_gate_met(0);
    bed_bring_back_after(0);
    aio_stream_drop(stream);
    close_all();
}

static void a_device_abort_counts_what_it_met(void) {
    int32_t outcome[3];
    aio_stream *streams[3];
    open_with_memory(AIO_WATCH);
    for (int i = 0; i < 3; i++) {
        streams[i] = bed_stream(0);
        CHECK_EQ(copy(streams[i]), 1);
        CHECK_EQ(bed_await(streams[i], 1), 1);
    }
    for (int i = 0; i < 2; i++) {
        sim.hold(streams[i]->handle);
        CHECK(copy(streams[i]) > 1);
    }
    sim.set_abort_supported(0);
    aio_device_abort(0, 5000000, outcome);
    CHECK_EQ(outcome[1], 2);
    sim.set_abort_supported(1);
    bed_seize(0);
    aio_device_abort(0, 5000000, outcome);
    CHECK_EQ(outcome[0], 2);
    CHECK_EQ(outcome[1] + outcome[2], 0);
    CHECK(bed_abort_and_wait(0));
    bed_bring_back(0);
    for (int i = 0; i < 3; i++)
        aio_stream_drop(streams[i]);
    close_all();
}

/* --- events ------------------------------------------------------------------ */
static void the_pool_is_of_this_generation(void) {
    open_with_memory(AIO_WATCH);
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
    close_all();
}

TESTS(TEST(positions_count_from_one), TEST(a_heartbeat_leaves_no_stream),
      TEST(a_walk_survives_a_stream_that_leaves), TEST(a_full_queue_refuses_before_c),
      TEST(a_busy_stream_is_not_destroyed), TEST(a_used_stream_is_not_destroyed),
      TEST(outcomes_outlive_the_native_stream), TEST(a_download_lands_before_its_stream_is_gone),
      TEST(an_abort_ends_what_was_left), TEST(an_abort_meets_an_enqueuer),
      TEST(a_foreign_reset_finds_dead_streams), TEST(a_device_abort_counts_what_it_met),
      TEST(the_pool_is_of_this_generation))
