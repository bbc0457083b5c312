/*
 * A library in place of onnxruntime, for tests under sanitizers. It has the functions of the table that the
 * simulator uses. Each model has the input x and the output y, which are float tensors with two dimensions, and
 * y is 2 * x. A model that begins with "pair" also has the output z, which equals y.
 *
 * If the first number of x is HELD, the run does not end before standin_release() or the end of the run that
 * the caller demands. If it is BROKEN, the run fails.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ortapi.h"
#include "sim/standin.h"

#define API __attribute__((visibility("default")))

enum { DIMS_MOST = 8, FLOAT_TYPE = 1, RANK = 2 };

struct ort_status {
    const char *message;
};

struct ort_session {
    size_t outputs;
};

struct ort_run_options {
    bool terminate; /* protected by `lock` */
};

struct ort_tensor_info {
    int type;
    int64_t dims[DIMS_MOST];
    size_t count;
};

struct ort_value {
    struct ort_tensor_info info;
    void *data;
    bool owned;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int held;
static bool released;
static char anything; /* the address of objects without content */

static ort_status_t *fail(const char *message) {
    ort_status_t *status = malloc(sizeof *status);
    if (status == NULL) {
        abort();
    }
    status->message = message;
    return status;
}

API void standin_release(void) {
    pthread_mutex_lock(&lock);
    released = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

API void standin_hold(void) {
    pthread_mutex_lock(&lock);
    released = false;
    pthread_mutex_unlock(&lock);
}

API void standin_until_held(int count) {
    pthread_mutex_lock(&lock);
    while (held < count) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static bool wait_released(const ort_run_options_t *options) {
    pthread_mutex_lock(&lock);
    held++;
    pthread_cond_broadcast(&changed);
    while (!released && !options->terminate) {
        pthread_cond_wait(&changed, &lock);
    }
    held--;
    bool terminated = options->terminate;
    pthread_mutex_unlock(&lock);
    return !terminated;
}

static const char *error_message(const ort_status_t *status) {
    return status->message;
}

static void release_status(ort_status_t *status) {
    free(status);
}

static ort_status_t *create_env(int severity, const char *name, ort_env_t **env) {
    (void)severity;
    (void)name;
    *env = (ort_env_t *)(void *)&anything;
    return NULL;
}

static ort_status_t *create_options(ort_options_t **options) {
    *options = malloc(1);
    return NULL;
}

static void release_options(ort_options_t *options) {
    free(options);
}

static ort_status_t *set_number(ort_options_t *options, int number) {
    (void)options;
    (void)number;
    return NULL;
}

static ort_status_t *create_session(const ort_env_t *env, const void *model, size_t size,
                                    const ort_options_t *options, ort_session_t **session) {
    (void)env;
    (void)options;
    if (size == 0 || memcmp(model, "bad", size < 3 ? size : 3) == 0) {
        return fail("this is not a model");
    }
    *session = malloc(sizeof **session);
    if (*session == NULL) {
        abort();
    }
    (*session)->outputs = size >= 4 && memcmp(model, "pair", 4) == 0 ? 2 : 1;
    return NULL;
}

static void release_session(ort_session_t *session) {
    free(session);
}

static ort_status_t *count_one(const ort_session_t *session, size_t *count) {
    (void)session;
    *count = 1;
    return NULL;
}

static ort_status_t *count_outputs(const ort_session_t *session, size_t *count) {
    *count = session->outputs;
    return NULL;
}

static ort_status_t *name_of(char letter, char **name) {
    *name = malloc(2);
    if (*name == NULL) {
        abort();
    }
    (*name)[0] = letter;
    (*name)[1] = '\0';
    return NULL;
}

static ort_status_t *input_name(const ort_session_t *session, size_t index, ort_allocator_t *allocator,
                                char **name) {
    (void)session;
    (void)index;
    (void)allocator;
    return name_of('x', name);
}

static ort_status_t *output_name(const ort_session_t *session, size_t index, ort_allocator_t *allocator,
                                 char **name) {
    (void)session;
    (void)allocator;
    return name_of(index == 0 ? 'y' : 'z', name);
}

static ort_status_t *default_allocator(ort_allocator_t **allocator) {
    *allocator = (ort_allocator_t *)(void *)&anything;
    return NULL;
}

static ort_status_t *allocator_free(ort_allocator_t *allocator, void *pointer) {
    (void)allocator;
    free(pointer);
    return NULL;
}

static ort_status_t *tensor_type(const ort_session_t *session, size_t index, ort_type_info_t **type) {
    ort_tensor_info_t *info = calloc(1, sizeof *info);
    (void)session;
    (void)index;
    if (info == NULL) {
        abort();
    }
    *info = (ort_tensor_info_t){.type = FLOAT_TYPE, .dims = {-1, -1}, .count = RANK};
    *type = (ort_type_info_t *)(void *)info;
    return NULL;
}

static void release_type(ort_type_info_t *type) {
    free(type);
}

static ort_status_t *type_as_tensor(const ort_type_info_t *type, const ort_tensor_info_t **tensor) {
    *tensor = (const ort_tensor_info_t *)(const void *)type;
    return NULL;
}

static ort_status_t *element_type(const ort_tensor_info_t *tensor, int *type) {
    *type = tensor->type;
    return NULL;
}

static ort_status_t *dim_count(const ort_tensor_info_t *tensor, size_t *count) {
    *count = tensor->count;
    return NULL;
}

static ort_status_t *read_dims(const ort_tensor_info_t *tensor, int64_t *dims, size_t count) {
    memcpy(dims, tensor->dims, count * sizeof *dims);
    return NULL;
}

static ort_status_t *tensor_of(const ort_value_t *value, ort_tensor_info_t **tensor) {
    *tensor = malloc(sizeof **tensor);
    if (*tensor == NULL) {
        abort();
    }
    **tensor = value->info;
    return NULL;
}

static void release_tensor(ort_tensor_info_t *tensor) {
    free(tensor);
}

static ort_status_t *create_run_options(ort_run_options_t **options) {
    *options = calloc(1, sizeof **options);
    return NULL;
}

static void release_run_options(ort_run_options_t *options) {
    free(options);
}

static ort_status_t *set_terminate(ort_run_options_t *options) {
    pthread_mutex_lock(&lock);
    options->terminate = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static ort_status_t *unset_terminate(ort_run_options_t *options) {
    pthread_mutex_lock(&lock);
    options->terminate = false;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static ort_status_t *create_cpu_memory(int allocator, int kind, ort_memory_t **memory) {
    (void)allocator;
    (void)kind;
    *memory = malloc(1);
    return NULL;
}

static void release_memory(ort_memory_t *memory) {
    free(memory);
}

static size_t elements(const ort_tensor_info_t *info) {
    size_t count = 1;
    for (size_t i = 0; i < info->count; i++) {
        count *= (size_t)info->dims[i];
    }
    return count;
}

static ort_status_t *create_tensor(const ort_memory_t *memory, void *data, size_t size, const int64_t *dims,
                                   size_t count, int type, ort_value_t **value) {
    ort_value_t *made = calloc(1, sizeof *made);
    (void)memory;
    if (made == NULL || count > DIMS_MOST) {
        abort();
    }
    made->info.type = type;
    made->info.count = count;
    memcpy(made->info.dims, dims, count * sizeof *dims);
    made->data = data;
    *value = made;
    if (elements(&made->info) * sizeof(float) > size) {
        free(made);
        return fail("the memory is smaller than the tensor");
    }
    return NULL;
}

static ort_status_t *tensor_data(ort_value_t *value, void **data) {
    *data = value->data;
    return NULL;
}

static void release_value(ort_value_t *value) {
    if (value->owned) {
        free(value->data);
    }
    free(value);
}

static ort_value_t *make_output(const ort_tensor_info_t *info) {
    ort_value_t *made = calloc(1, sizeof *made);
    if (made == NULL) {
        abort();
    }
    made->info = *info;
    made->owned = true;
    made->data = malloc(elements(info) * sizeof(float) + 1);
    return made;
}

static ort_status_t *run(ort_session_t *session, const ort_run_options_t *options,
                         const char *const *input_names, const ort_value_t *const *inputs, size_t input_count,
                         const char *const *output_names, size_t output_count, ort_value_t **outputs) {
    if (input_count != 1 || output_count != session->outputs || *input_names[0] != 'x' ||
        *output_names[0] != 'y') {
        return fail("the names are wrong");
    }
    const float *from = inputs[0]->data;
    size_t count = elements(&inputs[0]->info);
    if (count > 0 && from[0] == STANDIN_BROKEN) {
        return fail("the operator is broken");
    }
    if (count > 0 && from[0] == STANDIN_HELD && !wait_released(options)) {
        return fail("the run was terminated");
    }
    for (size_t output = 0; output < output_count; output++) {
        if (outputs[output] == NULL) {
            outputs[output] = make_output(&inputs[0]->info);
        }
        float *to = outputs[output]->data;
        for (size_t i = 0; i < count; i++) {
            to[i] = 2 * from[i];
        }
    }
    return NULL;
}

static const ort_api_t table = {
    .get_error_message = error_message,
    .create_env = create_env,
    .create_session = create_session,
    .run = run,
    .create_options = create_options,
    .set_execution_mode = set_number,
    .set_threads_inside = set_number,
    .set_threads_between = set_number,
    .input_count = count_one,
    .output_count = count_outputs,
    .input_type = tensor_type,
    .output_type = tensor_type,
    .input_name = input_name,
    .output_name = output_name,
    .create_run_options = create_run_options,
    .set_terminate = set_terminate,
    .unset_terminate = unset_terminate,
    .create_tensor = create_tensor,
    .tensor_data = tensor_data,
    .type_as_tensor = type_as_tensor,
    .element_type = element_type,
    .dim_count = dim_count,
    .dims = read_dims,
    .tensor_of = tensor_of,
    .create_cpu_memory = create_cpu_memory,
    .allocator_free = allocator_free,
    .default_allocator = default_allocator,
    .release_status = release_status,
    .release_memory = release_memory,
    .release_session = release_session,
    .release_value = release_value,
    .release_run_options = release_run_options,
    .release_type = release_type,
    .release_tensor = release_tensor,
    .release_options = release_options,
};

static const ort_api_t *get_api(uint32_t version) {
    return version == ORT_VERSION ? &table : NULL;
}

API const ort_api_base_t *OrtGetApiBase(void);

API const ort_api_base_t *OrtGetApiBase(void) {
    static const ort_api_base_t base = {.get_api = get_api};
    return &base;
}
