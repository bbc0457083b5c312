/*
 * Reports of failed tasks, from the runtime's callback to the engine.
 *
 * The runtime calls the callback on one of its threads, with locks of the runtime held, while the queue of the
 * failed task is stopped. So the callback only stores its arguments in static memory, raises `reported`, and
 * wakes a watcher. aio_failures_settle attributes the reports later. The runtime resumes the queue after the
 * callback has returned. So if a thread sees that work after the failed task is complete, and then compares
 * `reported` with `resolved`, it sees the report.
 *
 * This also holds on ARM64, where loads may be reordered. The callback's stores come before its fence, and the
 * fence comes before the runtime's resume. The reader's fence comes between the answer "complete" and the
 * reader's load of `reported`. Both fences are sequentially consistent. So a reader that has seen an effect of
 * the resume also sees the new value of `reported`, and so the report.
 *
 * A callback is never unregistered, because it may be running at any time.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

enum { REPORTS = 1024 };

/* The ring of reports. The turn of an entry is even while the entry is free, and odd while the entry contains a
 * report. Each time the ring wraps around, the turns grow by 2. */
static struct {
    _Atomic uint64_t turn;
    aio_report report;
} ring[REPORTS];
static _Atomic uint64_t head; /* the number of entries that reports have taken */
static uint64_t taken;        /* how many reports the consumer has taken; only the consumer uses it */
static _Atomic uint64_t reported, resolved;
static atomic_bool lost[AIO_DEVICES];
static atomic_int registered;
static atomic_bool trusted;

/* Adds a report. False if the ring is full. */
static bool push(const aio_report *report) {
    uint64_t place = atomic_load(&head);
    for (;;) {
        uint64_t lap = place / REPORTS * 2, turn = atomic_load(&ring[place % REPORTS].turn);
        if (turn < lap) {
            return false;
        }
        if (turn > lap) {
            place = atomic_load(&head);
        } else if (atomic_compare_exchange_weak(&head, &place, place + 1)) {
            break;
        }
    }
    ring[place % REPORTS].report = *report;
    atomic_fetch_add(&ring[place % REPORTS].turn, 1);
    return true;
}

static void report(aio_report *report) {
    int device = report->device;
    if (device < 0 || device >= AIO_DEVICES || atomic_load(&aio_in_child)) {
        return;
    }
    report->generation = aio_word_generation(aio_gate_word(device));
    if (!push(report)) {
        atomic_store(&lost[device], true);
    }
    atomic_thread_fence(memory_order_seq_cst);
    atomic_fetch_add(&reported, 1);
    aio_watcher_wake(device);
}

/* `info` is valid only during the callback. The ACL functions that are called here only read it. */
static void on_exception(aclrtExceptionInfo *info) {
    aio_report got = {
        .device = (int32_t)aio_acl.aclrtGetDeviceIdFromExceptionInfo(info),
        .stream = aio_acl.aclrtGetStreamIdFromExceptionInfo(info),
        .task = aio_acl.aclrtGetTaskIdFromExceptionInfo(info),
        .thread = aio_acl.aclrtGetThreadIdFromExceptionInfo(info),
        .code = (int32_t)aio_acl.aclrtGetErrorCodeFromExceptionInfo(info),
    };
    report(&got);
}

/* The first members of rtExceptionInfo, which are the same in every release. */
struct runtime_exception {
    uint32_t task, stream, thread, device, code;
};

static void on_task_fail(struct runtime_exception *info) {
    aio_report got = {
        .device = (int32_t)info->device,
        .stream = info->stream,
        .task = info->task,
        .thread = info->thread,
        .code = (int32_t)info->code,
    };
    report(&got);
}

typedef void (*task_fail_callback)(struct runtime_exception *info);
typedef int32_t (*register_by_module)(const char *module, task_fail_callback callback);

/* Returns the function of the runtime, or NULL. Another runtime may be loaded in the process, so the function
 * must come with the library that aioacl opened. */
static register_by_module find_runtime(void) {
    void *symbol = aio_library_symbol("rtRegTaskFailCallbackByModule");
    register_by_module found = NULL;
    Dl_info info;
    if (!symbol || !dladdr(symbol, &info) || !info.dli_fname || !strstr(info.dli_fname, "runtime")) {
        return NULL;
    }
    memcpy(&found, &symbol, sizeof found);
    return found;
}

/* Registers under a name that no other copy of the engine in this process uses. */
static bool register_with_runtime(void) {
    register_by_module found = find_runtime();
    static char name[32];
    snprintf(name, sizeof name, "aioacl-%p", (void *)ring);
    return found && found(name, on_task_fail) == 0;
}

static bool register_with_acl(void) {
    return aio_present[AIO_FN_aclrtExceptionInfoCallbackRegister] &&
           aio_acl.aclrtExceptionInfoCallbackRegister(on_exception) == 0;
}

static int register_for_reports(int allowed) {
    if ((allowed & AIO_EXACT_ACL) && register_with_acl()) {
        return AIO_EXACT_ACL;
    }
    if ((allowed & AIO_EXACT_RUNTIME) && register_with_runtime()) {
        return AIO_EXACT_RUNTIME;
    }
    return AIO_CONFIRMED;
}

/* Registers once only: a runtime may refuse to register the same callback again. */
int aio_failures_register(int allowed) {
    static bool asked;
    aio_library_lock();
    if (!asked) {
        aio_watch_forks(); /* the registration starts the runtime */
        atomic_store(&registered, register_for_reports(allowed));
    }
    asked = true;
    aio_library_unlock();
    return atomic_load(&registered);
}

void aio_failures_trust(int trust) {
    atomic_store(&trusted, trust != 0);
}

int aio_failure_reports(void) {
    return atomic_load(&registered);
}

int aio_failure_detection(void) {
    return atomic_load(&trusted) ? atomic_load(&registered) : AIO_CONFIRMED;
}

/* The thread that has claimed a place fills it within a few instructions. */
bool aio_report_take(aio_report *out) {
    if (taken == atomic_load(&head)) {
        return false;
    }
    uint64_t lap = taken / REPORTS * 2;
    for (unsigned turn = 0; atomic_load(&ring[taken % REPORTS].turn) != lap + 1; turn++) {
        aio_pause(turn);
    }
    *out = ring[taken % REPORTS].report;
    atomic_fetch_add(&ring[taken++ % REPORTS].turn, 1);
    return true;
}

bool aio_reports_lost(int device) {
    return atomic_load(&lost[device]) && atomic_exchange(&lost[device], false);
}

bool aio_reports_wait(void) {
    return atomic_load(&reported) != atomic_load(&resolved);
}

uint64_t aio_reports(void) {
    return atomic_load(&reported);
}

void aio_reports_resolved(uint64_t count) {
    atomic_store(&resolved, count);
}
