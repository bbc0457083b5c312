/* When waits are queried. The tests simulate waits of given durations without a clock: each query comes at
 * exactly the age that pace.c returns. */
#include "bed.h"
#include "pace.h"

static aio_pace pace;

typedef struct {
    int sleeps;      /* before the query that found the end */
    int64_t late_us; /* from the end to this query */
} played;

static played play(int64_t duration) {
    int64_t age = aio_pace_first_us(&pace), before = 0;
    played it = {.sleeps = age > 0};
    while (age < duration) {
        int64_t pause = aio_pace_pause_us(&pace, age);
        before = age;
        it.sleeps += pause > 0;
        age += pause > 0 ? pause : 1; /* a query without a sleep takes about 1 us */
    }
    it.late_us = age - duration;
    aio_pace_learn(&pace, (aio_took){before, age});
    return it;
}

static void play_alike(int64_t duration) {
    pace = (aio_pace){0};
    for (int i = 0; i < AIO_WAITS_ALIKE; i++) {
        CHECK_EQ(aio_pace_first_us(&pace), 0);
        play(duration);
    }
}

TEST(a_wait_without_a_prediction_is_noticed_soon) {
    for (int64_t duration = 1; duration < INT64_C(100000000); duration += duration / 3 + 1) {
        pace = (aio_pace){0};
        played it = play(duration);
        CHECK(it.late_us <= 20 + duration / 16);
        CHECK(it.late_us <= 100 + duration / 32);
        CHECK(it.late_us <= 1000);
    }
}

TEST(waits_of_the_same_time_take_few_queries) {
    for (int64_t duration = 80; duration < 20000; duration += duration / 7) {
        play_alike(duration);
        for (int i = 0; i < 20; i++) {
            played it = play(duration);
            CHECK(it.sleeps <= (i < 10 ? 10 : 5) + (duration < 4000 ? 0 : 2)); /* two for short waits */
            CHECK(it.late_us <= 20 + duration / 16);
        }
    }
}

TEST(short_waits_are_not_predicted) {
    for (int i = 0; i < 100; i++) {
        play_alike(50);
        CHECK_EQ(aio_pace_usual_us(&pace), 0);
    }
}

TEST(different_waits_are_not_predicted) {
    pace = (aio_pace){0};
    for (int i = 0; i < 100; i++) {
        play(INT64_C(1000) << i % 3);
        CHECK_EQ(aio_pace_usual_us(&pace), 0);
    }
}

static void play_alternating(int64_t first, int64_t second) {
    pace = (aio_pace){0};
    for (int i = 0; i < 2 * AIO_WAITS_ALIKE; i++) {
        play(i % 2 ? second : first);
    }
}

TEST(waits_that_alternate_between_two_durations_are_predicted) {
    for (int64_t duration = 600; duration < 20000; duration += duration / 7) {
        play_alternating(duration, duration / 2);
        for (int i = 0; i < 40; i++) {
            int64_t now = i % 2 ? duration / 2 : duration;
            CHECK(aio_pace_usual_us(&pace) > now);
            CHECK(aio_pace_usual_us(&pace) < now * 2);
            played it = play(now);
            CHECK(it.sleeps <= (i < 20 ? 10 : 5) + (now < 4000 ? 0 : 2));
            CHECK(it.late_us <= 20 + now / 16);
        }
    }
}

static void check_alternating(int64_t first, int64_t second) {
    for (int i = 0; i < 10; i++) {
        int64_t now = i % 2 ? second : first;
        CHECK(play(now).late_us <= 20 + now / 16);
    }
}

TEST(a_long_wait_too_many_is_noticed_in_time) {
    play_alternating(7000, 5000);
    play(7000);
    CHECK(play(7000).late_us <= 20 + 7000 / 16);
    check_alternating(5000, 7000);
}

TEST(a_short_wait_too_many_delays_no_later_wait) {
    play_alternating(5000, 7000);
    play(5000);
    CHECK(play(5000).late_us <= 7000 / 2);
    play(7000);
    check_alternating(5000, 7000);
}

TEST(waits_that_no_longer_alternate_are_predicted_again) {
    play_alternating(7000, 3000);
    for (int i = 0; i < 3 * AIO_WAITS_ALIKE; i++) {
        play(1000);
    }
    for (int i = 0; i < 20; i++) {
        CHECK(aio_pace_usual_us(&pace) > 1000);
        CHECK(play(1000).late_us <= 100);
    }
    CHECK(!pace.alternates);
}

/* Of the first waits, one is much longer, for example because another program had the processor. */
TEST(one_long_wait_delays_the_prediction_by_few_waits) {
    for (int at = 0; at < AIO_WAITS_ALIKE; at++) {
        pace = (aio_pace){0};
        for (int i = 0; i < AIO_WAITS_ALIKE + 3; i++) {
            play(i == at ? 9000 : 2000);
        }
        CHECK(aio_pace_usual_us(&pace) > 2000);
        CHECK(aio_pace_usual_us(&pace) < 4000);
    }
}

/* The time is unknown if, for example, the watcher had no processor for a while. */
TEST(waits_that_ended_at_an_unknown_time_predict_nothing) {
    pace = (aio_pace){0};
    for (int i = 0; i < 100; i++) {
        aio_pace_learn(&pace, (aio_took){500, 1000});
        CHECK_EQ(aio_pace_usual_us(&pace), 0);
    }
}

TEST(a_much_shorter_wait_ends_the_prediction) {
    play_alike(8000);
    played it = play(1100);
    CHECK(it.late_us <= 4000);
    CHECK_EQ(aio_pace_usual_us(&pace), 0);
    it = play(1100);
    CHECK(it.late_us <= 1100 / 16 + 20);
}

TEST(a_short_wait_after_long_ones_is_noticed_within_2_ms) {
    static const int64_t durations[] = {100, 500, 1000, 1500, 2000, 2500, 4500, 5000, 6000};
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++) {
        for (int64_t usual = 18000; usual <= 200000; usual += 1000) {
            play_alike(usual);
            CHECK(play(durations[i]).late_us <= (durations[i] < 500 ? 2400 : 2000));
        }
    }
}

/* A short wait that follows the first one is not predicted, so it is noticed as soon as any other. */
TEST(the_second_short_wait_is_noticed_soon) {
    play_alike(20000);
    play(1000);
    CHECK(play(1000).late_us <= 1000 / 16 + 20);
}

TEST(a_wait_of_half_the_usual_time_ends_the_prediction) {
    play_alike(9200);
    CHECK(play(5200).late_us <= 9200 / 2);
    CHECK(play(5200).late_us <= 9200 / 4);
    CHECK_EQ(aio_pace_usual_us(&pace), 0);
}

/* The number of queries of the next wait before `around_us`. */
static int early_queries(void) {
    int count = 0;
    for (int64_t age = aio_pace_first_us(&pace); age < pace.next.around_us;
         age += aio_pace_pause_us(&pace, age)) {
        count += 1;
    }
    return count;
}

TEST(only_after_an_early_end_a_long_wait_has_a_query_at_three_quarters) {
    play_alike(20000);
    CHECK_EQ(early_queries(), 3);
    play(22000);
    CHECK_EQ(early_queries(), 3);
    play(19200);
    CHECK_EQ(early_queries(), 4);
    play(20000);
    CHECK_EQ(early_queries(), 3);
}

/* The number of queries without a sleep, of a wait that ends that long after `around_us`. */
static int busy_queries(int64_t over) {
    int count = 0;
    for (int64_t past = 0; past < over; past += 1) {
        count += aio_pace_pause_us(&pace, pace.next.around_us + past) == 0;
    }
    return count;
}

TEST(the_end_of_a_long_wait_is_queried_with_sleeps) {
    play_alike(2000);
    CHECK(busy_queries(200) > 0);
    play_alike(20000);
    CHECK_EQ(busy_queries(200), 0);
}

TEST(a_longer_wait_ends_the_prediction) {
    play_alike(8000);
    played it = play(20000);
    CHECK(it.late_us <= 1000);
    CHECK_EQ(aio_pace_usual_us(&pace), 0);
}

/* All waits after the first are shorter than the usual time, but longer than half of it. */
TEST(shorter_waits_are_noticed_in_time_after_a_few_waits) {
    for (int64_t percent = 51; percent < 100; percent++) {
        for (int64_t usual = 100; usual <= 16000; usual *= 2) {
            int64_t duration = usual * percent / 100;
            int late = 0;
            play_alike(usual);
            for (int i = 0; i < 40; i++) {
                late += play(duration).late_us > duration / 16 + 20;
            }
            CHECK(late <= 5);
        }
    }
}

TEST(waits_that_grow_stay_predicted) {
    play_alike(1000);
    for (int64_t duration = 1000; duration < 4000; duration += 10) {
        CHECK(play(duration).late_us <= duration / 16 + 20);
        CHECK(aio_pace_usual_us(&pace) > duration);
    }
}

TEST(no_end_is_noticed_later_than_20_ms) {
    play_alike(INT64_C(3600) * 1000000);
    for (int64_t duration = 1; duration < INT64_C(1000000000); duration += duration / 2 + 1) {
        aio_pace before = pace;
        CHECK(play(duration).late_us <= 20000);
        pace = before;
    }
}

/* An end after the usual time is noticed as soon as without a prediction. */
TEST(a_long_wait_that_ends_late_is_noticed_soon) {
    for (int64_t usual = 100000; usual < INT64_C(10000000000); usual *= 10) {
        for (int64_t percent = 100; percent < 130; percent++) {
            play_alike(usual);
            CHECK(play(usual * percent / 100).late_us <= 1000);
        }
    }
}

/* After a query at four fifths of half of the usual time, no query at half of this time is needed. */
TEST(a_query_shortly_before_the_half_replaces_the_query_at_the_half) {
    play_alike(1000);
    int64_t half = aio_pace_first_us(&pace), age = half * 4 / 5;
    CHECK(half > 400);
    CHECK(age + aio_pace_pause_us(&pace, age) > 900);
    CHECK_EQ(age / 2 + aio_pace_pause_us(&pace, age / 2), half);
}

TEST(any_durations_keep_the_limits) {
    uint32_t seed = 1;
    pace = (aio_pace){0};
    for (int i = 0; i < 200000; i++) {
        seed = seed * 1664525u + 1013904223u;
        int64_t scale = INT64_C(1) << (seed >> 20 & 15);
        int64_t duration = i % 3 ? 1000 + scale % 100 : scale + (seed >> 24);
        int64_t usual = aio_pace_usual_us(&pace);
        played it = play(duration);
        CHECK(it.late_us <= 20000);
        CHECK(it.late_us <= usual / 2 + duration / 16 + 20);
        CHECK(pace.next.around_us >= 0);
    }
}

RUN_TESTS
