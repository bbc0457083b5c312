/*
 * Lists of models, as JSON: those that are loaded, for aclsim_models(), and a line for each model that has
 * ended, in the file of AIOACL_SIM_MODELS. A model that is loaded when the process exits is written then.
 * Strings keep bytes that are not UTF-8.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

/* A text that grows. `broken`: no memory is left. */
typedef struct {
    char *bytes; /* owned */
    size_t length;
    size_t room;
    bool broken;
} text_t;

enum { FIRST_ROOM = 1024, NUMBER_BYTES = 32 };

static int report_file = -1;
static pid_t report_process;

static bool reserve(text_t *text, size_t more) {
    size_t room = text->room > 0 ? text->room : FIRST_ROOM;
    while (room < text->length + more) {
        room *= 2;
    }
    char *bytes = room > text->room ? realloc(text->bytes, room) : text->bytes;
    text->broken = text->broken || bytes == NULL;
    if (bytes != NULL) {
        text->bytes = bytes;
        text->room = room;
    }
    return !text->broken;
}

static void put_bytes(text_t *text, const char *bytes, size_t count) {
    if (!text->broken && reserve(text, count)) {
        memcpy(text->bytes + text->length, bytes, count);
        text->length += count;
    }
}

static void put(text_t *text, const char *word) {
    put_bytes(text, word, strlen(word));
}

static void put_unsigned(text_t *text, uint64_t value) {
    char digits[NUMBER_BYTES];
    put_bytes(text, digits, (size_t)snprintf(digits, sizeof digits, "%" PRIu64, value));
}

static void put_signed(text_t *text, int64_t value) {
    char digits[NUMBER_BYTES];
    put_bytes(text, digits, (size_t)snprintf(digits, sizeof digits, "%" PRId64, value));
}

static void put_string(text_t *text, const char *string) {
    put(text, "\"");
    for (const char *at = string; *at != '\0'; at++) {
        char escaped[8];
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ') {
            put_bytes(text, escaped,
                      (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)(unsigned char)*at));
        } else {
            put_bytes(text, at, 1);
        }
    }
    put(text, "\"");
}

static void put_tensor(text_t *text, const tensor_info_t *tensor) {
    put(text, "{\"name\":");
    put_string(text, tensor->name != NULL ? tensor->name : "");
    put(text, ",\"dtype\":");
    put_signed(text, tensor->type);
    put(text, ",\"nbytes\":");
    put_unsigned(text, tensor->size);
    put(text, ",\"shape\":[");
    for (size_t i = 0; i < tensor->dims.count; i++) {
        put(text, i > 0 ? "," : "");
        put_signed(text, tensor->dims.values[i]);
    }
    put(text, "]}");
}

static void put_tensors(text_t *text, const char *key, const tensor_list_t *list) {
    put(text, key);
    for (size_t i = 0; i < list->count; i++) {
        put(text, i > 0 ? "," : "");
        put_tensor(text, &list->tensors[i]);
    }
    put(text, "]");
}

static const char *kind_of(const model_t *model) {
    if (model_is_registered(model->info)) {
        return "function";
    }
    return model->session != NULL ? "onnxruntime" : "none";
}

/* `ended` is true if the model is being unloaded. */
static void put_model(text_t *text, const model_t *model, bool ended) {
    put(text, "{\"id\":");
    put_unsigned(text, model->id);
    put(text, ",\"device\":");
    put_signed(text, model->device->id);
    put(text, ",\"name\":");
    put_string(text, model->info->name);
    put(text, ",\"path\":");
    if (model->path != NULL) {
        put_string(text, model->path);
    } else {
        put(text, "null");
    }
    put_tensors(text, ",\"inputs\":[", &model->info->inputs);
    put_tensors(text, ",\"outputs\":[", &model->info->outputs);
    put(text, ",\"computed_by\":\"");
    put(text, kind_of(model));
    put(text, "\",\"executions\":");
    put_unsigned(text, model->executions);
    put(text, ",\"nbytes\":");
    put_unsigned(text, model->info->work_bytes + model->info->weight_bytes);
    put(text, ",\"state\":\"");
    put(text, ended ? "unloaded" : model->stale ? "stale" : "loaded");
    put(text, "\"}");
}

static void put_all(text_t *text) {
    put(text, "[");
    for (const model_t *model = model_next(NULL); model != NULL; model = model_next(model)) {
        put(text, text->length > 1 ? "," : "");
        put_model(text, model, false);
    }
    put(text, "]");
}

API int64_t aclsim_models(char *text, size_t size) {
    text_t all = {NULL, 0, 0, false};
    sim_start();
    sim_lock();
    put_all(&all);
    sim_unlock();
    int64_t length = all.broken ? -1 : (int64_t)all.length;
    if (!all.broken && text != NULL && size > 0) {
        size_t copied = all.length < size ? all.length : size - 1;
        memcpy(text, all.bytes, copied);
        text[copied] = '\0';
    }
    free(all.bytes);
    return length;
}

void models_read_environment(void) {
    report_file = lines_open("AIOACL_SIM_MODELS");
    report_process = getpid();
}

static void report(const model_t *model, bool ended) {
    text_t line = {NULL, 0, 0, false};
    put_model(&line, model, ended);
    put(&line, "\n");
    if (!line.broken) {
        lines_write(report_file, line.bytes, line.length);
    }
    free(line.bytes);
}

void model_report_end(const model_t *model) {
    if (report_file >= 0) {
        report(model, true);
    }
}

/* A child of fork() has the list of its parent, which the parent reports. */
__attribute__((destructor)) static void report_all(void) {
    if (report_file < 0 || getpid() != report_process) {
        return;
    }
    SIM_GUARD();
    for (const model_t *model = model_next(NULL); model != NULL; model = model_next(model)) {
        report(model, false);
    }
}
