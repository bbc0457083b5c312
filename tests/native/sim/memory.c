/* Device memory and pinned memory: all functions that allocate, red zones, bytes that were never written, and
 * copies of every shape. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim_test.h"

enum { SOME = 4096 };

static char last_violation[256];

/* Returns the newest violation if there are more than `before`, otherwise an empty text. */
static const char *violation_since(uint64_t before) {
    uint64_t now = stats().violations;
    last_violation[0] = '\0';
    if (now > before) {
        aclsim_violation(now - 1, last_violation, sizeof last_violation);
    }
    return last_violation;
}

static void test_every_malloc(void) {
    void *blocks[6] = {NULL};
    void *host[2] = {NULL};
    aclrtMallocAttribute attribute = {.attr = ACL_RT_MEM_ATTR_DEVICE_ID, .value = {.deviceId = 0}};
    aclrtMallocConfig config = {.attrs = &attribute, .numAttrs = 1};
    CHECK_RC(aclrtMalloc(&blocks[0], SOME, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK_RC(aclrtMallocAlign32(&blocks[1], SOME, ACL_MEM_MALLOC_NORMAL_ONLY), 0);
    CHECK_RC(aclrtMallocCached(&blocks[2], SOME, ACL_MEM_MALLOC_HUGE_ONLY), 0);
    CHECK_RC(aclrtMallocWithCfg(&blocks[3], SOME, ACL_MEM_TYPE_HIGH_BAND_WIDTH, NULL), 0);
    CHECK_RC(aclrtMallocWithCfg(&blocks[4], SOME, ACL_MEM_MALLOC_HUGE_FIRST, &config), 0);
    CHECK_RC(aclrtMallocForTaskScheduler(&blocks[5], 64, ACL_MEM_MALLOC_HUGE_FIRST, NULL), 0);
    CHECK_RC(aclrtMallocHost(&host[0], SOME), 0);
    CHECK_RC(aclrtMallocHostWithCfg(&host[1], SOME, NULL), 0);
    CHECK(stats().device_blocks == 6 && stats().host_blocks == 2);
    CHECK(*(unsigned char *)blocks[0] == 0xA5); /* memory that was not written */
    for (int i = 0; i < 6; i++) {
        CHECK((uintptr_t)blocks[i] % 64 == 0);
        CHECK_RC(i % 2 == 0 ? aclrtFree(blocks[i]) : aclrtFreeWithDevSync(blocks[i]), 0);
        CHECK_RC(aclrtFree(blocks[i]), 507899);
    }
    CHECK_RC(aclrtFreeHost(host[0]), 0);
    CHECK_RC(aclrtFreeHostWithDevSync(host[1]), 0);
    CHECK(stats().device_blocks == 0 && stats().host_blocks == 0);
}

static void test_bad_configs(void) {
    void *block = NULL;
    aclrtMallocAttribute attribute = {.attr = ACL_RT_MEM_ATTR_DEVICE_ID, .value = {.deviceId = 77}};
    aclrtMallocConfig config = {.attrs = &attribute, .numAttrs = 1};
    aclrtMallocConfig empty = {.attrs = NULL, .numAttrs = 1};
    CHECK_RC(aclrtMallocWithCfg(&block, SOME, ACL_MEM_MALLOC_HUGE_FIRST, &config), 107001);
    CHECK_RC(aclrtMallocWithCfg(&block, SOME, ACL_MEM_MALLOC_HUGE_FIRST, &empty), 100000);
    CHECK_RC(aclrtMallocHostWithCfg(&block, SOME, &config), 107000);
    CHECK_RC(aclrtMallocHostWithCfg(&block, SOME, &empty), 107000);
    CHECK_RC(aclrtMallocHostWithCfg(&block, 0, NULL), 100000);
    attribute.value.deviceId = 1;
    CHECK_RC(aclrtMallocWithCfg(&block, SOME, ACL_MEM_MALLOC_HUGE_FIRST, &config), 507899);
    attribute.attr = (aclrtMallocAttrType)9;
    CHECK_RC(aclrtMallocWithCfg(&block, SOME, ACL_MEM_MALLOC_HUGE_FIRST, &config), 107000);
    attribute.attr = ACL_RT_MEM_ATTR_MODULE_ID;
    CHECK_RC(aclrtMallocHostWithCfg(&block, SOME, &config), 0);
    CHECK_RC(aclrtFreeHost(block), 0);
    CHECK_RC(aclrtMalloc(&block, SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST), 100000);
    CHECK_RC(aclrtMalloc(&block, SIZE_MAX / 2, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
    CHECK_RC(aclrtMallocHost(&block, SIZE_MAX - 8), 207001);
}

static void test_red_zones(void) {
    char *host = new_host(100);
    char *device = new_block(100);
    CHECK(aclsim_check_memory() == 0);
    uint64_t before = stats().violations;
    host[100] = 1;
    CHECK(aclsim_check_memory() == 1);
    CHECK(strstr(violation_since(before), "written outside its bounds, at offset 100") != NULL);
    CHECK(aclsim_check_memory() == 1 && stats().violations == before + 1);
    CHECK_RC(aclrtFreeHost(host), 0);
    CHECK(stats().violations == before + 1);
    device[-1] = 1;
    CHECK_RC(aclrtFree(device), 0);
    CHECK(strstr(violation_since(before + 1), "written outside its bounds, at offset -1") != NULL);
    CHECK_RC(aclrtMalloc((void **)&device, 3 << 20, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK((uintptr_t)device % 4096 == 0);
    device[-64] = 1;
    before = stats().violations;
    CHECK_RC(aclrtResetDevice(0), 0);
    CHECK(strstr(violation_since(before), "at offset -64") != NULL);
    CHECK_RC(aclrtSetDevice(0), 0);
}

static void test_never_written(void) {
    char host[64];
    aclsim_watch_uninitialised(1);
    char *device = new_block(64);
    char *other = new_block(64);
    uint64_t before = stats().violations;
    CHECK_RC(aclrtMemset(device, 64, 1, 21), 0);
    CHECK_RC(aclrtMemcpy(host, 64, device, 21, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK(stats().violations == before);
    CHECK_RC(aclrtMemcpy(host, 64, device, 22, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK(strstr(violation_since(before), "byte 21 was never written") != NULL);
    CHECK_RC(aclrtMemcpyAsync(other, 64, device + 32, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, NULL), 0);
    CHECK_RC(aclrtSynchronizeStream(NULL), 0);
    CHECK(strstr(violation_since(before + 1), "byte 32 was never written") != NULL);
    CHECK_RC(aclrtMemcpy2d(device + 24, 16, host, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    CHECK_RC(aclrtMemcpy2d(host, 8, device + 24, 16, 8, 2, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK(stats().violations == before + 2);
    aclsim_watch_uninitialised(0);
    END_BLOCKS(device, other);
}

static void test_planes(void) {
    uint8_t *device = new_block(128);
    uint8_t *host = new_host(64);
    uint8_t back[4 * 8];
    aclrtStream stream = new_stream();
    for (int i = 0; i < 64; i++) {
        host[i] = (uint8_t)i;
    }
    CHECK_RC(aclrtMemcpy2d(device, 32, host, 16, 8, 4, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    CHECK_RC(aclrtMemcpy2d(back, 8, device, 32, 8, 4, ACL_MEMCPY_DEFAULT), 0);
    for (int i = 0; i < 32; i++) {
        CHECK(back[i] == i / 8 * 16 + i % 8);
    }
    CHECK_RC(aclrtMemset(device, 128, 0, 128), 0);
    CHECK_RC(aclrtMemcpy2dAsync(device, 32, host + 8, 16, 8, 4, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
    CHECK_RC(aclrtMemcpy2dAsync(device + 8, 32, device, 32, 8, 4, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 0);
    CHECK_RC(aclrtMemcpy2dAsync(back, 8, device + 8, 32, 8, 4, ACL_MEMCPY_DEVICE_TO_HOST, stream), 0);
    CHECK(back[9] == 16 + 8 + 1); /* the memory is pageable, so the call has waited */
    CHECK_RC(aclrtMemcpy2d(device, 32, host, 16, 8, 5, ACL_MEMCPY_HOST_TO_DEVICE), 507899);
    CHECK_RC(aclrtMemcpy2d(device, SIZE_MAX / 2, host, 16, 8, 4, ACL_MEMCPY_HOST_TO_DEVICE), 107000);
    CHECK_RC(aclrtMemcpy2dAsync(device, 6000000, host, 6000000, 5000001, 1, ACL_MEMCPY_DEFAULT, stream),
             107000);
    CHECK_RC(aclrtMemcpy2d(NULL, 8, NULL, 8, 0, 2, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    END({aclrtDestroyStream, stream}, {aclrtFree, device}, {aclrtFreeHost, host});
}

static void test_words(void) {
    uint32_t *device = new_block(64);
    uint32_t back[4] = {0};
    CHECK_RC(aclrtMemsetD32(device, 64, 0x01020304, 4), 0);
    CHECK_RC(aclrtMemcpy(back, sizeof back, device, sizeof back, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK(back[0] == 0x01020304 && back[3] == 0x01020304);
    CHECK_RC(aclrtMemsetD32Async(device, 64, 7, 4, NULL), 0);
    CHECK_RC(aclrtSynchronizeStream(NULL), 0);
    CHECK_RC(aclrtMemcpy(back, sizeof back, device, sizeof back, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK(back[1] == 7 && back[3] == 7);
    CHECK_RC(aclrtMemsetD32(back, sizeof back, 1, 4), 100000);
    CHECK_RC(aclrtMemsetD32(device, SIZE_MAX, 1, SIZE_MAX / 2), 100000);
    CHECK_RC(aclrtFree(device), 0);
}

static void fill_batch(aclrtMemcpyBatchAttr *attr, aclrtMemLocationType from, aclrtMemLocationType to) {
    memset(attr, 0, sizeof *attr);
    attr->srcLoc.type = from;
    attr->dstLoc.type = to;
}

static void test_batches(void) {
    char *device = new_block(64);
    char pageable[3] = "xyz";
    char back[4] = "";
    size_t failed = 0;
    char *host = new_host(64);
    memcpy(host, "ab", 2);
    void *dsts[] = {device, device + 1, device + 2};
    void *srcs[] = {host, host + 1, pageable};
    size_t sizes[] = {1, 1, 1};
    size_t indexes[] = {0, 1};
    aclrtMemcpyBatchAttr attrs[2];
    fill_batch(&attrs[0], ACL_MEM_LOCATION_TYPE_HOST, ACL_MEM_LOCATION_TYPE_DEVICE);
    attrs[1] = attrs[0];
    CHECK_THEN(aclrtMemcpyBatch(dsts, sizes, srcs, sizes, 3, attrs, indexes, 2, &failed), failed == SIZE_MAX);
    CHECK_THEN(aclrtMemcpy(back, 3, device, 3, ACL_MEMCPY_DEVICE_TO_HOST), strcmp(back, "abx") == 0);
    memcpy(host, "cd", 2);
    CHECK_RC(aclrtMemcpyBatchAsync(dsts, sizes, srcs, sizes, 3, attrs, indexes, 2, &failed, NULL), 0);
    CHECK_RC(aclrtSynchronizeStream(NULL), 0);
    CHECK_THEN(aclrtMemcpy(back, 3, device, 3, ACL_MEMCPY_DEVICE_TO_HOST), strcmp(back, "cdx") == 0);
    fill_batch(&attrs[1], ACL_MEM_LOCATION_TYPE_DEVICE, ACL_MEM_LOCATION_TYPE_HOST);
    CHECK_RC(aclrtMemcpyBatch(dsts, sizes, srcs, sizes, 3, attrs, indexes, 2, &failed), 107000);
    CHECK(failed == 1);
    attrs[1] = attrs[0];
    attrs[1].srcLoc.id = 1; /* has no meaning, because the source is on the host */
    CHECK_RC(aclrtMemcpyBatch(dsts, sizes, srcs, sizes, 3, attrs, indexes, 2, &failed), 0);
    attrs[1].srcLoc.type = ACL_MEM_LOCATION_TYPE_HOST_NUMA;
    CHECK_RC(aclrtMemcpyBatch(dsts, sizes, srcs, sizes, 3, attrs, indexes, 2, &failed), 0);
    attrs[1].dstLoc.id = 1;
    CHECK_RC(aclrtMemcpyBatch(dsts, sizes, srcs, sizes, 3, attrs, indexes, 2, &failed), 107000);
    CHECK(failed == 1);
    indexes[1] = 3;
    CHECK_RC(aclrtMemcpyBatchV2(dsts, sizes, srcs, sizes, 3, attrs, indexes, 2), 107000);
    CHECK_RC(aclrtMemcpyBatchAsyncV2(dsts, sizes, srcs, sizes, 3, attrs, indexes, 1, NULL), 0);
    size_t none[] = {0, 0, 0};
    CHECK_RC(aclrtMemcpyBatch(dsts, sizes, srcs, none, 3, NULL, NULL, 0, &failed), 0);
    CHECK_RC(aclrtMemcpyBatch(dsts, none, srcs, sizes, 3, attrs, indexes, 1, &failed), 100000);
    CHECK_RC(aclrtMemcpyBatchV2(dsts, sizes, srcs, sizes, SIZE_MAX / 2, attrs, indexes, 1), 100000);
    CHECK_RC(aclrtSynchronizeStream(NULL), 0);
    END({aclrtFree, device}, {aclrtFreeHost, host});
}

static void test_indirect(void) {
    void **table = new_block(64);
    size_t size = 0;
    char back[5] = "";
    aclrtStream stream = new_stream();
    char *device = new_block(64);
    CHECK_RC(aclrtGetMemcpyDescSize(ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, &size), 0);
    CHECK_RC(aclrtGetMemcpyDescSize(ACL_MEMCPY_HOST_TO_DEVICE, &size), 107000);
    void *desc = new_block(size);
    CHECK_RC(aclrtMemcpy(device, 64, "abcd", 4, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    CHECK_RC(aclrtSetMemcpyDesc(desc, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, device, device + 8, 4, NULL), 0);
    CHECK_RC(aclrtMemcpyAsyncWithDesc(desc, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, stream), 0);
    void *addresses[] = {device, device + 16};
    CHECK_RC(aclrtMemcpyAsync(table, 64, addresses, sizeof addresses, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
    CHECK_RC(aclrtMemcpyAsyncWithOffset(&table[1], 4, 4, (const void **)&table[0], 4, 8,
                                        ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, stream),
             0);
    CHECK_RC(aclrtMemcpyAsync(back, 4, device + 20, 4, ACL_MEMCPY_DEVICE_TO_HOST, stream), 0);
    CHECK(strcmp(back, "abcd") == 0);
    CHECK_RC(aclrtMemset(desc, size, 0, size), 0);
    CHECK_RC(aclrtMemcpyAsyncWithDesc(desc, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507001); /* the address is NULL */
    CHECK_RC(aclrtSetMemcpyDesc(back, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, device, device, 4, NULL), 507899);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    END_BLOCKS(device, table, desc);
}

static void test_queries(void) {
    char *device = new_block(100);
    aclrtPtrAttributes found;
    void *base = NULL;
    size_t size = 0;
    char *host = new_host(100);
    CHECK_RC(aclrtPointerGetAttributes(device + 5, &found), 0);
    CHECK(found.location.type == ACL_MEM_LOCATION_TYPE_DEVICE && found.location.id == 0);
    CHECK_THEN(aclrtPointerGetAttributes(host, &found), found.location.type == ACL_MEM_LOCATION_TYPE_HOST);
    CHECK_RC(aclrtPointerGetAttributes(&found, &found), 0);
    CHECK(found.location.type == ACL_MEM_LOCATION_TYPE_UNREGISTERED);
    CHECK_THEN(aclrtMemGetAddressRange(device + 99, &base, &size), base == device && size == 100);
    CHECK_RC(aclrtMemGetAddressRange(&found, &base, &size), 507899);
    CHECK_RC(aclrtMemGetAddressRange(device, NULL, NULL), 107000);
    void *both[] = {device, host};
    uint32_t result = 7;
    CHECK_THEN(aclrtCheckMemType(both, 1, 0x2, &result, 0), result == 1);
    CHECK_THEN(aclrtCheckMemType(both, 2, 0x2, &result, 0), result == 0);
    CHECK_RC(aclrtCheckMemType(both, 0, 0x2, &result, 0), 107000);
    aclrtMemUsageInfo usage;
    CHECK_RC(aclrtGetMemUsageInfo(0, &usage, 1, &size), 0);
    CHECK(size == 1 && usage.curMemSize == 160 && usage.memPeakSize >= usage.curMemSize);
    CHECK_RC(aclrtGetMemUsageInfo(9, &usage, 1, &size), 107001);
    aclrtMemUceInfo fault;
    memset(&fault, 0, sizeof fault);
    CHECK_THEN(aclrtGetMemUceInfo(0, &fault, 1, &size), size == 0);
    CHECK_RC(aclrtMemUceRepair(0, &fault, 1), 0);
    CHECK_RC(aclrtMemUceRepair(0, &fault, 129), 100000);
    CHECK_RC(aclrtMemFlush(device, 100), 0);
    END({aclrtFree, device}, {aclrtFreeHost, host});
    CHECK_RC(aclrtMemFlush(device, 100), 507899);
}

/* Where the real runtime would crash, the simulator returns an error. */
static void test_wild_pointers(void) {
    void *wild = (void *)(uintptr_t)0x1234560;
    char text[8] = "wild";
    char *device = new_block(64);
    uint64_t before = stats().violations;
    CHECK_RC(aclrtMemcpy(wild, 8, device, 8, ACL_MEMCPY_DEVICE_TO_HOST), 507899);
    CHECK(strstr(violation_since(before), "which are not mapped") != NULL);
    CHECK_RC(aclrtMemcpy(device, 8, wild, 8, ACL_MEMCPY_HOST_TO_DEVICE), 507899);
    CHECK_RC(aclrtMemcpyAsync(device, 8, wild, 8, ACL_MEMCPY_HOST_TO_DEVICE, NULL), 507899);
    CHECK_RC(aclrtMemcpyAsync(device, 8, wild, 8, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, NULL), 507899);
    CHECK_RC(aclrtMemcpy(text + 1, SIZE_MAX, text, SIZE_MAX - 8, ACL_MEMCPY_HOST_TO_HOST), 507899);
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    CHECK_RC(aclrtMemcpy(text, 8, pages + 4092, 8, ACL_MEMCPY_HOST_TO_HOST), 507899);
    CHECK(mprotect(pages, 4096, PROT_READ) == 0);
    CHECK_RC(aclrtMemcpy(pages, 8, device, 8, ACL_MEMCPY_DEVICE_TO_HOST), 507899);
    CHECK(munmap(pages, 8192) == 0);
    CHECK_RC(aclrtMemcpyAsyncWithCondition(device, 8, text, 8, ACL_MEMCPY_HOST_TO_DEVICE, NULL), 107000);
    CHECK_RC(aclrtFree(wild), 507899);
    CHECK_RC(aclrtFreeHost(wild), 107000);
    CHECK_RC(aclrtFree(device), 0);
}

int main(void) {
    start_acl();
    RUN(test_every_malloc, test_bad_configs, test_red_zones, test_never_written, test_planes, test_words,
        test_batches, test_indirect, test_queries, test_wild_pointers);
    CHECK(aclsim_check_memory() == 0);
    CHECK_RC(aclrtResetDevice(0), 0);
}
