/* What driver.c, items.c and recorder.c share: the runner and the items of a batcher. */
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
    PyObject *turn;   /* NULL: None */
    PyObject *runner; /* NULL after the end of a garbage collection */
    PyObject *hook;
    PyObject *call_soon, *new_future;
    unsigned long
        between;  /* the number of the thread, while the loop is in a callback, and in none of its tasks */
    char planned; /* the loop will call `end_turn` */
    char waited;  /* the items of the turn wait for one more */
} loop_object;

/* The base of Runner, which describes the fields. */
typedef struct {
    PyObject_HEAD PyObject *refusal; /* NULL: None */
    PyObject *last;                  /* the AsyncioLoop for which an item has waited last; NULL: None */
    PyObject *news;                  /* a list; NULL before the first news */
    Py_ssize_t handled;              /* how many entries at its front were taken */
    Py_ssize_t max_rows;
    PyObject *spec, *shape; /* of the items that C can check; NULL or None: Python checks all items */
    unsigned long driver;   /* the number of the thread that drives; 0: none */
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

extern PyTypeObject *item_type, *runner_type, *turn_type;

/* Adds the items of a turn to the news of the runner. Returns -1 with an exception. */
int arrive(runner_object *runner, PyObject *turn);
/* Restores an exception, unless a newer one is set. Returns -1 with the newer one. */
int restore_error(PyObject *type, PyObject *value, PyObject *traceback);
int add_driver(PyObject *module);
int add_items(PyObject *module);

#endif
