/* Counts of calls, and the short forms of two rules: one makes a function fail, the other makes it hang. */
#include <stdio.h>
#include <string.h>

#include "rule.h"
#include "sim.h"

static atomic_ulong calls[FN_COUNT];
static atomic_ulong forgotten_calls;

void calls_count(function_t function) {
    atomic_fetch_add_explicit(&calls[function], 1, memory_order_relaxed);
}

uint64_t calls_all(void) {
    uint64_t sum = atomic_load(&forgotten_calls);
    for (int i = 0; i < FN_COUNT; i++) {
        sum += atomic_load(&calls[i]);
    }
    return sum;
}

void calls_forget_counts(void) {
    for (int i = 0; i < FN_COUNT; i++) {
        atomic_fetch_add(&forgotten_calls, atomic_exchange(&calls[i], 0));
    }
}

API uint64_t aclsim_calls(const char *function) {
    int index = function_find(function);
    return index >= 0 ? atomic_load(&calls[index]) : 0;
}

static bool fails(const rule_t *rule, const void *function) {
    return rule->own && (rule->effects & EFFECT_RC) != 0 && rule->picks[*(const int *)function];
}

static rule_t *add(const char *text) {
    char why[RULE_TEXT_BYTES];
    rule_t *rule = rules_add(text, why, sizeof why);
    if (rule != NULL) {
        rule->own = true;
    }
    return rule;
}

/* A new setting replaces an earlier setting of the same function. */
API int aclsim_fail_call(const char *function, int32_t code, int32_t times) {
    int index = function_find(function);
    if (index < 0 || times < -1) {
        return -1;
    }
    char text[RULE_TEXT_BYTES];
    snprintf(text, sizeof text, "%s:rc=%d:times=%d", function, code, times);
    sim_start();
    SIM_GUARD();
    rules_drop(fails, &index);
    bool done = times == 0 || add(text) != NULL;
    return done ? 0 : -1;
}

API int aclsim_hang_call(const char *function) {
    if (function_find(function) < 0) {
        return -1;
    }
    char text[RULE_TEXT_BYTES];
    snprintf(text, sizeof text, "%s:hang:once", function);
    sim_start();
    SIM_GUARD();
    rule_t *rule = add(text);
    if (rule != NULL) {
        memcpy(rule->key, OWN_KEY, sizeof OWN_KEY);
    }
    return rule != NULL ? 0 : -1;
}

API int aclsim_hung(const char *function) {
    int index = function_find(function);
    if (index < 0) {
        return -1;
    }
    SIM_GUARD();
    return (int)fault_hung((function_t)index);
}

API void aclsim_clear(void) {
    aclsim_fault_clear();
}
