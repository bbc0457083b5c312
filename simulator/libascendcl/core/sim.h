/*
 * Theory of operation
 *
 * Calls. entry.c reads the function table and makes one exported wrapper per function. The wrapper counts the
 * call, and stores the function in the calling thread's record, so that the usage checker can see which calls
 * are inside the simulator. Then it applies the rules that the controls have set, and calls do_<name>, which
 * implements the behaviour.
 *
 * Ownership. Contexts, streams, events and notifies are in slabs (handle.c) that are never freed. So the
 * simulator can look up any pointer that a client passes, and never reads memory that is not its own. An object
 * has one reference for its handle, one for each thread that has it current (contexts), and one for each queued
 * task (events, notifies). A slot becomes free when the last reference is released, and the slot that became
 * free last is used first. Each aclrtRecordEvent creates a record (record.c). The event owns its newest record,
 * and each task and waiter owns the record that it refers to.
 *
 * Locks. sim.lock protects everything that is not atomic or private to a thread. No thread holds sim.lock
 * during a blocking wait, a callback or a copy. A thread may take the locks of the thread list, of the usage
 * checker and of the error text while it holds sim.lock, but not in the reverse order. The usage checker's lock
 * may also be taken while the thread list's lock is held. The runtime also has coarse locks, whose effects
 * clients can notice. The simulator models these locks as gates (wait.c). The stream lock of a context is a
 * gate that SynchronizeDevice holds until it returns. The lock of an event is a gate that a RecordEvent holds
 * while the queue is full. A thread that takes a free gate keeps sim.lock. If the gate is taken, the thread
 * waits.
 *
 * Waiting. A blocked call puts a waiter_t on the list of the object that it waits for. The thread that causes
 * the awaited change (or destroys the object) takes the waiter off the list, sets its return code and wakes it.
 * The waiter does not access the object again. So a stream may be destroyed while calls wait for it.
 *
 * Failures. A failed task stays the head of its stream, which is parked: no later task starts. The device's
 * recycle thread (recycle.c) sets the stream's error code. Then it calls the exception callbacks without
 * sim.lock, while stream->running is set. Then it ends the task and lets the stream continue. The thread
 * handles failures only when it is woken; aclsim.h lists the events that wake it. Each wake begins a round. The
 * device finishes work in one round, and the host sees in a later round that the work is complete. This applies
 * to streams, and to events of aclrtCreateEventWithFlag.
 *
 * Tasks. A stream is a ring of tasks. Enqueueing appends a task to the ring. The device's executor thread
 * (executor.c) takes the ready streams one after the other, and runs tasks from the head of each. A task that
 * has to wait for an event, a notify, a host function, a callback or a due time parks its stream. The executor
 * skips a parked stream until the stream is unparked. Copies (in batches) and work (work.h) run outside
 * sim.lock, while stream->running is set.
 *
 * End of work. A task runs or is dropped: by an abort (waiters get 107023), or by a reset, a forced destroy or
 * the end of its context (waiters get 0). A dropped record ends the host's waits for the record, but never the
 * waits of streams.
 */
#ifndef ACLSIM_SIM_H
#define ACLSIM_SIM_H

#include "fault.h"
#include "objects.h"

/* Contexts and devices. */
struct context {
    object_t object;
    device_t *device;
    bool primary;
    atomic_bool active;
    bool torn;     /* its streams have been destroyed */
    uint64_t life; /* unique; events remember it */
    thread_t *resetter;
    stream_t *default_stream;
    stream_t *streams; /* all but the default stream */
    gate_t gate;
    bool stop_on_failure;
    aclError failure;                 /* in STOP mode: the code that every call returns */
    uint32_t captures[CAPTURE_MODES]; /* captures into graphs of the context, by mode */
    bool option_set[SIM_OPTIONS];
    int64_t options[SIM_OPTIONS];
    host_thread_t *host;
};

struct device {
    int id;
    uint32_t retains;
    uint32_t explicit_contexts;
    atomic_bool open;  /* the primary context is active; may be read without sim.lock */
    thread_t *changer; /* the thread that sets or resets the device now */
    wait_list_t changed;
    context_t *primary;
    context_t *retired; /* the previous primary context, kept so that the next context gets another handle */
    uint64_t resets;
    bool aborting; /* aclrtDeviceTaskAbort is in progress */
    core_limit_t cores[2];
    uint64_t peers;  /* mask of the devices whose memory this device may access */
    int64_t busy_ns; /* time spent on tasks since the start */
    uint32_t notifies;
    uint32_t events; /* events that hold a hardware id from their creation on */
    uint32_t streams;
    uint64_t stream_ids[SIM_STREAM_IDS / 64]; /* ids in use */
    uint32_t last_id;                         /* the id that was given last */
    uint32_t wakers; /* calls that keep the recycle thread awake: they wait for work or for room */
    uint64_t bytes;
    uint64_t peak_bytes;
    bool executor_started;
    bool executor_idle;
    uint32_t settlers; /* calls in device_settle(); the executor lets them take sim.lock first */
    pthread_cond_t work;
    stream_t *ready_first;
    stream_t *ready_last;
    stream_t *timed;
    park_list_t faulted; /* streams whose head task has failed, oldest first */
    uint64_t faults;     /* failures since the start */
    uint64_t woken;      /* faults up to this number must be handled */
    uint64_t round;      /* counts the wakes of the recycle thread, from 1 */
    aclError lost_code;  /* code of a device fault that the callbacks have not received; 0: none */
    bool recycler_started;
    pthread_cond_t recycle;
    health_t health;
};

typedef struct {
    pthread_mutex_t lock;
    settings_t settings;
    device_t devices[SIM_MAX_DEVICES];
    pthread_cond_t settled; /* signalled when a stream is no longer running */
    uint64_t tasks;
    uint64_t lives;
    uint32_t wait_limit_s; /* aclrtSetOpWaitTimeout */
    bool abort_supported;
    bool count_notify_supported;
    bool ipc_event_supported;
    bool query_lag;       /* the first aclrtQueryEvent of a complete record lags */
    bool sync_livelock;   /* a wait for a stream does not end if tasks are enqueued during the wait */
    bool device_livelock; /* a wait for a device does not end if tasks are enqueued meanwhile */
    bool reset_crash;     /* the end of a context crashes threads that use its streams or events */
    bool lost_wait;       /* a wait for an event loses its end if a destroy waits for the stream meanwhile */
    int64_t started_ns;
    int default_device; /* the default device of aclInit's configuration; -1: none */
} sim_t;

extern sim_t sim;

void sim_start(void);
void sim_lock(void);
void sim_unlock(void);

static inline bool sim_guard_begin(void) {
    sim_lock();
    return true;
}

static inline void sim_guard_end(const bool *guard) {
    (void)guard;
    sim_unlock();
}

/* Takes sim.lock until the end of the enclosing block. A `return` computes its value before the release. */
#define SIM_GUARD() __attribute__((cleanup(sim_guard_end), unused)) const bool sim_guard = sim_guard_begin()

/* release.c. */
/* "8.1", "8.5", "9.0", "9.1" or "master". */
extern const char sim_release[];

void cond_init(pthread_cond_t *cond);

/* device.c, reset.c, context.c. */
device_t *device_find(int32_t id);
/* Called with sim.lock held. Releases sim.lock for callbacks, and while another thread changes the device. */
aclError device_set(int32_t id);
void device_wait_change(device_t *device);
/* False: this thread is changing the device already, and the caller must not end that change. */
bool device_begin_change(device_t *device);
void device_end_change(device_t *device);
/* True: the primary context is being torn down. A call that finds this after device_wait_change() runs inside a
 * callback of the teardown. */
bool device_releasing(const device_t *device);
/* Called after a reset. The newest runtime keeps the primary context's handle for the next set; older releases
 * do not. */
void device_retire_primary(device_t *device);
bool context_usable(const context_t *context);
/* Returns the caller's context, or sets the last error and returns NULL. If the thread has no context and the
 * configuration names a default device, the call sets that device first. */
context_t *context_need(void);
bool context_activate(context_t *context);
/* Ends all streams of a context. Called with sim.lock held, which is released during waits. */
void context_teardown(context_t *context);
/* Waits for a running host function of the context, and ends the context's host thread. */
void host_stop(context_t *context);
/* Waits until no host function of the context is running. */
void host_wait(context_t *context);
void device_release(device_t *device);
/* Frees the device's memory if no context of the device exists any more. */
void device_close_unused(device_t *device);

/* statecb.c: callbacks for state changes; sim.lock is released while they run. */
void state_device(int32_t device, aclrtDeviceState state);
void state_stream(stream_t *stream, aclrtStreamState state);

/* stream.c. */
stream_t *stream_new(context_t *context, uint32_t priority, uint32_t flags);
void stream_free(stream_t *stream);
/* Finds the stream of a handle (NULL: the context's default stream), or returns an error. */
aclError stream_find(context_t *context, aclrtStream handle, stream_t **stream);
/* The same for calls that enqueue. The stream must belong to this context, must not be a runner of a model, and
 * must not be aborting. The context must have no failure. */
aclError stream_find_own(context_t *context, aclrtStream handle, stream_t **stream);
aclError stream_check_launch(context_t *context, stream_t *stream);
/* The same two, in the caller's context. */
aclError stream_need(aclrtStream handle, stream_t **stream);
aclError stream_need_own(aclrtStream handle, stream_t **stream);
/* Returns an error if the handle is neither NULL nor a live stream. Requires no context. */
aclError stream_check_handle(aclrtStream handle);
/* The same as stream_need(), but requires a context only to find the default stream. */
aclError stream_find_handle(aclrtStream handle, stream_t **stream);
/* The same as stream_need(), but refuses a captured stream before it looks for the context. */
aclError stream_need_idle(aclrtStream handle, stream_t **stream);

/* queue.c. */
/* Appends a task, and blocks while the queue is full. The task's references are moved to the stream, or
 * released. */
aclError stream_enqueue(stream_t *stream, task_t *task);
task_t *stream_head(stream_t *stream);
/* Ends the head tasks: frees what they own, and wakes waiters. */
void stream_end_tasks(stream_t *stream, uint64_t count);
/* Ends, at the same time, all waiters whose work is complete. Each call gets the error that it must return. */
void stream_finish_waiters(stream_t *stream);
/* Waits until the executor next leaves a stream of the device. At least one stream must be running. */
void device_settle(device_t *device);
/* Waits until the executor has left the stream and its graph, then drops all tasks. */
void stream_drop(stream_t *stream, aclError waiters_rc, aclError room_rc);
/* Waits for the stream's work as a reset does, and drops work that makes no progress for that time. */
void stream_drain_or_drop(stream_t *stream, int64_t patience_ns);
void task_release(task_t *task, aclError rc);

/* executor.c. */
bool executor_start(device_t *device);
/* Makes the executor check the stream again, because something has changed for the stream. */
void stream_kick(stream_t *stream);
/* When the head task could begin. It is now if that is not known better. */
int64_t stream_free_ns(const stream_t *stream);
/* Stops the executor from checking the stream. */
void stream_unready(stream_t *stream);
void stream_park(stream_t *stream, park_t park, park_list_t *list, int64_t wake_ns);
/* The same, but `wake_ns` is real time, independent of the simulator's clock. */
void stream_park_real(stream_t *stream, park_t park, park_list_t *list, int64_t wake_ns);
/* Parks the stream for at most that many nanoseconds of real time, independent of the simulator's clock. */
void stream_park_polling(stream_t *stream, park_list_t *list, int64_t ns);
void stream_unpark(stream_t *stream);
void park_kick_all(park_list_t *list);
/* Releases sim.lock for the work of the head task. stream_run_end() takes the lock again. */
void stream_run_begin(stream_t *stream);
void stream_run_end(stream_t *stream);
/* Between these two calls, a thread of a model has the head task, and the executor runs other streams. Then the
 * executor reaches the task again. Called with sim.lock held. */
void stream_compute_begin(stream_t *stream);
void stream_compute_end(stream_t *stream);
/* Marks the stream as not running. Called with sim.lock held. */
void stream_left(stream_t *stream);
/* Runs the task on the executor's thread. False: the task has to wait, and the stream is parked. */
bool event_run_task(stream_t *stream, task_t *task);
bool notify_run_task(stream_t *stream, task_t *task);
bool call_run_task(stream_t *stream, task_t *task);

/* recycle.c. */
/* Called when the head task has failed. Later tasks do not start until the recycle thread has handled the
 * failure. */
void stream_fault(stream_t *stream, aclError code);
/* Sets the error that the stream's next synchronizing call returns. */
void stream_note_failure(stream_t *stream, aclError code, const char *why);
void recycler_wake(device_t *device);
/* Between these two calls the recycle thread stays awake. */
void recycler_keep_awake(device_t *device);
void recycler_let_sleep(device_t *device);
/* Returns the round of work that ends now. The host sees the end of the work in a later round. */
uint64_t recycler_round(const device_t *device);
/* Whether the host has seen the end of work that ended in round `round`. */
bool recycler_seen(const device_t *device, uint64_t round);
/* Called when the device was lost or is out of memory. Calls the callbacks without a stream and a task. */
void recycler_device_fault(device_t *device, aclError code);

/* failures.c: known faults of the runtime, if a test enables them. */
/* True: the waiter continues to wait although its work is complete, because more work was enqueued. */
bool sync_livelocks(const stream_t *stream, const waiter_t *waiter);
/* Called before a task is enqueued on the stream. Ends the waits for the device that the stream keeps waiting
 * although its work is complete. */
void sync_end_device_livelock(stream_t *stream);
/* Called before the tear-down of a context. Ends the process if another thread synchronizes a stream of the
 * context or waits for room in its queue. */
void sync_crash(const context_t *context);
/* Ends the waits for a record that has run. */
void record_finish_waiters(record_t *record, aclError rc);
/* Called when a call uses an event of a context that has ended. Ends the process. */
void event_crash(void);

/* sync.c. */
/* Waits until `ended` reaches the target; returns the waiter's code. */
aclError stream_wait(stream_t *stream, uint64_t target, int64_t deadline_ns, aclError timeout_rc);
/* Ends all waits for the stream, for room in its queue and for its queued records. They return that code. */
void stream_wake_all(stream_t *stream, aclError rc);

/* An abort in two steps. First all waiting calls return the code. Then the queue is emptied. The second step
 * releases sim.lock while it waits for the context's stream lock and for a running copy. */
void stream_announce_abort(stream_t *stream, aclError code);
void stream_finish_abort(stream_t *stream, aclError code);

/* event.c, record.c. */
/* Finds the event of a handle, or returns an error. */
aclError event_find(aclrtEvent handle, event_t **event);
/* Sets the newest record of this event and of all events with the same key. */
void event_set_record(event_t *event, record_t *record);
/* Creates an event in the caller's context with the key of another event. */
aclError event_new_shared(aclrtEvent *handle, uint64_t key);
record_t *record_new(device_t *device);
/* Finds the notify of a handle, or returns an error. The notify's flag may belong to another notify: see
 * notify_t.shared. */
aclError notify_find(aclrtNotify handle, notify_t **notify);
notify_t *notify_new(device_t *device);
void record_retain(record_t *record);
void record_release(record_t *record);
void record_end(record_t *record, bool signalled, aclError waiters_rc);

/* callback.c, hostfunc.c. */
void job_free(job_t *job);
void job_push(job_queue_t *queue, job_t *job);
job_t *job_pop(job_queue_t *queue);
/* Runs the function without sim.lock, then lets the stream continue. */
void job_run(job_t *job);
/* Removes the stream's jobs from the queue, so that none of them runs. */
void job_forget(job_queue_t *queue, const stream_t *stream);
void host_submit(stream_t *stream, job_t *job);
void report_submit(stream_t *stream, job_t *job);
/* Whether the thread is in a callback that may call the function. */
bool report_may_call(function_t function);
void report_unsubscribe(stream_t *stream);
void report_forget(const stream_t *stream);
void calls_forget(stream_t *stream);

/* allocator.c. */
void allocator_forget(const stream_t *stream);

/* hostsubscribe.c, snapshot.c. */
void hostsubscribe_forget(const stream_t *stream);
/* While the process is locked for a snapshot, a call that creates or launches something waits here. */
void snapshot_pass(void);
/* Called with sim.lock held. Returns a locked or backed-up process to the running state. */
void snapshot_end(void);

/* exception.c. */
/* The reason why a launch has failed; "" for all other tasks. */
const char *launch_why(const task_t *task);
/* Whether a callback may call the function. Such a function only reads the description of the failure. */
bool exception_may_call(function_t function);

/* block.c, memory.c. */
/* MEMORY_STALE: memory of a block that has ended. */
typedef enum { MEMORY_PAGEABLE, MEMORY_DEVICE, MEMORY_PINNED, MEMORY_STALE } memory_t;

enum { MEMORY_READS = 1, MEMORY_WRITES = 2 };

memory_t memory_kind(const void *pointer);
/* What aclrtPointerGetAttributes reports. Memory without a block is not registered. */
aclrtMemLocation memory_location(const void *pointer);
/* Pins the block, so that a free waits. False: the range is not in live memory, or `access` is not permitted
 * there; the violation is noted. */
bool memory_pin_for(const void *pointer, size_t count, uint32_t access, void **block);
bool memory_pin_rows(const void *pointer, size_t width, size_t pitch, size_t height, uint32_t access,
                     void **block);
/* The same for memory that will be written. */
bool memory_pin(const void *pointer, size_t count, void **block);
void memory_unpin(void *block);
/* Takes device memory for the simulator itself. The client can copy to and from it, but cannot free it. */
aclError memory_take(device_t *device, void **pointer, size_t size);
/* Takes device memory as aclrtMalloc does, so that the client can free it. */
aclError memory_take_for_client(device_t *device, void **pointer, size_t size);
/* Frees memory of memory_take(). The memory may have ended already, with the device. */
void memory_give(void *pointer);
void memory_free_device(device_t *device);
/* Called in a forked child. */
void register_forked(void);
void memory_counts(aclsim_stats_t *stats);

/* move.c, fill.c. */
static inline bool task_moves(const task_t *task) {
    return task->kind <= TASK_INDIRECT;
}

/* Whether the rows fit into an address space. */
bool move_rows_fit(size_t width, size_t pitch, size_t height);
size_t move_span(size_t width, size_t pitch, size_t height);
void move_rows(const plane_t *plane);
/* Whether the client's own memory can be read or written. Must not be called for large ranges with sim.lock
 * held. */
bool move_is_there(const void *pointer, size_t count, bool write);
/* The same for an array that a client passes. */
bool array_is_there(const void *array, size_t count, size_t size);
/* The same for code and constants, which may be larger than other arrays. */
bool content_is_there(const void *content, size_t size);
/* The same for untyped memory that will be written. */
bool place_is_there(const void *place, size_t size);
/* Pins the memory that the task moves. False: that is not possible. */
bool move_prepare(task_t *task, void **to, void **from);
void move_perform(const task_t *task);
void fill_memory(void *to, uint32_t value, size_t count, bool words);

/* pool.c, managed.c, physical.c. */
void pool_run_task(task_t *task);
void pool_drop_task(task_t *task);
void pool_end_of_device(device_t *device);
/* The effect of synchronizing on pools: free memory above their thresholds is returned to the device. */
void pool_trim_all(void);
void prefetch_run_task(const task_t *task);
void physical_end_of_device(device_t *device);

/* arena.c. */
char *arena_take(size_t size);
void arena_give(char *base, size_t size);
bool arena_owns(const void *pointer);

/* usage.c, journal.c, armed.c. */
/* The text follows "<call>: thread <id> ". For a device task, <id> is the thread that enqueued the task. */
void usage_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Notes that the handle is not a live handle of that kind. */
void usage_dead(object_kind_t kind, const void *handle);
/* The same, but also sets the last error, and returns 107017. */
aclError usage_bad_handle(object_kind_t kind, const void *handle);
/* Notes the use of a live stream in another context than the stream's own. Sets the last error and returns
 * 107003. */
aclError usage_wrong_context(const stream_t *stream);
void usage_reset(const device_t *device);
uint64_t usage_count(void);
void usage_forget(void);
void usage_lock(void);
void usage_unlock(void);
void journal_add(function_t function, const uint64_t *words, long rc, int64_t took_ns);
void journal_forget(void);
/* One letter per argument of each function: i, u or p. The first call of a function sets its letters. */
extern _Atomic(const char *) function_letters[FN_COUNT];
void usage_destroy(const stream_t *stream);
void usage_gone(const stream_t *stream);

void calls_count(function_t function);
uint64_t calls_all(void);
void calls_forget_counts(void);

#endif
