/*
 * Device times of executions, copies and fills, for a trace with `device_time`. A span is an entry between two
 * events that have timestamps. enqueue.c records the events; both are marks, so each has a position.
 *
 * An enqueuer pushes its span on a list of the device. The thread of the trace takes the list, asks for the end
 * of each span, and reads its timestamps, which are microseconds of the device's clock. There is one trace with
 * device times at a time, so `waiting` belongs to one thread. A span whose generation has ended is dropped: the
 * reset has destroyed its events.
 */
#include <stdlib.h>

#include "internal.h"

typedef struct span {
    struct span *next;
    aio_event *begin, *end;
    aio_span read;
} span;

atomic_bool aio_spans_wanted;
static _Atomic(span *) pushed[AIO_DEVICES];
static span *waiting[AIO_DEVICES]; /* of the reader, the oldest first */

static void free_span(span *one) {
    aio_event_drop(one->begin);
    aio_event_drop(one->end);
    free(one);
}

void aio_spans_add(const aio_stream *stream, const aio_frame *frame, uint64_t position, aio_event *end) {
    span *one = end ? malloc(sizeof *one) : NULL;
    if (!one) {
        aio_event_drop(frame->timed);
        if (end) {
            aio_event_drop(end);
        }
        return;
    }
    *one = (span){.begin = frame->timed, .end = end};
    one->read = (aio_span){.id = aio_flight_entry(stream, position),
                           .since_ns = frame->since_ns,
                           .generation = stream->generation,
                           .function = frame->function};
    _Atomic(span *) *list = &pushed[stream->device];
    one->next = atomic_load_explicit(list, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(list, &one->next, one, memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

/* Appends the pushed spans, which are in the list in reverse order, to those that wait. */
static void take_pushed(int device) {
    span *taken = atomic_exchange_explicit(&pushed[device], NULL, memory_order_acquire), *oldest = NULL;
    span **end = &waiting[device];
    while (taken) {
        span *next = taken->next;
        taken->next = oldest;
        oldest = taken;
        taken = next;
    }
    while (*end) {
        end = &(*end)->next;
    }
    *end = oldest;
}

/* Inside the gate. Returns 0, AIO_PENDING, or the code of a call. */
static int read_inside(span *one) {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    int code = aio_event_ask(one->end, &status);
    if (code || status != ACL_EVENT_RECORDED_STATUS_COMPLETE) {
        return code ? code : AIO_PENDING;
    }
    one->read.seen_ns = aio_now_ns();
    code = aio_acl.aclrtEventGetTimestamp(one->begin->handle, &one->read.began_us);
    return code ? code : aio_acl.aclrtEventGetTimestamp(one->end->handle, &one->read.ended_us);
}

static int read_span(int device, span *one) {
    aio_frame frame;
    aio_pass pass = aio_make_pass(device, one->read.generation, 0);
    int code = aio_begin(&frame, pass, AIO_WAIT, AIO_FN_aclrtEventGetTimestamp);
    if (code == 0) {
        code = read_inside(one);
        aio_end(&frame, code == AIO_PENDING ? 0 : code);
    }
    return code == AIO_RESETTING_NOW || code == AIO_DRAINING_NOW ? AIO_PENDING : code;
}

int aio_spans_read(int device, aio_span *spans, int size) {
    int count = 0;
    take_pushed(device);
    for (span **link = &waiting[device]; *link && count < size;) {
        span *one = *link;
        int code = read_span(device, one);
        if (code == AIO_PENDING) {
            link = &one->next;
            continue;
        }
        if (code == 0) {
            spans[count++] = one->read;
        }
        *link = one->next;
        free_span(one);
    }
    return count;
}

static void drop_all(void) {
    for (int device = 0; device < AIO_DEVICES; device++) {
        take_pushed(device);
        while (waiting[device]) {
            span *one = waiting[device];
            waiting[device] = one->next;
            free_span(one);
        }
    }
}

int aio_spans_start(void) {
    return !atomic_exchange(&aio_spans_wanted, true);
}

void aio_spans_stop(void) {
    atomic_store(&aio_spans_wanted, false);
    drop_all();
}
