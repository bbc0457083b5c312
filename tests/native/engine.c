/* The start and the end of the storm. See storm.h. */
#include "storm.h"

#include <unistd.h>

enum { SEATS = 16, TOO_LONG_S = 60 };

atomic_bool storm_over;
static storm_seat seats[SEATS];
static atomic_int seated;
static atomic_bool watchdog_off;

storm_seat *storm_sit(const char *name) {
    storm_seat *seat = &seats[atomic_fetch_add(&seated, 1)];
    seat->name = name;
    storm_at(seat, "beginning");
    return seat;
}

void storm_at(storm_seat *seat, const char *doing) {
    atomic_store(&seat->doing, doing);
    atomic_fetch_add(&seat->steps, 1);
}

uint32_t storm_draw(uint32_t *seed, uint32_t below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static void print_inside(void) {
    int32_t functions[16], threads[16];
    int64_t times[16];
    int count = aio_gate_inside(DEVICE, functions, threads, times, 16);
    for (int i = 0; i < count; i++) {
        fprintf(stderr, "  inside: %s, thread %d, %lld us\n", aio_table_name(functions[i]), threads[i],
                (long long)times[i]);
    }
    fprintf(stderr, "  gate %016llx, waits %lld\n", (unsigned long long)aio_gate_word(DEVICE),
            (long long)aio_device_waits(DEVICE));
}

_Noreturn static void give_up(const char *name) {
    fprintf(stderr, "%s made no progress for %d s\n", name, TOO_LONG_S);
    for (int i = 0; i < atomic_load(&seated); i++) {
        fprintf(stderr, "  %s: %s\n", seats[i].name, atomic_load(&seats[i].doing));
    }
    print_inside();
    abort();
}

static void *watch_over(void *unused) {
    unsigned long seen[SEATS] = {0};
    int still[SEATS] = {0};
    (void)unused;
    while (!atomic_load(&watchdog_off)) {
        sleep(1);
        for (int i = 0; i < atomic_load(&seated); i++) {
            unsigned long steps = atomic_load(&seats[i].steps);
            still[i] = steps == seen[i] && strcmp(atomic_load(&seats[i].doing), "done") ? still[i] + 1 : 0;
            seen[i] = steps;
            if (still[i] > TOO_LONG_S) {
                give_up(seats[i].name);
            }
        }
    }
    return NULL;
}

/* Violations are expected only of the thread that makes foreign resets: its resets begin while calls of the
 * engine are inside. The engine must have left before the tear-down; otherwise the use of a dead handle is
 * another violation. */
static void no_violations(void) {
    char text[512], expected[64];
    snprintf(expected, sizeof expected, "aclrtResetDeviceForce: thread %d resets",
             atomic_load(&storm_foreigner));
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
    storm_open(strategy);
    int descriptors = bed_descriptors();
    pthread_t watchdog = bed_thread(watch_over, NULL);
    pthread_t manager = bed_thread(storm_manage, &strategy), maintenance = bed_thread(storm_maintain, NULL);
    pthread_t foreign = bed_thread(storm_be_foreign, NULL);
    for (uintptr_t i = 0; i < WORKERS; i++) {
        workers[i] = bed_thread(storm_work, (void *)i);
    }
    usleep((useconds_t)(seconds * 1e6));
    atomic_store(&storm_over, true);
    for (int i = 0; i < WORKERS; i++) {
        bed_join(workers[i]);
    }
    bed_join(foreign);
    bed_join(manager);
    bed_join(maintenance);
    storm_close();
    CHECK_EQ(bed_descriptors(), descriptors);
    no_violations();
    atomic_store(&watchdog_off, true);
    bed_join(watchdog);
    bed_see_threads_off();
    printf("%lu waits, %lu bytes checked, %lu abandoned, %lu resets, %lu failed, %lu foreign\n",
           atomic_load(&storm_waits), atomic_load(&storm_bytes), atomic_load(&storm_abandoned),
           atomic_load(&storm_resets), atomic_load(&storm_failed), atomic_load(&storm_foreign));
    return 0;
}
