/* Half floats bit by bit, and descriptions of data: data buffers, tensor descriptions, chained buffers,
 * allocators. */
#include <math.h>
#include <string.h>

#include "sim_test.h"

/* The expected result of a conversion to a half float: the nearest finite half float. A tie is rounded to the
 * half float with an even mantissa. */
static uint16_t nearest_half(float value) {
    uint16_t best = 0;
    double least = INFINITY;
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        double distance = fabs((double)aclFloat16ToFloat((aclFloat16)bits) - fabs((double)value));
        if (distance < least || (distance == least && (bits & 1) == 0)) {
            least = distance;
            best = (uint16_t)bits;
        }
    }
    return signbit(value) ? (uint16_t)(best | 0x8000) : best;
}

static void test_half_reads(void) {
    CHECK(aclFloat16ToFloat(0x0000) == 0.0F && aclFloat16ToFloat(0x3c00) == 1.0F);
    CHECK(aclFloat16ToFloat(0xc000) == -2.0F && aclFloat16ToFloat(0x7bff) == 65504.0F);
    CHECK(aclFloat16ToFloat(0x0001) == 0x1p-24F && aclFloat16ToFloat(0x83ff) == -0x1.ff8p-15F);
    CHECK(signbit(aclFloat16ToFloat(0x8000)));
    /* there is no infinity and no NaN: these bits are values with the next exponent */
    CHECK(aclFloat16ToFloat(0x7c00) == 65536.0F && aclFloat16ToFloat(0xfc00) == -65536.0F);
    CHECK(aclFloat16ToFloat(0x7e00) == 98304.0F);
}

static void test_half_rounds(void) {
    static const float values[] = {0.0F,         1.0F,       0.1F,          -3.14159F,  65504.0F,
                                   65519.0F,     0x1p-24F,   0x1p-25F,      0x1.8p-25F, 0x1.8p-24F,
                                   0x1.ffcp-15F, 0x1.002p0F, 0x1.006p0F,    1e-30F,     0x1.ffep-15F,
                                   2049.0F,      2051.0F,    -0x1.801p-25F, 0x1p-149F,  -0.0F};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        CHECK(aclFloatToFloat16(values[i]) == nearest_half(values[i]));
    }
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        CHECK(aclFloatToFloat16(aclFloat16ToFloat((aclFloat16)bits)) == bits);
        CHECK(aclFloatToFloat16(aclFloat16ToFloat((aclFloat16)(bits | 0x8000))) == (bits | 0x8000));
    }
    CHECK(aclFloatToFloat16(1e9F) == 0x7bff && aclFloatToFloat16(-INFINITY) == 0xfbff);
    CHECK(aclFloatToFloat16(NAN) == 0x7bff && aclFloatToFloat16(65520.0F) == 0x7bff);
}

static void test_data_buffers(void) {
    char bytes[8];
    uint64_t before = stats().descriptions;
    aclDataBuffer *buffer = aclCreateDataBuffer(bytes, 0x100000008);
    CHECK(buffer != NULL && aclGetDataBufferAddr(buffer) == bytes);
    CHECK(aclGetDataBufferSizeV2(buffer) == 0x100000008 && aclGetDataBufferSize(buffer) == 8);
    CHECK_RC(aclUpdateDataBuffer(buffer, NULL, 3), 0);
    CHECK(aclGetDataBufferAddr(buffer) == NULL && aclGetDataBufferSizeV2(buffer) == 3);
    CHECK(stats().descriptions == before + 1);
    CHECK_RC(aclDestroyDataBuffer(buffer), 0);
    CHECK(stats().descriptions == before);
    uint64_t noted = stats().violations;
    CHECK_RC(aclDestroyDataBuffer(buffer), 100000);
    CHECK_RC(aclUpdateDataBuffer((aclDataBuffer *)(void *)bytes, NULL, 0), 100000);
    CHECK(aclGetDataBufferAddr(buffer) == NULL && aclGetDataBufferSizeV2(buffer) == 0);
    CHECK(stats().violations == noted + 4);
    CHECK_RC(aclDestroyDataBuffer(NULL), 100000);
    CHECK(aclGetDataBufferSize(NULL) == 0 && stats().violations == noted + 4);
}

static void test_type_sizes(void) {
    CHECK(aclDataTypeSize(ACL_STRING) == 0 && aclDataTypeSize(ACL_DT_UNDEFINED) == 0);
    CHECK(aclDataTypeSize(ACL_INT4) == 1 && aclDataTypeSize(ACL_FLOAT8_E5M2) == 1);
    CHECK(aclDataTypeSize(ACL_BF16) == 2 && aclDataTypeSize(ACL_COMPLEX32) == 4);
    CHECK(aclDataTypeSize(ACL_FLOAT4_E2M1) == 8 && aclDataTypeSize(ACL_COMPLEX128) == 16);
}

static void test_tensors(void) {
    const int64_t dims[] = {2, 3, 5, 7};
    int64_t ranges[][2] = {{1, 2}, {3, 4}};
    int64_t read[2] = {0, 0};
    uint64_t before = stats().descriptions;
    aclTensorDesc *desc = aclCreateTensorDesc(ACL_FLOAT, 4, dims, ACL_FORMAT_NCHW);
    CHECK(desc != NULL && aclGetTensorDescType(desc) == ACL_FLOAT);
    CHECK(aclGetTensorDescFormat(desc) == ACL_FORMAT_NCHW && aclGetTensorDescNumDims(desc) == 4);
    CHECK(aclGetTensorDescElementCount(desc) == 210 && aclGetTensorDescSize(desc) == 840);
    CHECK(aclGetTensorDescDim(desc, 3) == 7 && aclGetTensorDescDim(desc, 4) == -1);
    CHECK_THEN(aclGetTensorDescDimV2(desc, 0, &read[0]), read[0] == 2);
    CHECK_RC(aclGetTensorDescDimV2(desc, 4, &read[0]), 100000);
    CHECK_RC(aclGetTensorDescDimV2(desc, 0, NULL), 100000);
    CHECK_RC(aclSetTensorShapeRange(desc, 2, ranges), 0);
    CHECK_THEN(aclGetTensorDescDimRange(desc, 1, 2, read), read[0] == 3 && read[1] == 4);
    CHECK_RC(aclGetTensorDescDimRange(desc, 2, 2, read), 100000);
    CHECK_RC(aclGetTensorDescDimRange(desc, 0, 1, read), 100000);
    CHECK_RC(aclSetTensorShapeRange(desc, 2, NULL), 100000);
    CHECK_RC(aclSetTensorValueRange(desc, 2, ranges), 0);
    CHECK_RC(aclSetTensorValueRange(desc, 1 << 20, ranges), 100000);
    aclTensorDesc *turned = NULL;
    CHECK_RC(aclTransTensorDescFormat(desc, ACL_FORMAT_HWCN, &turned), 0);
    CHECK(aclGetTensorDescDim(turned, 0) == 5 && aclGetTensorDescDim(turned, 3) == 2);
    CHECK_RC(aclTransTensorDescFormat(desc, ACL_FORMAT_NC1HWC0, &turned), 100027);
    CHECK_RC(aclTransTensorDescFormat(desc, ACL_FORMAT_NHWC, NULL), 100000);
    aclDestroyTensorDesc(turned);
    aclDestroyTensorDesc(desc);
    CHECK(stats().descriptions == before);
}

static void test_tensor_settings(void) {
    const int64_t dims[] = {-1, 4};
    const int64_t unknown[] = {-2};
    char constant[4] = "abc";
    aclTensorDesc *desc = aclCreateTensorDesc(ACL_INT8, 2, dims, ACL_FORMAT_ND);
    CHECK(aclGetTensorDescSize(desc) == 0 && aclGetTensorDescNumDims(desc) == 2);
    CHECK_RC(aclSetTensorFormat(desc, ACL_FORMAT_FRACTAL_NZ), 0);
    CHECK_RC(aclSetTensorShape(desc, 2, dims), 0);
    CHECK_RC(aclSetTensorStorageFormat(desc, ACL_FORMAT_FRACTAL_NZ), 0);
    CHECK_RC(aclSetTensorStorageShape(desc, -1, dims), 100000);
    CHECK(aclGetTensorDescFormat(desc) == ACL_FORMAT_ND); /* the original format */
    CHECK_RC(aclSetTensorOriginFormat(desc, ACL_FORMAT_NC), 0);
    CHECK_THEN(aclSetTensorOriginShape(desc, 1, unknown), aclGetTensorDescFormat(desc) == ACL_FORMAT_NC);
    CHECK(aclGetTensorDescNumDims(desc) == UINT64_C(0xFFFFFFFFFFFFFFFE));
    CHECK(strcmp(aclGetTensorDescName(desc), "") == 0);
    aclSetTensorDescName(desc, "x");
    aclSetTensorDescName(desc, "weight");
    CHECK(strcmp(aclGetTensorDescName(desc), "weight") == 0);
    CHECK_RC(aclSetTensorDynamicInput(desc, "in"), 0);
    CHECK_RC(aclSetTensorDynamicInput(desc, NULL), 100000);
    CHECK_RC(aclSetTensorConst(desc, constant, sizeof constant), 0);
    CHECK_RC(aclSetTensorConst(desc, constant, 0), 100000);
    CHECK_RC(aclSetTensorConst(desc, (void *)1, 8), 100000);
    CHECK_RC(aclSetTensorPlaceMent(desc, ACL_MEMTYPE_HOST), 0);
    CHECK_RC(aclSetTensorPlaceMent(desc, (aclMemType)7), 100000);
    CHECK(aclGetTensorDescByIndex(desc, 0) == desc && aclGetTensorDescByIndex(desc, 1) == NULL);
    CHECK(aclGetTensorDescAddress(desc) == NULL);
    aclDestroyTensorDesc(desc);
    CHECK(aclGetTensorDescType(desc) == ACL_DT_UNDEFINED &&
          aclGetTensorDescFormat(NULL) == ACL_FORMAT_UNDEFINED);
    CHECK_RC(aclSetTensorFormat(desc, ACL_FORMAT_ND), 100000);
    CHECK(aclCreateTensorDesc(ACL_INT8, -1, dims, ACL_FORMAT_ND) == NULL);
    CHECK(aclCreateTensorDesc(ACL_INT8, 2, NULL, ACL_FORMAT_ND) == NULL);
    aclDestroyTensorDesc(NULL);
    desc = aclCreateTensorDesc(ACL_DOUBLE, 0, NULL, ACL_FORMAT_ND);
    CHECK(aclGetTensorDescElementCount(desc) == 1 && aclGetTensorDescSize(desc) == 8);
    aclDestroyTensorDesc(desc);
}

static void test_chained_buffers(void) {
    aclrtMbuf head = NULL;
    aclrtMbuf other = NULL;
    aclrtMbuf copy = NULL;
    void *data = NULL;
    size_t size = 0;
    uint32_t count = 0;
    char user[96] = "hello";
    uint64_t before = stats().descriptions;
    CHECK_RC(aclrtAllocBuf(&head, 100), 0);
    CHECK_RC(aclrtAllocBuf(&other, 1), 0);
    CHECK_RC(aclrtAllocBuf(NULL, 1), 100000);
    CHECK_RC(aclrtAllocBuf(&copy, 0), 100000);
    CHECK_THEN(aclrtGetBufData(head, &data, &size), data != NULL && size == 100);
    memset(data, 7, size);
    CHECK_RC(aclrtSetBufDataLen(head, 101), 107000);
    CHECK_RC(aclrtSetBufDataLen(head, 60), 0);
    CHECK_RC(aclrtSetBufUserData(head, user, sizeof user, 0), 0);
    CHECK_RC(aclrtSetBufUserData(head, user, 90, 10), 107000);
    CHECK_RC(aclrtSetBufUserData(head, (void *)1, 8, 0), 107000);
    CHECK_RC(aclrtGetBufUserData(head, (void *)1, 8, 0), 107000);
    CHECK_RC(aclrtCopyBufRef(head, &copy), 0);
    CHECK_THEN(aclrtGetBufDataLen(copy, &size), copy != head && size == 60);
    CHECK_THEN(aclrtGetBufUserData(copy, user + 50, 6, 0), strcmp(user + 50, "hello") == 0);
    CHECK_RC(aclrtAppendBufChain(head, other), 0);
    CHECK_RC(aclrtAppendBufChain(head, head), 107000);
    CHECK_RC(aclrtAppendBufChain(head, other), 107000); /* this buffer is in a chain already */
    CHECK_RC(aclrtAppendBufChain(head, copy), 0);
    CHECK_THEN(aclrtGetBufChainNum(head, &count), count == 3);
    aclrtMbuf found = NULL;
    CHECK_THEN(aclrtGetBufFromChain(head, 2, &found), found == copy);
    CHECK_RC(aclrtGetBufFromChain(head, 3, &found), 107000);
    CHECK_RC(aclrtGetBufChainNum(other, &count), 107000);
    CHECK_RC(aclrtFreeBuf(other), 107000);
    CHECK_RC(aclrtFreeBuf(head), 0);
    CHECK_RC(aclrtFreeBuf(head), 100000);
    CHECK_RC(aclrtGetBufData(copy, &data, &size), 100000);
    CHECK(stats().descriptions == before);
}

static void *allocate(aclrtAllocator allocator, size_t size) {
    (void)size;
    return allocator;
}

static void release(aclrtAllocator allocator, aclrtAllocatorBlock block) {
    (void)allocator;
    (void)block;
}

static void *advise(aclrtAllocator allocator, size_t size, aclrtAllocatorAddr address) {
    (void)size;
    (void)address;
    return allocator;
}

static void *address_of(aclrtAllocatorBlock block) {
    return block;
}

static void test_allocators(void) {
    int mine = 0;
    aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc();
    aclrtStream stream = new_stream();
    CHECK_RC(aclrtAllocatorSetObjToDesc(desc, &mine), 0);
    CHECK_RC(aclrtAllocatorSetAllocFuncToDesc(desc, allocate), 0);
    CHECK_RC(aclrtAllocatorSetFreeFuncToDesc(desc, release), 0);
    CHECK_RC(aclrtAllocatorSetAllocAdviseFuncToDesc(desc, advise), 0);
    CHECK_RC(aclrtAllocatorRegister(stream, desc), 100000); /* a function is missing */
    CHECK_RC(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, NULL), 100000);
    CHECK_RC(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, address_of), 0);
    CHECK_RC(aclrtAllocatorRegister(stream, desc), 0);
    CHECK_RC(aclrtAllocatorDestroyDesc(desc), 0);
    CHECK_RC(aclrtAllocatorDestroyDesc(desc), 100000);
    aclrtAllocatorDesc was = NULL;
    aclrtAllocator object = NULL;
    aclrtAllocatorAllocFunc alloc_func = NULL;
    aclrtAllocatorFreeFunc free_func = NULL;
    aclrtAllocatorAllocAdviseFunc advise_func = NULL;
    aclrtAllocatorGetAddrFromBlockFunc address_func = NULL;
    CHECK_RC(
        aclrtAllocatorGetByStream(stream, &was, &object, &alloc_func, &free_func, &advise_func, &address_func),
        0);
    CHECK(was == desc && object == &mine && alloc_func == allocate && free_func == release);
    CHECK(advise_func == advise && address_func == address_of);
    CHECK_RC(aclrtAllocatorUnregister(stream), 0);
    CHECK_RC(
        aclrtAllocatorGetByStream(stream, &was, &object, &alloc_func, &free_func, &advise_func, &address_func),
        100000);
    CHECK_RC(aclrtAllocatorUnregister(&mine), 107017);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_configured_streams(void) {
    uint32_t priority = 3;
    size_t flag = 1;
    aclrtStream stream = NULL;
    aclrtStreamConfigHandle *config = aclrtCreateStreamConfigHandle();
    CHECK_RC(aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_PRIORITY, &priority, sizeof priority), 0);
    CHECK_RC(aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_FLAG, &flag, sizeof flag), 0);
    CHECK_RC(aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_FLAG, &flag, 4), 100000);
    CHECK_RC(aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_FLAG, (void *)8, 8), 100000);
    CHECK_RC(aclrtSetStreamConfigOpt(config, (aclrtStreamConfigAttr)9, &flag, 8), 100000);
    CHECK_RC(aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_WORK_SIZE, &flag, sizeof flag), 0);
    CHECK_RC(aclrtSetStreamConfigOpt(config, ACL_RT_STREAM_WORK_ADDR_PTR, NULL, 8), 100000);
    CHECK_RC(aclrtCreateStreamV2(&stream, config), 0);
    uint32_t read = 0;
    CHECK_THEN(aclrtStreamGetPriority(stream, &read), read == 3);
    CHECK_THEN(aclrtStreamGetFlags(stream, &read), read == 1);
    CHECK_RC(aclrtCreateStreamV2(NULL, config), 100000);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_RC(aclrtDestroyStreamConfigHandle(config), 0);
    CHECK_RC(aclrtDestroyStreamConfigHandle(config), 100000);
    CHECK_RC(aclrtCreateStreamV2(&stream, config), 100000);
    CHECK_RC(aclrtDestroyStreamConfigHandle(NULL), 100000);
}

int main(void) {
    start_acl();
    RUN(test_half_reads, test_half_rounds, test_data_buffers, test_type_sizes, test_tensors,
        test_tensor_settings, test_chained_buffers, test_allocators, test_configured_streams);
    end_acl();
}
