/* Reductions: each element of the destination is combined with the element at the same place in the source. */
#include "number.h"
#include "work.h"

typedef struct {
    work_t work;
    char *dst;
    const char *src;
    size_t bytes;
    aclrtReduceKind kind;
    number_type_t type;
    void *pinned_dst;
    void *pinned_src;
} reduce_t;

static aclError begin(work_t *work, const stream_t *stream) {
    reduce_t *reduce = (reduce_t *)work;
    (void)stream;
    bool there = memory_pin(reduce->dst, reduce->bytes, &reduce->pinned_dst) &&
                 memory_pin(reduce->src, reduce->bytes, &reduce->pinned_src);
    return there ? 0 : RT_TASK_ERROR;
}

static void end(work_t *work) {
    reduce_t *reduce = (reduce_t *)work;
    memory_unpin(reduce->pinned_dst);
    memory_unpin(reduce->pinned_src);
    reduce->pinned_dst = NULL;
    reduce->pinned_src = NULL;
}

static double real_of(aclrtReduceKind kind, double left, double right) {
    switch ((int)kind) {
    case ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM:
        return left + right;
    case ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX:
        return left > right ? left : right;
    case ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN:
        return left < right ? left : right;
    default:
        return left == right ? 1 : 0;
    }
}

static bool is_less(number_type_t type, uint64_t left, uint64_t right) {
    return type.kind == NUMBER_SIGNED ? (int64_t)left < (int64_t)right : left < right;
}

/* Sums wrap around. */
static uint64_t integer_of(const reduce_t *reduce, uint64_t left, uint64_t right) {
    switch ((int)reduce->kind) {
    case ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM:
        return left + right;
    case ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX:
        return is_less(reduce->type, left, right) ? right : left;
    case ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN:
        return is_less(reduce->type, left, right) ? left : right;
    default:
        return left == right ? 1 : 0;
    }
}

static aclError run(work_t *work, const stream_t *stream) {
    const reduce_t *reduce = (const reduce_t *)work;
    number_type_t type = reduce->type;
    (void)stream;
    for (size_t i = 0; i + type.bytes <= reduce->bytes; i += type.bytes) {
        char *to = reduce->dst + i;
        const char *from = reduce->src + i;
        if (number_is_real(type)) {
            double value = real_of(reduce->kind, number_read_real(type, to), number_read_real(type, from));
            number_write_real(type, to, value);
        } else {
            uint64_t left = number_read_integer(type, to);
            number_write_integer(type, to, integer_of(reduce, left, number_read_integer(type, from)));
        }
    }
    return 0;
}

static const work_ops_t reduce_ops = {.begin = begin, .run = run, .end = end, .reports = true};

/* The types that the ACL layer passes on. */
static bool is_passed(aclDataType type) {
    switch ((int)type) {
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_DOUBLE:
        return false;
    default:
        return type == ACL_INT4 || number_type(type).kind != NUMBER_NONE;
    }
}

static aclError check_first(const reduce_t *reduce, aclDataType type, const void *reserve) {
    if (reduce->dst == NULL || reduce->src == NULL) {
        return error_quiet(ACL_INVALID_PARAM, reduce->dst == NULL ? "dst" : "src");
    }
    bool refused = reserve != NULL || !is_passed(type);
    return refused ? error_quiet(ACL_INVALID_PARAM, reserve != NULL ? "reserve" : "type") : ACL_SUCCESS;
}

static aclError check(const reduce_t *reduce) {
    int kind = (int)reduce->kind;
    bool known = kind >= ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM && kind <= ACL_RT_MEMCPY_SDMA_AUTOMATIC_EQUAL;
    if (!known || reduce->bytes == 0) {
        return error_set(RT_PARAM_INVALID, known ? "count" : "kind");
    }
    return ACL_SUCCESS;
}

/* The chip does not reduce numbers of 4 bits. This is checked after the context and the stream. */
static aclError refuse_type(aclrtStream stream) {
    stream_t *found = NULL;
    aclError rc = stream_need_own(stream, &found);
    return rc == ACL_SUCCESS ? error_set(RT_FEATURE_NOT_SUPPORT, "type") : rc;
}

static aclError enqueue(const reduce_t *what, aclrtStream stream) {
    reduce_t *reduce = work_new(&reduce_ops, sizeof *reduce);
    if (reduce == NULL) {
        return error_set(RT_MEMORY_ALLOCATION, "count");
    }
    work_t work = reduce->work;
    *reduce = *what;
    reduce->work = work;
    return work_enqueue_locked(stream, TASK_WORK, &reduce->work);
}

/* Bytes at the end that are not a whole number stay as they are. */
aclError do_aclrtReduceAsync(void *dst, const void *src, uint64_t count, aclrtReduceKind kind, aclDataType type,
                             aclrtStream stream, void *reserve) {
    reduce_t what = {.dst = dst, .src = src, .bytes = count, .kind = kind, .type = number_type(type)};
    aclError rc = check_first(&what, type, reserve);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    SIM_GUARD();
    rc = stream_check_handle(stream);
    rc = rc == ACL_SUCCESS ? check(&what) : rc;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    return what.type.kind != NUMBER_NONE ? enqueue(&what, stream) : refuse_type(stream);
}
