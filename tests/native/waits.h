/* The setup and the end of tests about waits: device 0, a stream, and a port for the waits. */
#ifndef WAITS_H
#define WAITS_H

#include "bed.h"

static aio_stream *stream;
static aio_port *port;
static uint64_t key; /* key of the newest completion */

static inline void begin(int strategy) {
    bed_open_to_copy(strategy);
    stream = bed_stream(0);
    port = aio_port_new();
}

static inline void close_all(void) {
    aio_port_close(port);
    bed_close_copied();
    CHECK_EQ(aio_threads(), 0);
}

static inline void end(void) {
    bed_end_stream(stream);
    close_all();
}

/* Ends the test when the stream is of an older generation. */
static inline void end_stale(void) {
    aio_stream_drop(stream);
    close_all();
}

static inline uint64_t copy(void) {
    aio_result result = bed_ticket(stream);
    CHECK(result > 0);
    return (uint64_t)result;
}

static inline void watch(uint64_t position, uint64_t as) {
    CHECK_EQ(aio_watch(stream, position, port, as), 0);
}

#endif
