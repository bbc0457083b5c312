/*
 * Makes the events of a trace from the records of the flight recorder: slices, instants, counters and flows.
 *
 * One pass over the records, in the order of their numbers. What has begun and not ended is in a hash table,
 * under a key of what it is and of its id. Several awaits may wait for one entry, so a key may be in the table
 * several times. The table has room for eight entries for each record, which is more than a record adds,
 * and never grows.
 *
 * Slices of one track must not overlap. So the slices of a group, for example the awaits of a device, are in
 * lanes: a slice takes a free lane, or a new one if there is none. A group then has as many lanes as it has
 * slices at the same time. Some records contain only the end and the duration of a slice (items, slow calls,
 * loads, and awaits whose begin is overwritten). Such a slice takes the first lane whose last slice ended
 * before it.
 *
 * A flow is an arrow from one event to the next one with the same id: from an enqueue to the await, to the work
 * on the device if its times are known, to the end of the work, and to the wake of the event loop; from an item
 * to its batch and to its end.
 *
 * Records may be missing. A slice whose begin is missing is made from its duration, or left out. A slice whose
 * end is missing ends with the trace, and is marked as unfinished. An execution that a reset has ended has no
 * record of its end: its slice ends with the generation.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { WAIT = 1, EXECUTION = 2, CALL = 3, WANTED = 4, BATCH = 5, STREAM_CALLER = 6, TRACK = 7, GROUP = 8 };
enum { FEWEST = 256, LANES_TRIED = 64, FLOWS_AT_ONCE = 24, LATE = 1, GONE = 1, STATES = 8 };

typedef struct {
    uint64_t key; /* 0: the cell is free; GONE: it was taken out */
    int64_t ns;
    uint32_t track, thread;
} cell;

/* Of a track: the next one of its group, the next free one, and the end of its last slice. */
typedef struct {
    uint32_t next, next_free;
    int64_t ended;
} lane_state;

/* Of a group: its lanes, by their tracks plus 1. */
typedef struct {
    uint32_t first, free, count;
} lane_group;

/* A wait that has ended, and whose event loop has not run since. */
typedef struct {
    uint64_t flow;
    uint32_t thread;
} arrival;

/* The end of a generation of a device. */
typedef struct {
    int64_t ns;
    int device;
} generation_end;

struct aio_trace {
    cell *cells;
    uint64_t mask;
    aio_trace_event *events;
    int event_count, event_room;
    aio_trace_track *tracks;
    lane_state *lanes;
    lane_group *groups;
    int track_count, track_room, group_count, group_room;
    arrival *arrivals;
    int arrival_count;
    generation_end *generations;
    int generation_count, generation_room;
    int64_t in_flight[AIO_DEVICES];
    int state[AIO_DEVICES]; /* a State plus 1; 0: not known */
    int64_t last_ns;
    bool failed; /* no memory */
};

/* --- the table ------------------------------------------------------------------------------------------- */

static uint64_t key_of(int what, int device, uint64_t id) {
    return (uint64_t)what << 60 | (uint64_t)(device & 0xff) << 52 | (id & 0xfffffffffffffull);
}

static uint64_t place_of(const aio_trace *trace, uint64_t key) {
    key ^= key >> 31;
    key *= 0x9e3779b97f4a7c15ull;
    return (key >> 20) & trace->mask;
}

static cell *put(aio_trace *trace, uint64_t key) {
    uint64_t at = place_of(trace, key);
    while (trace->cells[at].key > GONE) {
        at = (at + 1) & trace->mask;
    }
    trace->cells[at] = (cell){.key = key};
    return &trace->cells[at];
}

static cell *find(const aio_trace *trace, uint64_t key) {
    for (uint64_t at = place_of(trace, key); trace->cells[at].key; at = (at + 1) & trace->mask) {
        if (trace->cells[at].key == key) {
            return &trace->cells[at];
        }
    }
    return NULL;
}

static bool take(aio_trace *trace, uint64_t key, cell *taken) {
    cell *found = find(trace, key);
    if (found) {
        *taken = *found;
        found->key = GONE;
    }
    return found != NULL;
}

/* --- memory ---------------------------------------------------------------------------------------------- */

/* Makes room for one more entry of an array. */
static bool grow(aio_trace *trace, void **array, size_t size, int count, int *room) {
    if (count < *room) {
        return true;
    }
    int more = *room ? 2 * *room : FEWEST;
    void *made = realloc(*array, (size_t)more * size);
    if (!made) {
        trace->failed = true;
        return false;
    }
    *array = made;
    *room = more;
    return true;
}

static void push(aio_trace *trace, aio_trace_event event) {
    if (grow(trace, (void **)&trace->events, sizeof event, trace->event_count, &trace->event_room)) {
        trace->events[trace->event_count++] = event;
    }
}

/* --- tracks ---------------------------------------------------------------------------------------------- */

static uint32_t add_track(aio_trace *trace, int kind, int device, uint64_t number, uint32_t lane) {
    int room = trace->track_room;
    if (!grow(trace, (void **)&trace->tracks, sizeof *trace->tracks, trace->track_count, &room)) {
        return 0;
    }
    if (!grow(trace, (void **)&trace->lanes, sizeof *trace->lanes, trace->track_count, &trace->track_room)) {
        return 0;
    }
    trace->tracks[trace->track_count] = (aio_trace_track){number, lane, (uint16_t)kind, (uint16_t)device};
    trace->lanes[trace->track_count] = (lane_state){0, 0, INT64_MIN};
    return (uint32_t)trace->track_count++;
}

static uint64_t track_key(int what, int kind, int device, uint64_t number) {
    return key_of(what, device, (uint64_t)kind << 44 | (number & 0xfffffffffffull));
}

/* Returns the only track of that kind and number. */
static uint32_t track_of(aio_trace *trace, int kind, int device, uint64_t number) {
    uint64_t key = track_key(TRACK, kind, device, number);
    cell *found = find(trace, key);
    if (!found) {
        found = put(trace, key);
        found->track = add_track(trace, kind, device, number, 0);
    }
    return found->track;
}

static lane_group *group_of(aio_trace *trace, int kind, int device, uint64_t number) {
    static lane_group none;
    uint64_t key = track_key(GROUP, kind, device, number);
    cell *found = find(trace, key);
    if (!found) {
        if (!grow(trace, (void **)&trace->groups, sizeof *trace->groups, trace->group_count,
                  &trace->group_room)) {
            none = (lane_group){0, 0, 0};
            return &none;
        }
        found = put(trace, key);
        found->track = (uint32_t)trace->group_count++;
        trace->groups[found->track] = (lane_group){0, 0, 0};
    }
    return &trace->groups[found->track];
}

static uint32_t new_lane(aio_trace *trace, lane_group *group, int kind, int device, uint64_t number) {
    uint32_t track = add_track(trace, kind, device, number, group->count++);
    if (!trace->failed) {
        trace->lanes[track].next = group->first;
        group->first = track + 1;
    }
    return track;
}

/* Takes a lane until give_lane. */
static uint32_t take_lane(aio_trace *trace, int kind, int device, uint64_t number) {
    lane_group *group = group_of(trace, kind, device, number);
    if (!group->free) {
        return new_lane(trace, group, kind, device, number);
    }
    uint32_t track = group->free - 1;
    group->free = trace->lanes[track].next_free;
    return track;
}

static void give_lane(aio_trace *trace, uint32_t track) {
    const aio_trace_track *of = &trace->tracks[track];
    lane_group *group = group_of(trace, of->kind, of->device, of->number);
    trace->lanes[track].next_free = group->free;
    group->free = track + 1;
}

/* A lane for a slice that is known as a whole. Slices come in the order of their ends. */
static uint32_t lane_for(aio_trace *trace, int kind, int device, uint64_t number, int64_t begin, int64_t end) {
    lane_group *group = group_of(trace, kind, device, number);
    uint32_t track = group->first;
    for (int tried = 0; track && trace->lanes[track - 1].ended > begin && tried < LANES_TRIED; tried++) {
        track = trace->lanes[track - 1].next;
    }
    track = track && trace->lanes[track - 1].ended <= begin ? track - 1
                                                            : new_lane(trace, group, kind, device, number);
    if (!trace->failed) {
        trace->lanes[track].ended = end;
    }
    return track;
}

/* --- events ---------------------------------------------------------------------------------------------- */

static aio_trace_event event_at(int type, int64_t ns, uint32_t track) {
    return (aio_trace_event){.ns = ns, .track = track, .type = (uint8_t)type};
}

static void begin(aio_trace *trace, int64_t ns, uint32_t track, int name, uint64_t flow) {
    aio_trace_event event = event_at(AIO_EVENT_BEGIN, ns, track);
    event.name = (uint16_t)name;
    event.flow = flow;
    push(trace, event);
}

static void end(aio_trace *trace, int64_t ns, uint32_t track, int value_name, int64_t value) {
    aio_trace_event event = event_at(AIO_EVENT_END, ns, track);
    event.value_name = (uint8_t)value_name;
    event.value = value;
    push(trace, event);
}

static void instant(aio_trace *trace, const aio_flight_record *record, uint32_t track, uint64_t flow,
                    int value_name, int64_t value) {
    aio_trace_event event = event_at(AIO_EVENT_INSTANT, record->ns, track);
    event.name = (uint16_t)(AIO_NAME_KINDS + record->kind);
    event.flow = flow;
    event.value_name = (uint8_t)value_name;
    event.value = value;
    push(trace, event);
}

static void counter(aio_trace *trace, const aio_flight_record *record, int kind, int64_t value) {
    aio_trace_event event = event_at(AIO_EVENT_COUNTER, record->ns, track_of(trace, kind, record->device, 0));
    event.value = value;
    push(trace, event);
}

/* The id of an arrow. */
static uint64_t flow_of(int what, const aio_flight_record *record) {
    uint64_t key = key_of(what, record->device, record->id);
    key ^= key >> 29;
    key *= 0xbf58476d1ce4e5b9ull;
    return key | 1;
}

/* The track of the stream of an entry. */
static uint32_t stream_of(aio_trace *trace, const aio_flight_record *record) {
    return track_of(trace, AIO_TRACK_STREAM, record->device, record->id >> 32);
}

static int64_t begin_of(const aio_flight_record *record) {
    int64_t begun = record->ns - (int64_t)record->value * 1000;
    return begun < 0 ? 0 : begun; /* a damaged record */
}

/* --- one function for each kind of record ---------------------------------------------------------------- */

/* The name of an ACL function, or of the kind of the record if the index is that of another version. */
static uint16_t function_name(int64_t function, int kind) {
    bool known = function >= 0 && function < AIO_FUNCTIONS;
    return (uint16_t)(known ? AIO_NAME_FUNCTIONS + function : AIO_NAME_KINDS + kind);
}

static void on_enqueue(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = stream_of(trace, record);
    bool failed = record->code != 0, copy = record->kind == AIO_FLIGHT_COPY;
    if (failed) {
        instant(trace, record, track, 0, AIO_VALUE_CODE, record->code);
    } else {
        int64_t value = copy ? (int64_t)record->value : (int64_t)(record->id & UINT32_MAX);
        instant(trace, record, track, flow_of(WAIT, record), copy ? AIO_VALUE_BYTES : AIO_VALUE_POSITION,
                value);
    }
    if (!failed && !copy && !trace->failed) {
        trace->events[trace->event_count - 1].name = function_name(record->value, AIO_FLIGHT_ENQUEUE);
    }
}

static void on_execution_begins(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = take_lane(trace, AIO_TRACK_MODEL, record->device, record->value);
    cell *open = put(trace, key_of(EXECUTION, record->device, record->id));
    open->track = track;
    open->ns = record->ns;
    begin(trace, record->ns, track, AIO_NAME_EXECUTION, flow_of(WAIT, record));
}

static void on_execution_ends(aio_trace *trace, const aio_flight_record *record) {
    cell open;
    if (take(trace, key_of(EXECUTION, record->device, record->id), &open)) {
        end(trace, record->ns, open.track, AIO_VALUE_POSITION, (int64_t)(record->id & UINT32_MAX));
        give_lane(trace, open.track);
    }
}

static void count_await(aio_trace *trace, const aio_flight_record *record, int change) {
    int64_t *count = &trace->in_flight[record->device % AIO_DEVICES];
    *count = *count + change < 0 ? 0 : *count + change;
    counter(trace, record, AIO_TRACK_IN_FLIGHT, *count);
}

/* If the stream belongs to a call of a model, the caller's thread is that of its event loop. */
static void on_wait_begins(aio_trace *trace, const aio_flight_record *record) {
    const cell *caller = find(trace, key_of(STREAM_CALLER, record->device, record->id >> 32));
    uint32_t thread = caller ? caller->thread : (uint32_t)record->thread;
    uint32_t track = take_lane(trace, AIO_TRACK_AWAITS, record->device, 0);
    cell *open = put(trace, key_of(WAIT, record->device, record->id));
    open->track = track;
    open->thread = thread;
    begin(trace, record->ns, track, AIO_NAME_AWAIT, flow_of(WAIT, record));
    count_await(trace, record, 1);
}

static void on_wait_ends(aio_trace *trace, const aio_flight_record *record) {
    cell open;
    bool known = take(trace, key_of(WAIT, record->device, record->id), &open);
    if (known) {
        give_lane(trace, open.track);
        trace->arrivals[trace->arrival_count++] = (arrival){flow_of(WAIT, record), open.thread};
        count_await(trace, record, -1);
    } else {
        open.track = lane_for(trace, AIO_TRACK_AWAITS, record->device, LATE, begin_of(record), record->ns);
        begin(trace, begin_of(record), open.track, AIO_NAME_AWAIT, 0);
    }
    end(trace, record->ns, open.track, AIO_VALUE_CODE, record->code);
    aio_trace_event done = event_at(AIO_EVENT_INSTANT, record->ns, stream_of(trace, record));
    done.name = AIO_NAME_DONE;
    done.flow = flow_of(WAIT, record);
    push(trace, done);
}

static void on_no_wait(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = lane_for(trace, AIO_TRACK_AWAITS, record->device, LATE, record->ns, record->ns);
    begin(trace, record->ns, track, AIO_NAME_AWAIT, flow_of(WAIT, record));
    end(trace, record->ns, track, AIO_VALUE_CODE, record->code);
}

/* Arrows of the waits that have ended for the thread since it ran last. */
static void on_wake(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = track_of(trace, AIO_TRACK_THREAD, AIO_FLIGHT_NO_DEVICE, (uint32_t)record->thread);
    int kept = 0, flows = 0;
    instant(trace, record, track, 0, AIO_VALUE_COMPLETIONS, record->value);
    for (int index = 0; index < trace->arrival_count; index++) {
        arrival each = trace->arrivals[index];
        if (each.thread != (uint32_t)record->thread) {
            trace->arrivals[kept++] = each;
            continue;
        }
        if (++flows % FLOWS_AT_ONCE == 0) {
            instant(trace, record, track, 0, AIO_VALUE_COMPLETIONS, record->value);
        }
        aio_trace_event flow = event_at(AIO_EVENT_FLOW, record->ns, track);
        flow.flow = each.flow;
        push(trace, flow);
    }
    trace->arrival_count = kept > FEWEST ? 0 : kept; /* threads that run no event loop have no wake */
}

static void on_slow_call(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = track_of(trace, AIO_TRACK_THREAD, AIO_FLIGHT_NO_DEVICE, (uint32_t)record->thread);
    begin(trace, begin_of(record), track, function_name(record->code, AIO_FLIGHT_SLOW_CALL), 0);
    end(trace, record->ns, track, AIO_VALUE_US, record->value);
}

static void on_failed_call(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = track_of(trace, AIO_TRACK_STATES, record->device, 0);
    instant(trace, record, track, 0, AIO_VALUE_CODE, record->code);
    if (!trace->failed) {
        trace->events[trace->event_count - 1].name = function_name(record->value, AIO_FLIGHT_FAILED_CALL);
    }
}

static uint32_t open_call(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = take_lane(trace, AIO_TRACK_CALLS, record->device, 0);
    cell *open = put(trace, key_of(CALL, record->device, record->id));
    open->track = track;
    open->thread = (uint32_t)record->thread;
    begin(trace, record->ns, track, AIO_NAME_CALL, flow_of(CALL, record));
    return track;
}

static void on_slot_wanted(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = open_call(trace, record);
    put(trace, key_of(WANTED, record->device, record->id))->track = track;
    begin(trace, record->ns, track, AIO_NAME_KINDS + AIO_FLIGHT_SLOT_WANTED, 0);
    counter(trace, record, AIO_TRACK_WAITING, record->value);
}

static void on_slot_taken(aio_trace *trace, const aio_flight_record *record) {
    cell wanted;
    uint64_t key = key_of(STREAM_CALLER, record->device, record->value);
    if (take(trace, key_of(WANTED, record->device, record->id), &wanted)) {
        end(trace, record->ns, wanted.track, AIO_VALUE_SLOT, record->code);
    } else {
        open_call(trace, record);
    }
    const cell *call = find(trace, key_of(CALL, record->device, record->id));
    cell *caller = find(trace, key);
    caller = caller ? caller : put(trace, key);
    caller->thread = call ? call->thread : (uint32_t)record->thread;
}

static void on_slot_given(aio_trace *trace, const aio_flight_record *record) {
    cell open;
    if (take(trace, key_of(CALL, record->device, record->id), &open)) {
        end(trace, record->ns, open.track, AIO_VALUE_SLOT, record->code);
        give_lane(trace, open.track);
    }
}

static void on_slot_refused(aio_trace *trace, const aio_flight_record *record) {
    cell open;
    if (take(trace, key_of(WANTED, record->device, record->id), &open)) {
        end(trace, record->ns, open.track, AIO_VALUE_CODE, record->code);
    }
    if (take(trace, key_of(CALL, record->device, record->id), &open)) {
        end(trace, record->ns, open.track, AIO_VALUE_CODE, record->code);
        give_lane(trace, open.track);
    }
}

static void on_batch_leaves(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = track_of(trace, AIO_TRACK_BATCHES, record->device, 0);
    cell *batch = put(trace, key_of(BATCH, record->device, record->id));
    batch->track = track;
    batch->ns = record->ns;
    instant(trace, record, track, 0, AIO_VALUE_ROWS, record->code);
    counter(trace, record, AIO_TRACK_ROWS, record->code);
}

/* The id of an item contains that of its batch. */
static void on_item_done(aio_trace *trace, const aio_flight_record *record) {
    int64_t born = begin_of(record);
    uint64_t flow = flow_of(BATCH, record);
    uint32_t track = lane_for(trace, AIO_TRACK_ITEMS, record->device, 0, born, record->ns);
    const cell *batch = find(trace, key_of(BATCH, record->device, record->id >> 32));
    begin(trace, born, track, AIO_NAME_ITEM, flow);
    if (batch) {
        aio_trace_event joined = event_at(AIO_EVENT_INSTANT, batch->ns, batch->track);
        joined.name = AIO_NAME_ITEM;
        joined.flow = flow;
        push(trace, joined);
    }
    instant(trace, record, track, flow, AIO_VALUE_CODE, record->code);
    end(trace, record->ns, track, AIO_VALUE_US, record->value);
}

static void on_batch_fails(aio_trace *trace, const aio_flight_record *record) {
    instant(trace, record, track_of(trace, AIO_TRACK_BATCHES, record->device, 0), 0, AIO_VALUE_CODE,
            record->code);
}

/* An item that has no outcome: its time is over, or its caller has gone. */
static void on_item_gone(aio_trace *trace, const aio_flight_record *record) {
    int64_t born = begin_of(record);
    uint32_t track = lane_for(trace, AIO_TRACK_ITEMS, record->device, 0, born, record->ns);
    begin(trace, born, track, AIO_NAME_KINDS + AIO_FLIGHT_ITEM_GONE, 0);
    end(trace, record->ns, track, AIO_VALUE_US, record->value);
}

static void on_fault(aio_trace *trace, const aio_flight_record *record) {
    instant(trace, record, track_of(trace, AIO_TRACK_STATES, record->device, 0), flow_of(WAIT, record),
            AIO_VALUE_CODE, record->code);
}

static void begin_state(aio_trace *trace, const aio_flight_record *record, uint32_t track, bool anew) {
    if (anew) {
        aio_trace_event generation = event_at(AIO_EVENT_BEGIN, record->ns, track);
        generation.name = AIO_NAME_GENERATION;
        generation.value_name = AIO_VALUE_GENERATION;
        generation.value = (int64_t)record->id;
        push(trace, generation);
    }
    begin(trace, record->ns, track, AIO_NAME_STATES + record->code, 0);
}

static void end_generation(aio_trace *trace, const aio_flight_record *record) {
    if (grow(trace, (void **)&trace->generations, sizeof *trace->generations, trace->generation_count,
             &trace->generation_room)) {
        trace->generations[trace->generation_count++] = (generation_end){record->ns, record->device};
    }
}

/* A slice for each generation, from OPEN to CLOSED or to the next OPEN, and in it one for each state. */
static void on_state(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = track_of(trace, AIO_TRACK_STATES, record->device, 0);
    int *state = &trace->state[record->device % AIO_DEVICES];
    bool over = record->code == AIO_CLOSED, ends = over || record->code == AIO_OPEN;
    if (record->code < 0 || record->code >= STATES) { /* a damaged record */
        return;
    }
    for (int slices = *state ? 1 + ends : 0; slices; slices--) {
        end(trace, record->ns, track, AIO_VALUE_NONE, 0);
    }
    if (ends) {
        end_generation(trace, record);
    }
    if (!over) {
        begin_state(trace, record, track, !*state || ends);
    }
    *state = over ? 0 : record->code + 1;
}

static void on_load(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = lane_for(trace, AIO_TRACK_LOADS, record->device, 0, begin_of(record), record->ns);
    begin(trace, begin_of(record), track, AIO_NAME_KINDS + AIO_FLIGHT_LOAD, 0);
    end(trace, record->ns, track, AIO_VALUE_CODE, record->code);
}

/* The spans of a stream do not overlap. */
static void on_span(aio_trace *trace, const aio_flight_record *record) {
    uint32_t track = track_of(trace, AIO_TRACK_DEVICE, record->device, record->id >> 32);
    begin(trace, begin_of(record), track, function_name(record->code, AIO_FLIGHT_ENQUEUE),
          flow_of(WAIT, record));
    end(trace, record->ns, track, AIO_VALUE_ERROR_NS, record->thread);
}

static void on_uncertainty(aio_trace *trace, const aio_flight_record *record) {
    counter(trace, record, AIO_TRACK_UNCERTAINTY, record->value);
}

static void (*const handlers[])(aio_trace *, const aio_flight_record *) = {
    [AIO_FLIGHT_ENQUEUE] = on_enqueue,
    [AIO_FLIGHT_COPY] = on_enqueue,
    [AIO_FLIGHT_EXECUTION_BEGINS] = on_execution_begins,
    [AIO_FLIGHT_EXECUTION_ENDS] = on_execution_ends,
    [AIO_FLIGHT_WAIT_BEGINS] = on_wait_begins,
    [AIO_FLIGHT_WAIT_ENDS] = on_wait_ends,
    [AIO_FLIGHT_NO_WAIT] = on_no_wait,
    [AIO_FLIGHT_WAKE] = on_wake,
    [AIO_FLIGHT_SLOW_CALL] = on_slow_call,
    [AIO_FLIGHT_FAILED_CALL] = on_failed_call,
    [AIO_FLIGHT_SLOT_WANTED] = on_slot_wanted,
    [AIO_FLIGHT_SLOT_TAKEN] = on_slot_taken,
    [AIO_FLIGHT_SLOT_GIVEN] = on_slot_given,
    [AIO_FLIGHT_SLOT_REFUSED] = on_slot_refused,
    [AIO_FLIGHT_BATCH_LEAVES] = on_batch_leaves,
    [AIO_FLIGHT_ITEM_DONE] = on_item_done,
    [AIO_FLIGHT_BATCH_FAILS] = on_batch_fails,
    [AIO_FLIGHT_ITEM_GONE] = on_item_gone,
    [AIO_FLIGHT_FAULT] = on_fault,
    [AIO_FLIGHT_STATE] = on_state,
    [AIO_FLIGHT_LOAD] = on_load,
    [AIO_TRACE_SPAN] = on_span,
    [AIO_TRACE_UNCERTAINTY] = on_uncertainty,
};

enum { HANDLERS = sizeof handlers / sizeof *handlers };

/* --- the trace ------------------------------------------------------------------------------------------- */

static void end_execution(aio_trace *trace, const cell *open) {
    const aio_trace_track *track = &trace->tracks[open->track];
    for (int index = 0; index < trace->generation_count && !trace->failed; index++) {
        const generation_end *each = &trace->generations[index];
        if (each->device == track->device && each->ns >= open->ns) {
            end(trace, each->ns, open->track, AIO_VALUE_CODE, AIO_WAS_RESET);
            return;
        }
    }
    end(trace, trace->last_ns, open->track, AIO_VALUE_UNFINISHED, 1);
}

/* Ends the slices that have not ended: a call that waits for a slot has two. */
static void end_all(aio_trace *trace) {
    for (uint64_t at = 0; at <= trace->mask; at++) {
        int what = (int)(trace->cells[at].key >> 60);
        if (what == EXECUTION && trace->tracks) {
            end_execution(trace, &trace->cells[at]);
        } else if (what == WAIT || what == CALL || what == WANTED) {
            end(trace, trace->last_ns, trace->cells[at].track, AIO_VALUE_UNFINISHED, 1);
        }
    }
    for (int device = 0; device < AIO_DEVICES; device++) {
        for (int slices = trace->state[device] ? 2 : 0; slices; slices--) {
            end(trace, trace->last_ns, track_of(trace, AIO_TRACK_STATES, device, 0), AIO_VALUE_UNFINISHED, 1);
        }
    }
}

static bool allocate(aio_trace *trace, int count) {
    uint64_t room = FEWEST;
    while (room / 8 < (uint64_t)count) {
        room *= 2;
    }
    trace->mask = room - 1;
    trace->cells = calloc(room, sizeof *trace->cells);
    trace->arrivals = calloc((size_t)count + 1, sizeof *trace->arrivals);
    return trace->cells && trace->arrivals;
}

int aio_trace_make(aio_trace *trace, const aio_flight_record *records, int count) {
    if (!allocate(trace, count)) {
        return AIO_NO_MEMORY;
    }
    for (int index = 0; index < count && !trace->failed; index++) {
        const aio_flight_record *record = &records[index];
        if (record->kind < HANDLERS && handlers[record->kind] && record->ns >= 0) {
            handlers[record->kind](trace, record);
            trace->last_ns = record->ns > trace->last_ns ? record->ns : trace->last_ns;
        }
    }
    end_all(trace);
    return trace->failed ? AIO_NO_MEMORY : 0;
}

aio_trace *aio_trace_new(void) {
    return calloc(1, sizeof(aio_trace));
}

void aio_trace_free(aio_trace *trace) {
    free(trace->cells);
    free(trace->events);
    free(trace->tracks);
    free(trace->lanes);
    free(trace->groups);
    free(trace->arrivals);
    free(trace->generations);
    free(trace);
}

const aio_trace_event *aio_trace_events(const aio_trace *trace, int *count) {
    *count = trace->event_count;
    return trace->events;
}

const aio_trace_track *aio_trace_tracks(const aio_trace *trace, int *count) {
    *count = trace->track_count;
    return trace->tracks;
}
