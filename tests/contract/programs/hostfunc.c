/* CANN 8.5. Host functions run between the tasks of a stream, and see the results of earlier tasks. */
#include <string.h>

#include "acl/acl.h"
#include "check.h"

enum { SIZE = 256, ROUNDS = 10 };

static unsigned char *pinned;
static int rounds;

static void look(void *argument) {
    for (int i = 0; i < SIZE; i++) {
        EXPECT(pinned[i] == *(const unsigned char *)argument);
    }
    rounds++;
}

int main(void) {
    aclrtStream stream;
    unsigned char values[ROUNDS];
    WELL(aclInit(NULL));
    WELL(aclrtSetDevice(0));
    WELL(aclrtCreateStream(&stream));
    WELL(aclrtMallocHost((void **)&pinned, SIZE));
    memset(pinned, 0xee, SIZE);
    for (int i = 0; i < ROUNDS; i++) {
        values[i] = (unsigned char)i;
        WELL(aclrtMemsetAsync(pinned, SIZE, i, SIZE, stream));
        WELL(aclrtLaunchHostFunc(stream, look, &values[i]));
    }
    WELL(aclrtSynchronizeStream(stream));
    EXPECT(rounds == ROUNDS);
    WELL(aclrtFreeHost(pinned));
    WELL(aclrtDestroyStream(stream));
    WELL(aclrtResetDevice(0));
    WELL(aclFinalize());
    return 0;
}
