/*
 * Cache: closed device memory, pinned memory and native streams that later requests use again.
 *
 * Memory is kept in size classes, eight to a power of two. A block is allocated with the whole size of its
 * class, so it serves every request of that class. The memory that was given last is taken first, because it is
 * probably still in the caches of the processor. If a kind of memory exceeds its limit, the maintenance thread
 * frees what was given first.
 *
 * An item belongs to a generation. A reset ends device memory and streams, so items of an older generation are
 * dropped without a call of ACL. Memory is taken only while the device is open.
 *
 * No function here runs Python code or releases the GIL while the lists change. So no lock is needed, and a
 * finalizer may give an item at any time.
 */
#include <stdlib.h>

#include "binding.h"

enum { KINDS = CACHED_KINDS, PRIORITIES = 8 };

/* The smallest class, and the classes to a power of two. Larger blocks are not kept. */
enum { LEAST_BITS = 9, MOST_BITS = 26, STEP_BITS = 3 };

enum { CLASSES = ((MOST_BITS - LEAST_BITS) << STEP_BITS) + 1 };

typedef struct item item;

struct item {
    item *newer, *older; /* of its kind */
    item *above, *below; /* of its class */
    PyObject *core;      /* of a stream: its StreamCore */
    unsigned long long address;
    Py_ssize_t size;
    int kind, class;
    unsigned generation;
};

typedef struct {
    PyObject_HEAD item *newest[KINDS], *oldest[KINDS];
    item *top[KINDS][CLASSES];
    Py_ssize_t count[KINDS], size[KINDS];
    PyObject *failures; /* its `last_fault` is None, or a fault after which nothing is taken */
    PyObject *leases;   /* if its `some_lost` is True, a request checks whether its caller has lost a lease */
    int device;
    char enabled;
} cache_object;

static PyTypeObject *cache_type;
/* What makes a handle of each kind: the types Stream and DeviceBuffer, and a function for pinned memory. */
static PyObject *makers[KINDS];
static PyObject *was_passed; /* whether the finalizer of pinned memory will give the block back */

/* --- size classes ---------------------------------------------------------------------------------------- */

/* The number of the size class, or -1 for a size that is not kept. */
static int class_of(Py_ssize_t size) {
    if (size <= 0 || size > (Py_ssize_t)1 << MOST_BITS) {
        return -1;
    }
    if (size <= 1 << LEAST_BITS) {
        return 0;
    }
    size_t last = (size_t)size - 1;
    int bits = 63 - __builtin_clzll(last); /* of the power of two below */
    int step = (int)(last >> (bits - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    return ((bits - LEAST_BITS) << STEP_BITS) + step + 1;
}

static Py_ssize_t class_size(int class) {
    if (class == 0) {
        return 1 << LEAST_BITS;
    }
    int bits = LEAST_BITS + ((class - 1) >> STEP_BITS), step = (class - 1) & ((1 << STEP_BITS) - 1);
    return (Py_ssize_t)((1 << STEP_BITS) + step + 1) << (bits - STEP_BITS);
}

/* The class of a block of that size, or -1 if the block does not have the whole size of a class. Without a
 * cache, memory is allocated in the size of the request; the cache may be switched on later. */
static int class_of_block(Py_ssize_t block) {
    int class = class_of(block);
    return class >= 0 && class_size(class) == block ? class : -1;
}

/* --- the lists ------------------------------------------------------------------------------------------- */

static void list_item(cache_object *self, item *it) {
    item **top = &self->top[it->kind][it->class];
    it->newer = NULL; /* an item that was taken comes back if no handle can be made */
    it->above = NULL;
    it->older = self->newest[it->kind];
    *(it->older ? &it->older->newer : &self->oldest[it->kind]) = it;
    self->newest[it->kind] = it;
    it->below = *top;
    if (it->below) {
        it->below->above = it;
    }
    *top = it;
    self->count[it->kind]++;
    self->size[it->kind] += it->size;
}

static void unlist_item(cache_object *self, const item *it) {
    *(it->newer ? &it->newer->older : &self->newest[it->kind]) = it->older;
    *(it->older ? &it->older->newer : &self->oldest[it->kind]) = it->newer;
    *(it->above ? &it->above->below : &self->top[it->kind][it->class]) = it->below;
    if (it->below) {
        it->below->above = it->above;
    }
    self->count[it->kind]--;
    self->size[it->kind] -= it->size;
}

/* Drops the item. Its StreamCore is freed last, because that may run other code. */
static void drop_item(cache_object *self, item *it) {
    PyObject *core = it->core;
    unlist_item(self, it);
    free(it);
    Py_XDECREF(core);
}

/* Pinned memory belongs to the host, so it is of every generation. */
static bool is_current(const item *it, unsigned generation) {
    return it->kind == CACHED_PINNED || it->generation == generation;
}

static bool is_open(int device, unsigned *generation) {
    uint64_t word = aio_gate_word(device);
    *generation = aio_word_generation(word);
    return !atomic_load(&aio_in_child) && aio_word_state(word) == AIO_OPEN &&
           !(aio_word_flags(word) & AIO_FOREIGN);
}

/* Returns the newest item of the class, in no list any more, or NULL. */
static item *take_item(cache_object *self, int kind, int class) {
    unsigned generation;
    if (!is_open(self->device, &generation)) {
        return NULL;
    }
    item *it;
    while ((it = self->top[kind][class]) != NULL && !is_current(it, generation)) {
        drop_item(self, it);
    }
    if (it != NULL) {
        unlist_item(self, it);
    }
    return it;
}

static int give_item(cache_object *self, const item *made) {
    item *it = malloc(sizeof *it);
    if (it == NULL) {
        return 0;
    }
    *it = *made;
    Py_XINCREF(it->core);
    list_item(self, it);
    return 1;
}

/* --- memory ---------------------------------------------------------------------------------------------- */

/* Returns the size that is allocated for a request. */
static PyObject *cache_block_size(PyObject *object, PyObject *asked) {
    Py_ssize_t size = PyLong_AsSsize_t(asked);
    int class = ((cache_object *)object)->enabled ? class_of(size) : -1;
    if (size == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyLong_FromSsize_t(class < 0 ? size : class_size(class));
}

/* Whether a block of that size can be kept. */
static PyObject *cache_fits(PyObject *object, PyObject *block) {
    Py_ssize_t size = PyLong_AsSsize_t(block);
    if (size == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(((cache_object *)object)->enabled && class_of_block(size) >= 0);
}

/* Keeps memory that is no longer used. Returns False if the caller has to free it. */
static PyObject *cache_give(PyObject *object, PyObject *arguments) {
    cache_object *self = (cache_object *)object;
    item made = {0};
    if (!PyArg_ParseTuple(arguments, "iIKn", &made.kind, &made.generation, &made.address, &made.size)) {
        return NULL;
    }
    made.class = class_of_block(made.size);
    if (!self->enabled || made.class < 0 || (made.kind != CACHED_DEVICE && made.kind != CACHED_PINNED)) {
        Py_RETURN_FALSE;
    }
    return PyBool_FromLong(give_item(self, &made));
}

/* Keeps the memory of a device buffer. Returns False if the caller has to free it, if another call frees it, or
 * if DLPack tensors refer to it. After this call, the buffer cannot be exported any more. */
static PyObject *cache_give_buffer(PyObject *object, PyObject *buffer) {
    cache_object *self = (cache_object *)object;
    if (!PyObject_TypeCheck(buffer, handle_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a device buffer, got another object");
    }
    handle_object *handle = (handle_object *)buffer;
    item made = {.kind = CACHED_DEVICE, .class = class_of_block(handle->block)};
    made.generation = handle->generation;
    made.address = handle->address;
    made.size = handle->block;
    if (!self->enabled || made.class < 0 || !handle->owed || handle->lent == NULL ||
        PyDict_Size(handle->lent) > 0) {
        Py_RETURN_FALSE;
    }
    if (PyDict_SetItem(handle->lent, names.lent, Py_None) < 0) {
        return NULL;
    }
    if (!give_item(self, &made)) { /* the caller frees the memory, unless a tensor refers to it */
        PyDict_Clear(handle->lent);
        Py_RETURN_FALSE;
    }
    handle->owed = 0;
    Py_RETURN_TRUE;
}

/* --- streams --------------------------------------------------------------------------------------------- */

/* Whether nothing but the Stream refers to its StreamCore. Tickets, events, awaits and in-flight references
 * refer to the StreamCore too. */
static bool is_alone(const core_object *core) {
    return Py_REFCNT((PyObject *)core) == 1 && core->in_flight == 0 && core->stream != NULL;
}

/* Returns the priority of a stream that may be used again, or -1. */
static long priority_of(PyObject *core) {
    PyObject *reusable = PyObject_GetAttr(core, names.reusable);
    PyObject *priority = reusable == Py_True ? PyObject_GetAttr(core, names.priority) : NULL;
    long number = priority ? PyLong_AsLong(priority) : -1;
    Py_XDECREF(priority);
    Py_XDECREF(reusable);
    return number;
}

/* Keeps the StreamCore of a Stream, whose place `ended` takes, if all work has succeeded and no other object
 * needs the StreamCore. So its record in the engine serves the next Stream too. Returns False otherwise. */
static PyObject *cache_give_idle(PyObject *object, PyObject *arguments) {
    cache_object *self = (cache_object *)object;
    PyObject *stream, *ended;
    if (!PyArg_ParseTuple(arguments, "O!O", handle_type, &stream, &ended)) {
        return NULL;
    }
    handle_object *handle = (handle_object *)stream;
    core_object *core = (core_object *)handle->core;
    if (!self->enabled || core == NULL || !PyObject_TypeCheck((PyObject *)core, core_type) || !handle->owed ||
        !is_alone(core) || !aio_stream_is_spent(core->stream)) {
        Py_RETURN_FALSE;
    }
    item made = {.kind = CACHED_STREAM, .core = (PyObject *)core, .generation = handle->generation};
    made.class = (int)priority_of((PyObject *)core);
    if (PyErr_Occurred() || made.class < 0 || made.class >= PRIORITIES || !give_item(self, &made)) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    handle->owed = 0;
    replace(&handle->core, Py_NewRef(ended));
    Py_RETURN_TRUE;
}

/* Ends the record of an idle stream, and keeps the native stream if it can be used again. Other objects may
 * still refer to the StreamCore, so the next Stream gets a new record (`again`). Returns the code of
 * aio_stream_release. One call does both steps, because after a Ctrl-C between them nothing would refer to the
 * native stream. */
static PyObject *cache_release(PyObject *object, PyObject *released) {
    cache_object *self = (cache_object *)object;
    core_object *core = (core_object *)released;
    bool usable = PyObject_TypeCheck(released, core_type) && core->stream != NULL;
    long priority = usable ? priority_of(released) : -1;
    if (priority < 0 || priority >= PRIORITIES) {
        return PyErr_Occurred() ? NULL
                                : PyErr_Format(PyExc_ValueError, "expected a stream that may be used again");
    }
    item *it = malloc(sizeof *it); /* without memory, the native stream is destroyed */
    int kept = 0;
    PyThreadState *thread = PyEval_SaveThread();
    int code = it ? aio_stream_release(core->stream, &kept) : aio_stream_destroy(core->stream);
    PyEval_RestoreThread(thread);
    if (kept) {
        *it = (item){.kind = CACHED_STREAM, .class = (int)priority, .core = Py_NewRef(released)};
        it->generation = core->stream->generation;
        core->gone = 1;
        list_item(self, it);
    } else {
        free(it);
    }
    return PyLong_FromLong(code);
}

/* --- new handles ----------------------------------------------------------------------------------------- */

/* Returns a new handle, to which the item passes. */
static handle_object *new_handle(PyObject *type, PyObject *manager, const cache_object *self, const item *it) {
    handle_object *handle = (handle_object *)PyType_GenericAlloc((PyTypeObject *)type, 0);
    if (handle == NULL) {
        return NULL;
    }
    handle->manager = Py_NewRef(manager);
    handle->device = self->device;
    handle->generation = it->generation;
    return handle;
}

static PyObject *new_buffer(const cache_object *self, const item *it, PyObject *manager, Py_ssize_t size) {
    handle_object *handle = new_handle(makers[CACHED_DEVICE], manager, self, it);
    PyObject *uses = handle ? new_uses() : NULL, *lent = uses ? PyDict_New() : NULL;
    if (lent == NULL) {
        Py_XDECREF(uses);
        Py_XDECREF((PyObject *)handle);
        return NULL;
    }
    handle->uses = uses;
    handle->lent = lent;
    handle->address = it->address;
    handle->size = size;
    handle->block = it->size;
    handle->kind = DEVICE_MEMORY;
    handle->owed = 1;
    return (PyObject *)handle;
}

static PyObject *new_stream(const cache_object *self, const item *it, PyObject *manager) {
    bool released = ((core_object *)it->core)->gone;
    PyObject *core = released ? PyObject_CallMethodObjArgs(it->core, names.again, NULL) : Py_NewRef(it->core);
    handle_object *handle = core ? new_handle(makers[CACHED_STREAM], manager, self, it) : NULL;
    if (handle == NULL) {
        Py_XDECREF(core);
        return NULL;
    }
    handle->core = core;
    handle->owed = 1;
    return (PyObject *)handle;
}

static PyObject *new_pinned(const cache_object *self, const item *it, PyObject *manager, Py_ssize_t size) {
    unsigned generation = aio_word_generation(aio_gate_word(self->device));
    return PyObject_CallFunction(makers[CACHED_PINNED], "OIKnn", manager, generation, it->address, size,
                                 it->size);
}

static PyObject *handle_of(const cache_object *self, const item *it, PyObject *manager, Py_ssize_t key) {
    if (it->kind == CACHED_DEVICE) {
        return new_buffer(self, it, manager, key);
    }
    if (it->kind == CACHED_PINNED) {
        return new_pinned(self, it, manager, key);
    }
    return new_stream(self, it, manager);
}

static int is_usable(const cache_object *self) {
    PyObject *fault = PyObject_GetAttr(self->failures, names.last_fault);
    int usable = fault == NULL ? -1 : fault == Py_None;
    Py_XDECREF(fault);
    return usable;
}

/* Ctrl-C can interrupt the Python code that makes a PinnedBuffer. If the block already belongs to that buffer,
 * the finalizer of its bytes gives the block back. If this cannot be found out, the block is not used again. */
static bool belongs_to_handle(const item *it) {
    PyObject *type, *value, *traceback;
    if (it->kind != CACHED_PINNED) {
        return false;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *passed = PyObject_CallFunction(was_passed, "K", it->address);
    if (passed == NULL) {
        PyErr_WriteUnraisable(was_passed);
    }
    bool belongs = passed != Py_False;
    Py_XDECREF(passed);
    PyErr_Restore(type, value, traceback);
    return belongs;
}

int cache_is_simple(PyObject *cache) {
    if (!PyObject_TypeCheck(cache, cache_type)) {
        return 0;
    }
    PyObject *some_lost = PyObject_GetAttr(((cache_object *)cache)->leases, names.some_lost);
    int simple = some_lost == NULL ? -1 : some_lost == Py_False;
    Py_XDECREF(some_lost);
    return simple;
}

PyObject *take_cached(PyObject *cache, int kind, Py_ssize_t key, PyObject *manager) {
    if (!PyObject_TypeCheck(cache, cache_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a cache, got another object");
    }
    cache_object *self = (cache_object *)cache;
    int class = kind == CACHED_STREAM ? (int)key : class_of(key);
    int usable = class < 0 || makers[kind] == NULL ? 0 : is_usable(self);
    item *it = usable > 0 ? take_item(self, kind, class) : NULL;
    if (it == NULL) {
        return usable < 0 ? NULL : Py_NewRef(Py_None);
    }
    PyObject *made = handle_of(self, it, manager, key);
    if (made == NULL && !belongs_to_handle(it)) {
        list_item(self, it);
        return NULL;
    }
    Py_XDECREF(it->core);
    free(it);
    return made;
}

/* bind_maker(kind, maker, passed=None): `passed` is needed for pinned memory. */
static PyObject *bind_maker(PyObject *Py_UNUSED(module), PyObject *arguments) {
    int kind;
    PyObject *maker, *passed = NULL;
    if (!PyArg_ParseTuple(arguments, "iO|O", &kind, &maker, &passed)) {
        return NULL;
    }
    if (kind == CACHED_PINNED) {
        replace(&was_passed, Py_XNewRef(passed));
    }
    if (kind < 0 || kind >= KINDS || (kind != CACHED_PINNED && !PyType_Check(maker))) {
        return PyErr_Format(PyExc_ValueError, "expected a kind and what makes its handles, got %d", kind);
    }
    replace(&makers[kind], Py_NewRef(maker));
    Py_RETURN_NONE;
}

/* --- what is kept ---------------------------------------------------------------------------------------- */

/* Removes the item that was given first, and returns its address, or the StreamCore of a stream. Returns None
 * if nothing is left. Items of an older generation are dropped. */
static PyObject *cache_oldest(PyObject *object, PyObject *number) {
    cache_object *self = (cache_object *)object;
    long kind = PyLong_AsLong(number);
    if (kind < 0 || kind >= KINDS) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "expected 0 to 2, got %ld", kind);
    }
    unsigned generation = aio_word_generation(aio_gate_word(self->device));
    item *it;
    while ((it = self->oldest[kind]) != NULL && !is_current(it, generation)) {
        drop_item(self, it);
    }
    if (it == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *found = it->core ? Py_NewRef(it->core) : PyLong_FromUnsignedLongLong(it->address);
    if (found != NULL) {
        drop_item(self, it);
    }
    return found;
}

static PyObject *cache_counts(PyObject *object, void *field) {
    const cache_object *self = (cache_object *)object;
    const Py_ssize_t *values = field ? self->size : self->count;
    return Py_BuildValue("nnn", values[CACHED_STREAM], values[CACHED_DEVICE], values[CACHED_PINNED]);
}

static int cache_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
    static char *known[] = {"device", "failures", "leases", NULL};
    cache_object *self = (cache_object *)object;
    PyObject *failures, *leases;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "iOO", known, &self->device, &failures, &leases)) {
        return -1;
    }
    self->enabled = 1;
    replace(&self->failures, Py_NewRef(failures));
    replace(&self->leases, Py_NewRef(leases));
    return 0;
}

static int cache_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((cache_object *)object)->failures);
    Py_VISIT(((cache_object *)object)->leases);
    for (item *it = ((cache_object *)object)->newest[CACHED_STREAM]; it; it = it->older) {
        Py_VISIT(it->core);
    }
    return 0;
}

static int cache_clear(PyObject *object) {
    cache_object *self = (cache_object *)object;
    Py_CLEAR(self->failures);
    Py_CLEAR(self->leases);
    for (int kind = 0; kind < KINDS; kind++) {
        while (self->oldest[kind]) {
            drop_item(self, self->oldest[kind]);
        }
    }
    return 0;
}

static void cache_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    cache_clear(object);
    free_object(object);
}

static PyMethodDef cache_methods[] = {
    {"block_size", cache_block_size, METH_O, NULL},
    {"fits", cache_fits, METH_O, NULL},
    {"give", cache_give, METH_VARARGS, NULL},
    {"give_buffer", cache_give_buffer, METH_O, NULL},
    {"give_idle", cache_give_idle, METH_VARARGS, NULL},

    {"oldest", cache_oldest, METH_O, NULL},
    {"release", cache_release, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef cache_members[] = {
    {"enabled", T_BOOL, offsetof(cache_object, enabled), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef cache_getters[] = {
    {"counts", cache_counts, NULL, "The numbers of streams, device blocks and pinned blocks.", NULL},
    {"sizes", cache_counts, NULL, "Their sizes in bytes; 0 for streams.", (void *)"sizes"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_doc, (void *)"The closed memory and streams of a device that later requests use again."},
    {Py_tp_init, (void *)cache_init},
    {Py_tp_dealloc, (void *)cache_dealloc},
    {Py_tp_traverse, (void *)cache_traverse},
    {Py_tp_clear, (void *)cache_clear},
    {Py_tp_methods, cache_methods},
    {Py_tp_members, cache_members},
    {Py_tp_getset, cache_getters},
    {0, NULL},
};

static PyType_Spec cache_spec = {
    .name = "aioacl._await.Cache",
    .basicsize = sizeof(cache_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = cache_slots,
};

static PyMethodDef functions[] = {
    {"bind_maker", bind_maker, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_cache(PyObject *module) {
    cache_type = add_type(module, "Cache", &cache_spec);
    return cache_type ? PyModule_AddFunctions(module, functions) : -1;
}
