/*
 * The base of Python classes that give access to memory that another object owns.
 *
 * Before Python 3.12 only types made in C have the buffer protocol. Instances of this type pass each request
 * for a view on to their attribute `_exported`. So a view refers to that object, not to the instance. When the
 * instance is closed, its memory is freed at once, unless a view still exists.
 *
 * This header is only for the extension's own source, which includes Python.h.
 */
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

/* Never called, because no view refers to the instance. But without this slot some libraries, for example
 * numpy, keep a reference to the instance instead of a view. */
static void release(PyObject *self, Py_buffer *view) {
    (void)self;
    (void)view;
}

/* A new reference to the type; NULL if there is no memory for it. cffi releases the GIL around the call. */
void *aio_exporter(void) {
    PyType_Slot slots[] = {
        {Py_bf_getbuffer, (void *)hand_on}, {Py_bf_releasebuffer, (void *)release}, {0, NULL}};
    PyType_Spec spec = {
        .name = "aioacl._acl.Exporter", .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .slots = slots};
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL) {
        PyErr_Clear();
    }
    PyGILState_Release(state);
    return type;
}
