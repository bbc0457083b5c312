/*
 * What the metrics count in C: waits, and calls of models. aioacl/_metrics/table.py has the names of the
 * metrics.
 *
 * Each number is one relaxed atomic, which any thread adds to and any thread reads. So a scrape takes no lock,
 * and the numbers of one scrape may be of slightly different moments. The counts of a device are static. The
 * counts of a model are allocated once for each device and label, and never freed: a token may refer to them
 * for as long as its work runs, and the totals of a model stay when it is closed. Python limits the number of
 * labels.
 *
 * A token that is counted is in the number of waits that have begun, and later once in the number of those that
 * have ended or that were dropped.
 */
#include <stdlib.h>

#include "internal.h"

static const int64_t bounds_us[AIO_BOUNDS] = {50,     100,     250,     500,     1000,    2500,
                                              5000,   10000,   25000,   50000,   100000,  250000,
                                              500000, 1000000, 2500000, 5000000, 10000000};
static aio_device_counts devices[AIO_DEVICES];

static void add(uint64_t *number, uint64_t amount) {
    __atomic_fetch_add(number, amount, __ATOMIC_RELAXED);
}

static void observe(aio_histogram *histogram, int64_t us) {
    int bucket = 0;
    while (bucket < AIO_BOUNDS && us > bounds_us[bucket]) {
        bucket++;
    }
    add(&histogram->counts[bucket], 1);
    add(&histogram->sum_us, us > 0 ? (uint64_t)us : 0);
}

/* A wait that a reset or a close has ended, or refused to begin. */
static bool is_reset(int32_t code) {
    switch (code) {
    case AIO_WAS_RESET:
    case AIO_STALE:
    case AIO_RESETTING_NOW:
    case AIO_DRAINING_NOW:
    case AIO_QUARANTINE:
    case AIO_NOT_OPEN:
    case RT_STREAM_ABORT:
        return true;
    default:
        return false;
    }
}

enum aio_ending aio_ending_of(aio_result result) {
    if (result >= 0) {
        return AIO_ENDING_DONE;
    }
    return is_reset(aio_code(result)) ? AIO_ENDING_RESET : AIO_ENDING_FAILED;
}

static int kind_of(const aio_token *token) {
    return token->counts ? AIO_OF_MODEL : AIO_OF_STREAM;
}

static void begin(aio_token *token, int device, int64_t now_us) {
    token->device = device;
    token->counted = true;
    token->begun_us = now_us;
    add(&devices[device].begun[kind_of(token)], 1);
}

/* The port of a thread of the engine has no descriptor: its waits are not those of a caller. */
void aio_count_wait(aio_token *token) {
    if (!token->counted && token->port->fd >= 0) {
        begin(token, token->stream->device, token->born_us);
    }
}

void aio_count_call(aio_token *token, aio_model_counts *counts, int rows) {
    if (counts) {
        token->counts = counts;
        token->rows = rows;
        begin(token, (int)counts->device, aio_now_us());
    }
}

void aio_count_slot(const aio_token *token, bool waited) {
    if (token->counts) {
        observe(&token->counts->slot_wait, waited ? aio_now_us() - token->begun_us : 0);
    }
}

void aio_count_execution(aio_token *token) {
    if (token->counts) {
        token->executed_us = aio_now_us();
    }
}

static void end_execution(const aio_token *token, enum aio_ending ending, int64_t now_us) {
    add(&token->counts->executions[ending], 1);
    add(&token->counts->rows[ending], (uint64_t)token->rows);
    if (ending == AIO_ENDING_DONE) {
        observe(&token->counts->execution, now_us - token->executed_us);
    }
}

void aio_count_end(const aio_token *token, aio_result result) {
    if (!token->counted) {
        return;
    }
    int64_t now_us = token->ended_us ? token->ended_us : aio_now_us();
    enum aio_ending ending = aio_ending_of(result);
    observe(&devices[token->device].waits[kind_of(token)][ending], now_us - token->begun_us);
    if (token->executed_us) {
        end_execution(token, ending, now_us);
    }
}

void aio_count_drop(const aio_token *token) {
    if (!token->counted) {
        return;
    }
    if (token->executed_us) {
        end_execution(token, AIO_ENDING_CANCELLED, 0);
    }
    add(&devices[token->device].dropped[kind_of(token)], 1);
}

void aio_count_request(aio_model_counts *counts, enum aio_ending ending) {
    if (counts) {
        add(&counts->requests[ending], 1);
    }
}

aio_model_counts *aio_model_counts_new(int device) {
    aio_model_counts *made = calloc(1, sizeof *made);
    if (made) {
        made->device = device;
    }
    return made;
}

static void read_numbers(const uint64_t *from, uint64_t *to, size_t size) {
    for (size_t index = 0; index < size / sizeof *from; index++) {
        to[index] = __atomic_load_n(&from[index], __ATOMIC_RELAXED);
    }
}

void aio_device_counts_read(int device, aio_device_counts *copy) {
    read_numbers((const uint64_t *)&devices[device % AIO_DEVICES], (uint64_t *)copy, sizeof *copy);
}

void aio_model_counts_read(const aio_model_counts *counts, aio_model_counts *copy) {
    read_numbers((const uint64_t *)counts, (uint64_t *)copy, sizeof *copy);
}

int64_t aio_bound_us(int index) {
    return bounds_us[index];
}
