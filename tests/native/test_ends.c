/* Exits and forks. Each test ends a child process, and checks its exit status. */
#include "bed.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRACE_US = 200000 };

static pid_t start_child(void) {
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    return child;
}

static void ended_with(pid_t child, int status) {
    int how = 0;
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), status);
}

static atomic_bool left_inside;

static void *stay_inside(void *unused) {
    (void)unused;
    CHECK_EQ(aio_enter(bed_pass(0), AIO_WAIT, AIO_FN_aclrtSynchronizeStream), 0);
    atomic_store(&left_inside, true);
    for (;;) {
        pause();
    }
}

static void late_handler(int status, void *unused) {
    (void)unused;
    _exit(status + 1); /* registered before the engine's handler, so it runs after the engine's */
}

static void *leave_at_exit(void *unused) {
    (void)unused;
    CHECK_EQ(aio_enter(bed_pass(0), AIO_WAIT, AIO_FN_aclrtSynchronizeStream), 0);
    atomic_store(&left_inside, true);
    UNTIL(atomic_load(&aio_exiting));
    aio_leave(bed_pass(0), AIO_WAIT);
    return NULL;
}

static void *stay_outside(void *unused) {
    (void)unused;
    aio_outside_begin();
    atomic_store(&left_inside, true);
    pause();
    return NULL;
}

/* These children start before the library is opened, so the engine does not treat them as forks. */
TEST(exit_with_a_thread_inside_skips_later_handlers) {
    pid_t child = start_child();
    if (child == 0) {
        on_exit(late_handler, NULL);
        bed_open(0, AIO_WATCH);
        aio_exit_install(GRACE_US);
        bed_thread(stay_inside, NULL);
        UNTIL(atomic_load(&left_inside));
        exit(5);
    }
    ended_with(child, 5);
}

TEST(exit_waits_for_a_thread_that_leaves) {
    pid_t child = start_child();
    if (child == 0) {
        on_exit(late_handler, NULL);
        bed_open(0, AIO_THREAD);
        aio_exit_install(GRACE_US * 50);
        pthread_detach(bed_thread(leave_at_exit, NULL));
        UNTIL(atomic_load(&left_inside));
        exit(5);
    }
    ended_with(child, 6);
}

/* The thread is inside a call that needs no device. The call is in C, but no gate counts it. */
TEST(exit_with_a_thread_in_c_skips_later_handlers) {
    pid_t child = start_child();
    if (child == 0) {
        on_exit(late_handler, NULL);
        bed_open(0, AIO_THREAD);
        aio_exit_install(GRACE_US);
        bed_thread(stay_outside, NULL);
        UNTIL(atomic_load(&left_inside));
        exit(5);
    }
    ended_with(child, 5);
}

TEST(exit_with_no_thread_inside_runs_later_handlers) {
    pid_t child = start_child();
    if (child == 0) {
        on_exit(late_handler, NULL);
        bed_open(0, AIO_WATCH);
        aio_exit_install(GRACE_US);
        aio_exit_install(GRACE_US);
        exit(5);
    }
    ended_with(child, 6);
}

TEST(exit_with_waits_in_flight_runs_later_handlers) {
    pid_t child = start_child();
    if (child == 0) {
        aio_port *port = aio_port_new();
        on_exit(late_handler, NULL);
        bed_open(0, AIO_WATCH);
        aio_exit_install(GRACE_US * 100);
        aio_stream *stream = bed_stream(0);
        sim.hold(stream->handle);
        aio_result position = aio_fill(stream, 0, bed_malloc(0, 64), 64, 1, 64);
        CHECK_EQ(aio_watch(stream, (uint64_t)position, port, 1), 0);
        exit(5);
    }
    ended_with(child, 6);
}

static void use_everything(aio_stream *stream, aio_event *event, aio_port *port) {
    uint64_t key;
    int64_t result;
    void *memory = NULL;
    aio_frame frame;
    CHECK_EQ(aio_forked(), 1);
    CHECK_EQ(aio_begin(&frame, bed_pass(0), AIO_LIFETIME, AIO_FN_aclrtMalloc), AIO_FORKED);
    CHECK_EQ(aio_enter(bed_pass(0), AIO_WAIT, 0), AIO_FORKED);
    CHECK_EQ(aio_fill(stream, 0, memory, 0, 0, 0), aio_failed(AIO_FORKED));
    CHECK_EQ(aio_watch(stream, 1, port, 1), AIO_FORKED);
    CHECK_EQ(aio_stream_query(stream, 100), AIO_FORKED);
    CHECK_EQ(aio_stream_poll(stream, 100), aio_failed(AIO_FORKED));
    CHECK_EQ(aio_stream_destroy(stream), AIO_FORKED);
    aio_port_kick(port);
    CHECK_EQ(aio_port_take(port, &key, &result, 1), 0);
    CHECK(aio_port_new() == NULL);
    aio_stream_known(stream, 1);
    aio_stream_error(stream, 1, NULL);
    aio_event_drop(event);
    aio_stream_drop(stream);
    aio_port_close(port);
}

/* At the fork the test holds the lock of the device and the lock of the stream. If the child waited for one of
 * these locks, it would hang. */
TEST(a_forked_child_is_refused_and_never_hangs) {
    aio_event *event = NULL;
    bed_open(0, AIO_WATCH);
    aio_exit_install(GRACE_US);
    aio_stream *stream = bed_stream(0);
    aio_port *port = aio_port_new();
    CHECK(aio_record(stream, 0, 0, &event) > 0);
    CHECK_EQ(bed_await(stream, 1), 1);
    aio_lock_take(&aio_devices[0].lock);
    aio_lock_take(&stream->lock);
    pid_t child = start_child();
    if (child == 0) {
        alarm(60);
        use_everything(stream, event, port);
        exit(3);
    }
    aio_lock_give(&stream->lock);
    aio_lock_give(&aio_devices[0].lock);
    ended_with(child, 3);
    CHECK_EQ(aio_forked(), 0);
    aio_result position = aio_record(stream, 0, 0, &event);
    CHECK_EQ(bed_await(stream, (uint64_t)position), position);
    bed_end_stream(stream);
    aio_port_close(port);
    bed_close(0);
}

/* Only the parent runs all other exit handlers and the runtime's destructors. */
TEST(a_forked_child_skips_exit_handlers) {
    pid_t parent = start_child();
    if (parent == 0) {
        on_exit(late_handler, NULL);
        bed_open(0, AIO_THREAD);
        aio_exit_install(GRACE_US);
        pid_t child = start_child();
        if (child == 0) {
            exit(3);
        }
        ended_with(child, 3);
        exit(5);
    }
    ended_with(parent, 6);
}

TEST(a_forked_child_does_not_write_to_the_parents_port) {
    uint64_t key;
    int64_t result;
    bed_open(0, AIO_WATCH);
    aio_exit_install(GRACE_US);
    aio_port *port = aio_port_new();
    aio_token *token;
    CHECK_EQ(aio_token_take(port, 1, &token), 0);
    pid_t child = start_child();
    if (child == 0) {
        aio_token_post(&token, 0);
        aio_port_kick(port);
        exit(0);
    }
    ended_with(child, 0);
    CHECK_EQ(aio_port_take(port, &key, &result, 1), 0);
    aio_token_post(&token, 0);
    CHECK_EQ(bed_take_one(port, &key), 0);
    CHECK_EQ(key, 1);
    aio_port_close(port);
    bed_close(0);
}

static void *leave_a_trace(void *argument) {
    CHECK_EQ(aio_adopt_thread(bed_pass(0)), 0);
    aio_self()->own_reset = true;
    *(aio_thread **)argument = aio_self();
    return NULL;
}

static void *find_no_trace(void *argument) {
    const aio_thread *self = aio_self();
    CHECK(self == *(aio_thread **)argument);
    CHECK_EQ(self->own_device, -1);
    CHECK(!self->own_reset);
    CHECK_EQ(strlen(aio_error_text()), 0);
    return NULL;
}

TEST(a_thread_record_is_reused) {
    aio_thread *record = NULL;
    aio_self();
    bed_open(0, AIO_THREAD);
    bed_join(bed_thread(leave_a_trace, &record));
    bed_join(bed_thread(find_no_trace, &record));
    bed_close(0);
}

RUN_TESTS
