/*
 * InFlight: the references of one piece of work. Uses: the work that refers to one buffer.
 *
 * Each use connects an InFlight with the Uses of a buffer. It is in a list of both, so when the work is done,
 * it is removed without a search. The Uses owns the use, and the use owns a reference to its InFlight. The
 * garbage collector may clear either object first.
 */
#include "binding.h"

typedef struct {
    PyObject_HEAD struct use *first, **end; /* in the order of the enqueues; `end` is where the next one goes */
} uses_object;

struct use {
    uses_object *owner;
    in_flight_object *reference;
    struct use *next, **link; /* in the list of `owner` */
    struct use *sibling;      /* in the list of `reference` */
};

PyTypeObject *in_flight_type;
static PyTypeObject *uses_type;

/* --- uses ------------------------------------------------------------------------------------------------ */

PyObject *new_uses(void) {
    PyObject *object = PyType_GenericAlloc(uses_type, 0);
    if (object != NULL) {
        ((uses_object *)object)->end = &((uses_object *)object)->first;
    }
    return object;
}

int add_use(PyObject *object, in_flight_object *reference) {
    if (object == NULL || !PyObject_TypeCheck(object, uses_type)) {
        PyErr_SetString(PyExc_TypeError, "expected the Uses of a buffer, got another object");
        return -1;
    }
    uses_object *owner = (uses_object *)object;
    for (const struct use *each = reference->uses; each; each = each->sibling) {
        if (each->owner == owner) { /* a copy within one buffer */
            return 0;
        }
    }
    struct use *made = PyMem_Malloc(sizeof *made);
    if (made == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_INCREF((PyObject *)reference);
    *made = (struct use){owner, reference, NULL, owner->end, reference->uses};
    *owner->end = made;
    owner->end = &made->next;
    reference->uses = made;
    return 0;
}

/* Removes the use from the list of its owner only, and drops it. */
static void end_use(struct use *use) {
    in_flight_object *reference = use->reference;
    *use->link = use->next;
    if (use->next != NULL) {
        use->next->link = use->link;
    } else {
        use->owner->end = use->link;
    }
    PyMem_Free(use);
    Py_DECREF((PyObject *)reference);
}

void drop_uses(in_flight_object *reference) {
    struct use *each = reference->uses;
    reference->uses = NULL;
    while (each != NULL) {
        struct use *sibling = each->sibling;
        end_use(each);
        each = sibling;
    }
}

static PyObject *uses_add(PyObject *object, PyObject *reference) {
    if (!PyObject_TypeCheck(reference, in_flight_type)) {
        PyErr_SetString(PyExc_TypeError, "expected an InFlight, got another object");
        return NULL;
    }
    if (add_use(object, (in_flight_object *)reference) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Iterates over a copy of the list. */
static PyObject *uses_iter(PyObject *object) {
    PyObject *all = PyList_New(0);
    for (const struct use *each = ((uses_object *)object)->first; all != NULL && each; each = each->next) {
        if (PyList_Append(all, (PyObject *)each->reference) < 0) {
            Py_CLEAR(all);
        }
    }
    PyObject *iterator = all ? PyObject_GetIter(all) : NULL;
    Py_XDECREF(all);
    return iterator;
}

static int uses_bool(PyObject *object) {
    return ((uses_object *)object)->first != NULL;
}

static PyObject *uses_new(PyTypeObject *Py_UNUSED(type), PyObject *Py_UNUSED(arguments),
                          PyObject *Py_UNUSED(keywords)) {
    return new_uses();
}

static int uses_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    for (const struct use *each = ((uses_object *)object)->first; each; each = each->next) {
        Py_VISIT(each->reference);
    }
    return 0;
}

static int uses_clear(PyObject *object) {
    uses_object *self = (uses_object *)object;
    while (self->first != NULL) {
        struct use *use = self->first, **sibling = &use->reference->uses;
        while (*sibling != use) {
            sibling = &(*sibling)->sibling;
        }
        *sibling = use->sibling;
        end_use(use);
    }
    return 0;
}

static void uses_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    uses_clear(object);
    free_object(object);
}

static PyMethodDef uses_methods[] = {
    {"add", uses_add, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot uses_slots[] = {
    {Py_tp_doc, (void *)"The InFlight objects that refer to one buffer, in the order of their enqueues."},
    {Py_tp_new, (void *)uses_new},
    {Py_tp_dealloc, (void *)uses_dealloc},
    {Py_tp_traverse, (void *)uses_traverse},
    {Py_tp_clear, (void *)uses_clear},
    {Py_tp_iter, (void *)uses_iter},
    {Py_tp_methods, uses_methods},
    {Py_nb_bool, (void *)uses_bool},
    {0, NULL},
};

static PyType_Spec uses_spec = {
    .name = "aioacl._await.Uses",
    .basicsize = sizeof(uses_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = uses_slots,
};

/* --- InFlight -------------------------------------------------------------------------------------------- */

static int in_flight_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
    static char *known[] = {"core", "buffers", "held", NULL};
    in_flight_object *self = (in_flight_object *)object;
    PyObject *core, *buffers, *held;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!O", known, core_type, &core, &PyTuple_Type,
                                     &buffers, &held)) {
        return -1;
    }
    if (self->core != NULL) {
        PyErr_SetString(PyExc_ValueError, "expected a new InFlight, got one that was initialized before");
        return -1;
    }
    Py_INCREF(core);
    Py_INCREF(buffers);
    Py_INCREF(held);
    self->core = core;
    self->buffers = buffers;
    self->held = held;
    self->position = UNKNOWN_POSITION;
    return 0;
}

static int in_flight_traverse(PyObject *object, visitproc visit, void *arg) {
    const in_flight_object *self = (in_flight_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->core);
    Py_VISIT(self->buffers);
    Py_VISIT(self->held);
    return 0;
}

static int in_flight_clear(PyObject *object) {
    in_flight_object *self = (in_flight_object *)object;
    Py_CLEAR(self->core);
    Py_CLEAR(self->buffers);
    Py_CLEAR(self->held);
    return 0;
}

static void in_flight_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    in_flight_clear(object);
    free_object(object);
}

void place_reference(in_flight_object *reference, uint64_t position) {
    aio_stream *stream = reference->core ? ((core_object *)reference->core)->stream : NULL;
    reference->position = position;
    if (stream != NULL && position != 0) {
        aio_stream_refer(stream, position);
    }
}

static PyObject *in_flight_position(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong(((in_flight_object *)object)->position);
}

static int in_flight_place(PyObject *object, PyObject *value, void *Py_UNUSED(closure)) {
    unsigned long long position = value ? PyLong_AsUnsignedLongLong(value) : 0;
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "expected an int as the position, got its deletion");
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    place_reference((in_flight_object *)object, position);
    return 0;
}

static PyMemberDef in_flight_members[] = {
    {"core", T_OBJECT_EX, offsetof(in_flight_object, core), READONLY, NULL},
    {"buffers", T_OBJECT_EX, offsetof(in_flight_object, buffers), READONLY, NULL},
    {"held", T_OBJECT_EX, offsetof(in_flight_object, held), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef in_flight_getters[] = {
    {"position", in_flight_position, in_flight_place, "The position of the work.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot in_flight_slots[] = {
    {Py_tp_doc,
     (void *)"The references of one piece of work: the objects that it uses, its stream, and its position."
             "\n\nThe position is 1 << 62 while the work is being enqueued, and 0 if it was refused. If a "
             "buffer "
             "is closed, it stays allocated until all work that refers to it is done."},
    {Py_tp_init, (void *)in_flight_init},
    {Py_tp_dealloc, (void *)in_flight_dealloc},
    {Py_tp_traverse, (void *)in_flight_traverse},
    {Py_tp_clear, (void *)in_flight_clear},
    {Py_tp_members, in_flight_members},
    {Py_tp_getset, in_flight_getters},
    {0, NULL},
};

static PyType_Spec in_flight_spec = {
    .name = "aioacl._await.InFlight",
    .basicsize = sizeof(in_flight_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = in_flight_slots,
};

int add_in_flight(PyObject *module) {
    in_flight_type = add_type(module, "InFlight", &in_flight_spec);
    uses_type = in_flight_type ? add_type(module, "Uses", &uses_spec) : NULL;
    return uses_type ? 0 : -1;
}
