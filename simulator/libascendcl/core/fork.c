/*
 * A forked child has none of the simulator's threads. If its parent had called ACL, calls in the child return
 * an error instead of hanging. If its parent had only loaded the simulator or used its controls, the child can
 * use ACL: no thread and no object existed.
 */
#include "sim.h"

static atomic_bool forked;

static void prepare(void) {
    sim_lock();
    thread_list_lock();
    usage_lock();
}

static void parent(void) {
    usage_unlock();
    thread_list_unlock();
    sim_unlock();
}

static void child(void) {
    atomic_store(&forked, calls_all() > 0);
    register_forked();
    parent();
    thread_renumber();
}

void fork_watch(void) {
    pthread_atfork(prepare, parent, child);
}

bool process_forked(void) {
    return atomic_load_explicit(&forked, memory_order_relaxed);
}
