/* Ports: order, batches, repeated wake-ups, and when the descriptor is closed. */
#include "bed.h"

#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

static bool readable(const aio_port *port) {
    struct pollfd one = {aio_port_fd(port), POLLIN, 0};
    return poll(&one, 1, 0) == 1;
}

TEST(completions_come_in_order) {
    aio_port *port = aio_port_new();
    uint64_t keys[8];
    int64_t results[8];
    CHECK(!readable(port));
    CHECK_EQ(aio_port_take(port, keys, results, 8), 0);
    for (uint64_t key = 1; key <= 5; key++) {
        bed_post(port, key, (int64_t)key * 10);
    }
    CHECK(readable(port));
    CHECK_EQ(aio_port_take(port, keys, results, 8), 5);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(keys[i], i + 1);
        CHECK_EQ(results[i], (i + 1) * 10);
    }
    CHECK(!readable(port));
    CHECK_EQ(bed_in_flight(port), 0);
    aio_port_close(port);
}

TEST(a_batch_is_bounded_and_the_rest_is_announced) {
    aio_port *port = aio_port_new();
    uint64_t keys[256];
    int64_t results[256];
    for (uint64_t key = 0; key < 600; key++) {
        bed_post(port, key, 0);
    }
    CHECK_EQ(aio_port_take(port, keys, results, 256), 256);
    CHECK(readable(port));
    bed_post(port, 600, 0);
    CHECK_EQ(aio_port_take(port, keys, results, 256), 256);
    CHECK_EQ(keys[0], 256);
    CHECK(readable(port));
    CHECK_EQ(aio_port_take(port, keys, results, 256), 88);
    CHECK_EQ(keys[87], 599);
    CHECK(readable(port));
    CHECK_EQ(aio_port_take(port, keys, results, 256), 1);
    CHECK_EQ(keys[0], 600);
    CHECK(!readable(port));
    aio_port_close(port);
}

static uint64_t announced(const aio_port *port) {
    uint64_t count = 0;
    return read(aio_port_fd(port), &count, sizeof count) == sizeof count ? count : 0;
}

TEST(one_write_announces_many_completions) {
    aio_port *port = aio_port_new();
    for (uint64_t key = 0; key < 100; key++) {
        bed_post(port, key, 0);
    }
    CHECK_EQ(announced(port), 1);
    aio_port_close(port);
}

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

TEST(the_descriptor_outlives_the_owner) {
    aio_port *port = aio_port_new();
    int fd = aio_port_fd(port);
    aio_token *first = aio_token_new(port, 1), *second = aio_token_new(port, 2);
    CHECK_EQ(bed_in_flight(port), 2);
    aio_port_close(port);
    CHECK(is_open(fd));
    aio_publish(first, 0);
    CHECK(is_open(fd));
    aio_publish(second, 0);
    CHECK(!is_open(fd));
}

TEST(completions_not_taken_are_freed_with_the_port) {
    aio_port *port = aio_port_new();
    uint64_t key;
    int64_t result;
    int fd = aio_port_fd(port);
    for (int i = 0; i < 5; i++) {
        bed_post(port, 1, 0);
    }
    CHECK_EQ(aio_port_take(port, &key, &result, 1), 1);
    bed_post(port, 1, 0);
    aio_port_close(port);
    CHECK(!is_open(fd));
}

TEST(a_kick_completes_no_wait) {
    aio_port *port = aio_port_new();
    uint64_t key;
    int64_t result;
    aio_port_kick(port);
    CHECK(readable(port));
    CHECK_EQ(aio_port_take(port, &key, &result, 1), 0);
    CHECK(!readable(port));
    aio_port_close(port);
    aio_port_kick(NULL); /* the owner has closed the port */
}

TEST(a_token_is_posted_or_dropped_once) {
    aio_port *port = aio_port_new();
    aio_token *posted, *dropped;
    uint64_t keys[4];
    int64_t results[4];
    CHECK_EQ(aio_token_take(NULL, 1, &posted), AIO_NOT_OPEN);
    CHECK_EQ(aio_token_take(port, 1, &posted), 0);
    CHECK_EQ(aio_token_take(port, 2, &dropped), 0);
    aio_token_post(&posted, 7);
    aio_token_drop(&dropped);
    aio_token_post(&posted, 8);
    aio_token_drop(&posted);
    aio_token_post(&dropped, 9);
    CHECK_EQ(aio_port_take(port, keys, results, 4), 1);
    CHECK_EQ(keys[0], 1);
    CHECK_EQ(results[0], 7);
    CHECK_EQ(bed_in_flight(port), 0);
    aio_port_close(port);
}

/* A loop that shares a port takes what has come while the thread sleeps, as often as this says, and another
 * completion comes. */
static aio_port *shared_port;
static int loop_takes, sleeps;

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left) {
    uint64_t key;
    int64_t result;
    if (!shared_port) {
        return __real_nanosleep(time, left);
    }
    sleeps++;
    if (loop_takes-- > 0) {
        CHECK_EQ(aio_port_take(shared_port, &key, &result, 1), 1);
        bed_post(shared_port, 1, 0);
    }
    return 0;
}

TEST(the_thread_of_a_shared_port_sleeps_while_the_loop_takes_completions) {
    aio_port *port = shared_port = aio_port_new();
    aio_port_share(port, 1);
    bed_post(port, 1, 0);
    loop_takes = 3;
    aio_port_wait(port);
    CHECK_EQ(sleeps, 4); /* the loop has left the last completion */
    CHECK(readable(port));
    shared_port = NULL;
    aio_port_close(port);
}

TEST(the_thread_of_a_port_without_a_loop_does_not_sleep) {
    aio_port *port = shared_port = aio_port_new();
    bed_post(port, 1, 0);
    aio_port_wait(port);
    CHECK_EQ(sleeps, 0);
    shared_port = NULL;
    aio_port_close(port);
}

enum { PUBLISHERS = 4, EACH = 20000 };

static void *publish(void *argument) {
    for (uint64_t key = 0; key < EACH; key++) {
        bed_post(argument, key, 0);
    }
    return NULL;
}

TEST(no_wake_up_is_lost) {
    aio_port *port = aio_port_new();
    pthread_t threads[PUBLISHERS];
    int64_t sum = 0;
    for (int i = 0; i < PUBLISHERS; i++) {
        threads[i] = bed_thread(publish, port);
    }
    for (int taken = 0; taken < PUBLISHERS * EACH; taken++) {
        uint64_t key = 0;
        bed_take_one(port, &key);
        sum += (int64_t)key;
    }
    CHECK_EQ(sum, (int64_t)PUBLISHERS * EACH * (EACH - 1) / 2);
    for (int i = 0; i < PUBLISHERS; i++) {
        bed_join(threads[i]);
    }
    CHECK_EQ(bed_in_flight(port), 0);
    aio_port_close(port);
}

RUN_TESTS
