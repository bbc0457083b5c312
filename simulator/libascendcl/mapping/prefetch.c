/* Prefetching of managed memory: a task of a stream stores the location to which each page was prefetched. */
#include <stdlib.h>

#include "managed.h"

struct prefetch {
    size_t count;
    struct {
        const void *pointer;
        size_t size;
        aclrtMemManagedLocation location;
    } items[];
};

static aclError prefetch(prefetch_t *plan, aclrtStream handle) {
    stream_t *stream = NULL;
    managed_range_t range;
    aclError rc = stream_need_own(handle, &stream);
    for (size_t i = 0; rc == ACL_SUCCESS && i < plan->count; i++) {
        rc = managed_check_location(plan->items[i].location);
        if (rc == ACL_SUCCESS && !managed_find(plan->items[i].pointer, plan->items[i].size, &range)) {
            rc = error_set(RT_PARAM_INVALID, "ptr or size");
        }
    }
    if (rc != ACL_SUCCESS) {
        free(plan);
        return rc;
    }
    task_t task = {.kind = TASK_PREFETCH, .prefetch = plan};
    return stream_enqueue(stream, &task);
}

void prefetch_run_task(const task_t *task) {
    const prefetch_t *plan = task->prefetch;
    for (size_t i = 0; i < plan->count; i++) {
        managed_range_t range = {NULL, 0};
        managed_find(plan->items[i].pointer, plan->items[i].size, &range);
        for (size_t page = 0; page < range.count; page++) {
            range.first[page].last = plan->items[i].location;
        }
    }
}

static prefetch_t *plan_new(size_t count) {
    prefetch_t *plan = calloc(1, sizeof *plan + count * sizeof plan->items[0]);
    if (plan != NULL) {
        plan->count = count;
    }
    return plan;
}

aclError do_aclrtMemManagedPrefetchAsync(const void *ptr, size_t size, aclrtMemManagedLocation location,
                                         uint32_t flags, aclrtStream stream) {
    if (ptr == NULL || size == 0 || flags != 0) {
        return error_quiet(ACL_INVALID_PARAM, "ptr, size or flags");
    }
    prefetch_t *plan = plan_new(1);
    if (plan == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "ptr");
    }
    plan->items[0].pointer = ptr;
    plan->items[0].size = size;
    plan->items[0].location = location;
    SIM_GUARD();
    return prefetch(plan, stream);
}

/* Each location applies to the ranges from its own index up to, and without, the index of the next location. */
static bool indexes_valid(const size_t *indexes, size_t count, size_t most) {
    for (size_t i = 0; i < count; i++) {
        if (i == 0 ? indexes[i] != 0 : indexes[i] <= indexes[i - 1] || indexes[i] >= most) {
            return false;
        }
    }
    return true;
}

aclError do_aclrtMemManagedPrefetchBatchAsync(const void **ptrs, size_t *sizes, size_t count,
                                              aclrtMemManagedLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                              size_t numPrefetchLocs, uint64_t flags, aclrtStream stream) {
    bool null = ptrs == NULL || sizes == NULL || prefetchLocs == NULL || prefetchLocIdxs == NULL;
    if (null || count == 0 || numPrefetchLocs == 0 || flags != 0 || count < numPrefetchLocs) {
        return error_quiet(ACL_INVALID_PARAM, null ? "ptrs, sizes or locations" : "count or flags");
    }
    if (!array_is_there(ptrs, count, sizeof *ptrs) || !array_is_there(sizes, count, sizeof *sizes) ||
        !array_is_there(prefetchLocs, numPrefetchLocs, sizeof *prefetchLocs) ||
        !array_is_there(prefetchLocIdxs, numPrefetchLocs, sizeof *prefetchLocIdxs) ||
        !indexes_valid(prefetchLocIdxs, numPrefetchLocs, count)) {
        return error_set(RT_PARAM_INVALID, "prefetchLocIdxs");
    }
    prefetch_t *plan = plan_new(count);
    if (plan == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "count");
    }
    size_t which = 0;
    for (size_t i = 0; i < count; i++) {
        which += which + 1 < numPrefetchLocs && prefetchLocIdxs[which + 1] == i ? 1 : 0;
        plan->items[i].pointer = ptrs[i];
        plan->items[i].size = sizes[i];
        plan->items[i].location = prefetchLocs[which];
    }
    SIM_GUARD();
    return prefetch(plan, stream);
}
