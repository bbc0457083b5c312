/*
 * The gate's word: aioacl/_native/gate.c, and what abort.c does to it.
 *
 * The word is one 64-bit atomic variable.  Each change is sequentially consistent, and is either a fetch-and-subtract,
 * or a compare-and-swap whose new value was computed from the old word.  A compare-and-swap that succeeds replaces the
 * same word that was checked.  If it fails, the new word is checked again.  So the check and the add are one step.  A
 * refusal takes effect at the load of the word that was checked.  The model has an atomic sequence for each, and fields
 * in place of bits.  BUG_check_then_count separates the check from the add.
 *
 *     judge      judge()                 count_in   aio_count_in(), which aio_begin() and aio_enter() also use
 *     count_out  aio_count_out()         set_word   aio_gate_set() with replaced()
 *     found      aio_foreign_found()
 *
 * The generation does not wrap in the model.  In the code it has 20 bits, so it wraps after a million resets, and
 * replaced() compares generations modulo 2^20.
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
bool gone;    /* the observer's: the device is being torn down, or has not been set since */

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
    assert(!gone);              /* no call enters C while a reset is in C, or before the device is set again */
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

/* Records a foreign reset that was detected later: aio_foreign_found(), a compare-and-swap. */
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

/* The caller computed `new_generation` from an earlier load. The generation of a foreign reset since then is kept. */
inline set_word(new_state, new_generation) {
    word_state = new_state;
    generation = (generation > new_generation -> generation : new_generation);
#ifdef BUG_foreign_flag_lost
    word_foreign = false
#endif
}
