/*
 * Measures how many empty tasks per second one stream runs, and how many items per second one thread passes to
 * another through a plain queue.
 *
 *     empty_tasks LIBRARY TASKS ROUNDS
 *
 * Prints a JSON list with one object for each round. LIBRARY is the simulator's library. The kernel does
 * nothing, so the program measures only the cost of a task, from the call that enqueues it to its end on the
 * device's thread. The queue is a bounded ring with a mutex and two condition variables: the least that two
 * threads need to pass work on.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "acl_types.h"
#include "aclsim.h"

enum { RING = 2048 };

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail(const char *what, int code) {
    fprintf(stderr, "empty_tasks: %s: %d\n", what, code);
    exit(1);
}

static void check(const char *what, int code) {
    if (code != 0) {
        fail(what, code);
    }
}

typedef struct {
    aclError (*set_device)(int32_t device);
    aclError (*create_stream)(aclrtStream *stream);
    aclError (*synchronize)(aclrtStream stream);
    aclError (*load)(const void *data, size_t size, const aclrtBinaryLoadOptions *options,
                     aclrtBinHandle *binary);
    aclError (*get_function)(const aclrtBinHandle binary, const char *name, aclrtFuncHandle *function);
    aclError (*launch)(aclrtFuncHandle function, uint32_t blocks, const void *args, size_t size,
                       aclrtStream stream);
    aclError (*create_event)(aclrtEvent *event, uint32_t flag);
    aclError (*record)(aclrtEvent event, aclrtStream stream);
    int (*register_kernel)(const char *name, int (*function)(const aclsim_launch_t *launch), void *user);
} acl_t;

static acl_t acl;
static aclrtStream stream;
static aclrtFuncHandle function;
static aclrtEvent event;
static uint64_t ran;

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "empty_tasks: expected the function %s, found none\n", name);
        exit(1);
    }
    return found;
}

#define FIND(member, name) (*(void **)(void *)&acl.member = symbol(library, name))

static void open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "empty_tasks: %s\n", dlerror());
        exit(1);
    }
    FIND(set_device, "aclrtSetDevice");
    FIND(create_stream, "aclrtCreateStream");
    FIND(synchronize, "aclrtSynchronizeStream");
    FIND(load, "aclrtBinaryLoadFromData");
    FIND(get_function, "aclrtBinaryGetFunction");
    FIND(launch, "aclrtLaunchKernel");
    FIND(create_event, "aclrtCreateEventExWithFlag");
    FIND(record, "aclrtRecordEvent");
    FIND(register_kernel, "aclsim_register_kernel");
}

static int nothing(const aclsim_launch_t *launch) {
    (void)launch;
    ran++;
    return 0;
}

static void prepare(void) {
    aclrtBinHandle binary = NULL;
    check("aclsim_register_kernel", acl.register_kernel("nothing", nothing, NULL));
    check("aclrtSetDevice", acl.set_device(0));
    check("aclrtCreateStream", acl.create_stream(&stream));
    check("aclrtCreateEventExWithFlag", acl.create_event(&event, 1));
    check("aclrtBinaryLoadFromData", acl.load("code", 4, NULL, &binary));
    check("aclrtBinaryGetFunction", acl.get_function(binary, "nothing", &function));
}

static double kernels(long count) {
    uint64_t before = ran;
    double began = now_s();
    for (long i = 0; i < count; i++) {
        check("aclrtLaunchKernel", acl.launch(function, 1, NULL, 0, stream));
    }
    check("aclrtSynchronizeStream", acl.synchronize(stream));
    double took = now_s() - began;
    if (ran - before != (uint64_t)count) {
        fail("kernels that ran", (int)(ran - before));
    }
    return took;
}

static double records(long count) {
    double began = now_s();
    for (long i = 0; i < count; i++) {
        check("aclrtRecordEvent", acl.record(event, stream));
    }
    check("aclrtSynchronizeStream", acl.synchronize(stream));
    return now_s() - began;
}

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    pthread_cond_t less;
    uint64_t items[RING];
    uint64_t put;
    uint64_t taken;
    uint64_t sum;
    uint64_t count;
} queue_t;

static void *take_all(void *arg) {
    queue_t *queue = arg;
    pthread_mutex_lock(&queue->lock);
    while (queue->taken < queue->count) {
        while (queue->taken == queue->put) {
            pthread_cond_wait(&queue->more, &queue->lock);
        }
        uint64_t item = queue->items[queue->taken % RING];
        pthread_mutex_unlock(&queue->lock); /* the item's work would be done here */
        queue->sum += item;
        pthread_mutex_lock(&queue->lock);
        queue->taken++;
        pthread_cond_signal(&queue->less);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static double hand_over(long count) {
    static queue_t queue;
    pthread_t thread;
    queue = (queue_t){.lock = PTHREAD_MUTEX_INITIALIZER, .count = (uint64_t)count};
    pthread_cond_init(&queue.more, NULL);
    pthread_cond_init(&queue.less, NULL);
    double began = now_s();
    check("pthread_create", pthread_create(&thread, NULL, take_all, &queue));
    for (uint64_t i = 0; i < queue.count; i++) {
        pthread_mutex_lock(&queue.lock);
        while (queue.put - queue.taken == RING) {
            pthread_cond_wait(&queue.less, &queue.lock);
        }
        queue.items[queue.put++ % RING] = i;
        pthread_cond_signal(&queue.more);
        pthread_mutex_unlock(&queue.lock);
    }
    pthread_join(thread, NULL);
    double took = now_s() - began;
    if (queue.sum != queue.count * (queue.count - 1) / 2) {
        fail("items of the queue", -1);
    }
    return took;
}

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Prints the rate per second, and per second of processor time. The two rates differ if other programs use the
 * core. */
static void report(const char *name, double (*measure)(long), long count, const char *after) {
    double cpu = cpu_s();
    double wall = measure(count);
    cpu = cpu_s() - cpu;
    printf("\"%s\": {\"per_second\": %.0f, \"per_cpu_second\": %.0f}%s", name, (double)count / wall,
           (double)count / cpu, after);
}

/* The three measurements alternate, so that other load on the machine affects all of them. */
int main(int argc, char **argv) {
    long count = argc == 4 ? strtol(argv[2], NULL, 10) : 0;
    long rounds = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    if (count < 1 || rounds < 1) {
        fputs("usage: empty_tasks LIBRARY TASKS ROUNDS\n", stderr);
        return 2;
    }
    open_library(argv[1]);
    prepare();
    kernels(RING * 4); /* a warm-up, which also starts the threads */
    printf("[");
    for (long i = 0; i < rounds; i++) {
        printf(i > 0 ? ", {" : "{");
        report("kernels", kernels, count, ", ");
        report("records", records, count, ", ");
        report("queue", hand_over, count, "}");
    }
    puts("]");
    return 0;
}
