/*
 * Loading onnxruntime: the file that AIOACL_SIM_ONNXRUNTIME names, or else the file that
 * aclsim_set_onnxruntime() has named, or else the library that the loader finds. The simulator neither links
 * nor contains onnxruntime, and only a process that loads an ONNX model loads it.
 */
#include "onnxruntime.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects everything here */
static char chosen[PATH_MAX];
static ort_runtime_t runtime;

API int aclsim_set_onnxruntime(const char *path) {
    if (path != NULL && (*path != '/' || strlen(path) >= sizeof chosen)) {
        return -1;
    }
    pthread_mutex_lock(&lock);
    snprintf(chosen, sizeof chosen, "%s", path != NULL ? path : "");
    pthread_mutex_unlock(&lock);
    return 0;
}

static void *open_named(const char *path, const char *from, char *why) {
    void *library = *path == '/' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (*path != '/') {
        snprintf(why, SESSION_WHY_BYTES, "%s must be an absolute path, got %.200s", from, path);
    } else if (library == NULL) {
        snprintf(why, SESSION_WHY_BYTES, "%s names a library that cannot be loaded: %.400s", from, dlerror());
    }
    return library;
}

/* The simulator is in the folder aioacl/simulator, and the library of onnxruntime in onnxruntime/capi beside
 * it. */
static void *open_beside(void) {
    char pattern[PATH_MAX];
    Dl_info own;
    glob_t found;
    void *library = NULL;
    if (dladdr(&runtime, &own) == 0 || own.dli_fname == NULL || *own.dli_fname != '/') {
        return NULL;
    }
    const char *end = strrchr(own.dli_fname, '/');
    int length = snprintf(pattern, sizeof pattern, "%.*s/../../onnxruntime/capi/libonnxruntime.so*",
                          (int)(end - own.dli_fname), own.dli_fname);
    bool whole = length > 0 && (size_t)length < sizeof pattern;
    if (whole && glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && library == NULL; i++) {
            library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
        }
        globfree(&found);
    }
    return library;
}

static void *open_unnamed(void) {
    static const char *const names[] = {"libonnxruntime.so.1", "libonnxruntime.so"};
    void *library = open_beside();
    for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static void *open_library(char *why) {
    const char *named = secure_getenv("AIOACL_SIM_ONNXRUNTIME");
    if (named != NULL && *named != '\0') {
        return open_named(named, "AIOACL_SIM_ONNXRUNTIME", why);
    }
    if (*chosen != '\0') {
        return open_named(chosen, "the path of onnxruntime", why);
    }
    void *library = open_unnamed();
    if (library == NULL) {
        snprintf(why, SESSION_WHY_BYTES,
                 "onnxruntime is needed to execute models, and was not found; install aioacl[onnx], and for a "
                 "program that is not in Python, set AIOACL_SIM_ONNXRUNTIME to the path of libonnxruntime.so, "
                 "which the package onnxruntime contains");
    }
    return library;
}

static bool start(void *library, char *why) {
    const ort_api_base_t *(*get_base)(void) = NULL;
    void *symbol = dlsym(library, "OrtGetApiBase");
    memcpy(&get_base, &symbol, sizeof get_base);
    const ort_api_base_t *base = get_base != NULL ? get_base() : NULL;
    const ort_api_t *api = base != NULL ? base->get_api(ORT_VERSION) : NULL;
    if (api == NULL) {
        snprintf(why, SESSION_WHY_BYTES,
                 "the library is not onnxruntime, or lacks version %d of its C interface", ORT_VERSION);
        return false;
    }
    ort_status_t *status = api->create_env(ORT_SEVERITY_FATAL, "aclsim", &runtime.env);
    if (status != NULL) {
        snprintf(why, SESSION_WHY_BYTES, "onnxruntime: %s", api->get_error_message(status));
        api->release_status(status);
        return false;
    }
    runtime.api = api;
    return true;
}

static void load(char *why) {
    void *library = open_library(why);
    if (library != NULL && !start(library, why)) {
        dlclose(library);
    }
}

/* onnxruntime 1.32 collects data about its use in files that it keeps open. It reads this variable once, when
 * it starts. If the program has set the variable, the program's value counts. */
static void load_silently(char *why) {
    static const char variable[] = "ORT_DISABLE_TELEMETRY";
    bool unset = getenv(variable) == NULL;
    if (unset) {
        setenv(variable, "1", 0);
    }
    load(why);
    if (unset) {
        unsetenv(variable);
    }
}

const ort_runtime_t *onnxruntime(char *why) {
    pthread_mutex_lock(&lock);
    if (runtime.api == NULL) {
        load_silently(why);
    }
    bool loaded = runtime.api != NULL;
    pthread_mutex_unlock(&lock);
    return loaded ? &runtime : NULL;
}
