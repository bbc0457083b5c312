/*
 * The flight recorder: what C and Python share. recorder.c has the theory of operation.
 */
#ifndef AIOACL_RECORDER_H
#define AIOACL_RECORDER_H

/* What a record is about. The numbers are in the files of AIOACL_RECORDER, so a number never gets another
 * meaning. _base/recorder.py has the meaning of each field. */
enum aio_flight_kind {
    AIO_FLIGHT_ENQUEUE = 1,
    AIO_FLIGHT_COPY = 2,
    AIO_FLIGHT_EXECUTION_BEGINS = 3,
    AIO_FLIGHT_EXECUTION_ENDS = 4,
    AIO_FLIGHT_WAIT_BEGINS = 5,
    AIO_FLIGHT_WAIT_ENDS = 6,
    AIO_FLIGHT_NO_WAIT = 7,
    AIO_FLIGHT_WAKE = 8,
    AIO_FLIGHT_SLOW_CALL = 9,
    AIO_FLIGHT_SLOT_WANTED = 10,
    AIO_FLIGHT_SLOT_TAKEN = 11,
    AIO_FLIGHT_SLOT_GIVEN = 12,
    AIO_FLIGHT_BATCH_LEAVES = 13,
    AIO_FLIGHT_ITEM_DONE = 14,
    AIO_FLIGHT_FAULT = 15,
    AIO_FLIGHT_STATE = 16,
    AIO_FLIGHT_LOAD = 17,
    AIO_FLIGHT_SLOT_REFUSED = 18,
    AIO_FLIGHT_FAILED_CALL = 19,
    AIO_FLIGHT_BATCH_FAILS = 20,
    AIO_FLIGHT_ITEM_GONE = 21
};

enum aio_flight_limit {
    AIO_FLIGHT_RECORDS = 65536,
    AIO_FLIGHT_BYTES = 40,        /* of a record */
    AIO_FLIGHT_HEADER = 4096,     /* bytes before the first record, in a file */
    AIO_FLIGHT_VERSION = 1,       /* of the file */
    AIO_FLIGHT_NO_DEVICE = 0xffff /* the record is about no device */
};

/* One record, as readers get it. In the ring, its first field is a sequence instead. */
typedef struct {
    uint64_t number; /* from 0, in the order in which the writers began */
    int64_t ns;      /* CLOCK_MONOTONIC */
    uint64_t id;     /* a counter, never an address */
    uint16_t kind;
    uint16_t device;
    int32_t code;
    int32_t thread; /* the thread's id in the operating system */
    uint32_t value;
} aio_flight_record;

/* Adds a record, with the time of the call. May be called on any thread, and waits for no other thread. A value
 * above 2^32-1 is stored as 2^32-1. */
void aio_flight_note(int kind, int device, uint64_t id, int32_t code, uint64_t value);
/* Adds a record with a time that the caller has just read. */
void aio_flight_note_at(int64_t ns, int kind, int device, uint64_t id, int32_t code, uint64_t value);
/* Copies the newest records of a device (-1: of all devices, and those without a device), oldest first. Returns
 * their number, at most `size`. */
int aio_flight_read(int device, aio_flight_record *records, int size);
/* Copies the records from the number `from` on, oldest first, at most `size` of them. Returns their number, and
 * in *next the number with which a later call goes on. If `ends` is not set, a call stops before a new record
 * that is still being written. */
int aio_flight_since(uint64_t from, int ends, aio_flight_record *records, int size, uint64_t *next);
/* Returns how many records writers have begun, and in *dropped, how many of them were not written. */
uint64_t aio_flight_count(uint64_t *dropped);
/* From now on, records go to a new file, which other programs can read during the life of the process and after
 * it. A forked child records into its own memory. Returns 0, or an errno: EEXIST if the path exists, EALREADY
 * if there is a file already. */
int aio_flight_open(const char *path);

#endif
