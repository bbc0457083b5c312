/*
 * One device: its gate, its manager, its procedures, and its users.
 *
 * This file has the parameters, the shared state, and the assertions about the end. The other files follow the code:
 *
 *     word.pml        aioacl/_native/gate.c, abort.c                        the gate's word
 *     manager.pml     aioacl/_lifecycle/{admission,manager,turns,lease}.py  the state under `changed`
 *     procedures.pml  aioacl/_lifecycle/procedures, _wait/workers.py        procedures, control thread, foreign reset
 *     clients.pml     the users: _handles/stream.py, waiters.c, Manager.make, .enter_job, .grant, .force_reset, .open
 *
 * How time is abstracted.  A time limit that may run out is a choice that may be taken at any time, so every behaviour
 * of clocks is covered.  Such a choice hides waits that would last for ever without the limit.  Therefore, under
 * PATIENT, the limits of the drain, of the turns and of the foreign resetter never run out.  Cancellation hides such
 * waits too, so it is a choice under CANCEL only.  model.py lists the modes in which each configuration is explored.
 * One limit is restricted: LEAVE_SECONDS runs out only when no thread is left that could still leave C.  See
 * `time_to_leave` in procedures.pml.
 *
 * What is bounded: the number of users of each kind, how often each acts (TIMES, RESETS), and the total number of
 * failures (FAILS) of the runtime, the control thread, the barrier and the procedures.  A resetter tries again after a
 * failure, so at the end the device must be OPEN, with the exceptions that the assertions in `init` name.
 *
 * What is left out: the counters' upper bound (AIO_CROWDED), the end of the process (AIO_EXITING) and forks, because
 * they do not affect resets; what a call does in C; more than two leases of one holder.
 *
 * Each of these macros puts one error into the model: BUG_no_generation_check, BUG_drain_ignores_leases,
 * BUG_no_lifetime_barrier, BUG_lost_wake, BUG_procedure_leaves_gate_shut, BUG_two_procedures, BUG_nested_lease_waits,
 * BUG_check_then_count, BUG_foreign_flag_lost, BUG_no_turns, BUG_no_leave_time, BUG_finish_ignores_foreign,
 * BUG_join_after_finish, BUG_open_ignores_foreign, BUG_settle_in_steps, BUG_last_turn_wakes_none.
 */
#ifndef ENQUEUERS
#define ENQUEUERS 0
#endif
#ifndef WAITERS
#define WAITERS 0
#endif
#ifndef MAKERS
#define MAKERS 0
#endif
#ifndef JOBS
#define JOBS 0
#endif
#ifndef HOLDERS
#define HOLDERS 0
#endif
#ifndef RESETTERS
#define RESETTERS 0
#endif
#ifndef FOREIGN_RESETTERS
#define FOREIGN_RESETTERS 0
#endif
#ifndef OPENERS
#define OPENERS 0
#endif
#ifndef TIMES
#define TIMES 1 /* how often each client acts */
#endif
#ifndef RESETS
#define RESETS 1 /* successful resets that each resetter needs */
#endif
#ifndef FAILS
#define FAILS 0
#endif

#ifdef CANCEL
#define MAY_CANCEL true
#else
#define MAY_CANCEL false
#endif
#ifdef PATIENT
#define TIME_OUT false
#else
#define TIME_OUT true
#endif

#define CLIENTS (ENQUEUERS + WAITERS + MAKERS + JOBS + HOLDERS + RESETTERS + FOREIGN_RESETTERS + OPENERS)

/* The states of a device, and the procedures; 0 means CLOSED, or no procedure. */
#define CLOSED 0
#define OPEN 1
#define DRAINING 2
#define RESETTING 3
#define QUARANTINED 4

#define RESET 1
#define FOREIGN 2
#define OPENING 3
#define CLOSING 4

/* Variables of the observer. The assertions use them; the code does not have them. */
byte incarnation = 1; /* raised by each tear-down of the device, by aioacl or by others */
byte inside;          /* calls in C that enqueue, create or destroy */
byte moving;          /* waits on their way into the blocking call, or in a blocking call that can be aborted */
byte may_fail = FAILS;
byte finished;
bool over;

#include "word.pml"
#include "manager.pml"
#include "procedures.pml"
#include "clients.pml"

#define START(number, what) \
    i = 0; \
    do \
    :: i < number -> run what; mask = mask << 1; i++ \
    :: else -> break \
    od

init {
    byte i = 0, mask = 1;
    atomic {
        if
        :: OPENERS == 0 -> state = OPEN; word_state = OPEN; retained = 1
        :: else -> gone = true
        fi;
        generation = 1;
        run Control();
#if FOREIGN_RESETTERS > 0
        run Maintenance();
#endif
        START(ENQUEUERS, Enqueuer());
#if WAITERS > 0
        START(WAITERS, Waiter());
#endif
#if FOREIGN_RESETTERS > 0
        START(FOREIGN_RESETTERS, ForeignResetter());
#endif
        /* Each subscriber has a bit. */
        mask = 1;
#if MAKERS > 0
        START(MAKERS, Maker(mask));
#endif
#if JOBS > 0
        START(JOBS, Job(mask));
#endif
#if HOLDERS > 0
        START(HOLDERS, Holder(mask, i));
#endif
#if RESETTERS > 0
        START(RESETTERS, Resetter(mask));
#endif
#if OPENERS > 0
        START(OPENERS, Opener(mask));
#endif
        i = 0;
        mask = 0
    }
    /* If a process waits for ever, this is never reached, and spin reports an invalid end state or a cycle. */
    atomic {
        finished == CLIENTS && procedure == 0 && !kicked && !locked ->
        assert(state == word_state && !word_foreign);
        assert(state == OPEN || state == CLOSED || state == QUARANTINED);
        assert(OPENERS == 0 || state == CLOSED || state == QUARANTINED);
        assert(state == OPEN || RESETTERS == 0 || OPENERS + FOREIGN_RESETTERS > 0 || MAY_CANCEL); /* it tries again */
        assert(state != OPEN || retained > 0);                  /* an admitted call finds a device that is set */
        assert(enqueueing + waiting + lifetime + inside == 0);
        assert(leases == 0 && due == 0 && queueing == 0);
        over = true
    }
}

#ifdef LIVE
ltl live { <> over }
#endif
