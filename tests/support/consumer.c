/*
 * A consumer of DLPack tensors in C, which knows only the structures of dlpack.h. Its threads are not threads
 * of Python, so each call of a deleter comes from a thread that Python has never seen.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    void *data;
    struct {
        int32_t type, index;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor_t;

typedef struct legacy {
    tensor_t tensor;
    void *manager_ctx;
    void (*deleter)(struct legacy *);
} legacy_t;

typedef struct versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct versioned *);
    uint64_t flags;
    tensor_t tensor;
} versioned_t;

typedef struct {
    void *managed;
    int is_versioned;
    pthread_barrier_t *start;
} job_t;

static job_t last; /* the tensor that is deleted at the end of the process */

static void delete_one(const job_t *job) {
    if (job->is_versioned) {
        versioned_t *managed = job->managed;
        managed->deleter(managed);
    } else {
        legacy_t *managed = job->managed;
        managed->deleter(managed);
    }
}

static void *body(void *argument) {
    const job_t *job = argument;
    pthread_barrier_wait(job->start);
    delete_one(job);
    return NULL;
}

static void *body_at_exit(void *argument) {
    delete_one(argument);
    return NULL;
}

/* Runs after Python has ended. */
static void at_exit(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body_at_exit, &last) == 0) {
        pthread_join(thread, NULL);
        puts("deleted");
        fflush(stdout);
    }
}

/* Returns the number of bytes of the tensor, or -1 if it is not contiguous. */
int64_t consumer_bytes(void *managed, int is_versioned) {
    const tensor_t *tensor = is_versioned ? &((versioned_t *)managed)->tensor : &((legacy_t *)managed)->tensor;
    int64_t count = 1;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->strides[i] != count) {
            return -1;
        }
        count *= tensor->shape[i];
    }
    return count * tensor->dtype.bits * tensor->dtype.lanes / 8;
}

/* Calls the deleters of all tensors at the same time, each on its own thread. Returns 0, or an error number. */
int consumer_end(void **managed, int is_versioned, int count) {
    job_t *jobs = calloc((size_t)count, sizeof *jobs);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    pthread_barrier_t start;
    int error = jobs && threads ? pthread_barrier_init(&start, NULL, (unsigned)count) : -1;
    int begun = 0;
    for (; error == 0 && begun < count; begun++) {
        jobs[begun] = (job_t){managed[begun], is_versioned, &start};
        error = pthread_create(&threads[begun], NULL, body, &jobs[begun]);
    }
    for (int i = 0; error == 0 && i < begun; i++) {
        error = pthread_join(threads[i], NULL);
    }
    free(threads);
    free(jobs);
    return error;
}

/* Calls the deleter on a new thread when the process ends, after Python has ended. */
int consumer_end_at_exit(void *managed, int is_versioned) {
    last = (job_t){managed, is_versioned, NULL};
    return atexit(at_exit);
}
