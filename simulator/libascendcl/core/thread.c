/* The record of each thread that calls the simulator: its binding, its last error, and its call in progress. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static thread_t *all_threads; /* records are reused, never freed */
static pthread_key_t exit_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static _Thread_local thread_t *self;

void thread_list_lock(void) {
    pthread_mutex_lock(&list_lock);
}

void thread_list_unlock(void) {
    pthread_mutex_unlock(&list_lock);
}

static void unbind(thread_t *thread) {
    if (thread->current != NULL) {
        object_release(&thread->current->object);
        thread->current = NULL;
    }
    thread->slot = -1;
}

static void thread_exit(void *record) {
    thread_t *thread = record;
    if (process_forked()) {
        return;
    }
    sim_lock();
    unbind(thread);
    sim_unlock();
    self = NULL;
    atomic_store(&thread->used, false);
}

static void make_key(void) {
    pthread_key_create(&exit_key, thread_exit);
}

static thread_t *take_record(void) {
    for (thread_t *thread = all_threads; thread != NULL; thread = thread->next) {
        if (!atomic_load(&thread->used)) {
            return thread;
        }
    }
    thread_t *thread = calloc(1, sizeof *thread);
    if (thread == NULL) {
        abort();
    }
    cond_init(&thread->cond);
    thread->next = all_threads;
    all_threads = thread;
    return thread;
}

static thread_t *thread_enter(void) {
    pthread_once(&key_once, make_key);
    thread_list_lock();
    thread_t *thread = take_record();
    atomic_store(&thread->function, -1);
    thread->tid = (pid_t)syscall(SYS_gettid);
    thread->callback_depth = 0;
    thread->reporting = false;
    thread->current = NULL;
    thread->slot = -1;
    thread->capture_mode = 0;
    memset(thread->captures, 0, sizeof thread->captures);
    thread->last_error = 0;
    thread->keeps = false;
    thread->said.length = 0;
    thread->cores_of = NULL;
    thread->open_ranges = 0;
    thread->last_task = 0;
    thread->last_context = NULL;
    thread->last_graph = NULL;
    thread->syncing = NULL;
    thread->injection = NULL;
    thread->on_behalf = 0;
    thread->text_fault = TEXT_TRUE;
    thread->number = 0;
    thread->foreign = false;
    atomic_store(&thread->devices, 0);
    atomic_store(&thread->used, true);
    thread_list_unlock();
    pthread_setspecific(exit_key, thread);
    self = thread;
    return thread;
}

void thread_renumber(void) {
    if (self != NULL) {
        self->tid = (pid_t)syscall(SYS_gettid);
    }
}

thread_t *thread_self(void) {
    return self != NULL ? self : thread_enter();
}

void thread_each(void (*visit)(thread_t *thread, void *arg), void *arg) {
    thread_list_lock();
    for (thread_t *thread = all_threads; thread != NULL; thread = thread->next) {
        if (atomic_load(&thread->used)) {
            visit(thread, arg);
        }
    }
    thread_list_unlock();
}

void thread_bind_context(context_t *context) {
    thread_t *thread = thread_self();
    object_retain(&context->object);
    unbind(thread);
    thread->current = context;
}

void thread_bind_slot(int device) {
    thread_t *thread = thread_self();
    unbind(thread);
    thread->slot = device;
}

context_t *thread_context(void) {
    thread_t *thread = thread_self();
    context_t *context = thread->current;
    if (context == NULL && thread->slot >= 0) {
        context = sim.devices[thread->slot].primary;
    }
    if (context == NULL || context_usable(context)) {
        return context;
    }
    if (thread->current != NULL) {
        object_release(&context->object);
        thread->current = NULL;
    } else if (sim.settings.cann >= CANN_MASTER) {
        thread->slot = -1;
    }
    return NULL;
}

int thread_device_peek(void) {
    const thread_t *thread = thread_self();
    const context_t *context = thread->current;
    if (context != NULL) {
        return atomic_load_explicit(&context->active, memory_order_acquire) ? context->device->id : -1;
    }
    if (thread->slot < 0) {
        return -1;
    }
    return atomic_load_explicit(&sim.devices[thread->slot].open, memory_order_acquire) ? thread->slot : -1;
}

void thread_uses(const device_t *device) {
    atomic_fetch_or_explicit(&thread_self()->devices, 1UL << device->id, memory_order_relaxed);
}

void thread_uses_in(const context_t *context) {
    if (context->primary) {
        thread_uses(context->device);
    }
}

void thread_pin_library(void) {
    Dl_info info;
    if (dladdr((void *)&all_threads, &info) != 0) {
        dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

bool thread_start(const char *name, void *(*body)(void *), void *arg) {
    sigset_t all;
    sigset_t before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, NULL, body, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) {
        pthread_setname_np(thread, name);
        pthread_detach(thread);
    }
    return started;
}
