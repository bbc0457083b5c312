/* Registered host memory in programs that copy nothing: kernels access it at a second address. */
#include <string.h>
#include <sys/mman.h>

#include "sim_test.h"

enum { PAGE = 4096, COUNT = 8192, MAPPED = 0x2, READ_ONLY = 0x8, PINNED = 0x10000000 };

static const size_t BYTES = COUNT * sizeof(int32_t);

typedef struct {
    const int32_t *left;
    const int32_t *right;
    int32_t *sum;
} sum_args_t;

/* A C kernel uses the addresses in its arguments. It can query which access is permitted at an address. */
static int kernel_sum(const aclsim_launch_t *launch) {
    const sum_args_t *args = launch->args;
    if (aclsim_reach(0, args->left, BYTES) == 0 || aclsim_reach(0, args->sum, BYTES) != 3) {
        return 507015;
    }
    for (int32_t i = 0; i < COUNT; i++) {
        args->sum[i] = args->left[i] + args->right[i];
    }
    return 0;
}

static void *client_pages(size_t size, int shared) {
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, shared | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    return pages;
}

static void *device_address(void *host) {
    void *device = NULL;
    CHECK_THEN(aclrtHostGetDevicePointer(host, &device, 0), device != NULL && device != host);
    return device;
}

static void number(int32_t *numbers, int32_t first) {
    for (int32_t i = 0; i < COUNT; i++) {
        numbers[i] = first + i;
    }
}

static void check_sum(const int32_t *sum, int32_t first) {
    for (int32_t i = 0; i < COUNT; i++) {
        CHECK(sum[i] == first + 2 * i);
    }
}

static aclrtFuncHandle function_of_sum(aclrtBinHandle *binary) {
    aclrtFuncHandle function = NULL;
    CHECK_RC(aclrtBinaryLoadFromData("code", 4, NULL, binary), 0);
    CHECK_RC(aclrtBinaryGetFunction(*binary, "sum", &function), 0);
    return function;
}

static void launch_sum(aclrtFuncHandle function, void *left, void *right, void *sum, aclrtStream stream) {
    void *addresses[3] = {left, right, sum};
    aclrtArgsHandle args = NULL;
    aclrtParamHandle param = NULL;
    CHECK_RC(aclrtKernelArgsInit(function, &args), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_RC(aclrtKernelArgsAppend(args, &addresses[i], sizeof addresses[i], &param), 0);
    }
    CHECK_RC(aclrtKernelArgsFinalize(args), 0);
    CHECK_RC(aclrtLaunchKernelWithConfig(function, 8, stream, NULL, args, NULL), 0);
}

/* Pinned memory of at least one page starts at a page boundary, regardless of earlier allocations. */
static void test_alignment(void) {
    static const size_t sizes[] = {4096, 4097, 5000, 8192, 32768, 1 << 20, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *small = new_host(100);
        void *block = new_host(sizes[i]);
        void *again = new_host(sizes[i]);
        CHECK((uintptr_t)block % PAGE == 0 && (uintptr_t)again % PAGE == 0);
        CHECK_RC(aclrtHostRegisterV2(block, sizes[i], MAPPED), 0);
        CHECK_RC(aclrtHostRegisterV2(block, sizes[i], MAPPED), 507910);
        CHECK_RC(aclrtHostUnregister(block), 0);
        CHECK_RC(aclrtHostRegisterV2(block, sizes[i] + 1, MAPPED), 507899); /* ends after the block */
        END({aclrtFreeHost, block}, {aclrtFreeHost, again}, {aclrtFreeHost, small});
    }
}

/* The kernel reads and writes pinned memory through its own addresses. The host sees the results without a
 * copy. */
static void test_zero_copy(void) {
    aclrtStream stream = new_stream();
    aclrtBinHandle binary = NULL;
    int32_t *host[3];
    void *device[3];
    for (int i = 0; i < 3; i++) {
        host[i] = new_host(BYTES);
        number(host[i], i * 100);
        CHECK_RC(aclrtHostRegisterV2(host[i], BYTES, MAPPED), 0);
        CHECK(host[i][1] == i * 100 + 1); /* the content is unchanged */
        device[i] = device_address(host[i]);
    }
    aclrtFuncHandle function = function_of_sum(&binary);
    launch_sum(function, device[0], device[1], device[2], stream);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    check_sum(host[2], 100);
    number(host[0], 7000); /* the kernel sees this write */
    launch_sum(function, device[0], device[1], device[2], stream);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    check_sum(host[2], 7100);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_THEN(aclrtHostUnregister(host[i]), aclsim_reach(0, device[i], 1) == 0);
        CHECK_RC(aclrtFreeHost(host[i]), 0);
    }
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

/* Copies accept the host address, because the memory is pinned. The device address is for kernels only. */
static void test_copies_with_both_addresses(void) {
    int32_t *host = new_host(BYTES);
    aclrtStream stream = new_stream();
    void *block = new_block(BYTES);
    CHECK_RC(aclrtHostRegisterV2(host, BYTES, MAPPED), 0);
    int32_t *device = device_address(host);
    number(host, 3);
    CHECK_RC(aclrtMemcpyAsync(block, BYTES, host, BYTES, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
    CHECK_RC(aclrtMemsetAsync(host, BYTES, 0, BYTES, stream), 0);
    CHECK_THEN(aclrtSynchronizeStream(stream), device[5] == 0);
    CHECK_RC(aclrtMemcpyAsync(host, BYTES, block, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, stream), 0);
    CHECK_THEN(aclrtSynchronizeStream(stream), device[5] == 8 && host[5] == 8);
    CHECK_RC(aclrtMemcpy(host, BYTES, block, BYTES, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK_RC(aclrtMemcpy(device, BYTES, block, BYTES, ACL_MEMCPY_DEVICE_TO_HOST), 507899);
    CHECK_RC(aclrtMemcpyAsync(block, BYTES, device, BYTES, ACL_MEMCPY_HOST_TO_DEVICE, stream), 507899);
    CHECK_RC(aclrtMemcpyAsync(block, BYTES, device, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), 507899);
    CHECK_RC(aclrtHostUnregister(host), 0);
    CHECK_RC(aclrtMemcpy(host, BYTES, block, BYTES, ACL_MEMCPY_DEVICE_TO_HOST), 0); /* pinned as before */
    CHECK_RC(aclrtHostRegisterV2(host, BYTES, MAPPED), 0); /* can be registered again */
    device = device_address(host);
    host[5] = 70;
    CHECK(device[5] == 70 && device[6] == 9);
    END({aclrtHostUnregister, host}, {aclrtFree, block}, {aclrtFreeHost, host}, {aclrtDestroyStream, stream});
}

/* Registers the client's own pages: private pages, shared pages, both in one range, and a part of a page. */
static void test_client_memory(void) {
    aclrtBinHandle binary = NULL;
    aclrtFuncHandle function = function_of_sum(&binary);
    for (int shared = 0; shared < 3; shared++) {
        char *pages = client_pages(3 * BYTES + PAGE, shared == 1 ? MAP_SHARED : MAP_PRIVATE);
        void *device = NULL;
        if (shared == 2) {
            CHECK(mmap(pages + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1,
                       0) == pages + PAGE);
        }
        int32_t *host = (int32_t *)(void *)pages;
        number(host, 1);
        number(host + COUNT, 2);
        memset(pages + 3 * BYTES, 77, PAGE);
        CHECK_RC(aclrtHostRegister(host, 3 * BYTES + 10, ACL_HOST_REGISTER_MAPPED, &device), 0);
        CHECK(device == device_address(host) && (char *)device + 8 == device_address(host + 2));
        int32_t *seen = device;
        launch_sum(function, seen, seen + COUNT, seen + 2 * (size_t)COUNT, NULL);
        CHECK_RC(aclrtSynchronizeStream(NULL), 0);
        check_sum(host + 2 * (size_t)COUNT, 3);
        CHECK(pages[3 * BYTES + 9] == 77 && pages[3 * BYTES + 100] == 77);
        CHECK(aclsim_reach(0, (char *)device + 3 * BYTES, 10) == 3);
        CHECK(aclsim_reach(0, (char *)device + 3 * BYTES, 11) == 0);
        CHECK_RC(aclrtHostUnregister(host), 0);
        check_sum(host + 2 * (size_t)COUNT, 3);
        munmap(pages, 3 * BYTES + PAGE);
    }
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
}

/* Memory of the heap and of the program itself: neighbouring bytes in the last page are not changed. */
static void test_neighbouring_bytes_are_not_changed(void) {
    static _Alignas(PAGE) char own[PAGE + 100];
    void *heap = NULL;
    CHECK(posix_memalign(&heap, PAGE, PAGE + 100) == 0);
    char *memory[] = {own, heap};
    for (int i = 0; i < 2; i++) {
        void *device = NULL;
        memset(memory[i], i, PAGE + 100);
        CHECK_RC(aclrtHostRegister(memory[i], PAGE + 100, ACL_HOST_REGISTER_MAPPED, &device), 0);
        CHECK(aclsim_reach(0, device, PAGE + 100) == 3 && ((char *)device)[PAGE + 99] == i);
        ((char *)device)[PAGE + 99] = 50;
        CHECK(memory[i][PAGE + 99] == 50);
        CHECK_RC(aclrtHostUnregister(memory[i]), 0);
    }
    free(heap);
}

/* Read-only memory stays read-only, at the host address and at the device address. */
static void test_read_only(void) {
    int32_t *host = client_pages(BYTES, MAP_PRIVATE);
    number(host, 1);
    CHECK(mprotect(host, BYTES, PROT_READ) == 0);
    CHECK_RC(aclrtHostRegisterV2(host, BYTES, MAPPED), 507899);
    CHECK_RC(aclrtHostRegisterV2(host, BYTES, READ_ONLY), 0);
    const int32_t *device = device_address(host);
    CHECK(aclsim_reach(0, device, BYTES) == 1 && aclsim_reach(0, host, BYTES) == 1);
    CHECK(device[3] == 4);
    CHECK_THEN(aclrtHostUnregister(host), mprotect(host, BYTES, PROT_READ | PROT_WRITE) == 0);
    host[3] = 5;
    munmap(host, BYTES);
}

/* Parts of a block can be registered separately. */
static void test_parts_of_a_block(void) {
    char *host = new_host(4 * PAGE);
    CHECK_RC(aclrtHostRegisterV2(host + PAGE, PAGE, MAPPED), 0);
    CHECK_RC(aclrtHostRegisterV2(host, 2 * PAGE, MAPPED), 507910);
    CHECK_RC(aclrtHostRegisterV2(host, PAGE, PINNED), 0);
    CHECK_RC(aclrtHostRegisterV2(host + 2 * PAGE + 8, PAGE, MAPPED), 107000);
    CHECK(stats().registrations == 2);
    void *seen = NULL;
    CHECK_RC(aclrtHostGetDevicePointer(host, &seen, 0), 107000); /* this part is only pinned, not mapped */
    CHECK_RC(aclrtHostGetDevicePointer(host + 2 * PAGE, &seen, 0), 107000);
    char *device = device_address(host + PAGE + 1);
    host[PAGE + 1] = 9;
    CHECK(*device == 9);
    CHECK_RC(aclrtHostUnregister(host + PAGE + 1), 507911);
    CHECK_RC(aclrtHostUnregister(host + PAGE), 0);
    END({aclrtHostUnregister, host}, {aclrtFreeHost, host});
}

/* A registration of memory ends when the memory is freed or the device is reset. */
static void test_registrations_end_with_the_memory(void) {
    char *host = new_host(2 * PAGE);
    CHECK_RC(aclrtHostRegisterV2(host, PAGE, MAPPED), 0);
    CHECK_RC(aclrtHostRegisterV2(host + PAGE, PAGE, MAPPED), 0);
    CHECK_RC(aclrtFreeHost(host), 0);
    CHECK(stats().registrations == 0);
    CHECK_RC(aclrtHostUnregister(host), 507911);
    host = new_host(PAGE);
    CHECK_RC(aclrtHostRegisterV2(host, PAGE, MAPPED), 0);
    CHECK_RC(aclrtResetDevice(0), 0);
    CHECK(stats().registrations == 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    CHECK_RC(aclrtHostRegisterV2(host, PAGE, MAPPED), 0);
    END({aclrtHostUnregister, host}, {aclrtFreeHost, host});
}

int main(void) {
    CHECK_RC(aclInit(NULL), 0);
    CHECK(aclsim_register_kernel("sum", kernel_sum, NULL) == 0);
    CHECK_RC(aclrtSetDevice(0), 0);
    RUN(test_alignment, test_zero_copy, test_copies_with_both_addresses, test_client_memory,
        test_neighbouring_bytes_are_not_changed, test_read_only, test_parts_of_a_block,
        test_registrations_end_with_the_memory);
    aclsim_stats_t left = stats();
    CHECK(left.host_blocks == 0 && left.registrations == 0 && left.device_blocks == 0);
    CHECK(aclsim_check_memory() == 0);
    end_acl();
}
