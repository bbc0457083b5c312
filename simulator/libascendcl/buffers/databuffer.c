/* Data buffers, which describe the address and length of data, and the sizes of data types. */
#include "described.h"

aclDataBuffer *do_aclCreateDataBuffer(void *data, size_t size) {
    SIM_GUARD();
    data_buffer_t *buffer = object_new(KIND_DATA_BUFFER);
    if (buffer != NULL) {
        buffer->data = data;
        buffer->size = size;
    }
    return (aclDataBuffer *)buffer;
}

/* Destroys the data buffer, but does not free the memory that it describes. */
aclError do_aclDestroyDataBuffer(const aclDataBuffer *dataBuffer) {
    SIM_GUARD();
    data_buffer_t *buffer = described_find(KIND_DATA_BUFFER, dataBuffer, "dataBuffer");
    if (buffer != NULL) {
        object_kill(&buffer->object);
    }
    return buffer != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

aclError do_aclUpdateDataBuffer(aclDataBuffer *dataBuffer, void *data, size_t size) {
    SIM_GUARD();
    data_buffer_t *buffer = described_find(KIND_DATA_BUFFER, dataBuffer, "dataBuffer");
    if (buffer != NULL) {
        buffer->data = data;
        buffer->size = size;
    }
    return buffer != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

void *do_aclGetDataBufferAddr(const aclDataBuffer *dataBuffer) {
    SIM_GUARD();
    const data_buffer_t *buffer = described_find(KIND_DATA_BUFFER, dataBuffer, "dataBuffer");
    return buffer != NULL ? buffer->data : NULL;
}

size_t do_aclGetDataBufferSizeV2(const aclDataBuffer *dataBuffer) {
    SIM_GUARD();
    const data_buffer_t *buffer = described_find(KIND_DATA_BUFFER, dataBuffer, "dataBuffer");
    return buffer != NULL ? buffer->size : 0;
}

uint32_t do_aclGetDataBufferSize(const aclDataBuffer *dataBuffer) {
    return (uint32_t)do_aclGetDataBufferSizeV2(dataBuffer);
}

/* Types that are not listed count as 8 bytes, including the packed types of 4 and 6 bits. */
size_t do_aclDataTypeSize(aclDataType dataType) {
    switch (dataType) {
    case ACL_DT_UNDEFINED:
    case ACL_STRING:
        return 0;
    case ACL_BOOL:
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_INT4:
    case ACL_UINT1:
    case ACL_HIFLOAT8:
    case ACL_FLOAT8_E5M2:
    case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0:
        return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
        return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32:
        return 4;
    case ACL_COMPLEX128:
        return 16;
    default:
        return 8;
    }
}
