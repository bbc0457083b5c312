/* The gate: the calls that it admits, the reasons for which it refuses calls, and the context and error text of
 * a thread. */
#include <sys/eventfd.h>
#include <unistd.h>

#include "bed.h"

enum { MANY = 4095 };

static void counts_are(int enqueueing, int waiting, int lifetime) {
    int32_t counts[3];
    aio_gate_counts(0, counts);
    CHECK_EQ(counts[0], enqueueing);
    CHECK_EQ(counts[1], waiting);
    CHECK_EQ(counts[2], lifetime);
}

static void crowded(int kind) {
    aio_pass pass = aio_make_pass(0, 7, 0);
    aio_gate_set(0, AIO_OPEN, 7);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(aio_count_in(pass, kind), 0);
    }
    uint64_t full = aio_gate_word(0);
    CHECK_EQ(aio_count_in(pass, kind), AIO_CROWDED);
    CHECK_EQ(aio_gate_word(0), full);
    aio_gate_set(0, AIO_DRAINING, 7);
    CHECK_EQ(aio_count_in(aio_make_pass(0, 7, 1), kind), AIO_CROWDED);
    aio_gate_set(0, AIO_OPEN, 7);
    counts_are(kind == AIO_ENQUEUE ? MANY : 0, kind == AIO_WAIT ? MANY : 0, kind == AIO_LIFETIME ? MANY : 0);
    for (int other = AIO_ENQUEUE; other <= AIO_LIFETIME; other++) {
        if (other == kind) {
            continue;
        }
        CHECK_EQ(aio_count_in(pass, other), 0);
        aio_count_out(pass, other);
    }
    for (int i = 0; i < MANY; i++) {
        aio_count_out(pass, kind);
    }
    counts_are(0, 0, 0);
    CHECK_EQ(aio_word_generation(aio_gate_word(0)), 7);
    CHECK_EQ(aio_word_state(aio_gate_word(0)), AIO_OPEN);
}

TEST(the_4096th_enqueuer_is_refused) {
    crowded(AIO_ENQUEUE);
}

TEST(the_4096th_waiter_is_refused) {
    crowded(AIO_WAIT);
}

TEST(the_4096th_lifetime_call_is_refused) {
    crowded(AIO_LIFETIME);
}

TEST(all_three_counts_may_be_full_together) {
    aio_pass pass = aio_make_pass(0, 0xfffff, 0);
    aio_gate_set(0, AIO_OPEN, 0x7ffff);
    aio_gate_set(0, AIO_OPEN, 0xfffff);
    for (int kind = AIO_ENQUEUE; kind <= AIO_LIFETIME; kind++) {
        for (int i = 0; i < MANY; i++) {
            CHECK_EQ(aio_count_in(pass, kind), 0);
        }
    }
    counts_are(MANY, MANY, MANY);
    CHECK_EQ(aio_word_generation(aio_gate_word(0)), 0xfffff);
    for (int kind = AIO_ENQUEUE; kind <= AIO_LIFETIME; kind++) {
        CHECK_EQ(aio_count_in(pass, kind), AIO_CROWDED);
    }
}

static void asked(int state, int enqueue, int held, int wait, int lifetime) {
    aio_gate_set(0, state, 3);
    CHECK_EQ(aio_gate_check(aio_make_pass(0, 3, 0), AIO_ENQUEUE), enqueue);
    CHECK_EQ(aio_gate_check(aio_make_pass(0, 3, 1), AIO_ENQUEUE), held);
    CHECK_EQ(aio_gate_check(aio_make_pass(0, 3, 0), AIO_WAIT), wait);
    CHECK_EQ(aio_gate_check(aio_make_pass(0, 3, 0), AIO_LIFETIME), lifetime);
    for (int held_too = 0; held_too < 2; held_too++) {
        for (int kind = AIO_ENQUEUE; kind <= AIO_LIFETIME; kind++) {
            for (uint32_t other = 2; other <= 4; other += 2) {
                CHECK_EQ(aio_count_in(aio_make_pass(0, other, held_too), kind), AIO_STALE);
            }
        }
    }
    counts_are(0, 0, 0);
}

TEST(each_state_admits_only_its_kinds) {
    asked(AIO_CLOSED, AIO_NOT_OPEN, AIO_NOT_OPEN, AIO_NOT_OPEN, AIO_NOT_OPEN);
    asked(AIO_OPEN, 0, 0, 0, 0);
    asked(AIO_DRAINING, AIO_DRAINING_NOW, 0, 0, 0);
    asked(AIO_RESETTING, AIO_RESETTING_NOW, AIO_RESETTING_NOW, AIO_RESETTING_NOW, AIO_RESETTING_NOW);
    asked(AIO_QUARANTINED, AIO_QUARANTINE, AIO_QUARANTINE, AIO_QUARANTINE, AIO_QUARANTINE);
    asked(AIO_CLOSED, AIO_NOT_OPEN, AIO_NOT_OPEN, AIO_NOT_OPEN, AIO_NOT_OPEN);
    asked(AIO_OPEN | AIO_FOREIGN, AIO_RESETTING_NOW, AIO_RESETTING_NOW, AIO_RESETTING_NOW, AIO_RESETTING_NOW);
}

TEST(setting_the_state_keeps_the_counts) {
    aio_pass pass = aio_make_pass(0, 3, 0);
    aio_gate_set(0, AIO_OPEN, 3);
    CHECK_EQ(aio_count_in(pass, AIO_ENQUEUE), 0);
    CHECK_EQ(aio_count_in(pass, AIO_WAIT), 0);
    aio_gate_set(0, AIO_RESETTING, 3);
    counts_are(1, 1, 0);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_ENQUEUE, 1000), 0);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_LIFETIME, 1000), 1);
    aio_count_out(pass, AIO_ENQUEUE);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_ENQUEUE, 1000), 1);
    CHECK_EQ(aio_gate_wait(0, 1 << AIO_ENQUEUE | 1 << AIO_WAIT, 1000), 0);
    aio_count_out(pass, AIO_WAIT);
}

/* A foreign reset raises the generation when the manager is about to write an older generation. */
TEST(a_foreign_reset_is_not_overwritten) {
    bed_open(0, AIO_WATCH);
    uint32_t before = aio_word_generation(aio_gate_word(0));
    aio_self()->own_reset = false;
    CHECK_EQ(aio_acl.aclrtResetDeviceForce(0), 0);
    aio_gate_set(0, AIO_DRAINING, before);
    CHECK_EQ(aio_word_generation(aio_gate_word(0)), before + 1);
    CHECK_EQ(aio_count_in(aio_make_pass(0, before, 1), AIO_ENQUEUE), AIO_STALE);
    CHECK_EQ(aio_count_in(aio_make_pass(0, before + 1, 1), AIO_ENQUEUE), AIO_RESETTING_NOW);
    CHECK_EQ(aio_device_foreign(0), 1);
    CHECK_EQ(aio_device_kicks(0) & AIO_KICK_FOREIGN, AIO_KICK_FOREIGN);
    aio_gate_set(0, AIO_OPEN, before + 1);
    CHECK_EQ(aio_gate_foreign(0), 1);
    CHECK_EQ(aio_count_in(aio_make_pass(0, before + 1, 0), AIO_ENQUEUE), AIO_RESETTING_NOW);
    aio_gate_met(0);
    CHECK_EQ(aio_gate_foreign(0), 0);
    CHECK_EQ(aio_gate_check(aio_make_pass(0, before + 1, 0), AIO_ENQUEUE), 0);
}

TEST(no_call_enters_after_exit_has_begun) {
    aio_gate_set(0, AIO_OPEN, 3);
    atomic_store(&aio_exiting, true);
    CHECK_EQ(aio_count_in(aio_make_pass(0, 3, 0), AIO_WAIT), AIO_EXITING);
    counts_are(0, 0, 0);
}

static aclrtContext current(void) {
    aclrtContext context = NULL;
    return aio_acl.aclrtGetCurrentContext(&context) == 0 ? context : NULL;
}

static void *enter_without_a_context(void *unused) {
    aio_frame frame;
    (void)unused;
    CHECK_EQ(aio_begin(&frame, bed_pass(0), AIO_WAIT, AIO_FN_aclrtStreamQuery), 0);
    aclrtContext inside = current();
    aio_end(&frame, 0);
    CHECK(inside && inside == current());
    return NULL;
}

TEST(a_thread_without_a_context_stays_bound) {
    bed_open(0, AIO_WATCH);
    bed_join(bed_thread(enter_without_a_context, NULL));
    bed_close(0);
}

static void *enter_with_a_foreign_context(void *unused) {
    aio_frame frame;
    aclrtContext theirs = NULL;
    (void)unused;
    CHECK_EQ(aio_acl.aclrtCreateContext(&theirs, 1), 0);
    CHECK(current() == theirs);
    CHECK_EQ(aio_begin(&frame, bed_pass(0), AIO_WAIT, AIO_FN_aclrtStreamQuery), 0);
    CHECK(current() != theirs);
    aio_end(&frame, 0);
    CHECK(current() == theirs);
    CHECK_EQ(aio_acl.aclrtDestroyContext(theirs), 0);
    return NULL;
}

TEST(a_foreign_context_is_restored) {
    bed_open(0, AIO_WATCH);
    bed_join(bed_thread(enter_with_a_foreign_context, NULL));
    bed_close(0);
}

static void *adopt(void *unused) {
    aio_frame frame;
    (void)unused;
    CHECK_EQ(aio_adopt_thread(bed_pass(0)), 0);
    uint64_t looks = sim.calls("aclrtGetCurrentContext");
    CHECK_EQ(aio_begin(&frame, bed_pass(0), AIO_WAIT, AIO_FN_aclrtStreamQuery), 0);
    aio_end(&frame, 0);
    CHECK_EQ(sim.calls("aclrtGetCurrentContext"), looks);
    return NULL;
}

TEST(an_adopted_thread_does_not_check_its_context) {
    bed_open(0, AIO_WATCH);
    bed_join(bed_thread(adopt, NULL));
    bed_close(0);
}

static void *fail_to_bind(void *unused) {
    aio_frame frame;
    (void)unused;
    CHECK_EQ(sim.fail_call("aclrtSetCurrentContext", 107000, 1), 0);
    CHECK_EQ(aio_begin(&frame, bed_pass(0), AIO_WAIT, AIO_FN_aclrtStreamQuery), 107002);
    return NULL;
}

TEST(a_thread_that_cannot_bind_is_not_counted) {
    bed_open(0, AIO_THREAD);
    bed_join(bed_thread(fail_to_bind, NULL));
    counts_are(0, 0, 0);
    bed_close(0);
}

static void *fail_here(void *unused) {
    aio_frame frame;
    (void)unused;
    CHECK_EQ(aio_begin(&frame, bed_pass(0), AIO_LIFETIME, AIO_FN_aclrtMalloc), 0);
    int code = aio_acl.aclrtMalloc(NULL, 0, ACL_MEM_MALLOC_HUGE_FIRST);
    aio_end(&frame, code);
    CHECK(code > 0);
    CHECK(strstr(aio_error_text(), "aclrtMalloc") != NULL);
    CHECK(strstr(aio_error_text(), "EE1018") ==
          NULL); /* the text of the call, not of the check for a context */
    return NULL;
}

TEST(the_text_is_kept_on_the_failing_thread) {
    bed_open(0, AIO_WATCH);
    CHECK_EQ(strlen(aio_error_text()), 0);
    bed_join(bed_thread(fail_here, NULL));
    CHECK_EQ(strlen(aio_error_text()), 0);
    bed_close(0);
}

TEST(calls_inside_are_listed) {
    aio_call calls[4];
    aio_frame frame;
    bed_open(0, AIO_WATCH);
    CHECK_EQ(aio_begin(&frame, bed_pass(0), AIO_LIFETIME, AIO_FN_aclrtMalloc), 0);
    CHECK_EQ(aio_enter(bed_pass(1), AIO_WAIT, 5), AIO_NOT_OPEN);
    CHECK_EQ(aio_gate_inside(0, calls, 4), 1);
    CHECK_EQ(calls[0].function, AIO_FN_aclrtMalloc);
    CHECK(calls[0].inside_us >= 0);
    aio_end(&frame, 0);
    CHECK_EQ(aio_gate_inside(0, calls, 4), 0);
    CHECK_EQ(aio_enter(bed_pass(0), AIO_WAIT, AIO_FN_aclrtMalloc), 0);
    CHECK_EQ(aio_gate_inside(0, calls, 4), 1);
    aio_leave(bed_pass(0), AIO_WAIT);
    CHECK_EQ(aio_gate_inside(0, calls, 4), 0);
    bed_close(0);
}

static uint64_t notified(int eventfd) {
    eventfd_t count = 0;
    return eventfd_read(eventfd, &count) == 0 ? count : 0;
}

TEST(the_first_call_that_enters_notifies_once) {
    int fd = eventfd(0, EFD_NONBLOCK);
    aio_frame frame;
    bed_open(0, AIO_THREAD);
    UNTIL(aio_gate_notify(0, fd) == 0); /* the watcher may be inside */
    CHECK_EQ(notified(fd), 0);
    CHECK_EQ(aio_enter(bed_pass(1), AIO_WAIT, 5), AIO_NOT_OPEN);
    CHECK_EQ(notified(fd), 0);
    CHECK_EQ(aio_begin(&frame, bed_pass(0), AIO_LIFETIME, AIO_FN_aclrtMalloc), 0);
    CHECK_EQ(notified(fd), 1);
    CHECK_EQ(aio_gate_notify(0, fd), 1);
    CHECK_EQ(aio_enter(bed_pass(0), AIO_WAIT, AIO_FN_aclrtMalloc), 0);
    aio_leave(bed_pass(0), AIO_WAIT);
    aio_end(&frame, 0);
    CHECK_EQ(notified(fd), 0);
    CHECK_EQ(aio_gate_notify(0, fd), 0);
    CHECK_EQ(aio_helper_count(0), 0);
    CHECK_EQ(notified(fd), 1);
    aio_leave(bed_pass(0), AIO_LIFETIME);
    bed_close(0);
    close(fd);
}

enum { ENTERERS = 2, RACE_US = 1500000 };

static atomic_bool shut, over;
static atomic_int late;

static void *enter_and_leave(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        if (aio_count_in(aio_make_pass(0, 7, 0), AIO_LIFETIME)) {
            continue;
        }
        if (atomic_load(&shut)) {
            atomic_fetch_add(&late, 1);
        }
        aio_count_out(aio_make_pass(0, 7, 0), AIO_LIFETIME);
    }
    return NULL;
}

/* A thread may have read the gate's word before the gate was shut. When no call is inside any more, such a
 * thread must not enter. */
TEST(no_call_enters_a_shut_gate_once_it_is_empty) {
    pthread_t threads[ENTERERS];
    for (int i = 0; i < ENTERERS; i++) {
        threads[i] = bed_thread(enter_and_leave, NULL);
    }
    int64_t end = aio_now_us() + RACE_US;
    for (int round = 0; aio_now_us() < end && !atomic_load(&late); round++) {
        aio_gate_set(0, AIO_OPEN, 7);
        for (int turn = 0; turn < round % 64; turn++) {
            aio_gate_word(0);
        }
        aio_gate_set(0, AIO_RESETTING, 7);
        CHECK_EQ(aio_gate_wait(0, 1 << AIO_LIFETIME, 20000000), 1);
        atomic_store(&shut, true);
        for (int turn = 0; turn < 64; turn++) {
            counts_are(0, 0, 0);
        }
        atomic_store(&shut, false);
    }
    atomic_store(&over, true);
    for (int i = 0; i < ENTERERS; i++) {
        bed_join(threads[i]);
    }
    CHECK_EQ(atomic_load(&late), 0);
}

RUN_TESTS
