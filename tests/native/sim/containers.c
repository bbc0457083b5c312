/* The reader of model files: the order of gears, the sizes of tensors, and files with random damage, which must
 * be read within their bounds. ASan checks this. AIOACL_ROUNDS is the number of damaged files. */
#include "container.h"
#include "model_files.h"

enum { ROUNDS_BY_DEFAULT = 3000 };

static aclError read_bytes(const bytes_t *file, model_info_t **info, container_t *container) {
    const char *why = NULL;
    *info = model_info_new();
    CHECK(*info != NULL);
    aclError rc = container_read(file->bytes, file->size, *info, container, &why);
    CHECK((rc == 0) == (*why == '\0'));
    return rc;
}

/* Two inputs with open dimensions. The order in the file decides which values belong to which input. */
static void put_two_dims(bytes_t *file, bool ordered) {
    static bytes_t part;
    static bytes_t description;
    const int64_t a[] = {-1, 2};
    const int64_t b[] = {3, -1, -1};
    const int64_t gear[] = {3};
    description.size = 0;
    part.size = 0;
    put_u32(&part, 3);
    put_tensor(&part, "a", a, 2);
    put_tensor(&part, "b", b, 3);
    put_tensor(&part, "ascend_mbatch_shape_data", gear, 1);
    put_part(&description, 0, &part);
    part.size = 0;
    put_u32(&part, 1);
    put_u32(&part, 3);
    for (uint64_t i = 5; i < 8; i++) {
        put_u64(&part, i);
    }
    put_part(&description, 4, &part);
    part.size = 0;
    put_u32(&part, 2);
    put_u32(&part, 1);
    put_u32(&part, 1);
    put_text(&part, "ba");
    if (ordered) {
        put_part(&description, 6, &part);
    }
    put_file(file, &description, NULL);
}

static void test_order_of_gears(void) {
    static bytes_t file;
    container_t container;
    model_info_t *info = NULL;
    const int64_t plain[] = {5, 2, 3, 6, 7};
    const int64_t other[] = {7, 2, 3, 5, 6};
    for (int ordered = 0; ordered < 2; ordered++) {
        int64_t dims[5];
        put_two_dims(&file, ordered != 0);
        CHECK_THEN(read_bytes(&file, &info, &container), model_all_dims(info) == 5);
        model_gear_dims(info, 0, dims);
        CHECK(memcmp(dims, ordered != 0 ? other : plain, sizeof dims) == 0);
        model_info_release(info);
    }
}

/* Elements of four bits are packed in pairs. */
static void test_sizes_of_tensors(void) {
    const int64_t dims[] = {5, 5};
    const int64_t large[] = {INT64_MAX, 3};
    const int64_t open[] = {5, -1};
    uint64_t bytes = 0;
    CHECK(dims_bytes(dims, 2, ACL_FLOAT, &bytes) && bytes == 100);
    CHECK(dims_bytes(dims, 2, ACL_INT4, &bytes) && bytes == 13);
    CHECK(dims_bytes(dims, 0, ACL_FLOAT4_E2M1, &bytes) && bytes == 1);
    CHECK(dims_bytes(dims, 0, ACL_COMPLEX128, &bytes) && bytes == 16);
    CHECK(!dims_bytes(large, 2, ACL_INT8, &bytes) && !dims_bytes(open, 2, ACL_INT8, &bytes));
}

static uint64_t state = 1;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t damage(bytes_t *file) {
    size_t flips = draw() % 8;
    for (size_t i = 0; i < flips; i++) {
        file->bytes[draw() % file->size] ^= (unsigned char)(1U << draw() % 8);
    }
    if (draw() % 4 == 0) {
        uint32_t value = (uint32_t)(draw() % 3 == 0 ? UINT32_MAX : draw() % 300);
        memcpy(file->bytes + draw() % (file->size - sizeof value), &value, sizeof value);
    }
    return draw() % 4 == 0 ? draw() % (file->size + 1) : file->size;
}

/* The bytes are in a block of exactly their size, so that ASan reports each read behind the end. */
static bool read_damaged(const bytes_t *file, size_t size) {
    model_info_t *info = model_info_new();
    container_t container;
    const char *why = NULL;
    char *exact = malloc(size > 0 ? size : 1);
    CHECK(info != NULL && exact != NULL);
    memcpy(exact, file->bytes, size);
    aclError rc = container_read(exact, size, info, &container, &why);
    CHECK(rc == 0 || rc == 145006);
    if (rc == 0 && info->gears.kind != GEARS_NONE) {
        int64_t *dims = calloc(model_all_dims(info) + 1, sizeof *dims);
        CHECK(dims != NULL);
        model_gear_dims(info, info->gears.count - 1, dims);
        free(dims);
    }
    free(exact);
    model_info_release(info);
    return rc == 0;
}

static void test_random_damage(void) {
    static bytes_t originals[4];
    static bytes_t file;
    const char *text = getenv("AIOACL_ROUNDS");
    long rounds = text != NULL ? strtol(text, NULL, 10) : ROUNDS_BY_DEFAULT;
    long accepted = 0;
    put_plain(&originals[0], 2, 3, "the model");
    put_plain(&originals[1], 2, 3, NULL);
    put_batched(&originals[2], NULL);
    put_two_dims(&originals[3], true);
    for (long i = 0; i < rounds; i++) {
        file = originals[draw() % 4];
        size_t size = damage(&file);
        accepted += read_damaged(&file, size) ? 1 : 0;
    }
    printf("%ld damaged files, %ld of them accepted\n", rounds, accepted);
    CHECK(accepted < rounds);
}

int main(void) {
    RUN(test_order_of_gears, test_sizes_of_tensors, test_random_damage);
}
