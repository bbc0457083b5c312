/*
 * A port delivers completions to one event loop or one plain thread. It has a list to which any thread may
 * push, and an eventfd. The eventfd is written only if the list was empty.
 *
 * The consumer must read the eventfd before it takes the list. In the other order, if a completion is pushed in
 * between, its wake-up is lost. The port exists until its owner has closed it and its last wait has been
 * published. If the descriptor were closed earlier, a late completion could write to another file with the same
 * descriptor number.
 *
 * The port of a batcher may have two consumers, which take turns: an event loop and a thread (aio_port_wait).
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

aio_port *aio_port_new(void) {
    aio_port *port = atomic_load(&aio_in_child) ? NULL : calloc(1, sizeof *port);
    if (!port) {
        return NULL;
    }
    aio_watch_forks(); /* a child would share the eventfd */
    port->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    atomic_init(&port->references, 1);
    if (port->fd >= 0) {
        return port;
    }
    free(port);
    return NULL;
}

aio_port *aio_port_quiet(void) {
    aio_port *port = atomic_load(&aio_in_child) ? NULL : calloc(1, sizeof *port);
    if (port) {
        port->fd = -1;
        atomic_init(&port->references, 1);
    }
    return port;
}

int aio_port_fd(const aio_port *port) {
    return port->fd;
}

static void free_list(aio_token *token) {
    while (token) {
        aio_token *next = token->next;
        free(token);
        token = next;
    }
}

static void unref(aio_port *port) {
    if (atomic_fetch_sub(&port->references, 1) != 1) {
        return;
    }
    free_list(atomic_load(&port->list));
    free_list(port->ready);
    if (port->fd >= 0) {
        close(port->fd);
    }
    free(port);
}

aio_token *aio_token_new(aio_port *port, uint64_t key) {
    aio_token *token = calloc(1, sizeof *token);
    if (!token) {
        return NULL;
    }
    atomic_fetch_add(&port->references, 1);
    token->port = port;
    token->key = key;
    return token;
}

static void note_end(const aio_token *token, aio_result result) {
    const aio_stream *stream = token->stream;
    int64_t now_ns = aio_now_ns();
    aio_flight_note_at(now_ns, AIO_FLIGHT_WAIT_ENDS, stream->device, aio_flight_entry(stream, token->position),
                       result < 0 ? aio_code(result) : 0, (uint64_t)(now_ns / 1000 - token->born_us));
}

/* Returns whether the list was empty. The consumer owns the token afterwards. This thread still has the token's
 * reference to the port, so the port exists during a ring. */
static bool push(aio_token *token, aio_result result) {
    aio_port *port = token->port;
    aio_stream *stream = token->stream;
    aio_token *first = atomic_load_explicit(&port->list, memory_order_relaxed);
    token->result = result;
    aio_count_end(token, result);
    if (stream) {
        atomic_fetch_sub(&aio_devices[stream->device].waits, 1);
        note_end(token, result);
    }
    do {
        token->next = first;
    } while (!atomic_compare_exchange_weak(&port->list, &first, token));
    if (stream) {
        aio_stream_unhold(stream);
    }
    return !first;
}

static bool was_held(aio_port *port) {
    return atomic_load(&port->held) && atomic_exchange(&port->held, false);
}

/* If nothing has rung for an earlier completion in the list, this ring is for both. */
void aio_publish(aio_token *token, aio_result result) {
    aio_port *port = token->port;
    if (push(token, result) || was_held(port)) {
        aio_port_ring(port);
    }
    unref(port);
}

aio_port *aio_publish_held(aio_token *token, aio_result result) {
    aio_port *port = token->port;
    push(token, result);
    atomic_store(&port->held, true); /* the last step: a thread that clears it rings for this completion */
    return port;
}

void aio_port_ring_held(aio_port *port) {
    if (was_held(port)) {
        aio_port_ring(port);
    }
    unref(port);
}

int aio_token_take(aio_port *port, uint64_t key, aio_token **token) {
    if (!port) {
        return AIO_NOT_OPEN;
    }
    *token = aio_token_new(port, key);
    return *token ? 0 : AIO_NO_MEMORY;
}

/* Two threads may end a wait at the same time, and only one of them gets the token. */
static aio_token *claim(aio_token **token) {
    return __atomic_exchange_n(token, NULL, __ATOMIC_ACQ_REL);
}

/* In a forked child, the port belongs to the parent. */
static aio_token *claim_to_publish(aio_token **token) {
    return atomic_load(&aio_in_child) ? NULL : claim(token);
}

void aio_token_post(aio_token **token, int64_t result) {
    aio_token *claimed = claim_to_publish(token);
    if (claimed) {
        aio_publish(claimed, result);
    }
}

void aio_token_give_up(aio_token **token) {
    aio_token *claimed = claim_to_publish(token);
    if (claimed) {
        aio_count_drop(claimed);
        claimed->counted = false;
        aio_publish(claimed, aio_failed(AIO_STALE));
    }
}

void aio_token_drop(aio_token **token) {
    aio_token *claimed = claim(token);
    if (claimed) {
        aio_count_drop(claimed);
        unref(claimed->port);
        free(claimed);
    }
}

aio_token *aio_tokens_reverse(aio_token *token) {
    aio_token *first = NULL;
    while (token) {
        aio_token *next = token->next;
        token->next = first;
        first = token;
        token = next;
    }
    return first;
}

/* Clears the descriptor and takes the list. */
static void refresh(aio_port *port) {
    uint64_t ignored;
    if (port->fd >= 0 && read(port->fd, &ignored, sizeof ignored) < 0) {
        return; /* the eventfd was not written; a thread that has pushed to the list is about to write it */
    }
    port->ready = aio_tokens_reverse(atomic_exchange(&port->list, NULL));
}

/* While `ready` is not empty, the descriptor is readable. */
int aio_port_take(aio_port *port, uint64_t *keys, int64_t *results, int max) {
    int taken = 0;
    if (atomic_load(&aio_in_child)) {
        return 0;
    }
    bool readable = port->ready != NULL;
    if (!readable) {
        refresh(port);
    }
    while (port->ready && taken < max) {
        aio_token *token = port->ready;
        keys[taken] = token->key;
        results[taken++] = token->result;
        port->ready = token->next;
        free(token);
    }
    if (!port->ready && readable) {
        refresh(port);
        readable = false;
    }
    if (port->ready && !readable) {
        aio_port_ring(port);
    }
    if (taken && port->fd >= 0) {
        atomic_fetch_add_explicit(&port->takes, 1, memory_order_relaxed);
        aio_flight_note(AIO_FLIGHT_WAKE, AIO_FLIGHT_NO_DEVICE, 0, 0, (uint64_t)taken);
    }
    return taken;
}

int aio_port_fill(aio_port *port, aio_batch *batch) {
    int count = batch->count;
    batch->count += aio_port_take(port, batch->keys + count, batch->results + count, AIO_BATCH - count);
    return batch->count;
}

/* If this thread asked for the GIL at once, each callback of the loop would wake it when it releases the GIL,
 * and would usually take the GIL again first. The limit is the time for which Python lets a thread wait for the
 * GIL before it asks the owner. A busy loop has often something new to take at the end of the limit: as long as
 * it takes, this thread leaves it alone. */
static bool loop_takes(aio_port *port) {
    unsigned seen = atomic_load(&port->takes);
    if (!atomic_load(&port->shared)) {
        return false;
    }
    nanosleep(&(struct timespec){.tv_nsec = AIO_SHARED_US * 1000L}, NULL);
    return atomic_load(&port->takes) != seen;
}

void aio_port_wait(aio_port *port) {
    struct pollfd readable = {.fd = port->fd, .events = POLLIN};
    do {
        poll(&readable, 1, -1);
    } while (loop_takes(port) || poll(&readable, 1, 0) <= 0);
}

void aio_port_share(aio_port *port, int shared) {
    atomic_store(&port->shared, shared);
}

void aio_port_close(aio_port *port) {
    unref(port);
}
