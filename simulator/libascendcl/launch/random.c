/*
 * Random numbers. The generator is Philox 4x32 with ten rounds: a function of the seed and of a counter of 128
 * bits in device memory. Each task advances the counter by the number of blocks that it has used. So the same
 * seed and counter give the same numbers, and tasks that share a counter never repeat numbers.
 */
#include <math.h>
#include <string.h>

#include "number.h"
#include "work.h"

enum { ROUNDS = 10, LANES = 4, PINS = 8, COUNTER_BYTES = 16, VALUE_BYTES = 8, TRUNCATED_AT = 2 };

static const double two_pi = 6.283185307179586;

typedef struct {
    work_t work;
    aclrtRandomNumTaskInfo info;
    number_type_t type;
    void *pins[PINS];
    uint32_t pinned;
    uint64_t seed;
    uint64_t count;
    char first[VALUE_BYTES]; /* ratio, minimum or mean */
    char second[VALUE_BYTES];
} random_t;

typedef struct {
    uint32_t key[2];
    uint32_t counter[LANES];
    uint32_t block[LANES];
    uint32_t used;
} generator_t;

static void one_round(uint32_t *block, const uint32_t *key) {
    uint64_t left = (uint64_t)block[0] * 0xD2511F53U;
    uint64_t right = (uint64_t)block[2] * 0xCD9E8D57U;
    uint32_t next[LANES] = {(uint32_t)(right >> 32) ^ block[1] ^ key[0], (uint32_t)right,
                            (uint32_t)(left >> 32) ^ block[3] ^ key[1], (uint32_t)left};
    memcpy(block, next, sizeof next);
}

static void next_block(generator_t *generator) {
    uint32_t key[2] = {generator->key[0], generator->key[1]};
    memcpy(generator->block, generator->counter, sizeof generator->block);
    for (int i = 0; i < ROUNDS; i++) {
        one_round(generator->block, key);
        key[0] += 0x9E3779B9U;
        key[1] += 0xBB67AE85U;
    }
    for (int i = 0; i < LANES && ++generator->counter[i] == 0; i++) {
    }
    generator->used = 0;
}

static uint32_t next_word(generator_t *generator) {
    if (generator->used == LANES) {
        next_block(generator);
    }
    return generator->block[generator->used++];
}

static uint64_t next_long(generator_t *generator) {
    uint64_t high = next_word(generator);
    return high << 32 | next_word(generator);
}

/* Returns a number from 0 to below 1, with all bits of a double. */
static double next_unit(generator_t *generator) {
    return (double)(next_long(generator) >> 11) * 0x1p-53;
}

static double next_normal(generator_t *generator) {
    double radius = sqrt(-2 * log(1 - next_unit(generator)));
    return radius * cos(two_pi * next_unit(generator));
}

static double next_truncated(generator_t *generator) {
    double value = next_normal(generator);
    while (fabs(value) > TRUNCATED_AT) {
        value = next_normal(generator);
    }
    return value;
}

/* Each bit is set with probability 1 - ratio. A set bit keeps its element. */
static void make_bitmask(const random_t *random, generator_t *generator) {
    uint8_t *bytes = random->info.randomResultAddr;
    double ratio = number_read_real(random->type, random->first);
    for (uint64_t i = 0; i < random->count; i += 8) {
        unsigned int byte = 0;
        for (unsigned int bit = 0; bit < 8 && i + bit < random->count; bit++) {
            byte |= next_unit(generator) >= ratio ? 1U << bit : 0;
        }
        bytes[i / 8] = (uint8_t)byte;
    }
}

/* If rounding to the type moves the value to the end of its range, returns the beginning of the range
 * instead. */
static double bounded(number_type_t type, double value, double low, double high) {
    char rounded[VALUE_BYTES];
    number_write_real(type, rounded, value);
    return number_read_real(type, rounded) < high ? value : low;
}

static double next_real(const random_t *random, generator_t *generator) {
    double first = number_read_real(random->type, random->first);
    double second = number_read_real(random->type, random->second);
    switch ((int)random->info.randomNumFuncParaInfo.funcType) {
    case ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS:
        return bounded(random->type, first + next_unit(generator) * (second - first), first, second);
    case ACL_RT_RANDOM_NUM_FUNC_TYPE_NORMAL_DIS:
        return first + second * next_normal(generator);
    default:
        return first + second * next_truncated(generator);
    }
}

/* The range includes its beginning and excludes its end. An empty range gives the beginning. */
static uint64_t next_integer(const random_t *random, generator_t *generator) {
    uint64_t low = number_read_integer(random->type, random->first);
    uint64_t span = number_read_integer(random->type, random->second) - low;
    return span != 0 ? low + next_long(generator) % span : low;
}

static void make_numbers(const random_t *random, generator_t *generator) {
    char *to = random->info.randomResultAddr;
    for (uint64_t i = 0; i < random->count; i++, to += random->type.bytes) {
        if (number_is_real(random->type)) {
            number_write_real(random->type, to, next_real(random, generator));
        } else {
            number_write_integer(random->type, to, next_integer(random, generator));
        }
    }
}

static bool is_bitmask(const random_t *random) {
    return random->info.randomNumFuncParaInfo.funcType == ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK;
}

static aclError run(work_t *work, const stream_t *stream) {
    const random_t *random = (const random_t *)work;
    generator_t generator = {.key = {(uint32_t)random->seed, (uint32_t)(random->seed >> 32)}, .used = LANES};
    (void)stream;
    memcpy(generator.counter, random->info.randomCounterAddr, COUNTER_BYTES);
    if (is_bitmask(random)) {
        make_bitmask(random, &generator);
    } else {
        make_numbers(random, &generator);
    }
    memcpy(random->info.randomCounterAddr, generator.counter, COUNTER_BYTES);
    return 0;
}

static bool pin(random_t *random, const void *address, size_t size) {
    return memory_pin(address, size, &random->pins[random->pinned]) && ++random->pinned <= PINS;
}

/* Reads a parameter. A parameter is a value, or the address of a value, which is read when the task begins. */
static bool fetch(random_t *random, const aclrtRandomParaInfo *given, void *value) {
    const void *address = NULL;
    memset(value, 0, VALUE_BYTES);
    if (given->isAddr == 0) {
        memcpy(value, given->valueOrAddr, given->size);
        return true;
    }
    memcpy(&address, given->valueOrAddr, sizeof address);
    bool there = pin(random, address, given->size);
    if (there) {
        memcpy(value, address, given->size);
    }
    return there;
}

static bool fetch_all(random_t *random) {
    const aclrtRandomNumFuncParaInfo *given = &random->info.randomNumFuncParaInfo;
    bool there = fetch(random, &random->info.randomSeed, &random->seed) &&
                 fetch(random, &random->info.randomNum, &random->count);
    /* A bit mask has one parameter; the other kinds have two. All kinds store them at the same places. */
    there = there && fetch(random, &given->paramInfo.uniformDisInfo.min, random->first);
    return there && (is_bitmask(random) || fetch(random, &given->paramInfo.uniformDisInfo.max, random->second));
}

static aclError begin(work_t *work, const stream_t *stream) {
    random_t *random = (random_t *)work;
    (void)stream;
    bool there = fetch_all(random) && pin(random, random->info.randomCounterAddr, COUNTER_BYTES);
    if (!there || random->count > SIZE_MAX / 16) {
        return RT_TASK_ERROR;
    }
    uint64_t bytes = is_bitmask(random) ? (random->count + 7) / 8 : random->count * random->type.bytes;
    return pin(random, random->info.randomResultAddr, bytes) ? 0 : RT_TASK_ERROR;
}

static void end(work_t *work) {
    random_t *random = (random_t *)work;
    while (random->pinned > 0) {
        memory_unpin(random->pins[--random->pinned]);
    }
}

static const work_ops_t random_ops = {.begin = begin, .run = run, .end = end, .reports = true};

static bool fits(const aclrtRandomParaInfo *given) {
    return given->size > 0 && given->size <= VALUE_BYTES;
}

/* A real type has at most 32 bits. An integer type has 32 or 64 bits, and is only for the uniform distribution.
 */
static bool type_fits(number_type_t type, int function) {
    if (number_is_real(type)) {
        return type.bytes <= 4;
    }
    return function == ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS && type.bytes >= 4;
}

static bool parameters_fit(const aclrtRandomNumTaskInfo *info, uint32_t bytes) {
    const aclrtRandomNumFuncParaInfo *given = &info->randomNumFuncParaInfo;
    bool two = given->funcType != ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK;
    return fits(&info->randomSeed) && fits(&info->randomNum) &&
           given->paramInfo.uniformDisInfo.min.size == bytes &&
           (!two || given->paramInfo.uniformDisInfo.max.size == bytes);
}

static aclError check(const aclrtRandomNumTaskInfo *info, const void *reserve) {
    int function = (int)info->randomNumFuncParaInfo.funcType;
    number_type_t type = number_type(info->dataType);
    if (function < 0 || function > ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS) {
        return error_set(RT_PARAM_INVALID, "taskInfo: funcType");
    }
    if (!type_fits(type, function)) {
        return error_set(RT_PARAM_INVALID, "taskInfo: dataType");
    }
    if (info->randomResultAddr == NULL || info->randomCounterAddr == NULL || reserve != NULL) {
        return error_set(RT_PARAM_INVALID, reserve != NULL ? "reserve" : "taskInfo: address");
    }
    return parameters_fit(info, type.bytes) ? ACL_SUCCESS
                                            : error_set(RT_PARAM_INVALID, "taskInfo: size of a parameter");
}

static random_t *make(const aclrtRandomNumTaskInfo *info) {
    random_t *random = work_new(&random_ops, sizeof *random);
    if (random != NULL) {
        random->info = *info;
        random->type = number_type(info->dataType);
    }
    return random;
}

work_t *random_work_new(const aclrtRandomNumTaskInfo *info) {
    return check(info, NULL) == ACL_SUCCESS ? (work_t *)make(info) : NULL;
}

bool random_is(const task_t *task) {
    return task->kind == TASK_WORK && task->work->ops == &random_ops;
}

/* The simulator does not use the memory at randomParaAddr, in which a device stores the parameters. */
aclError do_aclrtRandomNumAsync(const aclrtRandomNumTaskInfo *taskInfo, const aclrtStream stream,
                                void *reserve) {
    REFUSE_NULL(taskInfo);
    aclError rc = check(taskInfo, reserve);
    return rc == ACL_SUCCESS ? work_enqueue(stream, TASK_WORK, (work_t *)make(taskInfo)) : rc;
}
