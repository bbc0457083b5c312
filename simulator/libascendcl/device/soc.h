/* Documented figures of the simulated chip, an Ascend910B1. */
#ifndef ACLSIM_SOC_H
#define ACLSIM_SOC_H

#include "sim.h"

#define SOC_NAME "Ascend910B1"

enum {
    SOC_ARCHITECTURE = 2201,
    SOC_CUBE_CORES = 24,
    SOC_VECTOR_CORES = 48,
    SOC_AICPU_CORES = 6,
    SOC_L2_BYTES = 192 << 20,
    SOC_OP_TIMEOUT_STEPS = 254
};

/* A kernel's time limit is a whole number of ticks. One tick is 2^32 ns. */
#define SOC_OP_TIMEOUT_TICK_US UINT64_C(4294967)

#endif
