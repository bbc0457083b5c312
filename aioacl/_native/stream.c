/*
 * Streams: enqueueing, and what is known of the outcome.
 *
 * An enqueue enters the gate, takes the stream's owner word, sees to room and marks, calls, counts and leaves;
 * it never waits.  Outcomes live in the ledger: the runtime delivers a task's error once, to whoever
 * synchronizes first, so whoever collects writes it down for every position that the collection covered.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* --- life -------------------------------------------------------------------- */
aio_stream *aio_stream_new(aio_pass pass, aclrtStream handle) {
    aio_stream *stream = calloc(1, sizeof *stream);
    struct aio_device *device = &aio_devices[aio_pass_device(pass)];
    if (!stream)
        return NULL;
    stream->handle = handle;
    stream->device = aio_pass_device(pass);
    stream->generation = aio_pass_generation(pass);
    atomic_init(&stream->references, 2); /* the handle's and the device's list */
    stream->marks_end = &stream->marks;
    stream->landings_end = &stream->landings;
    stream->tokens_end = &stream->tokens;
    aio_lock_take(&device->lock);
    stream->next = device->streams;
    device->streams = stream;
    aio_lock_give(&device->lock);
    return stream;
}

void aio_stream_hold(aio_stream *stream) {
    atomic_fetch_add(&stream->references, 1);
}

static void free_marks(aio_event *mark) {
    while (mark) {
        aio_event *next = mark->next;
        aio_event_drop(mark);
        mark = next;
    }
}

static void free_landings(int device, aio_landing *landing) {
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

void aio_stream_unhold(aio_stream *stream) {
    if (atomic_fetch_sub(&stream->references, 1) != 1)
        return;
    free_marks(stream->marks);
    free_landings(stream->device, stream->landings);
    free_ledger(stream->ledger);
    free(stream);
}

static bool unlink_stream(aio_stream *stream) {
    struct aio_device *device = &aio_devices[stream->device];
    bool found = false;
    aio_lock_take(&device->lock);
    for (aio_stream **link = &device->streams; *link; link = &(*link)->next) {
        if (*link != stream)
            continue;
        *link = stream->next;
        found = true;
        break;
    }
    aio_lock_give(&device->lock);
    return found;
}

bool aio_stream_use(aio_stream *stream) {
    atomic_fetch_add(&stream->callers, 1);
    if (!atomic_load(&stream->dropped))
        return true;
    atomic_fetch_sub(&stream->callers, 1);
    return false;
}

void aio_stream_unuse(aio_stream *stream) {
    atomic_fetch_sub(&stream->callers, 1);
}

void aio_stream_drop(aio_stream *stream) {
    atomic_store(&stream->dropped, true);
    if (unlink_stream(stream))
        aio_stream_unhold(stream);
    aio_stream_unhold(stream);
}

/* --- what is known ----------------------------------------------------------- */
static void raise_to(_Atomic uint64_t *value, uint64_t position) {
    uint64_t seen = atomic_load(value);
    while (seen < position && !atomic_compare_exchange_weak(value, &seen, position))
        continue;
}

void aio_stream_finish(aio_stream *stream, uint64_t position) {
    aio_event *gone = NULL, **gone_end = &gone;
    aio_lock_take(&stream->lock);
    raise_to(&stream->finished, position);
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

static void forget_oldest(aio_stream *stream) {
    aio_verdict **link = &stream->ledger;
    while (*link && (*link)->next)
        link = &(*link)->next;
    free_ledger(*link);
    *link = NULL;
    stream->ledger_size--;
}

void aio_stream_judge(aio_stream *stream, uint64_t from, uint64_t to, int32_t code, const char *text) {
    aio_verdict *verdict = calloc(1, sizeof *verdict);
    if (!verdict)
        return;
    *verdict = (aio_verdict){NULL, from, to, code, text && *text ? strdup(text) : NULL};
    aio_lock_take(&stream->lock);
    verdict->next = stream->ledger;
    stream->ledger = verdict;
    if (++stream->ledger_size > AIO_LEDGER_ENTRIES)
        forget_oldest(stream);
    aio_lock_give(&stream->lock);
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
        raise_to(&stream->completed, atomic_load(&stream->finished));
    aio_lock_give(&stream->lock);
    return landing;
}

static void pop_landing(aio_stream *stream, aio_landing *landing) {
    aio_lock_take(&stream->lock);
    stream->landings = landing->next;
    if (!stream->landings)
        stream->landings_end = &stream->landings;
    raise_to(&stream->completed, landing->position);
    aio_lock_give(&stream->lock);
    aio_stage_release(stream->device, landing->slot);
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
static bool has_bytes(aio_stream *stream) {
    bool some = false;
    aio_lock_take(&stream->lock);
    uint64_t finished = atomic_load(&stream->finished);
    for (aio_landing *l = stream->landings; l && l->position <= finished && !some; l = l->next)
        some = l->target != NULL;
    aio_lock_give(&stream->lock);
    return some;
}

/* --- asking ------------------------------------------------------------------ */
static void keep_verdict(aio_stream *stream, int32_t code, uint64_t to) {
    uint64_t from = atomic_load(&stream->collected);
    if (code)
        aio_keep_text();
    if (code)
        aio_stream_judge(stream, from, to, code, aio_error_text());
}

aio_event *aio_stream_mark_for(aio_stream *stream, uint64_t position) {
    aio_lock_take(&stream->lock);
    aio_event *mark = stream->marks;
    while (mark && mark->position < position)
        mark = mark->next;
    if (mark)
        aio_event_hold(mark);
    aio_lock_give(&stream->lock);
    return mark;
}

/* "Complete" is not "success": synchronizing returns at once now, and in STOP mode it carries the code. */
static int ask_mark(aio_stream *stream, aio_event *mark, bool *done) {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    int code = aio_acl.aclrtQueryEventStatus(mark->handle, &status);
    *done = code == 0 && status == ACL_EVENT_RECORDED_STATUS_COMPLETE;
    if (!*done)
        return code;
    code = aio_acl.aclrtSynchronizeEvent(mark->handle);
    keep_verdict(stream, code, mark->position);
    aio_stream_finish(stream, mark->position);
    return 0;
}

int aio_stream_ask_marks(aio_stream *stream) {
    for (;;) {
        aio_event *mark = aio_stream_mark_for(stream, 0);
        bool done = false;
        if (!mark)
            return 0;
        int code = ask_mark(stream, mark, &done);
        aio_event_drop(mark);
        if (!done)
            return code;
    }
}

static bool take_owner(aio_stream *stream, uint32_t as) {
    uint32_t nobody = AIO_NOBODY;
    return atomic_compare_exchange_strong(&stream->owner, &nobody, as);
}

static void give_owner(aio_stream *stream) {
    atomic_store_explicit(&stream->owner, AIO_NOBODY, memory_order_release);
}

/* 1 idle, 0 busy, or the code that the query answered. */
static int idle(aio_stream *stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    int code = aio_acl.aclrtStreamQuery(stream->handle, &status);
    return code ? code : status == ACL_STREAM_STATUS_COMPLETE;
}

/*
 * Nobody can enqueue while the collector owns the stream, so an idle stream stays idle and the synchronize
 * returns at once; without that, it would park in C behind whatever was enqueued in between.
 */
static bool collect_owned(aio_stream *stream, int32_t *code) {
    int answer = idle(stream);
    *code = answer == 1 ? aio_acl.aclrtSynchronizeStream(stream->handle) : answer;
    return answer != 0;
}

static bool collect_all(aio_stream *stream) {
    int32_t code = 0;
    uint64_t tail = atomic_load(&stream->tail);
    bool done = collect_owned(stream, &code);
    if (done)
        keep_verdict(stream, code, tail);
    if (done)
        aio_stream_finish(stream, tail);
    if (done)
        raise_to(&stream->collected, tail);
    return done;
}

static bool collect_used(aio_stream *stream) {
    if (idle(stream) == 0 || !take_owner(stream, AIO_COLLECTOR))
        return false;
    bool done = collect_all(stream);
    give_owner(stream);
    return done;
}

bool aio_stream_collect(aio_stream *stream) {
    if (atomic_load(&stream->collected) == atomic_load(&stream->tail))
        return true;
    if (!aio_stream_use(stream))
        return false;
    bool done = collect_used(stream);
    aio_stream_unuse(stream);
    return done;
}

/* The owner word stays taken for ever: whoever would enqueue sees that the stream is dropped. */
static int destroy_owned(aio_stream *stream) {
    atomic_store(&stream->dropped, true);
    if (atomic_load(&stream->callers) == 0 && collect_all(stream))
        return 0;
    atomic_store(&stream->dropped, false);
    give_owner(stream);
    return AIO_PENDING;
}

int aio_stream_destroy(aio_stream *stream) {
    aio_frame frame;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_LIFETIME, AIO_FN_aclrtDestroyStream);
    if (code)
        return code;
    code = atomic_load(&stream->dropped) ? AIO_STALE : AIO_PENDING;
    if (code == AIO_PENDING && take_owner(stream, AIO_COLLECTOR))
        code = destroy_owned(stream);
    if (code == 0)
        code = aio_acl.aclrtDestroyStream(stream->handle);
    aio_end(&frame, code > 0 ? code : 0);
    if (code != AIO_PENDING && unlink_stream(stream))
        aio_stream_unhold(stream);
    return code;
}

void aio_stream_condemn(aio_stream *stream, int32_t code) {
    uint64_t tail = atomic_load(&stream->tail);
    keep_verdict(stream, code, tail);
    aio_stream_finish(stream, tail);
    raise_to(&stream->collected, tail);
}

static aio_result poll_inside(aio_stream *stream, uint64_t position) {
    aio_result result;
    if (aio_stream_collect(stream) && !has_bytes(stream))
        aio_stream_deliver(stream);
    return aio_stream_over(stream, position, &result) ? result : aio_failed(AIO_PENDING);
}

aio_result aio_stream_poll(aio_stream *stream, uint64_t position) {
    aio_frame frame;
    aio_result result = aio_stream_known(stream, position);
    if (result != aio_failed(AIO_PENDING))
        return result;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamQuery);
    if (code)
        return aio_failed(code);
    result = poll_inside(stream, position);
    aio_end(&frame, 0);
    return result;
}

static int query_inside(aio_stream *stream, uint64_t position) {
    int code = aio_stream_ask_marks(stream);
    if (code == 0 && atomic_load(&stream->finished) < position && aio_stream_use(stream)) {
        uint64_t tail = atomic_load(&stream->tail);
        int answer = idle(stream);
        if (answer == 1)
            aio_stream_finish(stream, tail);
        else
            code = answer;
        aio_stream_unuse(stream);
    }
    aio_stream_deliver(stream);
    return code ? code : atomic_load(&stream->completed) >= position;
}

int aio_stream_query(aio_stream *stream, uint64_t position) {
    aio_frame frame;
    if (atomic_load(&stream->completed) >= position)
        return 1;
    int code = aio_begin(&frame, aio_stream_pass(stream, 0), AIO_WAIT, AIO_FN_aclrtStreamQuery);
    if (code)
        return code;
    code = query_inside(stream, position);
    aio_end(&frame, code == 1 ? 0 : code);
    return code;
}
