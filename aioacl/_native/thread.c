/* Time, spin locks, futexes, threads, and the record of what each thread does in C. */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

enum { SPARE_RECORDS = 16 };

static _Atomic(aio_thread *) threads;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
atomic_llong aio_thread_count;

int64_t aio_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t aio_now_us(void) {
    return aio_now_ns() / 1000;
}

void aio_pause(unsigned turn) {
    if (turn >= 64) {
        sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A forked child does not wait for the lock. The child has only one thread, so it needs no lock, and no thread
 * would release a lock that was held at the fork. */
void aio_lock_take(aio_lock *lock) {
    for (unsigned turn = 0; atomic_flag_test_and_set_explicit(&lock->taken, memory_order_acquire); turn++) {
        if (atomic_load_explicit(&aio_in_child, memory_order_relaxed)) {
            return;
        }
        aio_pause(turn);
    }
}

void aio_futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t timeout_us) {
    struct timespec limit = {timeout_us / 1000000, (timeout_us % 1000000) * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout_us < 0 ? NULL : &limit, NULL, 0);
}

void aio_futex_wake(_Atomic uint32_t *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void give_record_back(void *record) {
    aio_thread *thread = record;
    thread->own_device = -1;
    thread->own_reset = false;
    thread->control = -1;
    atomic_store(&thread->device, -1);
    atomic_store_explicit(&thread->taken, false, memory_order_release);
}

static void make_key(void) {
    if (pthread_key_create(&key, give_record_back)) {
        abort();
    }
}

static aio_thread *reuse(void) {
    for (aio_thread *thread = atomic_load(&threads); thread; thread = thread->next) {
        bool taken = false;
        if (atomic_compare_exchange_strong(&thread->taken, &taken, true)) {
            return thread;
        }
    }
    return NULL;
}

/* Every call needs the record of its thread, and most calls cannot report that there is no memory for it. So
 * some threads have a record that needs no memory. */
static aio_thread *spare_record(void) {
    static aio_thread spares[SPARE_RECORDS];
    static atomic_int taken;
    int next = atomic_fetch_add(&taken, 1);
    if (next >= SPARE_RECORDS) {
        abort();
    }
    return &spares[next];
}

static aio_thread *add_record(void) {
    aio_thread *thread = calloc(1, sizeof *thread);
    if (!thread) {
        thread = spare_record();
    }
    atomic_init(&thread->taken, true);
    atomic_init(&thread->device, -1);
    thread->own_device = thread->control = -1;
    thread->next = atomic_load(&threads);
    while (!atomic_compare_exchange_weak(&threads, &thread->next, thread)) {
        continue;
    }
    return thread;
}

aio_thread *aio_self(void) {
    static _Thread_local aio_thread *self;
    if (self) {
        return self;
    }
    pthread_once(&once, make_key);
    self = reuse();
    if (!self) {
        self = add_record();
    }
    atomic_store_explicit(&self->id, (int32_t)syscall(SYS_gettid), memory_order_relaxed);
    self->text[0] = 0;
    pthread_setspecific(key, self);
    return self;
}

/* Reads what the thread does. False if it is not inside, or if one call has followed another during the reads.
 * Otherwise the function of a short call could be listed with the time of a long one. */
static bool read_call(const aio_thread *thread, int device, aio_call *call) {
    call->since_us = atomic_load_explicit(&thread->since_us, memory_order_acquire);
    if (atomic_load_explicit(&thread->device, memory_order_acquire) != device) {
        return false;
    }
    call->function = atomic_load_explicit(&thread->function, memory_order_acquire);
    call->thread = atomic_load_explicit(&thread->id, memory_order_acquire);
    return atomic_load_explicit(&thread->device, memory_order_acquire) == device &&
           atomic_load_explicit(&thread->since_us, memory_order_relaxed) == call->since_us;
}

int aio_gate_inside(int device, aio_call *calls, int size) {
    int64_t now = aio_now_us();
    int found = 0;
    for (const aio_thread *thread = atomic_load(&threads); thread && found < size; thread = thread->next) {
        if (read_call(thread, device, &calls[found])) {
            calls[found].inside_us = now - calls[found].since_us;
            found++;
        }
    }
    return found;
}

struct start {
    void *(*body)(void *);
    void *argument;
    const char *name;
};

static void *begin(void *raw) {
    struct start start = *(struct start *)raw;
    free(raw);
    prctl(PR_SET_NAME, start.name);
    prctl(PR_SET_TIMERSLACK, 1000ul);
    start.body(start.argument);
    atomic_fetch_sub(&aio_thread_count, 1);
    return NULL;
}

static int create(struct start *start) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, AIO_STACK_BYTES);
    int error = pthread_create(&thread, &attributes, begin, start);
    pthread_attr_destroy(&attributes);
    return error;
}

int aio_spawn(const char *name, void *(*body)(void *), void *argument) {
    struct start *start = malloc(sizeof *start);
    sigset_t all, before;
    if (!start) {
        return ENOMEM;
    }
    *start = (struct start){body, argument, name};
    sigfillset(&all);
    atomic_fetch_add(&aio_thread_count, 1);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = create(start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        atomic_fetch_sub(&aio_thread_count, 1);
        free(start);
    }
    return error;
}

int64_t aio_threads(void) {
    return atomic_load(&aio_thread_count);
}

void aio_atomic_max(_Atomic uint64_t *value, uint64_t position) {
    uint64_t seen = atomic_load(value);
    while (seen < position && !atomic_compare_exchange_weak(value, &seen, position)) {
        continue;
    }
}
