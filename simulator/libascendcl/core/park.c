/* Parked streams. A parked stream waits for a time, for a change such as the record of an event, or for both.
 */
#include "sim.h"

static void timed_add(stream_t *stream) {
    device_t *device = stream->device;
    stream->timed = true;
    stream->timed_prev = NULL;
    stream->timed_next = device->timed;
    if (device->timed != NULL) {
        device->timed->timed_prev = stream;
    }
    device->timed = stream;
}

static void timed_remove(stream_t *stream) {
    if (stream->timed_prev != NULL) {
        stream->timed_prev->timed_next = stream->timed_next;
    } else {
        stream->device->timed = stream->timed_next;
    }
    if (stream->timed_next != NULL) {
        stream->timed_next->timed_prev = stream->timed_prev;
    }
    stream->timed = false;
}

void stream_park(stream_t *stream, park_t park, park_list_t *list, int64_t wake_ns) {
    stream->park = park;
    stream->parked_on = list;
    stream->wake_ns = wake_ns;
    stream->polls = false;
    if (wake_ns != 0) {
        timed_add(stream);
    }
    if (list == NULL) {
        return;
    }
    stream->parked_next = NULL;
    stream->parked_prev = list->last;
    if (list->last != NULL) {
        list->last->parked_next = stream;
    } else {
        list->first = stream;
    }
    list->last = stream;
}

void stream_park_real(stream_t *stream, park_t park, park_list_t *list, int64_t wake_ns) {
    stream_park(stream, park, list, wake_ns);
    stream->polls = true;
}

void stream_park_polling(stream_t *stream, park_list_t *list, int64_t ns) {
    stream_park_real(stream, PARK_WORK, list, real_ns() + ns);
}

static void leave_park_list(stream_t *stream) {
    park_list_t *list = stream->parked_on;
    if (stream->parked_prev != NULL) {
        stream->parked_prev->parked_next = stream->parked_next;
    } else {
        list->first = stream->parked_next;
    }
    if (stream->parked_next != NULL) {
        stream->parked_next->parked_prev = stream->parked_prev;
    } else {
        list->last = stream->parked_prev;
    }
    stream->parked_on = NULL;
}

void stream_unpark(stream_t *stream) {
    if (stream->parked_on != NULL) {
        leave_park_list(stream);
    }
    if (stream->timed) {
        timed_remove(stream);
    }
    stream->park = PARK_NONE;
}

void park_kick_all(park_list_t *list) {
    while (list->first != NULL) {
        stream_t *stream = list->first;
        stream_unpark(stream);
        stream_kick(stream);
    }
}
