/* CANN 8.1. Callbacks: one thread processes the reports of two streams, in the order of each stream. */
#include <pthread.h>
#include <stdatomic.h>

#include "acl/acl.h"
#include "check.h"

enum { EACH = 20, PATIENCE_MS = 100 };

typedef struct {
    int stream;
    int number;
} note_t;

static note_t notes[2][EACH];
static int seen[2];
static atomic_bool ending;
static pthread_t reporter;

static void on_report(void *data) {
    const note_t *note = data;
    EXPECT(pthread_equal(pthread_self(), reporter));
    EXPECT(note->number == seen[note->stream]);
    seen[note->stream]++;
}

static void *process(void *context) {
    WELL(aclrtSetCurrentContext(context));
    while (!atomic_load(&ending)) {
        (void)aclrtProcessReport(PATIENCE_MS); /* returns a code if there was no report */
    }
    return NULL;
}

static void launch(aclrtStream streams[2]) {
    for (int number = 0; number < EACH; number++) {
        for (int i = 0; i < 2; i++) {
            notes[i][number] = (note_t){i, number};
            WELL(aclrtLaunchCallback(on_report, &notes[i][number], ACL_CALLBACK_BLOCK, streams[i]));
        }
    }
}

int main(void) {
    aclrtContext context;
    aclrtStream streams[2];
    WELL(aclInit(NULL));
    WELL(aclrtSetDevice(0));
    WELL(aclrtGetCurrentContext(&context));
    EXPECT(pthread_create(&reporter, NULL, process, context) == 0);
    for (int i = 0; i < 2; i++) {
        WELL(aclrtCreateStream(&streams[i]));
        WELL(aclrtSubscribeReport((uint64_t)reporter, streams[i]));
    }
    launch(streams);
    for (int i = 0; i < 2; i++) {
        WELL(aclrtSynchronizeStream(streams[i]));
        EXPECT(seen[i] == EACH);
        WELL(aclrtUnSubscribeReport((uint64_t)reporter, streams[i]));
    }
    atomic_store(&ending, true);
    EXPECT(pthread_join(reporter, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        WELL(aclrtDestroyStream(streams[i]));
    }
    WELL(aclrtResetDevice(0));
    WELL(aclFinalize());
    return 0;
}
