/* Values in memory: tasks that write a value, and tasks that wait for a value. */
#include <string.h>

#include "work.h"

enum { VALUE_BYTES = 8 };
enum { WAIT_GREATER_OR_EQUAL, WAIT_EQUAL, WAIT_AND, WAIT_NOR, WAIT_FLAGS };

/* A waiting stream also checks its value at this interval, because a host thread may write to memory without a
 * call to the simulator. */
static const int64_t poll_ns = 1000000;

typedef struct {
    work_t work;
    char *address; /* need not be aligned */
    uint64_t value;
    uint32_t flag;
    void *pinned;
} value_t;

static park_list_t waiting;

void value_may_have_changed(void) {
    if (waiting.first != NULL) {
        park_kick_all(&waiting);
    }
}

static bool is_aligned(const char *address) {
    return (uintptr_t)address % VALUE_BYTES == 0;
}

static aclError write_begin(work_t *work, const stream_t *stream) {
    value_t *value = (value_t *)work;
    (void)stream;
    return memory_pin(value->address, VALUE_BYTES, &value->pinned) ? 0 : RT_TASK_ERROR;
}

static aclError write_run(work_t *work, const stream_t *stream) {
    const value_t *value = (const value_t *)work;
    (void)stream;
    if (is_aligned(value->address)) {
        __atomic_store_n((uint64_t *)(void *)value->address, value->value, __ATOMIC_RELEASE);
    } else {
        memcpy(value->address, &value->value, VALUE_BYTES);
    }
    return 0;
}

static void write_end(work_t *work) {
    value_t *value = (value_t *)work;
    memory_unpin(value->pinned);
    value->pinned = NULL;
}

/* The device and the host may write to this address at any time. So sanitizers must not report this read as a
 * race. */
__attribute__((no_sanitize("thread"))) static uint64_t read_value(const char *address) {
    uint64_t now = 0;
    if (is_aligned(address)) {
        return *(const volatile uint64_t *)(const void *)address;
    }
    for (size_t i = VALUE_BYTES; i-- > 0;) {
        now = now << 8 | *(const volatile unsigned char *)(address + i);
    }
    return now;
}

static bool holds(const value_t *value) {
    uint64_t now = read_value(value->address);
    switch (value->flag) {
    case WAIT_GREATER_OR_EQUAL:
        return (int64_t)(now - value->value) >= 0;
    case WAIT_EQUAL:
        return now == value->value;
    case WAIT_AND:
        return (now & value->value) != 0;
    default:
        return ~(now | value->value) != 0;
    }
}

/* An address that is not aligned may be at the end of a block, so the last byte is checked too. */
static bool readable(const char *address) {
    return memory_kind(address) == MEMORY_DEVICE && memory_kind(address + VALUE_BYTES - 1) == MEMORY_DEVICE;
}

static bool wait_step(stream_t *stream, task_t *task) {
    const value_t *value = (const value_t *)task->work;
    if (!readable(value->address)) {
        task->code = RT_TASK_ERROR;
        return true;
    }
    if (holds(value)) {
        return true;
    }
    stream_park_polling(stream, &waiting, poll_ns);
    return false;
}

static const work_ops_t write_ops = {.begin = write_begin, .run = write_run, .end = write_end};
static const work_ops_t wait_ops = {.step = wait_step};

bool value_of(const task_t *task, value_task_t *found) {
    bool is = (task->kind == TASK_WORK || task->kind == TASK_STEP) &&
              (task->work->ops == &write_ops || task->work->ops == &wait_ops);
    if (is) {
        const value_t *value = (const value_t *)task->work;
        *found = (value_task_t){value->address, value->value, value->flag, task->work->ops == &wait_ops};
    }
    return is;
}

/* Called with sim.lock held, before the caller's context is checked. */
static aclError check(const value_task_t *what) {
    uint32_t flags = what->waits ? WAIT_FLAGS : 1;
    if (what->flag >= flags) {
        return error_set(RT_PARAM_INVALID, "flag");
    }
    bool there = memory_location(what->address).type == ACL_MEM_LOCATION_TYPE_DEVICE;
    return there ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "devAddr: it is not in memory of a device");
}

static work_t *make(const value_task_t *what) {
    value_t *value = work_new(what->waits ? &wait_ops : &write_ops, sizeof *value);
    if (value != NULL) {
        value->address = what->address;
        value->value = what->value;
        value->flag = what->flag;
    }
    return (work_t *)value;
}

work_t *value_work_new(const value_task_t *value) {
    return value->address != NULL && check(value) == ACL_SUCCESS ? make(value) : NULL;
}

static aclError enqueue(const value_task_t *what, aclrtStream stream) {
    if (what->address == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "devAddr");
    }
    SIM_GUARD();
    aclError rc = stream_check_handle(stream);
    rc = rc == ACL_SUCCESS ? check(what) : rc;
    work_t *work = rc == ACL_SUCCESS ? make(what) : NULL;
    if (rc == ACL_SUCCESS && work == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "devAddr");
    }
    return rc == ACL_SUCCESS ? work_enqueue_locked(stream, what->waits ? TASK_STEP : TASK_WORK, work) : rc;
}

aclError do_aclrtValueWrite(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
    value_task_t what = {.address = devAddr, .value = value, .flag = flag};
    return enqueue(&what, stream);
}

aclError do_aclrtValueWait(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
    value_task_t what = {.address = devAddr, .value = value, .flag = flag, .waits = true};
    return enqueue(&what, stream);
}
