/* When a wait is queried, given how long the last waits of its stream took. */
#ifndef AIOACL_PACE_H
#define AIOACL_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* The number of similar waits after which the next wait is predicted. */
enum { AIO_WAITS_ALIKE = 4 };

/* The age of a wait at the last query that found it unfinished, and at the query that found its end. The wait
 * ended in between. */
typedef struct {
    int64_t after_us, until_us;
} aio_took;

/* What is known of the duration of some waits. */
typedef struct {
    /* The last waits, if these were similar, and their number. */
    aio_took range;
    int alike;
    /* The age at which the next wait is expected to be almost finished; 0: the wait is not predicted. */
    int64_t around_us;
    int64_t step_us; /* by how much `around_us` falls after a wait that ended before it */
    bool early;      /* the last wait ended before `around_us` */
} aio_habit;

/* What is known of the duration of a stream's waits. If they alternate between two durations, `next` is the one
 * of the next wait. */
typedef struct {
    aio_habit next;
    aio_habit other; /* of the wait after the next one, if `alternates` is set */
    bool alternates;
} aio_pace;

void aio_pace_learn(aio_pace *pace, aio_took took);
/* Returns the time from a query at the age `age_us` to the next query. */
int64_t aio_pace_pause_us(const aio_pace *pace, int64_t age_us);
/* Returns the age below which a wait is not late, or 0 if the wait is not predicted. */
int64_t aio_pace_usual_us(const aio_pace *pace);
/* Returns the age of the first query of a new wait, or 0 if the wait is not predicted. */
int64_t aio_pace_first_us(const aio_pace *pace);
/* Returns the time to the next query of a wait that is not predicted. */
int64_t aio_interval_us(int64_t age_us);

#endif
