/*
 * Pools: device memory that is allocated and freed in the order of a stream.
 *
 * A call that allocates returns the address at once, and enqueues a task. The client may use the memory after
 * the stream has run this task. A call that frees also enqueues a task, and the block ends when the stream
 * reaches this task. Memory that a pool has taken from its device stays with the pool until the pool is
 * trimmed. A synchronizing call returns free memory above the pool's threshold to the device.
 */
#include <string.h>

#include "block.h"
#include "pool.h"

enum { GRAIN_BYTES = 512, SEGMENT_BYTES = 2 << 20, FILL_BYTE = 0xA5, FILL_MOST = 1 << 20 };

static uint64_t round_up(uint64_t size, uint64_t to) {
    return (size + to - 1) / to * to;
}

static uint64_t highest(uint64_t now, uint64_t before) {
    return now > before ? now : before;
}

static void trim(mempool_t *pool, uint64_t keep) {
    uint64_t least = highest(round_up(pool->used, SEGMENT_BYTES), keep);
    if (pool->reserved > least) {
        memory_account(pool->device, least - pool->reserved);
        pool->reserved = least;
    }
}

static bool grow(mempool_t *pool, uint64_t size) {
    uint64_t used = pool->used + size;
    uint64_t reserved = highest(round_up(used, SEGMENT_BYTES), pool->reserved);
    if (used > pool->most || !memory_fits(pool->device, reserved - pool->reserved)) {
        return false;
    }
    memory_account(pool->device, reserved - pool->reserved);
    pool->reserved = reserved;
    pool->reserved_high = highest(reserved, pool->reserved_high);
    pool->used = used;
    pool->used_high = highest(used, pool->used_high);
    return true;
}

mempool_t *pool_find(const void *handle) {
    mempool_t *pool = object_find(KIND_POOL, handle);
    if (pool == NULL) {
        usage_dead(KIND_POOL, handle);
        error_set(RT_PARAM_INVALID, "memPool");
    }
    return pool;
}

static bool props_valid(const aclrtMemPoolProps *props) {
    static const aclrtMemPoolProps none;
    return props->allocType == ACL_MEM_ALLOCATION_TYPE_PINNED &&
           props->location.type == ACL_MEM_LOCATION_TYPE_DEVICE &&
           memcmp(props->reserved, none.reserved, sizeof none.reserved) == 0;
}

aclError do_aclrtMemPoolCreate(aclrtMemPool *memPool, const aclrtMemPoolProps *poolProps) {
    if (memPool == NULL || poolProps == NULL || !props_valid(poolProps)) {
        return error_quiet(ACL_INVALID_PARAM, memPool == NULL ? "memPool" : "poolProps");
    }
    if (poolProps->handleType != ACL_MEM_HANDLE_TYPE_NONE) {
        return error_set(RT_PARAM_INVALID, "poolProps: handleType");
    }
    SIM_GUARD();
    device_t *device = device_find((int32_t)poolProps->location.id);
    if (device == NULL) {
        return error_set(RT_INVALID_DEVICE, "poolProps: location");
    }
    if (device->retains == 0 && device->explicit_contexts == 0) {
        return error_set(RT_DRIVER_ERROR, "poolProps: its device is not set");
    }
    mempool_t *pool = object_new(KIND_POOL);
    if (pool == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "memPool");
    }
    pool->device = device;
    pool->most = poolProps->maxSize != 0 ? poolProps->maxSize : UINT64_MAX;
    for (size_t i = 0; i < sizeof pool->reuse / sizeof *pool->reuse; i++) {
        pool->reuse[i] = 1;
    }
    *memPool = pool;
    return ACL_SUCCESS;
}

static void pool_kill(mempool_t *pool) {
    trim(pool, 0);
    object_kill(&pool->object);
}

/* Blocks in use stay valid, and the pool ends with the last of these blocks. */
aclError do_aclrtMemPoolDestroy(const aclrtMemPool memPool) {
    REFUSE_NULL(memPool);
    SIM_GUARD();
    mempool_t *pool = pool_find(memPool);
    if (pool != NULL) {
        pool_kill(pool);
    }
    return pool != NULL ? ACL_SUCCESS : RT_PARAM_INVALID;
}

void pool_block_ended(block_t *block) {
    mempool_t *pool = block->owner;
    pool->used -= block->capacity;
    if (pool->object.state == OBJECT_DEAD) {
        trim(pool, 0);
    }
    object_release(&pool->object);
}

static void end_if_of_device(void *object, void *arg) {
    mempool_t *pool = object;
    if (pool->device == arg) {
        pool_kill(pool);
    }
}

void pool_end_of_device(device_t *device) {
    object_each(KIND_POOL, end_if_of_device, device);
}

static void trim_to_threshold(void *object, void *arg) {
    mempool_t *pool = object;
    (void)arg;
    trim(pool, pool->threshold);
}

void pool_trim_all(void) {
    if (object_count(KIND_POOL) > 0) {
        object_each(KIND_POOL, trim_to_threshold, NULL);
    }
}

aclError do_aclrtMemPoolTrimTo(aclrtMemPool memPool, size_t minBytesToKeep) {
    REFUSE_NULL(memPool);
    SIM_GUARD();
    mempool_t *pool = pool_find(memPool);
    if (pool != NULL) {
        trim(pool, minBytesToKeep);
    }
    return pool != NULL ? ACL_SUCCESS : RT_PARAM_INVALID;
}

static block_t *take(mempool_t *pool, size_t size) {
    uint64_t capacity = round_up(size, GRAIN_BYTES);
    if (capacity < size || !grow(pool, capacity)) {
        return NULL;
    }
    block_t *block = block_make(BLOCK_POOL, pool->device, size, capacity);
    if (block == NULL) {
        pool->used -= capacity;
        return NULL;
    }
    block->owner = pool;
    object_retain(&pool->object);
    memset(block->base, FILL_BYTE, size < FILL_MOST ? size : FILL_MOST);
    return block;
}

static aclError enqueue(stream_t *stream, block_t *block, task_kind_t kind) {
    task_t task = {.kind = (uint8_t)kind, .block = block};
    block->pins++;
    return stream_enqueue(stream, &task);
}

static aclError malloc_async(void **pointer, size_t size, aclrtMemPool handle, aclrtStream stream) {
    stream_t *target = NULL;
    aclError rc = stream_need_own(stream, &target);
    mempool_t *pool = rc == ACL_SUCCESS ? pool_find(handle) : NULL;
    if (pool == NULL) {
        return rc == ACL_SUCCESS ? RT_PARAM_INVALID : rc;
    }
    block_t *block = take(pool, size);
    if (block == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "size");
    }
    void *base = block->base;
    block->pins++;
    rc = enqueue(target, block, TASK_POOL_TAKE);
    if (rc == ACL_SUCCESS) {
        *pointer = base;
    } else if (!block->freed) {
        block_end(block);
    }
    memory_unpin(block);
    return rc;
}

aclError do_aclrtMemPoolMallocAsync(void **ptr, size_t size, aclrtMemPool memPool, aclrtStream stream) {
    if (ptr == NULL || memPool == NULL || stream == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "ptr, memPool or stream");
    }
    aclError rc = ACL_SUCCESS;
    if (size != 0) {
        SIM_GUARD();
        rc = malloc_async(ptr, size, memPool, stream);
    }
    return rc;
}

/* Memory of aclrtMalloc can also be freed in the order of a stream. */
aclError do_aclrtMemPoolFreeAsync(void *ptr, aclrtStream stream) {
    REFUSE_NULL(ptr);
    if (stream == NULL) {
        return error_set(RT_PARAM_INVALID, "stream");
    }
    SIM_GUARD();
    stream_t *target = NULL;
    aclError rc = stream_need_own(stream, &target);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    block_t *block = block_find(ptr);
    bool known = block != NULL && block->base == ptr &&
                 (block->kind == BLOCK_POOL || block->kind == BLOCK_DEVICE) && !block->internal &&
                 !block->returning;
    if (!known) {
        usage_note("frees %p, which is not a live block, belongs to the runtime, or is being freed already",
                   ptr);
        return error_set(RT_PARAM_INVALID, "ptr");
    }
    block->returning = true;
    return enqueue(target, block, TASK_POOL_GIVE);
}

void pool_run_task(task_t *task) {
    block_t *block = task->block;
    if (task->kind == TASK_POOL_GIVE && !block->freed) {
        block_end(block);
    }
    memory_unpin(block);
    task->block = NULL;
}

void pool_drop_task(task_t *task) {
    block_t *block = task->block;
    if (block != NULL) {
        block->returning = block->returning && task->kind != TASK_POOL_GIVE;
        memory_unpin(block);
        task->block = NULL;
    }
}
