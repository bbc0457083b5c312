/* For all programs: a check that a call succeeds, a check that a condition is true, and the exit status that
 * skips the test. */
#ifndef CONTRACT_CHECK_H
#define CONTRACT_CHECK_H

#include <stdio.h>
#include <stdlib.h>

enum { NOT_HERE = 77, FEATURE_NOT_SUPPORT = 207000 };

#define EXPECT(condition)                                                                                      \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: expected: %s\n", __FILE__, __LINE__, #condition);                          \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

#define ANSWERS(call, wanted)                                                                                  \
    do {                                                                                                       \
        aclError answer_ = (call);                                                                             \
        if (answer_ != (wanted)) {                                                                             \
            fprintf(stderr, "%s:%d: %s returned %d, expected %d\n", __FILE__, __LINE__, #call, answer_,        \
                    (wanted));                                                                                 \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

#define WELL(call) ANSWERS(call, 0)

#endif
