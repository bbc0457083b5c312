/*
 * AIPP, which preprocesses images before a model. The models that the simulator reads have none. The functions
 * that set it check their arguments as the graph engine does, and are then refused as unsupported. There are no
 * objects of parameters, so the index of a batch is not checked.
 */
#include <string.h>

#include "model.h"

/* The name of the input that takes the parameters. */
#define AIPP_INPUT "ascend_dynamic_aipp_data"

enum {
    MATRIX_LEAST = -32677,
    MATRIX_MOST = 32676,
    IMAGE_MOST = 4096,
    SCALED_LEAST = 16,
    SCALED_WIDTH_MOST = 1920,
    PADDING_MOST = 32,
    CHANNEL_MOST = 255,
    FACTOR_MOST = 65504
};

static const size_t not_attached = 0xFFFFFFFF;

#define REFUSE_OUTSIDE(value, least, most) REFUSE_IF((value) < (least) || (value) > (most), #value)
#define REFUSE_ANY_OUTSIDE(values, least, most)                                                                \
    do {                                                                                                       \
        for (size_t i_ = 0; i_ < sizeof(values) / sizeof *(values); i_++) {                                    \
            REFUSE_OUTSIDE((values)[i_], least, most);                                                         \
        }                                                                                                      \
    } while (0)

static aclError check_input(uint32_t id, size_t index) {
    model_t *model = NULL;
    aclError rc = model_find(id, &model);
    return rc == ACL_SUCCESS && index >= model->info->inputs.count ? error_quiet(GE_PARAM_INVALID, "index")
                                                                   : rc;
}

/* The models that the simulator reads have no AIPP. */
aclError do_aclmdlGetAippType(uint32_t modelId, size_t index, aclmdlInputAippType *type,
                              size_t *dynamicAttachedDataIndex) {
    REFUSE_NULL(type);
    REFUSE_NULL(dynamicAttachedDataIndex);
    SIM_GUARD();
    aclError rc = check_input(modelId, index);
    if (rc == ACL_SUCCESS) {
        *type = ACL_DATA_WITHOUT_AIPP;
        *dynamicAttachedDataIndex = not_attached;
    }
    return rc;
}

aclError do_aclmdlGetFirstAippInfo(uint32_t modelId, size_t index, aclAippInfo *aippInfo) {
    REFUSE_NULL(aippInfo);
    SIM_GUARD();
    aclError rc = check_input(modelId, index);
    return rc == ACL_SUCCESS ? error_quiet(ACL_NOT_STATIC_AIPP, "index: the input has no static AIPP") : rc;
}

aclmdlAIPP *do_aclmdlCreateAIPP(uint64_t batchSize) {
    if (batchSize == 0) {
        error_quiet(ACL_INVALID_PARAM, "batchSize");
    } else {
        UNSUPPORTED();
    }
    return NULL;
}

aclError do_aclmdlDestroyAIPP(const aclmdlAIPP *aippParmsSet) {
    REFUSE_NULL(aippParmsSet);
    return UNSUPPORTED();
}

aclError do_aclmdlGetAippDataSize(uint64_t batchSize, size_t *size) {
    REFUSE_NULL(size);
    REFUSE_IF(batchSize == 0, "batchSize");
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPInputFormat(aclmdlAIPP *aippParmsSet, aclAippInputFormat inputFormat) {
    REFUSE_NULL(aippParmsSet);
    REFUSE_OUTSIDE(inputFormat, ACL_YUV420SP_U8, ACL_RAW24);
    return UNSUPPORTED();
}

/* If a switch is off, the other arguments are not checked. */
aclError do_aclmdlSetAIPPCscParams(aclmdlAIPP *aippParmsSet, int8_t cscSwitch, int16_t cscMatrixR0C0,
                                   int16_t cscMatrixR0C1, int16_t cscMatrixR0C2, int16_t cscMatrixR1C0,
                                   int16_t cscMatrixR1C1, int16_t cscMatrixR1C2, int16_t cscMatrixR2C0,
                                   int16_t cscMatrixR2C1, int16_t cscMatrixR2C2, uint8_t cscOutputBiasR0,
                                   uint8_t cscOutputBiasR1, uint8_t cscOutputBiasR2, uint8_t cscInputBiasR0,
                                   uint8_t cscInputBiasR1, uint8_t cscInputBiasR2) {
    const int16_t matrix[] = {cscMatrixR0C0, cscMatrixR0C1, cscMatrixR0C2, cscMatrixR1C0, cscMatrixR1C1,
                              cscMatrixR1C2, cscMatrixR2C0, cscMatrixR2C1, cscMatrixR2C2};
    (void)cscOutputBiasR0, (void)cscOutputBiasR1, (void)cscOutputBiasR2;
    (void)cscInputBiasR0, (void)cscInputBiasR1, (void)cscInputBiasR2;
    REFUSE_NULL(aippParmsSet);
    REFUSE_OUTSIDE(cscSwitch, 0, 1);
    if (cscSwitch == 1) {
        REFUSE_ANY_OUTSIDE(matrix, MATRIX_LEAST, MATRIX_MOST);
    }
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPRbuvSwapSwitch(aclmdlAIPP *aippParmsSet, int8_t rbuvSwapSwitch) {
    REFUSE_NULL(aippParmsSet);
    REFUSE_OUTSIDE(rbuvSwapSwitch, 0, 1);
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPAxSwapSwitch(aclmdlAIPP *aippParmsSet, int8_t axSwapSwitch) {
    REFUSE_NULL(aippParmsSet);
    REFUSE_OUTSIDE(axSwapSwitch, 0, 1);
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPSrcImageSize(aclmdlAIPP *aippParmsSet, int32_t srcImageSizeW, int32_t srcImageSizeH) {
    REFUSE_NULL(aippParmsSet);
    REFUSE_OUTSIDE(srcImageSizeW, 2, IMAGE_MOST);
    REFUSE_OUTSIDE(srcImageSizeH, 1, IMAGE_MOST);
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPScfParams(aclmdlAIPP *aippParmsSet, int8_t scfSwitch, int32_t scfInputSizeW,
                                   int32_t scfInputSizeH, int32_t scfOutputSizeW, int32_t scfOutputSizeH,
                                   uint64_t batchIndex) {
    (void)batchIndex;
    REFUSE_NULL(aippParmsSet);
    REFUSE_OUTSIDE(scfSwitch, 0, 1);
    if (scfSwitch == 1) {
        REFUSE_OUTSIDE(scfInputSizeW, SCALED_LEAST, IMAGE_MOST);
        REFUSE_OUTSIDE(scfInputSizeH, SCALED_LEAST, IMAGE_MOST);
        REFUSE_OUTSIDE(scfOutputSizeW, SCALED_LEAST, SCALED_WIDTH_MOST);
        REFUSE_OUTSIDE(scfOutputSizeH, SCALED_LEAST, IMAGE_MOST);
    }
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPCropParams(aclmdlAIPP *aippParmsSet, int8_t cropSwitch, int32_t cropStartPosW,
                                    int32_t cropStartPosH, int32_t cropSizeW, int32_t cropSizeH,
                                    uint64_t batchIndex) {
    (void)batchIndex;
    REFUSE_NULL(aippParmsSet);
    REFUSE_OUTSIDE(cropSwitch, 0, 1);
    if (cropSwitch == 1) {
        REFUSE_OUTSIDE(cropStartPosW, 0, IMAGE_MOST - 1);
        REFUSE_OUTSIDE(cropStartPosH, 0, IMAGE_MOST - 1);
        REFUSE_OUTSIDE(cropSizeW, 1, IMAGE_MOST);
        REFUSE_OUTSIDE(cropSizeH, 1, IMAGE_MOST);
    }
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPPaddingParams(aclmdlAIPP *aippParmsSet, int8_t paddingSwitch, int32_t paddingSizeTop,
                                       int32_t paddingSizeBottom, int32_t paddingSizeLeft,
                                       int32_t paddingSizeRight, uint64_t batchIndex) {
    const int32_t sizes[] = {paddingSizeTop, paddingSizeBottom, paddingSizeLeft, paddingSizeRight};
    (void)batchIndex;
    REFUSE_NULL(aippParmsSet);
    REFUSE_OUTSIDE(paddingSwitch, 0, 1);
    if (paddingSwitch == 1) {
        REFUSE_ANY_OUTSIDE(sizes, 0, PADDING_MOST);
    }
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPDtcPixelMean(aclmdlAIPP *aippParmsSet, int16_t dtcPixelMeanChn0,
                                      int16_t dtcPixelMeanChn1, int16_t dtcPixelMeanChn2,
                                      int16_t dtcPixelMeanChn3, uint64_t batchIndex) {
    const int16_t means[] = {dtcPixelMeanChn0, dtcPixelMeanChn1, dtcPixelMeanChn2, dtcPixelMeanChn3};
    (void)batchIndex;
    REFUSE_NULL(aippParmsSet);
    REFUSE_ANY_OUTSIDE(means, 0, CHANNEL_MOST);
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPDtcPixelMin(aclmdlAIPP *aippParmsSet, float dtcPixelMinChn0, float dtcPixelMinChn1,
                                     float dtcPixelMinChn2, float dtcPixelMinChn3, uint64_t batchIndex) {
    const float least[] = {dtcPixelMinChn0, dtcPixelMinChn1, dtcPixelMinChn2, dtcPixelMinChn3};
    (void)batchIndex;
    REFUSE_NULL(aippParmsSet);
    REFUSE_ANY_OUTSIDE(least, 0.0F, (float)CHANNEL_MOST);
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPPixelVarReci(aclmdlAIPP *aippParmsSet, float dtcPixelVarReciChn0,
                                      float dtcPixelVarReciChn1, float dtcPixelVarReciChn2,
                                      float dtcPixelVarReciChn3, uint64_t batchIndex) {
    const float factors[] = {dtcPixelVarReciChn0, dtcPixelVarReciChn1, dtcPixelVarReciChn2,
                             dtcPixelVarReciChn3};
    (void)batchIndex;
    REFUSE_NULL(aippParmsSet);
    REFUSE_ANY_OUTSIDE(factors, -(float)FACTOR_MOST, (float)FACTOR_MOST);
    return UNSUPPORTED();
}

/* Only a genuine file can have the input, and the simulator does not preprocess its images. */
aclError do_aclmdlSetInputAIPP(uint32_t modelId, aclmdlDataset *dataset, size_t index,
                               const aclmdlAIPP *aippParmsSet) {
    model_t *model = NULL;
    REFUSE_NULL(dataset);
    REFUSE_NULL(aippParmsSet);
    SIM_GUARD();
    aclError rc = model_find(modelId, &model);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    const tensor_list_t *inputs = &model->info->inputs;
    REFUSE_IF(index >= inputs->count || strcmp(inputs->tensors[index].name, AIPP_INPUT) != 0,
              "index: expected the index of the input " AIPP_INPUT);
    return UNSUPPORTED();
}

aclError do_aclmdlSetAIPPByInputIndex(uint32_t modelId, aclmdlDataset *dataset, size_t index,
                                      const aclmdlAIPP *aippParmsSet) {
    REFUSE_NULL(aippParmsSet);
    SIM_GUARD();
    const dataset_t *found = dataset_find(dataset, "dataset");
    if (found == NULL || index >= found->count) {
        return found == NULL ? ACL_INVALID_PARAM : error_quiet(ACL_INVALID_PARAM, "index");
    }
    aclError rc = check_input(modelId, index);
    return rc == ACL_SUCCESS ? error_quiet(ACL_FAILURE, "index: the input has no dynamic AIPP") : rc;
}
