/*
 * Handle, StreamCore's base, and tickets.
 *
 * An InFlight object refers to the buffers that a piece of work uses. The InFlight object is in the list of its
 * stream, and in the list of each of these buffers (in_flight.c). It is put there before the enqueue, and is
 * removed when the work is known to be done. Each change of a list is one step that holds the GIL, so no lock
 * is needed; see aioacl/_handles/stream_core.py.
 */
#include "binding.h"

enum { MANY_IN_FLIGHT = 64 };

PyTypeObject *core_type, *handle_type, *position_type, *recorded_type;

void free_object(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* --- Handle ---------------------------------------------------------------------------------------------- */

static PyObject *handle_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(keywords)) {
    PyObject *object = PyType_GenericAlloc(type, 0);
    if (object != NULL) {
        ((handle_object *)object)->owed = 1;
    }
    return object;
}

/* Closes the handle. Returns whether the caller has to free the native object. Only the first call returns
 * True. */
static PyObject *handle_claim(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    handle_object *self = (handle_object *)object;
    char owed = self->owed;
    self->owed = 0;
    return PyBool_FromLong(owed);
}

bool is_closed(const handle_object *handle) {
    return handle->base != NULL ? ((handle_object *)handle->base)->closed : handle->closed;
}

static PyObject *handle_closed(PyObject *object, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(is_closed((handle_object *)object));
}

static int handle_close(PyObject *object, PyObject *value, void *Py_UNUSED(closure)) {
    int closed = value ? PyObject_IsTrue(value) : -1;
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "expected a bool as _closed, got its deletion");
    }
    if (closed >= 0) {
        ((handle_object *)object)->closed = (char)closed;
    }
    return closed < 0 ? -1 : 0;
}

/* Makes this handle a view of a part of the buffer `base`. */
static PyObject *handle_view(PyObject *object, PyObject *base) {
    handle_object *self = (handle_object *)object;
    if (!PyObject_TypeCheck(base, handle_type) || ((handle_object *)base)->uses == NULL || self->base != NULL) {
        PyErr_SetString(PyExc_TypeError, "expected a buffer");
        return NULL;
    }
    Py_INCREF(base);
    Py_INCREF(((handle_object *)base)->uses);
    self->base = base;
    self->uses = ((handle_object *)base)->uses;
    self->owed = 0;
    Py_RETURN_NONE;
}

static int handle_traverse(PyObject *object, visitproc visit, void *arg) {
    const handle_object *self = (handle_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->manager);
    Py_VISIT(self->born);
    Py_VISIT(self->site);
    Py_VISIT(self->core);
    Py_VISIT(self->version);
    Py_VISIT(self->uses);
    Py_VISIT(self->keeper);
    Py_VISIT(self->base);
    return 0;
}

static int handle_clear(PyObject *object) {
    handle_object *self = (handle_object *)object;
    leave_buffer(self);
    Py_CLEAR(self->manager);
    Py_CLEAR(self->born);
    Py_CLEAR(self->site);
    Py_CLEAR(self->core);
    Py_CLEAR(self->version);
    Py_CLEAR(self->uses);
    Py_CLEAR(self->keeper);
    Py_CLEAR(self->base);
    return 0;
}

static void handle_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    handle_clear(object);
    free_object(object);
}

static PyMethodDef handle_methods[] = {
    {"_claim", handle_claim, METH_NOARGS, NULL},
    {"_make_view_of", handle_view, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef handle_members[] = {
    {"_manager", T_OBJECT_EX, offsetof(handle_object, manager), 0, NULL},
    {"_born", T_OBJECT, offsetof(handle_object, born), 0, NULL},
    {"_site", T_OBJECT, offsetof(handle_object, site), 0, NULL},
    {"_core", T_OBJECT_EX, offsetof(handle_object, core), 0, NULL},
    {"_version", T_OBJECT, offsetof(handle_object, version), 0, NULL},
    {"_uses", T_OBJECT_EX, offsetof(handle_object, uses), 0, NULL},
    {"_bytes", T_OBJECT, offsetof(handle_object, keeper), 0, NULL},
    {"_base", T_OBJECT, offsetof(handle_object, base), READONLY, NULL},
    {"_address", T_ULONGLONG, offsetof(handle_object, address), 0, NULL},
    {"_size", T_PYSSIZET, offsetof(handle_object, size), 0, NULL},
    {"_block", T_PYSSIZET, offsetof(handle_object, block), 0, NULL},
    {"_kind", T_INT, offsetof(handle_object, kind), 0, NULL},
    {"_device", T_INT, offsetof(handle_object, device), 0, NULL},
    {"_generation", T_UINT, offsetof(handle_object, generation), 0, NULL},
    {"_timing", T_BOOL, offsetof(handle_object, timing), 0, NULL},
    {"_owed", T_BOOL, offsetof(handle_object, owed), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef handle_getters[] = {
    {"_closed", handle_closed, handle_close, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot handle_slots[] = {
    {Py_tp_doc, (void *)"The base of Handle: the state of a stream, event or buffer that an enqueue reads."},
    {Py_tp_new, (void *)handle_new},
    {Py_tp_dealloc, (void *)handle_dealloc},
    {Py_tp_traverse, (void *)handle_traverse},
    {Py_tp_clear, (void *)handle_clear},
    {Py_tp_methods, handle_methods},
    {Py_tp_members, handle_members},
    {Py_tp_getset, handle_getters},
    {0, NULL},
};

static PyType_Spec handle_spec = {
    .name = "aioacl._await.HandleBase",
    .basicsize = sizeof(handle_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = handle_slots,
};

/* --- Core ------------------------------------------------------------------------------------------------ */

/* The C object holds its own reference to the engine's stream. A Python object also holds a reference, but the
 * garbage collector may clear the Python object while tickets still refer to this C object. */
static PyObject *core_attach(PyObject *object, PyObject *address) {
    core_object *self = (core_object *)object;
    void *stream = PyLong_AsVoidPtr(address);
    if (stream == NULL || self->stream != NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(
                PyExc_ValueError,
                "expected one call of _attach with the address of a stream, got NULL or a second call");
        }
        return NULL;
    }
    self->stream = stream;
    self->most = MANY_IN_FLIGHT;
    aio_stream_hold(self->stream);
    Py_RETURN_NONE;
}

void add_reference(core_object *core, in_flight_object *reference) {
    Py_INCREF((PyObject *)reference);
    reference->listed = 1;
    reference->next = NULL;
    reference->before = core->last;
    *(core->last ? &core->last->next : &core->first) = reference;
    core->last = reference;
    core->in_flight++;
}

/* The caller gets the list's reference. */
static void unlist_reference(core_object *core, in_flight_object *reference) {
    *(reference->before ? &reference->before->next : &core->first) = reference->next;
    *(reference->next ? &reference->next->before : &core->last) = reference->before;
    reference->next = NULL;
    reference->before = NULL;
    reference->listed = 0;
    core->in_flight--;
}

/* No other code runs between the read of the first reference and its removal from the list. Objects are freed
 * only after the removal, because their finalizers may call this function. */
static void release_up_to(core_object *core, uint64_t position) {
    while (core->first != NULL && core->first->position <= position) {
        in_flight_object *first = core->first;
        unlist_reference(core, first);
        drop_uses(first);
        Py_DECREF((PyObject *)first);
    }
    if (core->first == NULL || core->first->position != UNKNOWN_POSITION) {
        aio_atomic_max(&core->stream->released, position);
    }
}

int release_done(core_object *core) {
    if (core->stream == NULL) {
        return 0;
    }
    if (core->first == NULL) {
        /* If the last reference was refused, `released` may be too low: see release_up_to. Then the watcher
         * would wake the maintenance thread ten times a second. */
        aio_atomic_max(&core->stream->released, aio_stream_completed(core->stream));
        return 0;
    }
    if (aio_word_generation(aio_gate_word(core->stream->device)) == core->stream->generation) {
        release_up_to(core, aio_stream_completed(core->stream));
        return 0;
    }
    PyObject *last = PyObject_CallMethodObjArgs((PyObject *)core, names._release_stale, NULL);
    unsigned long long position = last ? PyLong_AsUnsignedLongLong(last) : 0;
    Py_XDECREF(last);
    if (PyErr_Occurred()) {
        return -1;
    }
    release_up_to(core, position);
    return 0;
}

static PyObject *core_release_done(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    if (release_done((core_object *)object) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The position of the oldest reference whose position is known, or 0. */
static uint64_t oldest_position(const core_object *core) {
    const in_flight_object *reference = core->first;
    while (reference != NULL && reference->position == UNKNOWN_POSITION) {
        reference = reference->next;
    }
    return reference == NULL ? 0 : reference->position;
}

static PyObject *core_oldest(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromUnsignedLongLong(oldest_position((core_object *)object));
}

int release_if_many(core_object *core) {
    uint64_t oldest = core->in_flight > core->most ? oldest_position(core) : 0;
    if (oldest == 0) {
        return 0;
    }
    PyThreadState *thread = PyEval_SaveThread();
    aio_stream_query(core->stream, oldest);
    PyEval_RestoreThread(thread);
    if (release_done(core) < 0) {
        return -1;
    }
    core->most = 2 * core->in_flight < MANY_IN_FLIGHT ? MANY_IN_FLIGHT : 2 * core->in_flight;
    return 0;
}

static PyObject *core_release_if_many(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    if (release_if_many((core_object *)object) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *core_add(PyObject *object, PyObject *reference) {
    if (!PyObject_TypeCheck(reference, in_flight_type) || ((in_flight_object *)reference)->listed ||
        ((in_flight_object *)reference)->core != object || ((core_object *)object)->stream == NULL) {
        PyErr_SetString(PyExc_ValueError, "expected a new InFlight of this stream, got another object, or an "
                                          "InFlight that is in a list, or a stream without its address");
        return NULL;
    }
    add_reference((core_object *)object, (in_flight_object *)reference);
    Py_RETURN_NONE;
}

static PyObject *core_in_flight(PyObject *object, void *Py_UNUSED(closure)) {
    PyObject *all = PyList_New(0);
    for (in_flight_object *each = ((core_object *)object)->first; all != NULL && each; each = each->next) {
        if (PyList_Append(all, (PyObject *)each) < 0) {
            Py_CLEAR(all);
        }
    }
    return all;
}

void drop_reference(core_object *core, in_flight_object *reference) {
    if (reference->listed) { /* no other call has removed it */
        unlist_reference(core, reference);
        Py_DECREF((PyObject *)reference);
        if (core->first != NULL && core->first->position != UNKNOWN_POSITION) {
            aio_stream_refer(core->stream, core->first->position); /* its work may be done */
        }
    }
    drop_uses(reference);
}

static PyObject *core_drop(PyObject *object, PyObject *reference) {
    if (!PyObject_TypeCheck(reference, in_flight_type) || ((in_flight_object *)reference)->core != object) {
        PyErr_SetString(PyExc_TypeError, "expected an InFlight of this stream, got another object");
        return NULL;
    }
    drop_reference((core_object *)object, (in_flight_object *)reference);
    Py_RETURN_NONE;
}

static int core_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    for (in_flight_object *each = ((core_object *)object)->first; each; each = each->next) {
        Py_VISIT(each);
    }
    return 0;
}

static int core_clear(PyObject *object) {
    core_object *self = (core_object *)object;
    while (self->first != NULL) {
        in_flight_object *first = self->first;
        unlist_reference(self, first);
        Py_DECREF((PyObject *)first);
    }
    return 0;
}

/* Each close and each finalizer of a Stream sets `gone` in the end, or the cache has taken the stream. */
static void core_finalize(PyObject *object) {
    core_object *self = (core_object *)object;
    if (self->owned && !self->gone) {
        leave_stream(self);
    }
}

static void core_dealloc(PyObject *object) {
    core_object *self = (core_object *)object;
    PyObject_GC_UnTrack(object);
    core_clear(object);
    if (self->stream != NULL && !atomic_load(&aio_in_child)) {
        aio_stream_unhold(self->stream);
    }
    free_object(object);
}

static PyMethodDef core_methods[] = {
    {"_add", core_add, METH_O, NULL},
    {"_attach", core_attach, METH_O, NULL},
    {"_drop", core_drop, METH_O, NULL},
    {"_release_if_many", core_release_if_many, METH_NOARGS, NULL},
    {"oldest", core_oldest, METH_NOARGS, "The position of the oldest reference whose position is known, or 0."},
    {"release_done", core_release_done, METH_NOARGS, "Drops the references of work that is done."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef core_members[] = {
    {"awaits", T_PYSSIZET, offsetof(core_object, awaits), READONLY, NULL},
    {"gone", T_BOOL, offsetof(core_object, gone), 0, NULL},
    {"owned", T_BOOL, offsetof(core_object, owned), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef core_getters[] = {
    {"in_flight", core_in_flight, NULL, "The references, as a new list.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot core_slots[] = {
    {Py_tp_doc,
     (void *)"The base of StreamCore: the engine's record of a stream, and its in-flight references."},
    {Py_tp_finalize, (void *)core_finalize},
    {Py_tp_dealloc, (void *)core_dealloc},
    {Py_tp_traverse, (void *)core_traverse},
    {Py_tp_clear, (void *)core_clear},
    {Py_tp_methods, core_methods},
    {Py_tp_members, core_members},
    {Py_tp_getset, core_getters},
    {0, NULL},
};

static PyType_Spec core_spec = {
    .name = "aioacl._await.Core",
    .basicsize = sizeof(core_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = core_slots,
};

/* --- Recorded -------------------------------------------------------------------------------------------- */

static int recorded_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((recorded_object *)object)->core);
    return 0;
}

static int recorded_clear(PyObject *object) {
    Py_CLEAR(((recorded_object *)object)->core);
    return 0;
}

static void recorded_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    recorded_clear(object);
    if (((recorded_object *)object)->native != NULL) {
        aio_event_drop(((recorded_object *)object)->native);
    }
    free_object(object);
}

static PyObject *recorded_native(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromVoidPtr(((recorded_object *)object)->native);
}

static PyMemberDef recorded_members[] = {
    {"core", T_OBJECT_EX, offsetof(recorded_object, core), READONLY, NULL},
    {"position", T_ULONGLONG, offsetof(recorded_object, position), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef recorded_getters[] = {
    {"native", recorded_native, NULL, "The address of the engine's event.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recorded_slots[] = {
    {Py_tp_doc, (void *)"One record of an event."},
    {Py_tp_dealloc, (void *)recorded_dealloc},
    {Py_tp_traverse, (void *)recorded_traverse},
    {Py_tp_clear, (void *)recorded_clear},
    {Py_tp_members, recorded_members},
    {Py_tp_getset, recorded_getters},
    {0, NULL},
};

static PyType_Spec recorded_spec = {
    .name = "aioacl._await.Recorded",
    .basicsize = sizeof(recorded_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = recorded_slots,
};

/* --- Position -------------------------------------------------------------------------------------------- */

static int position_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
    static char *known[] = {"core", "position", "call", "twin", NULL};
    position_object *self = (position_object *)object;
    PyObject *core, *call = NULL;
    unsigned long long position;
    int twin = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!K|U$p", known, core_type, &core, &position, &call,
                                     &twin)) {
        return -1;
    }
    if (self->core != NULL || ((core_object *)core)->stream == NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "expected a new ticket and a StreamCore with a stream, got a used ticket or no stream");
        return -1;
    }
    if (call == NULL) {
        call = names.nothing;
    }
    Py_INCREF(call);
    Py_INCREF(core);
    self->core = (core_object *)core;
    self->call = call;
    self->position = position;
    self->twin = (char)twin;
    return 0;
}

static int position_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((position_object *)object)->core);
    return 0;
}

/* The ticket is gone, so no code can await this position any more. So the engine need not record a mark for the
 * position. */
static int position_clear(PyObject *object) {
    position_object *self = (position_object *)object;
    if (self->core != NULL && !self->twin) {
        aio_stream_forget(self->core->stream, self->position);
    }
    Py_CLEAR(self->core);
    return 0;
}

static void position_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    position_clear(object);
    Py_CLEAR(((position_object *)object)->call);
    free_object(object);
}

static PyMemberDef position_members[] = {
    {"_core", T_OBJECT_EX, offsetof(position_object, core), READONLY, NULL},
    {"_call", T_OBJECT_EX, offsetof(position_object, call), READONLY, NULL},
    {"_position", T_ULONGLONG, offsetof(position_object, position), READONLY, NULL},
    {"_twin", T_BOOL, offsetof(position_object, twin), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot position_slots[] = {
    {Py_tp_doc, (void *)"The base of Ticket: a position in a stream."},
    {Py_tp_init, (void *)position_init},
    {Py_tp_dealloc, (void *)position_dealloc},
    {Py_tp_traverse, (void *)position_traverse},
    {Py_tp_clear, (void *)position_clear},
    {Py_tp_members, position_members},
    {Py_am_await, (void *)awaitable_await},
    {0, NULL},
};

static PyType_Spec position_spec = {
    .name = "aioacl._await.Position",
    .basicsize = sizeof(position_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = position_slots,
};

int add_handles(PyObject *module) {
    handle_type = add_type(module, "HandleBase", &handle_spec);
    core_type = handle_type && add_in_flight(module) == 0 ? add_type(module, "Core", &core_spec) : NULL;
    recorded_type = core_type ? add_type(module, "Recorded", &recorded_spec) : NULL;
    position_type = recorded_type ? add_type(module, "Position", &position_spec) : NULL;
    return position_type ? 0 : -1;
}
