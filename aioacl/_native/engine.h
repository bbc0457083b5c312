/*
 * What the engine offers to Python: the gate, streams, completions.  cffi reads this header (without its
 * preprocessor lines), and so may a second extension over the same engine; so it holds plain declarations.
 *
 * Nothing here is called with the GIL held, nothing calls Python, and nothing on the enqueue or await path
 * sleeps.  "position" is the number of an entry in its stream's queue, counted from 1.
 */
#ifndef AIOACL_ENGINE_H
#define AIOACL_ENGINE_H

#include "acl_types.h"

/* How the gate counts a call that is inside C.  See acl_api.inc. */
enum aio_kind { AIO_FREE = 0, AIO_ENQUEUE = 1, AIO_WAIT = 2, AIO_LIFETIME = 3, AIO_CONTROL = 4 };

/* With AIO_WAIT in a set of kinds: those who sit in a blocking wait may stay. */
enum aio_set { AIO_BLOCKED_MAY_STAY = 32 };

enum aio_state { AIO_CLOSED = 0, AIO_OPEN = 1, AIO_DRAINING = 2, AIO_RESETTING = 3, AIO_QUARANTINED = 4 };

/* Beside the state in the gate's word. */
enum aio_flag {
    AIO_FOREIGN = 16, /* somebody else resets the device right now */
    AIO_FOUND =
        32 /* a call has found it out, and the state callback has not told yet of the reset that it was */
};

/* Answers of the library itself, far from every code that ACL returns.  Everything above is an aclError. */
enum aio_refusal {
    AIO_STALE = -2000000001, /* the handle is of an older generation */
    AIO_RESETTING_NOW = -2000000002,
    AIO_DRAINING_NOW = -2000000003,
    AIO_QUARANTINE = -2000000004,
    AIO_NOT_OPEN = -2000000005,
    AIO_CROWDED = -2000000006, /* 4095 calls of one kind are inside */
    AIO_FORKED = -2000000007,
    AIO_EXITING = -2000000008,
    AIO_ABSENT = -2000000009, /* the library lacks the function */
    AIO_QUEUE_FULL = -2000000010,
    AIO_STAGE_FULL = -2000000011,
    AIO_PENDING = -2000000012,   /* not done yet */
    AIO_WAS_RESET = -2000000013, /* a wait was ended by a reset */
    AIO_NO_MEMORY = -2000000014,
    AIO_NO_THREAD = -2000000015,
    AIO_STREAM_FAILED = -2000000016, /* a task of the stream has failed, or one that it depends on */
    AIO_EVENT_FAILED = -2000000017,  /* a task before the event has */
    AIO_REPORTS_LOST = -2000000018,  /* tasks have failed, and it is not known which */
    AIO_LIMIT = -2000000000          /* codes at or below this one are ours */
};

/* How waits are done: one watcher per device, or a worker thread in the blocking call for each. */
enum aio_strategy { AIO_WATCH = 0, AIO_THREAD = 1 };

/* How failed tasks are found.  Confirmed: by synchronizing; exact: the runtime calls back for each. */
enum aio_detection { AIO_CONFIRMED = 0, AIO_EXACT_ACL = 1, AIO_EXACT_RUNTIME = 2 };

/* Why the maintenance thread was woken; a set of bits. */
enum aio_kick {
    AIO_KICK_SMALL = 1,   /* small staging slots run low */
    AIO_KICK_LARGE = 16,  /* large ones do */
    AIO_KICK_REFILL = 2,  /* the pool of events runs low */
    AIO_KICK_NUDGE = 4,   /* there is no stream yet to wake the runtime with */
    AIO_KICK_FOREIGN = 8, /* other code has reset the device */
    AIO_KICK_FAULT = 32,  /* a task has failed */
    AIO_KICK_DONE = 64    /* work that no caller awaits may be done: what it has needed can be released */
};

/* Where, and of which generation: device (bits 20-27), generation (bits 0-19), lease held (bit 28). */
typedef uint64_t aio_pass;

typedef struct aio_stream aio_stream;
typedef struct aio_event aio_event;
typedef struct aio_port aio_port;

/* A result is a position, or AIO_FAILED plus a code seen as uint32_t. */
typedef int64_t aio_result;

enum aio_error_room { AIO_TEXT = 8192 };

/* What failed: the code of a task, AIO_WAS_RESET, or 107023 for work that was dropped by an abort. */
typedef struct {
    int32_t code; /* 0: nothing */
    int32_t device;
    uint32_t generation;
    int32_t stream;    /* as aclrtStreamGetId; -1: not known */
    uint64_t position; /* of the failed entry on that stream */
    int32_t own;       /* it is on the stream that was asked */
    int32_t stops;     /* it has stopped its context for ever */
    char text[AIO_TEXT];
} aio_error;

/* library.c: the library. */
/* Which library may be opened: by what it is when it is loaded, whatever its file looks like. */
enum aio_wanted { AIO_WANT_REAL = 0, AIO_WANT_SIMULATOR = 1, AIO_WANT_ANY = 2 };
/* What has become of a companion: BROKEN: dlopen fails; SIMULATOR: it is the simulator, or depends on it. */
enum aio_part { AIO_PART_UNUSED = 0, AIO_PART_USED = 1, AIO_PART_BROKEN = 2, AIO_PART_SIMULATOR = 3 };
/* Opens the library, and of the companions (paths, each with its NUL, and an empty one) those that have what
 * it lacks.  0, or -1 and the reason; then nothing is open.  A library that is open stays: the result is 0. */
int aio_library_open(const char *path, const char *companions, int wanted, int key, char *error, size_t size);
/* The key with which the library has been opened; -1: none is open. */
int aio_library_key(void);
int aio_library_part(int companion);
int aio_library_is_simulator(void);
void *aio_library_symbol(const char *name);
/* Fills `text` with the paths of the objects of this process that define ACL, each with its NUL: the bytes
 * filled, or -1 when they do not fit or there is no memory. */
int aio_library_present(char *text, size_t size);
/* Whether what this process has loaded from the path is a simulator; the file may be another one by now. */
int aio_library_loaded_simulator(const char *path);
/* Whether the process began with rights of its file: set-user-id, set-group-id, capabilities.  The ids may be
 * equal again. */
int aio_borrowed_rights(void);
/* Waits while another thread opens a library: whether it has ended.  A caller that waits in turns can handle
 * signals, as it cannot in the calls that wait for the lock. */
int aio_library_wait(int64_t timeout_us);
/* For forks: no library is being opened meanwhile.  The child renews the lock instead of unlocking it. */
void aio_library_lock(void);
void aio_library_unlock(void);
void aio_library_renew_lock(void);

/* dispatch.c: the table. */
int aio_table_size(void);
const char *aio_table_name(int index);
const char *aio_table_since(int index);
int aio_table_kind(int index);
/* As the table spells them: "aclError", "(aclrtStream stream)". */
const char *aio_table_returns(int index);
const char *aio_table_params(int index);
int aio_table_present(int index);

/* gate.c. */
int aio_enter(aio_pass pass, int kind, int function);
void aio_leave(aio_pass pass, int kind);
/* The runtime's text on the newest failure of this thread, or "". */
const char *aio_error_text(void);
/* The function that answered the code, if it is that of this thread's last failure inside the gate; else -1. */
int aio_failed_function(int code);
uint64_t aio_gate_word(int device);
/* Sets state, flags and generation at once; who is inside stays counted.  What a foreign reset has done to the
 * word meanwhile stays too: the generation is never lowered, and FOREIGN keeps the gate shut until it is met.
 */
void aio_gate_set(int device, int state, uint32_t generation);
/* A foreign reset has shut the gate, and nobody has dealt with it yet. */
int aio_gate_foreign(int device);
/* It is dealt with: the state alone says who may enter. */
void aio_gate_met(int device);
/* counts[0..2]: enqueueing, waiting, lifetime. */
void aio_gate_counts(int device, int32_t counts[3]);
/* Waits, without spinning, until nobody of the kinds (bits 1 << kind, AIO_BLOCKED_MAY_STAY) is inside.  1 when
 * so, 0 after the time.
 */
int aio_gate_wait(int device, int kinds, int64_t timeout_us);
/* The same for everybody but the calling thread. */
int aio_gate_wait_others(int device, int64_t timeout_us);
/* Calls inside now: function, thread, microseconds.  Returns how many were written. */
int aio_gate_inside(int device, int32_t *functions, int32_t *threads, int64_t *microseconds, int size);
/* Threads that work for a reset of ours pass a gate that is shut, but count as inside all the same: the
 * barrier, and a foreign reset, must wait for them too.  Lifetime; given back by aio_leave.  0, or AIO_CROWDED.
 */
int aio_helper_count(int device);
void aio_set_context(int device, void *context);
/* Makes the device's context current on this thread, for code that calls the runtime by itself. */
int aio_bind_thread(aio_pass pass);
/* Marks this thread as one of the device's own, on which nobody else changes the context. */
int aio_adopt_thread(aio_pass pass);
/* While set, this thread's own resets are not taken for foreign ones. */
void aio_own_reset(int on);
/* This thread is the control thread of that device: its resets are our own, and its calls are told among those
 * inside. */
void aio_control_thread(int device);

/* device.c. */
int aio_device_start(int device, int strategy, aio_port *kick);
void aio_device_stop(int device);
/* Takes the reasons for which the maintenance thread was woken. */
int aio_device_kicks(int device);
void aio_device_kick(int device, int reason);
/* Waits in flight, of any generation. */
int64_t aio_device_waits(int device);
/* Streams that have unfinished work as far as one query each can tell. */
int aio_device_busy(int device);
/* Streams of its present generation that have unfinished work as far as is known; asks nothing. */
int aio_device_unfinished(int device);
/* Streams of the device that are alive in its present generation; their positions are kept up to date. */
int aio_device_ask_streams(int device);
/* Aborts every busy stream, in parallel.  out: aborted, not supported, failed or out of time. */
void aio_device_abort(int device, int64_t timeout_us, int32_t out[3]);
/* The same, with native streams of others; the caller keeps them alive until it returns. */
void aio_device_abort_named(int device, void *const *named, int count, int64_t timeout_us, int32_t out[3]);
/* Around a wait for the whole device, and what is made of its code: it may take the code of any stream.  One at
 * a time. */
void aio_device_sync_begin(int device);
void aio_device_sync_end(int device);
/* A code that a wait for the whole device returned: of every stream whose work the code may be of. */
void aio_device_fail(int device, int32_t code, const char *text);
/* The next failed task that was not reported to the listeners yet; 0: none. */
int aio_device_take_failure(int device, aio_error *out);
/* From now on the failure of a task stops the context of that generation. */
void aio_device_stops(int device, uint32_t generation);
/* Reports of tasks that aioacl did not enqueue, since the start. */
uint32_t aio_device_unattributed(int device);
/* Makes the watcher look at the gate now. */
void aio_watcher_nudge(int device);
/* A reset has ended, one way or the other: ends the waits that it interrupted. */
void aio_device_flush(int device);
/* Fills the pool up to `count` spare events.  Returns an aclError. */
int aio_device_refill(int device, int timing, int count);
/* Destroys the native events of the present generation; to be called when the gate is shut and nobody inside.
 */
int aio_device_destroy_events(int device);
/* Makes the stream and the event with which the watcher wakes the runtime, and does so once.  An aclError. */
int aio_device_equip(int device);
/* Devices that have them now. */
int aio_equipped(void);
/* Foreign resets that the state callback has told of, since the start. */
uint32_t aio_device_foreign(int device);
/* A foreign reset that was found out by a call of that generation: shuts the gate, unless it is shut. */
void aio_foreign_found(int device, uint32_t generation);
/* We have set the device when `told` foreign resets were told of: those are dealt with, and if there are more,
 * the gate is shut until they are.  To be called once the gate is open.
 */
void aio_foreign_settle(int device, uint32_t told);
int aio_watch_foreign(void);
int64_t aio_threads(void);
void aio_set_pace(int64_t spin_us, int64_t shortest_us, int64_t longest_us);

/* counts.c. */
/* What has come of a change of ACL's counts: all of it is there once it has returned. */
typedef struct {
    int32_t returned;
    int32_t code;
    uint32_t told; /* foreign resets that were told of before it, or that it has made up for */
} aio_counted;

/* Sets the device. A foreign reset meanwhile is among those told of if the device is set all the same: else it
 * has taken this set away.
 */
void aio_count_set(int device, aio_counted *made);
/* Resets it on our own account. */
void aio_count_reset(int device, int force, aio_counted *made);

/* stage.c: pinned memory for copies from and to pageable memory. */
int aio_stage_grow(int device, int large);
int aio_stage_free_slots(int device, size_t size);
void aio_stage_close(int device);

/* stream.c. */
aio_stream *aio_stream_new(aio_pass pass, aclrtStream handle);
/* Destroys the native stream if it is idle and nobody is using it; its outcomes stay known.  AIO_PENDING. */
int aio_stream_destroy(aio_stream *stream);
/* Forgets the stream; its memory goes when the last wait has ended. */
void aio_stream_drop(aio_stream *stream);
/* As aclrtStreamGetId; -1: not known. */
int32_t aio_stream_id(const aio_stream *stream);
uint64_t aio_stream_tail(const aio_stream *stream);
uint64_t aio_stream_completed(const aio_stream *stream);
/* Positions from here on never complete, because they depend on work that was dropped; or UINT64_MAX. */
uint64_t aio_stream_stranded(const aio_stream *stream);
/* 1 done, 0 not, or a code.  Asks the runtime. */
int aio_stream_query(aio_stream *stream, uint64_t position);
/* The outcome up to a position without suspending, collecting it if that can be done at once; AIO_PENDING. */
aio_result aio_stream_poll(aio_stream *stream, uint64_t position);
/* Synchronizes a failed stream once, if it is idle, to take the runtime's code and text. */
void aio_stream_take_code(aio_stream *stream);

/* enqueue.c, staged.c. What enqueues returns the position of its entry, or a refusal or code (aio_failed). */
aio_result aio_copy(aio_stream *stream, int held, void *target, size_t room, const void *source, size_t count,
                    int kind);
aio_result aio_upload(aio_stream *stream, int held, void *target, size_t room, const void *source,
                      size_t count);
aio_result aio_download(aio_stream *stream, int held, void *target, const void *source, size_t count);
aio_result aio_fill(aio_stream *stream, int held, void *target, size_t room, int value, size_t count);
/* Records; *event is a new reference to the native event that stands for this point of the stream. */
aio_result aio_record(aio_stream *stream, int held, int timing, aio_event **event);
/* The stream that recorded the event, and the position there. */
aio_result aio_wait_event(aio_stream *stream, int held, aio_event *event, aio_stream *source, uint64_t at);
int aio_stream_abort(aio_stream *stream);
/* This thread has enqueued on the stream by hand, and its last task was `before` then: a position that submits
 * no task itself covers what was enqueued so. */
void aio_stream_manual(aio_stream *stream, uint32_t before);
/* The number of the last task that this thread has enqueued. */
uint32_t aio_last_task(void);
/* The stream's next positions are confirmed by synchronizing: work was enqueued that may fail without a report.
 */
int aio_stream_doubt(aio_stream *stream);
/* Entries that may still be enqueued before the queue counts as full. */
int64_t aio_stream_room(aio_stream *stream);
/* Nobody refers to the ticket at this position any more, so later work need not be kept from delaying it. */
void aio_stream_forget(aio_stream *stream, uint64_t position);

/* outcome.c, failure.c. */
/* The outcome as far as it is known already; calls no ACL function.  AIO_PENDING. */
aio_result aio_stream_known(aio_stream *stream, uint64_t position);
/* What failed of a position and what it depends on; with `out` it counts as collected.  The code; 0: nothing.
 */
int32_t aio_stream_error(aio_stream *stream, uint64_t position, aio_error *out);
/* 1, and what failed, if it is not collected yet; it counts as collected then. */
int aio_stream_uncollected(aio_stream *stream, aio_error *out);

/* events.c. */
void aio_event_hold(aio_event *event);
void aio_event_drop(aio_event *event);
aclrtEvent aio_event_handle(const aio_event *event);

/* report.c. */
/* Registers for reports of failed tasks, in one of the ways in the set `allowed` (of enum aio_detection). Once.
 */
int aio_failures_register(int allowed);
/* Whether the chip keeps the order on which the reports depend: without it, they are not relied on. */
void aio_failures_trust(int trust);
/* How reports are asked for, and how failed tasks are found. */
int aio_failure_reports(void);
int aio_failure_detection(void);

/* watcher.c, waiters.c. */
/* Publishes (key, result) to the port when everything up to the position is done.  0, or a refusal. */
int aio_watch(aio_stream *stream, uint64_t position, aio_port *port, uint64_t key);

/* port.c. */
/* NULL when memory or descriptors have run out, and in a forked child. */
aio_port *aio_port_new(void);
int aio_port_fd(const aio_port *port);
/* Takes at most `max` completions; call it when the descriptor is readable. */
int aio_port_take(aio_port *port, uint64_t *keys, int64_t *results, int max);
enum aio_room { AIO_BATCH = 256 };
/* Completions that are still to be handed out: whoever never sees the call return finds all of them here. */
typedef struct {
    int32_t count;
    uint64_t keys[AIO_BATCH];
    int64_t results[AIO_BATCH];
} aio_batch;
/* Takes as many as there is room for; how many are in the batch then. */
int aio_port_fill(aio_port *port, aio_batch *batch);
/* To a port that its owner has closed (NULL) nothing is posted: AIO_NOT_OPEN. */
int aio_port_post(aio_port *port, uint64_t key, int64_t result);
/* The owner is done with it; the descriptor is closed when the last wait has come back. */
void aio_port_close(aio_port *port);
int64_t aio_port_in_flight(const aio_port *port);

/* exporter.h. */
/* A new reference to the Python type for what lends out memory of another object. */
void *aio_exporter(void);

/* exit.c. */
void aio_exit_install(int64_t grace_us);
int aio_forked(void);

#endif
