/* Error texts that replace the real text: no text, a very long text, a text that is not UTF-8, or the previous
 * text. */
#include <string.h>

#include "sim.h"

enum { LONG_BYTES = 1 << 20 };

static char long_text[LONG_BYTES + 1];
static pthread_once_t long_once = PTHREAD_ONCE_INIT;

static void make_long(void) {
    static const char part[] = "EE9999: [PID: simulator] This text is much longer than a usual one.\n";
    for (size_t i = 0; i < LONG_BYTES; i++) {
        long_text[i] = part[i % (sizeof part - 1)];
    }
}

const char *fault_text(thread_t *thread, const char *text) {
    static const char not_utf8[] = "EE9999: \xff\xfe\x80 is not UTF-8, \xc3( neither\xed\xa0\x80.\n";
    int fault = thread->text_fault;
    thread->text_fault = TEXT_TRUE;
    switch (fault) {
    case TEXT_NULL:
        return NULL;
    case TEXT_LONG:
        pthread_once(&long_once, make_long);
        return long_text;
    case TEXT_NOT_UTF8:
        return not_utf8;
    default:
        return text;
    }
}
