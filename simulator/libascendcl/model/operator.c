/*
 * Settings that programs make for operators: attributes, and the options of the operator compiler. The
 * simulator compiles and runs no operator: the weak definitions in unsupported.c refuse these calls. So
 * attributes are checked and not stored.
 */
#include <stdlib.h>
#include <string.h>

#include "described.h"

enum { OPTION_COUNT = ACL_OP_DEBUG_OPTION + 1, JIT_COMPILE_BYTES = 256 };

aclopAttr *do_aclopCreateAttr(void) {
    return described_new(KIND_OPERATOR_ATTR);
}

static bool attr_is_live(const aclopAttr *attr) {
    SIM_GUARD();
    return described_find(KIND_OPERATOR_ATTR, attr, "attr") != NULL;
}

void do_aclopDestroyAttr(const aclopAttr *attr) {
    SIM_GUARD();
    operator_attr_t *found = attr != NULL ? described_find(KIND_OPERATOR_ATTR, attr, "attr") : NULL;
    if (found != NULL) {
        object_kill(&found->object);
    }
}

static aclError check_named(const aclopAttr *attr, const char *name) {
    if (!attr_is_live(attr)) {
        return ACL_INVALID_PARAM;
    }
    return name != NULL ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "attrName");
}

/* The runtime treats a negative count as 0. */
static bool values_are_there(const void *values, int count, size_t size) {
    return count <= 0 || (values != NULL && array_is_there(values, (size_t)count, size));
}

static aclError check_list(const aclopAttr *attr, const char *name, const void *values, int count,
                           size_t size) {
    aclError rc = check_named(attr, name);
    bool there = rc != ACL_SUCCESS || values_are_there(values, count, size);
    return there ? rc : error_quiet(ACL_INVALID_PARAM, "values");
}

aclError do_aclopSetAttrBool(aclopAttr *attr, const char *attrName, uint8_t attrValue) {
    (void)attrValue;
    return check_named(attr, attrName);
}

aclError do_aclopSetAttrInt(aclopAttr *attr, const char *attrName, int64_t attrValue) {
    (void)attrValue;
    return check_named(attr, attrName);
}

aclError do_aclopSetAttrFloat(aclopAttr *attr, const char *attrName, float attrValue) {
    (void)attrValue;
    return check_named(attr, attrName);
}

aclError do_aclopSetAttrString(aclopAttr *attr, const char *attrName, const char *attrValue) {
    aclError rc = check_named(attr, attrName);
    return rc != ACL_SUCCESS || attrValue != NULL ? rc : error_quiet(ACL_INVALID_PARAM, "attrValue");
}

aclError do_aclopSetAttrDataType(aclopAttr *attr, const char *attrName, aclDataType attrValue) {
    (void)attrValue;
    return check_named(attr, attrName);
}

aclError do_aclopSetAttrListBool(aclopAttr *attr, const char *attrName, int numValues, const uint8_t *values) {
    return check_list(attr, attrName, values, numValues, sizeof *values);
}

aclError do_aclopSetAttrListInt(aclopAttr *attr, const char *attrName, int numValues, const int64_t *values) {
    return check_list(attr, attrName, values, numValues, sizeof *values);
}

aclError do_aclopSetAttrListFloat(aclopAttr *attr, const char *attrName, int numValues, const float *values) {
    return check_list(attr, attrName, values, numValues, sizeof *values);
}

aclError do_aclopSetAttrListListInt(aclopAttr *attr, const char *attrName, int numLists, const int *numValues,
                                    const int64_t *const values[]) {
    aclError rc = check_list(attr, attrName, values, numLists, sizeof *values);
    if (rc == ACL_SUCCESS && (numValues == NULL || !values_are_there(numValues, numLists, sizeof *numValues))) {
        rc = error_quiet(ACL_INVALID_PARAM, "numValues");
    }
    for (int i = 0; i < numLists && rc == ACL_SUCCESS; i++) {
        bool there = values[i] != NULL && values_are_there(values[i], numValues[i], sizeof *values[i]);
        rc = there ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "values");
    }
    return rc;
}

static char *options[OPTION_COUNT]; /* owned, protected by sim.lock; NULL: not set */

/* The runtime stores ACL_OP_JIT_COMPILE as a flag: every text except "enable" clears the flag. */
static const char *option_text(aclCompileOpt opt, const char *value) {
    return opt != ACL_OP_JIT_COMPILE ? value : strcmp(value, "enable") == 0 ? "enable" : "disable";
}

aclError do_aclSetCompileopt(aclCompileOpt opt, const char *value) {
    REFUSE_NULL(value);
    if (opt == ACL_AUTO_TUNE_MODE) {
        return error_quiet(ACL_FEATURE_UNSUPPORTED, "opt: ACL_AUTO_TUNE_MODE");
    }
    if ((unsigned int)opt >= OPTION_COUNT) {
        return error_quiet(ACL_INTERNAL_ERROR, "opt");
    }
    char *copy = strdup(option_text(opt, value));
    if (copy == NULL) {
        return error_quiet(ACL_BAD_ALLOC, "value");
    }
    SIM_GUARD();
    free(options[opt]);
    options[opt] = copy;
    return ACL_SUCCESS;
}

/* Returns the text that was set, otherwise the default text, otherwise NULL. Called with sim.lock held. */
static const char *option_value(aclCompileOpt opt) {
    if ((unsigned int)opt >= OPTION_COUNT) {
        return NULL;
    }
    return options[opt] == NULL && opt == ACL_OP_JIT_COMPILE ? "disable" : options[opt];
}

/* The runtime returns a fixed size for ACL_OP_JIT_COMPILE, and torch_npu checks this size. */
size_t do_aclGetCompileoptSize(aclCompileOpt opt) {
    if (opt == ACL_OP_JIT_COMPILE) {
        return JIT_COMPILE_BYTES;
    }
    SIM_GUARD();
    const char *value = option_value(opt);
    return value != NULL ? strlen(value) + 1 : 0;
}

aclError do_aclGetCompileopt(aclCompileOpt opt, char *value, size_t length) {
    REFUSE_NULL(value);
    SIM_GUARD();
    const char *found = option_value(opt);
    size_t size = found != NULL ? strlen(found) + 1 : 0;
    bool fits = size <= length;
    if (found != NULL && fits) {
        memcpy(value, found, size);
    }
    if (found == NULL) {
        return error_quiet(ACL_API_NOT_SUPPORT, "opt");
    }
    return fits ? ACL_SUCCESS : error_quiet(ACL_FAILURE, "length");
}
