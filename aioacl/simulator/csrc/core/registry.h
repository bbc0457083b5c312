/* Callbacks that clients register under a name. All of it under sim.lock. */
#ifndef ACLSIM_REGISTRY_H
#define ACLSIM_REGISTRY_H

#include "sim.h"

enum { REGISTRY_PLACES = 32, REGISTRY_NAME_BYTES = 128 };

typedef struct {
    char name[REGISTRY_NAME_BYTES];
    void *function; /* NULL: the place is free */
    void *arg;
} registered_t;

typedef struct {
    registered_t entries[REGISTRY_PLACES];
} registry_t;

/* Adds a function under a new name, or with NULL takes the name out. Takes sim.lock. */
aclError registry_change(registry_t *registry, const char *name, void *function, void *arg);

/* Brackets a client's function: sim.lock is given up for it, and the usage checker told where the thread is. */
bool registry_leave(void);
void registry_return(bool before);

#endif
