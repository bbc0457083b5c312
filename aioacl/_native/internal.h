/*
 * The engine's own structures, and its theory of operation.
 *
 * The gate. Each device has one atomic word: state and flags, generation, and how many calls of each kind are
 * inside C. A call enters by a compare-and-swap that both checks and counts, so the word cannot change between
 * the check and the count. Only the lifecycle manager writes the state. On a foreign reset, the device-state
 * callback sets FOREIGN and raises the generation. If a call finds the reset before the callback runs, the call
 * does this instead of the callback.
 *
 * A stream has two guards. `owner` is held during ACL calls that enqueue on the stream or destroy it, and while
 * an idle stream is synchronized. An enqueuer spins until it owns the stream, because an ACL call takes
 * microseconds. Other threads try only once, or for a short time. `lock` guards the lists of the stream. It is
 * held for a few instructions, and never during an ACL call. Positions count queue entries:
 *
 *     completed <= finished <= tail      and      confirmed <= finished
 *     bytes of     device      enqueued           known to have
 *     downloads    is done                        succeeded, or
 *     delivered                                   to have failed
 *
 * A mark is an event recorded on the stream. It shows when all work before it is done, even while later work
 * runs. Without a mark, the end of a position is seen only when the whole stream is idle. So if a ticket refers
 * to the last position, a mark is recorded before more work is enqueued. More marks are recorded at intervals,
 * to find out how much room the queue has.
 *
 * A thread takes locks in this order: the gate (in which the thread is counted), `owner`, the lock of the
 * failures (record.c), the device's lock, a stream's lock, the stage's lock. The last three are held for a few
 * instructions only.
 *
 * The order of the files. A file calls only functions of files before it; tests/test_architecture.py checks
 * this.
 *
 *     thread, recorder, trace, perfetto                        time and locks, the flight recorder
 *     inside, dispatch, bytes, pace, metrics, ranges           the table, helpers, what the metrics count
 *     wake, foreign, gate, library                             waking threads, resets by other code, the gate
 *     nudge, counts, exit                                      failures, ACL's counts, the end
 *     events, stage, record, port                              what a device has, and the record of a stream
 *     failure, link, report, attribution, collect              failed tasks
 *     outcome, ask, spans, streamlock, confirm                 what is done, and what is confirmed
 *     borrowed, foreignstop                                    streams of other code
 *     enqueue, staged, stream, device, abort, taskabort        work, streams, and the whole device
 *     waiters, rounds, lent, watcher                           the two ways to wait
 *     calls, runner                                            calls of models
 */
#ifndef AIOACL_INTERNAL_H
#define AIOACL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "engine.h"
#include "failures.h"
#include "gate.h"
#include "pace.h"

enum {
    AIO_DEVICES = 64,
    AIO_QUEUE_ENTRIES = 2046, /* entries of a stream's queue on the real runtime */
    AIO_MARK_EVERY = 256,
    AIO_RING = 2048, /* more than a queue has room for */
    AIO_ABORTS_KEPT = 1024,
    AIO_STACK_BYTES = 512 * 1024,
    AIO_ABORTERS = 16,
    AIO_FOREIGN_GRACE_US = 1000000, /* a foreign reset waits this long for calls of the engine */
    AIO_EVENT_SYNC = 0x1            /* the flag of an event that can be waited for */
};

#define AIO_FAILED INT64_MIN

static inline aio_result aio_failed(int32_t code) {
    return AIO_FAILED + (int64_t)(uint32_t)code;
}

static inline int32_t aio_code(aio_result result) {
    return (int32_t)(uint32_t)(result - AIO_FAILED);
}

/* recorder.c: two words of a record. From the low bits up, they have the kind, the device and the code, and the
 * thread and the value. */
static inline uint64_t aio_flight_what(int kind, int device, int32_t code) {
    return (uint64_t)(uint32_t)code << 32 | (uint64_t)(device & 0xffff) << 16 | (uint64_t)(kind & 0xffff);
}

static inline uint64_t aio_flight_where(const aio_thread *thread, uint64_t value) {
    uint64_t most = value < UINT32_MAX ? value : UINT32_MAX;
    return most << 32 | (uint32_t)atomic_load_explicit(&thread->id, memory_order_relaxed);
}

/* Adds a record. On the paths of enqueues and awaits, this is cheaper than aio_flight_note_at. */
void aio_flight_put(int64_t ns, uint64_t id, uint64_t what, uint64_t where);

/* Locks, time and threads. */
typedef struct {
    atomic_flag taken;
} aio_lock;

void aio_lock_take(aio_lock *lock);

static inline void aio_lock_give(aio_lock *lock) {
    atomic_flag_clear_explicit(&lock->taken, memory_order_release);
}

int64_t aio_now_ns(void);
int64_t aio_now_us(void);
void aio_pause(unsigned turn);
void aio_atomic_max(_Atomic uint64_t *value, uint64_t position);
/* Sleeps until *word differs from `seen`, a thread calls aio_futex_wake, or `timeout_us` is over (negative: no
 * limit). May also return earlier. */
void aio_futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t timeout_us);
void aio_futex_wake(_Atomic uint32_t *word, int count);
/* Starts a detached thread with every signal blocked. Returns 0, or an errno. */
int aio_spawn(const char *name, void *(*body)(void *), void *argument);

/* The library. */
enum aio_function {
#define ACL_FN(kind, ret, name, params, args, since) AIO_FN_##name,
#include "acl_api.inc"
#undef ACL_FN
    AIO_FUNCTIONS
};

struct aio_slots {
#define ACL_FN(kind, ret, name, params, args, since) ret(*name) params;
#include "acl_api.inc"
#undef ACL_FN
};

extern struct aio_slots aio_acl;
extern bool aio_present[AIO_FUNCTIONS];
extern const char *const aio_function_names[AIO_FUNCTIONS];
/* Fills the slots that are still empty with functions of the library. So the first library that has a function
 * provides it. Returns how many slots were filled. */
int aio_table_fill(void *library);
void aio_table_clear(void);

/* Completions. */
struct aio_token {
    struct aio_token *next;
    aio_stream *stream; /* NULL: posted by aio_token_post */
    aio_port *port;
    uint64_t key;
    uint64_t position;
    int64_t born_us;
    aio_result result;
    void *patient; /* the slot of a call whose caller prefers few wake-ups to early ones, or NULL */
    /* For the metrics. */
    aio_model_counts *counts; /* NULL: not a call of a model */
    int64_t begun_us;
    int64_t executed_us; /* when the execution was enqueued; 0: it was not */
    int64_t ended_us;    /* when its work was found to be done; 0: not noted */
    int rows;
    int device;
    bool counted;
};

struct aio_port {
    int fd;                /* -1: the consumer sleeps on `word` instead */
    _Atomic uint32_t word; /* raised by each ring of such a port */
    _Atomic bool asleep;   /* the consumer sleeps, or is about to */
    _Atomic bool shared;   /* an event loop takes completions, beside the thread in aio_port_wait */
    atomic_uint takes;     /* how often completions were taken */
    _Atomic(aio_token *) list;
    _Atomic bool held; /* a completion may be in the list for which nothing has rung */
    aio_token *ready;  /* taken from the list and not yet passed to the caller; only the consumer uses it */
    atomic_llong references;
};

/* ranges.c: begins the range of an execution; 0 if there are no ranges. */
uint64_t aio_range_of_model(uint32_t model);
/* metrics.c. To be called when a wait for a stream begins; */
void aio_count_wait(aio_token *token);
/* when a call of a model begins; `counts` may be NULL; */
void aio_count_call(aio_token *token, aio_model_counts *counts, int rows);
/* when the call gets its slot, after a wait or at once; */
void aio_count_slot(const aio_token *token, bool waited);
/* when its execution was enqueued; */
void aio_count_execution(aio_token *token);
/* before the token is published; */
void aio_count_end(const aio_token *token, aio_result result);
/* before that, or before the token is freed, if the caller has given the wait up; */
void aio_count_drop(const aio_token *token);
/* when the caller has the outcome of a call of a model. `counts` may be NULL. */
void aio_count_request(aio_model_counts *counts, enum aio_ending ending);
enum aio_ending aio_ending_of(aio_result result);

/* wake.c: makes the port's descriptor readable. aio_port_kick of engine.h does nothing in a forked child. */
void aio_port_ring(aio_port *port);
/* wake.c: lets the thread sleep until the word of such a port differs from `seen`, or `limit_us` is over
 * (negative: no limit). May also return earlier. */
void aio_port_sleep(aio_port *port, uint32_t seen, int64_t limit_us);
aio_token *aio_token_new(aio_port *port, uint64_t key);
void aio_publish(aio_token *token, aio_result result);
/* For a wait that its caller has given up. Posts a completion, until which the port keeps the wait. */
void aio_token_give_up(aio_token **token);
/* aio_publish without a ring. Returns a reference to the port, for aio_port_ring_held. */
aio_port *aio_publish_held(aio_token *token, aio_result result);
/* Rings the port if that was not done since, and drops the reference. */
void aio_port_ring_held(aio_port *port);
/* A lock-free list has the newest token first. Returns the list with the oldest token first. */
aio_token *aio_tokens_reverse(aio_token *token);

/* Kinds of events: without and with timing, those that are recorded on borrowed streams, and borrowed events,
 * which other code owns. */
enum { AIO_UNTIMED, AIO_TIMED, AIO_PLAIN, AIO_EVENT_KINDS, AIO_THEIRS = 3, AIO_FRESH, AIO_FRESH_TIMED };

/* Streams. */
struct aio_event {
    aio_event *next;           /* the next in a pool or among a stream's marks */
    aio_event *newer, **older; /* in the list of all events of the device */
    aclrtEvent handle;
    uint64_t position; /* the position at which it was recorded on the stream */
    atomic_int references;
    int blocked_waiters; /* threads that wait for it in C; under the device's lock */
    int32_t device;
    uint32_t generation;
    int kind;
};

/* A copy through a slot of staging memory. */
typedef struct aio_staged_copy {
    struct aio_staged_copy *next;
    uint64_t position;
    uint32_t generation;
    void *slot;
    void *target; /* NULL: an upload, nothing to deliver */
    size_t count;
} aio_staged_copy;

/* Entries (from, to] were dropped by an abort. */
typedef struct aio_aborted {
    struct aio_aborted *next;
    uint64_t from;
    uint64_t to;
} aio_aborted;

/* AIO_KEPT: the record has ended, and the cache has its native stream. AIO_KEPT_BUSY: the watcher records on
 * it. */
enum aio_owner { AIO_NOBODY = 0, AIO_ENQUEUER = 1, AIO_COLLECTOR = 2, AIO_KEPT = 3, AIO_KEPT_BUSY = 4 };

/* The waits for one stream that one thread queries. */
typedef struct aio_watched {
    struct aio_watched *next_active;
    struct aio_rounds *rounds;
    aio_stream *stream;
    aio_token *tokens;
    aio_token *last_token; /* the end of `tokens`, if this is not empty */
    bool active;
    int64_t due_us;
    int64_t asked_us; /* the time of the last query that left a wait unfinished */
    aio_pace pace;
    _Atomic int64_t first_us; /* the age of the first query of a predicted wait, else 0. Read by all threads. */
} aio_watched;

/* The rounds of one thread, see rounds.c and lent.c. */
typedef struct aio_rounds {
    int device;
    bool of_instance; /* not of the watcher */
    aio_watched *active;
    unsigned progress; /* the device's progress at the last check */
    int64_t nudge_us;  /* the time at which the runtime is woken unless there is progress */
    int64_t patience_us;
    unsigned announced;  /* how many failures the device had announced at the last check */
    int64_t expected_us; /* the time at which a wait that has not begun will be due; 0: none is expected */
    _Atomic bool all;    /* the next round queries all streams, because some wait may have ended early */
    /* Of an instance of a model. */
    struct aio_rounds *next; /* in the device's list; under its lock */
    int helpers;             /* the watcher uses the record; under the device's lock */
    aio_port *port;          /* of the thread */
    /* Called before a token with `patient` is published. Whether other completions probably follow soon. */
    bool (*before)(struct aio_rounds *self, const aio_token *token);
    aio_port *held;          /* has a completion for which nothing has rung; NULL: no port has */
    int64_t held_us;         /* when to ring it */
    _Atomic bool used;       /* a thread uses the fields above */
    _Atomic int64_t due_us;  /* when the next round is due; INT64_MAX: there is no wait */
    _Atomic int64_t away_us; /* since when the thread has made no rounds; 0: it makes them */
} aio_rounds;

struct aio_stream {
    aio_stream *next; /* among the device's streams, newest first */
    uint64_t number;
    bool listed; /* under the device's lock */
    aclrtStream handle;
    int32_t device;
    uint32_t generation;
    atomic_int references;
    bool borrowed;                /* other code owns the native stream, or the event that is its only mark */
    void *context;                /* of a borrowed stream: its context */
    _Atomic bool dropped;         /* the native stream is destroyed, or the caller has dropped it */
    atomic_int callers;           /* calls that use the native stream without owning the stream */
    atomic_uint aborts;           /* aborts that have begun, except those that were refused */
    atomic_uint aborts_ended;     /* aborts that have noted what they dropped */
    unsigned aborts_seen;         /* used by the owner: `aborts_ended` when it took the stream */
    _Atomic uint32_t manual;      /* number of direct ACL calls that enqueued; not in `tail` */
    _Atomic uint32_t manual_over; /* the value of `manual` up to which the work is known to have ended */
    _Atomic bool asking;          /* a thread is in aclrtSynchronizeStreamWithTimeout for it */
    _Atomic bool confirming;      /* an aioacl-confirm thread confirms it */
    _Atomic uint32_t owner;
    _Atomic uint64_t tail;
    _Atomic uint64_t finished;
    _Atomic uint64_t completed;
    _Atomic uint64_t confirmed;
    _Atomic uint64_t referred;     /* the newest position of an in-flight reference of the binding */
    _Atomic uint64_t released;     /* no in-flight reference has a position up to here */
    _Atomic uint64_t noted_to;     /* the ends of executions up to here are in the flight recorder */
    _Atomic uint64_t synced;       /* a synchronize has covered the positions up to here */
    _Atomic uint64_t presumed;     /* like `synced`, but a wait for the device may have taken the code */
    _Atomic uint64_t stranded;     /* positions from here on never complete */
    _Atomic uint64_t waits_failed; /* waits up to here ended when a query failed; work may still run */
    _Atomic uint64_t waited;       /* the newest position that was awaited while it was the tail */
    _Atomic uint64_t wanted;       /* the position of the tail if a ticket refers to it, else 0 */
    _Atomic uint64_t last_mark;    /* position of the newest mark */
    /* See streamlock.c. */
    _Atomic uint64_t roused; /* records of the watcher that have no position */
    _Atomic uint64_t noted;  /* the stream's activity when a call that takes the stream lock began */
    _Atomic uint64_t passed; /* the activity that was noted by a call that has had the lock */
    _Atomic bool delivering;
    aio_lock lock;
    aio_event *marks, **marks_end;
    aio_staged_copy *staged_copies, **staged_copies_end;
    aio_aborted *aborted; /* newest first */
    int aborted_count;
    aio_aborted unlisted; /* one range over all dropped entries for which there was no memory, if `to` is set */
    /* The open launch block. Only the owner writes it. */
    _Atomic int32_t launcher;     /* the thread that has opened the block; 0: no block is open */
    _Atomic int64_t launched_us;  /* when it was opened */
    _Atomic bool launch_reported; /* whether the runtime reports each of its tasks that fails */
    unsigned launch_aborts;       /* `aborts_ended` at the beginning */
    int32_t launch_tasks;         /* the promised room */
    uint64_t launch_tail;         /* `tail` and `last_task` at the beginning */
    uint32_t launch_task;
    bool launch_numbered; /* `launch_task` is known */
    /* The ids of tasks, see enqueue.c. Only the owner writes them. */
    _Atomic uint32_t last_task; /* also read by an abort that does not own the stream */
    _Atomic uint64_t numbered;  /* the first position whose id is known; 0: none */
    _Atomic uint32_t ids[AIO_RING];
    /* Owned. For each position, the thread that enqueued an execution of a model, else 0. NULL: no execution
     * was enqueued. Only the owner of the stream writes it. */
    _Atomic(_Atomic uint32_t *) runners;
    /* Likewise, the range of mstx of that execution, else 0. The thread that sees its end takes it out. */
    _Atomic(_Atomic uint64_t *) ranges;
    /* Under the lock of the failures. */
    int32_t id;      /* as aclrtStreamGetId; -1: not known */
    bool identified; /* its id and those of its tasks are known; set once */
    aio_spot own, inherited;
    _Atomic bool failed;       /* `own` or `inherited` is set */
    _Atomic(aio_link *) links; /* in the order of their positions */
    aio_link *newest_link;     /* the last link */
    _Atomic bool pending;      /* a task that is not counted yet has failed */
    uint32_t pending_task;
    int32_t pending_code;
    uint32_t runner;     /* the thread that is inside aclmdlExecuteAsync, else 0. Only the owner changes it. */
    int32_t early_code;  /* the code of an execution that has failed and is not counted yet, else 0 */
    uint64_t aborted_to; /* the newest entry that an abort has dropped, and its task; 0: none */
    uint32_t aborted_task;
    aio_watched waits[2]; /* those of the watcher, and those of the instance of a model that has the stream */
    atomic_int watched;   /* in how many of them waits are */
};

/* Whether each failed task of the stream causes a report that can be attributed to the stream. A borrowed
 * stream is treated so in any case, because it may not be synchronized. */
static inline bool aio_stream_is_exact(const aio_stream *stream) {
    return stream->borrowed || (stream->identified && aio_failure_detection() != AIO_CONFIRMED);
}

/* Whether a launch block is open: other code may be enqueueing on the native stream. */
static inline bool aio_stream_is_launching(const aio_stream *stream) {
    return atomic_load(&stream->launcher) != 0;
}

/* Whether a launch block is open in which a task may have failed without a report. */
static inline bool aio_stream_is_launching_unreported(const aio_stream *stream) {
    if (!aio_stream_is_launching(stream) || stream->borrowed) {
        return false;
    }
    return !aio_stream_is_exact(stream) || !atomic_load(&stream->launch_reported);
}

/* Whether the record is of a borrowed event. The event is queried only for a wait, because its owner may
 * destroy it when nothing waits for it. */
static inline bool aio_stream_is_event(const aio_stream *stream) {
    return stream->borrowed && !stream->handle;
}

/* Whether aioacl has unfinished work on the stream. The work of an open launch block is not counted yet. Work
 * on a borrowed stream is its owner's. */
static inline bool aio_stream_is_working(const aio_stream *stream) {
    return !stream->borrowed &&
           (aio_stream_is_launching(stream) || atomic_load(&stream->finished) < atomic_load(&stream->tail));
}

/* The id of an entry in the flight recorder. */
static inline uint64_t aio_flight_entry(const aio_stream *stream, uint64_t position) {
    return stream->number << 32 | (position & UINT32_MAX);
}

/* Records the await of a position whose outcome is known already. */
void aio_flight_no_wait(const aio_stream *stream, uint64_t position, aio_result result);

static inline aio_pass aio_stream_pass(const aio_stream *stream, int held) {
    return aio_make_pass(stream->device, stream->generation, held);
}

/* Keeps the native stream from being destroyed until aio_stream_unuse. False if it is destroyed already. */
bool aio_stream_use(aio_stream *stream);
void aio_stream_unuse(aio_stream *stream);
void aio_stream_hold(aio_stream *stream);
void aio_stream_unhold(aio_stream *stream);
void aio_stream_free(aio_stream *stream);
/* ask.c: queries a borrowed event. Leaves the status alone if the record has ended. */
int aio_event_ask(aio_event *event, aclrtEventRecordedStatus *status);
/* spans.c: whether a trace wants device times. aio_spans_add passes on the events around the entry at that
 * position; `end` may be NULL. It takes over the references to both events. */
extern atomic_bool aio_spans_wanted;
void aio_spans_add(const aio_stream *stream, const aio_frame *frame, uint64_t position, aio_event *end);
/* borrowed.c: before and after a call that enqueues on a borrowed stream. The first returns 0, or a code: the
 * stream is gone, or captures. */
int aio_borrowed_enter(const aio_stream *stream);
/* RT_STREAM_CAPTURED if other code captures the stream, whose context is current; 0 if not, or another code. */
int aio_stream_capture_code(const aio_stream *stream);
void aio_borrowed_leave(const aio_stream *stream);
/* Makes the context of a borrowed stream current for a launch block. */
void aio_borrowed_bind(const aio_stream *stream);
/* Called when other code is about to destroy the native stream, and when it is about to reset the device while
 * aioacl's own context stays. */
void aio_borrowed_ends(aclrtStream handle);
void aio_borrowed_reset(int device);
/* Ends the record of a borrowed event, which is not used any more. */
void aio_borrowed_event_drop(aio_stream *stream);
void aio_told_of_streams(bool registered);
/* Removes the stream from the device's list if `dropped` is set. */
void aio_stream_unlist(aio_stream *stream);
/* enqueue.c: called before and after a call that enqueues. aio_enqueue_begin enters the gate and takes the
 * stream, unless it returns a code. aio_enqueue_end counts the entry if the code is 0, releases the stream and
 * leaves the gate. */
int aio_enqueue_begin(aio_stream *stream, aio_frame *frame, int held, int function);
aio_result aio_enqueue_end(aio_stream *stream, aio_frame *frame, int code);
/* outcome.c */
/* There is an in-flight reference with that position. The watcher checks the device until the reference is
 * released. */
void aio_stream_refer(aio_stream *stream, uint64_t position);
/* Frees the marks of a list. */
void aio_marks_free(aio_event *mark);
/* Frees the entries of the stream's lists. */
void aio_stream_empty(aio_stream *stream);
/* Removes all staged copies from the stream, and returns them. */
aio_staged_copy *aio_stream_drop_stale(aio_stream *stream);
void aio_staged_copies_free(int device, aio_staged_copy *staged_copy);
/* True if no work of the generation can run any more. */
bool aio_work_is_gone(int device, uint32_t generation);
/* Frees the slots of staged copies. If a reset has dropped the copies, frees the slots now. Otherwise the
 * copies may still be running, and the slots are freed after the reset that drops the copies. */
void aio_staged_copies_leave(int device, aio_staged_copy *staged_copy);
/* Whether a finished download still has to be copied to its target. */
bool aio_stream_has_bytes(aio_stream *stream);
/* Whether the runtime's last answer is valid. If a reset or an abort has begun, the answer is not valid,
 * because dropped work looks complete. To be called after the answer. */
bool aio_stream_current(const aio_stream *stream);
/* The functions from here to aio_stream_sync are for callers that are inside the gate. */
/* Returns the code that a query or a record has returned, and notes it if it shows that the context is stopped:
 * in a context that is not stopped, no query and no record returns the code of a task. */
int aio_note_stop(int device, uint32_t generation, int code);
/* Queries the mark, and drops the caller's reference to it. */
int aio_stream_ask_mark(aio_stream *stream, aio_event *mark, bool *done);
/* Queries the marks, in order. Returns 0, or the code with which a query failed. */
int aio_stream_ask_marks(aio_stream *stream);
/* Finds the outcome up to the position by queries, without waiting. If `aside` is true, a step that has to wait
 * is started on a separate thread. Returns 0, or a query's code. */
int aio_stream_advance(aio_stream *stream, uint64_t position, bool aside);
/* Like aio_stream_advance up to the tail, for a stream that no caller awaits. */
void aio_stream_look_after(aio_stream *stream);
/* Returns 1 if the stream is idle, 0 if it is busy, or the code of the query. */
int aio_stream_idle(aio_stream *stream);
/* Synchronizes the stream for at most a second. A success covers the work that was enqueued before the call.
 * False if the result does not show whether the work succeeded. */
bool aio_stream_sync(aio_stream *stream);
/* Like aio_stream_sync, for a caller outside the gate. False if the gate refuses, or the native stream is
 * destroyed. */
bool aio_stream_sync_once(aio_stream *stream);
/* Confirms finished work, and the work that it depends on. Runs on a thread that may wait. */
void aio_stream_confirm_here(aio_stream *stream, uint64_t position);
/* Delivers finished downloads, and publishes `completed`. */
void aio_stream_deliver(aio_stream *stream);
/* The same. Calls `after` after each staged copy, also after each upload. `after` must not deliver. */
void aio_stream_deliver_each(aio_stream *stream, void (*after)(aio_watched *), aio_watched *watched);
/* Records that the device is done up to the position. First attributes the failures that were reported until
 * now. */
void aio_stream_finish(aio_stream *stream, uint64_t position);
void aio_stream_note_abort(aio_stream *stream, uint64_t from, uint64_t to);
bool aio_stream_was_aborted(aio_stream *stream, uint64_t position);
/* Called when a query has failed with the code. Fails all positions that are not confirmed, and ends their
 * waits. */
void aio_stream_fail_waits(aio_stream *stream, int32_t code);
/* Returns a new reference to the first mark at or after the position, or NULL. */
aio_event *aio_stream_mark_for(aio_stream *stream, uint64_t position);
/* Records a mark now, unless a mark at or after the position exists. */
void aio_stream_mark_now(aio_stream *stream, uint64_t position);
/* Whether a wait for the position has ended; *result is then the result of the wait. */
bool aio_stream_over(aio_stream *stream, uint64_t position, aio_result *result);

/* Devices. */
struct aio_device {
    _Atomic uint64_t word;
    atomic_int notified; /* the next call that enters writes to this eventfd; one more than it; 0: none */
    _Atomic(void *) context;
    _Atomic(void *) ending; /* the context before `context` */
    atomic_int strategy;
    _Atomic(aio_port *) kick;
    atomic_int kicks;
    atomic_llong waits;
    atomic_uint foreign;
    atomic_uint own_teardowns; /* the resets by aioacl that tore the device down */
    atomic_uint setups;        /* how often the runtime has set the device up */
    atomic_uint foreign_sets;  /* the sets by other code since the newest tear-down */
    atomic_uint ending_sets;   /* those of them that the reset in progress ends, if it succeeds */
    atomic_uint unseen_resets; /* the resets by other code that have not ended aioacl's own context */
    atomic_bool kept_set;      /* one of them is a set that aioacl has left */
    atomic_bool own_context;   /* `context` was made by aioacl: no reset of the device ends it */
    atomic_uint syncs;         /* odd while a wait for the whole device is in progress */
    atomic_uint unattributed;  /* how many reports were about tasks that aioacl did not enqueue */
    atomic_uint stops;         /* the newest generation in which a failed task stops the context */
    atomic_uint stopped;       /* the newest generation in which the context was found stopped, and the code */
    atomic_int stop_code;
    atomic_uint task_aborts;  /* aborts of all tasks of the device by other code */
    atomic_uint foreign_stop; /* the newest generation in which a stream of other code has STOP mode */
    atomic_uint announced;    /* how many failures were put into `failures` */
    aio_failure *failures;    /* not reported to the listeners yet; under the lock of the failures */
    _Atomic bool guarded;     /* the watcher checks work that no caller awaits */
    atomic_uint progress;     /* raised when work is found to be done */
    atomic_int calling;       /* calls of models that have begun, and are not completely enqueued */
    /* For waking the runtime's thread. The maintenance thread writes the stream and the event, and then
     * `equipped`: their generation. */
    atomic_uint equipped;
    aclrtStream nudge_stream;
    aclrtEvent nudge_event;
    atomic_bool nudge_failed; /* the runtime must be woken by a synchronize */
    aio_lock lock;            /* guards the lists below */
    aio_stream *streams;
    uint64_t stream_numbers;
    aio_event *pool[AIO_EVENT_KINDS];
    atomic_int pooled[AIO_EVENT_KINDS];
    aio_event *events;         /* all events that were made and not freed */
    aio_token *deferred_waits; /* waits interrupted by a reset that has not ended yet */
    aio_staged_copy *left;     /* staging memory of freed streams whose copies may be running */
    /* See streamlock.c. */
    atomic_int locking;         /* calls inside that take the stream lock */
    atomic_uint locked;         /* how many such calls have returned */
    atomic_uint rousings;       /* how often the watcher has recorded events for such calls */
    atomic_bool rousing;        /* the watcher may be recording such events */
    atomic_bool noting;         /* one of these calls notes the activity of the streams */
    atomic_bool held_up;        /* one of these calls has been inside for long */
    _Atomic(aio_port *) relief; /* gets kicks while `held_up` is set */
    /* For the strategy AIO_WATCH. */
    _Atomic(aio_token *) incoming;
    _Atomic uint32_t asleep;  /* the watcher sleeps on this word */
    _Atomic int64_t wakes_us; /* the time at which it wakes by itself */
    _Atomic bool look_at_all; /* the next rounds query all streams, because some wait may have ended early */
    atomic_int watching;      /* watchers that run */
    atomic_int blocked;       /* threads inside a blocking wait */
    atomic_uint epoch;        /* a watcher of an older epoch ends */
    aio_rounds *lent;         /* the rounds of the instances of models; under the lock */
    /* For the strategy AIO_THREAD. */
    struct aio_worker *idle;
};

extern struct aio_device aio_devices[AIO_DEVICES];

/* inside.c: to be called after a call was counted as inside. Writes to the eventfd of aio_gate_notify. */
void aio_entered(struct aio_device *device);

/* `kind` may be AIO_FRESH or AIO_FRESH_TIMED: a plain event that was never recorded. */
int aio_event_take(int device, uint32_t generation, int kind, aio_event **taken);
/* Makes a record of an event of other code; NULL if there is no memory. */
aio_event *aio_event_wrap(int device, uint32_t generation, aclrtEvent handle);
/* Removes the handle from such a record, when no thread is between aio_event_enter and aio_event_leave. */
void aio_event_unwrap(aio_event *event);
/* Between these two calls, a reset does not destroy the native event. aio_event_enter returns NULL if the event
 * is destroyed already. */
aclrtEvent aio_event_enter(aio_event *event);
void aio_event_leave(aio_event *event);
/* Ends a wait that a reset has interrupted. The wait is published now if the reset is over, else when the reset
 * ends. */
void aio_defer_wait(aio_token *token);
/* The same for a wait that ends in any case. If no reset is running, `otherwise` is published. */
void aio_defer_end(aio_token *token, aio_result otherwise);
void aio_stage_release(int device, void *slot);
void *aio_stage_take(int device, size_t size);
/* Copies a download from staging memory to its target. A large target is not brought into the caches. */
void aio_copy_bytes(void *target, const void *source, size_t size);
/* Returns a new reference to the stream after `previous` (NULL: to the first stream). Drops the reference to
 * `previous`. */
aio_stream *aio_device_next(int device, aio_stream *previous);

/* streamlock.c. To be called before and after a call that takes the stream lock, inside the gate. `code` is 0
 * if the call has certainly had the lock. */
enum { AIO_UNKNOWN = -1 };
bool aio_locking_begin(int device);
void aio_locking_end(int device, bool notes, int code);
/* Whether a call has had the stream lock since the last task was enqueued on the stream. */
bool aio_stream_passed(const aio_stream *stream);
/* Lets a call have the stream lock. False if this has failed. *spare is NULL or a stream of an earlier call,
 * and must be passed to aio_stream_lock_drop. */
bool aio_stream_pass_lock(aio_stream *stream, aclrtStream *spare);
/* Makes or destroys a native stream. */
int aio_stream_lock_create(int device, aclrtStream *made);
int aio_stream_lock_destroy(int device, aclrtStream stream);
/* Destroys the spare stream, unless it is NULL. `code`: the result of the call before, whose text is kept. */
void aio_stream_lock_drop(int device, aclrtStream spare, int code);
/* When the watcher looks at the calls that take the stream lock. */
typedef struct {
    unsigned locked;
    int64_t due_us; /* 0: no such call is inside */
} aio_lock_look;
/* Records events if a call has waited too long for the stream lock. For the watcher. */
void aio_stream_lock_look(int device, aio_lock_look *look);
/* The cache has the native stream of a record that has ended: the watcher may record on it until
 * aio_stream_unkeep. */
void aio_stream_keep(aio_stream *stream);
void aio_stream_unkeep(aio_stream *stream);

/* Strategies. */
extern atomic_llong aio_thread_count;

int aio_watcher_start(int device);
void aio_watcher_stop(int device);
/* Wakes the watcher for one round, which queries only what is due. */
void aio_watcher_stir(int device);
void aio_watcher_submit(aio_token *token);
int aio_waiter_submit(aio_token *token);
void aio_waiters_stop(int device);
/* Begins a wait with a token that was taken before. After a refusal, the token still belongs to the caller.
 * `rounds`: those of this thread, or NULL. */
int aio_watch_by(aio_rounds *rounds, aio_stream *stream, uint64_t position, aio_token *token);

/* rounds.c. The thread whose rounds these are calls the functions of the first group. */
/* Takes a wait of which no thread knows yet. */
void aio_rounds_take(aio_rounds *self, aio_token *token);
/* Makes one round, which enters the gate. */
void aio_rounds_make(aio_rounds *self);
/* Returns when the next round is due; INT64_MAX: there is no wait. */
int64_t aio_rounds_due(const aio_rounds *self);
/* Passes all waits to aio_defer_wait. */
void aio_rounds_defer(aio_rounds *self);
/* Enters the gate on this thread for a round. *generation is that of the device. Returns 0 or a refusal. */
int aio_round_begin(int device, aio_frame *frame, uint32_t *generation);
/* lent.c, for the thread of an instance. aio_rounds_lend lets the watcher help, until aio_rounds_end. */
void aio_rounds_lend(aio_rounds *self, int device, aio_port *port);
/* Rings for the completions that are held back. To be called before the thread sleeps. */
void aio_rounds_ring(aio_rounds *self);
void aio_rounds_end(aio_rounds *self);
/* Takes a wait. False if the watcher is making a round in place of this thread. */
bool aio_rounds_add(aio_rounds *self, aio_token *token);
/* Makes a round if one is due. */
void aio_rounds_look(aio_rounds *self);
/* From now on this thread may be in a long call, until aio_rounds_back. */
void aio_rounds_away(aio_rounds *self);
void aio_rounds_back(aio_rounds *self);
/* For the watcher: makes the rounds of threads that are away for long. `all`: some wait may have ended early.
 */
void aio_rounds_help(int device, bool all);
/* Returns when that is due. */
int64_t aio_rounds_help_due(int device);

/* Whether work that was enqueued by direct ACL calls may be running, or may have a failure that was not found.
 */
static inline bool aio_stream_has_manual(const aio_stream *stream) {
    return atomic_load(&stream->manual_over) != atomic_load(&stream->manual);
}
/* Wakes the runtime's thread that handles failures, in under 100 us. To be called inside the gate. */
void aio_device_nudge(int device);
/* Ends the use of the stream and the event that wake the runtime, if they are of the generation `generation`.
 * Destroys the event, unless the context has perhaps ended. On a foreign reset, the reset destroys the
 * stream. */
typedef enum { AIO_ALIVE, AIO_BEFORE_FOREIGN_RESET, AIO_PERHAPS_ENDED } aio_context_state;
void aio_device_unequip(int device, uint32_t generation, aio_context_state context);
/* foreignstop.c. */
/* Whether the stream of other code is known to belong to a context other than this one. */
bool aio_stream_is_elsewhere(const void *handle, const void *context);
/* foreign.c. */
void aio_told_of_resets(bool told);
/* Whether aioacl is told when other code ends the context that it uses. Without the callback, other code may
 * have reset the device, and the device may be set again by now. aclrtDestroyEvent of an event of the ended
 * context then crashes. */
bool aio_context_is_known(int device);
/* Whether an event of the generation may be queried now, on this thread, which is inside the gate. Between a
 * reset by other code and the next set, such a query crashes. Without the callback, this function asks for the
 * current context, which never crashes. If the context is gone, shuts the gate. Other code may still reset the
 * device after the answer. */
bool aio_may_ask(int device, uint32_t generation);
/* To be called with the code of a call, inside the gate. Without the callback, the codes 107002 and 107017 may
 * be the first sign of a reset by other code. If it was one, shuts the gate. */
void aio_note_end(int device, uint32_t generation, int code);
/* Confirms the stream on a separate thread, which may also wait for later work. */
void aio_stream_confirm_aside(aio_stream *stream);

#endif
