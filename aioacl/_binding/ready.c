/*
 * Ready: the iterator of an await whose result is known before the first step. `__await__` returns it, and the
 * first step ends it with the result.
 */
#include "await.h"

typedef struct {
    PyObject_HEAD PyObject *result; /* NULL after the step that returned it */
} ready_object;

static PyTypeObject *ready_type;

static PySendResult ready_step(PyObject *object, PyObject *Py_UNUSED(value), PyObject **sent) {
    ready_object *self = (ready_object *)object;
    *sent = self->result;
    self->result = NULL;
    if (*sent == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "expected one step of an await, got a second step after its end; "
                                            "await the object again");
        return PYGEN_ERROR;
    }
    return PYGEN_RETURN;
}

static PyObject *ready_send(PyObject *object, PyObject *value) {
    PyObject *sent;
    return ready_step(object, value, &sent) == PYGEN_RETURN ? end_iteration(sent) : NULL;
}

static PyObject *ready_next(PyObject *object) {
    return ready_send(object, Py_None);
}

static int ready_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((ready_object *)object)->result);
    return 0;
}

static int ready_clear(PyObject *object) {
    Py_CLEAR(((ready_object *)object)->result);
    return 0;
}

static void ready_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    ready_clear(object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMethodDef ready_methods[] = {
    {"send", ready_send, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot ready_slots[] = {
    {Py_tp_doc, (void *)"An await whose result is known."},
    {Py_tp_dealloc, (void *)ready_dealloc},
    {Py_tp_traverse, (void *)ready_traverse},
    {Py_tp_clear, (void *)ready_clear},
    {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)ready_next},
    {Py_am_send, (void *)ready_step},
    {Py_tp_methods, ready_methods},
    {0, NULL},
};

static PyType_Spec ready_spec = {
    .name = "aioacl._await.Ready",
    .basicsize = sizeof(ready_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = ready_slots,
};

PyObject *ready(PyObject *result) {
    ready_object *self = PyObject_GC_New(ready_object, ready_type);
    if (self == NULL) {
        Py_DECREF(result);
        return NULL;
    }
    self->result = result;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

int add_ready(PyObject *module) {
    ready_type = add_type(module, "Ready", &ready_spec);
    return ready_type ? 0 : -1;
}
