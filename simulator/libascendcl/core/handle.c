/* Slabs of objects. A new object gets the slot that became free last. So a stale handle soon refers to another
 * object. */
#include <stdlib.h>
#include <string.h>

#include "described.h"
#include "graph.h"
#include "kernel.h"
#include "model.h"
#include "physical.h"
#include "pool.h"

enum { SLAB_SLOTS = 64, SLAB_MAX = 4096 };

typedef struct {
    char *slabs[SLAB_MAX];
    uint32_t slab_count;
    object_t *free;
    uint64_t live;
} pool_t;

static pool_t pools[KIND_COUNT]; /* all zero, so that the library's file does not contain them */

static const struct {
    const char *name;
    size_t size;
} kinds[KIND_COUNT] = {
    [KIND_CONTEXT] = {.name = "context", .size = sizeof(context_t)},
    [KIND_STREAM] = {.name = "stream", .size = sizeof(stream_t)},
    [KIND_EVENT] = {.name = "event", .size = sizeof(event_t)},
    [KIND_NOTIFY] = {.name = "notify", .size = sizeof(notify_t)},
    [KIND_COUNT_NOTIFY] = {.name = "count notify", .size = sizeof(count_notify_t)},
    [KIND_BINARY_DATA] = {.name = "binary's data", .size = sizeof(binary_data_t)},
    [KIND_BINARY] = {.name = "binary", .size = sizeof(binary_t)},
    [KIND_FUNCTION] = {.name = "function", .size = sizeof(function_handle_t)},
    [KIND_GRAPH] = {.name = "model", .size = sizeof(graph_t)},
    [KIND_NODE] = {.name = "model's task", .size = sizeof(node_t)},
    [KIND_GROUP] = {.name = "task group", .size = sizeof(task_group_t)},
    [KIND_CONDITION] = {.name = "condition", .size = sizeof(condition_handle_t)},
    [KIND_LABEL] = {.name = "label", .size = sizeof(label_t)},
    [KIND_LABEL_LIST] = {.name = "label list", .size = sizeof(label_list_t)},
    [KIND_ARGS] = {.name = "arguments", .size = sizeof(args_t)},
    [KIND_POOL] = {.name = "memory pool", .size = sizeof(mempool_t)},
    [KIND_PHYSICAL] = {.name = "physical memory", .size = sizeof(physical_t)},
    [KIND_DATA_BUFFER] = {.name = "data buffer", .size = sizeof(data_buffer_t)},
    [KIND_TENSOR_DESC] = {.name = "tensor description", .size = sizeof(tensor_desc_t)},
    [KIND_CHAINED_BUFFER] = {.name = "chained buffer", .size = sizeof(chained_t)},
    [KIND_STREAM_CONFIG] = {.name = "stream configuration", .size = sizeof(stream_config_t)},
    [KIND_ALLOCATOR] = {.name = "allocator description", .size = sizeof(allocator_t)},
    [KIND_OPERATOR_ATTR] = {.name = "operator's attributes", .size = sizeof(operator_attr_t)},
    [KIND_DATASET] = {.name = "dataset", .size = sizeof(dataset_t)},
    [KIND_MODEL_DESC] = {.name = "model description", .size = sizeof(model_desc_t)},
    [KIND_MODEL_CONFIG] = {.name = "load configuration", .size = sizeof(model_config_t)},
    [KIND_EXEC_CONFIG] = {.name = "execution configuration", .size = sizeof(exec_config_t)},
    [KIND_PROFILE] = {.name = "profiling object", .size = sizeof(profile_t)},
};

static bool pool_grow(pool_t *pool, object_kind_t kind) {
    if (pool->slab_count == SLAB_MAX) {
        return false;
    }
    char *slab = calloc(SLAB_SLOTS, kinds[kind].size);
    if (slab == NULL) {
        return false;
    }
    for (uint32_t i = SLAB_SLOTS; i-- > 0;) {
        object_t *object = (object_t *)(void *)(slab + i * kinds[kind].size);
        object->kind = kind;
        object->index = pool->slab_count * SLAB_SLOTS + i;
        object->next_free = pool->free;
        pool->free = object;
    }
    pool->slabs[pool->slab_count++] = slab;
    return true;
}

void *object_new(object_kind_t kind) {
    pool_t *pool = &pools[kind];
    if (pool->free == NULL && !pool_grow(pool, kind)) {
        return NULL;
    }
    object_t *object = pool->free;
    uint32_t index = object->index;
    pool->free = object->next_free;
    memset(object, 0, kinds[kind].size);
    object->kind = kind;
    object->index = index;
    object->state = OBJECT_LIVE;
    object->refs = 1;
    pool->live++;
    return object;
}

void object_retain(object_t *object) {
    object->refs++;
}

void object_release(object_t *object) {
    if (--object->refs == 0) {
        object->state = OBJECT_FREE;
        object->next_free = pools[object->kind].free;
        pools[object->kind].free = object;
    }
}

void object_kill(object_t *object) {
    object->state = OBJECT_DEAD;
    pools[object->kind].live--;
    object_release(object);
}

static object_t *slot_of(object_kind_t kind, const void *handle) {
    const pool_t *pool = &pools[kind];
    uintptr_t address = (uintptr_t)handle;
    for (uint32_t i = 0; i < pool->slab_count; i++) {
        uintptr_t base = (uintptr_t)pool->slabs[i];
        if (address >= base && address < base + SLAB_SLOTS * kinds[kind].size) {
            bool exact = (address - base) % kinds[kind].size == 0;
            return exact ? (object_t *)(void *)(pool->slabs[i] + (address - base)) : NULL;
        }
    }
    return NULL;
}

object_state_t object_state(object_kind_t kind, const void *handle) {
    const object_t *object = slot_of(kind, handle);
    return object != NULL ? object->state : OBJECT_FREE;
}

void *object_find(object_kind_t kind, const void *handle) {
    object_t *object = slot_of(kind, handle);
    return object != NULL && object->state == OBJECT_LIVE ? object : NULL;
}

uint64_t object_count(object_kind_t kind) {
    return pools[kind].live;
}

const char *object_kind_name(object_kind_t kind) {
    return kinds[kind].name;
}

void object_each(object_kind_t kind, void (*visit)(void *object, void *arg), void *arg) {
    const pool_t *pool = &pools[kind];
    for (uint32_t i = 0; i < pool->slab_count * SLAB_SLOTS; i++) {
        object_t *object =
            (object_t *)(void *)(pool->slabs[i / SLAB_SLOTS] + (i % SLAB_SLOTS) * kinds[kind].size);
        if (object->state == OBJECT_LIVE) {
            visit(object, arg);
        }
    }
}
