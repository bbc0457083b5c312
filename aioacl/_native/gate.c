/*
 * The gate: which calls may enter C for a device, and which are inside.
 *
 *   bits 56-63 state and flags | 36-55 generation | 24-35 enqueueing | 12-23 waiting | 0-11 lifetime
 *
 * A call enters by a compare-and-swap, not by an addition that is undone on refusal. So a refused call is never
 * counted, a drain never waits for a refused call, and a full counter cannot overflow into the next counter.
 */
#include <string.h>

#include "internal.h"

enum { COUNT_MASK = 0xfff, GENERATION_MASK = 0xfffff, SLOW_NS = 100000 };

#define FOREIGN ((uint64_t)AIO_FOREIGN << 56)
#define FOUND ((uint64_t)AIO_FOUND << 56)

struct aio_device aio_devices[AIO_DEVICES];
atomic_int aio_outside;
atomic_bool aio_exiting;
atomic_bool aio_in_child;

static int shift_of(int kind) {
    return kind == AIO_ENQUEUE ? 24 : kind == AIO_WAIT ? 12 : 0;
}

static uint32_t count_of(uint64_t word, int kind) {
    return (uint32_t)(word >> shift_of(kind)) & COUNT_MASK;
}

static int while_draining(aio_pass pass, int kind) {
    bool held = (pass >> 28) & 1;
    if (kind != AIO_ENQUEUE) {
        return 0;
    }
    return held ? 0 : AIO_DRAINING_NOW;
}

static int refusal_of(uint64_t word, aio_pass pass, int kind) {
    if (aio_word_generation(word) != aio_pass_generation(pass)) {
        return AIO_STALE;
    }
    if (aio_word_flags(word) & AIO_FOREIGN) {
        return AIO_RESETTING_NOW;
    }
    switch (aio_word_state(word)) {
    case AIO_OPEN:
        return count_of(word, kind) == COUNT_MASK ? AIO_CROWDED : 0;
    case AIO_DRAINING:
        return count_of(word, kind) == COUNT_MASK ? AIO_CROWDED : while_draining(pass, kind);
    case AIO_RESETTING:
        return AIO_RESETTING_NOW;
    case AIO_QUARANTINED:
        return AIO_QUARANTINE;
    default:
        return AIO_NOT_OPEN;
    }
}

int aio_gate_check(aio_pass pass, int kind) {
    if (atomic_load_explicit(&aio_in_child, memory_order_relaxed)) {
        return AIO_FORKED;
    }
    return refusal_of(aio_gate_word(aio_pass_device(pass)), pass, kind);
}

int aio_count_in(aio_pass pass, int kind) {
    struct aio_device *device = &aio_devices[aio_pass_device(pass) % AIO_DEVICES];
    uint64_t word = atomic_load_explicit(&device->word, memory_order_acquire);
    if (atomic_load_explicit(&aio_in_child, memory_order_relaxed)) {
        return AIO_FORKED;
    }
    for (;;) {
        int refusal = refusal_of(word, pass, kind);
        if (refusal) {
            return refusal;
        }
        if (atomic_compare_exchange_weak(&device->word, &word, word + (1ull << shift_of(kind)))) {
            break;
        }
    }
    if (atomic_load(&device->notified)) {
        aio_entered(device);
    }
    /* This thread first counts itself and then reads the flag. The exit handler first sets the flag and then
     * reads the counts. So either this thread sees the flag, or the handler sees the count. */
    if (!atomic_load(&aio_exiting)) {
        return 0;
    }
    aio_count_out(pass, kind);
    return AIO_EXITING;
}

void aio_count_out(aio_pass pass, int kind) {
    struct aio_device *device = &aio_devices[aio_pass_device(pass) % AIO_DEVICES];
    atomic_fetch_sub(&device->word, 1ull << shift_of(kind));
}

static void call(aio_thread *thread, int function) {
    thread->called = function;
    atomic_store_explicit(&thread->function, function, memory_order_relaxed);
}

static void note(aio_frame *frame, int function) {
    aio_thread *thread = aio_self();
    frame->thread = thread;
    frame->outer_device = atomic_load_explicit(&thread->device, memory_order_relaxed);
    frame->outer_function = atomic_load_explicit(&thread->function, memory_order_relaxed);
    frame->outer_since_us = atomic_load_explicit(&thread->since_us, memory_order_relaxed);
    call(thread, function);
    frame->began_ns = aio_now_ns();
    atomic_store_explicit(&thread->since_us, frame->began_ns / 1000, memory_order_relaxed);
    atomic_store_explicit(&thread->device, aio_pass_device(frame->pass), memory_order_release);
}

static void unnote(const aio_frame *frame) {
    atomic_store_explicit(&frame->thread->function, frame->outer_function, memory_order_relaxed);
    atomic_store_explicit(&frame->thread->since_us, frame->outer_since_us, memory_order_relaxed);
    atomic_store_explicit(&frame->thread->device, frame->outer_device, memory_order_release);
}

/* Records a call that took long in the flight recorder. */
static void note_slow(const aio_frame *frame, int64_t now_ns) {
    int32_t function = atomic_load_explicit(&frame->thread->function, memory_order_relaxed);
    uint64_t took_us = (uint64_t)(now_ns - frame->began_ns) / 1000;
    aio_flight_note_at(now_ns, AIO_FLIGHT_SLOW_CALL, aio_pass_device(frame->pass), 0, function, took_us);
}

/* Records a call that has failed, for example a reset. An enqueue and a query have records of their own. */
static void note_failed(const aio_frame *frame, int function, int code) {
    aio_flight_note(AIO_FLIGHT_FAILED_CALL, aio_pass_device(frame->pass), 0, code, (uint64_t)function);
}

static int64_t end_ns(const aio_frame *frame) {
    int64_t now_ns = aio_now_ns();
    if (__builtin_expect(now_ns - frame->began_ns > SLOW_NS, 0)) {
        note_slow(frame, now_ns);
    }
    return now_ns;
}

static int set_context(aio_thread *thread, void *context) {
    call(thread, AIO_FN_aclrtSetCurrentContext);
    return aio_acl.aclrtSetCurrentContext(context);
}

/* Whether the own context that an earlier call has left on this thread still exists. */
static bool left_exists(const aio_thread *thread) {
    struct aio_device *device = &aio_devices[thread->left_device];
    return thread->left &&
           (thread->left == atomic_load(&device->context) || thread->left == atomic_load(&device->ending));
}

/* Decides which context the thread gets back after the call: the one that other code has made current. A thread
 * without a context keeps an own context. If it then uses another device, it does not get the first one back,
 * because a reset of that device may have destroyed it meanwhile. */
static void choose_context_after(aio_frame *frame, void *current, void *ours, bool exists) {
    struct aio_device *device = &aio_devices[aio_pass_device(frame->pass)];
    if (current && !(exists && current == frame->thread->left)) {
        frame->foreign = current;
        return;
    }
    frame->thread->left = atomic_load(&device->own_context) ? ours : NULL;
    frame->thread->left_device = aio_pass_device(frame->pass);
}

/* Makes the device's context current. Each ACL call is recorded while it runs. A call that has failed stays
 * recorded for aio_end. */
static int bind_context(aio_frame *frame, int function) {
    struct aio_device *device = &aio_devices[aio_pass_device(frame->pass)];
    void *ours = atomic_load_explicit(&device->context, memory_order_acquire);
    void *current = NULL;
    aio_thread *thread = frame->thread;
    if (thread->own_device == aio_pass_device(frame->pass) &&
        thread->own_generation == aio_pass_generation(frame->pass)) {
        return 0;
    }
    bool exists = left_exists(thread); /* before the call: a context that is ended after it is found too */
    call(thread, AIO_FN_aclrtGetCurrentContext);
    if (aio_acl.aclrtGetCurrentContext(&current) != 0) {
        current = NULL; /* the thread has no context; the call has set an error text, which is cleared below */
    }
    int code = current == ours ? 0 : set_context(thread, ours);
    if (code == 0 && !current) {
        aio_keep_text(); /* clears the error text of aclrtGetCurrentContext */
    }
    if (code == 0 && current != ours &&
        !aio_may_ask(aio_pass_device(frame->pass), aio_pass_generation(frame->pass))) {
        code = RT_CONTEXT_NULL; /* CANN 8.5 accepts the handle of a context that has ended */
    }
    if (code == 0 && current != ours) {
        choose_context_after(frame, current, ours, exists);
    }
    if (code == 0) {
        call(thread, function);
    }
    return code == RT_PARAM_INVALID ? RT_CONTEXT_NULL : code; /* the code for a context that was reset */
}

int aio_begin(aio_frame *frame, aio_pass pass, int kind, int function) {
    *frame = (aio_frame){.pass = pass, .kind = kind, .function = function};
    if (!aio_present[function]) {
        return AIO_ABSENT;
    }
    int code = aio_count_in(pass, kind);
    if (code) {
        return code;
    }
    note(frame, function);
    code = bind_context(frame, function);
    if (code) {
        aio_end(frame, code);
    }
    return code;
}

static void keep_failure(aio_thread *thread, int code) {
    thread->failed = thread->called;
    thread->failed_code = code;
    aio_keep_text();
}

int aio_failed_function(int code) {
    const aio_thread *thread = aio_self();
    return code && thread->failed_code == code ? thread->failed : -1;
}

void aio_end(aio_frame *frame, int code) {
    if (code) {
        keep_failure(frame->thread, code);
        if (frame->kind == AIO_LIFETIME) {
            note_failed(frame, frame->thread->failed, code);
        }
        aio_note_end(aio_pass_device(frame->pass), aio_pass_generation(frame->pass), code);
    }
    if (frame->foreign) {
        set_context(frame->thread, frame->foreign);
    }
    frame->ended_ns = end_ns(frame);
    unnote(frame);
    aio_count_out(frame->pass, frame->kind);
}

/* Copies the runtime's error text. The runtime's pointer is valid only until the thread's next call, and the
 * call clears the text. */
void aio_keep_text(void) {
    aio_thread *thread = aio_self();
    int before = aio_calling(AIO_FN_aclGetRecentErrMsg);
    const char *text = aio_present[AIO_FN_aclGetRecentErrMsg] ? aio_acl.aclGetRecentErrMsg() : NULL;
    aio_calling(before);
    thread->text[0] = 0;
    if (text) {
        strncat(thread->text, text, sizeof thread->text - 1);
    }
}

const char *aio_error_text(void) {
    return aio_self()->text;
}

void aio_outside_begin(void) {
    atomic_fetch_add(&aio_outside, 1);
}

void aio_outside_end(int code) {
    if (code) {
        aio_keep_text();
    }
    atomic_fetch_sub(&aio_outside, 1);
}

/* Records a call without counting it. A foreign reset waits for counted calls, and a set or reset by aioacl
 * waits for the foreign reset. So a counted set or reset would never end. */
void aio_free_begin(aio_frame *frame, int function) {
    aio_outside_begin();
    frame->thread = aio_self();
    if (frame->thread->control < 0) {
        return;
    }
    frame->pass = aio_make_pass(frame->thread->control, 0, 0);
    note(frame, function);
    aio_entered(&aio_devices[frame->thread->control]);
}

void aio_free_end(const aio_frame *frame, int code) {
    if (code) {
        aio_keep_text();
    }
    if (frame->thread->control >= 0) {
        if (code) {
            note_failed(frame, atomic_load_explicit(&frame->thread->function, memory_order_relaxed), code);
        }
        end_ns(frame);
        unnote(frame);
    }
    aio_outside_end(0);
}

/* Enters the gate for a user's job on the device's executor. The job counts as inside until it ends. */
int aio_enter(aio_pass pass, int kind, int function) {
    aio_frame frame = {.pass = pass, .kind = kind};
    int code = aio_count_in(pass, kind);
    if (code == 0) {
        note(&frame, function);
    }
    return code;
}

int aio_helper_count(int device) {
    _Atomic uint64_t *word = &aio_devices[device].word;
    uint64_t seen = atomic_load(word);
    do {
        if (count_of(seen, AIO_LIFETIME) == COUNT_MASK) {
            return AIO_CROWDED;
        }
    } while (!atomic_compare_exchange_weak(word, &seen, seen + 1));
    aio_entered(&aio_devices[device]);
    return 0;
}

void aio_helper_begin(int device, int function) {
    aio_frame frame = {.pass = aio_make_pass(device, 0, 0), .kind = AIO_LIFETIME};
    note(&frame, function);
}

void aio_leave(aio_pass pass, int kind) {
    atomic_store(&aio_self()->device, -1);
    aio_count_out(pass, kind);
}

int aio_bind_thread(aio_pass pass) {
    aio_frame frame;
    int code = aio_begin(&frame, pass, AIO_WAIT, AIO_FN_aclrtSetCurrentContext);
    if (code) {
        return code;
    }
    frame.foreign = NULL;
    frame.thread->left = NULL; /* a job relies on the context, so calls for other devices give it back */
    aio_end(&frame, 0);
    return 0;
}

int aio_adopt_thread(aio_pass pass) {
    aio_thread *thread = aio_self();
    thread->own_device = -1;
    int code = aio_bind_thread(pass);
    if (code) {
        return code;
    }
    thread->own_device = aio_pass_device(pass);
    thread->own_generation = aio_pass_generation(pass);
    return 0;
}

void aio_relax_captures(void) {
    aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    void *current = NULL;
    /* Without a context, the exchange fails, or sets the default device of the process once more. */
    bool bound = aio_acl.aclrtGetCurrentContext(&current) == 0;
    if (!bound) {
        aio_keep_text(); /* clears the error text */
    } else if (aio_present[AIO_FN_aclmdlRICaptureThreadExchangeMode]) {
        aio_acl.aclmdlRICaptureThreadExchangeMode(&mode);
    }
}

void aio_control_thread(int device) {
    aio_self()->own_reset = true;
    aio_self()->control = device;
}

uint64_t aio_gate_word(int device) {
    return atomic_load(&aio_devices[device % AIO_DEVICES].word);
}

/* Returns the new word. A foreign reset may have shut the gate and raised the generation before this call. Both
 * changes are kept. */
static uint64_t replaced(uint64_t seen, int state, uint32_t generation) {
    uint32_t ahead = (aio_word_generation(seen) - generation) & GENERATION_MASK;
    uint64_t fixed = (uint64_t)(state & 0xff) << 56;
    if (ahead != 0 && ahead < GENERATION_MASK / 2) {
        generation += ahead;
    }
    fixed |= (uint64_t)(generation & GENERATION_MASK) << 36;
    return fixed | (seen & (AIO_COUNTS | FOREIGN | FOUND));
}

void aio_gate_set(int device, int state, uint32_t generation) {
    _Atomic uint64_t *word = &aio_devices[device % AIO_DEVICES].word;
    uint64_t seen = atomic_load(word);
    while (!atomic_compare_exchange_weak(word, &seen, replaced(seen, state, generation))) {
        continue;
    }
    aio_flight_note(AIO_FLIGHT_STATE, device, generation, state, 0);
}

int aio_gate_foreign(int device) {
    return (aio_word_flags(aio_gate_word(device)) & AIO_FOREIGN) != 0;
}

void aio_gate_met(int device) {
    atomic_fetch_and(&aio_devices[device % AIO_DEVICES].word, ~FOREIGN);
}

void aio_gate_counts(int device, int32_t counts[3]) {
    uint64_t word = aio_gate_word(device);
    for (int kind = AIO_ENQUEUE; kind <= AIO_LIFETIME; kind++) {
        counts[kind - AIO_ENQUEUE] = (int32_t)count_of(word, kind);
    }
}

/* Whether any call is inside, apart from `own` calls of the caller. */
static bool any_inside(int device, int kinds, int own) {
    uint64_t word = aio_gate_word(device);
    int blocked = kinds & AIO_BLOCKED_MAY_STAY ? atomic_load(&aio_devices[device % AIO_DEVICES].blocked) : 0;
    int total = -own;
    for (int kind = AIO_ENQUEUE; kind <= AIO_LIFETIME; kind++) {
        int count = (int)count_of(word, kind) - (kind == AIO_WAIT ? blocked : 0);
        if ((kinds & (1 << kind)) && count > 0) {
            total += count;
        }
    }
    return total > 0;
}

static int wait_until_empty(int device, int kinds, int own, int64_t timeout_us) {
    int64_t end = aio_now_us() + timeout_us;
    struct timespec nap = {0, 50000};
    while (any_inside(device, kinds, own)) {
        if (aio_now_us() >= end) {
            return 0;
        }
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 2000000) {
            nap.tv_nsec *= 2;
        }
    }
    return 1;
}

int aio_gate_wait(int device, int kinds, int64_t timeout_us) {
    return wait_until_empty(device, kinds, 0, timeout_us);
}

/* The caller may be a user's job that requests a reset. The job itself is inside, so this function does not
 * wait for it. */
int aio_gate_wait_others(int device, int64_t timeout_us) {
    int own = atomic_load(&aio_self()->device) == device;
    return wait_until_empty(device, 1 << AIO_ENQUEUE | 1 << AIO_WAIT | 1 << AIO_LIFETIME, own, timeout_us);
}

void aio_set_context(int device, void *context) {
    struct aio_device *found = &aio_devices[device % AIO_DEVICES];
    atomic_store(&found->ending, atomic_exchange(&found->context, context));
}

void aio_own_context(int device, int own) {
    atomic_store(&aio_devices[device % AIO_DEVICES].own_context, own != 0);
}

int aio_has_own_context(int device) {
    return atomic_load(&aio_devices[device % AIO_DEVICES].own_context);
}

/* CANN 8.5 accepts the handle of a destroyed context, and the thread then has no context. So the current
 * context is read again. */
int aio_context_lives(int device) {
    void *ours = atomic_load_explicit(&aio_devices[device % AIO_DEVICES].context, memory_order_acquire);
    void *before = NULL, *now = NULL;
    aio_outside_begin();
    bool bound = aio_acl.aclrtGetCurrentContext(&before) == 0 && before != NULL;
    bool lives = aio_acl.aclrtSetCurrentContext(ours) == 0 && aio_acl.aclrtGetCurrentContext(&now) == 0;
    if (bound && before != ours) {
        aio_acl.aclrtSetCurrentContext(before);
    }
    aio_outside_end(!lives);
    return lives && now == ours;
}
