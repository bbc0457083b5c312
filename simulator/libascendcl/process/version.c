/* The versions, names and software features of the simulated installation and its chip. */
#include <stdio.h>
#include <string.h>

#include "soc.h"

typedef struct {
    const char *text;
    int32_t number; /* 10,000,000 major + 100,000 minor + 1,000 patch; a release candidate has a lower number */
    const char *parts[4];
} release_t;

static const release_t releases[] = {
    [CANN_8_1] = {"8.1.RC1", 80099901, {"8", "1", "RC1", "0"}},
    [CANN_8_5] = {"8.5.0", 80500000, {"8", "5", "0", "0"}},
    [CANN_9_0] = {"9.0.0", 90000000, {"9", "0", "0", "0"}},
    [CANN_9_1] = {"9.1.0", 90100000, {"9", "1", "0", "0"}},
    [CANN_MASTER] = {"9.1.0", 90100000, {"9", "1", "0", "0"}},
};

static const release_t *release(void) {
    return &releases[sim.settings.cann];
}

static aclError check_package(const char *name, const void *output, const char *what) {
    if (name == NULL || *name == '\0') {
        return error_quiet(ACL_INVALID_PARAM, "pkgName");
    }
    return output == NULL ? error_quiet(ACL_INVALID_PARAM, what) : ACL_SUCCESS;
}

/* All packages have the same release, independent of their names. */
aclError do_aclsysGetVersionStr(char *pkgName, char *versionStr) {
    aclError rc = check_package(pkgName, versionStr, "versionStr");
    if (rc == ACL_SUCCESS) {
        strcpy(versionStr, release()->text);
    }
    return rc;
}

aclError do_aclsysGetVersionNum(char *pkgName, int32_t *versionNum) {
    aclError rc = check_package(pkgName, versionNum, "versionNum");
    if (rc == ACL_SUCCESS) {
        *versionNum = release()->number;
    }
    return rc;
}

aclError do_aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version) {
    if (version == NULL || (unsigned int)name > ACL_PKG_NAME_DRIVER) {
        return error_quiet(ACL_INVALID_PARAM, version == NULL ? "version" : "name");
    }
    memset(version, 0, sizeof *version);
    strcpy(version->version, release()->text);
    strcpy(version->majorVersion, release()->parts[0]);
    strcpy(version->minorVersion, release()->parts[1]);
    strcpy(version->releaseVersion, release()->parts[2]);
    strcpy(version->patchVersion, release()->parts[3]);
    return ACL_SUCCESS;
}

/* Returns the version of the interface in the headers of master. */
aclError do_aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion) {
    if (majorVersion == NULL || minorVersion == NULL || patchVersion == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "version");
    }
    *majorVersion = 1;
    *minorVersion = 17;
    *patchVersion = 0;
    return ACL_SUCCESS;
}

const char *do_aclrtGetSocName(void) {
    return SOC_NAME;
}

/* This chip has every attribute that is defined. */
static const aclCannAttr attributes[] = {ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16, ACL_CANN_ATTR_JIT_COMPILE};

aclError do_aclGetCannAttributeList(const aclCannAttr **cannAttrList, size_t *num) {
    REFUSE_NULL(cannAttrList);
    REFUSE_NULL(num);
    *cannAttrList = attributes;
    *num = sizeof attributes / sizeof *attributes;
    return ACL_SUCCESS;
}

aclError do_aclGetCannAttribute(aclCannAttr cannAttr, int32_t *value) {
    bool known = (int)cannAttr >= ACL_CANN_ATTR_INF_NAN && (int)cannAttr <= ACL_CANN_ATTR_JIT_COMPILE;
    if (value == NULL || !known) {
        return error_quiet(ACL_INVALID_PARAM, value == NULL ? "value" : "cannAttr");
    }
    *value = 1;
    return ACL_SUCCESS;
}

typedef struct {
    const char *prefix;
    int32_t architecture;
} chip_t;

/* The first matching prefix decides. */
static const chip_t chips[] = {
    {"Ascend910_93", SOC_ARCHITECTURE},
    {"Ascend910B", SOC_ARCHITECTURE},
    {"Ascend910", 1001},
    {"Ascend310P", 2002},
    {"Ascend310B", 3002},
    {"Ascend950", 3510},
};

aclError do_aclrtCheckArchCompatibility(const char *socVersion, int32_t *canCompatible) {
    if (socVersion == NULL || canCompatible == NULL) {
        return error_set(RT_PARAM_INVALID, socVersion == NULL ? "socVersion" : "canCompatible");
    }
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        if (strncmp(socVersion, chips[i].prefix, strlen(chips[i].prefix)) == 0) {
            *canCompatible = chips[i].architecture == SOC_ARCHITECTURE ? 1 : 0;
            return ACL_SUCCESS;
        }
    }
    return error_set(RT_PARAM_INVALID, "socVersion");
}
