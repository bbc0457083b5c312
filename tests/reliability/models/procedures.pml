/*
 * Procedures, the control thread, and a foreign reset: aioacl/_lifecycle/procedures, aioacl/_wait/workers.py, abort.c.
 *
 *     Procedure     Procedure.execute with the run() of the four procedures
 *     Control       WorkerThread._run of the control thread: one job after another, each to its end, awaited or not
 *     Maintenance   Manager._on_wake, but only its handling of a foreign reset
 *     call          WorkerThread.call: if a job does not return in time, it is withdrawn, or abandoned if it has begun
 *
 * The runtime behaves as the simulator does (simulator/libascendcl/device), and as the self-test requires of any library.  Calls that
 * set a device and calls that reset it exclude each other.  A reset that releases the device drops the count of sets at
 * once, and reports RESET_PRE before the tear-down.  A reset of a device that is not set returns 507007 and does
 * nothing.
 *
 * What is left out of a procedure: native events, staging memory and the report's figures, because they do not affect
 * the gate.  Aborts of streams are left out too, because a wait that can be aborted may leave C at any time (see
 * Waiter).
 */
#define SET 1
#define RESET_FORCE 2
#define RESET_PLAIN 3
#define PROBE 4

#define DONE 1
#define BAD 2

#define OURS 1
#define THEIRS 2

#define ATTEMPTS 2 /* three in the code; the steps after the last attempt are the same */

byte job, serving, outcome; /* the control thread's queue, its running job, and the result */
bool abandoned;           /* the running job is no longer awaited */
byte retained;           /* how often the device is set, by aioacl and others */
byte changer;            /* which side sets or resets it */
byte seen_when_set;      /* counts.foreign_resets_seen: the value of `foreign` after aioacl set the device */
byte next;               /* a local variable of Admission.apply, guarded by the lock */
bool in_time = true;     /* the observer's: no time limit of the procedure has run out */

/* Procedure._set: sets the device. If a foreign reset came before the call returned, may set it again. */
inline set_device() {
    do
    :: before = foreign;
        if
        :: atomic { changer == 0 -> retained++; gone = false; code = DONE }
        :: atomic { may_fail > 0 -> may_fail--; code = BAD }
        fi;
        seen_when_set = foreign;
        if
        :: atomic { before == seen_when_set -> break }
        :: atomic { before != seen_when_set && code == DONE && retained > 0 && changer != THEIRS -> break } /* set */
        :: atomic { before != seen_when_set && (code == BAD || retained == 0 || changer == THEIRS) ->
               tries++;
               if
               :: tries == ATTEMPTS -> break
               :: else
               fi
           }
        fi
    od;
    atomic { before = 0; tries = 0 }
}

proctype Control() {
    byte code, before, tries;
end_idle:
    do
    :: atomic { job != 0 -> serving = job; job = 0 };
        if
        :: serving == SET -> set_device()
        :: atomic { serving == PROBE -> code = (retained > 0 && changer == 0 -> DONE : BAD) }
        :: atomic { serving == PROBE && may_fail > 0 -> may_fail--; code = BAD }
        :: atomic { serving != SET && serving != PROBE && retained == 0 -> code = DONE } /* 507007 */
        :: atomic {
               serving != SET && serving != PROBE && retained > 0 && changer == 0 ->
               changer = OURS;
               gone = true;
               /* No call in C may enqueue, create or destroy. A wait may be in C only if it cannot be aborted. */
               assert(inside == 0 && moving == 0)
           };
            if
            :: atomic { retained = (serving == RESET_FORCE -> 0 : retained - 1); incarnation++; code = DONE }
            :: atomic { serving == RESET_FORCE && may_fail > 0 -> may_fail--; gone = false; code = BAD } /* no effect */
            fi;
            changer = 0
        fi;
        atomic {
            if
            :: abandoned -> abandoned = false
            :: else -> outcome = code
            fi;
            serving = 0;
            code = 0
        }
    od
}

/* Sets `stuck` if the job has not returned in time. */
inline call(work) {
    atomic { assert(job == 0); job = work; outcome = 0 };
    if
    :: atomic { outcome != 0 -> answer = outcome; outcome = 0 }
    :: atomic {
           outcome == 0 && may_fail > 0 && work != PROBE ->
           may_fail--;
           if
           :: job != 0 -> job = 0
           :: else -> abandoned = true
           fi;
           stuck = true
       }
    fi
}

/* An exception may end the procedure here. */
inline may_break() {
    if
    :: atomic { may_fail > 0 -> may_fail--; broken = true }
    :: true
    fi
}

/* aio_gate_wait with _must_be_empty(): reads the word, and after that the number of blocked waits. */
inline until_empty() {
    do
    :: atomic {
#ifdef BUG_no_lifetime_barrier
           enqueueing == 0 ->
#else
           enqueueing == 0 && lifetime == 0 ->
#endif
           seen = waiting
       };
        if
        :: atomic { seen <= (WAITERS > 0 -> blocked : 0) -> seen = 0; break }
        :: atomic { seen > blocked && seen != waiting -> seen = 0 }
        fi
    :: atomic { may_fail > 0 && enqueueing + waiting + lifetime > 0 -> may_fail--; failed = true; break }
    od
}

/* The only assumption about time: LEAVE_SECONDS are enough for a thread to return from C if no call blocks it. */
inline time_to_leave() {
#ifndef BUG_no_leave_time
    moving == 0
#else
    skip
#endif
}

inline wait_for_turns() {
    do
    :: atomic {
           !locked ->
           if
           :: due == 0 -> break
           :: else -> procedure_asleep = true
           fi
       };
        if
        :: !procedure_asleep
        :: atomic { TIME_OUT && procedure_asleep && !locked -> procedure_asleep = false; due = 0; in_time = false; break }
        fi
    od
}

inline drain() {
    wait_for_turns();
    atomic { take_lock(); assert(promised == 0 || !in_time) }; /* each client that got a turn has tried */
    promised = 0;
    apply(DRAINING, 0);
    give_lock();
    if
    :: enqueueing + lifetime == 0 ->
#ifndef BUG_drain_ignores_leases
        if
        :: leases == 0 && !locked
        :: TIME_OUT -> in_time = false
        fi
#endif
    :: TIME_OUT -> in_time = false
    fi
}

inline attempt() {
    call(RESET_FORCE);
    if
    :: answer == DONE && !stuck ->
        call(SET);
        if
        :: answer == DONE && !stuck -> call(PROBE)
        :: else
        fi
    :: else
    fi
}

/* Procedure._settle_foreign: setting the device repaired earlier foreign resets; later ones must still be handled. */
inline settle_foreign() {
#ifdef BUG_settle_in_steps
    if
    :: foreign == seen_when_set -> word_foreign = false
    :: else
    fi;
#endif
    atomic { /* aio_foreign_settle(): loads the word, then the count; then a compare-and-swap of the word */
        if
        :: foreign == seen_when_set -> word_foreign = false
        :: foreign != seen_when_set && !word_foreign -> found(generation)
        :: else
        fi
    }
}

/* ResetProcedure.run */
inline run_reset() {
    if
    :: state == OPEN -> drain()
    :: else -> drained = false
    fi;
    may_break();
    if
    :: broken
    :: else ->
        atomic { take_lock(); assert(leases == 0 || !in_time || !drained) };
        revoke();
        apply(RESETTING, 0);
        give_lock();
        may_break();
        if
        :: broken
        :: else ->
            time_to_leave();
            until_empty();
            do
            :: !failed && !stuck && tries < ATTEMPTS && answer != DONE -> tries++; attempt()
            :: !failed && !stuck && tries > 0 && answer == DONE -> break
            :: failed || stuck || (tries == ATTEMPTS && answer != DONE) -> failed = true; break
            od;
            atomic { take_lock(); reported = true };
            if
            :: failed -> apply(QUARANTINED, 0)
            :: else -> apply(OPEN, 1); settle_foreign()
            fi;
            give_lock()
        fi
    fi
}

inline run_foreign() {
    call(SET);
    may_break();
    if
    :: broken
    :: !broken && (stuck || answer == BAD) -> failed = true; take_lock(); apply(QUARANTINED, 0); give_lock()
    :: !broken && !stuck && answer == DONE -> take_lock(); apply(OPEN, 0); settle_foreign(); give_lock()
    fi
}

inline run_open() {
    call(SET);
    if
    :: stuck || answer == BAD -> broken = true
    :: else ->
        take_lock();
        apply(OPEN, 0);
#ifndef BUG_open_ignores_foreign
        settle_foreign();
#endif
        give_lock();
        may_break()
    fi
}

inline run_close() {
    take_lock();
    apply(RESETTING, 0);
    give_lock();
    may_break();
    if
    :: broken
    :: else ->
        time_to_leave();
        until_empty();
        if
        :: failed
        :: else -> call(RESET_PLAIN); failed = stuck
        fi;
        take_lock();
        if
        :: failed -> apply(QUARANTINED, 0)
        :: else -> apply(CLOSED, 1)
        fi;
        give_lock()
    fi
}

proctype Procedure(byte kind) {
    byte answer, tries, seen;
    bool broken, failed, stuck, drained = true;
    atomic { running++; assert(running == 1) }; /* one procedure at a time */
    if
    :: kind == RESET -> run_reset()
#if FOREIGN_RESETTERS > 0
    :: kind == FOREIGN -> run_foreign()
#endif
#if OPENERS > 0
    :: kind == OPENING -> run_open()
    :: kind == CLOSING -> run_close()
#endif
    fi;
    if
    :: broken -> take_lock(); break_off(); give_lock()
    :: else
    fi;
    /* The end of Procedure.run. */
    atomic {
        take_lock();
        arrived = arrived | joined;
        well = (broken || failed -> well : well | joined);
        joined = 0;
        in_time = true;
        procedure = 0;
        running--;
        announce()
    };
#ifndef BUG_finish_ignores_foreign
    meet_foreign();
#endif
    close_if_unused(false);
    give_lock()
}

#if FOREIGN_RESETTERS > 0
proctype Maintenance() {
end_idle:
    do
    :: atomic { kicked && !locked -> kicked = false; locked = true };
        meet_foreign();
        give_lock()
    od
}

/* A reset by another library: its call, during which on_state of abort.c runs. */
proctype ForeignResetter() {
    byte k;
    bool late, shut;
    do
    :: k < TIMES ->
        if
        :: retained == 0 /* 507007 */
        :: atomic { retained > 0 && changer == 0 -> changer = THEIRS; retained = 0 };
            foreign++;
            atomic { /* shut(): a compare-and-swap */
                if
                :: word_state == CLOSED
                :: else -> generation++; word_foreign = true; shut = true
                fi
            };
            if
            :: !shut
            :: shut && enqueueing + waiting + lifetime == 0 /* all calls have left C */
            :: TIME_OUT && shut -> late = true
            fi;
            kicked = kicked || shut;
            atomic { gone = true; assert(late || inside == 0) };
            atomic { incarnation++; changer = 0; late = false; shut = false }
        fi;
        k++
    :: else -> break
    od;
    finished++
}
#endif
