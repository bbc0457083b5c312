/* Initialisation, versions and process-wide parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum { CONFIG_BYTES = 65536 };

/* All under sim.lock. */
static uint64_t references;
static bool finalized;
static char *first_config;
static int64_t options[SIM_OPTIONS];

static char *read_config(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    char *text = calloc(1, CONFIG_BYTES);
    if (text != NULL && fread(text, 1, CONFIG_BYTES - 1, file) == 0 && ferror(file) != 0) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

/* Enough of JSON to refuse what no parser would take: one object, brackets in balance, strings closed. */
static bool looks_like_object(const char *text) {
    char open[64];
    int depth = 0;
    bool quoted = false;
    text += strspn(text, " \t\r\n");
    if (*text != '{') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (quoted) {
            text += *text == '\\' && text[1] != '\0';
            quoted = *text != '"';
        } else if (*text == '"') {
            quoted = true;
        } else if (*text == '{' || *text == '[') {
            if (depth == (int)sizeof open) {
                return false;
            }
            open[depth++] = *text;
        } else if ((*text == '}' || *text == ']') && (depth == 0 || open[--depth] + 2 != *text)) {
            return false;
        }
    }
    return depth == 0 && !quoted;
}

static aclError load_config(const char *path, char **config) {
    *config = NULL;
    if (path == NULL || *path == '\0') {
        return ACL_SUCCESS;
    }
    *config = read_config(path);
    if (*config == NULL) {
        return ACL_INVALID_FILE;
    }
    if (!looks_like_object(*config)) {
        free(*config);
        return ACL_PARSE_FILE;
    }
    return ACL_SUCCESS;
}

/* The first configuration of a process is the only one; takes `config` over. */
static aclError keep_config(char *config) {
    if (first_config == NULL) {
        first_config = config;
        return ACL_SUCCESS;
    }
    bool same = config == NULL || strcmp(first_config, config) == 0;
    free(config);
    return same ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "configPath: another configuration is in use");
}

aclError do_aclInit(const char *configPath) {
    char *config = NULL;
    sim_lock();
    if (references > 0) {
        references++;
        sim_unlock();
        return ACL_REPEAT_INITIALIZE;
    }
    aclError rc = load_config(configPath, &config);
    if (rc == ACL_SUCCESS) {
        rc = keep_config(config);
    }
    if (rc == ACL_SUCCESS) {
        references = 1;
        finalized = false;
    }
    sim_unlock();
    return rc;
}

aclError do_aclFinalize(void) {
    sim_lock();
    aclError rc = finalized ? ACL_REPEAT_FINALIZE : ACL_SUCCESS;
    references = 0;
    finalized = true;
    sim_unlock();
    return rc;
}

aclError do_aclFinalizeReference(uint64_t *refCount) {
    aclError rc = ACL_SUCCESS;
    sim_lock();
    if (references == 0) {
        rc = ACL_REPEAT_FINALIZE;
    } else if (--references == 0) {
        finalized = true;
    }
    if (refCount != NULL) {
        *refCount = references;
    }
    sim_unlock();
    return rc;
}

aclError do_aclrtGetRunMode(aclrtRunMode *runMode) {
    if (runMode == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "runMode");
    }
    *runMode = ACL_HOST;
    return ACL_SUCCESS;
}

/* Only determinism has a third level. */
static bool option_value_valid(aclSysParamOpt opt, int64_t value) {
    return value >= 0 && value <= ((int)opt == ACL_OPT_DETERMINISTIC ? 2 : 1);
}

aclError do_aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value) {
    if ((unsigned int)opt >= SIM_OPTIONS || value == NULL) {
        return error_quiet(ACL_INVALID_PARAM, value == NULL ? "value" : "opt");
    }
    sim_lock();
    *value = options[opt];
    sim_unlock();
    return ACL_SUCCESS;
}

aclError do_aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    if ((unsigned int)opt >= SIM_OPTIONS) {
        return error_quiet(ACL_INVALID_PARAM, "opt");
    }
    if (!option_value_valid(opt, value)) {
        return error_set(RT_PARAM_INVALID, "value");
    }
    sim_lock();
    options[opt] = value;
    sim_unlock();
    return ACL_SUCCESS;
}

aclError do_aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value) {
    if ((unsigned int)opt > ACL_OPT_STRONG_CONSISTENCY || value == NULL) {
        return error_quiet(ACL_INVALID_PARAM, value == NULL ? "value" : "opt");
    }
    aclError rc = RT_CONTEXT_NULL;
    sim_lock();
    const context_t *context = context_need();
    if (context != NULL) {
        rc = context->option_set[opt] ? ACL_SUCCESS : RT_OPTION_NOT_SET;
        *value = context->option_set[opt] ? context->options[opt] : *value;
    }
    sim_unlock();
    return rc;
}

aclError do_aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    if ((unsigned int)opt > ACL_OPT_STRONG_CONSISTENCY) {
        return error_quiet(ACL_INVALID_PARAM, "opt");
    }
    aclError rc = RT_CONTEXT_NULL;
    sim_lock();
    context_t *context = context_need();
    if (context != NULL) {
        rc = option_value_valid(opt, value) ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "value");
    }
    if (rc == ACL_SUCCESS) {
        context->option_set[opt] = true;
        context->options[opt] = value;
        options[opt] = value;
    }
    sim_unlock();
    return rc;
}
