/*
 * Controls of the simulator. No ACL library but the simulator exports these names, so a test can prove that it
 * is not talking to a card. Every function may be called from any thread, with or without a context, and none
 * of them blocks, waits or counts as an ACL call. Functions that return int answer 0, or -1 for a bad argument.
 */
#ifndef ACLSIM_H
#define ACLSIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ACLSIM_CONTROL_VERSION 1

/* How many of each thing is alive now, and what the usage checker has seen since the start or aclsim_forget().
 */
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
    uint64_t violations; /* what the usage checker objected to */
    uint64_t inside;     /* ACL calls that are inside the simulator now, all threads */
    uint64_t pools;      /* memory pools */
    uint64_t pool_blocks;
    uint64_t managed_blocks;
    uint64_t physical;      /* handles of physical memory, and what is mapped without one */
    uint64_t mappings;      /* of physical memory */
    uint64_t registrations; /* of the client's memory */
    uint64_t reservations;  /* of addresses */
    uint64_t exports;       /* keys of shared device memory */
    uint64_t descriptions;  /* data buffers, tensor descriptions and the like: objects of the host only */
    uint64_t count_notifies;
    uint64_t binaries; /* loaded */
    uint64_t models;   /* captured and built ones */
    uint64_t labels;
} aclsim_stats_t;

int aclsim_control_version(void);
/* The release of CANN as which the library was linked: "8.1", "8.5", "9.0", "9.1" or "master". */
const char *aclsim_cann(void);
/* The ACL functions that the simulator knows and the release that each came with; NULL after the last. A
 * library linked as an older release exports no newer ones. */
const char *aclsim_function(int index, const char **since);
void aclsim_stats(aclsim_stats_t *stats);

/* Retain count of a device; 0 when it is not set, -1 when there is no such device. */
int aclsim_retain_count(int32_t device);
/* Releasing resets of a device since the start. */
uint64_t aclsim_resets(int32_t device);

/* Streams. */
/* From now on the stream starts no further task, until it is released. What runs already goes on. */
int aclsim_hold(void *stream);
int aclsim_release(void *stream);
/* Held streams are released; calls that hang or are delayed go on. */
void aclsim_release_all(void);
/* The next task enqueued on the stream (not an event record, wait or host function) fails with that code. */
int aclsim_fail_next(void *stream, int32_t code);
/*
 * The next task that computes or moves data and that the stream reaches, queued already or not, traps with that
 * code (507015: an exception of an AI core).
 */
int aclsim_trap_next(void *stream, int32_t code);
/* Tasks enqueued on the stream and not yet done, a failed one that was not handled included. -1: no such
 * stream. */
int64_t aclsim_pending(void *stream);
/* The next task enqueued on the stream gets that id, and later ones the ids behind it, modulo 2^32. */
int aclsim_set_next_task(void *stream, uint32_t id);

/* Failed tasks.
 *
 * A task that fails stops its stream. The recycle thread of the device, once woken, sets the stream's error
 * code, calls the exception callbacks of the kinds of task that have them, and lets the stream go on, in this
 * order. One wake serves all streams of the device. What wakes it:
 *
 * - synchronizing a stream or device with work to wait for, for as long as the call waits;
 * - synchronizing an event, also one that is complete;
 * - aclrtQueryEvent of an event of aclrtCreateEventWithFlag(ACL_EVENT_SYNC) that the host still sees as
 * pending, and of a complete one with ACL_EVENT_TIME_LINE. The host sees a record as complete only after a wake
 * that follows its end, so the first query behind a record always wakes the thread;
 * - every 64th task enqueued on a stream, and a call that waits for room in a full queue;
 * - the end of a stream or device, which waits for work;
 * - for kernels the monitor, one second after the failure.
 *
 * Kinds with callbacks: copies, fills, reductions, kernels, waits for notifies, executions of models (the ids
 * of the stream inside, the thread that enqueued the execution). Device lost (507010) and device out of memory
 * (207018) give 0xFFFFFFFF as the ids of stream, task and thread.
 */
/* 1: the stream stands still at a failed task, until the recycle thread is woken. */
int aclsim_faulted(void *stream);
/* How often the recycle thread of the device has been woken since the start. -1: no such device. */
int64_t aclsim_wakes(int32_t device);
/* Wakes it, as another library of the process may at any time. */
int aclsim_wake(int32_t device);
/* With 1, the first aclrtQueryEvent that finds a record complete still answers that it is not. */
void aclsim_set_query_lag(int on);
/* With 1, aclrtSynchronizeStream without a time-out does not return if tasks were enqueued on the stream after
 * it was called. An abort or the end of the stream ends it, and so does 0. */
void aclsim_set_sync_livelock(int on);
/* With 1, aclrtResetDeviceForce ends the process with SIGSEGV if another thread is inside
 * aclrtSynchronizeStream or aclrtSynchronizeStreamWithTimeout for a stream of the device. */
void aclsim_set_reset_crash(int on);

/* Calls. */
/* The next `times` calls of the named function (-1: all) do nothing and return that code. */
int aclsim_fail_call(const char *function, int32_t code, int32_t times);
/* The next call of the named function stays inside until aclsim_unhang(function) or aclsim_release_all(). */
int aclsim_hang_call(const char *function);
int aclsim_unhang(const char *function);
/* Calls that are hung inside the named function now. */
int aclsim_hung(const char *function);
/* Calls that are blocked inside the named function now: they wait for work, an event, room or a lock. */
int aclsim_waiting(const char *function);
/* Calls of the named function since the start or aclsim_forget(). */
uint64_t aclsim_calls(const char *function);
/* The same as aclsim_fault_clear(). */
void aclsim_clear(void);

/* Faults.
 *
 * A rule is text:   WHICH[:FIELD]...   as in   copy:dev=0:nth=3:rc=507015
 *
 * WHICH   names of functions, with * and ? as in a shell, or groups, between bars: alloc|aclrtCreateStream.
 *         The groups: alloc copy memory stream event notify context device create destroy sync query reset init
 *         launch callback model graph op enqueue wait lifetime control free *   (group.c says who is in which)
 *
 *         and of these calls those with
 *         dev=N  stream=ID|0xHANDLE  thread=N (in the order in which threads met a rule)  tid=N
 *         size>=N  size<=N
 *
 * WHEN    of the calls that match, in all or, with per=thread, of each thread:
 *         nth=K               the K-th; with times= from the K-th on
 *         after=K             those after the K-th
 *         every=K             each K-th
 *         times=M             at most M times; -1: for ever
 *         once                at most once
 *         p=0.01              by chance: a hash of the seed, the rule's id and the number of the match
 *
 * WHAT    rc=CODE             does nothing and answers the code, which may be 0
 *         rc-after=CODE       does its work and answers the code
 *         oom                 as if the memory or resource that the function takes had run out
 *         latency=MS[+-J]     takes that much longer; at=before (the usual), at=during (a task takes it on the
 *                             device, any other call before its work), at=after
 *         hang[=KEY]          stays inside until the key is released (without one: the function's name). A wait
 *                             with a time-out ends with it (507046, 507047), one for a device also when that is
 *                             reset
 *         block-record[=KEY]  the same for aclrtRecordEvent*, as when events have run out
 *         async-error=CODE    the task is enqueued, and fails. A wait for an event does so one second of real
 *                             time after it was enqueued, as if it had timed out; one that submits no task,
 *                             because the event is complete or of the same stream, does not fail
 *         late-complete=MS    the task does its work, and is over later
 *         late-copy=MS        the task copies later, too
 *         sticky=CODE         the device falls sick: its tasks stand still; the first wait or query answers the
 *                             code, later waits 507046 or 507047, and what makes or enqueues 507899, until a
 *                             force reset
 *         lost=CODE           the same, and the device cannot be set, and the first reset fails
 *         reset-fail=K        K resets begin, fail and are taken back, with rc= or 507000; those of a sick
 *                             device fail
 *         reset-lies[=CODE]   the reset answers 0, and leaves the device sick
 *         false-drain         a wait for a sick device or its streams answers 0
 *         slow-teardown=MS    the end of a stream, context or device takes that much longer, with its lock held
 *         ext-reset           other code of the process force-resets the call's device while the call is inside
 *         errmsg=null|long|non-utf8|stale
 *                             what the thread's next aclGetRecentErrMsg answers
 *
 * Where several rules fire on a call, the first that names a code wins, and times add up. An effect that a
 * function cannot show takes the function out of the rule; a rule that is left with none is refused.
 *
 * The variables AIOACL_SIM_FAULTS (rules between semicolons, and seed=N), AIOACL_SIM_SEED, AIOACL_SIM_LIMITS,
 * AIOACL_SIM_CLOCK (real or virtual) and AIOACL_SIM_TRACE (a file for the journal and for every fault) say the
 * same from outside. They are read once; a mistake in them ends the process.
 */
int aclsim_fault_add(const char *rule, uint32_t *id);
/* Copies what was wrong with the last rule or limit that was refused, and where. Returns its length. */
int aclsim_fault_error(char *text, size_t size);
int aclsim_fault_remove(uint32_t id);
/* Drops all rules; sick devices are well again. */
void aclsim_fault_clear(void);
/* How often the rule has fired, and how many calls have matched it. */
int aclsim_fault_hits(uint32_t id, uint64_t *hits, uint64_t *matches);
void aclsim_set_seed(uint64_t seed);
/* Calls that hang with that key go on. */
int aclsim_release_key(const char *key);
/* At most so many of each on a device, "stream=8,event=16,notify=4,context=2,mem=64M", and with "host=32M" so
 * much pinned, managed and physical memory of the host; "": as many as there are. */
int aclsim_set_limits(const char *limits);

/* Clock.
 *
 * With a virtual clock all times of the simulator stand still until they are advanced. When a wait with a
 * time-out has stood for ten real seconds, the clock jumps to the earliest time that anybody waits for, so that
 * nothing hangs for ever.
 */
void aclsim_clock_virtual(int on);
/* -1: the clock is not virtual, or `ns` is negative. */
int aclsim_clock_advance(int64_t ns);
int64_t aclsim_clock_now(void);

/* Kernels.
 *
 * AI Core code cannot be simulated, so a client's kernels are C functions that it registers by name.
 */
typedef struct {
    const char *name;
    const void *args; /* as the kernel gets them; addresses of device memory may be followed */
    size_t args_size;
    uint32_t num_blocks;
    uint32_t grid[3];  /* of a SIMT launch; else num_blocks, 1, 1 */
    uint32_t block[3]; /* of a SIMT launch; else 1, 1, 1 */
    size_t dynamic_bytes;
    int32_t device;
    void *stream;
    void *user;
} aclsim_launch_t;

/*
 * Launches of the kernel call the function, once for all its blocks, in the order of the stream, on the
 * device's thread. An answer other than 0 fails the task, with that code if it is one and with 507015 if it is
 * not. The name's earlier function is replaced; NULL ends the registration, and launches that are queued then
 * fail.
 */
int aclsim_register_kernel(const char *name, int (*function)(const aclsim_launch_t *launch), void *user);
/* The sizes of a registered kernel's parameters, which launches with an array of arguments need. */
int aclsim_kernel_parameters(const char *name, const size_t *sizes, size_t count);
/* The host address that stands for a registered kernel in aclrtGetFuncBySymbol and in launches. */
int aclsim_kernel_symbol(const char *name, const void *symbol);
/* Called by a kernel that is about to answer a failure: why, for the error text of the call that meets it. */
void aclsim_explain(const char *why);

/* Memory. */
/* How many live blocks have been written outside; each becomes a violation once. Frees and resets look as well.
 * Seen is what lies up to 64 bytes before a block, and from the first byte behind the size that was asked for
 * on up to 64 bytes behind it at least. */
int64_t aclsim_check_memory(void);
/* What kernels of the device may do with the bytes: 1 read, 2 write, 3 both; 0: they do not lie in one live
 * block that the device reaches. Of registered memory, the device's address is as good as the host's. */
int aclsim_reach(int32_t device, const void *address, size_t size);
/* From now on, reading bytes of new device memory that nothing has written is a violation; 0: no longer. */
void aclsim_watch_uninitialised(int on);

/* Firmware. */
/* With 0, aclrtStreamAbort answers 207000, as old firmware does. */
void aclsim_set_abort_supported(int supported);
/* With 1, there are count notifies, as newer chips have them; without, they answer 207000. */
void aclsim_set_count_notify_supported(int supported);
/* With 1, there are events for other processes, whose handles work within this one, as newer drivers have them;
 * without, they answer 207000. */
void aclsim_set_ipc_event_supported(int supported);

/* Usage checker and journal. */
/* Copies the text of violation number `index` (from 0, the newest 256 are kept). Returns its length, or -1. */
int aclsim_violation(uint64_t index, char *text, size_t size);
/*
 * The journal is a ring of the newest calls, one JSON object a line. aclsim_journal copies whole lines, oldest
 * first, beginning with sequence number `*next`, and moves `*next` on. Returns the bytes written, without the
 * terminating zero; 0 means that there is nothing more.
 */
size_t aclsim_journal(uint64_t *next, char *text, size_t size);
/* Forgets counted calls, violations and the journal; touches nothing that lives. */
void aclsim_forget(void);

#ifdef __cplusplus
}
#endif

#endif
