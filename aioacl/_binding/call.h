/* What call.c and slots.c share with await.c: one run of a call of a model. */
#ifndef AIOACL_CALL_H
#define AIOACL_CALL_H

#include "await.h"
#include "calls.h"

/* The shapes and types of a model's tensors in C. */
typedef struct {
    char formats[3][4]; /* of the buffer protocol, without "@" */
    int format_count;
    int rank;
    Py_ssize_t itemsize;
    Py_ssize_t *dims;  /* of an input; -1: it depends on the gear */
    Py_ssize_t nbytes; /* of an output: its memory */
    char batched;      /* of an output: its first dimension is the batch */
} tensor;

typedef struct {
    int64_t *values;
    int value_count;
    Py_ssize_t *dims;  /* of all inputs, one after another */
    size_t *transfers; /* the bytes of each upload, then of each download of a whole output */
    size_t *row_bytes; /* of each output: the bytes of one entry of its first dimension; 0 without dimensions */
    PyObject *shapes;  /* of the outputs, a tuple of tuples */
} gear;

typedef struct {
    PyObject_HEAD enum aio_gears kind;
    int inputs, outputs, gear_count;
    tensor *tensors; /* the inputs, then the outputs */
    gear *gears;
    PyObject *names;          /* of the outputs, a tuple */
    PyObject *arrays;         /* a function: it returns numpy.empty, and the dtype of each output */
    PyObject *empty, *dtypes; /* what it has returned; NULL before the first result */
} spec_object;

/* The memory of an argument: a buffer, or the fields of the buffer of a memoryview that is kept. */
typedef struct {
    Py_buffer buffer;
    PyObject *kept;
} kept_view;

/* The checked arguments of a call. */
typedef struct {
    PyObject_VAR_HEAD spec_object *spec; /* NULL before the views are taken */
    int gear;
    Py_ssize_t rows; /* of a batch; -1 without batches */
    kept_view views[1];
} arguments_object;

typedef struct {
    PyObject_HEAD aio_calls *calls;
    PyObject **cores; /* of each slot, its StreamCore */
} slots_object;

extern PyTypeObject *arguments_type, *slots_type, *spec_type;

/* call.c */
bool is_run(PyObject *object);
/* Whether the run has not begun. */
bool run_is_new(PyObject *run);
/* Returns 0, or a refusal, after which the run is over. `patient`: the completion may share a wake-up of the
 * loop with others, if the results are small. */
int run_begin(PyObject *run, aio_port *port, uint64_t key, bool patient);
/* Takes the result of the work. RUN_OVER: *result is the results of the call, or None if it has failed.
 * RUN_WRITES: one more completion with the key comes to the port, after which this function is called again.
 * RUN_ERROR: an exception is set. With port NULL, the results are written here. */
enum run_end { RUN_OVER, RUN_WRITES, RUN_ERROR };
enum run_end run_end(PyObject *run, aio_result result, aio_port *port, uint64_t key, PyObject **made);
/* The result that a wait in Python has stored. */
aio_result run_result(PyObject *run);
/* Whether the results go to memory of the caller. */
bool run_has_targets(PyObject *run);
/* Gives the call up. May be called again. Returns whether some of its work has begun or may begin. */
bool run_leave(PyObject *run);
/* Gives up the calls of a port whose loop was closed. */
void leave_runs(const awaits_object *port);
int add_runs(PyObject *module);

/* await.c: begins the call now. Returns its Await, whose `take` returns the results when it is done: then it
 * calls `notify`, unless this is None. On asyncio, an await of the Await waits until it is done. */
PyObject *start_await(PyObject *run, PyObject *notify);

/* slots.c */
int add_slots(PyObject *module);
/* Frees a call that nothing uses any more. */
void free_call(aio_model_call *call);

/* arguments.c */
int add_arguments(PyObject *module);
/* Returns the Arguments, or NULL: with an exception, or without one if Python must check what was given. */
arguments_object *check_call(spec_object *spec, PyObject *given);
/* Returns the smallest gear for that many rows; -1: none. */
int gear_for_rows(const spec_object *spec, Py_ssize_t rows);

#endif
