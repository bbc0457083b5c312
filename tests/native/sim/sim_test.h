/* Prototypes of the ACL functions under test, from the one table, and a check that says where it failed. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "acl_types.h"
#include "aclsim.h"

#define ACL_FN(kind, ret, name, params, args, since) ret name params;
#include "acl_api.inc"
#undef ACL_FN

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

#define CHECK_RC(call, want)                                                                                   \
    do {                                                                                                       \
        int rc_ = (call);                                                                                      \
        if (rc_ != (want)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s gave %d, want %d\n", __FILE__, __LINE__, #call, rc_, (want));           \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

#endif
