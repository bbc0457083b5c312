/* Whole devices: peers, ids, attributes, limits, aborts of all tasks, and options. */
#include <string.h>

#include "sim_test.h"

static void test_peers(void) {
    int32_t value = -1;
    CHECK_THEN(aclrtDeviceCanAccessPeer(&value, 0, 1), value == 1);
    CHECK_THEN(aclrtDevicePeerAccessStatus(0, 1, &value), value == 0);
    CHECK_RC(aclrtDeviceEnablePeerAccess(1, 0), 0);
    CHECK_THEN(aclrtDevicePeerAccessStatus(0, 1, &value), value == 1);
    CHECK_THEN(aclrtDevicePeerAccessStatus(1, 0, &value), value == 0);
    CHECK_RC(aclrtDevicePeerAccessStatus(0, 9, &value), 107001);
    CHECK_RC(aclrtDevicePeerAccessStatus(0, 1, NULL), 100000);
    CHECK_RC(aclrtDeviceDisablePeerAccess(1), 0);
    CHECK_THEN(aclrtDevicePeerAccessStatus(0, 1, &value), value == 0);
    uint64_t topology = 0;
    CHECK_THEN(aclrtGetDevicesTopo(0, 1, &topology), topology == 1);
    CHECK_RC(aclrtGetDevicesTopo(0, 9, &topology), 107001);
    uint32_t capability = 9;
    aclrtAtomicOperation operation = ACL_RT_ATOMIC_OPERATION_CAS;
    CHECK_THEN(aclrtDeviceGetHostAtomicCapabilities(&capability, &operation, 1, 0), capability == 0);
    CHECK_RC(aclrtDeviceGetP2PAtomicCapabilities(&capability, NULL, 1, 0, 1), 107000);
}

static void test_facts(void) {
    int64_t value = 0;
    int32_t flag = 0;
    CHECK_THEN(aclrtGetDeviceInfo(0, ACL_DEV_ATTR_VECTOR_CORE_NUM, &value), value == 48);
    CHECK_THEN(aclrtGetDeviceInfo(1, ACL_DEV_ATTR_PHY_CHIP_ID, &value), value == 1);
    CHECK_RC(aclrtGetDeviceInfo(0, ACL_DEV_ATTR_WARP_SIZE, &value), 207000);
    CHECK_RC(aclrtGetDeviceInfo(0, (aclrtDevAttr)5, &value), 107000);
    CHECK_THEN(aclGetDeviceCapability(0, ACL_DEVICE_INFO_AI_CORE_NUM, &value), value == 24);
    CHECK_RC(aclGetDeviceCapability(0, ACL_DEVICE_INFO_UNDEFINED, &value), 100000);
    CHECK_RC(aclrtGetDeviceCapability(0, ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV, &flag), 0);
    CHECK_RC(aclrtGetDeviceCapability(0, (aclrtDevFeatureType)2, &flag), 107000);
    aclrtUtilizationInfo load;
    memset(&load, 0, sizeof load);
    CHECK_RC(aclrtGetDeviceUtilizationRate(0, &load), 0);
    CHECK(load.cubeUtilization >= 0 && load.cubeUtilization <= 100 && load.memoryUtilization == -1);
    CHECK_RC(aclrtGetDeviceUtilizationRate(9, &load), 0);
    CHECK(load.cubeUtilization == -1 && aclrtGetLastError(ACL_RT_THREAD_LEVEL) == 107001);
    CHECK_THEN(aclrtCheckArchCompatibility("Ascend910B4", &flag), flag == 1);
    CHECK_THEN(aclrtCheckArchCompatibility("Ascend310P3", &flag), flag == 0);
    CHECK_RC(aclrtCheckArchCompatibility("Tesla", &flag), 107000);
    CHECK_THEN(aclrtDeviceGetBareTgid(&flag), flag == getpid());
}

static void test_ids(void) {
    aclrtUuid first;
    aclrtUuid second;
    char bus[16];
    int32_t id = -1;
    CHECK_RC(aclrtDeviceGetUuid(0, &first), 0);
    CHECK_THEN(aclrtDeviceGetUuid(1, &second), memcmp(&first, &second, sizeof first) != 0);
    CHECK_RC(aclrtDeviceGetUuid(9, &first), 107001);
    CHECK_RC(aclrtDeviceGetPCIBusId(1, bus, 12), 107000);
    CHECK_RC(aclrtDeviceGetPCIBusId(1, bus, 13), 0);
    CHECK_THEN(aclrtDeviceGetByPCIBusId(bus, &id), id == 1);
    CHECK_RC(aclrtDeviceGetByPCIBusId("0000:ff:00.0", &id), 107001);
    CHECK_RC(aclrtGetLogicDevIdByUserDevId(1, &id), 0);
    CHECK_RC(aclrtGetUserDevIdByLogicDevId(id, &id), 0);
    CHECK_RC(aclrtGetPhyDevIdByUserDevId(id, &id), 0);
    CHECK_RC(aclrtGetUserDevIdByPhyDevId(id, &id), 0);
    CHECK_RC(aclrtGetPhyDevIdByLogicDevId(id, &id), 0);
    CHECK_THEN(aclrtGetLogicDevIdByPhyDevId(id, &id), id == 1);
    CHECK_RC(aclrtGetLogicDevIdByUserDevId(2, &id), 107001);
    CHECK_RC(aclrtGetUserDevIdByPhyDevId(-1, &id), 107000);
    CHECK_RC(aclrtGetLogicDevIdByUserDevId(-1, &id), 107000);
    CHECK_RC(aclrtGetUserDevIdByPhyDevId(0, NULL), 100000);
}

static void test_versions(void) {
    char text[128];
    int32_t numbers[3];
    aclCANNPackageVersion version;
    const aclCannAttr *attributes = NULL;
    size_t count = 0;
    CHECK_RC(aclsysGetVersionStr((char[]){"runtime"}, text), 0);
    CHECK_RC(aclsysGetVersionNum((char[]){"runtime"}, numbers), 0);
    CHECK(strcmp(text, "9.1.0") == 0 && numbers[0] == 90100000);
    CHECK_RC(aclsysGetVersionStr((char[]){""}, text), 100000);
    CHECK_RC(aclsysGetCANNVersion(ACL_PKG_NAME_DRIVER, &version), 0);
    CHECK(strcmp(version.majorVersion, "9") == 0 && strcmp(version.patchVersion, "0") == 0);
    CHECK_RC(aclsysGetCANNVersion((aclCANNPackageName)8, &version), 100000);
    CHECK_THEN(aclrtGetVersion(&numbers[0], &numbers[1], &numbers[2]), numbers[0] == 1);
    CHECK_RC(aclGetCannAttributeList(&attributes, &count), 0);
    for (size_t i = 0; i < count; i++) {
        CHECK_THEN(aclGetCannAttribute(attributes[i], numbers), numbers[0] == 1);
    }
    CHECK_RC(aclGetCannAttribute(ACL_CANN_ATTR_UNDEFINED, numbers), 100000);
}

static void test_time_limits(void) {
    uint32_t limit_ms = 0;
    uint64_t interval = 0;
    uint64_t actual = 0;
    CHECK_RC(aclrtSetOpExecuteTimeOut(10), 0);
    CHECK_THEN(aclrtGetOpExecuteTimeout(&limit_ms), limit_ms == 10000);
    CHECK_RC(aclrtSetOpExecuteTimeOutWithMs(7), 0);
    CHECK_THEN(aclrtGetOpExecuteTimeout(&limit_ms), limit_ms == 7);
    CHECK_RC(aclrtGetOpTimeOutInterval(&interval), 0);
    CHECK_THEN(aclrtSetOpExecuteTimeOutV2(interval + 1, &actual), actual == 2 * interval);
    CHECK_THEN(aclrtSetOpExecuteTimeOutV2(0, &actual), actual == 254 * interval);
    CHECK_RC(aclrtSetOpExecuteTimeOutV2(0, NULL), 100000);
}

static void test_cores(void) {
    uint32_t value = 0;
    size_t limit = 0;
    aclrtStream stream = new_stream();
    CHECK_THEN(aclrtGetDeviceResLimit(0, ACL_RT_DEV_RES_CUBE_CORE, &value), value == 24);
    CHECK_RC(aclrtSetDeviceResLimit(0, ACL_RT_DEV_RES_CUBE_CORE, 25), 107000);
    CHECK_RC(aclrtSetDeviceResLimit(0, ACL_RT_DEV_RES_CUBE_CORE, 8), 0);
    CHECK_THEN(aclrtGetStreamResLimit(stream, ACL_RT_DEV_RES_CUBE_CORE, &value), value == 8);
    CHECK_RC(aclrtSetStreamResLimit(stream, ACL_RT_DEV_RES_CUBE_CORE, 4), 0);
    CHECK_THEN(aclrtGetResInCurrentThread(ACL_RT_DEV_RES_CUBE_CORE, &value), value == 8);
    CHECK_RC(aclrtUseStreamResInCurrentThread(stream), 0);
    CHECK_THEN(aclrtGetResInCurrentThread(ACL_RT_DEV_RES_CUBE_CORE, &value), value == 4);
    CHECK_RC(aclrtUnuseStreamResInCurrentThread(NULL), 0); /* no effect, because this is another stream */
    CHECK_THEN(aclrtGetResInCurrentThread(ACL_RT_DEV_RES_CUBE_CORE, &value), value == 4);
    CHECK_RC(aclrtUnuseStreamResInCurrentThread(stream), 0);
    CHECK_RC(aclrtResetStreamResLimit(stream), 0);
    CHECK_RC(aclrtResetDeviceResLimit(0), 0);
    CHECK_THEN(aclrtGetStreamResLimit(stream, ACL_RT_DEV_RES_CUBE_CORE, &value), value == 24);
    CHECK_RC(aclrtGetDeviceResLimit(1, ACL_RT_DEV_RES_CUBE_CORE, &value), 507033);
    CHECK_RC(aclrtGetDeviceResLimit(-1, ACL_RT_DEV_RES_CUBE_CORE, &value), 107001);
    CHECK_RC(aclrtGetDeviceResLimit(0, (aclrtDevResLimitType)2, &value), 107000);
    CHECK_RC(aclrtUseStreamResInCurrentThread(&value), 107017);
    CHECK_RC(aclrtSetStreamResLimit(stream, ACL_RT_DEV_RES_CUBE_CORE, 4), 0);
    CHECK_RC(aclrtUseStreamResInCurrentThread(stream), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_THEN(aclrtGetResInCurrentThread(ACL_RT_DEV_RES_CUBE_CORE, &value), value == 4);
    CHECK_THEN(aclrtGetResInCurrentThread(ACL_RT_DEV_RES_VECTOR_CORE, &value), value == 48);
    stream = new_stream(); /* takes the slot of the destroyed stream */
    CHECK_THEN(aclrtGetResInCurrentThread(ACL_RT_DEV_RES_CUBE_CORE, &value), value == 24);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_RC(aclrtDeviceSetLimit(ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, 65536), 0);
    CHECK_THEN(aclrtDeviceGetLimit(ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE, &limit), limit == 65536);
    CHECK_RC(aclrtDeviceSetLimit(ACL_RT_DEV_LIMIT_SIMT_STACK_SIZE, 1), 207000);
    CHECK_RC(aclrtDeviceSetLimit((aclrtDeviceLimit)5, 1), 100000);
}

static void test_attributes(void) {
    aclrtStream stream = NULL;
    aclrtStreamAttrValue value;
    CHECK_RC(aclrtCreateStreamWithConfig(&stream, 3, 0), 0);
    memset(&value, 0, sizeof value);
    CHECK_RC(aclrtGetStreamAttribute(stream, ACL_STREAM_ATTR_USER_CUSTOM_TAG, &value), 0);
    CHECK(value.userCustomTag == UINT32_MAX);
    value.userCustomTag = 5;
    CHECK_RC(aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_USER_CUSTOM_TAG, &value), 0);
    CHECK_RC(aclrtGetStreamAttribute(stream, ACL_STREAM_ATTR_USER_CUSTOM_TAG, &value), 0);
    CHECK(value.userCustomTag == 5);
    value.cacheOpInfoSwitch = 1;
    CHECK_RC(aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_CACHE_OP_INFO, &value), 0);
    CHECK_THEN(aclrtGetStreamAttribute(stream, ACL_STREAM_ATTR_CACHE_OP_INFO, &value),
               value.cacheOpInfoSwitch == 0);
    value.streamPriority = 8;
    CHECK_RC(aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_PRIORITY, &value), 0);
    CHECK_THEN(aclrtGetStreamAttribute(stream, ACL_STREAM_ATTR_PRIORITY, &value), value.streamPriority == 0);
    value.failureMode = 1;
    CHECK_RC(aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_FAILURE_MODE, &value), 0);
    value.failureMode = 0;
    CHECK_RC(aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_FAILURE_MODE, &value), 207000);
    CHECK_RC(aclrtGetStreamAttribute(&value, ACL_STREAM_ATTR_PRIORITY, &value), 107017);
    char *device = new_block(64);
    char host[64];
    CHECK_RC(aclrtGetOverflowStatus(device, 64, stream), 0);
    CHECK_RC(aclrtGetOverflowStatus(device, 8, stream), 107000);
    CHECK_RC(aclrtNpuGetFloatOverFlowStatus(device, 64, 2, stream), 107000);
    CHECK_RC(aclrtResetOverflowStatus(stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    memset(host, 1, sizeof host);
    CHECK_THEN(aclrtMemcpy(host, 64, device, 64, ACL_MEMCPY_DEVICE_TO_HOST), host[0] == 0 && host[63] == 0);
    void *address = NULL;
    CHECK_RC(aclrtCtxGetFloatOverflowAddr(NULL), 107000);
    CHECK_THEN(aclrtCtxGetFloatOverflowAddr(&address), address != NULL);
    END({aclrtFree, device}, {aclrtDestroyStream, stream});
}

static int stages;

static int32_t on_abort(int32_t device, aclrtDeviceTaskAbortStage stage, uint32_t timeout, void *arg) {
    CHECK(device == 0 && timeout == 1000 && (int)stage == stages % 2);
    stages++;
    return *(int *)arg;
}

static void test_task_abort(void) {
    int answer = 0;
    aclrtStream stuck = new_stream();
    aclrtEvent event = old_event(1);
    CHECK_RC(aclrtStreamWaitEvent(stuck, event), 0);
    CHECK_RC(aclrtSetDeviceTaskAbortCallback("test", on_abort, &answer), 0);
    CHECK_RC(aclrtSetDeviceTaskAbortCallback("test", on_abort, &answer), 107000);
    CHECK_RC(aclrtSetDeviceTaskAbortCallback(NULL, on_abort, &answer), 100000);
    call_t call;
    call_waiting(&call, body_sync, stuck, "aclrtSynchronizeStream");
    CHECK_RC(aclrtDeviceTaskAbort(0, 1000), 0);
    CHECK(call_join(&call) == 107022 && stages == 2);
    CHECK_RC(aclrtSynchronizeStream(stuck), 0);
    answer = 1;
    CHECK_RC(aclrtDeviceTaskAbort(0, 1000), 107035);
    CHECK(stages == 3);
    CHECK_RC(aclrtSetDeviceTaskAbortCallback("test", NULL, NULL), 0);
    CHECK_RC(aclrtDeviceTaskAbort(0, 36 * 60 * 1000 + 1), 107000);
    CHECK_RC(aclrtDeviceTaskAbort(9, 0), 107001);
    CHECK_RC(aclrtDeviceTaskAbort(1, 0), 107002);
    aclsim_set_abort_supported(0);
    CHECK_RC(aclrtDeviceTaskAbort(0, 0), 207000);
    aclsim_set_abort_supported(1);
    END({aclrtDestroyEvent, event}, {aclrtDestroyStream, stuck});
}

/* An abort also clears a failure in STOP mode. */
static void test_abort_clears_a_failure(void) {
    char *block = new_block(64);
    aclrtStream stream = new_stream();
    CHECK_RC(aclrtSetStreamFailureMode(stream, 1), 0);
    CHECK(aclsim_fail_next(stream, 507015) == 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 0, 64, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 507015);
    CHECK_RC(aclrtSynchronizeStream(NULL), 507015);
    CHECK_RC(aclrtDeviceTaskAbort(0, 0), 0);
    CHECK_RC(aclrtSynchronizeStream(NULL), 0);
    CHECK_RC(aclrtMemsetAsync(block, 64, 0, 64, stream), 0);
    CHECK_RC(aclrtSynchronizeStream(stream), 0);
    END({aclrtDestroyStream, stream}, {aclrtFree, block});
}

static aclError body_create_and_destroy(void *unused) {
    aclrtStream stream = NULL;
    (void)unused;
    aclError rc = aclrtCreateStream(&stream);
    return rc != 0 ? rc : aclrtDestroyStream(stream);
}

static uint32_t on_snapshot(int32_t device, void *arg) {
    int *count = arg;
    CHECK(device == 0);
    return (uint32_t)(++*count > 5);
}

static void test_snapshots(void) {
    int pid = (int)getpid();
    int count = 0;
    for (int stage = 0; stage <= ACL_RT_SNAPSHOT_UNLOCK_POST; stage++) {
        CHECK_RC(aclrtSnapShotCallbackRegister((aclrtSnapShotStage)stage, on_snapshot, &count), 0);
    }
    CHECK_RC(aclrtSnapShotCallbackRegister(ACL_RT_SNAPSHOT_LOCK_PRE, on_snapshot, NULL), 507913);
    CHECK_RC(aclrtSnapShotCallbackRegister((aclrtSnapShotStage)6, on_snapshot, NULL), 107000);
    CHECK_RC(aclrtSnapShotProcessUnlock(pid, NULL), 507907);
    CHECK_RC(aclrtSnapShotProcessLock(pid + 1, NULL), 100000);
    CHECK_RC(aclrtSnapShotProcessLock(pid, &count), 100000);
    CHECK_RC(aclrtSnapShotProcessLock(pid, NULL), 0);
    CHECK_RC(aclrtSnapShotProcessLock(pid, NULL), 507906);
    call_t call;
    call_waiting(&call, body_create_and_destroy, NULL, "aclrtCreateStream");
    CHECK_RC(aclrtSnapShotProcessRestore(pid, NULL), 507909);
    CHECK_RC(aclrtSnapShotProcessBackup(pid, NULL), 0);
    CHECK_RC(aclrtSnapShotProcessBackup(pid, NULL), 507908);
    CHECK_RC(aclrtSnapShotProcessRestore(pid, NULL), 0);
    CHECK(count == 5);
    CHECK_RC(aclrtSnapShotProcessUnlock(pid, NULL), 507912); /* the lock has ended, but a callback failed */
    CHECK(call_join(&call) == 0);
    for (int stage = 0; stage <= ACL_RT_SNAPSHOT_UNLOCK_POST; stage++) {
        CHECK_RC(aclrtSnapShotCallbackUnregister((aclrtSnapShotStage)stage, on_snapshot), 0);
    }
    CHECK_RC(aclrtSnapShotCallbackUnregister(ACL_RT_SNAPSHOT_LOCK_PRE, on_snapshot), 107000);
}

static void test_other_calls(void) {
    aclrtErrorInfo info;
    uint32_t count = 0;
    size_t size = 0;
    CHECK_THEN(aclrtGetErrorVerbose(0, &info), info.errorType == ACL_RT_NO_ERROR && info.hasDetail == 0);
    CHECK_RC(aclrtRepairError(0, &info), 0);
    info.errorType = ACL_RT_ERROR_MEMORY;
    CHECK_RC(aclrtRepairError(0, &info), 107000);
    CHECK_RC(aclrtGetErrorVerbose(9, &info), 107001);
    CHECK_RC(aclrtGetErrorVerbose(0, NULL), 100000);
    CHECK_RC(aclrtSetGroup(0), 207000);
    CHECK_RC(aclrtGetGroupCount(&count), 207000);
    CHECK(aclrtCreateGroupInfo() == NULL);
    CHECK_RC(aclrtGetAllGroupInfo((aclrtGroupInfo *)(void *)&info), 207000);
    CHECK_RC(aclrtGetGroupInfoDetail((aclrtGroupInfo *)(void *)&info, 0, ACL_GROUP_AIC_INT, &count, 4, &size),
             207000);
    CHECK_RC(aclrtDestroyGroupInfo((aclrtGroupInfo *)(void *)&info), 100000);
    CHECK_RC(aclrtDeviceL2CacheFlush(NULL), 0);
    CHECK_RC(aclrtDeviceL2CacheFlush(&info), 100000);
    CHECK_RC(aclrtSetTsDevice(ACL_TS_ID_AIVECTOR), 0);
}

static void test_host_subscriptions(void) {
    uint64_t self = (uint64_t)pthread_self();
    aclrtStream stream = new_stream();
    CHECK_RC(aclrtProcessHostFunc(0), 100000);
    CHECK_RC(aclrtProcessHostFunc(1), 107012);
    CHECK_RC(aclrtUnSubscribeHostFunc(self, stream), 107011);
    CHECK_RC(aclrtSubscribeHostFunc(self, stream), 0);
    CHECK_RC(aclrtSubscribeHostFunc(self, stream), 107011);
    CHECK_RC(aclrtProcessHostFunc(1), 507012);
    CHECK_RC(aclrtUnSubscribeHostFunc(self + 1, stream), 107012);
    CHECK_RC(aclrtUnSubscribeHostFunc(self, stream), 0);
    CHECK_RC(aclrtSubscribeHostFunc(self, stream), 0);
    CHECK_RC(aclrtDestroyStream(stream), 0);
    CHECK_RC(aclrtProcessHostFunc(1), 107012);
}

static void test_reset_clears_settings(void) {
    int32_t status = -1;
    uint32_t cores = 0;
    CHECK_RC(aclrtDeviceEnablePeerAccess(1, 0), 0);
    CHECK_RC(aclrtSetDeviceResLimit(0, ACL_RT_DEV_RES_VECTOR_CORE, 2), 0);
    reset_and_set();
    CHECK_RC(aclrtDevicePeerAccessStatus(0, 1, &status), 0);
    CHECK_THEN(aclrtGetDeviceResLimit(0, ACL_RT_DEV_RES_VECTOR_CORE, &cores), status == 0 && cores == 48);
}

int main(void) {
    start_acl();
    RUN(test_peers, test_facts, test_ids, test_versions, test_time_limits, test_cores, test_task_abort,
        test_abort_clears_a_failure, test_attributes);
    reset_and_set();
    RUN(test_snapshots, test_other_calls, test_host_subscriptions, test_reset_clears_settings);
    CHECK_RC(aclrtResetDevice(0), 0);
    aclsim_stats_t left = stats();
    CHECK(left.streams == 0 && left.events == 0 && left.descriptions == 0 && left.device_blocks == 0);
}
