/*
 * Awaits in a trio run: the Await forwards its steps to a coroutine of trio, which suspends the task or runs a
 * checkpoint. See await.c.
 */
#include "await.h"

/* sys.modules. The module keeps it, because PyImport_GetModuleDict aborts the process in the last phase of the
 * interpreter, in which coroutines may still be finalized. The dict is empty then. */
static PyObject *modules;
static PyObject *in_run;  /* trio.lowlevel.in_trio_run; NULL: trio is not imported yet */
static PyObject *library; /* sniffio.thread_local, whose name is "trio" within the turns of a trio run */
/* Of trio.lowlevel; NULL before the first port of a run is made. */
static PyObject *checkpoint, *current_task, *reschedule, *succeeded, *failed, *wait_task_rescheduled;

/* Sets `in_run` and `library` if trio is imported. While another thread imports trio, the module has no
 * attributes yet, and no run exists. `library` stays NULL with a release of trio that does not import sniffio.
 */
static void find_trio(void) {
    PyObject *trio = PyDict_GetItem(modules, names.trio);
    PyObject *lowlevel = trio ? PyObject_GetAttr(trio, names.lowlevel) : NULL;
    PyObject *function = lowlevel ? PyObject_GetAttr(lowlevel, names.in_trio_run) : NULL;
    PyObject *sniffio = function ? PyDict_GetItem(modules, names.sniffio) : NULL;
    library = sniffio ? PyObject_GetAttr(sniffio, names.thread_local) : NULL;
    in_run = function;
    Py_XDECREF(lowlevel);
    PyErr_Clear();
}

/* Returns 1 in a trio run, 0 elsewhere, -1 with an exception. In guest mode, `in_trio_run` also returns True to
 * tasks of the host loop. But trio sets the name in `library` only while it runs code of its own tasks. */
int in_trio(void) {
    if (in_run == NULL) {
        find_trio();
    }
    if (in_run == NULL) {
        return 0;
    }
    if (library == NULL) {
        PyObject *answer = PyObject_CallNoArgs(in_run);
        int truth = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        return truth;
    }
    PyObject *name = PyObject_GetAttr(library, names.name);
    int is_trio = name == NULL ? -1 : PyUnicode_Check(name) && PyUnicode_Compare(name, names.trio) == 0;
    Py_XDECREF(name);
    return is_trio;
}

/* Runs the first step of a new coroutine of trio, whose reference it takes. */
static PySendResult enter(await_object *self, PyObject *coroutine, PyObject **sent) {
    self->inner = coroutine;
    return coroutine == NULL ? PYGEN_ERROR : trio_step(self, Py_None, sent);
}

PySendResult trio_suspend(await_object *self, PyObject **sent) {
    PyObject *abort = PyObject_GetAttr((PyObject *)self, names._abort);
    PyObject *coroutine = NULL;
    self->waiter = abort ? PyObject_CallNoArgs(current_task) : NULL;
    if (self->waiter != NULL) {
        coroutine = PyObject_CallFunctionObjArgs(wait_task_rescheduled, abort, NULL);
    }
    Py_XDECREF(abort);
    self->state = SUSPENDED;
    return enter(self, coroutine, sent);
}

PySendResult trio_checkpoint(await_object *self, PyObject **sent) {
    self->state = YIELDED;
    return enter(self, PyObject_CallNoArgs(checkpoint), sent);
}

PySendResult trio_step(await_object *self, PyObject *value, PyObject **sent) {
    PyObject *inner = self->inner;
    Py_INCREF(inner); /* the step may clear it */
    PySendResult outcome = PyIter_Send(inner, value, sent);
    Py_DECREF(inner);
    return outcome;
}

int trio_wake(PyObject *task) {
    PyObject *done = PyObject_CallFunctionObjArgs(reschedule, task, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

PyObject *trio_abort(PyObject *object, PyObject *Py_UNUSED(raise_cancel)) {
    if (((await_object *)object)->loop != NULL || succeeded == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "expected an await of a trio run, got another await; only trio calls this function");
        return NULL;
    }
    if (((await_object *)object)->writes) {
        return Py_NewRef(failed);
    }
    Py_CLEAR(((await_object *)object)->waiter);
    Py_INCREF(succeeded);
    return succeeded;
}

/* For Python: sets the functions of trio.lowlevel that the awaits of a run call. Several threads may call it.
 */
static PyObject *bind_trio(PyObject *Py_UNUSED(module), PyObject *lowlevel) {
    PyObject *abort = PyObject_GetAttrString(lowlevel, "Abort");
    checkpoint = PyObject_GetAttrString(lowlevel, "checkpoint");
    current_task = PyObject_GetAttrString(lowlevel, "current_task");
    reschedule = PyObject_GetAttrString(lowlevel, "reschedule");
    wait_task_rescheduled = PyObject_GetAttrString(lowlevel, "wait_task_rescheduled");
    succeeded = abort ? PyObject_GetAttrString(abort, "SUCCEEDED") : NULL;
    failed = abort ? PyObject_GetAttrString(abort, "FAILED") : NULL;
    Py_XDECREF(abort);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *in_trio_now(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    int in_run_now = in_trio();
    return in_run_now < 0 ? NULL : PyBool_FromLong(in_run_now);
}

static PyMethodDef functions[] = {
    {"bind_trio", bind_trio, METH_O, NULL},
    {"in_trio", in_trio_now, METH_NOARGS, "Whether trio runs code on this thread now."},
    {NULL, NULL, 0, NULL},
};

int add_trio(PyObject *module) {
    modules = Py_NewRef(PyImport_GetModuleDict());
    return PyModule_AddFunctions(module, functions);
}
