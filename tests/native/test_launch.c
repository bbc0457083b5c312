/* Launch blocks: other code enqueues on the native stream, and the position of the block covers its work. */
#include "bed.h"

enum { TASK_FAULT = 507001, MANY = 300 };

static void fill(const aio_stream *stream) {
    CHECK_EQ(aio_acl.aclrtMemsetAsync(bed_memory, BED_BYTES, 1, BED_BYTES, stream->handle), 0);
}

static aio_result launch(aio_stream *stream, int tasks, int reported) {
    aio_block block = {0};
    CHECK_EQ(aio_launch_begin(stream, 0, MANY, reported, &block), 0);
    for (int i = 0; i < tasks; i++) {
        fill(stream);
    }
    aio_result position = aio_launch_end(stream, &block);
    CHECK_EQ(aio_code(aio_launch_end(stream, &block)), AIO_PENDING);
    return position;
}

TEST(the_position_of_a_block_covers_its_tasks) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    CHECK_EQ(bed_copy(stream), 1);
    for (int reported = 0; reported < 2; reported++) {
        aio_result position = launch(stream, 5, reported);
        CHECK(position > 1);
        CHECK_EQ(bed_await(stream, (uint64_t)position), position);
    }
    CHECK_EQ(launch(stream, 0, 1), (aio_result)aio_stream_tail(stream));
    bed_end_stream(stream);
    bed_close_copied();
}

TEST(a_failed_task_of_a_block_fails_its_position_only) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    aio_result before = bed_copy(stream);
    aio_block block = {0};
    CHECK_EQ(aio_launch_begin(stream, 0, MANY, 1, &block), 0);
    fill(stream);
    sim.fail_next(stream->handle, TASK_FAULT);
    fill(stream);
    aio_result position = aio_launch_end(stream, &block);
    CHECK_EQ(aio_code(bed_await(stream, (uint64_t)position)), TASK_FAULT);
    CHECK_EQ(aio_stream_error(stream, (uint64_t)before, NULL), 0);
    CHECK_EQ(aio_code(bed_copy(stream)), AIO_STREAM_FAILED);
    bed_end_stream(stream);
    bed_close_copied();
}

static void *copy_elsewhere(void *stream) {
    CHECK_EQ(aio_code(bed_copy(stream)), AIO_LAUNCHING);
    return NULL;
}

TEST(an_open_block_refuses_enqueues_and_keeps_the_stream) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    aio_block block = {0}, second = {0};
    aio_call calls[4];
    CHECK_EQ(aio_launch_begin(stream, 0, 1, 1, &block), 0);
    CHECK_EQ(aio_code(bed_copy(stream)), AIO_LAUNCHING_HERE);
    CHECK_EQ(aio_launch_begin(stream, 0, 1, 1, &second), AIO_LAUNCHING_HERE);
    bed_join(bed_thread(copy_elsewhere, stream));
    CHECK_EQ(aio_launch_inside(0, calls, 4), 1);
    CHECK_EQ(aio_stream_destroy(stream), AIO_PENDING);
    CHECK_EQ(aio_stream_is_spent(stream), 0);
    CHECK(aio_launch_end(stream, &block) > 0);
    CHECK_EQ(aio_launch_inside(0, calls, 4), 0);
    bed_end_stream(stream);
    bed_close_copied();
}

TEST(the_tasks_of_a_block_take_room_until_they_are_done) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    int64_t room = aio_stream_room(stream);
    CHECK(launch(stream, MANY, 1) > MANY);
    CHECK_EQ(aio_stream_room(stream), room - MANY - 1);
    aio_block block = {0};
    CHECK_EQ(aio_launch_begin(stream, 0, aio_launch_most(), 1, &block), AIO_QUEUE_FULL);
    sim.release(stream->handle);
    aio_result tail = (aio_result)aio_stream_tail(stream);
    CHECK_EQ(bed_await(stream, (uint64_t)tail), tail);
    bed_end_stream(stream);
    bed_close_copied();
}

TEST(a_reset_drops_the_work_of_a_block_that_ends_late) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    aio_block block = {0};
    CHECK_EQ(aio_launch_begin(stream, 0, MANY, 0, &block), 0);
    sim.hold(stream->handle);
    fill(stream);
    bed_seize(0);
    aio_result position = aio_launch_end(stream, &block);
    CHECK(position > 0);
    CHECK_EQ(bed_abort_and_wait(0), 1);
    bed_reset_and_reopen(0);
    CHECK(aio_stream_known(stream, (uint64_t)position) < 0);
    aio_stream_drop(stream);
    bed_close(0);
}

TEST(a_borrowed_stream_is_never_destroyed_and_ends_with_its_native_stream) {
    bed_open_to_copy(AIO_WATCH);
    aclrtStream theirs = NULL;
    CHECK_EQ(aio_acl.aclrtCreateStream(&theirs), 0);
    aio_stream *first = aio_stream_borrow(bed_pass(0), theirs, NULL);
    aio_stream *second = aio_stream_borrow(bed_pass(0), theirs, NULL);
    CHECK_EQ(aio_stream_is_ours(theirs), 0);
    aio_result position = bed_ticket(first);
    CHECK_EQ(bed_await(first, (uint64_t)position), position);
    CHECK_EQ(aio_stream_destroy(first), 0);
    aio_stream_drop(first);
    CHECK_EQ(bed_ticket(second), 1);
    sim.hold(theirs);
    position = bed_ticket(second);
    aio_borrowed_ends(theirs);
    CHECK_EQ(aio_code(bed_await(second, (uint64_t)position)), RT_STREAM_ABORT);
    CHECK_EQ(aio_code(bed_ticket(second)), AIO_STALE);
    sim.release(theirs);
    CHECK_EQ(aio_acl.aclrtSynchronizeStream(theirs), 0);
    CHECK_EQ(aio_acl.aclrtDestroyStream(theirs), 0);
    aio_stream_drop(second);
    bed_close_copied();
}

RUN_TESTS
