/*
 * The roles of a call's arguments: stream, device, size, time-out. The roles are read from the prototypes in
 * the table, so a new function needs no change here.
 */
#include <string.h>

#include "rule.h"
#include "sim.h"

typedef enum {
    ROLE_NONE,
    ROLE_STREAM,
    ROLE_EVENT,
    ROLE_NOTIFY,
    ROLE_CONTEXT,
    ROLE_DEVICE,
    ROLE_SIZE,
    ROLE_TIMEOUT,
    ROLE_COUNT
} role_t;

typedef struct {
    bool answers_code;
    const char *params;
    const char *words; /* the arguments that the wrapper stores as words */
} prototype_t;

static const prototype_t prototypes[FN_COUNT] = {
#define ACL_FN(kind, ret, name, params, args, since) [FN_##name] = {true, #params, #args},
#define ACL_FN_BY_VALUE(kind, ret, name, params, args, words, since) [FN_##name] = {true, #params, #words},
#define ACL_FN_VALUE(kind, ret, none, name, params, args, since) [FN_##name] = {false, #params, #args},
#define ACL_FN_VOID(kind, name, params, args, since) [FN_##name] = {false, #params, #args},
#include "sim_api.inc"
};

typedef struct {
    const char *begin;
    size_t length;
} part_t;

/* Finds the next parameter. Text within brackets, as in function pointers, is part of the parameter. */
static bool next_param(const char **rest, part_t *param) {
    int depth = 0;
    const char *at = *rest;
    if (*at == '\0') {
        return false;
    }
    param->begin = at;
    for (; *at != '\0' && (depth > 0 || *at != ','); at++) {
        depth += *at == '(' ? 1 : 0;
        depth -= *at == ')' ? 1 : 0;
    }
    param->length = (size_t)(at - param->begin);
    *rest = *at == ',' ? at + 1 : at;
    return true;
}

static bool has(part_t part, const char *word) {
    return memmem(part.begin, part.length, word, strlen(word)) != NULL;
}

static bool ends(part_t part, const char *word) {
    size_t length = strlen(word);
    return part.length > length && memcmp(part.begin + part.length - length, word, length) == 0;
}

/* Whether the parameter is the size of the operation, and not a capacity, a pitch or an offset. */
static bool is_size(part_t part) {
    static const char *const others[] = {"Max", "max", "itch", "ffset", "lign", "num", "Num"};
    bool other = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        other = other || has(part, others[i]);
    }
    return (has(part, "size_t ") || has(part, "uint64_t size")) && !other;
}

static role_t role_of(part_t part) {
    static const struct {
        const char *type;
        role_t role;
    } handles[] = {{"aclrtStream ", ROLE_STREAM},
                   {"aclrtEvent ", ROLE_EVENT},
                   {"aclrtNotify ", ROLE_NOTIFY},
                   {"aclrtContext ", ROLE_CONTEXT}};
    if (has(part, "*")) {
        return ROLE_NONE;
    }
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) {
        if (has(part, handles[i].type)) {
            return handles[i].role;
        }
    }
    if (has(part, "int32_t ") && (ends(part, " deviceId") || ends(part, " device"))) {
        return ROLE_DEVICE;
    }
    if (has(part, "int32_t ") && ends(part, " timeout")) {
        return ROLE_TIMEOUT;
    }
    return is_size(part) ? ROLE_SIZE : ROLE_NONE;
}

/* Returns the list without its outer brackets. */
static const char *inner(const char *list, char *text, size_t size) {
    size_t length = strlen(list) - 2;
    length = length < size ? length : size - 1;
    memcpy(text, list + 1, length);
    text[length] = '\0';
    return text;
}

bool role_returns_code(function_t function) {
    return prototypes[function].answers_code;
}

/* Returns the index of the parameter among the words, from 1; 0: the parameter is not one of them. */
static int8_t word_of(function_t function, part_t param) {
    char text[1024];
    const char *rest = inner(prototypes[function].words, text, sizeof text);
    part_t word;
    for (int8_t place = 1; next_param(&rest, &word); place++) {
        size_t space = *word.begin == ' ' ? 1 : 0;
        size_t length = word.length - space;
        bool longer = param.length > length && param.begin[param.length - length - 1] == ' ';
        if (longer && memcmp(param.begin + param.length - length, word.begin + space, length) == 0) {
            return place;
        }
    }
    return 0;
}

typedef struct {
    bool known;
    int8_t places[ROLE_COUNT]; /* index of the first argument with that role, from 1; 0: no such argument */
} places_t;

static places_t known[FN_COUNT]; /* protected by sim.lock */

static const places_t *places_of(function_t function) {
    places_t *places = &known[function];
    char text[1024];
    const char *rest = inner(prototypes[function].params, text, sizeof text);
    part_t part;
    while (!places->known && next_param(&rest, &part)) {
        role_t role = role_of(part);
        int8_t before = places->places[role];
        places->places[role] = before != 0 ? before : word_of(function, part);
    }
    places->known = true;
    return places;
}

/* Returns the place of the argument with that role, or -1. */
static int place_of(function_t function, role_t role) {
    return places_of(function)->places[role] - 1;
}

bool role_has_stream(function_t function) {
    return place_of(function, ROLE_STREAM) >= 0;
}

static void *object_at(function_t function, const uint64_t *words, role_t role, object_kind_t kind) {
    int place = place_of(function, role);
    return place >= 0 ? object_find(kind, (const void *)(uintptr_t)words[place]) : NULL;
}

static stream_t *stream_at(function_t function, const uint64_t *words) {
    int place = place_of(function, ROLE_STREAM);
    int device = thread_device_peek();
    const context_t *current = thread_self()->current;
    if (place < 0 || words[place] != 0) {
        return object_at(function, words, ROLE_STREAM, KIND_STREAM);
    }
    if (current == NULL && device >= 0) {
        current = sim.devices[device].primary;
    }
    return current != NULL ? current->default_stream : NULL;
}

/* Returns the device whose number is an argument. If no argument is a device number, returns the device of an
 * object among the arguments, or else the caller's device. */
static device_t *device_at(function_t function, const uint64_t *words, const stream_t *stream) {
    int place = place_of(function, ROLE_DEVICE);
    if (place >= 0) {
        return device_find((int32_t)words[place]);
    }
    const event_t *event = object_at(function, words, ROLE_EVENT, KIND_EVENT);
    const notify_t *notify = object_at(function, words, ROLE_NOTIFY, KIND_NOTIFY);
    const context_t *context = object_at(function, words, ROLE_CONTEXT, KIND_CONTEXT);
    if (stream != NULL || event != NULL) {
        return stream != NULL ? stream->device : event->device;
    }
    if (notify != NULL || context != NULL) {
        return notify != NULL ? notify->device : context->device;
    }
    return device_find(thread_device_peek());
}

void role_call_info(function_t function, const uint64_t *words, call_info_t *call_info) {
    const stream_t *stream = stream_at(function, words);
    int size = place_of(function, ROLE_SIZE);
    int timeout = place_of(function, ROLE_TIMEOUT);
    bool waits = strstr(function_info[function].name, "Synchronize") != NULL;
    thread_t *thread = thread_self();
    *call_info = (call_info_t){.function = function, .stream_id = -1, .timeout_ms = -1};
    call_info->device = device_at(function, words, stream);
    call_info->device_id = call_info->device != NULL ? call_info->device->id : -1;
    call_info->stream_handle = stream;
    call_info->stream_id = stream != NULL ? (int64_t)stream->id : -1;
    call_info->sized = size >= 0;
    call_info->size = size >= 0 ? words[size] : 0;
    call_info->timeout_ms = timeout >= 0 && waits ? (int32_t)words[timeout] : -1;
    call_info->thread = thread->number;
    call_info->tid = thread->tid;
}
