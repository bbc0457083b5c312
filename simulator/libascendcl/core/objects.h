/* Streams and their tasks, and the objects that tasks refer to: records, events, notifies, callbacks. */
#ifndef ACLSIM_OBJECTS_H
#define ACLSIM_OBJECTS_H

#include "base.h"

/* Tasks and streams. */
typedef enum {
    TASK_COPY,
    TASK_SET,
    TASK_PLANE,
    TASK_INDIRECT, /* the last kind of task that moves data */
    TASK_POOL_TAKE,
    TASK_POOL_GIVE,
    TASK_PREFETCH,
    TASK_RECORD,
    TASK_RESET_EVENT,
    TASK_WAIT_RECORD,
    TASK_WAIT_FLAG,
    TASK_RECORD_NOTIFY,
    TASK_WAIT_NOTIFY,
    TASK_HOST_FUNCTION,
    TASK_CALLBACK,
    TASK_WORK, /* runs outside sim.lock: kernels, reductions, values */
    TASK_STEP  /* runs with sim.lock, and may park its stream */
} task_kind_t;

/* Rows of bytes. */
typedef struct {
    void *dst;
    const void *src;
    size_t width;
    size_t height;
    size_t dpitch;
    size_t spitch;
} plane_t;

/* A description of a copy, as it is stored in device memory. */
typedef struct {
    const void *from;
    void *to;
    size_t count;
} copy_words_t;

/* A copy that reads its addresses from device memory when the stream reaches it. The addresses are in a
 * description, or separate. */
typedef struct {
    const void *desc;
    const void *to;
    const void *from;
    size_t to_offset;
    size_t from_offset;
    size_t count;
} indirect_t;

typedef struct prefetch prefetch_t;

typedef struct task {
    uint8_t kind;
    uint8_t entries;
    bool blocking; /* for callbacks: the stream waits for the callback */
    bool started;  /* the executor has reached the task */
    bool moved;    /* the bytes have been moved, but the task has not ended */
    bool late_copy;
    bool borrowed;       /* a node of a graph owns the objects that the task refers to */
    bool handled;        /* for the execution of a graph: the failure of a task in it was handled */
    node_t *node;        /* the node that the task executes; NULL: not a node of a client's graph */
    int32_t code;        /* the failure code; 0: the task succeeds */
    pid_t tid;           /* the thread that enqueued the task */
    uint32_t id;         /* the id for the callbacks of a failure; one of the ids of the operation */
    int64_t enqueued_ns; /* for waits for events: the real time of the enqueueing */
    int64_t due_ns;
    int64_t late_ns;  /* the delay of the task's end */
    int64_t limit_ns; /* for waits: the time limit; 0: none */
    union {
        struct {
            void *dst;
            const void *src;
            size_t count;
            void *owned; /* a copy of the source, freed with the task */
        } copy;
        struct {
            void *dst;
            size_t count;
            uint32_t value;
            bool words; /* fills words of 32 bits instead of bytes */
        } set;
        plane_t *plane;       /* freed with the task */
        indirect_t *indirect; /* freed with the task */
        prefetch_t *prefetch; /* freed with the task */
        void *block;          /* a pinned block of a pool */
        struct {
            event_t *event;
            record_t *record;
        } event;
        notify_t *notify;
        struct {
            void (*function)(void *);
            void *arg;
        } call;
        work_t *work;
    };
} task_t;

typedef enum {
    PARK_NONE,
    PARK_RECORD,
    PARK_FLAG,
    PARK_NOTIFY,
    PARK_CALL,
    PARK_DUE,
    PARK_FAULT, /* the head task has failed, and the recycle thread has not handled it */
    PARK_WORK,
    PARK_COMPUTE /* a model's thread computes the head task */
} park_t;

/* How many cores of a kind kernels may use. */
typedef struct {
    bool set;
    uint32_t value;
} core_limit_t;

/* The values of aclrtSetStreamAttribute. All zero is the state of a new stream. */
typedef struct {
    bool overflow_check;
    bool cache_op_info;
    uint32_t tag_inverted; /* inverted, because the tag of a new stream is 0xffffffff */
    core_limit_t cores[2];
} stream_options_t;

/* Parked streams that wait for the same change, linked through stream->parked_next. */
typedef struct {
    stream_t *first;
    stream_t *last;
} park_list_t;

struct stream {
    object_t object;
    context_t *context;
    device_t *device;
    stream_t *prev; /* in the list of the context's streams */
    stream_t *next;
    stream_t *ready_next;
    bool ready;
    bool running;     /* a thread of the simulator works on the stream outside sim.lock */
    bool computing;   /* a model's thread has the head task */
    bool held;        /* held by aclsim_hold */
    uint32_t leaving; /* calls that wait until no thread works on the stream; no task starts meanwhile */
    bool is_default;
    bool hidden; /* a runner of a graph: clients do not enqueue to it */
    bool aborting;
    bool dying;          /* a destroy call is in progress */
    bool draining;       /* aclrtDestroyStream waits for the stream's work */
    bool stop;           /* STOP failure mode */
    bool stopped;        /* a task failed in STOP mode: later tasks are skipped */
    bool host_functions; /* has a hidden subscription for host functions until the stream ends */
    park_t park;
    park_list_t *parked_on;
    stream_t *parked_prev;
    stream_t *parked_next;
    int64_t wake_ns; /* the time of PARK_DUE, or the limit of another kind of park; 0: none */
    bool polls;      /* wake_ns is real time: the stream polls, because no call reports the change */
    stream_t *timed_prev;
    stream_t *timed_next;
    bool timed;
    uint32_t id; /* unique on its device */
    uint32_t priority;
    uint32_t flags;
    int32_t fail_next;
    int32_t trap_next;       /* see aclsim_trap_next(); 0: none */
    aclError error;          /* the code of a failed task that no call has returned yet */
    char why[SIM_WHY_BYTES]; /* why that task failed, if it was a kernel */
    uint64_t fault_number;   /* number of the fault that parks the stream, in the device's order of faults */
    int64_t monitor_ns;      /* when the monitor finds that fault; SIM_FOREVER: never */
    uint32_t next_task;      /* the id of the next task; wraps around */
    uint64_t end_round;      /* the recycle thread's round in which the last task ended */
    uint64_t enqueued;
    uint64_t ended;
    int64_t free_ns; /* when the head task could begin; 0: when the executor reaches it (executor.c) */
    uint32_t entries;
    task_t *ring;
    uint64_t sync_target; /* the target of the SynchronizeDevice that holds the context's gate */
    wait_list_t waiters;
    wait_list_t room;
    job_t *job; /* the call that the head task waits for */
    report_group_t *group;
    lane_t *lane;           /* the lane that takes what is enqueued, if the stream is captured or bound */
    lane_t *runs;           /* for a runner: the lane whose tasks the stream runs */
    task_group_t *updating; /* the group whose tasks are replaced by what is enqueued */
    stream_options_t options;
};

/* Persistent streams and streams of the device's CPU are for models, so no call waits for the work of these
 * streams. */
static inline bool stream_never_completes(const stream_t *stream) {
    return (stream->flags & (0x4 | 0x10)) != 0;
}

/* Records, events, notifies. */
struct record {
    uint32_t refs;
    bool ended;     /* ended as seen by the host: the record has run or was dropped */
    bool signalled; /* ended as seen by streams: the record has run */
    bool lagged;    /* aclrtQueryEvent has lagged once, see sim.query_lag */
    uint64_t round; /* the recycle thread's round in which the record ended */
    int64_t stamp_ns;
    device_t *device;
    const stream_t *stream; /* the stream that records; only compared */
    wait_list_t waiters;
    park_list_t streams;
    record_t *next_free;
};

typedef enum { EVENT_DEFAULT, EVENT_FLAGGED, EVENT_EXTENDED } event_mode_t;

/* How an event is recorded or waited for, by its flag. */
typedef enum { WAY_NONE, WAY_ORDINARY, WAY_EXTERNAL } event_way_t;

struct event {
    object_t object;
    event_mode_t mode;
    uint32_t flags;
    context_t *context;
    uint64_t context_life;
    device_t *device;
    record_t *record;       /* the newest record; NULL: never recorded */
    bool hardware;          /* holds a hardware id from its creation on */
    bool flag;              /* hardware flag of EVENT_FLAGGED: stays set until reset */
    uint32_t waits;         /* stream waits that have not ended */
    node_t *captured;       /* the node that recorded the event, during the capture */
    event_way_t recorded;   /* set by the first record */
    event_way_t waited_for; /* set by the first wait; independent of `recorded`, because an event may be
                               recorded outside of a graph and waited for inside */
    bool external;          /* a graph records the event or waits for it with effect outside of the graph */
    uint64_t key; /* for EVENT_EXTENDED with the flag for other processes: equal for all events that share a
                     record; otherwise 0 */
    gate_t gate;
    park_list_t streams;
};

struct notify {
    object_t object;
    device_t *device;
    notify_t *shared; /* the notify that owns the flag, kept by a reference; NULL: this notify */
    bool flag;
    park_list_t streams;
};

struct count_notify {
    object_t object;
    device_t *device;
    uint32_t value;
    park_list_t streams;
};

/* Callbacks. */
struct job {
    job_t *next;
    stream_t *stream; /* kept by a reference */
    bool blocking;
    void (*function)(void *);
    void *arg;
};

typedef struct {
    job_t *first;
    job_t *last;
} job_queue_t;

typedef struct host_thread {
    bool started;
    bool stop;
    bool busy; /* inside a user's function */
    job_queue_t queue;
    pthread_cond_t cond;
    wait_list_t idle;
} host_thread_t;

#endif
