/* The attributes of pools. */
#include <string.h>

#include "pool.h"

static bool is_reuse(aclrtMemPoolAttr attr) {
    return attr >= ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attr <= ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

static uint64_t *counter_of(mempool_t *pool, aclrtMemPoolAttr attr) {
    switch (attr) {
    case ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

/* The high-water marks can only be reset to 0, and the current values cannot be set. */
static bool set_counter(mempool_t *pool, aclrtMemPoolAttr attr, uint64_t value) {
    uint64_t *counter = counter_of(pool, attr);
    bool mark = attr == ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH || attr == ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH;
    if (counter == NULL || !(attr == ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD || (mark && value == 0))) {
        return false;
    }
    *counter = value;
    return true;
}

/* The settings for the reuse of blocks between streams have no effect, because an address is free as soon as
 * its stream has freed it. */
aclError do_aclrtMemPoolSetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void *value) {
    REFUSE_NULL(memPool);
    if (value == NULL || !array_is_there(value, sizeof(int32_t), 1)) {
        return error_set(RT_PARAM_INVALID, "value");
    }
    aclError rc = RT_PARAM_INVALID;
    SIM_GUARD();
    mempool_t *pool = pool_find(memPool);
    if (pool != NULL && is_reuse(attr)) {
        memcpy(&pool->reuse[attr], value, sizeof pool->reuse[attr]);
        rc = ACL_SUCCESS;
    } else if (pool != NULL) {
        uint64_t number = 0;
        memcpy(&number, value, counter_of(pool, attr) != NULL ? sizeof number : 0);
        rc = set_counter(pool, attr, number) ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "attr");
    }
    return rc;
}

aclError do_aclrtMemPoolGetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void *value) {
    REFUSE_NULL(memPool);
    if (value == NULL || !place_is_there(value, sizeof(int32_t))) {
        return error_set(RT_PARAM_INVALID, "value");
    }
    aclError rc = RT_PARAM_INVALID;
    SIM_GUARD();
    mempool_t *pool = pool_find(memPool);
    const uint64_t *counter = pool != NULL ? counter_of(pool, attr) : NULL;
    if (counter != NULL) {
        memcpy(value, counter, sizeof *counter);
        rc = ACL_SUCCESS;
    } else if (pool != NULL && is_reuse(attr)) {
        memcpy(value, &pool->reuse[attr], sizeof pool->reuse[attr]);
        rc = ACL_SUCCESS;
    } else if (pool != NULL) {
        rc = error_set(RT_PARAM_INVALID, "attr");
    }
    return rc;
}
