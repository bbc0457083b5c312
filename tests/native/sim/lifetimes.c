/* What graphs lend and what is dropped under them: executing again, aborting and resetting in the middle. */
#include <string.h>

#include "sim_test.h"

static aclrtStream stream_new(void) {
    aclrtStream stream = NULL;
    CHECK_RC(aclrtCreateStream(&stream), 0);
    return stream;
}

static char *block_new(char fill) {
    void *block = NULL;
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK_RC(aclrtMemset(block, 64, fill, 64), 0);
    return block;
}

/* The description is read each time the copy runs, and is the graph's until the end. */
static void test_a_described_copy_runs_again(void) {
    aclrtStream stream = stream_new();
    char *from = block_new(0);
    char *to = block_new(0);
    char *desc = block_new(0);
    aclmdlRI model = NULL;
    CHECK_RC(aclrtSetMemcpyDesc(desc, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, from, to, 64, NULL), 0);
    CHECK_RC(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
    CHECK_RC(aclrtMemcpyAsyncWithDesc(desc, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, stream), 0);
    CHECK_RC(aclmdlRICaptureEnd(stream, &model), 0);
    for (char round = 1; round <= 3; round++) {
        CHECK_RC(aclrtMemset(from, 64, round, 64), 0);
        CHECK_RC(aclmdlRIExecute(model, 5000), 0);
        CHECK(to[0] == round && to[63] == round);
    }
    CHECK_RC(aclmdlRIDestroy(model), 0);
    CHECK_RC(aclrtFree(desc), 0);
    CHECK_RC(aclrtFree(to), 0);
    CHECK_RC(aclrtFree(from), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

int main(void) {
    CHECK_RC(aclrtSetDevice(0), 0);
    test_a_described_copy_runs_again();
    aclsim_stats_t left = stats();
    CHECK(left.streams == 0 && left.device_blocks == 0 && left.models == 0 && left.violations == 0);
    CHECK_RC(aclrtResetDevice(0), 0);
    puts("ok");
    return 0;
}
