/* Waiters, and the gates that model the runtime's own coarse locks. */
#include <sched.h>

#include "sim.h"

int64_t deadline_ms(int32_t timeout) {
    return timeout < 0 ? SIM_FOREVER : now_ns() + (int64_t)timeout * 1000000;
}

void wait_add(wait_list_t *list, waiter_t *waiter, uint64_t target) {
    waiter->prev = list->last;
    waiter->next = NULL;
    waiter->list = list;
    waiter->target = target;
    waiter->untimed = false;
    waiter->whole = false;
    waiter->why[0] = '\0';
    waiter->rc = 0;
    waiter->cond = &thread_self()->cond;
    atomic_init(&waiter->done, false);
    if (list->last != NULL) {
        list->last->next = waiter;
    } else {
        list->first = waiter;
    }
    list->last = waiter;
}

static void unlink_waiter(waiter_t *waiter) {
    wait_list_t *list = waiter->list;
    if (waiter->prev != NULL) {
        waiter->prev->next = waiter->next;
    } else {
        list->first = waiter->next;
    }
    if (waiter->next != NULL) {
        waiter->next->prev = waiter->prev;
    } else {
        list->last = waiter->prev;
    }
}

void wait_finish(waiter_t *waiter, aclError rc) {
    unlink_waiter(waiter);
    waiter->rc = rc;
    /* The waiter may be gone as soon as `done` is set, so the wake-up uses the thread's own condition. */
    pthread_cond_t *cond = waiter->cond;
    atomic_store(&waiter->done, true);
    pthread_cond_signal(cond);
}

void wait_finish_all(wait_list_t *list, aclError rc) {
    while (list->first != NULL) {
        wait_finish(list->first, rc);
    }
}

static void spin_until(const waiter_t *waiter, int64_t deadline_ns) {
    sim_unlock();
    while (!atomic_load(&waiter->done) && now_ns() < deadline_ns && !clock_is_virtual()) {
        sched_yield();
    }
    sim_lock();
}

bool wait_unseen(waiter_t *waiter, int64_t deadline_ns) {
    while (!atomic_load(&waiter->done)) {
        if (deadline_ns != SIM_FOREVER && now_ns() >= deadline_ns) {
            unlink_waiter(waiter);
            return false;
        }
        if (sim.settings.spin && !clock_is_virtual()) {
            spin_until(waiter, deadline_ns);
        } else {
            clock_wait(waiter->cond, deadline_ns);
        }
    }
    return true;
}

bool wait_for(waiter_t *waiter, int64_t deadline_ns) {
    thread_t *thread = thread_self();
    atomic_store(&thread->waiting, true);
    bool done = wait_unseen(waiter, deadline_ns);
    atomic_store(&thread->waiting, false);
    return done;
}

bool gate_enter_until(gate_t *gate, int64_t deadline_ns) {
    if (!gate->taken) {
        gate->taken = true;
        return true;
    }
    waiter_t waiter;
    wait_add(&gate->queue, &waiter, 0);
    return wait_for(&waiter, deadline_ns);
}

void gate_enter(gate_t *gate) {
    gate_enter_until(gate, SIM_FOREVER);
}

/* The gate passes directly to the first waiter, so that no other call can take the gate in between. */
void gate_leave(gate_t *gate) {
    if (gate->queue.first != NULL) {
        wait_finish(gate->queue.first, 0);
    } else {
        gate->taken = false;
    }
}
