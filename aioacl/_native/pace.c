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
 * is queried once or twice long before that time, then shortly before that time (`around_us`), and then without
 * a sleep or at short intervals. An end before `around_us` is noticed late, by at most half of the usual time
 * and at most LONGEST_US.
 *
 * A duration is known only as the range between two queries. If a query shortly before the usual time finds the
 * end, the wait may have been much shorter. If that age were taken for the duration, all later ends would stay
 * unnoticed until that age. So `around_us` then falls, each time by twice as much. After a few such waits, or
 * after one wait that ended much earlier, the next waits are not predicted. If a query after `around_us` finds
 * the end, both queries are close together. Then `around_us` rises by an eighth of the difference, so that
 * about one wait in nine ends before `around_us`.
 */
#include "pace.h"

#include <stdbool.h>

enum {
    SPIN_US = 50,           /* a wait that is not predicted is queried without a sleep up to this age */
    SHORTEST_US = 20,       /* the limits of the interval of a wait that is not predicted */
    UNPREDICTED_US = 1000,  /* also the longest interval after `around_us` */
    PREDICTED_FROM_US = 60, /* shorter waits are not predicted */
    HALF_FROM_US = 100,     /* the least age of the query at half of the usual time */
    EIGHTH_FROM_US = 1000,  /* the least age of the query at an eighth of this time */
    LONGEST_US = 20000,     /* the longest interval of a predicted wait: it may fail or be aborted early */
    FINEST_US = 10,         /* the limits of the first interval after `around_us` */
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

static int64_t least_step(const aio_pace *pace) {
    return at_least(LEAST_STEP_US, pace->around_us / 64);
}

static void predict(aio_pace *pace) {
    pace->around_us = pace->range.after_us;
    pace->step_us = least_step(pace);
}

/* Forgets the waits before `took`, and also this wait if its duration is not known well enough. */
static void restart(aio_pace *pace, aio_took took) {
    bool known = took.until_us >= PREDICTED_FROM_US && length_of(took) <= took.until_us / 8 + JITTER_US;
    *pace = (aio_pace){.range = took, .alike = known};
}

static void compare(aio_pace *pace, aio_took took) {
    aio_took both = {at_most(pace->range.after_us, took.after_us),
                     at_least(pace->range.until_us, took.until_us)};
    if (!pace->alike || length_of(both) > both.until_us / 4 + JITTER_US) {
        restart(pace, took);
        return;
    }
    pace->range = both;
    pace->alike += 1;
    if (pace->alike == AIO_WAITS_ALIKE) {
        predict(pace);
    }
}

void aio_pace_learn(aio_pace *pace, aio_took took) {
    int64_t usual = aio_pace_usual_us(pace);
    if (!usual) {
        compare(pace, took);
    } else if (took.until_us > usual || took.until_us < pace->around_us) {
        restart(pace, took);
    } else if (took.after_us >= pace->around_us) {
        int64_t over = took.after_us - pace->around_us;
        pace->around_us += over / 8;
        pace->step_us = at_least(least_step(pace), over);
    } else if (pace->step_us <= pace->around_us / 4) {
        pace->around_us -= pace->step_us;
        pace->step_us *= 2;
    } else {
        restart(pace, took);
    }
}

int64_t aio_pace_usual_us(const aio_pace *pace) {
    return pace->around_us ? pace->around_us + pace->around_us / 4 + 2 * JITTER_US : 0;
}

int64_t aio_interval_us(int64_t age_us) {
    int64_t interval = at_least(age_us / 32, at_most(FINE_US, age_us / 16));
    return age_us < SPIN_US ? 0 : at_most(UNPREDICTED_US, at_least(SHORTEST_US, interval));
}

/* The age of the next query of a wait younger than `around_us`: an eighth of `around_us`, the half or the
 * whole. The eighth and the half are left out if the wait already has two thirds of that age. */
static int64_t next_age(const aio_pace *pace, int64_t age_us) {
    int64_t half = pace->around_us / 2, eighth = pace->around_us / 8;
    if (eighth >= EIGHTH_FROM_US && age_us < eighth * 2 / 3) {
        return eighth;
    }
    return half >= HALF_FROM_US && age_us < half * 2 / 3 ? half : pace->around_us;
}

int64_t aio_pace_pause_us(const aio_pace *pace, int64_t age_us) {
    int64_t over = age_us - pace->around_us;
    if (age_us > aio_pace_usual_us(pace)) {
        return aio_interval_us(age_us);
    }
    if (over < 0) {
        return at_most(LONGEST_US, next_age(pace, age_us) - age_us);
    }
    if (over < SPIN_US) {
        return 0; /* a sleep would cost about as much, and the end would be noticed later */
    }
    return at_most(UNPREDICTED_US, at_least(FINEST_US, at_most(FINE_US, pace->around_us / 32)) + over / 8);
}

int64_t aio_pace_first_us(const aio_pace *pace) {
    return pace->around_us ? aio_pace_pause_us(pace, 0) : 0;
}
