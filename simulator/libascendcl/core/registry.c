/* Named callbacks: storing callbacks, and releasing sim.lock while a callback runs. */
#include "registry.h"

#include <string.h>

static registered_t *find(registry_t *registry, const char *name) {
    for (int i = 0; i < REGISTRY_PLACES; i++) {
        registered_t *entry = &registry->entries[i];
        if (entry->function != NULL && strcmp(entry->name, name) == 0) {
            return entry;
        }
    }
    return NULL;
}

static registered_t *find_free(registry_t *registry) {
    for (int i = 0; i < REGISTRY_PLACES; i++) {
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

aclError registry_change(registry_t *registry, const char *name, void *function, void *arg) {
    if (name == NULL || *name == '\0' || strlen(name) >= REGISTRY_NAME_BYTES) {
        return error_quiet(ACL_INVALID_PARAM, "regName");
    }
    aclError rc = ACL_SUCCESS;
    SIM_GUARD();
    if (function != NULL) {
        rc = add(registry, name, function, arg);
    } else {
        registered_t *entry = find(registry, name);
        if (entry != NULL) {
            entry->function = NULL;
        }
    }
    return rc;
}

bool registry_leave(void) {
    bool before = atomic_exchange(&thread_self()->in_state_cb, true);
    sim_unlock();
    return before;
}

void registry_return(bool before) {
    sim_lock();
    atomic_store(&thread_self()->in_state_cb, before);
}
