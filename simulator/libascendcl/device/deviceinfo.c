/* Queries about a device that also work if the device is not set. */
#include "soc.h"

enum { UTILIZATION_UNKNOWN = -1 };

typedef struct {
    int32_t attribute;
    int64_t value;
} fact_t;

/* Attributes of the chip. The chip has no thread-parallel core (attributes 202 to 212), and is not part of a
 * super pod. */
static const fact_t facts[] = {
    {ACL_DEV_ATTR_AICPU_CORE_NUM, SOC_AICPU_CORES},
    {ACL_DEV_ATTR_AICORE_CORE_NUM, SOC_CUBE_CORES},
    {ACL_DEV_ATTR_CUBE_CORE_NUM, SOC_CUBE_CORES},
    {ACL_DEV_ATTR_VECTOR_CORE_NUM, SOC_VECTOR_CORES},
    {ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE, 192 << 10},
    {ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE, INT64_C(64) << 30},
    {ACL_DEV_ATTR_L2_CACHE_SIZE, SOC_L2_BYTES},
    {ACL_DEV_ATTR_SMP_ID, 0},
    {ACL_DEV_ATTR_CUST_OP_PRIVILEGE, 0},
    {ACL_DEV_ATTR_MAINBOARD_ID, 0},
    {ACL_DEV_ATTR_HD_CONNECT_TYPE, 0}, /* PCIe */
    {ACL_DEV_ATTR_DEVICE_FORM_FACTOR, 0},
    {ACL_DEV_ATTR_IS_VIRTUAL, 0},
    {ACL_DEV_ATTR_NPU_ARCH, SOC_ARCHITECTURE},
};

static bool attribute_exists(int32_t attribute) {
    return attribute == ACL_DEV_ATTR_AICPU_CORE_NUM || attribute == ACL_DEV_ATTR_AICORE_CORE_NUM ||
           attribute == ACL_DEV_ATTR_CUBE_CORE_NUM ||
           (attribute >= ACL_DEV_ATTR_VECTOR_CORE_NUM && attribute <= ACL_DEV_ATTR_MAX_BLOCK_DIM_Z) ||
           attribute == ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE || attribute == ACL_DEV_ATTR_L2_CACHE_SIZE ||
           (attribute >= ACL_DEV_ATTR_SMP_ID && attribute <= ACL_DEV_ATTR_DEVICE_FORM_FACTOR) ||
           attribute == ACL_DEV_ATTR_IS_VIRTUAL || attribute == ACL_DEV_ATTR_NPU_ARCH;
}

aclError do_aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value) {
    REFUSE_NULL(value);
    bool there = device_find((int32_t)deviceId) != NULL;
    if (!there || !attribute_exists((int32_t)attr)) {
        return error_set(RT_PARAM_INVALID, there ? "attr" : "deviceId");
    }
    if (attr == ACL_DEV_ATTR_PHY_CHIP_ID) {
        *value = sim.settings.logical_ids[deviceId];
        return ACL_SUCCESS;
    }
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        if (facts[i].attribute == (int32_t)attr) {
            *value = facts[i].value;
            return ACL_SUCCESS;
        }
    }
    return error_set(RT_FEATURE_NOT_SUPPORT, "attr");
}

/* Reads the chip's description, which is the same for every value of `deviceId`. */
aclError do_aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value) {
    static const int64_t values[] = {SOC_CUBE_CORES, SOC_VECTOR_CORES, SOC_L2_BYTES};
    (void)deviceId;
    if (value == NULL || (unsigned int)deviceInfo > ACL_DEVICE_INFO_L2_SIZE) {
        return error_quiet(ACL_INVALID_PARAM, value == NULL ? "value" : "deviceInfo");
    }
    *value = values[deviceInfo];
    return ACL_SUCCESS;
}

/* The simulated firmware has neither of the two features. */
aclError do_aclrtGetDeviceCapability(int32_t deviceId, aclrtDevFeatureType devFeatureType, int32_t *value) {
    bool known = devFeatureType == ACL_FEATURE_TSCPU_TASK_UPDATE_SUPPORT_AIC_AIV ||
                 devFeatureType == ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV;
    REFUSE_NULL(value);
    if (!known) {
        return error_set(RT_PARAM_INVALID, "devFeatureType");
    }
    if (device_find(deviceId) == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    SIM_GUARD();
    bool current = context_need() != NULL;
    if (current) {
        *value = 0;
    }
    return current ? ACL_SUCCESS : RT_CONTEXT_NULL;
}

/* Returns the share of the time since the last query in which the device worked, in percent. */
static int32_t load_percent(device_t *device) {
    static int64_t asked_ns[SIM_MAX_DEVICES];
    static int64_t busy_ns[SIM_MAX_DEVICES];
    SIM_GUARD();
    int64_t now = now_ns();
    int64_t passed = now - (asked_ns[device->id] != 0 ? asked_ns[device->id] : sim.started_ns);
    int64_t worked = device->busy_ns - busy_ns[device->id];
    asked_ns[device->id] = now;
    busy_ns[device->id] = device->busy_ns;
    int64_t percent = passed > 0 ? worked * 100 / passed : 0;
    return (int32_t)(percent > 100 ? 100 : percent);
}

/* A simulated device has one engine, which runs all tasks, so both kinds of cores show the load of this engine.
 * If the id is not valid, the call sets the last error and returns success. */
aclError do_aclrtGetDeviceUtilizationRate(int32_t deviceId, aclrtUtilizationInfo *utilizationInfo) {
    if (utilizationInfo == NULL || utilizationInfo->utilizationExtend != NULL) {
        return error_quiet(ACL_INVALID_PARAM, "utilizationInfo");
    }
    device_t *device = device_find(deviceId);
    if (device == NULL) {
        error_set(RT_INVALID_DEVICE, "deviceId");
    }
    int32_t load = device != NULL ? load_percent(device) : UTILIZATION_UNKNOWN;
    utilizationInfo->cubeUtilization = load;
    utilizationInfo->vectorUtilization = load;
    utilizationInfo->aicpuUtilization = device != NULL ? 0 : UTILIZATION_UNKNOWN;
    utilizationInfo->memoryUtilization = UTILIZATION_UNKNOWN;
    return ACL_SUCCESS;
}
