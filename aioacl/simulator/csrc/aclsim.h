/*
 * Controls of the simulator. No ACL library but the simulator exports these names, so a test can prove that it
 * is not talking to a card. Every function may be called from any thread, with or without a context, and none
 * of them blocks, waits or counts as an ACL call. Functions that return int answer 0, or -1 for a bad argument.
 */
#ifndef ACLSIM_H
#define ACLSIM_H

#include <stddef.h>
#include <stdint.h>

#define ACLSIM_CONTROL_VERSION 1

/* How many of each thing is alive now, and what the referee has seen since the start or aclsim_forget(). */
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
    uint64_t violations; /* what the referee objected to */
    uint64_t inside;     /* ACL calls that are inside the simulator now, all threads */
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

/* --- streams ------------------------------------------------------------------------------------------------
 */
/* From now on the stream starts no further task, until it is released. What runs already goes on. */
int aclsim_hold(void *stream);
int aclsim_release(void *stream);
/* Held streams are released, and hung calls return (see below). */
void aclsim_release_all(void);
/* The next task enqueued on the stream (not an event record, wait or host function) fails with that code. */
int aclsim_fail_next(void *stream, int32_t code);
/*
 * The next task that computes or moves data and that the stream reaches, queued already or not, traps with that
 * code (507015: an exception of an AI core).
 */
int aclsim_trap_next(void *stream, int32_t code);
/* Tasks enqueued on the stream and not yet done. -1: no such stream. */
int64_t aclsim_pending(void *stream);

/* --- calls --------------------------------------------------------------------------------------------------
 */
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
/* Drops what aclsim_fail_call and aclsim_hang_call armed and has not struck yet. */
void aclsim_clear(void);

/* --- firmware -----------------------------------------------------------------------------------------------
 */
/* With 0, aclrtStreamAbort answers 207000, as old firmware does. */
void aclsim_set_abort_supported(int supported);
/* With 1, there are count notifies, as newer chips have them; without, they answer 207000. */
void aclsim_set_count_notify_supported(int supported);

/* --- referee and journal ------------------------------------------------------------------------------------
 */
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

#endif
