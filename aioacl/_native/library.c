/*
 * The library. One call opens the ACL library with its companions, or opens nothing. An open library stays
 * open. So an exception between two lines of Python never leaves an incomplete set of libraries open, and no
 * signal handler or other thread sees an incomplete set. A fork by Python waits until the call has ended.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "internal.h"

enum { LIBRARIES = 8, NOT_OPEN = -1 };

static void *libraries[LIBRARIES];
static int library_count;
static int parts[LIBRARIES];
static atomic_int open_key = NOT_OPEN;
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void aio_library_lock(void) {
    pthread_mutex_lock(&lock);
}

void aio_library_unlock(void) {
    pthread_mutex_unlock(&lock);
}

int aio_library_wait(int64_t timeout_us) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t nanoseconds = until.tv_nsec + timeout_us * 1000;
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    if (pthread_mutex_timedlock(&lock, &until) != 0) {
        return 0;
    }
    pthread_mutex_unlock(&lock);
    return 1;
}

/* Initialises the lock in a forked child. The parent's thread owns the lock, and the child's thread has another
 * id. So the child cannot unlock the lock. */
void aio_library_renew_lock(void) {
    static const pthread_mutex_t fresh = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    memcpy(&lock, &fresh, sizeof lock);
}

/* Whether the library is the simulator, or depends on the simulator: dlsym also searches the dependencies. */
static bool is_simulator(void *library) {
    return dlsym(library, "aclsim_control_version") != NULL;
}

static int open_companion(const char *path) {
    void *library = library_count < LIBRARIES ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        return AIO_PART_BROKEN;
    }
    if (is_simulator(library)) {
        dlclose(library);
        return AIO_PART_SIMULATOR;
    }
    libraries[library_count++] = library;
    return aio_table_fill(library) ? AIO_PART_USED : AIO_PART_UNUSED;
}

static bool is_complete(void) {
    for (int i = 0; i < AIO_FUNCTIONS; i++) {
        if (!aio_present[i]) {
            return false;
        }
    }
    return true;
}

static void open_companions(const char *paths) {
    for (int i = 0; *paths && i < LIBRARIES; i++, paths += strlen(paths) + 1) {
        parts[i] = is_complete() ? AIO_PART_UNUSED : open_companion(paths);
    }
}

/* Returns NULL, or why the library is refused. */
static const char *open_all(const char *path, const char *companions, int wanted) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return why ? why : "dlopen gave no reason";
    }
    libraries[library_count++] = library;
    if (is_simulator(library)) {
        if (wanted == AIO_WANT_REAL) {
            return "it is the simulator, or depends on the simulator, which is used on request only";
        }
    } else if (wanted == AIO_WANT_SIMULATOR) {
        return "it is not the simulator";
    }
    aio_table_fill(library);
    if (!is_simulator(library)) {
        open_companions(companions);
    }
    return aio_present[AIO_FN_aclInit] ? NULL : "it is not an ACL library: it has no aclInit";
}

static void close_all(void) {
    while (library_count > 0) {
        dlclose(libraries[--library_count]);
    }
    memset(parts, 0, sizeof parts);
    aio_table_clear();
}

int aio_library_open(const char *path, const char *companions, int wanted, int key, char *error, size_t size) {
    const char *why = NULL;
    aio_library_lock();
    if (aio_library_key() == NOT_OPEN) {
        why = open_all(path, companions, wanted);
        if (why) {
            snprintf(error, size, "%s", why);
            close_all();
        } else {
            atomic_store(&open_key, key);
        }
    }
    aio_library_unlock();
    return why ? -1 : 0;
}

int aio_library_key(void) {
    return atomic_load(&open_key);
}

int aio_library_part(int companion) {
    return parts[companion];
}

void *aio_library_symbol(const char *name) {
    void *symbol = NULL;
    for (int i = 0; i < library_count && !symbol; i++) {
        symbol = dlsym(libraries[i], name);
    }
    return symbol;
}

int aio_library_is_simulator(void) {
    return aio_library_symbol("aclsim_control_version") != NULL;
}

/* Whether both symbols exist and are in the same file. */
static bool in_one_file(void *first, void *second) {
    Dl_info one, other;
    return first && second && dladdr(first, &one) && dladdr(second, &other) && one.dli_fbase == other.dli_fbase;
}

int aio_library_loaded_simulator(const char *path) {
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) {
        return 0;
    }
    bool simulated = in_one_file(dlsym(library, "aclsim_control_version"), dlsym(library, "aclrtSetDevice"));
    dlclose(library);
    return simulated;
}

int aio_borrowed_rights(void) {
    return getauxval(AT_SECURE) != 0;
}

/* A list of paths, each ended by a NUL. `text` is the caller's buffer, or memory that grows. */
struct paths {
    char *text;
    size_t size, used;
    bool full;
};

static void append(struct paths *paths, const char *path) {
    size_t length = strlen(path) + 1;
    if (length > paths->size - paths->used) {
        paths->full = true;
        return;
    }
    memcpy(paths->text + paths->used, path, length);
    paths->used += length;
}

static bool contains(const struct paths *paths, const char *path) {
    for (size_t at = 0; at < paths->used; at += strlen(paths->text + at) + 1) {
        if (strcmp(paths->text + at, path) == 0) {
            return true;
        }
    }
    return false;
}

/* Copies the name of a loaded object. The dynamic linker holds its lock during this call, so nothing else may
 * be done here. */
static int collect(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    append(data, info->dlpi_name);
    return 0;
}

static bool collect_objects(struct paths *objects) {
    objects->size = 1 << 16;
    do {
        free(objects->text);
        objects->size *= 2;
        objects->used = 0;
        objects->full = false;
        objects->text = malloc(objects->size);
        if (objects->text) {
            dl_iterate_phdr(collect, objects);
        }
    } while (objects->text && objects->full);
    return objects->text != NULL;
}

/* Adds the object that defines aclrtSetDevice for `object`: either `object` itself, or one of its
 * dependencies. */
static void append_definer(struct paths *definers, const char *object) {
    void *handle = dlopen(*object ? object : NULL, RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = handle ? dlsym(handle, "aclrtSetDevice") : NULL;
    Dl_info where;
    if (symbol && dladdr(symbol, &where) && !contains(definers, where.dli_fname)) {
        append(definers, where.dli_fname);
    }
    if (handle) {
        dlclose(handle);
    }
}

int aio_library_present(char *text, size_t size) {
    struct paths objects = {.text = NULL};
    struct paths definers = {.text = text, .size = size};
    aio_library_lock(); /* else a library that is opened now and refused later could be listed */
    bool collected = collect_objects(&objects);
    for (size_t at = 0; collected && at < objects.used; at += strlen(objects.text + at) + 1) {
        append_definer(&definers, objects.text + at);
    }
    aio_library_unlock();
    free(objects.text);
    return !collected || definers.full ? -1 : (int)definers.used;
}
