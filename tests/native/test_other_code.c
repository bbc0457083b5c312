/* Resets by other code that the library does not report, and STOP mode that other code has set. */
#include "bed.h"

static uint32_t current_generation(void) {
    return aio_word_generation(aio_gate_word(0));
}

static bool is_found(void) {
    return aio_word_flags(aio_gate_word(0)) & AIO_FOUND;
}

/* As with CANN 8.1, which has no such callback. */
static void have_no_callback(void) {
    CHECK_EQ(aio_acl.aclrtRegDeviceStateCallback("aioacl", NULL, NULL), 0);
    aio_told_of_resets(false);
}

static void forget_violations(void) {
    void (*forget)(void) = (void (*)(void))aio_library_symbol("aclsim_forget");
    forget();
}

static void end_without_callback(aio_stream *stream) {
    aio_gate_met(0);
    bed_reopen(0);
    aio_device_flush(0);
    aio_stream_drop(stream);
    CHECK_EQ(aio_watch_foreign(), 0);
    sim.set_reset_crash(0);
    bed_close_copied();
}

TEST(an_event_is_not_queried_after_a_reset_without_a_callback) {
    aio_stream *stream = bed_open_with_held_copy();
    uint32_t before = current_generation();
    bool done = true;
    aio_stream_mark_now(stream, 1);
    aio_event *mark = aio_stream_mark_for(stream, 1);
    CHECK(mark != NULL);
    have_no_callback();
    sim.set_reset_crash(1);
    CHECK(aio_may_ask(0, before));
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    CHECK(!aio_may_ask(0, before));
    CHECK(is_found());
    CHECK_EQ(current_generation(), before + 1);
    CHECK_EQ(aio_stream_ask_mark(stream, mark, &done), 107002);
    CHECK(!done);
    CHECK_EQ(aio_stream_query(stream, 1), AIO_STALE);
    end_without_callback(stream);
}

TEST(a_dead_handle_is_a_reset_only_if_the_engines_stream_is_dead_too) {
    aio_stream *stream = bed_open_with_held_copy();
    uint32_t before = current_generation();
    aio_note_end(0, before, 107017);
    CHECK(!is_found()); /* the callback would have reported a reset */
    have_no_callback();
    aio_note_end(0, before, 107017);
    aio_note_end(0, before, 107003);
    CHECK(!is_found());
    bed_join(bed_thread(bed_reset_as_other_code, NULL));
    CHECK_EQ(aio_acl.aclrtSetDevice(0), 0);
    aio_note_end(0, before, 107017);
    CHECK(is_found());
    forget_violations(); /* the engine has asked for its dead stream */
    end_without_callback(stream);
}

typedef struct {
    bool context;
    uint64_t mode;
    aclrtContext made;
    aclrtStream stream;
} other_stream;

static void *make_stream(void *argument) {
    other_stream *other = argument;
    CHECK_EQ(aio_acl.aclrtSetDevice(0), 0);
    if (other->context) {
        CHECK_EQ(aio_acl.aclrtCreateContext(&other->made, 0), 0);
    }
    CHECK_EQ(aio_acl.aclrtCreateStream(&other->stream), 0);
    CHECK_EQ(aio_acl.aclrtSetStreamFailureMode(other->stream, other->mode), 0);
    return NULL;
}

static void *end_stream(void *argument) {
    other_stream *other = argument;
    CHECK_EQ(aio_acl.aclrtSetDevice(0), 0);
    if (other->context) {
        CHECK_EQ(aio_acl.aclrtDestroyContext(other->made), 0);
    } else {
        CHECK_EQ(aio_acl.aclrtDestroyStream(other->stream), 0);
    }
    CHECK_EQ(aio_acl.aclrtResetDevice(0), 0);
    CHECK_EQ(aio_acl.aclrtResetDevice(0), 0);
    return NULL;
}

static void stop_mode_is_found(other_stream other, bool wanted) {
    bed_open(0, AIO_WATCH);
    CHECK_EQ(aio_watch_streams(), 0);
    bed_join(bed_thread(make_stream, &other));
    aio_device_read_modes(0);
    CHECK_EQ(aio_device_has_foreign_stop(0, current_generation()), wanted);
    CHECK_EQ(aio_device_has_foreign_stop(0, current_generation() + 1), 0);
    bed_join(bed_thread(end_stream, &other));
    aio_device_read_modes(0);
    CHECK_EQ(aio_device_has_foreign_stop(0, current_generation()),
             wanted); /* the mode belongs to the context */
    bed_close(0);
}

TEST(stop_mode_of_another_threads_stream_is_found) {
    stop_mode_is_found((other_stream){.mode = ACL_STOP_ON_FAILURE}, true);
}

TEST(continue_mode_is_no_stop_mode) {
    stop_mode_is_found((other_stream){.mode = ACL_CONTINUE_ON_FAILURE}, false);
}

TEST(stop_mode_of_another_context_is_not_counted) {
    stop_mode_is_found((other_stream){.context = true, .mode = ACL_STOP_ON_FAILURE}, false);
}

RUN_TESTS
