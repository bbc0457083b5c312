/*
 * Awaits, the base of AsyncioPort and TrioPort: it takes the completions of a loop from the engine, and wakes
 * the tasks. See await.c.
 */
#include "call.h"

#include <string.h>

/* FEW_QUICK: after so many quick awaits, the loop reports its next turn. */
enum { QUICK_IN_A_ROW = 64, QUICK_US = 1000, FEW_QUICK = 8 };

enum { FEWEST_TAKEN = 2, BUSY_TAKEN = 8, TURNS = 32, PATIENCE_US = 4000, BUSY_US = 20000 };

PyTypeObject *awaits_type;

static PyObject *asyncio; /* the module */

void list_await(awaits_object *port, await_object *self) {
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

void unlist_await(await_object *self) {
    *self->link = self->next;
    if (self->next) {
        self->next->link = self->link;
    }
    self->port->outstanding--;
    self->next = NULL;
    self->link = NULL;
    self->port = NULL;
}

/* Lets the loop call `_new_turn` in its next turn. */
static int learn_of_new_turn(awaits_object *port, PyObject *loop) {
    PyObject *new_turn = PyObject_GetAttr((PyObject *)port, names._new_turn);
    PyObject *handle = new_turn ? PyObject_CallMethodObjArgs(loop, names.call_soon, new_turn, NULL) : NULL;
    Py_XDECREF(new_turn);
    Py_XDECREF(handle);
    port->learns_of_turn = handle != NULL;
    return handle ? 0 : -1;
}

/* A call of the loop for each turn would cost more than a quick await, because the loop then has one turn more.
 * So few quick awaits, in a short time, are only counted. If they took longer, they may have been in several
 * turns, and the count begins again. The turn in progress may have had half of the time. */
int gives_way(awaits_object *port, PyObject *loop) {
    int64_t now = aio_now_us();
    if (port->quick == 0) {
        port->quick_since_us = now;
    }
    if (!port->learns_of_turn) {
        bool slow = now - port->quick_since_us > port->quick_us / 2;
        if ((slow || port->quick >= FEW_QUICK) && learn_of_new_turn(port, loop) < 0) {
            return -1;
        }
        if (slow) {
            port->quick = 0;
            port->quick_since_us = now - port->quick_us / 2;
        }
    }
    port->quick++;
    return port->quick >= QUICK_IN_A_ROW || now - port->quick_since_us > port->quick_us;
}

/* The first error of a drain. The engine passes each completion only once, so the remaining completions are
 * delivered before the error is raised. */
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

/* Takes the reference to the Await. */
static void list_ready(awaits_object *port, await_object *self) {
    if (port->ready == NULL) {
        port->ready_end = &port->ready;
    }
    *port->ready_end = self;
    port->ready_end = &self->next;
}

/* The caller gets the list's reference. */
static await_object *next_ready(awaits_object *port) {
    await_object *self = port->ready;
    if (self != NULL) {
        port->ready = self->next;
        self->next = NULL;
    }
    return self;
}

/* Takes the reference to the Await. */
static void put_back(awaits_object *port, await_object *self) {
    self->next = port->ready;
    port->ready_end = port->ready ? port->ready_end : &self->next;
    port->ready = self;
}

/* Whether a step of a task may run the loop, and wait for another task of its batch. asyncio does not allow
 * this, but nest_asyncio patches asyncio, and leaves this mark. */
static bool may_nest(void) {
    PyObject *attributes = PyModule_GetDict(asyncio);
    return PyDict_GetItem(attributes, names._nest_patched) != NULL;
}

/* Lets the loop run each task by itself. Then the debug mode of asyncio names the task that is slow, and a loop
 * that a step runs finds the other tasks. */
static int wake_each_soon(awaits_object *port) {
    while (port->ready != NULL) {
        await_object *self = next_ready(port);
        if (future_wake_soon(self) < 0) {
            put_back(port, self);
            return -1;
        }
        Py_DECREF((PyObject *)self);
    }
    return 0;
}

/* Whether the loop must run each task by itself. Returns -1 with an exception. */
static int needs_each(PyObject *loop) {
    PyObject *answer = PyObject_CallMethodObjArgs(loop, names.get_debug, NULL);
    int debug = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return debug == 0 ? may_nest() : debug;
}

/* Lets the loop call `run_ready`. A second call for one batch does nothing. */
static int call_run_ready_soon(awaits_object *port, PyObject *loop) {
    int each = needs_each(loop);
    if (each != 0) {
        return each < 0 ? -1 : wake_each_soon(port);
    }
    PyObject *run_ready = PyObject_GetAttr((PyObject *)port, names.run_ready);
    PyObject *handle = run_ready ? PyObject_CallMethodObjArgs(loop, names.call_soon, run_ready, NULL) : NULL;
    Py_XDECREF(run_ready);
    Py_XDECREF(handle);
    return handle ? 0 : -1;
}

/* If Ctrl-C or an error prevents this, the descriptor becomes readable, and the next drain tries again. */
static void run_ready_soon(awaits_object *port, first_error *first) {
    if (port->ready == NULL) {
        return;
    }
    PyObject *loop = Py_NewRef(port->ready->loop);
    if (call_run_ready_soon(port, loop) < 0) {
        keep_error(first);
        aio_port_kick(port->port);
    }
    Py_DECREF(loop);
}

/* The engine passes each completion only once. So after a MemoryError, the next turn of the loop passes it on
 * again. Of nested drains, each takes at most MOST_TAKEN completions. */
static bool keep_completion(awaits_object *port, uint64_t key, int64_t result, first_error *first) {
    if (!PyErr_ExceptionMatches(PyExc_MemoryError) || port->kept == MOST_KEPT) {
        keep_error(first);
        return false;
    }
    PyErr_Clear();
    port->kept_keys[port->kept] = key;
    port->kept_results[port->kept++] = result;
    return true;
}

static void notify(await_object *self, first_error *first) {
    PyObject *function = self->notify;
    self->notify = NULL;
    PyObject *done = PyObject_CallNoArgs(function);
    if (done == NULL) {
        keep_error(first);
    }
    Py_XDECREF(done);
    Py_DECREF(function);
}

/* Returns whether it has woken no task. */
static bool complete(awaits_object *port, uint64_t key, int64_t result, first_error *first) {
    await_object *self = (await_object *)(uintptr_t)(key & ~KEY_OF_AWAIT);
    core_object *core = self->core;
    Py_XINCREF((PyObject *)core); /* `release_done` may run a finalizer that ends the Await */
    unlist_await(self);
    self->result = result;
    if (core != NULL && release_done(core) < 0) {
        keep_error(first);
    }
    Py_XDECREF((PyObject *)core);
    if (self->started && !end_started(port, self)) {
        Py_DECREF((PyObject *)self);
        return true;
    }
    if (self->notify != NULL) {
        notify(self, first);
    }
    if (self->waiter != NULL && self->loop != NULL) {
        list_ready(port, self);
        return false;
    }
    PyObject *task = self->waiter;
    self->waiter = NULL;
    if (task != NULL && trio_wake(task) < 0 && keep_completion(port, key, result, first)) {
        self->waiter = Py_NewRef(task);
        list_await(port, self);
    }
    Py_XDECREF(task);
    Py_DECREF((PyObject *)self);
    return task == NULL;
}

/* Passes a completion to Python. If a key has several results, only the first result is passed. */
static void pass_on(awaits_object *port, PyObject *came, uint64_t key, int64_t result, first_error *first) {
    PyObject *number = PyLong_FromUnsignedLongLong(key), *value = PyLong_FromLongLong(result);
    int present = number != NULL && value != NULL ? PyDict_Contains(came, number) : -1;
    if (present < 0 || (present == 0 && PyDict_SetItem(came, number, value) < 0)) {
        keep_completion(port, key, result, first);
    }
    Py_XDECREF(number);
    Py_XDECREF(value);
}

/* Returns how many completions are taken in this turn of the loop. Each turn has a cost of its own, but after a
 * short turn the loop reacts sooner to other events. So few are taken, unless completions have been left behind
 * for longer than a burst of some dozens takes. With many awaits, more are taken. */
static int taken_at_once(awaits_object *self, int64_t now_us) {
    if (self->behind_since_us && now_us - self->behind_since_us >= self->patience_us) {
        self->busy_until_us = now_us + BUSY_US;
    }
    Py_ssize_t share = self->outstanding / TURNS;
    Py_ssize_t least = now_us < self->busy_until_us ? BUSY_TAKEN : FEWEST_TAKEN;
    return share < least ? (int)least : share > MOST_TAKEN ? MOST_TAKEN : (int)share;
}

static void note_rest(awaits_object *self, int64_t now_us, bool some_left) {
    if (!some_left) {
        self->behind_since_us = 0;
    } else if (!self->behind_since_us) {
        self->behind_since_us = now_us;
    }
}

static int take_kept(awaits_object *self, uint64_t *keys, int64_t *results) {
    int kept = self->kept;
    memcpy(keys, self->kept_keys, (size_t)kept * sizeof *keys);
    memcpy(results, self->kept_results, (size_t)kept * sizeof *results);
    self->kept = 0;
    return kept;
}

/* Takes some completions. If more have arrived, the descriptor stays readable, and the loop first runs the
 * tasks that were woken here. So a turn of the loop stays short. */
static void take_some(awaits_object *self, PyObject *came, first_error *first) {
    uint64_t keys[MOST_KEPT + MOST_TAKEN];
    int64_t results[MOST_KEPT + MOST_TAKEN];
    int64_t now = aio_now_us();
    int wanted = taken_at_once(self, now), kept = take_kept(self, keys, results);
    int count = self->port ? aio_port_take(self->port, keys + kept, results + kept, wanted) : 0;
    note_rest(self, now, count == wanted);
    for (int index = 0; index < kept + count; index++) {
        if (!(keys[index] & KEY_OF_AWAIT)) {
            pass_on(self, came, keys[index], results[index], first);
        } else if (complete(self, keys[index], results[index], first) && count < MOST_TAKEN && self->port) {
            count += aio_port_take(self->port, keys + kept + count, results + kept + count, 1);
        }
    }
    if (self->kept) {
        aio_port_kick(self->port);
    }
    if (!self->learns_of_turn) {
        self->quick = 0;
    }
    self->learns_of_turn = 0; /* Ctrl-C may have taken the place of the call of `_new_turn` */
}

/* Runs the next steps of the tasks. Of the exceptions of tasks, only KeyboardInterrupt, SystemExit and those of
 * asyncio's own code reach this function. Then the loop runs the remaining steps later. */
static void run_ready(awaits_object *port, first_error *first) {
    await_object *self;
    int woken = 0;
    while (woken == 0 && (self = next_ready(port)) != NULL) {
        woken = future_wake(self);
        if (woken < 0 && self->waiter != NULL) {
            put_back(port, self);
        } else {
            Py_DECREF((PyObject *)self);
        }
    }
    if (woken < 0) {
        keep_error(first);
        run_ready_soon(port, first);
    }
}

static PyObject *end_of(first_error *first) {
    if (first->type != NULL) {
        PyErr_Restore(first->type, first->value, first->traceback);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The loop calls this function after a drain by other code. */
static PyObject *awaits_run_ready(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    first_error first = {NULL, NULL, NULL};
    run_ready((awaits_object *)object, &first);
    return end_of(&first);
}

/* Takes completions, and passes those of Python on. */
static void drain(PyObject *object, first_error *first) {
    PyObject *came = PyObject_GetAttr(object, names._came);
    if (came == NULL) {
        keep_error(first);
        return;
    }
    take_some((awaits_object *)object, came, first);
    if (PyDict_Size(came) > 0) {
        PyObject *done = PyObject_CallMethodObjArgs(object, names._deliver_came, NULL);
        if (done == NULL) { /* Ctrl-C or an error has interrupted the delivery: the reader runs once more */
            keep_error(first);
            aio_port_kick(((awaits_object *)object)->port);
        }
        Py_XDECREF(done);
    }
    Py_DECREF(came);
}

/* Any code may call this function, also a task. So the tasks that it wakes run later. */
static PyObject *awaits_drain(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    first_error first = {NULL, NULL, NULL};
    drain(object, &first);
    run_ready_soon((awaits_object *)object, &first);
    return end_of(&first);
}

/* The loop calls this function when the descriptor of the port is readable. No task runs then, so the tasks
 * that it wakes run at once: a turn of the loop for them would cost more than a step of a task. */
static PyObject *awaits_read(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    awaits_object *port = (awaits_object *)object;
    first_error first = {NULL, NULL, NULL};
    drain(object, &first);
    int each = port->ready && first.type == NULL ? needs_each(port->ready->loop) : 1;
    if (each == 0) {
        run_ready(port, &first);
    } else {
        if (each < 0) {
            keep_error(&first);
        }
        run_ready_soon(port, &first);
    }
    return end_of(&first);
}

static PyObject *awaits_attach(PyObject *object, PyObject *address) {
    void *port = PyLong_AsVoidPtr(address);
    if (port == NULL && PyErr_Occurred()) {
        return NULL;
    }
    ((awaits_object *)object)->port = port;
    ((awaits_object *)object)->quick_us = QUICK_US;
    ((awaits_object *)object)->patience_us = PATIENCE_US;
    Py_RETURN_NONE;
}

static PyObject *awaits_gives_way(PyObject *object, PyObject *loop) {
    int give_way = gives_way((awaits_object *)object, loop);
    return give_way < 0 ? NULL : PyBool_FromLong(give_way);
}

static PyObject *awaits_leave_runs(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    leave_runs((awaits_object *)object);
    Py_RETURN_NONE;
}

static PyObject *awaits_new_turn(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    ((awaits_object *)object)->quick = 0;
    ((awaits_object *)object)->learns_of_turn = 0;
    Py_RETURN_NONE;
}

static int awaits_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    for (await_object *each = ((awaits_object *)object)->first; each; each = each->next) {
        Py_VISIT(each);
    }
    for (await_object *each = ((awaits_object *)object)->ready; each; each = each->next) {
        Py_VISIT(each);
    }
    return 0;
}

static int awaits_clear(PyObject *object) {
    awaits_object *self = (awaits_object *)object;
    self->kept = 0; /* their keys are addresses of Awaits in the list */
    while (self->first) {
        await_object *each = self->first;
        unlist_await(each);
        Py_DECREF((PyObject *)each);
    }
    for (await_object *each = next_ready(self); each; each = next_ready(self)) {
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
    {"_attach", awaits_attach, METH_O, NULL},           {"_leave_runs", awaits_leave_runs, METH_NOARGS, NULL},
    {"_gives_way", awaits_gives_way, METH_O, NULL},     {"_new_turn", awaits_new_turn, METH_NOARGS, NULL},
    {"drain", awaits_drain, METH_NOARGS, NULL},         {"read", awaits_read, METH_NOARGS, NULL},
    {"run_ready", awaits_run_ready, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL},
};

static PyMemberDef awaits_members[] = {
    {"_outstanding", T_PYSSIZET, offsetof(awaits_object, outstanding), READONLY, NULL},
    {"_quick_us", T_LONGLONG, offsetof(awaits_object, quick_us), 0, NULL},
    {"_patience_us", T_LONGLONG, offsetof(awaits_object, patience_us), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot awaits_slots[] = {
    {Py_tp_doc, (void *)"The base of AsyncioPort and TrioPort: the awaits of a loop."},
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

int add_ports(PyObject *module) {
    asyncio = PyImport_ImportModule("asyncio");
    awaits_type = asyncio ? add_type(module, "Awaits", &awaits_spec) : NULL;
    return awaits_type ? 0 : -1;
}
