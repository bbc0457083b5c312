/*
 * Awaits, the base of AsyncioPort and TrioPort: it takes the completions of a loop from the engine, and wakes
 * the tasks. See await.c.
 */
#include "await.h"

#define KICK 0 /* as in aioacl/_wait/port.py */

enum { QUICK_IN_A_ROW = 64, QUICK_US = 1000, LEAST_TAKEN = 8, MOST_TAKEN = 64, TURNS = 32 };

PyTypeObject *awaits_type;
static PyObject *invalid_state;

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

int gives_way(awaits_object *port, PyObject *loop) {
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

/* If a task of asyncio was cancelled during its wait, it has cancelled its future too. */
static int asyncio_wake(PyObject *future) {
    PyObject *done = PyObject_CallMethodObjArgs(future, names.set_result, Py_None, NULL);
    if (done == NULL && PyErr_ExceptionMatches(invalid_state)) {
        PyErr_Clear();
        return 0;
    }
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static void complete(uint64_t key, int64_t result, first_error *first) {
    await_object *self = (await_object *)(uintptr_t)(key & ~KEY_OF_AWAIT);
    unlist_await(self);
    self->result = result;
    if (release_done(self->core) < 0) {
        keep_error(first);
    }
    PyObject *waiter = self->waiter;
    self->waiter = NULL;
    if (waiter != NULL && (self->loop ? asyncio_wake(waiter) : trio_wake(waiter)) < 0) {
        keep_error(first);
    }
    Py_XDECREF(waiter);
    Py_DECREF((PyObject *)self);
}

/* Passes a completion to Python. If a key has several results, only the first result is passed. */
static void pass_on(PyObject *came, uint64_t key, int64_t result, first_error *first) {
    PyObject *number = PyLong_FromUnsignedLongLong(key), *value = PyLong_FromLongLong(result);
    int present = number != NULL && value != NULL ? PyDict_Contains(came, number) : -1;
    if (present < 0 || (present == 0 && PyDict_SetItem(came, number, value) < 0)) {
        keep_error(first);
    }
    Py_XDECREF(number);
    Py_XDECREF(value);
}

/* With many awaits, more completions are taken at once, because each turn of the loop has a cost. */
static int taken_at_once(const awaits_object *self) {
    Py_ssize_t share = self->outstanding / TURNS;
    return share < LEAST_TAKEN ? LEAST_TAKEN : share > MOST_TAKEN ? MOST_TAKEN : (int)share;
}

/* Takes some completions. If more have arrived, the descriptor stays readable, and the loop first runs the
 * tasks that were woken here. So a turn of the loop stays short. */
static void take_some(awaits_object *self, PyObject *came, first_error *first) {
    uint64_t keys[MOST_TAKEN];
    int64_t results[MOST_TAKEN];
    int count = self->port ? aio_port_take(self->port, keys, results, taken_at_once(self)) : 0;
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
        if (done == NULL) { /* Ctrl-C or an error has interrupted the delivery: the reader runs once more */
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
    invalid_state = attribute_of("asyncio", "InvalidStateError");
    awaits_type = invalid_state ? add_type(module, "Awaits", &awaits_spec) : NULL;
    return awaits_type ? 0 : -1;
}
