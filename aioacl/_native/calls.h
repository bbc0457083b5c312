/* Calls of models: what calls.c and the binding share. calls.c has the theory of operation. */
#ifndef AIOACL_CALLS_H
#define AIOACL_CALLS_H

#include "internal.h"

enum aio_gears { AIO_FIXED = 0, AIO_BATCHES = 1, AIO_IMAGES = 2, AIO_DIMS = 3 };

/* Who uses a call. WAITING: it waits for a slot. QUEUED: its instance's thread has not begun it. RUNNING: the
 * thread reads its arguments. ENQUEUED: its token is published when its work ends. WRITING: the thread writes
 * its results. SAVING: the thread copies its results out of the slot. TAKEN: the caller has the completion.
 * SAVED: the results are in `saved`, and it has no slot. OVER: it has no slot any more. */
enum aio_model_state {
    AIO_CALL_NEW = 0,
    AIO_CALL_WAITING = 1,
    AIO_CALL_QUEUED = 2,
    AIO_CALL_RUNNING = 3,
    AIO_CALL_ENQUEUED = 4,
    AIO_CALL_WRITING = 5,
    AIO_CALL_SAVING = 6,
    AIO_CALL_SAVED = 7,
    AIO_CALL_TAKEN = 8,
    AIO_CALL_OVER = 9
};

/* Which thread is about to call aclmdlExecuteAsync, or is inside it: none, the instance's, or a caller of
 * aio_calls_execute. */
enum aio_executing { AIO_NO_THREAD_EXECUTES = 0, AIO_RUNNER_EXECUTES = 1, AIO_CALLER_EXECUTES = 2 };

/* Bytes that are copied. Of an argument: to the next bytes of the input `input` of the slot. */
typedef struct {
    void *target; /* of a result */
    const void *source;
    size_t count;
    int input;
} aio_piece;

/* The device memory and the pinned memory of one tensor in a slot. */
typedef struct {
    void *device;
    void *pinned;
    size_t size;
} aio_part;

typedef struct aio_model_call aio_model_call;
typedef struct aio_slot aio_slot;
typedef struct aio_runner aio_runner;

struct aio_slot {
    aio_slot *next; /* in one list */
    aio_runner *runner;
    aio_stream *stream;    /* a reference */
    const aio_part *parts; /* of the inputs, then of the outputs */
    aclmdlDataset *input, *output;
    int index;
    uint64_t number;      /* of the call that has taken it last */
    aio_model_call *call; /* that has the slot; under the lock */
    int64_t late_us;      /* since when its results can be taken; 0: not seen yet; under the lock */
};

struct aio_model_call {
    aio_model_call *next; /* in one list */
    aio_slot *slot;
    aio_token *token; /* of the caller's wait, until it is published */
    uint64_t number;  /* its id in the flight recorder */
    enum aio_model_state state;
    bool held;    /* the caller may enqueue while the device drains */
    bool left;    /* the caller has given the call up, and the thread still uses it */
    bool patient; /* the caller prefers few wake-ups to early ones. The results are small */
    bool begun;   /* something was enqueued */
    int rows;     /* for the metrics */
    int gear_size;
    const int64_t *gear;     /* the value of the gear */
    const size_t *transfers; /* the bytes of each upload, then of each download */
    const aio_piece *pieces; /* the bytes of the arguments, in the order of the inputs */
    int piece_count;
    int write_count;
    const aio_piece *writes; /* of the results, if the thread writes them */
    /* The failure of a step of the thread. */
    int32_t code;
    int function;
    char *text;
    uint64_t position; /* the last position of the call's work */
    char *saved;       /* the results, one output after another, if the thread has copied them */
};

/* One id of the runtime for a model, and the thread that enqueues its calls. */
struct aio_runner {
    aio_calls *calls;
    uint32_t model;
    aio_port *port; /* of the thread's own waits; every ring wakes the thread */
    /* Under the lock. */
    aio_model_call *first, **end;         /* calls that have a slot, and that the thread has not begun */
    aio_model_call *writes, **writes_end; /* calls whose results the thread writes */
    aio_slot *leaving;                    /* slots that are in use until their work is done */
    aio_stream *last; /* a reference: the stream of the newest execution, and its position */
    uint64_t last_position;
    enum aio_executing executing;
    bool running;              /* the thread runs */
    bool ended;                /* nothing may be enqueued any more */
    bool awaited;              /* a thread waits until no other thread executes */
    _Atomic uint32_t executed; /* raised after each execution was enqueued */
    aio_rounds rounds;         /* over the streams of the slots */
    /* Used by the thread only. */
    aio_model_call *current;
    bool adopted;     /* the thread belongs to the device */
    bool waits;       /* for the previous execution */
    int32_t waited;   /* the code of that wait, if it failed */
    aio_slot *stuck;  /* slots whose work may still run, and that nothing watches */
    int64_t saves_us; /* when the thread looks for results that are not taken */
};

struct aio_calls {
    aio_lock lock;
    atomic_int references;
    int device;
    uint32_t generation;
    enum aio_gears gears;
    int inputs, outputs;
    int slot_count, runner_count;
    aio_slot *slots;
    aio_runner *runners;
    aio_part *parts;          /* of all slots; the binding allocates them */
    aio_model_counts *counts; /* for the metrics; NULL: not counted */
    /* Under the lock. */
    aio_slot *free, **free_end;
    aio_model_call *waiting, **waiting_end;
    aio_slot *failed; /* free slots whose stream must be renewed first */
    int free_count, waiting_count, failed_count;
    bool ended;
    aio_model_call *done; /* calls that their callers have left, and whose memory is to be freed */
};

/* The caller fills in the slots and the ids of the models, and then calls aio_calls_start. NULL: no memory. */
aio_calls *aio_calls_new(int device, uint32_t generation, int inputs, int outputs, int slots, int runners);
/* Starts the threads. Returns 0 or AIO_NO_THREAD. */
int aio_calls_start(aio_calls *calls);
void aio_calls_drop(aio_calls *calls);
/* Whether a call can begin now without a wait for the device. Calls no ACL function. */
bool aio_calls_are_open(const aio_calls *calls);
/* Takes a slot or waits for one, and hands the call to a thread. A completion with the key comes to the port
 * when the call has ended. Returns 0; AIO_QUEUE_FULL if there is no free slot and `wait` is not set; or a
 * refusal. */
int aio_model_begin(aio_calls *calls, aio_model_call *call, aio_port *port, uint64_t key, bool wait);
/* Gives the slot back when its work is done, or ends the wait for a slot. Returns whether nothing uses the call
 * any more. Otherwise it comes to the list `done` later. *begun: whether some of its work has begun or may
 * begin; if not, none of it runs, then or later. */
bool aio_model_leave(aio_calls *calls, aio_model_call *call, bool *begun);
/* Lets the thread write the results, and then publishes a completion. Returns 0, or a refusal. */
int aio_model_write(aio_calls *calls, aio_model_call *call, aio_port *port, uint64_t key);
/* To be called when the completion has come: from now on, the thread does not copy the results out of the slot.
 */
void aio_model_take(aio_calls *calls, aio_model_call *call);
/* Returns the first call of the list `done`, or NULL. */
aio_model_call *aio_calls_take_done(aio_calls *calls);
/* Returns a slot whose stream must be renewed, or NULL. */
aio_slot *aio_calls_take_failed(aio_calls *calls);
/* Ends the renewal. `stream` is a new reference; NULL: it has failed, and the call that waits first is ended.
 */
void aio_calls_renewed(aio_slot *slot, aio_stream *stream);
/* Ends all waits for slots with the code. */
void aio_calls_wake(aio_calls *calls, int32_t code);
/* Ends all waits for slots, now and later. The threads end when all slots are back. */
void aio_calls_end(aio_calls *calls);
/* Whether no call uses a slot. */
bool aio_calls_are_back(aio_calls *calls);
/* Returns how many slots calls use. A failed slot is not in use, except while its stream is renewed. */
int aio_calls_busy(aio_calls *calls);
/* Returns how many calls wait for a thread to write their results. */
int aio_calls_writing(aio_calls *calls);
/* Refuses later calls of aio_calls_execute, and waits for those that are inside. */
void aio_calls_close(aio_calls *calls);

/* What calls.c and runner.c share. */

/* What is to be done after the lock was released. */
typedef struct {
    aio_runner *rings;
    bool kicks;
    bool all;  /* all threads look for work */
    bool over; /* the last slot of an ended load is back: all threads end */
} aio_after;

/* Releases the lock, and then does that. */
void aio_calls_unlock(aio_calls *calls, aio_after then);
/* Wakes all threads. */
void aio_calls_ring(aio_calls *calls);
/* Whether the device was reset or closed after the load. */
bool aio_calls_are_stale(const aio_calls *calls);
/* Whether the device is done with the work of the stream, and its outcome is known. With "confirmed" detection,
 * a failure that is found later would count for the next call of the slot. */
bool aio_stream_is_settled(aio_stream *stream);
/* Whether the device is done with the work of the slot, which the caller has taken. */
bool aio_slot_is_idle(const aio_calls *calls, const aio_slot *slot);
/* Gives the slot back, now or when its work is done. */
void aio_slot_leave(aio_calls *calls, aio_slot *slot);
/* The functions from here on are called with the lock held. aio_slot_offer gives back a slot that can be used,
 * aio_slot_give one whose stream may have failed. */
aio_after aio_slot_offer(aio_calls *calls, aio_slot *slot);
aio_after aio_slot_give(aio_calls *calls, aio_slot *slot);
bool aio_calls_all_back(const aio_calls *calls);
/* Removes the call from the list, which ends at `end`. */
void aio_model_unlink(aio_model_call **first, aio_model_call ***end, const aio_model_call *call);
/* Puts a call that its caller has left, and that the thread does not use any more, into the list `done`. */
void aio_model_put_done(aio_calls *calls, aio_model_call *call);

#endif
