/*
 * Theory of operation of the fault engine
 *
 * A rule (rule.h) says which calls it looks at, when it fires, and what it then does. fault_before(), which
 * entry.c calls in every ACL function, costs one relaxed load while there is no rule and no sick device.
 * Otherwise it looks at the rules in the order in which they were added, under sim.lock, and gathers what the
 * rules that fire want into the call's injection_t. What is to happen before the work happens there; what is to
 * happen in the midst of it is asked for by the hooks below, through the calling thread's injection; the rest
 * is done by fault_after().
 *
 * A rule decides by its own count of matching calls, and by chance only through a hash of the seed, its id and
 * that count. So the k-th decision is the same in each run, whatever thread asks for it.
 *
 * Nothing here changes an object by itself: a call either does its work as ever, or does nothing, or works and
 * answers another code. So a fault can make a client lose a handle, but never makes the simulator lose one.
 *
 * A device is sick (health.c) once a `sticky` or `lost` rule has fired on it. Its tasks stand still and its
 * calls answer as those of a card after a fault do, until a force reset, or until all rules are dropped.
 */
#ifndef ACLSIM_FAULT_H
#define ACLSIM_FAULT_H

#include "base.h"

enum { FAULT_KEY_BYTES = 32, RULE_TEXT_BYTES = 256 };

/* Which text the next aclGetRecentErrMsg hands out. */
typedef enum { TEXT_TRUE, TEXT_NULL, TEXT_LONG, TEXT_NOT_UTF8, TEXT_STALE } text_fault_t;

typedef enum { HEALTH_WELL, HEALTH_STICKY, HEALTH_LOST } fault_state_t;

/* Of a device. */
typedef struct {
    fault_state_t fault_state;
    aclError code;
    bool told; /* a call has answered the code; later waits only run out of time */
    uint32_t reset_fails;
} health_t;

/* What the rules want of one call. All under sim.lock, or private to the calling thread. */
struct injection {
    bool on; /* the rest counts only then */
    struct injection *outer;
    function_t function;
    device_t *device; /* that the call is about; NULL: none */
    int64_t limit_ms; /* of a wait with a time-out; -1: none */
    bool refused;
    aclError refusal; /* does nothing and answers this */
    aclError after;   /* works, and answers this instead of success */
    aclError task;    /* the task that is enqueued fails with this */
    int64_t late_ns;  /* the task that is enqueued ends later */
    bool late_copy;   /* and moves its bytes then */
    int64_t before_ns;
    int64_t during_ns;
    int64_t after_ns;
    int64_t teardown_ns;
    bool hangs;
    char key[FAULT_KEY_BYTES];
    bool foreign_reset;
    bool false_drain;
    aclError reset_refusal; /* a reset begins, fails with this and is taken back */
    bool reset_lies;
    aclError lie;
    fault_state_t fault_state; /* falls on the device */
    aclError fault_state_code;
    uint32_t reset_fails;
};

/* What the rest of the simulator calls. */
extern atomic_bool fault_on;

bool fault_inject(injection_t *injection, function_t function, const uint64_t *words, aclError *code);
long fault_conclude(injection_t *injection, long rc);

/* True: the call shall do nothing and answer `code`. Every call that has passed here passes fault_after(). */
static inline bool fault_before(injection_t *injection, function_t function, const uint64_t *words,
                                aclError *code) {
    injection->on = false;
    return atomic_load_explicit(&fault_on, memory_order_relaxed) &&
           fault_inject(injection, function, words, code);
}

/* What the call answers in the end. */
static inline long fault_after(injection_t *injection, long rc) {
    return injection->on ? fault_conclude(injection, rc) : rc;
}

struct task;
/* A task is about to be appended by the calling thread. */
void fault_enqueue(struct task *task);
/* The code that a copy inside the call shall answer; 0: none. */
aclError fault_copy(void);
/* The calling thread ends a stream or a context now, with its lock held. */
void fault_teardown(void);
/* A reset that would release the device: a code other than 0 means that it has failed and changed nothing. */
aclError fault_reset(device_t *device);
/* It has released the device. */
void fault_was_reset(device_t *device, bool force);
/* The text that aclGetRecentErrMsg shows instead of `text`, which may be NULL. */
const char *fault_text(thread_t *thread, const char *text);

/* Among the files of the engine. */
void fault_refresh(void);
/* Reads AIOACL_SIM_FAULTS and AIOACL_SIM_SEED; a mistake ends the process. */
void fault_read_environment(void);
/* Waits without sim.lock, on the simulator's clock, unless all is released before. */
void fault_pause(int64_t ns);
void fault_release_all(void);
/* Waits until the key is released (true), or until the call's own limit is over. */
bool fault_hang(injection_t *injection);
/* Hung waits that a reset of the device ends. */
void fault_release_device(const device_t *device);
void fault_release_function(function_t function);
uint32_t fault_hung(function_t function);

/* health.c. */
void health_enter_fault_state(device_t *device, fault_state_t fault_state, aclError code, uint32_t reset_fails);
void health_heal(device_t *device);
void health_heal_all(void);
bool health_any_faulty(void);
/* What a call answers because its device is sick. */
void health_inject(injection_t *injection);

/* limits.c: how many of each thing there may be. */
void limits_read_environment(void);
/* True: the device may have no further object of that kind. */
bool limit_reached(object_kind_t kind, const device_t *device);
/* How much memory the device has, or for NULL the host. */
uint64_t limit_memory(const device_t *device);

/* trace.c: the journal, written to the file of AIOACL_SIM_TRACE. */
extern int trace_file; /* -1: none */
void trace_read_environment(void);
void trace_write(const char *text, size_t length);

#endif
