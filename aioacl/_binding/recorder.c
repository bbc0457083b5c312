/* Records of Python code in the flight recorder: `flight_note`, and `flight_items` for the items of a batch. */
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

/* The time at which the turn of an item was made, in seconds of time.monotonic(); negative with an exception.
 */
static double born_of(PyObject *item) {
    PyObject *turn = PyObject_GetAttr(item, names._turn);
    PyObject *born = turn ? PyObject_GetAttr(turn, names.born) : NULL;
    double seconds = born ? PyFloat_AsDouble(born) : -1;
    Py_XDECREF(turn);
    Py_XDECREF(born);
    return seconds;
}

/* flight_items(device, batch, items, code): records the end of each item of a list. */
static PyObject *flight_items(PyObject *Py_UNUSED(module), PyObject *given) {
    int device, code;
    unsigned long long batch;
    PyObject *items;
    if (!PyArg_ParseTuple(given, "iKO!i", &device, &batch, &PyList_Type, &items, &code)) {
        return NULL;
    }
    int64_t now_ns = aio_now_ns();
    for (Py_ssize_t index = 0; index < PyList_Size(items); index++) {
        double waited = (double)now_ns / 1e9 - born_of(PyList_GetItem(items, index));
        if (PyErr_Occurred()) {
            return NULL;
        }
        aio_flight_note_at(now_ns, AIO_FLIGHT_ITEM_DONE, device, batch << 32 | (uint64_t)index, code,
                           waited > 0 ? (uint64_t)(waited * 1e6) : 0);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    /* The cast is due to the API: the flags say which type the function has. */
    {"flight_note", (PyCFunction)(void (*)(void))flight_note, METH_FASTCALL, NULL},
    {"flight_items", flight_items, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_recorder(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
