/* Groups of cores. The simulated chip has no such groups, and no list of groups can be created. */
#include "sim.h"

static aclError unsupported(const char *name) {
    return error_quiet(RT_FEATURE_NOT_SUPPORT, name);
}

aclError do_aclrtSetGroup(int32_t groupId) {
    (void)groupId;
    return unsupported("aclrtSetGroup");
}

aclError do_aclrtGetGroupCount(uint32_t *count) {
    return count == NULL ? error_quiet(ACL_INVALID_PARAM, "count") : unsupported("aclrtGetGroupCount");
}

aclrtGroupInfo *do_aclrtCreateGroupInfo(void) {
    unsupported("aclrtCreateGroupInfo");
    return NULL;
}

/* No list was ever created, so no list can be destroyed or read. */
aclError do_aclrtDestroyGroupInfo(aclrtGroupInfo *groupInfo) {
    if (groupInfo != NULL) {
        usage_note("passes %p, which is not a group list", (void *)groupInfo);
    }
    return error_quiet(ACL_INVALID_PARAM, "groupInfo");
}

aclError do_aclrtGetAllGroupInfo(aclrtGroupInfo *groupInfo) {
    return groupInfo == NULL ? error_quiet(ACL_INVALID_PARAM, "groupInfo")
                             : unsupported("aclrtGetAllGroupInfo");
}

aclError do_aclrtGetGroupInfoDetail(const aclrtGroupInfo *groupInfo, int32_t groupIndex, aclrtGroupAttr attr,
                                    void *attrValue, size_t valueLen, size_t *paramRetSize) {
    (void)groupIndex;
    (void)attr;
    (void)valueLen;
    if (groupInfo == NULL || attrValue == NULL || paramRetSize == NULL) {
        return error_quiet(ACL_INVALID_PARAM, groupInfo == NULL ? "groupInfo" : "attrValue");
    }
    return unsupported("aclrtGetGroupInfoDetail");
}

/* Host and device share one memory, so there is no second cache that could differ. */
aclError do_aclrtDeviceL2CacheFlush(void *rsv) {
    if (rsv != NULL) {
        return error_quiet(ACL_INVALID_PARAM, "rsv");
    }
    SIM_GUARD();
    const context_t *context = context_need();
    return context != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
}
