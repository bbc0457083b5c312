/* What a step does: a call of the library, or something of our own. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vecrun.h"
#include "vecrun_specs.h"

static void add_out(result_t *result, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_out(result_t *result, const char *name, const char *format, ...) {
    va_list arguments;
    size_t used = strlen(result->out);
    used += (size_t)snprintf(result->out + used, OUT_BYTES - used, "%s\"%s\":", used > 0 ? "," : "", name);
    va_start(arguments, format);
    vsnprintf(result->out + used, OUT_BYTES - used, format, arguments);
    va_end(arguments);
}

static uint8_t pattern_byte(long seed, size_t i) {
    return (uint8_t)((size_t)seed * 31 + i * 7 + (i >> 8) * 13);
}

static void run_check(const long *a, bool pattern, result_t *result) {
    const uint8_t *bytes = (const uint8_t *)a[0] + a[1];
    bool same = true;
    for (long i = 0; i < a[2]; i++) {
        same = same && bytes[i] == (pattern ? pattern_byte(a[3], (size_t)i) : bytes[0]);
    }
    if (pattern) {
        add_out(result, "match", "%d", same);
    } else {
        add_out(result, "byte", "%d", same ? bytes[0] : -1);
    }
}

static void run_log(result_t *result) {
    char text[OUT_BYTES / 2];
    log_take(text, sizeof text);
    add_out(result, "log", "[%s]", text);
}

static void run_memory(const char *call, const step_t *step, const long *a, result_t *result) {
    uint8_t *bytes = (uint8_t *)a[0];
    if (strcmp(call, "halloc") == 0) {
        bind_symbol(step->bind, (long)calloc(1, (size_t)a[0]));
    } else if (strcmp(call, "fill") == 0) {
        memset(bytes + a[1], (int)a[3], (size_t)a[2]);
    } else if (strcmp(call, "pattern") == 0) {
        for (long i = 0; i < a[2]; i++) {
            bytes[a[1] + i] = pattern_byte(a[3], (size_t)i);
        }
    } else if (strcmp(call, "check") == 0 || strcmp(call, "checkpat") == 0) {
        run_check(a, call[5] != '\0', result);
    } else {
        result->missing = true;
    }
}

void run_pseudo(const step_t *step, result_t *result) {
    long a[FIELDS] = {0};
    for (int i = 0; i < step->argument_count; i++) {
        result->unbound = result->unbound || !resolve(step->arguments[i], &a[i]);
    }
    if (result->unbound) {
        return;
    }
    if (strcmp(step->call, "sleep") == 0) {
        usleep((useconds_t)a[0] * 1000);
    } else if (strcmp(step->call, "release") == 0) {
        gate_open((void *)a[0]);
    } else if (strcmp(step->call, "cblog") == 0) {
        run_log(result);
    } else {
        run_memory(step->call, step, a, result);
    }
}

typedef long (*word_function_t)(long, long, long, long, long, long, long);

typedef struct {
    char kind;
    char name[24];
    void *buffer; /* NULL: passed as NULL */
} output_t;

static const spec_t *find_spec(const char *name) {
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        if (strcmp(specs[i].name, name) == 0) {
            return &specs[i];
        }
    }
    return NULL;
}

static bool is_null_output(const step_t *step, const char *name) {
    for (int i = 0; i < step->null_count; i++) {
        if (strcmp(step->null_outputs[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void make_output(const step_t *step, const char *token, output_t *output) {
    output->kind = token[0];
    snprintf(output->name, sizeof output->name, "%.*s", (int)strcspn(token + 2, " "), token + 2);
    output->buffer = is_null_output(step, output->name) ? NULL : calloc(1, 512);
}

static void report_context(const step_t *step, long value, result_t *result) {
    const char *symbol = symbol_with('c', value, NULL);
    int32_t device = -1;
    word_function_t get_device = (word_function_t)dlsym(library, "aclrtGetDevice");
    if (symbol != NULL) {
        add_out(result, "context", "\"%s\"", symbol);
    } else if (get_device != NULL && (int)get_device((long)&device, 0, 0, 0, 0, 0, 0) == 0) {
        add_out(result, "context", "\"primary:%d\"", device);
    } else {
        add_out(result, "context", "\"unknown\"");
    }
    if (step->bind != NULL) {
        bind_symbol(step->bind, value);
    }
}

static void report_identity(const step_t *step, char kind, const char *name, long value, result_t *result) {
    const char *symbol = symbol_with(kind, value, step->bind);
    add_out(result, name, "\"%s\"", symbol != NULL ? symbol : "new");
    if (step->bind != NULL) {
        bind_symbol(step->bind, value);
    }
}

static void report_handle(const step_t *step, const spec_t *spec, const output_t *output, result_t *result) {
    long value = *(long *)output->buffer;
    if (spec->special == 'c') {
        report_context(step, value, result);
    } else if (spec->special == 's') {
        report_identity(step, 's', output->name, value, result);
    } else if (step->bind != NULL) {
        bind_symbol(step->bind, value);
    }
    if (value == 0) {
        add_out(result, output->name, "null");
    }
}

static void report_number(const step_t *step, const spec_t *spec, const output_t *output, result_t *result) {
    int32_t number = *(int32_t *)output->buffer;
    if (spec->special == 'n') {
        report_identity(step, 'i', output->name, (long)number + 1000, result); /* no symbol may be zero */
    } else {
        add_out(result, output->name, "%d", number);
    }
}

static void report(const step_t *step, const spec_t *spec, const output_t *output, result_t *result) {
    if (output->buffer == NULL) {
        return;
    }
    switch (output->kind) {
    case 'H':
    case 'M':
        report_handle(step, spec, output, result);
        break;
    case 'i':
        report_number(step, spec, output, result);
        break;
    case 'u':
        add_out(result, output->name, "%u", *(uint32_t *)output->buffer);
        break;
    case 'l':
        add_out(result, output->name, "%ld", (long)*(int64_t *)output->buffer);
        break;
    case 'f':
        add_out(result, "sign", "\"%s\"",
                *(float *)output->buffer > 0   ? "+"
                : *(float *)output->buffer < 0 ? "-"
                                               : "0");
        break;
    case 't':
        add_out(result, "positive", "%d", *(uint64_t *)output->buffer > 0);
        break;
    default:
        break;
    }
}

/* Fills the words of a call; -1 if an argument's symbol was never bound, else how many outputs there are. */
static int make_words(const step_t *step, const spec_t *spec, long *words, output_t *outputs) {
    int count = 0;
    int used = 0;
    int output_count = 0;
    for (const char *token = spec->parameters; *token != '\0'; token += strspn(token, " ")) {
        if (*token == '.') {
            if (used == step->argument_count || !resolve(step->arguments[used++], &words[count])) {
                return -1;
            }
        } else {
            make_output(step, token, &outputs[output_count]);
            words[count] = (long)outputs[output_count++].buffer;
        }
        count++;
        token += strcspn(token, " ");
    }
    return output_count;
}

void run_call(const step_t *step, result_t *result) {
    long w[8] = {0};
    output_t outputs[4];
    const spec_t *spec = find_spec(step->call);
    word_function_t function = spec != NULL ? (word_function_t)dlsym(library, step->call) : NULL;
    result->missing = function == NULL;
    int output_count = function != NULL ? make_words(step, spec, w, outputs) : 0;
    result->unbound = output_count < 0;
    if (result->missing || result->unbound) {
        return;
    }
    long value = function(w[0], w[1], w[2], w[3], w[4], w[5], w[6]);
    result->rc = spec->special == 'p' ? 0 : (int)value;
    if (spec->special == 'p') {
        add_out(result, "present", "%d", value != 0);
    }
    if (result->rc == 0 && spec->special == 'd') {
        end_symbols(w[0]);
    }
    for (int i = 0; i < output_count && result->rc == 0; i++) {
        report(step, spec, &outputs[i], result);
    }
    if (step->no_outputs) {
        result->out[0] = '\0';
    }
}

static bool in_table(const char *name) {
    for (size_t i = 0; i < sizeof table_names / sizeof *table_names; i++) {
        if (strcmp(table_names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

void check_tables(void) {
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        if (!in_table(specs[i].name)) {
            fail("the table does not know", specs[i].name);
        }
    }
}
