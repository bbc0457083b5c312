/*
 * Ranges of mstx, which msprof shows beside the work of the device: for executions here, for batches and resets
 * from Python. They are in libms_tools_ext.so, which is optional. Without it, a range is one load.
 *
 * All ranges have no stream. With one, mstx would enqueue tasks on it, which the engine does not count.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "internal.h"

typedef uint64_t (*start_function)(const char *text, aclrtStream stream);
typedef void (*end_function)(uint64_t range);

static _Atomic(start_function) start_range;
static _Atomic(end_function) end_range;

/* The library is never closed, because it may have begun threads. */
int aio_ranges_open(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    start_function start = NULL;
    end_function end = NULL;
    if (library) {
        *(void **)&start = dlsym(library, "mstxRangeStartA");
        *(void **)&end = dlsym(library, "mstxRangeEnd");
    }
    if (!start || !end) {
        return 0;
    }
    atomic_store(&end_range, end);
    atomic_store(&start_range, start);
    return 1;
}

uint64_t aio_range_start(const char *text) {
    start_function start = atomic_load_explicit(&start_range, memory_order_acquire);
    return start ? start(text, NULL) : 0;
}

void aio_range_end(uint64_t range) {
    end_function end = atomic_load_explicit(&end_range, memory_order_acquire);
    if (range && end) {
        end(range);
    }
}

uint64_t aio_range_of_model(uint32_t model) {
    char text[48];
    if (!atomic_load_explicit(&start_range, memory_order_relaxed)) {
        return 0;
    }
    snprintf(text, sizeof text, "aioacl execution: model %u", model);
    return aio_range_start(text);
}
