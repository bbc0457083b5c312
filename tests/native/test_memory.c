/*
 * Host memory, threads or descriptors run out. Each test repeats its steps: at first the first allocation
 * fails, then the second, and so on, until the steps make fewer allocations. A step reports that memory has run
 * out, or it succeeds. No wait may be lost, work that failed or was dropped may not succeed, and nothing may
 * leak.
 *
 * The linker redirects the calls of the engine and of this program to the functions `__wrap_`.
 */
#include <errno.h>

#include "links.h"

static atomic_int countdown; /* of the allocations until one fails; 0: none fails */
static atomic_bool has_failed;

static bool fails_now(void) {
    int before = atomic_load(&countdown);
    while (before && !atomic_compare_exchange_weak(&countdown, &before, before - 1)) {
        continue;
    }
    if (before == 1) {
        atomic_store(&has_failed, true);
    }
    return before == 1;
}

#define WRAP(type, name, failed, parameters, ...)                                                              \
    type __real_##name parameters;                                                                             \
    type __wrap_##name parameters;                                                                             \
    type __wrap_##name parameters {                                                                            \
        return fails_now() ? (errno = ENOMEM, failed) : __real_##name(__VA_ARGS__);                            \
    }

WRAP(void *, malloc, NULL, (size_t size), size)
WRAP(void *, calloc, NULL, (size_t count, size_t size), count, size)
WRAP(void *, realloc, NULL, (void *old, size_t size), old, size)
WRAP(char *, strdup, NULL, (const char *text), text)
WRAP(int, eventfd, -1, (unsigned count, int flags), count, flags)
WRAP(int, pthread_create, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument), thread,
     attributes, body, argument)

static bool is_shortage(int64_t code) {
    return code == AIO_NO_MEMORY || code == AIO_NO_THREAD;
}

/* Whether the step succeeded. Otherwise memory has run out. */
static bool went(aio_result result) {
    CHECK(result >= 0 || is_shortage(aio_code(result)));
    return result >= 0;
}

static bool started(int code) {
    CHECK(code == 0 || is_shortage(code));
    return code == 0;
}

static int nth;

/* From now on, allocations are counted. */
static void fail(void) {
    atomic_store(&countdown, nth);
}

/* From now on, no allocation fails. Returns whether one has failed in these steps. */
static bool enough(void) {
    atomic_store(&countdown, 0);
    return atomic_load(&has_failed);
}

static void sweep(void (*steps)(void)) {
    do {
        nth++;
        atomic_store(&has_failed, false);
        steps();
    } while (enough());
    CHECK(nth > 1); /* else no allocation was redirected */
}

static aio_port *port;
static aio_stream *stream;

/* Begins a wait, and returns its result. If the wait cannot begin, lets it begin when there is memory again. */
static aio_result await(aio_stream *on, uint64_t position) {
    uint64_t key;
    if (!started(aio_watch(on, position, port, 1))) {
        enough();
        CHECK_EQ(aio_watch(on, position, port, 1), 0);
    }
    aio_result result = bed_take_one(port, &key);
    UNTIL(bed_in_flight(port) == 0);
    return result;
}

static void begin_with(int strategy) {
    bed_open_to_copy(strategy);
    port = aio_port_new();
}

static void end(void) {
    aio_port_close(port);
    bed_close_copied();
}

static void open_port(void) {
    fail();
    aio_port *made = aio_port_new();
    if (!made) {
        return;
    }
    aio_token *token = NULL;
    if (started(aio_token_take(made, 1, &token))) {
        uint64_t key = 0;
        aio_token_post(&token, 0); /* this cannot fail */
        bed_take_one(made, &key);
        CHECK_EQ(key, 1);
    }
    aio_port_close(made);
}

TEST(a_port_or_its_wait_is_refused) {
    sweep(open_port);
}

static void start_device(void) {
    fail();
    if (started(aio_device_start(0, AIO_WATCH, NULL))) {
        aio_device_stop(0);
    }
    bed_wait_for_threads();
}

TEST(a_device_without_its_watcher_is_refused) {
    sweep(start_device);
}

static void *use_engine(void *unused) {
    (void)unused;
    fail();
    CHECK_EQ(strlen(aio_error_text()), 0);
    CHECK(enough());
    return NULL;
}

/* A call of the engine cannot report this shortage, because every call of a thread needs the thread's record.
 */
TEST(a_thread_gets_its_record_without_memory) {
    CHECK_EQ(strlen(aio_error_text()), 0); /* the record of this thread */
    nth = 1;
    bed_join(bed_thread(use_engine, NULL));
}

static void find_libraries(void) {
    char before[65536], now[65536];
    int expected = aio_library_present(before, sizeof before);
    CHECK(expected > 0);
    fail();
    int found = aio_library_present(now, sizeof now);
    CHECK(found == -1 || found == expected);
}

TEST(loaded_libraries_are_found_or_refused) {
    bed_open(0, AIO_WATCH);
    sweep(find_libraries);
    bed_close(0);
}

static void copy_and_wait(void) {
    aio_result first = bed_ticket(stream);
    fail();
    aio_result second = bed_ticket(stream);
    CHECK(first > 0 && second > 0);
    went(await(stream, (uint64_t)first));
    went(await(stream, (uint64_t)second));
}

static void waits_end(int strategy) {
    begin_with(strategy);
    stream = bed_stream(0);
    sweep(copy_and_wait);
    bed_end_stream(stream);
    end();
}

TEST(the_watcher_loses_no_wait) {
    waits_end(AIO_WATCH);
}

TEST(the_workers_lose_no_wait) {
    waits_end(AIO_THREAD);
}

static void make_stream(void) {
    aclrtStream native = NULL;
    CHECK_EQ(aio_acl.aclrtCreateStream(&native), 0);
    fail();
    stream = aio_stream_new(bed_pass(0), native);
    if (!stream) {
        CHECK_EQ(aio_acl.aclrtDestroyStream(native), 0);
        return;
    }
    copy_and_wait();
    enough();
    bed_end_stream(stream);
}

TEST(a_stream_is_made_or_refused) {
    begin_with(AIO_WATCH);
    sweep(make_stream);
    end();
}

static void release_and_make_again(void) {
    aio_stream *released = bed_stream(0);
    int kept = 0;
    fail();
    CHECK_EQ(aio_stream_release(released, &kept), 0);
    CHECK(kept);
    stream = aio_stream_again(released);
    enough();
    if (!stream) {
        stream = aio_stream_again(released);
    }
    aio_stream_drop(released);
    copy_and_wait();
    enough();
    bed_end_stream(stream);
}

TEST(a_released_stream_is_used_again) {
    begin_with(AIO_WATCH);
    sweep(release_and_make_again);
    end();
}

static void move_bytes(void) {
    char source[BED_BYTES], target[BED_BYTES] = {0};
    memset(source, 7, BED_BYTES);
    fail();
    aio_result up = aio_upload(stream, 0, bed_memory, BED_BYTES, source, BED_BYTES);
    aio_result down = aio_download(stream, 0, target, bed_memory, BED_BYTES);
    if (went(up) && went(down) && went(await(stream, (uint64_t)down))) {
        CHECK_EQ(target[BED_BYTES - 1], 7);
    }
    enough();
    aio_result again =
        aio_download(stream, 0, target, bed_memory, BED_BYTES); /* `target` outlives its copies */
    CHECK_EQ(await(stream, (uint64_t)again), again);
}

TEST(staged_copies_are_made_or_refused) {
    begin_with(AIO_WATCH);
    int slots = aio_stage_free_slots(0, 1);
    stream = bed_stream(0);
    sweep(move_bytes);
    CHECK_EQ(aio_stage_free_slots(0, 1), slots);
    bed_end_stream(stream);
    end();
}

enum { EVENTS = 16 };
static aio_event *recorded[EVENTS]; /* kept, so that the pool has no event with timing */

static void record_and_wait(void) {
    aio_event *event = NULL;
    aio_stream *other = bed_stream(0);
    fail();
    aio_result at = aio_record(stream, 0, 1, &event);
    if (went(at)) {
        aio_result waiting = aio_wait_event(other, 0, event, stream, (uint64_t)at);
        if (went(waiting)) {
            went(await(other, (uint64_t)waiting));
        }
    }
    enough();
    bed_end_stream(other);
    recorded[nth - 1] = event;
    CHECK(nth < EVENTS);
}

TEST(events_are_recorded_or_refused) {
    begin_with(AIO_WATCH);
    stream = bed_stream(0);
    sweep(record_and_wait);
    for (int i = 0; i < nth; i++) {
        if (recorded[i]) {
            aio_event_drop(recorded[i]);
        }
    }
    bed_end_stream(stream);
    end();
}

static void execute(void) {
    stream = bed_stream(0);
    fail();
    CHECK(aio_execute(stream, 0, 12345, NULL, NULL) < 0); /* there is no such model */
    copy_and_wait();
    enough();
    bed_end_stream(stream);
}

TEST(an_execution_is_refused) {
    begin_with(AIO_WATCH);
    sweep(execute);
    end();
}

static void must_fail(aio_stream *on, uint64_t position, int32_t code) {
    aio_result result = await(on, position);
    CHECK(result < 0 && (aio_code(result) == code || is_shortage(aio_code(result))));
    CHECK(aio_stream_error(on, position, NULL) != 0); /* later awaits raise it too */
}

/* A chain of streams that depend on a task that fails. */
static void fail_a_task(void) {
    aio_stream *chain[3];
    uint64_t at[3];
    for (int i = 0; i < 3; i++) {
        chain[i] = bed_stream(0);
    }
    sim.hold(chain[0]->handle);
    at[0] = failing_work(chain[0]);
    for (int i = 1; i < 3; i++) {
        wait_for(chain[i], chain[i - 1]);
        at[i] = work(chain[i]);
    }
    fail();
    sim.release(chain[0]->handle);
    for (int i = 2; i >= 0; i--) {
        must_fail(chain[i], at[i], FAULT);
    }
    enough();
    bed_serve(0, AIO_KICK_FAULT);
    for (int i = 0; i < 3; i++) {
        bed_end_stream(chain[i]);
    }
}

static void tasks_fail(int reports, int strategy) {
    bed_reports = reports;
    begin_with(strategy);
    sweep(fail_a_task);
    end();
}

TEST(a_reported_failure_is_not_lost) {
    tasks_fail(AIO_EXACT_ACL | AIO_EXACT_RUNTIME, AIO_WATCH);
}

TEST(a_failure_that_the_watcher_synchronizes_is_not_lost) {
    tasks_fail(AIO_CONFIRMED, AIO_WATCH);
}

TEST(a_failure_that_a_worker_synchronizes_is_not_lost) {
    tasks_fail(AIO_CONFIRMED, AIO_THREAD);
}

static void abort_two_stretches(void) {
    uint64_t dropped[2];
    stream = bed_stream(0);
    fail();
    for (int i = 0; i < 2; i++) {
        aio_result kept = bed_ticket(stream);
        CHECK(kept > 0);
        UNTIL(sim.pending(stream->handle) == 0);
        sim.hold(stream->handle);
        dropped[i] = ticket(stream);
        CHECK_EQ(aio_stream_abort(stream), 0);
        sim.release(stream->handle);
    }
    for (int i = 0; i < 2; i++) {
        must_fail(stream, dropped[i], RT_STREAM_ABORT);
    }
    aio_result after = bed_ticket(stream);
    went(await(stream, (uint64_t)after));
    enough();
    bed_end_stream(stream);
}

TEST(dropped_work_never_succeeds) {
    begin_with(AIO_WATCH);
    sweep(abort_two_stretches);
    end();
}

static void reset(void) {
    int32_t outcome[3];
    uint64_t key;
    stream = bed_stream(0);
    sim.hold(stream->handle);
    CHECK_EQ(aio_watch(stream, ticket(stream), port, 1), 0);
    bed_seize(0);
    fail();
    aio_device_abort(0, 5000000, outcome);
    CHECK_EQ(outcome[0] + outcome[1] + outcome[2], 1);
    enough();
    CHECK(bed_abort_and_wait(0));
    bed_reset_and_reopen(0);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    aio_stream_drop(stream);
    bed_memory = bed_malloc(0, BED_BYTES);
}

TEST(a_reset_counts_the_streams_that_it_could_not_abort) {
    begin_with(AIO_WATCH);
    sweep(reset);
    end();
}

RUN_TESTS
