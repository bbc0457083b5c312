/*
 * vecrun LIBRARY [WATCHDOG_MS]: runs one conformance vector, read from standard input, against a library with
 * the C interface of ACL, and prints one JSON object per step.
 *
 * A line of input is a step; its fields are separated by tabs: the logical thread, the call, then fields that
 * begin with a letter: A argument, B symbol to bind, N output to pass as NULL, W milliseconds to wait for an
 * asynchronous step, Q no outputs wanted.
 *
 * Each logical thread is a real one that runs the steps given to it. The main thread hands out one step at a
 * time and waits for it, so the tables below need a lock only against steps that are still running.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "vecrun.h"

enum { THREADS = 10, STEPS = 512 };

typedef struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int number;
    bool started;
    bool ending;
    const step_t *step; /* NULL: nothing to do */
    result_t result;
} worker_t;

void *library;
_Thread_local int logical_thread = -1;
static worker_t workers[THREADS];
static int current_step;

_Noreturn void fail(const char *what, const char *detail) {
    fprintf(stderr, "vecrun: %s %s\n", what, detail);
    exit(2);
}

/* --- logical threads
 * ------------------------------------------------------------------------------------------ */
static void *worker_main(void *arg) {
    worker_t *worker = arg;
    logical_thread = worker->number;
    pthread_mutex_lock(&worker->lock);
    while (true) {
        while (worker->step == NULL && !worker->ending) {
            pthread_cond_wait(&worker->cond, &worker->lock);
        }
        if (worker->step == NULL) {
            break;
        }
        const step_t *step = worker->step;
        pthread_mutex_unlock(&worker->lock);
        result_t result = {0};
        if (strncmp(step->call, "acl", 3) == 0) {
            run_call(step, &result);
        } else {
            run_pseudo(step, &result);
        }
        pthread_mutex_lock(&worker->lock);
        worker->result = result;
        worker->step = NULL;
        pthread_cond_broadcast(&worker->cond);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

static worker_t *worker_of(int number) {
    if (number < 0 || number >= THREADS) {
        fail("no such logical thread", "");
    }
    worker_t *worker = &workers[number];
    if (!worker->started) {
        worker->started = true;
        worker->ending = false;
        worker->number = number;
        pthread_mutex_init(&worker->lock, NULL);
        pthread_cond_init(&worker->cond, NULL);
        if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) {
            fail("cannot make a thread", "");
        }
    }
    return worker;
}

pthread_t thread_of(int number) {
    return worker_of(number)->thread;
}

static void give_step(worker_t *worker, const step_t *step) {
    pthread_mutex_lock(&worker->lock);
    worker->step = step;
    pthread_cond_broadcast(&worker->cond);
    pthread_mutex_unlock(&worker->lock);
}

static bool wait_worker(worker_t *worker, int ms) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int rc = 0;
    pthread_mutex_lock(&worker->lock);
    while (worker->step != NULL && rc == 0) {
        rc = pthread_cond_timedwait(&worker->cond, &worker->lock, &until);
    }
    bool done = worker->step == NULL;
    pthread_mutex_unlock(&worker->lock);
    return done;
}

static void respawn(worker_t *worker) {
    pthread_mutex_lock(&worker->lock);
    worker->ending = true;
    pthread_cond_broadcast(&worker->cond);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->thread, NULL);
    worker->started = false;
    worker_of(worker->number);
}

/* --- the vector
 * ----------------------------------------------------------------------------------------------- */
static void read_field(step_t *step, const char *field) {
    const char *text = field + 1;
    switch (field[0]) {
    case 'A':
        step->arguments[step->argument_count++] = text;
        break;
    case 'B':
        step->bind = text;
        break;
    case 'N':
        step->null_outputs[step->null_count++] = text;
        break;
    case 'W':
        step->async_ms = atoi(text);
        break;
    case 'Q':
        step->no_outputs = true;
        break;
    default:
        fail("unknown field", field);
    }
}

static void read_step(char *line, step_t *step) {
    char *place = NULL;
    line[strcspn(line, "\n")] = '\0';
    step->line = line;
    step->async_ms = -1;
    step->thread = atoi(strtok_r(line, "\t", &place));
    step->call = strtok_r(NULL, "\t", &place);
    if (step->call == NULL) {
        fail("a step without a call:", line);
    }
    for (char *field = strtok_r(NULL, "\t", &place); field != NULL; field = strtok_r(NULL, "\t", &place)) {
        read_field(step, field);
    }
}

static int read_steps(step_t *steps) {
    char *line = NULL;
    size_t room = 0;
    int count = 0;
    while (getline(&line, &room, stdin) > 1) {
        if (count == STEPS) {
            fail("too many steps", "");
        }
        read_step(line, &steps[count++]);
        line = NULL;
        room = 0;
    }
    free(line);
    return count;
}

static void print_result(int index, const result_t *result, const char *more) {
    if (result->missing || result->unbound) {
        printf("{\"i\":%d,\"%s\":true%s}\n", index, result->missing ? "missing" : "unbound", more);
    } else if (result->out[0] != '\0') {
        printf("{\"i\":%d,\"rc\":%ld,\"out\":{%s}%s}\n", index, result->rc, result->out, more);
    } else {
        printf("{\"i\":%d,\"rc\":%ld%s}\n", index, result->rc, more);
    }
    fflush(stdout);
}

static void leave_if_blocked(worker_t *worker, int index, int watchdog_ms) {
    if (!wait_worker(worker, watchdog_ms)) {
        printf("{\"i\":%d,\"blocks\":true}\n", index);
        fflush(stdout);
        _exit(3);
    }
}

static void run_step(const step_t *step, int index, int watchdog_ms) {
    static const result_t nothing;
    worker_t *worker = worker_of(step->thread);
    leave_if_blocked(worker, index, watchdog_ms);
    if (strcmp(step->call, "respawn") == 0) {
        respawn(worker);
        print_result(index, &nothing, "");
    } else if (strcmp(step->call, "join") == 0) {
        print_result(index, &worker->result, "");
    } else if (step->async_ms >= 0) {
        give_step(worker, step);
        if (wait_worker(worker, step->async_ms)) {
            print_result(index, &worker->result, ",\"done\":true");
        } else {
            printf("{\"i\":%d,\"done\":false}\n", index);
            fflush(stdout);
        }
    } else {
        give_step(worker, step);
        leave_if_blocked(worker, index, watchdog_ms);
        print_result(index, &worker->result, "");
    }
}

static void on_signal(int number) {
    char text[64];
    int length = snprintf(text, sizeof text, "{\"i\":%d,\"crash\":%d}\n", current_step, number);
    if (write(STDOUT_FILENO, text, (size_t)length) < 0) {
        _exit(5);
    }
    _exit(4);
}

int main(int argc, char **argv) {
    static step_t steps[STEPS];
    const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    if (argc < 2) {
        fail("usage:", "vecrun LIBRARY [WATCHDOG_MS]");
    }
    check_tables();
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        signal(signals[i], on_signal);
    }
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fail("cannot open the library:", dlerror());
    }
    int count = read_steps(steps);
    for (current_step = 0; current_step < count; current_step++) {
        run_step(&steps[current_step], current_step, argc > 2 ? atoi(argv[2]) : 3000);
    }
    printf("{\"end\":%d}\n", count);
    fflush(stdout);
    _exit(0);
}
