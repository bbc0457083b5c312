/*
 * Subscriptions to the operators of a model. The simulator profiles no offline models. So it accepts every id,
 * also one of no loaded model, and reports no operator. The client makes a pipe, and the runtime closes the
 * pipe's write end when the subscription ends. A client that reads from the pipe then gets the end of the file.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "described.h"

enum { SUBSCRIPTIONS_MOST = 64 };

typedef struct {
    uint64_t key; /* the model's id plus 1; 0: the entry is free */
    int *pipe;
    int descriptor;
} subscription_t;

/* Protected by sim.lock. */
static subscription_t subscriptions[SUBSCRIPTIONS_MOST];

static uint64_t key_of(uint32_t model) {
    return (uint64_t)model + 1;
}

static subscription_t *subscription_find(uint64_t key) {
    for (size_t i = 0; i < SUBSCRIPTIONS_MOST; i++) {
        if (subscriptions[i].key == key) {
            return &subscriptions[i];
        }
    }
    return NULL;
}

static bool is_written_to(int descriptor) {
    for (size_t i = 0; i < SUBSCRIPTIONS_MOST; i++) {
        if (subscriptions[i].key != 0 && subscriptions[i].descriptor == descriptor) {
            return true;
        }
    }
    return false;
}

aclprofSubscribeConfig *do_aclprofCreateSubscribeConfig(int8_t timeInfoSwitch,
                                                        aclprofAicoreMetrics aicoreMetrics, void *fd) {
    (void)timeInfoSwitch;
    if (fd == NULL || !metrics_valid(aicoreMetrics)) {
        error_quiet(ACL_INVALID_PARAM, fd == NULL ? "fd" : "aicoreMetrics");
        return NULL;
    }
    profile_t *made = profile_new(PROFILE_SUBSCRIPTION);
    if (made != NULL) {
        made->pipe = fd;
    }
    return (aclprofSubscribeConfig *)made;
}

aclError do_aclprofDestroySubscribeConfig(const aclprofSubscribeConfig *profSubscribeConfig) {
    return profile_destroy(PROFILE_SUBSCRIPTION, profSubscribeConfig, "profSubscribeConfig");
}

static aclError subscribe(uint32_t model, int *pipe) {
    if (!array_is_there(pipe, 1, sizeof *pipe)) {
        return error_quiet(ACL_INVALID_PARAM, "fd");
    }
    if (subscription_find(key_of(model)) != NULL) {
        return error_quiet(ACL_INVALID_MODEL_ID, "modelId");
    }
    subscription_t *entry = subscription_find(0);
    if (entry == NULL) {
        return error_quiet(ACL_BAD_ALLOC, "modelId");
    }
    *entry = (subscription_t){.key = key_of(model), .pipe = pipe, .descriptor = *pipe};
    return ACL_SUCCESS;
}

aclError do_aclprofModelSubscribe(uint32_t modelId, const aclprofSubscribeConfig *profSubscribeConfig) {
    SIM_GUARD();
    const profile_t *found = profile_find(PROFILE_SUBSCRIPTION, profSubscribeConfig, "profSubscribeConfig");
    return found != NULL ? subscribe(modelId, found->pipe) : ACL_INVALID_PARAM;
}

/* Whether the descriptor may be closed. If the client has closed it already, its number may now belong to
 * another file. */
static bool may_close(int descriptor) {
    struct stat status;
    return descriptor > STDERR_FILENO && fstat(descriptor, &status) == 0 &&
           (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) &&
           (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY;
}

/* Closes the pipe, unless another subscription uses it, and sets the client's variable to -1, as the runtime
 * does. */
static void close_pipe(int *pipe, int descriptor) {
    if (!is_written_to(descriptor) && place_is_there(pipe, sizeof *pipe) && *pipe == descriptor &&
        may_close(descriptor)) {
        close(descriptor);
        *pipe = -1;
    }
}

aclError do_aclprofModelUnSubscribe(uint32_t modelId) {
    aclError rc = ACL_SUCCESS;
    SIM_GUARD();
    subscription_t *entry = subscription_find(key_of(modelId));
    if (entry == NULL) {
        rc = error_quiet(ACL_INVALID_MODEL_ID, "modelId");
    } else {
        subscription_t ended = *entry;
        *entry = (subscription_t){0};
        close_pipe(ended.pipe, ended.descriptor);
    }
    return rc;
}
