/* Changes of ACL's counts of sets. Each result contains the number of foreign resets that were reported before
 * the change took effect. The result is written to the caller's memory. So the result is complete even if an
 * exception interrupts the caller before it has received a return value. */
#include "internal.h"

static int call_as(bool own, int device, int function, aclError (*call)(int32_t)) {
    aio_thread *self = aio_self();
    bool outer = self->own_reset;
    aio_frame frame;
    if (!aio_present[function]) {
        return AIO_ABSENT;
    }
    self->own_reset = own;
    aio_free_begin(&frame, function);
    int code = call(device);
    aio_free_end(&frame, code);
    self->own_reset = outer;
    return code;
}

static void change(int device, int function, aclError (*call)(int32_t), aio_counted *made) {
    made->foreign_resets = aio_device_foreign(device);
    made->code = call_as(true, device, function, call);
}

int aio_set_for_other_code(int device) {
    return call_as(false, device, AIO_FN_aclrtSetDevice, aio_acl.aclrtSetDevice);
}

/* Whether the device is set. Also true if the runtime cannot report whether it is set. */
static bool is_set(int device) {
    int32_t active = 0;
    aio_frame frame;
    if (!aio_present[AIO_FN_aclrtGetPrimaryCtxState]) {
        return true;
    }
    aio_free_begin(&frame, AIO_FN_aclrtGetPrimaryCtxState);
    int code = aio_acl.aclrtGetPrimaryCtxState(device, NULL, &active); /* the flags must be NULL */
    aio_free_end(&frame, code);
    return code != 0 || active != 0;
}

/* Reads the count of foreign resets right after the call. A foreign reset that is reported later came after the
 * call. */
void aio_count_set(int device, aio_counted *made) {
    change(device, AIO_FN_aclrtSetDevice, aio_acl.aclrtSetDevice, made);
    uint32_t now = aio_device_foreign(device);
    if (made->code == 0 && now != made->foreign_resets && is_set(device)) {
        made->foreign_resets = now;
    }
    made->returned = 1;
}

void aio_count_reset(int device, int force, aio_counted *made) {
    if (force) {
        change(device, AIO_FN_aclrtResetDeviceForce, aio_acl.aclrtResetDeviceForce, made);
    } else {
        change(device, AIO_FN_aclrtResetDevice, aio_acl.aclrtResetDevice, made);
    }
    made->returned = 1;
}
