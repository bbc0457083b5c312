/*
 * The stress test: many threads use one device at the same time, and all results must be consistent. Workers
 * enqueue work, record events, wait, poll and abort, and make and destroy streams. Each worker takes the
 * completions of its own port. The manager makes force resets, some of which fail, and handles foreign resets.
 * The maintenance thread does the work for which it is woken, and destroys streams. Another thread makes
 * foreign resets. If a thread makes no progress for a minute, the watchdog prints what each thread is doing,
 * and aborts the program.
 */
#ifndef STRESS_H
#define STRESS_H

#include "bed.h"

enum { WORKERS = 5, SLOTS = 10, IN_FLIGHT = 48, BLOCK = 4096, DEVICE = 0 };

/* engine.c: what a thread is doing. */
typedef struct {
    const char *name;
    _Atomic(const char *) doing;
    atomic_ulong steps;
} stress_progress;

extern atomic_bool stress_over;
stress_progress *stress_progress_of(const char *name);
void stress_now_at(stress_progress *progress, const char *doing);
uint32_t stress_draw(uint32_t *seed, uint32_t below);

/* engine_streams.c: streams that workers share. */
typedef struct stress_stream {
    struct stress_stream *next;
    aio_stream *stream;
    atomic_int references;
    bool healthy; /* no fault is injected into tasks of this stream */
} stress_stream;

/* Returns a new reference to the stream in a slot, or NULL. */
stress_stream *stress_get(uint32_t slot);
void stress_put(stress_stream *entry);
/* Makes a new stream for the slot, if the gate admits the call, and drops the old stream. */
void stress_renew(uint32_t slot);
/* Destroys streams that are no longer used. Called on the maintenance thread. */
void stress_destroy_unused(void);
void stress_destroy_all_unused(void);
void stress_clear_slots(void);

/* engine_manager.c. */
extern atomic_ulong stress_resets, stress_failed, stress_foreign;
extern atomic_int stress_foreign_thread; /* the id of the thread that makes foreign resets */
extern void *stress_pinned;              /* a block that all workers copy from */
void *stress_manage(void *strategy);
void *stress_maintain(void *unused);
void *stress_reset_as_foreign(void *unused);
void stress_open(int strategy);
void stress_close(void);

/* engine_jobs.c. */
extern atomic_ulong stress_waits, stress_bytes, stress_abandoned;
void *stress_work(void *number);

#endif
