/*
 * The manager's state, under its lock `changed`: aioacl/_lifecycle/{admission,manager,turns,lease}.py.
 *
 *     apply, apply_foreign   Admission.apply          announce      Admission.announce
 *     look                   `seen = self.version`    change        Admission.change, Port.wait
 *     pass_or_wait           Admission.may_pass, and turns.wait, as in until_open
 *     leave_place            Turns.leave              meet_foreign  Manager.meet_foreign
 *     launch                 Manager.start_procedure  break_off, close_if_unused   the same names in Manager
 *
 * A section under the lock is one atomic sequence if it only touches what the lock guards: no other thread sees an
 * intermediate state.  If it touches the word, which others change without the lock, it is split, and `locked` is held.
 *
 * `version == seen` is modelled as "no announcement since the look": one bit for each subscriber (`fresh`), cleared by
 * `announce`.  An integer that only grows would mean the same, but no two states would ever be equal.  A completion is
 * a bit too (`posted`).  In the code, every wait has a key of its own, and the port drops a completion that is no
 * longer awaited.  Therefore a waiter that leaves clears its bits here.
 *
 * A wait for the condition (`changed.wait()`) is a bit in `asleep`, which notify_all clears.  During the wait, the lock
 * is free.
 */
byte state;
bool locked;
byte fresh, subscribed, posted; /* bits of clients */
byte asleep;                    /* bits of clients that wait for the condition */
bool procedure_asleep;          /* whether the procedure waits for the condition */

byte procedure; /* the kind of the running procedure; 0 if none runs */
byte running;   /* the observer's: threads that run a procedure */
bool reported;  /* the running reset has its report already */
byte joined;    /* bits of the clients that await the procedure */
byte arrived;   /* bits of the clients whose procedure has ended */
byte well;      /* bits of the clients whose procedure has succeeded */
byte opens;
bool kicked;    /* AIO_KICK_FOREIGN */

byte queueing, due; /* Turns._waiting, ._due */
byte promised;      /* the observer's: clients that waited when the device opened and have not tried since */

byte leases;        /* the number of leases that all clients hold */
#if HOLDERS > 0
byte holds[HOLDERS], lost[HOLDERS];
#endif

#define mine(set) ((set & me) != 0)

inline take_lock() { atomic { !locked -> locked = true } }

inline notify_all() { asleep = 0; procedure_asleep = false }

inline announce() {
    fresh = 0;
    posted = posted | subscribed;
    subscribed = 0;
    notify_all()
}

inline give_turns() {
    if
    :: state == OPEN ->
        promised = promised | queueing;
#ifndef BUG_no_turns
        due = due | queueing;
#endif
        queueing = 0
    :: else
    fi
}

/* The state table, as a check of each transition: aioacl/_base/states.py TRANSITIONS. */
inline allowed(to) {
    assert((state == CLOSED && to == OPEN) || (state == OPEN && (to == DRAINING || to == RESETTING)) ||
           (state == DRAINING && to == RESETTING) || (state == QUARANTINED && to == RESETTING) ||
           (state == RESETTING && to != DRAINING))
}

/* Used with the lock held, but outside of atomic sequences: a foreign reset may come between the load and the swap. */
inline apply(to, up) {
    atomic { allowed(to); state = to; next = generation + up };
    atomic { set_word(to, next); next = 0; give_turns(); announce() }
}

inline apply_foreign(to) {
    atomic { assert(to == RESETTING || to == QUARANTINED); state = to; next = generation };
    set_word(to, next);
    atomic { next = 0; word_foreign = false; announce() } /* aio_gate_met */
}

/* A procedure gets a thread of its own. If none can be started, the caller gets the error (`procedure` stays 0). */
inline launch(kind) {
#ifndef BUG_two_procedures
    assert(procedure == 0);
#endif
    if
    :: procedure = kind; reported = false; run Procedure(kind)
    :: may_fail > 0 -> may_fail--; announce()
    fi
}

/* Manager.break_off; used with the lock held. */
inline break_off() {
#ifndef BUG_procedure_leaves_gate_shut
    if
    :: state == DRAINING -> apply(RESETTING, 0)
    :: else
    fi;
    if
    :: state == RESETTING -> apply(QUARANTINED, 0)
    :: else
    fi
#else
    skip
#endif
}

inline break_off_without(a_procedure) {
    if
    :: a_procedure == 0 -> break_off()
    :: else
    fi
}

/* Leases.revoke; used with the lock held. */
inline revoke() {
#if HOLDERS > 0
    atomic {
        lost[0] = lost[0] + holds[0];
        holds[0] = 0;
#if HOLDERS > 1
        lost[1] = lost[1] + holds[1];
        holds[1] = 0;
#endif
        leases = 0
    }
#else
    skip
#endif
}

/* Releases the lock. If no procedure is running then, the state must not be DRAINING or RESETTING. */
inline give_lock() {
    atomic {
        assert(procedure != 0 || state == OPEN || state == CLOSED || state == QUARANTINED);
        locked = false
    }
}

inline meet_foreign() {
#if FOREIGN_RESETTERS > 0
    if
    :: procedure == 0 && word_foreign && state == CLOSED -> word_foreign = false
    :: procedure == 0 && word_foreign && state == QUARANTINED -> revoke(); apply_foreign(QUARANTINED)
    :: procedure == 0 && word_foreign && state != CLOSED && state != QUARANTINED ->
        revoke();
        apply_foreign(RESETTING);
        atomic { launch(FOREIGN) };
        break_off_without(procedure)
    :: procedure != 0 || !word_foreign
    fi
#else
    skip
#endif
}

inline close_if_unused(quarantined_too) {
#if OPENERS > 0
    if
    :: opens == 0 && procedure == 0 && state == OPEN ->
        apply(DRAINING, 0);
        atomic { launch(CLOSING) };
        break_off_without(procedure)
    :: opens == 0 && procedure == 0 && state == QUARANTINED && quarantined_too -> atomic { launch(CLOSING) }
    :: opens > 0 || procedure != 0 || !(state == OPEN || (state == QUARANTINED && quarantined_too))
    fi
#else
    skip
#endif
}

/* --- waiting for a change ---------------------------------------------------- */
inline look() { fresh = fresh | me }

/* Sets `left` if the caller was cancelled, or if its deadline passed before the change. */
inline change() {
    atomic {
        !locked ->
        if
#ifdef BUG_lost_wake
        :: true -> subscribed = subscribed | me
#else
        :: mine(fresh) -> subscribed = subscribed | me
        :: else -> posted = posted | me
#endif
        fi;
        fresh = fresh & ~me
    };
    if
    :: atomic { mine(posted) -> posted = posted & ~me }
    :: atomic { MAY_CANCEL -> posted = posted & ~me; subscribed = subscribed & ~me; left = true }
    fi
}

/* --- turns ------------------------------------------------------------------- */
inline take_place() {
#ifdef BUG_last_turn_wakes_none
    due = due & ~me;
#else
    give_turn_back();
#endif
    queueing = queueing | me;
    promised = promised & ~me /* if it had a turn, a foreign reset has refused it; its next turn counts */
}

/* Removes the turn of this client. If this was the last turn, wakes all waiters. */
inline give_turn_back() {
    if
    :: due == me -> due = 0; notify_all()
    :: else -> due = due & ~me
    fi
}

inline tried() { promised = promised & ~me }

inline leave_place() {
    atomic {
        !locked ->
        queueing = queueing & ~me;
        promised = promised & ~me;
        give_turn_back()
    }
}
