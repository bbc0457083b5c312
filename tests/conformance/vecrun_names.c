/* Symbols, gates, the callbacks that vectors use, and the values of arguments. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vecrun.h"

enum { SYMBOLS = 1024, GATES = 64, LOG_BYTES = 2048 };

typedef struct {
    char name[24];
    long value;
    bool live;
} symbol_t;

typedef struct {
    char name[24];
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool open;
} gate_t;

static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;
static symbol_t symbols[SYMBOLS]; /* in order of binding */
static int symbol_count;
static gate_t gates[GATES];
static int gate_count;
static char callback_log[LOG_BYTES];

static symbol_t *find_symbol(const char *name, size_t length) {
    for (int i = symbol_count; i-- > 0;) {
        if (strlen(symbols[i].name) == length && strncmp(symbols[i].name, name, length) == 0) {
            return &symbols[i];
        }
    }
    return NULL;
}

void bind_symbol(const char *name, long value) {
    pthread_mutex_lock(&tables_lock);
    symbol_t *old = find_symbol(name, strlen(name));
    if (old != NULL) {
        old->name[0] = '\0';
        old->live = false;
    }
    if (symbol_count == SYMBOLS || strlen(name) >= sizeof symbols[0].name) {
        fail("too many or too long symbols:", name);
    }
    symbol_t *symbol = &symbols[symbol_count++];
    strcpy(symbol->name, name);
    symbol->value = value;
    symbol->live = true;
    pthread_mutex_unlock(&tables_lock);
}

void end_symbols(long value) {
    pthread_mutex_lock(&tables_lock);
    for (int i = 0; i < symbol_count; i++) {
        symbols[i].live = symbols[i].live && symbols[i].value != value;
    }
    pthread_mutex_unlock(&tables_lock);
}

/* The first (of contexts: the last by name) live symbol of that kind with that value. */
const char *symbol_with(char kind, long value, const char *except) {
    const char *found = NULL;
    pthread_mutex_lock(&tables_lock);
    for (int i = 0; i < symbol_count; i++) {
        const symbol_t *symbol = &symbols[i];
        bool match = symbol->live && symbol->name[1] == kind && symbol->value == value;
        if (!match || (except != NULL && strcmp(symbol->name, except) == 0)) {
            continue;
        }
        if (found == NULL || (kind == 'c' && strcmp(symbol->name, found) > 0)) {
            found = symbol->name;
        }
    }
    pthread_mutex_unlock(&tables_lock);
    return found;
}

static gate_t *find_gate(const char *name) {
    pthread_mutex_lock(&tables_lock);
    int i = 0;
    while (i < gate_count && strcmp(gates[i].name, name) != 0) {
        i++;
    }
    if (i == GATES || strlen(name) >= sizeof gates[0].name) {
        fail("too many or too long gates:", name);
    }
    if (i == gate_count) {
        gate_count++;
        strcpy(gates[i].name, name);
        pthread_mutex_init(&gates[i].lock, NULL);
        pthread_cond_init(&gates[i].cond, NULL);
    }
    pthread_mutex_unlock(&tables_lock);
    return &gates[i];
}

static void on_log(void *tag) {
    char entry[80];
    if (logical_thread >= 0) {
        snprintf(entry, sizeof entry, "%s@t%d", tag != NULL ? (char *)tag : "null", logical_thread);
    } else {
        snprintf(entry, sizeof entry, "%s@other", tag != NULL ? (char *)tag : "null");
    }
    pthread_mutex_lock(&tables_lock);
    size_t used = strlen(callback_log);
    snprintf(callback_log + used, sizeof callback_log - used, "%s\"%s\"", used > 0 ? "," : "", entry);
    pthread_mutex_unlock(&tables_lock);
}

static void on_gate(void *arg) {
    gate_t *gate = arg;
    pthread_mutex_lock(&gate->lock);
    while (!gate->open) {
        pthread_cond_wait(&gate->cond, &gate->lock);
    }
    pthread_mutex_unlock(&gate->lock);
}

static void on_nothing(void *arg) {
    (void)arg;
}

void gate_open(void *arg) {
    gate_t *gate = arg;
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->cond);
    pthread_mutex_unlock(&gate->lock);
}

void log_take(char *text, size_t size) {
    pthread_mutex_lock(&tables_lock);
    snprintf(text, size, "%s", callback_log);
    callback_log[0] = '\0';
    pthread_mutex_unlock(&tables_lock);
}

static bool has_prefix(const char *text, const char *prefix, const char **rest) {
    size_t length = strlen(prefix);
    *rest = text + length;
    return strncmp(text, prefix, length) == 0;
}

static long make_number_block(const char *text, bool wide) {
    char *block = calloc(1, 256);
    uint64_t value = strtoull(text, NULL, 0);
    uint32_t narrow = (uint32_t)value;
    if (block != NULL) {
        memcpy(block, wide ? (void *)&value : (void *)&narrow, wide ? sizeof value : sizeof narrow);
    }
    return (long)block;
}

static bool resolve_symbol(const char *text, long *value) {
    const char *plus = strchr(text, '+');
    size_t length = plus != NULL ? (size_t)(plus - text) : strlen(text);
    pthread_mutex_lock(&tables_lock);
    const symbol_t *symbol = find_symbol(text, length);
    bool bound = symbol != NULL && symbol->value != 0;
    if (bound) {
        *value = symbol->value + (plus != NULL ? atol(plus + 1) : 0);
    }
    pthread_mutex_unlock(&tables_lock);
    return bound;
}

static bool resolve_callback(const char *text, long *value) {
    *value = strcmp(text, "@cb") == 0     ? (long)on_log
             : strcmp(text, "@gate") == 0 ? (long)on_gate
             : strcmp(text, "@exc") == 0  ? (long)on_nothing
                                          : 0;
    return *value != 0;
}

bool resolve(const char *text, long *value) {
    const char *rest = NULL;
    char *end = NULL;
    if (text[0] == '$') {
        return resolve_symbol(text, value);
    }
    if (text[0] == '@') {
        return resolve_callback(text, value);
    }
    if (strcmp(text, "null") == 0) {
        *value = 0;
    } else if (has_prefix(text, "u:", &rest) || has_prefix(text, "str:", &rest)) {
        *value = (long)rest;
    } else if (has_prefix(text, "gate:", &rest)) {
        *value = (long)find_gate(rest);
    } else if (has_prefix(text, "tid:", &rest)) {
        *value = (long)thread_of(atoi(rest));
    } else if (has_prefix(text, "pu32:", &rest) || has_prefix(text, "pu64:", &rest)) {
        *value = make_number_block(rest, text[2] == '6');
    } else {
        *value = text[0] == '-' ? strtol(text, &end, 0) : (long)strtoul(text, &end, 0);
        return *end == '\0';
    }
    return true;
}
