/*
 * Wakes a thread of Python when a call enters the gate of an idle device.
 *
 * The thread looks for calls that stay inside for too long. It must not wake up while the device is idle, and a
 * call must not pay for it. So only the first call after the device was idle writes to the thread's eventfd.
 * Any other call reads one word.
 */
#include <sys/eventfd.h>

#include "internal.h"

void aio_entered(struct aio_device *device) {
    int eventfd = atomic_exchange(&device->notified, 0) - 1;
    if (eventfd >= 0) {
        eventfd_write(eventfd, 1);
    }
}

/* A call first counts itself and then reads `notified`. This thread first sets `notified` and then reads the
 * counts. So either the call sees the eventfd, or this thread sees the count. */
int aio_gate_notify(int device, int eventfd) {
    struct aio_device *self = &aio_devices[device % AIO_DEVICES];
    atomic_store(&self->notified, eventfd + 1);
    bool inside = (atomic_load(&self->word) & AIO_COUNTS) || atomic_load(&aio_outside);
    if (inside) {
        atomic_store(&self->notified, 0);
    }
    return inside;
}
