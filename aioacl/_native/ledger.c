/*
 * What is known of a stream: how far it is, how its entries ended, and which bytes are still to be delivered.
 *
 * The ledger holds ranges of positions that ended in an error.  The runtime delivers a task's error once, to
 * whoever synchronizes first; written down here, it is raised by every wait that the collection covered, early,
 * late or again.  An error is owed to the whole range, since the runtime does not say which task it was.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* --- lists -------------------------------------------------------------------- */
static void free_marks(aio_event *mark) {
    while (mark) {
        aio_event *next = mark->next;
        aio_event_drop(mark);
        mark = next;
    }
}

void aio_landings_free(int device, aio_landing *landing) {
    while (landing) {
        aio_landing *next = landing->next;
        aio_stage_release(device, landing->slot);
        free(landing);
        landing = next;
    }
}

static void free_ledger(aio_verdict *verdict) {
    while (verdict) {
        aio_verdict *next = verdict->next;
        free(verdict->text);
        free(verdict);
        verdict = next;
    }
}

void aio_stream_empty(aio_stream *stream) {
    free_marks(stream->marks);
    aio_landings_leave(stream->device, stream->landings);
    free_ledger(stream->ledger);
}

aio_landing *aio_stream_forsake(aio_stream *stream) {
    for (unsigned turn = 0; atomic_exchange(&stream->delivering, true); turn++)
        aio_pause(turn);
    aio_lock_take(&stream->lock);
    aio_landing *landings = stream->landings;
    stream->landings = NULL;
    stream->landings_end = &stream->landings;
    aio_lock_give(&stream->lock);
    atomic_store(&stream->delivering, false);
    return landings;
}

/* --- how far, and how it ended ------------------------------------------------ */
void aio_raise(_Atomic uint64_t *value, uint64_t position) {
    uint64_t seen = atomic_load(value);
    while (seen < position && !atomic_compare_exchange_weak(value, &seen, position))
        continue;
}

void aio_stream_finish(aio_stream *stream, uint64_t position) {
    aio_event *gone = NULL, **gone_end = &gone;
    aio_lock_take(&stream->lock);
    aio_raise(&stream->finished, position);
    while (stream->marks && stream->marks->position <= position) {
        aio_event *mark = stream->marks;
        stream->marks = mark->next;
        if (!stream->marks)
            stream->marks_end = &stream->marks;
        mark->next = NULL;
        *gone_end = mark;
        gone_end = &mark->next;
    }
    aio_lock_give(&stream->lock);
    free_marks(gone);
}

static void widen(aio_verdict *told, const aio_verdict *verdict) {
    told->from = verdict->from < told->from ? verdict->from : told->from;
    told->to = verdict->to > told->to ? verdict->to : told->to;
}

/* Of a full ledger the two oldest become one, with what is between them: rather an error too many than one
 * lost. */
static aio_verdict *merge_oldest(aio_stream *stream) {
    aio_verdict *second = stream->ledger;
    while (second->next->next)
        second = second->next;
    aio_verdict *oldest = second->next;
    second->next = NULL;
    widen(second, oldest);
    stream->ledger_size--;
    return oldest;
}

/* What the ledger says already with the same code: of a part of the range, or of all of it and more. */
static aio_verdict *nested(const aio_stream *stream, const aio_verdict *verdict) {
    aio_verdict *told = stream->ledger;
    for (; told; told = told->next) {
        bool within = verdict->from >= told->from && verdict->to <= told->to;
        bool around = verdict->from <= told->from && verdict->to >= told->to;
        if (told->code == verdict->code && (within || around))
            break;
    }
    return told;
}

/* Returns what has no place in the ledger. */
static aio_verdict *enter(aio_stream *stream, aio_verdict *verdict) {
    aio_verdict *told = nested(stream, verdict);
    if (told) {
        widen(told, verdict);
        return verdict;
    }
    verdict->next = stream->ledger;
    stream->ledger = verdict;
    return ++stream->ledger_size > AIO_LEDGER_ENTRIES ? merge_oldest(stream) : NULL;
}

/* A wait that is repeated, or asked for the whole device, may bring the same code again and again: that must
 * not push out what is known of older work. */
void aio_stream_judge(aio_stream *stream, uint64_t from, uint64_t to, int32_t code, const char *text) {
    aio_verdict *verdict = from < to ? calloc(1, sizeof *verdict) : NULL;
    if (!verdict)
        return;
    *verdict = (aio_verdict){NULL, from, to, code, text && *text ? strdup(text) : NULL};
    aio_lock_take(&stream->lock);
    verdict = enter(stream, verdict);
    aio_lock_give(&stream->lock);
    free_ledger(verdict);
}

/* Counted first and asked then, as in enqueue.c: whoever is inside the runtime with an entry that is not
 * counted yet knows of it, or we do of his entry. */
void aio_stream_blame(aio_stream *stream, uint64_t from, int32_t code, const char *text) {
    atomic_store(&stream->blame, code);
    atomic_fetch_add(&stream->blames, 1);
    aio_stream_judge(stream, from, atomic_load(&stream->tail), code, text);
}

int32_t aio_stream_error(aio_stream *stream, uint64_t position, char *text, size_t size) {
    int32_t code = 0;
    aio_lock_take(&stream->lock);
    for (aio_verdict *verdict = stream->ledger; verdict && !code; verdict = verdict->next) {
        if (position <= verdict->from || position > verdict->to)
            continue;
        code = verdict->code;
        if (size)
            text[0] = 0;
        if (size && verdict->text)
            strncat(text, verdict->text, size - 1);
    }
    aio_lock_give(&stream->lock);
    return code;
}

static aio_result outcome(aio_stream *stream, uint64_t position) {
    int32_t code = aio_stream_error(stream, position, NULL, 0);
    return code ? aio_failed(code) : (aio_result)position;
}

/* An ending that says when but not whether counts only while later work hides whether. */
bool aio_stream_over(aio_stream *stream, uint64_t position, aio_result *result) {
    uint64_t completed = atomic_load(&stream->completed);
    if (atomic_load(&stream->condemned) >= position && position > atomic_load(&stream->collected)) {
        *result = outcome(stream, position);
        return true;
    }
    bool known = atomic_load(&stream->collected) >= position;
    if (completed < position || !(known || atomic_load(&stream->tail) > completed))
        return false;
    *result = outcome(stream, position);
    return true;
}

aio_result aio_stream_known(aio_stream *stream, uint64_t position) {
    if (atomic_load(&stream->collected) < position || atomic_load(&stream->completed) < position)
        return aio_failed(AIO_PENDING);
    return outcome(stream, position);
}

/* --- delivery of staged downloads -------------------------------------------- */
static aio_landing *next_landing(aio_stream *stream) {
    aio_lock_take(&stream->lock);
    aio_landing *landing = stream->landings;
    if (landing && landing->position > atomic_load(&stream->finished))
        landing = NULL;
    if (!landing)
        aio_raise(&stream->completed, atomic_load(&stream->finished));
    aio_lock_give(&stream->lock);
    return landing;
}

/* The slot first: who sees that a copy is done, and needs its staging memory, finds it. */
static void pop_landing(aio_stream *stream, aio_landing *landing) {
    aio_stage_release(stream->device, landing->slot);
    aio_lock_take(&stream->lock);
    stream->landings = landing->next;
    if (!stream->landings)
        stream->landings_end = &stream->landings;
    aio_raise(&stream->completed, landing->position);
    aio_lock_give(&stream->lock);
    free(landing);
}

static bool undelivered(aio_stream *stream) {
    aio_lock_take(&stream->lock);
    uint64_t finished = atomic_load(&stream->finished);
    bool some = stream->landings && stream->landings->position <= finished;
    some = some || atomic_load(&stream->completed) < finished;
    aio_lock_give(&stream->lock);
    return some;
}

void aio_stream_deliver(aio_stream *stream) {
    while (undelivered(stream) && !atomic_exchange(&stream->delivering, true)) {
        for (aio_landing *landing; (landing = next_landing(stream));) {
            bool failed = aio_stream_error(stream, landing->position, NULL, 0) != 0;
            if (landing->target && !failed)
                memcpy(landing->target, landing->slot, landing->count);
            pop_landing(stream, landing);
        }
        atomic_store(&stream->delivering, false);
    }
}

/* Bytes to copy are the watcher's; without any, publishing `completed` costs nothing. */
bool aio_stream_has_bytes(aio_stream *stream) {
    bool some = false;
    aio_lock_take(&stream->lock);
    uint64_t finished = atomic_load(&stream->finished);
    for (aio_landing *l = stream->landings; l && l->position <= finished && !some; l = l->next)
        some = l->target != NULL;
    aio_lock_give(&stream->lock);
    return some;
}
