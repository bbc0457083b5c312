/*
 * The site at which an object is made: the instruction of the user's code that called aioacl, as a tuple of its
 * code object, its offset and its module. To find the line of an instruction takes longer, so only a warning
 * does so (aioacl/_base/origin.py).
 */
#include "binding.h"

static PyObject *get_frame, *prefix;

static bool is_ours(PyObject *module) {
    if (module == NULL || !PyUnicode_Check(module)) {
        return false;
    }
    return PyUnicode_CompareWithASCIIString(module, "aioacl") == 0 ||
           PyUnicode_Tailmatch(module, prefix, 0, PY_SSIZE_T_MAX, -1) == 1;
}

static PyObject *module_of(PyObject *frame) {
    PyObject *globals = PyObject_GetAttr(frame, names.f_globals);
    PyObject *module = globals ? PyObject_GetItem(globals, names.__name__) : NULL;
    Py_XDECREF(globals);
    if (module == NULL) {
        PyErr_Clear();
        return Py_NewRef(names.nothing);
    }
    return module;
}

/* Returns the innermost frame that does not belong to aioacl, and its module. */
static PyObject *caller(PyObject **module) {
    PyObject *frame = PyObject_CallNoArgs(get_frame);
    *module = frame ? module_of(frame) : NULL;
    while (frame != NULL && is_ours(*module)) {
        PyObject *back = PyObject_GetAttr(frame, names.f_back);
        if (back == NULL || back == Py_None) {
            Py_XDECREF(back);
            break;
        }
        Py_DECREF(frame);
        Py_DECREF(*module);
        frame = back;
        *module = module_of(frame);
    }
    return frame;
}

PyObject *calling_site(void) {
    PyObject *module = NULL, *frame = caller(&module);
    PyObject *code = frame ? PyObject_GetAttr(frame, names.f_code) : NULL;
    PyObject *offset = code ? PyObject_GetAttr(frame, names.f_lasti) : NULL;
    PyObject *made = offset ? PyTuple_Pack(3, code, offset, module) : NULL;
    Py_XDECREF(offset);
    Py_XDECREF(code);
    Py_XDECREF(frame);
    Py_XDECREF(module);
    return made;
}

static PyObject *site(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return calling_site();
}

static PyMethodDef functions[] = {
    {"site", site, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_site(PyObject *module) {
    prefix = PyUnicode_InternFromString("aioacl.");
    get_frame = prefix ? attribute_of("sys", "_getframe") : NULL;
    return get_frame ? PyModule_AddFunctions(module, functions) : -1;
}
