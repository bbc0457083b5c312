/* A model that is built from persistent streams. While it is built, copies of pageable memory are done at
 * once. */
#include <string.h>

#include "graph_test.h"

enum { HEAD = 0, ACTIVATED = 0x7FFFFFFF, STREAMS = 4 };

static void put(int32_t *to, int32_t value, aclrtStream stream) {
    CHECK_RC(aclrtMemcpyAsync(to, sizeof value, &value, sizeof value, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
}

static int32_t get(const int32_t *from) {
    int32_t value = -1;
    CHECK_RC(aclrtMemcpy(&value, sizeof value, from, sizeof value, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    return value;
}

static void copy_inside(int32_t *to, const int32_t *from, aclrtStream stream) {
    CHECK_RC(aclrtMemcpyAsync(to, sizeof *to, from, sizeof *from, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 0);
}

/*
 * The first stream activates the second. The second switches to one of two other streams, depending on a value
 * in device memory. Each of these two streams ends the model. The values that the model compares and copies are
 * written while the model is built.
 */
static void test_a_model_that_switches(void) {
    aclrtStream streams[STREAMS];
    aclrtStream runs = new_stream();
    aclmdlRI model = NULL;
    int32_t *words = (int32_t *)words_new(4); /* [0] is compared with [1], [2]; [4] or [5] is copied to [6] */
    CHECK_RC(aclmdlRIBuildBegin(&model, 0), 0);
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_persistent_stream();
        CHECK_RC(aclmdlRIBindStream(model, streams[i], i == 0 ? HEAD : ACTIVATED), 0);
    }
    put(&words[0], 1, streams[0]);
    put(&words[1], 1, streams[1]);
    put(&words[2], 2, streams[1]);
    CHECK(get(&words[0]) == 1 && get(&words[1]) == 1 && get(&words[2]) == 2);
    put(&words[4], 10, streams[2]);
    put(&words[5], 20, streams[3]);
    CHECK_RC(aclrtActiveStream(streams[1], streams[0]), 0);
    for (int i = 0; i < 2; i++) {
        CHECK_RC(aclrtSwitchStream(&words[0], ACL_RT_EQUAL, &words[1 + i], ACL_RT_SWITCH_INT32, streams[2 + i],
                                   NULL, streams[1]),
                 0);
        copy_inside(&words[6], &words[4 + i], streams[2 + i]);
        CHECK_RC(aclmdlRIEndTask(model, streams[2 + i]), 0);
    }
    CHECK_RC(aclmdlRIBuildEnd(model, NULL), 0);
    for (int32_t value = 1; value <= 2; value++) {
        put(&words[0], value, streams[0]); /* written at once, as during the build */
        execute_on(runs, model, 0);
        CHECK(get(&words[6]) == value * 10);
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK_RC(aclmdlRIUnbindStream(model, streams[i]), 0);
    }
    CHECK_RC(aclmdlRIDestroy(model), 0);
    END_STREAMS(streams[0], streams[1], streams[2], streams[3], runs);
    CHECK_RC(aclrtFree(words), 0);
}

/* A copy of pageable memory is done at once. The copy is not part of the model, so executing the model does not
 * repeat it. */
static void test_copies_are_not_part_of_the_model(void) {
    int32_t *words = (int32_t *)words_new(1);
    aclrtStream stream = new_persistent_stream();
    aclmdlRI model = new_model(stream);
    int32_t back = 0;
    put(words, 5, stream);
    CHECK_THEN(aclrtMemcpyAsync(&back, 4, words, 4, ACL_MEMCPY_DEVICE_TO_HOST, stream), back == 5);
    CHECK_RC(aclrtMemcpy2dAsync(words, 4, &back, 4, 4, 1, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
    CHECK_RC(aclmdlRIEndTask(model, stream), 0);
    CHECK_RC(aclmdlRIBuildEnd(model, NULL), 0);
    CHECK_RC(aclrtMemset(words, 4, 0, 4), 0);
    CHECK_THEN(aclmdlRIExecute(model, 5000), get(words) == 0);
    CHECK_RC(aclmdlRIUnbindStream(model, stream), 0);
    END({aclmdlRIDestroy, model}, {aclrtDestroyStream, stream}, {aclrtFree, words});
}

/* A model needs a stream and a task that ends it. Only a persistent stream can be bound, and not the default
 * stream. The tasks of a stream can be cleaned while it is bound to a model whose build has ended. */
static void test_what_a_build_needs(void) {
    aclrtStream plain = new_stream();
    aclrtStream stream = new_persistent_stream();
    aclmdlRI model = NULL;
    CHECK_RC(aclmdlRIBuildBegin(&model, 0), 0);
    CHECK_RC(aclmdlRIBuildEnd(model, &model), 100000);
    CHECK_RC(aclmdlRIBuildEnd(model, NULL), 107005);
    CHECK_RC(aclmdlRIBindStream(model, plain, HEAD), 107000);
    CHECK_RC(aclmdlRIBindStream(model, NULL, HEAD), 207000);
    CHECK_RC(aclmdlRIEndTask(model, stream), 507000);
    CHECK_RC(aclmdlRIBindStream(model, stream, HEAD), 0);
    CHECK_RC(aclmdlRIBuildEnd(model, NULL), 507011);
    CHECK_RC(aclmdlRIEndTask(model, stream), 0);
    CHECK_RC(aclrtPersistentTaskClean(stream), 507000);
    CHECK_RC(aclmdlRIBuildEnd(model, NULL), 0);
    CHECK_RC(aclrtPersistentTaskClean(stream), 0);
    CHECK_RC(aclmdlRIUnbindStream(model, stream), 0);
    CHECK_RC(aclrtPersistentTaskClean(stream), 507000);
    CHECK_RC(aclrtPersistentTaskClean(plain), 507000);
    CHECK_RC(aclmdlRIDestroy(model), 0);
    END_STREAMS(plain, stream);
}

/* A copy of pageable memory cannot be captured in any mode. While one stream is captured, the copy is also
 * refused on other streams, except in relaxed mode. A refused copy does not end the capture. */
static void test_captures(void) {
    aclrtStream stream = new_stream();
    aclrtStream other = new_stream();
    int32_t *words = (int32_t *)words_new(1);
    int32_t value = 7;
    for (int mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL; mode <= ACL_MODEL_RI_CAPTURE_MODE_RELAXED; mode++) {
        aclError elsewhere = mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED ? 0 : 107041;
        CHECK_RC(aclmdlRICaptureBegin(stream, (aclmdlRICaptureMode)mode), 0);
        CHECK_RC(aclrtMemcpyAsync(words, 4, &value, 4, ACL_MEMCPY_HOST_TO_DEVICE, stream), 107000);
        CHECK_RC(aclrtMemcpyAsync(&value, 4, words, 4, ACL_MEMCPY_DEVICE_TO_HOST, stream), 107000);
        CHECK_RC(aclrtMemcpyAsync(words, 4, &value, 4, ACL_MEMCPY_HOST_TO_DEVICE, other), elsewhere);
        CHECK(value == 7);
        CHECK_RC(aclmdlRIDestroy(end_capture(stream)), 0);
    }
    CHECK(get(words) == 7);
    CHECK_RC(aclrtFree(words), 0);
    END_STREAMS(stream, other);
}

int main(void) {
    start_acl();
    RUN(test_a_model_that_switches, test_copies_are_not_part_of_the_model, test_what_a_build_needs,
        test_captures);
    CHECK(stats().violations == 0);
    end_acl();
}
