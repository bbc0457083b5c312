/* Limits on the cores that kernels may use, per device, stream and thread; and limits of the whole process. */
#include "soc.h"

enum { LIMIT_KINDS = ACL_RT_DEV_LIMIT_SIMT_PRINTF_FIFO_SIZE + 1 };

static const uint32_t totals[] = {SOC_CUBE_CORES, SOC_VECTOR_CORES};

static bool type_valid(aclrtDevResLimitType type) {
    return (unsigned int)type <= ACL_RT_DEV_RES_VECTOR_CORE;
}

static uint32_t of_device(const device_t *device, aclrtDevResLimitType type) {
    return device->cores[type].set ? device->cores[type].value : totals[type];
}

static uint32_t of_stream(const stream_t *stream, aclrtDevResLimitType type) {
    const core_limit_t *limit = &stream->options.cores[type];
    return limit->set ? limit->value : of_device(stream->device, type);
}

static aclError set(core_limit_t *limits, aclrtDevResLimitType type, uint32_t value) {
    if (value > totals[type]) {
        return error_set(RT_PARAM_INVALID, "value");
    }
    limits[type] = (core_limit_t){.set = true, .value = value};
    return ACL_SUCCESS;
}

static void reset(core_limit_t *limits) {
    limits[ACL_RT_DEV_RES_CUBE_CORE].set = false;
    limits[ACL_RT_DEV_RES_VECTOR_CORE].set = false;
}

static aclError find_device(int32_t id, aclrtDevResLimitType type, device_t **device) {
    if (id < 0) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    if (!type_valid(type)) {
        return error_set(RT_PARAM_INVALID, "type");
    }
    *device = device_find(id);
    if (*device == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    bool there = (*device)->retains > 0 || (*device)->explicit_contexts > 0;
    return there ? ACL_SUCCESS : error_set(RT_DEVICE_SETUP_ERROR, "deviceId: this process has not set it");
}

aclError do_aclrtGetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t *value) {
    device_t *device = NULL;
    REFUSE_NULL(value);
    SIM_GUARD();
    aclError rc = find_device(deviceId, type, &device);
    if (rc == ACL_SUCCESS) {
        *value = of_device(device, type);
    }
    return rc;
}

aclError do_aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t value) {
    device_t *device = NULL;
    SIM_GUARD();
    aclError rc = find_device(deviceId, type, &device);
    return rc == ACL_SUCCESS ? set(device->cores, type, value) : rc;
}

aclError do_aclrtResetDeviceResLimit(int32_t deviceId) {
    device_t *device = NULL;
    SIM_GUARD();
    aclError rc = find_device(deviceId, ACL_RT_DEV_RES_CUBE_CORE, &device);
    if (rc == ACL_SUCCESS) {
        reset(device->cores);
    }
    return rc;
}

static aclError find_stream(aclrtStream handle, aclrtDevResLimitType type, stream_t **stream) {
    aclError rc = stream_check_handle(handle);
    rc = rc == ACL_SUCCESS && !type_valid(type) ? error_set(RT_PARAM_INVALID, "type") : rc;
    return rc == ACL_SUCCESS ? stream_find_handle(handle, stream) : rc;
}

aclError do_aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t *value) {
    stream_t *found = NULL;
    REFUSE_NULL(value);
    SIM_GUARD();
    aclError rc = find_stream(stream, type, &found);
    if (rc == ACL_SUCCESS) {
        *value = of_stream(found, type);
    }
    return rc;
}

aclError do_aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t value) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_stream(stream, type, &found);
    return rc == ACL_SUCCESS ? set(found->options.cores, type, value) : rc;
}

aclError do_aclrtResetStreamResLimit(aclrtStream stream) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_stream(stream, ACL_RT_DEV_RES_CUBE_CORE, &found);
    if (rc == ACL_SUCCESS) {
        reset(found->options.cores);
    }
    return rc;
}

aclError do_aclrtUseStreamResInCurrentThread(aclrtStream stream) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_stream(stream, ACL_RT_DEV_RES_CUBE_CORE, &found);
    if (rc == ACL_SUCCESS) {
        thread_self()->cores_of = found;
    }
    return rc;
}

/* If the thread does not use the limits of this stream, the call has no effect. */
aclError do_aclrtUnuseStreamResInCurrentThread(aclrtStream stream) {
    stream_t *found = NULL;
    SIM_GUARD();
    aclError rc = find_stream(stream, ACL_RT_DEV_RES_CUBE_CORE, &found);
    if (rc == ACL_SUCCESS && thread_self()->cores_of == found) {
        thread_self()->cores_of = NULL;
    }
    return rc;
}

aclError do_aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t *value) {
    REFUSE_NULL(value);
    if (!type_valid(type)) {
        return error_set(RT_PARAM_INVALID, "type");
    }
    SIM_GUARD();
    const stream_t *stream = thread_self()->cores_of; /* its slot keeps the limits after the stream has ended */
    bool own = stream != NULL && stream->options.cores[type].set;
    const context_t *context = own ? NULL : context_need();
    if (own || context != NULL) {
        *value = own ? stream->options.cores[type].value : of_device(context->device, type);
    }
    return own || context != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
}

/* The chip has no thread-parallel cores, so it supports only two of the five limits. */
static size_t limits[LIMIT_KINDS] = {
    [ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE] = 32 << 10,
    [ACL_RT_DEV_LIMIT_SIMD_PRINTF_FIFO_SIZE_PER_CORE] = 1 << 20,
};

static aclError check_limit(aclrtDeviceLimit limit) {
    if ((unsigned int)limit >= LIMIT_KINDS) {
        return error_quiet(ACL_INVALID_PARAM, "limit");
    }
    bool there =
        limit == ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE || limit == ACL_RT_DEV_LIMIT_SIMD_PRINTF_FIFO_SIZE_PER_CORE;
    return there ? ACL_SUCCESS : error_quiet(RT_FEATURE_NOT_SUPPORT, "limit");
}

aclError do_aclrtDeviceSetLimit(aclrtDeviceLimit limit, size_t value) {
    if (value > UINT32_MAX && (unsigned int)limit < LIMIT_KINDS) {
        return error_quiet(ACL_INVALID_PARAM, "value");
    }
    aclError rc = check_limit(limit);
    if (rc == ACL_SUCCESS) {
        SIM_GUARD();
        limits[limit] = value;
    }
    return rc;
}

aclError do_aclrtDeviceGetLimit(aclrtDeviceLimit limit, size_t *value) {
    REFUSE_NULL(value);
    aclError rc = check_limit(limit);
    if (rc == ACL_SUCCESS) {
        SIM_GUARD();
        *value = limits[limit];
    }
    return rc;
}
