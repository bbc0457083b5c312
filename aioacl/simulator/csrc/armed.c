/* Counting calls, and what tests have armed: calls that fail and calls that hang. */
#include "sim.h"

#define API __attribute__((visibility("default")))

typedef struct {
    atomic_ulong calls;
    atomic_bool armed; /* the rest is worth looking at; the rest is under sim.lock */
    aclError fail_code;
    int32_t fail_times;
    uint32_t hang_times;
    uint32_t hung;
    wait_list_t hanging;
} armed_t;

static armed_t table[FN_COUNT];
static atomic_ulong forgotten_calls;

static void rearm(armed_t *entry) {
    atomic_store(&entry->armed, entry->fail_times != 0 || entry->hang_times > 0);
}

static void hang(armed_t *entry) {
    waiter_t waiter;
    entry->hang_times--;
    entry->hung++;
    wait_add(&entry->hanging, &waiter, 0);
    while (!atomic_load(&waiter.done)) {
        pthread_cond_wait(waiter.cond, &sim.lock);
    }
    entry->hung--;
}

static bool fail(armed_t *entry, aclError *code) {
    if (entry->fail_times == 0) {
        return false;
    }
    *code = entry->fail_code;
    if (entry->fail_times > 0) {
        entry->fail_times--;
    }
    return true;
}

static bool strike(armed_t *entry, aclError *code) {
    sim_lock();
    if (entry->hang_times > 0) {
        hang(entry);
    }
    bool failing = fail(entry, code);
    rearm(entry);
    sim_unlock();
    return failing;
}

bool armed_strike(function_t function, aclError *code) {
    armed_t *entry = &table[function];
    atomic_fetch_add_explicit(&entry->calls, 1, memory_order_relaxed);
    if (!atomic_load(&entry->armed) || !strike(entry, code)) {
        return false;
    }
    *code = *code < RT_PARAM_INVALID ? error_quiet(*code, "armed by a control")
                                     : error_set(*code, "armed by a control");
    return true;
}

uint64_t armed_calls(void) {
    uint64_t sum = atomic_load(&forgotten_calls);
    for (int i = 0; i < FN_COUNT; i++) {
        sum += atomic_load(&table[i].calls);
    }
    return sum;
}

void armed_forget(void) {
    for (int i = 0; i < FN_COUNT; i++) {
        atomic_fetch_add(&forgotten_calls, atomic_exchange(&table[i].calls, 0));
    }
}

static armed_t *entry_of(const char *function) {
    int index = function_find(function);
    return index >= 0 ? &table[index] : NULL;
}

API int aclsim_fail_call(const char *function, int32_t code, int32_t times) {
    armed_t *entry = entry_of(function);
    if (entry == NULL || times < -1) {
        return -1;
    }
    sim_lock();
    entry->fail_code = code;
    entry->fail_times = times;
    rearm(entry);
    sim_unlock();
    return 0;
}

API int aclsim_hang_call(const char *function) {
    armed_t *entry = entry_of(function);
    if (entry == NULL) {
        return -1;
    }
    sim_lock();
    entry->hang_times++;
    rearm(entry);
    sim_unlock();
    return 0;
}

API int aclsim_unhang(const char *function) {
    armed_t *entry = entry_of(function);
    if (entry == NULL) {
        return -1;
    }
    sim_lock();
    wait_finish_all(&entry->hanging, 0);
    sim_unlock();
    return 0;
}

void armed_unhang_all(void) {
    for (int i = 0; i < FN_COUNT; i++) {
        wait_finish_all(&table[i].hanging, 0);
    }
}

API int aclsim_hung(const char *function) {
    const armed_t *entry = entry_of(function);
    if (entry == NULL) {
        return -1;
    }
    sim_lock();
    int hung = (int)entry->hung;
    sim_unlock();
    return hung;
}

API uint64_t aclsim_calls(const char *function) {
    armed_t *entry = entry_of(function);
    return entry != NULL ? atomic_load(&entry->calls) : 0;
}

API void aclsim_clear(void) {
    sim_lock();
    for (int i = 0; i < FN_COUNT; i++) {
        table[i].fail_times = 0;
        table[i].hang_times = 0;
        rearm(&table[i]);
    }
    sim_unlock();
}
