/* Callbacks of aclInit and aclFinalize. One lock protects all lists of callbacks. As in the runtime, callbacks
 * run with this lock held. */
#include "initcb.h"

#include <string.h>

enum { CALLBACKS_MAX = 64 };

typedef struct {
    uint32_t type;
    void *function; /* NULL: the entry is free */
    void *user;
} entry_t;

typedef struct {
    entry_t entries[CALLBACKS_MAX]; /* without gaps, in order */
} list_t;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static list_t starters;
static list_t enders;

void initcb_lock(void) {
    pthread_mutex_lock(&lock);
}

void initcb_unlock(void) {
    pthread_mutex_unlock(&lock);
}

/* Each type has at most one entry, except the type ACL_REG_TYPE_OTHER, which may have several. */
static aclError add(list_t *list, uint32_t type, void *function, void *user) {
    int i = 0;
    for (; i < CALLBACKS_MAX && list->entries[i].function != NULL; i++) {
        if (list->entries[i].type == type && type != ACL_REG_TYPE_OTHER) {
            return error_quiet(ACL_INTERNAL_ERROR, "type");
        }
    }
    if (i == CALLBACKS_MAX) {
        return error_quiet(ACL_INTERNAL_ERROR, "cbFunc");
    }
    list->entries[i] = (entry_t){.type = type, .function = function, .user = user};
    return ACL_SUCCESS;
}

static aclError take_out(list_t *list, uint32_t type, const void *function) {
    for (int i = 0; i < CALLBACKS_MAX && list->entries[i].function != NULL; i++) {
        if (list->entries[i].type == type && list->entries[i].function == function) {
            memmove(&list->entries[i], &list->entries[i + 1],
                    (size_t)(CALLBACKS_MAX - 1 - i) * sizeof list->entries[i]);
            list->entries[CALLBACKS_MAX - 1].function = NULL;
            return ACL_SUCCESS;
        }
    }
    return error_quiet(ACL_INTERNAL_ERROR, "cbFunc");
}

static aclError call_starter(const entry_t *entry, const char *config) {
    aclInitCallbackFunc function = (aclInitCallbackFunc)(uintptr_t)entry->function;
    const char *text = config != NULL ? config : "";
    return function(text, strlen(text), entry->user);
}

aclError initcb_start(uint32_t type, const char *config) {
    aclError rc = ACL_SUCCESS;
    list_t list = starters; /* a copy, because a callback may change the list */
    for (int i = 0; i < CALLBACKS_MAX && list.entries[i].function != NULL && rc == ACL_SUCCESS; i++) {
        if (list.entries[i].type == type) {
            rc = call_starter(&list.entries[i], config);
        }
    }
    return rc;
}

aclError initcb_end(uint32_t type) {
    aclError rc = ACL_SUCCESS;
    list_t list = enders;
    for (int i = 0; i < CALLBACKS_MAX && list.entries[i].function != NULL && rc == ACL_SUCCESS; i++) {
        const entry_t *entry = &list.entries[i];
        if (entry->type == type) {
            rc = ((aclFinalizeCallbackFunc)(uintptr_t)entry->function)(entry->user);
        }
    }
    return rc;
}

/* After aclInit, the callback runs at once, and its result is ignored. */
aclError do_aclInitCallbackRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc, void *userData) {
    REFUSE_NULL(cbFunc);
    entry_t entry = {.type = type, .function = (void *)(uintptr_t)cbFunc, .user = userData};
    initcb_lock();
    aclError rc = add(&starters, type, entry.function, userData);
    if (rc == ACL_SUCCESS && init_done()) {
        call_starter(&entry, init_config());
    }
    initcb_unlock();
    return rc;
}

aclError do_aclInitCallbackUnRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc) {
    REFUSE_NULL(cbFunc);
    initcb_lock();
    aclError rc = take_out(&starters, type, (void *)(uintptr_t)cbFunc);
    initcb_unlock();
    return rc;
}

aclError do_aclFinalizeCallbackRegister(aclRegisterCallbackType type, aclFinalizeCallbackFunc cbFunc,
                                        void *userData) {
    REFUSE_NULL(cbFunc);
    initcb_lock();
    aclError rc = add(&enders, type, (void *)(uintptr_t)cbFunc, userData);
    initcb_unlock();
    return rc;
}

aclError do_aclFinalizeCallbackUnRegister(aclRegisterCallbackType type, aclFinalizeCallbackFunc cbFunc) {
    REFUSE_NULL(cbFunc);
    initcb_lock();
    aclError rc = take_out(&enders, type, (void *)(uintptr_t)cbFunc);
    initcb_unlock();
    return rc;
}
