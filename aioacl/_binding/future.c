/*
 * The Await as a future of asyncio, for which its own task waits.
 *
 * A task of asyncio waits for any object that has the protocol of its futures. The Await yields itself. The
 * task sets `_asyncio_future_blocking` to False and calls `add_done_callback` with the function that runs its
 * next step. So a wait needs no Future. When the completion is taken, the port lists the Await as ready
 * (awaits.c). One callback of the loop then runs the next steps of all ready tasks, so a batch needs one
 * Handle.
 *
 * Before the next step, the task calls `result`, which raises CancelledError if the task was cancelled
 * meanwhile. As with a Future, a cancellation that comes after the completion is raised by the next step of the
 * task. If other code closes the Await while its task waits, the callback stays, so that the completion or a
 * cancellation still wakes the task.
 */
#include "await.h"

static PyObject *cancelled_error, *copy_context, *future_class, *invalid_state;

static bool is_done(const await_object *self) {
    return self->cancelled || self->result != aio_failed(AIO_PENDING);
}

/* Whether a task may begin to wait for the Await. */
static bool is_future(const await_object *self) {
    return self->loop != NULL && self->state == SUSPENDED;
}

/* --- waking the task ------------------------------------------------------------------------------------- */

/* Whether the task has run out of memory before its next step. That step would have ended the Await. */
static bool may_wake_again(const await_object *self) {
    return self->state == SUSPENDED && self->waiter == NULL && PyErr_ExceptionMatches(PyExc_MemoryError);
}

/* Keeps the callback if a later call can try again. */
int future_wake(await_object *self) {
    PyObject *callback = self->waiter, *context = self->context;
    if (callback == NULL) {
        return 0;
    }
    self->waiter = NULL;
    self->context = NULL;
    PyObject *done = PyObject_CallMethodObjArgs(context, names.run, callback, (PyObject *)self, NULL);
    if (done == NULL && may_wake_again(self)) {
        self->waiter = callback;
        self->context = context;
        return -1;
    }
    Py_DECREF(callback);
    Py_DECREF(context);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Returns the Handle of the loop, or NULL with an exception. */
static PyObject *schedule(await_object *self, PyObject *callback, PyObject *context) {
    PyObject *call_soon = PyObject_GetAttr(self->loop, names.call_soon);
    PyObject *arguments = call_soon ? PyTuple_Pack(2, callback, (PyObject *)self) : NULL;
    PyObject *keywords = arguments ? PyDict_New() : NULL;
    PyObject *handle = NULL;
    if (keywords != NULL && PyDict_SetItem(keywords, names.context, context) == 0) {
        handle = PyObject_Call(call_soon, arguments, keywords);
    }
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(call_soon);
    return handle;
}

/* Clears the fields first, because a finalizer that runs in an allocation may end the Await. */
int future_wake_soon(await_object *self) {
    PyObject *callback = self->waiter, *context = self->context;
    if (callback == NULL) {
        return 0;
    }
    self->waiter = NULL;
    self->context = NULL;
    PyObject *handle = schedule(self, callback, context);
    if (handle == NULL && self->waiter == NULL) { /* Ctrl-C, perhaps: a later call tries again */
        self->waiter = callback;
        self->context = context;
        return -1;
    }
    Py_DECREF(callback);
    Py_DECREF(context);
    Py_XDECREF(handle);
    return handle ? 0 : -1;
}

/* --- the methods of futures ------------------------------------------------------------------------------ */

/* Returns the argument `context` of a call of add_done_callback as a new reference. */
static PyObject *context_of(PyObject *const *arguments, Py_ssize_t count, PyObject *keywords) {
    Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    if (count != 1 || named > 1 ||
        (named == 1 && PyUnicode_Compare(PyTuple_GetItem(keywords, 0), names.context) != 0)) {
        PyErr_SetString(PyExc_TypeError,
                        "expected add_done_callback(callback, *, context=None), got other arguments");
        return NULL;
    }
    return named == 1 && arguments[1] != Py_None ? Py_NewRef(arguments[1]) : PyObject_CallNoArgs(copy_context);
}

PyObject *future_add_done_callback(PyObject *object, PyObject *const *arguments, Py_ssize_t count,
                                   PyObject *keywords) {
    await_object *self = (await_object *)object;
    PyObject *context = context_of(arguments, count, keywords);
    if (context == NULL) {
        return NULL;
    }
    if (self->waiter != NULL || !is_future(self)) {
        PyErr_SetString(PyExc_RuntimeError, "expected a suspended await without a callback, got another await; "
                                            "drive each await by one task of an asyncio loop");
        Py_DECREF(context);
        return NULL;
    }
    replace(&self->waiter, Py_NewRef(arguments[0]));
    replace(&self->context, context);
    if (is_done(self) && future_wake_soon(self) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *future_remove_done_callback(PyObject *object, PyObject *callback) {
    await_object *self = (await_object *)object;
    int equal = self->waiter ? PyObject_RichCompareBool(self->waiter, callback, Py_EQ) : 0;
    if (equal > 0) {
        Py_CLEAR(self->waiter);
        Py_CLEAR(self->context);
    }
    return equal < 0 ? NULL : PyLong_FromLong(equal);
}

/* Schedules the callback also if the Await is done: an interrupt of the loop may have lost the earlier call. */
PyObject *future_cancel(PyObject *object, PyObject *arguments, PyObject *keywords) {
    static char *parameters[] = {"msg", NULL};
    await_object *self = (await_object *)object;
    PyObject *message = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O", parameters, &message)) {
        return NULL;
    }
    if (self->writes && !is_done(self)) { /* the task raises the cancellation after the completion */
        Py_RETURN_FALSE;
    }
    bool cancels = !is_done(self) && (self->waiter != NULL || is_future(self));
    if (cancels) {
        self->cancelled = 1;
        replace(&self->message, Py_NewRef(message));
    }
    return future_wake_soon(self) < 0 ? NULL : PyBool_FromLong(cancels);
}

/* Returns None: the next step of the task raises a failure of the work. */
PyObject *future_result(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    const await_object *self = (await_object *)object;
    if (self->cancelled) {
        bool silent = self->message == NULL || self->message == Py_None;
        PyObject *error = PyObject_CallFunctionObjArgs(cancelled_error, silent ? NULL : self->message, NULL);
        if (error != NULL) {
            PyErr_SetObject(cancelled_error, error);
            Py_DECREF(error);
        }
        return NULL;
    }
    if (!is_done(self)) {
        PyErr_SetString(invalid_state, "expected an await that is done, got one in progress");
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *future_done(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(is_done((await_object *)object));
}

PyObject *future_cancelled(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(((await_object *)object)->cancelled);
}

PyObject *future_get_loop(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    PyObject *loop = ((await_object *)object)->loop;
    return Py_NewRef(loop ? loop : Py_None);
}

/* If the value is None, asyncio does not treat the Await as a future. */
PyObject *future_blocking(PyObject *object, void *Py_UNUSED(closure)) {
    const await_object *self = (await_object *)object;
    return is_future(self) ? PyBool_FromLong(self->blocking) : Py_NewRef(Py_None);
}

int future_set_blocking(PyObject *object, PyObject *value, void *Py_UNUSED(closure)) {
    int truth = value ? PyObject_IsTrue(value) : 0;
    ((await_object *)object)->blocking = truth > 0;
    return truth < 0 ? -1 : 0;
}

/* isinstance() reads `__class__`. anyio does not cancel a task that waits for a Future that is done. */
PyObject *future_or_await(PyObject *object, void *Py_UNUSED(closure)) {
    bool future = is_future((await_object *)object);
    return Py_NewRef(future ? future_class : (PyObject *)Py_TYPE(object));
}

int add_futures(void) {
    cancelled_error = attribute_of("asyncio", "CancelledError");
    copy_context = attribute_of("contextvars", "copy_context");
    future_class = attribute_of("asyncio", "Future");
    invalid_state = attribute_of("asyncio", "InvalidStateError");
    return cancelled_error && copy_context && future_class && invalid_state ? 0 : -1;
}
