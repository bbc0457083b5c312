/* Batches of copies. The attributes of a copy name its locations. Each copy goes from a host to a device or
 * back. */
#include <string.h>

#include "copy.h"

enum { BLOCKING_COPIES_MOST = 4096 };

typedef struct {
    void **dsts;
    const size_t *rooms;
    void **srcs;
    const size_t *sizes;
    size_t count;
    const aclrtMemcpyBatchAttr *attrs;
    const size_t *indexes;
    size_t attr_count;
} batch_t;

static bool all_empty(const size_t *sizes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool arrays_are_there(const batch_t *batch) {
    return array_is_there(batch->dsts, batch->count, sizeof *batch->dsts) &&
           array_is_there(batch->rooms, batch->count, sizeof *batch->rooms) &&
           array_is_there(batch->srcs, batch->count, sizeof *batch->srcs) &&
           array_is_there(batch->attrs, batch->attr_count, sizeof *batch->attrs) &&
           array_is_there(batch->indexes, batch->attr_count, sizeof *batch->indexes);
}

/* Makes the checks of the ACL layer. */
static aclError check_arrays(const batch_t *batch) {
    static const aclrtMemcpyBatchAttr none;
    if (batch->dsts == NULL || batch->rooms == NULL || batch->srcs == NULL || batch->attrs == NULL ||
        batch->indexes == NULL || !arrays_are_there(batch)) {
        return error_quiet(ACL_INVALID_PARAM, "an array");
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->rooms[i] < batch->sizes[i]) {
            return error_quiet(ACL_INVALID_PARAM, "destMaxs");
        }
    }
    for (size_t i = 0; i < batch->attr_count; i++) {
        if (memcmp(batch->attrs[i].rsv, none.rsv, sizeof none.rsv) != 0) {
            return error_quiet(ACL_INVALID_PARAM, "attrs: rsv");
        }
    }
    return ACL_SUCCESS;
}

/* The first index must be 0, and each index must be greater than the previous index. */
static aclError check_indexes(const batch_t *batch, bool async) {
    bool valid = batch->attr_count != 0 && batch->attr_count <= batch->count && batch->indexes[0] == 0;
    for (size_t i = 1; valid && i < batch->attr_count; i++) {
        valid = batch->indexes[i] > batch->indexes[i - 1] && batch->indexes[i] < batch->count;
    }
    valid = valid && (async || batch->count <= BLOCKING_COPIES_MOST);
    return valid ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "attrsIndexes or numBatches");
}

static aclrtMemLocationType simple(aclrtMemLocationType type, aclrtMemLocationType other) {
    return type == other ? ACL_MEM_LOCATION_TYPE_HOST : type;
}

/* Whether the attribute names the location of the pointer. The id of a location on the host has no meaning. */
static bool place_is(aclrtMemLocation named, aclrtMemLocation actual) {
    bool device = actual.type == ACL_MEM_LOCATION_TYPE_DEVICE;
    return simple(named.type, ACL_MEM_LOCATION_TYPE_HOST_NUMA) ==
               simple(actual.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED) &&
           (!device || named.id == actual.id);
}

/* Sets the direction of the copy. False: the pointers are not where the attribute says, or both are on the same
 * side. */
static bool direct(copy_t *copy, const aclrtMemcpyBatchAttr *attr) {
    if (copy->dst == NULL || copy->src == NULL) {
        return false;
    }
    aclrtMemLocation to = memory_location(copy->dst);
    aclrtMemLocation from = memory_location(copy->src);
    bool up = to.type == ACL_MEM_LOCATION_TYPE_DEVICE;
    copy_classify(copy);
    copy->kind = up ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_HOST;
    return place_is(attr->dstLoc, to) && place_is(attr->srcLoc, from) &&
           up != (from.type == ACL_MEM_LOCATION_TYPE_DEVICE);
}

static copy_t item(const batch_t *batch, size_t i) {
    return (copy_t){.dst = batch->dsts[i], .src = batch->srcs[i], .count = batch->sizes[i], .height = 1};
}

static const aclrtMemcpyBatchAttr *attr_of(const batch_t *batch, size_t i, size_t *which) {
    *which += *which + 1 < batch->attr_count && batch->indexes[*which + 1] == i ? 1 : 0;
    return &batch->attrs[*which];
}

/* Blocking copies must all have the same direction. They are checked before the first copy is made, also those
 * of 0 bytes. */
static aclError check_directions(const batch_t *batch, size_t *failed) {
    size_t which = 0;
    aclrtMemcpyKind way = ACL_MEMCPY_DEFAULT;
    for (size_t i = 0; i < batch->count; i++) {
        copy_t copy = item(batch, i);
        if (!direct(&copy, attr_of(batch, i, &which)) || (way != ACL_MEMCPY_DEFAULT && way != copy.kind)) {
            *failed = i;
            return error_set(RT_PARAM_INVALID, "attrs");
        }
        way = copy.kind;
    }
    return ACL_SUCCESS;
}

static aclError copy_each(const batch_t *batch, size_t *failed) {
    aclError rc = check_directions(batch, failed);
    for (size_t i = 0; rc == ACL_SUCCESS && i < batch->count; i++) {
        copy_t copy = item(batch, i);
        copy_classify(&copy);
        rc = copy.count != 0 ? copy_now(&copy) : ACL_SUCCESS;
    }
    return rc;
}

/* Each copy is checked when the copies before it are enqueued. */
static aclError enqueue_each(const batch_t *batch, aclrtStream stream, size_t *failed) {
    size_t which = 0;
    aclError rc = ACL_SUCCESS;
    for (size_t i = 0; rc == ACL_SUCCESS && i < batch->count; i++) {
        copy_t copy = item(batch, i);
        const aclrtMemcpyBatchAttr *attr = attr_of(batch, i, &which);
        if (copy.count == 0 || !direct(&copy, attr)) {
            *failed = i;
            return error_set(RT_PARAM_INVALID, "sizes or attrs");
        }
        rc = copy_async(stream, &copy);
    }
    return rc;
}

/* The handle and the indexes are checked before the caller's context. */
static aclError run(const batch_t *batch, aclrtStream stream, bool async, size_t *failed) {
    aclError rc = stream_check_handle(stream);
    rc = rc == ACL_SUCCESS ? check_indexes(batch, async) : rc;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    return async ? enqueue_each(batch, stream, failed) : copy_each(batch, failed);
}

static aclError copy_batch(const batch_t *batch, aclrtStream stream, bool async, size_t *failIndex) {
    size_t failed = SIZE_MAX;
    if (batch->sizes == NULL || batch->count == 0 ||
        !array_is_there(batch->sizes, batch->count, sizeof *batch->sizes)) {
        return error_quiet(ACL_INVALID_PARAM, batch->sizes == NULL ? "sizes" : "numBatches");
    }
    aclError rc = ACL_SUCCESS;
    if (!all_empty(batch->sizes, batch->count)) {
        rc = check_arrays(batch);
        if (rc != ACL_SUCCESS) {
            return rc;
        }
        SIM_GUARD();
        rc = run(batch, stream, async, &failed);
    }
    if (failIndex != NULL) {
        *failIndex = failed;
    }
    return rc;
}

aclError do_aclrtMemcpyBatch(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches,
                             aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs,
                             size_t *failIndex) {
    batch_t batch = {dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs};
    return failIndex != NULL ? copy_batch(&batch, NULL, false, failIndex)
                             : error_quiet(ACL_INVALID_PARAM, "failIndex");
}

aclError do_aclrtMemcpyBatchV2(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches,
                               aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs) {
    batch_t batch = {dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs};
    return copy_batch(&batch, NULL, false, NULL);
}

aclError do_aclrtMemcpyBatchAsync(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches,
                                  aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs,
                                  size_t *failIndex, aclrtStream stream) {
    batch_t batch = {dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs};
    return failIndex != NULL ? copy_batch(&batch, stream, true, failIndex)
                             : error_quiet(ACL_INVALID_PARAM, "failIndex");
}

aclError do_aclrtMemcpyBatchAsyncV2(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
                                    size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes,
                                    size_t numAttrs, aclrtStream stream) {
    batch_t batch = {dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs};
    return copy_batch(&batch, stream, true, NULL);
}
