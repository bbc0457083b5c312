/*
 * The library: one slot for each function of the table, filled by dlsym, and a bit that says whether it is
 * there.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { LIBRARIES = 8 };

struct aio_slots aio_acl;
bool aio_present[AIO_FUNCTIONS];
static void *libraries[LIBRARIES];
static int library_count;

const char *const aio_function_names[AIO_FUNCTIONS] = {
#define ACL_FN(kind, ret, name, params, args, since) #name,
#include "acl_api.inc"
#undef ACL_FN
};

static const char *const since_release[AIO_FUNCTIONS] = {
#define ACL_FN(kind, ret, name, params, args, since) since,
#include "acl_api.inc"
#undef ACL_FN
};

static const int kinds[AIO_FUNCTIONS] = {
#define ACL_FN(kind, ret, name, params, args, since) AIO_##kind,
#include "acl_api.inc"
#undef ACL_FN
};

static const char *const returns[AIO_FUNCTIONS] = {
#define ACL_FN(kind, ret, name, params, args, since) #ret,
#include "acl_api.inc"
#undef ACL_FN
};

static const char *const parameters[AIO_FUNCTIONS] = {
#define ACL_FN(kind, ret, name, params, args, since) #params,
#include "acl_api.inc"
#undef ACL_FN
};

static void *const *slot_addresses(void) {
    static void *addresses[AIO_FUNCTIONS];
    int i = 0;
#define ACL_FN(kind, ret, name, params, args, since) addresses[i++] = (void *)&aio_acl.name;
#include "acl_api.inc"
#undef ACL_FN
    return addresses;
}

/* Slots that are filled stay as they are: the first library that has a function provides it. */
static int fill(void *library) {
    void *const *addresses = slot_addresses();
    int filled = 0;
    for (int i = 0; i < AIO_FUNCTIONS; i++) {
        void *symbol = aio_present[i] ? NULL : dlsym(library, aio_function_names[i]);
        if (!symbol)
            continue;
        memcpy(addresses[i], &symbol, sizeof symbol);
        aio_present[i] = true;
        filled++;
    }
    return filled;
}

static void *load(const char *path) {
    void *library = library_count < LIBRARIES ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library)
        libraries[library_count++] = library;
    return library;
}

int aio_library_open(const char *path, char *error, size_t size) {
    void *library = load(path);
    if (!library) {
        const char *why = dlerror();
        snprintf(error, size, "%s", why ? why : "too many libraries are open");
        return -1;
    }
    fill(library);
    return 0;
}

int aio_library_add(const char *path) {
    void *library = load(path);
    return library ? fill(library) : -1;
}

void *aio_library_symbol(const char *name) {
    void *symbol = NULL;
    for (int i = 0; i < library_count && !symbol; i++)
        symbol = dlsym(libraries[i], name);
    return symbol;
}

int aio_library_is_simulator(void) {
    return aio_library_symbol("aclsim_control_version") != NULL;
}

/* Paths, each with its NUL, in a buffer of the caller or in memory that grows. */
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
    for (size_t at = 0; at < paths->used; at += strlen(paths->text + at) + 1)
        if (strcmp(paths->text + at, path) == 0)
            return true;
    return false;
}

/* The linker's lock is held here, so nothing but the name is taken. */
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
        if (objects->text)
            dl_iterate_phdr(collect, objects);
    } while (objects->text && objects->full);
    return objects->text != NULL;
}

/* The object that defines aclrtSetDevice for `object`: itself, or one that it depends on. */
static void append_definer(struct paths *definers, const char *object) {
    void *handle = dlopen(*object ? object : NULL, RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = handle ? dlsym(handle, "aclrtSetDevice") : NULL;
    Dl_info where;
    if (symbol && dladdr(symbol, &where) && !contains(definers, where.dli_fname))
        append(definers, where.dli_fname);
    if (handle)
        dlclose(handle);
}

int aio_library_present(char *text, size_t size) {
    struct paths objects = {.text = NULL};
    struct paths definers = {.text = text, .size = size};
    if (!collect_objects(&objects))
        return -1;
    for (size_t at = 0; at < objects.used; at += strlen(objects.text + at) + 1)
        append_definer(&definers, objects.text + at);
    free(objects.text);
    return definers.full ? -1 : (int)definers.used;
}

int aio_table_size(void) {
    return AIO_FUNCTIONS;
}

const char *aio_table_name(int index) {
    return aio_function_names[index];
}

const char *aio_table_since(int index) {
    return since_release[index];
}

int aio_table_kind(int index) {
    return kinds[index];
}

const char *aio_table_returns(int index) {
    return returns[index];
}

const char *aio_table_params(int index) {
    return parameters[index];
}

int aio_table_present(int index) {
    return aio_present[index];
}
