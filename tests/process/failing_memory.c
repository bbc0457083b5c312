/*
 * Preloaded by test_memory.py: lets an allocation of aioacl's extension fail. An allocation counts if the call
 * comes from the code of the extension. Memory that the extension gets from Python does not count.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

static uintptr_t first, last; /* the code of the extension */
static atomic_int countdown;  /* of the allocations until one fails; 0: none fails */

/* From now on, the allocation with this number fails; 0: none. Returns whether that of the last call has
 * failed. */
int failing_arm(uintptr_t from, uintptr_t to, int nth) {
    first = from;
    last = to;
    return atomic_exchange(&countdown, nth) == 0;
}

static int fails(void *caller) {
    uintptr_t at = (uintptr_t)caller;
    int before = at >= first && at < last ? atomic_load(&countdown) : 0;
    while (before && !atomic_compare_exchange_weak(&countdown, &before, before - 1)) {
        continue;
    }
    if (before == 1) {
        errno = ENOMEM;
    }
    return before == 1;
}

#define FAILS fails(__builtin_return_address(0))

void *malloc(size_t size) {
    return FAILS ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return FAILS ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    return FAILS ? NULL : __libc_realloc(old, size);
}

int eventfd(unsigned count, int flags) {
    int (*real)(unsigned, int) = (int (*)(unsigned, int))dlsym(RTLD_NEXT, "eventfd");
    return FAILS ? -1 : real(count, flags);
}

typedef int (*creates)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    creates real = (creates)dlsym(RTLD_NEXT, "pthread_create");
    return FAILS ? EAGAIN : real(thread, attributes, body, argument);
}
