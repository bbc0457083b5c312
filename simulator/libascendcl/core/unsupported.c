/*
 * Functions that the simulator does not support: operators, some functions for models, and all others without a
 * definition. Each function of the table has a weak definition here that returns an error. A definition in
 * another file replaces it.
 */
#include "sim.h"

/* The parameters come from the table, and these definitions use none of them. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static aclError refuse(const char *name) {
    return error_set(RT_FEATURE_NOT_SUPPORT, name);
}

#define ACL_FN(kind, ret, name, params, args, since)                                                           \
    __attribute__((weak)) ret do_##name params {                                                               \
        return refuse(#name);                                                                                  \
    }
#define ACL_FN_VALUE(kind, ret, none, name, params, args, since)                                               \
    __attribute__((weak)) ret do_##name params {                                                               \
        refuse(#name);                                                                                         \
        return (none);                                                                                         \
    }
#define ACL_FN_VOID(kind, name, params, args, since)                                                           \
    __attribute__((weak)) void do_##name params {                                                              \
        refuse(#name);                                                                                         \
    }
#define ACL_FN_VARIADIC(kind, name, params, args, since)
#include "sim_api.inc"
