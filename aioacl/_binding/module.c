/*
 * The module aioacl._await. The module is in the shared object of aioacl._acl, because both modules use the
 * same engine. aioacl/_base/ffi.py loads aioacl._await from this shared object.
 */
#include "batches.h"
#include "call.h"

struct binding_names names;

PyObject *attribute_of(const char *module, const char *name) {
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *found = imported ? PyObject_GetAttrString(imported, name) : NULL;
    Py_XDECREF(imported);
    return found;
}

PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0) {
        Py_CLEAR(type);
    }
    return (PyTypeObject *)type;
}

static int add_names(void) {
#define X(name)                                                                                                \
    names.name = PyUnicode_InternFromString(#name);                                                            \
    if (names.name == NULL) {                                                                                  \
        return -1;                                                                                             \
    }
    NAMES(X)
#undef X
    names.nothing = PyUnicode_InternFromString("");
    return names.nothing ? 0 : -1;
}

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_await", "The types behind enqueues and awaits.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__await(void) {
    PyObject *module = PyModule_Create(&definition);
    bool failed = module == NULL || add_names() < 0 || add_handles(module) < 0 || add_enqueue(module) < 0 ||
                  add_launch(module) < 0 || add_awaits(module) < 0 || add_dlpack(module) < 0 ||
                  add_keeper(module) < 0 || add_dataset(module) < 0 || add_cache(module) < 0 ||
                  add_site(module) < 0 || add_exporter(module) < 0 || add_arguments(module) < 0 ||
                  add_slots(module) < 0 || add_runs(module) < 0 || add_baton(module) < 0 ||
                  add_driver(module) < 0 || add_items(module) < 0 || add_recorder(module) < 0;
    if (failed) {
        Py_CLEAR(module);
    }
    return module;
}
