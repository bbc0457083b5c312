/*
 * A bare ring: what a record costs without a protocol between writers and readers. recorder.py compiles it.
 *
 * Both loops call the function by its address, as other files of the engine call the flight recorder.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

typedef void (*note)(int, int, uint64_t, int32_t, uint64_t);

enum { RECORDS = 65536 };

static struct {
    int64_t ns;
    uint64_t id;
    uint64_t what;
    uint64_t value;
} ring[RECORDS];
static _Atomic uint64_t head;

void bare_note(int kind, int device, uint64_t id, int32_t code, uint64_t value) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t at = atomic_fetch_add_explicit(&head, 1, memory_order_relaxed) % RECORDS;
    ring[at].ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    ring[at].id = id;
    ring[at].what =
        (uint64_t)(uint32_t)code << 32 | (uint64_t)(device & 0xffff) << 16 | (uint64_t)(kind & 0xffff);
    ring[at].value = value;
}

void repeat_note(note function, long count) {
    for (long index = 0; index < count; index++) {
        function(14, 0, (uint64_t)index, 0, 1);
    }
}

void repeat_bare(long count) {
    repeat_note(bare_note, count);
}
