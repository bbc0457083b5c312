/* Creates and destroys the streams that the workers of the stress test share. */
#include "stress.h"

static struct {
    pthread_mutex_t lock;
    stress_stream *entry;
} slots[SLOTS];

static pthread_mutex_t unused_lock = PTHREAD_MUTEX_INITIALIZER;
static stress_stream *unused_streams;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void prepare(void) {
    for (int i = 0; i < SLOTS; i++) {
        pthread_mutex_init(&slots[i].lock, NULL);
    }
}

stress_stream *stress_get(uint32_t slot) {
    pthread_once(&once, prepare);
    pthread_mutex_lock(&slots[slot].lock);
    stress_stream *entry = slots[slot].entry;
    if (entry) {
        atomic_fetch_add(&entry->references, 1);
    }
    pthread_mutex_unlock(&slots[slot].lock);
    return entry;
}

void stress_put(stress_stream *entry) {
    if (!entry || atomic_fetch_sub(&entry->references, 1) != 1) {
        return;
    }
    pthread_mutex_lock(&unused_lock);
    entry->next = unused_streams;
    unused_streams = entry;
    pthread_mutex_unlock(&unused_lock);
}

static void exchange(uint32_t slot, stress_stream *entry) {
    pthread_once(&once, prepare);
    pthread_mutex_lock(&slots[slot].lock);
    stress_stream *before = slots[slot].entry;
    slots[slot].entry = entry;
    pthread_mutex_unlock(&slots[slot].lock);
    stress_put(before);
}

static stress_stream *make(uint32_t slot) {
    aclrtStream native = NULL;
    aio_frame frame;
    aio_pass pass = bed_pass(DEVICE);
    if (aio_begin(&frame, pass, AIO_LIFETIME, AIO_FN_aclrtCreateStream)) {
        return NULL;
    }
    int code = aio_acl.aclrtCreateStream(&native);
    aio_end(&frame, code);
    if (code) {
        return NULL;
    }
    stress_stream *entry = calloc(1, sizeof *entry);
    CHECK(entry != NULL);
    entry->stream = aio_stream_new(pass, native);
    entry->healthy = slot % 2 == 0;
    atomic_init(&entry->references, 1);
    return entry;
}

void stress_renew(uint32_t slot) {
    stress_stream *entry = make(slot);
    if (entry) {
        exchange(slot, entry);
    }
}

/* Returns false if the stream cannot be destroyed yet: it has work, another thread uses it, or the gate refuses
 * the call. */
static bool destroy_if_unused(stress_stream *entry) {
    int code = aio_stream_destroy(entry->stream);
    bool later = code == AIO_PENDING || code == AIO_RESETTING_NOW || code == AIO_QUARANTINE;
    if (later && entry->stream->generation == aio_word_generation(aio_gate_word(DEVICE))) {
        return false;
    }
    aio_stream_drop(entry->stream);
    free(entry);
    return true;
}

void stress_destroy_unused(void) {
    pthread_mutex_lock(&unused_lock);
    stress_stream *entry = unused_streams;
    unused_streams = NULL;
    pthread_mutex_unlock(&unused_lock);
    while (entry) {
        stress_stream *next = entry->next;
        atomic_store(&entry->references, 1);
        if (!destroy_if_unused(entry)) {
            stress_put(entry);
        }
        entry = next;
    }
}

static bool all_destroyed(void) {
    pthread_mutex_lock(&unused_lock);
    bool empty = unused_streams == NULL;
    pthread_mutex_unlock(&unused_lock);
    return empty;
}

void stress_clear_slots(void) {
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        exchange(slot, NULL);
    }
}

void stress_destroy_all_unused(void) {
    stress_clear_slots();
    while (!all_destroyed()) {
        stress_destroy_unused();
    }
}
