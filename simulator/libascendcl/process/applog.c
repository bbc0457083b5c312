/* Log messages of programs. The runtime writes them to its log files. The simulator has no log files. It prints
 * the messages if ASCEND_SLOG_PRINT_TO_STDOUT=1, and drops them otherwise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base.h"

enum { MESSAGE_BYTES = 1024, LEVEL_DEFAULT = ACL_ERROR };

static const char *const levels[] = {"DEBUG", "INFO", "WARNING", "ERROR"};

static bool wanted(aclLogLevel level) {
    const char *print = getenv("ASCEND_SLOG_PRINT_TO_STDOUT");
    const char *least = getenv("ASCEND_GLOBAL_LOG_LEVEL");
    bool single = least != NULL && least[0] >= '0' && least[0] <= '4' && least[1] == '\0';
    int from = single ? least[0] - '0' : LEVEL_DEFAULT;
    return print != NULL && strcmp(print, "1") == 0 && (unsigned int)level <= ACL_ERROR && (int)level >= from;
}

static const char *text_or(const char *text, const char *none) {
    return text != NULL ? text : none;
}

void do_aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line, const char *fmt,
                  va_list values) {
    static const char cut[] = "...";
    char message[MESSAGE_BYTES] = "";
    if (fmt == NULL || !wanted(logLevel)) {
        return;
    }
    if (vsnprintf(message, sizeof message, fmt, values) >= (int)sizeof message) {
        memcpy(message + sizeof message - sizeof cut, cut, sizeof cut);
    }
    printf("[%s] APP(%d): [%s:%u]%s: %s\n", levels[logLevel], (int)getpid(), text_or(file, ""), line,
           text_or(func, ""), message);
    fflush(stdout);
}
