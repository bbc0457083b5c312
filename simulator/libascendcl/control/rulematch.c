/* Whether a rule fires on a call. */
#include <stdlib.h>
#include <string.h>

#include "rule.h"
#include "sim.h"

static uint64_t seed_now;

void rule_seed(uint64_t seed) {
    seed_now = seed;
}

/* The finalizer of splitmix64. */
static uint64_t mix(uint64_t value) {
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ value >> 27) * 0x94D049BB133111EBULL;
    return value ^ value >> 31;
}

/* A pseudo-random number for one decision of one rule. `salt` separates the kinds of decisions. */
static uint64_t draw(const rule_t *rule, uint64_t salt) {
    uint64_t value = mix(seed_now + 0x9E3779B97F4A7C15ULL * (salt + 1));
    value = mix(value + 0x9E3779B97F4A7C15ULL * rule->place);
    return mix(value + 0x9E3779B97F4A7C15ULL * rule->matches);
}

int64_t rule_latency(const rule_t *rule) {
    if (rule->jitter_ns == 0) {
        return rule->latency_ns;
    }
    uint64_t width = 2 * (uint64_t)rule->jitter_ns + 1;
    return rule->latency_ns - rule->jitter_ns + (int64_t)(draw(rule, 1) % width);
}

static bool stream_fits(const rule_t *rule, const call_info_t *call_info) {
    if (rule->stream != 0) {
        return (uintptr_t)call_info->stream_handle == rule->stream;
    }
    return rule->stream_id < 0 || rule->stream_id == call_info->stream_id;
}

/* aclrtResetDevice only resets the device if it undoes the last set. */
static bool resets_if_needed(const rule_t *rule, const call_info_t *call_info) {
    bool undoes_one_of_several = call_info->function == FN_aclrtResetDevice && call_info->device != NULL &&
                                 call_info->device->retains > 1;
    return !undoes_one_of_several || (rule->effects & (EFFECT_RESET_FAIL | EFFECT_RESET_LIES)) == 0;
}

static bool matches(const rule_t *rule, const call_info_t *call_info) {
    bool device = rule->device < 0 || (call_info->device != NULL && call_info->device_id == rule->device);
    bool thread = rule->thread == 0 || rule->thread == call_info->thread;
    bool tid = rule->tid == 0 || rule->tid == call_info->tid;
    bool size = !rule->sized ||
                (call_info->sized && call_info->size >= rule->size_least && call_info->size <= rule->size_most);
    return rule->picks[call_info->function] && device && thread && tid && size &&
           stream_fits(rule, call_info) && resets_if_needed(rule, call_info);
}

/* Returns the number of matching calls so far, including this call. A rule counts the calls of all threads, or
 * of each thread separately.
 */
static uint64_t count_match(rule_t *rule, uint32_t thread) {
    rule->matches++;
    if (!rule->by_thread) {
        return rule->matches;
    }
    if (thread >= rule->tally.room) {
        uint32_t room = thread * 2 + 16;
        uint64_t *grown = realloc(rule->tally.counts, room * sizeof *grown);
        if (grown == NULL) {
            return 0;
        }
        memset(grown + rule->tally.room, 0, (room - rule->tally.room) * sizeof *grown);
        rule->tally = (tally_t){.counts = grown, .room = room};
    }
    return ++rule->tally.counts[thread];
}

/* nth=k without times=, once and every= fires only on the k-th match (of each thread, if the rule counts by
 * thread). With one of these fields, the rule fires on the k-th match and on later matches. */
static bool is_due(const rule_t *rule, uint64_t count) {
    if (rule->exact) {
        return count == rule->first;
    }
    return count >= rule->first && (count - rule->first + (rule->from_nth ? 0 : 1)) % rule->every == 0;
}

bool rule_fires(rule_t *rule, const call_info_t *call_info) {
    if (!matches(rule, call_info)) {
        return false;
    }
    uint64_t count = count_match(rule, call_info->thread);
    bool lucky = !rule->chancy || draw(rule, 0) < rule->chance;
    if (!is_due(rule, count) || !lucky || rule->times == 0) {
        return false;
    }
    rule->times -= rule->times > 0 ? 1 : 0;
    rule->hits++;
    return true;
}

void rule_free(rule_t *rule) {
    free(rule->tally.counts);
    free(rule);
}
