/* Named callbacks for state changes of devices and streams. They run on the thread that causes the change. */
#include "registry.h"

static registry_t device_registry;
static registry_t stream_registry;

aclError do_aclrtRegDeviceStateCallback(const char *regName, aclrtDeviceStateCallback callback, void *args) {
    return registry_change(&device_registry, regName, (void *)(uintptr_t)callback, args);
}

aclError do_aclrtRegStreamStateCallback(const char *regName, aclrtStreamStateCallback callback, void *args) {
    return registry_change(&stream_registry, regName, (void *)(uintptr_t)callback, args);
}

void state_device(int32_t device, aclrtDeviceState state) {
    for (int i = 0; i < REGISTRY_PLACES; i++) {
        registered_t entry = device_registry.entries[i];
        if (entry.function != NULL) {
            bool before = registry_leave();
            ((aclrtDeviceStateCallback)(uintptr_t)entry.function)(device, state, entry.arg);
            registry_return(before);
        }
    }
}

void state_stream(stream_t *stream, aclrtStreamState state) {
    for (int i = 0; i < REGISTRY_PLACES; i++) {
        registered_t entry = stream_registry.entries[i];
        if (entry.function != NULL) {
            bool before = registry_leave();
            ((aclrtStreamStateCallback)(uintptr_t)entry.function)(stream, state, entry.arg);
            registry_return(before);
        }
    }
}
