/*
 * Keeper: the object that keeps the memory of a buffer for the buffer, its views, and its tensors. The end of
 * the last reference gives the memory to the cache.
 *
 * A PinnedBuffer has a Keeper from the beginning, and its views are views of the Keeper. A device buffer gets
 * one with its first export. The garbage collector does not track a Keeper. So a Keeper lives until the last
 * reference to it is gone, also if that reference is in a cycle of which another object becomes reachable
 * again.
 */
#include "cache.h"

typedef struct {
    PyObject_HEAD PyObject *cache;
    item *item;      /* NULL: it has no memory */
    Py_ssize_t size; /* of the buffer, in bytes */
    PyObject *weak;
} keeper_object;

static PyTypeObject *keeper_type;

PyObject *new_keeper(PyObject *cache, Py_ssize_t size) {
    keeper_object *self = (keeper_object *)PyType_GenericAlloc(keeper_type, 0);
    if (self != NULL) {
        self->cache = Py_NewRef(cache);
        self->size = size;
    }
    return (PyObject *)self;
}

void pass_to_keeper(PyObject *keeper, item *it) {
    ((keeper_object *)keeper)->item = it;
}

static void keeper_dealloc(PyObject *object) {
    keeper_object *self = (keeper_object *)object;
    if (self->weak != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    if (self->item != NULL && !atomic_load(&aio_in_child)) {
        give_back(self->cache, self->item);
    }
    Py_CLEAR(self->cache);
    free_object(object);
}

static int keeper_buffer(PyObject *object, Py_buffer *view, int flags) {
    const keeper_object *self = (keeper_object *)object;
    void *memory = self->item ? (void *)(uintptr_t)self->item->address : (void *)&self->size;
    if (self->item != NULL && self->item->kind != CACHED_PINNED) {
        PyErr_SetString(PyExc_BufferError, "expected memory of the host, got device memory; copy it");
        view->obj = NULL;
        return -1;
    }
    return PyBuffer_FillInfo(view, object, memory, self->item ? self->size : 0, 0, flags);
}

static PyObject *keeper_address(PyObject *object, void *Py_UNUSED(closure)) {
    const item *it = ((keeper_object *)object)->item;
    return PyLong_FromUnsignedLongLong(it ? it->address : 0);
}

static PyMemberDef keeper_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(keeper_object, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef keeper_getters[] = {
    {"address", keeper_address, NULL, "The address of the memory; 0: it has none.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot keeper_slots[] = {
    {Py_tp_doc, (void *)"Keeps the memory of a buffer. Its end gives the memory to the cache of the device."},
    {Py_tp_dealloc, (void *)keeper_dealloc},
    {Py_tp_members, (void *)keeper_members},
    {Py_tp_getset, (void *)keeper_getters},
    {Py_bf_getbuffer, (void *)keeper_buffer},
    {0, NULL},
};

static PyType_Spec keeper_spec = {
    .name = "aioacl._await.Keeper",
    .basicsize = sizeof(keeper_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = keeper_slots,
};

int add_keeper(PyObject *module) {
    keeper_type = add_type(module, "Keeper", &keeper_spec);
    return keeper_type ? 0 : -1;
}
