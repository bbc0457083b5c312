/*
 * An exit handler that runs when a runtime's destructors would run. The simulator has no destructors.
 *
 * This library is loaded before the ACL library. Exit handlers run in the reverse order of their registration.
 * So this handler runs after the handler that aioacl registers when it has loaded the ACL library. The
 * destructors of a real ACL library would also run after that handler. The handler reads from the simulator how
 * many calls are inside, sleeps, reads how many calls were made since, and prints both in one line. If a thread
 * is stuck in a call, the process ends at once, and the handler never runs.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "aclsim.h"

typedef void (*read_stats)(aclsim_stats_t *);

static void look(void) {
    const struct timespec nap = {0, 20000000};
    aclsim_stats_t first = {0}, then = {0};
    char line[120];
    const char *path = getenv("TEST_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    read_stats stats = library != NULL ? (read_stats)(uintptr_t)dlsym(library, "aclsim_stats") : NULL;
    if (stats == NULL) {
        return; /* the simulator was not loaded, so there are no calls to check */
    }
    stats(&first);
    nanosleep(&nap, NULL);
    stats(&then);
    int length = snprintf(line, sizeof line,
                          "destructors: %" PRIu64 " inside, %" PRIu64 " called, %" PRIu64 " violations\n",
                          first.inside, then.calls - first.calls, then.violations);
    if (write(STDOUT_FILENO, line, (size_t)length) != length) {
        _exit(1);
    }
}

__attribute__((constructor)) static void register_it(void) {
    atexit(look);
}
