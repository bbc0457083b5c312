/*
 * Links: entries that wait for an event of another stream.
 *
 * A failure is copied along the links, also to streams of other devices, before any caller gets the answer that
 * the work after the links is complete. A link is freed when its entry is complete and known to have succeeded.
 * A link holds a reference to the engine's record of the other stream (the source), but the source's native
 * stream can be destroyed.
 */
#include <stdlib.h>

#include "internal.h"

enum { SHORTEST_LIMIT_US = 1000000, PATH_PIECE = 16 };

static bool is_gone(const aio_stream *source) {
    uint64_t word = aio_gate_word(source->device);
    return aio_word_generation(word) != source->generation || aio_word_state(word) == AIO_CLOSED;
}

/* Returns a code if an abort has dropped the position, or if a reset has dropped it before it was confirmed.
 * Else returns 0. */
static int32_t dropped_by(aio_stream *source, uint64_t at) {
    if (aio_stream_was_aborted(source, at)) {
        return RT_STREAM_ABORT;
    }
    return is_gone(source) && atomic_load(&source->confirmed) < at ? AIO_WAS_RESET : 0;
}

static bool lose(aio_stream *stream, const aio_link *link, int32_t code) {
    aio_failure *failure = aio_failure_new(link->source, link->at, code);
    bool changed = aio_failure_spoil(stream, &stream->inherited, link->position, failure);
    aio_failure_strand(stream, link->position);
    aio_failure_drop(failure);
    return changed;
}

/* Copies the source's failure again if it has changed. Reports may come in another order than the work. So the
 * source's record may have changed to an earlier failure since it was copied along this link. */
static bool follow(aio_stream *stream, const aio_link *link, aio_failure *failure) {
    aio_spot *copied = &stream->inherited;
    if (copied->from != link->position || copied->failure == failure) {
        return false;
    }
    failure->references++;
    aio_failure_drop(copied->failure);
    copied->failure = failure;
    return true;
}

static bool inherit(aio_stream *stream, const aio_link *link) {
    aio_stream *source = link->source;
    if (!source) {
        return false;
    }
    const aio_spot *spot = aio_failure_spot(source, link->at);
    int32_t code = dropped_by(source, link->at);
    if (code == AIO_WAS_RESET && is_gone(stream)) {
        return false; /* this stream was reset too, so all its work is stale */
    }
    if (code && !spot) {
        return lose(stream, link, code);
    }
    if (code || atomic_load(&source->stranded) <= link->at) {
        aio_failure_strand(stream, link->position);
    }
    return spot && (aio_failure_spoil(stream, &stream->inherited, link->position, spot->failure) ||
                    follow(stream, link, spot->failure));
}

static bool inherit_all(aio_stream *stream) {
    bool changed = false;
    for (const aio_link *link = atomic_load(&stream->links); link; link = link->next) {
        changed = inherit(stream, link) || changed;
    }
    return changed;
}

/* The loop ends, even if links form a cycle. An error record changes only to an earlier position, or to the
 * failure of a source's work, which was enqueued earlier. */
void aio_failures_propagate(void) {
    bool changed = true;
    while (changed) {
        changed = false;
        for (int device = 0; device < AIO_DEVICES; device++) {
            for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
                changed = inherit_all(stream) || changed;
            }
        }
    }
}

int aio_link_add(aio_stream *stream, aio_stream *source, uint64_t at) {
    aio_link *link = calloc(1, sizeof *link);
    if (!link) {
        return AIO_NO_MEMORY;
    }
    *link = (aio_link){.source = source, .at = at, .since_us = aio_now_us()};
    link->position = atomic_load(&stream->tail) + 1;
    if (source) {
        aio_stream_hold(source);
    }
    aio_failures_lock();
    if (stream->newest_link) {
        stream->newest_link->next = link;
    } else {
        atomic_store(&stream->links, link);
    }
    stream->newest_link = link;
    aio_failures_unlock();
    return 0;
}

bool aio_links_are_open(aio_stream *stream) {
    if (!atomic_load(&stream->links)) {
        return false;
    }
    aio_failures_lock();
    const aio_link *first = atomic_load(&stream->links);
    while (first && !first->source) { /* a link of aio_stream_doubt() */
        first = first->next;
    }
    bool open = first && !aio_failure_spot(stream, first->position);
    aio_failures_unlock();
    return open;
}

void aio_links_release(aio_stream *stream) {
    aio_failures_lock();
    aio_link *links = atomic_exchange(&stream->links, NULL);
    stream->newest_link = NULL;
    aio_failures_unlock();
    aio_links_free(links);
}

/* With the lock held: removes the links of the entries (from, to], and returns them. */
static aio_link *cut_out(aio_stream *stream, uint64_t from, uint64_t to) {
    aio_link *kept = NULL, **kept_end = &kept, *out = NULL, **out_end = &out;
    stream->newest_link = NULL;
    for (aio_link *link = atomic_load(&stream->links); link; link = link->next) {
        bool cut = link->position > from && link->position <= to;
        *(cut ? out_end : kept_end) = link;
        if (cut) {
            out_end = &link->next;
        } else {
            kept_end = &(stream->newest_link = link)->next;
        }
    }
    *kept_end = *out_end = NULL;
    atomic_store(&stream->links, kept);
    return out;
}

void aio_links_cut(aio_stream *stream, uint64_t from, uint64_t to) {
    aio_failures_lock();
    aio_link *links = cut_out(stream, from, to);
    aio_failures_unlock();
    aio_links_free(links);
}

/* Removes the link of an entry that was not enqueued. A reset may have removed the link already. */
void aio_link_remove(aio_stream *stream) {
    aio_links_cut(stream, atomic_load(&stream->tail), UINT64_MAX);
}

/* Called after aclrtStreamWaitEvent, because the source may have failed between the check and the call. */
void aio_link_check(aio_stream *stream) {
    aio_failures_lock();
    if (stream->newest_link && inherit(stream, stream->newest_link)) {
        aio_failures_propagate();
    }
    aio_failures_unlock();
}

static bool source_is_confirmed(const aio_stream *stream, const aio_link *link) {
    return !link->source || link->source == stream || atomic_load(&link->source->confirmed) >= link->at;
}

static bool cannot_have_timed_out(const aio_stream *stream, const aio_link *link) {
    return stream->borrowed || atomic_load(&stream->synced) >= link->position ||
           (link->source && link->done_us && link->done_us - link->since_us < SHORTEST_LIMIT_US);
}

static bool is_settled(const aio_stream *stream, const aio_link *link, uint64_t finished) {
    return link->position <= finished && source_is_confirmed(stream, link) &&
           cannot_have_timed_out(stream, link);
}

/* Removes the links that are no longer needed, and returns them. The caller frees them without the lock. */
static aio_link *take_settled(aio_stream *stream, uint64_t finished) {
    aio_link *first = atomic_load(&stream->links), **end = &first, *link = first;
    while (link && is_settled(stream, link, finished)) {
        end = &link->next;
        link = link->next;
    }
    atomic_store(&stream->links, link);
    if (!link) {
        stream->newest_link = NULL;
    }
    *end = NULL;
    return first;
}

static void stamp(aio_stream *stream, uint64_t finished) {
    int64_t now = aio_now_us();
    for (aio_link *link = atomic_load(&stream->links); link && link->position <= finished; link = link->next) {
        if (!link->done_us) {
            link->done_us = now;
        }
    }
}

static uint64_t least(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

void aio_stream_confirm(aio_stream *stream, uint64_t finished) {
    bool exact = aio_stream_is_exact(stream);
    if (exact && !atomic_load(&stream->links)) {
        aio_atomic_max(&stream->confirmed, finished);
        return;
    }
    aio_failures_lock();
    stamp(stream, finished);
    aio_link *settled = take_settled(stream, finished);
    const aio_link *first = atomic_load(&stream->links);
    uint64_t limit = first ? least(finished, first->position - 1) : finished;
    aio_atomic_max(&stream->confirmed, exact ? limit : least(limit, atomic_load(&stream->synced)));
    aio_failures_unlock();
    aio_links_free(settled);
}

/* True if only a synchronize can confirm the position. */
bool aio_stream_needs_sync(aio_stream *stream) {
    uint64_t finished = atomic_load(&stream->finished);
    if (!aio_stream_is_exact(stream)) {
        return atomic_load(&stream->synced) < finished;
    }
    if (!atomic_load(&stream->links)) {
        return false;
    }
    aio_failures_lock();
    const aio_link *link = atomic_load(&stream->links);
    while (link && link->position <= finished && cannot_have_timed_out(stream, link)) {
        link = link->next;
    }
    bool needs = link && link->position <= finished;
    aio_failures_unlock();
    return needs;
}

/* Returns a new reference to the first stream that must be confirmed before this position can be confirmed, or
 * NULL. *at is the position up to which the returned stream must be confirmed. */
static aio_stream *blocker(aio_stream *stream, uint64_t position, uint64_t *at) {
    aio_stream *source = NULL;
    uint64_t last = least(position, atomic_load(&stream->finished));
    if (!atomic_load(&stream->links)) {
        return NULL;
    }
    aio_failures_lock();
    for (const aio_link *link = atomic_load(&stream->links); link && !source; link = link->next) {
        if (link->position > last || source_is_confirmed(stream, link)) {
            continue;
        }
        source = link->source;
        *at = link->at;
    }
    if (source) {
        aio_stream_hold(source);
    }
    aio_failures_unlock();
    return source;
}

/* A step of the path: a stream, and the position up to which it is to be confirmed. */
typedef struct {
    aio_stream *stream;
    uint64_t at;
} step;

static bool push(step **path, size_t *length, step next) {
    if (*length % PATH_PIECE == 0) {
        step *grown = realloc(*path, (*length + PATH_PIECE) * sizeof *grown);
        if (!grown) {
            return false;
        }
        *path = grown;
    }
    (*path)[(*length)++] = next;
    return true;
}

/*
 * The loop ends, even if streams repeatedly wait for each other. Each step leads to work that was enqueued
 * earlier, because an event is recorded before a wait for it. Such streams make long paths, so this is a loop,
 * not a recursion.
 */
void aio_links_follow(aio_stream *stream, uint64_t position, aio_confirm confirm, bool aside) {
    step *path = NULL, here = {stream, position}, next;
    size_t length = 0;
    bool confirmed = true;
    do {
        while ((next.stream = blocker(here.stream, here.at, &next.at))) {
            if (!push(&path, &length, next)) {
                aio_stream_unhold(next.stream);
                break;
            }
            here = next;
        }
        if (length == 0) {
            break;
        }
        confirm(here.stream, here.at, aside);
        confirmed = atomic_load(&here.stream->confirmed) >= here.at;
        aio_stream_unhold(here.stream);
        length--;
        here = length ? path[length - 1] : (step){stream, position};
    } while (confirmed);
    while (length) {
        aio_stream_unhold(path[--length].stream);
    }
    free(path);
}

static bool is_too_young(const aio_link *link) {
    return link->source && aio_now_us() - link->since_us < SHORTEST_LIMIT_US;
}

/* Returns the position of the first wait that may have timed out, or 0. If the callback reports all other
 * failures, and a code belongs to no reported task, it is the code of such a wait. */
uint64_t aio_link_suspect(const aio_stream *stream, uint64_t to) {
    for (const aio_link *link = atomic_load(&stream->links); link && link->position <= to; link = link->next) {
        if (!cannot_have_timed_out(stream, link) && !is_too_young(link)) {
            return link->position;
        }
    }
    return 0;
}

/* With the lock held: if the stream was reset, removes its links, and returns them together with `others`. The
 * caller frees the links, because links that form a cycle would keep their streams alive for ever. */
static aio_link *take_links(aio_stream *stream, aio_link *others) {
    aio_link *first = atomic_load(&stream->links), *last = first;
    if (!first || !is_gone(stream)) {
        return others;
    }
    while (last->next) {
        last = last->next;
    }
    last->next = others;
    atomic_store(&stream->links, NULL);
    stream->newest_link = NULL;
    return first;
}

/* Records the failure of all work, on all devices, that depends on work which the reset has dropped. */
void aio_failures_after_reset(void) {
    aio_link *links = NULL;
    aio_failures_lock();
    aio_failures_propagate();
    for (int device = 0; device < AIO_DEVICES; device++) {
        for (aio_stream *stream = NULL; (stream = aio_device_next(device, stream));) {
            links = take_links(stream, links);
        }
    }
    aio_failures_unlock();
    aio_links_free(links);
}
