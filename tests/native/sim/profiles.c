/* Programs that read a profiler's subscription: a pipe, the thread that reads it, and the end of the
 * subscription. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "sim_test.h"

enum { MODEL = 1, OTHER_MODEL = 2, RECORD_BYTES_MOST = 4096 };

typedef struct {
    int read_end;
    size_t bytes;
} reader_t;

/* Reads the pipe until its end, as the vendor's programs do. */
static void *read_all(void *arg) {
    char records[RECORD_BYTES_MOST];
    reader_t *reader = arg;
    ssize_t got = 0;
    while ((got = read(reader->read_end, records, sizeof records)) > 0) {
        uint32_t operators = 1;
        aclprofGetOpNum(records, (size_t)got, &operators);
        reader->bytes += (size_t)got;
    }
    CHECK(got == 0);
    return NULL;
}

static aclprofSubscribeConfig *config_for(int *write_end) {
    aclprofSubscribeConfig *config = aclprofCreateSubscribeConfig(1, ACL_AICORE_NONE, write_end);
    CHECK(config != NULL);
    return config;
}

static void test_unsubscribing_ends_the_reader(void) {
    int ends[2];
    pthread_t thread;
    CHECK(pipe(ends) == 0);
    reader_t reader = {.read_end = ends[0]};
    aclprofSubscribeConfig *config = config_for(&ends[1]);
    CHECK_RC(aclprofModelSubscribe(MODEL, config), 0);
    CHECK(pthread_create(&thread, NULL, read_all, &reader) == 0);
    CHECK(write(ends[1], "mine", 4) == 4);
    CHECK_RC(aclprofModelUnSubscribe(MODEL), 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(reader.bytes == 4 && ends[1] == -1);
    CHECK_RC(aclprofModelUnSubscribe(MODEL), 100011);
    CHECK_RC(aclprofDestroySubscribeConfig(config), 0);
    CHECK(close(ends[0]) == 0);
}

static bool is_open(int descriptor) {
    return fcntl(descriptor, F_GETFD) != -1;
}

static void test_a_pipe_for_two_models_closes_with_the_second_model(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    int write_end = ends[1];
    aclprofSubscribeConfig *config = config_for(&ends[1]);
    CHECK_RC(aclprofModelSubscribe(MODEL, config), 0);
    CHECK_RC(aclprofModelSubscribe(MODEL, config), 100011);
    CHECK_RC(aclprofModelSubscribe(OTHER_MODEL, config), 0);
    CHECK_RC(aclprofDestroySubscribeConfig(config), 0);
    CHECK_RC(aclprofModelUnSubscribe(MODEL), 0);
    CHECK(ends[1] == write_end && is_open(write_end));
    CHECK_RC(aclprofModelUnSubscribe(OTHER_MODEL), 0);
    CHECK(ends[1] == -1 && !is_open(write_end));
    CHECK(close(ends[0]) == 0);
}

/* If the program has closed the descriptor, and another file now has the descriptor's number, this file is not
 * closed. */
static void test_only_the_subscribed_pipe_is_closed(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    int number = ends[1];
    aclprofSubscribeConfig *config = config_for(&ends[1]);
    CHECK_RC(aclprofModelSubscribe(MODEL, config), 0);
    CHECK(close(number) == 0 && open("/dev/null", O_WRONLY) == number);
    CHECK_RC(aclprofModelUnSubscribe(MODEL), 0);
    CHECK(is_open(number));
    CHECK_RC(aclprofModelSubscribe(MODEL, config), 0);
    ends[1] = -1;
    CHECK_RC(aclprofModelUnSubscribe(MODEL), 0);
    CHECK(is_open(number) && close(number) == 0 && close(ends[0]) == 0);
    CHECK_RC(aclprofDestroySubscribeConfig(config), 0);
}

static void test_refusals(void) {
    int number = -1;
    aclprofSubscribeConfig *config = config_for(&number);
    CHECK(aclprofCreateSubscribeConfig(1, ACL_AICORE_NONE, NULL) == NULL);
    CHECK_RC(aclprofModelSubscribe(MODEL, NULL), 100000);
    CHECK_RC(aclprofModelUnSubscribe(MODEL), 100011);
    CHECK_RC(aclprofModelSubscribe(MODEL, config), 0);
    CHECK_RC(aclprofModelUnSubscribe(MODEL), 0); /* this subscription has no pipe */
    CHECK_RC(aclprofDestroySubscribeConfig(config), 0);
    CHECK_RC(aclprofModelSubscribe(MODEL, config), 100000);
}

int main(void) {
    RUN(test_unsubscribing_ends_the_reader, test_a_pipe_for_two_models_closes_with_the_second_model,
        test_only_the_subscribed_pipe_is_closed, test_refusals);
}
