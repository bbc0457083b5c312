/* The functions that execute models. */
#include <stdio.h>

#include "modelrun.h"

static const char *const mode_names[] = {[EXECUTES_SYNC] = "aclmdlExecute",
                                         [EXECUTES_ASYNC] = "aclmdlExecuteAsync"};

/* The graph engine prepares the streams of a static model for one kind of execution. */
static aclError check_mode(model_t *model, execute_mode_t mode) {
    if (model->mode != EXECUTES_NEVER && model->mode != mode && !model->info->dynamic) {
        usage_note("mixes %s and %s on model %u", mode_names[model->mode], mode_names[mode], model->id);
        return error_quiet(GE_FAILURE, "modelId: a model is executed either by aclmdlExecute or by "
                                       "aclmdlExecuteAsync; load it twice to use both");
    }
    model->mode = mode;
    return ACL_SUCCESS;
}

static aclError check_session(const model_t *model) {
    if (model->session != NULL || model_is_registered(model->info)) {
        return ACL_SUCCESS;
    }
    return error_set(RT_FEATURE_NOT_SUPPORT,
                     "modelId: the file contains code for a chip, and no ONNX model; convert the ONNX model "
                     "with python -m aioacl simulator atc, or put it beside the file, with the suffix .onnx");
}

static void note_streams(model_t *model, const stream_t *stream) {
    if (model->pending > 0 && model->user != stream) {
        usage_note("executes model %u on stream %p while an execution on stream %p has not ended", model->id,
                   (const void *)stream, (const void *)model->user);
    }
    model->user = stream;
}

/* Enqueues an execution. `stream` is the client's stream, or the model's inner stream. */
static aclError enqueue(model_t *model, execute_mode_t mode, stream_t *stream, const aclmdlDataset *input,
                        aclmdlDataset *output) {
    aclError rc = check_mode(model, mode);
    rc = rc == ACL_SUCCESS ? check_session(model) : rc;
    if (rc == ACL_SUCCESS && graph_takes(stream)) {
        rc = error_set(RT_FEATURE_NOT_SUPPORT, "stream: the simulator does not capture executions of models");
    }
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    note_streams(model, stream);
    model_run_t *run = NULL;
    rc = model_run_new(model, mode == EXECUTES_SYNC, input, output, &run);
    if (rc == ACL_SUCCESS) {
        task_t task = {.kind = TASK_STEP, .work = &run->work};
        rc = stream_enqueue(stream, &task);
    }
    return rc;
}

aclError do_aclmdlExecuteAsync(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output,
                               aclrtStream stream) {
    REFUSE_NULL(input);
    REFUSE_NULL(output);
    model_t *model = NULL;
    stream_t *target = NULL;
    SIM_GUARD();
    aclError rc = model_find_usable(modelId, &model);
    rc = rc == ACL_SUCCESS ? stream_need_own(stream, &target) : rc;
    return rc == ACL_SUCCESS ? enqueue(model, EXECUTES_ASYNC, target, input, output) : rc;
}

/* The inner stream can end during the wait. stream_wait() does not use it afterwards. */
static aclError execute_and_wait(model_t *model, stream_t *stream, const aclmdlDataset *input,
                                 aclmdlDataset *output, int64_t deadline_ns) {
    if (model->callers > 0) {
        usage_note("executes model %u while another thread executes it", model->id);
    }
    model->refs++;
    model->callers++;
    aclError rc = enqueue(model, EXECUTES_SYNC, stream, input, output);
    if (rc == ACL_SUCCESS) {
        rc = stream_wait(stream, stream->enqueued, deadline_ns, RT_STREAM_SYNC_TIMEOUT);
        rc = rc != ACL_SUCCESS ? error_set(rc, "modelId") : rc;
    }
    model->callers--;
    model_release(model);
    return rc;
}

static aclError execute(uint32_t id, const aclmdlDataset *input, aclmdlDataset *output, aclrtStream handle,
                        int64_t deadline_ns) {
    model_t *model = NULL;
    stream_t *stream = NULL;
    aclError rc = model_find_usable(id, &model);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (handle != NULL) {
        rc = stream_find_own(context_need(), handle, &stream);
    } else {
        stream = model->stream;
    }
    return rc == ACL_SUCCESS ? execute_and_wait(model, stream, input, output, deadline_ns) : rc;
}

aclError do_aclmdlExecute(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output) {
    REFUSE_NULL(input);
    REFUSE_NULL(output);
    sim_lock();
    aclError rc = execute(modelId, input, output, NULL, SIM_FOREVER);
    sim_unlock();
    models_bury();
    return rc;
}

/* The simulator waits on the given stream; NULL: on the inner stream of the model. */
aclError do_aclmdlExecuteV2(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output,
                            aclrtStream stream, const aclmdlExecConfigHandle *handle) {
    if (input == NULL || output == NULL || handle == NULL) {
        return error_quiet(ACL_INVALID_PARAM, input == NULL ? "input" : output == NULL ? "output" : "handle");
    }
    sim_lock();
    const exec_config_t *config = described_find(KIND_EXEC_CONFIG, handle, "handle");
    aclError rc = ACL_INVALID_PARAM;
    if (config != NULL) {
        int32_t timeout = config->stream_timeout_ms;
        rc = execute(modelId, input, output, stream, timeout > 0 ? deadline_ms(timeout) : SIM_FOREVER);
    }
    sim_unlock();
    models_bury();
    return rc;
}
