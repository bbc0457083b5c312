/*
 * DLPack: tensors that libraries pass to each other without a copy of the bytes.
 *
 * A producer makes a structure with the address, the shape and a deleter, and passes the structure in a
 * capsule. A consumer that takes the structure renames the capsule, and calls the deleter once when it does not
 * use the memory any more. If no consumer has taken the structure, the destructor of the capsule calls the
 * deleter.
 *
 * Exports. `exported` is one structure with its shape and a reference to an object that keeps the memory. The
 * deleter drops the reference. A consumer may call the deleter on any thread, with or without the GIL, so the
 * deleter takes the GIL. The references of a process that ends are not dropped, because the interpreter cannot
 * run finalizers any more.
 *
 * Imports. `dlpack_fields` reads a capsule and does not change it. `dlpack_take` renames the capsule, in one
 * step under the GIL, and returns a DlpackTensor. The finalizer of the DlpackTensor calls the deleter with the
 * GIL held, as capsules of other libraries do. So the number of references decides when the deleter runs, and
 * the deleter runs once. In a forked child it does not run, because the memory belongs to the parent.
 *
 * The structures are those of dlpack.h, version 1. The version decides which fields follow, so only the version
 * of a structure with another major number is read.
 */
#include "binding.h"

#include <stdlib.h>

enum { MAJOR = 1, MINOR = 0, READ_ONLY = 1, UINT_CODE = 1, DIMENSIONS = 64 };

static const char LEGACY[] = "dltensor", VERSIONED[] = "dltensor_versioned";
static const char USED_LEGACY[] = "used_dltensor", USED_VERSIONED[] = "used_dltensor_versioned";

struct tensor {
    void *data;
    int32_t device_type, device_index;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides: in elements; NULL: C order */
    uint64_t byte_offset;
};

struct legacy {
    struct tensor tensor;
    void *context;
    void (*deleter)(struct legacy *);
};

struct versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct versioned *);
    uint64_t flags;
    struct tensor tensor;
};

/* --- exports --------------------------------------------------------------------------------------------- */

/* `managed` is the first member, so its address is also that of the export. */
struct exported {
    union {
        struct legacy legacy;
        struct versioned versioned;
    } managed;
    int64_t shape, stride;
    PyObject *owner;
};

static void drop_export(void *managed) {
    struct exported *self = managed;
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(self->owner);
        PyGILState_Release(state);
    }
    free(self);
}

static void delete_legacy(struct legacy *managed) {
    drop_export(managed);
}

static void delete_versioned(struct versioned *managed) {
    drop_export(managed);
}

static void destroy_capsule(PyObject *capsule) {
    const char *name = PyCapsule_IsValid(capsule, LEGACY)      ? LEGACY
                       : PyCapsule_IsValid(capsule, VERSIONED) ? VERSIONED
                                                               : NULL;
    if (name != NULL) { /* no consumer has taken it */
        drop_export(PyCapsule_GetPointer(capsule, name));
    }
}

static PyObject *dlpack_export(PyObject *Py_UNUSED(module), PyObject *arguments) {
    PyObject *owner;
    unsigned long long address;
    Py_ssize_t nbytes;
    int type, index, is_versioned, read_only;
    if (!PyArg_ParseTuple(arguments, "OKniipp", &owner, &address, &nbytes, &type, &index, &is_versioned,
                          &read_only)) {
        return NULL;
    }
    struct exported *self = malloc(sizeof *self);
    if (self == NULL) {
        return PyErr_NoMemory();
    }
    struct tensor tensor = {
        .data = nbytes ? (void *)(uintptr_t)address : NULL,
        .device_type = type,
        .device_index = index,
        .ndim = 1,
        .code = UINT_CODE,
        .bits = 8,
        .lanes = 1,
        .shape = &self->shape,
        .strides = &self->stride,
    };
    self->shape = nbytes;
    self->stride = 1;
    self->owner = owner;
    if (is_versioned) {
        self->managed.versioned = (struct versioned){
            MAJOR, MINOR, NULL, delete_versioned, read_only ? (uint64_t)READ_ONLY : 0, tensor};
    } else {
        self->managed.legacy = (struct legacy){tensor, NULL, delete_legacy};
    }
    PyObject *capsule = PyCapsule_New(self, is_versioned ? VERSIONED : LEGACY, destroy_capsule);
    if (capsule == NULL) {
        free(self);
        return NULL;
    }
    Py_INCREF(owner);
    return capsule;
}

/* --- imports --------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD struct legacy *legacy; /* one of the two is NULL */
    struct versioned *versioned;
} taken_object;

static PyTypeObject *taken_type;

static void taken_dealloc(PyObject *object) {
    const taken_object *self = (taken_object *)object;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* the deleter may run Python code */
    bool wanted = !atomic_load(&aio_in_child);
    if (wanted && self->legacy != NULL && self->legacy->deleter != NULL) {
        self->legacy->deleter(self->legacy);
    }
    if (wanted && self->versioned != NULL && self->versioned->deleter != NULL) {
        self->versioned->deleter(self->versioned);
    }
    PyErr_Restore(type, value, traceback);
    free_object(object);
}

static PyType_Slot taken_slots[] = {
    {Py_tp_doc, (void *)"A DLPack structure that was taken over. Its deleter runs when the object is gone."},
    {Py_tp_dealloc, (void *)taken_dealloc},
    {0, NULL},
};

static PyType_Spec taken_spec = {
    .name = "aioacl._await.DlpackTensor",
    .basicsize = sizeof(taken_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = taken_slots,
};

/* Returns a tuple of ints; None if the structure has none, or not a plausible number of them. */
static PyObject *numbers(const int64_t *values, int32_t count) {
    if (count < 0 || count > DIMENSIONS || (values == NULL && count > 0)) {
        Py_RETURN_NONE;
    }
    PyObject *all = PyTuple_New(count);
    for (Py_ssize_t i = 0; all != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (number == NULL || PyTuple_SetItem(all, i, number) < 0) {
            Py_CLEAR(all);
        }
    }
    return all;
}

static PyObject *fields(const struct tensor *tensor, uint64_t flags) {
    PyObject *shape = numbers(tensor->shape, tensor->ndim);
    PyObject *strides = shape ? numbers(tensor->strides, tensor->strides ? tensor->ndim : -1) : NULL;
    PyObject *made = strides
                         ? Py_BuildValue("iiKKNNBBHK", (int)tensor->device_type, (int)tensor->device_index,
                                         (unsigned long long)(uintptr_t)tensor->data,
                                         (unsigned long long)tensor->byte_offset, shape, strides, tensor->code,
                                         tensor->bits, tensor->lanes, (unsigned long long)flags)
                         : NULL;
    if (strides == NULL) {
        Py_XDECREF(shape);
    }
    return made;
}

static PyObject *dlpack_fields(PyObject *Py_UNUSED(module), PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, LEGACY)) {
        const struct legacy *managed = PyCapsule_GetPointer(capsule, LEGACY);
        return fields(&managed->tensor, 0);
    }
    if (!PyCapsule_IsValid(capsule, VERSIONED)) {
        Py_RETURN_NONE;
    }
    const struct versioned *managed = PyCapsule_GetPointer(capsule, VERSIONED);
    if (managed->major != MAJOR) {
        return Py_BuildValue("II", (unsigned)managed->major, (unsigned)managed->minor);
    }
    return fields(&managed->tensor, managed->flags);
}

static PyObject *dlpack_take(PyObject *Py_UNUSED(module), PyObject *capsule) {
    bool is_legacy = PyCapsule_IsValid(capsule, LEGACY);
    if (!is_legacy && !PyCapsule_IsValid(capsule, VERSIONED)) { /* another thread has taken it */
        Py_RETURN_NONE;
    }
    void *managed = PyCapsule_GetPointer(capsule, is_legacy ? LEGACY : VERSIONED);
    PyObject *object = PyType_GenericAlloc(taken_type, 0);
    if (object == NULL) {
        return NULL;
    }
    if (PyCapsule_SetName(capsule, is_legacy ? USED_LEGACY : USED_VERSIONED) < 0) {
        Py_DECREF(object);
        return NULL;
    }
    taken_object *self = (taken_object *)object;
    self->legacy = is_legacy ? managed : NULL;
    self->versioned = is_legacy ? NULL : managed;
    return object;
}

static PyMethodDef functions[] = {
    {"dlpack_export", dlpack_export, METH_VARARGS, NULL},
    {"dlpack_fields", dlpack_fields, METH_O, NULL},
    {"dlpack_take", dlpack_take, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int add_dlpack(PyObject *module) {
    taken_type = add_type(module, "DlpackTensor", &taken_spec);
    return taken_type ? PyModule_AddFunctions(module, functions) : -1;
}
