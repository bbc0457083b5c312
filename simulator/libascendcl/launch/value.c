/* Values in memory: tasks that write a value, and tasks that wait for a value. */
#include "work.h"

enum { WAIT_GREATER_OR_EQUAL, WAIT_EQUAL, WAIT_AND, WAIT_NOR, WAIT_FLAGS };

/* A waiting stream also checks its value at this interval, because a host thread may write to memory without a
 * call to the simulator. */
static const int64_t poll_ns = 1000000;

typedef struct {
    work_t work;
    uint64_t *address;
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

static aclError write_begin(work_t *work, const stream_t *stream) {
    value_t *value = (value_t *)work;
    (void)stream;
    return memory_pin(value->address, sizeof *value->address, &value->pinned) ? 0 : RT_TASK_ERROR;
}

static aclError write_run(work_t *work, const stream_t *stream) {
    const value_t *value = (const value_t *)work;
    (void)stream;
    __atomic_store_n(value->address, value->value, __ATOMIC_RELEASE);
    return 0;
}

static void write_end(work_t *work) {
    value_t *value = (value_t *)work;
    memory_unpin(value->pinned);
    value->pinned = NULL;
}

/* The device and the host may write to this address at any time. So sanitizers must not report this read as a
 * race. */
__attribute__((no_sanitize("thread"))) static bool holds(const value_t *value) {
    uint64_t now = *(const volatile uint64_t *)value->address;
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

/* Blocks are aligned, so all bytes of an aligned word are in the same block, and the check of the first byte is
 * enough. */
static bool readable(const void *address) {
    memory_t kind = memory_kind(address);
    return kind != MEMORY_STALE && kind != MEMORY_PAGEABLE;
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

static aclError check(const value_task_t *what) {
    uint32_t flags = what->waits ? WAIT_FLAGS : 1;
    if (what->address == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "devAddr");
    }
    if ((uintptr_t)what->address % sizeof(uint64_t) != 0) {
        return error_set(RT_PARAM_INVALID, "devAddr: it must be a multiple of 8");
    }
    return what->flag >= flags ? error_set(RT_PARAM_INVALID, "flag") : ACL_SUCCESS;
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
    return check(value) == ACL_SUCCESS ? make(value) : NULL;
}

static aclError enqueue(const value_task_t *what, aclrtStream stream) {
    aclError rc = check(what);
    return rc == ACL_SUCCESS ? work_enqueue(stream, what->waits ? TASK_STEP : TASK_WORK, make(what)) : rc;
}

aclError do_aclrtValueWrite(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
    value_task_t what = {.address = devAddr, .value = value, .flag = flag};
    return enqueue(&what, stream);
}

aclError do_aclrtValueWait(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
    value_task_t what = {.address = devAddr, .value = value, .flag = flag, .waits = true};
    return enqueue(&what, stream);
}
