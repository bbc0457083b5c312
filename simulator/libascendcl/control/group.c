/*
 * The groups of functions that a rule can name. The name of a function, or its kind in the table, decides its
 * groups. So a function that is added to the table needs no change here. aclsim.h describes the groups.
 */
#include <stdio.h>
#include <string.h>

#include "rule.h"

enum { PATTERNS_MOST = 5 };

typedef struct {
    const char *name;
    const char *patterns[PATTERNS_MOST]; /* the name contains one of these; a leading ^ means the start of
                                            the name */
} group_t;

static const group_t groups[] = {
    {"alloc", {"Malloc", "ReserveMem", "MemPoolCreate"}},
    {"copy", {"Memcpy", "Memset"}},
    {"memory", {"Mem", "Malloc", "aclrtFree"}},
    {"stream", {"Stream"}},
    {"event", {"Event"}},
    {"notify", {"Notify"}},
    {"context", {"Context", "Ctx"}},
    {"device", {"Device"}},
    {"create", {"Create", "Malloc"}},
    {"destroy", {"Destroy", "aclrtFree", "Unload", "ReleaseMem"}},
    {"sync", {"Synchronize"}},
    {"query", {"Query"}},
    {"reset", {"ResetDevice"}},
    {"init", {"^aclInit", "^aclFinalize"}},
    {"launch", {"Launch", "Execute"}},
    {"callback", {"Callback", "HostFunc", "Report"}},
    {"model", {"^aclmdl"}},
    {"graph", {"ModelRI", "Capture"}},
    {"op", {"^aclop"}},
};

static const char *const kinds[] = {[CALL_FREE] = "free",
                                    [CALL_ENQUEUE] = "enqueue",
                                    [CALL_WAIT] = "wait",
                                    [CALL_LIFETIME] = "lifetime",
                                    [CALL_CONTROL] = "control"};

static bool is(const char *word, const char *text, size_t length) {
    return strlen(word) == length && strncmp(word, text, length) == 0;
}

static const group_t *find(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (is(groups[i].name, name, length)) {
            return &groups[i];
        }
    }
    return NULL;
}

static int find_kind(const char *name, size_t length) {
    for (int kind = 0; kind < (int)(sizeof kinds / sizeof *kinds); kind++) {
        if (kinds[kind] != NULL && is(kinds[kind], name, length)) {
            return kind;
        }
    }
    return -1;
}

static bool fits(const char *pattern, const char *name) {
    return *pattern == '^' ? strncmp(name, pattern + 1, strlen(pattern + 1)) == 0
                           : strstr(name, pattern) != NULL;
}

bool group_known(const char *name, size_t length) {
    return is("*", name, length) || find(name, length) != NULL || find_kind(name, length) >= 0;
}

static void add_name(char *text, size_t size, const char *name) {
    size_t length = strlen(text);
    snprintf(text + length, size - length, "%s ", name);
}

void group_names(char *text, size_t size) {
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        add_name(text, size, groups[i].name);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        add_name(text, size, kinds[i]);
    }
    add_name(text, size, "and *");
}

bool group_has(const char *name, size_t length, function_t function) {
    const group_t *group = find(name, length);
    if (group == NULL) {
        return is("*", name, length) || (int)function_info[function].kind == find_kind(name, length);
    }
    for (int i = 0; i < PATTERNS_MOST && group->patterns[i] != NULL; i++) {
        if (fits(group->patterns[i], function_info[function].name)) {
            return true;
        }
    }
    return false;
}
