/*
 * OperationBase: the fields of Operation and Opening, and the quick way of an Opening that takes its object
 * from the cache.
 *
 * `open_cached` makes such an Opening, of which `_kind` and `_key` say what it makes. On an asyncio loop, the
 * first step of an await takes memory or a stream from the cache of the device (cache.c), makes the handle, and
 * ends. In all other cases, the Python code of aioacl/_handles/operation.py runs: the cache has nothing, the
 * device is closed or has a fault, there is a time limit, a lease was revoked, the task has to give way, or
 * `_begin` is set, because a test records where objects are made.
 */
#include "await.h"

typedef struct {
    PyObject_HEAD PyObject *what, *begin, *of; /* see operation.py */
    PyObject *state;                           /* a str */
    PyObject *made, *site;
    PyObject *device, *timeout; /* of an Opening that `open_cached` has made */
    Py_ssize_t key;             /* the size of memory in bytes, or the priority of a stream */
    int kind;                   /* enum cached_kind; NO_KIND: not from the cache */
    char wait;
} operation_object;

static PyTypeObject *operation_type;
static PyObject *not_started, *done;

/* --- the quick way ---------------------------------------------------------------------------------------- */

static PyObject *take(const operation_object *self, PyObject *cache, PyObject *manager) {
    PyObject *made = take_cached(cache, self->kind, self->key, manager);
    if (made == NULL || made == Py_None) {
        return made;
    }
    handle_object *handle = (handle_object *)made;
    replace(&handle->site, Py_XNewRef(self->site));
    if (handle->core != NULL && PyObject_SetAttr(handle->core, names.made, self->site) < 0) {
        Py_CLEAR(made);
    }
    return made;
}

/* Returns the handle, or None if the Python code has to make it. */
static PyObject *from_cache(const operation_object *self, bool quick) {
    PyObject *closed = PyObject_GetAttr(self->device, names._closed);
    PyObject *manager = closed == Py_False ? PyObject_GetAttr(self->device, names._manager) : NULL;
    PyObject *cache = manager ? PyObject_GetAttr(manager, names.cache) : NULL;
    int may_take = cache == NULL ? 0 : quick ? cache_is_simple(cache) : 1;
    PyObject *made = may_take > 0 ? take(self, cache, manager) : NULL;
    if (made == NULL && !PyErr_Occurred()) {
        made = Py_NewRef(Py_None);
    }
    Py_XDECREF(cache);
    Py_XDECREF(manager);
    Py_XDECREF(closed);
    return made;
}

static PyObject *operation_from_cache(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    const operation_object *self = (operation_object *)object;
    return self->kind == NO_KIND ? Py_NewRef(Py_None) : from_cache(self, false);
}

static bool may_be_quick(const operation_object *self) {
    return self->kind != NO_KIND && self->state == not_started && self->begin == NULL &&
           self->timeout == Py_None;
}

static PyObject *operation_await(PyObject *object) {
    operation_object *self = (operation_object *)object;
    int quick = may_be_quick(self) ? may_go_on() : 0;
    PyObject *made = quick > 0 ? from_cache(self, true) : quick == 0 ? Py_NewRef(Py_None) : NULL;
    if (made == NULL) {
        return NULL;
    }
    if (made == Py_None) {
        Py_DECREF(made);
        return PyObject_CallMethodObjArgs(object, names._await_in_python, NULL);
    }
    replace(&self->state, Py_NewRef(done));
    return ready(made);
}

/* --- calls of models -------------------------------------------------------------------------------------- */

void operation_done(PyObject *operation) {
    replace(&((operation_object *)operation)->state, Py_NewRef(done));
}

void operation_failed(PyObject *operation, PyObject *type) {
    PyObject *error, *value, *traceback;
    PyErr_Fetch(&error, &value, &traceback);
    PyObject *name = PyObject_GetAttrString(type, "__name__");
    PyObject *state = name ? PyUnicode_FromFormat("raised %U", name) : NULL;
    if (state != NULL) {
        replace(&((operation_object *)operation)->state, state);
    }
    Py_XDECREF(name);
    PyErr_Restore(error, value, traceback); /* the state is for the repr only */
}

/* --- the type -------------------------------------------------------------------------------------------- */

static PyObject *operation_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments),
                               PyObject *Py_UNUSED(keywords)) {
    PyObject *object = PyType_GenericAlloc(type, 0);
    if (object != NULL) {
        ((operation_object *)object)->kind = NO_KIND;
    }
    return object;
}

static int operation_traverse(PyObject *object, visitproc visit, void *arg) {
    const operation_object *self = (operation_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->what);
    Py_VISIT(self->begin);
    Py_VISIT(self->of);
    Py_VISIT(self->state);
    Py_VISIT(self->made);
    Py_VISIT(self->site);
    Py_VISIT(self->device);
    Py_VISIT(self->timeout);
    return 0;
}

static int operation_clear(PyObject *object) {
    operation_object *self = (operation_object *)object;
    Py_CLEAR(self->what);
    Py_CLEAR(self->begin);
    Py_CLEAR(self->of);
    Py_CLEAR(self->state);
    Py_CLEAR(self->made);
    Py_CLEAR(self->site);
    Py_CLEAR(self->device);
    Py_CLEAR(self->timeout);
    return 0;
}

static void operation_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    operation_clear(object);
    free_object(object);
}

static PyMemberDef operation_members[] = {
    {"_what", T_OBJECT, offsetof(operation_object, what), 0, NULL},
    {"_begin", T_OBJECT, offsetof(operation_object, begin), 0, NULL},
    {"_of", T_OBJECT, offsetof(operation_object, of), 0, NULL},
    {"_state", T_OBJECT_EX, offsetof(operation_object, state), 0, NULL},
    {"_made", T_OBJECT, offsetof(operation_object, made), 0, NULL},
    {"_site", T_OBJECT, offsetof(operation_object, site), 0, NULL},
    {"_device", T_OBJECT, offsetof(operation_object, device), READONLY, NULL},
    {"_timeout", T_OBJECT, offsetof(operation_object, timeout), READONLY, NULL},
    {"_kind", T_INT, offsetof(operation_object, kind), READONLY, NULL},
    {"_key", T_PYSSIZET, offsetof(operation_object, key), READONLY, NULL},
    {"_wait", T_BOOL, offsetof(operation_object, wait), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *operation_await_call(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    return call_await(object);
}

static PyMethodDef operation_methods[] = {
    {"_await_call", operation_await_call, METH_NOARGS, NULL},
    {"_from_cache", operation_from_cache, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot operation_slots[] = {
    {Py_tp_doc, (void *)"The base of Operation. Subclasses have `_await_in_python`."},
    {Py_tp_new, (void *)operation_new},
    {Py_tp_dealloc, (void *)operation_dealloc},
    {Py_tp_traverse, (void *)operation_traverse},
    {Py_tp_clear, (void *)operation_clear},
    {Py_tp_methods, operation_methods},
    {Py_tp_members, operation_members},
    {Py_am_await, (void *)operation_await},
    {0, NULL},
};

static PyType_Spec operation_spec = {
    .name = "aioacl._await.OperationBase",
    .basicsize = sizeof(operation_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = operation_slots,
};

/* open_cached(type, device, kind, key, wait, timeout): an Opening. */
static PyObject *open_cached(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) {
    if (count != 6 || !PyType_Check(arguments[0]) ||
        !PyType_IsSubtype((PyTypeObject *)arguments[0], operation_type)) {
        return PyErr_Format(PyExc_TypeError, "expected the type of an Opening and five values");
    }
    long kind = PyLong_AsLong(arguments[2]);
    Py_ssize_t key = PyLong_AsSsize_t(arguments[3]);
    int wait = PyObject_IsTrue(arguments[4]);
    if (PyErr_Occurred() || kind < 0 || kind >= CACHED_KINDS) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "expected a kind, got %ld", kind);
    }
    operation_object *self = (operation_object *)PyType_GenericAlloc((PyTypeObject *)arguments[0], 0);
    if (self == NULL) {
        return NULL;
    }
    self->kind = (int)kind;
    self->key = key;
    self->wait = (char)wait;
    self->state = Py_NewRef(not_started);
    self->of = Py_NewRef(arguments[1]);
    self->device = Py_NewRef(arguments[1]);
    self->timeout = Py_NewRef(arguments[5]);
    self->site = calling_site();
    if (self->site == NULL) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMethodDef functions[] = {
    {"open_cached", (PyCFunction)(void (*)(void))open_cached, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int add_openings(PyObject *module) {
    not_started = PyUnicode_InternFromString("not started");
    done = PyUnicode_InternFromString("done");
    operation_type = not_started && done ? add_type(module, "OperationBase", &operation_spec) : NULL;
    if (operation_type == NULL || PyModule_AddObjectRef(module, "NOT_STARTED", not_started) < 0 ||
        PyModule_AddObjectRef(module, "DONE", done) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
