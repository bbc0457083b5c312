/*
 * Bundles: files of several models, which the simulator does not support. The functions check their arguments
 * as the graph engine does. Then those that read a bundle are refused as unsupported. The others are refused
 * with the code for an unknown bundle, because none can be loaded.
 */
#include "model.h"

/* The header of a file, and the number of its parts. */
enum { BUNDLE_BYTES_LEAST = 256 + 4 };

static aclError no_bundle(void) {
    return error_quiet(ACL_INVALID_BUNDLE_MODEL_ID, "bundleId");
}

aclError do_aclmdlBundleLoadFromFile(const char *modelPath, uint32_t *bundleId) {
    REFUSE_NULL(modelPath);
    REFUSE_NULL(bundleId);
    return UNSUPPORTED();
}

aclError do_aclmdlBundleLoadFromMem(const void *model, size_t modelSize, uint32_t *bundleId) {
    REFUSE_NULL(model);
    REFUSE_NULL(bundleId);
    REFUSE_IF(modelSize < BUNDLE_BYTES_LEAST, "modelSize");
    return UNSUPPORTED();
}

aclError do_aclmdlBundleUnload(uint32_t bundleId) {
    (void)bundleId;
    return no_bundle();
}

aclError do_aclmdlBundleGetModelNum(uint32_t bundleId, size_t *modelNum) {
    (void)bundleId;
    REFUSE_NULL(modelNum);
    return no_bundle();
}

aclError do_aclmdlBundleGetModelId(uint32_t bundleId, size_t index, uint32_t *modelId) {
    (void)bundleId;
    (void)index;
    REFUSE_NULL(modelId);
    return no_bundle();
}

aclError do_aclmdlBundleDestroyQueryInfo(aclmdlBundleQueryInfo *queryInfo) {
    REFUSE_NULL(queryInfo);
    return UNSUPPORTED();
}

aclError do_aclmdlBundleQueryInfoFromFile(const char *fileName, aclmdlBundleQueryInfo *queryInfo) {
    REFUSE_NULL(fileName);
    REFUSE_NULL(queryInfo);
    return UNSUPPORTED();
}

aclError do_aclmdlBundleQueryInfoFromMem(const void *model, size_t modelSize,
                                         aclmdlBundleQueryInfo *queryInfo) {
    REFUSE_NULL(model);
    REFUSE_NULL(queryInfo);
    REFUSE_IF(modelSize < BUNDLE_BYTES_LEAST, "modelSize");
    return UNSUPPORTED();
}

aclError do_aclmdlBundleGetQueryModelNum(const aclmdlBundleQueryInfo *queryInfo, size_t *modelNum) {
    REFUSE_NULL(queryInfo);
    REFUSE_NULL(modelNum);
    return UNSUPPORTED();
}

aclError do_aclmdlBundleGetVarWeightSize(const aclmdlBundleQueryInfo *queryInfo, size_t *variableWeightSize) {
    REFUSE_NULL(queryInfo);
    REFUSE_NULL(variableWeightSize);
    return UNSUPPORTED();
}

aclError do_aclmdlBundleGetSize(const aclmdlBundleQueryInfo *queryInfo, size_t index, size_t *workSize,
                                size_t *constWeightSize) {
    (void)index;
    REFUSE_NULL(queryInfo);
    REFUSE_NULL(workSize);
    REFUSE_NULL(constWeightSize);
    return UNSUPPORTED();
}

aclError do_aclmdlBundleInitFromFile(const char *modelPath, void *varWeightPtr, size_t varWeightSize,
                                     uint32_t *bundleId) {
    (void)varWeightPtr;
    (void)varWeightSize;
    REFUSE_NULL(modelPath);
    REFUSE_NULL(bundleId);
    return UNSUPPORTED();
}

aclError do_aclmdlBundleInitFromMem(const void *model, size_t modelSize, void *varWeightPtr,
                                    size_t varWeightSize, uint32_t *bundleId) {
    (void)varWeightPtr;
    (void)varWeightSize;
    REFUSE_NULL(model);
    REFUSE_NULL(bundleId);
    REFUSE_IF(modelSize < BUNDLE_BYTES_LEAST, "modelSize");
    return UNSUPPORTED();
}

aclError do_aclmdlBundleLoadModel(uint32_t bundleId, size_t index, uint32_t *modelId) {
    (void)bundleId;
    (void)index;
    REFUSE_NULL(modelId);
    return no_bundle();
}

aclError do_aclmdlBundleLoadModelWithMem(uint32_t bundleId, size_t index, void *workPtr, size_t workSize,
                                         void *weightPtr, size_t weightSize, uint32_t *modelId) {
    (void)workPtr;
    (void)workSize;
    (void)weightPtr;
    (void)weightSize;
    return do_aclmdlBundleLoadModel(bundleId, index, modelId);
}

aclError do_aclmdlBundleLoadModelWithConfig(uint32_t bundleId, size_t index, aclmdlConfigHandle *handle,
                                            uint32_t *modelId) {
    REFUSE_NULL(handle);
    return do_aclmdlBundleLoadModel(bundleId, index, modelId);
}

aclError do_aclmdlBundleUnloadModel(uint32_t bundleId, uint32_t modelId) {
    (void)bundleId;
    (void)modelId;
    return no_bundle();
}
