/*
 * Events as packets of Perfetto's trace format, which is protobuf: a tag and a value for each field. The names
 * of events and of annotations are interned: Python writes the packet that defines them (_trace/perfetto.py).
 */
#include <string.h>

#include "internal.h"

/* Tags: the number of the field times 8, plus 0 for a varint, 1 for 8 bytes, 2 for bytes with a length. */
enum {
    PACKET = 1 << 3 | 2,   /* Trace.packet */
    TIMESTAMP = 8 << 3,    /* TracePacket */
    SEQUENCE_ID = 10 << 3, /* .trusted_packet_sequence_id */
    TRACK_EVENT = 11 << 3 | 2,
    SEQUENCE_FLAGS = 13 << 3,
    ANNOTATION = 4 << 3 | 2, /* TrackEvent.debug_annotations */
    TYPE = 9 << 3,
    NAME_IID = 10 << 3,
    TRACK_UUID = 11 << 3,
    COUNTER_VALUE = 30 << 3,
    FLOW_IDS = 47 << 3 | 1,
    ANNOTATION_NAME = 1 << 3, /* DebugAnnotation.name_iid */
    ANNOTATION_INT = 4 << 3,
    NEEDS_STATE = 2 /* SEQ_NEEDS_INCREMENTAL_STATE */
};

enum { FLOWS_AT_ONCE = 24, BODY_BYTES = 96 + FLOWS_AT_ONCE * 10 };

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_number(uint8_t *at, uint32_t tag, uint64_t value) {
    return put_varint(put_varint(at, tag), value);
}

static uint8_t *put_bytes(uint8_t *at, uint32_t tag, const uint8_t *bytes, size_t size) {
    at = put_number(at, tag, size);
    memcpy(at, bytes, size);
    return at + size;
}

static uint8_t *put_flow(uint8_t *at, uint64_t flow) {
    at = put_varint(at, FLOW_IDS);
    for (int byte = 0; byte < 8; byte++) {
        *at++ = (uint8_t)(flow >> (8 * byte));
    }
    return at;
}

static uint8_t *put_annotation(uint8_t *at, const aio_trace_event *event) {
    uint8_t body[24], *end = put_number(body, ANNOTATION_NAME, event->value_name);
    end = put_number(end, ANNOTATION_INT, (uint64_t)event->value);
    return put_bytes(at, ANNOTATION, body, (size_t)(end - body));
}

/* Writes a TrackEvent. `flows` events of the type FLOW follow the event. */
static uint8_t *put_body(uint8_t *at, const aio_trace_event *event, int flows, uint64_t first_uuid) {
    at = put_number(at, TYPE, event->type);
    at = put_number(at, TRACK_UUID, first_uuid + event->track);
    if (event->type == AIO_EVENT_COUNTER) {
        return put_number(at, COUNTER_VALUE, (uint64_t)event->value);
    }
    if (event->name) {
        at = put_number(at, NAME_IID, event->name);
    }
    if (event->value_name) {
        at = put_annotation(at, event);
    }
    if (event->flow) {
        at = put_flow(at, event->flow);
    }
    for (int index = 1; index <= flows; index++) {
        at = put_flow(at, event[index].flow);
    }
    return at;
}

int64_t aio_trace_encode(const aio_trace_event *events, int count, uint64_t first_uuid, uint32_t sequence,
                         uint8_t *out, int64_t size) {
    uint8_t body[BODY_BYTES], packet[BODY_BYTES + 48];
    int64_t used = 0;
    for (int index = 0; index < count;) {
        const aio_trace_event *event = &events[index++];
        int flows = 0;
        while (index < count && events[index].type == AIO_EVENT_FLOW) {
            flows += flows < FLOWS_AT_ONCE;
            index++;
        }
        uint8_t *body_end = put_body(body, event, flows, first_uuid);
        uint8_t *end = put_number(packet, TIMESTAMP, (uint64_t)event->ns);
        end = put_number(end, SEQUENCE_ID, sequence);
        end = put_number(end, SEQUENCE_FLAGS, NEEDS_STATE);
        end = put_bytes(end, TRACK_EVENT, body, (size_t)(body_end - body));
        int64_t needed = used + (end - packet) + 8;
        if (needed <= size) {
            used = put_bytes(out + used, PACKET, packet, (size_t)(end - packet)) - out;
        } else {
            used = needed;
        }
    }
    return used;
}
