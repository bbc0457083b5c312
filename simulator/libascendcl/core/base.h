/* Declarations for every part of the simulator: calls, objects, waiting, threads and errors. */
#ifndef ACLSIM_BASE_H
#define ACLSIM_BASE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "aclsim.h"
#include "codes.h"
#include "sim_types.h"

enum {
    SIM_MAX_DEVICES = 64,
    CAPTURE_MODES = 3,
    SIM_QUEUE_ENTRIES = 2046,
    SIM_RING = 2048,
    SIM_HOST_FUNCTION_ENTRIES = 3,
    SIM_STREAMS_PER_DEVICE = 1984,
    SIM_STREAM_IDS = 2048,
    SIM_EVENTS_PER_DEVICE = 65536,
    SIM_TEXT_BYTES = 4096,
    SIM_WHY_BYTES = 240,
    SIM_CALL_WORDS = 17,
    SIM_OPTIONS = 4
};

#define SIM_FOREVER INT64_MAX

/* Exports a control. The library is compiled with -fvisibility=hidden. */
#define API __attribute__((visibility("default")))

/* The end of the error texts for keys and handles of other processes. */
#define SIM_SHARES_NOTHING "this simulator shares nothing between processes"

/* Functions (entry.c). */
typedef enum { CALL_FREE, CALL_ENQUEUE, CALL_WAIT, CALL_LIFETIME, CALL_CONTROL } call_kind_t;

typedef enum {
#define ACL_FN(kind, ret, name, params, args, since) FN_##name,
#include "sim_api.inc"
#undef ACL_FN
    FN_COUNT
} function_t;

#define ACL_FN(kind, ret, name, params, args, since) ret do_##name params;
#define ACL_FN_VARIADIC(kind, name, params, args, since)
#include "sim_api.inc"
#undef ACL_FN
#undef ACL_FN_VARIADIC
void do_aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line, const char *fmt,
                  va_list values);

typedef struct {
    const char *name;
    call_kind_t kind;
    const char *since;
} function_info_t;

extern const function_info_t function_info[FN_COUNT];

/* Returns the name of the call that the thread is inside, or "device task" on a thread of the simulator. */
const char *call_name(void);
/* Returns -1 if there is no such function. */
int function_find(const char *name);

/* Objects (handle.c). */
typedef enum {
    KIND_CONTEXT,
    KIND_STREAM,
    KIND_EVENT,
    KIND_NOTIFY,
    KIND_COUNT_NOTIFY,
    KIND_BINARY_DATA,
    KIND_BINARY,
    KIND_FUNCTION,
    KIND_ARGS,
    KIND_GRAPH,
    KIND_NODE,
    KIND_GROUP,
    KIND_CONDITION,
    KIND_LABEL,
    KIND_LABEL_LIST,
    KIND_POOL,
    KIND_PHYSICAL,
    KIND_DATA_BUFFER,
    KIND_TENSOR_DESC,
    KIND_CHAINED_BUFFER,
    KIND_STREAM_CONFIG,
    KIND_ALLOCATOR,
    KIND_OPERATOR_ATTR,
    KIND_DATASET,
    KIND_MODEL_DESC,
    KIND_MODEL_CONFIG,
    KIND_EXEC_CONFIG,
    KIND_PROFILE,
    KIND_COUNT
} object_kind_t;
typedef enum { OBJECT_FREE, OBJECT_LIVE, OBJECT_DEAD } object_state_t;

typedef struct object {
    object_kind_t kind;
    object_state_t state;
    uint32_t index; /* unique among the slots of its kind */
    uint32_t refs;
    struct object *next_free;
} object_t;

typedef struct thread thread_t;
typedef struct context context_t;
typedef struct stream stream_t;
typedef struct event event_t;
typedef struct notify notify_t;
typedef struct count_notify count_notify_t;
typedef struct record record_t;
typedef struct device device_t;
typedef struct report_group report_group_t;
typedef struct job job_t;
typedef struct work work_t;
typedef struct lane lane_t;
typedef struct node node_t;
typedef struct task_group task_group_t;
typedef struct injection injection_t;

/* Creates a live object with one reference. Everything except its header is zero. NULL if no memory is left. */
void *object_new(object_kind_t kind);
void object_retain(object_t *object);
void object_release(object_t *object);
/* Makes the handle dead, and releases its reference. */
void object_kill(object_t *object);
/* Returns the object of the handle if it is a live object of that kind, otherwise NULL. Accepts any pointer. */
void *object_find(object_kind_t kind, const void *handle);
object_state_t object_state(object_kind_t kind, const void *handle);
uint64_t object_count(object_kind_t kind);
const char *object_kind_name(object_kind_t kind);
/* Calls `visit` for every live object of a kind. */
void object_each(object_kind_t kind, void (*visit)(void *object, void *arg), void *arg);

/* Waiting (wait.c). */
typedef struct waiter {
    struct waiter *prev;
    struct waiter *next;
    struct wait_list *list;
    uint64_t target; /* for streams: the number of tasks that must have ended */
    bool untimed;    /* a client's aclrtSynchronizeStream or aclrtSynchronizeEvent without a time-out */
    bool whole;      /* a client's aclrtSynchronizeDevice without a time-out */
    aclError rc;
    atomic_bool done;
    pthread_cond_t *cond;
    char why[SIM_WHY_BYTES]; /* why the work failed, if that is known */
} waiter_t;

typedef struct wait_list {
    waiter_t *first;
    waiter_t *last;
} wait_list_t;

typedef struct {
    bool taken;
    wait_list_t queue;
} gate_t;

int64_t now_ns(void);
/* clock.c: sleeps until the condition is signalled or the simulator's clock reaches the time. It may also wake
 * up without a reason. Called with sim.lock held, which is released during the sleep. */
void clock_wait(pthread_cond_t *cond, int64_t deadline_ns);
/* The same, but waits at most until the real time `poll_ns`. A virtual clock does not jump to this time. */
void clock_wait_polling(pthread_cond_t *cond, int64_t deadline_ns, int64_t poll_ns);
/* Returns the earliest time at which a wait is due; SIM_FOREVER if there is none. Called with sim.lock held. */
int64_t clock_first_due(void);
int64_t real_ns(void);
bool clock_is_virtual(void);
void clock_set_virtual(bool on);
void wait_add(wait_list_t *list, waiter_t *waiter, uint64_t target);
/* Releases sim.lock while it waits. True: the waiter is done. False: the deadline has passed, and the waiter
 * was removed from its list. */
bool wait_for(waiter_t *waiter, int64_t deadline_ns);
/* The same for a call that hangs because of a rule. The call does not count as waiting. */
bool wait_unseen(waiter_t *waiter, int64_t deadline_ns);
void wait_finish(waiter_t *waiter, aclError rc);
void wait_finish_all(wait_list_t *list, aclError rc);
void gate_enter(gate_t *gate);
bool gate_enter_until(gate_t *gate, int64_t deadline_ns);
void gate_leave(gate_t *gate);
int64_t deadline_ms(int32_t timeout);

/* Threads (thread.c). */
/* Error texts that no call has fetched yet. */
typedef struct {
    size_t length;
    char bytes[SIM_TEXT_BYTES];
} said_t;

struct thread {
    thread_t *next;
    pid_t tid;
    atomic_int function;     /* the call that the thread is inside, -1: none */
    atomic_ulong devices;    /* mask of devices that this call uses */
    atomic_bool in_state_cb; /* the call is running a state callback */
    atomic_bool waiting;     /* the call is blocked */
    atomic_bool used;
    int callback_depth; /* above 0 inside a report callback or host function */
    bool reporting;     /* inside a callback of aclrtProcessReport */
    context_t *current; /* the explicit binding; takes precedence over the slot */
    int slot;           /* the device to whose primary context the thread is bound, -1: none */
    aclError last_error;
    bool keeps; /* the running call has called error_set(), see error_leave() */
    said_t said;
    char shown[SIM_TEXT_BYTES];
    pthread_cond_t cond;
    void *cores_of;                   /* the stream whose core limits the thread uses */
    uint32_t open_ranges;             /* ranges of a profiler */
    int capture_mode;                 /* selects which captures restrict this thread */
    uint32_t captures[CAPTURE_MODES]; /* captures that this thread began and has not ended, by mode */
    uint32_t last_task;               /* id of the task that the thread enqueued last */
    context_t *last_context;          /* the context of that task's stream; only compared */
    void *last_graph;                 /* the model to which that task was added; NULL: none */
    _Atomic(void *) syncing;          /* the stream that the thread synchronizes now */
    injection_t *injection;           /* the effects of rules on the call that the thread is inside */
    pid_t on_behalf; /* id of the thread that enqueued the task that runs on this thread, 0: none */
    int text_fault;  /* the fault of the next error text */
    uint32_t number; /* from 1, in the order of first calls that are checked against rules */
    bool foreign;    /* the thread acts as another library of the process */
};

thread_t *thread_self(void);
/* Gives the only thread of a forked child its new id. */
void thread_renumber(void);
void thread_each(void (*visit)(thread_t *thread, void *arg), void *arg);
void thread_bind_context(context_t *context);
void thread_bind_slot(int device);
/* Returns the thread's context. If the binding is stale, detaches it and returns NULL. But older releases keep
 * a stale binding to a device. The binding is valid again when the device is set again. */
context_t *thread_context(void);
/* Returns the thread's device; -1: none. Unlike the runtime, this function does not look up the context, so it
 * detaches no stale binding. */
int thread_device_peek(void);
/* Keeps the library loaded, because dlclose must not unmap code that threads still run. */
void thread_pin_library(void);
/* Starts a detached thread with all signals blocked. */
bool thread_start(const char *name, void *(*body)(void *), void *arg);
/* Records that the running call uses this device. */
void thread_uses(const device_t *device);
/* The same for an object of a context, except if a reset of the device does not reach the context. */
void thread_uses_in(const context_t *context);
void thread_list_lock(void);
void thread_list_unlock(void);

/* fork.c. */
void fork_watch(void);
bool process_forked(void);

/* Errors (error.c). */
/* Stores the code as the thread's last error. Adds the code's text, which names `what`, to the error text.
 * Returns the code. */
aclError error_set(aclError code, const char *what);
/* Called without sim.lock at the end of a call. If the call set the last error, looks up the context, which
 * detaches a stale binding. The runtime does this because it also stores the error in the context. */
void error_leave(thread_t *thread);
/* Adds the code's text, which names `what`, but does not set the last error. Returns the code. */
aclError error_quiet(aclError code, const char *what);
/* Returns ACL_INVALID_PARAM from the calling function if the argument is NULL. */
#define REFUSE_NULL(argument)                                                                                  \
    do {                                                                                                       \
        if ((argument) == NULL) {                                                                              \
            return error_quiet(ACL_INVALID_PARAM, #argument);                                                  \
        }                                                                                                      \
    } while (0)
/* The same for a call of which only the runtime layer checks the argument: RT_PARAM_INVALID, which is stored.
 */
#define RUNTIME_REFUSES_NULL(argument)                                                                         \
    do {                                                                                                       \
        if ((argument) == NULL) {                                                                              \
            return error_set(RT_PARAM_INVALID, #argument);                                                     \
        }                                                                                                      \
    } while (0)
/* The refusal of the calling function do_NAME, as one that the simulator does not support. */
#define UNSUPPORTED() error_set(RT_FEATURE_NOT_SUPPORT, __func__ + sizeof "do_" - 1)
/* Returns ACL_INVALID_PARAM from the calling function if the condition is true. */
#define REFUSE_IF(condition, what)                                                                             \
    do {                                                                                                       \
        if (condition) {                                                                                       \
            return error_quiet(ACL_INVALID_PARAM, what);                                                       \
        }                                                                                                      \
    } while (0)
/* Adds the reason of a task's failure to the error text, if the reason is known. */
void error_explain(aclError code, const char *why);
/* True: all threads share one text, which any of them may fetch. False: each thread has its own text. */
void error_keep_together(bool together);

/* Settings (settings.c). */
/* Releases of CANN, oldest first. Code that depends on the release compares `sim.settings.cann >= CANN_...`. */
typedef enum { CANN_8_1, CANN_8_5, CANN_9_0, CANN_9_1, CANN_MASTER } cann_t;

typedef struct {
    int devices;                      /* number of devices that the client sees */
    int physical_devices;             /* number of existing devices; ASCEND_RT_VISIBLE_DEVICES can hide some */
    int logical_ids[SIM_MAX_DEVICES]; /* the logical id of each device that the client sees */
    cann_t cann;
    int64_t copy_latency_ns;
    int64_t reset_drop_ns;   /* how long a reset waits for a stream that makes no progress */
    int64_t context_drop_ns; /* the same for aclrtDestroyContext */
    bool spin;
    /* The simulator behaves like the emulated driver on which the conformance vectors were recorded. It omits
     * what that driver omits. */
    bool recorded_driver;
    bool watch_uninitialised;
} settings_t;

#endif
