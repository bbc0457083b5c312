#include "bed.h"

#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

bed_controls sim;
int bed_reports = AIO_EXACT_ACL | AIO_EXACT_RUNTIME;

_Noreturn void bed_fail(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what);
    abort();
}

_Noreturn void bed_differ(const char *file, int line, const char *what, int64_t got, int64_t want) {
    fprintf(stderr, "%s:%d: %s: expected %lld, got %lld\n", file, line, what, (long long)want, (long long)got);
    abort();
}

static bed_test *tests;

void bed_add(bed_test *test) {
    test->next = tests;
    tests = test;
}

int bed_main(int argc, char **argv) {
    for (bed_test *test = tests; test != NULL; test = test->next) {
        if (argc < 2) {
            puts(test->name);
        } else if (strcmp(argv[1], test->name) == 0) {
            test->body();
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}

static void find(void *slot, const char *name) {
    void *symbol = aio_library_symbol(name);
    CHECK(symbol != NULL);
    memcpy(slot, &symbol, sizeof symbol);
}

#define FIND(name) find(&sim.name, "aclsim_" #name)

void bed_load(void) {
    char error[512] = "";
    const char *path = getenv("AIOACL_TEST_LIBRARY");
    CHECK(path != NULL);
    if (aio_library_open(path, "", AIO_WANT_SIMULATOR, 0, error, sizeof error)) {
        bed_fail(path, 0, error);
    }
    CHECK(aio_library_is_simulator());
    FIND(stats);
    FIND(hold);
    FIND(release);
    FIND(release_all);
    FIND(fail_next);
    FIND(fail_call);
    FIND(clear);
    FIND(hang_call);
    FIND(release_call);
    FIND(hung);
    FIND(calls);
    FIND(pending);
    FIND(faulted);
    FIND(wake);
    FIND(wakes);
    FIND(set_next_task);
    FIND(violation);
    FIND(set_abort_supported);
    FIND(set_reset_crash);
    FIND(waiting);
    FIND(clock_virtual);
    FIND(clock_advance);
    CHECK_EQ(aio_watch_foreign(), 0);
    CHECK_EQ(aio_acl.aclInit(NULL), 0);
    aio_failures_register(bed_reports);
    aio_failures_trust(1);
}

static uint32_t generation_of(int device) {
    return aio_word_generation(aio_gate_word(device));
}

static void set_device(int device) {
    aclrtContext context = NULL;
    aio_self()->own_reset = true;
    CHECK_EQ(aio_acl.aclrtSetDevice(device), 0);
    CHECK_EQ(aio_acl.aclrtGetCurrentContext(&context), 0);
    aio_set_context(device, context);
}

static void prepare(int device) {
    CHECK_EQ(aio_device_refill(device, 0, 32), 0);
    CHECK_EQ(aio_device_equip(device), 0);
    for (int large = 0; large < 2; large++) {
        if (!aio_stage_free_slots(device, large ? 1 << 20 : 1)) {
            CHECK_EQ(aio_stage_grow(device, large), 0);
        }
    }
}

void bed_open(int device, int strategy) {
    uint32_t generation = generation_of(device);
    if (!aio_present[AIO_FN_aclInit]) {
        bed_load();
    }
    set_device(device);
    CHECK_EQ(aio_device_start(device, strategy, NULL), 0);
    aio_gate_set(device, AIO_OPEN, generation ? generation : 1);
    prepare(device);
}

void bed_seize(int device) {
    aio_gate_set(device, AIO_RESETTING, generation_of(device));
}

int bed_abort_and_wait(int device) {
    int32_t outcome[3];
    aio_device_abort(device, 5000000, outcome);
    aio_watcher_wake(device);
    return aio_gate_wait(device, 1 << AIO_ENQUEUE | 1 << AIO_WAIT | 1 << AIO_LIFETIME, 30000000);
}

void bed_reset_and_reopen(int device) {
    aio_device_destroy_events(device);
    aio_self()->own_reset = true;
    CHECK_EQ(aio_acl.aclrtResetDeviceForce(device), 0);
    bed_reopen(device);
}

void bed_reopen(int device) {
    set_device(device);
    aio_gate_set(device, AIO_OPEN, generation_of(device) + 1);
    aio_device_flush(device);
    prepare(device);
}

int bed_reset(int device) {
    bed_seize(device);
    if (!bed_abort_and_wait(device)) {
        return 0;
    }
    bed_reset_and_reopen(device);
    return 1;
}

void bed_close(int device) {
    bed_seize(device);
    aio_device_flush(device);
    CHECK(bed_abort_and_wait(device));
    aio_device_destroy_events(device);
    CHECK_EQ(aio_acl.aclrtResetDevice(device), 0);
    aio_device_stop(device);
    bed_wait_for_threads();
    aio_stage_close(device);
    aio_gate_set(device, AIO_CLOSED, generation_of(device) + 1);
    aio_device_flush(device);
    bed_check_clean(device);
}

static void take_codes(int device) {
    for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
        if (aio_stream_error(stream, UINT64_MAX, NULL)) {
            aio_stream_take_code(stream);
        }
    }
}

static int take_failures(int device) {
    aio_error *found = malloc(sizeof *found);
    int count = 0;
    CHECK(found != NULL);
    while (aio_device_take_failure(device, found)) {
        count++;
    }
    free(found);
    return count;
}

int bed_serve(int device, int reasons) {
    if (reasons & AIO_KICK_REFILL) {
        aio_device_refill(device, 0, 16);
    }
    if (reasons & AIO_KICK_NUDGE) {
        aio_device_equip(device);
    }
    if (!(reasons & AIO_KICK_FAULT)) {
        return 0;
    }
    take_codes(device);
    return take_failures(device);
}

void bed_check_clean(int device) {
    int32_t counts[3];
    char text[512];
    aio_gate_counts(device, counts);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(counts[i], 0);
    }
    UNTIL(aio_device_waits(device) == 0);
    if (sim.violation(0, text, sizeof text) >= 0) {
        bed_fail("violation", 0, text);
    }
}

aio_pass bed_pass(int device) {
    return aio_make_pass(device, generation_of(device), 0);
}

void *bed_malloc(int device, size_t size) {
    void *memory = NULL;
    aio_frame frame;
    CHECK_EQ(aio_begin(&frame, bed_pass(device), AIO_LIFETIME, AIO_FN_aclrtMalloc), 0);
    CHECK_EQ(aio_acl.aclrtMalloc(&memory, size, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    aio_end(&frame, 0);
    return memory;
}

void *bed_pinned(size_t size) {
    void *memory = NULL;
    CHECK_EQ(aio_acl.aclrtMallocHost(&memory, size), 0);
    return memory;
}

aio_stream *bed_stream(int device) {
    aclrtStream native = NULL;
    aio_frame frame;
    aio_pass pass = bed_pass(device);
    CHECK_EQ(aio_begin(&frame, pass, AIO_LIFETIME, AIO_FN_aclrtCreateStream), 0);
    CHECK_EQ(aio_acl.aclrtCreateStream(&native), 0);
    aio_end(&frame, 0);
    aio_stream *stream = aio_stream_new(pass, native);
    CHECK(stream != NULL);
    return stream;
}

static bool own(aio_stream *stream) {
    uint32_t unowned = AIO_NOBODY;
    return atomic_compare_exchange_strong(&stream->owner, &unowned, AIO_ENQUEUER);
}

void bed_own(aio_stream *stream) {
    UNTIL(own(stream));
}

void bed_end_stream(aio_stream *stream) {
    int code;
    UNTIL((code = aio_stream_destroy(stream)) != AIO_PENDING);
    CHECK_EQ(code, 0);
    aio_stream_drop(stream);
}

void *bed_memory;
static void *source;

void bed_open_to_copy(int strategy) {
    bed_open(0, strategy);
    bed_memory = bed_malloc(0, BED_BYTES);
    source = bed_pinned(BED_BYTES);
}

aio_result bed_ticket(aio_stream *stream) {
    return aio_copy(stream, 0, bed_memory, BED_BYTES, source, BED_BYTES, ACL_MEMCPY_HOST_TO_DEVICE);
}

aio_result bed_copy(aio_stream *stream) {
    aio_result result = bed_ticket(stream);
    if (result > 0) {
        aio_stream_forget(stream, (uint64_t)result);
    }
    return result;
}

void bed_close_copied(void) {
    aio_acl.aclrtFreeHost(source);
    bed_close(0);
}

aio_stream *bed_open_with_held_copy(void) {
    bed_open_to_copy(AIO_WATCH);
    aio_stream *stream = bed_stream(0);
    sim.hold(stream->handle);
    CHECK_EQ(bed_copy(stream), 1);
    return stream;
}

void bed_post(aio_port *port, uint64_t key, int64_t result) {
    aio_token *token;
    CHECK_EQ(aio_token_take(port, key, &token), 0);
    aio_token_post(&token, result);
    CHECK(!token);
}

aio_result bed_take_one(aio_port *port, uint64_t *key) {
    struct pollfd readable = {aio_port_fd(port), POLLIN, 0};
    int64_t result;
    do {
        poll(&readable, 1, -1);
    } while (aio_port_take(port, key, &result, 1) == 0);
    return result;
}

int64_t bed_in_flight(const aio_port *port) {
    return atomic_load(&port->references) - 1;
}

int bed_kicked(int device, aio_port *port) {
    struct pollfd readable = {aio_port_fd(port), POLLIN, 0};
    uint64_t key;
    int64_t result;
    poll(&readable, 1, -1);
    CHECK_EQ(aio_port_take(port, &key, &result, 1), 0);
    return aio_device_kicks(device);
}

aio_result bed_await(aio_stream *stream, uint64_t position) {
    aio_port *port = aio_port_new();
    uint64_t key = 0;
    aio_result result;
    CHECK(port != NULL);
    int code = aio_watch(stream, position, port, 77);
    if (code) {
        result = aio_failed(code);
    } else {
        result = bed_take_one(port, &key);
        CHECK_EQ(key, 77);
    }
    aio_port_close(port);
    return result;
}

void bed_yield(void) {
    struct timespec nap = {0, 50000};
    nanosleep(&nap, NULL);
}

pthread_t bed_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, body, argument), 0);
    return thread;
}

void bed_join(pthread_t thread) {
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

void *bed_reset_as_other_code(void *unused) {
    (void)unused;
    CHECK_EQ(aio_acl.aclrtResetDeviceForce(0), 0);
    return NULL;
}

static bool is_ours(const char *task) {
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.16s/comm", task);
    FILE *file = fopen(path, "r");
    bool ours = file && fgets(name, sizeof name, file) && strncmp(name, "aioacl-", 7) == 0;
    if (file) {
        fclose(file);
    }
    return ours;
}

static int engine_threads(void) {
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    CHECK(folder != NULL);
    for (const struct dirent *task; (task = readdir(folder));) {
        count += is_ours(task->d_name);
    }
    closedir(folder);
    return count;
}

void bed_wait_for_threads(void) {
    UNTIL(aio_threads() == 0 && engine_threads() == 0); /* a listing may omit a thread while others end */
}

int bed_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder != NULL);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}
