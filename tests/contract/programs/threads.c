/* CANN 8.1. Threads: each thread has its own context or shares one. A call on a thread without a context
 * returns an error. */
#include <pthread.h>
#include <string.h>

#include "acl/acl.h"
#include "check.h"

enum { THREADS = 8, ROUNDS = 20, SIZE = 2048, NO_CONTEXT = 107002 };

static void work(int seed) {
    unsigned char host[SIZE], back[SIZE];
    aclrtStream stream;
    void *memory;
    WELL(aclrtCreateStream(&stream));
    WELL(aclrtMalloc(&memory, SIZE, ACL_MEM_MALLOC_HUGE_FIRST));
    for (int round = 0; round < ROUNDS; round++) {
        memset(host, seed + round, SIZE);
        WELL(aclrtMemcpy(memory, SIZE, host, SIZE, ACL_MEMCPY_HOST_TO_DEVICE));
        WELL(aclrtMemcpyAsync(back, SIZE, memory, SIZE, ACL_MEMCPY_DEVICE_TO_HOST, stream));
        WELL(aclrtSynchronizeStream(stream));
        EXPECT(memcmp(host, back, SIZE) == 0);
    }
    WELL(aclrtFree(memory));
    WELL(aclrtDestroyStream(stream));
}

static void *own_context(void *argument) {
    int number = *(const int *)argument;
    aclrtContext mine, current;
    aclrtStream stream;
    int32_t device = -1;
    ANSWERS(aclrtCreateStream(&stream), NO_CONTEXT);
    WELL(aclrtCreateContext(&mine, number % 2));
    WELL(aclrtGetCurrentContext(&current));
    EXPECT(current == mine);
    WELL(aclrtGetDevice(&device));
    EXPECT(device == number % 2);
    work(number * 13);
    WELL(aclrtDestroyContext(mine));
    ANSWERS(aclrtGetCurrentContext(&current), NO_CONTEXT);
    return NULL;
}

static void *shared_context(void *context) {
    WELL(aclrtSetCurrentContext(context));
    work(77);
    return NULL;
}

static void run(void *(*body)(void *), void *arguments[THREADS]) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        EXPECT(pthread_create(&threads[i], NULL, body, arguments[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
    }
}

int main(void) {
    int numbers[THREADS];
    void *arguments[THREADS];
    aclrtContext context;
    uint32_t count = 0;
    WELL(aclInit(NULL));
    WELL(aclrtGetDeviceCount(&count));
    EXPECT(count >= 2);
    WELL(aclrtSetDevice(0));
    WELL(aclrtSetDevice(1));
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        arguments[i] = &numbers[i];
    }
    run(own_context, arguments);
    WELL(aclrtSetDevice(0));
    WELL(aclrtGetCurrentContext(&context));
    for (int i = 0; i < THREADS; i++) {
        arguments[i] = context;
    }
    run(shared_context, arguments);
    WELL(aclrtResetDeviceForce(1));
    WELL(aclrtResetDeviceForce(0));
    WELL(aclFinalize());
    return 0;
}
