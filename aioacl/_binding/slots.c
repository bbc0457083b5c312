/*
 * Slots: the slots of one load of a model, and the threads of its instances; see calls.c.
 */
#include "call.h"

#include <stdlib.h>

PyTypeObject *slots_type;

static int take_part(aio_part *part, PyObject *item) {
    unsigned long long device, pinned;
    Py_ssize_t size;
    if (item == NULL || !PyArg_ParseTuple(item, "KKn", &device, &pinned, &size)) {
        return -1;
    }
    *part = (aio_part){(void *)(uintptr_t)device, (void *)(uintptr_t)pinned, (size_t)size};
    return 0;
}

/* Takes (instance, core, parts, inputs, outputs), where the last two are the addresses of datasets. */
static int take_slot(slots_object *self, int index, PyObject *item) {
    aio_calls *calls = self->calls;
    aio_slot *slot = &calls->slots[index];
    int tensors = calls->inputs + calls->outputs, instance;
    aio_part *parts = calls->parts + (ptrdiff_t)index * tensors;
    PyObject *core, *given;
    unsigned long long input, output;
    if (!PyArg_ParseTuple(item, "iO!O!KK", &instance, core_type, &core, &PyTuple_Type, &given, &input,
                          &output)) {
        return -1;
    }
    if (instance < 0 || instance >= calls->runner_count || PyTuple_Size(given) != tensors) {
        PyErr_SetString(PyExc_ValueError, "expected an instance, and the memory of all tensors");
        return -1;
    }
    for (int number = 0; number < tensors; number++) {
        if (take_part(&parts[number], PyTuple_GetItem(given, number)) < 0) {
            return -1;
        }
    }
    self->cores[index] = Py_NewRef(core);
    slot->runner = &calls->runners[instance];
    slot->stream = ((core_object *)core)->stream;
    aio_stream_hold(slot->stream);
    slot->parts = parts;
    slot->input = (aclmdlDataset *)(uintptr_t)input;
    slot->output = (aclmdlDataset *)(uintptr_t)output;
    return 0;
}

static int fill(slots_object *self, PyObject *models, PyObject *slots) {
    aio_calls *calls = self->calls;
    size_t tensors = (size_t)(calls->inputs + calls->outputs);
    self->cores = PyMem_Calloc((size_t)calls->slot_count + 1, sizeof(PyObject *));
    calls->parts = calloc((size_t)calls->slot_count * tensors + 1, sizeof *calls->parts);
    if (self->cores == NULL || calls->parts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int index = 0; index < calls->runner_count; index++) {
        calls->runners[index].model = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GetItem(models, index));
    }
    for (int index = 0; !PyErr_Occurred() && index < calls->slot_count; index++) {
        if (take_slot(self, index, PyTuple_GetItem(slots, index)) < 0) {
            return -1;
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Slots(device, generation, kind, inputs, outputs, models, slots). */
static PyObject *slots_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(keywords)) {
    int device, kind, inputs, outputs;
    unsigned generation;
    PyObject *models, *slots;
    if (!PyArg_ParseTuple(given, "iIiiiO!O!", &device, &generation, &kind, &inputs, &outputs, &PyTuple_Type,
                          &models, &PyTuple_Type, &slots)) {
        return NULL;
    }
    slots_object *self = (slots_object *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->calls =
        aio_calls_new(device, generation, inputs, outputs, (int)PyTuple_Size(slots), (int)PyTuple_Size(models));
    if (self->calls == NULL) {
        PyErr_NoMemory();
        Py_CLEAR(self);
        return NULL;
    }
    self->calls->gears = (enum aio_gears)kind;
    if (fill(self, models, slots) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyObject *slots_start(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLong(aio_calls_start(((slots_object *)object)->calls));
}

static PyObject *slots_end(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    if (!atomic_load(&aio_in_child)) {
        aio_calls_end(((slots_object *)object)->calls);
    }
    Py_RETURN_NONE;
}

static PyObject *slots_wake(PyObject *object, PyObject *code) {
    long number = PyLong_AsLong(code);
    if (number == -1 && PyErr_Occurred()) {
        return NULL;
    }
    aio_calls_wake(((slots_object *)object)->calls, (int32_t)number);
    Py_RETURN_NONE;
}

/* close(): refuses executions with memory of the caller, and waits for those that are inside C. */
static PyObject *slots_close(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    PyThreadState *thread = PyEval_SaveThread();
    aio_calls_close(((slots_object *)object)->calls);
    PyEval_RestoreThread(thread);
    Py_RETURN_NONE;
}

/* collect(): frees the calls that their callers have left. */
static PyObject *slots_collect(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    for (aio_model_call *call; (call = aio_calls_take_done(((slots_object *)object)->calls));) {
        free_call(call);
    }
    Py_RETURN_NONE;
}

/* take_failed(): the index of a slot whose stream must be renewed, or None. */
static PyObject *slots_take_failed(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    const aio_slot *slot = aio_calls_take_failed(((slots_object *)object)->calls);
    return slot ? PyLong_FromLong(slot->index) : Py_NewRef(Py_None);
}

/* renewed(index, core): `core` is None if the renewal has failed. */
static PyObject *slots_renewed(PyObject *object, PyObject *given) {
    slots_object *self = (slots_object *)object;
    PyObject *core;
    int index;
    if (!PyArg_ParseTuple(given, "iO", &index, &core)) {
        return NULL;
    }
    if (index < 0 || index >= self->calls->slot_count) {
        return PyErr_Format(PyExc_IndexError, "expected the index of a slot, got %d", index);
    }
    if (core == Py_None) {
        aio_calls_renewed(&self->calls->slots[index], NULL);
        Py_RETURN_NONE;
    }
    if (!PyObject_TypeCheck(core, core_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a StreamCore, got another object");
    }
    replace(&self->cores[index], Py_NewRef(core));
    aio_stream_hold(((core_object *)core)->stream);
    aio_calls_renewed(&self->calls->slots[index], ((core_object *)core)->stream);
    Py_RETURN_NONE;
}

static PyObject *slots_open(PyObject *object, void *Py_UNUSED(closure)) {
    bool open = !atomic_load(&aio_in_child) && aio_calls_are_open(((slots_object *)object)->calls);
    return PyBool_FromLong(open);
}

static PyObject *slots_back(PyObject *object, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(aio_calls_are_back(((slots_object *)object)->calls));
}

static PyObject *slots_free(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromLong(((slots_object *)object)->calls->free_count);
}

static PyObject *slots_busy(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromLong(aio_calls_busy(((slots_object *)object)->calls));
}

static PyObject *slots_waiting(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromLong(((slots_object *)object)->calls->waiting_count);
}

static PyObject *slots_writing(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromLong(aio_calls_writing(((slots_object *)object)->calls));
}

static PyObject *slots_all(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromLong(((slots_object *)object)->calls->slot_count);
}

static PyObject *slots_address(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromVoidPtr(((slots_object *)object)->calls);
}

static int slots_traverse(PyObject *object, visitproc visit, void *arg) {
    const slots_object *self = (slots_object *)object;
    Py_VISIT(Py_TYPE(object));
    for (int index = 0; self->cores && index < self->calls->slot_count; index++) {
        Py_VISIT(self->cores[index]);
    }
    return 0;
}

static int slots_clear(PyObject *object) {
    slots_object *self = (slots_object *)object;
    for (int index = 0; self->cores && index < self->calls->slot_count; index++) {
        Py_CLEAR(self->cores[index]);
    }
    return 0;
}

static void slots_dealloc(PyObject *object) {
    slots_object *self = (slots_object *)object;
    PyObject_GC_UnTrack(object);
    slots_clear(object);
    if (self->calls != NULL && !atomic_load(&aio_in_child)) {
        aio_calls_end(self->calls);
        Py_XDECREF(slots_collect(object, NULL));
        aio_calls_drop(self->calls);
    }
    PyMem_Free(self->cores);
    free_object(object);
}

static PyMethodDef slots_methods[] = {
    {"_start", slots_start, METH_NOARGS, NULL},
    {"_end", slots_end, METH_NOARGS, NULL},
    {"_wake", slots_wake, METH_O, NULL},
    {"_close", slots_close, METH_NOARGS, NULL},
    {"_collect", slots_collect, METH_NOARGS, NULL},
    {"_take_failed", slots_take_failed, METH_NOARGS, NULL},
    {"_renewed", slots_renewed, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef slots_getters[] = {
    {"open", slots_open, NULL, "Whether a call can begin now without a wait for the device.", NULL},
    {"back", slots_back, NULL, "Whether no call uses a slot.", NULL},
    {"free", slots_free, NULL, "The number of free slots.", NULL},
    {"busy", slots_busy, NULL, "The number of slots that calls use.", NULL},
    {"waiting", slots_waiting, NULL, "The number of calls that wait for a slot.", NULL},
    {"writing", slots_writing, NULL, "The number of calls whose results a thread is about to write.", NULL},
    {"all", slots_all, NULL, "The number of slots.", NULL},
    {"address", slots_address, NULL, "The address of the native record.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots_slots[] = {
    {Py_tp_doc, (void *)"The slots of one load of a model, and the threads that enqueue its calls."},
    {Py_tp_new, (void *)slots_new},
    {Py_tp_dealloc, (void *)slots_dealloc},
    {Py_tp_traverse, (void *)slots_traverse},
    {Py_tp_clear, (void *)slots_clear},
    {Py_tp_methods, slots_methods},
    {Py_tp_getset, slots_getters},
    {0, NULL},
};

static PyType_Spec slots_spec = {
    .name = "aioacl._await.SlotsBase",
    .basicsize = sizeof(slots_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = slots_slots,
};

int add_slots(PyObject *module) {
    slots_type = add_type(module, "SlotsBase", &slots_spec);
    return slots_type ? 0 : -1;
}
