/*
 * Takes memory and streams from a cache, and makes their handles.
 */
#include "cache.h"

#include <stdlib.h>

static PyTypeObject *makers[CACHED_KINDS]; /* the types of the handles */

/* Returns a new handle, to which no item has passed yet. */
static handle_object *new_handle(const cache_object *self, int kind, PyObject *manager) {
    handle_object *handle = (handle_object *)PyType_GenericAlloc(makers[kind], 0);
    if (handle != NULL) {
        handle->manager = Py_NewRef(manager);
        handle->device = self->device;
    }
    return handle;
}

static handle_object *new_buffer(cache_object *self, int kind, PyObject *manager, Py_ssize_t size) {
    handle_object *handle = new_handle(self, kind, manager);
    if (handle == NULL) {
        return NULL;
    }
    handle->uses = new_uses();
    handle->keeper = handle->uses && kind == CACHED_PINNED ? new_keeper((PyObject *)self, size) : NULL;
    if (handle->uses == NULL || (kind == CACHED_PINNED && handle->keeper == NULL)) {
        Py_DECREF((PyObject *)handle);
        return NULL;
    }
    handle->size = size;
    handle->kind = kind; /* of memory, the number in enum memory_kind too */
    return handle;
}

/* Makes the handle first, so no step after the take can fail. */
static PyObject *take_memory(cache_object *self, int kind, int class, Py_ssize_t size, PyObject *manager) {
    handle_object *handle = new_buffer(self, kind, manager, size);
    item *it = handle ? take_item(self, kind, class) : NULL;
    if (it == NULL) { /* a finalizer that the garbage collector has run may have taken it */
        PyObject *none = handle ? Py_NewRef(Py_None) : NULL;
        Py_XDECREF((PyObject *)handle);
        return none;
    }
    handle->address = it->address;
    handle->block = it->size;
    handle->owed = 1;
    if (kind == CACHED_PINNED) {
        handle->generation = aio_word_generation(aio_gate_word(self->device));
        pass_to_keeper(handle->keeper, it);
    } else {
        handle->generation = it->generation;
        free(it);
    }
    return (PyObject *)handle;
}

/* Returns the record of the stream, a new reference. The new record of a released stream owns nothing until the
 * Python code that makes it has returned. So an exception of a signal handler in this code changes nothing. */
static core_object *record_of(const item *it) {
    core_object *core = (core_object *)it->core;
    if (!core->gone) {
        return (core_object *)Py_NewRef(it->core);
    }
    PyObject *number = PyObject_GetAttr(it->core, names.number);
    long id = number ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    core = PyErr_Occurred() ? NULL : (core_object *)PyObject_CallMethodObjArgs(it->core, names.again, NULL);
    if (core != NULL) {
        aio_stream_list(core->stream, (int32_t)id);
    }
    return core;
}

static PyObject *take_stream(cache_object *self, int class, PyObject *manager) {
    handle_object *handle = new_handle(self, CACHED_STREAM, manager);
    item *it = handle ? take_item(self, CACHED_STREAM, class) : NULL;
    core_object *core = it ? record_of(it) : NULL;
    if (core == NULL) {
        PyObject *none = handle && !it ? Py_NewRef(Py_None) : NULL;
        if (it != NULL) {
            list_item(self, it);
        }
        Py_XDECREF((PyObject *)handle);
        return none;
    }
    core->owned = 1;
    handle->core = (PyObject *)core;
    handle->generation = it->generation;
    handle->owed = 1;
    Py_DECREF(it->core);
    free(it);
    return (PyObject *)handle;
}

int cache_is_simple(PyObject *cache) {
    if (!PyObject_TypeCheck(cache, cache_type)) {
        return 0;
    }
    PyObject *some_lost = PyObject_GetAttr(((cache_object *)cache)->leases, names.some_lost);
    int simple = some_lost == NULL ? -1 : some_lost == Py_False;
    Py_XDECREF(some_lost);
    return simple;
}

PyObject *take_cached(PyObject *cache, int kind, Py_ssize_t key, PyObject *manager) {
    if (!PyObject_TypeCheck(cache, cache_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a cache, got another object");
    }
    cache_object *self = (cache_object *)cache;
    int class = kind == CACHED_STREAM ? (int)key : class_of(key);
    int usable = class < 0 || makers[kind] == NULL ? 0 : cache_is_usable(self);
    if (usable <= 0 || newest_of(self, kind, class) == NULL) {
        return usable < 0 ? NULL : Py_NewRef(Py_None);
    }
    return kind == CACHED_STREAM ? take_stream(self, class, manager)
                                 : take_memory(self, kind, class, key, manager);
}

PyObject *bind_maker(PyObject *Py_UNUSED(module), PyObject *arguments) {
    int kind;
    PyObject *maker;
    if (!PyArg_ParseTuple(arguments, "iO", &kind, &maker)) {
        return NULL;
    }
    if (kind < 0 || kind >= KINDS || !PyType_Check(maker)) {
        return PyErr_Format(PyExc_ValueError, "expected a kind and the type of its handles, got %d", kind);
    }
    Py_INCREF(maker);
    Py_XDECREF((PyObject *)makers[kind]);
    makers[kind] = (PyTypeObject *)maker;
    Py_RETURN_NONE;
}
