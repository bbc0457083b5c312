/*
 * libruntime.so: the function of CANN's runtime layer that clients look up in this library. The functions that
 * clients link with are in clients.c. Registrations are never freed, and a delivery takes no lock, so a
 * callback may register another callback.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "codes.h"
#include "runtime.h"

#define API __attribute__((visibility("default")))

enum { NAME_BYTES = 128 };

typedef struct module {
    _Atomic(struct module *) next;
    _Atomic(runtime_callback_t) callback;
    char name[NAME_BYTES];
} module_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held during a registration */
static _Atomic(module_t *) first;

/* Returns the link that points at the module of that name, or the last link of the list. */
static _Atomic(module_t *) *find(const char *name) {
    _Atomic(module_t *) *place = &first;
    while (atomic_load(place) != NULL && strcmp(atomic_load(place)->name, name) != 0) {
        place = &atomic_load(place)->next;
    }
    return place;
}

static int32_t set(_Atomic(module_t *) *place, const char *name, runtime_callback_t callback) {
    module_t *module = atomic_load(place);
    if (module == NULL) {
        module = calloc(1, sizeof *module);
        if (module == NULL) {
            return RT_MEMORY_ALLOCATION;
        }
        strcpy(module->name, name);
    }
    atomic_store(&module->callback, callback);
    atomic_store(place, module);
    return 0;
}

API int32_t rtRegTaskFailCallbackByModule(const char *name, runtime_callback_t callback) {
    if (name == NULL || strlen(name) >= NAME_BYTES) {
        return RT_PARAM_INVALID;
    }
    pthread_mutex_lock(&lock);
    int32_t rc = set(find(name), name, callback);
    pthread_mutex_unlock(&lock);
    return rc;
}

API void aclsim_runtime_deliver(runtime_exception_t *info) {
    for (module_t *module = atomic_load(&first); module != NULL; module = atomic_load(&module->next)) {
        runtime_callback_t callback = atomic_load(&module->callback);
        if (callback != NULL) {
            callback(info);
        }
    }
}
