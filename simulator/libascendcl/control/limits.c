/* Limits on the contexts, streams, events and notifies of a device, and on the memory of devices and the host.
 * With a low limit, a test quickly reaches the state in which a resource has run out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rule.h"
#include "sim.h"

enum { TEXT_BYTES = 256 };

typedef struct {
    bool set;
    uint64_t most;
} limit_t;

typedef struct {
    limit_t objects[KIND_COUNT];
    limit_t memory;
    limit_t host;
} limits_t;

static const uint64_t device_capacity = 64ULL << 30;

static limits_t limits;

typedef struct {
    object_kind_t kind;
    const device_t *device;
    uint64_t found;
} count_t;

/* Default streams are created with their contexts and are not counted. */
static bool counts(const count_t *count, const void *object) {
    const stream_t *stream = object;
    const event_t *event = object;
    const notify_t *notify = object;
    const context_t *context = object;
    switch (count->kind) {
    case KIND_STREAM:
        return stream->device == count->device && !stream->is_default;
    case KIND_EVENT:
        return event->device == count->device;
    case KIND_NOTIFY:
        return notify->device == count->device;
    default:
        return context->device == count->device && !context->primary;
    }
}

static void visit(void *object, void *arg) {
    count_t *count = arg;
    count->found += counts(count, object) ? 1 : 0;
}

bool limit_reached(object_kind_t kind, const device_t *device) {
    count_t count = {.kind = kind, .device = device};
    if (!limits.objects[kind].set) {
        return false;
    }
    object_each(kind, visit, &count);
    return count.found >= limits.objects[kind].most;
}

uint64_t limit_memory(const device_t *device) {
    const limit_t *limit = device != NULL ? &limits.memory : &limits.host;
    uint64_t capacity = device != NULL ? device_capacity : UINT64_MAX;
    return limit->set && limit->most < capacity ? limit->most : capacity;
}

static limit_t *place_of(limits_t *made, const char *name) {
    static const struct {
        const char *name;
        object_kind_t kind;
    } kinds[] = {
        {"context", KIND_CONTEXT}, {"stream", KIND_STREAM}, {"event", KIND_EVENT}, {"notify", KIND_NOTIFY}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &made->objects[kinds[i].kind];
        }
    }
    return strcmp(name, "mem") == 0 ? &made->memory : strcmp(name, "host") == 0 ? &made->host : NULL;
}

static bool read_one(limits_t *made, char *part, char *why, size_t size) {
    char *value = strchr(part, '=');
    if (value != NULL) {
        *value++ = '\0';
    }
    limit_t *place = place_of(made, part);
    if (place == NULL) {
        snprintf(why, size, "\"%s\": expected context=, stream=, event=, notify=, mem= or host=", part);
        return false;
    }
    if (value == NULL || !parse_size(value, &place->most)) {
        snprintf(why, size, "\"%s\": expected a whole number, such as 8 or 64M", part);
        return false;
    }
    place->set = true;
    return true;
}

static bool read_all(limits_t *made, const char *text, char *why, size_t size) {
    char copy[TEXT_BYTES];
    char *rest = NULL;
    *made = (limits_t){.memory.set = false};
    if (strlen(text) >= sizeof copy) {
        snprintf(why, size, "expected at most %zu characters", sizeof copy - 1);
        return false;
    }
    strcpy(copy, text);
    for (char *part = strtok_r(copy, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        if (!read_one(made, part, why, size)) {
            return false;
        }
    }
    return true;
}

API int aclsim_set_limits(const char *text) {
    char why[TEXT_BYTES];
    limits_t made;
    sim_start();
    SIM_GUARD();
    bool good = text != NULL && read_all(&made, text, why, sizeof why);
    if (good) {
        limits = made;
    } else if (text != NULL) {
        rules_refused(why);
    }
    return good ? 0 : -1;
}

void limits_read_environment(void) {
    char why[TEXT_BYTES];
    const char *text = secure_getenv("AIOACL_SIM_LIMITS");
    if (text != NULL && !read_all(&limits, text, why, sizeof why)) {
        fprintf(stderr, "aclsim: AIOACL_SIM_LIMITS=%s: %s\n", text, why);
        abort();
    }
}
