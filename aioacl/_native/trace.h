/*
 * A trace of the records of the flight recorder: its events, and their encoding. trace.c has the theory of
 * operation.
 */
#ifndef AIOACL_TRACE_H
#define AIOACL_TRACE_H

#include "recorder.h"

/* What a track shows. `number` of a track is that of the stream, the model or the thread. */
enum aio_track_kind {
    AIO_TRACK_STATES = 1, /* of a device */
    AIO_TRACK_STREAM = 2,
    AIO_TRACK_AWAITS = 3, /* those without a begin have a higher `number` */
    AIO_TRACK_CALLS = 4,
    AIO_TRACK_MODEL = 5,
    AIO_TRACK_BATCHES = 6,
    AIO_TRACK_ITEMS = 7,
    AIO_TRACK_THREAD = 8,
    AIO_TRACK_LOADS = 9,
    AIO_TRACK_IN_FLIGHT = 10, /* counters: awaits, calls that wait for a slot, rows of a batch */
    AIO_TRACK_WAITING = 11,
    AIO_TRACK_ROWS = 12,
    AIO_TRACK_DEVICE = 13,     /* what a stream does on the device */
    AIO_TRACK_UNCERTAINTY = 14 /* a counter: the error of the times on the tracks of this kind */
};

/* Kinds of records that only a trace with device times has, after those of the recorder. A span has the
 * function as its code, microseconds as its value, and in `thread` the error of its times in nanoseconds. */
enum aio_trace_kind { AIO_TRACE_SPAN = 256, AIO_TRACE_UNCERTAINTY = 257 };

/* The names of events: AIO_NAME_KINDS plus a kind of a record, AIO_NAME_STATES plus a State, or
 * AIO_NAME_FUNCTIONS plus the index of an ACL function. */
enum aio_trace_name {
    AIO_NAME_AWAIT = 1,
    AIO_NAME_CALL = 2,
    AIO_NAME_EXECUTION = 3,
    AIO_NAME_ITEM = 4,
    AIO_NAME_GENERATION = 5,
    AIO_NAME_DONE = 6,
    AIO_NAME_KINDS = 16,
    AIO_NAME_STATES = 64,
    AIO_NAME_FUNCTIONS = 128
};

/* What the number of an event is. */
enum aio_trace_value {
    AIO_VALUE_NONE = 0,
    AIO_VALUE_BYTES = 1,
    AIO_VALUE_CODE = 2,
    AIO_VALUE_US = 3,
    AIO_VALUE_ROWS = 4,
    AIO_VALUE_POSITION = 5,
    AIO_VALUE_COMPLETIONS = 6,
    AIO_VALUE_SLOT = 7,
    AIO_VALUE_GENERATION = 8,
    AIO_VALUE_UNFINISHED = 9, /* 1: the trace ends before the slice */
    AIO_VALUE_ERROR_NS = 10   /* the begin and the end may be earlier or later by that */
};

/* The types of Perfetto's TrackEvent. FLOW adds a flow to the event before it. */
enum aio_trace_type {
    AIO_EVENT_BEGIN = 1,
    AIO_EVENT_END = 2,
    AIO_EVENT_INSTANT = 3,
    AIO_EVENT_COUNTER = 4,
    AIO_EVENT_FLOW = 5
};

typedef struct {
    int64_t ns;
    uint64_t flow; /* 0: none */
    int64_t value;
    uint32_t track; /* its place among the tracks */
    uint16_t name;
    uint8_t type;
    uint8_t value_name;
} aio_trace_event;

typedef struct {
    uint64_t number;
    uint32_t lane; /* slices that overlap are in different lanes */
    uint16_t kind;
    uint16_t device;
} aio_trace_track;

typedef struct aio_trace aio_trace;

/* NULL: no memory. */
aio_trace *aio_trace_new(void);
void aio_trace_free(aio_trace *trace);
/* Makes the events of the records, which are in the order of their numbers, and ends all slices. To be called
 * once. Returns 0 or AIO_NO_MEMORY. */
int aio_trace_make(aio_trace *trace, const aio_flight_record *records, int count);
/* Return the events and tracks, which belong to the trace. */
const aio_trace_event *aio_trace_events(const aio_trace *trace, int *count);
const aio_trace_track *aio_trace_tracks(const aio_trace *trace, int *count);
/* perfetto.c: writes the events as packets of a Trace of Perfetto. A track's uuid is `first_uuid` plus its
 * place. Returns the number of bytes; nothing is written if it is above `size`. */
int64_t aio_trace_encode(const aio_trace_event *events, int count, uint64_t first_uuid, uint32_t sequence,
                         uint8_t *out, int64_t size);

/* ranges.c: ranges of mstx. aio_ranges_open loads libms_tools_ext.so, and returns 1 if it has ranges. A range
 * of 0 does not exist. */
int aio_ranges_open(const char *path);
uint64_t aio_range_start(const char *text);
void aio_range_end(uint64_t range);

/* spans.c: device times of executions, copies and fills. */
typedef struct {
    uint64_t id;                 /* as in the records about the entry */
    int64_t since_ns;            /* CLOCK_MONOTONIC: before the work was enqueued */
    int64_t seen_ns;             /* CLOCK_MONOTONIC: after the work was done */
    uint64_t began_us, ended_us; /* on the device's clock (aclrtEventGetTimestamp) */
    uint32_t generation;
    int32_t function; /* the ACL function that enqueued the work */
} aio_span;

/* From now on, events with timestamps are recorded around the work of streams that aioacl has made. Returns 0
 * if another caller has started that already. */
int aio_spans_start(void);
/* Ends that, and drops the spans that were not read. To be called by the caller of aio_spans_start only. */
void aio_spans_stop(void);
/* Copies at most `size` spans of the device that are done, and returns their number. Never waits. Drops the
 * spans of generations that have ended. */
int aio_spans_read(int device, aio_span *spans, int size);

#endif
