/* Registered, managed, pooled, mapped and shared memory, and the effect of a reset on each. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim_test.h"

enum { PAGE = 4096, GRAIN = 2 << 20, KEY = 65 };

static char *client_pages(size_t pages) {
    char *found = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(found != MAP_FAILED);
    return found;
}

static void test_registration(void) {
    char *pages = client_pages(4);
    void *seen = NULL;
    void *window = NULL;
    CHECK_RC(aclrtHostRegister(pages, 2 * PAGE, ACL_HOST_REGISTER_MAPPED, &window), 0);
    CHECK(window != NULL && window != pages && stats().registrations == 1);
    CHECK_THEN(aclrtHostGetDevicePointer(pages + 10, &seen, 0), seen == (char *)window + 10);
    CHECK_RC(aclrtHostRegister(pages + PAGE, 2 * PAGE, ACL_HOST_REGISTER_MAPPED, &seen), 507910);
    CHECK_RC(aclrtHostRegister(pages + 1, PAGE, ACL_HOST_REGISTER_MAPPED, &seen), 107000);
    CHECK_RC(aclrtHostRegister(pages, PAGE, (aclrtHostRegisterType)2, &seen), 207000);
    CHECK_RC(aclrtHostRegisterV2(pages + 2 * PAGE, PAGE, 0x10000000), 0);
    CHECK_RC(aclrtHostGetDevicePointer(pages + 2 * PAGE, &seen, 0), 107000);
    CHECK_RC(aclrtHostRegisterV2(pages + 3 * PAGE, PAGE, 0x10000004), 107000);
    CHECK_RC(aclrtHostRegisterV2((void *)(uintptr_t)PAGE, PAGE, 0x2), 507899);
    void *device = new_block(64);
    pages[0] = 7;
    CHECK_RC(aclrtMemcpyAsync(device, 64, pages, 1, ACL_MEMCPY_HOST_TO_DEVICE, NULL), 0);
    CHECK_RC(aclrtMemcpyAsync(pages + 2 * PAGE, 64, device, 1, ACL_MEMCPY_DEVICE_TO_HOST, NULL), 0);
    CHECK_THEN(aclrtSynchronizeStream(NULL), pages[2 * PAGE] == 7);
    CHECK_RC(aclrtMemcpyAsync(device, 64, window, 1, ACL_MEMCPY_HOST_TO_DEVICE, NULL), 507899);
    CHECK_RC(aclrtHostUnregister(pages), 0);
    CHECK_RC(aclrtHostUnregister(pages), 507911);
    CHECK_RC(aclrtHostUnregister(pages + 2 * PAGE), 0);
    CHECK_RC(aclrtHostRegisterV2(pages, PAGE, 0x2), 0);
    CHECK_RC(aclrtResetDevice(0), 0);
    CHECK(stats().registrations == 0);
    CHECK_RC(aclrtHostUnregister(pages), 107002);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtHostUnregister(pages), 507911);
    munmap(pages, (size_t)4 * PAGE);
}

/* The owner must not unmap registered memory. The simulator cannot prevent this, and detects the error only
 * when the memory is used. */
static void test_registered_and_unmapped(void) {
    char *pages = client_pages(1);
    void *window = NULL;
    void *device = new_block(64);
    CHECK_RC(aclrtHostRegister(pages, PAGE, ACL_HOST_REGISTER_MAPPED, &window), 0);
    munmap(pages, PAGE);
    uint64_t before = stats().violations;
    CHECK_RC(aclrtMemcpy(device, 64, pages, 64, ACL_MEMCPY_HOST_TO_DEVICE), 507899);
    CHECK(stats().violations == before + 1);
    CHECK_RC(aclrtMemcpyAsync(pages, 64, device, 64, ACL_MEMCPY_DEVICE_TO_HOST, NULL), 0);
    CHECK(aclrtSynchronizeStream(NULL) != 0);
    CHECK(stats().violations == before + 2);
    CHECK_RC(aclrtHostUnregister(pages), 0);
    CHECK_RC(aclrtFree(device), 0);
}

static int32_t attribute(aclrtMemManagedRangeAttribute which, const void *pointer, size_t size) {
    int32_t value = 77;
    CHECK_RC(aclrtMemManagedGetAttr(which, pointer, size, &value, sizeof value), 0);
    return value;
}

static void test_managed(void) {
    char *block = NULL;
    aclrtMemManagedLocation device = {.type = ACL_MEM_LOCATIONTYPE_DEVICE, .id = 1};
    aclrtMemManagedLocation host = {.type = ACL_MEM_LOCATIONTYPE_HOST, .id = 0};
    aclrtMemManagedLocation nowhere = {.type = ACL_MEM_LOCATIONTYPE_DEVICE, .id = 9};
    CHECK_RC(aclrtMemAllocManaged((void **)&block, GRAIN + 1, 0), 100000);
    CHECK_RC(aclrtMemAllocManaged((void **)&block, 0, 1), 107000);
    CHECK_RC(aclrtMemAllocManaged((void **)&block, GRAIN + 1, 1), 0);
    CHECK(stats().managed_blocks == 1);
    block[2 * GRAIN - 1] = 1;
    CHECK(attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, block, 1) == 0);
    CHECK_RC(aclrtMemManagedAdvise(block, GRAIN, ACL_MEM_ADVISE_SET_READ_MOSTLY, host), 0);
    CHECK(attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, block, GRAIN) == 1);
    CHECK(attribute(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, block, 2 * GRAIN) == 0);
    CHECK_RC(aclrtMemManagedAdvise(block, 2 * GRAIN, ACL_MEM_ADVISE_SET_PREFERRED_LOCATION, device), 0);
    CHECK(attribute(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, block, 2 * GRAIN) == 1);
    CHECK_RC(aclrtMemManagedAdvise(block, 2 * GRAIN, ACL_MEM_ADVISE_SET_ACCESSED_BY, device), 0);
    CHECK_RC(aclrtMemManagedAdvise(block, GRAIN, ACL_MEM_ADVISE_SET_ACCESSED_BY, nowhere), 107001);
    CHECK_RC(aclrtMemManagedAdvise(block, 5, ACL_MEM_ADVISE_SET_READ_MOSTLY, host), 107000);
    int32_t ids[3] = {0};
    int32_t type = 0;
    aclrtMemManagedRangeAttribute which[] = {ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                                             ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE};
    void *data[] = {ids, &type};
    size_t sizes[] = {sizeof ids, sizeof type};
    CHECK_RC(aclrtMemManagedGetAttrs(which, 2, block, GRAIN, data, sizes), 0);
    CHECK(ids[0] == 1 && ids[1] == -2 && type == ACL_MEM_LOCATIONTYPE_INVALID);
    const void *pointers[] = {block, block + GRAIN};
    size_t grains[] = {GRAIN, GRAIN};
    aclrtMemManagedLocation places[] = {host, device};
    size_t indexes[] = {0, 1};
    CHECK_RC(aclrtMemManagedPrefetchBatchAsync(pointers, grains, 2, places, indexes, 2, 0, NULL), 0);
    CHECK_RC(aclrtSynchronizeStream(NULL), 0);
    CHECK(attribute(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, block, GRAIN) == -1);
    CHECK(attribute(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, block + GRAIN, GRAIN) == 1);
    indexes[1] = 2;
    CHECK_RC(aclrtMemManagedPrefetchBatchAsync(pointers, grains, 2, places, indexes, 2, 0, NULL), 107000);
    CHECK_RC(aclrtMemManagedGetAttr((aclrtMemManagedRangeAttribute)99, block, 1, &type, 4), 107000);
    CHECK_RC(aclrtFree(block), 0);
    CHECK_RC(aclrtMemManagedGetAttr(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, block, 1, &type, 4), 107000);
    CHECK(stats().managed_blocks == 0);
}

static aclrtMemPool new_pool(size_t most) {
    aclrtMemPool pool = NULL;
    aclrtMemPoolProps props = {.allocType = ACL_MEM_ALLOCATION_TYPE_PINNED};
    props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    props.maxSize = most;
    CHECK_RC(aclrtMemPoolCreate(&pool, &props), 0);
    props.reserved[3] = 1;
    CHECK_RC(aclrtMemPoolCreate(&pool, &props), 100000);
    return pool;
}

static uint64_t of_pool(aclrtMemPool pool, aclrtMemPoolAttr attr) {
    uint64_t value = 77;
    CHECK_RC(aclrtMemPoolGetAttr(pool, attr, &value), 0);
    return value;
}

static void test_pool_order(void) {
    void *block = NULL;
    void *more = NULL;
    aclrtMemPool pool = new_pool(1 << 20);
    aclrtStream stream = new_stream();
    CHECK_RC(aclrtMemPoolMallocAsync(&block, 1000, pool, stream), 0);
    CHECK_RC(aclrtMemPoolMallocAsync(&more, 1 << 20, pool, stream), 207001);
    CHECK_RC(aclrtMemPoolMallocAsync(&more, 0, pool, stream), 0);
    CHECK_RC(aclrtMemPoolMallocAsync(&more, 8, stream, stream), 107000);
    CHECK(of_pool(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT) == 1024);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 1000, 1, 1000, stream), 0);
    CHECK_RC(aclrtMemPoolFreeAsync(block, stream), 0);
    CHECK_RC(aclrtMemPoolFreeAsync(block, stream), 107000); /* the block is being freed already */
    CHECK(stats().pool_blocks == 1);
    uint64_t before = stats().violations;
    release_and_wait(stream, 0);
    CHECK(stats().pool_blocks == 0 && stats().violations == before);
    CHECK(of_pool(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH) == 1024);
    CHECK_RC(aclrtMemsetAsync(block, 1000, 1, 1000, stream), 0); /* the block is no longer allocated */
    CHECK_RC(aclrtSynchronizeStream(stream), 507001);
    CHECK_RC(aclrtMemPoolMallocAsync(&block, 8, pool, stream), 0);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtMemPoolFreeAsync(block, stream), 0);
    CHECK_RC(aclrtStreamAbort(stream), 0); /* the block stays, because the stream never reached the task */
    CHECK(aclsim_release(stream) == 0 && stats().pool_blocks == 1);
    CHECK_RC(aclrtMemPoolDestroy(pool), 0);
    CHECK_RC(aclrtMemPoolDestroy(pool), 107000);
    CHECK(stats().pools == 0);
    CHECK_RC(aclrtMemset(block, 8, 1, 8), 0);
    CHECK_RC(aclrtFree(block), 0);
    CHECK(stats().pool_blocks == 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_pool_keeps(void) {
    void *block = NULL;
    uint64_t threshold = 8 << 20;
    int32_t reuse = 0;
    aclrtMemPool pool = new_pool(0);
    aclrtStream stream = new_stream();
    CHECK_RC(aclrtMemPoolSetAttr(pool, ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, &threshold), 0);
    CHECK_RC(aclrtMemPoolSetAttr(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT, &threshold), 107000);
    CHECK_RC(aclrtMemPoolSetAttr(pool, ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC, &reuse), 0);
    CHECK_RC(aclrtMemPoolSetAttr(pool, (aclrtMemPoolAttr)99, &reuse), 107000);
    reuse = 5;
    CHECK_THEN(aclrtMemPoolGetAttr(pool, ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC, &reuse), reuse == 0);
    CHECK_RC(aclrtMemPoolMallocAsync(&block, 20 << 20, pool, stream), 0);
    CHECK_RC(aclrtMemPoolFreeAsync(block, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK(of_pool(pool, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT) == threshold);
    CHECK(of_pool(pool, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH) == 20 << 20);
    CHECK_RC(aclrtMemPoolTrimTo(pool, 4 << 20), 0);
    CHECK(of_pool(pool, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT) == 4 << 20);
    CHECK_RC(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    CHECK_RC(aclrtMemPoolFreeAsync(block, stream), 0); /* memory that is not from a pool is also accepted */
    CHECK_THEN(aclrtSynchronizeStream(stream), stats().device_blocks == 0);
    CHECK_RC(aclrtMemPoolMallocAsync(&block, 64, pool, stream), 0);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK(stats().pools == 0 && stats().pool_blocks == 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    size_t unused = 0;
    size_t total = 0;
    CHECK_THEN(aclrtGetMemInfo(ACL_HBM_MEM, &unused, &total), unused == total);
}

static const aclrtPhysicalMemProp on_device = {.memAttr = ACL_HBM_MEM_HUGE,
                                               .location = {.type = ACL_MEM_LOCATION_TYPE_DEVICE, .id = 0}};

static void test_mapping(void) {
    char *base = NULL;
    aclrtDrvMemHandle handle = NULL;
    aclrtDrvMemHandle again = NULL;
    aclrtPhysicalMemProp prop = on_device;
    size_t grain = 0;
    char back[4] = "";
    CHECK_RC(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &grain), 0);
    CHECK(grain == GRAIN);
    CHECK_RC(aclrtReserveMemAddress((void **)&base, 2 * grain, 0, NULL, 0), 0);
    CHECK((uintptr_t)base % grain == 0 && stats().reservations == 1);
    CHECK_RC(aclrtMallocPhysical(&handle, grain, &prop, 0), 0);
    CHECK_RC(aclrtMemcpy(base, 4, "abc", 4, ACL_MEMCPY_HOST_TO_DEVICE), 507899); /* reserved, but not mapped */
    CHECK_RC(aclrtMapMem(base, grain, 0, handle, 0), 0);
    CHECK_RC(aclrtMapMem(base, grain, 0, handle, 0), 507899);
    CHECK_RC(aclrtMapMem(base + grain, grain, 0, handle, 0), 0); /* the same bytes at a second address */
    CHECK_RC(aclrtMapMem(base + 2 * grain, grain, 0, handle, 0), 507899);
    CHECK_RC(aclrtMapMem(base, 2 * grain, 0, handle, 0), 107000);
    CHECK_RC(aclrtMemcpy(base, 4, "abc", 4, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    CHECK_RC(aclrtMemcpy(back, 4, base + grain, 4, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK(strcmp(back, "abc") == 0 && stats().mappings == 2);
    CHECK_RC(aclrtReleaseMemAddress(base), 507899);
    CHECK_THEN(aclrtMemRetainAllocationHandle(base, &again), again == handle);
    CHECK_THEN(aclrtMemGetAllocationPropertiesFromHandle(handle, &prop), prop.memAttr == ACL_HBM_MEM_HUGE);
    CHECK_RC(aclrtFreePhysical(handle), 0);
    CHECK_RC(aclrtFreePhysical(handle), 0);
    CHECK_RC(aclrtFreePhysical(handle), 507899);
    CHECK_RC(aclrtMemset(base, 4, 0, 4), 0); /* mapped memory outlives its handles */
    CHECK_RC(aclrtUnmapMem(base), 0);
    CHECK_RC(aclrtUnmapMem(base), 507899);
    CHECK_RC(aclrtUnmapMem(base + grain), 0);
    CHECK(stats().mappings == 0 && stats().physical == 0);
    CHECK_RC(aclrtReleaseMemAddress(base), 0);
    CHECK_RC(aclrtReleaseMemAddress(base), 507899);
    CHECK(stats().reservations == 0);
}

static void test_access(void) {
    char *base = NULL;
    aclrtDrvMemHandle handle = NULL;
    uint64_t flags = 77;
    aclrtMemLocation place = {.type = ACL_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    aclrtMemAccessDesc desc = {.flags = ACL_RT_MEM_ACCESS_FLAGS_READ, .location = place};
    char back[4];
    CHECK_RC(aclrtReserveMemAddress((void **)&base, GRAIN, 0, NULL, 0), 0);
    CHECK_RC(aclrtMallocPhysical(&handle, GRAIN, &on_device, 0), 0);
    CHECK_RC(aclrtMemMapNoAccess(base, GRAIN, 0, handle, 0), 0);
    CHECK_THEN(aclrtMemGetAccess(base, &place, &flags), flags == ACL_RT_MEM_ACCESS_FLAGS_NONE);
    uint64_t before = stats().violations;
    CHECK_RC(aclrtMemset(base, 4, 0, 4), 507899);
    CHECK(stats().violations == before + 1);
    CHECK_RC(aclrtMemSetAccess(base, GRAIN, &desc, 1), 0);
    CHECK_RC(aclrtMemset(base, 4, 0, 4), 507899);
    CHECK_RC(aclrtMemcpy(back, 4, base, 4, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    desc.flags = ACL_RT_MEM_ACCESS_FLAGS_READWRITE;
    CHECK_RC(aclrtMemSetAccess(base, GRAIN, &desc, 1), 0);
    CHECK_RC(aclrtMemset(base, 4, 0, 4), 0);
    CHECK_RC(aclrtMemSetAccess(base, GRAIN / 2, &desc, 1), 507899);
    CHECK_RC(aclrtMemSetAccess(base, GRAIN, &desc, 0), 107000);
    desc.location.id = 9;
    CHECK_RC(aclrtMemSetAccess(base, GRAIN, &desc, 1), 107001);
    CHECK_RC(aclrtResetDevice(0), 0); /* ends the mappings, but not the reserved addresses */
    CHECK(stats().mappings == 0 && stats().physical == 0 && stats().reservations == 1);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtMapMem(base, GRAIN, 0, handle, 0), 507899);
    CHECK_RC(aclrtReleaseMemAddress(base), 0);
}

static void test_refused_properties(void) {
    aclrtDrvMemHandle handle = NULL;
    void *base = NULL;
    aclrtPhysicalMemProp prop = on_device;
    prop.memAttr = ACL_DDR_MEM_HUGE;
    CHECK_RC(aclrtMallocPhysical(&handle, GRAIN, &prop, 0), 100000);
    prop = on_device;
    prop.location.id = 9;
    CHECK_RC(aclrtMallocPhysical(&handle, GRAIN, &prop, 0), 107001);
    prop.location.id = 1;
    CHECK_RC(aclrtMallocPhysical(&handle, GRAIN, &prop, 0), 507899); /* the device is not set */
    prop = on_device;
    CHECK_RC(aclrtMallocPhysical(&handle, SIZE_MAX, &prop, 0), 207001);
    CHECK_RC(aclrtMallocPhysical(&handle, GRAIN, &prop, 1), 100000);
    prop.location.type = ACL_MEM_LOCATION_TYPE_HOST;
    prop.memAttr = ACL_MEM_NORMAL;
    CHECK_RC(aclrtMallocPhysical(&handle, 100, &prop, 0), 0);
    CHECK_RC(aclrtFreePhysical(handle), 0);
    CHECK_RC(aclrtReserveMemAddress(&base, GRAIN, 1, NULL, 0), 107000);
    CHECK_RC(aclrtReserveMemAddress(&base, GRAIN, 0, (void *)(uintptr_t)GRAIN, 0), 107000);
    CHECK_RC(aclrtReserveMemAddressNoUCMemory(&base, GRAIN, 0, NULL, 0), 207000);
    CHECK_RC(aclrtMemMapSelectedLink(&base, 1, &base, 0), 207000);
    CHECK_RC(aclrtMemMapSetLink(&base, ACL_RT_MEM_ACCESS_LINK_SIO), 207000);
}

/* Skipped with TSan, because TSan reserves these addresses. */
static void test_wanted_addresses(void) {
#ifndef __SANITIZE_THREAD__
    void *base = NULL;
    void *taken = NULL;
    void *wanted = (void *)((uintptr_t)17 << 40);
    CHECK_THEN(aclrtReserveMemAddress(&base, GRAIN, 0, wanted, 0), base == wanted);
    CHECK_RC(aclrtReserveMemAddress(&taken, GRAIN, 0, wanted, 0), 507899);
    CHECK_RC(aclrtReleaseMemAddress(base), 0);
#endif
}

static void test_sharing(void) {
    aclrtDrvMemHandle handle = NULL;
    aclrtDrvMemHandle twin = NULL;
    uint64_t share = 0;
    int32_t self = getpid();
    char *base = NULL;
    char back[4] = "";
    CHECK_RC(aclrtMallocPhysical(&handle, GRAIN, &on_device, 0), 0);
    CHECK_RC(aclrtMemExportToShareableHandle(handle, ACL_MEM_HANDLE_TYPE_NONE, 0, &share), 0);
    CHECK_RC(aclrtMemImportFromShareableHandle(share, 0, &twin), 507899); /* this process is not on the list */
    CHECK_RC(aclrtMemSetPidToShareableHandle(share, &self, 1), 0);
    CHECK_RC(aclrtMemImportFromShareableHandle(share, 9, &twin), 107001);
    CHECK_THEN(aclrtMemImportFromShareableHandle(share, 0, &twin), twin != handle && stats().physical == 2);
    CHECK_RC(aclrtReserveMemAddress((void **)&base, 2 * GRAIN, 0, NULL, 0), 0);
    CHECK_RC(aclrtMapMem(base, GRAIN, 0, handle, 0), 0);
    CHECK_RC(aclrtMapMem(base + GRAIN, GRAIN, 0, twin, 0), 0);
    CHECK_RC(aclrtMemcpy(base, 4, "abc", 4, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    CHECK_THEN(aclrtMemcpy(back, 4, base + GRAIN, 4, ACL_MEMCPY_DEVICE_TO_HOST), strcmp(back, "abc") == 0);
    CHECK_RC(aclrtUnmapMem(base), 0);
    CHECK_RC(aclrtUnmapMem(base + GRAIN), 0);
    CHECK_RC(aclrtReleaseMemAddress(base), 0);
    CHECK_RC(aclrtFreePhysical(handle), 0);
    CHECK_RC(aclrtMemExportToShareableHandleV2(twin, 1, ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT, &share), 0);
    CHECK_RC(aclrtMemSetPidToShareableHandleV2(&share, ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT, &self, 1), 0);
    CHECK_RC(aclrtMemImportFromShareableHandleV2(&share, ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT, 0, &handle), 0);
    CHECK_RC(aclrtMemImportFromShareableHandleV2(&share, ACL_MEM_SHARE_HANDLE_TYPE_FABRIC, 0, &handle), 207000);
    CHECK_RC(aclrtFreePhysical(handle), 0);
    CHECK_RC(aclrtFreePhysical(twin), 0);
    CHECK_RC(aclrtMemImportFromShareableHandle(share, 0, &twin), 507899);
    CHECK(stats().physical == 0);
}

static void test_keys(void) {
    void *seen = NULL;
    char key[KEY] = "";
    int32_t self = getpid();
    void *block = new_block(64);
    CHECK_RC(aclrtIpcMemGetExportKey(block, 64, key, 64, 0), 107000);
    CHECK_RC(aclrtIpcMemGetExportKey(block, 1000, key, KEY, 0), 507899);
    CHECK_RC(aclrtIpcMemGetExportKey(block, 64, key, KEY, 0), 0);
    CHECK_RC(aclrtIpcMemImportByKey(&seen, key, 0), 507899);
    CHECK_RC(aclrtIpcMemSetImportPid(key, &self, 1), 0);
    CHECK_THEN(aclrtIpcMemImportByKey(&seen, key, 0), seen == block && stats().exports == 1);
    CHECK_RC(aclrtIpcMemClose(key), 0);
    CHECK_RC(aclrtIpcMemClose(key), 0);
    CHECK_RC(aclrtIpcMemClose(key), 507899);
    CHECK_RC(aclrtIpcMemGetExportKey(block, 64, key, KEY, 1), 0);
    CHECK_RC(aclrtIpcMemSetAttr(key, ACL_RT_IPC_MEM_ATTR_ACCESS_LINK, 0), 207000);
    CHECK_RC(aclrtMemP2PMap(block, 64, 1, 0), 0);
    CHECK_RC(aclrtMemP2PMap(&seen, 64, 1, 0), 507899);
    CHECK_RC(aclrtFree(block), 0);
    CHECK(stats().exports == 0);
    CHECK_RC(aclrtIpcMemImportByKey(&seen, key, 0), 507899);
}

int main(void) {
    start_acl();
    RUN(test_registration, test_registered_and_unmapped, test_managed, test_pool_order, test_pool_keeps,
        test_mapping, test_access, test_refused_properties, test_wanted_addresses, test_sharing, test_keys);
    CHECK(aclsim_check_memory() == 0);
    CHECK_RC(aclrtResetDevice(0), 0);
}
