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
enum aio_set { AIO_SITTERS_MAY_STAY = 32 };

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
    AIO_LIMIT = -2000000000 /* codes at or below this one are ours */
};

/* How waits are done: one watcher per device, or a worker thread in the blocking call for each. */
enum aio_strategy { AIO_WATCH = 0, AIO_THREAD = 1 };

/* Why the maintenance thread was woken; a set of bits. */
enum aio_kick {
    AIO_KICK_SMALL = 1,     /* small staging slots run low */
    AIO_KICK_LARGE = 16,    /* large ones do */
    AIO_KICK_REFILL = 2,    /* the pool of events runs low */
    AIO_KICK_HEARTBEAT = 4, /* a wait is old: prod the runtime */
    AIO_KICK_FOREIGN = 8    /* somebody else has reset the device */
};

/* Where, and of which generation: device (bits 20-27), generation (bits 0-19), lease held (bit 28). */
typedef uint64_t aio_pass;

typedef struct aio_stream aio_stream;
typedef struct aio_event aio_event;
typedef struct aio_port aio_port;

/* A result is a position, or AIO_FAILED plus a code seen as uint32_t. */
typedef int64_t aio_result;

/* --- dispatch.c: the library ------------------------------------------------- */
int aio_library_open(const char *path, char *error, size_t size);
int aio_library_add(const char *path);
int aio_library_is_simulator(void);
void *aio_library_symbol(const char *name);
int aio_table_size(void);
const char *aio_table_name(int index);
const char *aio_table_since(int index);
int aio_table_kind(int index);
/* As the table spells them: "aclError", "(aclrtStream stream)". */
const char *aio_table_returns(int index);
const char *aio_table_params(int index);
int aio_table_present(int index);

/* --- gate.c ------------------------------------------------------------------ */
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
/* Waits, without spinning, until nobody of the kinds (bits 1 << kind, AIO_SITTERS_MAY_STAY) is inside.  1 when
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
/* This thread is the control lane of that device: its resets are our own, and its calls are told among those
 * inside. */
void aio_control_lane(int device);

/* --- device.c ---------------------------------------------------------------- */
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
int aio_device_sweep(int device);
/* Aborts every busy stream, in parallel.  out: aborted, not supported, failed or out of time. */
void aio_device_abort(int device, int64_t timeout_us, int32_t out[3]);
/* The same, with native streams of others; the caller keeps them alive until it returns. */
void aio_device_abort_named(int device, void *const *named, int count, int64_t timeout_us, int32_t out[3]);
/* A code found by a device-wide wait is owed to every stream that has uncollected work. */
void aio_device_blame(int device, int32_t code, const char *text);
/* Makes the watcher look at the gate now. */
void aio_watcher_nudge(int device);
/* A reset has ended, one way or the other: ends the waits that it interrupted. */
void aio_device_flush(int device);
/* Fills the pool up to `count` spare events.  Returns an aclError. */
int aio_device_refill(int device, int timing, int count);
/* Destroys the native events of the present generation; to be called when the gate is shut and nobody inside.
 */
int aio_device_destroy_events(int device);
/* One beat: an event on a stream of its own, so that the runtime looks at its queues. */
int aio_device_heartbeat(int device);
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

/* --- counts.c ---------------------------------------------------------------- */
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

/* --- stage.c: pinned memory for copies from and to pageable memory ----------- */
int aio_stage_grow(int device, int large);
int aio_stage_free_slots(int device, size_t size);
void aio_stage_close(int device);

/* --- stream.c ---------------------------------------------------------------- */
aio_stream *aio_stream_new(aio_pass pass, aclrtStream handle);
/* Destroys the native stream if it is idle and nobody is using it; its outcomes stay known.  AIO_PENDING. */
int aio_stream_destroy(aio_stream *stream);
/* Forgets the stream; its memory goes when the last wait has ended. */
void aio_stream_drop(aio_stream *stream);
aio_result aio_copy(aio_stream *stream, int held, void *target, size_t room, const void *source, size_t count,
                    int kind);
aio_result aio_upload(aio_stream *stream, int held, void *target, size_t room, const void *source,
                      size_t count);
aio_result aio_download(aio_stream *stream, int held, void *target, const void *source, size_t count);
aio_result aio_fill(aio_stream *stream, int held, void *target, size_t room, int value, size_t count);
/* Records; *event is a new reference to the native event that stands for this point of the stream. */
aio_result aio_record(aio_stream *stream, int held, int timing, aio_event **event);
aio_result aio_wait_event(aio_stream *stream, int held, aio_event *event);
int aio_stream_abort(aio_stream *stream);

uint64_t aio_stream_tail(const aio_stream *stream);
uint64_t aio_stream_completed(const aio_stream *stream);
/* Entries that may still be enqueued before the queue counts as full. */
int64_t aio_stream_room(aio_stream *stream);
/* Nobody refers to the ticket at this position any more, so later work need not be kept from delaying it. */
void aio_stream_forget(aio_stream *stream, uint64_t position);
/* The outcome up to a position without suspending, collecting it if that can be done at once; AIO_PENDING. */
aio_result aio_stream_poll(aio_stream *stream, uint64_t position);
/* The outcome as far as it is known already; calls no ACL function.  AIO_PENDING. */
aio_result aio_stream_known(aio_stream *stream, uint64_t position);
/* The code that the ledger holds for a position (0: none), and the runtime's text on it. */
int32_t aio_stream_error(aio_stream *stream, uint64_t position, char *text, size_t size);
/* 1 done, 0 not, or a code.  Asks the runtime. */
int aio_stream_query(aio_stream *stream, uint64_t position);

void aio_event_hold(aio_event *event);
void aio_event_drop(aio_event *event);
aclrtEvent aio_event_handle(const aio_event *event);

/* --- watcher.c, waiters.c ---------------------------------------------------- */
/* Publishes (key, result) to the port when everything up to the position is done.  0, or a refusal. */
int aio_watch(aio_stream *stream, uint64_t position, aio_port *port, uint64_t key);

/* --- port.c ------------------------------------------------------------------ */
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

/* --- exporter.h --------------------------------------------------------------- */
/* A new reference to the Python type for what lends out memory of another object. */
void *aio_exporter(void);

/* --- exit.c ------------------------------------------------------------------ */
void aio_exit_install(int64_t grace_us);
int aio_forked(void);

#endif
