/*
 * The table. For each function, it has a slot, which dlsym fills, and a flag that shows whether the library has
 * the function.
 */
#include <dlfcn.h>
#include <string.h>

#include "internal.h"

struct aio_slots aio_acl;
bool aio_present[AIO_FUNCTIONS];

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

int aio_table_fill(void *library) {
    void *const *addresses = slot_addresses();
    int filled = 0;
    for (int i = 0; i < AIO_FUNCTIONS; i++) {
        void *symbol = aio_present[i] ? NULL : dlsym(library, aio_function_names[i]);
        if (!symbol) {
            continue;
        }
        memcpy(addresses[i], &symbol, sizeof symbol);
        aio_present[i] = true;
        filled++;
    }
    return filled;
}

void aio_table_clear(void) {
    memset(&aio_acl, 0, sizeof aio_acl);
    memset(aio_present, 0, sizeof aio_present);
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
