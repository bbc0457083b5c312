/* The workers of the stress test. */
#include "stress.h"

#include <poll.h>

atomic_ulong stress_waits, stress_bytes, stress_abandoned;

/* One wait in flight, and the data that is checked when it ends. */
typedef struct {
    uint64_t key; /* 0: free */
    stress_stream *on;
    aio_event *event;
    uint64_t upload, download; /* positions of a round trip, or 0 */
    unsigned char pattern;
    unsigned char target[BLOCK];
} wait_entry;

typedef struct {
    stress_progress *progress;
    uint32_t seed;
    uint64_t keys;
    aio_port *port;
    wait_entry entries[IN_FLIGHT];
    void *memory; /* one block for each entry, and one more; all belong to `generation` */
    uint32_t generation;
    aio_error error;
} worker;

static uint32_t draw(worker *self, uint32_t below) {
    return stress_draw(&self->seed, below);
}

static bool have_memory(worker *self) {
    aio_pass pass = bed_pass(DEVICE);
    aio_frame frame;
    if (self->memory && self->generation == aio_pass_generation(pass)) {
        return true;
    }
    self->memory = NULL; /* a reset has freed the memory */
    self->generation = aio_pass_generation(pass);
    if (aio_begin(&frame, pass, AIO_LIFETIME, AIO_FN_aclrtMalloc)) {
        return false;
    }
    int code = aio_acl.aclrtMalloc(&self->memory, (size_t)(IN_FLIGHT + 1) * BLOCK, ACL_MEM_MALLOC_HUGE_FIRST);
    aio_end(&frame, code);
    if (code) {
        self->memory = NULL;
    }
    return code == 0;
}

static char *block_of(worker *self, const wait_entry *one) {
    return (char *)self->memory + (one - self->entries) * BLOCK;
}

static wait_entry *free_entry(worker *self) {
    for (int i = 0; i < IN_FLIGHT; i++) {
        if (!self->entries[i].key) {
            return &self->entries[i];
        }
    }
    return NULL;
}

static void clear(wait_entry *one) {
    if (one->event) {
        aio_event_drop(one->event);
    }
    stress_put(one->on);
    one->event = NULL;
    one->on = NULL;
    one->upload = one->download = one->key = 0;
}

static void start_wait(worker *self, wait_entry *one, stress_stream *on, uint64_t position) {
    one->key = ++self->keys << 8 | (uint64_t)(one - self->entries);
    one->on = on;
    int code = aio_watch(on->stream, position, self->port, one->key);
    if (code) {
        clear(one);
    }
}

/* If a wait succeeds, both copies are done, even if faults are injected. But an abort between the copies may
 * have dropped the first copy. */
static void check_bytes(const wait_entry *one, int64_t result) {
    if (!one->download || result < 0 || aio_stream_error(one->on->stream, one->upload, NULL)) {
        return;
    }
    for (int i = 0; i < BLOCK; i++) {
        CHECK_EQ(one->target[i], one->pattern);
    }
    atomic_fetch_add(&stress_bytes, BLOCK);
}

static void finish_wait(worker *self, uint64_t key, int64_t result) {
    wait_entry *one = &self->entries[key & 0xff];
    CHECK_EQ(one->key, key);
    check_bytes(one, result);
    clear(one);
    atomic_fetch_add(&stress_waits, 1);
}

static void drain(worker *self, int timeout_ms) {
    struct pollfd readable = {aio_port_fd(self->port), POLLIN, 0};
    uint64_t keys[64];
    int64_t results[64];
    if (poll(&readable, 1, timeout_ms) != 1) {
        return;
    }
    int count = aio_port_take(self->port, keys, results, 64);
    for (int i = 0; i < count; i++) {
        finish_wait(self, keys[i], results[i]);
    }
}

static bool any_in_flight(const worker *self) {
    for (int i = 0; i < IN_FLIGHT; i++) {
        if (self->entries[i].key) {
            return true;
        }
    }
    return false;
}

static void round_trip(worker *self, wait_entry *one, stress_stream *on) {
    unsigned char source[BLOCK];
    one->pattern = (unsigned char)draw(self, 256);
    memset(source, one->pattern, BLOCK);
    memset(one->target, ~one->pattern, BLOCK);
    aio_result up = aio_upload(on->stream, 0, block_of(self, one), BLOCK, source, BLOCK);
    aio_result down = up < 0 ? up : aio_download(on->stream, 0, one->target, block_of(self, one), BLOCK);
    if (up < 0) {
        stress_put(on);
        return;
    }
    one->upload = (uint64_t)up;
    one->download = down < 0 ? 0 : (uint64_t)down;
    /* The target and the block must not be used again before the copies are done. */
    start_wait(self, one, on, (uint64_t)(down < 0 ? up : down));
}

static void plain_copies(worker *self, wait_entry *one, stress_stream *on) {
    char *memory = (char *)self->memory + IN_FLIGHT * BLOCK; /* the content of this block is not checked */
    aio_result last = aio_fill(on->stream, 0, memory, BLOCK, 3, BLOCK / 2);
    for (uint32_t i = draw(self, 6); i-- && last >= 0;) {
        last = aio_copy(on->stream, 0, memory, BLOCK, stress_pinned, BLOCK, ACL_MEMCPY_HOST_TO_DEVICE);
    }
    if (last >= 0) {
        start_wait(self, one, on, (uint64_t)last - (last > 1 && draw(self, 2)));
    } else {
        stress_put(on);
    }
}

static void cross(worker *self, wait_entry *one, stress_stream *on) {
    stress_stream *other = stress_get(draw(self, SLOTS));
    aio_event *event = NULL;
    aio_result result = other ? aio_record(other->stream, 0, (int)draw(self, 2), &event) : -1;
    if (result >= 0) {
        result = aio_wait_event(on->stream, 0, event, other->stream, (uint64_t)result);
    }
    stress_put(other);
    if (result < 0) {
        if (event) {
            aio_event_drop(event);
        }
        stress_put(on);
        return;
    }
    one->event = event;
    start_wait(self, one, on, (uint64_t)result);
}

static void ask(worker *self, stress_stream *on) {
    uint64_t tail = aio_stream_tail(on->stream);
    aio_stream_poll(on->stream, tail);
    aio_stream_query(on->stream, tail);
    aio_stream_known(on->stream, tail);
    aio_stream_room(on->stream);
    aio_stream_error(on->stream, tail, draw(self, 2) ? &self->error : NULL);
    aio_stream_uncollected(on->stream, &self->error);
    aio_stream_forget(on->stream, tail);
    if (draw(self, 8) == 0) {
        aio_device_fail(DEVICE, 507011, "a wait for the whole device");
    }
}

/* The controls identify a stream by its handle, and a handle may be reused after a reset. While this call is
 * inside the gate, no reset ends the stream. */
static void disturb_native(worker *self, stress_stream *on) {
    aio_frame frame;
    if (aio_begin(&frame, aio_stream_pass(on->stream, 0), AIO_ENQUEUE, AIO_FN_aclrtMemcpyAsync)) {
        return;
    }
    if (draw(self, 2) == 0) {
        sim.hold(on->stream->handle);
    } else if (!on->healthy) {
        sim.fail_next(on->stream->handle, 507015);
    }
    aio_end(&frame, 0);
}

static void disturb(worker *self, stress_stream *on) {
    switch (draw(self, 6)) {
    case 0:
        aio_stream_abort(on->stream);
        break;
    case 1:
        aio_device_busy(DEVICE);
        break;
    default:
        disturb_native(self, on);
    }
}

/* Acts as an event loop that ends: closes the port while waits of the port are in flight. */
static void abandon(worker *self, stress_stream *on) {
    aio_port *port = aio_port_new();
    CHECK(port != NULL);
    for (uint64_t key = 1; key <= 3; key++) {
        if (aio_watch(on->stream, aio_stream_tail(on->stream), port, key) == 0) {
            atomic_fetch_add(&stress_abandoned, 1);
        }
    }
    if (draw(self, 2)) {
        uint64_t key;
        int64_t result;
        aio_port_take(port, &key, &result, 1);
    }
    aio_port_close(port);
}

static void act(worker *self, stress_stream *on) {
    wait_entry *one = free_entry(self);
    uint32_t chance = draw(self, 100);
    if (chance < 66 && one && have_memory(self)) {
        (chance < 30 ? round_trip : chance < 50 ? plain_copies : cross)(self, one, on);
        return;
    }
    if (chance < 90) {
        ask(self, on);
    } else if (chance < 96) {
        disturb(self, on);
    } else {
        abandon(self, on);
    }
    stress_put(on);
}

/* Returns a stream of this generation that has not failed, because a failed stream refuses work. */
static bool is_useful(const stress_stream *on) {
    return on && on->stream->generation == aio_word_generation(aio_gate_word(DEVICE)) &&
           !aio_stream_error(on->stream, UINT64_MAX, NULL);
}

static void step(worker *self) {
    uint32_t slot = draw(self, SLOTS);
    stress_stream *on = stress_get(slot);
    stress_now_at(self->progress, "acting");
    if (is_useful(on) && draw(self, 60)) {
        act(self, on);
    } else {
        stress_put(on);
        stress_renew(slot);
    }
    stress_now_at(self->progress, "draining");
    drain(self, free_entry(self) ? 0 : 5);
}

void *stress_work(void *number) {
    static const char *const names[WORKERS] = {"worker 0", "worker 1", "worker 2", "worker 3", "worker 4"};
    worker *self = calloc(1, sizeof *self);
    CHECK(self != NULL);
    self->progress = stress_progress_of(names[(uintptr_t)number]);
    self->seed = 1000 + (uint32_t)(uintptr_t)number;
    self->port = aio_port_new();
    while (!atomic_load(&stress_over)) {
        step(self);
    }
    stress_now_at(self->progress, "waiting for the last completions");
    while (any_in_flight(self)) {
        drain(self, 5);
        aio_device_busy(DEVICE);
    }
    /* The thread that published the last completion may still hold its reference. */
    UNTIL(bed_in_flight(self->port) == 0);
    aio_port_close(self->port);
    stress_now_at(self->progress, "done");
    free(self);
    return NULL;
}
