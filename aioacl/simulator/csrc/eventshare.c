/* How many events are left, and events of other processes. */
#include "sim.h"

aclError do_aclrtGetEventAvailNum(uint32_t *eventCount) {
    if (eventCount == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "eventCount");
    }
    sim_lock();
    const context_t *context = context_need();
    if (context != NULL) {
        *eventCount = SIM_EVENTS_PER_DEVICE - context->device->events;
    }
    sim_unlock();
    return context != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
}

/*
 * An event for other processes is made with the IPC flag, which this driver refuses (207000). So no event has a
 * handle to give, and no handle is one of an event that lives.
 */
aclError do_aclrtIpcGetEventHandle(aclrtEvent event, aclrtIpcEventHandle *handle) {
    if (event == NULL || handle == NULL) {
        return error_quiet(ACL_INVALID_PARAM, event == NULL ? "event" : "handle");
    }
    event_t *found = NULL;
    sim_lock();
    aclError rc = context_need() != NULL ? event_find(event, &found) : RT_CONTEXT_NULL;
    sim_unlock();
    return rc != ACL_SUCCESS ? rc : error_set(RT_PARAM_INVALID, "event: made without the IPC flag");
}

aclError do_aclrtIpcOpenEventHandle(aclrtIpcEventHandle handle, aclrtEvent *event) {
    (void)handle;
    if (event == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "event");
    }
    sim_lock();
    const context_t *context = context_need();
    sim_unlock();
    return context == NULL ? RT_CONTEXT_NULL : error_set(RT_PARAM_INVALID, "handle: of no live event");
}
