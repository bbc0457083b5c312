/* Reads the text of a rule: the functions that it picks, and its fields. Checks that the fields are compatible.
 */
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rule.h"

enum { FIELD_BYTES = 96 };

typedef struct {
    rule_t *rule;
    const char *text;
    const char *at; /* the field that is being read */
    size_t length;
    char *why;
    size_t size;
} reader_t;

static bool refuse(const reader_t *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool refuse(const reader_t *reader, const char *format, ...) {
    char what[448];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(reader->why, reader->size, "column %td, \"%.*s\": %s", reader->at - reader->text + 1,
             (int)(reader->length < FIELD_BYTES ? reader->length : FIELD_BYTES), reader->at, what);
    return false;
}

static bool names(const char *word, size_t length, function_t function) {
    char pattern[RULE_TEXT_BYTES];
    snprintf(pattern, sizeof pattern, "%.*s", (int)length, word);
    if (group_known(word, length)) {
        return group_has(word, length, function);
    }
    return fnmatch(pattern, function_info[function].name, 0) == 0;
}

static bool pick_word(const reader_t *reader, const char *word, size_t length) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_*?";
    bool found = false;
    bool plain = strspn(word, good) >= length; /* the word may become part of a line of the trace */
    for (int function = 0; plain && function < FN_COUNT; function++) {
        if (names(word, length, (function_t)function)) {
            reader->rule->picks[function] = true;
            found = true;
        }
    }
    char known[256] = "";
    group_names(known, sizeof known);
    return found || refuse(reader, "\"%.*s\" is not a function or a group of functions; the groups are %s",
                           (int)(length < FIELD_BYTES ? length : FIELD_BYTES), word, known);
}

/* Reads the names of functions and groups, such as alloc|aclrtCreateStream. */
static bool pick(const reader_t *reader) {
    const char *end = reader->at + reader->length;
    const char *word = reader->at;
    while (word <= end) {
        const char *bar = memchr(word, '|', (size_t)(end - word));
        const char *stop = bar != NULL ? bar : end;
        if (!pick_word(reader, word, (size_t)(stop - word))) {
            return false;
        }
        word = stop + 1;
    }
    return true;
}

/* Whether the function enqueues a task. aclmdlExecute and aclmdlExecuteV2 also wait for it. */
static bool enqueues(function_t function) {
    bool executes = strncmp(function_info[function].name, "aclmdlExecute", 13) == 0;
    return executes || (function_info[function].kind == CALL_ENQUEUE && role_has_stream(function));
}

/* Whether the function can enqueue a task that fails later. aclmdlExecute and aclmdlExecuteV2 return the
 * failure themselves, as with rc=. A record of an event has no failure of its own in the runtime. */
static bool fails_later(function_t function) {
    bool waits = function_info[function].kind != CALL_ENQUEUE;
    return enqueues(function) && !waits && strstr(function_info[function].name, "RecordEvent") == NULL;
}

static bool reaches(uint32_t effect, function_t function) {
    const char *name = function_info[function].name;
    bool ends = group_has("reset", 5, function);
    switch (effect) {
    case EFFECT_RC_AFTER:
    case EFFECT_OOM:
        return role_returns_code(function);
    case EFFECT_ASYNC_ERROR:
        return fails_later(function);
    case EFFECT_LATE_COMPLETE:
        return enqueues(function);
    case EFFECT_LATE_COPY:
        return group_has("copy", 4, function) && role_has_stream(function);
    case EFFECT_FALSE_DRAIN:
        return group_has("sync", 4, function);
    case EFFECT_RESET_FAIL:
    case EFFECT_RESET_LIES:
        return ends;
    case EFFECT_SLOW_TEARDOWN:
        return ends || strncmp(name, "aclrtDestroyStream", 18) == 0 || strcmp(name, "aclrtDestroyContext") == 0;
    default:
        return true;
    }
}

static bool enters_fault_state(const rule_t *rule) {
    return (rule->effects & (EFFECT_STICKY | EFFECT_LOST)) != 0;
}

/* Functions that cannot show the rule's effects are not picked. A rule that picks no function is a mistake. */
static bool narrow(const reader_t *reader) {
    rule_t *rule = reader->rule;
    bool any = false;
    for (int function = 0; function < FN_COUNT; function++) {
        for (uint32_t effect = 1; effect <= EFFECT_TEXT; effect <<= 1) {
            bool of_fault_state = effect == EFFECT_RESET_FAIL && enters_fault_state(rule);
            bool wanted = (rule->effects & effect) != 0 && !of_fault_state;
            rule->picks[function] = rule->picks[function] && (!wanted || reaches(effect, (function_t)function));
        }
        any = any || rule->picks[function];
    }
    return any || refuse(reader, "none of these functions can show the effects of the rule; name others");
}

static bool both(const rule_t *rule, uint32_t one, uint32_t other) {
    return (rule->effects & one) != 0 && (rule->effects & other) != 0;
}

static bool agree(const reader_t *reader) {
    const rule_t *rule = reader->rule;
    if (rule->effects == 0) {
        return refuse(reader, "the rule has no effect; add one, such as rc=507015");
    }
    if (rule->size_least > rule->size_most) {
        return refuse(reader, "no size is in that range; size>= must be at most size<=");
    }
    if (both(rule, EFFECT_STICKY, EFFECT_LOST) || both(rule, EFFECT_LATE_COMPLETE, EFFECT_LATE_COPY) ||
        both(rule, EFFECT_RC, EFFECT_OOM)) {
        return refuse(reader, "two effects exclude each other; remove one");
    }
    if (rule->moment != AT_BEFORE && (rule->effects & EFFECT_LATENCY) == 0) {
        return refuse(reader, "at= needs latency=; add it");
    }
    return true;
}

static void settle(rule_t *rule) {
    if (!rule->times_given) {
        rule->exact = rule->from_nth && rule->every == 1;
        rule->times = -1;
    }
    if ((rule->effects & EFFECT_RESET_FAIL) != 0 && !enters_fault_state(rule) && !rule->times_given) {
        rule->times = rule->reset_fails;
    }
    if ((rule->effects & EFFECT_LOST) != 0 && rule->reset_fails == 0) {
        rule->reset_fails = 1;
    }
}

static bool read_field(const reader_t *reader) {
    char name[FIELD_BYTES];
    const char *want = NULL;
    if (reader->length >= sizeof name) {
        return refuse(reader, "a field has at most %d characters", FIELD_BYTES - 1);
    }
    snprintf(name, sizeof name, "%.*s", (int)reader->length, reader->at);
    char *value = strchr(name, '=');
    if (value != NULL) {
        *value++ = '\0';
    }
    if (rule_set(reader->rule, name, value, &want)) {
        return true;
    }
    if (want != NULL) {
        return refuse(reader, "%s expects %s", name, want);
    }
    char known[320] = "";
    rule_field_names(known, sizeof known);
    return refuse(reader, "no such field; the fields are %s", known);
}

static bool read_fields(reader_t *reader) {
    bool first = true;
    for (const char *rest = reader->text; rest != NULL; first = false) {
        const char *colon = strchr(rest, ':');
        reader->at = rest;
        reader->length = colon != NULL ? (size_t)(colon - rest) : strlen(rest);
        rest = colon != NULL ? colon + 1 : NULL;
        if (!(first ? pick(reader) : read_field(reader))) {
            return false;
        }
    }
    return true;
}

bool rule_parse(rule_t *rule, const char *text, char *why, size_t size) {
    reader_t reader = {
        .rule = rule, .text = text, .at = text, .length = strlen(text), .why = why, .size = size};
    memset(rule, 0, sizeof *rule);
    rule->device = -1;
    rule->stream_id = -1;
    rule->first = 1;
    rule->every = 1;
    rule->size_most = UINT64_MAX;
    if (reader.length >= sizeof rule->text) {
        return refuse(&reader, "a rule has at most %zu characters", sizeof rule->text - 1);
    }
    memcpy(rule->text, text, reader.length + 1);
    if (!read_fields(&reader)) {
        return false;
    }
    reader.at = text;
    reader.length = strlen(text);
    settle(rule);
    return agree(&reader) && narrow(&reader);
}
