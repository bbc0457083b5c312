/* Reading model files: containers (.om), and plain ONNX models. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "container.h"
#include "model.h"

enum { TEXT_BYTES = SESSION_WHY_BYTES + 64 };

typedef struct {
    char *bytes; /* owned */
    size_t size;
} content_t;

static aclError fail(aclError code, const char *what, const char *why) {
    char text[TEXT_BYTES];
    snprintf(text, sizeof text, "%s: %s", what, why);
    return error_quiet(code, text);
}

static bool read_all(int file, char *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t got = read(file, bytes + done, size - done);
        bool again = got < 0 && errno == EINTR;
        if (got <= 0 && !again) {
            return false;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static const char *read_open(int file, content_t *content) {
    struct stat state;
    if (fstat(file, &state) != 0 || !S_ISREG(state.st_mode)) {
        return "it is not a regular file";
    }
    content->size = (size_t)state.st_size;
    content->bytes = malloc(content->size + 1);
    if (content->bytes == NULL) {
        return "no memory is left";
    }
    return read_all(file, content->bytes, content->size) ? NULL : "it cannot be read";
}

/* Returns the reason of a failure, or NULL. A pipe does not block the call. */
static const char *read_path(const char *path, content_t *content) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        return "the file does not exist, or cannot be opened";
    }
    const char *why = read_open(file, content);
    close(file);
    return why;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text);
    size_t tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* An ONNX model in memory has no name. Its first field is the version of the format, whose key is the byte 8.
 */
static bool is_onnx(const char *path, const content_t *content) {
    bool named = path != NULL && ends_with(path, ".onnx");
    return !container_is(content->bytes, content->size) &&
           (named || (content->size > 0 && content->bytes[0] == 8));
}

typedef struct {
    const char *what; /* the argument, for error texts */
    model_info_t *info;
    session_t *session;
} result_t;

static aclError open_session(result_t *result, const void *onnx, size_t size) {
    char why[SESSION_WHY_BYTES] = "";
    result->session = session_open(onnx, size, why);
    if (result->session == NULL || !session_fits(result->session, result->info, why)) {
        return fail(GE_LOAD_MODEL, result->what, why);
    }
    return ACL_SUCCESS;
}

static aclError read_plain(result_t *result, const content_t *content) {
    char why[SESSION_WHY_BYTES] = "";
    result->session = session_open(content->bytes, content->size, why);
    if (result->session == NULL || !session_describe(result->session, result->info, why) ||
        !session_fits(result->session, result->info, why)) {
        return fail(GE_LOAD_MODEL, result->what, why);
    }
    model_info_measure(result->info);
    result->info->weight_bytes = content->size;
    return ACL_SUCCESS;
}

/* A genuine model is executed with the ONNX model beside it: the file with the same name and the suffix .onnx.
 */
static aclError open_beside(result_t *result, const char *path) {
    char beside[PATH_MAX];
    content_t content = {NULL, 0};
    if (path == NULL || !ends_with(path, ".om") || strlen(path) + 3 > sizeof beside) {
        return ACL_SUCCESS;
    }
    snprintf(beside, sizeof beside, "%.*s.onnx", (int)strlen(path) - 3, path);
    aclError rc = ACL_SUCCESS;
    if (read_path(beside, &content) == NULL) {
        rc = open_session(result, content.bytes, content.size);
    }
    free(content.bytes);
    return rc;
}

static aclError read_container(result_t *result, const char *path, const content_t *content, bool executes) {
    container_t container;
    const char *why = NULL;
    aclError rc = container_read(content->bytes, content->size, result->info, &container, &why);
    if (rc != ACL_SUCCESS) {
        return fail(rc, result->what, why);
    }
    sim_lock();
    bool registered = model_is_registered(result->info);
    sim_unlock();
    if (!executes || !result->info->described || registered) {
        return ACL_SUCCESS;
    }
    return container.onnx != NULL ? open_session(result, container.onnx, container.onnx_size)
                                  : open_beside(result, path);
}

static aclError read_content(result_t *result, const char *path, const content_t *content, bool executes) {
    result->info = model_info_new();
    if (result->info == NULL) {
        return fail(GE_MEMORY_ALLOCATION, result->what, "no memory is left");
    }
    return is_onnx(path, content) ? read_plain(result, content)
                                  : read_container(result, path, content, executes);
}

static aclError read_source(result_t *result, const char *path, const void *bytes, size_t size, bool executes) {
    content_t content = {(char *)(uintptr_t)bytes, size};
    if (path == NULL) {
        return content_is_there(bytes, size)
                   ? read_content(result, path, &content, executes)
                   : fail(GE_MODEL_ADDR_INVALID, "model", "the memory cannot be read");
    }
    content = (content_t){NULL, 0};
    const char *why = read_path(path, &content);
    aclError rc = why == NULL ? read_content(result, path, &content, executes)
                              : fail(GE_MODEL_PATH_INVALID, "modelPath", why);
    free(content.bytes);
    return rc;
}

aclError model_read(const char *path, const void *bytes, size_t size, model_info_t **info,
                    session_t **session) {
    result_t result = {.what = path != NULL ? "modelPath" : "model"};
    aclError rc = read_source(&result, path, bytes, size, session != NULL);
    if (rc != ACL_SUCCESS || session == NULL) {
        session_close(result.session);
        result.session = NULL;
    }
    if (rc != ACL_SUCCESS) {
        model_info_release(result.info);
        result.info = NULL;
    }
    *info = result.info;
    if (session != NULL) {
        *session = result.session;
    }
    return rc;
}
