/*
 * The gate, and the record of what each thread does inside it.
 */
#ifndef AIOACL_GATE_H
#define AIOACL_GATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "engine.h"

/* The counts in the gate's word. */
#define AIO_COUNTS 0xfffffffffull

/* The record of what one thread does inside C. Records are never freed: a new thread uses the record of a
 * thread that has ended. */
typedef struct aio_thread {
    struct aio_thread *next;
    _Atomic bool taken;
    _Atomic int32_t device; /* -1: outside */
    _Atomic int32_t function;
    _Atomic int64_t since_us;
    _Atomic int32_t id;
    int own_device; /* the device that this thread belongs to, or -1 */
    uint32_t own_generation;
    void *left;      /* the own context that a call has left on this thread, which had none; NULL: none */
    int left_device; /* the device of that context */
    bool own_reset;  /* resets by this thread do not count as foreign resets */
    bool sets;       /* the thread sets up a device, and the default stream of its context is not made yet */
    int control;     /* the device whose control thread this is, or -1 */
    int called;      /* the function called last inside the gate; copied to `failed` on failure */
    int failed;      /* the function that failed last, and its code */
    int failed_code;
    char text[AIO_TEXT];
} aio_thread;

aio_thread *aio_self(void);

typedef struct {
    aio_pass pass;
    int kind;
    int function;
    aio_thread *thread;
    int64_t began_ns, ended_ns; /* when it has entered the gate, and left it */
    size_t bytes;               /* of a copy; else 0 */
    struct aio_event *timed;    /* recorded before the work, for a trace with device times; else NULL */
    int64_t since_ns;           /* a time before that record */
    int32_t outer_device;
    int32_t outer_function;
    int64_t outer_since_us;
    void *foreign;
} aio_frame;

/* Destroys the native events of one generation. If a reset ends a generation, the events of this generation
 * must be destroyed before the tear-down. */
int aio_device_destroy_events_of(int device, uint32_t generation);

/* Records that this thread, inside the gate, now calls the function. Returns the previous function, which must
 * be recorded again after the call. */
static inline int aio_calling(int function) {
    aio_thread *self = aio_self();
    self->called = atomic_exchange_explicit(&self->function, function, memory_order_relaxed);
    return self->called;
}

/* foreign.c: the word after a foreign reset has shut the gate. */
uint64_t aio_shut_word(uint64_t word, uint32_t generation);

/* Returns the result that entering the gate would have, without entering it. */
int aio_gate_check(aio_pass pass, int kind);
/* aio_count_in counts the call as inside, unless the gate refuses it. aio_count_out ends the count. Neither
 * changes the context. */
int aio_count_in(aio_pass pass, int kind);
void aio_count_out(aio_pass pass, int kind);
/* Enters the gate and makes the device's context current. Returns 0, a refusal, or the runtime's code. */
int aio_begin(aio_frame *frame, aio_pass pass, int kind, int function);
/* Keeps the error text of a failure, makes a foreign context current again, and leaves the gate. */
void aio_end(aio_frame *frame, int code);
/* Records which function this thread calls. To be called on the thread for which aio_helper_count was
 * called. */
void aio_helper_begin(int device, int function);
/* To be called before and after a call that does not pass the gate. The exit handler then sees that the call is
 * inside C, and the error text of a failure is stored. */
void aio_outside_begin(void);
void aio_outside_end(int code);
void aio_keep_text(void);
/* Like aio_outside_begin and aio_outside_end, but the caller names the ACL function. On a control thread the
 * call is also listed among the calls inside, although it is not counted. */
void aio_free_begin(aio_frame *frame, int function);
void aio_free_end(const aio_frame *frame, int code);
extern atomic_int aio_outside;
extern atomic_bool aio_exiting;
/* Later forks make `aio_in_child` true in the child. To be called before the first call of the library, and
 * before the first wait. */
void aio_watch_forks(void);
extern atomic_bool aio_in_child;

static inline int aio_pass_device(aio_pass pass) {
    return (int)((pass >> 20) & 0xff);
}

static inline uint32_t aio_pass_generation(aio_pass pass) {
    return (uint32_t)(pass & 0xfffff);
}

static inline aio_pass aio_make_pass(int device, uint32_t generation, int held) {
    return ((aio_pass)(held != 0) << 28) | ((aio_pass)(uint32_t)device << 20) | (generation & 0xfffff);
}

static inline uint32_t aio_word_generation(uint64_t word) {
    return (uint32_t)((word >> 36) & 0xfffff);
}

static inline int aio_word_state(uint64_t word) {
    return (int)((word >> 56) & 7);
}

static inline int aio_word_flags(uint64_t word) {
    return (int)((word >> 56) & 0xf8);
}

#endif
