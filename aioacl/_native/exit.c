/*
 * The end of the process.
 *
 * If a thread is inside C while the runtime's destructors run, the process crashes. The exit handler is
 * installed right after the library was opened, so it runs before the destructors. The handler shuts every
 * gate, wakes the engine's threads and waits until no thread is inside. If a thread stays inside, the handler
 * ends the process at once, with the same status.
 *
 * In a forked child the runtime's threads do not exist, and the runtime's destructor would wait for them. So
 * the handler ends the child at once. A child whose parent had only opened the library is no such child: the
 * runtime starts with the first call.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

static _Atomic int64_t grace;

static bool any_call_inside(void) {
    if (atomic_load(&aio_outside)) {
        return true;
    }
    for (int device = 0; device < AIO_DEVICES; device++) {
        if (aio_gate_word(device) & AIO_COUNTS) {
            return true;
        }
    }
    return false;
}

static bool wait_until_empty(void) {
    int64_t end = aio_now_us() + atomic_load(&grace);
    struct timespec nap = {0, 500000};
    while (any_call_inside()) {
        if (aio_now_us() >= end) {
            return false;
        }
        nanosleep(&nap, NULL);
    }
    return true;
}

static void at_exit(int status, void *unused) {
    (void)unused;
    if (atomic_load(&aio_in_child)) {
        _exit(status);
    }
    atomic_store(&aio_exiting, true);
    for (int device = 0; device < AIO_DEVICES; device++) {
        aio_watcher_wake(device);
    }
    if (!wait_until_empty()) {
        _exit(status);
    }
}

static void in_child(void) {
    atomic_store(&aio_in_child, true);
}

void aio_watch_forks(void) {
    static atomic_bool watched;
    if (!atomic_exchange(&watched, true)) {
        pthread_atfork(NULL, NULL, in_child);
    }
}

void aio_exit_install(int64_t grace_us) {
    static atomic_bool installed;
    atomic_store(&grace, grace_us);
    aio_watch_forks();
    if (!atomic_exchange(&installed, true)) {
        on_exit(at_exit, NULL);
    }
}

int aio_forked(void) {
    return atomic_load(&aio_in_child);
}
