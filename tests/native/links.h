/* For the tests about failures: devices 0 and 1 with streams, copies that fail, and waits for events. */
#ifndef LINKS_H
#define LINKS_H

#include "bed.h"

enum { FAULT = 507015 };

static aio_error error;
static void *their_memory; /* memory of device 1 */

static inline void begin(int strategy) {
    bed_open_to_copy(strategy);
    CHECK(aio_failure_detection() != AIO_CONFIRMED);
}

static inline void begin_on_two_devices(void) {
    begin(AIO_WATCH);
    bed_open(1, AIO_WATCH);
    their_memory = bed_malloc(1, BED_BYTES);
}

static inline void end_on_two_devices(void) {
    aio_device_stop(0); /* a close waits until all threads of the engine have ended */
    bed_close(1);
    bed_close_copied();
}

/* Enqueues work on device 0 or 1. A ticket refers to the work, so its outcome can be found even if later work
 * never ends. */
static inline uint64_t ticket(aio_stream *on) {
    void *target = on->device ? their_memory : bed_memory;
    aio_result result = aio_fill(on, 0, target, BED_BYTES, 1, BED_BYTES);
    CHECK(result > 0);
    return (uint64_t)result;
}

static inline uint64_t work(aio_stream *on) {
    uint64_t position = ticket(on);
    aio_stream_forget(on, position);
    return position;
}

static inline uint64_t failing_work(aio_stream *on) {
    CHECK_EQ(sim.fail_next(on->handle, FAULT), 0);
    return work(on);
}

/* A position of a stream, and the event that was recorded there. */
typedef struct {
    aio_stream *of;
    aio_event *event;
    uint64_t at;
} point;

static inline point record(aio_stream *of) {
    point made = {of, NULL, 0};
    aio_result at = aio_record(of, 0, 0, &made.event);
    CHECK(at > 0);
    made.at = (uint64_t)at;
    return made;
}

static inline aio_result try_to_wait(aio_stream *on, const point *until) {
    return aio_wait_event(on, 0, until->event, until->of, until->at);
}

static inline uint64_t wait_at(aio_stream *on, const point *until) {
    aio_result result = try_to_wait(on, until);
    CHECK(result > 0);
    return (uint64_t)result;
}

static inline void drop(const point *made) {
    aio_event_drop(made->event);
}

/* Makes stream `on` wait for all work that `source` has now. Returns the position of the wait. */
static inline uint64_t wait_for(aio_stream *on, aio_stream *source) {
    point until = record(source);
    uint64_t position = wait_at(on, &until);
    drop(&until);
    return position;
}

static inline void fails(aio_stream *on, uint64_t position) {
    CHECK_EQ(bed_await(on, position), aio_failed(FAULT));
}

static inline void succeeds(aio_stream *on, uint64_t position) {
    CHECK_EQ(bed_await(on, position), (int64_t)position);
}

/* Checks the error record that a wait for the position would raise. */
static inline void failed_at(aio_stream *on, uint64_t position, const aio_stream *source, uint64_t at) {
    CHECK_EQ(aio_stream_error(on, position, &error), FAULT);
    CHECK_EQ(error.device, source->device);
    CHECK_EQ(error.stream, aio_stream_id(source));
    CHECK_EQ(error.position, at);
}

#endif
