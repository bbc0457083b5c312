/* The exported functions. Each line of the table gets one wrapper, which calls do_<name>. */
#include <string.h>

#include "initcb.h"

#define ACL_FN(kind, ret, name, params, args, since) API ret name params;
#include "sim_api.inc"
#undef ACL_FN

const function_info_t function_info[FN_COUNT] = {
#define ACL_FN(kind, ret, name, params, args, since) [FN_##name] = {#name, CALL_##kind, since},
#include "sim_api.inc"
#undef ACL_FN
};

int function_find(const char *name) {
    for (int i = 0; name != NULL && i < FN_COUNT; i++) {
        if (strcmp(function_info[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

const char *call_name(void) {
    int function = atomic_load(&thread_self()->function);
    return function >= 0 ? function_info[function].name : "device task";
}

typedef struct {
    thread_t *thread;
    function_t function;
    int outer_function;
    unsigned long outer_devices;
    int64_t started_ns;
    const uint64_t *words;
    injection_t injection;
} frame_t;

static unsigned long bound_mask(void) {
    const context_t *current = thread_self()->current;
    bool apart = current != NULL && !current->primary; /* a reset of the device does not reach this context */
    int device = apart ? -1 : thread_device_peek();
    return device >= 0 ? 1UL << device : 0;
}

/* True: the call was refused or a rule fired, and the call must return `code`. */
static bool call_enter(frame_t *frame, function_t function, const uint64_t *words, aclError *code) {
    sim_start();
    thread_t *thread = thread_self();
    frame->thread = thread;
    frame->function = function;
    frame->words = words;
    frame->started_ns = now_ns();
    frame->outer_function = atomic_load_explicit(&thread->function, memory_order_relaxed);
    frame->outer_devices = atomic_load_explicit(&thread->devices, memory_order_relaxed);
    atomic_store_explicit(&thread->devices, bound_mask(), memory_order_relaxed);
    atomic_store(&thread->function, (int)function);
    frame->injection.on = false;
    calls_count(function);
    if (process_forked()) {
        usage_note("calls ACL in a forked child");
        *code = RT_INTERNAL_ERROR;
        return true;
    }
    if (thread->callback_depth > 0 && !exception_may_call(function) && !report_may_call(function)) {
        usage_note("calls ACL inside a callback");
    }
    call_kind_t kind = function_info[function].kind;
    if (kind != CALL_FREE && init_ended()) {
        usage_note("calls ACL after aclFinalize");
    }
    if ((kind == CALL_ENQUEUE || kind == CALL_LIFETIME) && !atomic_load(&thread->in_state_cb)) {
        snapshot_pass();
    }
    return fault_before(&frame->injection, function, words, code);
}

/* Returns the code that the call must return. */
static long call_leave(frame_t *frame, long rc) {
    rc = fault_after(&frame->injection, rc);
    error_leave(frame->thread);
    atomic_store(&frame->thread->function, frame->outer_function);
    atomic_store_explicit(&frame->thread->devices, frame->outer_devices, memory_order_relaxed);
    journal_add(frame->function, frame->words, rc, now_ns() - frame->started_ns);
    return rc;
}

/* Returns the float truncated to a whole number; NaN counts as 0. The parameter has no type, because the macro
 * WORD passes the address of any argument. */
static uint64_t float_word(const void *address) {
    const float most = 9e18F;
    float value = 0;
    memcpy(&value, address, sizeof value);
    if (value != value) {
        return 0;
    }
    return (uint64_t)(int64_t)(value > most ? most : value < -most ? -most : value);
}

/* WORD stores an argument as a word. LETTER defines how the journal prints the argument. */
#define WORD(x) _Generic((x), float: float_word(&(x)), default: (uint64_t)(uintptr_t)(x))
#define LETTER(x)                                                                                              \
    _Generic((x), int: 'i', long: 'i', float: 'i', unsigned int: 'u', unsigned long: 'u', default: 'p')

#define EACH_0(m)
#define EACH_1(m, a) m(a),
#define EACH_2(m, a, ...) m(a), EACH_1(m, __VA_ARGS__)
#define EACH_3(m, a, ...) m(a), EACH_2(m, __VA_ARGS__)
#define EACH_4(m, a, ...) m(a), EACH_3(m, __VA_ARGS__)
#define EACH_5(m, a, ...) m(a), EACH_4(m, __VA_ARGS__)
#define EACH_6(m, a, ...) m(a), EACH_5(m, __VA_ARGS__)
#define EACH_7(m, a, ...) m(a), EACH_6(m, __VA_ARGS__)
#define EACH_8(m, a, ...) m(a), EACH_7(m, __VA_ARGS__)
#define EACH_9(m, a, ...) m(a), EACH_8(m, __VA_ARGS__)
#define EACH_10(m, a, ...) m(a), EACH_9(m, __VA_ARGS__)
#define EACH_11(m, a, ...) m(a), EACH_10(m, __VA_ARGS__)
#define EACH_12(m, a, ...) m(a), EACH_11(m, __VA_ARGS__)
#define EACH_13(m, a, ...) m(a), EACH_12(m, __VA_ARGS__)
#define EACH_14(m, a, ...) m(a), EACH_13(m, __VA_ARGS__)
#define EACH_15(m, a, ...) m(a), EACH_14(m, __VA_ARGS__)
#define EACH_16(m, a, ...) m(a), EACH_15(m, __VA_ARGS__)
#define EACH_17(m, a, ...) m(a), EACH_16(m, __VA_ARGS__)
#define PICK(m, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, n, ...) n
#define EACH(m, ...)                                                                                           \
    PICK(m __VA_OPT__(, ) __VA_ARGS__, EACH_17, EACH_16, EACH_15, EACH_14, EACH_13, EACH_12, EACH_11, EACH_10, \
         EACH_9, EACH_8, EACH_7, EACH_6, EACH_5, EACH_4, EACH_3, EACH_2, EACH_1,                               \
         EACH_0)(m __VA_OPT__(, ) __VA_ARGS__)
#define WORDS(...) EACH(WORD, __VA_ARGS__)
#define LETTERS(...) EACH(LETTER, __VA_ARGS__)

#define BEGIN(name, args)                                                                                      \
    const uint64_t words[] = {WORDS args 0};                                                                   \
    static const char letters[] = {LETTERS args '\0'};                                                         \
    frame_t frame;                                                                                             \
    aclError code = 0;                                                                                         \
    atomic_store_explicit(&function_letters[FN_##name], letters, memory_order_relaxed);                        \
    bool refused = call_enter(&frame, FN_##name, words, &code)

#define ACL_FN(kind, ret, name, params, args, since)                                                           \
    ret name params {                                                                                          \
        BEGIN(name, args);                                                                                     \
        ret result = refused ? code : do_##name args;                                                          \
        return (aclError)call_leave(&frame, result);                                                           \
    }
#define ACL_FN_BY_VALUE(kind, ret, name, params, args, words_, since)                                          \
    ret name params {                                                                                          \
        BEGIN(name, words_);                                                                                   \
        ret result = refused ? code : do_##name args;                                                          \
        return (aclError)call_leave(&frame, result);                                                           \
    }
#define ACL_FN_VALUE(kind, ret, none, name, params, args, since)                                               \
    ret name params {                                                                                          \
        BEGIN(name, args);                                                                                     \
        ret result = refused ? (none) : do_##name args;                                                        \
        call_leave(&frame, 0);                                                                                 \
        return result;                                                                                         \
    }
#define ACL_FN_VOID(kind, name, params, args, since)                                                           \
    void name params {                                                                                         \
        BEGIN(name, args);                                                                                     \
        if (!refused) {                                                                                        \
            do_##name args;                                                                                    \
        }                                                                                                      \
        call_leave(&frame, 0);                                                                                 \
    }
#define AND_VALUES(...) (__VA_ARGS__, values)
#define ACL_FN_VARIADIC(kind, name, params, args, since)                                                       \
    void name params {                                                                                         \
        BEGIN(name, args);                                                                                     \
        va_list values;                                                                                        \
        va_start(values, fmt);                                                                                 \
        if (!refused) {                                                                                        \
            do_##name AND_VALUES args;                                                                         \
        }                                                                                                      \
        va_end(values);                                                                                        \
        call_leave(&frame, 0);                                                                                 \
    }
#include "sim_api.inc"
