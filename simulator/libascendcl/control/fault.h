/*
 * Theory of operation of the fault engine
 *
 * A rule (rule.h) defines which calls it matches, when it fires, and its effects. entry.c calls fault_before()
 * in every ACL function. If there is no rule, and no device in a fault state, fault_before() makes only one
 * relaxed load. Otherwise fault_before() checks the rules under sim.lock, in the order in which they were
 * added. It stores the effects of the rules that fire in the call's injection_t. Effects before the work happen
 * in fault_before(). Effects during the work happen in the hooks below, which read the calling thread's
 * injection. Effects after the work happen in fault_after().
 *
 * A rule decides by its own count of matching calls. Chance is a hash of the seed, the rule's number since the
 * seed was set, and that count. So the k-th decision of a rule is the same in each run, whichever thread makes
 * the call.
 *
 * The engine itself changes no object of the client. A call does its normal work, or does nothing, or does its
 * work and returns another code. So a fault can make a client lose a handle, but the simulator never loses a
 * handle.
 *
 * A device enters a fault state (health.c) when a `sticky` or `lost` rule fires on it, and after a reset on
 * which a `reset-lies` rule has fired. Its tasks stop, and calls for the device return the codes that a card
 * returns after a fault. A force reset, or dropping all rules, ends the fault state.
 */
#ifndef ACLSIM_FAULT_H
#define ACLSIM_FAULT_H

#include "base.h"

enum { FAULT_KEY_BYTES = 32, RULE_TEXT_BYTES = 256 };

/* Which text the next aclGetRecentErrMsg returns. */
typedef enum { TEXT_TRUE, TEXT_NULL, TEXT_LONG, TEXT_NOT_UTF8, TEXT_STALE } text_fault_t;

typedef enum { HEALTH_WELL, HEALTH_STICKY, HEALTH_LOST } fault_state_t;

/* The fault state of a device. */
typedef struct {
    fault_state_t fault_state;
    aclError code;
    bool returned; /* a call has returned the code, so later waits only time out */
    uint32_t reset_fails;
} health_t;

/* The effects of rules on one call. All fields are protected by sim.lock or private to the calling thread. */
struct injection {
    bool on; /* if false, the other fields mean nothing */
    struct injection *outer;
    function_t function;
    device_t *device; /* the device of the call; NULL: none */
    int64_t limit_ms; /* the time-out of a wait; -1: none */
    bool refused;
    aclError refusal; /* the call does nothing and returns this code */
    aclError after;   /* the call does its work, and returns this code instead of success */
    aclError task;    /* the task that is enqueued fails with this code */
    int64_t late_ns;  /* the task that is enqueued ends later */
    bool late_copy;   /* the late task also moves its bytes later */
    int64_t before_ns;
    int64_t during_ns;
    int64_t after_ns;
    int64_t teardown_ns;
    bool hangs;
    char key[FAULT_KEY_BYTES];
    bool foreign_reset;
    bool false_drain;
    aclError reset_refusal; /* a reset begins, fails with this code and is undone */
    bool reset_lies;
    aclError lie;
    fault_state_t fault_state; /* the state that the device enters */
    aclError fault_state_code;
    uint32_t reset_fails;
};

/* Functions that the rest of the simulator uses. */
extern atomic_bool fault_on;

bool fault_inject(injection_t *injection, function_t function, const uint64_t *words, aclError *code);
long fault_conclude(injection_t *injection, long rc);

/* Returns true if the call must do nothing and return `code`. Every fault_before() must be followed by
 * fault_after(). */
static inline bool fault_before(injection_t *injection, function_t function, const uint64_t *words,
                                aclError *code) {
    injection->on = false;
    return atomic_load_explicit(&fault_on, memory_order_relaxed) &&
           fault_inject(injection, function, words, code);
}

/* Returns the code that the call must return. */
static inline long fault_after(injection_t *injection, long rc) {
    return injection->on ? fault_conclude(injection, rc) : rc;
}

struct task;
/* Called when the calling thread is about to append a task. */
void fault_enqueue(struct task *task);
/* Returns the code that an immediate copy must return; 0: none. */
aclError fault_copy(void);
/* Called while the calling thread ends a stream or a context, with its lock held. */
void fault_teardown(void);
/* Called before a reset that would release the device. A result other than 0 means that the reset has failed
 * and changed nothing. */
aclError fault_reset(device_t *device);
void fault_was_reset(device_t *device, bool force);
/* Returns the text that aclGetRecentErrMsg returns instead of `text`, which may be NULL. */
const char *fault_text(thread_t *thread, const char *text);

/* Functions that only the files of the engine use. */
void fault_refresh(void);
/* Reads AIOACL_SIM_FAULTS and AIOACL_SIM_SEED; a mistake ends the process. */
void fault_read_environment(void);
/* Releases sim.lock, and waits for `ns` nanoseconds of the simulator's clock, or until all calls are
 * released. */
void fault_pause(int64_t ns);
void fault_release_all(void);
/* Waits until the call's key is released, and returns true. Returns false if the call's own time-out ends the
 * wait. */
bool fault_hang(injection_t *injection);
/* Releases the hung waits that a reset of the device ends. */
void fault_release_device(const device_t *device);
uint32_t fault_hung(function_t function);

/* health.c. */
void health_enter_fault_state(device_t *device, fault_state_t fault_state, aclError code, uint32_t reset_fails);
/* Called when the runtime has released the device. */
void health_release(device_t *device);
void health_heal(device_t *device);
void health_heal_all(void);
bool health_any_faulty(void);
/* Sets the code that a call returns because its device is in a fault state. */
void health_inject(injection_t *injection);

/* limits.c: limits on objects and memory. */
void limits_read_environment(void);
/* Whether the device is at its limit of objects of that kind. */
bool limit_reached(object_kind_t kind, const device_t *device);
/* Returns the memory of the device in bytes; for NULL, the memory of the host. */
uint64_t limit_memory(const device_t *device);

/* trace.c: files of lines, and the journal, written to the file of AIOACL_SIM_TRACE. */
/* Opens the file that the variable names, to append to it. -1: the variable is not set. */
int lines_open(const char *variable);
void lines_write(int file, const char *text, size_t length);
extern int trace_file; /* -1: none */
void trace_read_environment(void);
void trace_write(const char *text, size_t length);

#endif
