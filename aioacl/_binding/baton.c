/*
 * Baton: a lock that `with baton as mine:` takes without waiting. `mine` is False if another thread has it, or
 * this thread in a frame below: a signal handler or a finalizer has interrupted its owner.
 *
 * An exception of a signal handler may come between any two lines of Python, but not within `with`, whose two
 * calls of these functions have no step of the interpreter between them and the block. So the exception cannot
 * leave the baton taken.
 */
#include "binding.h"

typedef struct {
    PyObject_HEAD unsigned long owner; /* the number of the thread; 0: none */
    int inside;                        /* the blocks of the owner that have not got it */
} baton_object;

static PyObject *enter(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    baton_object *self = (baton_object *)object;
    unsigned long thread = PyThread_get_thread_ident();
    bool taken = self->owner == 0;
    if (taken) {
        self->owner = thread;
    } else if (self->owner == thread) {
        self->inside++;
    }
    return PyBool_FromLong(taken);
}

static PyObject *leave(PyObject *object, PyObject *Py_UNUSED(error)) {
    baton_object *self = (baton_object *)object;
    if (self->owner == PyThread_get_thread_ident()) {
        if (self->inside > 0) {
            self->inside--;
        } else {
            self->owner = 0;
        }
    }
    Py_RETURN_FALSE;
}

static PyMethodDef baton_methods[] = {
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", leave, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot baton_slots[] = {
    {Py_tp_doc, (void *)"A lock that `with` takes without waiting."},
    {Py_tp_dealloc, (void *)free_object},
    {Py_tp_methods, baton_methods},
    {0, NULL},
};

static PyType_Spec baton_spec = {
    .name = "aioacl._await.Baton",
    .basicsize = sizeof(baton_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = baton_slots,
};

int add_baton(PyObject *module) {
    return add_type(module, "Baton", &baton_spec) ? 0 : -1;
}
