/* The computation of models by onnxruntime. */
#ifndef ACLSIM_SESSION_H
#define ACLSIM_SESSION_H

#include "modelinfo.h"

typedef struct session session_t;

enum { SESSION_WHY_BYTES = 1024 };

/* One input of a run. */
typedef struct {
    const void *data;
    size_t bytes;
    aclDataType type;
    const int64_t *dims;
    size_t dim_count;
} session_input_t;

/* One output of a run. If `dims` is NULL, onnxruntime determines the shape, and `place` returns the memory for
 * that many bytes; NULL: there is no such memory, and `why` has the reason. */
typedef struct {
    void *data;
    size_t bytes;
    aclDataType type;
    const int64_t *dims;
    size_t dim_count;
    void *(*place)(void *user, size_t index, size_t bytes, const int64_t *dims, size_t dim_count, char *why);
    void *user;
} session_output_t;

/* None of these functions needs sim.lock, and none of them may be called with sim.lock held. `why` has
 * SESSION_WHY_BYTES, and gets the reason of a failure. */
/* Creates a session for an ONNX model; NULL: that failed. The model's bytes are not used afterwards. */
session_t *session_open(const void *onnx, size_t size, char *why);
void session_close(session_t *session);
/* Describes the model from its ONNX inputs and outputs. */
bool session_describe(const session_t *session, model_info_t *info, char *why);
/* Whether the model has the inputs and outputs of the description. */
bool session_fits(session_t *session, const model_info_t *info, char *why);
/* Runs the model on the calling thread. Only one thread at a time may run an session. */
bool session_run(session_t *session, const session_input_t *inputs, const session_output_t *outputs, char *why);
/* Makes a run of another thread end soon. May be called with sim.lock held. */
void session_stop(session_t *session);
/* The next run is not stopped by earlier calls of session_stop(). May be called with sim.lock held. */
void session_start(session_t *session);

#endif
