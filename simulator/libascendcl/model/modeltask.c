/*
 * Executions on a stream: what happens when the stream reaches the task, and when the model's thread has
 * computed it. The task pins all memory before the computation, so that memory that the client frees meanwhile
 * stays valid.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "modelrun.h"

aclError model_run_fail(model_run_t *run, aclError code, const char *format, ...) {
    int length = snprintf(run->why, sizeof run->why, "model %u: ", run->model->id);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(run->why + length, sizeof run->why - (size_t)length, format, arguments);
    va_end(arguments);
    return code;
}

static uint64_t read_value(const char *bytes, size_t width, size_t index) {
    uint64_t value = 0;
    memcpy(&value, bytes + index * width, width);
    return value;
}

/* The input has one number of 4 or 8 bytes for each value of a gear. */
static bool find_gear(const gears_t *gears, const run_tensor_t *input, size_t *gear) {
    size_t width = input->size >= gears->width * sizeof(uint64_t) ? sizeof(uint64_t) : sizeof(uint32_t);
    for (*gear = 0; *gear < gears->count; ++*gear) {
        bool same = true;
        for (size_t i = 0; i < gears->width && same; i++) {
            same = read_value(input->data, width, i) == gears->values[*gear * gears->width + i];
        }
        if (same) {
            return true;
        }
    }
    return false;
}

static aclError set_gear_shapes(model_run_t *run, size_t gear) {
    const model_info_t *info = run->model->info;
    int64_t all[DESCRIBED_DIMS_MAX * 8];
    if (model_all_dims(info) > sizeof all / sizeof *all) {
        return model_run_fail(run, RT_MODEL_EXECUTE,
                              "the inputs have more dimensions than the simulator supports");
    }
    model_gear_dims(info, gear, all);
    const int64_t *at = all;
    for (size_t i = 0; i < run->input_count; i++) {
        size_t count = info->inputs.tensors[i].dims.count;
        if (!dims_set(&run->tensors[i].dims, at, count)) {
            return model_run_fail(run, RT_MEMORY_ALLOCATION, "no memory is left");
        }
        at += count;
    }
    return 0;
}

/* The device reads the gear when the stream reaches the task. A copy that is enqueued earlier can change it. */
static aclError choose_gear(model_run_t *run) {
    const gears_t *gears = &run->model->info->gears;
    size_t gear = 0;
    void *block = NULL;
    if (gears->kind == GEARS_NONE) {
        return 0;
    }
    if (run->gear.size < gears->width * sizeof(uint32_t) ||
        !memory_pin_for(run->gear.data, run->gear.size, MEMORY_READS, &block)) {
        return model_run_fail(run, RT_MODEL_EXECUTE,
                              "the input " MODEL_GEAR_INPUT " is not in live memory, or is too small");
    }
    bool found = find_gear(gears, &run->gear, &gear);
    memory_unpin(block);
    if (!found) {
        return model_run_fail(run, RT_MODEL_EXECUTE,
                              "the input " MODEL_GEAR_INPUT
                              " does not contain a gear; call aclmdlSetDynamicBatchSize, "
                              "aclmdlSetDynamicHWSize or aclmdlSetInputDynamicDims before each execution");
    }
    run->gear_index = gear;
    return set_gear_shapes(run, gear);
}

/* The bytes that the computation reads or writes. An output of unknown shape may use the whole buffer. */
static bool bytes_of(const run_tensor_t *tensor, uint64_t *bytes) {
    if (tensor->dims.values == NULL) {
        *bytes = tensor->size;
        return true;
    }
    return dims_bytes(tensor->dims.values, tensor->dims.count, tensor->type, bytes) && *bytes <= tensor->size;
}

static aclError pin(model_run_t *run, size_t index) {
    run_tensor_t *tensor = &run->tensors[index];
    bool input = index < run->input_count;
    const char *side = input ? "input" : "output";
    size_t number = input ? index : index - run->input_count;
    uint64_t bytes = 0;
    if (!bytes_of(tensor, &bytes)) {
        return model_run_fail(run, RT_MODEL_EXECUTE, "%s %zu needs %" PRIu64 " bytes, but its buffer has %zu",
                              side, number, bytes, tensor->size);
    }
    bool allocated_later = !input && tensor->data == NULL;
    if (bytes == 0 || allocated_later) {
        return 0;
    }
    if (!memory_pin_for(tensor->data, (size_t)bytes, input ? MEMORY_READS : MEMORY_WRITES, &tensor->pinned)) {
        return model_run_fail(run, RT_MODEL_EXECUTE,
                              "%s %zu, %" PRIu64 " bytes at %p, is not in live memory of a device", side,
                              number, bytes, tensor->data);
    }
    return 0;
}

static aclError prepare(model_run_t *run, const task_t *task) {
    thread_t *thread = thread_self();
    if (run->model->ended || run->model->stale) {
        return model_run_fail(run, RT_MODEL_EXECUTE, "it was unloaded before the stream reached the execution");
    }
    thread->on_behalf = task->tid;
    aclError code = choose_gear(run);
    for (size_t i = 0; i < run->input_count + run->output_count && code == 0; i++) {
        code = pin(run, i);
    }
    thread->on_behalf = 0;
    return code;
}

static void unpin(const model_run_t *run) {
    for (size_t i = 0; i < run->input_count + run->output_count; i++) {
        memory_unpin(run->tensors[i].pinned);
        run->tensors[i].pinned = NULL;
    }
}

/* The first dimension of the first input, if it is a batch. */
static uint64_t rows_of(const model_run_t *run) {
    const dims_t *dims = &run->tensors[0].dims;
    return run->input_count > 0 && dims->count > 0 && dims->values[0] > 0 ? (uint64_t)dims->values[0] : 1;
}

static uint64_t all_bytes(const model_run_t *run) {
    uint64_t sum = 0;
    for (size_t i = 0; i < run->input_count + run->output_count; i++) {
        uint64_t bytes = 0;
        sum += bytes_of(&run->tensors[i], &bytes) ? bytes : 0;
    }
    return sum;
}

/* Returns false if the model's thread has taken the execution. */
static bool begin(stream_t *stream, task_t *task, model_run_t *run) {
    task->code = prepare(run, task);
    if (task->code == 0) {
        run->began_ns = stream_free_ns(stream);
        run->due_ns = run->began_ns + model_cost_ns(rows_of(run), all_bytes(run));
        run->stream = stream;
        run->state = RUN_COMPUTING;
        stream_compute_begin(stream);
        if (model_thread_submit(run)) {
            return false;
        }
        stream_compute_end(stream);
        task->code = model_run_fail(run, RT_MEMORY_ALLOCATION, "its thread cannot be started");
    }
    unpin(run);
    return true;
}

void model_run_ended(model_run_t *run) {
    stream_t *stream = run->stream;
    unpin(run);
    run->state = RUN_ENDED;
    run->stream = NULL;
    value_may_have_changed();
    stream_compute_end(stream);
}

static bool step(stream_t *stream, task_t *task) {
    model_run_t *run = (model_run_t *)task->work;
    if (run->state == RUN_NEW) {
        return begin(stream, task, run);
    }
    if (run->code == 0 && run->due_ns > now_ns()) {
        run->waited = true;
        stream_park(stream, PARK_DUE, NULL, run->due_ns);
        return false;
    }
    stream->device->busy_ns += now_ns() - run->began_ns;
    task->code = run->code;
    run->model->executions += run->code == 0 ? 1 : 0;
    return true;
}

static void release(work_t *work) {
    model_run_free((model_run_t *)work);
}

const work_ops_t model_run_ops = {.step = step, .free = release, .reports = true};

const model_run_t *model_run_of(const task_t *task) {
    bool run = task->kind == TASK_STEP && task->work->ops == &model_run_ops;
    return run ? (const model_run_t *)task->work : NULL;
}

bool model_is_run(const task_t *task) {
    return model_run_of(task) != NULL;
}

int64_t model_end_ns(const task_t *task) {
    const model_run_t *run = model_run_of(task);
    return run != NULL && run->waited ? run->due_ns : 0;
}

const char *model_why(const task_t *task) {
    const model_run_t *run = model_run_of(task);
    return run != NULL ? run->why : "";
}

bool model_inner_ids(const task_t *task, uint32_t *stream, uint32_t *id) {
    const model_run_t *run = model_run_of(task);
    if (run != NULL) {
        *stream = run->inner_stream;
        *id = run->inner_task;
    }
    return run != NULL;
}
