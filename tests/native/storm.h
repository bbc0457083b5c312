/*
 * The storm: many threads use one device at once, and all results must be consistent. Workers enqueue, record,
 * wait, watch, poll, abort, make and destroy streams; each drains a port of its own. The manager force-resets,
 * and some of its resets fail; it also answers foreign resets. The maintenance thread serves kicks and destroys
 * streams. Another thread makes foreign resets. The watchdog aborts if a thread makes no progress for a minute,
 * and lists what each one does.
 */
#ifndef STORM_H
#define STORM_H

#include "bed.h"

enum { WORKERS = 5, SLOTS = 10, IN_FLIGHT = 48, BLOCK = 4096, DEVICE = 0 };

/* engine.c: what each thread does now. */
typedef struct {
    const char *name;
    _Atomic(const char *) doing;
    atomic_ulong steps;
} storm_seat;

extern atomic_bool storm_over;
storm_seat *storm_sit(const char *name);
void storm_at(storm_seat *seat, const char *doing);
uint32_t storm_draw(uint32_t *seed, uint32_t below);

/* engine_streams.c: streams that workers share. */
typedef struct storm_stream {
    struct storm_stream *next;
    aio_stream *stream;
    atomic_int references;
    bool healthy; /* no fault is injected into its tasks */
} storm_stream;

/* The stream in a slot, with a reference, or NULL. */
storm_stream *storm_get(uint32_t slot);
void storm_put(storm_stream *entry);
/* Makes a new stream for the slot, if the gate allows it, and gives up the old one. */
void storm_renew(uint32_t slot);
/* Destroys streams that are no longer used. Called on the maintenance thread. */
void storm_bury(void);
void storm_bury_all(void);
void storm_clear_slots(void);

/* engine_manager.c. */
extern atomic_ulong storm_resets, storm_failed, storm_foreign;
extern atomic_int storm_foreigner; /* the id of the thread that makes foreign resets */
extern void *storm_pinned;         /* a block that all workers copy from */
void *storm_manage(void *strategy);
void *storm_maintain(void *unused);
void *storm_be_foreign(void *unused);
void storm_open(int strategy);
void storm_close(void);

/* engine_jobs.c. */
extern atomic_ulong storm_waits, storm_bytes, storm_abandoned;
void *storm_work(void *number);

#endif
