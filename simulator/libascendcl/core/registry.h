/* Callbacks that clients register under a name. sim.lock protects everything here. */
#ifndef ACLSIM_REGISTRY_H
#define ACLSIM_REGISTRY_H

#include "sim.h"

enum { REGISTRY_PLACES = 32, REGISTRY_NAME_BYTES = 128 };

typedef struct {
    char name[REGISTRY_NAME_BYTES];
    void *function; /* NULL: the entry is free */
    void *arg;
} registered_t;

typedef struct {
    registered_t entries[REGISTRY_PLACES];
} registry_t;

/* Adds a function under a new name; a NULL function removes the name. Takes sim.lock. */
aclError registry_change(registry_t *registry, const char *name, void *function, void *arg);

/* Called before and after a client's function. Between the two calls, sim.lock is released, and the usage
 * checker treats the thread as inside a callback. */
bool registry_leave(void);
void registry_return(bool before);

#endif
