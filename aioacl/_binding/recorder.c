/* Records of Python code in the flight recorder: `flight_note`, and those of the batches of a batcher. */
#include "batches.h"

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

/* The time at which the turn of an item was made, in seconds of time.monotonic(). */
static double born_of(PyObject *item) {
    PyObject *turn = PyObject_TypeCheck(item, item_type) ? ((item_object *)item)->turn : NULL;
    return turn != NULL && PyObject_TypeCheck(turn, turn_type) ? ((turn_object *)turn)->born : 0;
}

/* flight_batch(device, rows, items, began): records a batch that begins, and how long its first item has
 * waited. Returns its number, which no other batch has. */
static PyObject *flight_batch(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    static uint64_t batches;
    if (count != 4 || !PyList_Check(given[2])) {
        return PyErr_Format(PyExc_TypeError, "expected a device, rows, a list of items and a time");
    }
    long device = PyLong_AsLong(given[0]), rows = PyLong_AsLong(given[1]);
    double began = PyFloat_AsDouble(given[3]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    double waited = PyList_Size(given[2]) > 0 ? began - born_of(PyList_GetItem(given[2], 0)) : 0;
    batches++;
    aio_flight_note(AIO_FLIGHT_BATCH_LEAVES, (int)device, batches, (int32_t)rows,
                    waited > 0 ? (uint64_t)(waited * 1e6) : 0);
    return PyLong_FromUnsignedLongLong(batches);
}

/* flight_items(device, batch, items, code): records the end of each item of a list. */
static PyObject *flight_items(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    if (count != 4 || !PyList_Check(given[2])) {
        return PyErr_Format(PyExc_TypeError, "expected a device, a batch, a list of items and a code");
    }
    long device = PyLong_AsLong(given[0]), code = PyLong_AsLong(given[3]);
    unsigned long long batch = PyLong_AsUnsignedLongLong(given[1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    int64_t now_ns = aio_now_ns();
    for (Py_ssize_t index = 0; index < PyList_Size(given[2]); index++) {
        double waited = (double)now_ns / 1e9 - born_of(PyList_GetItem(given[2], index));
        aio_flight_note_at(now_ns, AIO_FLIGHT_ITEM_DONE, (int)device, batch << 32 | (uint64_t)index,
                           (int32_t)code, waited > 0 ? (uint64_t)(waited * 1e6) : 0);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    /* The casts are due to the API: the flags say which type the function has. */
    {"flight_note", (PyCFunction)(void (*)(void))flight_note, METH_FASTCALL, NULL},
    {"flight_batch", (PyCFunction)(void (*)(void))flight_batch, METH_FASTCALL, NULL},
    {"flight_items", (PyCFunction)(void (*)(void))flight_items, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int add_recorder(PyObject *module) {
    return PyModule_AddFunctions(module, functions);
}
