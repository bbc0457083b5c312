/*
 * Waking the runtime's thread that handles failures.
 */
#include "internal.h"

/*
 * After a failure a queue stops until the runtime's own thread handles the failure. Queries of streams do not
 * wake that thread. But a query of an event of aclrtCreateEventWithFlag wakes that thread, if the event was
 * recorded right before. The event is recorded on a stream of the engine, so the user's streams get no
 * additional task. One wake-up handles the failures of all streams of the device. If the recording fails, the
 * maintenance thread wakes the runtime's thread by a synchronize, because a synchronize may take a second.
 */
void aio_device_nudge(int device) {
    struct aio_device *self = &aio_devices[device];
    aclrtEventStatus ignored;
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    if (atomic_load(&self->equipped) != generation) {
        aio_device_kick(device, AIO_KICK_NUDGE);
        return;
    }
    int before = aio_calling(AIO_FN_aclrtRecordEvent);
    int code = aio_acl.aclrtRecordEvent(self->nudge_event, self->nudge_stream);
    aio_note_end(device, generation, code);
    aio_calling(AIO_FN_aclrtQueryEvent);
    if (code == 0 && aio_may_ask(device, generation)) {
        aio_acl.aclrtQueryEvent(self->nudge_event, &ignored);
    }
    aio_calling(before);
    if (code) {
        atomic_store(&self->nudge_failed, true);
        aio_device_kick(device, AIO_KICK_NUDGE);
    }
}

void aio_device_rouse(int device) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    aio_frame frame;
    if (aio_begin(&frame, aio_make_pass(device, generation, 0), AIO_WAIT, AIO_FN_aclrtRecordEvent) == 0) {
        aio_device_nudge(device);
        aio_end(&frame, 0);
    }
}

/* The stream is idle, so destroying it does not wait. */
void aio_device_unequip(int device, uint32_t generation, aio_context_state context) {
    struct aio_device *self = &aio_devices[device];
    unsigned expected = generation;
    if (!generation || !atomic_compare_exchange_strong(&self->equipped, &expected, 0)) {
        return;
    }
    if (context != AIO_PERHAPS_ENDED) {
        aio_acl.aclrtDestroyEvent(self->nudge_event);
    }
    if (context == AIO_ALIVE) {
        aio_acl.aclrtDestroyStreamForce(self->nudge_stream);
    }
}
