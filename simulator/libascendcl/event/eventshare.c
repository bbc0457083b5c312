/*
 * The number of events that can still be created, and events for other processes. Events for other processes
 * are shared within this process only. Each handle is a separate event, and all events with the same key share
 * the newest record. The simulated driver does not support events for other processes: the functions return
 * 207000. aclsim_set_ipc_event_supported() enables these events, as in a newer driver.
 */
#include <string.h>
#include <unistd.h>

#include "sim.h"

/* The first bytes of a handle. */
typedef struct {
    uint64_t key;
    int64_t process;
} ticket_t;

typedef struct {
    uint64_t key;
    record_t *record;
    const event_t *found;
} shared_t;

static void set_record(event_t *event, record_t *record) {
    if (record != NULL) {
        record_retain(record);
    }
    if (event->record != NULL) {
        record_release(event->record);
    }
    event->record = record;
}

static void set_shared(void *object, void *arg) {
    event_t *event = object;
    const shared_t *shared = arg;
    if (event->key == shared->key) {
        set_record(event, shared->record);
    }
}

void event_set_record(event_t *event, record_t *record) {
    shared_t shared = {.key = event->key, .record = record};
    if (event->key != 0) {
        object_each(KIND_EVENT, set_shared, &shared);
    } else {
        set_record(event, record);
    }
}

aclError do_aclrtGetEventAvailNum(uint32_t *eventCount) {
    REFUSE_NULL(eventCount);
    SIM_GUARD();
    const context_t *context = context_need();
    if (context != NULL) {
        *eventCount = SIM_EVENTS_PER_DEVICE - context->device->events;
    }
    return context != NULL ? ACL_SUCCESS : RT_CONTEXT_NULL;
}

/* Called with sim.lock held. */
static aclError check_supported(void) {
    if (context_need() == NULL) {
        return RT_CONTEXT_NULL;
    }
    return sim.ipc_event_supported
               ? ACL_SUCCESS
               : error_quiet(RT_FEATURE_NOT_SUPPORT, "events of other processes; " SIM_SHARES_NOTHING);
}

aclError do_aclrtIpcGetEventHandle(aclrtEvent event, aclrtIpcEventHandle *handle) {
    REFUSE_NULL(event);
    REFUSE_NULL(handle);
    event_t *found = NULL;
    SIM_GUARD();
    aclError rc = context_need() != NULL ? event_find(event, &found) : RT_CONTEXT_NULL;
    if (rc == ACL_SUCCESS && found->key == 0) {
        rc = error_set(RT_PARAM_INVALID, "event: it was made without the IPC flag");
    }
    if (rc == ACL_SUCCESS) {
        ticket_t ticket = {.key = found->key, .process = getpid()};
        memset(handle, 0, sizeof *handle);
        memcpy(handle, &ticket, sizeof ticket);
    }
    return rc;
}

static void match(void *object, void *arg) {
    const event_t *event = object;
    shared_t *shared = arg;
    if (event->key == shared->key) {
        shared->found = event;
    }
}

static aclError open_ticket(ticket_t ticket, aclrtEvent *event) {
    shared_t shared = {.key = ticket.key};
    if (ticket.key != 0 && ticket.process == getpid()) {
        object_each(KIND_EVENT, match, &shared);
    }
    if (shared.found == NULL) {
        return error_set(RT_DRIVER_ERROR,
                         "handle: it does not belong to a live event of this process; " SIM_SHARES_NOTHING);
    }
    aclError rc = event_new_shared(event, ticket.key);
    if (rc == ACL_SUCCESS) {
        set_record(*event, shared.found->record);
    }
    return rc;
}

aclError do_aclrtIpcOpenEventHandle(aclrtIpcEventHandle handle, aclrtEvent *event) {
    ticket_t ticket;
    memcpy(&ticket, &handle, sizeof ticket);
    REFUSE_NULL(event);
    SIM_GUARD();
    aclError rc = check_supported();
    return rc == ACL_SUCCESS ? open_ticket(ticket, event) : rc;
}

API void aclsim_set_ipc_event_supported(int supported) {
    sim_start();
    SIM_GUARD();
    sim.ipc_event_supported = supported != 0;
}
