/*
 * The lists of a cache: all items of a kind by age, and a stack for each size class. No function here runs
 * Python code or releases the GIL while the lists change; see cache.c.
 */
#include "cache.h"

#include <stdlib.h>

Py_ssize_t pinned_in_use;

/* --- size classes ---------------------------------------------------------------------------------------- */

/* The number of the size class, or -1 for a size that is not kept. */
int class_of(Py_ssize_t size) {
    if (size <= 0 || size > (Py_ssize_t)1 << MOST_BITS) {
        return -1;
    }
    if (size <= 1 << LEAST_BITS) {
        return 0;
    }
    size_t last = (size_t)size - 1;
    int bits = 63 - __builtin_clzll(last); /* of the power of two below */
    int step = (int)(last >> (bits - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    return ((bits - LEAST_BITS) << STEP_BITS) + step + 1;
}

Py_ssize_t class_size(int class) {
    if (class == 0) {
        return 1 << LEAST_BITS;
    }
    int bits = LEAST_BITS + ((class - 1) >> STEP_BITS), step = (class - 1) & ((1 << STEP_BITS) - 1);
    return (Py_ssize_t)((1 << STEP_BITS) + step + 1) << (bits - STEP_BITS);
}

/* The class of a block of that size, or -1 if the block does not have the whole size of a class. Without a
 * cache, memory is allocated in the size of the request; the cache may be switched on later. */
int class_of_block(Py_ssize_t block) {
    int class = class_of(block);
    return class >= 0 && class_size(class) == block ? class : -1;
}

/* --- the lists ------------------------------------------------------------------------------------------- */

void list_item(cache_object *self, item *it) {
    item **top = &self->top[it->kind][it->class];
    it->newer = NULL; /* the stream of a handle that could not be made comes back */
    it->above = NULL;
    it->older = self->newest[it->kind];
    *(it->older ? &it->older->newer : &self->oldest[it->kind]) = it;
    self->newest[it->kind] = it;
    it->below = *top;
    if (it->below) {
        it->below->above = it;
    }
    *top = it;
    self->count[it->kind]++;
    self->size[it->kind] += it->size;
    pinned_in_use -= it->kind == CACHED_PINNED;
}

void unlist_item(cache_object *self, const item *it) {
    *(it->newer ? &it->newer->older : &self->newest[it->kind]) = it->older;
    *(it->older ? &it->older->newer : &self->oldest[it->kind]) = it->newer;
    *(it->above ? &it->above->below : &self->top[it->kind][it->class]) = it->below;
    if (it->below) {
        it->below->above = it->above;
    }
    self->count[it->kind]--;
    self->size[it->kind] -= it->size;
    pinned_in_use += it->kind == CACHED_PINNED;
}

/* Drops the item. Its StreamCore is freed last, because that may run other code. */
void drop_item(cache_object *self, item *it) {
    PyObject *core = it->core;
    unlist_item(self, it);
    free(it);
    Py_XDECREF(core);
}

/* Pinned memory belongs to the host, so it is of every generation. */
bool is_current(const item *it, unsigned generation) {
    return it->kind == CACHED_PINNED || it->generation == generation;
}

static bool is_open(int device, unsigned *generation) {
    uint64_t word = aio_gate_word(device);
    *generation = aio_word_generation(word);
    return !atomic_load(&aio_in_child) && aio_word_state(word) == AIO_OPEN &&
           !(aio_word_flags(word) & AIO_FOREIGN);
}

/* Returns the newest item of the class, or NULL. */
item *newest_of(cache_object *self, int kind, int class) {
    unsigned generation;
    if (!is_open(self->device, &generation)) {
        return NULL;
    }
    item *it;
    while ((it = self->top[kind][class]) != NULL && !is_current(it, generation)) {
        drop_item(self, it);
    }
    return it;
}

/* Returns the newest item of the class, in no list any more, or NULL. */
item *take_item(cache_object *self, int kind, int class) {
    item *it = newest_of(self, kind, class);
    if (it != NULL) {
        unlist_item(self, it);
    }
    return it;
}

int give_item(cache_object *self, const item *made) {
    item *it = malloc(sizeof *it);
    if (it == NULL) {
        return 0;
    }
    *it = *made;
    Py_XINCREF(it->core);
    list_item(self, it);
    return 1;
}

item *new_item(int kind, unsigned generation, unsigned long long address, Py_ssize_t block) {
    item *it = malloc(sizeof *it);
    if (it != NULL) {
        *it = (item){.kind = kind, .class = class_of_block(block), .size = block};
        it->address = address;
        it->generation = generation;
    }
    return it;
}

/* The instance attribute is read without Python code. */
int cache_is_usable(const cache_object *self) {
    PyObject *fault = PyObject_GetAttr(self->failures, names.last_fault);
    int usable = fault == NULL ? -1 : fault == Py_None;
    Py_XDECREF(fault);
    return usable;
}
