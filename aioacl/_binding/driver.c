/*
 * The base of Runner: the news of a batcher, which one thread at a time handles.
 *
 * A piece of news is a method of the runner and its arguments. `tell` appends one, and then drives: it calls
 * the methods in order, and `_decide` whenever no news is left. If another thread drives, or this thread in a
 * frame below, `tell` returns at once, and the driver handles the news. So no thread waits, and a finalizer or
 * a signal handler that interrupts the driver cannot deadlock. Between the driver's last look at the news and
 * the end of its drive, no step of the interpreter lets another thread or a signal handler in, so no news is
 * missed.
 *
 * An exception of a signal handler may end a drive early. Then the thread of the batcher handles the rest.
 * Where Ctrl-C raises KeyboardInterrupt, `uninterrupted` puts it off until the end of the drive.
 */
#include "batches.h"

#include <signal.h>

enum { MOST_ARGUMENTS = 2 };

PyTypeObject *runner_type;
static PyObject *handler_of, *sigint, *raises_interrupt; /* of the module `_signal` */
static PyObject *uninterrupted;                          /* of aioacl._batches.interrupts */
static unsigned long main_thread;

/* --- Ctrl-C ---------------------------------------------------------------------------------------------- */

/* Whether Ctrl-C raises KeyboardInterrupt in any line of this thread. -1 with an exception. */
static int is_interruptible(void) {
    if (PyThread_get_thread_ident() != main_thread) {
        return 0;
    }
    PyObject *handler = PyObject_CallFunctionObjArgs(handler_of, sigint, NULL);
    Py_XDECREF(handler);
    return handler == NULL ? -1 : handler == raises_interrupt;
}

static PyObject *interruptible(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    int answer = is_interruptible();
    return answer < 0 ? NULL : PyBool_FromLong(answer);
}

int restore_error(PyObject *type, PyObject *value, PyObject *traceback) {
    if (!PyErr_Occurred()) {
        PyErr_Restore(type, value, traceback);
        return 0;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return -1;
}

/* --- driving --------------------------------------------------------------------------------------------- */

static bool has_news(const runner_object *self) {
    return self->news != NULL && PyList_Size(self->news) > 0;
}

/* Removes the first news and returns it, a new reference. */
static PyObject *take_news(runner_object *self) {
    PyObject *first = Py_NewRef(PyList_GetItem(self->news, self->handled));
    self->handled++;
    if (self->handled == PyList_Size(self->news)) {
        PyList_SetSlice(self->news, 0, self->handled, NULL);
        self->handled = 0;
    } else {
        PyList_SetItem(self->news, self->handled - 1, Py_NewRef(Py_None));
    }
    return first;
}

/* Calls the method of a piece of news; of no news, `_decide`. Returns whether it has returned True, or -1 with
 * an exception of a signal handler. Another exception is an error of the batcher, and `_fail_all` reports it.
 */
static int handle(runner_object *self, PyObject *news) {
    PyObject *done, *type, *value, *traceback;
    if (news == NULL) {
        done = PyObject_CallMethodObjArgs((PyObject *)self, names._decide, NULL);
    } else {
        Py_ssize_t size = PyTuple_Size(news);
        done =
            PyObject_CallFunctionObjArgs(PyTuple_GetItem(news, 0), size > 1 ? PyTuple_GetItem(news, 1) : NULL,
                                         size > 2 ? PyTuple_GetItem(news, 2) : NULL, NULL);
    }
    if (done == NULL) {
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        if (traceback != NULL) {
            PyException_SetTraceback(value, traceback);
        }
        done =
            PyObject_CallMethodObjArgs((PyObject *)self, names._fail_all, value, news ? news : Py_None, NULL);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    Py_XDECREF(done);
    return done == NULL ? -1 : done == Py_True;
}

/* Handles all news. Returns -1 with an exception of a signal handler; then some may be left. */
static int handle_all(runner_object *self) {
    int more = 1;
    self->driver = PyThread_get_thread_ident();
    while (more > 0) {
        PyObject *news = has_news(self) ? take_news(self) : NULL;
        more = handle(self, news);
        if (more == 0) {
            more = news != NULL || has_news(self);
        }
        Py_XDECREF(news);
    }
    self->driver = 0;
    return more;
}

/* Drives, unless this happens already. Returns -1 with an exception of a signal handler. */
static int drive(runner_object *self) {
    if (self->driver != 0 || !has_news(self)) {
        return 0;
    }
    int failed = is_interruptible();
    if (failed == 0) {
        failed = handle_all(self);
    } else if (failed > 0) { /* calls this function once more, while Ctrl-C is put off */
        PyObject *again = PyObject_GetAttr((PyObject *)self, names.drive);
        PyObject *done = again ? PyObject_CallFunctionObjArgs(uninterrupted, again, NULL) : NULL;
        failed = done ? 0 : -1;
        Py_XDECREF(done);
        Py_XDECREF(again);
    }
    if (failed < 0 && has_news(self)) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        Py_XDECREF(PyObject_CallMethodObjArgs((PyObject *)self, names._drive_later, NULL));
        restore_error(type, value, traceback);
    }
    return failed;
}

/* Appends news, a tuple of a method and its arguments, and drives. Returns -1 with an exception. */
static int add_news(runner_object *self, PyObject *news) {
    if (self->news == NULL) {
        self->news = PyList_New(0);
    }
    if (self->news == NULL || PyList_Append(self->news, news) < 0) {
        return -1;
    }
    return drive(self);
}

int arrive(runner_object *self, PyObject *turn) {
    PyObject *method = PyObject_GetAttr((PyObject *)self, names._arrive);
    PyObject *news = method ? PyTuple_Pack(2, method, turn) : NULL;
    int failed = news ? add_news(self, news) : -1;
    Py_XDECREF(news);
    Py_XDECREF(method);
    return failed;
}

/* --- the type -------------------------------------------------------------------------------------------- */

/* tell(method, *arguments), with at most two arguments. */
static PyObject *runner_tell(PyObject *self, PyObject *news) {
    Py_ssize_t size = PyTuple_Size(news);
    if (size < 1 || size > 1 + MOST_ARGUMENTS) {
        return PyErr_Format(PyExc_TypeError, "expected a method and at most 2 arguments, got %zd objects",
                            size);
    }
    return add_news((runner_object *)self, news) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *runner_arrive(PyObject *self, PyObject *turn) {
    return arrive((runner_object *)self, turn) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *runner_drive(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return drive((runner_object *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static int runner_traverse(PyObject *object, visitproc visit, void *arg) {
    runner_object *self = (runner_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->refusal);
    Py_VISIT(self->last);
    Py_VISIT(self->spec);
    Py_VISIT(self->shape);
    Py_VISIT(self->news);
    return 0;
}

static int runner_clear(PyObject *object) {
    runner_object *self = (runner_object *)object;
    Py_CLEAR(self->refusal);
    Py_CLEAR(self->last);
    Py_CLEAR(self->spec);
    Py_CLEAR(self->shape);
    Py_CLEAR(self->news);
    self->handled = 0;
    return 0;
}

static void runner_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    runner_clear(object);
    free_object(object);
}

static PyMethodDef runner_methods[] = {
    {"arrive", runner_arrive, METH_O, NULL},
    {"drive", runner_drive, METH_NOARGS, NULL},
    {"tell", runner_tell, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef runner_members[] = {
    {"refusal", T_OBJECT, offsetof(runner_object, refusal), 0, NULL},
    {"last", T_OBJECT, offsetof(runner_object, last), 0, NULL},
    {"max_rows", T_PYSSIZET, offsetof(runner_object, max_rows), 0, NULL},
    {"spec", T_OBJECT, offsetof(runner_object, spec), 0, NULL},
    {"shape", T_OBJECT, offsetof(runner_object, shape), 0, NULL},
    {"driver", T_ULONG, offsetof(runner_object, driver), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot runner_slots[] = {
    {Py_tp_doc, (void *)"The base of Runner."},
    {Py_tp_dealloc, (void *)runner_dealloc},
    {Py_tp_traverse, (void *)runner_traverse},
    {Py_tp_clear, (void *)runner_clear},
    {Py_tp_methods, (void *)runner_methods},
    {Py_tp_members, (void *)runner_members},
    {0, NULL},
};

static PyType_Spec runner_spec = {
    .name = "aioacl._await.RunnerBase",
    .basicsize = sizeof(runner_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = runner_slots,
};

/* bind_driver(uninterrupted, main_thread): the function of aioacl._batches.interrupts, and the number of the
 * main thread. */
static PyObject *bind_driver(PyObject *Py_UNUSED(module), PyObject *arguments) {
    PyObject *function;
    if (!PyArg_ParseTuple(arguments, "Ok", &function, &main_thread)) {
        return NULL;
    }
    replace(&uninterrupted, Py_NewRef(function));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"bind_driver", bind_driver, METH_VARARGS, NULL},
    {"interruptible", interruptible, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_driver(PyObject *module) {
    /* Those of the module `signal` try to make an enum of each handler, which takes longer than all the rest.
     */
    handler_of = attribute_of("_signal", "getsignal");
    raises_interrupt = attribute_of("_signal", "default_int_handler");
    sigint = PyLong_FromLong(SIGINT);
    runner_type = add_type(module, "RunnerBase", &runner_spec);
    if (handler_of == NULL || raises_interrupt == NULL || sigint == NULL || runner_type == NULL) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
