/*
 * The part of onnxruntime's C interface that the simulator uses.
 *
 * The interface is a table of function pointers in fixed order: new versions only append. All functions that
 * are used here are in version 1 of the table, which is the version that the simulator asks for. The numbers
 * are the places of the functions in the table. Functions that the simulator does not use are void pointers.
 */
#ifndef ACLSIM_ORTAPI_H
#define ACLSIM_ORTAPI_H

#include <stddef.h>
#include <stdint.h>

enum {
    ORT_VERSION = 1,
    ORT_SEVERITY_FATAL = 4,
    ORT_SEQUENTIAL = 0,
    ORT_DEVICE_ALLOCATOR = 0,
    ORT_MEMORY_DEFAULT = 0
};

typedef struct ort_status ort_status_t;
typedef struct ort_env ort_env_t;
typedef struct ort_options ort_options_t;
typedef struct ort_session ort_session_t;
typedef struct ort_run_options ort_run_options_t;
typedef struct ort_value ort_value_t;
typedef struct ort_memory ort_memory_t;
typedef struct ort_allocator ort_allocator_t;
typedef struct ort_type_info ort_type_info_t;
typedef struct ort_tensor_info ort_tensor_info_t;

/* Functions that return a status return NULL on success. */
typedef struct {
    void *unused_0[2];
    const char *(*get_error_message)(const ort_status_t *status);                 /* 2 */
    ort_status_t *(*create_env)(int severity, const char *name, ort_env_t **env); /* 3 */
    void *unused_4[4];
    ort_status_t *(*create_session)(const ort_env_t *env, const void *model, size_t size,
                                    const ort_options_t *options, ort_session_t **session); /* 8 */
    ort_status_t *(*run)(ort_session_t *session, const ort_run_options_t *options,
                         const char *const *input_names, const ort_value_t *const *inputs, size_t input_count,
                         const char *const *output_names, size_t output_count, ort_value_t **outputs); /* 9 */
    ort_status_t *(*create_options)(ort_options_t **options);                                          /* 10 */
    void *unused_11[2];
    ort_status_t *(*set_execution_mode)(ort_options_t *options, int mode); /* 13 */
    void *unused_14[10];
    ort_status_t *(*set_threads_inside)(ort_options_t *options, int count);  /* 24 */
    ort_status_t *(*set_threads_between)(ort_options_t *options, int count); /* 25 */
    void *unused_26[4];
    ort_status_t *(*input_count)(const ort_session_t *session, size_t *count);  /* 30 */
    ort_status_t *(*output_count)(const ort_session_t *session, size_t *count); /* 31 */
    void *unused_32;
    ort_status_t *(*input_type)(const ort_session_t *session, size_t index, ort_type_info_t **type);  /* 33 */
    ort_status_t *(*output_type)(const ort_session_t *session, size_t index, ort_type_info_t **type); /* 34 */
    void *unused_35;
    ort_status_t *(*input_name)(const ort_session_t *session, size_t index, ort_allocator_t *allocator,
                                char **name); /* 36 */
    ort_status_t *(*output_name)(const ort_session_t *session, size_t index, ort_allocator_t *allocator,
                                 char **name); /* 37 */
    void *unused_38;
    ort_status_t *(*create_run_options)(ort_run_options_t **options); /* 39 */
    void *unused_40[6];
    ort_status_t *(*set_terminate)(ort_run_options_t *options);   /* 46 */
    ort_status_t *(*unset_terminate)(ort_run_options_t *options); /* 47 */
    void *unused_48;
    ort_status_t *(*create_tensor)(const ort_memory_t *memory, void *data, size_t size, const int64_t *dims,
                                   size_t dim_count, int type, ort_value_t **value); /* 49 */
    void *unused_50;
    ort_status_t *(*tensor_data)(ort_value_t *value, void **data); /* 51 */
    void *unused_52[3];
    ort_status_t *(*type_as_tensor)(const ort_type_info_t *type, const ort_tensor_info_t **tensor); /* 55 */
    void *unused_56[4];
    ort_status_t *(*element_type)(const ort_tensor_info_t *tensor, int *type);           /* 60 */
    ort_status_t *(*dim_count)(const ort_tensor_info_t *tensor, size_t *count);          /* 61 */
    ort_status_t *(*dims)(const ort_tensor_info_t *tensor, int64_t *dims, size_t count); /* 62 */
    void *unused_63[2];
    ort_status_t *(*tensor_of)(const ort_value_t *value, ort_tensor_info_t **tensor); /* 65 */
    void *unused_66[3];
    ort_status_t *(*create_cpu_memory)(int allocator, int kind, ort_memory_t **memory); /* 69 */
    void *unused_70[6];
    ort_status_t *(*allocator_free)(ort_allocator_t *allocator, void *pointer); /* 76 */
    void *unused_77;
    ort_status_t *(*default_allocator)(ort_allocator_t **allocator); /* 78 */
    void *unused_79[13];
    void (*release_env)(ort_env_t *env);                     /* 92 */
    void (*release_status)(ort_status_t *status);            /* 93 */
    void (*release_memory)(ort_memory_t *memory);            /* 94 */
    void (*release_session)(ort_session_t *session);         /* 95 */
    void (*release_value)(ort_value_t *value);               /* 96 */
    void (*release_run_options)(ort_run_options_t *options); /* 97 */
    void (*release_type)(ort_type_info_t *type);             /* 98 */
    void (*release_tensor)(ort_tensor_info_t *tensor);       /* 99 */
    void (*release_options)(ort_options_t *options);         /* 100 */
} ort_api_t;

_Static_assert(offsetof(ort_api_t, tensor_of) == 65 * sizeof(void *), "place of tensor_of");
_Static_assert(offsetof(ort_api_t, default_allocator) == 78 * sizeof(void *), "place of default_allocator");
_Static_assert(offsetof(ort_api_t, release_options) == 100 * sizeof(void *), "place of release_options");

typedef struct {
    const ort_api_t *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
} ort_api_base_t;

#endif
