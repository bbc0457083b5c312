/*
 * Chained buffers. A handle is one reference to a buffer. All references to a buffer share its data, length and
 * user data. Handles can be joined to a chain. The handle at the head represents the chain, and freeing the
 * head frees the whole chain.
 */
#include <stdlib.h>
#include <string.h>

#include "described.h"

static void shared_release(shared_buffer_t *shared) {
    if (--shared->refs == 0) {
        free(shared->data);
        free(shared);
    }
}

static shared_buffer_t *shared_new(size_t size) {
    shared_buffer_t *shared = calloc(1, sizeof *shared);
    char *data = shared != NULL ? aligned_alloc(64, (size + 63) / 64 * 64) : NULL;
    if (data == NULL) {
        free(shared);
        return NULL;
    }
    memset(data, 0, size);
    *shared = (shared_buffer_t){.refs = 1, .size = size, .data = data};
    return shared;
}

/* Takes ownership of the reference. */
static chained_t *chained_new(shared_buffer_t *shared) {
    chained_t *buffer = shared != NULL ? object_new(KIND_CHAINED_BUFFER) : NULL;
    if (buffer != NULL) {
        buffer->shared = shared;
        buffer->head = buffer;
    } else if (shared != NULL) {
        shared_release(shared);
    }
    return buffer;
}

aclError do_aclrtAllocBuf(aclrtMbuf *buf, size_t size) {
    if (buf == NULL || size == 0 || size > SIZE_MAX - 63) {
        return error_quiet(ACL_INVALID_PARAM, buf == NULL ? "buf" : "size");
    }
    SIM_GUARD();
    chained_t *made = chained_new(shared_new(size));
    if (made != NULL) {
        *buf = made;
    }
    return made != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "size");
}

static void chained_kill(chained_t *buffer) {
    shared_release(buffer->shared);
    object_kill(&buffer->object);
}

aclError do_aclrtFreeBuf(aclrtMbuf buf) {
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    chained_t *buffer = described_find(KIND_CHAINED_BUFFER, buf, "buf");
    if (buffer != NULL && buffer->head != buffer) {
        rc = error_set(RT_PARAM_INVALID, "buf"); /* the buffer is freed with its head */
    } else if (buffer != NULL) {
        rc = ACL_SUCCESS;
        for (chained_t *next = NULL; buffer != NULL; buffer = next) {
            next = buffer->next;
            chained_kill(buffer);
        }
    }
    return rc;
}

aclError do_aclrtCopyBufRef(const aclrtMbuf buf, aclrtMbuf *newBuf) {
    REFUSE_NULL(newBuf);
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    const chained_t *buffer = described_find(KIND_CHAINED_BUFFER, buf, "buf");
    if (buffer != NULL) {
        buffer->shared->refs++;
        chained_t *copy = chained_new(buffer->shared);
        rc = copy != NULL ? ACL_SUCCESS : error_set(RT_MEMORY_ALLOCATION, "newBuf");
        *newBuf = copy != NULL ? copy : *newBuf;
    }
    return rc;
}

aclError do_aclrtGetBufData(const aclrtMbuf buf, void **dataPtr, size_t *size) {
    REFUSE_NULL(dataPtr);
    REFUSE_NULL(size);
    SIM_GUARD();
    const chained_t *buffer = described_find(KIND_CHAINED_BUFFER, buf, "buf");
    if (buffer != NULL) {
        *dataPtr = buffer->shared->data;
        *size = buffer->shared->size;
    }
    return buffer != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

aclError do_aclrtSetBufDataLen(aclrtMbuf buf, size_t len) {
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    const chained_t *buffer = described_find(KIND_CHAINED_BUFFER, buf, "buf");
    if (buffer != NULL) {
        rc = len <= buffer->shared->size ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "len");
        buffer->shared->length = rc == ACL_SUCCESS ? len : buffer->shared->length;
    }
    return rc;
}

aclError do_aclrtGetBufDataLen(aclrtMbuf buf, size_t *len) {
    REFUSE_NULL(len);
    SIM_GUARD();
    const chained_t *buffer = described_find(KIND_CHAINED_BUFFER, buf, "buf");
    *len = buffer != NULL ? buffer->shared->length : *len;
    return buffer != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

static aclError user_data(aclrtMbuf buf, void *to, const void *from, size_t size, size_t offset) {
    if (to == NULL && from == NULL) {
        return error_quiet(ACL_INVALID_PARAM, "dataPtr");
    }
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    chained_t *buffer = described_find(KIND_CHAINED_BUFFER, buf, "buf");
    if (buffer != NULL) {
        size_t room = sizeof buffer->shared->user;
        bool fits = size != 0 && offset <= room && size <= room - offset;
        bool there = fits && (to != NULL ? place_is_there(to, size) : array_is_there(from, size, 1));
        rc = there ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, fits ? "dataPtr" : "size");
    }
    if (rc == ACL_SUCCESS) {
        char *place = buffer->shared->user + offset;
        memcpy(to != NULL ? to : place, to != NULL ? place : from, size);
    }
    return rc;
}

aclError do_aclrtGetBufUserData(const aclrtMbuf buf, void *dataPtr, size_t size, size_t offset) {
    return user_data(buf, dataPtr, NULL, size, offset);
}

aclError do_aclrtSetBufUserData(aclrtMbuf buf, const void *dataPtr, size_t size, size_t offset) {
    return user_data(buf, NULL, dataPtr, size, offset);
}

/* Returns the head of a chain, or NULL with the error in *rc. */
static chained_t *find_head(const aclrtMbuf buf, aclError *rc) {
    chained_t *buffer = described_find(KIND_CHAINED_BUFFER, buf, "headBuf");
    *rc = buffer != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
    if (buffer != NULL && buffer->head != buffer) {
        *rc = error_set(RT_PARAM_INVALID, "headBuf");
        return NULL;
    }
    return buffer;
}

aclError do_aclrtAppendBufChain(aclrtMbuf headBuf, aclrtMbuf buf) {
    aclError rc = ACL_SUCCESS;
    SIM_GUARD();
    chained_t *head = find_head(headBuf, &rc);
    chained_t *added = head != NULL ? find_head(buf, &rc) : NULL;
    if (added == head && head != NULL) {
        rc = error_set(RT_PARAM_INVALID, "buf");
    } else if (added != NULL) {
        chained_t *last = head;
        while (last->next != NULL) {
            last = last->next;
        }
        last->next = added;
        for (; added != NULL; added = added->next) {
            added->head = head;
        }
    }
    return rc;
}

aclError do_aclrtGetBufChainNum(aclrtMbuf headBuf, uint32_t *num) {
    REFUSE_NULL(num);
    aclError rc = ACL_SUCCESS;
    uint32_t count = 0;
    SIM_GUARD();
    const chained_t *head = find_head(headBuf, &rc);
    for (const chained_t *buffer = head; buffer != NULL; buffer = buffer->next) {
        count++;
    }
    *num = head != NULL ? count : *num;
    return rc;
}

aclError do_aclrtGetBufFromChain(aclrtMbuf headBuf, uint32_t index, aclrtMbuf *buf) {
    REFUSE_NULL(buf);
    aclError rc = ACL_SUCCESS;
    SIM_GUARD();
    chained_t *buffer = find_head(headBuf, &rc);
    for (; buffer != NULL && index > 0; index--) {
        buffer = buffer->next;
    }
    if (rc == ACL_SUCCESS) {
        rc = buffer != NULL ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "index");
        *buf = buffer != NULL ? buffer : *buf;
    }
    return rc;
}
