/* What the parts of vecrun share. */
#ifndef VECRUN_H
#define VECRUN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { FIELDS = 24, OUT_BYTES = 4096 };

typedef struct {
    char *line; /* holds the fields */
    int thread;
    const char *call;
    const char *arguments[FIELDS];
    int argument_count;
    const char *bind;
    const char *null_outputs[FIELDS];
    int null_count;
    int async_ms; /* -1: not asynchronous */
    bool no_outputs;
} step_t;

typedef struct {
    bool missing;
    bool unbound;
    long rc;
    char out[OUT_BYTES];
} result_t;

/* The loaded library, and the number of the logical thread that runs this code (-1: none). */
extern void *library;
extern _Thread_local int logical_thread;

_Noreturn void fail(const char *what, const char *detail);

/* vecrun_names.c: symbols, gates, callbacks, and the value of an argument. */
void bind_symbol(const char *name, long value);
void end_symbols(long value);
const char *symbol_with(char kind, long value, const char *except);
void gate_open(void *gate);
void log_take(char *text, size_t size);
bool resolve(const char *text, long *value);

/* vecrun.c: the real thread behind a logical one. */
pthread_t thread_of(int number);

/* vecrun_calls.c: what a step does. */
void run_call(const step_t *step, result_t *result);
void run_pseudo(const step_t *step, result_t *result);
void check_tables(void);

#endif
