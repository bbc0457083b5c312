/*
 * The flight recorder: a ring of the newest records of the process, in memory or in a file that is mapped.
 *
 * A writer takes a number n by fetch-and-add, and writes to the slot n mod N. The sequence of the slot is 0 at
 * first, 2n+1 while the record n is written, and 2n+2 afterwards. A writer claims the slot by compare-and-swap
 * to 2n+1. It gives its record up, and counts it as dropped, if another writer is writing to the slot, or if a
 * later record is in the slot. So a writer that is stopped for a whole lap costs the later laps one record
 * each, and never mixes two records. The old sequence may be of any earlier lap, because the record of the
 * previous lap may have been dropped.
 *
 * The fields are stored with release and loaded with acquire, between two loads of the sequence. So if a reader
 * gets a field from a writer of a later lap, it also sees the claim of this writer in the second load, and the
 * sequences differ. Fences would need one barrier instead of four, but TSan cannot check them. On x86-64 all
 * these are plain loads and stores.
 *
 * With a file, the kernel keeps the pages of the mapping when the process dies, by whatever signal. They are
 * not written to the disk at once, so a crash of the machine may lose them.
 *
 * A forked child must not write to the file: its records would replace those of the parent. So the child gets
 * the ring in memory. Without a file, the memory of the child is a copy anyway.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

enum { NEW_RECORDS = 1024 }; /* the writer of an older record is stopped, or has given it up */

typedef struct {
    _Atomic uint64_t sequence;
    _Atomic uint64_t ns;
    _Atomic uint64_t id;
    _Atomic uint64_t what;  /* as aio_flight_what returns it */
    _Atomic uint64_t where; /* as aio_flight_where returns it */
} slot;

/* The layout of a file. The counters are in lines of their own, because every writer changes `head`. */
typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t slot_bytes;
    uint64_t slots;
    int64_t wall_ns; /* CLOCK_REALTIME and CLOCK_MONOTONIC, read together */
    int64_t monotonic_ns;
    int64_t process;
    char unused[80];
    _Atomic uint64_t head; /* the number of the next record */
    char unused_line[120];
    _Atomic uint64_t dropped;
    char unused_page[AIO_FLIGHT_HEADER - 264];
    slot ring[AIO_FLIGHT_RECORDS];
} recorder;

_Static_assert(sizeof(slot) == AIO_FLIGHT_BYTES, "the size of a record");
_Static_assert(offsetof(recorder, head) == 128 && offsetof(recorder, dropped) == 256, "the counters");
_Static_assert(offsetof(recorder, ring) == AIO_FLIGHT_HEADER, "the first record");
_Static_assert(sizeof(aio_flight_record) == AIO_FLIGHT_BYTES, "the size of a record for readers");

static recorder in_memory;
static _Atomic(recorder *) current = &in_memory;

void aio_flight_put(int64_t ns, uint64_t id, uint64_t what, uint64_t where) {
    recorder *to = atomic_load_explicit(&current, memory_order_acquire);
    uint64_t number = atomic_fetch_add_explicit(&to->head, 1, memory_order_relaxed);
    slot *mine = &to->ring[number % AIO_FLIGHT_RECORDS];
    uint64_t claimed = 2 * number + 1, seen = atomic_load_explicit(&mine->sequence, memory_order_relaxed);
    if (seen & 1 || seen > claimed ||
        !atomic_compare_exchange_strong_explicit(&mine->sequence, &seen, claimed, memory_order_relaxed,
                                                 memory_order_relaxed)) {
        atomic_fetch_add_explicit(&to->dropped, 1, memory_order_relaxed);
        return;
    }
    atomic_store_explicit(&mine->ns, (uint64_t)ns, memory_order_release);
    atomic_store_explicit(&mine->id, id, memory_order_release);
    atomic_store_explicit(&mine->what, what, memory_order_release);
    atomic_store_explicit(&mine->where, where, memory_order_release);
    atomic_store_explicit(&mine->sequence, claimed + 1, memory_order_release);
}

void aio_flight_note_at(int64_t ns, int kind, int device, uint64_t id, int32_t code, uint64_t value) {
    aio_flight_put(ns, id, aio_flight_what(kind, device, code), aio_flight_where(aio_self(), value));
}

void aio_flight_note(int kind, int device, uint64_t id, int32_t code, uint64_t value) {
    aio_flight_note_at(aio_now_ns(), kind, device, id, code, value);
}

/* Reads the record with that number. False if it was not written completely, or is replaced already. */
static bool read_slot(const slot *from, uint64_t number, aio_flight_record *record) {
    uint64_t written = 2 * number + 2;
    if (atomic_load_explicit(&from->sequence, memory_order_acquire) != written) {
        return false;
    }
    uint64_t ns = atomic_load_explicit(&from->ns, memory_order_acquire);
    uint64_t id = atomic_load_explicit(&from->id, memory_order_acquire);
    uint64_t what = atomic_load_explicit(&from->what, memory_order_acquire);
    uint64_t where = atomic_load_explicit(&from->where, memory_order_acquire);
    *record = (aio_flight_record){
        .number = number,
        .ns = (int64_t)ns,
        .id = id,
        .kind = (uint16_t)what,
        .device = (uint16_t)(what >> 16),
        .code = (int32_t)(what >> 32),
        .thread = (int32_t)(uint32_t)where,
        .value = (uint32_t)(where >> 32),
    };
    return atomic_load_explicit(&from->sequence, memory_order_relaxed) == written;
}

static void reverse(aio_flight_record *records, int count) {
    for (int low = 0, high = count - 1; low < high; low++, high--) {
        aio_flight_record kept = records[low];
        records[low] = records[high];
        records[high] = kept;
    }
}

int aio_flight_read(int device, aio_flight_record *records, int size) {
    const recorder *from = atomic_load_explicit(&current, memory_order_acquire);
    uint64_t head = atomic_load_explicit(&from->head, memory_order_acquire);
    uint64_t last = head > AIO_FLIGHT_RECORDS ? head - AIO_FLIGHT_RECORDS : 0;
    int count = 0;
    while (head > last && count < size) {
        head--;
        if (read_slot(&from->ring[head % AIO_FLIGHT_RECORDS], head, &records[count]) &&
            (device < 0 || records[count].device == device)) {
            count++;
        }
    }
    reverse(records, count);
    return count;
}

int aio_flight_since(uint64_t from, int ends, aio_flight_record *records, int size, uint64_t *next) {
    const recorder *ring = atomic_load_explicit(&current, memory_order_acquire);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t number =
        head > AIO_FLIGHT_RECORDS && from < head - AIO_FLIGHT_RECORDS ? head - AIO_FLIGHT_RECORDS : from;
    int count = 0;
    while (number < head && count < size) {
        if (read_slot(&ring->ring[number % AIO_FLIGHT_RECORDS], number, &records[count])) {
            count++;
        } else if (!ends && head - number < NEW_RECORDS) {
            break;
        }
        number++;
    }
    *next = number;
    return count;
}

uint64_t aio_flight_count(uint64_t *dropped) {
    const recorder *from = atomic_load_explicit(&current, memory_order_acquire);
    *dropped = atomic_load_explicit(&from->dropped, memory_order_relaxed);
    return atomic_load_explicit(&from->head, memory_order_relaxed);
}

/* --- the file -------------------------------------------------------------------------------------------- */

static int64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void in_child(void) {
    atomic_store(&current, &in_memory);
}

/* The space is allocated now: a later write to a page for which the disk has no room would end the process. */
static int map_file(int fd, recorder **made) {
    int code = posix_fallocate(fd, 0, sizeof(recorder));
    if (code) {
        return code;
    }
    void *mapped = mmap(NULL, sizeof(recorder), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        return errno;
    }
    *made = mapped;
    return 0;
}

/* The magic is written last, so that a reader finds either a complete header or none. */
static void fill_header(recorder *made) {
    made->version = AIO_FLIGHT_VERSION;
    made->slot_bytes = AIO_FLIGHT_BYTES;
    made->slots = AIO_FLIGHT_RECORDS;
    made->monotonic_ns = read_clock(CLOCK_MONOTONIC);
    made->wall_ns = read_clock(CLOCK_REALTIME);
    made->process = getpid();
    memcpy(made->magic, "aioaclFR", sizeof made->magic);
}

/* With O_EXCL, the last part of the path may not be a link either. */
static int make_file(const char *path, recorder **made) {
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0) {
        return errno;
    }
    int code = map_file(fd, made);
    close(fd);
    if (code) {
        unlink(path);
    }
    return code;
}

int aio_flight_open(const char *path) {
    static atomic_bool opened;
    recorder *made = NULL;
    if (atomic_exchange(&opened, true)) {
        return EALREADY;
    }
    int code = pthread_atfork(NULL, NULL, in_child);
    code = code ? code : make_file(path, &made);
    if (code) {
        atomic_store(&opened, false);
        return code;
    }
    fill_header(made);
    atomic_store_explicit(&current, made, memory_order_release);
    return 0;
}
