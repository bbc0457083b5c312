/*
 * Shared by all tests of the engine: checks, the library to test against, and a small lifecycle manager for one
 * device. The simulator is loaded as a user loads ACL, from the path in AIOACL_TEST_LIBRARY.
 *
 * A program defines tests with TEST, and ends with RUN_TESTS. Without an argument it prints their names; with a
 * name it runs that test. The runner starts one process for each test.
 */
#ifndef BED_H
#define BED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aclsim.h"
#include "internal.h"

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition))                                                                                      \
            bed_fail(__FILE__, __LINE__, #condition);                                                          \
    } while (0)

#define CHECK_EQ(got, want)                                                                                    \
    do {                                                                                                       \
        int64_t got_ = (int64_t)(got), want_ = (int64_t)(want);                                                \
        if (got_ != want_)                                                                                     \
            bed_differ(__FILE__, __LINE__, #got, got_, want_);                                                 \
    } while (0)

typedef struct bed_test {
    const char *name;
    void (*body)(void);
    struct bed_test *next;
} bed_test;

_Noreturn void bed_fail(const char *file, int line, const char *what);
_Noreturn void bed_differ(const char *file, int line, const char *what, int64_t got, int64_t want);
void bed_add(bed_test *test);
int bed_main(int argc, char **argv);

#define TEST(title)                                                                                            \
    static void title(void);                                                                                   \
    __attribute__((constructor)) static void add_##title(void) {                                               \
        static bed_test test = {#title, title, NULL};                                                          \
        bed_add(&test);                                                                                        \
    }                                                                                                          \
    static void title(void)

#define RUN_TESTS                                                                                              \
    int main(int argc, char **argv) {                                                                          \
        return bed_main(argc, argv);                                                                           \
    }

/* The simulator's controls, from the library that is loaded. */
typedef struct {
    __typeof__(&aclsim_stats) stats;
    __typeof__(&aclsim_hold) hold;
    __typeof__(&aclsim_release) release;
    __typeof__(&aclsim_release_all) release_all;
    __typeof__(&aclsim_fail_next) fail_next;
    __typeof__(&aclsim_fail_call) fail_call;
    __typeof__(&aclsim_clear) clear;
    __typeof__(&aclsim_hang_call) hang_call;
    __typeof__(&aclsim_release_call) release_call;
    __typeof__(&aclsim_hung) hung;
    __typeof__(&aclsim_calls) calls;
    __typeof__(&aclsim_pending) pending;
    __typeof__(&aclsim_faulted) faulted;
    __typeof__(&aclsim_wake) wake;
    __typeof__(&aclsim_wakes) wakes;
    __typeof__(&aclsim_set_next_task) set_next_task;
    __typeof__(&aclsim_violation) violation;
    __typeof__(&aclsim_set_abort_supported) set_abort_supported;
    __typeof__(&aclsim_set_reset_crash) set_reset_crash;
    __typeof__(&aclsim_waiting) waiting;
    __typeof__(&aclsim_clock_virtual) clock_virtual;
    __typeof__(&aclsim_clock_advance) clock_advance;
} bed_controls;

extern bed_controls sim;

/* The permitted ways to report failed tasks: the sum of values of enum aio_detection. A test may change it
 * before the library is loaded. */
extern int bed_reports;

void bed_load(void);
/* Sets the device on this thread, starts the strategy and opens the gate. Makes events, staging memory, and the
 * stream and event that wake the runtime. */
void bed_open(int device, int strategy);
/* Closes the device completely. */
void bed_close(int device);
/* Does the work of the maintenance thread for the given reasons: makes more events, makes the stream and event
 * that wake the runtime, and takes the codes of failed tasks. Returns how many failures it took. */
int bed_serve(int device, int reasons);
/* Makes a complete force reset: gate, abort, barrier, reset, set, next generation, flush. Returns 1, or 0 if a
 * call stayed inside. */
int bed_reset(int device);
/* A force reset in three steps, for tests that check the state between the steps. */
void bed_seize(int device);
int bed_abort_and_wait(int device);
void bed_reset_and_reopen(int device);
/* Does the part of bed_reset_and_reopen that follows the reset call. After a foreign reset, only this part is
 * needed. */
void bed_reopen(int device);
/* Checks that there are no violations, no calls inside and no waits. */
void bed_check_clean(int device);

aio_pass bed_pass(int device);
void *bed_malloc(int device, size_t size);
void *bed_pinned(size_t size);
aio_stream *bed_stream(int device);
/* Takes ownership of the stream, as an enqueuer does. */
void bed_own(aio_stream *stream);
/* Waits until the stream can be destroyed, then destroys and drops it. */
void bed_end_stream(aio_stream *stream);
/* bed_open_to_copy opens device 0, with memory to copy to and a pinned source. bed_ticket and bed_copy copy to
 * that memory, and bed_close_copied closes the device. A ticket refers to the position that bed_ticket returns.
 * No ticket refers to a position of bed_copy. So no mark is recorded after such a position, and later positions
 * are easy to predict. */
enum { BED_BYTES = 256 };
extern void *bed_memory;
void bed_open_to_copy(int strategy);
aio_result bed_ticket(aio_stream *stream);
aio_result bed_copy(aio_stream *stream);
void bed_close_copied(void);
/* Opens device 0 to copy, and returns a stream that is held with an unfinished copy at position 1. */
aio_stream *bed_open_with_held_copy(void);
/* Waits for the position on a new port. Blocks until the wait has ended, and returns its result. */
aio_result bed_await(aio_stream *stream, uint64_t position);
/* Completes a wait of the caller at once. */
void bed_post(aio_port *port, uint64_t key, int64_t result);
/* Blocks until the port has a completion. */
aio_result bed_take_one(aio_port *port, uint64_t *key);
/* Returns how many tokens refer to the port. */
int64_t bed_in_flight(const aio_port *port);
/* Blocks until the engine has kicked the device's port. Returns the reasons, as the maintenance thread gets
 * them. */
int bed_kicked(int device, aio_port *port);
/* A short sleep, for loops that wait for another thread. */
void bed_yield(void);
#define UNTIL(condition)                                                                                       \
    while (!(condition))                                                                                       \
    bed_yield()

pthread_t bed_thread(void *(*body)(void *), void *argument);
void bed_join(pthread_t thread);
/* The body of a thread that force-resets device 0, as another library of the process might. */
void *bed_reset_as_other_code(void *unused);
/* Waits until the engine's threads have ended. The engine's count of threads drops shortly before a thread
 * ends, and a leak check may fail while a thread is ending. */
void bed_wait_for_threads(void);
int bed_descriptors(void);

#endif
