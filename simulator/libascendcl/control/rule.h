/* A rule of the fault engine: which calls, when, and which effects. aclsim.h describes the grammar. */
#ifndef ACLSIM_RULE_H
#define ACLSIM_RULE_H

#include "fault.h"

typedef enum {
    EFFECT_RC = 1 << 0,
    EFFECT_RC_AFTER = 1 << 1,
    EFFECT_OOM = 1 << 2,
    EFFECT_LATENCY = 1 << 3,
    EFFECT_HANG = 1 << 4,
    EFFECT_ASYNC_ERROR = 1 << 5,
    EFFECT_STICKY = 1 << 6,
    EFFECT_LOST = 1 << 7,
    EFFECT_FALSE_DRAIN = 1 << 8,
    EFFECT_RESET_FAIL = 1 << 9,
    EFFECT_RESET_LIES = 1 << 10,
    EFFECT_SLOW_TEARDOWN = 1 << 11,
    EFFECT_LATE_COMPLETE = 1 << 12,
    EFFECT_LATE_COPY = 1 << 13,
    EFFECT_EXT_RESET = 1 << 14,
    EFFECT_TEXT = 1 << 15
} effect_t;

/* The key of calls that aclsim_hang_call hangs. The text of a rule cannot contain it. */
#define OWN_KEY "@"

typedef enum { AT_BEFORE, AT_DURING, AT_AFTER } moment_t;

/* The matches of each thread, for rules that count by thread. Threads are numbered from 1. */
typedef struct {
    uint64_t *counts;
    uint32_t room;
} tally_t;

typedef struct rule {
    struct rule *next;
    uint32_t id;
    uint32_t place; /* the rule's number since the seed was set; chance depends on the seed and this number */
    char text[RULE_TEXT_BYTES];
    /* which calls match */
    bool picks[FN_COUNT];
    int device; /* -1: any */
    uintptr_t stream;
    int64_t stream_id; /* -1: any */
    uint32_t thread;   /* 0: any */
    pid_t tid;         /* 0: any */
    bool sized;
    uint64_t size_least;
    uint64_t size_most;
    /* when the rule fires */
    bool by_thread;
    bool from_nth;
    bool own;       /* made by aclsim_fail_call or aclsim_hang_call: dropped after its last use */
    bool exact;     /* fires only on the match with number `first` */
    uint64_t first; /* the number of the first matching call that counts, from 1 */
    uint64_t every;
    bool chancy;
    uint64_t chance; /* the chance times 2^64 */
    int64_t times;   /* the number of hits that are left; -1: no limit */
    bool times_given;
    uint32_t fields; /* the fields that the text has set, so that no field is set twice */
    /* effects */
    uint32_t effects;
    aclError rc;
    aclError rc_after;
    aclError async_error;
    aclError fault_state_code;
    aclError lie;
    uint32_t reset_fails;
    int64_t latency_ns;
    int64_t jitter_ns;
    moment_t moment;
    int64_t teardown_ns;
    int64_t late_ns;
    char key[FAULT_KEY_BYTES];
    text_fault_t text_fault;
    /* counters */
    uint64_t matches;
    uint64_t hits;
    tally_t tally;
} rule_t;

/* The properties of a call that rules are compared with. */
typedef struct {
    function_t function;
    device_t *device; /* the device of the call; NULL: none */
    const void *stream_handle;
    int64_t stream_id; /* -1: no stream */
    uint32_t thread;
    pid_t tid;
    bool sized;
    uint64_t size;
    int device_id;
    int64_t timeout_ms; /* -1: none */
} call_info_t;

/* role.c: the roles of a function's arguments, read from its prototype. */
bool role_returns_code(function_t function);
bool role_has_stream(function_t function);
/* With sim.lock held. */
void role_call_info(function_t function, const uint64_t *words, call_info_t *call_info);

/* group.c. */
bool group_has(const char *group, size_t length, function_t function);
bool group_known(const char *group, size_t length);
void group_names(char *text, size_t size);

/* ruleparse.c. */
/* Reads a rule. Returns false on a mistake; `why` then describes the mistake and its place. */
bool rule_parse(rule_t *rule, const char *text, char *why, size_t size);

/* rulefield.c. */
/* Sets one field; `text` is NULL if the field has no value. Returns false on a mistake. `want` then describes
 * what the field expects, or is NULL if there is no such field. */
bool rule_set(rule_t *rule, const char *name, const char *text, const char **want);

/* The names of all fields. */
void rule_field_names(char *text, size_t size);
/* Reads a number with an optional K, M, G or T, up to the end of the text. */
bool parse_size(const char *text, uint64_t *value);

/* rules.c. */
rule_t *rules_first(void);
/* Returns NULL if the text is refused; `why` then contains the reason. */
rule_t *rules_add(const char *text, char *why, size_t size);
void rules_drop(bool (*which)(const rule_t *rule, const void *arg), const void *arg);
void rules_sweep(void);
/* Sets the text that aclsim_fault_error returns. */
void rules_refused(const char *why);

/* fault.c. */
void injection_refuse(injection_t *injection, aclError code);

/* rulematch.c. */
/* Whether the rule fires. Counts a match if the call matches, and a hit if the rule fires. */
bool rule_fires(rule_t *rule, const call_info_t *call_info);
int64_t rule_latency(const rule_t *rule);
void rule_seed(uint64_t seed);
void rule_free(rule_t *rule);

#endif
