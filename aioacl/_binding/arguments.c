/*
 * Spec: the shapes and types of a model's tensors. Arguments: the checked arguments of one call.
 *
 * `check` accepts the usual arguments: exact arrays of NumPy, bytes, bytearrays and memoryviews, one or a list
 * or tuple of them. In all other cases it returns None, and the Python code of aioacl/_models/arguments.py
 * checks the arguments, raises the error if there is one, and makes the Arguments of memoryviews. An Arguments
 * keeps the buffers that were checked.
 */
#include "call.h"

#include <string.h>

PyTypeObject *arguments_type;
PyTypeObject *spec_type;
static PyTypeObject *array_type;

/* --- Spec ------------------------------------------------------------------------------------------------- */

static Py_ssize_t *numbers_of(PyObject *tuple, int *count) {
    Py_ssize_t size = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
    Py_ssize_t *made = size < 0 ? NULL : PyMem_Calloc((size_t)size + 1, sizeof *made);
    if (made == NULL) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of ints");
        return NULL;
    }
    for (Py_ssize_t index = 0; index < size; index++) {
        made[index] = PyLong_AsSsize_t(PyTuple_GetItem(tuple, index));
    }
    *count = (int)size;
    if (PyErr_Occurred()) {
        PyMem_Free(made);
        return NULL;
    }
    return made;
}

static Py_ssize_t product(const Py_ssize_t *dims, int rank) {
    Py_ssize_t size = 1;
    for (int index = 0; index < rank; index++) {
        size *= dims[index];
    }
    return size;
}

static int take_input(tensor *made, PyObject *item) {
    PyObject *formats, *dims;
    if (!PyArg_ParseTuple(item, "O!nO!", &PyTuple_Type, &formats, &made->itemsize, &PyTuple_Type, &dims)) {
        return -1;
    }
    for (Py_ssize_t index = 0; index < PyTuple_Size(formats) && index < 3; index++) {
        const char *text = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(formats, index), NULL);
        if (text == NULL) {
            return -1;
        }
        strncpy(made->formats[index], text, sizeof made->formats[index] - 1);
        made->format_count++;
    }
    made->dims = numbers_of(dims, &made->rank);
    return made->dims ? 0 : -1;
}

static int take_output(tensor *made, PyObject *item) {
    int batched;
    if (!PyArg_ParseTuple(item, "nnp", &made->itemsize, &made->nbytes, &batched)) {
        return -1;
    }
    made->batched = (char)batched;
    return 0;
}

/* Stores the shape of an output in the gear, of which an execution writes the first bytes only. */
static int take_shape(const spec_object *self, gear *made, int output, PyObject *shape) {
    int rank;
    Py_ssize_t *dims = numbers_of(shape, &rank);
    if (dims == NULL) {
        return -1;
    }
    const tensor *of = &self->tensors[self->inputs + output];
    Py_ssize_t nbytes = product(dims, rank) * of->itemsize;
    made->transfers[self->inputs + output] = (size_t)(nbytes < of->nbytes ? nbytes : of->nbytes);
    made->row_bytes[output] = rank ? (size_t)(product(dims + 1, rank - 1) * of->itemsize) : 0;
    PyMem_Free(dims);
    return 0;
}

static int take_gear(const spec_object *self, gear *made, PyObject *item) {
    PyObject *values, *inputs, *outputs;
    int count, at = 0;
    if (!PyArg_ParseTuple(item, "O!O!O!", &PyTuple_Type, &values, &PyTuple_Type, &inputs, &PyTuple_Type,
                          &outputs)) {
        return -1;
    }
    Py_ssize_t *given = numbers_of(values, &made->value_count);
    made->dims = given ? numbers_of(inputs, &count) : NULL;
    made->values = PyMem_Calloc((size_t)made->value_count + 1, sizeof *made->values);
    made->transfers = PyMem_Calloc((size_t)(self->inputs + self->outputs + 1), sizeof *made->transfers);
    made->row_bytes = PyMem_Calloc((size_t)self->outputs + 1, sizeof *made->row_bytes);
    made->shapes = Py_NewRef(outputs);
    bool failed = !made->dims || !made->values || !made->transfers || !made->row_bytes;
    for (int index = 0; !failed && index < made->value_count; index++) {
        made->values[index] = given[index];
    }
    PyMem_Free(given);
    for (int index = 0; !failed && index < self->inputs; index++) {
        int rank = self->tensors[index].rank;
        made->transfers[index] = (size_t)(product(made->dims + at, rank) * self->tensors[index].itemsize);
        at += rank;
    }
    for (int index = 0; !failed && index < self->outputs; index++) {
        failed = take_shape(self, made, index, PyTuple_GetItem(outputs, index)) < 0;
    }
    return failed ? -1 : 0;
}

static int fill_spec(spec_object *self, PyObject *inputs, PyObject *outputs, PyObject *gears) {
    self->inputs = (int)PyTuple_Size(inputs);
    self->outputs = (int)PyTuple_Size(outputs);
    self->tensors = PyMem_Calloc((size_t)(self->inputs + self->outputs + 1), sizeof *self->tensors);
    self->gears = PyMem_Calloc((size_t)PyTuple_Size(gears) + 1, sizeof *self->gears);
    if (self->tensors == NULL || self->gears == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->gear_count = (int)PyTuple_Size(gears);
    for (int index = 0; index < self->inputs; index++) {
        if (take_input(&self->tensors[index], PyTuple_GetItem(inputs, index)) < 0) {
            return -1;
        }
    }
    for (int index = 0; index < self->outputs; index++) {
        if (take_output(&self->tensors[self->inputs + index], PyTuple_GetItem(outputs, index)) < 0) {
            return -1;
        }
    }
    for (int index = 0; index < self->gear_count; index++) {
        if (take_gear(self, &self->gears[index], PyTuple_GetItem(gears, index)) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *spec_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords)) {
    PyObject *inputs, *outputs, *gears, *named, *arrays;
    int kind;
    if (!PyArg_ParseTuple(arguments, "iO!O!O!O!O", &kind, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs,
                          &PyTuple_Type, &gears, &PyTuple_Type, &named, &arrays)) {
        return NULL;
    }
    spec_object *self = (spec_object *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        self->kind = (enum aio_gears)kind;
        self->names = Py_NewRef(named);
        self->arrays = Py_NewRef(arrays);
        if (fill_spec(self, inputs, outputs, gears) < 0) {
            Py_CLEAR(self);
        }
    }
    return (PyObject *)self;
}

static int spec_traverse(PyObject *object, visitproc visit, void *arg) {
    const spec_object *self = (spec_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->arrays);
    Py_VISIT(self->empty);
    Py_VISIT(self->dtypes);
    return 0;
}

static int spec_clear(PyObject *object) {
    spec_object *self = (spec_object *)object;
    Py_CLEAR(self->arrays);
    Py_CLEAR(self->empty);
    Py_CLEAR(self->dtypes);
    return 0;
}

static void spec_dealloc(PyObject *object) {
    spec_object *self = (spec_object *)object;
    PyObject_GC_UnTrack(object);
    spec_clear(object);
    for (int index = 0; self->tensors && index < self->inputs; index++) {
        PyMem_Free(self->tensors[index].dims);
    }
    for (int index = 0; index < self->gear_count; index++) {
        PyMem_Free(self->gears[index].values);
        PyMem_Free(self->gears[index].dims);
        PyMem_Free(self->gears[index].transfers);
        PyMem_Free(self->gears[index].row_bytes);
        Py_XDECREF(self->gears[index].shapes);
    }
    PyMem_Free(self->tensors);
    PyMem_Free(self->gears);
    Py_XDECREF(self->names);
    free_object(object);
}

static PyType_Slot spec_slots[] = {
    {Py_tp_doc, (void *)"The shapes and types of a model's tensors, and its gears."},
    {Py_tp_new, (void *)spec_new},
    {Py_tp_dealloc, (void *)spec_dealloc},
    {Py_tp_traverse, (void *)spec_traverse},
    {Py_tp_clear, (void *)spec_clear},
    {0, NULL},
};

static PyType_Spec spec_spec = {
    .name = "aioacl._await.Spec",
    .basicsize = sizeof(spec_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = spec_slots,
};

/* --- gears ------------------------------------------------------------------------------------------------ */

int gear_for_rows(const spec_object *spec, Py_ssize_t rows) {
    int best = -1;
    for (int index = 0; rows > 0 && index < spec->gear_count; index++) {
        int64_t batch = spec->gears[index].values[0];
        if (batch >= rows && (best < 0 || batch < spec->gears[best].values[0])) {
            best = index;
        }
    }
    return best;
}

/* Whether the shape is that of the input, in which -1 stands for any number of rows. */
static bool fits(const tensor *input, const Py_buffer *view, Py_ssize_t *rows) {
    if (view->ndim != input->rank) {
        return false;
    }
    for (int index = 0; index < input->rank; index++) {
        if (input->dims[index] >= 0 && input->dims[index] != view->shape[index]) {
            return false;
        }
        if (input->dims[index] < 0 && index == 0 && *rows < 0) {
            *rows = view->shape[0];
        } else if (input->dims[index] < 0 && (index > 0 || *rows != view->shape[0])) {
            return false;
        }
    }
    return true;
}

static int gear_of_batch(arguments_object *self) {
    self->rows = -1;
    for (int index = 0; index < self->spec->inputs; index++) {
        if (!fits(&self->spec->tensors[index], &self->views[index].buffer, &self->rows)) {
            return -1;
        }
    }
    return self->rows < 0 ? -1 : gear_for_rows(self->spec, self->rows);
}

static bool has_shapes(const arguments_object *self, const gear *of) {
    const Py_ssize_t *dims = of->dims;
    for (int index = 0; index < self->spec->inputs; index++) {
        const Py_buffer *view = &self->views[index].buffer;
        size_t nbytes = (size_t)view->ndim * sizeof *dims;
        if (view->ndim != self->spec->tensors[index].rank || memcmp(view->shape, dims, nbytes) != 0) {
            return false;
        }
        dims += view->ndim;
    }
    return true;
}

static int gear_of(arguments_object *self) {
    if (self->spec->kind == AIO_BATCHES) {
        return gear_of_batch(self);
    }
    for (int index = 0; index < self->spec->gear_count; index++) {
        if (has_shapes(self, &self->spec->gears[index])) {
            return index;
        }
    }
    return -1;
}

/* --- Arguments -------------------------------------------------------------------------------------------- */

static arguments_object *new_arguments(spec_object *spec) {
    arguments_object *self = (arguments_object *)PyType_GenericAlloc(arguments_type, spec->inputs);
    if (self != NULL) {
        self->spec = (spec_object *)Py_NewRef((PyObject *)spec);
        self->rows = -1;
    }
    return self;
}

/* Finds the class of NumPy's arrays, if NumPy is imported. */
static void find_arrays(void) {
    PyObject *numpy = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy"); /* borrowed */
    PyObject *found = numpy ? PyObject_GetAttrString(numpy, "ndarray") : NULL;
    if (found != NULL && PyType_Check(found)) {
        array_type = (PyTypeObject *)Py_NewRef(found);
    }
    Py_XDECREF(found);
    PyErr_Clear();
}

static bool is_usual(PyObject *value) {
    if (array_type == NULL) {
        find_arrays();
    }
    return Py_IS_TYPE(value, array_type) || PyBytes_CheckExact(value) || PyByteArray_CheckExact(value) ||
           PyMemoryView_Check(value);
}

static bool holds(const tensor *input, const Py_buffer *view) {
    const char *format = view->format ? view->format : "B";
    format += *format == '@' || *format == '='; /* "=": in the native order, but not aligned */
    for (int index = 0; index < input->format_count; index++) {
        if (strcmp(format, input->formats[index]) == 0) {
            return view->itemsize == input->itemsize;
        }
    }
    return false;
}

/* Keeps a view that no other code can release. The buffer of a memoryview is given back at once: while it is
 * taken, CPython crashes if it collects the memoryview in a cycle. The fields of the buffer stay valid. */
static int take_view(arguments_object *self, int index, PyObject *view) {
    Py_buffer *buffer = &self->views[index].buffer;
    self->views[index].kept = view;
    if (view == NULL || PyObject_GetBuffer(view, buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        return -1;
    }
    PyBuffer_Release(buffer);
    return 0;
}

static bool take_usual(arguments_object *self, int index, PyObject *value) {
    Py_buffer *buffer = &self->views[index].buffer;
    if (value == NULL || !is_usual(value)) {
        return false;
    }
    int taken = PyMemoryView_Check(value)
                    ? take_view(self, index, PyMemoryView_FromObject(value))
                    : PyObject_GetBuffer(value, buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT);
    return taken == 0 && holds(&self->spec->tensors[index], buffer);
}

static bool take_all(arguments_object *self, PyObject *given) {
    int inputs = self->spec->inputs;
    bool is_list = PyList_CheckExact(given), is_tuple = PyTuple_CheckExact(given);
    if (!is_list && !is_tuple) {
        return inputs == 1 && take_usual(self, 0, given);
    }
    bool taken = (is_list ? PyList_Size(given) : PyTuple_Size(given)) == inputs;
    for (int index = 0; taken && index < inputs; index++) {
        PyObject *value = is_list ? PyList_GetItem(given, index) : PyTuple_GetItem(given, index);
        Py_XINCREF(value);
        taken = take_usual(self, index, value);
        Py_XDECREF(value);
    }
    return taken;
}

arguments_object *check_call(spec_object *spec, PyObject *given) {
    arguments_object *self = atomic_load(&aio_in_child) ? NULL : new_arguments(spec);
    if (self == NULL) {
        return NULL;
    }
    self->gear = take_all(self, given) ? gear_of(self) : -1;
    PyErr_Clear(); /* Python finds the same error, and explains it */
    if (self->gear < 0) {
        Py_CLEAR(self);
    }
    return self;
}

/* check_arguments(spec, given): the Arguments, or None if Python must check what was given. */
static PyObject *check(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count) {
    if (count != 2 || !PyObject_TypeCheck(given[0], spec_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a Spec and the arguments of a call");
    }
    arguments_object *self = check_call((spec_object *)given[0], given[1]);
    return self == NULL && !PyErr_Occurred() ? Py_NewRef(Py_None) : (PyObject *)self;
}

/* Arguments(spec, views, gear, rows): of memoryviews that Python has checked. `rows` is None without batches.
 */
static PyObject *arguments_new(PyTypeObject *Py_UNUSED(type), PyObject *given, PyObject *Py_UNUSED(keywords)) {
    PyObject *spec, *views, *rows;
    int chosen;
    if (!PyArg_ParseTuple(given, "O!O!iO", spec_type, &spec, &PyTuple_Type, &views, &chosen, &rows)) {
        return NULL;
    }
    arguments_object *self = new_arguments((spec_object *)spec);
    if (self == NULL) {
        return NULL;
    }
    self->gear = chosen;
    self->rows = rows == Py_None ? -1 : PyLong_AsSsize_t(rows);
    bool wrong = PyTuple_Size(views) != self->spec->inputs || chosen < 0 || chosen >= self->spec->gear_count;
    for (int index = 0; !wrong && index < self->spec->inputs; index++) {
        wrong = take_view(self, index, Py_XNewRef(PyTuple_GetItem(views, index))) < 0;
    }
    if (wrong || PyErr_Occurred()) {
        Py_DECREF((PyObject *)self);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "expected the views of all inputs");
    }
    return (PyObject *)self;
}

static int arguments_traverse(PyObject *object, visitproc visit, void *arg) {
    const arguments_object *self = (arguments_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->spec);
    for (int index = 0; self->spec && index < self->spec->inputs; index++) {
        Py_VISIT(self->views[index].buffer.obj);
        Py_VISIT(self->views[index].kept);
    }
    return 0;
}

/* While a thread reads the buffers, its call refers to the object, so the collector does not clear it. */
static int arguments_clear(PyObject *object) {
    arguments_object *self = (arguments_object *)object;
    for (int index = 0; self->spec && index < self->spec->inputs; index++) {
        PyBuffer_Release(&self->views[index].buffer);
        Py_CLEAR(self->views[index].kept);
    }
    return 0;
}

static void arguments_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    arguments_clear(object);
    Py_CLEAR(((arguments_object *)object)->spec);
    free_object(object);
}

static PyObject *arguments_rows(PyObject *object, void *Py_UNUSED(closure)) {
    Py_ssize_t rows = ((arguments_object *)object)->rows;
    return rows < 0 ? Py_NewRef(Py_None) : PyLong_FromSsize_t(rows);
}

static PyMemberDef arguments_members[] = {
    {"gear", T_INT, offsetof(arguments_object, gear), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef arguments_getters[] = {
    {"rows", arguments_rows, NULL, "The number of rows that the caller passed; None without batches.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot arguments_slots[] = {
    {Py_tp_doc, (void *)"The checked arguments of one call of a model, and the number of its gear."},
    {Py_tp_new, (void *)arguments_new},
    {Py_tp_dealloc, (void *)arguments_dealloc},
    {Py_tp_traverse, (void *)arguments_traverse},
    {Py_tp_clear, (void *)arguments_clear},
    {Py_tp_members, arguments_members},
    {Py_tp_getset, arguments_getters},
    {0, NULL},
};

static PyType_Spec arguments_spec = {
    .name = "aioacl._await.Arguments",
    .basicsize = offsetof(arguments_object, views),
    .itemsize = sizeof(kept_view),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = arguments_slots,
};

static PyMethodDef functions[] = {
    {"check_arguments", (PyCFunction)(void (*)(void))check, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int add_arguments(PyObject *module) {
    spec_type = add_type(module, "Spec", &spec_spec);
    arguments_type = spec_type ? add_type(module, "Arguments", &arguments_spec) : NULL;
    return arguments_type ? PyModule_AddFunctions(module, functions) : -1;
}
