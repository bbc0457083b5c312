/* Kernels: registering, loading, names, arguments, all ways of launching, and failures. */
#include <string.h>

#include "sim_test.h"

aclError aclrtLaunchSIMTKernelWithArgsArray(void *func, dim3 gridDim, dim3 blockDim, size_t dynUbufSize,
                                            aclrtStream stream, aclrtLaunchKernelCfg *cfg, void **args);
aclError aclrtLaunchSIMTKernelWithHostArgs(void *func, dim3 gridDim, dim3 blockDim, size_t dynUbufSize,
                                           aclrtStream stream, aclrtLaunchKernelCfg *cfg, void *hostArgs,
                                           size_t argsSize, aclrtPlaceHolderInfo *placeHolderArray,
                                           size_t placeHolderNum);

/* The description of the last launch; written by the device's thread, read after a synchronize. */
static aclsim_launch_t last_launch;
static atomic_int launches;
static const char symbol_of_add;

typedef struct {
    int32_t *out;
    int32_t count;
    int32_t add;
} add_args_t;

static int kernel_add(const aclsim_launch_t *launch) {
    const add_args_t *args = launch->args;
    last_launch = *launch;
    atomic_fetch_add(&launches, 1);
    for (int32_t i = 0; i < args->count; i++) {
        args->out[i] += args->add;
    }
    return 0;
}

/* Arguments of the kernel: a pointer that the launch replaces with a placeholder's address, then the address of
 * the result. */
typedef struct {
    const int64_t *values;
    int64_t *out;
} sum_args_t;

static int kernel_sum(const aclsim_launch_t *launch) {
    const sum_args_t *args = launch->args;
    *args->out = args->values[0] + args->values[1];
    return 0;
}

static int kernel_answer(const aclsim_launch_t *launch) {
    return *(const int *)launch->user;
}

static aclrtBinHandle load(void) {
    aclrtBinHandle binary = NULL;
    CHECK_RC(aclrtBinaryLoadFromData("code", 4, NULL, &binary), 0);
    return binary;
}

static aclrtFuncHandle function_of(aclrtBinHandle binary, const char *name) {
    aclrtFuncHandle function = NULL;
    CHECK_RC(aclrtBinaryGetFunction(binary, name, &function), 0);
    return function;
}

static void test_registry(void) {
    CHECK(aclsim_register_kernel(NULL, kernel_add, NULL) == -1);
    CHECK(aclsim_register_kernel("", kernel_add, NULL) == -1);
    CHECK(aclsim_register_kernel("nobody", NULL, NULL) == -1);
    CHECK(aclsim_kernel_symbol("nobody", &symbol_of_add) == -1);
    CHECK(aclsim_kernel_parameters("nobody", NULL, 0) == -1);
    CHECK(aclsim_register_kernel("7", kernel_add, NULL) == 0);
    CHECK(aclsim_register_kernel("7", NULL, NULL) == 0);
    CHECK(aclsim_register_kernel("7", NULL, NULL) == -1);
}

/* A client's copies to the device must not reach the simulator's own data. */
static void check_out_of_reach(void *address) {
    char bytes[8] = {0};
    CHECK(address != NULL);
    CHECK_RC(aclrtMemcpy(bytes, 8, address, 8, ACL_MEMCPY_DEVICE_TO_HOST), 507899);
    CHECK_RC(aclrtMemcpy(address, 8, bytes, 8, ACL_MEMCPY_HOST_TO_DEVICE), 507899);
    CHECK_RC(aclrtFree(address), 507899);
    CHECK_RC(aclrtReleaseMemAddress(address), 507899);
    CHECK(stats().violations == 4 && aclGetRecentErrMsg() != NULL); /* reading the error text clears it */
    aclsim_forget();
}

static void test_addresses_of_the_device(void) {
    aclrtBinHandle binary = load();
    void *addresses[2] = {NULL, NULL};
    void *image = NULL;
    size_t size = 0;
    CHECK_RC(aclrtGetHardwareSyncAddr(&addresses[0]), 0);
    check_out_of_reach(addresses[0]);
    CHECK_RC(aclrtGetFunctionAddr(function_of(binary, "add"), &addresses[0], &addresses[1]), 0);
    check_out_of_reach(addresses[0]);
    check_out_of_reach(addresses[1]);
    CHECK_RC(aclrtBinaryGetDevAddress(binary, &image, &size), 0);
    char *copy = malloc(size + 65536);
    CHECK_RC(aclrtMemcpy(copy, size, image, size, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    CHECK_RC(aclrtMemcpy(copy, size + 65536, image, size + 65536, ACL_MEMCPY_DEVICE_TO_HOST), 507899);
    CHECK_RC(aclrtFree(image), 507899);
    CHECK(stats().violations == 2 && aclGetRecentErrMsg() != NULL);
    aclsim_forget();
    free(copy);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
}

static void test_binaries(void) {
    aclrtBinHandle binary = NULL;
    aclrtBinary data = aclrtCreateBinary("code", 4);
    void *address = NULL;
    size_t size = 0;
    CHECK(aclrtCreateBinary(NULL, 4) == NULL && aclrtCreateBinary("", 0) == NULL);
    CHECK_RC(aclrtBinaryLoad(data, NULL), 100000);
    CHECK_RC(aclrtBinaryLoad(NULL, &binary), 100000);
    CHECK_RC(aclrtBinaryLoad(&size, &binary), 107017);
    CHECK_RC(aclrtBinaryLoad(data, &binary), 0);
    CHECK_RC(aclrtDestroyBinary(data), 0);
    CHECK_RC(aclrtDestroyBinary(data), 107017);
    CHECK_RC(aclrtBinaryGetDevAddress(binary, &address, &size), 0);
    CHECK(size == 4 && memcmp(address, "code", 4) == 0);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    CHECK_RC(aclrtBinaryUnLoad(binary), 107017);
    CHECK_RC(aclrtBinaryUnLoad(NULL), 100000);
    CHECK_RC(aclrtBinaryLoadFromFile("/no/such/file", NULL, &binary), 107000);
    CHECK_RC(aclrtBinaryLoadFromFile("/", NULL, &binary), 107000);
    CHECK_RC(aclrtBinaryLoadFromFile("/proc/self/exe", NULL, &binary), 0);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    aclrtBinaryLoadOption option = {.type = ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE};
    aclrtBinaryLoadOptions options = {&option, 1};
    CHECK_RC(aclrtBinaryLoadFromData("code", 4, &options, &binary), 0);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    char *large = calloc(1, 20 << 20);
    CHECK_RC(aclrtBinaryLoadFromData(large, 20 << 20, &options, &binary), 0);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    free(large);
    memset(&option.type, 9, sizeof option.type);
    CHECK_RC(aclrtBinaryLoadFromData("code", 4, &options, &binary), 107000);
}

static void test_unknown_kernel(void) {
    aclrtBinHandle binary = load();
    aclrtFuncHandle function = NULL;
    CHECK_RC(aclrtBinaryGetFunction(binary, "softmax", &function), 207000);
    const char *text = aclGetRecentErrMsg();
    CHECK(text != NULL && strstr(text, "softmax") != NULL && strstr(text, "aclsim_register_kernel") != NULL);
    CHECK_RC(aclrtBinaryGetFunctionByEntry(binary, 7, &function), 207000);
    CHECK_RC(aclrtBinaryGetFunction(binary, NULL, &function), 100000);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    CHECK_RC(aclrtBinaryGetFunction(binary, "add", &function), 107017);
}

static void test_functions(void) {
    aclrtBinHandle binary = load();
    aclrtBinHandle of = NULL;
    aclrtFuncHandle function = function_of(binary, "add");
    aclrtFuncHandle by_symbol = NULL;
    void *addresses[2] = {NULL, NULL};
    char name[8];
    int64_t value = -1;
    size_t number = 0;
    size_t offset = 0;
    CHECK(function == function_of(binary, "add"));
    CHECK_THEN(aclrtGetFunctionName(function, 4, name), strcmp(name, "add") == 0);
    CHECK_RC(aclrtGetFunctionName(function, 3, name), 107000);
    CHECK_THEN(aclrtFunctionGetBinary(function, &of), of == binary);
    CHECK_THEN(aclrtGetFunctionAddr(function, &addresses[0], &addresses[1]), addresses[0] != NULL);
    CHECK_RC(aclrtGetFunctionSize(function, &number, &offset), 207000);
    CHECK_RC(aclrtGetFunctionAttribute(function, ACL_FUNC_ATTR_KERNEL_TYPE, &value), 0);
    CHECK(value == ACL_KERNEL_TYPE_MIX);
    CHECK_RC(aclrtRegisterCpuFunc(binary, "op", "sum", &of), 0);
    CHECK_RC(aclrtGetFunctionAttribute(of, ACL_FUNC_ATTR_KERNEL_TYPE, &value), 0);
    CHECK(value == ACL_KERNEL_TYPE_AICPU);
    CHECK_THEN(aclrtFunctionGetParamCount(function, &number), number == 3);
    CHECK_THEN(aclrtFunctionGetParamInfo(function, 2, &offset, &number), offset == 12 && number == 4);
    CHECK_RC(aclrtFunctionGetParamInfo(function, 3, &offset, &number), 107000);
    CHECK_THEN(aclrtFunctionGetAvailDynUbufPerBlock(function, 0, &number), number > 0);
    CHECK_RC(aclrtBinarySetExceptionCallback(binary, NULL, NULL), 0);
    CHECK_THEN(aclrtGetFuncBySymbol(&symbol_of_add, &by_symbol), by_symbol != function);
    CHECK_RC(aclrtFunctionGetBinary(by_symbol, &of), 107044);
    aclGetRecentErrMsg(); /* reading the text clears it */
    CHECK_RC(aclrtGetFuncBySymbol(&number, &by_symbol), 107042);
    const char *text = aclGetRecentErrMsg();
    CHECK(text != NULL && strstr(text, "aclsim_kernel_symbol") != NULL);
    CHECK_RC(aclrtGetSymbolSize(&number, &number), 107042);
    CHECK_RC(aclrtMemcpyToSymbol(&number, &number, 8, 0, ACL_MEMCPY_HOST_TO_DEVICE), 107042);
    CHECK_RC(aclrtBinaryGetGlobal(binary, "v", addresses, &number), 107042);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    CHECK_RC(aclrtGetFunctionName(function, 4, name), 107017);
}

static void test_args_on_device(void) {
    aclrtStream stream = new_stream();
    aclrtBinHandle binary = load();
    aclrtFuncHandle function = function_of(binary, "add");
    int32_t *out = zeros(16);
    add_args_t args = {out, 4, 3};
    void *device_args = zeros(sizeof args);
    CHECK_RC(aclrtMemcpy(device_args, sizeof args, &args, sizeof args, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    CHECK_RC(aclrtLaunchKernel(function, 8, device_args, sizeof args, stream), 0);
    CHECK_RC(aclrtLaunchKernelV2(function, 9, device_args, sizeof args, NULL, stream), 0);
    CHECK_THEN(aclrtSynchronizeStream(stream), out[0] == 6 && out[3] == 6);
    CHECK(last_launch.num_blocks == 9 && last_launch.grid[0] == 9 && last_launch.device == 0 &&
          last_launch.stream == stream);
    CHECK(last_launch.args_size == sizeof args && strcmp(last_launch.name, "add") == 0);
    CHECK_RC(aclrtLaunchKernel(NULL, 8, device_args, sizeof args, stream), 100000);
    CHECK_RC(aclrtLaunchKernel(function, 8, NULL, sizeof args, stream), 100000);
    CHECK_RC(aclrtLaunchKernel(function, 0, device_args, sizeof args, stream), 107000);
    CHECK_RC(aclrtLaunchKernel(stream, 8, device_args, sizeof args, stream), 107017);
    CHECK_RC(aclrtLaunchKernel(function, 8, &args, sizeof args, stream), 0); /* arguments in host memory */
    CHECK_RC(aclrtSynchronizeStream(stream), 507015);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    END_BLOCKS(device_args, out);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_host_args(void) {
    aclrtStream stream = new_stream();
    aclrtBinHandle binary = load();
    aclrtFuncHandle function = function_of(binary, "sum");
    int64_t *out = zeros(8);
    struct {
        sum_args_t args;
        int64_t values[2];
    } all = {{NULL, out}, {30, 12}};
    aclrtPlaceHolderInfo holder = {0, sizeof(sum_args_t)};
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function, 1, stream, NULL, &all, sizeof all, &holder, 1), 0);
    all.values[0] = 0; /* the launch has its own copy */
    CHECK_THEN(aclrtSynchronizeStream(stream), *out == 42);
    holder.addrOffset = sizeof all;
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function, 1, stream, NULL, &all, sizeof all, &holder, 1), 107000);
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function, 1, stream, NULL, NULL, 8, NULL, 0), 100000);
    aclrtLaunchKernelAttr attr = {.id = ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT};
    aclrtLaunchKernelCfg cfg = {&attr, 1};
    holder.addrOffset = 0;
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function, 1, stream, &cfg, &all, sizeof all, &holder, 1), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    memset(&attr.id, 99, sizeof attr.id);
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function, 1, stream, &cfg, &all, sizeof all, &holder, 1), 107000);
    cfg.numAttrs = (size_t)1 << 40; /* refused without reading a terabyte */
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function, 1, stream, &cfg, &all, sizeof all, &holder, 1), 107000);
    END({aclrtBinaryUnLoad, binary}, {aclrtFree, out}, {aclrtDestroyStream, stream});
}

static void build(aclrtArgsHandle args, int64_t *out, int64_t left, aclrtParamHandle *last) {
    aclrtParamHandle holder = NULL;
    void *buffer = NULL;
    CHECK_RC(aclrtKernelArgsAppendPlaceHolder(args, &holder), 0);
    CHECK_RC(aclrtKernelArgsAppend(args, &out, sizeof out, last), 0);
    CHECK_RC(aclrtKernelArgsGetPlaceHolderBuffer(args, *last, 16, &buffer), 107000);
    CHECK_RC(aclrtKernelArgsGetPlaceHolderBuffer(args, holder, 16, &buffer), 0);
    ((int64_t *)buffer)[0] = left;
    ((int64_t *)buffer)[1] = 2;
}

static void test_argument_lists(void) {
    aclrtStream stream = new_stream();
    aclrtBinHandle binary = load();
    aclrtFuncHandle function = function_of(binary, "sum");
    int64_t *outs = zeros(16);
    int64_t *second = outs + 1;
    aclrtArgsHandle args = NULL;
    aclrtParamHandle last = NULL;
    size_t size = 0;
    CHECK_RC(aclrtKernelArgsInit(function, &args), 0);
    build(args, outs, 40, &last);
    CHECK_RC(aclrtLaunchKernelWithConfig(function, 1, stream, NULL, args, NULL), 107000);
    CHECK_RC(aclrtKernelArgsFinalize(args), 0);
    CHECK_RC(aclrtKernelArgsAppend(args, &size, 8, &last), 107000);
    CHECK_RC(aclrtLaunchKernelWithConfig(function, 1, stream, NULL, args, &size), 107000);
    CHECK_RC(aclrtLaunchKernelWithConfig(function, 1, stream, NULL, args, NULL), 0);
    CHECK_RC(aclrtKernelArgsParaUpdate(args, last, &second, 4), 107000);
    CHECK_RC(aclrtKernelArgsParaUpdate(args, last, &second, sizeof second), 0);
    CHECK_RC(aclrtLaunchKernelWithConfig(function, 1, stream, NULL, args, NULL), 0);
    CHECK_THEN(aclrtSynchronizeStream(stream), outs[0] == 42 && outs[1] == 42);
    CHECK_RC(aclrtKernelArgsGetHandleMemSize(function, &size), 0);
    char own[256];
    CHECK(size <= sizeof own);
    CHECK_THEN(aclrtKernelArgsGetMemSize(function, 13, &size), size >= 13);
    CHECK_RC(aclrtKernelArgsInitByUserMem(function, own, &size, size), 0);
    build(own, outs, 5, &last);
    CHECK_RC(aclrtKernelArgsFinalize(own), 0);
    CHECK_RC(aclrtLaunchKernelWithConfig(function, 1, stream, NULL, own, NULL), 0);
    CHECK_THEN(aclrtSynchronizeStream(stream), outs[0] == 7);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    CHECK_RC(aclrtKernelArgsFinalize(own), 107017);
    CHECK_RC(aclrtKernelArgsFinalize(args), 107017);
    END({aclrtFree, outs}, {aclrtDestroyStream, stream});
}

static void test_arrays_and_grids(void) {
    aclrtStream stream = new_stream();
    int32_t *out = zeros(16);
    int32_t count = 4;
    int32_t add = 5;
    void *array[] = {&out, &count, &add};
    add_args_t args = {out, count, add};
    dim3 grid = {2, 3, 4};
    dim3 block = {32, 1, 1};
    void *symbol = (void *)(uintptr_t)&symbol_of_add;
    CHECK_RC(aclrtLaunchKernelWithArgsArray(symbol, 1, stream, NULL, array), 0);
    CHECK_RC(aclrtLaunchSIMTKernelWithArgsArray(symbol, grid, block, 64, stream, NULL, array), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    CHECK(last_launch.num_blocks == 24 && last_launch.grid[1] == 3 && last_launch.block[0] == 32 &&
          last_launch.dynamic_bytes == 64);
    CHECK_RC(
        aclrtLaunchSIMTKernelWithHostArgs(symbol, grid, block, 0, stream, NULL, &args, sizeof args, NULL, 0),
        0);
    CHECK_THEN(aclrtSynchronizeStream(stream), out[0] == 15 && out[3] == 15);
    array[1] = NULL;
    CHECK_RC(aclrtLaunchKernelWithArgsArray(symbol, 1, stream, NULL, array), 107000);
    CHECK_RC(aclrtLaunchKernelWithArgsArray(&add, 1, stream, NULL, array), 107044);
    grid.y = 0;
    CHECK_RC(aclrtLaunchSIMTKernelWithArgsArray(symbol, grid, block, 0, stream, NULL, array), 107000);
    END({aclrtFree, out}, {aclrtDestroyStream, stream});
}

static void expect(aclrtFuncHandle function, aclrtStream stream, aclError code) {
    CHECK_RC(aclrtLaunchKernel(function, 1, NULL, 0, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), code);
}

static void test_failures(void) {
    aclrtStream stream = new_stream();
    aclrtBinHandle binary = load();
    int answer = 0;
    CHECK(aclsim_register_kernel("answer", kernel_answer, &answer) == 0);
    aclrtFuncHandle function = function_of(binary, "answer");
    expect(function, stream, 0);
    answer = 507014;
    expect(function, stream, 507014);
    answer = -1;
    expect(function, stream, 507015);
    answer = 0;
    CHECK(aclsim_trap_next(stream, 507035) == 0);
    expect(function, stream, 507035);
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtLaunchKernel(function, 1, NULL, 0, stream), 0);
    CHECK(aclsim_register_kernel("answer", NULL, NULL) == 0);
    release_and_wait(stream, 507015);
    END({aclrtBinaryUnLoad, binary}, {aclrtDestroyStream, stream});
}

typedef struct {
    aclrtFuncHandle function;
    uint32_t code;
    uint64_t argument;
    uint32_t args_size;
    atomic_bool called;
} reported_t;

static void on_exception(aclrtExceptionInfo *info, void *user) {
    reported_t *seen = user;
    CHECK_RC(aclrtGetFuncHandleFromExceptionInfo(info, &seen->function), 0);
    seen->code = aclrtGetErrorCodeFromExceptionInfo(info);
    void *args = NULL;
    CHECK_RC(aclrtGetArgsFromExceptionInfo(info, NULL, &seen->args_size), 100000);
    CHECK_RC(aclrtGetArgsFromExceptionInfo(info, &args, &seen->args_size), 0);
    seen->argument = *(uint64_t *)args;
    atomic_store(&seen->called, true);
}

static void test_a_loaded_binary_receives_its_kernels(void) {
    aclrtStream stream = new_stream();
    aclrtBinHandle binary = load();
    int answer = 507035;
    static reported_t seen;
    CHECK(aclsim_register_kernel("answer", kernel_answer, &answer) == 0);
    aclrtFuncHandle function = function_of(binary, "answer");
    CHECK_RC(aclrtBinarySetExceptionCallback(binary, on_exception, &seen), 0);
    uint64_t argument = 77;
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function, 1, stream, NULL, &argument, sizeof argument, NULL, 0), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507035);
    UNTIL(atomic_load(&seen.called));
    CHECK(seen.function == function && seen.code == 507035);
    CHECK(seen.argument == 77 && seen.args_size == sizeof argument);
    CHECK_RC(aclrtBinarySetExceptionCallback(binary, NULL, NULL), 0);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    CHECK(aclsim_register_kernel("answer", NULL, NULL) == 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
}

static void test_reset_while_queued(void) {
    aclrtStream stream = new_stream();
    aclrtBinHandle binary = load();
    sum_args_t args = {NULL, NULL};
    aclrtFuncHandle function = function_of(binary, "sum");
    CHECK(aclsim_hold(stream) == 0);
    CHECK_RC(aclrtLaunchKernelWithHostArgs(function, 1, stream, NULL, &args, sizeof args, NULL, 0), 0);
    CHECK_RC(aclrtBinaryUnLoad(binary), 0);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
    CHECK_RC(aclrtLaunchKernel(function, 1, NULL, 0, NULL), 107002);
    CHECK_RC(aclrtBinaryLoadFromData("code", 4, NULL, &binary), 107002);
    CHECK_RC(aclrtSetDevice(0), 0);
}

int main(void) {
    const size_t sizes[] = {8, 4, 4};
    CHECK_RC(aclrtSetDevice(0), 0);
    test_registry();
    CHECK(aclsim_register_kernel("add", kernel_add, NULL) == 0);
    CHECK(aclsim_register_kernel("sum", kernel_sum, NULL) == 0);
    CHECK(aclsim_kernel_parameters("add", sizes, 3) == 0);
    CHECK(aclsim_kernel_symbol("add", &symbol_of_add) == 0);
    RUN(test_addresses_of_the_device, test_binaries, test_unknown_kernel, test_functions, test_args_on_device,
        test_host_args, test_argument_lists, test_arrays_and_grids, test_failures,
        test_a_loaded_binary_receives_its_kernels, test_reset_while_queued);
    CHECK(atomic_load(&launches) == 5);
    CHECK_RC(aclrtResetDevice(0), 0);
    CHECK(aclsim_register_kernel("add", NULL, NULL) == 0);
    CHECK(aclsim_register_kernel("sum", NULL, NULL) == 0);
}
