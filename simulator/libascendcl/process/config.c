/*
 * Applies the configuration of aclInit. Sets the default device. Stores whether threads share their error
 * texts, the stack sizes and the dump path. The sections about profiles and graph events are only checked.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "json.h"

enum { FILE_MOST_BYTES = 10 << 20, DEPTH_MOST = 10 };

static bool regular(const char *path, size_t *size) {
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > FILE_MOST_BYTES) {
        return false;
    }
    *size = (size_t)status.st_size;
    return true;
}

static char *read_file(const char *path) {
    size_t size = 0;
    FILE *file = regular(path, &size) ? fopen(path, "rb") : NULL;
    if (file == NULL) {
        return NULL;
    }
    char *text = calloc(1, size + 1);
    if (text != NULL && fread(text, 1, size, file) != size) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

aclError config_load(const char *path, char **text) {
    *text = NULL;
    if (path == NULL || *path == '\0') {
        return ACL_SUCCESS;
    }
    char *read = read_file(path);
    if (read == NULL) {
        return error_quiet(ACL_INVALID_FILE, path);
    }
    if (*read != '\0' && (json_depth(read) > DEPTH_MOST || !json_valid(read))) {
        free(read);
        return error_quiet(ACL_PARSE_FILE, path);
    }
    if (*read == '\0') {
        free(read);
        read = NULL;
    }
    *text = read;
    return ACL_SUCCESS;
}

/* "0": each thread has a separate error text; "1": all threads share one error text. */
aclError config_check_first(const char *text) {
    char mode[4] = "0";
    const char *value = text != NULL ? json_member(text, "err_msg_mode") : NULL;
    bool valid = value == NULL ||
                 (json_string(value, mode, sizeof mode) && (strcmp(mode, "0") == 0 || strcmp(mode, "1") == 0));
    if (valid && value != NULL) {
        error_keep_together(*mode == '1');
    }
    return valid ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "err_msg_mode");
}

static bool object_or_absent(const char *text, const char *key) {
    const char *value = text != NULL ? json_member(text, key) : NULL;
    return value == NULL || json_is_object(value);
}

aclError config_apply_dump(const char *text) {
    char path[DUMP_PATH_BYTES] = "";
    if (!object_or_absent(text, "dump")) {
        return error_quiet(ACL_INVALID_DUMP_CONFIG, "dump");
    }
    const char *section = text != NULL ? json_member(text, "dump") : NULL;
    const char *value = section != NULL ? json_member(section, "dump_path") : NULL;
    if (value != NULL && !json_string(value, path, sizeof path)) {
        return error_quiet(ACL_INVALID_DUMP_CONFIG, "dump_path");
    }
    if (section != NULL) {
        dump_set_path(path);
    }
    return ACL_SUCCESS;
}

aclError config_check_profiler(const char *text) {
    return object_or_absent(text, "profiler") ? ACL_SUCCESS
                                              : error_quiet(ACL_INVALID_PROFILING_CONFIG, "profiler");
}

/* Stack sizes must be whole numbers above zero. Limits that the chip does not have are ignored. */
static aclError apply_stack(const char *section) {
    static const struct {
        const char *key;
        aclrtDeviceLimit limit;
    } keys[] = {{"aicore_stack_size", ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE},
                {"simt_stack_size", ACL_RT_DEV_LIMIT_SIMT_STACK_SIZE},
                {"simt_divergence_stack_size", ACL_RT_DEV_LIMIT_SIMT_DVG_WARP_STACK_SIZE}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = section != NULL ? json_member(section, keys[i].key) : NULL;
        if (value != NULL && json_whole(value) <= 0) {
            return error_quiet(ACL_FAILURE, keys[i].key);
        }
        if (value != NULL) {
            do_aclrtDeviceSetLimit(keys[i].limit, (size_t)json_whole(value));
        }
    }
    return ACL_SUCCESS;
}

/* The id must be a string of digits. */
static aclError apply_default_device(const char *section) {
    const char *value = section != NULL ? json_member(section, "default_device") : NULL;
    if (value == NULL) {
        return ACL_SUCCESS;
    }
    if (*value != '"' || json_whole(value) < 0 || json_whole(value) > INT32_MAX) {
        return error_quiet(ACL_FAILURE, "default_device");
    }
    if (device_find((int32_t)json_whole(value)) == NULL) {
        return error_set(RT_INVALID_DEVICE, "default_device");
    }
    SIM_GUARD();
    sim.default_device = (int)json_whole(value);
    return ACL_SUCCESS;
}

/* Checks the setting that selects software or hardware events for graphs. The setting has no effect in the
 * simulator.
 */
static aclError check_event_mode(const char *section) {
    char mode[4] = "0";
    const char *value = section != NULL ? json_member(section, "event_mode") : NULL;
    bool valid = value == NULL ||
                 (json_string(value, mode, sizeof mode) && (strcmp(mode, "0") == 0 || strcmp(mode, "1") == 0));
    return valid ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "event_mode");
}

aclError config_apply_device(const char *text) {
    if (text == NULL) {
        return ACL_SUCCESS;
    }
    aclError rc = apply_stack(json_member(text, "StackSize"));
    rc = rc == ACL_SUCCESS ? apply_default_device(json_member(text, "defaultDevice")) : rc;
    return rc == ACL_SUCCESS ? check_event_mode(json_member(text, "acl_graph")) : rc;
}
