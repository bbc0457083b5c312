/* The lifecycle in the stress test: aioacl's resets, failed resets, foreign resets, and maintenance between
 * resets. */
#include "stress.h"

#include <poll.h>
#include <unistd.h>

atomic_ulong stress_resets, stress_failed, stress_foreign;

atomic_int stress_foreign_thread;
void *stress_pinned;

static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER;
static aio_port *kicks;
static atomic_bool maintenance_over;

static uint32_t generation(void) {
    return aio_word_generation(aio_gate_word(DEVICE));
}

static void nap_us(uint32_t us) {
    struct timespec nap = {us / 1000000, (us % 1000000) * 1000};
    nanosleep(&nap, NULL);
}

static void set_device(void) {
    aclrtContext context = NULL;
    CHECK_EQ(aio_acl.aclrtSetDevice(DEVICE), 0);
    /* The query fails if a foreign reset has begun. Then the callback of this reset causes another set. */
    if (aio_acl.aclrtGetCurrentContext(&context) == 0) {
        aio_set_context(DEVICE, context);
    }
}

void stress_open(int strategy) {
    bed_load();
    aio_self()->own_reset = true;
    set_device();
    stress_pinned = bed_pinned(BLOCK);
    kicks = aio_port_new();
    CHECK_EQ(aio_device_start(DEVICE, strategy, kicks), 0);
    aio_gate_set(DEVICE, AIO_OPEN, 1);
}

static void drain(uint32_t us) {
    int64_t end = aio_now_us() + us;
    aio_gate_set(DEVICE, AIO_DRAINING, generation());
    while (aio_device_busy(DEVICE) && aio_now_us() < end) {
        nap_us(200);
    }
}

/* Waits until no call is inside. With worker threads and without aborts, blocked waits may stay inside. */
static int barrier(bool waits_may_stay) {
    int kinds = 1 << AIO_ENQUEUE | 1 << AIO_LIFETIME | 1 << AIO_WAIT;
    int32_t outcome[3];
    aio_device_abort(DEVICE, 10000000, outcome);
    aio_watcher_wake(DEVICE);
    if (waits_may_stay) {
        aio_gate_wait(DEVICE, 1 << AIO_WAIT, 50000);
    }
    return aio_gate_wait(DEVICE, kinds | (waits_may_stay ? AIO_BLOCKED_MAY_STAY : 0), 50000000);
}

static void reset_and_reopen(void) {
    aio_device_destroy_events(DEVICE);
    aio_acl.aclrtResetDeviceForce(DEVICE); /* returns 507007 if a foreign reset was earlier */
    set_device();
    aio_gate_set(DEVICE, AIO_OPEN, generation() + 1);
    aio_device_flush(DEVICE);
    atomic_fetch_add(&stress_resets, 1);
}

static void fail(void) {
    aio_gate_set(DEVICE, AIO_QUARANTINED, generation());
    aio_device_flush(DEVICE);
    atomic_fetch_add(&stress_failed, 1);
    nap_us(2000);
    aio_gate_set(DEVICE, AIO_RESETTING, generation());
}

static void reset(stress_progress *progress, uint32_t *seed, bool thread) {
    bool stay = thread && stress_draw(seed, 4) == 0;
    sim.set_abort_supported(!stay);
    stress_now_at(progress, "drain");
    if (stress_draw(seed, 2)) {
        drain(stress_draw(seed, 8000));
    }
    aio_gate_set(DEVICE, AIO_RESETTING, generation());
    stress_now_at(progress, "abort and barrier");
    CHECK(barrier(stay));
    if (stress_draw(seed, 5) == 0) {
        fail();
    }
    stress_now_at(progress, "reset and set");
    reset_and_reopen();
    sim.set_abort_supported(1);
}

static void handle_foreign(void) {
    aio_gate_set(DEVICE, AIO_RESETTING, generation());
    aio_gate_met(DEVICE);
    aio_device_flush(DEVICE);
    set_device();
    aio_gate_set(DEVICE, AIO_OPEN, generation() + 1);
    aio_device_flush(DEVICE);
}

void *stress_manage(void *argument) {
    const int *strategy = argument;
    stress_progress *progress = stress_progress_of("manager");
    uint32_t seed = 17;
    aio_self()->own_reset = true;
    while (!atomic_load(&stress_over) || aio_device_waits(DEVICE)) {
        stress_now_at(progress, "resting");
        nap_us(stress_draw(&seed, 3) ? stress_draw(&seed, 40000) : 130000);
        pthread_mutex_lock(&lifecycle);
        if (aio_gate_foreign(DEVICE)) {
            handle_foreign();
        } else {
            reset(progress, &seed, *strategy == AIO_THREAD);
        }
        pthread_mutex_unlock(&lifecycle);
    }
    stress_now_at(progress, "done");
    atomic_store(&maintenance_over, true);
    aio_port_kick(kicks);
    return NULL;
}

void *stress_reset_as_foreign(void *unused) {
    stress_progress *progress = stress_progress_of("foreign resets");
    uint32_t seed = 5;
    (void)unused;
    atomic_store(&stress_foreign_thread, gettid());
    while (!atomic_load(&stress_over)) {
        stress_now_at(progress, "resting");
        nap_us(stress_draw(&seed, 300000));
        stress_now_at(progress, "resetting");
        if (aio_acl.aclrtResetDeviceForce(DEVICE) == 0) {
            atomic_fetch_add(&stress_foreign, 1);
        }
    }
    stress_now_at(progress, "done");
    return NULL;
}

static void serve(int reasons) {
    bed_serve(DEVICE, reasons);
    if (!(reasons & AIO_KICK_FOREIGN)) {
        return;
    }
    aio_self()->own_reset = true;
    pthread_mutex_lock(&lifecycle);
    if (aio_gate_foreign(DEVICE)) {
        handle_foreign();
    }
    pthread_mutex_unlock(&lifecycle);
    aio_self()->own_reset = false;
}

static void take_kicks(void) {
    struct pollfd readable = {aio_port_fd(kicks), POLLIN, 0};
    uint64_t keys[16];
    int64_t results[16];
    poll(&readable, 1, 5);
    while (aio_port_take(kicks, keys, results, 16)) {
        continue;
    }
}

void *stress_maintain(void *unused) {
    stress_progress *progress = stress_progress_of("maintenance");
    uint32_t seed = 3;
    (void)unused;
    while (!atomic_load(&maintenance_over)) {
        stress_now_at(progress, "waiting");
        take_kicks();
        stress_now_at(progress, "serving");
        serve(aio_device_kicks(DEVICE));
        stress_now_at(progress, "destroying streams");
        stress_destroy_unused();
        if (stress_draw(&seed, 8) == 0) {
            sim.release_all();
        }
        for (int large = 0; large < 2; large++) {
            if (aio_stage_free_slots(DEVICE, large ? 1 << 20 : 1) < 2) {
                aio_stage_grow(DEVICE, large);
            }
        }
    }
    stress_now_at(progress, "done");
    return NULL;
}

void stress_close(void) {
    aio_self()->own_reset = true;
    if (aio_gate_foreign(DEVICE)) {
        handle_foreign();
    }
    sim.release_all();
    stress_clear_slots();
    CHECK_EQ(aio_gate_wait(DEVICE, 0xf, 10000000), 1);
    aio_gate_set(DEVICE, AIO_RESETTING, generation());
    aio_device_flush(DEVICE);
    CHECK_EQ(aio_gate_wait(DEVICE, 0xf, 10000000), 1);
    aio_device_destroy_events(DEVICE);
    CHECK_EQ(aio_acl.aclrtResetDevice(DEVICE), 0);
    aio_device_stop(DEVICE);
    aio_gate_set(DEVICE, AIO_CLOSED, generation() + 1);
    aio_device_flush(DEVICE);
    stress_destroy_all_unused();
    aio_stage_close(DEVICE);
    CHECK_EQ(aio_acl.aclrtFreeHost(stress_pinned), 0);
    CHECK_EQ(aio_device_waits(DEVICE), 0);
    CHECK_EQ(aio_gate_word(DEVICE) & 0xfffffffffull, 0);
    uint64_t key;
    int64_t result;
    while (aio_port_take(kicks, &key, &result, 1)) {
        continue;
    }
    CHECK_EQ(bed_in_flight(kicks), 0);
    UNTIL(aio_threads() == 0);
}
