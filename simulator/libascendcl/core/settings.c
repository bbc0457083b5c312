/*
 * The state of the process, and the AIOACL_SIM_* variables. A set-user-id or set-group-id process ignores the
 * variables: a user who sets its environment must not choose files or failures that take effect with the rights
 * of that process.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "models.h"

extern char **environ;

sim_t sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .abort_supported = true, .default_device = -1};
static pthread_once_t started = PTHREAD_ONCE_INIT;

static const char *const known_variables[] = {"AIOACL_SIM_DEVICES",       "AIOACL_SIM_COPY_LATENCY_US",
                                              "AIOACL_SIM_RESET_DROP_MS", "AIOACL_SIM_WAIT",
                                              "AIOACL_SIM_CLOCK",         "AIOACL_SIM_FAULTS",
                                              "AIOACL_SIM_LIMITS",        "AIOACL_SIM_SEED",
                                              "AIOACL_SIM_TRACE",         "AIOACL_SIM_CANN",
                                              "AIOACL_SIM_UNINIT",        "AIOACL_SIM_DRIVER",
                                              "AIOACL_SIM_ONNXRUNTIME",   "AIOACL_SIM_MODELS"};

static _Noreturn void refuse(const char *name, const char *value, const char *want) {
    fprintf(stderr, "aclsim: %s=%s: %s\n", name, value, want);
    abort();
}

static long read_number(const char *name, long fallback, long least, long most) {
    const char *text = secure_getenv(name);
    if (text == NULL) {
        return fallback;
    }
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < least || value > most) {
        char want[96];
        snprintf(want, sizeof want, "expected a whole number from %ld to %ld", least, most);
        refuse(name, text, want);
    }
    return value;
}

/* Returns true if the value of the variable is `other`, and false if it is `usual` or not set. */
static bool read_choice(const char *name, const char *usual, const char *other) {
    const char *text = secure_getenv(name);
    if (text == NULL || strcmp(text, usual) == 0) {
        return false;
    }
    if (strcmp(text, other) != 0) {
        char want[64];
        snprintf(want, sizeof want, "expected %s or %s", usual, other);
        refuse(name, text, want);
    }
    return true;
}

static cann_t read_cann(void) {
    static const char *const words[] = {"8.1", "8.5", "9.0", "9.1", "master"};
    const char *text = secure_getenv("AIOACL_SIM_CANN");
    if (text == NULL) {
        text = sim_release;
    }
    for (int i = CANN_8_1; i <= CANN_MASTER; i++) {
        if (strcmp(text, words[i]) == 0) {
            return (cann_t)i;
        }
    }
    refuse("AIOACL_SIM_CANN", text, "expected 8.1, 8.5, 9.0, 9.1 or master");
}

/* Returns the next id of the list, or -1 if it is not valid. Advances `text` past the id. */
static long next_id(const char **text) {
    char *end = NULL;
    long id = **text >= '0' && **text <= '9' ? strtol(*text, &end, 10) : -1;
    if (id >= 0 && *end != ',' && *end != '\0') {
        return -1;
    }
    *text = id >= 0 && *end == ',' ? end + 1 : end;
    return id;
}

/* Reads the list of visible devices. The list ends before its first invalid id. A list whose ids do not ascend
 * counts as empty. */
static int read_visible(int physical, int *logical) {
    const char *text = getenv("ASCEND_RT_VISIBLE_DEVICES");
    int count = 0;
    if (text == NULL) {
        for (; count < physical; count++) {
            logical[count] = count;
        }
        return count;
    }
    while (text != NULL && *text != '\0') {
        long id = next_id(&text);
        if (id < 0 || id >= physical) {
            break;
        }
        if (count > 0 && id <= logical[count - 1]) {
            return 0;
        }
        logical[count++] = (int)id;
    }
    return count;
}

static void refuse_unknown(const char *entry) {
    size_t length = strcspn(entry, "=");
    for (size_t i = 0; i < sizeof known_variables / sizeof *known_variables; i++) {
        if (strlen(known_variables[i]) == length && strncmp(entry, known_variables[i], length) == 0) {
            return;
        }
    }
    char name[96];
    snprintf(name, sizeof name, "%.*s", (int)length, entry);
    fprintf(stderr, "aclsim: %s=%s: no such setting; the settings are", name,
            entry[length] == '=' ? entry + length + 1 : "");
    for (size_t i = 0; i < sizeof known_variables / sizeof *known_variables; i++) {
        fprintf(stderr, " %s", known_variables[i]);
    }
    fprintf(stderr, "\n");
    abort();
}

static void settings_read(settings_t *settings) {
    bool obeyed = getauxval(AT_SECURE) == 0; /* the same condition as in secure_getenv() */
    for (char **entry = environ; obeyed && *entry != NULL; entry++) {
        if (strncmp(*entry, "AIOACL_SIM_", 11) == 0) {
            refuse_unknown(*entry);
        }
    }
    settings->physical_devices = (int)read_number("AIOACL_SIM_DEVICES", 2, 1, SIM_MAX_DEVICES);
    settings->devices = read_visible(settings->physical_devices, settings->logical_ids);
    settings->cann = read_cann();
    settings->copy_latency_ns = read_number("AIOACL_SIM_COPY_LATENCY_US", 0, 0, 3600000000L) * 1000;
    settings->reset_drop_ns = read_number("AIOACL_SIM_RESET_DROP_MS", 50, 0, 3600000L) * 1000000;
    settings->context_drop_ns = read_number("AIOACL_SIM_RESET_DROP_MS", 3500, 0, 3600000L) * 1000000;
    settings->spin = read_choice("AIOACL_SIM_WAIT", "sleep", "spin");
    settings->recorded_driver = read_choice("AIOACL_SIM_DRIVER", "complete", "recorded");
    settings->watch_uninitialised = read_number("AIOACL_SIM_UNINIT", 0, 0, 1) != 0;
}

void cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void start(void) {
    settings_read(&sim.settings);
    sim.started_ns = now_ns();
    cond_init(&sim.settled);
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        sim.devices[i].id = i;
        cond_init(&sim.devices[i].work);
        cond_init(&sim.devices[i].recycle);
        sim.devices[i].round = 1;
    }
    clock_set_virtual(read_choice("AIOACL_SIM_CLOCK", "real", "virtual"));
    limits_read_environment();
    trace_read_environment();
    models_read_environment();
    fault_read_environment();
    thread_pin_library();
    fork_watch();
}

void sim_start(void) {
    pthread_once(&started, start);
}

void sim_lock(void) {
    pthread_mutex_lock(&sim.lock);
}

void sim_unlock(void) {
    pthread_mutex_unlock(&sim.lock);
}
