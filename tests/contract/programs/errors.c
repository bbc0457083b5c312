/* CANN 8.1. Errors: codes, a thread's last error, the error text, which can be read once, and errors of set and
 * reset. */
#include <string.h>

#include "acl/acl.h"
#include "check.h"

enum { NULL_ARGUMENT = 100000, BAD_DEVICE = 107001, NO_CONTEXT = 107002, RELEASED = 507007 };

static void text_once(void) {
    const char *text = aclGetRecentErrMsg();
    EXPECT(text != NULL && strlen(text) > 20);
    EXPECT(aclGetRecentErrMsg() == NULL);
}

static void rules_of_counts(void) {
    ANSWERS(aclrtResetDeviceForce(1), RELEASED);
    WELL(aclrtSetDevice(1));
    WELL(aclrtSetDevice(1));
    WELL(aclrtResetDevice(1));
    WELL(aclrtResetDeviceForce(1));
    ANSWERS(aclrtResetDevice(1), RELEASED);
}

int main(void) {
    aclrtStream stream;
    int32_t device;
    ANSWERS(aclrtCreateStream(&stream), NO_CONTEXT);
    WELL(aclInit(NULL));
    ANSWERS(aclrtSetDevice(1000), BAD_DEVICE);
    ANSWERS(aclrtGetLastError(ACL_RT_THREAD_LEVEL), BAD_DEVICE);
    WELL(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL));
    ANSWERS(aclrtGetDevice(&device), NO_CONTEXT);
    rules_of_counts();
    WELL(aclrtSetDevice(0));
    (void)aclGetRecentErrMsg();
    ANSWERS(aclrtMalloc(NULL, 8, ACL_MEM_MALLOC_HUGE_FIRST), NULL_ARGUMENT);
    text_once();
    ANSWERS(aclrtSetDevice(-1), BAD_DEVICE);
    text_once();
    WELL(aclrtResetDevice(0));
    WELL(aclFinalize());
    return 0;
}
