/* The flight recorder: order, laps, stopped writers, readers beside writers, and its file. */
#include "bed.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The parts of a file that recorder.c describes. */
enum { HEAD_AT = 128, DROPPED_AT = 256, WRITERS = 8, LAPS = 3 };

static char path[64];
static aio_flight_record records[AIO_FLIGHT_RECORDS];

static void remove_file(void) {
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
}

/* Opens a file for the recorder in a new folder. */
static void open_file(void) {
    strcpy(path, "/tmp/aioacl-recorder-XXXXXX");
    CHECK(mkdtemp(path) != NULL);
    strcat(path, "/flight");
    CHECK_EQ(aio_flight_open(path), 0);
    atexit(remove_file);
}

/* Returns the words of the file, mapped once more. */
static _Atomic uint64_t *map_words(void) {
    size_t size = AIO_FLIGHT_HEADER + (size_t)AIO_FLIGHT_RECORDS * AIO_FLIGHT_BYTES;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED);
    close(fd);
    return mapped;
}

static _Atomic uint64_t *sequence(_Atomic uint64_t *words, int slot) {
    return words + AIO_FLIGHT_HEADER / 8 + slot * AIO_FLIGHT_BYTES / 8;
}

static uint64_t dropped(void) {
    uint64_t count;
    aio_flight_count(&count);
    return count;
}

/* The fields of a record of these tests depend on its id, so that a mixture of two records shows. */
static void note(uint64_t id) {
    aio_flight_note_at((int64_t)id * 3, AIO_FLIGHT_ENQUEUE, (int)(id % 7), id, (int32_t)id, id * 5 % 1000003);
}

static void note_many(uint64_t count) {
    for (uint64_t id = 0; id < count; id++) {
        note(id);
    }
}

static void check_record(const aio_flight_record *record) {
    CHECK_EQ(record->ns, (int64_t)record->id * 3);
    CHECK_EQ(record->kind, AIO_FLIGHT_ENQUEUE);
    CHECK_EQ(record->device, record->id % 7);
    CHECK_EQ(record->code, (int32_t)record->id);
    CHECK_EQ(record->value, record->id * 5 % 1000003);
}

TEST(records_come_back_in_order_with_all_fields) {
    int64_t before = aio_now_ns();
    aio_flight_note(AIO_FLIGHT_FAULT, 3, 17, -5, 1ull << 40);
    aio_flight_note_at(12, AIO_FLIGHT_WAKE, AIO_FLIGHT_NO_DEVICE, UINT64_MAX, INT32_MAX, 4);
    CHECK_EQ(aio_flight_read(-1, records, 8), 2);
    CHECK(records[0].ns >= before && records[0].ns <= aio_now_ns());
    CHECK_EQ(records[0].number, 0);
    CHECK_EQ(records[0].kind, AIO_FLIGHT_FAULT);
    CHECK_EQ(records[0].device, 3);
    CHECK_EQ(records[0].id, 17);
    CHECK_EQ(records[0].code, -5);
    CHECK_EQ(records[0].thread, getpid());
    CHECK_EQ(records[0].value, UINT32_MAX); /* the largest value that fits */
    CHECK_EQ(records[1].number, 1);
    CHECK_EQ(records[1].ns, 12);
    CHECK_EQ(records[1].device, AIO_FLIGHT_NO_DEVICE);
    CHECK(records[1].id == UINT64_MAX);
    CHECK_EQ(records[1].code, INT32_MAX);
}

TEST(a_reader_gets_the_newest_records_of_a_device) {
    note_many(70);
    CHECK_EQ(aio_flight_read(3, records, 4), 4);
    for (int index = 0; index < 4; index++) {
        check_record(&records[index]);
        CHECK_EQ(records[index].id, 45 + 7 * index);
    }
    CHECK_EQ(aio_flight_read(8, records, 4), 0);
    CHECK_EQ(aio_flight_read(-1, records, 0), 0);
}

TEST(a_lap_replaces_the_oldest_records) {
    note_many(AIO_FLIGHT_RECORDS + 10);
    CHECK_EQ(aio_flight_read(-1, records, AIO_FLIGHT_RECORDS), AIO_FLIGHT_RECORDS);
    CHECK_EQ(records[0].number, 10);
    for (int index = 0; index < AIO_FLIGHT_RECORDS; index++) {
        check_record(&records[index]);
        CHECK_EQ(records[index].number, 10 + index);
    }
    CHECK_EQ(dropped(), 0);
}

/* The writer of the record 5 is stopped after its claim. */
TEST(a_writer_that_is_stopped_for_a_lap_costs_one_record_a_lap) {
    open_file();
    _Atomic uint64_t *words = map_words();
    note_many(10);
    atomic_store(sequence(words, 5), 2 * 5 + 1);
    note_many(2 * AIO_FLIGHT_RECORDS);
    CHECK_EQ(dropped(), 2);
    CHECK_EQ(aio_flight_read(-1, records, AIO_FLIGHT_RECORDS), AIO_FLIGHT_RECORDS - 1);
    for (int index = 0; index < AIO_FLIGHT_RECORDS - 1; index++) {
        check_record(&records[index]);
    }
    atomic_store(sequence(words, 5), 2 * 5 + 2); /* it goes on, and its record is too old to be returned */
    CHECK_EQ(aio_flight_read(-1, records, AIO_FLIGHT_RECORDS), AIO_FLIGHT_RECORDS - 1);
    note_many(AIO_FLIGHT_RECORDS); /* the slot is used again, although two laps have not written it */
    CHECK_EQ(aio_flight_read(-1, records, AIO_FLIGHT_RECORDS), AIO_FLIGHT_RECORDS);
    CHECK_EQ(dropped(), 2);
}

TEST(a_late_writer_does_not_replace_a_later_record) {
    open_file();
    _Atomic uint64_t *words = map_words();
    note_many(10);
    uint64_t later = 2 * (AIO_FLIGHT_RECORDS * 4ull + 10) + 2;
    atomic_store(sequence(words, 10), later); /* a writer of a later lap was faster */
    note(10);
    CHECK_EQ(atomic_load(sequence(words, 10)), later);
    CHECK_EQ(dropped(), 1);
    CHECK_EQ(aio_flight_read(-1, records, 100), 10);
}

/* --- writers and a reader at the same time --------------------------------------------------------------- */

static atomic_int running;

static void *write_laps(void *argument) {
    uint64_t writer = *(const uint64_t *)argument;
    for (uint64_t round = 0; round < (uint64_t)LAPS * AIO_FLIGHT_RECORDS / WRITERS; round++) {
        note(round * WRITERS + writer);
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

TEST(eight_writers_and_a_reader_never_mix_two_records) {
    static uint64_t numbers[WRITERS];
    pthread_t threads[WRITERS];
    atomic_store(&running, WRITERS);
    for (int index = 0; index < WRITERS; index++) {
        numbers[index] = (uint64_t)index;
        threads[index] = bed_thread(write_laps, &numbers[index]);
    }
    do {
        int count = aio_flight_read(-1, records, 4096);
        for (int index = 0; index < count; index++) {
            check_record(&records[index]);
            CHECK(index == 0 || records[index].number > records[index - 1].number);
        }
    } while (atomic_load(&running));
    for (int index = 0; index < WRITERS; index++) {
        bed_join(threads[index]);
    }
    uint64_t lost, all = aio_flight_count(&lost);
    CHECK_EQ(all, LAPS * AIO_FLIGHT_RECORDS);
    CHECK(aio_flight_read(-1, records, AIO_FLIGHT_RECORDS) + (int64_t)lost >= AIO_FLIGHT_RECORDS);
}

/* --- the file -------------------------------------------------------------------------------------------- */

TEST(a_file_is_private_and_never_opened_twice) {
    struct stat status;
    umask(0);
    open_file();
    CHECK_EQ(stat(path, &status), 0);
    CHECK_EQ(status.st_mode & 07777, 0600);
    CHECK_EQ(status.st_size, AIO_FLIGHT_HEADER + AIO_FLIGHT_RECORDS * AIO_FLIGHT_BYTES);
    CHECK_EQ(aio_flight_open(path), EALREADY);
}

TEST(an_existing_path_is_refused_and_left_alone) {
    char other[] = "/tmp/aioacl-recorder-XXXXXX", link[80], absent[80];
    struct stat status;
    int fd = mkstemp(other);
    CHECK(fd >= 0);
    close(fd);
    CHECK_EQ(aio_flight_open(other), EEXIST);
    CHECK_EQ(stat(other, &status), 0);
    CHECK_EQ(status.st_size, 0);
    snprintf(link, sizeof link, "%s-link", other);
    snprintf(absent, sizeof absent, "%s-absent", other);
    CHECK_EQ(symlink(absent, link), 0);
    CHECK_EQ(aio_flight_open(link), EEXIST); /* the link is not followed */
    CHECK(stat(absent, &status) < 0);
    unlink(link);
    unlink(other);
    CHECK_EQ(aio_flight_open("/nonexistent/flight"), ENOENT);
    open_file(); /* a refused path does not prevent the next one */
}

TEST(a_forked_child_leaves_the_file_of_its_parent_alone) {
    open_file();
    const _Atomic uint64_t *words = map_words();
    pid_t child = fork();
    if (child == 0) {
        note_many(20);
        CHECK_EQ(aio_flight_read(-1, records, 100), 20);
        raise(SIGKILL);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK_EQ(atomic_load(words + HEAD_AT / 8), 0);
    note_many(3);
    CHECK_EQ(atomic_load(words + HEAD_AT / 8), 3);
    CHECK_EQ(atomic_load(words + DROPPED_AT / 8), 0);
}

/* The process of the file is a child that is not forked from a process with a file. */
TEST(a_file_survives_a_crash_of_its_process) {
    strcpy(path, "/tmp/aioacl-recorder-XXXXXX");
    CHECK(mkdtemp(path) != NULL);
    strcat(path, "/flight");
    pid_t child = fork();
    if (child == 0) {
        CHECK_EQ(aio_flight_open(path), 0);
        note_many(AIO_FLIGHT_RECORDS + 3);
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    _Atomic uint64_t *words = map_words();
    CHECK_EQ(atomic_load(words + HEAD_AT / 8), AIO_FLIGHT_RECORDS + 3);
    CHECK_EQ(atomic_load(sequence(words, 2)), 2 * (AIO_FLIGHT_RECORDS + 2) + 2);
    remove_file();
}

RUN_TESTS
