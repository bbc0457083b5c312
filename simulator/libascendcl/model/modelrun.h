/* One execution of a model, as a task of a stream. */
#ifndef ACLSIM_MODELRUN_H
#define ACLSIM_MODELRUN_H

#include "model.h"

typedef enum {
    RUN_NEW,       /* the stream has not reached the task */
    RUN_COMPUTING, /* the model's thread has it; the stream is parked */
    RUN_ENDED      /* computed; the task may have to wait for its time */
} run_state_t;

/* The memory of one input or output. */
typedef struct {
    aclDataBuffer *buffer;
    void *data; /* NULL for an output: the simulator allocates the memory */
    size_t size;
    void *pinned; /* the pinned block */
    aclDataType type;
    dims_t dims; /* owned; no values: not known before the computation */
} run_tensor_t;

struct model_run {
    work_t work;
    model_run_t *next; /* in the queue of the model's thread */
    model_t *model;    /* a reference */
    stream_t *stream;  /* while computing: the stream that waits for it */
    run_state_t state;
    bool waits;   /* the call waits for the end of the execution */
    bool stopped; /* the stream drops its tasks */
    aclError code;
    char why[SIM_WHY_BYTES];
    uint32_t inner_stream; /* the ids that the exception callbacks get */
    uint32_t inner_task;
    int64_t began_ns;
    int64_t due_ns;
    bool waited; /* the computation ended before due_ns */
    aclmdlDataset *output;
    size_t input_count; /* without the input that selects the gear */
    size_t output_count;
    run_tensor_t *tensors; /* owned: the inputs, then the outputs */
    run_tensor_t gear;     /* the input that selects the gear; read when the stream reaches the task */
    size_t gear_index;     /* the gear that was read */
};

/* modelbind.c. Makes an execution from datasets. Adds an error text on failure. Called with sim.lock held. */
aclError model_run_new(model_t *model, bool waits, const aclmdlDataset *input, aclmdlDataset *output,
                       model_run_t **run);
/* Allocates memory for an output without memory. The client frees it with aclrtFree. Called with sim.lock held.
 */
aclError model_run_allocate(model_run_t *run, run_tensor_t *tensor, size_t bytes);
/* Frees the content. Called with sim.lock held. */
void model_run_free(model_run_t *run);

/* modeltask.c */
extern const work_ops_t model_run_ops;
/* Stores the reason of a failure. Returns the code. */
aclError model_run_fail(model_run_t *run, aclError code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Called by the model's thread: lets the stream continue. */
void model_run_ended(model_run_t *run);

/* modelcompute.c: runs the model on the calling thread, without sim.lock. */
void model_compute(model_run_t *run);

#endif
