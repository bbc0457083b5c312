/* For tests that copy on one stream of device 0. */
#ifndef ONE_STREAM_H
#define ONE_STREAM_H

#include "bed.h"

static aio_stream *stream;

static inline void begin(void) {
    bed_open_to_copy(AIO_WATCH);
    stream = bed_stream(0);
}

static inline void end(void) {
    bed_end_stream(stream);
    bed_close_copied();
}

#endif
