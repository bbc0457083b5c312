/* aclInit and aclFinalize, and the number of libraries that have initialised ACL. */
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "initcb.h"

/* All protected by the lock of initcb.c. */
static uint64_t references;
static bool finalized;
static atomic_bool ended;  /* true after aclFinalize; read without the lock */
static char *first_config; /* configuration of the first success; "" if it had none */
static char *config;       /* configuration of the initialisation in progress or done */

bool init_done(void) {
    return references > 0;
}

bool init_ended(void) {
    return atomic_load_explicit(&ended, memory_order_relaxed);
}

const char *init_config(void) {
    return config;
}

/* If an earlier aclInit of this process has succeeded with a configuration, only the same configuration or none
 * is accepted. */
static aclError check_same(const char *text) {
    bool same =
        text == NULL || first_config == NULL || *first_config == '\0' || strcmp(first_config, text) == 0;
    return same ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "configPath: another configuration is in use");
}

typedef aclError (*step_t)(const char *text);

static aclError start_model(const char *text) {
    return initcb_start(ACL_REG_TYPE_ACL_MODEL, text);
}

static aclError start_operators(const char *text) {
    return text != NULL ? initcb_start(ACL_REG_TYPE_ACL_OP_EXECUTOR, text) : ACL_SUCCESS;
}

static aclError start_media(const char *text) {
    return initcb_start(ACL_REG_TYPE_ACL_DVPP, text);
}

static aclError start_others(const char *text) {
    return initcb_start(ACL_REG_TYPE_OTHER, text);
}

static aclError initialise(const char *text) {
    static const step_t steps[] = {
        check_same,          config_check_first,    start_model, config_apply_dump, start_operators,
        config_apply_device, config_check_profiler, start_media, start_others};
    aclError rc = ACL_SUCCESS;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && rc == ACL_SUCCESS; i++) {
        rc = steps[i](text);
    }
    return rc;
}

static void keep_first(const char *text) {
    if (first_config == NULL || *first_config == '\0') {
        free(first_config);
        first_config = strdup(text != NULL ? text : "");
    }
}

static aclError init_first(const char *path) {
    char *text = NULL;
    aclError rc = config_load(path, &text);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    free(config);
    config = text;
    rc = initialise(text);
    if (rc == ACL_SUCCESS) {
        references = 1;
        finalized = false;
        atomic_store(&ended, false);
        keep_first(text);
    }
    return rc;
}

aclError do_aclInit(const char *configPath) {
    aclError rc = ACL_REPEAT_INITIALIZE;
    initcb_lock();
    if (references > 0) {
        references++;
    } else {
        rc = init_first(configPath);
    }
    initcb_unlock();
    return rc;
}

/* If a callback returns an error, the process stays initialised. */
static aclError finish(void) {
    aclError rc = initcb_end(ACL_REG_TYPE_ACL_OP_COMPILER);
    rc = rc == ACL_SUCCESS ? initcb_end(ACL_REG_TYPE_ACL_MODEL) : rc;
    rc = rc == ACL_SUCCESS ? initcb_end(ACL_REG_TYPE_ACL_DVPP) : rc;
    if (rc == ACL_SUCCESS) {
        sim_lock();
        sim.default_device = -1;
        snapshot_end();
        sim_unlock();
        dump_set_path("");
        rc = initcb_end(ACL_REG_TYPE_OTHER);
    }
    if (rc == ACL_SUCCESS) {
        references = 0;
        finalized = true;
    }
    return rc;
}

aclError do_aclFinalize(void) {
    initcb_lock();
    aclError rc = finalized ? ACL_REPEAT_FINALIZE : finish();
    if (rc == ACL_SUCCESS) {
        atomic_store(&ended, true);
    }
    initcb_unlock();
    return rc;
}

aclError do_aclFinalizeReference(uint64_t *refCount) {
    aclError rc = ACL_SUCCESS;
    initcb_lock();
    if (references == 0) {
        rc = ACL_REPEAT_FINALIZE;
    } else if (references > 1) {
        references--;
    } else {
        rc = finish();
    }
    if (refCount != NULL) {
        *refCount = references;
    }
    initcb_unlock();
    return rc;
}
