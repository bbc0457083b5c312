/* CANN 8.1. The calls of the vendor's sample resnet50_async_imagenet_classification, in its order: a model in
 * memory of the program, a pool of inputs and outputs, executions in batches, and a thread that processes the
 * callback of each batch. `async MODEL`. The class of an input is its brightest tenth. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "acl/acl.h"
#include "aclsim.h"
#include "check.h"

enum { EXECUTIONS = 24, BATCH = 3, SLOTS = 6, PIXELS = 64, CLASSES = 10, PATIENCE_MS = 100 };

/* One input and one output. */
typedef struct slot {
    struct slot *next;
    int class;
    aclmdlDataset *input;
    aclmdlDataset *output;
} slot_t;

typedef struct {
    slot_t *slots[BATCH];
} batch_t;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    slot_t *first;
    slot_t slots[SLOTS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .freed = PTHREAD_COND_INITIALIZER};

static struct {
    aclrtContext context;
    aclrtStream stream;
    uint32_t id;
    void *work;
    void *weights;
    aclmdlDesc *desc;
} model;

static atomic_bool ending;
static pthread_t reporter;
static int seen[CLASSES];
static int batches;

static slot_t *take(void) {
    pthread_mutex_lock(&pool.lock);
    while (pool.first == NULL) {
        pthread_cond_wait(&pool.freed, &pool.lock);
    }
    slot_t *slot = pool.first;
    pool.first = slot->next;
    pthread_mutex_unlock(&pool.lock);
    return slot;
}

static void give(slot_t *slot) {
    pthread_mutex_lock(&pool.lock);
    slot->next = pool.first;
    pool.first = slot;
    pthread_cond_signal(&pool.freed);
    pthread_mutex_unlock(&pool.lock);
}

static void *picture(int class) {
    float *pixels = NULL;
    void *memory = NULL;
    size_t size = PIXELS * sizeof *pixels;
    WELL(aclrtMallocHost((void **)&pixels, size));
    for (int i = 0; i < PIXELS; i++) {
        pixels[i] = i * CLASSES / PIXELS == class ? 1.0F : 0.1F;
    }
    WELL(aclrtMalloc(&memory, size, ACL_MEM_MALLOC_NORMAL_ONLY));
    WELL(aclrtMemcpy(memory, size, pixels, size, ACL_MEMCPY_HOST_TO_DEVICE));
    WELL(aclrtFreeHost(pixels));
    return memory;
}

static aclmdlDataset *dataset_of(void *memory, size_t size) {
    aclmdlDataset *dataset = aclmdlCreateDataset();
    aclDataBuffer *buffer = aclCreateDataBuffer(memory, size);
    EXPECT(dataset != NULL && buffer != NULL);
    WELL(aclmdlAddDatasetBuffer(dataset, buffer));
    return dataset;
}

static void fill_pool(void) {
    size_t input_size = aclmdlGetInputSizeByIndex(model.desc, 0);
    size_t output_size = aclmdlGetOutputSizeByIndex(model.desc, 0);
    EXPECT(input_size == PIXELS * sizeof(float) && output_size == CLASSES * sizeof(float));
    EXPECT(aclmdlGetNumInputs(model.desc) == 1 && aclmdlGetNumOutputs(model.desc) == 1);
    for (int i = 0; i < SLOTS; i++) {
        slot_t *slot = &pool.slots[i];
        void *memory = NULL;
        slot->class = (i * 7 + 2) % CLASSES;
        slot->input = dataset_of(picture(slot->class), input_size);
        WELL(aclrtMalloc(&memory, output_size, ACL_MEM_MALLOC_NORMAL_ONLY));
        slot->output = dataset_of(memory, output_size);
        give(slot);
    }
}

static void destroy(aclmdlDataset *dataset) {
    for (size_t i = 0; i < aclmdlGetDatasetNumBuffers(dataset); i++) {
        aclDataBuffer *buffer = aclmdlGetDatasetBuffer(dataset, i);
        WELL(aclrtFree(aclGetDataBufferAddr(buffer)));
        WELL(aclDestroyDataBuffer(buffer));
    }
    WELL(aclmdlDestroyDataset(dataset));
}

static void empty_pool(void) {
    for (int i = 0; i < SLOTS; i++) {
        destroy(pool.slots[i].input);
        destroy(pool.slots[i].output);
    }
}

static int class_of(const aclmdlDataset *output) {
    float *scores = NULL;
    aclDataBuffer *buffer = aclmdlGetDatasetBuffer(output, 0);
    size_t size = aclGetDataBufferSizeV2(buffer);
    int best = 0;
    WELL(aclrtMallocHost((void **)&scores, size));
    WELL(aclrtMemcpy(scores, size, aclGetDataBufferAddr(buffer), size, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 1; i < CLASSES; i++) {
        best = scores[i] > scores[best] ? i : best;
    }
    WELL(aclrtFreeHost(scores));
    return best;
}

static void on_batch(void *argument) {
    batch_t *batch = argument;
    EXPECT(pthread_equal(pthread_self(), reporter));
    for (int i = 0; i < BATCH; i++) {
        slot_t *slot = batch->slots[i];
        int class = class_of(slot->output);
        EXPECT(class == slot->class);
        seen[class]++;
        give(slot);
    }
    batches++;
    free(batch);
}

static void *process(void *unused) {
    (void)unused;
    WELL(aclrtSetCurrentContext(model.context));
    while (!atomic_load(&ending)) {
        (void)aclrtProcessReport(PATIENCE_MS); /* returns a code if there was no report */
    }
    return NULL;
}

static void load(const char *path) {
    size_t work = 0;
    size_t weights = 0;
    WELL(aclmdlQuerySize(path, &work, &weights));
    WELL(aclrtMalloc(&model.work, work, ACL_MEM_MALLOC_HUGE_FIRST));
    WELL(aclrtMalloc(&model.weights, weights, ACL_MEM_MALLOC_HUGE_FIRST));
    WELL(aclmdlLoadFromFileWithMem(path, &model.id, model.work, work, model.weights, weights));
    model.desc = aclmdlCreateDesc();
    EXPECT(model.desc != NULL);
    WELL(aclmdlGetDesc(model.desc, model.id));
}

static void execute(void) {
    batch_t *batch = NULL;
    for (int i = 0; i < EXECUTIONS; i++) {
        slot_t *slot = take();
        batch = i % BATCH == 0 ? calloc(1, sizeof *batch) : batch;
        EXPECT(batch != NULL);
        batch->slots[i % BATCH] = slot;
        WELL(aclmdlExecuteAsync(model.id, slot->input, slot->output, model.stream));
        if (i % BATCH == BATCH - 1) {
            WELL(aclrtLaunchCallback(on_batch, batch, ACL_CALLBACK_BLOCK, model.stream));
        }
    }
}

static void run(void) {
    EXPECT(pthread_create(&reporter, NULL, process, NULL) == 0);
    WELL(aclrtSubscribeReport((uint64_t)reporter, model.stream));
    execute();
    WELL(aclrtSynchronizeStream(model.stream));
    atomic_store(&ending, true);
    EXPECT(pthread_join(reporter, NULL) == 0);
    WELL(aclrtUnSubscribeReport((uint64_t)reporter, model.stream));
    EXPECT(batches == EXECUTIONS / BATCH);
    int all = 0;
    for (int i = 0; i < CLASSES; i++) {
        all += seen[i];
    }
    EXPECT(all == EXECUTIONS);
}

static void unload(void) {
    WELL(aclmdlUnload(model.id));
    WELL(aclmdlDestroyDesc(model.desc));
    WELL(aclrtFree(model.work));
    WELL(aclrtFree(model.weights));
}

static void check_usage(void) {
    char text[256];
    aclsim_stats_t stats;
    if (aclsim_violation(0, text, sizeof text) >= 0) {
        fprintf(stderr, "expected no violation, got: %s\n", text);
        exit(1);
    }
    aclsim_stats(&stats);
    EXPECT(stats.offline_models == 0 && stats.descriptions == 0 && stats.device_blocks == 0);
    EXPECT(stats.host_blocks == 0 && stats.streams == 0 && stats.contexts == 0);
}

int main(int argc, char **argv) {
    aclrtRunMode mode;
    EXPECT(argc == 2);
    WELL(aclInit(NULL));
    WELL(aclrtSetDevice(0));
    WELL(aclrtCreateContext(&model.context, 0));
    WELL(aclrtCreateStream(&model.stream));
    WELL(aclrtGetRunMode(&mode));
    EXPECT(mode == ACL_HOST);
    load(argv[1]);
    fill_pool();
    run();
    unload();
    empty_pool();
    WELL(aclrtDestroyStream(model.stream));
    WELL(aclrtDestroyContext(model.context));
    WELL(aclrtResetDevice(0));
    WELL(aclFinalize());
    check_usage();
    return 0;
}
