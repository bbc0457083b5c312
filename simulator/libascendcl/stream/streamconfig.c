/* Streams created from a configuration object. */
#include <string.h>

#include "described.h"

static stream_config_t *config_find(const aclrtStreamConfigHandle *handle) {
    const char *inside = (const char *)handle;
    const void *object = handle != NULL ? inside - offsetof(stream_config_t, config) : NULL;
    return described_find(KIND_STREAM_CONFIG, object, "handle");
}

aclrtStreamConfigHandle *do_aclrtCreateStreamConfigHandle(void) {
    stream_config_t *made = described_new(KIND_STREAM_CONFIG);
    return made != NULL ? &made->config : NULL;
}

aclError do_aclrtDestroyStreamConfigHandle(aclrtStreamConfigHandle *handle) {
    SIM_GUARD();
    stream_config_t *found = config_find(handle);
    if (found != NULL) {
        object_kill(&found->object);
    }
    return found != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

/* Returns the field that an attribute sets, and its size; NULL: no such attribute. */
static void *field_of(aclrtStreamConfigHandle *config, aclrtStreamConfigAttr attribute, size_t *size) {
    switch (attribute) {
    case ACL_RT_STREAM_WORK_ADDR_PTR:
        *size = sizeof config->workptr;
        return &config->workptr;
    case ACL_RT_STREAM_WORK_SIZE:
        *size = sizeof config->workSize;
        return &config->workSize;
    case ACL_RT_STREAM_FLAG:
        *size = sizeof config->flag;
        return &config->flag;
    case ACL_RT_STREAM_PRIORITY:
        *size = sizeof config->priority;
        return &config->priority;
    default:
        return NULL;
    }
}

aclError do_aclrtSetStreamConfigOpt(aclrtStreamConfigHandle *handle, aclrtStreamConfigAttr attr,
                                    const void *attrValue, size_t valueSize) {
    REFUSE_NULL(attrValue);
    aclError rc = ACL_INVALID_PARAM;
    size_t size = 0;
    SIM_GUARD();
    stream_config_t *found = config_find(handle);
    if (found != NULL) {
        void *field = field_of(&found->config, attr, &size);
        bool fits = field != NULL && valueSize == size && array_is_there(attrValue, size, 1);
        rc = fits ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, field == NULL ? "attr" : "valueSize");
        if (fits) {
            memcpy(field, attrValue, size);
        }
    }
    return rc;
}

/* Ignores the work area of the configuration: a work area is for models, and simulated streams need none. */
aclError do_aclrtCreateStreamV2(aclrtStream *stream, const aclrtStreamConfigHandle *handle) {
    REFUSE_NULL(stream);
    sim_lock();
    const stream_config_t *found = config_find(handle);
    aclrtStreamConfigHandle config = found != NULL ? found->config : (aclrtStreamConfigHandle){0};
    sim_unlock();
    return found != NULL ? do_aclrtCreateStreamWithConfig(stream, config.priority, (uint32_t)config.flag)
                         : ACL_INVALID_PARAM;
}
