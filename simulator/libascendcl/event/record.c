/* Records. Each RecordEvent creates one record, which the event, its tasks and its waiters share. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static record_t *free_records;

record_t *record_new(device_t *device) {
    record_t *record = free_records;
    if (record != NULL) {
        free_records = record->next_free;
        memset(record, 0, sizeof *record);
    } else {
        record = calloc(1, sizeof *record);
    }
    if (record != NULL) {
        record->refs = 1;
        record->device = device;
    }
    return record;
}

void record_retain(record_t *record) {
    record->refs++;
}

void record_release(record_t *record) {
    if (--record->refs == 0) {
        record->next_free = free_records;
        free_records = record;
    }
}

void record_end(record_t *record, bool signalled, aclError waiters_rc) {
    if (record->ended) {
        return;
    }
    record->ended = true;
    record->signalled = signalled;
    record->stamp_ns = now_ns();
    record->round = signalled ? recycler_round(record->device) : 0; /* 0: the host sees the drop at once */
    if (signalled) {
        record_finish_waiters(record, waiters_rc);
        park_kick_all(&record->streams);
    } else {
        wait_finish_all(&record->waiters, waiters_rc);
    }
}
