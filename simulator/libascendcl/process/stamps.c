/* Marks of a client for a profiler: stamps, ranges and steps. Open ranges are counted. Nothing is recorded. */
#include <string.h>

#include "described.h"

enum { MESSAGE_MOST = 127, MARK_MOST = 65535 };

/* Protected by sim.lock. */
static uint32_t next_range = 1;
static uint32_t open_ranges;

aclprofStepInfo *do_aclprofCreateStepInfo(void) {
    return profile_new(PROFILE_STEP);
}

void do_aclprofDestroyStepInfo(aclprofStepInfo *stepinfo) {
    profile_destroy(PROFILE_STEP, stepinfo, "stepinfo");
}

aclError do_aclprofGetStepTimestamp(aclprofStepInfo *stepInfo, aclprofStepTag tag, aclrtStream stream) {
    if ((unsigned int)tag > ACL_STEP_END) {
        return error_quiet(ACL_INVALID_PARAM, "tag");
    }
    stream_t *found = NULL;
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    if (profile_find(PROFILE_STEP, stepInfo, "stepInfo") != NULL) {
        rc = stream_need(stream, &found);
    }
    return rc;
}

void *do_aclprofCreateStamp(void) {
    return profile_new(PROFILE_STAMP);
}

void do_aclprofDestroyStamp(void *stamp) {
    profile_destroy(PROFILE_STAMP, stamp, "stamp");
}

static aclError check_stamp(const void *stamp) {
    SIM_GUARD();
    bool found = profile_find(PROFILE_STAMP, stamp, "stamp") != NULL;
    return found ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

static aclError open_range(void) {
    thread_self()->open_ranges++;
    return ACL_SUCCESS;
}

static aclError close_range(void) {
    thread_t *thread = thread_self();
    if (thread->open_ranges == 0) {
        return error_quiet(ACL_FAILURE, "no range is open");
    }
    thread->open_ranges--;
    return ACL_SUCCESS;
}

aclError do_aclprofPush(void *stamp) {
    aclError rc = check_stamp(stamp);
    return rc == ACL_SUCCESS ? open_range() : rc;
}

aclError do_aclprofPop(void) {
    return close_range();
}

aclError do_aclprofRangePushEx(aclprofEventAttributes *attr) {
    return attr == NULL ? error_quiet(ACL_INVALID_PARAM, "attr") : open_range();
}

aclError do_aclprofRangePop(void) {
    return close_range();
}

aclError do_aclprofRangeStart(void *stamp, uint32_t *rangeId) {
    REFUSE_NULL(rangeId);
    aclError rc = check_stamp(stamp);
    if (rc == ACL_SUCCESS) {
        SIM_GUARD();
        *rangeId = next_range++;
        open_ranges++;
    }
    return rc;
}

aclError do_aclprofRangeStop(uint32_t rangeId) {
    SIM_GUARD();
    bool known = rangeId != 0 && rangeId < next_range && open_ranges > 0;
    open_ranges -= known ? 1 : 0;
    return known ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "rangeId");
}

aclError do_aclprofSetStampTraceMessage(void *stamp, const char *msg, uint32_t msgLen) {
    if (msg == NULL || msgLen > MESSAGE_MOST) {
        return error_quiet(ACL_INVALID_PARAM, msg == NULL ? "msg" : "msgLen");
    }
    return check_stamp(stamp);
}

aclError do_aclprofMark(void *stamp) {
    return check_stamp(stamp);
}

aclError do_aclprofMarkEx(const char *msg, size_t msgLen, aclrtStream stream) {
    if (msg == NULL || msgLen == 0 || msgLen > MARK_MOST) {
        return error_quiet(ACL_INVALID_PARAM, msg == NULL ? "msg" : "msgLen");
    }
    stream_t *found = NULL;
    SIM_GUARD();
    return stream_need(stream, &found);
}

/* Returns a hash of the text (FNV-1a). */
uint64_t do_aclprofStr2Id(const char *message) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; message != NULL && *message != '\0'; message++) {
        hash = (hash ^ (unsigned char)*message) * UINT64_C(1099511628211);
    }
    return message != NULL ? hash : 0;
}
