/*
 * Finds which positions have failed or were dropped, from the callback's reports, the code of a synchronize,
 * and aborts.
 *
 * A report contains the id of the failed task. The report may come before the enqueuer has read the id of this
 * task. Then the stream stores the id in `pending_task`; of several such ids, it stores the lowest. After the
 * enqueuer has counted its entry, it compares the stored id with the id of the entry (aio_failures_counted).
 *
 * The report of a failed execution of a model has the ids of a stream of the runtime. Only its thread is
 * known: the one that enqueued the execution. So the first unfinished execution that this thread has enqueued
 * on a stream counts as failed.
 */
#include "internal.h"

enum { NO_ID = -1, DROPPED_AT_MOST = 1 << 20 };

/* Whether the task `id` is the task `failed` or a later one. Task ids wrap around, so the sign of their
 * difference is used. */
static bool reaches(uint32_t id, uint32_t failed) {
    return (int32_t)(id - failed) >= 0;
}

/* Returns the position of the entry that contains the task; 0 if this entry is not counted yet. */
static uint64_t position_of(const aio_stream *stream, uint32_t task) {
    uint64_t tail = atomic_load(&stream->tail), first = atomic_load(&stream->finished) + 1;
    if (!stream->numbered) {
        return 0;
    }
    for (uint64_t at = first > stream->numbered ? first : stream->numbered; at <= tail; at++) {
        if (reaches(atomic_load(&stream->ids[at % AIO_RING]), task)) {
            return at;
        }
    }
    return 0;
}

/* With the lock held: attributes a report that came before its task was counted. */
static bool settle_pending(aio_stream *stream) {
    uint64_t position = atomic_load(&stream->pending) ? position_of(stream, stream->pending_task) : 0;
    if (!position) {
        return false;
    }
    atomic_store(&stream->pending, false);
    aio_failure_record(stream, position, stream->pending_code, NULL);
    return true;
}

/* Attributes a pending report. To be called with the lock held, while no enqueuer is about to count an entry.
 * So if the failed task is not counted, it was enqueued by direct ACL calls, after all counted entries. */
static void settle_manual(aio_stream *stream) {
    uint64_t next = atomic_load(&stream->tail) + 1;
    if (!atomic_load(&stream->pending) || settle_pending(stream)) {
        return;
    }
    atomic_store(&stream->pending, false);
    aio_failure_record(stream, next, stream->pending_code, NULL);
}

/* This thread first sets `pending` and then searches the position. The enqueuer first counts its entry and then
 * reads `pending`. So one of the two threads finds the position. An enqueuer owns the stream before it calls
 * the runtime. So if the stream has no owner, the task was enqueued by direct ACL calls. */
static void set_pending(aio_stream *stream, const aio_report *report) {
    if (!atomic_load(&stream->pending) || reaches(stream->pending_task, report->task)) {
        stream->pending_task = report->task;
        stream->pending_code = report->code;
    }
    atomic_store(&stream->pending, true);
    if (atomic_load(&stream->owner) == AIO_ENQUEUER) {
        settle_pending(stream);
    } else {
        settle_manual(stream);
    }
}

static bool matches(const aio_stream *stream, const aio_report *report) {
    return stream->generation == report->generation && stream->id == (int32_t)report->stream;
}

/* Whether an abort has dropped the task. The reports of a stream come in order. So if work that was enqueued
 * after the abort is done, no later report is about a dropped task. */
static bool was_dropped(const aio_stream *stream, uint32_t task) {
    bool open = stream->aborted_to && atomic_load(&stream->finished) <= stream->aborted_to;
    return open && stream->aborted_task - task < DROPPED_AT_MOST;
}

static void attribute_to(aio_stream *stream, const aio_report *report) {
    if (was_dropped(stream, report->task)) {
        return;
    }
    uint64_t position = position_of(stream, report->task);
    if (position) {
        aio_failure_record(stream, position, report->code, NULL);
    } else {
        set_pending(stream, report);
    }
}

/* Whether the stream may have unfinished work. The owner is read first, because an enqueuer counts its entry
 * before it releases the stream. */
static bool may_have_work(const aio_stream *stream) {
    return atomic_load(&stream->owner) == AIO_ENQUEUER ||
           atomic_load(&stream->finished) < atomic_load(&stream->tail);
}

/* Called when the whole device has failed, or when reports were lost. All work that is not known to be complete
 * counts as failed. After a failure of the device, such work may also never complete. */
static void fail_device(int device, uint32_t generation, int32_t code) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (stream->generation != generation || !may_have_work(stream)) {
            continue;
        }
        uint64_t from = atomic_load(&stream->finished) + 1;
        aio_failure_record(stream, from, code, NULL);
        if (code != AIO_REPORTS_LOST) {
            aio_failure_strand(stream, from);
        }
    }
}

/* Returns the first unfinished position that is an execution enqueued by the thread; 0 if there is none. */
static uint64_t execution_of(const aio_stream *stream, uint32_t thread) {
    const _Atomic uint32_t *runners = atomic_load(&stream->runners);
    uint64_t tail = atomic_load(&stream->tail);
    for (uint64_t at = atomic_load(&stream->finished) + 1; runners && at <= tail; at++) {
        if (atomic_load(&runners[at % AIO_RING]) == thread) {
            return at;
        }
    }
    return 0;
}

/* Returns whether the thread has an unfinished execution on the stream, which then counts as failed. */
static bool attribute_execution(aio_stream *stream, const aio_report *report) {
    uint64_t position = execution_of(stream, report->thread);
    if (position) {
        aio_failure_record(stream, position, report->code, NULL);
        return true;
    }
    if (stream->runner == report->thread) {
        stream->early_code = report->code;
        return true;
    }
    return false;
}

static bool attribute_by_thread(const aio_report *report) {
    bool found = false;
    for (aio_stream *stream = NULL; (stream = aio_device_next(report->device, stream));) {
        if (stream->generation == report->generation && attribute_execution(stream, report)) {
            found = true;
        }
    }
    return found;
}

static void attribute(const aio_report *report) {
    bool found = false;
    if (report->stream == UINT32_MAX) {
        fail_device(report->device, report->generation, report->code);
        return;
    }
    for (aio_stream *stream = NULL; (stream = aio_device_next(report->device, stream));) {
        if (!matches(stream, report)) {
            continue;
        }
        attribute_to(stream, report);
        found = true;
    }
    if (!found && !attribute_by_thread(report)) {
        atomic_fetch_add(&aio_devices[report->device].unattributed, 1);
    }
}

void aio_failures_resolve(void) {
    aio_report report;
    aio_failures_lock();
    uint64_t seen = aio_reports();
    while (aio_report_take(&report)) {
        attribute(&report);
    }
    for (int device = 0; device < AIO_DEVICES; device++) {
        if (aio_reports_lost(device)) {
            fail_device(device, aio_word_generation(aio_gate_word(device)), AIO_REPORTS_LOST);
        }
    }
    aio_failures_propagate();
    aio_reports_resolved(seen);
    aio_failures_unlock();
}

void aio_failures_settle(void) {
    atomic_thread_fence(memory_order_seq_cst);
    if (aio_reports_wait()) {
        aio_failures_resolve();
    }
}

/* Attributes a pending report. The caller owns the stream, and has counted every entry that it has enqueued. */
void aio_failures_counted(aio_stream *stream) {
    aio_failures_lock();
    settle_manual(stream);
    aio_failures_propagate();
    aio_failures_unlock();
}

/* Called after the caller has released the stream. If an enqueuer owns the stream by now, this enqueuer also
 * checks `pending` after it has released the stream. */
void aio_failures_unlocked(aio_stream *stream) {
    aio_failures_lock();
    if (atomic_load(&stream->owner) != AIO_ENQUEUER) {
        settle_manual(stream);
    }
    aio_failures_propagate();
    aio_failures_unlock();
}

void aio_failures_running(aio_stream *stream, uint32_t thread) {
    aio_failures_lock();
    stream->runner = thread;
    stream->early_code = 0;
    aio_failures_unlock();
}

/* If the call has failed, no entry was counted, and the failure of an earlier entry is known already. */
void aio_failures_ran(aio_stream *stream) {
    uint64_t tail = atomic_load(&stream->tail);
    aio_failures_lock();
    if (stream->early_code) {
        aio_failure_record(stream, tail, stream->early_code, NULL);
        aio_failures_propagate();
    }
    stream->runner = 0;
    aio_failures_unlock();
}

void aio_stream_number(aio_stream *stream, int32_t id) {
    aio_failures_settle(); /* reports of an older stream with this id must not be attributed to this one */
    aio_failures_lock();
    stream->id = id;
    stream->identified = id >= 0 && aio_present[AIO_FN_aclrtGetThreadLastTaskId];
    aio_failures_unlock();
}

/* Called before the native stream is destroyed. After this call, a report with the stream's id is about a newer
 * stream. */
void aio_stream_unnumber(aio_stream *stream) {
    aio_failures_settle();
    aio_failures_lock();
    stream->id = NO_ID;
    aio_failures_unlock();
}

static void record_error_all(aio_stream *stream, uint64_t to, int32_t code, const char *text) {
    bool exact = aio_stream_is_exact(stream);
    /* The runtime stores one code for each stream. Even if this code is from a reported task, a wait may also
     * have timed out. */
    uint64_t from = exact ? aio_link_suspect(stream, to) : atomic_load(&stream->confirmed) + 1;
    /* If failed tasks are reported, the code may be from a task after `to`. Such a task was enqueued by direct
     * ACL calls, or during the synchronize. */
    bool known = stream->own.failure && (exact || stream->own.from <= to);
    if (from || !known) {
        aio_failure_record(stream, from ? from : atomic_load(&stream->confirmed) + 1, code, text);
    }
    aio_failure_keep_text(stream->own.failure, text);
}

void aio_stream_synced(aio_stream *stream, uint64_t to, int32_t code, const char *text) {
    aio_failures_settle();
    aio_failures_lock();
    if (code) {
        record_error_all(stream, to, code, text);
        aio_failures_propagate();
    }
    aio_atomic_max(&stream->synced, to);
    aio_failures_unlock();
    aio_stream_confirm(stream, atomic_load(&stream->finished));
}

/* Returns the first position that may have failed without a report; 0 if there is none. The tasks of an open
 * launch block are not counted yet. The end of the block adds a link before it counts them. */
static uint64_t first_unsure(aio_stream *stream, bool launching) {
    if (!aio_stream_is_exact(stream)) {
        return atomic_load(&stream->confirmed) + 1;
    }
    uint64_t suspect = aio_link_suspect(stream, UINT64_MAX);
    return suspect || !launching ? suspect : atomic_load(&stream->tail) + 1;
}

void aio_stream_share(aio_stream *stream, int32_t code, const char *text) {
    bool launching = aio_stream_is_launching_unreported(stream);
    aio_failures_lock();
    uint64_t from = first_unsure(stream, launching);
    if (from) {
        aio_failure_record(stream, from, code, text);
        aio_failures_propagate();
    }
    aio_failures_unlock();
}

void aio_stream_fail(aio_stream *stream, uint64_t from, int32_t code, const char *text) {
    aio_failures_lock();
    aio_failure_record(stream, from, code, text);
    aio_failures_propagate();
    aio_failures_unlock();
}

/* Of the positions that were finished before the abort, returns the last one whose outcome is certain. The
 * abort has also dropped the stream's code. So if a finished position could be confirmed only by a synchronize,
 * it can no longer be confirmed. */
static uint64_t sure_of(aio_stream *stream, uint64_t finished) {
    uint64_t confirmed = atomic_load(&stream->confirmed);
    if (!aio_stream_is_exact(stream)) {
        return confirmed < finished ? confirmed : finished;
    }
    aio_failures_lock();
    uint64_t suspect = aio_link_suspect(stream, finished);
    aio_failures_unlock();
    return suspect ? suspect - 1 : finished;
}

/* Records that an abort has dropped the entries (from, to]. Neither a report nor a synchronize shows that this
 * work was dropped. */
void aio_stream_dropped(aio_stream *stream, uint64_t from, uint64_t to) {
    aio_failures_settle();
    from = sure_of(stream, from);
    if (from >= to) {
        return;
    }
    aio_stream_note_abort(stream, from, to);
    aio_links_cut(stream, from, to); /* the dropped entries no longer wait for anything */
    aio_failures_lock();
    atomic_store(&stream->pending, false);
    stream->aborted_to = atomic_load(&stream->numbered) ? to : 0;
    stream->aborted_task = stream->last_task;
    aio_failures_propagate();
    aio_failures_unlock();
}
