/* CANN master. This program can be linked only with a release that has the newest functions. */
#include "acl/acl.h"
#include "check.h"

extern aclError aclrtDeviceL2CacheFlush(void *rsv);

int main(void) {
    WELL(aclInit(NULL));
    WELL(aclrtSetDevice(0));
    aclError flushed = aclrtDeviceL2CacheFlush(NULL);
    EXPECT(flushed == 0 || flushed == FEATURE_NOT_SUPPORT);
    WELL(aclrtResetDevice(0));
    WELL(aclFinalize());
    return 0;
}
