/*
 * Awaits on an asyncio loop. An await that succeeds runs no Python code of aioacl.
 *
 * `Awaitable` is the base of Ticket, Event and Stream. On a thread that runs an asyncio loop, its `__await__`
 * returns a new `Await`. On any other thread, it calls `_await_in_python`. The first step of an Await asks the
 * engine for the outcome of the position. If the outcome is not known, this step begins a wait under a key, and
 * suspends the task on a future of the loop. `Awaits` is the base of AsyncioPort. It takes the loop's
 * completions from the engine and sets the results of the futures.
 *
 * The key is the address of the Await, with the highest bit set. No address of a process has this bit, and no
 * key of a wait that Python code began has it. Completions of the latter waits are passed to Python in the dict
 * `_came`. The engine publishes a completion only to the port of the wait, and only the loop's thread takes the
 * completion. The port refers to each Await whose wait has begun until its completion is taken, even if the
 * task was cancelled. So the Await of a key that is taken still exists.
 *
 * The GIL is held, except during the calls of the engine that may reach ACL. Signal handlers run only in calls
 * of Python code: `call_soon` of the loop, and the code that creates errors.
 */
#include "binding.h"

#define KEY_OF_AWAIT (UINT64_C(1) << 63)
#define KICK 0 /* as in aioacl/_wait/port.py */

enum { QUICK_IN_A_ROW = 64, QUICK_US = 1000, LOOPS = 8, TAKEN_AT_ONCE = 32 };

typedef struct await_object await_object;

/* The base of AsyncioPort. */
typedef struct {
    PyObject_HEAD aio_port *port; /* owned by the Python object; NULL before `_attach` */
    await_object *first;
    Py_ssize_t outstanding; /* Awaits in the list that begins with `first`; each entry is a reference */
    int quick;              /* awaits of this turn of the loop that did not have to wait */
    long long quick_us;     /* when such awaits have taken longer than this, the next one gives way */
    int64_t quick_since_us;
} awaits_object;

enum await_state { NEW, YIELDED, SUSPENDED, OVER };

struct await_object {
    PyObject_HEAD await_object *next, **link; /* in the port's list; `link` is NULL if it is in no list */
    awaits_object *port;                      /* the owner of that list */
    PyObject *awaited;                        /* the Ticket, Event or Stream */
    PyObject *loop;
    core_object *core; /* NULL before the first step */
    PyObject *call;    /* as in a Ticket */
    PyObject *future;
    uint64_t position;
    aio_result result;
    enum await_state state;
};

/* The loops that were used last, and their ports: weak references. */
static struct {
    PyObject *loop;
    PyObject *port;
} loops[LOOPS];

static PyTypeObject *await_type, *awaits_type;
static PyObject *running_loop, *current_port, *must_not_be_forked, *invalid_state;
static PyObject *in_run;  /* trio.lowlevel.in_trio_run; NULL: trio is not imported yet */
static PyObject *library; /* sniffio.thread_local, whose name is "trio" within the turns of a trio run */

/* --- the loop of this thread ----------------------------------------------------------------------------- */

/* Sets `in_run` and `library` if trio is imported. While another thread imports trio, the module has no
 * attributes yet, and no run exists. `library` stays NULL with a release of trio that does not import sniffio.
 */
static void find_trio(void) {
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *trio = PyDict_GetItem(modules, names.trio);
    PyObject *lowlevel = trio ? PyObject_GetAttr(trio, names.lowlevel) : NULL;
    PyObject *function = lowlevel ? PyObject_GetAttr(lowlevel, names.in_trio_run) : NULL;
    PyObject *sniffio = function ? PyDict_GetItem(modules, names.sniffio) : NULL;
    library = sniffio ? PyObject_GetAttr(sniffio, names.thread_local) : NULL;
    in_run = function;
    Py_XDECREF(lowlevel);
    PyErr_Clear();
}

/* Returns 1 in a trio run, 0 elsewhere, -1 with an exception. `in_trio_run` also returns True to the tasks of
 * the host of a run in guest mode. Trio sets the name in `library` only while it runs code of its own tasks. */
static int in_trio(void) {
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

/* Returns a new reference to the asyncio loop that runs on this thread. Returns NULL, without an exception, if
 * no loop runs or if the thread is in a trio run. */
static PyObject *loop_of_thread(void) {
    if (in_trio() != 0) {
        return NULL;
    }
    PyObject *loop = PyObject_CallNoArgs(running_loop);
    if (loop == Py_None) {
        Py_DECREF(loop);
        return NULL;
    }
    return loop;
}

static PyObject *referent(PyObject *reference) {
    PyObject *object = reference ? PyWeakref_GetObject(reference) : NULL;
    return object == Py_None ? NULL : object;
}

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

/* Returns a new reference to the port of the loop that runs on this thread. */
static awaits_object *port_of(PyObject *loop) {
    size_t index = ((uintptr_t)loop >> 6) % LOOPS;
    PyObject *port = referent(loops[index].loop) == loop ? referent(loops[index].port) : NULL;
    if (port != NULL) {
        Py_INCREF(port);
        return (awaits_object *)port;
    }
    port = PyObject_CallNoArgs(current_port);
    if (port != NULL && !PyObject_TypeCheck(port, awaits_type)) {
        PyErr_SetString(PyExc_RuntimeError, "expected the port of an asyncio loop, got another kind of port");
        Py_CLEAR(port);
    }
    if (port != NULL) {
        remember(index, loop, port);
    }
    return (awaits_object *)port;
}

/* --- Await ----------------------------------------------------------------------------------------------- */

static void list_await(awaits_object *port, await_object *self) {
    Py_INCREF((PyObject *)self);
    self->port = port;
    self->link = &port->first;
    self->next = port->first;
    if (self->next) {
        self->next->link = &self->next;
    }
    port->first = self;
    port->outstanding++;
}

/* The caller gets the list's reference. */
static void unlist_await(await_object *self) {
    *self->link = self->next;
    if (self->next) {
        self->next->link = self->link;
    }
    self->port->outstanding--;
    self->next = NULL;
    self->link = NULL;
    self->port = NULL;
}

/* Ends the await for its task. Keeps an exception that is set. Returns -1 if a warning was raised as an
 * exception, which then replaces the exception that was set. */
static int leave(await_object *self) {
    enum await_state before = self->state;
    self->state = OVER;
    Py_CLEAR(self->awaited);
    Py_CLEAR(self->future);
    if (before == OVER || self->core == NULL || --self->core->awaits > 0 || !self->core->gone) {
        return 0;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *done = PyObject_CallMethodObjArgs((PyObject *)self->core, names.warn_of_closed, NULL);
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

static PySendResult finish(await_object *self, PyObject **sent) {
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

/* Finds the stream and the position of the awaited object. */
static int resolve(await_object *self) {
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

/* Whether an await that does not have to wait gives way to other tasks. It does so if it is the 64th such await
 * of one turn of the loop, or if these awaits have taken more than `quick_us` (a millisecond). Returns -1 with
 * an exception. */
static int gives_way(awaits_object *port, PyObject *loop) {
    int64_t now = aio_now_us();
    if (port->quick == 0) {
        PyObject *new_turn = PyObject_GetAttr((PyObject *)port, names._new_turn);
        PyObject *handle = new_turn ? PyObject_CallMethodObjArgs(loop, names.call_soon, new_turn, NULL) : NULL;
        Py_XDECREF(new_turn);
        if (handle == NULL) {
            return -1;
        }
        Py_DECREF(handle);
        port->quick_since_us = now;
    }
    port->quick++;
    return port->quick >= QUICK_IN_A_ROW || now - port->quick_since_us > port->quick_us;
}

static PySendResult fail(await_object *self) {
    leave(self);
    return PYGEN_ERROR;
}

static PySendResult done_at_once(await_object *self, awaits_object *port, PyObject *loop, PyObject **sent) {
    int give_way = release_done(self->core) < 0 ? -1 : gives_way(port, loop);
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

/* Suspends the task, after the wait has begun. If there is no memory for the future, the await fails, and the
 * completion is later taken and ignored. */
static PySendResult suspend(await_object *self, PyObject *loop, PyObject **sent) {
    PyObject *future = PyObject_CallMethodObjArgs(loop, names.create_future, NULL);
    if (future == NULL || PyObject_SetAttr(future, names._asyncio_future_blocking, Py_True) < 0) {
        Py_XDECREF(future);
        return fail(self);
    }
    self->state = SUSPENDED;
    self->future = future;
    Py_INCREF(future);
    *sent = future;
    return PYGEN_NEXT;
}

static PySendResult begin_on(await_object *self, awaits_object *port, PyObject *loop, PyObject **sent) {
    aio_stream *stream = self->core->stream;
    uint64_t position = self->position, key = (uint64_t)(uintptr_t)self | KEY_OF_AWAIT;
    aio_port *native = port->port;
    aio_result pending = aio_failed(AIO_PENDING), result = aio_stream_known(stream, position);
    int code = 0;
    if (result == pending) {
        list_await(port, self);
        PyThreadState *thread = PyEval_SaveThread();
        result = aio_stream_poll(stream, position);
        if (result == pending) {
            code = aio_watch(stream, position, native, key);
        }
        PyEval_RestoreThread(thread);
        if (result == pending && code == 0) {
            return suspend(self, loop, sent);
        }
        unlist_await(self);
        Py_DECREF((PyObject *)self);
    }
    self->result = code ? aio_failed(code) : result;
    return done_at_once(self, port, loop, sent);
}

static PySendResult begin(await_object *self, PyObject **sent) {
    if (atomic_load(&aio_in_child)) {
        Py_XDECREF(PyObject_CallNoArgs(must_not_be_forked)); /* raises */
        return fail(self);
    }
    PySendResult outcome = PYGEN_ERROR;
    awaits_object *port = resolve(self) < 0 ? NULL : port_of(self->loop);
    if (self->core != NULL) {
        self->core->awaits++;
    }
    if (port == NULL) {
        fail(self);
    } else {
        outcome = begin_on(self, port, self->loop, sent);
    }
    Py_XDECREF((PyObject *)port);
    return outcome;
}

static PySendResult step(PyObject *object, PyObject *Py_UNUSED(value), PyObject **sent) {
    await_object *self = (await_object *)object;
    PySendResult outcome = PYGEN_ERROR;
    *sent = NULL;
    Py_INCREF(object); /* code that creates an error may drop the last other reference to the Await */
    switch (self->state) {
    case NEW:
        outcome = begin(self, sent);
        break;
    case YIELDED:
        outcome = finish(self, sent);
        break;
    case SUSPENDED:
        if (self->link == NULL) {
            outcome = finish(self, sent);
        } else {
            PyErr_SetString(PyExc_RuntimeError,
                            "expected a task of the loop to wait for the future, got a step");
        }
        break;
    case OVER:
        PyErr_SetString(PyExc_RuntimeError,
                        "expected a new await, got one that has ended; await the object again");
        break;
    }
    Py_DECREF(object);
    return outcome;
}

static PyObject *await_next(PyObject *self) {
    PyObject *sent;
    PySendResult outcome = step(self, Py_None, &sent);
    if (outcome == PYGEN_RETURN) {
        Py_CLEAR(sent); /* NULL without an exception: StopIteration(None) */
    }
    return outcome == PYGEN_ERROR ? NULL : sent;
}

static PyObject *await_send(PyObject *self, PyObject *value) {
    PyObject *sent;
    PySendResult outcome = step(self, value, &sent);
    if (outcome == PYGEN_RETURN) {
        Py_CLEAR(sent);
        PyErr_SetNone(PyExc_StopIteration);
    }
    return outcome == PYGEN_ERROR ? NULL : sent;
}

/* Raises the exception in the task, for example on a cancellation. If a wait has begun, its completion is later
 * taken and ignored. */
static PyObject *await_throw(PyObject *object, PyObject *arguments) {
    PyObject *type, *value = NULL, *traceback = NULL;
    if (!PyArg_ParseTuple(arguments, "O|OO", &type, &value, &traceback)) {
        return NULL;
    }
    if (leave((await_object *)object) < 0) {
        return NULL;
    }
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else if (PyExceptionClass_Check(type)) {
        PyErr_SetObject(type, value == NULL ? Py_None : value);
    } else {
        PyErr_SetString(PyExc_TypeError, "expected an exception to throw");
    }
    return NULL;
}

static PyObject *await_close(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    if (leave((await_object *)object) < 0) {
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
    Py_VISIT(self->future);
    return 0;
}

/* Does not clear `core`, because `leave` needs it. */
static int await_clear(PyObject *object) {
    await_object *self = (await_object *)object;
    Py_CLEAR(self->awaited);
    Py_CLEAR(self->future);
    return 0;
}

/* `leave` creates no reference to the Await, so it may be called here. */
static void await_dealloc(PyObject *object) {
    await_object *self = (await_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *error, *value, *traceback;
    PyObject_GC_UnTrack(object);
    PyErr_Fetch(&error, &value, &traceback);
    if (leave(self) < 0) {
        PyErr_WriteUnraisable(NULL);
    }
    PyErr_Restore(error, value, traceback);
    Py_CLEAR(self->loop);
    Py_CLEAR(self->core);
    Py_CLEAR(self->call);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

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
    self->future = NULL;
    self->position = 0;
    self->result = 0;
    self->state = NEW;
    Py_INCREF(awaited);
    Py_INCREF(loop);
    self->awaited = awaited;
    self->loop = loop;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

static PyMethodDef await_methods[] = {
    {"send", await_send, METH_O, NULL},
    {"throw", await_throw, METH_VARARGS, NULL},
    {"close", await_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot await_slots[] = {
    {Py_tp_doc, (void *)"One await on an asyncio loop, to be driven by one task."},
    {Py_tp_dealloc, (void *)await_dealloc},
    {Py_tp_traverse, (void *)await_traverse},
    {Py_tp_clear, (void *)await_clear},
    {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)await_next},
    {Py_am_send, (void *)step},
    {Py_tp_methods, await_methods},
    {0, NULL},
};

static PyType_Spec await_spec = {
    .name = "aioacl._await.Await",
    .basicsize = sizeof(await_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = await_slots,
};

/* --- Awaitable ------------------------------------------------------------------------------------------- */

PyObject *awaitable_await(PyObject *self) {
    PyObject *loop = atomic_load(&aio_in_child) ? NULL : loop_of_thread();
    if (loop != NULL) {
        PyObject *made = new_await(self, loop);
        Py_DECREF(loop);
        return made;
    }
    return PyErr_Occurred() ? NULL : PyObject_CallMethodObjArgs(self, names._await_in_python, NULL);
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

/* --- Awaits ---------------------------------------------------------------------------------------------- */

/* The first error of a drain. It is raised only after all other completions were delivered, because each
 * completion is taken only once. */
typedef struct {
    PyObject *type, *value, *traceback;
} first_error;

static void keep_error(first_error *first) {
    if (first->type != NULL) {
        PyErr_WriteUnraisable(NULL);
    } else if (PyErr_Occurred()) {
        PyErr_Fetch(&first->type, &first->value, &first->traceback);
    }
}

/* Wakes the task. If the task was cancelled after the wait began, its future is cancelled and cannot be set. */
static void wake(await_object *self, first_error *first) {
    PyObject *done = PyObject_CallMethodObjArgs(self->future, names.set_result, Py_None, NULL);
    if (done == NULL && PyErr_ExceptionMatches(invalid_state)) {
        PyErr_Clear();
    } else if (done == NULL) {
        keep_error(first);
    }
    Py_XDECREF(done);
}

static void complete(uint64_t key, int64_t result, first_error *first) {
    await_object *self = (await_object *)(uintptr_t)(key & ~KEY_OF_AWAIT);
    unlist_await(self);
    self->result = result;
    if (release_done(self->core) < 0) {
        keep_error(first);
    }
    if (self->state == SUSPENDED) {
        wake(self, first);
    }
    Py_DECREF((PyObject *)self);
}

/* Passes a completion to Python. If a key has several results, the first result counts. */
static void pass_on(PyObject *came, uint64_t key, int64_t result, first_error *first) {
    PyObject *number = PyLong_FromUnsignedLongLong(key), *value = PyLong_FromLongLong(result);
    int present = number != NULL && value != NULL ? PyDict_Contains(came, number) : -1;
    if (present < 0 || (present == 0 && PyDict_SetItem(came, number, value) < 0)) {
        keep_error(first);
    }
    Py_XDECREF(number);
    Py_XDECREF(value);
}

/* Takes some completions. If more have arrived, the descriptor stays readable, and the loop first runs the
 * tasks that were woken here. So a turn of the loop stays short. */
static void take_some(awaits_object *self, PyObject *came, first_error *first) {
    uint64_t keys[TAKEN_AT_ONCE];
    int64_t results[TAKEN_AT_ONCE];
    int count = self->port ? aio_port_take(self->port, keys, results, TAKEN_AT_ONCE) : 0;
    for (int index = 0; index < count; index++) {
        if (keys[index] & KEY_OF_AWAIT) {
            complete(keys[index], results[index], first);
        } else {
            pass_on(came, keys[index], results[index], first);
        }
    }
}

/* The loop calls this function when the descriptor of the port is readable. */
static PyObject *awaits_drain(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    first_error first = {NULL, NULL, NULL};
    PyObject *came = PyObject_GetAttr(object, names._came);
    if (came == NULL) {
        return NULL;
    }
    take_some((awaits_object *)object, came, &first);
    if (PyDict_Size(came) > 0) {
        PyObject *done = PyObject_CallMethodObjArgs(object, names._deliver_came, NULL);
        if (done == NULL) { /* Ctrl-C or an error in a delivery has interrupted it: the reader runs once more */
            keep_error(&first);
            aio_port_post(((awaits_object *)object)->port, KICK, 0);
        }
        Py_XDECREF(done);
    }
    Py_DECREF(came);
    if (first.type != NULL) {
        PyErr_Restore(first.type, first.value, first.traceback);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *awaits_attach(PyObject *object, PyObject *address) {
    void *port = PyLong_AsVoidPtr(address);
    if (port == NULL && PyErr_Occurred()) {
        return NULL;
    }
    ((awaits_object *)object)->port = port;
    ((awaits_object *)object)->quick_us = QUICK_US;
    Py_RETURN_NONE;
}

static PyObject *awaits_gives_way(PyObject *object, PyObject *loop) {
    int give_way = gives_way((awaits_object *)object, loop);
    return give_way < 0 ? NULL : PyBool_FromLong(give_way);
}

static PyObject *awaits_new_turn(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    ((awaits_object *)object)->quick = 0;
    Py_RETURN_NONE;
}

static int awaits_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    for (await_object *each = ((awaits_object *)object)->first; each; each = each->next) {
        Py_VISIT(each);
    }
    return 0;
}

static int awaits_clear(PyObject *object) {
    awaits_object *self = (awaits_object *)object;
    while (self->first) {
        await_object *each = self->first;
        unlist_await(each);
        Py_DECREF((PyObject *)each);
    }
    return 0;
}

static void awaits_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    awaits_clear(object);
    free_object(object);
}

static PyMethodDef awaits_methods[] = {
    {"_attach", awaits_attach, METH_O, NULL},
    {"_gives_way", awaits_gives_way, METH_O, NULL},
    {"_new_turn", awaits_new_turn, METH_NOARGS, NULL},
    {"drain", awaits_drain, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef awaits_members[] = {
    {"_outstanding", T_PYSSIZET, offsetof(awaits_object, outstanding), READONLY, NULL},
    {"_quick_us", T_LONGLONG, offsetof(awaits_object, quick_us), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot awaits_slots[] = {
    {Py_tp_doc, (void *)"The base of AsyncioPort: the awaits of a loop."},
    {Py_tp_dealloc, (void *)awaits_dealloc},
    {Py_tp_traverse, (void *)awaits_traverse},
    {Py_tp_clear, (void *)awaits_clear},
    {Py_tp_methods, awaits_methods},
    {Py_tp_members, awaits_members},
    {0, NULL},
};

static PyType_Spec awaits_spec = {
    .name = "aioacl._await.Awaits",
    .basicsize = sizeof(awaits_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = awaits_slots,
};

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

static PyObject *in_trio_now(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    int in_run_now = in_trio();
    return in_run_now < 0 ? NULL : PyBool_FromLong(in_run_now);
}

static PyMethodDef functions[] = {
    {"bind", bind, METH_VARARGS, NULL},
    {"in_trio", in_trio_now, METH_NOARGS, "Whether trio runs code on this thread now."},
    {NULL, NULL, 0, NULL},
};

int add_awaits(PyObject *module) {
    running_loop = attribute_of("asyncio", "_get_running_loop");
    invalid_state = running_loop ? attribute_of("asyncio", "InvalidStateError") : NULL;
    await_type = invalid_state ? add_type(module, "Await", &await_spec) : NULL;
    awaits_type = await_type ? add_type(module, "Awaits", &awaits_spec) : NULL;
    if (awaits_type == NULL || add_type(module, "Awaitable", &awaitable_spec) == NULL) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
