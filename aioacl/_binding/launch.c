/*
 * Block, the base of Launch: a block in which other code enqueues on a stream. In the usual case, entering the
 * block is one call of C, and so is leaving it. Python raises the errors. Also the record of a borrowed event.
 */
#include "binding.h"

typedef struct {
    PyObject_HEAD handle_object *stream;
    core_object *core; /* of the entered block, else NULL */
    PyObject *ticket;  /* of the work of the block; made when it is read */
    aio_block block;
    uint64_t position;
    int tasks;
    char reported;
    char recorded; /* `position` is known */
    char over;
} block_object;

static PyTypeObject *block_type, *launch_type;

/* Opens the block, and returns 0 or a code. Calls no ACL function unless the stream is open. Returns -1 with an
 * exception. */
static int open_block(block_object *self, int held) {
    const handle_object *stream = self->stream;
    core_object *core = stream ? (core_object *)stream->core : NULL; /* NULL: `__new__` has made the block */
    bool usable = core != NULL && PyObject_TypeCheck((PyObject *)core, core_type) && core->stream != NULL;
    if (!usable || is_closed(stream) || self->core != NULL) {
        return AIO_STALE;
    }
    /* Other code may keep the handle, so the cache must not keep the native stream. */
    if (PyObject_SetAttr((PyObject *)core, names.reusable, Py_False) < 0) {
        return -1;
    }
    Py_INCREF((PyObject *)core);
    PyThreadState *thread = PyEval_SaveThread();
    int code = aio_launch_begin(core->stream, held, self->tasks, self->reported, &self->block);
    PyEval_RestoreThread(thread);
    if (code == 0) {
        self->core = core;
    } else {
        Py_DECREF((PyObject *)core);
    }
    return code;
}

static PyObject *block_open(PyObject *object, PyObject *held) {
    int code = open_block((block_object *)object, held == Py_True);
    return code == -1 ? NULL : PyLong_FromLong(code);
}

static PyObject *block_enter(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    int code = open_block((block_object *)object, 0);
    if (code == 0) {
        return Py_NewRef(object);
    }
    PyObject *number = code == -1 ? NULL : PyLong_FromLong(code);
    PyObject *entered = number ? PyObject_CallMethodObjArgs(object, names._refused, number, NULL) : NULL;
    Py_XDECREF(number);
    return entered;
}

/* Runs what was put off until the end of the block. If a signal handler raises meanwhile, the rest is run by a
 * second call. */
static int run_put_off(core_object *core) {
    PyObject *put_off = PyObject_GetAttr((PyObject *)core, names.put_off);
    Py_ssize_t some = put_off ? PyList_Size(put_off) : -1;
    Py_XDECREF(put_off);
    if (some <= 0) {
        return (int)some;
    }
    PyObject *done = PyObject_CallMethodObjArgs((PyObject *)core, names.run_put_off, NULL);
    if (done == NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        done = PyObject_CallMethodObjArgs((PyObject *)core, names.run_put_off, NULL);
        Py_CLEAR(done);
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    Py_DECREF(done);
    return 0;
}

static bool is_open(const block_object *self) {
    return self->core != NULL && !self->over && !atomic_load(&aio_in_child);
}

/* Ends an open block. Returns the code with which its end could not be recorded, 0, or -1 with an exception. */
static int end_block(block_object *self) {
    core_object *core = self->core;
    self->over = 1;
    PyThreadState *thread = PyEval_SaveThread();
    aio_result result = aio_launch_end(core->stream, &self->block);
    PyEval_RestoreThread(thread);
    self->recorded = result >= 0;
    self->position = result >= 0 ? (uint64_t)result : 0;
    if (run_put_off(core) < 0) {
        return -1;
    }
    return result >= 0 ? 0 : aio_code(result);
}

/* Returns None, or the code with which the end could not be recorded. */
static PyObject *block_end(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    block_object *self = (block_object *)object;
    int code = is_open(self) ? end_block(self) : 0;
    return code == -1 ? NULL : PyLong_FromLong(code);
}

static PyObject *block_exit(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
    block_object *self = (block_object *)object;
    int code = is_open(self) ? end_block(self) : 0;
    if (code == -1) {
        return NULL;
    }
    if (code && (count == 0 || arguments[0] == Py_None)) {
        PyObject *number = PyLong_FromLong(code);
        PyObject *none = number ? PyObject_CallMethodObjArgs(object, names._not_recorded, number, NULL) : NULL;
        Py_XDECREF(number);
        return none; /* it raises */
    }
    Py_RETURN_NONE;
}

static PyObject *block_position(PyObject *object, void *Py_UNUSED(closure)) {
    const block_object *self = (block_object *)object;
    if (!self->recorded) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(self->position);
}

static int block_traverse(PyObject *object, visitproc visit, void *arg) {
    const block_object *self = (block_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->stream);
    Py_VISIT(self->core);
    Py_VISIT(self->ticket);
    return 0;
}

static int block_clear(PyObject *object) {
    block_object *self = (block_object *)object;
    Py_CLEAR(self->stream);
    Py_CLEAR(self->core);
    Py_CLEAR(self->ticket);
    return 0;
}

/* A block that is dropped while it is open would keep resets waiting for ever. */
static void block_finalize(PyObject *object) {
    if (!is_open((block_object *)object)) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *done = PyObject_CallMethodObjArgs(object, names._dropped, NULL);
    if (done == NULL) {
        PyErr_WriteUnraisable(object);
    }
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
}

/* The subclass in Python has called the finalizer. */
static void block_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    block_clear(object);
    free_object(object);
}

static PyMemberDef block_members[] = {
    {"_stream", T_OBJECT, offsetof(block_object, stream), READONLY, NULL},
    {"_core", T_OBJECT, offsetof(block_object, core), READONLY, NULL},
    {"_ticket", T_OBJECT, offsetof(block_object, ticket), 0, NULL},
    {"_over", T_BOOL, offsetof(block_object, over), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef block_getters[] = {
    {"_position", block_position, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef block_methods[] = {
    {"_open", block_open, METH_O, NULL},
    {"_end", block_end, METH_NOARGS, NULL},
    {"__enter__", block_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))block_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot block_slots[] = {
    {Py_tp_doc, (void *)"The base of Launch: a block in which other code enqueues on a stream."},
    {Py_tp_dealloc, (void *)block_dealloc},
    {Py_tp_finalize, (void *)block_finalize},
    {Py_tp_traverse, (void *)block_traverse},
    {Py_tp_clear, (void *)block_clear},
    {Py_tp_members, block_members},
    {Py_tp_getset, block_getters},
    {Py_tp_methods, block_methods},
    {0, NULL},
};

static PyType_Spec block_spec = {
    .name = "aioacl._await.Block",
    .basicsize = sizeof(block_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = block_slots,
};

/* new_launch(stream, tasks, reported): returns a Launch, or None if Python must check an argument. */
static PyObject *new_launch(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) {
    bool usual = count == 3 && PyObject_TypeCheck(arguments[0], handle_type) &&
                 PyLong_CheckExact(arguments[1]) && (arguments[2] == Py_True || arguments[2] == Py_False);
    long tasks = usual ? PyLong_AsLong(arguments[1]) : 0;
    if (tasks < 1 || tasks > aio_launch_most()) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *made = PyType_GenericAlloc(launch_type, 0);
    if (made != NULL) {
        block_object *self = (block_object *)made;
        self->stream = (handle_object *)Py_NewRef(arguments[0]);
        self->tasks = (int)tasks;
        self->reported = arguments[2] == Py_True;
    }
    return made;
}

static PyObject *bind_launch(PyObject *Py_UNUSED(module), PyObject *type) {
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, block_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a subclass of Block");
        return NULL;
    }
    launch_type = (PyTypeObject *)Py_NewRef(type);
    Py_RETURN_NONE;
}

/* borrow_event(core, address): returns the record of a borrowed event, whose reference it takes. */
static PyObject *borrow_event(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2 || !PyObject_TypeCheck(arguments[0], core_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a core and an address");
        return NULL;
    }
    void *native = PyLong_AsVoidPtr(arguments[1]);
    return native ? new_record((core_object *)arguments[0], native, 1) : NULL;
}

static PyMethodDef functions[] = {
    {"bind_launch", bind_launch, METH_O, NULL},
    {"borrow_event", (PyCFunction)(void (*)(void))borrow_event, METH_FASTCALL, NULL},
    {"new_launch", (PyCFunction)(void (*)(void))new_launch, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int add_launch(PyObject *module) {
    block_type = add_type(module, "Block", &block_spec);
    return block_type ? PyModule_AddFunctions(module, functions) : -1;
}
