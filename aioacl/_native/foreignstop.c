/*
 * STOP mode that other code has set on a stream of the context that aioacl uses. A failed task then stops the
 * whole context.
 *
 * The runtime reports each stream of the process when it is created, before other code can set a mode. So the
 * callback only keeps the handles, and the maintenance thread reads their modes. The callback holds the lock
 * for a few instructions, and no thread holds it during an ACL call.
 */
#include <stdlib.h>

#include "internal.h"

typedef struct seen_stream {
    struct seen_stream *next;
    aclrtStream handle;
    void *context;
} seen_stream;

static aio_lock lock;
static seen_stream *seen;
static atomic_int count;

/* Whether this thread makes a stream for aioacl. A control thread makes only streams of aioacl, and the default
 * streams of contexts. A job of a device is inside too, but in another function. */
static bool is_ours(void) {
    const aio_thread *thread = aio_self();
    if (thread->control >= 0) {
        return true;
    }
    int function = atomic_load(&thread->function);
    return atomic_load(&thread->device) >= 0 &&
           (function == AIO_FN_aclrtCreateStream || function == AIO_FN_aclrtCreateStreamWithConfig);
}

/* Whether the new stream is the default stream of the first context of a device. The context is not current
 * yet. If the thread has no other context, aclrtGetCurrentContext would leave an error text, which a thread
 * without a context cannot clear. */
static bool is_of_new_device(void) {
    bool sets = aio_self()->sets;
    aio_self()->sets = false;
    return sets;
}

/* A new stream belongs to the current context of the thread that makes it. */
static void add(aclrtStream handle) {
    seen_stream *made = calloc(1, sizeof *made);
    if (!made || aio_acl.aclrtGetCurrentContext(&made->context) != 0) {
        free(made);
        return;
    }
    made->handle = handle;
    aio_lock_take(&lock);
    made->next = seen;
    seen = made;
    aio_lock_give(&lock);
    atomic_fetch_add(&count, 1);
    for (int device = 0; device < AIO_DEVICES; device++) {
        if (atomic_load(&aio_devices[device].context) == made->context) {
            aio_device_look_for_stop(device);
        }
    }
}

static void forget(aclrtStream handle) {
    aio_lock_take(&lock);
    seen_stream **link = &seen;
    while (*link && (*link)->handle != handle) {
        link = &(*link)->next;
    }
    seen_stream *found = *link;
    if (found) {
        *link = found->next;
    }
    aio_lock_give(&lock);
    if (found) {
        atomic_fetch_sub(&count, 1);
        free(found);
    }
}

static void on_stream(aclrtStream handle, aclrtStreamState state, void *unused) {
    (void)unused;
    if (atomic_load(&aio_in_child)) {
        return;
    }
    if (state == ACL_RT_STREAM_STATE_DESTROY_PRE) {
        forget(handle);
        aio_borrowed_ends(handle);
    } else if (state == ACL_RT_STREAM_STATE_CREATE_POST && !is_of_new_device() && !is_ours()) {
        add(handle);
    }
}

int aio_watch_streams(void) {
    if (!aio_present[AIO_FN_aclrtRegStreamStateCallback] || !aio_present[AIO_FN_aclrtGetStreamAttribute]) {
        return AIO_ABSENT;
    }
    int code = aio_acl.aclrtRegStreamStateCallback("aioacl", on_stream, NULL);
    aio_told_of_streams(code == 0);
    return code;
}

bool aio_stream_is_elsewhere(const void *handle, const void *context) {
    bool elsewhere = false;
    aio_lock_take(&lock);
    for (const seen_stream *stream = seen; stream; stream = stream->next) {
        elsewhere = elsewhere || (stream->handle == handle && stream->context != context);
    }
    aio_lock_give(&lock);
    return elsewhere;
}

/* Copies the handles of the context. Returns their number. */
static int copy_handles(const void *context, aclrtStream *handles, int room) {
    int copied = 0;
    aio_lock_take(&lock);
    for (const seen_stream *stream = seen; stream && copied < room; stream = stream->next) {
        if (stream->context == context) {
            handles[copied++] = stream->handle;
        }
    }
    aio_lock_give(&lock);
    return copied;
}

/* If other code has destroyed the stream meanwhile, the runtime refuses the handle. */
static bool has_stop_mode(aclrtStream handle) {
    aclrtStreamAttrValue value = {0};
    int code = aio_acl.aclrtGetStreamAttribute(handle, ACL_STREAM_ATTR_FAILURE_MODE, &value);
    return code == 0 && value.failureMode == ACL_STOP_ON_FAILURE;
}

void aio_device_read_modes(int device) {
    struct aio_device *self = &aio_devices[device];
    uint32_t generation = aio_word_generation(aio_gate_word(device));
    int room = atomic_load(&count) + 16;
    aclrtStream *handles = calloc((size_t)room, sizeof *handles);
    aio_frame frame;
    if (handles && aio_begin(&frame, aio_make_pass(device, generation, 0), AIO_LIFETIME,
                             AIO_FN_aclrtGetStreamAttribute) == 0) {
        int copied = copy_handles(atomic_load(&self->context), handles, room);
        bool stop = false;
        for (int i = 0; i < copied && !stop; i++) {
            stop = has_stop_mode(handles[i]);
        }
        if (stop) {
            atomic_store(&self->foreign_stop, generation);
        }
        aio_end(&frame, 0);
    }
    free(handles);
}

void aio_device_look_for_stop(int device) {
    if (atomic_load(&count)) {
        aio_device_kick(device, AIO_KICK_MODES);
    }
}

int aio_device_has_foreign_stop(int device, uint32_t generation) {
    return generation && atomic_load(&aio_devices[device].foreign_stop) == generation;
}
