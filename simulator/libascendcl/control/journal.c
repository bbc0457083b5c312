/*
 * The ring of the newest calls. A writer claims an entry with one atomic addition and then stores atomic words.
 * A reader compares the stamp before and after it reads an entry, to detect that a writer has changed the
 * entry. It does not detect two writers of one entry: a thread would have to stop while it writes, until other
 * threads have made 65,536 calls. The words are formatted as text when the journal is read.
 *
 * The ring is larger than the caches, and each call writes an entry. So an entry begins with a line of the
 * cache, the words of most calls fit into this line, and a writer prefetches a line that a later call will
 * write.
 */
#include <inttypes.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { JOURNAL_ENTRIES = 65536, LINE_BYTES = 640, HEAD_WORDS = 3, CACHE_LINE_BYTES = 64, PREFETCHED = 8 };

typedef struct {
    alignas(CACHE_LINE_BYTES) atomic_ulong stamp; /* sequence number + 1; 0 while the entry is being written */
    atomic_ulong words[HEAD_WORDS + SIM_CALL_WORDS];
} entry_t;

typedef struct {
    uint64_t words[HEAD_WORDS + SIM_CALL_WORDS];
} copy_t;

enum { WORD_CALL, WORD_RC, WORD_TOOK };
/* WORD_CALL: 32 bits for the thread, 16 for the device + 1, 16 for the function. */
enum { TID_SHIFT = 32, DEVICE_SHIFT = 16, LOW_BITS = 0xffff };
_Static_assert((int)FN_COUNT <= (int)LOW_BITS, "16 bits are too few for a function");

static entry_t ring[JOURNAL_ENTRIES];
static atomic_ulong next_sequence;
static atomic_ulong oldest_sequence;
_Atomic(const char *) function_letters[FN_COUNT];

static void trace_entry(uint64_t sequence);

static void put(entry_t *entry, int word, uint64_t value) {
    atomic_store_explicit(&entry->words[word], value, memory_order_release);
}

void journal_add(function_t function, const uint64_t *words, long rc, int64_t took_ns) {
    uint64_t sequence = atomic_fetch_add(&next_sequence, 1);
    entry_t *entry = &ring[sequence % JOURNAL_ENTRIES];
    atomic_store_explicit(&entry->stamp, 0, memory_order_relaxed); /* before the words, which are released */
    uint64_t tid = (uint64_t)thread_self()->tid, device = (uint64_t)(thread_device_peek() + 1);
    put(entry, WORD_CALL, tid << TID_SHIFT | device << DEVICE_SHIFT | function);
    put(entry, WORD_RC, (uint64_t)rc);
    put(entry, WORD_TOOK, (uint64_t)took_ns);
    const char *letters = atomic_load_explicit(&function_letters[function], memory_order_relaxed);
    for (int i = 0; letters[i] != '\0'; i++) {
        put(entry, HEAD_WORDS + i, words[i]);
    }
    atomic_store_explicit(&entry->stamp, sequence + 1, memory_order_release);
    __builtin_prefetch(&ring[(sequence + PREFETCHED) % JOURNAL_ENTRIES], 1);
    if (trace_file >= 0) {
        trace_entry(sequence);
    }
}

/* False: the entry is being written, or has been overwritten. */
static bool get(uint64_t sequence, copy_t *copy) {
    entry_t *entry = &ring[sequence % JOURNAL_ENTRIES];
    if (atomic_load(&entry->stamp) != sequence + 1) {
        return false;
    }
    for (int i = 0; i < HEAD_WORDS + SIM_CALL_WORDS; i++) {
        copy->words[i] = atomic_load_explicit(&entry->words[i], memory_order_acquire);
    }
    return atomic_load(&entry->stamp) == sequence + 1;
}

static size_t format_argument(char *text, size_t size, char letter, uint64_t word) {
    int length = 0;
    if (letter == 'p') {
        length = snprintf(text, size, "\"0x%" PRIx64 "\"", word);
    } else if (letter == 'i') {
        length = snprintf(text, size, "%" PRId64, (int64_t)word);
    } else {
        length = snprintf(text, size, "%" PRIu64, word);
    }
    return (size_t)length;
}

static size_t format_line(char *text, uint64_t sequence, const copy_t *copy) {
    const uint64_t *words = copy->words;
    unsigned function = words[WORD_CALL] & LOW_BITS;
    int device = (int)(words[WORD_CALL] >> DEVICE_SHIFT & LOW_BITS) - 1;
    const char *letters = atomic_load(&function_letters[function]);
    size_t length = (size_t)snprintf(
        text, LINE_BYTES, "{\"seq\":%" PRIu64 ",\"tid\":%" PRId64 ",\"call\":\"%s\",\"args\":[", sequence,
        (int64_t)(words[WORD_CALL] >> TID_SHIFT), function_info[function].name);
    for (int i = 0; letters[i] != '\0'; i++) {
        length += (size_t)snprintf(text + length, LINE_BYTES - length, i > 0 ? "," : "");
        length += format_argument(text + length, LINE_BYTES - length, letters[i], words[HEAD_WORDS + i]);
    }
    length += (size_t)snprintf(text + length, LINE_BYTES - length,
                               "],\"rc\":%" PRId64 ",\"us\":%" PRId64 ".%03" PRId64 ",\"dev\":%d}\n",
                               (int64_t)words[WORD_RC], (int64_t)words[WORD_TOOK] / 1000,
                               (int64_t)words[WORD_TOOK] % 1000, device);
    return length;
}

/* An entry that has already been overwritten is missing from the trace too. */
static void trace_entry(uint64_t sequence) {
    char line[LINE_BYTES];
    copy_t copy;
    if (get(sequence, &copy)) {
        trace_write(line, format_line(line, sequence, &copy));
    }
}

static uint64_t oldest(void) {
    uint64_t kept = atomic_load(&oldest_sequence);
    uint64_t end = atomic_load(&next_sequence);
    uint64_t in_ring = end > JOURNAL_ENTRIES ? end - JOURNAL_ENTRIES : 0;
    return in_ring > kept ? in_ring : kept;
}

API size_t aclsim_journal(uint64_t *next, char *text, size_t size) {
    size_t written = 0;
    char line[LINE_BYTES];
    copy_t copy;
    if (next == NULL || text == NULL || size == 0) {
        return 0;
    }
    while (true) {
        uint64_t first = oldest();
        *next = *next < first ? first : *next;
        if (*next >= atomic_load(&next_sequence) || !get(*next, &copy)) {
            break;
        }
        size_t length = format_line(line, *next, &copy);
        if (written + length + 1 > size) {
            break;
        }
        memcpy(text + written, line, length);
        written += length;
        ++*next;
    }
    text[written] = '\0';
    return written;
}

void journal_forget(void) {
    atomic_store(&oldest_sequence, atomic_load(&next_sequence));
}
