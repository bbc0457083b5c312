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

enum { KINDS = CACHED_KINDS, PRIORITIES = 8 };

/* The smallest class, and the classes to a power of two. Larger blocks are not kept. */
enum { LEAST_BITS = 9, MOST_BITS = 26, STEP_BITS = 3 };

enum { CLASSES = ((MOST_BITS - LEAST_BITS) << STEP_BITS) + 1 };

typedef struct {
    PyObject_HEAD item *newest[KINDS], *oldest[KINDS];
    item *top[KINDS][CLASSES];
    Py_ssize_t count[KINDS], size[KINDS];
    item *first_left, **end_left; /* what the maintenance thread has to free; linked by `newer` */
    Py_ssize_t left;
    Py_ssize_t pinned;     /* the bytes of pinned memory that are allocated, in the lists or not */
    PyObject *maintenance; /* the WorkerThread that frees what is left */
    PyObject *limits;      /* a dict: the most bytes that are kept of each kind of memory */
    PyObject *failures;    /* its `last_fault` is None, or a fault after which nothing is taken */
    PyObject *leases; /* if its `some_lost` is True, a request checks whether its caller has lost a lease */
    int device;
    char enabled;
} cache_object;

/* cache.c. */
extern PyTypeObject *cache_type;

/* cache_lists.c: the size classes, and the lists. A class is -1 for a size that is not kept. `pinned_in_use`
 * are the blocks of pinned memory that are in no list. ACL must not be finalized before they are freed. */
extern Py_ssize_t pinned_in_use;
int class_of(Py_ssize_t size);
Py_ssize_t class_size(int class);
int class_of_block(Py_ssize_t block);
bool is_current(const item *it, unsigned generation);
/* Returns NULL without an exception if there is no memory. */
item *new_item(int kind, unsigned generation, unsigned long long address, Py_ssize_t block);
void list_item(cache_object *self, item *it);
void unlist_item(cache_object *self, const item *it);
void drop_item(cache_object *self, item *it);
/* Lists a copy of the item. Returns 0 if there is no memory. */
int give_item(cache_object *self, const item *made);
item *newest_of(cache_object *self, int kind, int class);
item *take_item(cache_object *self, int kind, int class);
/* Whether the device has no fault. Returns -1 with an exception. */
int cache_is_usable(const cache_object *self);

/* cache_left.c: what no handle uses any more. */
/* Whether the cache takes items now. Returns -1 with an exception. */
int cache_takes(const cache_object *self);
/* Frees pinned memory that is in no list, or leaves it. Returns the code of aclrtFreeHost. */
int free_pinned_item(cache_object *self, item *it);
item *take_left_item(cache_object *self);
PyObject *cache_end_left(PyObject *object, PyObject *ignored);
/* Passes an item to a cache, which keeps it or makes the maintenance thread free it. After the close of the
 * device, it frees pinned memory at once. Cannot fail; for finalizers. */
void give_back(PyObject *cache, item *it);

/* cache_take.c. */
PyObject *bind_maker(PyObject *module, PyObject *arguments);

/* keeper.c. */
/* Returns a new Keeper without an item, which shows `size` bytes, or NULL with an exception. */
PyObject *new_keeper(PyObject *cache, Py_ssize_t size);
/* Passes an item to a Keeper. */
void pass_to_keeper(PyObject *keeper, item *it);

#endif
