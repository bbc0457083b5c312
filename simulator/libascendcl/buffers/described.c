/* Finding and creating the objects of described.h. */
#include "described.h"

void *described_find(object_kind_t kind, const void *handle, const char *what) {
    void *found = handle != NULL ? object_find(kind, handle) : NULL;
    if (found == NULL) {
        error_quiet(ACL_INVALID_PARAM, what);
        if (handle != NULL) {
            usage_dead(kind, handle);
        }
    }
    return found;
}

void *described_new(object_kind_t kind) {
    SIM_GUARD();
    return object_new(kind);
}

uint64_t described_count(void) {
    uint64_t count = 0;
    for (int kind = KIND_DATA_BUFFER; kind <= KIND_PROFILE; kind++) {
        count += object_count((object_kind_t)kind);
    }
    return count;
}
