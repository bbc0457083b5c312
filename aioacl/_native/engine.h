/*
 * The engine's interface to Python: the gate, streams, completions. This file contains only plain declarations,
 * because cffi reads it without its preprocessor lines.
 *
 * cffi releases the GIL during a call. The functions of aioacl/_binding hold the GIL in calls that neither call
 * ACL nor wait. No function calls Python, and none on the enqueue or await path sleeps. A "position" is the
 * number of an entry in its stream's queue, from 1.
 */
#ifndef AIOACL_ENGINE_H
#define AIOACL_ENGINE_H

#include "acl_types.h"
#include "recorder.h"
#include "trace.h"

/* How the gate counts a call that is inside C.  See acl_api.inc. */
enum aio_kind { AIO_FREE = 0, AIO_ENQUEUE = 1, AIO_WAIT = 2, AIO_LIFETIME = 3, AIO_CONTROL = 4 };

/* A flag for a set of kinds that contains AIO_WAIT: threads inside a blocking wait may stay inside. */
enum aio_set { AIO_BLOCKED_MAY_STAY = 32 };

enum aio_state { AIO_CLOSED = 0, AIO_OPEN = 1, AIO_DRAINING = 2, AIO_RESETTING = 3, AIO_QUARANTINED = 4 };

/* Flags in the gate's word. */
enum aio_flag {
    AIO_FOREIGN = 16, /* a foreign reset has shut the gate, and is not handled yet */
    AIO_FOUND = 32    /* a call has found the foreign reset, and the state callback has not reported it yet */
};

/* The engine's own codes. ACL returns no code in this range. A code above AIO_LIMIT is an aclError. */
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
    AIO_STREAM_FAILED = -2000000016,  /* a task of the stream, or work that it depends on, has failed */
    AIO_EVENT_FAILED = -2000000017,   /* a task before the event has failed */
    AIO_REPORTS_LOST = -2000000018,   /* tasks have failed, and it is not known which */
    AIO_LAUNCHING = -2000000019,      /* a launch block of the stream is open */
    AIO_LAUNCHING_HERE = -2000000020, /* this thread has opened that block */
    AIO_MODEL_BUSY = -2000000021,     /* a call of the model is running on another stream */
    AIO_MODEL_ENDED = -2000000022,    /* the model is being unloaded */
    AIO_LIMIT = -2000000000           /* codes at or below this one are the engine's own */
};

/* The strategies for waits. AIO_WATCH: one watcher per device queries. AIO_THREAD: one worker thread per wait
 * blocks in ACL. */
enum aio_strategy { AIO_WATCH = 0, AIO_THREAD = 1 };

/* How failed tasks are found. CONFIRMED: by synchronizing. EXACT: the runtime calls a callback for each failed
 * task. */
enum aio_detection { AIO_CONFIRMED = 0, AIO_EXACT_ACL = 1, AIO_EXACT_RUNTIME = 2 };

/* Why the maintenance thread was woken; a set of bits. */
enum aio_kick {
    AIO_KICK_SMALL = 1,   /* few small staging slots are free */
    AIO_KICK_LARGE = 16,  /* few large staging slots are free */
    AIO_KICK_REFILL = 2,  /* few events are in the pool */
    AIO_KICK_NUDGE = 4,   /* the stream for waking the runtime is missing, or recording on it has failed */
    AIO_KICK_FOREIGN = 8, /* other code has reset the device */
    AIO_KICK_FAULT = 32,  /* a task has failed */
    AIO_KICK_MODES = 256, /* other code has made a stream, or `health` was read: STOP mode may be set */
    AIO_KICK_CALLS = 512, /* slots of models need the maintenance thread */
    AIO_KICK_LEFT = 128,  /* a finalizer has left something to free, or the cache exceeds its limit */
    AIO_KICK_DONE = 64    /* work that no caller awaits may be done; its references can then be dropped */
};

/* The permission of one call to enter the gate: device (bits 20-27), generation (bits 0-19), lease held (bit
 * 28). */
typedef uint64_t aio_pass;

typedef struct aio_stream aio_stream;
typedef struct aio_event aio_event;
typedef struct aio_port aio_port;
typedef struct aio_token aio_token;

/* A position, or AIO_FAILED plus a code converted to uint32_t. */
typedef int64_t aio_result;

enum aio_error_room { AIO_TEXT = 8192 };

/* A failure. Its code is the code of a task or a query, 107023 for work that an abort dropped, or one of the
 * engine's own: AIO_WAS_RESET, AIO_REPORTS_LOST or AIO_NO_MEMORY. */
typedef struct {
    int32_t code; /* 0: no failure */
    int32_t device;
    uint32_t generation;
    int32_t stream;    /* as aclrtStreamGetId; -1: not known */
    uint64_t position; /* the position of the failed entry on that stream */
    int32_t own;       /* 1: the failed entry is on the stream that the caller passed */
    int32_t stops;     /* 1: the failure has stopped its context for ever */
    char text[AIO_TEXT];
} aio_error;

/* library.c: the library. */
/* Which library may be opened. The loaded library is checked, not its file. */
enum aio_wanted { AIO_WANT_REAL = 0, AIO_WANT_SIMULATOR = 1, AIO_WANT_ANY = 2 };
/* The state of a companion library. BROKEN: dlopen failed. SIMULATOR: it is the simulator, or depends on it. */
enum aio_part { AIO_PART_UNUSED = 0, AIO_PART_USED = 1, AIO_PART_BROKEN = 2, AIO_PART_SIMULATOR = 3 };
/* Opens the library, and then its companions in order, until no function is missing. `companions` is a list of
 * paths, each ended by a NUL, with an empty path at the end. Returns 0, or -1 with the reason in `error`. After
 * -1 no library is open. If a library was open before the call, it stays open, and the result is 0. */
int aio_library_open(const char *path, const char *companions, int wanted, int key, char *error, size_t size);
/* The key that the open library was opened with; -1: none is open. */
int aio_library_key(void);
int aio_library_part(int companion);
int aio_library_is_simulator(void);
void *aio_library_symbol(const char *name);
/* Fills `text` with the paths of the objects of this process that define ACL, each ended by a NUL. Returns the
 * number of bytes written, or -1 if the paths do not fit or memory has run out. */
int aio_library_present(char *text, size_t size);
/* Whether the library that this process loaded from the path is a simulator. The loaded library is examined,
 * because its file may have been replaced since. */
int aio_library_loaded_simulator(const char *path);
/* Whether the process got additional rights from its program's file when it began: set-user-id, set-group-id or
 * capabilities. Also true if the process has later made its real and effective ids equal. */
int aio_borrowed_rights(void);
/* Waits while another thread opens a library. Returns 1 when the library is open or refused, or 0 when the time
 * is over. A wait for the lock cannot be interrupted. So callers call this function repeatedly with a short
 * time-out, and can handle signals between the calls. */
int aio_library_wait(int64_t timeout_us);
/* Python holds the lock around a fork, so that no library is being opened during the fork. The child cannot
 * unlock the lock, so it initialises the lock again. */
void aio_library_lock(void);
void aio_library_unlock(void);
void aio_library_renew_lock(void);

/* dispatch.c: the table. */
int aio_table_size(void);
const char *aio_table_name(int index);
const char *aio_table_since(int index);
int aio_table_kind(int index);
/* Return the return type and the parameters as they are written in the table, for example "aclError" and
 * "(aclrtStream stream)". */
const char *aio_table_returns(int index);
const char *aio_table_params(int index);
int aio_table_present(int index);

/* gate.c. */
int aio_enter(aio_pass pass, int kind, int function);
void aio_leave(aio_pass pass, int kind);
/* The runtime's text for the newest failure of this thread, or "". */
const char *aio_error_text(void);
/* Returns the function of this thread's last failure inside the gate, if it returned `code`; else -1. */
int aio_failed_function(int code);
uint64_t aio_gate_word(int device);
/* Sets the state and the generation in one step. Calls that are inside stay counted. If a foreign reset changes
 * the word at the same time, its changes are kept: the generation is never lowered, and FOREIGN keeps the gate
 * shut until aio_gate_met is called. */
void aio_gate_set(int device, int state, uint32_t generation);
/* Whether a foreign reset has shut the gate and is not handled yet. */
int aio_gate_foreign(int device);
/* To be called when the foreign reset has been handled. From now on the state alone decides which calls may
 * enter. */
void aio_gate_met(int device);
/* Reads how many calls are inside. counts[0..2]: enqueueing, waiting, lifetime. */
void aio_gate_counts(int device, int32_t counts[3]);
/* Waits, without spinning, until no call of the given kinds is inside. `kinds` is a set of bits 1 << kind, and
 * may contain AIO_BLOCKED_MAY_STAY. Returns 1, or 0 when the time is over. */
int aio_gate_wait(int device, int kinds, int64_t timeout_us);
/* Like aio_gate_wait, for calls of all kinds except those of the calling thread. */
int aio_gate_wait_others(int device, int64_t timeout_us);
/* A call that is inside. `thread` and `since_us` together belong to no other call. */
typedef struct {
    int32_t function;
    int32_t thread;
    int64_t since_us;  /* when it entered the gate */
    int64_t inside_us; /* for how long it has been inside */
} aio_call;
/* Lists the calls that are inside now. Returns how many calls were written. */
int aio_gate_inside(int device, aio_call *calls, int size);
/* From now on, the next call that enters writes to the eventfd, once. If a call is inside already, does nothing
 * and returns 1. The eventfd must stay open until the process ends, because a thread may be about to write. */
int aio_gate_notify(int device, int eventfd);
/* Counts a thread as inside although the gate is shut, because the thread works for a reset by aioacl. So this
 * reset, or a foreign reset, also waits for the thread. The kind is LIFETIME; aio_leave ends the count. Returns
 * 0, or AIO_CROWDED. */
int aio_helper_count(int device);
void aio_set_context(int device, void *context);
/* Whether the device's context is one that aioacl makes and destroys. Resets by other code do not end such a
 * context, so they are then not counted as foreign resets. */
void aio_own_context(int device, int own);
/* Whether the context that is current on this thread is one of other code. */
int aio_context_is_foreign(void);
int aio_has_own_context(int device);
/* Whether the device's context can still be made current. */
int aio_context_lives(int device);
/* Makes the device's context current on this thread, for code that calls the runtime directly. */
int aio_bind_thread(aio_pass pass);
/* Marks this thread as a thread of the device. No code outside aioacl changes the context on such a thread. */
int aio_adopt_thread(aio_pass pass);
/* A thread of aioacl's own calls this before synchronous copies, and before calls for which the runtime makes
 * such copies. While other code captures, they would be refused otherwise (107030). Without a current context,
 * it has no effect. */
void aio_relax_captures(void);
/* Marks this thread as the control thread of the device. Its resets do not count as foreign resets, and its
 * calls are listed among the calls inside. */
void aio_control_thread(int device);

/* device.c, wake.c, nudge.c. */
int aio_device_start(int device, int strategy, aio_port *kick);
void aio_device_stop(int device);
/* Returns the reasons for which the maintenance thread was woken, and clears them. */
int aio_device_kicks(int device);
void aio_device_kick(int device, int reason);
/* Returns how many waits, of all generations, have not ended. */
int64_t aio_device_waits(int device);
/* Queries each stream once, and returns how many streams have unfinished work. */
int aio_device_busy(int device);
/* Returns how many streams of the present generation are not known to be done. Calls no ACL function. */
int aio_device_unfinished(int device);
/* Updates the positions of the device's streams by a query of each stream. Returns how many streams are
 * listed. */
int aio_device_ask_streams(int device);
/* Aborts every busy stream, in parallel. `out` counts streams: aborted, not supported, failed or out of
 * time. */
void aio_device_abort(int device, int64_t timeout_us, int32_t out[3]);
/* Like aio_device_abort, but also aborts the native streams in `named`, which other code has created. These
 * streams must exist until the call returns. */
void aio_device_abort_named(int device, void *const *named, int count, int64_t timeout_us, int32_t out[3]);
/* The first is to be called before a wait for the whole device, the second after the code of this wait was
 * attributed. The wait may return the code of any stream. Only one such wait may be in progress at a time. */
void aio_device_sync_begin(int device);
void aio_device_sync_end(int device);
/* Records the code of a wait for the whole device as a failure of every stream whose work may have failed with
 * this code. */
void aio_device_fail(int device, int32_t code, const char *text);
/* Takes the next failure that was not yet reported to the listeners. Returns 0 if there is none. */
int aio_device_take_failure(int device, aio_error *out);
/* From now on, a failed task of the generation stops its context. */
void aio_device_stops(int device, uint32_t generation);
/* Returns the code of a task that a query or a record has returned in this generation, or 0. Unless a stream of
 * aioacl stops its context, other code has set the failure mode STOP, and a failed task has stopped the
 * context. */
int32_t aio_device_stop_code(int device, uint32_t generation);
/* Returns how many reports since the start were about tasks that aioacl did not enqueue. */
uint32_t aio_device_unattributed(int device);
/* Wakes the watcher, so that it checks the gate now. */
void aio_watcher_wake(int device);
/* Ends the waits that a reset interrupted. To be called when the reset has ended, whether it succeeded or
 * not. */
void aio_device_flush(int device);
/* Makes events until the pool has `count` events. Returns an aclError. */
int aio_device_refill(int device, int timing, int count);
/* Destroys the native events of the present generation, and returns how many it destroyed. To be called when
 * the gate is shut and no call is inside. */
int aio_device_destroy_events(int device);
/* Makes the stream and the event with which the watcher wakes the runtime, and wakes the runtime once. Returns
 * an aclError. */
int aio_device_equip(int device);
/* Returns how many devices have such a stream and event now. */
int aio_equipped(void);
/* Returns how many foreign resets the state callback has reported since the start. */
uint32_t aio_device_foreign(int device);
/* Returns how many resets, by aioacl or by other code, have torn the device down. Needs the callback too. */
uint32_t aio_device_teardowns(int device);
/* Returns how often the runtime has set the device up since the start, after it was released. If this number is
 * the same before a reset and after the next set, the reset has not released the device, so its memory still
 * exists. Needs the callback too. */
uint32_t aio_device_setups(int device);
/* Returns how many sets by other code the callback has reported since the newest tear-down. Other code may have
 * undone them. */
uint32_t aio_device_foreign_sets(int device);
/* Returns how many resets by other code the callback has reported while aioacl used a context of its own. They
 * end all sets, but not that context, and are not counted as foreign resets. */
uint32_t aio_device_unseen_resets(int device);
/* From now on, one set by aioacl counts as a set by other code, until a reset ends it. */
void aio_device_leave_set(int device);
/* Whether such a set of aioacl stands. */
int aio_device_has_left_set(int device);
/* To be called when a call of the generation has found that other code reset the device. Shuts the gate, unless
 * the gate is shut already. */
void aio_foreign_found(int device, uint32_t generation);
/* Marks foreign resets as handled. To be called after the device was set and the gate was opened.
 * `foreign_resets` is the number of foreign resets that had been reported when the device was set. If more
 * foreign resets were reported since, shuts the gate until these are handled too. */
void aio_foreign_settle(int device, uint32_t foreign_resets);
/* Registers the callback by which the library reports resets by other code. Returns the library's code. */
int aio_watch_foreign(void);
/* Whether the callback is registered. */
int aio_tells_of_resets(void);

/* foreignstop.c. */
/* Registers the callback by which the library reports streams of other code. Returns the library's code. */
int aio_watch_streams(void);
/* Wakes the maintenance thread to call aio_device_read_modes, if there are streams of other code. */
void aio_device_look_for_stop(int device);
/* Reads the modes of the streams that other code has in the device's context. */
void aio_device_read_modes(int device);
/* Whether a stream with STOP mode was found in the context of the generation. Calls no ACL function. */
int aio_device_has_foreign_stop(int device, uint32_t generation);

/* nudge.c. */
/* Wakes the runtime's thread that handles failed tasks, also those of other code. Does nothing if the device is
 * not open. */
void aio_device_rouse(int device);

/* taskabort.c. */
/* Registers the callback by which the library reports aborts of all tasks of a device. Returns the library's
 * code. */
int aio_watch_task_aborts(void);
/* How often other code has aborted all tasks of the device. Calls no ACL function. */
uint32_t aio_device_task_aborts(int device);

int64_t aio_threads(void);

/* counts.c. */
/* The result of a change of ACL's counts. It is complete once `returned` is set. */
typedef struct {
    int32_t returned;
    int32_t code;
    uint32_t foreign_resets; /* foreign resets that were reported before the change took effect */
} aio_counted;

/* Sets the device. A foreign reset may be reported during the call. If the device is still set after the call,
 * the reset came before the set, and is counted in `foreign_resets`. If the device is not set any more, the
 * reset has undone this set. */
void aio_count_set(int device, aio_counted *made);
/* Sets the device once for other code. The callback counts this as a set by other code. Returns an aclError. */
int aio_set_for_other_code(int device);
/* Resets the device; this does not count as a foreign reset. */
void aio_count_reset(int device, int force, aio_counted *made);

/* stage.c: pinned memory for copies from and to pageable memory. */
int aio_stage_grow(int device, int large);
int aio_stage_free_slots(int device, size_t size);
void aio_stage_close(int device);

/* streamlock.c. */
/* Whether a call that creates or destroys a stream has waited for more than a second. */
int aio_device_held_up(int device);
/* The port gets kicks while aio_device_held_up is true. NULL: no port. */
void aio_device_relieve_by(int device, aio_port *port);
/* Returns when no wait for the device can keep a reset waiting for idle streams of the engine any more. To be
 * called when no call is inside the gate. Returns AIO_CROWDED or 0. */
int aio_device_pass_lock(int device);

/* stream.c. */
aio_stream *aio_stream_new(aio_pass pass, aclrtStream handle);
/* Makes a record of a native stream of other code, which is never destroyed, synchronized, queried or aborted.
 * `context` is the context of the stream; NULL: that of the device. Only marks show when work is done. */
aio_stream *aio_stream_borrow(aio_pass pass, aclrtStream handle, void *context);
/* Makes a record of a native event of other code, and a record of a stream without a native stream, whose
 * position 1 is done when the event is. */
aio_stream *aio_event_borrow(aio_pass pass, aclrtEvent handle, aio_event **event);
/* Whether the native event, or the native stream, belongs to aioacl. */
int aio_event_is_ours(aclrtEvent handle);
int aio_stream_is_ours(aclrtStream handle);
/* Whether other code owns the native stream of the record. */
int aio_stream_is_borrowed(const aio_stream *stream);
/* Destroys the native stream if it is idle and not in use. The outcomes of its positions stay known. Returns
 * AIO_PENDING if it cannot be destroyed yet. */
int aio_stream_destroy(aio_stream *stream);
/* The same, but does not destroy a native stream that can be used again. Such a stream has no failed or aborted
 * work, and no direct ACL call has enqueued on it. Sets `*kept` to 1 if the stream is kept, else to 0. */
int aio_stream_release(aio_stream *stream, int *kept);
/* Whether the record itself can serve further work after a close: as for `kept`, and all its work has
 * succeeded. */
int aio_stream_is_spent(aio_stream *stream);
/* Makes a new record of the native stream of a released record. Reports of failed tasks are attributed to the
 * record only after `aio_stream_list`, so a record that is dropped before has no effect. */
aio_stream *aio_stream_again(aio_stream *released);
/* Adds the record to the streams of its device. `id` is the stream's id. */
void aio_stream_list(aio_stream *stream, int32_t id);
/* Drops the caller's reference to the stream. The memory is freed when the work has ended, and no wait and no
 * other stream refers to the stream. */
void aio_stream_drop(aio_stream *stream);
/* Returns the stream's id, as aclrtStreamGetId does; -1: not known. */
int32_t aio_stream_id(const aio_stream *stream);
uint64_t aio_stream_tail(const aio_stream *stream);
uint64_t aio_stream_completed(const aio_stream *stream);
/* Returns the first position that never completes, because it depends on work that was dropped; UINT64_MAX if
 * there is none. */
uint64_t aio_stream_stranded(const aio_stream *stream);
/* Queries the runtime. Returns 1 if the position is done, 0 if it is not, or a code. */
int aio_stream_query(aio_stream *stream, uint64_t position);
/* Returns the outcome of a position, without suspending. Queries the runtime if the outcome is not known yet.
 * Returns AIO_PENDING if the outcome cannot be found at once. */
aio_result aio_stream_poll(aio_stream *stream, uint64_t position);
/* Synchronizes a failed stream once, if it is idle, to take the runtime's code and text. */
void aio_stream_take_code(aio_stream *stream);

/* enqueue.c, staged.c. A function that enqueues returns the position of its entry, or aio_failed(code) with a
 * refusal or an aclError. */
aio_result aio_copy(aio_stream *stream, int held, void *target, size_t room, const void *source, size_t count,
                    int kind);
aio_result aio_upload(aio_stream *stream, int held, void *target, size_t room, const void *source,
                      size_t count);
aio_result aio_download(aio_stream *stream, int held, void *target, const void *source, size_t count);
aio_result aio_fill(aio_stream *stream, int held, void *target, size_t room, int value, size_t count);
/* Records an event. *event is a new reference to the native event that was recorded. */
aio_result aio_record(aio_stream *stream, int held, int timing, aio_event **event);
/* Makes the stream wait for the event, which `source` recorded at the position `at`. */
aio_result aio_wait_event(aio_stream *stream, int held, aio_event *event, aio_stream *source, uint64_t at);
/* Enqueues an execution of a loaded model. The runtime reports a failed execution only by the thread that
 * enqueued it. So if this thread has several unfinished executions, the first one of each stream counts as
 * failed. */
aio_result aio_execute(aio_stream *stream, int held, uint32_t model, const aclmdlDataset *input,
                       aclmdlDataset *output);
/* calls.c: the slots of a loaded model, and the threads that enqueue its calls. */
typedef struct aio_calls aio_calls;
/* Enqueues an execution with memory of the caller, on the model's last instance. Returns AIO_MODEL_BUSY while
 * an execution of another stream runs on this instance, and AIO_MODEL_ENDED after aio_calls_close. */
aio_result aio_calls_execute(aio_stream *stream, int held, aio_calls *calls, const aclmdlDataset *input,
                             aclmdlDataset *output);
/* A launch block: until it ends, other code enqueues on the native stream, and the engine enqueues nothing but
 * marks. The block counts as a call inside the gate. */
typedef struct {
    int32_t open;
    void *before; /* the context of the thread before the block, if it was another one */
    void *left;   /* the own context that an earlier call has left on the thread, or NULL */
} aio_block;
/* Opens a block with room for `tasks` tasks, and makes the stream's context current on this thread. Unless
 * `reported` is set, the runtime may not report a failed task of the block. Returns 0 or a refusal. */
int aio_launch_begin(aio_stream *stream, int held, int tasks, int reported, aio_block *block);
/* Ends the block, on any thread. Returns the position that covers its work: that of a mark, or a position
 * without a task if a reset drops the work. Unless the runtime reports all failures of the block, the position
 * is confirmed by a synchronize. Returns AIO_PENDING as a failure if the block is not open. */
aio_result aio_launch_end(aio_stream *stream, aio_block *block);
/* Returns AIO_LAUNCHING_HERE if this thread has opened the block that is open, AIO_LAUNCHING if another thread
 * has, and 0 if no block is open. */
int aio_stream_launches(const aio_stream *stream);
/* Returns for how many tasks a block may ask. */
int aio_launch_most(void);
/* Writes the open blocks of the device as calls. Returns how many were written. */
int aio_launch_inside(int device, aio_call *calls, int size);
int aio_stream_abort(aio_stream *stream);
/* To be called after this thread has enqueued on the stream by direct ACL calls. `before` is the id of the
 * thread's last task before these calls. A later entry that submits no task covers the work of these calls. */
void aio_stream_manual(aio_stream *stream, uint32_t before);
/* Returns the id of the last task that this thread has enqueued. */
uint32_t aio_last_task(void);
/* From now on the stream's positions are confirmed by synchronizing. To be called when work that may fail
 * without a report was enqueued. */
int aio_stream_doubt(aio_stream *stream);
/* Returns how many entries can still be enqueued before the queue counts as full. */
int64_t aio_stream_room(aio_stream *stream);
/* To be called when the ticket of this position was dropped. Then no mark is recorded for the position, and its
 * completion may be seen only after later work is done. */
void aio_stream_forget(aio_stream *stream, uint64_t position);

/* outcome.c, collect.c, failure.c. */
/* Returns the outcome of the position if it is known already, else AIO_PENDING. Calls no ACL function. */
aio_result aio_stream_known(aio_stream *stream, uint64_t position);
/* Finds the failure of a position, or of work that the position depends on. Returns the failure's code, or 0.
 * If `out` is not NULL, stores the failure in `out` and marks it as collected. */
int32_t aio_stream_error(aio_stream *stream, uint64_t position, aio_error *out);
/* If the stream's own failure is not collected yet, stores it in `out`, marks it as collected and returns 1.
 * Else returns 0. */
int aio_stream_uncollected(aio_stream *stream, aio_error *out);

/* events.c. */
void aio_event_hold(aio_event *event);
void aio_event_drop(aio_event *event);
aclrtEvent aio_event_handle(const aio_event *event);
/* Makes a stream of other code wait for the event. `context` is the context of the stream; NULL: the one that
 * is current on this thread. */
int aio_wait_outside(aio_pass pass, aclrtStream stream, aclrtEvent event, void *context);

/* report.c. */
/* Registers a callback for reports of failed tasks. `allowed` is the set of permitted ways, as the sum of their
 * values in enum aio_detection. Only the first call registers. Returns the way that is used. */
int aio_failures_register(int allowed);
/* Sets whether the chip keeps the order of memory accesses on which reports depend. If it does not, aioacl does
 * not use reports. */
void aio_failures_trust(int trust);
/* Return how the callback for reports is registered, and how failed tasks are found (both of enum
 * aio_detection). */
int aio_failure_reports(void);
int aio_failure_detection(void);

/* watcher.c, waiters.c. */
/* Begins a wait, which publishes (key, result) to the port when all work up to the position is done. Returns 0,
 * or a refusal. */
int aio_watch(aio_stream *stream, uint64_t position, aio_port *port, uint64_t key);

/* port.c. */
/* Returns NULL in a forked child, or if memory or descriptors have run out. */
aio_port *aio_port_new(void);
int aio_port_fd(const aio_port *port);
/* Takes at most `max` completions. To be called when the descriptor is readable. */
int aio_port_take(aio_port *port, uint64_t *keys, int64_t *results, int max);
enum aio_room { AIO_BATCH = 256 };
/* Completions that were taken from the port and not delivered yet. If an exception interrupts a call before the
 * caller has received the return value, the completions are still here. */
typedef struct {
    int32_t count;
    uint64_t keys[AIO_BATCH];
    int64_t results[AIO_BATCH];
} aio_batch;
/* Takes as many completions as the batch has room for. Returns how many the batch then contains. */
int aio_port_fill(aio_port *port, aio_batch *batch);
/* Makes a port without a descriptor, for the engine's own threads. Returns NULL in a forked child, or if there
 * is no memory. */
aio_port *aio_port_quiet(void);
/* Sleeps until the descriptor is readable. While the port is shared, its other consumer, an event loop, has
 * then taken no completion for AIO_SHARED_US, so it is probably blocked. */
void aio_port_wait(aio_port *port);
enum aio_shared { AIO_SHARED_US = 5000 };
void aio_port_share(aio_port *port, int shared);
/* Makes the descriptor readable, or wakes the consumer. Does nothing if `port` is NULL, because the owner has
 * closed the port. */
void aio_port_kick(aio_port *port);
/* For a wait that the caller ends, not the engine. The memory of the completion is taken when the wait begins,
 * so ending the wait cannot fail. Returns 0, AIO_NO_MEMORY, or AIO_NOT_OPEN if `port` is NULL. */
int aio_token_take(aio_port *port, uint64_t key, aio_token **token);
/* Posts the completion, and clears *token. If *token is NULL, because the wait has ended, does nothing. */
void aio_token_post(aio_token **token, int64_t result);
/* Frees a token that was not posted, and clears *token. */
void aio_token_drop(aio_token **token);
/* Drops the owner's reference to the port. The descriptor is closed when the last wait has been published. */
void aio_port_close(aio_port *port);

/* metrics.c: what the metrics count in C. The numbers only rise. Times are in microseconds.
 */
enum aio_metrics { AIO_BOUNDS = 17, AIO_BUCKETS = 18, AIO_OF_STREAM = 0, AIO_OF_MODEL = 1, AIO_WAIT_KINDS = 2 };
/* How a wait, a call of a model or an execution has ended. RESET: also by a close. CANCELLED: its caller had
 * gone, or its time was over. REFUSED: there was no free slot. */
enum aio_ending {
    AIO_ENDING_DONE = 0,
    AIO_ENDING_FAILED = 1,
    AIO_ENDING_RESET = 2,
    AIO_WAIT_ENDINGS = 3,
    AIO_ENDING_CANCELLED = 3,
    AIO_EXECUTION_ENDINGS = 4,
    AIO_ENDING_REFUSED = 4,
    AIO_REQUEST_ENDINGS = 5
};
/* The last of the counts is for the values above all bounds. */
typedef struct {
    uint64_t sum_us;
    uint64_t counts[AIO_BUCKETS];
} aio_histogram;
/* `begun` are the waits that have begun, and `dropped` those of them that will never be in `waits`. */
typedef struct {
    uint64_t begun[AIO_WAIT_KINDS];
    uint64_t dropped[AIO_WAIT_KINDS];
    aio_histogram waits[AIO_WAIT_KINDS][AIO_WAIT_ENDINGS];
} aio_device_counts;
/* Of all models with one label on a device. */
typedef struct {
    int64_t device;
    uint64_t requests[AIO_REQUEST_ENDINGS];
    uint64_t executions[AIO_EXECUTION_ENDINGS];
    uint64_t rows[AIO_EXECUTION_ENDINGS];
    aio_histogram slot_wait;
    aio_histogram execution;
} aio_model_counts;
/* Returns NULL if there is no memory. The counts are never freed. */
aio_model_counts *aio_model_counts_new(int device);
/* From now on, the calls of this load are counted. To be called when no call is running. */
void aio_calls_count(aio_calls *calls, aio_model_counts *counts);
void aio_device_counts_read(int device, aio_device_counts *copy);
void aio_model_counts_read(const aio_model_counts *counts, aio_model_counts *copy);
/* Returns the upper bound of a bucket. */
int64_t aio_bound_us(int bucket);

/* exit.c. */
void aio_exit_install(int64_t grace_us);
int aio_forked(void);

#endif
