/*
 * Items: memory and native streams that no handle uses. Each item has one owner at each moment: a Keeper, a
 * list of a cache, or the C function that ends it. It passes from one owner to the next while the GIL is held,
 * and no Python code runs in between. So a signal handler that raises an exception can neither lose nor double
 * an item.
 */
#ifndef AIOACL_CACHE_H
#define AIOACL_CACHE_H

#include "binding.h"

typedef struct item item;

struct item {
    item *newer, *older; /* of its kind */
    item *above, *below; /* of its class */
    PyObject *core;      /* of a stream: its StreamCore */
    unsigned long long address;
    Py_ssize_t size;
    int kind, class;
    unsigned generation;
};

/* Passes an item to a cache, which keeps it or makes the maintenance thread free it. After the close of the
 * device, it frees pinned memory at once. Cannot fail; for finalizers. */
void give_back(PyObject *cache, item *it);
/* Returns a new Keeper without an item, which shows `size` bytes, or NULL with an exception. */
PyObject *new_keeper(PyObject *cache, Py_ssize_t size);
/* Passes an item to a Keeper. */
void pass_to_keeper(PyObject *keeper, item *it);

#endif
