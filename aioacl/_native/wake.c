/*
 * Waking threads: the watcher, and the threads that wait for a port.
 */
#include <limits.h>
#include <unistd.h>

#include "internal.h"

void aio_watcher_stir(int device) {
    if (atomic_exchange(&aio_devices[device].asleep, 0)) {
        aio_futex_wake(&aio_devices[device].asleep, INT_MAX);
    }
}

void aio_watcher_wake(int device) {
    atomic_store(&aio_devices[device].look_at_all, true);
    aio_watcher_stir(device);
}

void aio_port_ring(aio_port *port) {
    uint64_t one = 1;
    if (port->fd < 0) {
        atomic_fetch_add(&port->word, 1);
        if (atomic_exchange(&port->asleep, false)) {
            aio_futex_wake(&port->word, 1);
        }
        return;
    }
    /* If the counter is full, the write fails, but the descriptor is readable anyway. */
    if (write(port->fd, &one, sizeof one) < 0) {
        return;
    }
}

/* A thread first raises the word, and then reads `asleep`. This thread first sets `asleep`, and then reads the
 * word. */
void aio_port_sleep(aio_port *port, uint32_t seen, int64_t limit_us) {
    atomic_store(&port->asleep, true);
    if (atomic_load(&port->word) == seen) {
        aio_futex_wait(&port->word, seen, limit_us);
    }
    atomic_store(&port->asleep, false);
}

void aio_port_kick(aio_port *port) {
    if (port && !atomic_load(&aio_in_child)) { /* the parent uses the same descriptor */
        aio_port_ring(port);
    }
}

void aio_device_kick(int device, int reason) {
    aio_port *port = atomic_load(&aio_devices[device].kick);
    int before = atomic_fetch_or(&aio_devices[device].kicks, reason);
    if (port && (before & reason) != reason) {
        aio_port_kick(port);
    }
}
