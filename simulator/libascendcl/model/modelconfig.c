/* Options of loads and executions, and attributes of loaded models. */
#include <limits.h>
#include <stddef.h>
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

typedef enum { OF_ANY_VALUE, NOT_NULL, TEXT, IN_RANGE } rule_t;

/* An option: its place in the configuration, its size, and which values it may have. */
typedef struct {
    size_t place;
    size_t size; /* 0: there is no such option */
    rule_t rule;
    int64_t least;
    int64_t most;
} option_t;

#define OPTION(type, field, ...) {offsetof(type, field), sizeof((type *)NULL)->field, __VA_ARGS__}

/* The graph engine refuses the options of other chips' runtimes, as those that do not exist. */
static const option_t load_options[] = {
    [ACL_MDL_PRIORITY_INT32] = OPTION(model_config_t, priority, IN_RANGE, 0, PRIORITY_LEAST),
    [ACL_MDL_LOAD_TYPE_SIZET] = OPTION(model_config_t, type, IN_RANGE, LOAD_FROM_FILE, LOAD_FROM_MEM_WITH_Q),
    [ACL_MDL_PATH_PTR] = OPTION(model_config_t, path, TEXT, 0, 0),
    [ACL_MDL_MEM_ADDR_PTR] = OPTION(model_config_t, bytes, NOT_NULL, 0, 0),
    [ACL_MDL_MEM_SIZET] = OPTION(model_config_t, size, OF_ANY_VALUE, 0, 0),
    [ACL_MDL_WEIGHT_ADDR_PTR] = OPTION(model_config_t, weights, OF_ANY_VALUE, 0, 0),
    [ACL_MDL_WEIGHT_SIZET] = OPTION(model_config_t, weight_size, OF_ANY_VALUE, 0, 0),
    [ACL_MDL_WORKSPACE_ADDR_PTR] = OPTION(model_config_t, work, OF_ANY_VALUE, 0, 0),
    [ACL_MDL_WORKSPACE_SIZET] = OPTION(model_config_t, work_size, OF_ANY_VALUE, 0, 0),
    [ACL_MDL_INPUTQ_NUM_SIZET] = OPTION(model_config_t, queue_counts[0], OF_ANY_VALUE, 0, 0),
    [ACL_MDL_INPUTQ_ADDR_PTR] = OPTION(model_config_t, queues[0], NOT_NULL, 0, 0),
    [ACL_MDL_OUTPUTQ_NUM_SIZET] = OPTION(model_config_t, queue_counts[1], OF_ANY_VALUE, 0, 0),
    [ACL_MDL_OUTPUTQ_ADDR_PTR] = OPTION(model_config_t, queues[1], NOT_NULL, 0, 0),
    [ACL_MDL_WORKSPACE_MEM_OPTIMIZE] = OPTION(model_config_t, reuse, IN_RANGE, 0, 1),
    [ACL_MDL_WEIGHT_PATH_PTR] = OPTION(model_config_t, weight_path, TEXT, 0, 0),
    [ACL_MDL_WITHOUT_GRAPH_INT32] = OPTION(model_config_t, without_graph, IN_RANGE, 0, 1),
};

static const option_t exec_options[] = {
    [ACL_MDL_STREAM_SYNC_TIMEOUT] = OPTION(exec_config_t, stream_timeout_ms, IN_RANGE, -1, INT32_MAX),
    [ACL_MDL_EVENT_SYNC_TIMEOUT] = OPTION(exec_config_t, event_timeout_ms, IN_RANGE, -1, INT32_MAX),
};

typedef struct {
    const option_t *options;
    size_t count;
} option_list_t;

#define LIST_OF(array)                                                                                         \
    (option_list_t) {                                                                                          \
        array, sizeof(array) / sizeof *(array)                                                                 \
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

static bool in_range(const option_t *option, const void *value) {
    int32_t number = 0;
    size_t size = 0;
    if (option->size == sizeof number) {
        memcpy(&number, value, sizeof number);
        return number >= option->least && number <= option->most;
    }
    memcpy(&size, value, sizeof size);
    return size >= (size_t)option->least && size <= (size_t)option->most;
}

static bool value_is_right(const option_t *option, const void *value) {
    const void *pointer = NULL;
    if (option->rule == OF_ANY_VALUE || option->rule == IN_RANGE) {
        return option->rule == OF_ANY_VALUE || in_range(option, value);
    }
    memcpy(&pointer, value, sizeof pointer);
    return pointer != NULL && (option->rule != TEXT || text_is_there(pointer));
}

/* Finds the option, and checks its value. NULL: the graph engine refuses one of the two. */
static const option_t *option_of(option_list_t list, unsigned int attr, const void *value, size_t size) {
    const option_t *option = attr < list.count ? &list.options[attr] : NULL;
    if (option == NULL || option->size == 0) {
        error_quiet(ACL_INVALID_PARAM, "attr");
    } else if (value == NULL || size != option->size || !content_is_there(value, size)) {
        error_quiet(ACL_INVALID_PARAM, value == NULL ? "attrValue" : "valueSize");
    } else if (!value_is_right(option, value)) {
        error_quiet(ACL_INVALID_PARAM, "attrValue: the option cannot have this value");
    } else {
        return option;
    }
    return NULL;
}

/* The path is copied. The other texts and arrays stay the client's. */
static aclError set_load_option(model_config_t *config, const option_t *option, const void *value) {
    if (option == &load_options[ACL_MDL_PATH_PTR]) {
        const char *path = NULL;
        memcpy(&path, value, sizeof path);
        char *copy = strdup(path);
        if (copy == NULL) {
            return error_quiet(ACL_BAD_ALLOC, "attrValue");
        }
        free(config->path);
        config->path = copy;
    } else {
        memcpy((char *)config + option->place, value, option->size);
    }
    config->without_graph_set |= option == &load_options[ACL_MDL_WITHOUT_GRAPH_INT32];
    return ACL_SUCCESS;
}

aclError do_aclmdlSetConfigOpt(aclmdlConfigHandle *handle, aclmdlConfigAttr attr, const void *attrValue,
                               size_t valueSize) {
    REFUSE_NULL(handle);
    const option_t *option = option_of(LIST_OF(load_options), attr, attrValue, valueSize);
    if (option == NULL) {
        return ACL_INVALID_PARAM;
    }
    SIM_GUARD();
    model_config_t *config = described_find(KIND_MODEL_CONFIG, handle, "handle");
    return config != NULL ? set_load_option(config, option, attrValue) : ACL_INVALID_PARAM;
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

static aclError check_source(const model_config_t *config, bool from_file) {
    if (from_file ? config->path == NULL : config->bytes == NULL || config->size == 0) {
        return error_quiet(ACL_INVALID_PARAM,
                           "handle: the load type needs ACL_MDL_PATH_PTR, or ACL_MDL_MEM_ADDR_PTR "
                           "and ACL_MDL_MEM_SIZET");
    }
    if (from_file && config->weight_path != NULL) {
        return error_quiet(ACL_INVALID_PARAM, "handle: ACL_MDL_WEIGHT_PATH_PTR is for loads from memory");
    }
    return ACL_SUCCESS;
}

static aclError load_by(const model_config_t *config, uint32_t *id) {
    bool from_file = config->type == LOAD_FROM_FILE || config->type == LOAD_FROM_FILE_WITH_MEM ||
                     config->type == LOAD_FROM_FILE_WITH_Q;
    if (config->type == 0) {
        return error_quiet(ACL_INVALID_PARAM, "handle: ACL_MDL_LOAD_TYPE_SIZET is not set");
    }
    aclError rc = check_source(config, from_file);
    if (rc == ACL_SUCCESS && config->type >= LOAD_FROM_FILE_WITH_Q) {
        rc = model_check_queues(config->queues[0], config->queue_counts[0], config->queues[1],
                                config->queue_counts[1]);
        return rc == ACL_SUCCESS
                   ? error_set(RT_FEATURE_NOT_SUPPORT, "handle: ACL_MDL_LOAD_TYPE_SIZET with queues")
                   : rc;
    }
    load_t load = {.path = from_file ? config->path : NULL, .bytes = config->bytes, .size = config->size};
    load.with_memory = config->type == LOAD_FROM_FILE_WITH_MEM || config->type == LOAD_FROM_MEM_WITH_MEM;
    load.work = config->work;
    load.work_size = config->work_size;
    load.weights = config->weights;
    load.weight_size = config->weight_size;
    load.priority = config->priority;
    load.refuse_dynamic = config->without_graph_set;
    return rc == ACL_SUCCESS ? model_load(&load, id) : rc;
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

aclError do_aclmdlSetExecConfigOpt(aclmdlExecConfigHandle *handle, aclmdlExecConfigAttr attr,
                                   const void *attrValue, size_t valueSize) {
    REFUSE_NULL(handle);
    const option_t *option = option_of(LIST_OF(exec_options), attr, attrValue, valueSize);
    if (option == NULL) {
        return ACL_INVALID_PARAM;
    }
    SIM_GUARD();
    exec_config_t *config = described_find(KIND_EXEC_CONFIG, handle, "handle");
    if (config != NULL) {
        memcpy((char *)config + option->place, attrValue, option->size);
    }
    return config != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
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
