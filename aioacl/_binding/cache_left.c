/*
 * What no handle uses any more: it passes to the cache, or it is left to the maintenance thread. Finalizers
 * call these functions, also after an exception of a signal handler has interrupted a close. cache.h says who
 * owns an item.
 */
#include "cache.h"

#include <stdlib.h>

/* Leaves the item to the maintenance thread, or to the end of the running reset or close. */
void leave_item(cache_object *self, item *it) {
    it->newer = NULL;
    *self->end_left = it;
    self->end_left = &it->newer;
    self->left++;
}

item *take_left_item(cache_object *self) {
    item *it = self->first_left;
    if (it != NULL) {
        self->first_left = it->newer;
        self->end_left = it->newer ? self->end_left : &self->first_left;
        self->left--;
    }
    return it;
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
int cache_takes(const cache_object *self) {
    bool may = self->enabled && aio_tells_of_resets() && is_set(self->maintenance, names._running) &&
               !is_set(self->maintenance, names._stopping);
    return PyErr_Occurred() ? -1 : may ? cache_is_usable(self) : 0;
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
int free_pinned_item(cache_object *self, item *it) {
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
        self->pinned -= it->size;
        free(it);
        pinned_in_use--;
    }
    return code;
}

/* No thread of a closed device would free the memory. */
static void free_at_once(cache_object *self, item *it) {
    int code = free_pinned_item(self, it);
    PyObject *warned = code > 0 ? PyObject_CallMethod((PyObject *)self, "warn_of_free", "i", code) : NULL;
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable((PyObject *)self);
    }
    Py_XDECREF(warned);
}

static void place_item(cache_object *self, item *it) {
    if (it->class >= 0 && it->kind != CACHED_STREAM && cache_takes(self) > 0) {
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
PyObject *cache_end_left(PyObject *object, PyObject *Py_UNUSED(ignored)) {
    cache_object *self = (cache_object *)object;
    item *it = take_left_item(self);
    if (it == NULL) {
        Py_RETURN_NONE;
    }
    if (it->kind == CACHED_PINNED) {
        return PyLong_FromLong(free_pinned_item(self, it));
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
