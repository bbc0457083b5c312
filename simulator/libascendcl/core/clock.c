/*
 * The simulator's clock. By default it is the monotonic clock. Time-outs, latencies and due times follow the
 * simulator's clock. A virtual clock moves when it is advanced. Polling and the least time of a wait for an
 * event use real time.
 *
 * Without a limit, a wait with a time-out would never end if no call advances a virtual clock. So when such a
 * wait has lasted `patience_ns` of real time, the clock jumps to the earliest time at which a wait is due.
 */
#include <errno.h>
#include <time.h>

#include "sim.h"

static const int64_t second_ns = 1000000000;
static const int64_t patience_ns = 10 * 1000000000LL;
static const int64_t latest_ns = INT64_MAX / 4; /* low enough that adding other times does not overflow */

static atomic_bool is_virtual;
static _Atomic(int64_t) virtual_ns;
static _Atomic(int64_t) ahead_ns; /* how far the virtual time has put the clock ahead of the monotonic clock */

/* A thread that waits until a time. Protected by sim.lock. */
typedef struct sleeper {
    struct sleeper *next;
    struct sleeper *prev;
    pthread_cond_t *cond;
    int64_t deadline_ns;
} sleeper_t;

static sleeper_t *sleepers;

int64_t real_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * second_ns + now.tv_nsec;
}

int64_t now_ns(void) {
    if (atomic_load_explicit(&is_virtual, memory_order_relaxed)) {
        return atomic_load_explicit(&virtual_ns, memory_order_relaxed);
    }
    return real_ns() + atomic_load_explicit(&ahead_ns, memory_order_relaxed);
}

static void wake_sleepers(void) {
    for (sleeper_t *sleeper = sleepers; sleeper != NULL; sleeper = sleeper->next) {
        pthread_cond_broadcast(sleeper->cond);
    }
}

static void set_time(int64_t ns) {
    atomic_store(&virtual_ns, ns);
    wake_sleepers();
}

static void sleeper_add(sleeper_t *sleeper) {
    sleeper->prev = NULL;
    sleeper->next = sleepers;
    if (sleepers != NULL) {
        sleepers->prev = sleeper;
    }
    sleepers = sleeper;
}

static void sleeper_remove(sleeper_t *sleeper) {
    if (sleeper->prev != NULL) {
        sleeper->prev->next = sleeper->next;
    } else {
        sleepers = sleeper->next;
    }
    if (sleeper->next != NULL) {
        sleeper->next->prev = sleeper->prev;
    }
}

int64_t clock_first_due(void) {
    int64_t found = SIM_FOREVER;
    for (const sleeper_t *sleeper = sleepers; sleeper != NULL; sleeper = sleeper->next) {
        found = sleeper->deadline_ns < found ? sleeper->deadline_ns : found;
    }
    return found;
}

static bool wait_real(pthread_cond_t *cond, int64_t until_ns) {
    struct timespec until = {.tv_sec = until_ns / second_ns, .tv_nsec = until_ns % second_ns};
    return pthread_cond_timedwait(cond, &sim.lock, &until) != ETIMEDOUT;
}

void clock_wait(pthread_cond_t *cond, int64_t deadline_ns) {
    sleeper_t sleeper = {.cond = cond, .deadline_ns = deadline_ns};
    bool still = atomic_load(&is_virtual);
    if (deadline_ns == SIM_FOREVER) {
        pthread_cond_wait(cond, &sim.lock);
        return;
    }
    if (now_ns() >= deadline_ns) {
        return;
    }
    sleeper_add(&sleeper);
    bool woken = wait_real(cond, still ? real_ns() + patience_ns : deadline_ns - atomic_load(&ahead_ns));
    if (!woken && still && atomic_load(&is_virtual) && clock_first_due() > now_ns()) {
        set_time(clock_first_due());
    }
    sleeper_remove(&sleeper);
}

void clock_wait_polling(pthread_cond_t *cond, int64_t deadline_ns, int64_t poll_ns) {
    sleeper_t sleeper = {.cond = cond, .deadline_ns = deadline_ns};
    if (poll_ns == SIM_FOREVER) {
        clock_wait(cond, deadline_ns);
        return;
    }
    bool timed = deadline_ns != SIM_FOREVER && !atomic_load(&is_virtual);
    int64_t due_ns = timed ? deadline_ns - atomic_load(&ahead_ns) : SIM_FOREVER;
    if (now_ns() < deadline_ns && real_ns() < poll_ns) {
        sleeper_add(&sleeper);
        wait_real(cond, due_ns < poll_ns ? due_ns : poll_ns);
        sleeper_remove(&sleeper);
    }
}

bool clock_is_virtual(void) {
    return atomic_load_explicit(&is_virtual, memory_order_relaxed);
}

/* The clock keeps its current time when it becomes virtual and when it stops being virtual. */
void clock_set_virtual(bool on) {
    int64_t now = now_ns();
    atomic_store(&virtual_ns, now);
    atomic_store(&ahead_ns, now - real_ns());
    atomic_store(&is_virtual, on);
    wake_sleepers();
}

API void aclsim_clock_virtual(int on) {
    sim_start();
    SIM_GUARD();
    clock_set_virtual(on != 0);
}

API int aclsim_clock_advance(int64_t ns) {
    sim_start();
    SIM_GUARD();
    bool good = clock_is_virtual() && ns >= 0 && ns <= latest_ns - now_ns();
    if (good) {
        set_time(now_ns() + ns);
    }
    return good ? 0 : -1;
}

API int64_t aclsim_clock_now(void) {
    sim_start();
    return now_ns();
}
