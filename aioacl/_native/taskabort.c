/*
 * An abort of all tasks of a device by other code: aclrtDeviceTaskAbort, which torch.npu.stop_device calls. It
 * drops the work of all contexts.
 *
 * Queries report dropped work as complete. So the runtime's callback notes the unfinished work as dropped
 * before the abort. During the abort the runtime refuses new entries, but a call that has begun earlier may
 * still add one. So the work that is unfinished after the abort counts as dropped too.
 */
#include "internal.h"

static void drop(aio_stream *stream) {
    uint64_t finished = atomic_load(&stream->finished);
    atomic_fetch_add(&stream->aborts, 1);
    aio_stream_dropped(stream, finished, atomic_load(&stream->tail));
    atomic_fetch_add(&stream->aborts_ended, 1);
}

/* The runtime may have accepted work that is not counted yet: in a launch block, or by a call in progress. So
 * the abort is counted for each stream, also if its counted work is done. */
static void drop_all(int device) {
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (stream->generation == generation) {
            drop(stream);
        }
    }
}

static int32_t on_abort(int32_t device, aclrtDeviceTaskAbortStage stage, uint32_t timeout, void *unused) {
    (void)timeout;
    (void)unused;
    if (device < 0 || device >= AIO_DEVICES || atomic_load(&aio_in_child)) {
        return 0;
    }
    if (stage == ACL_RT_DEVICE_TASK_ABORT_PRE) {
        atomic_fetch_add(&aio_devices[device].task_aborts, 1);
    }
    drop_all(device);
    aio_watcher_wake(device);
    return 0;
}

int aio_watch_task_aborts(void) {
    if (!aio_present[AIO_FN_aclrtSetDeviceTaskAbortCallback]) {
        return AIO_ABSENT;
    }
    return aio_acl.aclrtSetDeviceTaskAbortCallback("aioacl", on_abort, NULL);
}

uint32_t aio_device_task_aborts(int device) {
    return atomic_load(&aio_devices[device].task_aborts);
}
