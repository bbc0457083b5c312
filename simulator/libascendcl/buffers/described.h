/*
 * Objects of the host that only describe other objects. They belong to no device, and a reset does not change
 * them. Their handles are looked up in slabs, like all other handles. The ACL layer refuses a dead or foreign
 * handle as an argument, and the usage checker notes the handle.
 */
#ifndef ACLSIM_DESCRIBED_H
#define ACLSIM_DESCRIBED_H

#include "sim.h"

enum { DESCRIBED_DIMS_MAX = 128 };

typedef struct {
    object_t object;
    void *data;
    size_t size;
} data_buffer_t;

typedef struct {
    size_t count;
    int64_t (*pairs)[2]; /* minimum and maximum; owned */
} ranges_t;

typedef struct {
    aclFormat format;
    int64_t *dims; /* owned */
    size_t dim_count;
} tensor_shape_t;

typedef struct {
    object_t object;
    aclDataType type;
    tensor_shape_t origin;
    tensor_shape_t storage;
    ranges_t shape_ranges;
    ranges_t value_ranges;
    char *name;          /* owned; NULL: no name */
    char *dynamic_input; /* owned; NULL: none */
    void *constant;      /* an owned copy; NULL: none */
    size_t constant_size;
    aclMemType placement;
} tensor_desc_t;

/* Shared by all references to one buffer. */
typedef struct {
    uint32_t refs;
    size_t size;
    size_t length; /* length of the valid data */
    char user[96];
    char *data;
} shared_buffer_t;

typedef struct chained {
    object_t object;
    shared_buffer_t *shared;
    struct chained *head; /* the head of the chain; a head points to itself */
    struct chained *next;
} chained_t;

typedef struct {
    object_t object;
    aclrtStreamConfigHandle config; /* the client's handle points to it */
} stream_config_t;

typedef struct {
    aclrtAllocatorDesc described; /* the description by which it was registered */
    aclrtAllocator allocator;
    aclrtAllocatorAllocFunc allocate;
    aclrtAllocatorFreeFunc release;
    aclrtAllocatorAllocAdviseFunc advise;
    aclrtAllocatorGetAddrFromBlockFunc address;
} allocator_functions_t;

typedef struct {
    object_t object;
    allocator_functions_t functions;
} allocator_t;

/* A set of attributes. The values of the attributes are checked and not stored: see operator.c. */
typedef struct {
    object_t object;
} operator_attr_t;

typedef enum { PROFILE_CONFIG, PROFILE_SUBSCRIPTION, PROFILE_STEP, PROFILE_STAMP } profile_kind_t;

typedef struct {
    object_t object;
    profile_kind_t kind;
    bool running; /* for configurations: started and not yet stopped */
    uint32_t devices;
    uint32_t device_ids[SIM_MAX_DEVICES];
    uint64_t data_types;
    int *pipe; /* for subscriptions: the client's variable for the write end of the pipe */
} profile_t;

/* Returns the object of a handle, or adds an error text and returns NULL. `what` names the argument. Called
 * with sim.lock held. */
void *described_find(object_kind_t kind, const void *handle, const char *what);
/* Returns the number of live objects of all kinds. Called with sim.lock held. */
uint64_t described_count(void);
/* Creates an object; NULL if no memory is left. Takes sim.lock. */
void *described_new(object_kind_t kind);

/* tensordesc.c. */
tensor_desc_t *tensor_find(const aclTensorDesc *desc);
/* Returns a live copy, or NULL. tensor_end() ends a description. */
tensor_desc_t *tensor_copy(const tensor_desc_t *desc);
void tensor_end(tensor_desc_t *desc);
/* Copies the dimensions. False: they are not valid, or no memory is left. */
bool shape_set_dims(tensor_shape_t *shape, const int64_t *dims, int count);

/* profiling.c. */
bool metrics_valid(aclprofAicoreMetrics metrics);
/* Called with sim.lock held. */
profile_t *profile_find(profile_kind_t kind, const void *handle, const char *what);
/* This function and the next take sim.lock. */
void *profile_new(profile_kind_t kind);
aclError profile_destroy(profile_kind_t kind, const void *handle, const char *what);

#endif
