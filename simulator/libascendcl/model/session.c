/*
 * Sessions of onnxruntime. Each loaded model has one session, with one thread, and runs its operators one after
 * the other. So the results do not depend on the machine's number of cores. Inputs, and outputs whose shape is
 * known, are tensors on the client's memory, without a copy.
 *
 * The file's order of inputs and outputs can differ from the order in the ONNX model, so session_fits() stores
 * where each of them is. It finds them by their names. If a name does not exist, as for outputs that ATC has
 * renamed, the input or output with the same number is used.
 */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime.h"

struct session {
    const ort_api_t *api;
    ort_session_t *handle;
    ort_run_options_t *options;
    text_list_t inputs; /* the names in the ONNX model */
    text_list_t outputs;
    const char **input_names; /* owned array; the names in the order of the description */
    const char **output_names;
    size_t input_count; /* of the description */
    size_t output_count;
};

/* Copies the message of the status, and releases the status. True: the status is a success. */
static bool succeeded(const ort_api_t *api, ort_status_t *status, char *why) {
    if (status == NULL) {
        return true;
    }
    snprintf(why, SESSION_WHY_BYTES, "onnxruntime: %s", api->get_error_message(status));
    api->release_status(status);
    return false;
}

static void free_texts(text_list_t *list) {
    for (size_t i = 0; i < list->count; i++) {
        free(list->texts[i]);
    }
    free(list->texts);
}

void session_close(session_t *session) {
    if (session == NULL) {
        return;
    }
    if (session->options != NULL) {
        session->api->release_run_options(session->options);
    }
    if (session->handle != NULL) {
        session->api->release_session(session->handle);
    }
    free_texts(&session->inputs);
    free_texts(&session->outputs);
    free(session->input_names);
    free(session->output_names);
    free(session);
}

typedef ort_status_t *(*name_function_t)(const ort_session_t *, size_t, ort_allocator_t *, char **);

static bool read_name(const session_t *session, name_function_t function, size_t index, char **name,
                      char *why) {
    const ort_api_t *api = session->api;
    ort_allocator_t *allocator = NULL;
    char *theirs = NULL;
    if (!succeeded(api, api->default_allocator(&allocator), why) ||
        !succeeded(api, function(session->handle, index, allocator, &theirs), why)) {
        return false;
    }
    *name = strdup(theirs);
    char ignored[SESSION_WHY_BYTES];
    succeeded(api, api->allocator_free(allocator, theirs), ignored);
    return *name != NULL;
}

static bool read_names(const session_t *session, name_function_t function, size_t count, text_list_t *names,
                       char *why) {
    names->texts = calloc(count + 1, sizeof *names->texts);
    for (size_t i = 0; i < count && names->texts != NULL; i++) {
        if (!read_name(session, function, i, &names->texts[i], why)) {
            return false;
        }
        names->count++;
    }
    return names->texts != NULL;
}

static bool read_all_names(session_t *session, char *why) {
    const ort_api_t *api = session->api;
    size_t inputs = 0;
    size_t outputs = 0;
    return succeeded(api, api->input_count(session->handle, &inputs), why) &&
           succeeded(api, api->output_count(session->handle, &outputs), why) &&
           read_names(session, api->input_name, inputs, &session->inputs, why) &&
           read_names(session, api->output_name, outputs, &session->outputs, why);
}

static bool open_session(session_t *session, const ort_runtime_t *runtime, const void *onnx, size_t size,
                         char *why) {
    const ort_api_t *api = session->api;
    ort_options_t *options = NULL;
    if (!succeeded(api, api->create_options(&options), why)) {
        return false;
    }
    bool opened =
        succeeded(api, api->set_execution_mode(options, ORT_SEQUENTIAL), why) &&
        succeeded(api, api->set_threads_inside(options, 1), why) &&
        succeeded(api, api->set_threads_between(options, 1), why) &&
        succeeded(api, api->create_session(runtime->env, onnx, size, options, &session->handle), why) &&
        succeeded(api, api->create_run_options(&session->options), why);
    api->release_options(options);
    return opened;
}

session_t *session_open(const void *onnx, size_t size, char *why) {
    const ort_runtime_t *runtime = onnxruntime(why);
    if (runtime == NULL) {
        return NULL;
    }
    session_t *session = calloc(1, sizeof *session);
    snprintf(why, SESSION_WHY_BYTES, "no memory is left");
    if (session == NULL) {
        return NULL;
    }
    session->api = runtime->api;
    if (!open_session(session, runtime, onnx, size, why) || !read_all_names(session, why)) {
        session_close(session);
        return NULL;
    }
    return session;
}

static const char *name_for(const text_list_t *names, const tensor_info_t *tensor, size_t index) {
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->texts[i], tensor->name) == 0) {
            return names->texts[i];
        }
    }
    return names->texts[index];
}

static const char **names_for(const text_list_t *names, const tensor_list_t *tensors, size_t count) {
    const char **chosen = calloc(count + 1, sizeof *chosen);
    for (size_t i = 0; i < count && chosen != NULL; i++) {
        chosen[i] = name_for(names, &tensors->tensors[i], i);
    }
    return chosen;
}

bool session_fits(session_t *session, const model_info_t *info, char *why) {
    size_t inputs = model_data_inputs(info);
    if (inputs != session->inputs.count || info->outputs.count != session->outputs.count) {
        snprintf(why, SESSION_WHY_BYTES,
                 "the description has %zu inputs and %zu outputs, but the ONNX model has %zu and %zu", inputs,
                 info->outputs.count, session->inputs.count, session->outputs.count);
        return false;
    }
    session->input_count = inputs;
    session->output_count = info->outputs.count;
    session->input_names = names_for(&session->inputs, &info->inputs, inputs);
    session->output_names = names_for(&session->outputs, &info->outputs, info->outputs.count);
    snprintf(why, SESSION_WHY_BYTES, "no memory is left");
    return session->input_names != NULL && session->output_names != NULL;
}

typedef struct {
    int onnx;
    aclDataType acl;
} type_pair_t;

/* onnxruntime's numbers. From 24 on, they are not those of ONNX. */
static const type_pair_t types[] = {
    {1, ACL_FLOAT},        {2, ACL_UINT8},       {3, ACL_INT8},         {4, ACL_UINT16},
    {5, ACL_INT16},        {6, ACL_INT32},       {7, ACL_INT64},        {9, ACL_BOOL},
    {10, ACL_FLOAT16},     {11, ACL_DOUBLE},     {12, ACL_UINT32},      {13, ACL_UINT64},
    {14, ACL_COMPLEX64},   {15, ACL_COMPLEX128}, {16, ACL_BF16},        {17, ACL_FLOAT8_E4M3FN},
    {19, ACL_FLOAT8_E5M2}, {22, ACL_INT4},       {23, ACL_FLOAT4_E2M1}, {26, ACL_FLOAT8_E8M0},
};

/* 0: onnxruntime has no such type. */
static int onnx_type(aclDataType type) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].acl == type) {
            return types[i].onnx;
        }
    }
    return 0;
}

static aclDataType acl_type(int type) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].onnx == type) {
            return types[i].acl;
        }
    }
    return ACL_DT_UNDEFINED;
}

static bool read_shape(const ort_api_t *api, const ort_tensor_info_t *tensor, dims_t *dims, char *why) {
    int64_t values[DESCRIBED_DIMS_MAX];
    size_t count = 0;
    if (!succeeded(api, api->dim_count(tensor, &count), why)) {
        return false;
    }
    if (count > DESCRIBED_DIMS_MAX) {
        snprintf(why, SESSION_WHY_BYTES, "a tensor has %zu dimensions; ACL allows 128", count);
        return false;
    }
    return succeeded(api, api->dims(tensor, values, count), why) && dims_set(dims, values, count);
}

static bool read_tensor(const session_t *session, const ort_type_info_t *type, const char *name,
                        tensor_info_t *tensor, char *why) {
    const ort_api_t *api = session->api;
    const ort_tensor_info_t *shape = NULL;
    int element = 0;
    if (!succeeded(api, api->type_as_tensor(type, &shape), why) ||
        (shape != NULL && !succeeded(api, api->element_type(shape, &element), why))) {
        return false;
    }
    tensor->type = acl_type(element);
    tensor->format = ACL_FORMAT_ND;
    tensor->name = strdup(name);
    if (shape == NULL || tensor->type == ACL_DT_UNDEFINED || tensor->name == NULL) {
        snprintf(why, SESSION_WHY_BYTES, "\"%.200s\" is not a tensor of a data type that ACL has", name);
        return false;
    }
    bool read = read_shape(api, shape, &tensor->dims, why);
    if (read && !dims_bytes(tensor->dims.values, tensor->dims.count, tensor->type, &tensor->size)) {
        tensor->size = 0;
    }
    return read;
}

typedef ort_status_t *(*type_function_t)(const ort_session_t *, size_t, ort_type_info_t **);

static bool describe(const session_t *session, type_function_t function, const text_list_t *names,
                     tensor_list_t *list, char *why) {
    const ort_api_t *api = session->api;
    list->tensors = calloc(names->count + 1, sizeof *list->tensors);
    list->count = list->tensors != NULL ? names->count : 0;
    bool read = list->tensors != NULL;
    for (size_t i = 0; i < names->count && read; i++) {
        ort_type_info_t *type = NULL;
        read = succeeded(api, function(session->handle, i, &type), why);
        if (read) {
            read = read_tensor(session, type, names->texts[i], &list->tensors[i], why);
            api->release_type(type);
        }
    }
    return read;
}

bool session_describe(const session_t *session, model_info_t *info, char *why) {
    const ort_api_t *api = session->api;
    snprintf(why, SESSION_WHY_BYTES, "no memory is left");
    info->described = describe(session, api->input_type, &session->inputs, &info->inputs, why) &&
                      describe(session, api->output_type, &session->outputs, &info->outputs, why);
    for (size_t i = 0; i < info->inputs.count && info->described; i++) {
        info->dynamic = info->dynamic || !dims_known(&info->inputs.tensors[i].dims);
    }
    return info->described;
}

/* The values of one run. */
typedef struct {
    ort_memory_t *memory;
    ort_value_t **inputs;
    ort_value_t **outputs;
} values_t;

static bool bind(const session_t *session, const values_t *values, void *data, size_t bytes, aclDataType type,
                 const int64_t *dims, size_t dim_count, ort_value_t **value, char *why) {
    int element = onnx_type(type);
    if (element == 0) {
        snprintf(why, SESSION_WHY_BYTES, "onnxruntime has no data type for ACL's data type %d", (int)type);
        return false;
    }
    ort_status_t *status =
        session->api->create_tensor(values->memory, data, bytes, dims, dim_count, element, value);
    return succeeded(session->api, status, why);
}

static bool bind_all(const session_t *session, const values_t *values, const session_input_t *inputs,
                     const session_output_t *outputs, char *why) {
    static char none[1]; /* onnxruntime refuses NULL, which is a valid address of no bytes */
    for (size_t i = 0; i < session->input_count; i++) {
        const session_input_t *one = &inputs[i];
        void *data = one->data != NULL ? (void *)(uintptr_t)one->data : none;
        if (!bind(session, values, data, one->bytes, one->type, one->dims, one->dim_count, &values->inputs[i],
                  why)) {
            return false;
        }
    }
    for (size_t i = 0; i < session->output_count; i++) {
        const session_output_t *one = &outputs[i];
        void *data = one->data != NULL ? one->data : none;
        if (one->dims != NULL && !bind(session, values, data, one->bytes, one->type, one->dims, one->dim_count,
                                       &values->outputs[i], why)) {
            return false;
        }
    }
    return true;
}

static bool copy_out(const session_t *session, ort_value_t *value, const session_output_t *output, size_t index,
                     char *why) {
    const ort_api_t *api = session->api;
    ort_tensor_info_t *tensor = NULL;
    dims_t dims = {0};
    int element = 0;
    void *data = NULL;
    uint64_t bytes = 0;
    if (!succeeded(api, api->tensor_of(value, &tensor), why)) {
        return false;
    }
    bool read = succeeded(api, api->element_type(tensor, &element), why) &&
                read_shape(api, tensor, &dims, why) && succeeded(api, api->tensor_data(value, &data), why);
    api->release_tensor(tensor);
    if (read && acl_type(element) != output->type) {
        snprintf(why, SESSION_WHY_BYTES, "output %zu has another data type than the description", index);
        read = false;
    }
    if (read && dims_bytes(dims.values, dims.count, output->type, &bytes)) {
        void *place = output->place(output->user, index, (size_t)bytes, dims.values, dims.count, why);
        read = place != NULL;
        if (read && bytes > 0) {
            memcpy(place, data, (size_t)bytes);
        }
    }
    free(dims.values);
    return read;
}

static bool copy_all_out(const session_t *session, const values_t *values, const session_output_t *outputs,
                         char *why) {
    for (size_t i = 0; i < session->output_count; i++) {
        if (outputs[i].dims == NULL && !copy_out(session, values->outputs[i], &outputs[i], i, why)) {
            return false;
        }
    }
    return true;
}

static void release_values(const session_t *session, const values_t *values) {
    for (size_t i = 0; i < session->input_count && values->inputs != NULL; i++) {
        if (values->inputs[i] != NULL) {
            session->api->release_value(values->inputs[i]);
        }
    }
    for (size_t i = 0; i < session->output_count && values->outputs != NULL; i++) {
        if (values->outputs[i] != NULL) {
            session->api->release_value(values->outputs[i]);
        }
    }
    if (values->memory != NULL) {
        session->api->release_memory(values->memory);
    }
    free(values->inputs);
    free(values->outputs);
}

bool session_run(session_t *session, const session_input_t *inputs, const session_output_t *outputs,
                 char *why) {
    const ort_api_t *api = session->api;
    values_t values = {.inputs = calloc(session->input_count + 1, sizeof *values.inputs),
                       .outputs = calloc(session->output_count + 1, sizeof *values.outputs)};
    snprintf(why, SESSION_WHY_BYTES, "no memory is left");
    bool done =
        values.inputs != NULL && values.outputs != NULL &&
        succeeded(api, api->create_cpu_memory(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT, &values.memory), why) &&
        bind_all(session, &values, inputs, outputs, why);
    if (done) {
        ort_status_t *status = api->run(session->handle, session->options, session->input_names,
                                        (const ort_value_t *const *)values.inputs, session->input_count,
                                        session->output_names, session->output_count, values.outputs);
        done = succeeded(api, status, why) && copy_all_out(session, &values, outputs, why);
    }
    release_values(session, &values);
    return done;
}

void session_stop(session_t *session) {
    char ignored[SESSION_WHY_BYTES];
    succeeded(session->api, session->api->set_terminate(session->options), ignored);
}

void session_start(session_t *session) {
    char ignored[SESSION_WHY_BYTES];
    succeeded(session->api, session->api->unset_terminate(session->options), ignored);
}
