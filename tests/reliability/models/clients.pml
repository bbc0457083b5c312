/*
 * The users of a device.  Each user acts TIMES times.  A resetter instead acts until RESETS of its resets have
 * succeeded.  After that, the user counts as finished.
 *
 *     Enqueuer  enqueue.c: a plain call with a handle, on any thread; a stale handle is replaced when the device is
 *               open
 *     Waiter    waiters.c: block_in(), conclude(); if there are Waiters, the barrier does not wait for blocked waits
 *     Maker     Manager.make: an object made on the maintenance thread.  That thread makes one object after another.
 *               Makers run concurrently, so the model covers every order in which that thread can make objects, and also
 *               overlaps that cannot occur
 *     Job       Manager.enter_job: a worker of device.executor
 *     Holder    Admission.grant and .give_back: a lease, perhaps a second lease inside it, and a call that enqueues
 *     Resetter  Manager.force_reset
 *     Opener    Manager.open and .close
 */
/* Admission.may_pass for a client without a lease. Until a foreign reset is handled, the gate refuses everything. */
#define OPEN_TO_ALL (state == OPEN && !word_foreign)

/* Manager.make as one step; only a Maker takes all its steps. A handle gets the generation in which it was made. */
inline make_handle(held) {
    atomic {
        !locked ->
        judge(LIFETIME, generation, false, answer);
        if
        :: answer == OK && (state == OPEN || (held && state == DRAINING)) ->
            assert(!gone);
            stamp = generation;
            born = incarnation
        :: else
        fi;
        answer = 0
    }
}

proctype Enqueuer() {
    byte k, stamp, born, answer;
    make_handle(false);
    do
    :: k < TIMES ->
        count_in(ENQUEUE, stamp, false, born, answer);
        if
        :: answer == OK -> count_out(ENQUEUE)
        :: answer == STALE -> make_handle(false)
        :: else
        fi;
        atomic { answer = 0; k++ }
    :: else -> break
    od;
    atomic { stamp = 0; born = 0; finished++ }
}

#if WAITERS > 0
proctype Waiter() {
    byte k, stamp, born, answer;
    bool stuck;
    make_handle(false);
    do
    :: k < TIMES ->
        count_in(WAIT, stamp, false, born, answer);
        if
        :: answer == OK ->
            blocked++;
            if
            :: true     /* the wait ends, or is aborted, at any time */
            :: moving-- /* the wait cannot be aborted */; stuck = true
            fi;
            atomic { moving = (stuck -> moving : moving - 1); stuck = false }; /* back from the call */
            blocked--;
            count_in(LIFETIME, stamp, false, born, answer); /* conclude() */
            if
            :: answer == OK -> count_out(LIFETIME)
            :: else
            fi;
            count_out(WAIT)
        :: answer == STALE -> make_handle(false)
        :: else
        fi;
        atomic { answer = 0; k++ }
    :: else -> break
    od;
    atomic { stamp = 0; born = 0; finished++ }
}
#endif

#if MAKERS > 0
proctype Maker(byte me) {
    byte k, stamp, answer;
    bool left;
    do
    :: k < TIMES ->
        do
        :: atomic {
               !locked ->
               if
               :: state == CLOSED || state == QUARANTINED -> break /* raises */
               :: OPEN_TO_ALL -> answer = UNJUDGED
               :: else -> take_place(); look()
               fi
           };
            if
            :: answer == UNJUDGED ->
                stamp = generation;
                count_in(LIFETIME, stamp, false, incarnation, answer);
                tried();
                if
                :: answer == OK && changer == THEIRS && retained == 0 -> /* 107002: found_reset() */
                    atomic { found(stamp); answer = 0; stamp = 0 };
                    count_out(LIFETIME)
                :: answer == OK -> count_out(LIFETIME); break
                :: else -> answer = 0
                fi
            :: else ->
                change();
                if
                :: left -> break
                :: else
                fi
            fi
        od;
        leave_place();
        atomic { stamp = 0; answer = 0; left = false; k++ }
    :: else -> break
    od;
    finished++
}
#endif

#if JOBS > 0
proctype Job(byte me) {
    byte k, stamp, answer;
    do
    :: k < TIMES ->
        do
        :: atomic {
               !locked ->
               if
               :: state == CLOSED || state == QUARANTINED -> break
               :: OPEN_TO_ALL -> stamp = generation; answer = UNJUDGED
               :: else -> take_place(); asleep = asleep | me
               fi
           };
            if
            :: answer == UNJUDGED ->
                count_in(LIFETIME, stamp, false, incarnation, answer);
                tried();
                if
                :: answer == OK -> count_out(LIFETIME); break
                :: else -> atomic { answer = 0; stamp = 0 }
                fi
            :: else -> !mine(asleep)
            fi
        od;
        leave_place();
        atomic { stamp = 0; answer = 0; k++ }
    :: else -> break
    od;
    finished++
}
#endif

#if HOLDERS > 0
#ifdef BUG_nested_lease_waits
#define MAY_NEST false
#else
#define MAY_NEST (state == DRAINING && holds[h] > 0)
#endif

/* until_open() and then grant(), which checks again under the lock. */
inline grant() {
    do
    :: atomic {
           !locked ->
           if
           :: lost[h] > 0 || state == CLOSED || state == QUARANTINED -> raised = true; break
           :: lost[h] == 0 && (OPEN_TO_ALL || MAY_NEST) -> answer = UNJUDGED
           :: else -> take_place(); look()
           fi
       };
        if
        :: answer == UNJUDGED ->
            atomic {
                !locked ->
                answer = 0;
                if
                :: lost[h] > 0 || state == CLOSED || state == QUARANTINED -> raised = true; tried(); break
                :: lost[h] == 0 && (OPEN_TO_ALL || MAY_NEST) -> holds[h]++; leases++; depth++; tried(); break
                :: else
                fi
            }
        :: else ->
            change();
            if
            :: left -> raised = true; break
            :: else
            fi
        fi
    od;
    leave_place()
}

/* Admission.give_back */
inline give_back() {
    atomic {
        !locked ->
        if
        :: holds[h] > 0 -> holds[h]--; leases--; announce()
        :: else -> lost[h]--
        fi;
        depth--
    }
}

proctype Holder(byte me; byte h) {
    byte k, stamp, born, answer, depth;
    bool left, raised;
    do
    :: k < TIMES ->
        grant();
        if
        :: raised
        :: else ->
            make_handle(holds[h] > 0);
            if
            :: grant()
            :: true
            fi;
            /* If a call is refused because the device drains, the code looks up the caller's leases. If there are any,
               it tries again as a holder. Only this second try is modelled. */
            atomic { !locked -> raised = (state == DRAINING && holds[h] > 0) };
            count_in(ENQUEUE, stamp, raised, born, answer);
            if
            :: answer == OK -> count_out(ENQUEUE)
            :: else
            fi
        fi;
        do
        :: depth > 0 -> give_back()
        :: else -> break
        od;
        atomic { assert(holds[h] == 0 && lost[h] == 0); stamp = 0; born = 0; answer = 0; left = false; raised = false; k++ }
    :: else -> break
    od;
    finished++
}
#endif

/* --- users that run a procedure, or join one ------------------------------------------------- */
/* Procedure.wait: sets `left` if the caller was cancelled. Otherwise sets `good` if the procedure succeeded. */
inline arrive() {
    do
    :: atomic {
           !locked ->
           if
           :: mine(arrived) -> good = mine(well); arrived = arrived & ~me; well = well & ~me; break
           :: else -> look()
           fi
       };
        change();
        if
        :: left -> atomic { joined = joined & ~me; arrived = arrived & ~me; well = well & ~me; break }
        :: else
        fi
    od
}

#if RESETTERS > 0
#ifdef BUG_join_after_finish
#define MAY_JOIN (procedure == RESET)
#else
#define MAY_JOIN (procedure == RESET && !reported)
#endif

proctype Resetter(byte me) {
    byte k, wanted;
    bool left, good, aboard, must_wait;
    do
    :: k < RESETS ->
        atomic {
            !locked ->
            /* A fault that was seen on an open device can be repaired only by a reset that begins later. */
            wanted = (state == OPEN && !word_foreign -> incarnation + 1 : 0);
            if
            :: procedure == 0 && state == CLOSED -> left = true /* raises */
#ifdef BUG_two_procedures
            :: !(procedure == 0 && state == CLOSED) -> launch(RESET); aboard = (procedure != 0)
#else
            :: MAY_JOIN -> aboard = true
            :: procedure == 0 && state != CLOSED -> launch(RESET); aboard = (procedure != 0)
            :: procedure != 0 && !MAY_JOIN -> look(); must_wait = true
#endif
            fi;
            joined = (aboard -> joined | me : joined)
        };
        if
        :: left
        :: !left && aboard -> arrive()
        :: !left && !aboard && must_wait -> change()
        :: !left && !aboard && !must_wait /* no thread could be started, so the resetter tries again */
        fi;
        atomic {
            assert(!good || incarnation >= wanted);
            k = (good || left -> k + 1 : k);
            left = false;
            good = false;
            aboard = false;
            must_wait = false;
            wanted = 0
        }
    :: else -> break
    od;
    finished++
}
#endif

#if OPENERS > 0
inline count_open_out() {
    atomic { take_lock(); opens--; announce() };
    close_if_unused(true);
    give_lock()
}

inline until_closed() {
    do
    :: atomic {
           !locked ->
           if
           :: opens > 0 || (procedure == 0 && (state == CLOSED || state == QUARANTINED)) -> break
           :: else -> look()
           fi
       };
        change();
        if
        :: left -> break
        :: else
        fi
    od
}

proctype Opener(byte me) {
    byte k;
    bool left, good, repaired, counted, aboard;
    do
    :: k < TIMES ->
        do
        :: atomic {
               !locked ->
               if
               :: state == QUARANTINED && (opens > 0 || repaired) -> left = true; break /* raises */
               :: else ->
                   if
                   :: procedure == 0 && state == CLOSED -> launch(OPENING); left = (procedure == 0)
                   :: procedure == 0 && state == QUARANTINED -> launch(CLOSING); left = (procedure == 0)
                   :: else
                   fi;
                   if
                   :: left -> break /* raises: no thread could be started */
                   :: !left && procedure == OPENING -> opens++; counted = true; joined = joined | me;
                        aboard = true; break
                   :: !left && procedure != OPENING && state == OPEN -> opens++; counted = true; break
                   :: else -> repaired = repaired || procedure == CLOSING; look()
                   fi
               fi
           };
            change();
            if
            :: left -> break
            :: else
            fi
        od;
        if
        :: aboard -> arrive()
        :: else
        fi;
        /* The open has succeeded or failed. In both cases it is now removed from the count. */
        if
        :: counted -> count_open_out(); left = false; until_closed()
        :: else
        fi;
        atomic { left = false; good = false; repaired = false; counted = false; aboard = false; k++ }
    :: else -> break
    od;
    finished++
}
#endif
