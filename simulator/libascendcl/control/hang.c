/* Calls that rules stop: they hang until they are released, or are delayed for a time. */
#include <stdio.h>
#include <string.h>

#include "rule.h"
#include "sim.h"

/* `waiter` must be the first member, because a waiter of the list is cast to this type. */
typedef struct {
    waiter_t waiter;
    const injection_t *injection;
} hung_t;

static wait_list_t hanging;
static wait_list_t pausing;

void fault_pause(int64_t ns) {
    waiter_t waiter;
    if (ns > 0) {
        wait_add(&pausing, &waiter, 0);
        wait_for(&waiter, now_ns() + ns);
    }
}

/* Whether the call hangs because of aclsim_hang_call. Only a control releases such a call. A time-out of the
 * call and a reset do not release it. */
static bool is_own(const injection_t *injection) {
    return *injection->key == OWN_KEY[0];
}

bool fault_hang(injection_t *injection) {
    hung_t hung = {.injection = injection};
    bool limited = injection->limit_ms > 0 && !is_own(injection);
    int64_t deadline_ns = limited ? deadline_ms((int32_t)injection->limit_ms) : SIM_FOREVER;
    wait_add(&hanging, &hung.waiter, 0);
    return wait_unseen(&hung.waiter, deadline_ns);
}

static bool release(bool (*which)(const injection_t *injection, const void *arg), const void *arg) {
    waiter_t *next = NULL;
    bool any = false;
    for (waiter_t *waiter = hanging.first; waiter != NULL; waiter = next) {
        next = waiter->next;
        if (which(((hung_t *)(void *)waiter)->injection, arg)) {
            wait_finish(waiter, 0);
            any = true;
        }
    }
    return any;
}

static bool has_name(const injection_t *injection, const void *name) {
    return strcmp(injection->key, name) == 0 || strcmp(function_info[injection->function].name, name) == 0;
}

/* Whether a reset of the device ends the call in the real runtime. */
static bool waits_for(const injection_t *injection, const void *device) {
    bool wait = group_has("sync", 4, injection->function);
    return injection->device == device && wait && !is_own(injection);
}

void fault_release_device(const device_t *device) {
    release(waits_for, device);
}

void fault_release_all(void) {
    wait_finish_all(&hanging, 0);
    wait_finish_all(&pausing, 0);
}

uint32_t fault_hung(function_t function) {
    uint32_t count = 0;
    for (waiter_t *waiter = hanging.first; waiter != NULL; waiter = waiter->next) {
        count += ((hung_t *)(void *)waiter)->injection->function == function ? 1 : 0;
    }
    return count;
}

API int aclsim_release_call(const char *name) {
    if (name == NULL) {
        return -1;
    }
    sim_lock();
    bool released = release(has_name, name);
    sim_unlock();
    bool misspelt = strncmp(name, "acl", 3) == 0 && function_find(name) < 0;
    return released || !misspelt ? 0 : -1;
}
