/* For tests of time limits: when the next wait is due. A thread that is woken looks at the clock some time
 * after an advance, so a test that only advances the clock cannot see that a limit is too short. */
#ifndef CLOCK_TEST_H
#define CLOCK_TEST_H

#include "sim.h"
#include "sim_test.h"

/* Returns the time from now until the first wait is due, on the simulator's clock; -1 if no wait has a limit.
 */
static inline int64_t due_in_ns(void) {
    SIM_GUARD();
    int64_t due_ns = clock_first_due();
    return due_ns != SIM_FOREVER ? due_ns - now_ns() : -1;
}

#endif
