/* Fills of bytes and of 32-bit words: immediate fills, and fills of a stream. */
#include <string.h>

#include "sim.h"
#include "work.h"

typedef struct {
    void *to;
    size_t room;
    size_t count; /* bytes */
    uint32_t value;
    bool words;
} fill_t;

void fill_memory(void *to, uint32_t value, size_t count, bool words) {
    if (!words) {
        memset(to, (int)value, count);
        return;
    }
    for (size_t i = 0; i < count; i += sizeof value) {
        memcpy((char *)to + i, &value, sizeof value);
    }
}

/* A fill of 0 bytes succeeds, and its other arguments are not checked. Before 9.1 it was refused. */
static bool is_nothing(const fill_t *fill) {
    return fill->count == 0 && sim.settings.cann >= CANN_9_1;
}

static aclError check_fill(const fill_t *fill) {
    if (fill->to == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "devPtr");
    }
    return fill->count == 0 ? error_set(RT_PARAM_INVALID, "count") : ACL_SUCCESS;
}

static aclError check_room(const fill_t *fill) {
    return fill->count > fill->room ? error_set(RT_PARAM_INVALID, "count") : ACL_SUCCESS;
}

/* Called with sim.lock held, which is released during the fill itself. */
static aclError fill_now(const fill_t *fill) {
    void *block = NULL;
    if (!memory_pin(fill->to, fill->count, &block)) {
        return error_set(RT_DRIVER_ERROR, "devPtr");
    }
    sim_unlock();
    fill_memory(fill->to, fill->value, fill->count, fill->words);
    sim_lock();
    memory_unpin(block);
    return ACL_SUCCESS;
}

static aclError fill_at_once(const fill_t *fill) {
    SIM_GUARD();
    const context_t *context = context_need();
    aclError rc = context != NULL ? check_room(fill) : RT_CONTEXT_NULL;
    rc = rc == ACL_SUCCESS ? capture_forbids(context, "aclrtMemset") : rc;
    return rc == ACL_SUCCESS ? fill_now(fill) : rc;
}

static aclError fill_queued(const fill_t *fill, aclrtStream stream) {
    stream_t *target = NULL;
    SIM_GUARD();
    aclError rc = check_room(fill);
    rc = rc == ACL_SUCCESS ? stream_need_own(stream, &target) : rc;
    if (rc == ACL_SUCCESS) {
        task_t task = {
            .kind = TASK_SET,
            .set = {.dst = fill->to, .count = fill->count, .value = fill->value, .words = fill->words}};
        rc = stream_enqueue(target, &task);
    }
    return rc;
}

aclError do_aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count) {
    fill_t fill = {.to = devPtr, .room = maxCount, .count = count, .value = (uint32_t)value};
    if (is_nothing(&fill)) {
        return ACL_SUCCESS;
    }
    aclError rc = check_fill(&fill);
    return rc == ACL_SUCCESS ? fill_at_once(&fill) : rc;
}

aclError do_aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
    fill_t fill = {.to = devPtr, .room = maxCount, .count = count, .value = (uint32_t)value};
    if (is_nothing(&fill)) {
        return ACL_SUCCESS;
    }
    aclError rc = check_fill(&fill);
    return rc == ACL_SUCCESS ? fill_queued(&fill, stream) : rc;
}

/* Only memory that the runtime has allocated can be filled with words. This check needs no context. */
static aclError check_words(const void *pointer, size_t size, size_t words) {
    if (pointer == NULL || (uintptr_t)pointer % sizeof(uint32_t) != 0) {
        return error_quiet(ACL_INVALID_PARAM, "ptr");
    }
    if (words > SIZE_MAX / sizeof(uint32_t) || words * sizeof(uint32_t) > size) {
        return error_quiet(ACL_INVALID_PARAM, "N");
    }
    SIM_GUARD();
    memory_t memory = memory_kind(pointer);
    bool known = memory == MEMORY_DEVICE || memory == MEMORY_PINNED;
    return known ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "ptr");
}

aclError do_aclrtMemsetD32(void *ptr, size_t memSize, uint32_t value, size_t N) {
    aclError rc = N != 0 ? check_words(ptr, memSize, N) : ACL_SUCCESS;
    fill_t fill = {.to = ptr, .room = memSize, .count = N * sizeof value, .value = value, .words = true};
    return rc == ACL_SUCCESS && N != 0 ? fill_at_once(&fill) : rc;
}

aclError do_aclrtMemsetD32Async(void *ptr, size_t memSize, uint32_t value, size_t N, aclrtStream stream) {
    aclError rc = N != 0 ? check_words(ptr, memSize, N) : ACL_SUCCESS;
    fill_t fill = {.to = ptr, .room = memSize, .count = N * sizeof value, .value = value, .words = true};
    return rc == ACL_SUCCESS && N != 0 ? fill_queued(&fill, stream) : rc;
}
