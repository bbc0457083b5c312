/* Offline models: the functions that other folders use. All are called with sim.lock held. */
#ifndef ACLSIM_MODELS_H
#define ACLSIM_MODELS_H

#include "sim.h"

/* Called when the context ends: its models end, except for their ids. Releases sim.lock during waits. */
void models_end(context_t *context);
/* Called while stream->computing is set: the computation ends soon. */
void model_leave(stream_t *stream);
/* Whether the task executes a model. */
bool model_is_run(const task_t *task);
/* When an execution was due to end, if its computation ended before that; otherwise 0. */
int64_t model_end_ns(const task_t *task);
/* The reason why an execution of a model has failed; "" for all other tasks. */
const char *model_why(const task_t *task);
/* Stores the ids that the exception callbacks get. False: the task does not execute a model. */
bool model_inner_ids(const task_t *task, uint32_t *stream, uint32_t *id);
/* modellist.c: called without sim.lock, when the simulator starts. */
void models_read_environment(void);

#endif
