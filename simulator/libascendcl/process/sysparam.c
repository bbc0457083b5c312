/* Options of the process and of contexts, and whether the process runs on the host or on the device. */
#include "sim.h"

static int64_t options[SIM_OPTIONS]; /* protected by sim.lock */

aclError do_aclrtGetRunMode(aclrtRunMode *runMode) {
    REFUSE_NULL(runMode);
    *runMode = ACL_HOST;
    return ACL_SUCCESS;
}

/* Only the option for determinism accepts the value 2. */
static bool option_value_valid(aclSysParamOpt opt, int64_t value) {
    return value >= 0 && value <= ((int)opt == ACL_OPT_DETERMINISTIC ? 2 : 1);
}

aclError do_aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value) {
    if ((unsigned int)opt >= SIM_OPTIONS || value == NULL) {
        return error_quiet(ACL_INVALID_PARAM, value == NULL ? "value" : "opt");
    }
    SIM_GUARD();
    *value = options[opt];
    return ACL_SUCCESS;
}

aclError do_aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    if ((unsigned int)opt >= SIM_OPTIONS) {
        return error_quiet(ACL_INVALID_PARAM, "opt");
    }
    if (!option_value_valid(opt, value)) {
        return error_set(RT_PARAM_INVALID, "value");
    }
    SIM_GUARD();
    options[opt] = value;
    return ACL_SUCCESS;
}

aclError do_aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value) {
    if ((unsigned int)opt > ACL_OPT_STRONG_CONSISTENCY || value == NULL) {
        return error_quiet(ACL_INVALID_PARAM, value == NULL ? "value" : "opt");
    }
    aclError rc = RT_CONTEXT_NULL;
    SIM_GUARD();
    const context_t *context = context_need();
    if (context != NULL) {
        rc = context->option_set[opt] ? ACL_SUCCESS : RT_OPTION_NOT_SET;
        *value = context->option_set[opt] ? context->options[opt] : *value;
    }
    return rc;
}

aclError do_aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    if ((unsigned int)opt > ACL_OPT_STRONG_CONSISTENCY) {
        return error_quiet(ACL_INVALID_PARAM, "opt");
    }
    if (!option_value_valid(opt, value)) {
        return error_set(RT_PARAM_INVALID, "value");
    }
    SIM_GUARD();
    context_t *context = context_need();
    aclError rc = context != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS) {
        context->option_set[opt] = true;
        context->options[opt] = value;
        options[opt] = value;
    }
    return rc;
}
