/* `flight_note`: a record of Python code in the flight recorder. */
#include "binding.h"

enum { FIELDS = 5 };

/* flight_note(kind, device, id, code, value). A negative device means none. */
static PyObject *flight_note(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    if (count != FIELDS) {
        return PyErr_Format(PyExc_TypeError, "expected 5 arguments, got %zd", count);
    }
    long kind = PyLong_AsLong(given[0]), device = PyLong_AsLong(given[1]), code = PyLong_AsLong(given[3]);
    unsigned long long id = PyLong_AsUnsignedLongLong(given[2]);
    unsigned long long value = PyLong_AsUnsignedLongLong(given[4]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    aio_flight_note((int)kind, (int)device, id, (int32_t)code, value);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    /* The cast is due to the API: the flags say which type the function has. */
    {"flight_note", (PyCFunction)(void (*)(void))flight_note, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int add_recorder(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
