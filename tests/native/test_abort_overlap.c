/* Aborts that do not own the stream, because an enqueuer did not release it in time, and concurrent calls. */
#include "one_stream.h"

static void *enqueued;

static void *copy(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)bed_copy(stream);
}

static void copy_on_another_thread(void) {
    CHECK_EQ(pthread_join(bed_thread(copy, NULL), &enqueued), 0);
}

/* The owner releases the stream only when the abort is inside the runtime. The next enqueuer does not wait for
 * the end of the abort. */
static aclError (*abort_as_it_is)(aclrtStream);

static aclError enqueue_and_abort(aclrtStream handle) {
    atomic_store(&stream->owner, AIO_NOBODY);
    copy_on_another_thread();
    return abort_as_it_is(handle);
}

static aclError abort_and_enqueue(aclrtStream handle) {
    atomic_store(&stream->owner, AIO_NOBODY);
    aclError code = abort_as_it_is(handle);
    copy_on_another_thread();
    return code;
}

static int abort_by(aclError (*how)(aclrtStream)) {
    abort_as_it_is = aio_acl.aclrtStreamAbort;
    aio_acl.aclrtStreamAbort = how;
    bed_own(stream);
    int code = aio_stream_abort(stream);
    aio_acl.aclrtStreamAbort = abort_as_it_is;
    return code;
}

/* The abort may or may not have dropped the work. In both cases the wait fails as aborted. */
TEST(work_enqueued_during_an_abort_is_aborted) {
    begin();
    sim.hold(stream->handle);
    CHECK_EQ(abort_by(enqueue_and_abort), 0);
    CHECK_EQ(bed_await(stream, (uintptr_t)enqueued), aio_failed(107023));
    sim.release(stream->handle);
    CHECK_EQ(abort_by(abort_and_enqueue), 0);
    CHECK_EQ(bed_await(stream, (uintptr_t)enqueued), aio_failed(107023));
    aio_result later = bed_copy(stream);
    CHECK_EQ(bed_await(stream, (uint64_t)later), later);
    end();
}

/* The abort drops work and then returns an error code. Queries report the dropped work as complete. */
static aclError abort_and_fail(aclrtStream handle) {
    CHECK_EQ(abort_as_it_is(handle), 0);
    return 507000;
}

static aclError enqueue_abort_and_fail(aclrtStream handle) {
    CHECK_EQ(enqueue_and_abort(handle), 0);
    return 507000;
}

TEST(work_that_a_failed_abort_may_have_dropped_is_aborted) {
    begin();
    sim.hold(stream->handle);
    CHECK_EQ(bed_copy(stream), 1);
    abort_as_it_is = aio_acl.aclrtStreamAbort;
    aio_acl.aclrtStreamAbort = abort_and_fail;
    CHECK_EQ(aio_stream_abort(stream), 507000);
    aio_acl.aclrtStreamAbort = abort_as_it_is;
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, 1), aio_failed(107023));
    sim.hold(stream->handle);
    CHECK_EQ(abort_by(enqueue_abort_and_fail), 507000);
    sim.release(stream->handle);
    CHECK_EQ(bed_await(stream, (uintptr_t)enqueued), aio_failed(107023));
    aio_result later = bed_copy(stream);
    CHECK_EQ(bed_await(stream, (uint64_t)later), later);
    end();
}

TEST(an_enqueue_during_a_refused_abort_is_not_aborted) {
    void *position = NULL;
    begin();
    sim.hang_call("aclrtMemcpyAsync");
    pthread_t enqueuer = bed_thread(copy, NULL);
    UNTIL(sim.hung("aclrtMemcpyAsync"));
    sim.set_abort_supported(0);
    CHECK(aio_stream_abort(stream) > 0);
    sim.set_abort_supported(1);
    sim.release_call("aclrtMemcpyAsync");
    CHECK_EQ(pthread_join(enqueuer, &position), 0);
    CHECK_EQ(bed_await(stream, (uintptr_t)position), (uintptr_t)position);
    end();
}

/* A synchronize that begins during an abort may return 0 because the work was dropped. */
static aclError (*synchronize_as_it_is)(aclrtStream, int32_t);

static aclError synchronize_until_the_abort_has_ended(aclrtStream handle, int32_t timeout) {
    aclError code = synchronize_as_it_is(handle, timeout);
    atomic_fetch_add(&stream->aborts_ended, 1);
    return code;
}

TEST(a_synchronize_begun_during_an_abort_confirms_nothing) {
    begin();
    CHECK_EQ(bed_copy(stream), 1);
    UNTIL(sim.pending(stream->handle) == 0);
    synchronize_as_it_is = aio_acl.aclrtSynchronizeStreamWithTimeout;
    aio_acl.aclrtSynchronizeStreamWithTimeout = synchronize_until_the_abort_has_ended;
    atomic_fetch_add(&stream->aborts, 1);
    CHECK(aio_stream_sync_once(stream));
    aio_acl.aclrtSynchronizeStreamWithTimeout = synchronize_as_it_is;
    CHECK_EQ(atomic_load(&stream->synced), 0);
    CHECK_EQ(bed_await(stream, 1), 1);
    end();
}

RUN_TESTS
