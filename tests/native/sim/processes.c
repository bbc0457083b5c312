/* A process cannot import an object that another process has exported, because the simulator shares nothing
 * between processes. The error texts contain this reason. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim_test.h"

enum { KEY = 65, OPEN_FOR_ALL = 1, FOR_PROCESSES = 0x40, GRAIN = 2 << 20 };

aclError aclrtIpcOpenEventHandle(aclrtIpcEventHandle handle, aclrtEvent *event);

typedef struct {
    char memory[KEY];
    char notify[KEY];
    aclrtIpcEventHandle event;
    uint64_t physical;
} exports_t;

/* Each export is the first of its kind in its process. */
static void export_all(exports_t *made) {
    aclrtDrvMemHandle physical = NULL;
    aclrtPhysicalMemProp prop;
    memset(made, 0, sizeof *made);
    memset(&prop, 0, sizeof prop);
    prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    prop.memAttr = ACL_HBM_MEM_HUGE;
    aclsim_set_ipc_event_supported(1);
    void *block = new_block(64);
    CHECK_RC(aclrtIpcMemGetExportKey(block, 64, made->memory, KEY, OPEN_FOR_ALL), 0);
    aclrtNotify notify = new_notify();
    CHECK_RC(aclrtNotifyGetExportKey(notify, made->notify, KEY, 0), 0);
    aclrtEvent event = new_event(FOR_PROCESSES);
    CHECK_RC(aclrtIpcGetEventHandle(event, &made->event), 0);
    CHECK_RC(aclrtMallocPhysical(&physical, GRAIN, &prop, 0), 0);
    CHECK_RC(aclrtMemExportToShareableHandle(physical, ACL_MEM_HANDLE_TYPE_NONE, OPEN_FOR_ALL, &made->physical),
             0);
}

/* The other process runs until the pipe is closed. */
static void export_and_wait(int results, int end) {
    exports_t made;
    char none = 0;
    CHECK_RC(aclrtSetDevice(0), 0);
    export_all(&made);
    CHECK(write(results, &made, sizeof made) == sizeof made);
    CHECK(read(end, &none, 1) == 0);
    _exit(0);
}

static void refused_because(aclError rc, aclError want, const char *what) {
    const char *text = aclGetRecentErrMsg();
    CHECK_RC(rc, want);
    CHECK(text != NULL && strstr(text, "this simulator shares nothing between processes") != NULL);
    CHECK(strstr(text, what) != NULL);
}

static void refuse_all(const exports_t *theirs) {
    void *block = NULL;
    aclrtNotify notify = NULL;
    aclrtEvent event = NULL;
    aclrtDrvMemHandle physical = NULL;
    int32_t self = getpid();
    aclsim_set_ipc_event_supported(1);
    refused_because(aclrtIpcMemImportByKey(&block, theirs->memory, 0), 507899,
                    "key: it does not belong to a live export of this process");
    refused_because(aclrtIpcMemSetImportPid(theirs->memory, &self, 1), 507899,
                    "key: it does not belong to a live export of this process");
    refused_because(aclrtIpcMemClose(theirs->memory), 507899,
                    "key: it does not belong to a live export of this process");
    refused_because(aclrtNotifyImportByKey(&notify, theirs->notify, 0), 107000,
                    "key: it does not belong to a live notify of this process");
    refused_because(aclrtMemImportFromShareableHandle(theirs->physical, 0, &physical), 507899,
                    "shareableHandle: it does not belong to live memory of this process");
    refused_because(aclrtIpcOpenEventHandle(theirs->event, &event), 507899,
                    "handle: it does not belong to a live event of this process");
    aclsim_set_ipc_event_supported(0);
    refused_because(aclrtIpcOpenEventHandle(theirs->event, &event), 207000, "events of other processes");
}

int main(void) {
    int results[2];
    int end[2];
    exports_t theirs;
    exports_t own;
    int status = -1;
    CHECK(pipe(results) == 0 && pipe(end) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(end[1]);
        export_and_wait(results[1], end[0]);
    }
    CHECK(read(results[0], &theirs, sizeof theirs) == sizeof theirs);
    CHECK_RC(aclrtSetDevice(0), 0);
    refuse_all(&theirs);
    export_all(&own);
    refuse_all(&theirs);
    CHECK(own.physical != theirs.physical);
    close(end[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_RC(aclrtResetDeviceForce(0), 0);
}
