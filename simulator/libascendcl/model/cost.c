/*
 * The cost of executions: the time that they take on the device. It is a fixed time, a time for each row of the
 * batch, and a time for each byte of the inputs and outputs. An execution ends when it is computed and its time
 * is over. The times of executions on different streams overlap: the simulated device has a core for each
 * stream.
 */
#include "model.h"

enum { PICOSECONDS = 1000 };

static struct {
    int64_t base_ns;
    int64_t row_ns;
    int64_t byte_ps;
} cost;

static const int64_t longest = INT64_MAX / 8; /* the sum of several such times still fits */

static int64_t times(int64_t each, uint64_t count) {
    int64_t product = 0;
    bool fits = count <= INT64_MAX && !__builtin_mul_overflow(each, (int64_t)count, &product);
    return fits && product < longest ? product : longest;
}

int64_t model_cost_ns(uint64_t rows, uint64_t bytes) {
    return cost.base_ns + times(cost.row_ns, rows) + times(cost.byte_ps, bytes) / PICOSECONDS;
}

API int aclsim_set_model_cost(int64_t base_ns, int64_t row_ns, int64_t byte_ps) {
    if (base_ns < 0 || row_ns < 0 || byte_ps < 0 || base_ns > longest) {
        return -1;
    }
    sim_start();
    SIM_GUARD();
    cost.base_ns = base_ns;
    cost.row_ns = row_ns;
    cost.byte_ps = byte_ps;
    return 0;
}
