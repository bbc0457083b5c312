/* The trace file. Every call is written to it as in the journal, one JSON object per line. Every injected fault
 * is written too. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"

int trace_file = -1;

int lines_open(const char *variable) {
    const char *path = secure_getenv(variable);
    if (path == NULL) {
        return -1;
    }
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) {
        const char *why = errno == ELOOP ? "expected a file, got a symbolic link" : strerror(errno);
        fprintf(stderr, "aclsim: %s=%s: %s\n", variable, path, why);
        abort();
    }
    return file;
}

/* Writes each line with one write(), so that the lines of different threads and processes do not mix. Errors
 * other than EINTR are ignored, because a full disk must not end the test. */
void lines_write(int file, const char *text, size_t length) {
    while (write(file, text, length) < 0 && errno == EINTR) {
    }
}

void trace_read_environment(void) {
    trace_file = lines_open("AIOACL_SIM_TRACE");
}

void trace_write(const char *text, size_t length) {
    lines_write(trace_file, text, length);
}
