/*
 * When a wait is queried.
 *
 * For each query the watcher wakes and sleeps again, which costs far more than the query. The end of a wait is
 * noticed by the first query after the end. So the number of queries decides what a wait costs, and the
 * intervals between the queries decide how late the end is noticed.
 *
 * Without a prediction, the interval grows with the age of the wait. So an end is noticed at most 1/16 of the
 * wait's duration late (from 3 ms on, 1/32), and the number of queries grows with the logarithm of the
 * duration.
 *
 * If the last waits of a stream took about the same time, the next wait probably takes as long. The next wait
 * is queried at half of that time, then shortly before that time (`around_us`), and then without a sleep or
 * at short intervals. An end before `around_us` is noticed late: usually by at most half of the usual time,
 * always by at most five eighths of it or HALF_FROM_US, and by at most LONGEST_US. More queries would find
 * such ends earlier. But a query after a sleep of milliseconds took 20 to 60 us of a processor, with the
 * wake-up, on the simulator. So a long wait is also queried at three quarters of the usual time only if the
 * last wait ended before `around_us`.
 *
 * After a row of long waits, a short one may follow. Its duration would be small against its delay. So a long
 * wait is also queried at SOON_US and LATER_US, if these are well before the half: a wait of 1 ms or of 5 ms is
 * noticed at most 2 ms late. In return, a long wait is not queried without a sleep. Its end usually varies by
 * more than SPIN_US, so these queries found few ends, and cost as much as the other two.
 *
 * A duration is known only as the range between two queries. If a query shortly before the usual time finds the
 * end, the wait may have been much shorter. If that age were taken for the duration, all later ends would stay
 * unnoticed until that age. So `around_us` then falls, each time by twice as much. After a few such waits, or
 * after one wait that ended much earlier, the next waits are not predicted. If a query after `around_us` finds
 * the end, both queries are close together. Then `around_us` rises by an eighth of the difference, so that
 * about one wait in nine ends before `around_us`.
 *
 * The waits of a stream often alternate between two durations: an execution and its download, or a large copy
 * and a small one. If a wait differs from the waits before it, while these are not predicted, the waits with
 * even and with odd numbers are learned separately. If both then have the same duration, they are one again.
 */
#include "pace.h"

enum {
    SPIN_US = 50,           /* a wait that is not predicted is queried without a sleep up to this age */
    SHORTEST_US = 20,       /* the limits of the interval of a wait that is not predicted */
    UNPREDICTED_US = 1000,  /* also the longest interval after `around_us` */
    PREDICTED_FROM_US = 60, /* shorter waits are not predicted */
    HALF_FROM_US = 200,     /* the least usual time with a query at its half */
    LONG_US = 4000,         /* the least usual time of a long wait */
    SOON_US = 2500,         /* the ages at which a long wait is queried because it may be a short one */
    LATER_US = 6500,
    LONGEST_US = 20000, /* the longest interval of a predicted wait: it may fail or be aborted early */
    FINEST_US = 10,     /* the limits of the first interval after `around_us` */
    FINE_US = 100,
    LEAST_STEP_US = 8,
    JITTER_US = 40 /* how late the watcher may wake */
};

static int64_t at_most(int64_t limit, int64_t time) {
    return time < limit ? time : limit;
}

static int64_t at_least(int64_t limit, int64_t time) {
    return time > limit ? time : limit;
}

static int64_t length_of(aio_took range) {
    return range.until_us - range.after_us;
}

static int64_t least_step(const aio_habit *habit) {
    return at_least(LEAST_STEP_US, habit->around_us / 64);
}

static int64_t usual_us(const aio_habit *habit) {
    return habit->around_us ? habit->around_us + habit->around_us / 4 + 2 * JITTER_US : 0;
}

static bool fits(const aio_habit *habit, aio_took took) {
    return took.until_us >= habit->around_us && took.until_us <= usual_us(habit);
}

/* Forgets the waits before `took`, and also this wait if its duration is not known well enough. */
static void restart(aio_habit *habit, aio_took took) {
    bool known = took.until_us >= PREDICTED_FROM_US && length_of(took) <= took.until_us / 8 + JITTER_US;
    *habit = (aio_habit){.range = took, .alike = known};
}

/* Adds `count` similar waits. Returns false if they are not similar to the waits before. */
static bool add(aio_habit *habit, aio_took range, int count) {
    aio_took both = {at_most(habit->range.after_us, range.after_us),
                     at_least(habit->range.until_us, range.until_us)};
    if (!habit->alike || !count || length_of(both) > both.until_us / 4 + JITTER_US) {
        return false;
    }
    habit->range = both;
    habit->alike += count;
    if (habit->alike >= AIO_WAITS_ALIKE) {
        habit->around_us = both.after_us;
        habit->step_us = least_step(habit);
    }
    return true;
}

static void correct(aio_habit *habit, aio_took took) {
    habit->early = took.after_us < habit->around_us;
    if (!habit->early) {
        int64_t over = took.after_us - habit->around_us;
        habit->around_us += over / 8;
        habit->step_us = at_least(least_step(habit), over);
    } else if (habit->step_us <= habit->around_us / 4) {
        habit->around_us -= habit->step_us;
        habit->step_us *= 2;
    } else {
        restart(habit, took);
    }
}

static void learn(aio_habit *habit, aio_took took) {
    if (fits(habit, took)) {
        correct(habit, took);
    } else if (habit->around_us || !add(habit, took, 1)) {
        restart(habit, took);
    }
}

static void swap(aio_pace *pace) {
    aio_habit next = pace->other;
    pace->other = pace->next;
    pace->next = next;
}

/* Makes both habits one if their waits take the same time. */
static void join(aio_pace *pace) {
    aio_habit *next = &pace->next, *other = &pace->other;
    if (next->around_us && other->around_us) {
        const aio_habit *first = next->around_us < other->around_us ? next : other;
        const aio_habit *second = first == next ? other : next;
        pace->alternates = second->around_us - first->around_us > first->around_us / 8 + JITTER_US;
        *next = pace->alternates ? *next : *first;
    } else if (next->around_us) {
        pace->alternates = !fits(next, other->range);
    } else if (other->around_us) {
        pace->alternates = !fits(other, next->range);
        *next = pace->alternates ? *next : *other;
    } else {
        pace->alternates = !add(next, other->range, other->alike);
    }
}

static bool starts_to_alternate(const aio_habit *habit, aio_took took) {
    aio_habit tried = *habit;
    return habit->alike && !habit->around_us && !add(&tried, took, 1);
}

static void learn_alternating(aio_pace *pace, aio_took took) {
    bool again = pace->next.around_us && !fits(&pace->next, took) && fits(&pace->other, took);
    if (again) { /* two waits of the same duration, one after the other */
        learn(&pace->other, took);
    } else {
        learn(&pace->next, took);
        swap(pace);
    }
    join(pace);
}

void aio_pace_learn(aio_pace *pace, aio_took took) {
    if (pace->alternates) {
        learn_alternating(pace, took);
    } else if (starts_to_alternate(&pace->next, took)) {
        pace->alternates = true;
        restart(&pace->other, took);
    } else {
        learn(&pace->next, took);
    }
}

int64_t aio_pace_usual_us(const aio_pace *pace) {
    return usual_us(&pace->next);
}

int64_t aio_interval_us(int64_t age_us) {
    int64_t interval = at_least(age_us / 32, at_most(FINE_US, age_us / 16));
    return age_us < SPIN_US ? 0 : at_most(UNPREDICTED_US, at_least(SHORTEST_US, interval));
}

static bool is_next(int64_t age_us, int64_t at_us) {
    return age_us < at_us * 3 / 4;
}

/* The age of the next query of a wait younger than `around_us`: SOON_US, LATER_US, half of `around_us`, three
 * quarters, or the whole. An age is left out if the wait already has three quarters of it, or if the half is
 * close to it. */
static int64_t next_age(const aio_habit *habit, int64_t age_us) {
    int64_t around = habit->around_us, half = around - around / 2;
    if (around < HALF_FROM_US) {
        return around;
    }
    if (is_next(age_us, half)) {
        int64_t early = is_next(age_us, SOON_US) ? SOON_US : LATER_US;
        return is_next(age_us, early) && is_next(early, half) ? early : half;
    }
    bool doubtful = habit->early && around >= LONG_US;
    return doubtful && is_next(age_us, around * 3 / 4) ? around * 3 / 4 : around;
}

int64_t aio_pace_pause_us(const aio_pace *pace, int64_t age_us) {
    const aio_habit *habit = &pace->next;
    int64_t over = age_us - habit->around_us;
    if (age_us > usual_us(habit)) {
        return aio_interval_us(age_us);
    }
    if (over < 0) {
        return at_most(LONGEST_US, next_age(habit, age_us) - age_us);
    }
    if (over < SPIN_US && habit->around_us < LONG_US) {
        return 0; /* a sleep would cost about as much, and the end would be noticed later */
    }
    return at_most(UNPREDICTED_US, at_least(FINEST_US, at_most(FINE_US, habit->around_us / 32)) + over / 8);
}

int64_t aio_pace_first_us(const aio_pace *pace) {
    return pace->next.around_us ? aio_pace_pause_us(pace, 0) : 0;
}
