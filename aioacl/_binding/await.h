/* What the files of an await share: await.c, awaits.c, future.c and trio.c. */
#ifndef AIOACL_AWAIT_H
#define AIOACL_AWAIT_H

#include "binding.h"

#define KEY_OF_AWAIT (UINT64_C(1) << 63)

typedef struct await_object await_object;

enum { MOST_TAKEN = 64, MOST_KEPT = 2 * MOST_TAKEN };

/* The base of AsyncioPort and TrioPort. */
typedef struct {
    PyObject_HEAD aio_port *port; /* owned by the Python object; NULL before `_attach` */
    await_object *first;
    Py_ssize_t outstanding; /* Awaits in the list that begins with `first`; each entry is a reference */
    await_object
        *ready; /* on asyncio: a list of Awaits whose tasks wait for `run_ready`; each is a reference */
    await_object **ready_end;
    int quick;           /* quick awaits, which did not have to wait, of this turn of the loop; 0 on trio */
    char learns_of_turn; /* the loop will call `_new_turn` */
    long long quick_us;  /* when quick awaits have taken longer than this, the next one gives way */
    int64_t quick_since_us;
    /* Since when each turn of the loop has left completions behind (0: the last turn left none), how long this
     * may go on before the port takes more in a turn, and until when it does so. */
    int64_t behind_since_us;
    long long patience_us;
    int64_t busy_until_us;
    int kept; /* completions that were taken, and could not be passed on for lack of memory */
    uint64_t kept_keys[MOST_KEPT];
    int64_t kept_results[MOST_KEPT];
} awaits_object;

/* STARTED: the call of its run has begun, and no task waits now. IN_PYTHON: the coroutine `inner` continues. */
enum await_state { NEW, STARTED, YIELDED, SUSPENDED, IN_PYTHON, OVER };

struct await_object {
    PyObject_HEAD await_object *next; /* in the port's list, or in its list of ready Awaits */
    await_object **link;              /* in the port's list; NULL if the Await is not in it */
    awaits_object *port;              /* the owner of the port's list */
    PyObject *awaited;                /* the Ticket, Event or Stream */
    PyObject *loop;                   /* of asyncio; NULL on trio */
    core_object *core;                /* NULL before the first step */
    PyObject *call;                   /* the name of the ACL function, as in a Ticket */
    PyObject *waiter;     /* asyncio's callback, or the task of trio, that the completion wakes, or NULL */
    PyObject *context;    /* of asyncio's callback */
    PyObject *message;    /* of the cancellation by asyncio */
    PyObject *inner;      /* on trio: the coroutine of trio that suspends the task; see also IN_PYTHON */
    PyObject *notify;     /* a function that the completion of a STARTED await calls, or NULL */
    PyObject *value;      /* the results of a STARTED await that is done, or its exception */
    PyObject *run;        /* the Run of a call of a model; NULL: the await has none, or has ended */
    unsigned long thread; /* the thread that made it */
    uint64_t position;
    aio_result result; /* AIO_PENDING until the outcome is known */
    enum await_state state;
    char of_call;   /* `awaited` is a Call: if its run fails, it continues in Python */
    char started;   /* the call of its run has begun before a task waits */
    char stepping;  /* a step runs; it may release the GIL */
    char blocking;  /* `_asyncio_future_blocking` */
    char cancelled; /* by asyncio */
    char raises;    /* `value` is an exception */
    char writes;    /* the results of the run are being written to memory of the caller: no cancellation */
};

extern PyTypeObject *awaits_type;

/* awaits.c: the list of a port. The port has a reference to each Await in its list. */
void list_await(awaits_object *port, await_object *self);
/* The caller gets the list's reference. */
void unlist_await(await_object *self);
/* Whether an await that does not have to wait gives way to other tasks. It does so if it is the 64th such await
 * of one turn of the loop (not counting a few before a batch of completions), or if these awaits have taken
 * more than `quick_us` (a millisecond). Returns -1 with an exception. */
int gives_way(awaits_object *port, PyObject *loop);

/* future.c: the methods of asyncio's futures. */
PyObject *future_add_done_callback(PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                                   PyObject *keywords);
PyObject *future_remove_done_callback(PyObject *self, PyObject *callback);
PyObject *future_cancel(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *future_result(PyObject *self, PyObject *ignored);
PyObject *future_done(PyObject *self, PyObject *ignored);
PyObject *future_cancelled(PyObject *self, PyObject *ignored);
PyObject *future_get_loop(PyObject *self, PyObject *ignored);
PyObject *future_blocking(PyObject *self, void *closure);
PyObject *future_or_await(PyObject *self, void *closure);
int future_set_blocking(PyObject *self, PyObject *value, void *closure);
/* Runs the callback of the task in its context. Returns -1 with an exception that the callback raised. */
int future_wake(await_object *self);
/* Lets the loop run the callback of the task in its next turn. Returns -1 with an exception. */
int future_wake_soon(await_object *self);

/* trio.c */

/* Returns 1 in a trio run, 0 elsewhere, -1 with an exception. */
int in_trio(void);
/* Suspends the task until a completion wakes it. Returns the result of the first step of trio's coroutine. */
PySendResult trio_suspend(await_object *self, PyObject **sent);
/* Runs a checkpoint, in the same way. */
PySendResult trio_checkpoint(await_object *self, PyObject **sent);
/* Runs the next step of trio's coroutine. */
PySendResult trio_step(await_object *self, PyObject *value, PyObject **sent);
/* trio calls this method of an Await to cancel its task: then the completion wakes no task. */
PyObject *trio_abort(PyObject *self, PyObject *raise_cancel);
/* Wakes a task of trio. Returns -1 with an exception. */
int trio_wake(PyObject *task);

int add_futures(void);
int add_ports(PyObject *module);
int add_ready(PyObject *module);
int add_openings(PyObject *module);
/* Whether an await on this thread may end without suspending its task: an asyncio loop runs on the thread, and
 * the task need not give way to other tasks. Returns -1 with an exception. */
int may_go_on(void);
/* The call of a STARTED await has ended: takes its results, so that its slot is free. Returns whether the await
 * is done; otherwise one more completion comes. */
bool end_started(awaits_object *port, await_object *self);
/* opening.c: what an await of the operation has come to, for its repr. `type` is that of the exception. */
void operation_done(PyObject *operation);
void operation_failed(PyObject *operation, PyObject *type);
/* await.c: an await of a call of a model, whose `_quick` returns a Run, or None if Python has to await. */
PyObject *call_await(PyObject *call);
/* Raises StopIteration with the result, whose reference it takes. Returns NULL. */
PyObject *end_iteration(PyObject *result);
/* Sets the exception that the arguments of `throw` give. `value` may be NULL. */
void raise_given(PyObject *type, PyObject *value);
/* Returns the iterator of an await with this result. Takes the caller's reference to it. */
PyObject *ready(PyObject *result);
int add_trio(PyObject *module);

#endif
