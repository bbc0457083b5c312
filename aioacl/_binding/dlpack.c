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
 * A DlpackTensor of host memory has a buffer, with the shape and the type of the tensor. The memory must be
 * contiguous. A type that the buffer protocol lacks has a format that only means "so many bytes"; bfloat16 has
 * the format "E" of its own, so that it is not taken for uint16.
 *
 * The structures are those of dlpack.h, version 1. The version decides which fields follow, so only the version
 * of a structure with another major number is read.
 */
#include "binding.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAJOR = 1, MINOR = 0, READ_ONLY = 1, PADDED = 4, DIMENSIONS = 64 };
enum { INT_CODE = 0, UINT_CODE = 1, FLOAT_CODE = 2, BFLOAT_CODE = 4, COMPLEX_CODE = 5, BOOL_CODE = 6 };
enum { CPU = 1, CUDA_HOST = 3, ROCM_HOST = 11 };

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
    char format[16]; /* of the newest view; all views have the same */
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

static const char *format_of(const struct tensor *tensor) {
    static const struct {
        uint8_t code, bits;
        const char *format;
    } known[] = {
        {INT_CODE, 8, "b"},       {INT_CODE, 16, "h"},       {INT_CODE, 32, "i"},   {INT_CODE, 64, "q"},
        {UINT_CODE, 8, "B"},      {UINT_CODE, 16, "H"},      {UINT_CODE, 32, "I"},  {UINT_CODE, 64, "Q"},
        {FLOAT_CODE, 16, "e"},    {FLOAT_CODE, 32, "f"},     {FLOAT_CODE, 64, "d"}, {BFLOAT_CODE, 16, "E"},
        {COMPLEX_CODE, 64, "Zf"}, {COMPLEX_CODE, 128, "Zd"}, {BOOL_CODE, 8, "?"},
    };
    for (size_t i = 0; tensor->lanes == 1 && i < sizeof known / sizeof *known; i++) {
        if (known[i].code == tensor->code && known[i].bits == tensor->bits) {
            return known[i].format;
        }
    }
    return NULL;
}

/* Returns the number of elements; -1 if the shape or the strides are not those of one piece in C order. */
static Py_ssize_t elements_of(const struct tensor *tensor) {
    int64_t count = 1, step = 1;
    if (tensor->ndim < 0 || tensor->ndim > DIMENSIONS || (tensor->ndim > 0 && tensor->shape == NULL)) {
        return -1;
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0 || __builtin_mul_overflow(count, tensor->shape[i], &count)) {
            return -1;
        }
    }
    for (int32_t i = tensor->ndim; tensor->strides != NULL && count > 0 && i-- > 0;) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != step) {
            return -1;
        }
        step *= tensor->shape[i];
    }
    return (Py_ssize_t)count;
}

static int no_buffer(Py_buffer *view, const char *why) {
    view->obj = NULL;
    PyErr_SetString(PyExc_BufferError, why);
    return -1;
}

/* The dimensions of a view, and its steps in bytes. */
struct extent {
    Py_ssize_t shape[DIMENSIONS], strides[DIMENSIONS];
};

static int taken_buffer(PyObject *object, Py_buffer *view, int flags) {
    static char nothing;
    taken_object *self = (taken_object *)object;
    const struct tensor *tensor = self->legacy ? &self->legacy->tensor : &self->versioned->tensor;
    uint64_t marks = self->legacy ? 0 : self->versioned->flags;
    int32_t kind = tensor->device_type;
    if (kind != CPU && kind != CUDA_HOST && kind != ROCM_HOST) {
        return no_buffer(view, "expected a tensor in host memory, got one of a device; copy it");
    }
    if ((flags & PyBUF_WRITABLE) && (marks & READ_ONLY)) {
        return no_buffer(view,
                         "expected a tensor that can be written to, got a read-only one; pass another one");
    }
    Py_ssize_t count = elements_of(tensor);
    int64_t bits = tensor->bits, size;
    bits = (marks & PADDED ? (bits + 7) / 8 * 8 : bits) * tensor->lanes;
    if (count < 0 || bits == 0 || __builtin_mul_overflow(count, bits, &size) || size % 8) {
        return no_buffer(view, "expected a contiguous tensor of whole bytes, got another one; copy it");
    }
    if (tensor->data == NULL && size > 0) {
        return no_buffer(view, "expected a tensor with an address, got none; pass another one");
    }
    bool whole = bits % 8 == 0; /* otherwise the view is a list of bytes */
    const char *format = whole ? format_of(tensor) : NULL;
    int ndim = whole ? tensor->ndim : 1;
    struct extent *extent = malloc(sizeof *extent);
    if (extent == NULL) {
        view->obj = NULL;
        PyErr_NoMemory();
        return -1;
    }
    view->itemsize = whole ? (Py_ssize_t)(bits / 8) : 1;
    Py_ssize_t step = view->itemsize;
    for (int i = ndim; i-- > 0;) {
        extent->shape[i] = whole ? (Py_ssize_t)tensor->shape[i] : (Py_ssize_t)(size / 8);
        extent->strides[i] = step;
        step *= count ? extent->shape[i] : 1;
    }
    if (format == NULL) { /* the protocol's code of so many bytes, which no type of a model has */
        snprintf(self->format, sizeof self->format, "%us", (unsigned)view->itemsize);
        format = self->format;
    }
    view->buf = tensor->data ? (char *)tensor->data + tensor->byte_offset : &nothing;
    view->len = (Py_ssize_t)(size / 8);
    view->readonly = (marks & READ_ONLY) != 0;
    view->format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL;
    view->ndim = ndim;
    view->shape = flags & PyBUF_ND ? extent->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? extent->strides : NULL;
    view->suboffsets = NULL;
    view->internal = extent;
    Py_INCREF(object);
    view->obj = object;
    return 0;
}

static void release_taken(PyObject *Py_UNUSED(object), Py_buffer *view) {
    free(view->internal);
}

static PyType_Slot taken_slots[] = {
    {Py_bf_getbuffer, (void *)taken_buffer},
    {Py_bf_releasebuffer, (void *)release_taken},
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
