/*
 * The base of Python classes that lend out memory which another object owns.
 *
 * Before Python 3.12 only types made in C have the buffer protocol.  Instances of this one hand each request on
 * to what their attribute `_exported` answers.  So a view holds that, not the object it was asked of: the
 * object may be closed, and its memory go at once, unless there is a view.
 *
 * For the extension's own source only, which has Python.h.
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

/* Never called, for no view is of us; but without it some, numpy for one, would keep us in the place of a view.
 */
static void release(PyObject *self, Py_buffer *view) {
    (void)self;
    (void)view;
}

/* A new reference to the type; NULL if there is no memory for it. cffi lets go of Python's lock around the
 * call. */
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
