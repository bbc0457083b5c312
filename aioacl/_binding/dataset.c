/*
 * Dataset: the list of buffers that an execution of a model reads or writes (aclmdlDataset).
 *
 * One call of C makes all its ACL objects, and one call destroys them. So no exception of a signal handler can
 * come between an ACL function and the store of what it returned. The garbage collector does not track a
 * Dataset. So a Dataset lives until the last reference to it is gone, also if that reference is in a cycle of
 * which another object becomes reachable again. A forked child calls no ACL function, so it leaves the datasets
 * of its parent alone.
 */
#include "binding.h"

typedef struct {
    PyObject_HEAD aclmdlDataset *dataset; /* NULL: it was not made */
} dataset_object;

struct part {
    unsigned long long address;
    Py_ssize_t size;
};

/* build_ffi.py generates these functions from the table. */
aclmdlDataset *aio_u_aclmdlCreateDataset(void);
aclError aio_u_aclmdlDestroyDataset(const aclmdlDataset *dataset);
aclError aio_u_aclmdlAddDatasetBuffer(aclmdlDataset *dataset, aclDataBuffer *dataBuffer);
size_t aio_u_aclmdlGetDatasetNumBuffers(const aclmdlDataset *dataset);
aclDataBuffer *aio_u_aclmdlGetDatasetBuffer(const aclmdlDataset *dataset, size_t index);
aclDataBuffer *aio_u_aclCreateDataBuffer(void *data, size_t size);
aclError aio_u_aclDestroyDataBuffer(const aclDataBuffer *dataBuffer);

static void destroy(aclmdlDataset *dataset) {
    for (size_t i = 0; i < aio_u_aclmdlGetDatasetNumBuffers(dataset); i++) {
        aio_u_aclDestroyDataBuffer(aio_u_aclmdlGetDatasetBuffer(dataset, i));
    }
    aio_u_aclmdlDestroyDataset(dataset);
}

static bool add(aclmdlDataset *dataset, struct part part) {
    aclDataBuffer *buffer = aio_u_aclCreateDataBuffer((void *)(uintptr_t)part.address, (size_t)part.size);
    if (buffer == NULL || aio_u_aclmdlAddDatasetBuffer(dataset, buffer) == 0) {
        return buffer != NULL;
    }
    aio_u_aclDestroyDataBuffer(buffer);
    return false;
}

static aclmdlDataset *make(const struct part *parts, size_t count) {
    aclmdlDataset *dataset = aio_u_aclmdlCreateDataset();
    for (size_t i = 0; dataset != NULL && i < count; i++) {
        if (!add(dataset, parts[i])) {
            destroy(dataset);
            dataset = NULL;
        }
    }
    return dataset;
}

static struct part *parts_of(PyObject *tuple, Py_ssize_t count) {
    struct part *parts = PyMem_Calloc((size_t)count + 1, sizeof *parts);
    if (parts == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GetItem(tuple, i);
        if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "Kn", &parts[i].address, &parts[i].size)) {
            PyMem_Free(parts);
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_TypeError,
                                "expected tuples of an address and a size, got another object");
            }
            return NULL;
        }
    }
    return parts;
}

static PyObject *dataset_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords)) {
    PyObject *tuple;
    if (!PyArg_ParseTuple(arguments, "O!", &PyTuple_Type, &tuple)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(tuple);
    struct part *parts = parts_of(tuple, count);
    PyObject *object = parts ? PyType_GenericAlloc(type, 0) : NULL;
    if (object != NULL) {
        PyThreadState *thread = PyEval_SaveThread();
        aclmdlDataset *made = make(parts, (size_t)count);
        PyEval_RestoreThread(thread);
        ((dataset_object *)object)->dataset = made;
        if (made == NULL) {
            Py_CLEAR(object);
            PyErr_NoMemory();
        }
    }
    PyMem_Free(parts);
    return object;
}

static void dataset_dealloc(PyObject *object) {
    aclmdlDataset *dataset = ((dataset_object *)object)->dataset;
    if (dataset != NULL && !atomic_load(&aio_in_child)) {
        PyThreadState *thread = PyEval_SaveThread();
        destroy(dataset);
        PyEval_RestoreThread(thread);
    }
    free_object(object);
}

static PyObject *dataset_address(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromVoidPtr(((dataset_object *)object)->dataset);
}

static PyGetSetDef dataset_getters[] = {
    {"address", dataset_address, NULL, "The address of the aclmdlDataset.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot dataset_slots[] = {
    {Py_tp_doc, (void *)"A dataset of the buffers that a tuple of (address, size) names (aclmdlCreateDataset). "
                        "The end of the last reference destroys it."},
    {Py_tp_new, (void *)dataset_new},
    {Py_tp_dealloc, (void *)dataset_dealloc},
    {Py_tp_getset, (void *)dataset_getters},
    {0, NULL},
};

static PyType_Spec dataset_spec = {
    .name = "aioacl._await.Dataset",
    .basicsize = sizeof(dataset_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = dataset_slots,
};

int add_dataset(PyObject *module) {
    return add_type(module, "Dataset", &dataset_spec) ? 0 : -1;
}
