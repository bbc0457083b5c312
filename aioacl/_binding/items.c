/*
 * What is done for each item of a batcher on an asyncio loop: the item itself, its await, and its outcome. What
 * is done for each batch is in Python.
 *
 * `new_item` makes a BatchItem of checked arguments. Its `__await__` adds it to the turn of its loop, so all
 * items of a turn of the loop reach the runner together: the loop calls `end_turn`. It returns an ItemWait,
 * which waits for a future of the loop, and calls `Runner.gone` if the caller goes before the item has its
 * outcome. `send` and `deliver` set the futures of a batch. In a trio run, and on a thread, `_await_in_python`
 * waits.
 *
 * The calls of Python code are those of asyncio and of the runner. Each of them may raise an exception of a
 * signal handler, or run a finalizer that ends the turn. So the fields are read again after each call.
 */
#include "batches.h"
#include "call.h"

PyTypeObject *item_type, *turn_type;
static PyTypeObject *loop_type, *wait_type;
static PyObject *hooks_here, *invalid_state;  /* sys.get_asyncgen_hooks and asyncio.InvalidStateError */
static PyTypeObject *item_class, *turn_class; /* BatchItem and Turn */
static PyTypeObject *mixed_class;             /* Mixed: some outcomes are exceptions */
static PyObject *ended;                       /* takes the place of the future of an item that has failed */
static double not_yet;                        /* when a turn arrives that has not ended */
static int new_state, waiting_state;          /* NEW and WAITING */

/* --- the fields ------------------------------------------------------------------------------------------ */

#define OBJECT(type, name, field) {name, T_OBJECT, offsetof(type, field), 0, NULL}
#define END_OF_MEMBERS {NULL, 0, 0, 0, NULL}

static int turn_traverse(PyObject *object, visitproc visit, void *arg) {
    turn_object *self = (turn_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->items);
    Py_VISIT(self->of);
    return 0;
}

static int turn_clear(PyObject *object) {
    turn_object *self = (turn_object *)object;
    Py_CLEAR(self->items);
    Py_CLEAR(self->of);
    return 0;
}

static void turn_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    turn_clear(object);
    free_object(object);
}

/* end(now): ends the turn, and returns its items. It drops them, because they refer to it. */
static PyObject *turn_end(PyObject *object, PyObject *now) {
    turn_object *self = (turn_object *)object;
    double born = PyFloat_AsDouble(now);
    PyObject *left = born == -1 && PyErr_Occurred() ? NULL : PyList_New(0), *items = self->items;
    if (left == NULL || items == NULL) {
        Py_XDECREF(left);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_AttributeError, "the turn has no items");
    }
    self->born = born;
    self->items = left;
    return items;
}

static PyMethodDef turn_methods[] = {
    {"end", turn_end, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef turn_members[] = {
    {"items", T_OBJECT_EX, offsetof(turn_object, items), 0, NULL},
    OBJECT(turn_object, "of", of),
    {"born", T_DOUBLE, offsetof(turn_object, born), 0, NULL},
    {"rows", T_PYSSIZET, offsetof(turn_object, rows), 0, NULL},
    {"apart", T_BOOL, offsetof(turn_object, apart), 0, NULL},
    END_OF_MEMBERS,
};

static int loop_traverse(PyObject *object, visitproc visit, void *arg) {
    loop_object *self = (loop_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->loop);
    Py_VISIT(self->turn);
    Py_VISIT(self->runner);
    Py_VISIT(self->hook);
    Py_VISIT(self->call_soon);
    Py_VISIT(self->new_future);
    return 0;
}

static int loop_clear(PyObject *object) {
    loop_object *self = (loop_object *)object;
    Py_CLEAR(self->loop);
    Py_CLEAR(self->turn);
    Py_CLEAR(self->runner);
    Py_CLEAR(self->hook);
    Py_CLEAR(self->call_soon);
    Py_CLEAR(self->new_future);
    return 0;
}

static void loop_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    loop_clear(object);
    free_object(object);
}

static PyMemberDef loop_members[] = {
    OBJECT(loop_object, "loop", loop),
    OBJECT(loop_object, "turn", turn),
    OBJECT(loop_object, "runner", runner),
    OBJECT(loop_object, "hook", hook),
    OBJECT(loop_object, "call_soon", call_soon),
    OBJECT(loop_object, "new_future", new_future),
    {"planned", T_BOOL, offsetof(loop_object, planned), 0, NULL},
    END_OF_MEMBERS,
};

static int item_traverse(PyObject *object, visitproc visit, void *arg) {
    item_object *self = (item_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->runner);
    Py_VISIT(self->call);
    Py_VISIT(self->key);
    Py_VISIT(self->shape);
    Py_VISIT(self->future);
    Py_VISIT(self->turn);
    Py_VISIT(self->timeout);
    Py_VISIT(self->deadline);
    return 0;
}

static int item_clear(PyObject *object) {
    item_object *self = (item_object *)object;
    Py_CLEAR(self->runner);
    Py_CLEAR(self->call);
    Py_CLEAR(self->key);
    Py_CLEAR(self->shape);
    Py_CLEAR(self->future);
    Py_CLEAR(self->turn);
    Py_CLEAR(self->timeout);
    Py_CLEAR(self->deadline);
    return 0;
}

static void item_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    item_clear(object);
    free_object(object);
}

static PyMemberDef item_members[] = {
    OBJECT(item_object, "_runner", runner),
    OBJECT(item_object, "_call", call),
    OBJECT(item_object, "_key", key),
    OBJECT(item_object, "_shape", shape),
    {"_future", T_OBJECT_EX, offsetof(item_object, future), 0, NULL},
    {"_turn", T_OBJECT_EX, offsetof(item_object, turn), 0, NULL},
    OBJECT(item_object, "_timeout", timeout),
    OBJECT(item_object, "_deadline", deadline),
    {"_rows", T_PYSSIZET, offsetof(item_object, rows), 0, NULL},
    {"_state", T_INT, offsetof(item_object, state), 0, NULL},
    {"_patient", T_BOOL, offsetof(item_object, patient), 0, NULL},
    END_OF_MEMBERS,
};

/* --- a new item ------------------------------------------------------------------------------------------ */

/* Takes what the check has returned: the arguments, their rows, and their shape. */
static int set_checked(item_object *self, PyObject *checked) {
    if (!PyTuple_Check(checked) || PyTuple_Size(checked) != 3) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of a call, rows and a shape, got another object");
        return -1;
    }
    self->rows = PyLong_AsSsize_t(PyTuple_GetItem(checked, 1));
    if (self->rows == -1 && PyErr_Occurred()) {
        return -1;
    }
    self->call = Py_NewRef(PyTuple_GetItem(checked, 0));
    self->shape = Py_NewRef(PyTuple_GetItem(checked, 2));
    return 0;
}

/* Checks an item of the usual kind here. Returns 0 if Python must check it, or -1 with an exception. */
static int take_checked(item_object *self, const runner_object *runner, PyObject *x) {
    if (runner->spec == NULL || !PyObject_TypeCheck(runner->spec, spec_type)) {
        return 0;
    }
    arguments_object *call = check_call((spec_object *)runner->spec, x);
    if (call == NULL || call->rows < 1 || call->rows > runner->max_rows) {
        Py_XDECREF((PyObject *)call);
        return PyErr_Occurred() ? -1 : 0;
    }
    self->rows = call->rows;
    self->call = (PyObject *)call;
    self->shape = Py_XNewRef(runner->shape);
    return 1;
}

/* Lets Python check an item. Returns -1 with the error. */
static int take_from_python(item_object *self, PyObject *check, PyObject *x) {
    PyObject *checked = PyObject_CallFunctionObjArgs(check, x, NULL);
    int taken = checked ? set_checked(self, checked) : -1;
    Py_XDECREF(checked);
    return taken;
}

/* new_item(runner, check, x) */
static PyObject *new_item(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    if (count != 3 || item_class == NULL || !PyObject_TypeCheck(given[0], runner_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a runner, a check and an item, got other arguments");
    }
    const runner_object *runner = (runner_object *)given[0];
    if (runner->refusal != NULL && runner->refusal != Py_None) {
        PyObject *refused = PyObject_CallNoArgs(runner->refusal); /* raises */
        if (refused == NULL) {
            return NULL;
        }
        Py_DECREF(refused);
    }
    item_object *self = (item_object *)PyType_GenericAlloc(item_class, 0);
    if (self == NULL) {
        return NULL;
    }
    self->runner = Py_NewRef(given[0]);
    self->key = Py_NewRef(Py_None);
    self->patient = 1;
    self->state = new_state;
    int taken = take_checked(self, runner, given[2]);
    if (taken < 0 || (taken == 0 && take_from_python(self, given[1], given[2]) < 0)) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* --- the wait of an item --------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD PyObject *item;
    PyObject *steps; /* the iterator of its future; NULL after the end */
} wait_object;

/* Whether the item has its outcome. -1 with an exception. */
static int has_outcome(PyObject *future) {
    PyObject *done = PyObject_CallMethodObjArgs(future, names.done, NULL);
    PyObject *cancelled = done == Py_True ? PyObject_CallMethodObjArgs(future, names.cancelled, NULL) : NULL;
    int answer = PyErr_Occurred() ? -1 : done == Py_True && cancelled == Py_False;
    Py_XDECREF(done);
    Py_XDECREF(cancelled);
    return answer;
}

/* The caller has gone, perhaps with an exception, which is kept. The future of an item that has failed refers
 * to the exception, so it is dropped. Returns -1 with another exception, if that fails. */
static int leave(item_object *self) {
    PyObject *type, *value, *traceback, *future = self->future;
    PyErr_Fetch(&type, &value, &traceback);
    self->future = Py_NewRef(ended);
    int over = future == NULL ? 1 : has_outcome(future);
    Py_XDECREF(future);
    if (over == 0 && self->runner != NULL) {
        Py_XDECREF(PyObject_CallMethodObjArgs(self->runner, names.gone, (PyObject *)self, NULL));
    }
    return restore_error(type, value, traceback);
}

/* Ends the wait of a caller that has gone. */
static int end_wait(wait_object *self) {
    PyObject *steps = self->steps, *item = self->item;
    if (steps == NULL) {
        return 0;
    }
    self->steps = NULL;
    self->item = NULL;
    int left = leave((item_object *)item);
    Py_DECREF(steps);
    Py_DECREF(item);
    return left;
}

/* The caller has its result. If the item has a time limit, its timer keeps the item, perhaps until the
 * deadline, but must not keep the arguments and the result. */
static void drop_arrays(item_object *item) {
    if (item != NULL) {
        replace(&item->future, Py_NewRef(ended));
        Py_CLEAR(item->call);
    }
}

static PySendResult wait_step(PyObject *object, PyObject *value, PyObject **sent) {
    wait_object *self = (wait_object *)object;
    *sent = NULL;
    if (self->steps == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the await has ended; call the batcher once more");
        return PYGEN_ERROR;
    }
    PyObject *steps = Py_NewRef(self->steps); /* the caller may go in the step */
    PySendResult outcome = PyIter_Send(steps, value, sent);
    Py_DECREF(steps);
    if (outcome == PYGEN_RETURN) {
        item_object *item = (item_object *)self->item;
        self->item = NULL;
        Py_CLEAR(self->steps);
        drop_arrays(item);
        Py_XDECREF((PyObject *)item);
    } else if (outcome == PYGEN_ERROR) {
        end_wait(self);
    }
    return outcome;
}

static PyObject *wait_send(PyObject *self, PyObject *value) {
    PyObject *sent;
    PySendResult outcome = wait_step(self, value, &sent);
    return outcome == PYGEN_RETURN ? end_iteration(sent) : sent;
}

static PyObject *wait_next(PyObject *self) {
    return wait_send(self, Py_None);
}

static PyObject *wait_throw(PyObject *self, PyObject *arguments) {
    PyObject *type, *value = NULL, *traceback = NULL;
    if (PyArg_ParseTuple(arguments, "O|OO", &type, &value, &traceback)) {
        raise_given(type, value);
        end_wait((wait_object *)self);
    }
    return NULL;
}

static PyObject *wait_close(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    return end_wait((wait_object *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static int wait_traverse(PyObject *object, visitproc visit, void *arg) {
    wait_object *self = (wait_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->item);
    Py_VISIT(self->steps);
    return 0;
}

static int wait_clear(PyObject *object) {
    wait_object *self = (wait_object *)object;
    Py_CLEAR(self->item);
    Py_CLEAR(self->steps);
    return 0;
}

/* A task that is dropped while it waits. */
static void wait_finalize(PyObject *object) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (end_wait((wait_object *)object) < 0) {
        PyErr_WriteUnraisable(NULL);
    }
    PyErr_Restore(type, value, traceback);
}

static void wait_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (((wait_object *)object)->steps != NULL) {
        wait_finalize(object);
    }
    wait_clear(object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyObject *new_wait(PyObject *item, PyObject *future) {
    PyObject *steps = PyObject_GetIter(future);
    wait_object *self = steps ? PyObject_GC_New(wait_object, wait_type) : NULL;
    if (self == NULL) {
        Py_XDECREF(steps);
        return NULL;
    }
    self->item = Py_NewRef(item);
    self->steps = steps;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

static PyMethodDef wait_methods[] = {
    {"send", wait_send, METH_O, NULL},
    {"throw", wait_throw, METH_VARARGS, NULL},
    {"close", wait_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* --- the await of an item -------------------------------------------------------------------------------- */

/* Returns a new reference to the AsyncioLoop that had the last item, if it runs on this thread, else NULL,
 * perhaps with an exception. Each run of a loop has its own hook for asynchronous generators, which its thread
 * has meanwhile. asyncio and sniffio would take longer to answer. */
static loop_object *same_loop(PyObject *runner) {
    PyObject *last = ((runner_object *)runner)->last;
    if (last == NULL || last == Py_None) {
        return NULL;
    }
    loop_object *loop = (loop_object *)Py_NewRef(last);
    PyObject *hooks = PyObject_CallNoArgs(hooks_here);
    PyObject *hook = hooks ? PyTuple_GetItem(hooks, 0) : NULL;
    if (hook == NULL || hook == Py_None || hook != loop->hook) {
        Py_CLEAR(loop);
    }
    Py_XDECREF(hooks);
    return loop;
}

/* Returns a new reference to the AsyncioLoop that runs on this thread, or to None. */
static PyObject *loop_here(PyObject *runner) {
    PyObject *loop = (PyObject *)same_loop(runner);
    if (loop != NULL || PyErr_Occurred()) {
        return loop;
    }
    int trio = in_trio();
    return trio < 0    ? NULL
           : trio == 1 ? Py_NewRef(Py_None)
                       : PyObject_CallMethodObjArgs(runner, names.loop_here, NULL);
}

static int begin_turn(loop_object *loop) {
    turn_object *turn = (turn_object *)PyType_GenericAlloc(turn_class, 0);
    PyObject *items = turn ? PyList_New(0) : NULL;
    if (items == NULL) {
        Py_XDECREF((PyObject *)turn);
        return -1;
    }
    turn->items = items;
    turn->of = Py_NewRef((PyObject *)loop);
    turn->born = not_yet;
    replace(&loop->turn, (PyObject *)turn);
    return 0;
}

/* Adds an item to the turn of its loop. */
static int add_to(item_object *self, loop_object *loop) {
    if ((loop->turn == NULL || loop->turn == Py_None) && begin_turn(loop) < 0) {
        return -1;
    }
    turn_object *turn = (turn_object *)loop->turn;
    if (PyList_Append(turn->items, (PyObject *)self) < 0) {
        return -1;
    }
    const item_object *first = (item_object *)PyList_GetItem(turn->items, 0);
    turn->rows += self->rows;
    turn->apart |= self->key != first->key || self->shape != first->shape;
    replace(&self->turn, Py_NewRef((PyObject *)turn));
    return 0;
}

/* Hands the items of the turn over. */
static int flush(loop_object *loop) {
    PyObject *turn = loop->turn;
    if (turn == NULL || turn == Py_None || loop->runner == NULL) {
        return 0;
    }
    loop->turn = NULL;
    int failed = arrive((runner_object *)loop->runner, turn);
    Py_DECREF(turn);
    return failed;
}

/* flush(): hands the items over that have come so far, because the batcher closes. Any thread may call it: no
 * step of the interpreter is between the look at a turn of the loop and its use. */
static PyObject *loop_flush(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    return flush((loop_object *)object) < 0 ? NULL : Py_NewRef(Py_None);
}

/* between_tasks(function, argument): calls a function in a callback of the loop, which is in none of its tasks.
 */
static PyObject *loop_between_tasks(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    loop_object *loop = (loop_object *)object;
    if (count != 2) {
        return PyErr_Format(PyExc_TypeError, "expected a function and its argument");
    }
    loop->between = PyThread_get_thread_ident();
    PyObject *done = PyObject_CallFunctionObjArgs(given[0], given[1], NULL);
    loop->between = 0;
    return done;
}

/* Lets the loop call `end_turn`. A method that is kept would make a cycle of references. */
static PyObject *call_end_turn_soon(loop_object *loop) {
    PyObject *method = PyObject_GetAttr((PyObject *)loop, names.end_turn);
    PyObject *done = method ? PyObject_CallFunctionObjArgs(loop->call_soon, method, NULL) : NULL;
    Py_XDECREF(method);
    return done;
}

static bool has_several(const loop_object *loop) {
    const turn_object *turn = (turn_object *)loop->turn;
    return turn != NULL && loop->turn != Py_None && PyList_Size(turn->items) > 1;
}

/* end_turn(): hands the items of the turn over. The loop calls it at the end of the turn. If there are several,
 * the first call leaves them for the next turn: a server reads its sockets between the two, so the items of the
 * requests that came meanwhile join the batch. A lone item does not wait for others. If an exception of a
 * signal handler keeps the loop from a second call, the items are handed over now. */
static PyObject *loop_end_turn(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    loop_object *loop = (loop_object *)object;
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    if (!loop->waited && has_several(loop)) {
        loop->waited = 1;
        PyObject *done = call_end_turn_soon(loop);
        if (done != NULL) {
            return done;
        }
        PyErr_Fetch(&type, &value, &traceback);
    }
    loop->planned = loop->waited = 0;
    loop->between = PyThread_get_thread_ident();
    int failed = flush(loop);
    loop->between = 0;
    if (type != NULL) {
        failed = -1;
        restore_error(type, value, traceback);
    }
    return failed < 0 ? NULL : Py_NewRef(Py_None);
}

/* Lets the loop hand the turn over at its end, or hands it over now, if it fills a batch. */
static int plan(loop_object *loop, Py_ssize_t max_rows) {
    PyObject *turn = loop->turn;
    if (turn == NULL || turn == Py_None) { /* a finalizer has closed the batcher */
        return 0;
    }
    if (((turn_object *)turn)->rows >= max_rows) {
        return flush(loop);
    }
    if (loop->planned) {
        return 0;
    }
    loop->planned = 1;
    PyObject *done = call_end_turn_soon(loop);
    loop->planned = done != NULL;
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int join(item_object *self, loop_object *loop) {
    if (add_to(self, loop) < 0) {
        return -1;
    }
    if (self->timeout != NULL && self->timeout != Py_None) {
        PyObject *done = PyObject_CallMethodObjArgs((PyObject *)loop, names.limit, (PyObject *)self, NULL);
        Py_XDECREF(done);
        if (done == NULL) {
            return -1;
        }
    }
    return plan(loop, ((runner_object *)self->runner)->max_rows);
}

static PyObject *await_on(item_object *self, loop_object *loop) {
    PyObject *future = PyObject_CallNoArgs(loop->new_future);
    PyObject *wait = future ? new_wait((PyObject *)self, future) : NULL;
    if (wait == NULL) {
        Py_XDECREF(future);
        return NULL;
    }
    if (self->state != new_state) { /* code that was called meanwhile has awaited it */
        wait_clear(wait);
        Py_DECREF(wait);
        Py_DECREF(future);
        return PyObject_CallMethodObjArgs((PyObject *)self, names._await_in_python, NULL);
    }
    self->state = waiting_state;
    replace(&self->future, future);
    if (join(self, loop) < 0) {
        end_wait((wait_object *)wait);
        Py_DECREF(wait);
        return NULL;
    }
    return wait;
}

static PyObject *item_await(PyObject *object) {
    item_object *self = (item_object *)object;
    bool is_new = self->state == new_state && self->runner != NULL;
    PyObject *loop = is_new ? loop_here(self->runner) : Py_NewRef(Py_None), *made = NULL;
    if (loop == Py_None) {
        made = PyObject_CallMethodObjArgs(object, names._await_in_python, NULL);
    } else if (loop != NULL) {
        made = await_on(self, (loop_object *)loop);
    }
    Py_XDECREF(loop);
    return made;
}

/* --- the items of a batch -------------------------------------------------------------------------------- */

/* Moves an item from one state to another. Returns 1, or 0 if it is in a third one, or -1 with an exception.
 * The tests of the core have items of their own, in Python. */
static int move(PyObject *object, long before, long after) {
    if (PyObject_TypeCheck(object, item_type)) {
        item_object *self = (item_object *)object;
        bool moves = self->state == before;
        self->state = moves ? (int)after : self->state;
        return moves;
    }
    PyObject *state = PyObject_GetAttr(object, names._state);
    long now = state ? PyLong_AsLong(state) : -1;
    Py_XDECREF(state);
    if (now != before) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *next = PyLong_FromLong(after);
    int set = next ? PyObject_SetAttr(object, names._state, next) : -1;
    Py_XDECREF(next);
    return set < 0 ? -1 : 1;
}

/* move_items(items, before, after): moves items until one is not in the state `before`. Returns their number.
 */
static PyObject *move_items(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    if (count != 3 || !PyList_Check(given[0])) {
        return PyErr_Format(PyExc_TypeError, "expected a list of items and two states, got other arguments");
    }
    long before = PyLong_AsLong(given[1]), after = PyLong_AsLong(given[2]);
    int moved = PyErr_Occurred() ? -1 : 1;
    Py_ssize_t index = 0;
    for (; moved > 0 && index < PyList_Size(given[0]); index += moved > 0) {
        moved = move(PyList_GetItem(given[0], index), before, after);
    }
    return moved < 0 ? NULL : PyLong_FromSsize_t(index);
}

/* --- outcomes -------------------------------------------------------------------------------------------- */

/* Sets a future, unless its caller has gone. */
static int set_future(PyObject *future, PyObject *outcome, bool raises) {
    if (future == ended) {
        return 0;
    }
    PyObject *set = raises ? names.set_exception : names.set_result;
    PyObject *done = PyObject_CallMethodObjArgs(future, set, outcome, NULL);
    if (done == NULL && PyErr_ExceptionMatches(invalid_state)) { /* cancelled, or its time is over */
        PyErr_Clear();
        return 0;
    }
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Sets the futures of items, on their loop. Of Mixed outcomes, the exceptions are raised. If an exception of a
 * signal handler interrupts it, all other items still get their outcomes. */
static int deliver(PyObject *items, PyObject *outcomes) {
    bool mixed = PyObject_TypeCheck(outcomes, mixed_class);
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    for (Py_ssize_t index = 0; index < PyList_Size(items) && index < PyList_Size(outcomes); index++) {
        PyObject *item = PyList_GetItem(items, index);
        PyObject *future = PyObject_TypeCheck(item, item_type) ? ((item_object *)item)->future : NULL;
        if (future == NULL) {
            continue;
        }
        Py_INCREF(future);
        PyObject *outcome = Py_NewRef(PyList_GetItem(outcomes, index));
        if (set_future(future, outcome, mixed && PyExceptionInstance_Check(outcome)) < 0) {
            if (type == NULL) {
                PyErr_Fetch(&type, &value, &traceback);
            } else {
                PyErr_Clear();
            }
        }
        Py_DECREF(outcome);
        Py_DECREF(future);
    }
    if (type != NULL) {
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    return 0;
}

static bool are_lists(PyObject *const *given, Py_ssize_t count) {
    bool lists = count == 2 && PyList_Check(given[0]) && PyList_Check(given[1]) &&
                 PyList_Size(given[0]) == PyList_Size(given[1]);
    if (!lists) {
        PyErr_SetString(PyExc_TypeError, "expected two lists of the same length, got other arguments");
    }
    return lists;
}

/* deliver(items, outcomes) */
static PyObject *loop_deliver(PyObject *Py_UNUSED(loop), PyObject *const *given, Py_ssize_t count) {
    return !are_lists(given, count) || deliver(given[0], given[1]) < 0 ? NULL : Py_NewRef(Py_None);
}

/* send(items, outcomes): at once between tasks; `_send_soon` otherwise. */
static PyObject *loop_send(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    if (!are_lists(given, count)) {
        return NULL;
    }
    if (((loop_object *)object)->between != PyThread_get_thread_ident()) {
        return PyObject_CallMethodObjArgs(object, names._send_soon, given[0], given[1], NULL);
    }
    return deliver(given[0], given[1]) < 0 ? NULL : Py_NewRef(Py_None);
}

/* --- the module ------------------------------------------------------------------------------------------ */

static PyType_Slot turn_slots[] = {
    {Py_tp_doc, (void *)"The base of Turn."},
    {Py_tp_dealloc, (void *)turn_dealloc},
    {Py_tp_traverse, (void *)turn_traverse},
    {Py_tp_clear, (void *)turn_clear},
    {Py_tp_methods, (void *)turn_methods},
    {Py_tp_members, (void *)turn_members},
    {0, NULL},
};

static PyType_Spec turn_spec = {
    .name = "aioacl._await.TurnBase",
    .basicsize = sizeof(turn_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = turn_slots,
};

static PyMethodDef loop_methods[] = {
    {"between_tasks", (PyCFunction)(void (*)(void))loop_between_tasks, METH_FASTCALL, NULL},
    {"end_turn", loop_end_turn, METH_NOARGS, NULL},
    {"flush", loop_flush, METH_NOARGS, NULL},
    /* The casts are due to the API: the flags say which type the function has. */
    {"deliver", (PyCFunction)(void (*)(void))loop_deliver, METH_FASTCALL, NULL},
    {"send", (PyCFunction)(void (*)(void))loop_send, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot loop_slots[] = {
    {Py_tp_doc, (void *)"The base of AsyncioLoop."},
    {Py_tp_dealloc, (void *)loop_dealloc},
    {Py_tp_traverse, (void *)loop_traverse},
    {Py_tp_clear, (void *)loop_clear},
    {Py_tp_methods, (void *)loop_methods},
    {Py_tp_members, (void *)loop_members},
    {0, NULL},
};

static PyType_Spec loop_spec = {
    .name = "aioacl._await.LoopBase",
    .basicsize = sizeof(loop_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = loop_slots,
};

static PyType_Slot item_slots[] = {
    {Py_tp_doc, (void *)"The base of BatchItem. Subclasses have `_await_in_python`."},
    {Py_tp_dealloc, (void *)item_dealloc},
    {Py_tp_traverse, (void *)item_traverse},
    {Py_tp_clear, (void *)item_clear},
    {Py_tp_members, (void *)item_members},
    {Py_am_await, (void *)item_await},
    {0, NULL},
};

static PyType_Spec item_spec = {
    .name = "aioacl._await.ItemBase",
    .basicsize = sizeof(item_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = item_slots,
};

static PyType_Slot wait_slots[] = {
    {Py_tp_doc, (void *)"One await of an item on an asyncio loop."},
    {Py_tp_dealloc, (void *)wait_dealloc},
    {Py_tp_traverse, (void *)wait_traverse},
    {Py_tp_clear, (void *)wait_clear},
    {Py_tp_finalize, (void *)wait_finalize},
    {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)wait_next},
    {Py_am_send, (void *)wait_step},
    {Py_tp_methods, (void *)wait_methods},
    {0, NULL},
};

static PyType_Spec wait_spec = {
    .name = "aioacl._await.ItemWait",
    .basicsize = sizeof(wait_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = wait_slots,
};

/* bind_items(item_class, turn_class, mixed_class, ended, not_yet, new, waiting): what aioacl._batches, which
 * imports this module, has made. */
static PyObject *bind_items(PyObject *Py_UNUSED(module), PyObject *arguments) {
    PyObject *item, *turn, *mixed, *instead;
    if (!PyArg_ParseTuple(arguments, "O!O!O!Odii", &PyType_Type, &item, &PyType_Type, &turn, &PyType_Type,
                          &mixed, &instead, &not_yet, &new_state, &waiting_state)) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)item, item_type) ||
        !PyType_IsSubtype((PyTypeObject *)turn, turn_type)) {
        return PyErr_Format(PyExc_TypeError, "expected subclasses of ItemBase and TurnBase, got others");
    }
    item_class = (PyTypeObject *)Py_NewRef(item);
    turn_class = (PyTypeObject *)Py_NewRef(turn);
    mixed_class = (PyTypeObject *)Py_NewRef(mixed);
    ended = Py_NewRef(instead);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"bind_items", bind_items, METH_VARARGS, NULL},
    /* The casts are due to the API: the flags say which type the function has. */
    {"move_items", (PyCFunction)(void (*)(void))move_items, METH_FASTCALL, NULL},
    {"new_item", (PyCFunction)(void (*)(void))new_item, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int add_items(PyObject *module) {
    hooks_here = attribute_of("sys", "get_asyncgen_hooks");
    invalid_state = attribute_of("asyncio", "InvalidStateError");
    turn_type = add_type(module, "TurnBase", &turn_spec);
    loop_type = add_type(module, "LoopBase", &loop_spec);
    item_type = add_type(module, "ItemBase", &item_spec);
    wait_type = add_type(module, "ItemWait", &wait_spec);
    if (hooks_here == NULL || invalid_state == NULL || turn_type == NULL || loop_type == NULL ||
        item_type == NULL || wait_type == NULL) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
