/* Failures: reports, links between streams, and error records. failure.c has the theory of operation. */
#ifndef AIOACL_FAILURES_H
#define AIOACL_FAILURES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "codes.h"
#include "engine.h"

/* The failure of a task. If this failure affects a stream, the stream's error record refers to the failure.
 * Guarded by the lock of the failures. */
typedef struct aio_failure {
    struct aio_failure *next; /* in the list of the device's failures that are not reported yet */
    int references;
    int32_t code;
    int32_t device;
    uint32_t generation;
    int32_t stream; /* the stream's id */
    uint64_t position;
    bool collected; /* a caller has received the failure */
    bool stops;     /* the failure has stopped its context */
    char *text;
} aio_failure;

/* An error record: positions from `from` on have failed. */
typedef struct {
    uint64_t from;
    aio_failure *failure; /* NULL: none */
} aio_spot;

/* An entry that waits for an event of another stream, or may fail without a report. */
typedef struct aio_link {
    struct aio_link *next;
    uint64_t position;
    aio_stream *source; /* a reference; NULL: the entry waits for nothing */
    uint64_t at;
    int64_t since_us; /* a time before the entry was enqueued */
    int64_t done_us;  /* when the entry was first seen complete; 0: not yet */
} aio_link;

/* Whether the code is the failure of a task. Most codes from 107000 to 107999 are errors of the call itself,
 * for example that the context does not exist. */
static inline bool aio_is_of_task(int32_t code) {
    return code / 1000 != 107 || code == RT_WAIT_TIMEOUT || code == RT_TASK_TIMEOUT;
}

/* The lock guards all data of this header that is not atomic. Streams whose last reference is dropped under the
 * lock are freed when the lock is released. */
void aio_failures_lock(void);
void aio_failures_unlock(void);

/* failure.c: with the lock held. */
aio_failure *aio_failure_new(const aio_stream *stream, uint64_t position, int32_t code);
void aio_failure_drop(aio_failure *failure);
void aio_failure_keep_text(aio_failure *failure, const char *text);
/* Records the failure for the positions from `from` on. False if a failure was recorded already for the same or
 * an earlier position. */
bool aio_failure_spoil(aio_stream *stream, aio_spot *spot, uint64_t from, aio_failure *failure);
/* Records that a task of the stream has failed, and announces it to the listeners. */
void aio_failure_record(aio_stream *stream, uint64_t from, int32_t code, const char *text);
/* Records that positions from `from` on never complete. */
void aio_failure_strand(aio_stream *stream, uint64_t from);
const aio_spot *aio_failure_spot(const aio_stream *stream, uint64_t position);

/* report.c. */
typedef struct {
    uint32_t generation;
    int32_t device;
    uint32_t stream;
    uint32_t task;
    uint32_t thread;
    int32_t code;
} aio_report;

/* Called by one consumer at a time, with the lock held. */
bool aio_report_take(aio_report *out);
bool aio_reports_lost(int device);
uint64_t aio_reports(void);
bool aio_reports_wait(void);
void aio_reports_resolved(uint64_t count);

/* attribution.c. */
void aio_failures_resolve(void);
/* Attributes the failures that were reported until now. To be called after the runtime's answer "complete",
 * before the engine uses the answer. */
void aio_failures_settle(void);
/* To be called by the enqueuer when `pending` is set: after it has counted an entry, and before it enqueues
 * one. */
void aio_failures_counted(aio_stream *stream);
/* Called before aclmdlExecuteAsync, and after its entry was counted. A report of this thread may come between.
 */
void aio_failures_running(aio_stream *stream, uint32_t thread);
void aio_failures_ran(aio_stream *stream);
void aio_failures_unlocked(aio_stream *stream);
void aio_stream_number(aio_stream *stream, int32_t id);
void aio_stream_unnumber(aio_stream *stream);
/* Records the code of a synchronize that covers the positions up to `to`. */
void aio_stream_synced(aio_stream *stream, uint64_t to, int32_t code, const char *text);
/* Records the code of a wait for the whole device, which may be a failure of this stream. */
void aio_stream_share(aio_stream *stream, int32_t code, const char *text);
void aio_stream_fail(aio_stream *stream, uint64_t from, int32_t code, const char *text);
void aio_stream_dropped(aio_stream *stream, uint64_t from, uint64_t to);

/* link.c. */
/* Adds a link for the next entry of the stream. The entry waits for the position `at` of the source. If the
 * source is NULL, the entry may fail without a report. */
int aio_link_add(aio_stream *stream, aio_stream *source, uint64_t at);
void aio_link_remove(aio_stream *stream);
void aio_link_check(aio_stream *stream);
void aio_links_free(aio_link *link);
/* Whether the stream waits for work whose outcome is unknown. False if the waiting entry is known to have
 * failed. */
bool aio_links_are_open(aio_stream *stream);
/* Frees the links of the entries (from, to]. */
void aio_links_cut(aio_stream *stream, uint64_t from, uint64_t to);
/* Frees all links. To be called when no caller can query the stream any more. */
void aio_links_release(aio_stream *stream);
void aio_stream_confirm(aio_stream *stream, uint64_t finished);
bool aio_stream_needs_sync(aio_stream *stream);
/* Calls the function for each unconfirmed position that this position depends on, on other streams. Stops after
 * a call that has not confirmed its position. */
typedef void (*aio_confirm)(aio_stream *stream, uint64_t position, bool aside);
void aio_links_follow(aio_stream *stream, uint64_t position, aio_confirm confirm, bool aside);
void aio_failures_after_reset(void);
/* Both functions are called with the lock held. aio_link_suspect returns the position of the first wait, up to
 * `to`, that may have timed out; 0 if there is none. */
void aio_failures_propagate(void);
uint64_t aio_link_suspect(const aio_stream *stream, uint64_t to);

/* record.c. */
/* Frees the stream now. If the caller has the lock, the stream is freed when the lock is released. */
void aio_stream_free_unlocked(aio_stream *stream);
void aio_stream_forget_failures(aio_stream *stream);

#endif
