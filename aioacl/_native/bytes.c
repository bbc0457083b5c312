/*
 * The copy of a download from staging memory to its target.
 *
 * Before a usual store to memory that is not in a cache, the processor reads the line that will be overwritten.
 * Stores that bypass the caches need no such read if they fill whole lines one after another. So a large copy
 * takes less time, and it does not push the staging memory out of the caches. A small target is probably read
 * soon, and is brought into a cache.
 *
 * Sanitizers do not check stores that bypass the caches, so builds with sanitizers use memcpy.
 */
#include <string.h>

#include "internal.h"

#if defined(__has_feature)
#define AIO_FEATURE(feature) __has_feature(feature)
#else
#define AIO_FEATURE(feature) 0
#endif

#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&                    \
    !AIO_FEATURE(address_sanitizer) && !AIO_FEATURE(memory_sanitizer) && !AIO_FEATURE(thread_sanitizer)
#include <emmintrin.h>

enum { LARGE = 256 * 1024, LINE = 64 };

static void copy_line(__m128i *to, const __m128i *from) {
    __m128i first = _mm_loadu_si128(from), second = _mm_loadu_si128(from + 1);
    __m128i third = _mm_loadu_si128(from + 2), fourth = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, first);
    _mm_stream_si128(to + 1, second);
    _mm_stream_si128(to + 2, third);
    _mm_stream_si128(to + 3, fourth);
}

/* Copies whole lines to a target that begins with a line. Returns the number of bytes that it has copied. */
static size_t copy_lines(char *to, const char *from, size_t size) {
    size_t done = 0;
    for (; size - done >= LINE; done += LINE) {
        copy_line((__m128i *)(void *)(to + done), (const __m128i *)(const void *)(from + done));
    }
    _mm_sfence(); /* other threads see these bytes before all that this thread stores later */
    return done;
}

void aio_copy_bytes(void *target, const void *source, size_t size) {
    char *to = target;
    const char *from = source;
    size_t done = 0;
    if (size >= LARGE) {
        done = (LINE - (uintptr_t)to % LINE) % LINE;
        memcpy(to, from, done);
        done += copy_lines(to + done, from + done, size - done);
    }
    memcpy(to + done, from + done, size - done);
}
#else
void aio_copy_bytes(void *target, const void *source, size_t size) {
    memcpy(target, source, size);
}
#endif
