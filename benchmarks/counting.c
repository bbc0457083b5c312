/*
 * Measures what the metrics add to an await and to a call of a model.
 *
 *     counting ROUNDS
 *
 * Prints a JSON object with the nanoseconds of processor time of each. It is built from metrics.c itself,
 * because the engine exports no such functions.
 */
#include <stdio.h>

#include "metrics.c"

int64_t aio_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t spent_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A wait that lasts for a millisecond. The engine has read both times for other purposes. */
static void count_wait(int64_t now_us) {
    static aio_port port;
    static aio_stream stream;
    aio_token token = {.port = &port, .stream = &stream, .born_us = now_us - 1000};
    aio_count_wait(&token);
    token.ended_us = now_us;
    aio_count_end(&token, 1);
}

static void count_call(aio_model_counts *counts) {
    aio_token token = {.counted = false};
    aio_count_call(&token, counts, 1);
    token.begun_us -= 1000;
    aio_count_slot(&token, false);
    aio_count_execution(&token);
    token.executed_us -= 1000;
    token.ended_us = token.executed_us + 500;
    aio_count_end(&token, 1);
    aio_count_request(counts, AIO_ENDING_DONE);
}

int main(int argc, char **argv) {
    int rounds = argc == 2 ? atoi(argv[1]) : 1000000;
    aio_model_counts *counts = aio_model_counts_new(0);
    int64_t now_us = aio_now_us();
    int64_t first = spent_ns();
    for (int round = 0; round < rounds; round++) {
        count_wait(now_us);
    }
    int64_t second = spent_ns();
    for (int round = 0; round < rounds; round++) {
        count_call(counts);
    }
    int64_t third = spent_ns();
    printf("{\"await\": %.2f, \"call\": %.2f}\n", (double)(second - first) / rounds,
           (double)(third - second) / rounds);
    return 0;
}
