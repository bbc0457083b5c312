/*
 * The gate's word: aioacl/_native/gate.c, and what abort.c does to it.
 *
 * One 64-bit atomic.  Each change is a compare-and-swap of a value that was computed from the one it replaces, or a
 * fetch-and-subtract, sequentially consistent both.  A compare-and-swap that succeeds has checked the same word that
 * it replaces; one that fails checks again.  So the check and the add are one step, and a refusal is the step of the load
 * that it checked: an atomic sequence here, with fields in place of bits.  BUG_check_then_count separates the two.
 *
 *     judge      judge()                 count_in   aio_count_in(), of aio_begin() and aio_enter() too
 *     count_out  aio_count_out()         set_word   aio_gate_set() with replaced()
 *     found      aio_foreign_found()
 *
 * The generation does not wrap here: 20 bits do after a million resets, and replaced() compares in a ring.
 */
#define ENQUEUE 0
#define WAIT 1
#define LIFETIME 2

#define OK 0
#define STALE 1
#define DRAINING_NOW 2
#define REFUSED 3
#define UNJUDGED 4

byte word_state;
bool word_foreign;
byte generation;
byte enqueueing, waiting, lifetime;
byte blocked; /* aio_device.blocked: threads inside a blocking wait */

byte foreign; /* aio_device.foreign: foreign resets that the callback has reported */
bool gone;    /* the observer's: the device is being torn down, or was not set since */

inline judge(kind, stamp, held, answer) {
    if
#ifndef BUG_no_generation_check
    :: generation != stamp -> answer = STALE
    :: else ->
#else
    :: true ->
#endif
        if
        :: word_foreign -> answer = REFUSED
        :: !word_foreign && word_state == OPEN -> answer = OK
        :: !word_foreign && word_state == DRAINING -> answer = (kind == ENQUEUE && !held -> DRAINING_NOW : OK)
        :: !word_foreign && word_state != OPEN && word_state != DRAINING -> answer = REFUSED
        fi
    fi
}

inline add(kind, born) {
    if
    :: kind == ENQUEUE -> enqueueing++; inside++
    :: kind == WAIT -> waiting++; moving++
    :: kind == LIFETIME -> lifetime++; inside++
    fi;
    assert(!gone);              /* no call enters C while a reset is in it, or before the device is set again */
    assert(born == incarnation) /* no handle of an older generation reaches C */
}

inline count_in(kind, stamp, held, born, answer) {
#ifdef BUG_check_then_count
    atomic { judge(kind, stamp, held, answer) };
    atomic {
        if
        :: answer == OK -> add(kind, born)
        :: else
        fi
    }
#else
    atomic {
        judge(kind, stamp, held, answer);
        if
        :: answer == OK -> add(kind, born)
        :: else
        fi
    }
#endif
}

inline count_out(kind) {
    atomic {
        if
        :: kind == ENQUEUE -> enqueueing--; inside--
        :: kind == WAIT -> waiting--
        :: kind == LIFETIME -> lifetime--; inside--
        fi
    }
}

/* A foreign reset that was found out: aio_foreign_found(), a compare-and-swap. */
inline found(of_generation) {
    atomic {
        if
        :: generation == of_generation && (word_state == OPEN || word_state == DRAINING) ->
            generation++;
            word_foreign = true;
            kicked = true
        :: else
        fi
    }
}

/* With the generation that the caller computed from an earlier load: a foreign reset since then is kept. */
inline set_word(new_state, new_generation) {
    word_state = new_state;
    generation = (generation > new_generation -> generation : new_generation);
#ifdef BUG_foreign_flag_lost
    word_foreign = false
#endif
}
