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
    for (size_t i = 0; i < reduce->bytes; i += type.bytes) {
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

static aclError check(const reduce_t *reduce, const void *reserve) {
    if (reduce->dst == NULL || reduce->src == NULL) {
        return error_quiet(ACL_INVALID_PARAM, reduce->dst == NULL ? "dst" : "src");
    }
    int kind = (int)reduce->kind;
    if (kind < ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM || kind > ACL_RT_MEMCPY_SDMA_AUTOMATIC_EQUAL) {
        return error_set(RT_PARAM_INVALID, "kind");
    }
    if (reduce->type.kind == NUMBER_NONE || reserve != NULL) {
        return error_set(RT_PARAM_INVALID, reserve != NULL ? "reserve" : "type");
    }
    bool whole = reduce->bytes != 0 && reduce->bytes % reduce->type.bytes == 0;
    return whole ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "count: it is not a whole number of elements");
}

aclError do_aclrtReduceAsync(void *dst, const void *src, uint64_t count, aclrtReduceKind kind, aclDataType type,
                             aclrtStream stream, void *reserve) {
    reduce_t what = {.dst = dst, .src = src, .bytes = count, .kind = kind, .type = number_type(type)};
    aclError rc = check(&what, reserve);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    reduce_t *reduce = work_new(&reduce_ops, sizeof *reduce);
    if (reduce != NULL) {
        what.work = reduce->work;
        *reduce = what;
    }
    return work_enqueue(stream, TASK_WORK, (work_t *)reduce);
}
