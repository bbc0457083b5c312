/* The list of rules, and the functions that set rules from C and from the environment. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rule.h"
#include "sim.h"

enum { WHY_BYTES = 640, SEED_NAME = 5 };

atomic_bool fault_on;

static rule_t *rules; /* in the order in which they were added */
static uint32_t last_id;
static uint32_t places; /* the number of rules that were numbered since the seed was set */
static char refusal[WHY_BYTES];

rule_t *rules_first(void) {
    return rules;
}

void fault_refresh(void) {
    atomic_store(&fault_on, rules != NULL || health_any_faulty());
}

static void drop(rule_t **place) {
    rule_t *rule = *place;
    *place = rule->next;
    rule_free(rule);
}

void rules_drop(bool (*which)(const rule_t *rule, const void *arg), const void *arg) {
    rule_t **place = &rules;
    while (*place != NULL) {
        if (which(*place, arg)) {
            drop(place);
        } else {
            place = &(*place)->next;
        }
    }
    fault_refresh();
}

static bool is_spent(const rule_t *rule, const void *arg) {
    (void)arg;
    return rule->own && rule->times == 0;
}

void rules_sweep(void) {
    rules_drop(is_spent, NULL);
}

static rule_t *read(const char *text, char *why, size_t size) {
    rule_t *rule = calloc(1, sizeof *rule);
    if (rule == NULL || !rule_parse(rule, text, why, size)) {
        free(rule);
        return NULL;
    }
    return rule;
}

rule_t *rules_add(const char *text, char *why, size_t size) {
    rule_t *rule = read(text, why, size);
    rule_t **end = &rules;
    if (rule == NULL) {
        return NULL;
    }
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = rule;
    rule->id = ++last_id;
    rule->place = ++places;
    fault_refresh();
    return rule;
}

void rules_refused(const char *why) {
    snprintf(refusal, sizeof refusal, "%s", why);
}

API int aclsim_fault_add(const char *rule, uint32_t *id) {
    sim_start();
    SIM_GUARD();
    const rule_t *made = rule != NULL ? rules_add(rule, refusal, sizeof refusal) : NULL;
    if (made != NULL && id != NULL) {
        *id = made->id;
    }
    return made != NULL ? 0 : -1;
}

API int aclsim_fault_check(const char *rule) {
    sim_start();
    sim_lock();
    rule_t *made = rule != NULL ? read(rule, refusal, sizeof refusal) : NULL;
    sim_unlock();
    if (made == NULL) {
        return -1;
    }
    rule_free(made);
    return 0;
}

API int aclsim_fault_error(char *text, size_t size) {
    SIM_GUARD();
    int length = (int)strlen(refusal);
    if (text != NULL && size > 0) {
        snprintf(text, size, "%s", refusal);
    }
    return length;
}

static rule_t *find(uint32_t id) {
    rule_t *rule = rules;
    while (rule != NULL && rule->id != id) {
        rule = rule->next;
    }
    return rule;
}

static bool has_id(const rule_t *rule, const void *id) {
    return rule->id == *(const uint32_t *)id;
}

static bool is_any(const rule_t *rule, const void *arg) {
    (void)arg;
    return rule != NULL;
}

API int aclsim_fault_remove(uint32_t id) {
    SIM_GUARD();
    bool found = find(id) != NULL;
    rules_drop(has_id, &id);
    return found ? 0 : -1;
}

API void aclsim_fault_clear(void) {
    SIM_GUARD();
    rules_drop(is_any, NULL);
    health_heal_all();
}

API int aclsim_fault_hits(uint32_t id, uint64_t *hits, uint64_t *matches) {
    SIM_GUARD();
    const rule_t *rule = find(id);
    if (rule != NULL && hits != NULL) {
        *hits = rule->hits;
    }
    if (rule != NULL && matches != NULL) {
        *matches = rule->matches;
    }
    return rule != NULL ? 0 : -1;
}

static void seed_anew(uint64_t seed) {
    rule_seed(seed);
    places = 0;
    for (rule_t *rule = rules; rule != NULL; rule = rule->next) {
        rule->place = ++places;
    }
}

API void aclsim_set_seed(uint64_t seed) {
    sim_start(); /* reads the environment's seed first; this call then replaces that seed */
    SIM_GUARD();
    seed_anew(seed);
}

static _Noreturn void die(const char *name, const char *part, const char *why) {
    fprintf(stderr, "aclsim: %s: \"%s\": %s\n", name, part, why);
    abort();
}

/* The message about a mistake quotes `part`. */
static void set_seed(const char *name, const char *part, const char *text) {
    char *end = NULL;
    errno = 0;
    uint64_t seed = strtoull(text, &end, 0);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0') {
        die(name, part, "expected a whole number from 0 to 2^64 - 1");
    }
    seed_anew(seed);
}

static void read_part(const char *name, const char *part) {
    if (strncmp(part, "seed=", SEED_NAME) == 0) {
        set_seed(name, part, part + SEED_NAME);
    } else if (rules_add(part, refusal, sizeof refusal) == NULL) {
        die(name, part, refusal);
    }
}

static void read_parts(const char *name, char *text) {
    char *rest = NULL;
    for (char *part = strtok_r(text, ";", &rest); part != NULL; part = strtok_r(NULL, ";", &rest)) {
        part += strspn(part, " \t\n");
        size_t length = strlen(part);
        while (length > 0 && strchr(" \t\n", part[length - 1]) != NULL) {
            part[--length] = '\0';
        }
        if (length > 0) {
            read_part(name, part);
        }
    }
}

void fault_read_environment(void) {
    const char *seed = secure_getenv("AIOACL_SIM_SEED");
    const char *faults = secure_getenv("AIOACL_SIM_FAULTS");
    char *copy = faults != NULL ? strdup(faults) : NULL;
    if (seed != NULL) {
        set_seed("AIOACL_SIM_SEED", seed, seed);
    }
    if (copy != NULL) {
        read_parts("AIOACL_SIM_FAULTS", copy);
    }
    free(copy);
}
