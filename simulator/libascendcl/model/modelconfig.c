/* Options of loads and executions, and attributes of loaded models. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* The values of ACL_MDL_LOAD_TYPE_SIZET. */
enum {
    LOAD_FROM_FILE = 1,
    LOAD_FROM_FILE_WITH_MEM,
    LOAD_FROM_MEM,
    LOAD_FROM_MEM_WITH_MEM,
    LOAD_FROM_FILE_WITH_Q,
    LOAD_FROM_MEM_WITH_Q,
    PRIORITY_LEAST = 7,
    PAGE = 4096
};

aclmdlConfigHandle *do_aclmdlCreateConfigHandle(void) {
    return described_new(KIND_MODEL_CONFIG);
}

aclError do_aclmdlDestroyConfigHandle(aclmdlConfigHandle *handle) {
    SIM_GUARD();
    model_config_t *config = described_find(KIND_MODEL_CONFIG, handle, "handle");
    if (config != NULL) {
        free(config->path);
        object_kill(&config->object);
    }
    return config != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

/* Copies a value of exactly that size. */
static bool take(void *place, size_t size, const void *value, size_t value_size) {
    if (value_size == size) {
        memcpy(place, value, size);
    }
    return value_size == size;
}

/* Whether a text is at the address, up to its end. */
static bool text_is_there(const char *text) {
    for (size_t i = 0; i < PATH_MAX; i++) {
        bool new_page = i == 0 || (uintptr_t)(text + i) % PAGE == 0;
        if (new_page && !content_is_there(text + i, 1)) {
            return false;
        }
        if (text[i] == '\0') {
            return true;
        }
    }
    return false;
}

static bool take_path(model_config_t *config, const void *value, size_t size) {
    const char *path = NULL;
    if (!take(&path, sizeof path, value, size) || path == NULL || !text_is_there(path)) {
        return false;
    }
    char *copy = strdup(path);
    if (copy != NULL) {
        free(config->path);
        config->path = copy;
    }
    return copy != NULL;
}

/* Options for queues and for the parts of executable models are checked and have no effect. */
static bool set_option(model_config_t *config, aclmdlConfigAttr attr, const void *value, size_t size) {
    switch (attr) {
    case ACL_MDL_PRIORITY_INT32:
        return take(&config->priority, sizeof config->priority, value, size);
    case ACL_MDL_LOAD_TYPE_SIZET:
        return take(&config->type, sizeof config->type, value, size);
    case ACL_MDL_PATH_PTR:
        return take_path(config, value, size);
    case ACL_MDL_MEM_ADDR_PTR:
        return take(&config->bytes, sizeof config->bytes, value, size);
    case ACL_MDL_MEM_SIZET:
        return take(&config->size, sizeof config->size, value, size);
    case ACL_MDL_WEIGHT_ADDR_PTR:
        return take(&config->weights, sizeof config->weights, value, size);
    case ACL_MDL_WEIGHT_SIZET:
        return take(&config->weight_size, sizeof config->weight_size, value, size);
    case ACL_MDL_WORKSPACE_ADDR_PTR:
        return take(&config->work, sizeof config->work, value, size);
    case ACL_MDL_WORKSPACE_SIZET:
        return take(&config->work_size, sizeof config->work_size, value, size);
    case ACL_MDL_WITHOUT_GRAPH_INT32:
    case ACL_NPU_PERF_MODE:
        return size == sizeof(int32_t);
    default:
        return attr > ACL_MDL_WORKSPACE_SIZET && attr < ACL_MDL_WITHOUT_GRAPH_INT32 && size == sizeof(size_t);
    }
}

aclError do_aclmdlSetConfigOpt(aclmdlConfigHandle *handle, aclmdlConfigAttr attr, const void *attrValue,
                               size_t valueSize) {
    if (attrValue == NULL || valueSize > sizeof(size_t) || !content_is_there(attrValue, valueSize)) {
        return error_quiet(ACL_INVALID_PARAM, attrValue == NULL ? "attrValue" : "valueSize");
    }
    SIM_GUARD();
    model_config_t *config = described_find(KIND_MODEL_CONFIG, handle, "handle");
    bool set = config != NULL && set_option(config, attr, attrValue, valueSize);
    if (config == NULL) {
        return ACL_INVALID_PARAM;
    }
    return set ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "attr or valueSize");
}

/* Copies the options, so that another thread may change them during the load. The path is a copy of its own. */
static aclError read_config(const aclmdlConfigHandle *handle, model_config_t *copy) {
    SIM_GUARD();
    const model_config_t *config = described_find(KIND_MODEL_CONFIG, handle, "handle");
    if (config != NULL) {
        *copy = *config;
        copy->path = config->path != NULL ? strdup(config->path) : NULL;
    }
    return config != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

static aclError load_by(const model_config_t *config, uint32_t *id) {
    bool from_file = config->type == LOAD_FROM_FILE || config->type == LOAD_FROM_FILE_WITH_MEM;
    bool with_memory = config->type == LOAD_FROM_FILE_WITH_MEM || config->type == LOAD_FROM_MEM_WITH_MEM;
    if (config->type == LOAD_FROM_FILE_WITH_Q || config->type == LOAD_FROM_MEM_WITH_Q) {
        return error_set(RT_FEATURE_NOT_SUPPORT, "handle: ACL_MDL_LOAD_TYPE_SIZET with queues");
    }
    if (config->type < LOAD_FROM_FILE || config->type > LOAD_FROM_MEM_WITH_Q) {
        return error_quiet(ACL_INVALID_PARAM, "handle: ACL_MDL_LOAD_TYPE_SIZET must be from 1 to 6");
    }
    if (from_file ? config->path == NULL : config->bytes == NULL || config->size == 0) {
        return error_quiet(ACL_INVALID_PARAM,
                           "handle: the load type needs ACL_MDL_PATH_PTR, or ACL_MDL_MEM_ADDR_PTR "
                           "and ACL_MDL_MEM_SIZET");
    }
    load_t load = {.path = from_file ? config->path : NULL, .bytes = config->bytes, .size = config->size};
    load.with_memory = with_memory;
    load.work = config->work;
    load.work_size = config->work_size;
    load.weights = config->weights;
    load.weight_size = config->weight_size;
    load.priority = config->priority;
    return model_load(&load, id);
}

aclError do_aclmdlLoadWithConfig(const aclmdlConfigHandle *handle, uint32_t *modelId) {
    model_config_t config;
    REFUSE_NULL(modelId);
    aclError rc = read_config(handle, &config);
    if (rc == ACL_SUCCESS) {
        rc = load_by(&config, modelId);
        free(config.path);
    }
    return rc;
}

aclmdlExecConfigHandle *do_aclmdlCreateExecConfigHandle(void) {
    return described_new(KIND_EXEC_CONFIG);
}

aclError do_aclmdlDestroyExecConfigHandle(const aclmdlExecConfigHandle *handle) {
    SIM_GUARD();
    exec_config_t *config = described_find(KIND_EXEC_CONFIG, handle, "handle");
    if (config != NULL) {
        object_kill(&config->object);
    }
    return config != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

/* Only the time-out for streams has an effect. */
static bool set_exec_option(exec_config_t *config, aclmdlExecConfigAttr attr, const void *value, size_t size) {
    switch (attr) {
    case ACL_MDL_STREAM_SYNC_TIMEOUT:
        return take(&config->stream_timeout_ms, sizeof config->stream_timeout_ms, value, size);
    case ACL_MDL_EVENT_SYNC_TIMEOUT:
    case ACL_MDL_EXEC_PRIORITY_INT32:
    case ACL_MDL_NPU_PERF_MODE:
        return size == sizeof(int32_t);
    default:
        return attr > ACL_MDL_EVENT_SYNC_TIMEOUT && attr < ACL_MDL_EXEC_PRIORITY_INT32 &&
               size == sizeof(size_t);
    }
}

aclError do_aclmdlSetExecConfigOpt(aclmdlExecConfigHandle *handle, aclmdlExecConfigAttr attr,
                                   const void *attrValue, size_t valueSize) {
    if (attrValue == NULL || valueSize > sizeof(size_t) || !content_is_there(attrValue, valueSize)) {
        return error_quiet(ACL_INVALID_PARAM, attrValue == NULL ? "attrValue" : "valueSize");
    }
    SIM_GUARD();
    exec_config_t *config = described_find(KIND_EXEC_CONFIG, handle, "handle");
    bool set = config != NULL && set_exec_option(config, attr, attrValue, valueSize);
    if (config == NULL) {
        return ACL_INVALID_PARAM;
    }
    return set ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "attr or valueSize");
}

static aclError check_attribute(aclmdlAttr attr, const aclmdlAttrValue_t *value) {
    if (value == NULL || attr != ACL_MDL_ATTR_PRIORITY_INT32) {
        return error_quiet(ACL_INVALID_PARAM, value == NULL ? "attrValue" : "attr");
    }
    return ACL_SUCCESS;
}

aclError do_aclmdlSetAttribute(uint32_t modelId, aclmdlAttr attr, aclmdlAttrValue_t *attrValue) {
    aclError rc = check_attribute(attr, attrValue);
    if (rc == ACL_SUCCESS && attrValue->mdlPriority > PRIORITY_LEAST) {
        rc = error_quiet(ACL_INVALID_PARAM, "attrValue: the priority must be from 0 to 7");
    }
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    model_t *model = NULL;
    SIM_GUARD();
    rc = model_find_usable(modelId, &model);
    if (rc == ACL_SUCCESS) {
        model->priority = attrValue->mdlPriority;
    }
    return rc;
}

aclError do_aclmdlGetAttribute(uint32_t modelId, aclmdlAttr attr, aclmdlAttrValue_t *attrValue) {
    model_t *model = NULL;
    aclError rc = check_attribute(attr, attrValue);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    SIM_GUARD();
    rc = model_find_usable(modelId, &model);
    if (rc == ACL_SUCCESS) {
        attrValue->mdlPriority = model->priority;
    }
    return rc;
}
