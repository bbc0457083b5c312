/* The ids of a device: the client's number, the numbers of the driver and of the board (equal here), the PCI
 * address and the UUID. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { PCI_ID_BYTES = 13 };

/* A negative number has another code than a number that is too large. */
static aclError check(int32_t number, const int32_t *id) {
    if (id == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "output");
    }
    return number >= 0 ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "deviceId");
}

static aclError logical_of(int32_t user, int32_t *id) {
    aclError rc = check(user, id);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    if (device_find(user) == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    *id = sim.settings.logical_ids[user];
    return ACL_SUCCESS;
}

static aclError user_of(int32_t logical, int32_t *id) {
    aclError rc = check(logical, id);
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    for (int user = 0; user < sim.settings.devices; user++) {
        if (sim.settings.logical_ids[user] == logical) {
            *id = user;
            return ACL_SUCCESS;
        }
    }
    return error_set(RT_INVALID_DEVICE, "deviceId");
}

aclError do_aclrtGetLogicDevIdByUserDevId(const int32_t userDevid, int32_t *const logicDevId) {
    return logical_of(userDevid, logicDevId);
}

aclError do_aclrtGetUserDevIdByLogicDevId(const int32_t logicDevId, int32_t *const userDevid) {
    return user_of(logicDevId, userDevid);
}

/* In these two functions, the logical id is the client's number. */
aclError do_aclrtGetLogicDevIdByPhyDevId(const int32_t phyDevId, int32_t *const logicDevId) {
    return user_of(phyDevId, logicDevId);
}

aclError do_aclrtGetPhyDevIdByLogicDevId(const int32_t logicDevId, int32_t *const phyDevId) {
    return logical_of(logicDevId, phyDevId);
}

aclError do_aclrtGetUserDevIdByPhyDevId(const int32_t phyDevId, int32_t *const userDevId) {
    return user_of(phyDevId, userDevId);
}

aclError do_aclrtGetPhyDevIdByUserDevId(const int32_t userDevId, int32_t *const phyDevId) {
    return logical_of(userDevId, phyDevId);
}

/* A card has the same UUID in every process, whatever number the client sees for the card. */
aclError do_aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid *uuid) {
    static const char family[] = "aclsim-device-";
    REFUSE_NULL(uuid);
    if (device_find(deviceId) == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    int card = sim.settings.logical_ids[deviceId];
    memcpy(uuid->bytes, family, sizeof family - 1);
    uuid->bytes[14] = (char)('0' + card / 10);
    uuid->bytes[15] = (char)('0' + card % 10);
    return ACL_SUCCESS;
}

/* Card n is in slot 0 of bus n + 1. */
static void write_pci(int card, char *text) {
    snprintf(text, PCI_ID_BYTES, "0000:%02x:00.0", (unsigned int)(card + 1) & 0xffU);
}

aclError do_aclrtDeviceGetPCIBusId(int32_t deviceId, char *pciBusId, int32_t len) {
    REFUSE_NULL(pciBusId);
    if (device_find(deviceId) == NULL) {
        return error_set(RT_INVALID_DEVICE, "deviceId");
    }
    if (len < PCI_ID_BYTES) {
        return error_set(RT_PARAM_INVALID, "len");
    }
    write_pci(sim.settings.logical_ids[deviceId], pciBusId);
    return ACL_SUCCESS;
}

aclError do_aclrtDeviceGetByPCIBusId(const char *pciBusId, int32_t *deviceId) {
    char text[PCI_ID_BYTES];
    REFUSE_NULL(pciBusId);
    REFUSE_NULL(deviceId);
    for (int user = 0; user < sim.settings.devices; user++) {
        write_pci(sim.settings.logical_ids[user], text);
        if (strcmp(text, pciBusId) == 0) {
            *deviceId = user;
            return ACL_SUCCESS;
        }
    }
    return error_set(RT_INVALID_DEVICE, "pciBusId");
}
