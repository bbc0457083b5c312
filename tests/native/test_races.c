/*
 * Failures during other work: enqueues and waits on several threads, another library that synchronizes the
 * device, and streams that end while their failures are reported.
 *
 * AIOACL_ROUNDS is the number of rounds of each race.
 */
#include "links.h"

#include <limits.h>

enum { ROUNDS = 3000, WORKERS = 3, SHARED = 4, BATCH = 6 };

static atomic_bool over;

static int rounds(void) {
    const char *wanted = getenv("AIOACL_ROUNDS");
    return wanted ? atoi(wanted) : ROUNDS;
}

static uint32_t draw(uint32_t *seed, uint32_t below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

/* The history of a shared stream. The history is kept after the stream was dropped. */
typedef struct history {
    struct history *next;
    _Atomic uint64_t bad;  /* the first entry that was made to fail, or 0 */
    atomic_bool will_fail; /* an entry is made to fail; set before the enqueue, when its position is unknown */
} history;

/* The lock orders the enqueues, so a thread knows whether its entry follows a failing task. */
typedef struct {
    pthread_mutex_t lock;
    aio_stream *stream;
    history *known; /* the histories of all its streams, newest first */
} shared_stream;

static shared_stream shared[SHARED];
static bool exact;

/* A position to wait for, and whether the wait must fail. */
typedef struct {
    aio_stream *on;
    uint64_t position;
    bool fails;
    const history *source;
} expected;

/* Replaces the stream. Other threads may still have references to the old aio_stream. The native stream is
 * destroyed when its work is done. */
static void renew(shared_stream *one) {
    aio_stream *gone = one->stream;
    history *known = calloc(1, sizeof *known);
    CHECK(known != NULL);
    known->next = one->known;
    one->known = known;
    one->stream = bed_stream(0);
    if (gone) {
        bed_end_stream(gone);
    }
}

static void open_shared(void) {
    for (int i = 0; i < SHARED; i++) {
        pthread_mutex_init(&shared[i].lock, NULL);
        renew(&shared[i]);
    }
}

static void close_shared(void) {
    for (int i = 0; i < SHARED; i++) {
        bed_end_stream(shared[i].stream);
        while (shared[i].known) {
            history *next = shared[i].known->next;
            free(shared[i].known);
            shared[i].known = next;
        }
    }
}

static expected expect(const shared_stream *one, uint64_t position) {
    uint64_t bad = atomic_load(&one->known->bad);
    aio_stream_hold(one->stream);
    return (expected){one->stream, position, bad && position >= bad, one->known};
}

/* Without reports, the engine finds that a task of the stream has failed, but not which task. */
static bool may_fail(const expected *one) {
    return one->fails || (!exact && atomic_load(&one->source->will_fail));
}

static bool enqueue_locked(shared_stream *one, uint32_t *seed, expected *made) {
    bool fail = draw(seed, 10) == 0;
    if (fail) {
        atomic_store(&one->known->will_fail, true);
        CHECK_EQ(sim.fail_next(one->stream->handle, FAULT), 0);
    }
    aio_result position = aio_fill(one->stream, 0, bed_memory, BED_BYTES, 1, BED_BYTES);
    if (position == aio_failed(AIO_STREAM_FAILED)) {
        CHECK(atomic_load(&one->known->bad) != 0);
        renew(one);
        return false;
    }
    CHECK(position > 0);
    if (fail && !atomic_load(&one->known->bad)) {
        atomic_store(&one->known->bad, (uint64_t)position);
    }
    *made = expect(one, (uint64_t)position);
    return true;
}

static bool enqueue(shared_stream *one, uint32_t *seed, expected *made) {
    pthread_mutex_lock(&one->lock);
    bool done = enqueue_locked(one, seed, made);
    pthread_mutex_unlock(&one->lock);
    return done;
}

/* Enqueues work on a new stream, after a wait for an event of a shared stream. */
static bool depend(shared_stream *one, expected *made) {
    aio_event *event = NULL;
    pthread_mutex_lock(&one->lock);
    aio_stream *source = one->stream;
    aio_result at = aio_record(source, 0, 0, &event);
    expected of_source = at > 0 ? expect(one, (uint64_t)at) : (expected){0};
    pthread_mutex_unlock(&one->lock);
    if (at <= 0) {
        return false;
    }
    aio_stream *own = bed_stream(0);
    aio_result waited = aio_wait_event(own, 0, event, source, (uint64_t)at);
    bool refused = waited == aio_failed(AIO_EVENT_FAILED);
    CHECK(waited > 0 || (refused && may_fail(&of_source)));
    if (!refused) {
        *made = (expected){own, (uint64_t)waited, of_source.fails, of_source.source};
    }
    aio_stream_hold(own);
    if (refused) {
        bed_end_stream(own);
    }
    aio_event_drop(event);
    aio_stream_unhold(source);
    if (refused) {
        aio_stream_unhold(own);
    }
    return !refused;
}

static void check(const expected *one) {
    aio_result result = bed_await(one->on, one->position);
    CHECK(result == (aio_result)one->position || result == aio_failed(FAULT) ||
          result == aio_failed(AIO_STALE));
    if (one->fails) {
        CHECK_EQ(result, aio_failed(FAULT));
    } else if (!may_fail(one)) {
        CHECK_EQ(result, one->position);
    }
}

/* If the stream was made by `depend`, only this thread uses it, so this thread destroys it. */
static void release_stream(const expected *one, bool dependent) {
    if (dependent) {
        bed_end_stream(one->on);
    }
    aio_stream_unhold(one->on);
}

static void *work_on_shared(void *number) {
    uint32_t seed = 100 + (uint32_t)(uintptr_t)number;
    for (int round = 0; round < rounds() / WORKERS; round++) {
        expected waits[BATCH];
        bool made[BATCH], dependent[BATCH];
        for (int i = 0; i < BATCH; i++) {
            shared_stream *one = &shared[draw(&seed, SHARED)];
            dependent[i] = draw(&seed, 3) == 0;
            made[i] = dependent[i] ? depend(one, &waits[i]) : enqueue(one, &seed, &waits[i]);
        }
        for (int i = BATCH; i--;) {
            if (made[i]) {
                check(&waits[i]);
                release_stream(&waits[i], dependent[i]);
            }
        }
    }
    return NULL;
}

static void *serve_kicks(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        bed_serve(0, aio_device_kicks(0));
        bed_yield();
    }
    return NULL;
}

static void race(int strategy, int reports) {
    pthread_t workers[WORKERS];
    bed_reports = reports;
    bed_open_to_copy(strategy);
    exact = aio_failure_detection() != AIO_CONFIRMED;
    CHECK_EQ(exact, reports != 0);
    open_shared();
    pthread_t server = bed_thread(serve_kicks, NULL);
    for (uintptr_t i = 0; i < WORKERS; i++) {
        workers[i] = bed_thread(work_on_shared, (void *)i);
    }
    for (int i = 0; i < WORKERS; i++) {
        bed_join(workers[i]);
    }
    atomic_store(&over, true);
    bed_join(server);
    close_shared();
    bed_close_copied();
}

TEST(failures_race_with_enqueues_in_the_watcher) {
    race(AIO_WATCH, AIO_EXACT_ACL | AIO_EXACT_RUNTIME);
}

TEST(failures_race_with_enqueues_in_workers) {
    race(AIO_THREAD, AIO_EXACT_RUNTIME);
}

TEST(failures_without_reports_race_with_enqueues_in_the_watcher) {
    race(AIO_WATCH, AIO_CONFIRMED);
}

TEST(failures_without_reports_race_with_enqueues_in_workers) {
    race(AIO_THREAD, AIO_CONFIRMED);
}

static void *synchronize_the_device(void *unused) {
    (void)unused;
    CHECK_EQ(aio_acl.aclrtSetDevice(0), 0);
    while (!atomic_load(&over)) {
        int code = aio_acl.aclrtSynchronizeDevice();
        CHECK(code == 0 || code == FAULT);
    }
    CHECK_EQ(aio_acl.aclrtResetDevice(0), 0);
    return NULL;
}

/* The other library may take the error codes before the waits query the streams. */
static void fail_one(void) {
    aio_stream *one = bed_stream(0), *dependent = bed_stream(0);
    sim.hold(one->handle);
    uint64_t good = work(one), bad = failing_work(one), last = work(one);
    uint64_t waited = wait_for(dependent, one);
    sim.release(one->handle);
    UNTIL(sim.pending(one->handle) == 0);
    fails(one, last);
    succeeds(one, good);
    failed_at(one, last, one, bad);
    fails(dependent, waited);
    bed_end_stream(dependent);
    bed_end_stream(one);
}

TEST(a_synchronize_by_another_library_hides_no_failure) {
    begin(AIO_WATCH);
    pthread_t library = bed_thread(synchronize_the_device, NULL);
    for (int round = 0; round < rounds() / 10; round++) {
        fail_one();
    }
    atomic_store(&over, true);
    bed_join(library);
    bed_close_copied();
}

/* Visits all streams repeatedly, with a reference to the current stream. Another thread drops the last other
 * reference during a visit. */
static void *walk_over_streams(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        aio_failures_resolve();
        aio_device_unfinished(0); /* calls no ACL function, because ACL calls would keep the runtime busy */
        aio_pause(UINT_MAX);
    }
    return NULL;
}

/* The failure may be reported at any time. After the report, the engine refuses the record or the wait. */
static void depend_on_failing(aio_stream *dependent, aio_stream *one) {
    point behind = {one, NULL, 0};
    aio_result at = aio_record(one, 0, 0, &behind.event);
    if (at <= 0) {
        CHECK_EQ(at, aio_failed(AIO_STREAM_FAILED));
        return;
    }
    behind.at = (uint64_t)at;
    aio_result waited = try_to_wait(dependent, &behind);
    CHECK(waited > 0 || waited == aio_failed(AIO_EVENT_FAILED));
    drop(&behind);
}

TEST(streams_end_while_their_failures_are_attributed) {
    begin(AIO_WATCH);
    pthread_t walker = bed_thread(walk_over_streams, NULL);
    for (int round = 0; round < rounds(); round++) {
        aio_stream *one = bed_stream(0), *dependent = bed_stream(0);
        failing_work(one);
        depend_on_failing(dependent, one);
        UNTIL(sim.faulted(one->handle) == 1 || sim.pending(one->handle) == 0);
        CHECK_EQ(sim.wake(0), 0);
        bed_end_stream(one);
        bed_end_stream(dependent);
    }
    atomic_store(&over, true);
    bed_join(walker);
    bed_serve(0, AIO_KICK_FAULT);
    bed_close_copied();
}

/* The test drops its references to the streams before the runtime reports their failures. A reset then removes
 * the streams from the device's list. */
TEST(streams_are_dropped_before_their_failures_are_reported) {
    begin(AIO_WATCH);
    for (int round = 0; round < rounds() / 100; round++) {
        for (int i = 0; i < 8; i++) {
            aio_stream *one = bed_stream(0), *dependent = bed_stream(0);
            failing_work(one);
            depend_on_failing(dependent, one);
            aio_stream_drop(dependent);
            aio_stream_drop(one);
        }
        CHECK_EQ(sim.wake(0), 0);
        CHECK(bed_reset(0));
        bed_memory = bed_malloc(0, BED_BYTES);
        CHECK_EQ(aio_device_ask_streams(0), 0);
    }
    bed_serve(0, AIO_KICK_FAULT);
    bed_close_copied();
}

RUN_TESTS
