/* Named callbacks on what happens to devices and streams. They run on the thread that makes it happen. */
#include <string.h>

#include "sim.h"

enum { CALLBACKS_MAX = 32, NAME_BYTES = 128 };

typedef struct {
    char name[NAME_BYTES];
    void *function; /* NULL: the place is free */
    void *arg;
} registered_t;

typedef struct {
    registered_t entries[CALLBACKS_MAX];
} registry_t;

static registry_t device_registry;
static registry_t stream_registry;

static registered_t *find(registry_t *registry, const char *name) {
    for (int i = 0; i < CALLBACKS_MAX; i++) {
        registered_t *entry = &registry->entries[i];
        if (entry->function != NULL && strcmp(entry->name, name) == 0) {
            return entry;
        }
    }
    return NULL;
}

static registered_t *find_free(registry_t *registry) {
    for (int i = 0; i < CALLBACKS_MAX; i++) {
        if (registry->entries[i].function == NULL) {
            return &registry->entries[i];
        }
    }
    return NULL;
}

static aclError add(registry_t *registry, const char *name, void *function, void *arg) {
    registered_t *entry = find(registry, name) == NULL ? find_free(registry) : NULL;
    if (entry == NULL) {
        return error_set(RT_PARAM_INVALID, "regName");
    }
    strcpy(entry->name, name);
    entry->function = function;
    entry->arg = arg;
    return ACL_SUCCESS;
}

static aclError change(registry_t *registry, const char *name, void *function, void *arg) {
    if (name == NULL || *name == '\0' || strlen(name) >= NAME_BYTES) {
        return error_quiet(ACL_INVALID_PARAM, "regName");
    }
    aclError rc = ACL_SUCCESS;
    sim_lock();
    if (function != NULL) {
        rc = add(registry, name, function, arg);
    } else {
        registered_t *entry = find(registry, name);
        if (entry != NULL) {
            entry->function = NULL;
        }
    }
    sim_unlock();
    return rc;
}

aclError do_aclrtRegDeviceStateCallback(const char *regName, aclrtDeviceStateCallback callback, void *args) {
    return change(&device_registry, regName, (void *)(uintptr_t)callback, args);
}

aclError do_aclrtRegStreamStateCallback(const char *regName, aclrtStreamStateCallback callback, void *args) {
    return change(&stream_registry, regName, (void *)(uintptr_t)callback, args);
}

/* A referee must be able to tell a thread in its own callback from one that is in the way. */
static bool leave_to_user(bool in_callback) {
    thread_t *thread = thread_self();
    bool before = atomic_exchange(&thread->in_state_cb, in_callback);
    if (in_callback) {
        sim_unlock();
    } else {
        sim_lock();
    }
    return before;
}

static void return_from_user(bool before) {
    leave_to_user(false);
    atomic_store(&thread_self()->in_state_cb, before);
}

void state_device(int32_t device, aclrtDeviceState state) {
    for (int i = 0; i < CALLBACKS_MAX; i++) {
        registered_t entry = device_registry.entries[i];
        if (entry.function != NULL) {
            bool before = leave_to_user(true);
            ((aclrtDeviceStateCallback)(uintptr_t)entry.function)(device, state, entry.arg);
            return_from_user(before);
        }
    }
}

void state_stream(stream_t *stream, aclrtStreamState state) {
    for (int i = 0; i < CALLBACKS_MAX; i++) {
        registered_t entry = stream_registry.entries[i];
        if (entry.function != NULL) {
            bool before = leave_to_user(true);
            ((aclrtStreamStateCallback)(uintptr_t)entry.function)(stream, state, entry.arg);
            return_from_user(before);
        }
    }
}
