/* The main function of the stress test, and its watchdog. See stress.h. */
#include "stress.h"

#include <unistd.h>

enum { PROGRESSES = 16, TOO_LONG_S = 60 };

atomic_bool stress_over;
static stress_progress progresses[PROGRESSES];
static atomic_int progress_count;
static atomic_bool watchdog_off;

stress_progress *stress_progress_of(const char *name) {
    stress_progress *progress = &progresses[atomic_fetch_add(&progress_count, 1)];
    progress->name = name;
    stress_now_at(progress, "beginning");
    return progress;
}

void stress_now_at(stress_progress *progress, const char *doing) {
    atomic_store(&progress->doing, doing);
    atomic_fetch_add(&progress->steps, 1);
}

uint32_t stress_draw(uint32_t *seed, uint32_t below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static void print_inside(void) {
    aio_call calls[16];
    int count = aio_gate_inside(DEVICE, calls, 16);
    for (int i = 0; i < count; i++) {
        fprintf(stderr, "  inside: %s, thread %d, %lld us\n", aio_table_name(calls[i].function),
                calls[i].thread, (long long)calls[i].inside_us);
    }
    fprintf(stderr, "  gate %016llx, waits %lld\n", (unsigned long long)aio_gate_word(DEVICE),
            (long long)aio_device_waits(DEVICE));
}

_Noreturn static void give_up(const char *name) {
    fprintf(stderr, "%s made no progress for %d s\n", name, TOO_LONG_S);
    for (int i = 0; i < atomic_load(&progress_count); i++) {
        fprintf(stderr, "  %s: %s\n", progresses[i].name, atomic_load(&progresses[i].doing));
    }
    print_inside();
    abort();
}

static void *watch_over(void *unused) {
    unsigned long seen[PROGRESSES] = {0};
    int still[PROGRESSES] = {0};
    (void)unused;
    while (!atomic_load(&watchdog_off)) {
        sleep(1);
        for (int i = 0; i < atomic_load(&progress_count); i++) {
            unsigned long steps = atomic_load(&progresses[i].steps);
            still[i] = steps == seen[i] && strcmp(atomic_load(&progresses[i].doing), "done") ? still[i] + 1 : 0;
            seen[i] = steps;
            if (still[i] > TOO_LONG_S) {
                give_up(progresses[i].name);
            }
        }
    }
    return NULL;
}

/* The thread that makes foreign resets may cause one kind of violation, because its resets begin while calls of
 * the engine are inside. These calls must leave before the tear-down. If a call stayed inside, it would use a
 * dead handle, which is another kind of violation. */
static void no_violations(void) {
    char text[512], expected[64];
    snprintf(expected, sizeof expected, "aclrtResetDeviceForce: thread %d resets",
             atomic_load(&stress_foreign_thread));
    aclsim_stats_t stats;
    sim.stats(&stats);
    for (uint64_t i = 0; i < stats.violations; i++) {
        if (sim.violation(i, text, sizeof text) >= 0 && strncmp(text, expected, strlen(expected)) != 0) {
            bed_fail("violation", (int)i, text);
        }
    }
}

int main(int argc, char **argv) {
    pthread_t workers[WORKERS];
    int strategy = argc > 1 && strcmp(argv[1], "thread") == 0 ? AIO_THREAD : AIO_WATCH;
    double seconds = argc > 2 ? atof(argv[2]) : 10;
    stress_open(strategy);
    int descriptors = bed_descriptors();
    pthread_t watchdog = bed_thread(watch_over, NULL);
    pthread_t manager = bed_thread(stress_manage, &strategy), maintenance = bed_thread(stress_maintain, NULL);
    pthread_t foreign = bed_thread(stress_reset_as_foreign, NULL);
    for (uintptr_t i = 0; i < WORKERS; i++) {
        workers[i] = bed_thread(stress_work, (void *)i);
    }
    usleep((useconds_t)(seconds * 1e6));
    atomic_store(&stress_over, true);
    for (int i = 0; i < WORKERS; i++) {
        bed_join(workers[i]);
    }
    bed_join(foreign);
    bed_join(manager);
    bed_join(maintenance);
    stress_close();
    CHECK_EQ(bed_descriptors(), descriptors);
    no_violations();
    atomic_store(&watchdog_off, true);
    bed_join(watchdog);
    bed_wait_for_threads();
    printf("%lu waits, %lu bytes checked, %lu abandoned, %lu resets, %lu failed, %lu foreign\n",
           atomic_load(&stress_waits), atomic_load(&stress_bytes), atomic_load(&stress_abandoned),
           atomic_load(&stress_resets), atomic_load(&stress_failed), atomic_load(&stress_foreign));
    return 0;
}
