/* The arguments of calls about models: those that the graph engine refuses, and calls that the simulator
 * refuses as unsupported after it has checked their arguments. */
#include "model_test.h"

enum { UNSUPPORTED = 207000, NO_BUNDLE = 148053 };

static aclError set_int(aclmdlConfigHandle *config, aclmdlConfigAttr attr, int32_t value, size_t size) {
    return aclmdlSetConfigOpt(config, attr, &value, size);
}

static aclError set_size(aclmdlConfigHandle *config, aclmdlConfigAttr attr, size_t value) {
    CHECK_RC(aclmdlSetConfigOpt(config, attr, &value, sizeof(int32_t)), NO);
    return aclmdlSetConfigOpt(config, attr, &value, sizeof value);
}

static aclError set_pointer(aclmdlConfigHandle *config, aclmdlConfigAttr attr, const void *value) {
    CHECK_RC(aclmdlSetConfigOpt(config, attr, &value, sizeof(int32_t)), NO);
    return aclmdlSetConfigOpt(config, attr, &value, sizeof value);
}

static void test_options_of_a_load(void) {
    static const aclmdlConfigAttr numbers[] = {ACL_MDL_PRIORITY_INT32, ACL_MDL_WITHOUT_GRAPH_INT32};
    static const int32_t most[] = {7, 1};
    static const aclmdlConfigAttr sizes[] = {ACL_MDL_MEM_SIZET, ACL_MDL_WEIGHT_SIZET, ACL_MDL_WORKSPACE_SIZET,
                                             ACL_MDL_INPUTQ_NUM_SIZET, ACL_MDL_OUTPUTQ_NUM_SIZET};
    static const aclmdlConfigAttr needed[] = {ACL_MDL_PATH_PTR, ACL_MDL_MEM_ADDR_PTR, ACL_MDL_INPUTQ_ADDR_PTR,
                                              ACL_MDL_OUTPUTQ_ADDR_PTR, ACL_MDL_WEIGHT_PATH_PTR};
    static const aclmdlConfigAttr addresses[] = {ACL_MDL_WEIGHT_ADDR_PTR, ACL_MDL_WORKSPACE_ADDR_PTR};
    static const aclmdlConfigAttr others[] = {ACL_MDL_MODEL_DESC_PTR, ACL_MDL_FIFO_SIZET, ACL_NPU_PERF_MODE,
                                              ACL_MDL_RESERVED};
    const size_t value = 1;
    aclmdlConfigHandle *config = aclmdlCreateConfigHandle();
    for (size_t i = 0; i < 2; i++) {
        CHECK_RC(set_int(config, numbers[i], 0, sizeof(int32_t)), 0);
        CHECK_RC(set_int(config, numbers[i], most[i], sizeof(int32_t)), 0);
        CHECK_RC(set_int(config, numbers[i], most[i] + 1, sizeof(int32_t)), NO);
        CHECK_RC(set_int(config, numbers[i], -1, sizeof(int32_t)), NO);
        CHECK_RC(aclmdlSetConfigOpt(config, numbers[i], &value, sizeof value), NO);
    }
    for (size_t type = 1; type <= 6; type++) {
        CHECK_RC(set_size(config, ACL_MDL_LOAD_TYPE_SIZET, type), 0);
    }
    CHECK_RC(set_size(config, ACL_MDL_LOAD_TYPE_SIZET, 0), NO);
    CHECK_RC(set_size(config, ACL_MDL_LOAD_TYPE_SIZET, 7), NO);
    CHECK_RC(set_size(config, ACL_MDL_LOAD_TYPE_SIZET, SIZE_MAX), NO);
    CHECK_RC(set_size(config, ACL_MDL_WORKSPACE_MEM_OPTIMIZE, 1), 0);
    CHECK_RC(set_size(config, ACL_MDL_WORKSPACE_MEM_OPTIMIZE, 2), NO);
    for (size_t i = 0; i < 5; i++) {
        CHECK_RC(set_size(config, sizes[i], SIZE_MAX), 0);
        CHECK_RC(set_pointer(config, needed[i], NULL), NO);
        CHECK_RC(set_pointer(config, needed[i], "text"), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        CHECK_RC(set_pointer(config, addresses[i], NULL), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        CHECK_RC(aclmdlSetConfigOpt(config, others[i], &value, sizeof value), NO);
        CHECK_RC(aclmdlSetConfigOpt(config, others[i], &value, sizeof(int32_t)), NO);
    }
    CHECK_RC(aclmdlSetConfigOpt(config, ACL_MDL_MEM_SIZET, NULL, sizeof value), NO);
    CHECK_RC(aclmdlSetConfigOpt(NULL, ACL_MDL_MEM_SIZET, &value, sizeof value), NO);
    CHECK_RC(aclmdlDestroyConfigHandle(config), 0);
}

static void test_options_of_an_execution(void) {
    const size_t value = 1;
    aclmdlExecConfigHandle *config = aclmdlCreateExecConfigHandle();
    for (unsigned attr = ACL_MDL_STREAM_SYNC_TIMEOUT; attr <= ACL_MDL_NPU_PERF_MODE + 1; attr++) {
        bool known = attr <= ACL_MDL_EVENT_SYNC_TIMEOUT;
        for (int32_t timeout = -2; timeout < 1; timeout++) {
            aclError want = known && timeout >= -1 ? 0 : NO;
            CHECK_RC(aclmdlSetExecConfigOpt(config, (aclmdlExecConfigAttr)attr, &timeout, sizeof timeout),
                     want);
        }
        CHECK_RC(aclmdlSetExecConfigOpt(config, (aclmdlExecConfigAttr)attr, &value, sizeof value), NO);
        CHECK_RC(aclmdlSetExecConfigOpt(config, (aclmdlExecConfigAttr)attr, NULL, sizeof(int32_t)), NO);
    }
    CHECK_RC(aclmdlSetExecConfigOpt(NULL, ACL_MDL_STREAM_SYNC_TIMEOUT, &value, sizeof(int32_t)), NO);
    CHECK_RC(aclmdlDestroyExecConfigHandle(config), 0);
}

static void test_options_that_exclude_each_other(void) {
    static bytes_t file;
    uint32_t model = 0;
    put_dynamic(&file, "model");
    aclmdlConfigHandle *config = aclmdlCreateConfigHandle();
    CHECK_RC(aclmdlLoadWithConfig(config, &model), NO);
    CHECK_RC(set_size(config, ACL_MDL_LOAD_TYPE_SIZET, 3), 0);
    CHECK_RC(set_pointer(config, ACL_MDL_MEM_ADDR_PTR, file.bytes), 0);
    CHECK_RC(aclmdlLoadWithConfig(config, &model), NO);
    CHECK_RC(set_size(config, ACL_MDL_MEM_SIZET, file.size), 0);
    CHECK_RC(aclmdlLoadWithConfig(config, &model), 0);
    CHECK_RC(aclmdlUnload(model), 0);
    CHECK_RC(set_int(config, ACL_MDL_WITHOUT_GRAPH_INT32, 0, sizeof(int32_t)), 0);
    CHECK_RC(aclmdlLoadWithConfig(config, &model), NO); /* the model is dynamic */
    CHECK_RC(set_size(config, ACL_MDL_LOAD_TYPE_SIZET, 1), 0);
    CHECK_RC(set_pointer(config, ACL_MDL_PATH_PTR, "/missing.om"), 0);
    CHECK_RC(aclmdlLoadWithConfig(config, &model), 145002);
    CHECK_RC(set_pointer(config, ACL_MDL_WEIGHT_PATH_PTR, "weights"), 0);
    CHECK_RC(aclmdlLoadWithConfig(config, &model), NO);
    CHECK_RC(aclmdlDestroyConfigHandle(config), 0);
}

static void test_queues(void) {
    const uint32_t queues[] = {1, 2};
    const char bytes[] = "model";
    uint32_t model = 0;
    CHECK_RC(aclmdlLoadFromFileWithQ("a.om", &model, NULL, 1, queues, 1), NO);
    CHECK_RC(aclmdlLoadFromFileWithQ("a.om", &model, queues, 0, queues, 1), NO);
    CHECK_RC(aclmdlLoadFromFileWithQ("a.om", &model, queues, 1, NULL, 1), NO);
    CHECK_RC(aclmdlLoadFromFileWithQ("a.om", &model, queues, 1, queues, 0), NO);
    CHECK_RC(aclmdlLoadFromFileWithQ(NULL, &model, queues, 1, queues, 1), NO);
    CHECK_RC(aclmdlLoadFromFileWithQ("a.om", NULL, queues, 1, queues, 1), NO);
    CHECK_RC(aclmdlLoadFromFileWithQ("a.om", &model, queues, 1, queues, 1), UNSUPPORTED);
    CHECK_RC(aclmdlLoadFromMemWithQ(bytes, 5, &model, queues, 0, queues, 1), NO);
    CHECK_RC(aclmdlLoadFromMemWithQ(NULL, 5, &model, queues, 1, queues, 1), NO);
    CHECK_RC(aclmdlLoadFromMemWithQ(bytes, 0, &model, queues, 1, queues, 1), NO);
    CHECK_RC(aclmdlLoadFromMemWithQ(bytes, 5, NULL, queues, 1, queues, 1), NO);
    CHECK_RC(aclmdlLoadFromMemWithQ(bytes, 5, &model, queues, 1, queues, 1), UNSUPPORTED);
    aclmdlConfigHandle *config = aclmdlCreateConfigHandle();
    CHECK_RC(set_size(config, ACL_MDL_LOAD_TYPE_SIZET, 6), 0);
    CHECK_RC(set_pointer(config, ACL_MDL_INPUTQ_ADDR_PTR, queues), 0);
    CHECK_RC(set_size(config, ACL_MDL_INPUTQ_NUM_SIZET, 2), 0);
    CHECK_RC(set_pointer(config, ACL_MDL_OUTPUTQ_ADDR_PTR, queues), 0);
    CHECK_RC(set_size(config, ACL_MDL_OUTPUTQ_NUM_SIZET, 1), 0);
    CHECK_RC(aclmdlLoadWithConfig(config, &model), NO); /* there is no model */
    CHECK_RC(set_pointer(config, ACL_MDL_MEM_ADDR_PTR, bytes), 0);
    CHECK_RC(set_size(config, ACL_MDL_MEM_SIZET, 5), 0);
    CHECK_RC(aclmdlLoadWithConfig(config, &model), UNSUPPORTED);
    CHECK_RC(set_size(config, ACL_MDL_OUTPUTQ_NUM_SIZET, 0), 0);
    CHECK_RC(aclmdlLoadWithConfig(config, &model), NO);
    CHECK_RC(aclmdlDestroyConfigHandle(config), 0);
}

static void test_external_weights(void) {
    aclmdlConfigHandle *config = aclmdlCreateConfigHandle();
    void *block = new_block(64);
    CHECK_RC(aclmdlSetExternalWeightAddress(NULL, "w", block, 64), NO);
    CHECK_RC(aclmdlSetExternalWeightAddress(config, NULL, block, 64), NO);
    CHECK_RC(aclmdlSetExternalWeightAddress(config, "w", NULL, 64), NO);
    CHECK_RC(aclmdlSetExternalWeightAddress(config, "w", block, 0), NO);
    CHECK_RC(aclmdlSetExternalWeightAddress(config, "w", block, 63), NO);
    CHECK_RC(aclmdlSetExternalWeightAddress(config, "w", block, 64), UNSUPPORTED);
    CHECK_RC(aclmdlDestroyConfigHandle(config), 0);
    END_BLOCKS(block);
}

/* Bundles that are read are refused as unsupported. No bundle has an id. */
static void test_bundles(void) {
    static const char bytes[260];
    aclmdlBundleQueryInfo *info = (aclmdlBundleQueryInfo *)(uintptr_t)bytes; /* only its address is checked */
    uint32_t id = 0;
    size_t size = 0;
    CHECK_RC(aclmdlBundleLoadFromFile(NULL, &id), NO);
    CHECK_RC(aclmdlBundleLoadFromFile("a.om", NULL), NO);
    CHECK_RC(aclmdlBundleLoadFromFile("a.om", &id), UNSUPPORTED);
    CHECK_RC(aclmdlBundleLoadFromMem(NULL, 260, &id), NO);
    CHECK_RC(aclmdlBundleLoadFromMem(bytes, 260, NULL), NO);
    CHECK_RC(aclmdlBundleLoadFromMem(bytes, 0, &id), NO);
    CHECK_RC(aclmdlBundleLoadFromMem(bytes, 259, &id), NO);
    CHECK_RC(aclmdlBundleLoadFromMem(bytes, 260, &id), UNSUPPORTED);
    CHECK_RC(aclmdlBundleInitFromFile(NULL, NULL, 0, &id), NO);
    CHECK_RC(aclmdlBundleInitFromFile("a.om", NULL, 0, NULL), NO);
    CHECK_RC(aclmdlBundleInitFromFile("a.om", NULL, 0, &id), UNSUPPORTED);
    CHECK_RC(aclmdlBundleInitFromMem(NULL, 260, NULL, 0, &id), NO);
    CHECK_RC(aclmdlBundleInitFromMem(bytes, 259, NULL, 0, &id), NO);
    CHECK_RC(aclmdlBundleInitFromMem(bytes, 260, NULL, 0, NULL), NO);
    CHECK_RC(aclmdlBundleInitFromMem(bytes, 260, NULL, 0, &id), UNSUPPORTED);
    CHECK_RC(aclmdlBundleUnload(1), NO_BUNDLE);
    CHECK_RC(aclmdlBundleGetModelNum(1, NULL), NO);
    CHECK_RC(aclmdlBundleGetModelNum(1, &size), NO_BUNDLE);
    CHECK_RC(aclmdlBundleGetModelId(1, 0, NULL), NO);
    CHECK_RC(aclmdlBundleGetModelId(1, 0, &id), NO_BUNDLE);
    CHECK_RC(aclmdlBundleLoadModel(1, 0, NULL), NO);
    CHECK_RC(aclmdlBundleLoadModel(1, 0, &id), NO_BUNDLE);
    CHECK_RC(aclmdlBundleLoadModelWithMem(1, 0, NULL, 0, NULL, 0, NULL), NO);
    CHECK_RC(aclmdlBundleLoadModelWithMem(1, 0, NULL, 0, NULL, 0, &id), NO_BUNDLE);
    CHECK_RC(aclmdlBundleUnloadModel(1, 1), NO_BUNDLE);
    aclmdlConfigHandle *config = aclmdlCreateConfigHandle();
    CHECK_RC(aclmdlBundleLoadModelWithConfig(1, 0, NULL, &id), NO);
    CHECK_RC(aclmdlBundleLoadModelWithConfig(1, 0, config, NULL), NO);
    CHECK_RC(aclmdlBundleLoadModelWithConfig(1, 0, config, &id), NO_BUNDLE);
    CHECK_RC(aclmdlDestroyConfigHandle(config), 0);
    CHECK_RC(aclmdlBundleDestroyQueryInfo(NULL), NO);
    CHECK_RC(aclmdlBundleQueryInfoFromFile(NULL, info), NO);
    CHECK_RC(aclmdlBundleQueryInfoFromFile("a.om", NULL), NO);
    CHECK_RC(aclmdlBundleQueryInfoFromFile("a.om", info), UNSUPPORTED);
    CHECK_RC(aclmdlBundleQueryInfoFromMem(NULL, 260, info), NO);
    CHECK_RC(aclmdlBundleQueryInfoFromMem(bytes, 260, NULL), NO);
    CHECK_RC(aclmdlBundleQueryInfoFromMem(bytes, 259, info), NO);
    CHECK_RC(aclmdlBundleQueryInfoFromMem(bytes, 260, info), UNSUPPORTED);
    CHECK_RC(aclmdlBundleGetQueryModelNum(NULL, &size), NO);
    CHECK_RC(aclmdlBundleGetQueryModelNum(info, NULL), NO);
    CHECK_RC(aclmdlBundleGetVarWeightSize(NULL, &size), NO);
    CHECK_RC(aclmdlBundleGetVarWeightSize(info, NULL), NO);
    CHECK_RC(aclmdlBundleGetSize(NULL, 0, &size, &size), NO);
    CHECK_RC(aclmdlBundleGetSize(info, 0, NULL, &size), NO);
    CHECK_RC(aclmdlBundleGetSize(info, 0, &size, NULL), NO);
    CHECK_RC(aclmdlBundleGetSize(info, 0, &size, &size), UNSUPPORTED);
}

static aclError set_matrix(aclmdlAIPP *aipp, int8_t on, int16_t first, int16_t last) {
    return aclmdlSetAIPPCscParams(aipp, on, first, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, 0, 0, 0);
}

/* Values outside of their range are refused before the functions are. */
static void test_preprocessing_parameters(void) {
    static char place;
    aclmdlAIPP *aipp = (aclmdlAIPP *)(void *)&place; /* only its address is checked */
    size_t size = 0;
    CHECK(aclmdlCreateAIPP(0) == NULL && aclmdlCreateAIPP(1) == NULL);
    CHECK_RC(aclmdlDestroyAIPP(NULL), NO);
    CHECK_RC(aclmdlGetAippDataSize(1, NULL), NO);
    CHECK_RC(aclmdlGetAippDataSize(0, &size), NO);
    CHECK_RC(aclmdlGetAippDataSize(1, &size), UNSUPPORTED);
    CHECK_RC(aclmdlSetAIPPInputFormat(NULL, ACL_RGB888_U8), NO);
    CHECK_RC(aclmdlSetAIPPInputFormat(aipp, (aclAippInputFormat)0), NO);
    CHECK_RC(aclmdlSetAIPPInputFormat(aipp, (aclAippInputFormat)15), NO);
    CHECK_RC(aclmdlSetAIPPInputFormat(aipp, ACL_RAW24), UNSUPPORTED);
    CHECK_RC(set_matrix(NULL, 1, 0, 0), NO);
    CHECK_RC(set_matrix(aipp, 2, 0, 0), NO);
    CHECK_RC(set_matrix(aipp, 1, -32678, 0), NO);
    CHECK_RC(set_matrix(aipp, 1, 0, 32677), NO);
    CHECK_RC(set_matrix(aipp, 1, -32677, 32676), UNSUPPORTED);
    CHECK_RC(set_matrix(aipp, 0, -32678, 32677), UNSUPPORTED); /* the switch is off */
    CHECK_RC(aclmdlSetAIPPRbuvSwapSwitch(NULL, 1), NO);
    CHECK_RC(aclmdlSetAIPPRbuvSwapSwitch(aipp, -1), NO);
    CHECK_RC(aclmdlSetAIPPRbuvSwapSwitch(aipp, 1), UNSUPPORTED);
    CHECK_RC(aclmdlSetAIPPAxSwapSwitch(NULL, 1), NO);
    CHECK_RC(aclmdlSetAIPPAxSwapSwitch(aipp, 2), NO);
    CHECK_RC(aclmdlSetAIPPAxSwapSwitch(aipp, 0), UNSUPPORTED);
    CHECK_RC(aclmdlSetAIPPSrcImageSize(NULL, 2, 1), NO);
    CHECK_RC(aclmdlSetAIPPSrcImageSize(aipp, 1, 1), NO);
    CHECK_RC(aclmdlSetAIPPSrcImageSize(aipp, 2, 0), NO);
    CHECK_RC(aclmdlSetAIPPSrcImageSize(aipp, 4097, 1), NO);
    CHECK_RC(aclmdlSetAIPPSrcImageSize(aipp, 2, 4097), NO);
    CHECK_RC(aclmdlSetAIPPSrcImageSize(aipp, 4096, 4096), UNSUPPORTED);
}

static void test_preprocessing_of_batches(void) {
    static char place;
    aclmdlAIPP *aipp = (aclmdlAIPP *)(void *)&place;
    CHECK_RC(aclmdlSetAIPPScfParams(NULL, 1, 16, 16, 16, 16, 0), NO);
    CHECK_RC(aclmdlSetAIPPScfParams(aipp, 2, 16, 16, 16, 16, 0), NO);
    CHECK_RC(aclmdlSetAIPPScfParams(aipp, 1, 15, 16, 16, 16, 0), NO);
    CHECK_RC(aclmdlSetAIPPScfParams(aipp, 1, 16, 4097, 16, 16, 0), NO);
    CHECK_RC(aclmdlSetAIPPScfParams(aipp, 1, 16, 16, 1921, 16, 0), NO);
    CHECK_RC(aclmdlSetAIPPScfParams(aipp, 1, 16, 16, 16, 15, 0), NO);
    CHECK_RC(aclmdlSetAIPPScfParams(aipp, 1, 4096, 4096, 1920, 4096, 0), UNSUPPORTED);
    CHECK_RC(aclmdlSetAIPPScfParams(aipp, 0, 0, 0, 0, 0, 0), UNSUPPORTED);
    CHECK_RC(aclmdlSetAIPPCropParams(NULL, 1, 0, 0, 1, 1, 0), NO);
    CHECK_RC(aclmdlSetAIPPCropParams(aipp, -1, 0, 0, 1, 1, 0), NO);
    CHECK_RC(aclmdlSetAIPPCropParams(aipp, 1, -1, 0, 1, 1, 0), NO);
    CHECK_RC(aclmdlSetAIPPCropParams(aipp, 1, 0, 4096, 1, 1, 0), NO);
    CHECK_RC(aclmdlSetAIPPCropParams(aipp, 1, 0, 0, 0, 1, 0), NO);
    CHECK_RC(aclmdlSetAIPPCropParams(aipp, 1, 0, 0, 1, 4097, 0), NO);
    CHECK_RC(aclmdlSetAIPPCropParams(aipp, 1, 4095, 4095, 4096, 4096, 0), UNSUPPORTED);
    CHECK_RC(aclmdlSetAIPPPaddingParams(NULL, 1, 0, 0, 0, 0, 0), NO);
    CHECK_RC(aclmdlSetAIPPPaddingParams(aipp, 2, 0, 0, 0, 0, 0), NO);
    CHECK_RC(aclmdlSetAIPPPaddingParams(aipp, 1, -1, 0, 0, 0, 0), NO);
    CHECK_RC(aclmdlSetAIPPPaddingParams(aipp, 1, 0, 0, 0, 33, 0), NO);
    CHECK_RC(aclmdlSetAIPPPaddingParams(aipp, 1, 32, 32, 32, 32, 0), UNSUPPORTED);
    CHECK_RC(aclmdlSetAIPPDtcPixelMean(NULL, 0, 0, 0, 0, 0), NO);
    CHECK_RC(aclmdlSetAIPPDtcPixelMean(aipp, -1, 0, 0, 0, 0), NO);
    CHECK_RC(aclmdlSetAIPPDtcPixelMean(aipp, 0, 0, 0, 256, 0), NO);
    CHECK_RC(aclmdlSetAIPPDtcPixelMean(aipp, 255, 255, 255, 255, 0), UNSUPPORTED);
    CHECK_RC(aclmdlSetAIPPDtcPixelMin(NULL, 0, 0, 0, 0, 0), NO);
    CHECK_RC(aclmdlSetAIPPDtcPixelMin(aipp, -0.5F, 0, 0, 0, 0), NO);
    CHECK_RC(aclmdlSetAIPPDtcPixelMin(aipp, 0, 0, 0, 255.5F, 0), NO);
    CHECK_RC(aclmdlSetAIPPDtcPixelMin(aipp, 255, 255, 255, 255, 0), UNSUPPORTED);
    CHECK_RC(aclmdlSetAIPPPixelVarReci(NULL, 0, 0, 0, 0, 0), NO);
    CHECK_RC(aclmdlSetAIPPPixelVarReci(aipp, -65505, 0, 0, 0, 0), NO);
    CHECK_RC(aclmdlSetAIPPPixelVarReci(aipp, 0, 0, 0, 65505, 0), NO);
    CHECK_RC(aclmdlSetAIPPPixelVarReci(aipp, -65504, 65504, 0, 0, 0), UNSUPPORTED);
}

/* A model without preprocessing has no input for its parameters. */
static void test_preprocessing_of_a_model_without_it(void) {
    static char place;
    aclmdlAIPP *aipp = (aclmdlAIPP *)(void *)&place;
    uint32_t model = load_plain();
    aclmdlDataset *dataset = dataset_of(NULL, 0);
    CHECK_RC(aclmdlSetInputAIPP(model, NULL, 0, aipp), NO);
    CHECK_RC(aclmdlSetInputAIPP(model, dataset, 0, NULL), NO);
    CHECK_RC(aclmdlSetInputAIPP(model + 1, dataset, 0, aipp), 145003);
    CHECK_RC(aclmdlSetInputAIPP(model, dataset, 0, aipp), NO);
    CHECK_RC(aclmdlSetInputAIPP(model, dataset, 1, aipp), NO);
    CHECK_RC(aclmdlSetAIPPByInputIndex(model, NULL, 0, aipp), NO);
    CHECK_RC(aclmdlSetAIPPByInputIndex(model, dataset, 0, NULL), NO);
    CHECK_RC(aclmdlSetAIPPByInputIndex(model, dataset, 1, aipp), NO);
    CHECK_RC(aclmdlSetAIPPByInputIndex(model + 1, dataset, 0, aipp), 145003);
    CHECK_RC(aclmdlSetAIPPByInputIndex(model, dataset, 0, aipp), 500001);
    dataset_free(dataset);
    CHECK_RC(aclmdlUnload(model), 0);
}

/* A genuine file can have the input for the parameters of preprocessing. */
static void test_preprocessing_of_a_genuine_model(void) {
    static char place;
    static bytes_t file;
    static bytes_t part;
    static bytes_t description;
    const int64_t dims[] = {8};
    aclmdlAIPP *aipp = (aclmdlAIPP *)(void *)&place;
    put_u32(&part, 2);
    put_tensor(&part, "x", dims, 1);
    put_tensor(&part, "ascend_dynamic_aipp_data", dims, 1);
    put_part(&description, 0, &part);
    part.size = 0;
    put_u32(&part, 1);
    put_tensor(&part, "y", dims, 1);
    put_part(&description, 1, &part);
    put_file(&file, &description, NULL);
    uint32_t model = load_bytes(&file);
    aclmdlDataset *dataset = dataset_of(NULL, 0);
    CHECK_RC(aclmdlSetInputAIPP(model, dataset, 0, aipp), NO);
    CHECK_RC(aclmdlSetInputAIPP(model, dataset, 1, aipp), UNSUPPORTED);
    dataset_free(dataset);
    CHECK_RC(aclmdlUnload(model), 0);
}

static void test_other_calls_that_are_unsupported(void) {
    static aclmdlExeOMDesc sizes;
    aclmdlExecConfigHandle *config = aclmdlCreateExecConfigHandle();
    aclmdlDataset *dataset = dataset_of(NULL, 0);
    aclTensorDesc *descs = NULL;
    char name[8];
    size_t count = 0;
    CHECK_RC(aclmdlExecuteAsyncV2(1, NULL, dataset, NULL, config), NO);
    CHECK_RC(aclmdlExecuteAsyncV2(1, dataset, NULL, NULL, config), NO);
    CHECK_RC(aclmdlExecuteAsyncV2(1, dataset, dataset, NULL, NULL), NO);
    CHECK_RC(aclmdlExecuteAsyncV2(1, dataset, dataset, NULL, config), UNSUPPORTED);
    CHECK_RC(aclmdlQueryExeOMDesc(NULL, &sizes), NO);
    CHECK_RC(aclmdlQueryExeOMDesc("a.om", NULL), NO);
    CHECK_RC(aclmdlQueryExeOMDesc("a.om", &sizes), UNSUPPORTED);
    CHECK_RC(aclmdlCreateAndGetOpDesc(0, 0, 0, NULL, 8, &descs, &count, &descs, &count), NO);
    CHECK_RC(aclmdlCreateAndGetOpDesc(0, 0, 0, name, 8, NULL, &count, &descs, &count), NO);
    CHECK_RC(aclmdlCreateAndGetOpDesc(0, 0, 0, name, 8, &descs, NULL, &descs, &count), NO);
    CHECK_RC(aclmdlCreateAndGetOpDesc(0, 0, 0, name, 8, &descs, &count, NULL, &count), NO);
    CHECK_RC(aclmdlCreateAndGetOpDesc(0, 0, 0, name, 8, &descs, &count, &descs, NULL), NO);
    CHECK_RC(aclmdlCreateAndGetOpDesc(0, 0, 0, name, 8, &descs, &count, &descs, &count), UNSUPPORTED);
    dataset_free(dataset);
    CHECK_RC(aclmdlDestroyExecConfigHandle(config), 0);
}

int main(void) {
    start_acl();
    RUN(test_options_of_a_load, test_options_of_an_execution, test_options_that_exclude_each_other, test_queues,
        test_external_weights, test_bundles, test_preprocessing_parameters, test_preprocessing_of_batches,
        test_preprocessing_of_a_model_without_it, test_preprocessing_of_a_genuine_model,
        test_other_calls_that_are_unsupported);
    CHECK(stats().violations == 0);
    end_acl();
}
