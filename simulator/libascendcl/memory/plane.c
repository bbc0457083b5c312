/* Copies of planes: rows of bytes at a fixed distance, the pitch. */
#include "copy.h"
#include "work.h"

enum { WIDTH_MOST = 5000000, HEIGHT_MOST = 5 * 1024 * 1024 };

static bool is_kind(aclrtMemcpyKind kind, bool async) {
    return kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_HOST ||
           kind == ACL_MEMCPY_DEFAULT || (async && kind == ACL_MEMCPY_DEVICE_TO_DEVICE);
}

/* Checks the arguments as the ACL layer does. */
static aclError check_plane(const copy_t *copy, bool async) {
    if (copy->dst == NULL || copy->src == NULL) {
        return error_quiet(ACL_INVALID_PARAM, copy->dst == NULL ? "dst" : "src");
    }
    if (copy->count > copy->spitch || copy->count > copy->dpitch) {
        return error_quiet(ACL_INVALID_PARAM, "width");
    }
    return is_kind(copy->kind, async) ? ACL_SUCCESS : error_quiet(ACL_INVALID_PARAM, "kind");
}

/* Checks the limits that the runtime checks before it looks up the caller's context. */
static aclError check_extent(const copy_t *copy) {
    bool fits = copy->count <= WIDTH_MOST && copy->height <= HEIGHT_MOST;
    return fits ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "width or height");
}

static aclError check_range(const copy_t *copy) {
    bool fits = move_rows_fit(copy->count, copy->dpitch, copy->height) &&
                move_rows_fit(copy->count, copy->spitch, copy->height);
    return fits ? ACL_SUCCESS : error_set(RT_PARAM_INVALID, "height");
}

aclError do_aclrtMemcpy2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                          aclrtMemcpyKind kind) {
    copy_t copy = {.dst = dst, .src = src, .count = width, .height = height, .kind = kind};
    copy.dpitch = dpitch;
    copy.spitch = spitch;
    if (width == 0 || height == 0) {
        return ACL_SUCCESS;
    }
    aclError rc = check_plane(&copy, false);
    rc = rc == ACL_SUCCESS ? check_extent(&copy) : rc;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    SIM_GUARD();
    const context_t *context = context_need();
    rc = context != NULL ? check_range(&copy) : RT_CONTEXT_NULL;
    rc = rc == ACL_SUCCESS ? capture_forbids(context, "aclrtMemcpy2d") : rc;
    /* The emulated driver of the conformance vectors accepts this copy and moves no bytes. */
    if (rc == ACL_SUCCESS && !sim.settings.recorded_driver) {
        copy_classify(&copy);
        rc = copy_now(&copy);
    }
    return rc;
}

aclError do_aclrtMemcpy2dAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                               size_t height, aclrtMemcpyKind kind, aclrtStream stream) {
    copy_t copy = {.dst = dst, .src = src, .count = width, .height = height, .kind = kind};
    copy.dpitch = dpitch;
    copy.spitch = spitch;
    if (width == 0 || height == 0) {
        return ACL_SUCCESS;
    }
    aclError rc = check_plane(&copy, true);
    rc = rc == ACL_SUCCESS ? check_extent(&copy) : rc;
    if (rc != ACL_SUCCESS) {
        return rc;
    }
    SIM_GUARD();
    rc = check_range(&copy);
    return rc == ACL_SUCCESS ? copy_async(stream, &copy) : rc;
}
