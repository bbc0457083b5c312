/* What items.c and recorder.c share: the items of a batcher. */
#ifndef AIOACL_BATCHES_H
#define AIOACL_BATCHES_H

#include "await.h"

/* The base of Turn: the items that arrive together. `waiting.Turn` describes the fields. */
typedef struct {
    PyObject_HEAD PyObject *items; /* a list */
    PyObject *of;
    double born; /* in seconds of time.monotonic() */
    Py_ssize_t rows;
    char apart;
} turn_object;

/* The base of AsyncioLoop, which describes the fields. */
typedef struct {
    PyObject_HEAD PyObject *loop;
    PyObject *turn; /* NULL: None */
    PyObject *call_soon, *is_running, *new_future;
    unsigned long thread; /* the thread on which it ran last */
    char planned;
} loop_object;

/* The base of Runner, which describes the fields. */
typedef struct {
    PyObject_HEAD PyObject *refusal; /* NULL: None */
    PyObject *last;                  /* the AsyncioLoop for which an item has waited last; NULL: None */
    Py_ssize_t max_rows;
} runner_object;

/* The base of BatchItem. `waiting.Item` describes the fields that the core uses. */
typedef struct {
    PyObject_HEAD PyObject *runner;
    PyObject *call; /* what the executor gets */
    PyObject *key, *shape;
    PyObject *future;             /* of asyncio, or a JobFuture; NULL before the await */
    PyObject *turn;               /* NULL before the await */
    PyObject *timeout, *deadline; /* NULL: None */
    Py_ssize_t rows;
    int state;
    char patient;
} item_object;

extern PyTypeObject *item_type, *turn_type;

int add_items(PyObject *module);

#endif
