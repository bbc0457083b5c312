/*
 * Cache: closed device memory, pinned memory and native streams that later requests use again.
 *
 * Memory is kept in size classes, eight to a power of two. A block is allocated with the whole size of its
 * class, so it serves every request of that class. The memory that was given last is taken first, because it is
 * probably still in the caches of the processor. If a kind of memory exceeds its limit, the maintenance thread
 * frees what was given first.
 *
 * An item belongs to a generation. A reset ends device memory and streams, so items of an older generation are
 * dropped without a call of ACL. Memory is taken only while the device is open.
 *
 * No function here runs Python code or releases the GIL while the lists change. So no lock is needed, and a
 * finalizer may give an item at any time. cache.h says who owns an item.
 */
#include "cache.h"

#include <stdlib.h>

PyTypeObject *cache_type;

/* --- memory ---------------------------------------------------------------------------------------------- */

/* Returns the size that is allocated for a request. */
static PyObject *cache_block_size(PyObject *object, PyObject *asked) {
    Py_ssize_t size = PyLong_AsSsize_t(asked);
    int class = ((cache_object *)object)->enabled ? class_of(size) : -1;
    if (size == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyLong_FromSsize_t(class < 0 ? size : class_size(class));
}

/* Whether a block of that size can be kept. */
static PyObject *cache_fits(PyObject *object, PyObject *block) {
    Py_ssize_t size = PyLong_AsSsize_t(block);
    if (size == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(((cache_object *)object)->enabled && class_of_block(size) >= 0);
}

/* Keeps device memory that is no longer used. Returns False if the caller has to free it. */
static PyObject *cache_give(PyObject *object, PyObject *arguments) {
    cache_object *self = (cache_object *)object;
    item made = {.kind = CACHED_DEVICE};
    if (!PyArg_ParseTuple(arguments, "IKn", &made.generation, &made.address, &made.size)) {
        return NULL;
    }
    made.class = class_of_block(made.size);
    if (!self->enabled || made.class < 0) {
        Py_RETURN_FALSE;
    }
    return PyBool_FromLong(give_item(self, &made));
}

/* Keeps the memory of a device buffer. Returns False if the caller has to free it, if another call frees it, or
 * if DLPack tensors refer to it. After this call, the buffer cannot be exported any more. */
static PyObject *cache_give_buffer(PyObject *object, PyObject *buffer) {
    cache_object *self = (cache_object *)object;
    if (!PyObject_TypeCheck(buffer, handle_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a device buffer, got another object");
    }
    handle_object *handle = (handle_object *)buffer;
    item made = {.kind = CACHED_DEVICE, .class = class_of_block(handle->block)};
    made.generation = handle->generation;
    made.address = handle->address;
    made.size = handle->block;
    if (!self->enabled || made.class < 0 || !handle->owed || handle->keeper != NULL) {
        Py_RETURN_FALSE;
    }
    if (!give_item(self, &made)) { /* the caller frees the memory */
        Py_RETURN_FALSE;
    }
    handle->owed = 0;
    Py_RETURN_TRUE;
}

/* Returns a new Keeper of `size` bytes of pinned memory, or the code of aclrtMallocHost. 0 bytes need no
 * memory. */
static PyObject *cache_allocate_pinned(PyObject *object, PyObject *arguments) {
    unsigned generation;
    Py_ssize_t size, block;
    if (!PyArg_ParseTuple(arguments, "Inn", &generation, &size, &block)) {
        return NULL;
    }
    PyObject *keeper = new_keeper(object, size);
    if (keeper == NULL || size == 0) {
        return keeper;
    }
    item *it = new_item(CACHED_PINNED, generation, 0, block);
    if (it == NULL) {
        Py_DECREF(keeper);
        return PyErr_NoMemory();
    }
    aio_pass pass = aio_make_pass(((cache_object *)object)->device, generation, 0);
    void *memory = NULL;
    aio_frame frame;
    PyThreadState *thread = PyEval_SaveThread();
    int code = aio_begin(&frame, pass, AIO_LIFETIME, AIO_FN_aclrtMallocHost);
    if (code == 0) {
        code = aio_acl.aclrtMallocHost(&memory, (size_t)block);
        aio_end(&frame, code);
    }
    PyEval_RestoreThread(thread);
    if (code) {
        free(it);
        Py_DECREF(keeper);
        return PyLong_FromLong(code);
    }
    it->address = (uintptr_t)memory;
    pinned_in_use++;
    ((cache_object *)object)->pinned += it->size;
    pass_to_keeper(keeper, it);
    return keeper;
}

/* Returns the Keeper of a buffer's memory. The first call makes it, and the memory passes to it. Returns None
 * if the buffer has given its memory back. */
static PyObject *cache_lend(PyObject *object, PyObject *buffer) {
    if (!PyObject_TypeCheck(buffer, handle_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a buffer, got another object");
    }
    handle_object *handle = (handle_object *)buffer;
    if (handle->keeper == NULL && handle->owed) {
        PyObject *keeper = new_keeper(object, handle->size);
        item *it = keeper ? new_item(CACHED_DEVICE, handle->generation, handle->address, handle->block) : NULL;
        if (it == NULL) {
            Py_XDECREF(keeper);
            return keeper ? PyErr_NoMemory() : NULL;
        }
        if (handle->keeper == NULL && handle->owed) { /* the garbage collector has not run a close meanwhile */
            pass_to_keeper(keeper, it);
            handle->keeper = keeper;
        } else {
            free(it);
            Py_DECREF(keeper);
        }
    }
    return Py_NewRef(handle->keeper ? handle->keeper : Py_None);
}

/* --- streams --------------------------------------------------------------------------------------------- */

/* Whether nothing but the Stream refers to its StreamCore. Tickets, events, awaits and in-flight references
 * refer to the StreamCore too. */
static bool is_alone(const core_object *core) {
    return Py_REFCNT((PyObject *)core) == 1 && core->in_flight == 0 && core->stream != NULL;
}

/* Returns the priority of a stream that may be used again, or -1. */
static long priority_of(PyObject *core) {
    PyObject *reusable = PyObject_GetAttr(core, names.reusable);
    PyObject *priority = reusable == Py_True ? PyObject_GetAttr(core, names.priority) : NULL;
    long number = priority ? PyLong_AsLong(priority) : -1;
    Py_XDECREF(priority);
    Py_XDECREF(reusable);
    return number;
}

/* Keeps the StreamCore of a Stream, whose place `ended` takes, if all work has succeeded and no other object
 * needs the StreamCore. So its record in the engine serves the next Stream too. Returns False otherwise. */
static PyObject *cache_give_idle(PyObject *object, PyObject *arguments) {
    cache_object *self = (cache_object *)object;
    PyObject *stream, *ended;
    if (!PyArg_ParseTuple(arguments, "O!O", handle_type, &stream, &ended)) {
        return NULL;
    }
    handle_object *handle = (handle_object *)stream;
    core_object *core = (core_object *)handle->core;
    if (!self->enabled || core == NULL || !PyObject_TypeCheck((PyObject *)core, core_type) || !handle->owed ||
        !is_alone(core) || !aio_stream_is_spent(core->stream)) {
        Py_RETURN_FALSE;
    }
    item made = {.kind = CACHED_STREAM, .core = (PyObject *)core, .generation = handle->generation};
    made.class = (int)priority_of((PyObject *)core);
    if (PyErr_Occurred() || made.class < 0 || made.class >= PRIORITIES || !give_item(self, &made)) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    handle->owed = 0;
    core->owned = 0;
    replace(&handle->core, Py_NewRef(ended));
    Py_RETURN_TRUE;
}

/* Ends the record of an idle stream, and keeps the native stream if it can be used again. Other objects may
 * still refer to the StreamCore, so the next Stream gets a new record (`again`). Returns the code of
 * aio_stream_release. One call does both steps, because after a Ctrl-C between them nothing would refer to the
 * native stream. */
static PyObject *cache_release(PyObject *object, PyObject *released) {
    cache_object *self = (cache_object *)object;
    core_object *core = (core_object *)released;
    bool usable = PyObject_TypeCheck(released, core_type) && core->stream != NULL;
    long priority = usable ? priority_of(released) : -1;
    if (priority < 0 || priority >= PRIORITIES) {
        return PyErr_Occurred() ? NULL
                                : PyErr_Format(PyExc_ValueError, "expected a stream that may be used again");
    }
    item *it = malloc(sizeof *it); /* without memory, the native stream is destroyed */
    int kept = 0;
    PyThreadState *thread = PyEval_SaveThread();
    int code = it ? aio_stream_release(core->stream, &kept) : aio_stream_destroy(core->stream);
    PyEval_RestoreThread(thread);
    if (kept) {
        *it = (item){.kind = CACHED_STREAM, .class = (int)priority, .core = Py_NewRef(released)};
        it->generation = core->stream->generation;
        core->owned = 0;
        list_item(self, it);
    } else {
        free(it);
    }
    core->gone |= code == 0;
    return PyLong_FromLong(code);
}

/* --- what is kept ---------------------------------------------------------------------------------------- */

static PyObject *count_pinned(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromSsize_t(pinned_in_use);
}

/* Removes the item that was given first. Returns the StreamCore of a stream, or the address of device memory.
 * Pinned memory is freed; returns the code of aclrtFreeHost. Returns None if there is no item. Items of an
 * older generation are dropped. */
static PyObject *cache_oldest(PyObject *object, PyObject *number) {
    cache_object *self = (cache_object *)object;
    long kind = PyLong_AsLong(number);
    if (kind < 0 || kind >= KINDS) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "expected 0 to 2, got %ld", kind);
    }
    unsigned generation = aio_word_generation(aio_gate_word(self->device));
    item *it;
    while ((it = self->oldest[kind]) != NULL && !is_current(it, generation)) {
        drop_item(self, it);
    }
    if (it == NULL) {
        Py_RETURN_NONE;
    }
    if (kind == CACHED_PINNED) {
        unlist_item(self, it);
        return PyLong_FromLong(free_pinned_item(self, it));
    }
    PyObject *found = it->core ? Py_NewRef(it->core) : PyLong_FromUnsignedLongLong(it->address);
    if (found != NULL) {
        drop_item(self, it);
    }
    return found;
}

static PyObject *cache_counts(PyObject *object, void *field) {
    const cache_object *self = (cache_object *)object;
    const Py_ssize_t *values = field ? self->size : self->count;
    return Py_BuildValue("nnn", values[CACHED_STREAM], values[CACHED_DEVICE], values[CACHED_PINNED]);
}

static int cache_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
    static char *known[] = {"device", "failures", "leases", "limits", "maintenance", NULL};
    cache_object *self = (cache_object *)object;
    PyObject *failures, *leases, *limits, *maintenance;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "iOOO!O", known, &self->device, &failures, &leases,
                                     &PyDict_Type, &limits, &maintenance)) {
        return -1;
    }
    self->enabled = 1;
    replace(&self->limits, Py_NewRef(limits));
    replace(&self->maintenance, Py_NewRef(maintenance));
    replace(&self->failures, Py_NewRef(failures));
    replace(&self->leases, Py_NewRef(leases));
    return 0;
}

static PyObject *cache_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(keywords)) {
    PyObject *object = PyType_GenericAlloc(type, 0);
    if (object != NULL) {
        ((cache_object *)object)->end_left = &((cache_object *)object)->first_left;
    }
    return object;
}

static PyObject *cache_accepts(PyObject *object, void *Py_UNUSED(closure)) {
    int accepted = cache_takes((cache_object *)object);
    return accepted < 0 ? NULL : PyBool_FromLong(accepted);
}

static int cache_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((cache_object *)object)->limits);
    Py_VISIT(((cache_object *)object)->maintenance);
    Py_VISIT(((cache_object *)object)->failures);
    Py_VISIT(((cache_object *)object)->leases);
    for (item *it = ((cache_object *)object)->newest[CACHED_STREAM]; it; it = it->older) {
        Py_VISIT(it->core);
    }
    for (item *it = ((cache_object *)object)->first_left; it; it = it->newer) {
        Py_VISIT(it->core);
    }
    return 0;
}

static int cache_clear(PyObject *object) {
    cache_object *self = (cache_object *)object;
    Py_CLEAR(self->limits);
    Py_CLEAR(self->maintenance);
    Py_CLEAR(self->failures);
    Py_CLEAR(self->leases);
    item *it;
    while ((it = take_left_item(self)) != NULL) {
        PyObject *core = it->core;
        free(it);
        Py_XDECREF(core);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        while (self->oldest[kind]) {
            drop_item(self, self->oldest[kind]);
        }
    }
    return 0;
}

static void cache_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    cache_clear(object);
    free_object(object);
}

static PyMethodDef cache_methods[] = {
    {"allocate_pinned", cache_allocate_pinned, METH_VARARGS, NULL},
    {"block_size", cache_block_size, METH_O, NULL},
    {"end_left", cache_end_left, METH_NOARGS, NULL},
    {"fits", cache_fits, METH_O, NULL},
    {"give", cache_give, METH_VARARGS, NULL},
    {"give_buffer", cache_give_buffer, METH_O, NULL},
    {"give_idle", cache_give_idle, METH_VARARGS, NULL},
    {"lend", cache_lend, METH_O, NULL},
    {"oldest", cache_oldest, METH_O, NULL},
    {"release", cache_release, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef cache_members[] = {
    {"enabled", T_BOOL, offsetof(cache_object, enabled), 0, NULL},
    {"left", T_PYSSIZET, offsetof(cache_object, left), READONLY, NULL},
    {"pinned", T_PYSSIZET, offsetof(cache_object, pinned), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef cache_getters[] = {
    {"accepts", cache_accepts, NULL, "Whether the cache takes memory and streams now.", NULL},
    {"counts", cache_counts, NULL, "The numbers of streams, device blocks and pinned blocks.", NULL},
    {"sizes", cache_counts, NULL, "Their sizes in bytes; 0 for streams.", (void *)"sizes"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_doc, (void *)"The closed memory and streams of a device that later requests use again."},
    {Py_tp_new, (void *)cache_new},
    {Py_tp_init, (void *)cache_init},
    {Py_tp_dealloc, (void *)cache_dealloc},
    {Py_tp_traverse, (void *)cache_traverse},
    {Py_tp_clear, (void *)cache_clear},
    {Py_tp_methods, cache_methods},
    {Py_tp_members, cache_members},
    {Py_tp_getset, cache_getters},
    {0, NULL},
};

static PyType_Spec cache_spec = {
    .name = "aioacl._await.Cache",
    .basicsize = sizeof(cache_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = cache_slots,
};

static PyMethodDef functions[] = {
    {"bind_maker", bind_maker, METH_VARARGS, NULL},
    {"pinned_in_use", count_pinned, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_cache(PyObject *module) {
    cache_type = add_type(module, "Cache", &cache_spec);
    return cache_type ? PyModule_AddFunctions(module, functions) : -1;
}
