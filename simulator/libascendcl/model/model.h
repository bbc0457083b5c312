/*
 * Theory of operation of offline models
 *
 * A model file is read without sim.lock: its description (modelinfo.h), and a session of onnxruntime
 * (session.h). A genuine file has no ONNX model. Such a model is described and loaded, but not executed.
 *
 * A loaded model has an id, and belongs to the context in which it was loaded. It has device memory, an inner
 * stream for aclmdlExecute, and a thread that starts at its first execution. When the context ends, the inner
 * stream and the memory end. The id stays, as in the runtime, and each further use of it is noted. aclmdlUnload
 * ends the id.
 *
 * An execution is a task of a stream. When the executor reaches the task, it pins the memory, and gives the
 * execution to the model's thread (execute.c). The stream is parked, with stream->computing set, so the
 * executor runs the other streams of the device meanwhile. The model's thread computes without sim.lock, and
 * then lets the stream continue. The model's cost (cost.c) is a time before which the task does not end. A call
 * that drops the stream's tasks stops a computation that has begun, and waits for its end (model_leave()).
 *
 * The code of a failed execution is 507011, and the exception callbacks get the ids of the inner stream.
 */
#ifndef ACLSIM_MODEL_H
#define ACLSIM_MODEL_H

#include "models.h"
#include "session.h"
#include "work.h"

/* The list of buffers of an execution. The buffers belong to the client, the descriptions to the dataset. */
typedef struct {
    aclDataBuffer *buffer;
    tensor_desc_t *desc; /* NULL: none */
} dataset_entry_t;

typedef struct {
    object_t object;
    size_t count;
    size_t room;
    dataset_entry_t *entries; /* owned */
} dataset_t;

typedef struct {
    object_t object;
    model_info_t *info; /* a reference; NULL: not filled */
    uint32_t model;     /* the id of the model; 0: filled from a file */
} model_desc_t;

typedef struct model model_t;
typedef struct model_run model_run_t;

typedef enum { EXECUTES_NEVER, EXECUTES_SYNC, EXECUTES_ASYNC } execute_mode_t;

struct model {
    model_t *next;
    uint32_t id;
    uint32_t refs; /* the id, each execution, and the thread */
    model_info_t *info;
    session_t *session; /* NULL: the model cannot be executed */
    char *path;         /* owned, the path of the load; NULL: loaded from memory */
    context_t *context;
    device_t *device;
    stream_t *stream; /* the inner stream; NULL after the end of the context */
    void *work;       /* memory of the simulator; NULL: the client's memory, or ended */
    void *weights;
    bool stale; /* the context has ended */
    bool ended; /* unloaded */
    uint32_t priority;
    execute_mode_t mode;
    size_t gear;          /* the gear that was set last; SIZE_MAX: none */
    uint64_t executions;  /* executions that have been computed without a failure */
    uint32_t pending;     /* executions that have not ended */
    const stream_t *user; /* the stream of these executions; only compared */
    uint32_t callers;     /* threads inside an execution that waits */
    bool thread_started;
    bool thread_stops;
    pthread_cond_t cond;
    model_run_t *first; /* executions that the thread has to compute */
    model_run_t *last;
    model_run_t *now; /* the execution that the thread computes */
};

/* What a load needs. Either `path` or `bytes` is set. */
typedef struct {
    const char *path;
    const void *bytes;
    size_t size;
    bool with_memory; /* the next four fields are set */
    void *work;
    size_t work_size;
    void *weights;
    size_t weight_size;
    int32_t priority;
    bool refuse_dynamic;
} load_t;

/* modelfile.c. Reads a file, or bytes if `path` is NULL. `session` may be NULL. Adds an error text on failure.
 */
aclError model_read(const char *path, const void *bytes, size_t size, model_info_t **info, session_t **session);
aclError model_load(const load_t *load, uint32_t *id);

/* load.c: called with sim.lock held. */
/* Finds a loaded model. Otherwise adds an error text, and returns 145003. */
aclError model_find(uint32_t id, model_t **model);
/* The same for calls that use the model on the device. Notes the use of a model whose context has ended, and of
 * a model of another context. */
aclError model_find_usable(uint32_t id, model_t **model);
void model_release(model_t *model);
/* Called without sim.lock: frees the models that have no references left. */
void models_bury(void);
uint64_t model_count(void);

/* The loaded model after this one; NULL: the first model. Later loads come first. */
const model_t *model_next(const model_t *model);

/* modellist.c: called with sim.lock held. Writes the model to the file of AIOACL_SIM_MODELS, if it is set. */
void model_report_end(const model_t *model);

/* modelthread.c: called with sim.lock held. */
bool model_thread_submit(model_run_t *run);
/* Ends the thread when it has computed what it has to compute. */
void model_thread_stop(model_t *model);

/* registered.c. */
/* Whether a function is registered in place of the model. Called with sim.lock held. */
bool model_is_registered(const model_info_t *info);
/* Calls the function that is registered in place of the model, without sim.lock. False: there is none. */
bool model_call_registered(model_run_t *run);

/* dataset.c: called with sim.lock held. */
dataset_t *dataset_find(const aclmdlDataset *handle, const char *what);
/* Sets the shape of a description of the dataset, which is made if there is none. */
void dataset_set_shape(dataset_t *dataset, size_t index, aclDataType type, const int64_t *dims, size_t count);

/* modeldesc.c: called with sim.lock held. */
model_desc_t *model_desc_find(const aclmdlDesc *handle);

/* cost.c: called with sim.lock held. The time that an execution takes on the device. */
int64_t model_cost_ns(uint64_t rows, uint64_t bytes);

/* modelconfig.c */
typedef struct {
    object_t object;
    size_t type;
    char *path; /* owned */
    const void *bytes;
    size_t size;
    void *work;
    size_t work_size;
    void *weights;
    size_t weight_size;
    int32_t priority;
    const uint32_t *queues[2]; /* the input queues, the output queues */
    size_t queue_counts[2];
    size_t reuse; /* has no effect */
    const char *weight_path;
    int32_t without_graph;
    bool without_graph_set;
} model_config_t;

typedef struct {
    object_t object;
    int32_t stream_timeout_ms; /* 0: not set */
    int32_t event_timeout_ms;  /* has no effect */
} exec_config_t;

/* modelunsupported.c. The checks of the queues of a load. Adds an error text on failure. */
aclError model_check_queues(const uint32_t *inputs, size_t input_count, const uint32_t *outputs,
                            size_t output_count);

#endif
