/*
 * What no family simulates: AI Core kernels, offline models, and whatever else has no definition of its own.
 * Each function of the table has a weak definition here that refuses; a family's definition takes its place.
 */
#include "sim.h"

/* The parameters are the table's, and a refusal needs none of them. */
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
