/* The effects of a rule that fires on a call; fault.h has the theory of operation. */
#include <stdio.h>
#include <string.h>

#include "rule.h"
#include "sim.h"

static uint32_t last_thread;

static aclError out_of(function_t function) {
    static const struct {
        const char *group;
        aclError code;
    } codes[] = {{"alloc", RT_MEMORY_ALLOCATION},
                 {"event", RT_NO_EVENT_RESOURCE},
                 {"notify", RT_NO_NOTIFY_RESOURCE},
                 {"stream", RT_NO_STREAM_RESOURCE}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        bool makes = group_has("create", 6, function);
        if (makes && group_has(codes[i].group, strlen(codes[i].group), function)) {
            return codes[i].code;
        }
    }
    return RT_MEMORY_ALLOCATION;
}

void injection_refuse(injection_t *injection, aclError code) {
    injection->refused = true;
    injection->refusal = code;
}

static bool wants(const rule_t *rule, uint32_t effects) {
    return (rule->effects & effects) != 0;
}

static void want_time(const rule_t *rule, injection_t *injection) {
    int64_t latency_ns = wants(rule, EFFECT_LATENCY) ? rule_latency(rule) : 0;
    injection->before_ns += rule->moment == AT_BEFORE ? latency_ns : 0;
    injection->during_ns += rule->moment == AT_DURING ? latency_ns : 0;
    injection->after_ns += rule->moment == AT_AFTER ? latency_ns : 0;
    injection->teardown_ns += wants(rule, EFFECT_SLOW_TEARDOWN) ? rule->teardown_ns : 0;
    if (wants(rule, EFFECT_LATE_COMPLETE | EFFECT_LATE_COPY)) {
        injection->late_ns = rule->late_ns;
        injection->late_copy = wants(rule, EFFECT_LATE_COPY);
    }
    if (wants(rule, EFFECT_HANG)) {
        injection->hangs = true;
        memcpy(injection->key, rule->key, sizeof injection->key);
    }
}

/* If several fired rules have a code, the first of them decides the code. */
static void want_code(const rule_t *rule, injection_t *injection) {
    aclError code = wants(rule, EFFECT_OOM) ? out_of(injection->function) : rule->rc;
    bool resets = wants(rule, EFFECT_RESET_FAIL) && !wants(rule, EFFECT_STICKY | EFFECT_LOST);
    if (resets) {
        injection->reset_refusal = code != 0 ? code : RT_INTERNAL_ERROR;
    } else if (wants(rule, EFFECT_RC | EFFECT_OOM) && !injection->refused) {
        injection_refuse(injection, code);
    }
    injection->after = injection->after == 0 ? rule->rc_after : injection->after;
    injection->task = injection->task == 0 ? rule->async_error : injection->task;
}

static void want_device(const rule_t *rule, injection_t *injection) {
    if (wants(rule, EFFECT_STICKY | EFFECT_LOST)) {
        injection->fault_state = wants(rule, EFFECT_LOST) ? HEALTH_LOST : HEALTH_STICKY;
        injection->fault_state_code = rule->fault_state_code;
        injection->reset_fails = rule->reset_fails;
    }
    injection->false_drain = injection->false_drain || wants(rule, EFFECT_FALSE_DRAIN);
    injection->foreign_reset = injection->foreign_reset || wants(rule, EFFECT_EXT_RESET);
    if (wants(rule, EFFECT_RESET_LIES)) {
        injection->reset_lies = true;
        injection->lie = rule->lie;
    }
    if (wants(rule, EFFECT_TEXT)) {
        thread_self()->text_fault = (int)rule->text_fault;
    }
}

static void trace_hit(const rule_t *rule, const call_info_t *call_info) {
    char line[RULE_TEXT_BYTES + 192];
    if (trace_file >= 0) {
        int length =
            snprintf(line, sizeof line,
                     "{\"fault\":%u,\"hit\":%lu,\"match\":%lu,\"call\":\"%s\",\"tid\":%d,\"rule\":\"%s\"}\n",
                     rule->id, (unsigned long)rule->hits, (unsigned long)rule->matches,
                     function_info[call_info->function].name, (int)call_info->tid, rule->text);
        trace_write(line, (size_t)length);
    }
}

static void gather(injection_t *injection, const uint64_t *words) {
    call_info_t call_info;
    role_call_info(injection->function, words, &call_info);
    injection->device = call_info.device;
    injection->limit_ms = call_info.timeout_ms;
    for (rule_t *rule = rules_first(); rule != NULL; rule = rule->next) {
        if (rule_fires(rule, &call_info)) {
            want_time(rule, injection);
            want_code(rule, injection);
            want_device(rule, injection);
            trace_hit(rule, &call_info);
        }
    }
    rules_sweep();
}

typedef struct {
    int32_t device;
    wait_list_t done;
} foreign_t;

aclError aclrtResetDeviceForce(int32_t deviceId); /* the exported function, which does the bookkeeping */

static void *foreign_main(void *arg) {
    foreign_t *foreign = arg;
    thread_self()->foreign = true;
    aclrtResetDeviceForce(foreign->device);
    SIM_GUARD();
    wait_finish_all(&foreign->done, 0);
    return NULL;
}

/* Resets the device as another library of the process would, while the caller's ACL call is in progress. */
static void reset_by_others(const injection_t *injection) {
    foreign_t foreign = {.device = injection->device != NULL ? injection->device->id : -1};
    waiter_t waiter;
    wait_add(&foreign.done, &waiter, 0);
    if (foreign.device < 0 || !thread_start("aclsim-foreign", foreign_main, &foreign)) {
        wait_finish(&waiter, 0);
    }
    wait_for(&waiter, SIM_FOREVER);
}

static bool enqueues(const injection_t *injection) {
    return function_info[injection->function].kind == CALL_ENQUEUE && role_has_stream(injection->function);
}

/* A call that enqueues on a stream succeeds, and a later call reports the fault. Any other call reports the
 * fault itself.
 */
static void enter_fault_state(injection_t *injection) {
    if (injection->fault_state == HEALTH_WELL || injection->device == NULL) {
        return;
    }
    health_enter_fault_state(injection->device, injection->fault_state, injection->fault_state_code,
                             injection->reset_fails);
    if (!enqueues(injection) && !injection->refused) {
        injection->device->health.returned = true;
        injection_refuse(injection, injection->fault_state_code);
    }
}

static void before(injection_t *injection) {
    fault_pause(injection->before_ns + (enqueues(injection) ? 0 : injection->during_ns));
    if (injection->foreign_reset) {
        reset_by_others(injection);
    }
    if (injection->hangs && !fault_hang(injection)) {
        bool event = group_has("event", 5, injection->function);
        injection_refuse(injection, event ? RT_EVENT_SYNC_TIMEOUT : RT_STREAM_SYNC_TIMEOUT);
    }
    if (!injection->refused) {
        health_inject(injection);
    }
    enter_fault_state(injection);
}

static void number(thread_t *thread) {
    if (thread->number == 0) {
        thread->number = ++last_thread;
    }
}

/* Codes of the ACL layer are not kept as the last error. */
static aclError leave_error(aclError code) {
    static const char what[] = "injected fault";
    if (code == ACL_SUCCESS) {
        return code;
    }
    return code < RT_PARAM_INVALID ? error_quiet(code, what) : error_set(code, what);
}

bool fault_inject(injection_t *injection, function_t function, const uint64_t *words, aclError *code) {
    thread_t *thread = thread_self();
    if (thread->foreign) {
        return false;
    }
    *injection = (injection_t){.on = true, .function = function, .outer = thread->injection, .limit_ms = -1};
    sim_lock();
    number(thread);
    gather(injection, words);
    before(injection);
    thread->injection = injection;
    sim_unlock();
    *code = injection->refused ? leave_error(injection->refusal) : ACL_SUCCESS;
    return injection->refused;
}

long fault_conclude(injection_t *injection, long rc) {
    thread_self()->injection = injection->outer;
    if (injection->after_ns > 0) {
        SIM_GUARD();
        fault_pause(injection->after_ns);
    }
    if (injection->after == 0 || rc != ACL_SUCCESS) {
        return rc;
    }
    return leave_error(injection->after);
}

void fault_enqueue(task_t *task) {
    injection_t *injection = thread_self()->injection;
    if (injection == NULL) {
        return;
    }
    task->code = injection->task != 0 ? injection->task : task->code;
    task->late_ns = injection->late_ns + injection->during_ns;
    task->late_copy = injection->late_copy || injection->during_ns > 0;
}

aclError fault_copy(void) {
    const injection_t *injection = thread_self()->injection;
    return injection != NULL ? injection->task : 0;
}

void fault_teardown(void) {
    const injection_t *injection = thread_self()->injection;
    if (injection != NULL) {
        fault_pause(injection->teardown_ns);
    }
}

/* Begins a reset, which then fails: the client gets the callback that precedes a reset, and the device stays
 * unchanged. */
static aclError take_back(device_t *device, aclError code) {
    bool outer = device_begin_change(device);
    state_device(device->id, ACL_RT_DEVICE_STATE_RESET_PRE);
    if (outer) {
        device_end_change(device);
    }
    return code;
}

aclError fault_reset(device_t *device) {
    const injection_t *injection = thread_self()->injection;
    if (injection != NULL && injection->reset_refusal != 0) {
        return take_back(device, injection->reset_refusal);
    }
    if (device->health.fault_state != HEALTH_WELL && device->health.reset_fails > 0) {
        device->health.reset_fails--;
        return take_back(device, device->health.code);
    }
    return ACL_SUCCESS;
}

void fault_was_reset(device_t *device, bool force) {
    const injection_t *injection = thread_self()->injection;
    if (injection != NULL && injection->reset_lies) {
        health_enter_fault_state(device, HEALTH_STICKY, injection->lie, 0);
    } else if (force) {
        health_heal(device);
    }
}
