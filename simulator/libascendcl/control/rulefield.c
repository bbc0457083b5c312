/* The fields of a rule's text, `name=value` or `name`. The table at the end of this file has one line for each
 * field. */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rule.h"

enum { LIE_BY_DEFAULT = RT_AICPU_EXCEPTION, VALUE_BYTES = 96 };

/* Whether the text begins with a number. The functions of libc that read numbers would also accept white space
 * or a plus sign before the number. */
static bool begins(const char *text) {
    return (*text >= '0' && *text <= '9') || (*text == '-' && text[1] >= '0' && text[1] <= '9');
}

static bool parse_integer(const char *text, int64_t least, int64_t most, int64_t *value) {
    char *end = NULL;
    errno = 0;
    *value = strtoll(text, &end, 0);
    return begins(text) && errno == 0 && *end == '\0' && *value >= least && *value <= most;
}

bool parse_size(const char *text, uint64_t *value) {
    static const char units[] = "KMGT";
    char *end = NULL;
    errno = 0;
    if (*text < '0' || *text > '9') {
        return false;
    }
    *value = strtoull(text, &end, 0);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    unsigned int shift = unit != NULL ? 10U * (unsigned int)(unit - units + 1) : 0;
    bool whole = end[unit != NULL ? 1 : 0] == '\0';
    if (errno != 0 || !whole || *value > UINT64_MAX >> shift) {
        return false;
    }
    *value <<= shift;
    return true;
}

/* Reads a number in the C locale, because the program's locale may use another decimal point. */
static bool parse_real(const char *text, double most, double *value) {
    char *end = NULL;
    locale_t plain = newlocale(LC_ALL_MASK, "C", NULL);
    if (plain == NULL) {
        return false;
    }
    *value = strtod_l(text, &end, plain);
    freelocale(plain);
    return begins(*text == '.' ? text + 1 : text) && *end == '\0' && *value >= 0 && *value <= most;
}

static bool parse_ms(const char *text, int64_t *ns) {
    double value = 0;
    bool good = parse_real(text, 1e9, &value);
    *ns = good ? (int64_t)(value * 1e6) : 0;
    return good;
}

static bool parse_key(const char *text, char *key) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t length = strlen(text);
    if (length == 0 || length >= FAULT_KEY_BYTES || strspn(text, good) != length) {
        return false;
    }
    memcpy(key, text, length + 1);
    return true;
}

static bool set_device(rule_t *rule, const char *text) {
    int64_t number = 0;
    bool good = parse_integer(text, 0, SIM_MAX_DEVICES - 1, &number);
    rule->device = (int)number;
    return good;
}

static bool set_stream(rule_t *rule, const char *text) {
    int64_t number = 0;
    bool good = parse_integer(text, 0, INT64_MAX, &number);
    bool handle = strncmp(text, "0x", 2) == 0;
    rule->stream = handle ? (uintptr_t)number : 0;
    rule->stream_id = handle ? -1 : number;
    return good && (!handle || number != 0);
}

static bool set_thread(rule_t *rule, const char *text) {
    int64_t number = 0;
    bool good = parse_integer(text, 1, UINT32_MAX, &number);
    rule->thread = (uint32_t)number;
    return good;
}

static bool set_tid(rule_t *rule, const char *text) {
    int64_t number = 0;
    bool good = parse_integer(text, 1, INT32_MAX, &number);
    rule->tid = (pid_t)number;
    return good;
}

static bool set_size_least(rule_t *rule, const char *text) {
    rule->sized = true;
    return parse_size(text, &rule->size_least);
}

static bool set_size_most(rule_t *rule, const char *text) {
    rule->sized = true;
    return parse_size(text, &rule->size_most);
}

static bool set_nth(rule_t *rule, const char *text) {
    rule->from_nth = true;
    return parse_size(text, &rule->first) && rule->first >= 1;
}

static bool set_after(rule_t *rule, const char *text) {
    bool good = parse_size(text, &rule->first) && rule->first < UINT64_MAX;
    rule->first++;
    return good;
}

static bool set_every(rule_t *rule, const char *text) {
    return parse_size(text, &rule->every) && rule->every >= 1;
}

static bool set_times(rule_t *rule, const char *text) {
    rule->times_given = true;
    return parse_integer(text, -1, INT64_MAX, &rule->times) && rule->times != 0;
}

static bool set_once(rule_t *rule, const char *text) {
    rule->times_given = true;
    rule->times = 1;
    return text == NULL;
}

static bool set_per(rule_t *rule, const char *text) {
    rule->by_thread = true;
    return strcmp(text, "thread") == 0;
}

static bool set_chance(rule_t *rule, const char *text) {
    double chance = 0;
    bool good = parse_real(text, 1, &chance);
    rule->chancy = good && chance < 1;
    rule->chance = rule->chancy ? (uint64_t)(chance * 18446744073709551616.0) : 0;
    return good;
}

/* Reads a latency such as 20 or 20+-5. */
static bool set_latency(rule_t *rule, const char *value) {
    char text[VALUE_BYTES];
    snprintf(text, sizeof text, "%s", value);
    char *jitter = strstr(text, "+-");
    if (jitter != NULL) {
        *jitter = '\0';
    }
    return parse_ms(text, &rule->latency_ns) && (jitter == NULL || parse_ms(jitter + 2, &rule->jitter_ns)) &&
           rule->jitter_ns <= rule->latency_ns;
}

static bool parse_word(const char *text, const char *const *words, int count, int *found) {
    for (*found = 0; *found < count; ++*found) {
        if (strcmp(words[*found], text) == 0) {
            return true;
        }
    }
    return false;
}

static bool set_moment(rule_t *rule, const char *text) {
    static const char *const words[] = {"before", "during", "after"};
    int found = 0;
    bool good = parse_word(text, words, 3, &found);
    rule->moment = (moment_t)found;
    return good;
}

static bool set_text(rule_t *rule, const char *text) {
    static const char *const words[] = {"null", "long", "non-utf8", "stale"};
    int found = 0;
    bool good = parse_word(text, words, 4, &found);
    rule->text_fault = (text_fault_t)(found + 1);
    return good;
}

/* Code 0 is valid: the call does nothing and returns success. */
static bool set_rc(rule_t *rule, const char *text) {
    int64_t value = 0;
    bool good = parse_integer(text, INT32_MIN, INT32_MAX, &value);
    rule->rc = (aclError)value;
    return good;
}

static bool set_reset_fail(rule_t *rule, const char *text) {
    int64_t number = 0;
    bool good = parse_integer(text, 1, INT32_MAX, &number);
    rule->reset_fails = (uint32_t)number;
    return good;
}

static bool set_reset_lies(rule_t *rule, const char *text) {
    int64_t code = LIE_BY_DEFAULT;
    bool good = text == NULL || parse_integer(text, INT32_MIN, INT32_MAX, &code);
    rule->lie = (aclError)code;
    return good && code != 0;
}

typedef enum { FORM_NONE, FORM_CODE, FORM_MS, FORM_KEY, FORM_OWN, FORM_OWN_OR_NONE } form_t;

typedef struct {
    const char *name;
    const char *want;
    uint32_t effect;
    form_t form;
    bool (*set)(rule_t *rule, const char *text);
    size_t offset; /* offset of the member that stores a plain value */
} field_t;

#define PLACE(member) NULL, offsetof(rule_t, member)

static const char nothing[] = "no value";
static const char code[] = "a code other than 0";
static const char time_ms[] = "a number of milliseconds, at least 0";
static const char bytes[] = "a whole number of bytes, such as 4096 or 64K";
static const char from_1[] = "a whole number, at least 1";
static const char key[] = "a key of at most 31 letters, digits, _, - and .";

static const field_t fields[] = {
    {"dev", "the number of a device", 0, FORM_OWN, set_device, 0},
    {"stream", "a stream's id, or its handle as 0x...", 0, FORM_OWN, set_stream, 0},
    {"thread", "a thread's number, at least 1", 0, FORM_OWN, set_thread, 0},
    {"tid", "a thread's id", 0, FORM_OWN, set_tid, 0},
    {"size>", bytes, 0, FORM_OWN, set_size_least, 0},
    {"size<", bytes, 0, FORM_OWN, set_size_most, 0},
    {"nth", from_1, 0, FORM_OWN, set_nth, 0},
    {"after", "a whole number, at least 0", 0, FORM_OWN, set_after, 0},
    {"every", from_1, 0, FORM_OWN, set_every, 0},
    {"times", "a whole number, at least 1, or -1 for no limit", 0, FORM_OWN, set_times, 0},
    {"once", nothing, 0, FORM_OWN_OR_NONE, set_once, 0},
    {"p", "a chance from 0 to 1", 0, FORM_OWN, set_chance, 0},
    {"per", "the word thread", 0, FORM_OWN, set_per, 0},
    {"at", "before, during or after", 0, FORM_OWN, set_moment, 0},
    {"rc", "a code", EFFECT_RC, FORM_OWN, set_rc, 0},
    {"rc-after", code, EFFECT_RC_AFTER, FORM_CODE, PLACE(rc_after)},
    {"oom", nothing, EFFECT_OOM, FORM_NONE, NULL, 0},
    {"latency", "milliseconds, such as 20 or 20+-5, the second number at most the first", EFFECT_LATENCY,
     FORM_OWN, set_latency, 0},
    {"hang", key, EFFECT_HANG, FORM_KEY, PLACE(key)},
    {"async-error", code, EFFECT_ASYNC_ERROR, FORM_CODE, PLACE(async_error)},
    {"sticky", code, EFFECT_STICKY, FORM_CODE, PLACE(fault_state_code)},
    {"lost", code, EFFECT_LOST, FORM_CODE, PLACE(fault_state_code)},
    {"false-drain", nothing, EFFECT_FALSE_DRAIN, FORM_NONE, NULL, 0},
    {"reset-fail", from_1, EFFECT_RESET_FAIL, FORM_OWN, set_reset_fail, 0},
    {"reset-lies", code, EFFECT_RESET_LIES, FORM_OWN_OR_NONE, set_reset_lies, 0},
    {"slow-teardown", time_ms, EFFECT_SLOW_TEARDOWN, FORM_MS, PLACE(teardown_ns)},
    {"late-complete", time_ms, EFFECT_LATE_COMPLETE, FORM_MS, PLACE(late_ns)},
    {"late-copy", time_ms, EFFECT_LATE_COPY, FORM_MS, PLACE(late_ns)},
    {"ext-reset", nothing, EFFECT_EXT_RESET, FORM_NONE, NULL, 0},
    {"errmsg", "null, long, non-utf8 or stale", EFFECT_TEXT, FORM_OWN, set_text, 0},
};

/* The parameters of simulator.fault() have underscores where the fields of a rule have hyphens. */
static bool is_name(const char *name, const char *given) {
    while (*name != '\0' && (*given == *name || (*given == '_' && *name == '-'))) {
        name++;
        given++;
    }
    return *name == *given;
}

static const field_t *find(const char *name) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (is_name(fields[i].name, name)) {
            return &fields[i];
        }
    }
    return NULL;
}

void rule_field_names(char *text, size_t size) {
    size_t length = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && length < size; i++) {
        length += (size_t)snprintf(text + length, size - length, "%s%s", i > 0 ? " " : "", fields[i].name);
    }
}

_Static_assert(sizeof fields / sizeof *fields <= 32, "one bit per field");

/* after= sets the same member as nth=, and once sets the same member as times=. */
static uint32_t bit_of(const field_t *field) {
    bool after = strcmp(field->name, "after") == 0;
    bool once = strcmp(field->name, "once") == 0;
    return UINT32_C(1) << (find(after ? "nth" : once ? "times" : field->name) - fields);
}

static bool set_code(aclError *place, const char *text) {
    int64_t value = 0;
    bool good = parse_integer(text, INT32_MIN, INT32_MAX, &value) && value != 0;
    *place = (aclError)value;
    return good;
}

static bool set(rule_t *rule, const field_t *field, const char *text) {
    void *place = (char *)rule + field->offset;
    bool optional = field->form == FORM_NONE || field->form == FORM_KEY || field->form == FORM_OWN_OR_NONE;
    if (text == NULL && !optional) {
        return false;
    }
    switch (field->form) {
    case FORM_NONE:
        return text == NULL;
    case FORM_CODE:
        return set_code(place, text);
    case FORM_MS:
        return parse_ms(text, place);
    case FORM_KEY:
        return text == NULL || parse_key(text, place);
    default:
        return field->set(rule, text);
    }
}

bool rule_set(rule_t *rule, const char *name, const char *text, const char **want) {
    const field_t *field = find(name);
    *want = field != NULL ? field->want : NULL;
    if (field == NULL) {
        return false;
    }
    if ((rule->fields & bit_of(field)) != 0) {
        *want = "no earlier field that sets the same value; set it once, and use only one of nth and "
                "after, and only one of times and once";
        return false;
    }
    rule->fields |= bit_of(field);
    rule->effects |= field->effect;
    return set(rule, field, text);
}
