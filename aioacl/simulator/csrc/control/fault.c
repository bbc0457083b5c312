/* What becomes of a call that a rule strikes; fault.h tells how it hangs together. */
#include <stdio.h>
#include <string.h>

#include "rule.h"
#include "sim.h"

static uint32_t last_thread;

/* --- what the rules want of a call
 * ---------------------------------------------------------------------------- */
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

void strike_refuse(strike_t *strike, aclError code) {
    strike->refused = true;
    strike->refusal = code;
}

static bool wants(const rule_t *rule, uint32_t effects) {
    return (rule->effects & effects) != 0;
}

static void want_time(const rule_t *rule, strike_t *strike) {
    int64_t latency_ns = wants(rule, EFFECT_LATENCY) ? rule_latency(rule) : 0;
    strike->before_ns += rule->moment == AT_BEFORE ? latency_ns : 0;
    strike->during_ns += rule->moment == AT_DURING ? latency_ns : 0;
    strike->after_ns += rule->moment == AT_AFTER ? latency_ns : 0;
    strike->teardown_ns += wants(rule, EFFECT_SLOW_TEARDOWN) ? rule->teardown_ns : 0;
    if (wants(rule, EFFECT_LATE_COMPLETE | EFFECT_LATE_COPY)) {
        strike->late_ns = rule->late_ns;
        strike->late_copy = wants(rule, EFFECT_LATE_COPY);
    }
    if (wants(rule, EFFECT_HANG | EFFECT_BLOCK_RECORD)) {
        strike->hangs = true;
        memcpy(strike->key, rule->key, sizeof strike->key);
    }
}

/* The first rule that names a code wins. */
static void want_code(const rule_t *rule, strike_t *strike) {
    aclError code = wants(rule, EFFECT_OOM) ? out_of(strike->function) : rule->rc;
    bool resets = wants(rule, EFFECT_RESET_FAIL) && !wants(rule, EFFECT_STICKY | EFFECT_LOST);
    if (resets) {
        strike->reset_refusal = code != 0 ? code : RT_INTERNAL_ERROR;
    } else if (wants(rule, EFFECT_RC | EFFECT_OOM) && !strike->refused) {
        strike_refuse(strike, code);
    }
    strike->after = strike->after == 0 ? rule->rc_after : strike->after;
    strike->task = strike->task == 0 ? rule->async_error : strike->task;
}

static void want_device(const rule_t *rule, strike_t *strike) {
    if (wants(rule, EFFECT_STICKY | EFFECT_LOST)) {
        strike->sickness = wants(rule, EFFECT_LOST) ? HEALTH_LOST : HEALTH_STICKY;
        strike->sick_code = rule->sick_code;
        strike->reset_fails = rule->reset_fails;
    }
    strike->false_drain = strike->false_drain || wants(rule, EFFECT_FALSE_DRAIN);
    strike->foreign_reset = strike->foreign_reset || wants(rule, EFFECT_EXT_RESET);
    if (wants(rule, EFFECT_RESET_LIES)) {
        strike->reset_lies = true;
        strike->lie = rule->lie;
    }
    if (wants(rule, EFFECT_TEXT)) {
        thread_self()->text_fault = (int)rule->text_fault;
    }
}

static void trace_hit(const rule_t *rule, const scene_t *scene) {
    char line[RULE_TEXT_BYTES + 192];
    if (trace_file >= 0) {
        int length =
            snprintf(line, sizeof line,
                     "{\"fault\":%u,\"hit\":%lu,\"match\":%lu,\"call\":\"%s\",\"tid\":%d,\"rule\":\"%s\"}\n",
                     rule->id, (unsigned long)rule->hits, (unsigned long)rule->matches,
                     function_info[scene->function].name, (int)scene->tid, rule->text);
        trace_write(line, (size_t)length);
    }
}

static void gather(strike_t *strike, const uint64_t *words) {
    scene_t scene;
    role_scene(strike->function, words, &scene);
    strike->device = scene.device;
    strike->limit_ms = scene.timeout_ms;
    for (rule_t *rule = rules_first(); rule != NULL; rule = rule->next) {
        if (rule_fires(rule, &scene)) {
            want_time(rule, strike);
            want_code(rule, strike);
            want_device(rule, strike);
            trace_hit(rule, &scene);
        }
    }
    rules_sweep();
}

/* --- before and after the work
 * -------------------------------------------------------------------------------- */
typedef struct {
    int32_t device;
    wait_list_t done;
} foreign_t;

aclError aclrtResetDeviceForce(int32_t deviceId); /* the exported one, which keeps the books */

static void *foreign_main(void *arg) {
    foreign_t *foreign = arg;
    thread_self()->foreign = true;
    aclrtResetDeviceForce(foreign->device);
    sim_lock();
    wait_finish_all(&foreign->done, 0);
    sim_unlock();
    return NULL;
}

/* Somebody else of the process resets the device while this call is inside. */
static void reset_by_others(const strike_t *strike) {
    foreign_t foreign = {.device = strike->device != NULL ? strike->device->id : -1};
    waiter_t waiter;
    wait_add(&foreign.done, &waiter, 0);
    if (foreign.device < 0 || !thread_start("aclsim-foreign", foreign_main, &foreign)) {
        wait_finish(&waiter, 0);
    }
    wait_for(&waiter, SIM_FOREVER);
}

static bool enqueues(const strike_t *strike) {
    return function_info[strike->function].kind == CALL_ENQUEUE && role_has_stream(strike->function);
}

/* A launch or a copy is taken, and its failure is told later; any other call tells it itself. */
static void sicken(strike_t *strike) {
    if (strike->sickness == HEALTH_WELL || strike->device == NULL) {
        return;
    }
    health_fall_sick(strike->device, strike->sickness, strike->sick_code, strike->reset_fails);
    if (!enqueues(strike) && !strike->refused) {
        strike->device->health.told = true;
        strike_refuse(strike, strike->sick_code);
    }
}

static void before(strike_t *strike) {
    fault_pause(strike->before_ns + (enqueues(strike) ? 0 : strike->during_ns));
    if (strike->foreign_reset) {
        reset_by_others(strike);
    }
    if (strike->hangs && !fault_hang(strike)) {
        bool event = group_has("event", 5, strike->function);
        strike_refuse(strike, event ? RT_EVENT_SYNC_TIMEOUT : RT_STREAM_SYNC_TIMEOUT);
    }
    if (!strike->refused) {
        health_strike(strike);
    }
    sicken(strike);
}

static void number(thread_t *thread) {
    if (thread->number == 0) {
        thread->number = ++last_thread;
    }
}

/* Of the ACL layer's own codes none is kept as a last error. */
static aclError leave_error(aclError code) {
    static const char what[] = "armed by a control";
    if (code == ACL_SUCCESS) {
        return code;
    }
    return code < RT_PARAM_INVALID ? error_quiet(code, what) : error_set(code, what);
}

bool fault_strike(strike_t *strike, function_t function, const uint64_t *words, aclError *code) {
    thread_t *thread = thread_self();
    if (thread->foreign) {
        return false;
    }
    *strike = (strike_t){.on = true, .function = function, .outer = thread->strike, .limit_ms = -1};
    sim_lock();
    number(thread);
    gather(strike, words);
    before(strike);
    thread->strike = strike;
    sim_unlock();
    *code = strike->refused ? leave_error(strike->refusal) : ACL_SUCCESS;
    return strike->refused;
}

long fault_conclude(strike_t *strike, long rc) {
    thread_self()->strike = strike->outer;
    if (strike->after_ns > 0) {
        sim_lock();
        fault_pause(strike->after_ns);
        sim_unlock();
    }
    if (strike->after == 0 || rc != ACL_SUCCESS) {
        return rc;
    }
    return leave_error(strike->after);
}

/* --- hooks in the midst of the work
 * --------------------------------------------------------------------------- */
void fault_enqueue(task_t *task) {
    strike_t *strike = thread_self()->strike;
    if (strike == NULL) {
        return;
    }
    task->code = strike->task != 0 ? strike->task : task->code;
    task->late_ns = strike->late_ns + strike->during_ns;
    task->late_copy = strike->late_copy || strike->during_ns > 0;
}

aclError fault_copy(void) {
    const strike_t *strike = thread_self()->strike;
    return strike != NULL ? strike->task : 0;
}

void fault_teardown(void) {
    const strike_t *strike = thread_self()->strike;
    if (strike != NULL) {
        fault_pause(strike->teardown_ns);
    }
}

/* The client is told as of any reset; then everything is as before. */
static aclError take_back(device_t *device, aclError code) {
    bool outer = device_begin_change(device);
    state_device(device->id, ACL_RT_DEVICE_STATE_RESET_PRE);
    if (outer) {
        device_end_change(device);
    }
    return code;
}

aclError fault_reset(device_t *device) {
    const strike_t *strike = thread_self()->strike;
    if (strike != NULL && strike->reset_refusal != 0) {
        return take_back(device, strike->reset_refusal);
    }
    if (device->health.sickness != HEALTH_WELL && device->health.reset_fails > 0) {
        device->health.reset_fails--;
        return take_back(device, device->health.code);
    }
    return ACL_SUCCESS;
}

void fault_was_reset(device_t *device, bool force) {
    const strike_t *strike = thread_self()->strike;
    if (strike != NULL && strike->reset_lies) {
        health_fall_sick(device, HEALTH_STICKY, strike->lie, 0);
    } else if (force) {
        health_heal(device);
    }
}
