/*
 * Functions for models that the simulator does not support: queues, external weights, and the parts of models.
 * They check their arguments as the graph engine does, and are then refused as unsupported.
 */
#include "model.h"

enum { WEIGHT_ALIGNMENT = 32 };

aclError model_check_queues(const uint32_t *inputs, size_t input_count, const uint32_t *outputs,
                            size_t output_count) {
    REFUSE_IF(inputs == NULL || input_count == 0, "inputQ or inputQNum");
    REFUSE_IF(outputs == NULL || output_count == 0, "outputQ or outputQNum");
    return ACL_SUCCESS;
}

aclError do_aclmdlLoadFromFileWithQ(const char *modelPath, uint32_t *modelId, const uint32_t *inputQ,
                                    size_t inputQNum, const uint32_t *outputQ, size_t outputQNum) {
    aclError rc = model_check_queues(inputQ, inputQNum, outputQ, outputQNum);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    REFUSE_NULL(modelPath);
    REFUSE_NULL(modelId);
    return UNSUPPORTED();
}

aclError do_aclmdlLoadFromMemWithQ(const void *model, size_t modelSize, uint32_t *modelId,
                                   const uint32_t *inputQ, size_t inputQNum, const uint32_t *outputQ,
                                   size_t outputQNum) {
    aclError rc = model_check_queues(inputQ, inputQNum, outputQ, outputQNum);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    REFUSE_NULL(model);
    REFUSE_NULL(modelId);
    REFUSE_IF(modelSize == 0, "modelSize");
    return UNSUPPORTED();
}

aclError do_aclmdlSetExternalWeightAddress(aclmdlConfigHandle *handle, const char *weightFileName, void *devPtr,
                                           size_t size) {
    REFUSE_NULL(handle);
    REFUSE_NULL(weightFileName);
    REFUSE_NULL(devPtr);
    REFUSE_IF(size == 0 || size % WEIGHT_ALIGNMENT != 0, "size: expected a multiple of 32");
    return UNSUPPORTED();
}

/* Only the runtime of other chips has this function. */
aclError do_aclmdlExecuteAsyncV2(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output,
                                 aclrtStream stream, const aclmdlExecConfigHandle *handle) {
    (void)modelId;
    (void)stream;
    REFUSE_NULL(input);
    REFUSE_NULL(output);
    REFUSE_NULL(handle);
    return UNSUPPORTED();
}

aclError do_aclmdlQueryExeOMDesc(const char *fileName, aclmdlExeOMDesc *mdlPartitionSize) {
    REFUSE_NULL(fileName);
    REFUSE_NULL(mdlPartitionSize);
    return UNSUPPORTED();
}

aclError do_aclmdlCreateAndGetOpDesc(uint32_t deviceId, uint32_t streamId, uint32_t taskId, char *opName,
                                     size_t opNameLen, aclTensorDesc **inputDesc, size_t *numInputs,
                                     aclTensorDesc **outputDesc, size_t *numOutputs) {
    (void)deviceId;
    (void)streamId;
    (void)taskId;
    (void)opNameLen;
    REFUSE_NULL(opName);
    REFUSE_NULL(inputDesc);
    REFUSE_NULL(outputDesc);
    REFUSE_NULL(numInputs);
    REFUSE_NULL(numOutputs);
    return UNSUPPORTED();
}
