/*
 * Awaits on an event loop. An await that succeeds runs no Python code of aioacl.
 *
 * `Awaitable` is the base of Ticket, Event and Stream. On a thread that runs an asyncio loop or a trio run, its
 * `__await__` returns a new `Await`. On any other thread, it calls `_await_in_python`. The first step of an
 * Await asks the engine for the outcome of the position. If the outcome is not known, this step begins a wait
 * under a key, and suspends the task. A task of asyncio then waits for the Await, which is a future (future.c).
 * A task of trio waits in a coroutine of trio (trio.c). `Awaits` is the base of AsyncioPort and TrioPort
 * (awaits.c). It takes the loop's completions from the engine and wakes the tasks.
 *
 * The key is the address of the Await, with the highest bit set. No address of a process has this bit. Waits
 * that Python code begins have keys without this bit, and their completions are passed to Python in the dict
 * `_came`. The engine publishes a completion only to the port of the wait, and only the loop's thread takes the
 * completion. After the wait of an Await has begun, the port refers to the Await until the completion is taken,
 * even if the task was cancelled. So when a completion is taken, the Await of its key still exists. The port
 * then refers to it until its task goes on.
 *
 * The Await of a Run (call.c) begins a call of a model in its first step. The completion of large results is a
 * second wait of the same Await, under the same key.
 *
 * The GIL is held, except during the calls of the engine that may reach ACL. Signal handlers run only in calls
 * of Python code: functions of asyncio and trio, and the code that creates errors.
 */
#include "call.h"

enum { LOOPS = 8 };

/* The loops that were used last, and their ports: weak references. */
static struct {
    PyObject *loop;
    PyObject *port;
} loops[LOOPS];

static PyTypeObject *await_type;
static PyObject *running_loop, *current_port, *must_not_be_forked;
static bool plain; /* every await runs in Python: AIOACL_PLAIN_AWAITS */

/* --- the loop of this thread ----------------------------------------------------------------------------- */

/* Python 3.13 deprecates this function, and the headers of Python 3.15 do not declare it. The stable ABI keeps
 * it. Its successor is not in the stable ABI of Python 3.11. The borrowed reference is safe under the GIL: no
 * code runs before the caller takes a reference or drops it. */
PyAPI_FUNC(PyObject *) PyWeakref_GetObject(PyObject *);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static PyObject *referent(PyObject *reference) {
    PyObject *object = reference ? PyWeakref_GetObject(reference) : NULL;
    return object == Py_None ? NULL : object;
}
#pragma GCC diagnostic pop

static void remember(size_t index, PyObject *loop, PyObject *port) {
    PyObject *of_loop = PyWeakref_NewRef(loop, NULL), *of_port = PyWeakref_NewRef(port, NULL);
    if (of_loop == NULL || of_port == NULL) {
        PyErr_Clear(); /* the next await asks Python again */
        Py_CLEAR(of_loop);
        Py_CLEAR(of_port);
    }
    PyObject *old_loop = loops[index].loop, *old_port = loops[index].port;
    loops[index].loop = of_loop;
    loops[index].port = of_port;
    Py_XDECREF(old_loop);
    Py_XDECREF(old_port);
}

/* Whether this thread runs the loop. If `loop` is NULL, whether this thread runs trio. Returns -1 with an
 * exception. */
static int is_running(PyObject *loop) {
    int trio = in_trio();
    if (trio != 0) {
        return trio < 0 ? -1 : loop == NULL;
    }
    PyObject *running = PyObject_CallNoArgs(running_loop);
    bool same = running != NULL && running == loop;
    Py_XDECREF(running);
    return running == NULL ? -1 : same;
}

/* Returns a new reference to the port of the loop that runs on this thread. `loop` is NULL in a trio run. */
static awaits_object *port_of(PyObject *loop) {
    size_t index = ((uintptr_t)loop >> 6) % LOOPS;
    bool known = loop != NULL && referent(loops[index].loop) == loop;
    PyObject *port = known ? referent(loops[index].port) : NULL;
    if (port != NULL) {
        Py_INCREF(port);
        return (awaits_object *)port;
    }
    int running = is_running(loop);
    if (running == 0) {
        PyErr_SetString(PyExc_RuntimeError, "expected a step on the event loop that made the await, got a step "
                                            "elsewhere; await the object again on this loop");
    }
    port = running == 1 ? PyObject_CallNoArgs(current_port) : NULL;
    if (port != NULL && !PyObject_TypeCheck(port, awaits_type)) {
        PyErr_SetString(PyExc_RuntimeError, "expected the port of an event loop, got the port of a thread");
        Py_CLEAR(port);
    }
    if (port != NULL && loop != NULL) {
        remember(index, loop, port);
    }
    return (awaits_object *)port;
}

/* --- Await ----------------------------------------------------------------------------------------------- */

/* Warns if the await was the last one of a closed stream with a failure. Keeps an exception that is set.
 * Returns -1 if the warning was raised as an exception, which then replaces the exception that was set. */
static int leave_core(core_object *core) {
    if (--core->awaits > 0 || !core->gone) {
        return 0;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *done = PyObject_CallMethodObjArgs((PyObject *)core, names.warn_of_closed, NULL);
    if (done == NULL) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return -1;
    }
    Py_DECREF(done);
    PyErr_Restore(type, value, traceback);
    return 0;
}

/* Ends the await for its task, with the exceptions of `leave_core`. The task may close the stream while a
 * callback of the loop still refers to the Await. So that the cache can keep the stream, the Await then refers
 * to the core only if its completion has not been taken. */
static int leave(await_object *self) {
    enum await_state before = self->state;
    core_object *core = self->core;
    PyObject *run = self->run;
    self->state = OVER;
    self->run = NULL;
    if (run != NULL) {
        run_leave(run);
        Py_DECREF(run);
    }
    Py_CLEAR(self->awaited);
    Py_CLEAR(self->inner);
    if (self->loop == NULL) { /* a task of asyncio may still wait: see future.c */
        Py_CLEAR(self->waiter);
    }
    if (before == OVER || core == NULL) {
        return 0;
    }
    bool taken = self->link == NULL;
    if (taken) {
        self->core = NULL;
    }
    int left = leave_core(core);
    if (taken) {
        Py_DECREF((PyObject *)core);
    }
    return left;
}

static void raise_failure(const await_object *self) {
    PyObject *result = PyLong_FromLongLong(self->result);
    PyObject *position = PyLong_FromUnsignedLongLong(self->position);
    PyObject *error = NULL;
    if (result != NULL && position != NULL) {
        error = PyObject_CallMethodObjArgs((PyObject *)self->core, names.failure, result, position, self->call,
                                           NULL);
    }
    Py_XDECREF(result);
    Py_XDECREF(position);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
}

static PySendResult suspend(await_object *self, PyObject **sent);
static PySendResult in_python(await_object *self, PyObject *value, PyObject **sent);

/* The run of the call has failed, or could not begin: the coroutine raises its error, or calls once more. */
static PySendResult continue_call(await_object *self, PyObject *call, PyObject *run, PyObject **sent) {
    PyObject *coroutine = PyObject_CallMethodObjArgs(call, names._after, run, NULL);
    if (leave(self) < 0 || coroutine == NULL) {
        Py_XDECREF(coroutine);
        return PYGEN_ERROR;
    }
    self->inner = coroutine;
    self->state = IN_PYTHON;
    return in_python(self, Py_None, sent);
}

static PySendResult after_call(await_object *self, enum run_end end, PyObject **sent) {
    PyObject *call = Py_NewRef(self->awaited), *run = Py_NewRef(self->run);
    PySendResult outcome = PYGEN_ERROR;
    if (end == RUN_ERROR) {
        operation_failed(call, PyErr_Occurred());
        leave(self);
    } else if (*sent == Py_None) {
        Py_CLEAR(*sent);
        Py_CLEAR(self->run); /* the coroutine needs the run */
        outcome = continue_call(self, call, run, sent);
    } else {
        operation_done(call);
        Py_CLEAR(self->run);
        outcome = leave(self) < 0 ? PYGEN_ERROR : PYGEN_RETURN;
    }
    Py_DECREF(call);
    Py_DECREF(run);
    return outcome;
}

/* The results of a call of a model: ends the await, or waits until they are written. */
static PySendResult finish_run(await_object *self, PyObject **sent) {
    awaits_object *port = port_of(self->loop);
    if (port == NULL) {
        leave(self);
        return PYGEN_ERROR;
    }
    aio_result result = self->result;
    uint64_t key = (uint64_t)(uintptr_t)self | KEY_OF_AWAIT;
    self->result = aio_failed(AIO_PENDING);
    list_await(port, self);
    enum run_end end = run_end(self->run, result, port->port, key, sent);
    if (end == RUN_WRITES) {
        self->writes = (char)run_has_targets(self->run);
        Py_DECREF((PyObject *)port);
        return suspend(self, sent);
    }
    unlist_await(self);
    Py_DECREF((PyObject *)self);
    Py_DECREF((PyObject *)port);
    self->result = result;
    if (self->of_call) {
        return after_call(self, end, sent);
    }
    if (end == RUN_OVER) { /* after a failure, the caller needs the run */
        Py_CLEAR(self->run);
    }
    return leave(self) < 0 || end == RUN_ERROR ? PYGEN_ERROR : PYGEN_RETURN;
}

static PySendResult finish(await_object *self, PyObject **sent) {
    if (self->run != NULL) {
        return finish_run(self, sent);
    }
    if (self->core == NULL) { /* the loop of a call of a model was closed */
        PyErr_SetString(PyExc_RuntimeError,
                        "expected an await of an open event loop, got one whose loop is closed; "
                        "call the model again on another loop");
        leave(self);
        return PYGEN_ERROR;
    }
    bool failed = self->result < 0;
    if (failed) {
        raise_failure(self);
    }
    if (leave(self) < 0 || failed) {
        return PYGEN_ERROR;
    }
    Py_INCREF(Py_None);
    *sent = Py_None;
    return PYGEN_RETURN;
}

/* Finds the stream and the position of the awaited object, or its run. */
static int resolve(await_object *self) {
    if (self->of_call) { /* it has its run */
        return 0;
    }
    if (PyObject_TypeCheck(self->awaited, position_type)) {
        const position_object *ticket = (position_object *)self->awaited;
        if (ticket->core == NULL) {
            PyErr_SetString(PyExc_RuntimeError,
                            "expected a ticket of a stream, got one that was not initialized");
            return -1;
        }
        self->core = ticket->core;
        self->call = ticket->call;
        self->position = ticket->position;
        Py_INCREF((PyObject *)self->core);
        Py_INCREF(self->call);
        return 0;
    }
    if (is_run(self->awaited)) {
        self->run = Py_NewRef(self->awaited);
        return 0;
    }
    PyObject *target = PyObject_CallMethodObjArgs(self->awaited, names._target, NULL);
    PyObject *core = NULL, *call = NULL;
    unsigned long long position = 0;
    if (target == NULL || !PyArg_ParseTuple(target, "O!KU", core_type, &core, &position, &call)) {
        Py_XDECREF(target);
        return -1;
    }
    Py_INCREF(core);
    Py_INCREF(call);
    self->core = (core_object *)core;
    self->call = call;
    self->position = position;
    Py_DECREF(target);
    return 0;
}

/* An exception is set. */
static PySendResult fail(await_object *self) {
    if (self->of_call && self->awaited != NULL) {
        operation_failed(self->awaited, PyErr_Occurred());
    }
    leave(self);
    return PYGEN_ERROR;
}

/* The task runs again. */
static PySendResult woken(await_object *self, PyObject **sent) {
    if (self->result != aio_failed(AIO_PENDING)) {
        return finish(self, sent);
    }
    if (self->link == NULL) { /* the port is gone, and never takes the completion */
        PyErr_SetString(
            PyExc_RuntimeError,
            "expected an await of an open event loop, got one whose loop is closed; await the object "
            "again on another loop");
        return fail(self);
    }
    PyErr_SetString(
        PyExc_RuntimeError,
        "expected no step before the future is done, got one; drive the await by a task of the loop");
    return PYGEN_ERROR;
}

/* Handles the outcome of a step of trio's coroutine. An error is a cancellation of the task. */
static PySendResult after_trio(await_object *self, PySendResult outcome, PyObject **sent) {
    if (outcome == PYGEN_NEXT) {
        return outcome;
    }
    Py_CLEAR(self->inner);
    if (outcome == PYGEN_ERROR) {
        return fail(self);
    }
    Py_CLEAR(*sent);
    return woken(self, sent);
}

static PySendResult done_at_once(await_object *self, awaits_object *port, PyObject **sent) {
    if (self->core != NULL && release_done(self->core) < 0) {
        return fail(self);
    }
    if (self->loop == NULL) {
        return after_trio(self, trio_checkpoint(self, sent), sent);
    }
    int give_way = gives_way(port, self->loop);
    if (give_way < 0) {
        return fail(self);
    }
    if (give_way == 0) {
        return finish(self, sent);
    }
    self->state = YIELDED;
    Py_INCREF(Py_None);
    *sent = Py_None;
    return PYGEN_NEXT;
}

/* The wait has begun. */
static PySendResult suspend(await_object *self, PyObject **sent) {
    if (self->loop == NULL) {
        return after_trio(self, trio_suspend(self, sent), sent);
    }
    self->state = SUSPENDED;
    self->blocking = 1;
    Py_INCREF((PyObject *)self);
    *sent = (PyObject *)self;
    return PYGEN_NEXT;
}

static PySendResult begin_on(await_object *self, awaits_object *port, PyObject **sent) {
    aio_stream *stream = self->core->stream;
    uint64_t position = self->position, key = (uint64_t)(uintptr_t)self | KEY_OF_AWAIT;
    aio_port *native = port->port;
    aio_result pending = aio_failed(AIO_PENDING), result = aio_stream_known(stream, position);
    int code = 0;
    if (result != pending) {
        aio_flight_no_wait(stream, position, result);
    } else {
        list_await(port, self);
        PyThreadState *thread = PyEval_SaveThread();
        result = aio_stream_poll(stream, position);
        if (result == pending) {
            code = aio_watch(stream, position, native, key);
        }
        PyEval_RestoreThread(thread);
        if (result == pending && code == 0) {
            return suspend(self, sent);
        }
        unlist_await(self);
        Py_DECREF((PyObject *)self);
    }
    self->result = code ? aio_failed(code) : result;
    return done_at_once(self, port, sent);
}

static PySendResult begin_run(await_object *self, awaits_object *port, PyObject **sent) {
    if (!run_is_new(self->run)) { /* a wait with a time limit has ended */
        self->result = run_result(self->run);
        return finish_run(self, sent);
    }
    list_await(port, self);
    int code = run_begin(self->run, port->port, (uint64_t)(uintptr_t)self | KEY_OF_AWAIT, false);
    if (code == 0) {
        return suspend(self, sent);
    }
    unlist_await(self);
    Py_DECREF((PyObject *)self);
    self->result = aio_failed(code);
    return done_at_once(self, port, sent);
}

static PySendResult begin(await_object *self, PyObject **sent) {
    if (atomic_load(&aio_in_child)) {
        Py_XDECREF(PyObject_CallNoArgs(must_not_be_forked)); /* raises */
        return fail(self);
    }
    if (self->thread != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError, "expected the first step on the thread that made the await, got a "
                                            "step on another thread; await the object there");
        return fail(self);
    }
    PySendResult outcome = PYGEN_ERROR;
    awaits_object *port = resolve(self) < 0 ? NULL : port_of(self->loop);
    if (self->core != NULL) {
        self->core->awaits++;
    }
    if (port == NULL) {
        fail(self);
    } else if (self->run != NULL) {
        outcome = begin_run(self, port, sent);
    } else {
        outcome = begin_on(self, port, sent);
    }
    Py_XDECREF((PyObject *)port);
    return outcome;
}

bool end_started(awaits_object *port, await_object *self) {
    aio_result result = self->result;
    uint64_t key = (uint64_t)(uintptr_t)self | KEY_OF_AWAIT;
    PyObject *run = self->run, *value = NULL;
    if (run == NULL) { /* it was left */
        return true;
    }
    self->result = aio_failed(AIO_PENDING);
    list_await(port, self);
    enum run_end end = run_end(run, result, port->port, key, &value);
    if (end == RUN_WRITES) {
        return false;
    }
    unlist_await(self);
    Py_DECREF((PyObject *)self);
    self->result = result;
    self->raises = end == RUN_ERROR;
    if (end == RUN_ERROR) {
        PyObject *type, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    }
    self->run = NULL;
    self->value = value;
    Py_DECREF(run);
    return true;
}

/* The task that waits for a started call runs again, or is about to wait. The call goes on if it stops. */
static void stop_waiting(await_object *self) {
    self->state = STARTED;
    self->cancelled = 0;
    Py_CLEAR(self->waiter);
    Py_CLEAR(self->context);
    Py_CLEAR(self->message);
}

/* A step of a task that waits for a started call. Its results stay for `take`. */
static PySendResult step_started(await_object *self, PyObject **sent) {
    bool waited = self->state == SUSPENDED;
    if (self->result != aio_failed(AIO_PENDING)) {
        stop_waiting(self);
        *sent = Py_NewRef(Py_None);
        return PYGEN_RETURN;
    }
    if (self->link == NULL || waited) {
        return woken(self, sent);
    }
    if (self->loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "expected a loop of asyncio, got a trio run; pass a function to `_start`");
        return PYGEN_ERROR;
    }
    return suspend(self, sent);
}

/* Returns the outcome of an await that was started. */
static PyObject *await_take(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    await_object *self = (await_object *)object;
    PyObject *value = self->value;
    if (value == NULL) {
        return PyErr_Format(PyExc_RuntimeError,
                            "expected a started await that is done and not taken, got another");
    }
    self->value = NULL;
    leave(self);
    if (!self->raises) {
        return value;
    }
    PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    Py_DECREF(value);
    return NULL;
}

/* Runs the next step of the coroutine. */
static PySendResult in_python(await_object *self, PyObject *value, PyObject **sent) {
    PyObject *inner = Py_NewRef(self->inner); /* the step may clear it */
    PySendResult outcome = PyIter_Send(inner, value, sent);
    Py_DECREF(inner);
    if (outcome != PYGEN_NEXT) {
        self->state = OVER;
        Py_CLEAR(self->inner);
    }
    return outcome;
}

/* Another thread, or code that a step calls, may try to drive the await during the step. */
static bool may_step(const await_object *self) {
    if (self->stepping) {
        PyErr_SetString(PyExc_RuntimeError,
                        "expected an await that runs no step, got one whose step has not returned; drive each "
                        "await by one task");
    }
    return !self->stepping;
}

static PySendResult step(PyObject *object, PyObject *value, PyObject **sent) {
    await_object *self = (await_object *)object;
    PySendResult outcome = PYGEN_ERROR;
    *sent = NULL;
    if (!may_step(self)) {
        return PYGEN_ERROR;
    }
    self->stepping = 1;
    Py_INCREF(object); /* the code that makes an error may drop the last other reference */
    if (self->state == NEW) {
        outcome = begin(self, sent);
    } else if (self->state == OVER) {
        PyErr_SetString(PyExc_RuntimeError, "the await has ended; await the object again");
    } else if (self->state == IN_PYTHON) {
        outcome = in_python(self, value, sent);
    } else if (self->started) {
        outcome = step_started(self, sent);
    } else if (self->inner != NULL) {
        outcome = after_trio(self, trio_step(self, value, sent), sent);
    } else {
        outcome = woken(self, sent);
    }
    self->stepping = 0;
    Py_DECREF(object);
    return outcome;
}

/* Makes StopIteration itself: PyErr_SetObject would take a tuple or an exception apart. */
PyObject *end_iteration(PyObject *result) {
    PyObject *stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, result, NULL);
    Py_DECREF(result);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
    return NULL;
}

static PyObject *await_next(PyObject *self) {
    PyObject *sent;
    PySendResult outcome = step(self, Py_None, &sent);
    if (outcome == PYGEN_RETURN) {
        return end_iteration(sent);
    }
    return outcome == PYGEN_ERROR ? NULL : sent;
}

static PyObject *await_send(PyObject *self, PyObject *value) {
    PyObject *sent;
    PySendResult outcome = step(self, value, &sent);
    if (outcome == PYGEN_RETURN) {
        return end_iteration(sent);
    }
    return outcome == PYGEN_ERROR ? NULL : sent;
}

/* The task stops waiting before the wait has ended, with an exception of the type. */
static int end_wait(await_object *self, PyObject *type) {
    if (self->started && self->state != OVER) {
        stop_waiting(self);
        return 0;
    }
    if (self->of_call && self->awaited != NULL && PyType_Check(type)) {
        operation_failed(self->awaited, type);
    }
    return leave(self);
}

/* Raises the exception in the coroutine that continues a call. Returns what it yields next. */
static PyObject *throw_in_python(await_object *self, PyObject *arguments) {
    PyObject *throw = PyObject_GetAttrString(self->inner, "throw"); /* it has a reference to the coroutine */
    self->stepping = 1;
    PyObject *yielded = throw ? PyObject_Call(throw, arguments, NULL) : NULL;
    self->stepping = 0;
    if (yielded == NULL) {
        self->state = OVER;
        Py_CLEAR(self->inner);
    }
    Py_XDECREF(throw);
    return yielded;
}

void raise_given(PyObject *type, PyObject *value) {
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else if (PyExceptionClass_Check(type)) {
        PyErr_SetObject(type, value == NULL ? Py_None : value);
    } else {
        PyErr_SetString(PyExc_TypeError, "expected an exception to throw, got another object");
    }
}

/* Raises the exception in the task, for example on a cancellation. If a wait has begun, its completion is later
 * taken and ignored. */
static PyObject *await_throw(PyObject *object, PyObject *arguments) {
    await_object *self = (await_object *)object;
    PyObject *type, *value = NULL, *traceback = NULL;
    if (!PyArg_ParseTuple(arguments, "O|OO", &type, &value, &traceback) || !may_step(self)) {
        return NULL;
    }
    if (self->state == IN_PYTHON) {
        return throw_in_python(self, arguments);
    }
    PyObject *class = PyExceptionInstance_Check(type) ? (PyObject *)Py_TYPE(type) : type;
    if (end_wait(self, class) < 0) {
        return NULL;
    }
    raise_given(type, value);
    return NULL;
}

static PyObject *await_close(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    await_object *self = (await_object *)object;
    if (!may_step(self)) {
        return NULL;
    }
    if (self->state == IN_PYTHON) {
        PyObject *inner = self->inner;
        self->inner = NULL;
        self->state = OVER;
        PyObject *closed = PyObject_CallMethodObjArgs(inner, names.close, NULL);
        Py_DECREF(inner);
        return closed;
    }
    if (end_wait(self, PyExc_GeneratorExit) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static int await_traverse(PyObject *object, visitproc visit, void *arg) {
    await_object *self = (await_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->awaited);
    Py_VISIT(self->loop);
    Py_VISIT(self->core);
    Py_VISIT(self->call);
    Py_VISIT(self->waiter);
    Py_VISIT(self->context);
    Py_VISIT(self->message);
    Py_VISIT(self->inner);
    Py_VISIT(self->notify);
    Py_VISIT(self->value);
    Py_VISIT(self->run);
    return 0;
}

/* Does not clear `core`, because `leave` needs it. */
static int await_clear(PyObject *object) {
    await_object *self = (await_object *)object;
    Py_CLEAR(self->awaited);
    Py_CLEAR(self->waiter);
    Py_CLEAR(self->context);
    Py_CLEAR(self->message);
    Py_CLEAR(self->inner);
    Py_CLEAR(self->notify);
    Py_CLEAR(self->value);
    return 0;
}

/* The garbage collector finalizes all objects of a cycle before it clears the first: the StreamCore still has
 * its attributes. */
static void await_finalize(PyObject *object) {
    PyObject *error, *value, *traceback;
    PyErr_Fetch(&error, &value, &traceback);
    if (leave((await_object *)object) < 0) {
        PyErr_WriteUnraisable(NULL);
    }
    PyErr_Restore(error, value, traceback);
}

/* `leave` creates no reference to the Await, so it may be called here. */
static void await_dealloc(PyObject *object) {
    await_object *self = (await_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->state != OVER) { /* the usual await has left */
        await_finalize(object);
    }
    await_clear(object);
    Py_CLEAR(self->loop);
    Py_CLEAR(self->core);
    Py_CLEAR(self->call);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* asyncio shows this text in a task, as the object for which the task waits. */
static PyObject *await_repr(PyObject *object) {
    const await_object *self = (await_object *)object;
    return self->awaited ? PyUnicode_FromFormat("<await of %R>", self->awaited)
                         : PyUnicode_FromString("<await that has ended>");
}

/* `loop` is NULL in a trio run. */
static PyObject *new_await(PyObject *awaited, PyObject *loop) {
    await_object *self = PyObject_GC_New(await_object, await_type);
    if (self == NULL) {
        return NULL;
    }
    self->next = NULL;
    self->link = NULL;
    self->port = NULL;
    self->core = NULL;
    self->call = NULL;
    self->waiter = NULL;
    self->context = NULL;
    self->message = NULL;
    self->inner = NULL;
    self->notify = NULL;
    self->value = NULL;
    self->raises = 0;
    self->of_call = 0;
    self->started = 0;
    self->run = NULL;
    self->writes = 0;
    self->thread = PyThread_get_thread_ident();
    self->position = 0;
    self->result = aio_failed(AIO_PENDING);
    self->state = NEW;
    self->stepping = 0;
    self->blocking = 0;
    self->cancelled = 0;
    Py_INCREF(awaited);
    Py_XINCREF(loop);
    self->awaited = awaited;
    self->loop = loop;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

static PyObject *start_on(PyObject *run, PyObject *loop, PyObject *notify) {
    await_object *self = (await_object *)new_await(run, loop);
    awaits_object *port = self ? port_of(loop) : NULL;
    if (port == NULL) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    self->state = STARTED;
    self->started = 1;
    self->run = Py_NewRef(run);
    self->notify = notify == Py_None ? NULL : Py_NewRef(notify);
    list_await(port, self);
    int code = run_begin(run, port->port, (uint64_t)(uintptr_t)self | KEY_OF_AWAIT, true);
    if (code) {
        unlist_await(self);
        Py_DECREF((PyObject *)self);
        self->result = aio_failed(code);
        self->value = Py_NewRef(Py_None);
    }
    Py_DECREF((PyObject *)port);
    return (PyObject *)self;
}

PyObject *start_await(PyObject *run, PyObject *notify) {
    int trio = in_trio();
    PyObject *loop = trio ? NULL : PyObject_CallNoArgs(running_loop);
    if (trio < 0 || (!trio && loop == NULL)) {
        return NULL;
    }
    if (loop == Py_None || !run_is_new(run)) {
        Py_DECREF(loop);
        return PyErr_Format(PyExc_RuntimeError, "expected a new run on an event loop, got another");
    }
    PyObject *made = start_on(run, loop, notify);
    Py_XDECREF(loop);
    return made;
}

static PyMethodDef await_methods[] = {
    {"_abort", trio_abort, METH_O, NULL},
    {"send", await_send, METH_O, NULL},
    {"throw", await_throw, METH_VARARGS, NULL},
    {"close", await_close, METH_NOARGS, NULL},
    /* The cast is due to the API: the flags say which type the function has. */
    {"add_done_callback", (PyCFunction)(void (*)(void))future_add_done_callback, METH_FASTCALL | METH_KEYWORDS,
     NULL},
    {"cancel", (PyCFunction)(void (*)(void))future_cancel, METH_VARARGS | METH_KEYWORDS, NULL},
    {"cancelled", future_cancelled, METH_NOARGS, NULL},
    {"done", future_done, METH_NOARGS, NULL},
    {"exception", future_result, METH_NOARGS, NULL}, /* both return None, or raise the same */
    {"get_loop", future_get_loop, METH_NOARGS, NULL},
    {"remove_done_callback", future_remove_done_callback, METH_O, NULL},
    {"result", future_result, METH_NOARGS, NULL},
    {"take", await_take, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef await_getset[] = {
    {"__class__", future_or_await, NULL, NULL, NULL},
    {"_asyncio_future_blocking", future_blocking, future_set_blocking, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot await_slots[] = {
    {Py_tp_doc, (void *)"One await on an event loop, to be driven by one task."},
    {Py_tp_dealloc, (void *)await_dealloc},
    {Py_tp_finalize, (void *)await_finalize},
    {Py_tp_traverse, (void *)await_traverse},
    {Py_tp_clear, (void *)await_clear},
    {Py_tp_repr, (void *)await_repr},
    {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)await_next},
    {Py_am_send, (void *)step},
    {Py_am_await, (void *)PyObject_SelfIter}, /* of a started await */
    {Py_tp_methods, await_methods},
    {Py_tp_getset, await_getset},
    {0, NULL},
};

static PyType_Spec await_spec = {
    .name = "aioacl._await.Await",
    .basicsize = sizeof(await_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = await_slots,
};

/* --- Awaitable ------------------------------------------------------------------------------------------- */

/* A plain thread waits in Python. So does every caller after `plain_awaits`. */
static PyObject *await_in_python(PyObject *self) {
    return PyObject_CallMethodObjArgs(self, names._await_in_python, NULL);
}

PyObject *awaitable_await(PyObject *self) {
    if (plain || atomic_load(&aio_in_child)) { /* in a child it raises, unless the work is done */
        return await_in_python(self);
    }
    int trio = in_trio();
    if (trio != 0) {
        return trio < 0 ? NULL : new_await(self, NULL);
    }
    PyObject *loop = PyObject_CallNoArgs(running_loop);
    PyObject *made = loop == NULL ? NULL : loop == Py_None ? await_in_python(self) : new_await(self, loop);
    Py_XDECREF(loop);
    return made;
}

PyObject *call_await(PyObject *call) {
    int trio = plain || atomic_load(&aio_in_child) ? 0 : in_trio();
    bool in_c = !plain && !atomic_load(&aio_in_child);
    PyObject *loop = trio == 0 && in_c ? PyObject_CallNoArgs(running_loop) : NULL;
    if (trio < 0 || (trio == 0 && in_c && loop == NULL)) {
        return NULL;
    }
    PyObject *run = trio || (loop != NULL && loop != Py_None)
                        ? PyObject_CallMethodObjArgs(call, names._quick, NULL)
                        : Py_NewRef(Py_None);
    PyObject *made = NULL;
    if (run == Py_None) {
        made = await_in_python(call);
    } else if (run != NULL && (made = new_await(call, loop)) != NULL) {
        ((await_object *)made)->of_call = 1;
        ((await_object *)made)->run = Py_NewRef(run);
    }
    Py_XDECREF(run);
    Py_XDECREF(loop);
    return made;
}

static PyType_Slot awaitable_slots[] = {
    {Py_tp_doc, (void *)"The base of awaitable objects. Subclasses have `_target` and `_await_in_python`."},
    {Py_am_await, (void *)awaitable_await},
    {0, NULL},
};

static PyType_Spec awaitable_spec = {
    .name = "aioacl._await.Awaitable",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = awaitable_slots,
};

int may_go_on(void) {
    int elsewhere = atomic_load(&aio_in_child) ? 1 : in_trio();
    if (elsewhere != 0) {
        return elsewhere < 0 ? -1 : 0;
    }
    PyObject *loop = PyObject_CallNoArgs(running_loop);
    awaits_object *port = loop == NULL || loop == Py_None ? NULL : port_of(loop);
    int give_way = port ? gives_way(port, loop) : 1;
    Py_XDECREF((PyObject *)port);
    Py_XDECREF(loop);
    return PyErr_Occurred() || give_way < 0 ? -1 : !give_way;
}

/* --- the module ------------------------------------------------------------------------------------------ */

/* Stores the objects of aioacl._wait that this module needs. aioacl._wait imports this module, so this module
 * cannot import aioacl._wait. */
static PyObject *bind(PyObject *Py_UNUSED(module), PyObject *arguments) {
    PyObject *port, *forked;
    if (!PyArg_ParseTuple(arguments, "OO", &port, &forked)) {
        return NULL;
    }
    Py_INCREF(port);
    Py_INCREF(forked);
    current_port = port;
    must_not_be_forked = forked;
    Py_RETURN_NONE;
}

static PyObject *plain_awaits(PyObject *Py_UNUSED(module), PyObject *value) {
    plain = value == Py_True;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"bind", bind, METH_VARARGS, NULL},
    {"plain_awaits", plain_awaits, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int add_awaits(PyObject *module) {
    running_loop = attribute_of("asyncio", "_get_running_loop");
    await_type = running_loop ? add_type(module, "Await", &await_spec) : NULL;
    if (await_type == NULL || add_futures() < 0 || add_ports(module) < 0 || add_trio(module) < 0 ||
        add_ready(module) < 0 || add_openings(module) < 0 ||
        add_type(module, "Awaitable", &awaitable_spec) == NULL) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
