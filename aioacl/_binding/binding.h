/*
 * The Python types that call the engine. They are the bases of Stream, StreamCore, Ticket, Event, the buffers
 * and AsyncioPort. In the usual case, an enqueue is one call of C, and so is each step of an await. The Python
 * code of the subclasses handles all other cases: refused arguments, errors, leases, trio and plain threads.
 *
 * The GIL is held, except during a call of the engine that may reach ACL.
 */
#ifndef AIOACL_BINDING_H
#define AIOACL_BINDING_H

#include <Python.h>

#include <structmember.h>

#include "internal.h"

enum memory_kind { NO_MEMORY = 0, DEVICE_MEMORY = 1, PINNED_MEMORY = 2, READ_ONLY_MEMORY = 3 };

/* What the cache of a device keeps. Memory has the number of its kind. */
enum cached_kind { NO_KIND = -1, CACHED_STREAM = 0, CACHED_DEVICE = 1, CACHED_PINNED = 2, CACHED_KINDS = 3 };

/* The base of Handle. A field that only one kind of handle uses is 0 in all other kinds. */
typedef struct {
    PyObject_HEAD PyObject *manager;
    PyObject *born, *site; /* where it was made; NULL: not known */
    PyObject *core;        /* of a stream: its StreamCore */
    PyObject *version;     /* of an event: its newest record, a Recorded; NULL or None: it has none */
    PyObject *uses;        /* of a buffer: its Uses, the InFlight objects that refer to it */
    PyObject *keeper;      /* of a pinned or exported buffer: its Keeper; NULL after it is freed */
    PyObject *base;        /* of a view: the buffer that it is a part of, whose `uses` it shares */
    unsigned long long address;
    Py_ssize_t size;  /* in bytes */
    Py_ssize_t block; /* of a device buffer: the bytes that were allocated; 0 if another library owns them */
    int kind;         /* enum memory_kind */
    int device;
    unsigned generation;
    char timing; /* of an event */
    char closed;
    char owed; /* the native object is to be freed */
} handle_object;

typedef struct in_flight_object in_flight_object;

/* The base of StreamCore. */
typedef struct {
    PyObject_HEAD aio_stream *stream; /* NULL before `_attach` */
    in_flight_object *first, *last;   /* a list in the order of the positions; each entry is a reference */
    Py_ssize_t in_flight;             /* the length of the list */
    Py_ssize_t most;                  /* if the list is longer, an enqueue drops entries of work that is done */
    Py_ssize_t awaits;                /* Awaits of the stream that are in progress */
    char gone;                        /* the stream was closed or renewed, and the native stream is destroyed */
    char owned;                       /* this object owns the native stream, and no list of a cache does */
} core_object;

/* One record of an event. */
typedef struct {
    PyObject_HEAD core_object *core;
    aio_event *native; /* a reference */
    uint64_t position;
} recorded_object;

/* The objects that one piece of work uses, and its position. */
struct in_flight_object {
    PyObject_HEAD PyObject *core;
    PyObject *buffers; /* a tuple */
    PyObject *held;
    uint64_t position;
    in_flight_object *next, *before; /* in the list of the stream */
    struct use *uses;                /* by the buffers; see in_flight.c */
    char listed;
};

#define UNKNOWN_POSITION (UINT64_C(1) << 62) /* the position of work that is being enqueued */

/* The base of Ticket. */
typedef struct {
    PyObject_HEAD core_object *core; /* NULL before `__init__` */
    PyObject *call;                  /* the name of the ACL function that enqueued the task, or "" */
    uint64_t position;
    char twin; /* another ticket has the same position */
} position_object;

#define NAMES(X)                                                                                               \
    X(__name__)                                                                                                \
    X(_abort)                                                                                                  \
    X(_after)                                                                                                  \
    X(_arrive)                                                                                                 \
    X(_await_in_python)                                                                                        \
    X(_came)                                                                                                   \
    X(_closed)                                                                                                 \
    X(_decide)                                                                                                 \
    X(_deliver_came)                                                                                           \
    X(_drive_later)                                                                                            \
    X(_dropped)                                                                                                \
    X(_fail_all)                                                                                               \
    X(_manager)                                                                                                \
    X(_nest_patched)                                                                                           \
    X(_new_turn)                                                                                               \
    X(_not_recorded)                                                                                           \
    X(_quick)                                                                                                  \
    X(_refused)                                                                                                \
    X(_release_stale)                                                                                          \
    X(_running)                                                                                                \
    X(_send_soon)                                                                                              \
    X(_state)                                                                                                  \
    X(_stopping)                                                                                               \
    X(_target)                                                                                                 \
    X(_turn)                                                                                                   \
    X(aclrtMemcpyAsync)                                                                                        \
    X(aclrtMemsetAsync)                                                                                        \
    X(aclrtRecordEvent)                                                                                        \
    X(aclrtStreamWaitEvent)                                                                                    \
    X(again)                                                                                                   \
    X(born)                                                                                                    \
    X(cache)                                                                                                   \
    X(call_soon)                                                                                               \
    X(cancelled)                                                                                               \
    X(close)                                                                                                   \
    X(context)                                                                                                 \
    X(done)                                                                                                    \
    X(drive)                                                                                                   \
    X(end_turn)                                                                                                \
    X(f_back)                                                                                                  \
    X(f_code)                                                                                                  \
    X(f_globals)                                                                                               \
    X(f_lasti)                                                                                                 \
    X(failure)                                                                                                 \
    X(get_debug)                                                                                               \
    X(gone)                                                                                                    \
    X(in_trio_run)                                                                                             \
    X(last_fault)                                                                                              \
    X(limit)                                                                                                   \
    X(loop_here)                                                                                               \
    X(lowlevel)                                                                                                \
    X(made)                                                                                                    \
    X(manager)                                                                                                 \
    X(name)                                                                                                    \
    X(number)                                                                                                  \
    X(priority)                                                                                                \
    X(put_off)                                                                                                 \
    X(refused)                                                                                                 \
    X(reusable)                                                                                                \
    X(run)                                                                                                     \
    X(run_put_off)                                                                                             \
    X(run_ready)                                                                                               \
    X(set_exception)                                                                                           \
    X(set_result)                                                                                              \
    X(sniffio)                                                                                                 \
    X(some_lost)                                                                                               \
    X(thread_local)                                                                                            \
    X(trio)                                                                                                    \
    X(warn_of_closed)

struct binding_names {
    PyObject *nothing; /* "" */
#define X(name) PyObject *name;
    NAMES(X)
#undef X
};

extern struct binding_names names;
extern PyTypeObject *core_type, *handle_type, *in_flight_type, *position_type, *recorded_type;

/* Puts a new reference into a field. */
static inline void replace(PyObject **field, PyObject *object) {
    PyObject *old = *field;
    *field = object;
    Py_XDECREF(old);
}

/* Makes a type and adds it to the module. Returns NULL with an exception if that fails. */
PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec);
/* Imports a module and returns a new reference to an attribute of it. */
PyObject *attribute_of(const char *module, const char *name);
/* Whether the handle is closed. A view is closed with its buffer. */
bool is_closed(const handle_object *handle);
/* Frees an object of a heap type, after its fields were cleared. */
void free_object(PyObject *object);
/* Drops the references of the stream's finished work. Returns -1 with an exception. */
int release_done(core_object *core);
/* The same, if the stream has more references than `most`, a limit that grows with the amount of unfinished
 * work. Queries the runtime first. */
int release_if_many(core_object *core);
/* Adds a reference to the list of its stream. */
void add_reference(core_object *core, in_flight_object *reference);
/* The work of the reference was enqueued at that position. */
void place_reference(in_flight_object *reference, uint64_t position);
/* Drops the references of work that was refused. */
void drop_reference(core_object *core, in_flight_object *reference);
/* Returns the Uses of a new buffer. */
PyObject *new_uses(void);
/* Adds the reference to the Uses of a buffer. Returns -1 with an exception. */
int add_use(PyObject *uses, in_flight_object *reference);
/* Removes the reference from the Uses of all buffers. */
void drop_uses(in_flight_object *reference);
/* `__await__` of Tickets, Events and Streams. */
PyObject *awaitable_await(PyObject *self);
/* Each of these functions adds the types and functions of one file. Returns -1 with an exception. */
/* Makes a Recorded, which takes the reference to the event; enqueue.c. */
PyObject *new_record(core_object *core, aio_event *native, uint64_t position);
int add_handles(PyObject *module);
int add_in_flight(PyObject *module);
int add_enqueue(PyObject *module);
int add_launch(PyObject *module);
int add_awaits(PyObject *module);
int add_dlpack(PyObject *module);
int add_keeper(PyObject *module);
int add_dataset(PyObject *module);
int add_cache(PyObject *module);
int add_site(PyObject *module);
int add_baton(PyObject *module);
int add_recorder(PyObject *module);

/* exporter.c. */
int add_exporter(PyObject *module);
/* Returns a new reference to the site of the caller's code that called aioacl; see site.c. */
PyObject *calling_site(void);
/* Whether a request need not check the leases of its caller. Returns -1 with an exception. */
int cache_is_simple(PyObject *cache);
/* Takes memory or a stream from a cache, and returns a new handle, or None if nothing fits. `key` is the size
 * in bytes, or the priority of a stream. */
PyObject *take_cached(PyObject *cache, int kind, Py_ssize_t key, PyObject *manager);
/* Passes the memory of a device buffer, or the native stream of a StreamCore, to the cache, if no code frees
 * it: an exception of a signal handler has interrupted a close or a finalizer. For finalizers. */
void leave_buffer(handle_object *handle);
void leave_stream(core_object *core);

#endif
