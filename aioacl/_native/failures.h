/*
 * Failures: reports of them, links between streams, and error records.  failure.c holds the theory of
 * operation.
 */
#ifndef AIOACL_FAILURES_H
#define AIOACL_FAILURES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "codes.h"
#include "engine.h"

/* A task that failed.  Shared by the streams that it spoils; under the lock of failure.c. */
typedef struct aio_failure {
    struct aio_failure *next; /* among the failures of its device that the listeners do not have yet */
    int references;
    int32_t code;
    int32_t device;
    uint32_t generation;
    int32_t stream; /* its id */
    uint64_t position;
    bool collected; /* a caller has it */
    bool told;
    bool stops; /* it has stopped its context */
    char *text;
} aio_failure;

/* Positions from `from` on are spoilt. */
typedef struct {
    uint64_t from;
    aio_failure *failure; /* NULL: none */
} aio_spot;

/* An entry that waits for an event of another stream, or may fail without a report. */
typedef struct aio_link {
    struct aio_link *next;
    uint64_t position;
    aio_stream *source; /* a reference; NULL: it waits for nothing */
    uint64_t at;
    int64_t since_us; /* before it was enqueued */
    int64_t done_us;  /* when it was first seen complete; 0: not yet */
} aio_link;

/* Codes of this range are of the call that returns them, a context that is gone for instance, but for these. */
static inline bool aio_is_of_task(int32_t code) {
    return code / 1000 != 107 || code == RT_WAIT_TIMEOUT || code == RT_TASK_TIMEOUT;
}

/* Taken around everything below that is not atomic.  Streams whose last reference went meanwhile are freed when
 * it is given back. */
void aio_failures_lock(void);
void aio_failures_unlock(void);

/* failure.c: with the lock held. */
aio_failure *aio_failure_new(const aio_stream *stream, uint64_t position, int32_t code);
void aio_failure_drop(aio_failure *failure);
void aio_failure_keep_text(aio_failure *failure, const char *text);
/* Spoils what comes from there on.  False when it was spoilt already. */
bool aio_failure_spoil(aio_stream *stream, aio_spot *spot, uint64_t from, aio_failure *failure);
/* A task of the stream has failed; the listeners get it. */
void aio_failure_record(aio_stream *stream, uint64_t from, int32_t code, const char *text);
/* Positions from here on never complete. */
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

/* Of the one consumer, under the lock of failure.c. */
bool aio_report_take(aio_report *out);
bool aio_reports_lost(int device);
uint64_t aio_reports(void);
bool aio_reports_wait(void);
void aio_reports_resolved(uint64_t count);
/* To be called between the answer "complete" and what is concluded from it: attributes what was reported
 * before. */
void aio_failures_settle(void);

/* attribution.c. */
void aio_failures_resolve(void);
/* For the enqueuer, when `pending` is set: behind the count of an entry, and before a new one. */
void aio_failures_counted(aio_stream *stream);
void aio_failures_unlocked(aio_stream *stream);
void aio_stream_number(aio_stream *stream, int32_t id);
void aio_stream_unnumber(aio_stream *stream);
/* A synchronize that covers everything up to the position has returned that code. */
void aio_stream_synced(aio_stream *stream, uint64_t to, int32_t code, const char *text);
/* A wait for the whole device has returned that code, which may be of this stream. */
void aio_stream_share(aio_stream *stream, int32_t code, const char *text);
void aio_stream_fail(aio_stream *stream, uint64_t from, int32_t code, const char *text);
void aio_stream_dropped(aio_stream *stream, uint64_t from, uint64_t to);

/* link.c. */
/* The entry that the owner is about to enqueue waits for `at` of the source. */
int aio_link_add(aio_stream *stream, aio_stream *source, uint64_t at);
void aio_link_remove(aio_stream *stream);
void aio_link_check(aio_stream *stream);
void aio_links_free(aio_link *link);
/* Whether what the stream depends on, before it failed itself, is not known yet. */
bool aio_links_are_open(aio_stream *stream);
/* Frees those of the entries (from, to]. */
void aio_links_cut(aio_stream *stream, uint64_t from, uint64_t to);
/* Frees all, when no caller can ask any more what the stream depends on. */
void aio_links_release(aio_stream *stream);
void aio_stream_confirm(aio_stream *stream, uint64_t finished);
bool aio_stream_needs_sync(aio_stream *stream);
/* Has everything that the position depends on confirmed, by the function, until that does not help. */
typedef void (*aio_confirm)(aio_stream *stream, uint64_t position, bool aside);
void aio_links_follow(aio_stream *stream, uint64_t position, aio_confirm confirm, bool aside);
void aio_failures_after_reset(void);
/* With the lock held.  The second: the first wait up to the position that may have timed out, or 0. */
void aio_failures_propagate(void);
uint64_t aio_link_suspect(const aio_stream *stream, uint64_t to);

/* failure.c. */
/* Frees it, now or when the caller gives the lock back. */
void aio_stream_bury(aio_stream *stream);
void aio_stream_forget_failures(aio_stream *stream);

#endif
