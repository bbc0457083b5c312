/*
 * Enqueueing with one call of C: the checks, the in-flight references, the engine, and the Ticket or Event.
 *
 * In an unusual case each function returns None and has no effect. The unusual cases are: a handle that is
 * closed, stale or of another device, an argument that is wrong or not an int, a size of 0, pageable memory,
 * operands that overlap, a forked child, and a device that drains. Then the Python code of Stream raises the
 * error if there is one. Otherwise it calls the function again, with ints for all numbers. One more argument
 * says whether the caller may enqueue while the device drains. It is None if the device does not drain. A call
 * that has reached ACL is never repeated.
 */
#include "binding.h"

static PyTypeObject *buffer_type, *event_type, *ticket_type;
static PyObject *deferred, *free_deferred;

/* Whether the caller may enqueue while the device drains. Only Python can find out. */
enum right { UNKNOWN = -1, NO = 0, YES = 1 };

static enum right right_of(PyObject *const *arguments, Py_ssize_t count, Py_ssize_t operands) {
    const PyObject *answer = count > operands ? arguments[operands] : Py_None;
    return answer == Py_None ? UNKNOWN : answer == Py_True ? YES : NO;
}

/* Returns None, so that Python checks the operands, unless an exception is set. */
static PyObject *unusual(void) {
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Returns the object if it is a handle that is not closed, else NULL without an exception. Most are device
 * buffers; the first comparison finds them without a walk over the bases of their class. */
static handle_object *not_closed(PyObject *object) {
    handle_object *self = (handle_object *)object;
    bool is_handle = Py_IS_TYPE(object, buffer_type) || PyObject_TypeCheck(object, handle_type);
    return is_handle && !is_closed(self) ? self : NULL;
}

/* Returns the object if it is a handle that is neither closed nor stale, else NULL without an exception. */
static handle_object *usable(PyObject *object) {
    handle_object *self = not_closed(object);
    bool current = self != NULL && aio_word_generation(aio_gate_word(self->device)) == self->generation;
    return current ? self : NULL;
}

static handle_object *usable_stream(PyObject *object) {
    handle_object *self = atomic_load(&aio_in_child) ? NULL : usable(object);
    bool is_stream = self != NULL && self->core != NULL && PyObject_TypeCheck(self->core, core_type);
    return is_stream && ((core_object *)self->core)->stream != NULL ? self : NULL;
}

/* Memory of the stream's device and generation, or pinned memory, which may be of another device, and which
 * outlives a reset. */
static handle_object *usable_source(PyObject *object, const handle_object *stream) {
    handle_object *self = not_closed(object);
    if (self == NULL || self->kind == PINNED_MEMORY) {
        return self;
    }
    bool same = self->device == stream->device && self->generation == stream->generation;
    return same && self->kind != NO_MEMORY ? self : NULL;
}

static handle_object *usable_target(PyObject *object, const handle_object *stream) {
    handle_object *self = usable_source(object, stream);
    return self != NULL && self->kind != READ_ONLY_MEMORY ? self : NULL;
}

/* Returns the number of bytes for the argument `nbytes`; 0 if Python must check the argument. */
static size_t size_of(PyObject *nbytes, const handle_object *source, const handle_object *target) {
    Py_ssize_t size = source->size;
    if (nbytes != Py_None) {
        size = PyLong_CheckExact(nbytes) ? PyLong_AsSsize_t(nbytes) : 0;
        PyErr_Clear(); /* a number that is too large */
    }
    return size > 0 && size <= source->size && size <= target->size ? (size_t)size : 0;
}

/* Adds the reference to the buffer. Returns 1, or 0 if the buffer is closed, or -1 with an exception. */
static int use(handle_object *buffer, in_flight_object *reference) {
    if (buffer == NULL) {
        return 1;
    }
    return add_use(buffer->uses, reference) < 0 ? -1 : !is_closed(buffer);
}

/* Stores the position of work, 0 if it was refused. The maintenance thread later frees the buffers that were
 * closed during the call of the engine. A signal that came during that call is handled at the first step of
 * `free_deferred`. If the handler raises, `free_deferred` is called again. */
static int place(in_flight_object *reference, uint64_t position) {
    place_reference(reference, position);
    if (PyDict_Size(deferred) <= 0) {
        return 0;
    }
    PyObject *done = PyObject_CallFunctionObjArgs(free_deferred, (PyObject *)reference, NULL);
    int failed = done ? 0 : -1;
    if (failed) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        done = PyObject_CallFunctionObjArgs(free_deferred, (PyObject *)reference, NULL);
        PyErr_Restore(type, value, traceback);
    }
    Py_XDECREF(done);
    return failed;
}

static void forget(core_object *core, in_flight_object *reference) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    reference->position = 0;
    drop_reference(core, reference);
    PyErr_Restore(type, value, traceback);
    Py_DECREF((PyObject *)reference);
}

/* Creates the InFlight object of work that is about to be enqueued. Returns NULL with an exception. Also
 * returns NULL, without an exception, if a finalizer has run during an allocation and closed a buffer. */
static in_flight_object *refer(core_object *core, handle_object *first, handle_object *second, PyObject *held) {
    PyObject *buffers = second  ? PyTuple_Pack(2, first, second)
                        : first ? PyTuple_Pack(1, first)
                                : PyTuple_New(0);
    in_flight_object *self = buffers ? (in_flight_object *)PyType_GenericAlloc(in_flight_type, 0) : NULL;
    if (self == NULL) {
        Py_XDECREF(buffers);
        return NULL;
    }
    Py_INCREF((PyObject *)core);
    Py_INCREF(held);
    self->core = (PyObject *)core;
    self->buffers = buffers;
    self->held = held;
    self->position = UNKNOWN_POSITION;
    add_reference(core, self);
    bool usable = use(first, self) == 1 && use(second, self) == 1;
    if (!usable || release_if_many(core) < 0) {
        forget(core, self);
        return NULL;
    }
    return self;
}

static PyObject *new_ticket(core_object *core, uint64_t position, PyObject *call) {
    PyObject *object = PyType_GenericAlloc(ticket_type, 0);
    if (object != NULL) {
        position_object *self = (position_object *)object;
        Py_INCREF((PyObject *)core);
        Py_INCREF(call);
        self->core = core;
        self->call = call;
        self->position = position;
    }
    return object;
}

/* Raises the error for a refusal. But returns None if the device drains and the caller may hold a lease. ACL
 * was not called then. */
static PyObject *raise_refusal(const handle_object *stream, core_object *core, aio_result result,
                               PyObject *call, PyObject *held, enum right right) {
    int32_t code = aio_code(result);
    if (code == AIO_DRAINING_NOW && right == UNKNOWN) {
        Py_RETURN_NONE;
    }
    PyObject *number = PyLong_FromLong(code);
    PyObject *error = number ? PyObject_CallMethodObjArgs((PyObject *)core, names.refused, number, call,
                                                          (PyObject *)stream, held, NULL)
                             : NULL;
    Py_XDECREF(number);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

static PyObject *end(const handle_object *stream, core_object *core, in_flight_object *reference,
                     aio_result result, PyObject *call, enum right right) {
    PyObject *made = NULL;
    if (result >= 0) {
        made = place(reference, (uint64_t)result) < 0 ? NULL : new_ticket(core, (uint64_t)result, call);
    } else {
        drop_reference(core, reference);
        made =
            place(reference, 0) < 0 ? NULL : raise_refusal(stream, core, result, call, reference->held, right);
    }
    Py_DECREF((PyObject *)reference);
    return made;
}

/* Whether two different ranges of `size` bytes have bytes in common. */
static bool overlap(const handle_object *target, const handle_object *source, size_t size) {
    unsigned long long to = target->address, from = source->address;
    return to < from ? from - to < size : to > from && to - from < size;
}

static PyObject *enqueue_copy(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) {
    enum right right = right_of(arguments, count, 4);
    handle_object *stream = count >= 4 ? usable_stream(arguments[0]) : NULL;
    handle_object *target = stream ? usable_target(arguments[1], stream) : NULL;
    handle_object *source = target ? usable_source(arguments[2], stream) : NULL;
    size_t size = source ? size_of(arguments[3], source, target) : 0;
    if (size == 0) {
        Py_RETURN_NONE;
    }
    bool to_host = target->kind == PINNED_MEMORY, from_host = source->kind == PINNED_MEMORY;
    if (to_host ? from_host : !from_host && overlap(target, source, size)) {
        Py_RETURN_NONE;
    }
    int kind = to_host     ? ACL_MEMCPY_DEVICE_TO_HOST
               : from_host ? ACL_MEMCPY_HOST_TO_DEVICE
                           : ACL_MEMCPY_DEVICE_TO_DEVICE;
    core_object *core = (core_object *)stream->core;
    Py_INCREF((PyObject *)core); /* `renew` may replace it */
    in_flight_object *reference = refer(core, target, source, Py_None);
    PyObject *made = reference ? NULL : unusual();
    if (reference != NULL) {
        void *to = (void *)(uintptr_t)target->address;
        const void *from = (void *)(uintptr_t)source->address;
        size_t room = (size_t)target->size;
        PyThreadState *thread = PyEval_SaveThread();
        aio_result result = aio_copy(core->stream, right == YES, to, room, from, size, kind);
        PyEval_RestoreThread(thread);
        made = end(stream, core, reference, result, names.aclrtMemcpyAsync, right);
    }
    Py_DECREF((PyObject *)core);
    return made;
}

static PyObject *enqueue_fill(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) {
    enum right right = right_of(arguments, count, 4);
    handle_object *stream = count >= 4 ? usable_stream(arguments[0]) : NULL;
    handle_object *target = stream ? usable_target(arguments[1], stream) : NULL;
    size_t size = target ? size_of(arguments[3], target, target) : 0;
    long value = size && PyLong_CheckExact(arguments[2]) ? PyLong_AsLong(arguments[2]) : -1;
    if (value < 0 || value > 255) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    core_object *core = (core_object *)stream->core;
    Py_INCREF((PyObject *)core);
    in_flight_object *reference = refer(core, target, NULL, Py_None);
    PyObject *made = reference ? NULL : unusual();
    if (reference != NULL) {
        void *to = (void *)(uintptr_t)target->address;
        size_t room = (size_t)target->size;
        PyThreadState *thread = PyEval_SaveThread();
        aio_result result = aio_fill(core->stream, right == YES, to, room, (int)value, size);
        PyEval_RestoreThread(thread);
        made = end(stream, core, reference, result, names.aclrtMemsetAsync, right);
    }
    Py_DECREF((PyObject *)core);
    return made;
}

/* --- events ---------------------------------------------------------------------------------------------- */

/* Returns a new Event of the stream's device, in the same state as after Event.__init__. */
static handle_object *new_event(const handle_object *stream) {
    handle_object *event = (handle_object *)PyType_GenericAlloc(event_type, 0);
    if (event != NULL) {
        Py_INCREF(stream->manager);
        event->manager = stream->manager;
        event->device = stream->device;
        event->generation = stream->generation;
        event->owed = 1;
    }
    return event;
}

PyObject *new_record(core_object *core, aio_event *native, uint64_t position) {
    PyObject *object = PyType_GenericAlloc(recorded_type, 0);
    if (object == NULL) {
        aio_event_drop(native);
        return NULL;
    }
    recorded_object *self = (recorded_object *)object;
    Py_INCREF((PyObject *)core);
    self->core = core;
    self->native = native;
    self->position = position;
    return object;
}

/* Sets the newest record of the event, unless another thread has closed the event. */
static void set_version(handle_object *event, PyObject *version) {
    PyObject *old = event->version;
    if (event->closed) {
        Py_DECREF(version);
    } else {
        event->version = version;
        Py_XDECREF(old);
    }
}

static PyObject *record_on(handle_object *stream, handle_object *event, enum right right) {
    core_object *core = (core_object *)stream->core;
    aio_event *native = NULL;
    int timing = event->timing;
    Py_INCREF((PyObject *)core);
    PyThreadState *thread = PyEval_SaveThread();
    aio_result result = aio_record(core->stream, right == YES, timing, &native);
    PyEval_RestoreThread(thread);
    PyObject *made = NULL;
    if (result < 0) {
        made = raise_refusal(stream, core, result, names.aclrtRecordEvent, Py_None, right);
    } else {
        PyObject *version = new_record(core, native, (uint64_t)result);
        if (version != NULL) {
            set_version(event, version);
            Py_INCREF((PyObject *)event);
            made = (PyObject *)event;
        }
    }
    Py_DECREF((PyObject *)core);
    return made;
}

static PyObject *enqueue_record(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) {
    enum right right = right_of(arguments, count, 2);
    handle_object *stream = count >= 2 ? usable_stream(arguments[0]) : NULL;
    if (stream == NULL) {
        Py_RETURN_NONE;
    }
    if (arguments[1] == Py_None) {
        handle_object *event = new_event(stream);
        /* A finalizer may have run during the allocation, and may have let another thread close the stream. */
        bool usable = event != NULL && usable_stream(arguments[0]) != NULL;
        PyObject *made = usable ? record_on(stream, event, right) : event ? Py_NewRef(Py_None) : NULL;
        Py_XDECREF((PyObject *)event);
        return made;
    }
    bool is_event = PyObject_TypeCheck(arguments[1], event_type);
    handle_object *event = is_event ? usable(arguments[1]) : NULL;
    if (event == NULL || event->device != stream->device) {
        Py_RETURN_NONE;
    }
    return record_on(stream, event, right);
}

static PyObject *enqueue_wait_event(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count) {
    enum right right = right_of(arguments, count, 2);
    handle_object *stream = count >= 2 ? usable_stream(arguments[0]) : NULL;
    bool is_event = stream != NULL && PyObject_TypeCheck(arguments[1], event_type);
    handle_object *event = is_event ? usable(arguments[1]) : NULL;
    if (event == NULL || event->version == NULL || event->version == Py_None) {
        Py_RETURN_NONE;
    }
    core_object *core = (core_object *)stream->core;
    recorded_object *version = (recorded_object *)event->version;
    Py_INCREF((PyObject *)core);
    Py_INCREF((PyObject *)version);
    in_flight_object *reference = refer(core, NULL, NULL, (PyObject *)version);
    PyObject *made = reference ? NULL : unusual();
    if (reference != NULL) {
        aio_stream *source = version->core->stream;
        PyThreadState *thread = PyEval_SaveThread();
        aio_result result =
            aio_wait_event(core->stream, right == YES, version->native, source, version->position);
        PyEval_RestoreThread(thread);
        made = end(stream, core, reference, result, names.aclrtStreamWaitEvent, right);
    }
    Py_DECREF((PyObject *)version);
    Py_DECREF((PyObject *)core);
    return made;
}

/* --- the functions of the module ------------------------------------------------------------------------- */

static PyObject *bind_enqueue(PyObject *Py_UNUSED(module), PyObject *arguments) {
    PyObject *ticket, *event, *buffer, *buffers, *function;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O", &PyType_Type, &ticket, &PyType_Type, &event, &PyType_Type,
                          &buffer, &PyDict_Type, &buffers, &function)) {
        return NULL;
    }
    Py_INCREF(ticket);
    Py_INCREF(event);
    Py_INCREF(buffer);
    Py_INCREF(buffers);
    Py_INCREF(function);
    ticket_type = (PyTypeObject *)ticket;
    event_type = (PyTypeObject *)event;
    buffer_type = (PyTypeObject *)buffer;
    deferred = buffers;
    free_deferred = function;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"bind_enqueue", bind_enqueue, METH_VARARGS, NULL},
    {"enqueue_copy", (PyCFunction)(void (*)(void))enqueue_copy, METH_FASTCALL, NULL},
    {"enqueue_fill", (PyCFunction)(void (*)(void))enqueue_fill, METH_FASTCALL, NULL},
    {"enqueue_record", (PyCFunction)(void (*)(void))enqueue_record, METH_FASTCALL, NULL},
    {"enqueue_wait_event", (PyCFunction)(void (*)(void))enqueue_wait_event, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int add_enqueue(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
