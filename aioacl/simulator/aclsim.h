/*
 * Controls of the simulator. Only the simulator exports these names, so a test that finds them knows that no
 * card is used. Every function may be called from any thread, with or without a context. No control blocks,
 * waits or counts as an ACL call. Functions that return int return 0, or -1 for a bad argument, unless stated
 * otherwise.
 */
#ifndef ACLSIM_H
#define ACLSIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ACLSIM_CONTROL_VERSION 1

/* The numbers of live objects, and counters. `violations` counts from the start or the last aclsim_forget(). */
typedef struct {
    uint64_t contexts; /* explicit contexts */
    uint64_t streams;  /* made by a create call; default streams are not counted */
    uint64_t events;
    uint64_t notifies;
    uint64_t device_blocks; /* live aclrtMalloc blocks */
    uint64_t device_bytes;
    uint64_t host_blocks; /* live aclrtMallocHost blocks */
    uint64_t host_bytes;
    uint64_t calls;      /* ACL calls since the start */
    uint64_t tasks;      /* device tasks that have run since the start */
    uint64_t violations; /* misuse that the usage checker has reported */
    uint64_t inside;     /* ACL calls of all threads that are inside the simulator now */
    uint64_t pools;      /* memory pools */
    uint64_t pool_blocks;
    uint64_t managed_blocks;
    uint64_t physical;      /* handles of physical memory, and physical memory mapped without a handle */
    uint64_t mappings;      /* mappings of physical memory */
    uint64_t registrations; /* registrations of the client's memory */
    uint64_t reservations;  /* reserved ranges of addresses */
    uint64_t exports;       /* keys of shared device memory */
    uint64_t descriptions;  /* data buffers, tensor descriptions and other objects of the host only */
    uint64_t count_notifies;
    uint64_t binaries; /* loaded binaries */
    uint64_t models;   /* captured and built models */
    uint64_t labels;
    uint64_t offline_models; /* loaded offline models, including those whose context has ended */
} aclsim_stats_t;

int aclsim_control_version(void);
/* The release of CANN that the library imitates: "8.1", "8.5", "9.0", "9.1" or "master". */
const char *aclsim_cann(void);
/* Returns the name of ACL function number `index`, or NULL after the last one. Stores in `since` the release
 * that added the function. A library that imitates an older release does not export functions of newer
 * releases. */
const char *aclsim_function(int index, const char **since);
void aclsim_stats(aclsim_stats_t *stats);

/* Returns the retain count of the device: 0 if the device is not set, -1 if there is no such device. */
int aclsim_retain_count(int32_t device);
/* Returns how many resets have released the device since the start; 0 if there is no such device. */
uint64_t aclsim_resets(int32_t device);

/* Streams. */
/* Holds the stream: it starts no further task until aclsim_release(). A running task continues. */
int aclsim_hold(void *stream);
int aclsim_release(void *stream);
/* Releases all held streams, and all calls that a rule hangs or delays. Unlocks a process that is locked for a
 * snapshot. */
void aclsim_release_all(void);
/* The next task enqueued on the stream (not an event record, wait or host function) fails with `code`. */
int aclsim_fail_next(void *stream, int32_t code);
/*
 * The next task that computes or moves data fails with `code` when the stream reaches it (507015: an exception
 * of an AI core). The task may be in the queue already.
 */
int aclsim_trap_next(void *stream, int32_t code);
/* Returns the number of tasks that are enqueued on the stream and not done. A failed task counts until it is
 * handled. -1: no such stream. */
int64_t aclsim_pending(void *stream);
/* The next task enqueued on the stream gets the id `id`. Each later task gets the next id, modulo 2^32. */
int aclsim_set_next_task(void *stream, uint32_t id);

/* Failed tasks.
 *
 * A task that fails stops its stream. When the recycle thread of the device is woken, it handles the failure.
 * It sets the stream's error code. Then it calls the exception callbacks, if this kind of task has them. Then
 * it lets the stream continue. One wake handles the failures of all streams of the device. The following events
 * wake the recycle thread:
 *
 * - a call synchronizes a stream or device that has unfinished work. The thread stays awake while the call
 * waits;
 * - a call synchronizes an event, even if the event is complete;
 * - aclrtQueryEvent queries an event of aclrtCreateEventWithFlag(ACL_EVENT_SYNC) that the host still sees as
 * pending, or a complete event with ACL_EVENT_TIME_LINE. The host sees a record as complete only after a wake
 * that follows the end of the record. So the first query after a record always wakes the thread;
 * - a call enqueues the 64th, 128th, ... task on a stream, or waits for room in a full queue;
 * - a call destroys a stream or resets a device, because both wait for work;
 * - the runtime's monitor notices a failed kernel, one second after the failure.
 *
 * These kinds of task have callbacks: copies, fills, reductions, kernels, waits for notifies, and executions of
 * models. For a model, the callback gets the ids of the inner stream, and the thread that enqueued the
 * execution. For device lost (507010) and device out of memory (207018), the ids of stream, task and thread are
 * 0xFFFFFFFF.
 */
/* Returns 1 if the stream is stopped at a failed task until the recycle thread is woken. -1: no such stream. */
int aclsim_faulted(void *stream);
/* Returns how often the recycle thread of the device has been woken since the start. -1: no such device. */
int64_t aclsim_wakes(int32_t device);
/* Wakes the recycle thread. Another library of the process may also do this at any time. */
int aclsim_wake(int32_t device);
/* With 1, the first aclrtQueryEvent that finds a record complete still reports it as not complete. */
void aclsim_set_query_lag(int on);
/* With 1, aclrtSynchronizeStream without a time-out does not return if tasks are enqueued on the stream while
 * it waits. An abort, the end of the stream, or aclsim_set_sync_livelock(0) ends the call. */
void aclsim_set_sync_livelock(int on);
/* With 1, aclrtSynchronizeDevice without a time-out does not return if tasks are enqueued on a stream while it
 * waits for this stream. It holds the context's lock on streams meanwhile, so calls that create, destroy or
 * abort streams of the context wait, and so do resets. If all tasks of the stream are done, the next task that
 * is enqueued on the stream ends the call. An abort of the stream or aclsim_set_device_livelock(0) ends the
 * call too. */
void aclsim_set_device_livelock(int on);
/* With 1, the end of a context ends the process with SIGSEGV if another thread is inside aclrtSynchronizeStream
 * or aclrtSynchronizeStreamWithTimeout for a stream of the context, or waits for room in the queue of such a
 * stream. A reset that releases the device ends its primary context; the device-state callback before the reset
 * may end such a call, for example by an abort. aclrtDestroyContext ends another context. After the end of a
 * context, the process also ends with SIGSEGV when an event of the context is queried, waited for or destroyed.
 * The next aclrtSetDevice makes the events of the primary context usable again, but the destruction of an event
 * that was never recorded still ends the process. */
void aclsim_set_reset_crash(int on);
/* With 1, aclrtSynchronizeEventWithTimeout loses the end of a record if aclrtDestroyStream waits for the stream
 * of the record at that time. The call then returns at its time-out, with 507047, although the event is
 * complete. */
void aclsim_set_lost_wait(int on);

/* Calls. */
/* The next `times` calls of the named function (-1: all) do nothing and return `code`. A new setting replaces
 * an earlier setting of the same function. */
int aclsim_fail_call(const char *function, int32_t code, int32_t times);
/* The next call of the named function hangs until aclsim_release_call(function) or aclsim_release_all(). */
int aclsim_hang_call(const char *function);
/* Releases the calls that hang under the name: the name of their function, or the key of the rule that hangs
 * them. Returns -1 if no call hangs under the name, and it begins with "acl" but is not the name of a function.
 */
int aclsim_release_call(const char *name);
/* Returns the number of calls that hang inside the named function now. */
int aclsim_hung(const char *function);
/* Returns the number of calls that are blocked inside the named function now: calls that wait for work, an
 * event, room or a lock, and calls that a rule delays. Calls that hang because of a rule do not count. */
int aclsim_waiting(const char *function);
/* Returns the number of calls of the named function since the start or the last aclsim_forget(). */
uint64_t aclsim_calls(const char *function);
/* The same as aclsim_fault_clear(). */
void aclsim_clear(void);

/* Faults.
 *
 * A rule is text:   WHICH[:FIELD]...   as in   copy:dev=0:nth=3:rc=507015
 * All times in it are in milliseconds (MS), as the time-outs of ACL are. Fractions are possible: 0.5.
 *
 * WHICH   names of functions, with * and ? as in a shell, or groups, separated by bars: alloc|aclrtCreateStream
 *         The groups:
 *         alloc               allocates memory of a device or of the host
 *         copy                moves or fills bytes
 *         memory              everything about memory
 *         stream event notify context device
 *         create              creates a handle
 *         destroy             ends a handle or frees memory
 *         sync                waits for work on the calling thread
 *         query               queries the progress of work
 *         reset               resets a device
 *         init                begins or ends the process's use of ACL
 *         launch              starts kernels and host functions
 *         callback            host functions and reports
 *         model               loads, queries and runs models
 *         graph               captured graphs
 *         op                  single operators
 *         enqueue wait lifetime control free
 *                             how the gate of aioacl counts the function
 *         *                   every function
 *
 *         These fields select among the calls of WHICH:
 *         dev=N  stream=ID|0xHANDLE  thread=N  tid=N  size>=N  size<=N
 *         Threads are numbered from 1, in the order of their first call that is checked against rules.
 *
 * WHEN    counts the matching calls of all threads. With per=thread, it counts each thread's calls separately.
 *         nth=K               fires on the K-th match; with times= or once, also on later matches
 *         after=K             fires only after the first K matches
 *         every=K             fires on every K-th match
 *         times=M             fires at most M times; -1: no limit
 *         once                fires at most once
 *         p=0.01              fires by chance, decided by a hash of the seed, the rule's number since the
 *                             seed was set, and the number of the match
 *
 * WHAT    rc=CODE             does nothing and returns the code, which may be 0
 *         rc-after=CODE       does its work and returns the code
 *         oom                 fails as if the memory or resource that the function takes had run out
 *         latency=MS[+-J]     takes MS milliseconds longer: before the work (at=before, the default), during it
 *                             (at=during: a task takes longer on the device, any other call waits before its
 *                             work), or after it (at=after)
 *         hang[=KEY]          hangs until aclsim_release_call() gets the key or the function's name. A wait
 *                             with a time-out still times out (507046, 507047). A synchronizing call also
 *                             continues when its device is reset
 *         async-error=CODE    the task is enqueued, and fails later. Not for aclrtRecordEvent*, and not for
 *                             aclmdlExecute and aclmdlExecuteV2, which return a failure themselves. A wait for
 *                             an event fails one second of real time after it was enqueued, as if it had timed
 *                             out. A wait that submits no task, because the event is complete or of the same
 *                             stream, does not fail
 *         late-complete=MS    the task does its work, and ends MS milliseconds later
 *         late-copy=MS        the task copies its bytes MS milliseconds later, and ends then
 *         sticky=CODE         the device enters a fault state until a force reset: its tasks stop, and calls
 *                             that create or enqueue return 507899. Queries return CODE. Waits also return
 *                             CODE until a wait or query has returned CODE. Later waits return 507046 or 507047
 *         lost=CODE           like sticky; also, the device cannot be set, and its first reset fails
 *         reset-fail=K        K resets begin, fail with the code of rc= or with 507000, and are undone. In one
 *                             rule with sticky= or lost=, K resets of the device in the fault state fail
 *         reset-lies[=CODE]   the reset returns 0 and leaves the device in a fault state. A rule with this
 *                             field or reset-fail= does not match an aclrtResetDevice that undoes one set of
 *                             several
 *         false-drain         a wait for a device in a fault state, or for its streams, returns 0
 *         slow-teardown=MS    the end of a stream, context or device takes MS milliseconds longer, with the
 *                             lock of the object held
 *         ext-reset           other code of the process force-resets the call's device during the call
 *         errmsg=null|long|non-utf8|stale
 *                             what the thread's next aclGetRecentErrMsg returns: no text, a very long text, a
 *                             text that is not UTF-8, or the previous text
 *
 * If several rules fire on a call, the first of them with a code decides the code, and the latencies of all of
 * them are added. A rule does not apply to functions that cannot show its effect. A rule that applies to no
 * function is refused.
 *
 * These environment variables have the same effect as the controls: AIOACL_SIM_FAULTS (rules and seed=N,
 * separated by semicolons), AIOACL_SIM_SEED, AIOACL_SIM_LIMITS, AIOACL_SIM_CLOCK (real or virtual) and
 * AIOACL_SIM_TRACE (a file for the journal and for every injected fault). AIOACL_SIM_MODELS names a file, to
 * which each model is written as JSON when it is unloaded or when the process exits. The simulator reads the
 * variables once, and a mistake in them ends the process.
 */
int aclsim_fault_add(const char *rule, uint32_t *id);
/* Returns 0 if aclsim_fault_add() would accept the rule. Adds nothing. */
int aclsim_fault_check(const char *rule);
/* Copies a text about the last refused rule or limit. The text describes the mistake and its place. Returns the
 * text's length. */
int aclsim_fault_error(char *text, size_t size);
int aclsim_fault_remove(uint32_t id);
/* Drops all rules, and ends the fault state of every device. */
void aclsim_fault_clear(void);
/* Stores how often the rule has fired, and how many calls have matched the rule. */
int aclsim_fault_hits(uint32_t id, uint64_t *hits, uint64_t *matches);
void aclsim_set_seed(uint64_t seed);
/* Limits the number of objects and the bytes of memory of a device:
 * "stream=8,event=16,notify=4,context=2,mem=64M". "host=32M" limits the pinned, managed and physical memory of
 * the host. "" removes all limits. */
int aclsim_set_limits(const char *limits);

/* Clock.
 *
 * A virtual clock moves in two cases only. A call of aclsim_clock_advance() advances the clock. If a wait with
 * a time-out has lasted ten real seconds, the clock jumps to the earliest time at which a wait is due. So no
 * wait with a time-out hangs for ever. Time-outs, latencies and due times follow the virtual clock. Polling
 * uses real time. A wait for an event also lasts at least one second of real time before it fails.
 */
void aclsim_clock_virtual(int on);
/* Returns -1 if the clock is not virtual, or `ns` is negative or too large. */
int aclsim_clock_advance(int64_t ns);
int64_t aclsim_clock_now(void);

/* Kernels.
 *
 * The simulator cannot run AI Core code. Instead, a client registers a C function for the name of each of its
 * kernels.
 */
typedef struct {
    const char *name;
    const void *args; /* the arguments; the kernel may dereference addresses of device memory in them */
    size_t args_size;
    uint32_t num_blocks;
    uint32_t grid[3];  /* the grid of a SIMT launch; otherwise num_blocks, 1, 1 */
    uint32_t block[3]; /* the block of a SIMT launch; otherwise 1, 1, 1 */
    size_t dynamic_bytes;
    int32_t device;
    void *stream;
    void *user;
} aclsim_launch_t;

/*
 * Each launch of the kernel calls the function once for all blocks, in the order of the stream, on the device's
 * thread. If the function returns a value other than 0, the task fails: with the returned value if this value
 * is an error code, otherwise with 507015. The function replaces an earlier function of the same name. NULL
 * ends the registration; launches that are queued then fail.
 */
int aclsim_register_kernel(const char *name, int (*function)(const aclsim_launch_t *launch), void *user);
/* Sets the sizes of a registered kernel's parameters in bytes: at most 128 sizes, each from 1 to 512. Launches
 * with an array of arguments need these sizes. */
int aclsim_kernel_parameters(const char *name, const size_t *sizes, size_t count);
/* Sets the host address that identifies a registered kernel in aclrtGetFuncBySymbol and in launches. */
int aclsim_kernel_symbol(const char *name, const void *symbol);
/* A kernel calls this before it returns a failure. The error text of the call that gets the failure contains
 * `why`. */
void aclsim_explain(const char *why);

/* Offline models.
 *
 * aclmdlLoad* takes a model of `python -m aioacl simulator atc`, a plain ONNX model, or a genuine model of
 * Huawei's atc. onnxruntime executes the ONNX model, with one thread per model. A genuine model has no ONNX
 * model. It is described and loaded, but an execution returns 207000, except if the ONNX model is beside the
 * file, with the suffix .onnx instead of .om, or if a function is registered in place of the model.
 *
 * A failed execution sets 507011, and the reason is in the error text.
 */
/* Sets the path of the library of onnxruntime, which is loaded when the first ONNX model is read. The path must
 * be absolute. NULL: the dynamic loader finds the library. AIOACL_SIM_ONNXRUNTIME takes precedence. */
int aclsim_set_onnxruntime(const char *path);
/* Sets the time that each execution takes on the device: a fixed time, a time for each row of the batch, and a
 * time in picoseconds for each byte of the inputs and outputs. The first dimension of the first input is the
 * number of rows. 0, 0, 0: an execution ends when it is computed. */
int aclsim_set_model_cost(int64_t base_ns, int64_t row_ns, int64_t byte_ps);

/* One input or output of an execution. */
typedef struct {
    void *data; /* device memory; NULL if an output has no memory */
    size_t size;
    int32_t type;        /* an aclDataType */
    const int64_t *dims; /* NULL: the shape of the output is not known */
    size_t dim_count;
} aclsim_tensor_t;

typedef struct {
    const char *name;
    uint32_t model; /* the id of the loaded model */
    int32_t device;
    void *stream;                  /* the stream of the execution */
    const aclsim_tensor_t *inputs; /* without the input that selects the gear */
    size_t input_count;
    const aclsim_tensor_t *outputs;
    size_t output_count;
    void *user;
} aclsim_execution_t;

/*
 * Executions of models with that name, which is the name in the header of the file, call the function on the
 * thread of the model, in the order of the stream. If the function returns a value other than 0, the execution
 * fails: with the returned value if this value is an error code, otherwise with 507011; aclsim_explain() works.
 * The function replaces an earlier function of the same name, and is used in place of an ONNX model. NULL ends
 * the registration.
 */
int aclsim_register_model(const char *name, int (*function)(const aclsim_execution_t *execution), void *user);

/* Copies a JSON array with an object for each loaded model, the last load first, and returns its length. If
 * the length is not less than `size`, the text was cut off. Returns -1 if no memory is left. An object has the
 * keys of simulator.LoadedModel, with ACL's numbers of data types. */
int64_t aclsim_models(char *text, size_t size);

/* Memory. */
/* Returns the number of live blocks that have been written outside their bounds. Each such block is reported as
 * a violation once. Frees and resets make the same check. The check covers 64 bytes before a block and at least
 * 64 bytes after the requested size. */
int64_t aclsim_check_memory(void);
/* Returns the access that kernels of the device have to the bytes: 1 read, 2 write, 3 read and write. Returns 0
 * if the bytes are not in one live block that the device reaches. Registered memory may be given by its host
 * address or by its device address. */
int aclsim_reach(int32_t device, const void *address, size_t size);
/* Applies to device memory that is allocated after this call. With 1, a read of bytes that were never written
 * is a violation. With 0, such reads are not checked. */
void aclsim_watch_uninitialised(int on);

/* Firmware. */
/* With 0, aclrtStreamAbort returns 207000, as with old firmware. */
void aclsim_set_abort_supported(int supported);
/* With 1, count notifies work, as on newer chips. With 0, the functions for count notifies return 207000. */
void aclsim_set_count_notify_supported(int supported);
/* With 1, events can be made for other processes, as with newer drivers. The handles of such events work within
 * this process only. With 0, the functions that share events return 207000. */
void aclsim_set_ipc_event_supported(int supported);

/* Usage checker and journal. */
/* Copies the text of violation number `index` (counted from 0; the newest 256 are kept). Returns the length of
 * the text, or -1 if there is no such violation. */
int aclsim_violation(uint64_t index, char *text, size_t size);
/*
 * The journal is a ring of the newest calls, with one JSON object per line. aclsim_journal copies whole lines,
 * oldest first, starting at sequence number `*next`, and advances `*next`. It returns the number of bytes
 * written, without the terminating zero; 0 means that there is nothing more.
 */
size_t aclsim_journal(uint64_t *next, char *text, size_t size);
/* Sets the counts of calls to 0, and drops the violations and the journal. Live objects are not affected. */
void aclsim_forget(void);

#ifdef __cplusplus
}
#endif

#endif
