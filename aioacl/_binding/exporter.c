/*
 * The base of Python classes that give access to memory that another object owns.
 *
 * Before Python 3.12, only types made in C support the buffer protocol. An instance of this type passes each
 * request for a view to the object in its attribute `_exported`. So a view refers to the exported object, not
 * to the instance. When the instance is closed, its memory is freed at once, unless a view still exists.
 */
#include "binding.h"

static int hand_on(PyObject *self, Py_buffer *view, int flags) {
    PyObject *exported = PyObject_GetAttrString(self, "_exported");
    if (exported == NULL) {
        view->obj = NULL;
        return -1;
    }
    int result = PyObject_GetBuffer(exported, view, flags);
    Py_DECREF(exported);
    return result;
}

/* Never called, because no view refers to the instance. But if this slot were missing, some libraries, for
 * example numpy, would hold a reference to the instance instead of a view. */
static void release(PyObject *self, Py_buffer *view) {
    (void)self;
    (void)view;
}

static PyType_Slot slots[] = {
    {Py_bf_getbuffer, (void *)hand_on},
    {Py_bf_releasebuffer, (void *)release},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "aioacl._await.Exporter",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

int add_exporter(PyObject *module) {
    return add_type(module, "Exporter", &spec) ? 0 : -1;
}
