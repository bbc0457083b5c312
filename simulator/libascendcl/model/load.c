/* Loading and unloading models: their ids, memory and inner streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { TEXT_BYTES = 160 };

/* Protected by sim.lock. */
static model_t *models;
static uint32_t last_id;

static model_t *find(uint32_t id) {
    for (model_t *model = models; model != NULL; model = model->next) {
        if (model->id == id) {
            return model;
        }
    }
    return NULL;
}

uint64_t model_count(void) {
    uint64_t count = 0;
    for (const model_t *model = models; model != NULL; model = model->next) {
        count++;
    }
    return count;
}

const model_t *model_next(const model_t *model) {
    return model != NULL ? model->next : models;
}

aclError model_find(uint32_t id, model_t **model) {
    char text[TEXT_BYTES];
    *model = find(id);
    if (*model == NULL) {
        snprintf(text, sizeof text, "modelId: no model with the id %u is loaded", id);
        return error_quiet(GE_MODEL_ID_INVALID, text);
    }
    return ACL_SUCCESS;
}

aclError model_find_usable(uint32_t id, model_t **model) {
    const context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    aclError rc = model_find(id, model);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if ((*model)->stale) {
        usage_note("uses model %u, whose context has ended", id);
        return error_set(RT_INVALID_HANDLE, "modelId: the context of the model has ended");
    }
    thread_uses((*model)->device);
    if ((*model)->context != context) {
        usage_note("uses model %u in context %p, but the model was loaded in context %p", id,
                   (const void *)context, (const void *)(*model)->context);
    }
    return ACL_SUCCESS;
}

/* Models without references. Sessions of onnxruntime are closed without sim.lock, so models_bury() frees them.
 */
static model_t *graves;

void model_release(model_t *model) {
    if (--model->refs == 0) {
        model_info_release(model->info);
        model->next = graves;
        graves = model;
    }
}

void models_bury(void) {
    sim_lock();
    model_t *dead = graves;
    graves = NULL;
    sim_unlock();
    while (dead != NULL) {
        model_t *next = dead->next;
        session_close(dead->session);
        pthread_cond_destroy(&dead->cond);
        free(dead->path);
        free(dead);
        dead = next;
    }
}

/* Ends what belongs to the context: the inner stream and the memory. A call that waits for the inner stream
 * returns 507011. Releases sim.lock while the stream is at work. */
static void end_in_context(model_t *model) {
    stream_t *stream = model->stream;
    model->stream = NULL;
    if (stream != NULL) {
        stream_drop(stream, RT_MODEL_EXECUTE, RT_MODEL_EXECUTE);
        stream_free(stream);
    }
    memory_give(model->work);
    memory_give(model->weights);
    model->work = NULL;
    model->weights = NULL;
    model_thread_stop(model);
}

static model_t *first_of(const context_t *context) {
    for (model_t *model = models; model != NULL; model = model->next) {
        if (model->context == context && !model->stale) {
            return model;
        }
    }
    return NULL;
}

void models_end(context_t *context) {
    for (model_t *model = first_of(context); model != NULL; model = first_of(context)) {
        model->stale = true;
        model->refs++;
        end_in_context(model);
        model_release(model);
    }
}

static aclError take_memory(model_t *model, const load_t *load) {
    uint64_t work = model->info->work_bytes;
    uint64_t weights = model->info->weight_bytes;
    bool own_work = load->with_memory && load->work != NULL;
    bool own_weights = load->with_memory && load->weights != NULL;
    if ((own_work && load->work_size < work) || (own_weights && load->weight_size < weights)) {
        return error_quiet(GE_PARAM_INVALID, own_work && load->work_size < work
                                                 ? "workSize: it is below the size of aclmdlQuerySize"
                                                 : "weightSize: it is below the size of aclmdlQuerySize");
    }
    bool device = (!own_work || memory_kind(load->work) == MEMORY_DEVICE) &&
                  (!own_weights || memory_kind(load->weights) == MEMORY_DEVICE);
    if (!device) {
        return error_quiet(GE_MODEL_ADDR_INVALID, "workPtr or weightPtr: it is not device memory");
    }
    bool taken =
        (own_work || work == 0 || memory_take(model->device, &model->work, work) == ACL_SUCCESS) &&
        (own_weights || weights == 0 || memory_take(model->device, &model->weights, weights) == ACL_SUCCESS);
    return taken ? ACL_SUCCESS : error_quiet(GE_MEMORY_ALLOCATION, "the memory of the model");
}

/* A context may be torn down while this thread waits for its lock. */
static aclError enter_context(model_t *model) {
    context_t *context = context_need();
    if (context == NULL) {
        return RT_CONTEXT_NULL;
    }
    gate_enter(&context->gate);
    bool usable = context_usable(context) && !context->torn;
    model->context = context;
    model->device = context->device;
    model->stream = usable ? stream_new(context, 0, 0) : NULL;
    gate_leave(&context->gate);
    if (model->stream == NULL) {
        return usable ? error_set(RT_NO_STREAM_RESOURCE, "the stream of the model")
                      : error_set(RT_CONTEXT_NULL, "current context");
    }
    model->stream->hidden = true;
    thread_uses(model->device);
    return ACL_SUCCESS;
}

static aclError settle(model_t *model, const load_t *load) {
    if (load->refuse_dynamic && model->info->dynamic) {
        return error_quiet(ACL_INVALID_PARAM, "handle: ACL_MDL_WITHOUT_GRAPH_INT32 is not for dynamic models");
    }
    aclError rc = enter_context(model);
    rc = rc == ACL_SUCCESS ? take_memory(model, load) : rc;
    if (rc != ACL_SUCCESS) {
        end_in_context(model);
        return rc;
    }
    last_id = last_id != UINT32_MAX ? last_id + 1 : 1;
    model->id = last_id;
    model->priority = load->priority > 0 ? (uint32_t)load->priority : 0;
    model->next = models;
    models = model;
    return ACL_SUCCESS;
}

static model_t *model_new(model_info_t *info, session_t *session, const char *path) {
    model_t *model = calloc(1, sizeof *model);
    char *copy = path != NULL ? strdup(path) : NULL;
    if (model == NULL || (path != NULL && copy == NULL)) {
        free(model);
        free(copy);
        return NULL;
    }
    cond_init(&model->cond);
    model->refs = 1;
    model->info = info;
    model->session = session;
    model->path = copy;
    model->gear = SIZE_MAX;
    return model;
}

aclError model_load(const load_t *load, uint32_t *id) {
    model_info_t *info = NULL;
    session_t *session = NULL;
    models_bury();
    sim_lock();
    aclError rc = context_need() != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
    sim_unlock();
    rc = rc == ACL_SUCCESS ? model_read(load->path, load->bytes, load->size, &info, &session) : rc;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    model_t *model = model_new(info, session, load->path);
    if (model == NULL) {
        model_info_release(info);
        session_close(session);
        return error_quiet(GE_MEMORY_ALLOCATION, "the model");
    }
    sim_lock();
    rc = settle(model, load);
    *id = rc == ACL_SUCCESS ? model->id : *id;
    if (rc != ACL_SUCCESS) {
        model_release(model);
    }
    sim_unlock();
    models_bury();
    return rc;
}

aclError do_aclmdlLoadFromFile(const char *modelPath, uint32_t *modelId) {
    return do_aclmdlLoadFromFileWithMem(modelPath, modelId, NULL, 0, NULL, 0);
}

aclError do_aclmdlLoadFromFileWithMem(const char *modelPath, uint32_t *modelId, void *workPtr, size_t workSize,
                                      void *weightPtr, size_t weightSize) {
    REFUSE_NULL(modelPath);
    REFUSE_NULL(modelId);
    load_t load = {modelPath, NULL, 0, true, workPtr, workSize, weightPtr, weightSize, 0, false};
    return model_load(&load, modelId);
}

aclError do_aclmdlLoadFromMem(const void *model, size_t modelSize, uint32_t *modelId) {
    return do_aclmdlLoadFromMemWithMem(model, modelSize, modelId, NULL, 0, NULL, 0);
}

aclError do_aclmdlLoadFromMemWithMem(const void *model, size_t modelSize, uint32_t *modelId, void *workPtr,
                                     size_t workSize, void *weightPtr, size_t weightSize) {
    if (model == NULL || modelSize == 0 || modelId == NULL) {
        return error_quiet(ACL_INVALID_PARAM, model == NULL    ? "model"
                                              : modelSize == 0 ? "modelSize"
                                                               : "modelId");
    }
    load_t load = {NULL, model, modelSize, true, workPtr, workSize, weightPtr, weightSize, 0, false};
    return model_load(&load, modelId);
}

static void unlink_model(const model_t *model) {
    model_t **link = &models;
    while (*link != model) {
        link = &(*link)->next;
    }
    *link = model->next;
}

/* Executions that are still in queues fail when their streams reach them. */
static aclError unload(uint32_t id) {
    model_t *model = NULL;
    aclError rc = model_find_usable(id, &model);
    if (model == NULL) {
        return rc;
    }
    if (model->pending > 0) {
        usage_note("unloads model %u while %u of its executions have not ended", id, model->pending);
    }
    model_report_end(model);
    unlink_model(model);
    model->ended = true;
    if (!model->stale) {
        end_in_context(model);
    }
    model_release(model);
    return rc;
}

aclError do_aclmdlUnload(uint32_t modelId) {
    sim_lock();
    aclError rc = unload(modelId);
    sim_unlock();
    models_bury();
    return rc;
}

static aclError query(const char *path, const void *bytes, size_t size, size_t *work, size_t *weights) {
    model_info_t *info = NULL;
    aclError rc = model_read(path, bytes, size, &info, NULL);
    if (rc == ACL_SUCCESS) {
        *work = (size_t)info->work_bytes;
        *weights = (size_t)info->weight_bytes;
        model_info_release(info);
    }
    return rc;
}

aclError do_aclmdlQuerySize(const char *fileName, size_t *workSize, size_t *weightSize) {
    if (fileName == NULL || workSize == NULL || weightSize == NULL) {
        return error_quiet(ACL_INVALID_PARAM, fileName == NULL ? "fileName" : "workSize or weightSize");
    }
    return query(fileName, NULL, 0, workSize, weightSize);
}

aclError do_aclmdlQuerySizeFromMem(const void *model, size_t modelSize, size_t *workSize, size_t *weightSize) {
    if (model == NULL || modelSize == 0 || workSize == NULL || weightSize == NULL) {
        return error_quiet(ACL_INVALID_PARAM, model == NULL    ? "model"
                                              : modelSize == 0 ? "modelSize"
                                                               : "workSize or weightSize");
    }
    return query(NULL, model, modelSize, workSize, weightSize);
}
