/*
 * Objects that an ACL call uses must outlive the call, even if other threads close objects and reset devices
 * during the call. These tests cover native events and streams. Python holds the references to buffers;
 * tests/unit/handles/test_in_flight.py tests this.
 *
 * AIOACL_ROUNDS is the number of rounds of each race.
 */
#include "waits.h"

enum { ROUNDS = 3000, RACERS = 2, SLOTS = 8 };

static atomic_bool over;

static int rounds(void) {
    const char *wanted = getenv("AIOACL_ROUNDS");
    return wanted ? atoi(wanted) : ROUNDS;
}

static aio_event *record(void) {
    aio_event *event = NULL;
    aio_result result = aio_record(stream, 0, 0, &event);
    CHECK(result > 0);
    return event;
}

static void *block_in_wait(void *event) {
    aclrtEvent handle = aio_event_enter(event);
    CHECK(handle != NULL);
    CHECK_EQ(aio_acl.aclrtSynchronizeEvent(handle), 0);
    aio_event_leave(event);
    return NULL;
}

static int blocked_waiters_of(const aio_event *event) {
    aio_lock_take(&aio_devices[0].lock);
    int count = event->blocked_waiters;
    aio_lock_give(&aio_devices[0].lock);
    return count;
}

TEST(an_event_with_a_blocked_waiter_is_not_destroyed_before_a_reset) {
    begin(AIO_WATCH);
    sim.hold(stream->handle);
    aio_event *event = record();
    pthread_t blocked_waiter = bed_thread(block_in_wait, event);
    UNTIL(blocked_waiters_of(event) == 1);
    bed_seize(0);
    int destroyed = aio_device_destroy_events(0);
    CHECK(destroyed >= 31);
    CHECK_EQ(event->handle != NULL, 1);
    sim.release(stream->handle);
    bed_join(blocked_waiter);
    CHECK_EQ(aio_device_destroy_events(0), 1); /* as in the second attempt after a failed reset */
    CHECK_EQ(aio_event_enter(event) == NULL, 1);
    aio_event_drop(event);
    bed_reset_and_reopen(0);
    end_stale();
}

TEST(a_worker_leaves_an_unabortable_wait_before_its_event_is_destroyed) {
    begin(AIO_THREAD);
    sim.set_abort_supported(false);
    sim.hold(stream->handle);
    uint64_t position = copy();
    copy();
    watch(position, 1);
    UNTIL(atomic_load(&aio_devices[0].blocked) == 1);
    bed_seize(0);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_ENQUEUE | 1 << AIO_WAIT | AIO_BLOCKED_MAY_STAY, 1000000), 1);
    uint64_t calls = sim.calls("aclrtDestroyEvent");
    CHECK(aio_device_destroy_events(0) > 0);
    CHECK_EQ(atomic_load(&aio_devices[0].blocked), 0); /* the slice of the wait has ended */
    aio_event *mark = aio_stream_mark_for(stream, position);
    CHECK(mark != NULL);
    CHECK(mark->handle == NULL);
    aio_event_drop(mark);
    CHECK(sim.calls("aclrtDestroyEvent") > calls);
    sim.release(stream->handle);
    bed_reset_and_reopen(0);
    CHECK_EQ(bed_take_one(port, &key), aio_failed(AIO_WAS_RESET));
    sim.set_abort_supported(true);
    end_stale();
}

static _Atomic(aio_event *) shared[SLOTS];

/* Removes the reference from the slot, so that each reference is dropped only once. */
static void *wait_for_shared(void *unused) {
    (void)unused;
    for (unsigned slot = 0; !atomic_load(&over); slot++) {
        aio_event *event = atomic_exchange(&shared[slot % SLOTS], NULL);
        if (!event) {
            continue;
        }
        aclrtEvent handle = aio_event_enter(event);
        if (handle) {
            CHECK_EQ(aio_acl.aclrtSynchronizeEvent(handle), 0);
            aio_event_leave(event);
        }
        aio_event_drop(event);
    }
    return NULL;
}

static void share(aio_event *event, int slot) {
    aio_event *before = atomic_exchange(&shared[slot % SLOTS], event);
    if (before) {
        aio_event_drop(before);
    }
}

/* Every eighth round destroys all events, as a reset does. */
TEST(waits_for_events_race_with_the_destruction_before_a_reset) {
    pthread_t racers[RACERS];
    bed_open(0, AIO_WATCH);
    for (int i = 0; i < RACERS; i++) {
        racers[i] = bed_thread(wait_for_shared, NULL);
    }
    for (int round = 0; round < rounds(); round++) {
        uint32_t generation = aio_word_generation(aio_gate_word(0));
        aio_event *event = NULL;
        CHECK_EQ(aio_event_take(0, generation, false, &event), 0);
        share(event, round);
        if (round % SLOTS == SLOTS - 1) {
            aio_device_destroy_events_of(0, generation);
            aio_gate_set(0, AIO_OPEN, generation % 1000 + 1);
        }
    }
    atomic_store(&over, true);
    for (int i = 0; i < RACERS; i++) {
        bed_join(racers[i]);
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        share(NULL, slot);
    }
    bed_close(0);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static aio_stream *current;

static aio_stream *get(void) {
    pthread_mutex_lock(&lock);
    aio_stream *found = current;
    aio_stream_hold(found);
    pthread_mutex_unlock(&lock);
    return found;
}

static aio_stream *exchange(aio_stream *next) {
    pthread_mutex_lock(&lock);
    aio_stream *before = current;
    current = next;
    pthread_mutex_unlock(&lock);
    return before;
}

static void *record_and_wait(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        aio_event *event = NULL;
        aio_stream *one = get(), *other = get();
        aio_result at = aio_record(one, 0, 0, &event);
        if (at > 0) {
            aio_wait_event(other, 0, event, one, (uint64_t)at);
            aio_event_drop(event);
        }
        aio_stream_unhold(one);
        aio_stream_unhold(other);
    }
    return NULL;
}

TEST(enqueues_race_with_the_end_of_their_stream) {
    pthread_t racers[RACERS];
    bed_open(0, AIO_WATCH);
    exchange(bed_stream(0));
    for (int i = 0; i < RACERS; i++) {
        racers[i] = bed_thread(record_and_wait, NULL);
    }
    for (int round = 0; round < rounds(); round++) {
        bed_end_stream(exchange(bed_stream(0)));
    }
    atomic_store(&over, true);
    for (int i = 0; i < RACERS; i++) {
        bed_join(racers[i]);
    }
    bed_end_stream(current);
    bed_close(0);
}

RUN_TESTS
