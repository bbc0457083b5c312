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
 * finalizer may give an item at any time. cache.h says who owns an item.
 */
#include <stdlib.h>

#include "cache.h"

enum { KINDS = CACHED_KINDS, PRIORITIES = 8 };

/* The smallest class, and the classes to a power of two. Larger blocks are not kept. */
enum { LEAST_BITS = 9, MOST_BITS = 26, STEP_BITS = 3 };

enum { CLASSES = ((MOST_BITS - LEAST_BITS) << STEP_BITS) + 1 };

typedef struct {
    PyObject_HEAD item *newest[KINDS], *oldest[KINDS];
    item *top[KINDS][CLASSES];
    Py_ssize_t count[KINDS], size[KINDS];
    item *first_left, **end_left; /* what the maintenance thread has to free; linked by `newer` */
    Py_ssize_t left;
    PyObject *maintenance; /* the WorkerThread that frees what is left */
    PyObject *limits;      /* a dict: the most bytes that are kept of each kind of memory */
    PyObject *failures;    /* its `last_fault` is None, or a fault after which nothing is taken */
    PyObject *leases; /* if its `some_lost` is True, a request checks whether its caller has lost a lease */
    int device;
    char enabled;
} cache_object;

static PyTypeObject *cache_type;
static PyTypeObject *makers[KINDS]; /* the types of the handles */
/* The blocks of pinned memory that are not in a cache. ACL must not be finalized before they are freed. */
static Py_ssize_t pinned_in_use;

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
    it->newer = NULL; /* the stream of a handle that could not be made comes back */
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
    pinned_in_use -= it->kind == CACHED_PINNED;
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
    pinned_in_use += it->kind == CACHED_PINNED;
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

/* Returns the newest item of the class, or NULL. */
static item *newest_of(cache_object *self, int kind, int class) {
    unsigned generation;
    if (!is_open(self->device, &generation)) {
        return NULL;
    }
    item *it;
    while ((it = self->top[kind][class]) != NULL && !is_current(it, generation)) {
        drop_item(self, it);
    }
    return it;
}

/* Returns the newest item of the class, in no list any more, or NULL. */
static item *take_item(cache_object *self, int kind, int class) {
    item *it = newest_of(self, kind, class);
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

/* --- what no handle uses any more ------------------------------------------------------------------------- */

static item *new_item(int kind, unsigned generation, unsigned long long address, Py_ssize_t block) {
    item *it = malloc(sizeof *it);
    if (it != NULL) {
        *it = (item){.kind = kind, .class = class_of_block(block), .size = block};
        it->address = address;
        it->generation = generation;
    }
    return it;
}

/* Leaves the item to the maintenance thread, or to the end of the running reset or close. */
static void leave_item(cache_object *self, item *it) {
    it->newer = NULL;
    *self->end_left = it;
    self->end_left = &it->newer;
    self->left++;
}

static item *take_left(cache_object *self) {
    item *it = self->first_left;
    if (it != NULL) {
        self->first_left = it->newer;
        self->end_left = it->newer ? self->end_left : &self->first_left;
        self->left--;
    }
    return it;
}

/* The instance attribute is read without Python code. */
static int is_usable(const cache_object *self) {
    PyObject *fault = PyObject_GetAttr(self->failures, names.last_fault);
    int usable = fault == NULL ? -1 : fault == Py_None;
    Py_XDECREF(fault);
    return usable;
}

static bool is_closed_device(int device) {
    return aio_word_state(aio_gate_word(device)) == AIO_CLOSED;
}

/* Whether a field of the maintenance thread is True. The instance attribute is read without Python code. */
static bool is_set(PyObject *worker, PyObject *name) {
    PyObject *value = PyObject_GetAttr(worker, name);
    bool set = value == Py_True;
    Py_XDECREF(value);
    return set;
}

/* After a device fault, the reset frees the objects. If the library does not report resets by other code, a
 * request could not notice that such a reset has ended what was kept. The last close stops the maintenance
 * thread before it empties the cache. */
static int accepts(const cache_object *self) {
    bool may = self->enabled && aio_tells_of_resets() && is_set(self->maintenance, names._running) &&
               !is_set(self->maintenance, names._stopping);
    return PyErr_Occurred() ? -1 : may ? is_usable(self) : 0;
}

static bool exceeds_limit(const cache_object *self, int kind) {
    PyObject *number = PyLong_FromLong(kind);
    PyObject *limit = number ? PyDict_GetItemWithError(self->limits, number) : NULL;
    Py_ssize_t most = limit ? PyLong_AsSsize_t(limit) : -1;
    Py_XDECREF(number);
    return most >= 0 && self->size[kind] > most;
}

/* Frees pinned memory, which is in no list. The call needs no device, but must not run during a reset. So it
 * passes the gate while the device is open. If it is refused, the item is left to the end of the reset. */
static int free_pinned(cache_object *self, item *it) {
    aio_pass pass = aio_make_pass(self->device, aio_word_generation(aio_gate_word(self->device)), 0);
    void *memory = (void *)(uintptr_t)it->address;
    aio_frame frame;
    PyThreadState *thread = PyEval_SaveThread();
    int code = aio_begin(&frame, pass, AIO_LIFETIME, AIO_FN_aclrtFreeHost);
    if (code == 0) {
        code = aio_acl.aclrtFreeHost(memory);
        aio_end(&frame, code);
    } else if (code < 0 && is_closed_device(self->device)) {
        aio_free_begin(&frame, AIO_FN_aclrtFreeHost);
        code = aio_acl.aclrtFreeHost(memory);
        aio_free_end(&frame, code);
    }
    PyEval_RestoreThread(thread);
    if (code < 0) {
        leave_item(self, it);
    } else {
        free(it);
        pinned_in_use--;
    }
    return code;
}

/* No thread of a closed device would free the memory. */
static void free_at_once(cache_object *self, item *it) {
    int code = free_pinned(self, it);
    PyObject *warned = code > 0 ? PyObject_CallMethod((PyObject *)self, "warn_of_free", "i", code) : NULL;
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable((PyObject *)self);
    }
    Py_XDECREF(warned);
}

static void place_item(cache_object *self, item *it) {
    if (it->class >= 0 && it->kind != CACHED_STREAM && accepts(self) > 0) {
        list_item(self, it);
        if (exceeds_limit(self, it->kind)) {
            aio_device_kick(self->device, AIO_KICK_LEFT);
        }
    } else if (it->kind == CACHED_PINNED && is_closed_device(self->device)) {
        free_at_once(self, it);
    } else {
        leave_item(self, it);
        aio_device_kick(self->device, AIO_KICK_LEFT);
    }
}

void give_back(PyObject *cache, item *it) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (is_current(it, aio_word_generation(aio_gate_word(((cache_object *)cache)->device)))) {
        place_item((cache_object *)cache, it);
    } else {
        Py_XDECREF(it->core);
        free(it);
    }
    PyErr_Restore(type, value, traceback);
}

/* Passes the item to the cache of the manager. Returns false if that is impossible. */
static bool give_to_manager(PyObject *manager, item *it) {
    PyObject *cache = it && manager ? PyObject_GetAttr(manager, names.cache) : NULL;
    bool found = cache != NULL && PyObject_TypeCheck(cache, cache_type);
    if (found) {
        give_back(cache, it);
    }
    Py_XDECREF(cache);
    return found;
}

static bool may_leave(int device, unsigned generation) {
    return !atomic_load(&aio_in_child) && aio_word_generation(aio_gate_word(device)) == generation;
}

void leave_buffer(handle_object *handle) {
    bool owner = handle->owed && handle->kind == DEVICE_MEMORY && handle->block > 0 && handle->keeper == NULL;
    if (!owner || !may_leave(handle->device, handle->generation)) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    item *it = new_item(CACHED_DEVICE, handle->generation, handle->address, handle->block);
    handle->owed = 0;
    if (!give_to_manager(handle->manager, it)) {
        free(it);
    }
    PyErr_Restore(type, value, traceback);
}

void leave_stream(core_object *core) {
    if (core->stream == NULL || !may_leave(core->stream->device, core->stream->generation)) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *manager = PyObject_GetAttr((PyObject *)core, names.manager);
    item *it = malloc(sizeof *it);
    if (it != NULL) {
        *it = (item){.kind = CACHED_STREAM, .class = -1, .generation = core->stream->generation};
        it->core = Py_NewRef((PyObject *)core);
    }
    core->owned = 0;
    if (!give_to_manager(manager, it) && it != NULL) {
        Py_DECREF(it->core);
        free(it);
    }
    Py_XDECREF(manager);
    PyErr_Restore(type, value, traceback);
}

/* Takes the item that was left first. Pinned memory is freed; returns the code of aclrtFreeHost, which is
 * negative if the memory can be freed only later. Otherwise returns the StreamCore, or generation, address and
 * size of device memory. Returns None if nothing is left. */
static PyObject *cache_end_left(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    cache_object *self = (cache_object *)object;
    item *it = take_left(self);
    if (it == NULL) {
        Py_RETURN_NONE;
    }
    if (it->kind == CACHED_PINNED) {
        return PyLong_FromLong(free_pinned(self, it));
    }
    PyObject *found =
        it->core ? Py_NewRef(it->core) : Py_BuildValue("IKn", it->generation, it->address, it->size);
    if (found == NULL) {
        leave_item(self, it);
        return NULL;
    }
    Py_XDECREF(it->core);
    free(it);
    return found;
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

/* Keeps device memory that is no longer used. Returns False if the caller has to free it. */
static PyObject *cache_give(PyObject *object, PyObject *arguments) {
    cache_object *self = (cache_object *)object;
    item made = {.kind = CACHED_DEVICE};
    if (!PyArg_ParseTuple(arguments, "IKn", &made.generation, &made.address, &made.size)) {
        return NULL;
    }
    made.class = class_of_block(made.size);
    if (!self->enabled || made.class < 0) {
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
    if (!self->enabled || made.class < 0 || !handle->owed || handle->keeper != NULL) {
        Py_RETURN_FALSE;
    }
    if (!give_item(self, &made)) { /* the caller frees the memory */
        Py_RETURN_FALSE;
    }
    handle->owed = 0;
    Py_RETURN_TRUE;
}

/* Returns a new Keeper of `size` bytes of pinned memory, or the code of aclrtMallocHost. 0 bytes need no
 * memory. */
static PyObject *cache_allocate_pinned(PyObject *object, PyObject *arguments) {
    unsigned generation;
    Py_ssize_t size, block;
    if (!PyArg_ParseTuple(arguments, "Inn", &generation, &size, &block)) {
        return NULL;
    }
    PyObject *keeper = new_keeper(object, size);
    if (keeper == NULL || size == 0) {
        return keeper;
    }
    item *it = new_item(CACHED_PINNED, generation, 0, block);
    if (it == NULL) {
        Py_DECREF(keeper);
        return PyErr_NoMemory();
    }
    aio_pass pass = aio_make_pass(((cache_object *)object)->device, generation, 0);
    void *memory = NULL;
    aio_frame frame;
    PyThreadState *thread = PyEval_SaveThread();
    int code = aio_begin(&frame, pass, AIO_LIFETIME, AIO_FN_aclrtMallocHost);
    if (code == 0) {
        code = aio_acl.aclrtMallocHost(&memory, (size_t)block);
        aio_end(&frame, code);
    }
    PyEval_RestoreThread(thread);
    if (code) {
        free(it);
        Py_DECREF(keeper);
        return PyLong_FromLong(code);
    }
    it->address = (uintptr_t)memory;
    pinned_in_use++;
    pass_to_keeper(keeper, it);
    return keeper;
}

/* Returns the Keeper of a buffer's memory. The first call makes it, and the memory passes to it. Returns None
 * if the buffer has given its memory back. */
static PyObject *cache_lend(PyObject *object, PyObject *buffer) {
    if (!PyObject_TypeCheck(buffer, handle_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a buffer, got another object");
    }
    handle_object *handle = (handle_object *)buffer;
    if (handle->keeper == NULL && handle->owed) {
        PyObject *keeper = new_keeper(object, handle->size);
        item *it = keeper ? new_item(CACHED_DEVICE, handle->generation, handle->address, handle->block) : NULL;
        if (it == NULL) {
            Py_XDECREF(keeper);
            return keeper ? PyErr_NoMemory() : NULL;
        }
        if (handle->keeper == NULL && handle->owed) { /* the garbage collector has not run a close meanwhile */
            pass_to_keeper(keeper, it);
            handle->keeper = keeper;
        } else {
            free(it);
            Py_DECREF(keeper);
        }
    }
    return Py_NewRef(handle->keeper ? handle->keeper : Py_None);
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
    core->owned = 0;
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
        core->owned = 0;
        list_item(self, it);
    } else {
        free(it);
    }
    core->gone |= code == 0;
    return PyLong_FromLong(code);
}

/* --- new handles ----------------------------------------------------------------------------------------- */

/* Returns a new handle, to which no item has passed yet. */
static handle_object *new_handle(const cache_object *self, int kind, PyObject *manager) {
    handle_object *handle = (handle_object *)PyType_GenericAlloc(makers[kind], 0);
    if (handle != NULL) {
        handle->manager = Py_NewRef(manager);
        handle->device = self->device;
    }
    return handle;
}

static handle_object *new_buffer(cache_object *self, int kind, PyObject *manager, Py_ssize_t size) {
    handle_object *handle = new_handle(self, kind, manager);
    if (handle == NULL) {
        return NULL;
    }
    handle->uses = new_uses();
    handle->keeper = handle->uses && kind == CACHED_PINNED ? new_keeper((PyObject *)self, size) : NULL;
    if (handle->uses == NULL || (kind == CACHED_PINNED && handle->keeper == NULL)) {
        Py_DECREF((PyObject *)handle);
        return NULL;
    }
    handle->size = size;
    handle->kind = kind; /* of memory, the number in enum memory_kind too */
    return handle;
}

/* Makes the handle first, so no step after the take can fail. */
static PyObject *take_memory(cache_object *self, int kind, int class, Py_ssize_t size, PyObject *manager) {
    handle_object *handle = new_buffer(self, kind, manager, size);
    item *it = handle ? take_item(self, kind, class) : NULL;
    if (it == NULL) { /* a finalizer that the garbage collector has run may have taken it */
        PyObject *none = handle ? Py_NewRef(Py_None) : NULL;
        Py_XDECREF((PyObject *)handle);
        return none;
    }
    handle->address = it->address;
    handle->block = it->size;
    handle->owed = 1;
    if (kind == CACHED_PINNED) {
        handle->generation = aio_word_generation(aio_gate_word(self->device));
        pass_to_keeper(handle->keeper, it);
    } else {
        handle->generation = it->generation;
        free(it);
    }
    return (PyObject *)handle;
}

/* Returns the record of the stream, a new reference. The new record of a released stream owns nothing until the
 * Python code that makes it has returned. So an exception of a signal handler in this code changes nothing. */
static core_object *record_of(const item *it) {
    core_object *core = (core_object *)it->core;
    if (!core->gone) {
        return (core_object *)Py_NewRef(it->core);
    }
    PyObject *number = PyObject_GetAttr(it->core, names.number);
    long id = number ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    core = PyErr_Occurred() ? NULL : (core_object *)PyObject_CallMethodObjArgs(it->core, names.again, NULL);
    if (core != NULL) {
        aio_stream_list(core->stream, (int32_t)id);
    }
    return core;
}

static PyObject *take_stream(cache_object *self, int class, PyObject *manager) {
    handle_object *handle = new_handle(self, CACHED_STREAM, manager);
    item *it = handle ? take_item(self, CACHED_STREAM, class) : NULL;
    core_object *core = it ? record_of(it) : NULL;
    if (core == NULL) {
        PyObject *none = handle && !it ? Py_NewRef(Py_None) : NULL;
        if (it != NULL) {
            list_item(self, it);
        }
        Py_XDECREF((PyObject *)handle);
        return none;
    }
    core->owned = 1;
    handle->core = (PyObject *)core;
    handle->generation = it->generation;
    handle->owed = 1;
    Py_DECREF(it->core);
    free(it);
    return (PyObject *)handle;
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
    if (usable <= 0 || newest_of(self, kind, class) == NULL) {
        return usable < 0 ? NULL : Py_NewRef(Py_None);
    }
    return kind == CACHED_STREAM ? take_stream(self, class, manager)
                                 : take_memory(self, kind, class, key, manager);
}

static PyObject *bind_maker(PyObject *Py_UNUSED(module), PyObject *arguments) {
    int kind;
    PyObject *maker;
    if (!PyArg_ParseTuple(arguments, "iO", &kind, &maker)) {
        return NULL;
    }
    if (kind < 0 || kind >= KINDS || !PyType_Check(maker)) {
        return PyErr_Format(PyExc_ValueError, "expected a kind and the type of its handles, got %d", kind);
    }
    Py_INCREF(maker);
    Py_XDECREF((PyObject *)makers[kind]);
    makers[kind] = (PyTypeObject *)maker;
    Py_RETURN_NONE;
}

static PyObject *count_pinned(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromSsize_t(pinned_in_use);
}

/* --- what is kept ---------------------------------------------------------------------------------------- */

/* Removes the item that was given first. Returns the StreamCore of a stream, or the address of device memory.
 * Pinned memory is freed; returns the code of aclrtFreeHost. Returns None if there is no item. Items of an
 * older generation are dropped. */
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
    if (kind == CACHED_PINNED) {
        unlist_item(self, it);
        return PyLong_FromLong(free_pinned(self, it));
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
    static char *known[] = {"device", "failures", "leases", "limits", "maintenance", NULL};
    cache_object *self = (cache_object *)object;
    PyObject *failures, *leases, *limits, *maintenance;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "iOOO!O", known, &self->device, &failures, &leases,
                                     &PyDict_Type, &limits, &maintenance)) {
        return -1;
    }
    self->enabled = 1;
    replace(&self->limits, Py_NewRef(limits));
    replace(&self->maintenance, Py_NewRef(maintenance));
    replace(&self->failures, Py_NewRef(failures));
    replace(&self->leases, Py_NewRef(leases));
    return 0;
}

static PyObject *cache_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(keywords)) {
    PyObject *object = PyType_GenericAlloc(type, 0);
    if (object != NULL) {
        ((cache_object *)object)->end_left = &((cache_object *)object)->first_left;
    }
    return object;
}

static PyObject *cache_accepts(PyObject *object, void *Py_UNUSED(closure)) {
    int accepted = accepts((cache_object *)object);
    return accepted < 0 ? NULL : PyBool_FromLong(accepted);
}

static int cache_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((cache_object *)object)->limits);
    Py_VISIT(((cache_object *)object)->maintenance);
    Py_VISIT(((cache_object *)object)->failures);
    Py_VISIT(((cache_object *)object)->leases);
    for (item *it = ((cache_object *)object)->newest[CACHED_STREAM]; it; it = it->older) {
        Py_VISIT(it->core);
    }
    for (item *it = ((cache_object *)object)->first_left; it; it = it->newer) {
        Py_VISIT(it->core);
    }
    return 0;
}

static int cache_clear(PyObject *object) {
    cache_object *self = (cache_object *)object;
    Py_CLEAR(self->limits);
    Py_CLEAR(self->maintenance);
    Py_CLEAR(self->failures);
    Py_CLEAR(self->leases);
    item *it;
    while ((it = take_left(self)) != NULL) {
        PyObject *core = it->core;
        free(it);
        Py_XDECREF(core);
    }
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
    {"allocate_pinned", cache_allocate_pinned, METH_VARARGS, NULL},
    {"block_size", cache_block_size, METH_O, NULL},
    {"end_left", cache_end_left, METH_NOARGS, NULL},
    {"fits", cache_fits, METH_O, NULL},
    {"give", cache_give, METH_VARARGS, NULL},
    {"give_buffer", cache_give_buffer, METH_O, NULL},
    {"give_idle", cache_give_idle, METH_VARARGS, NULL},
    {"lend", cache_lend, METH_O, NULL},
    {"oldest", cache_oldest, METH_O, NULL},
    {"release", cache_release, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef cache_members[] = {
    {"enabled", T_BOOL, offsetof(cache_object, enabled), 0, NULL},
    {"left", T_PYSSIZET, offsetof(cache_object, left), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef cache_getters[] = {
    {"accepts", cache_accepts, NULL, "Whether the cache takes memory and streams now.", NULL},
    {"counts", cache_counts, NULL, "The numbers of streams, device blocks and pinned blocks.", NULL},
    {"sizes", cache_counts, NULL, "Their sizes in bytes; 0 for streams.", (void *)"sizes"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_doc, (void *)"The closed memory and streams of a device that later requests use again."},
    {Py_tp_new, (void *)cache_new},
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
    {"pinned_in_use", count_pinned, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_cache(PyObject *module) {
    cache_type = add_type(module, "Cache", &cache_spec);
    return cache_type ? PyModule_AddFunctions(module, functions) : -1;
}
