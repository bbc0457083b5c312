/* The common part of the programs about calls of models: datasets of one buffer, and a static model. */
#ifndef MODEL_TEST_H
#define MODEL_TEST_H

#include "model_files.h"

enum { ROWS = 2, COLUMNS = 3, BYTES = ROWS * COLUMNS * sizeof(float), NO = 100000 };

static inline aclmdlDataset *dataset_of(void *data, size_t size) {
    aclmdlDataset *dataset = aclmdlCreateDataset();
    CHECK_RC(aclmdlAddDatasetBuffer(dataset, aclCreateDataBuffer(data, size)), 0);
    return dataset;
}

static inline void dataset_free(aclmdlDataset *dataset) {
    aclDataBuffer *buffer = aclmdlGetDatasetBuffer(dataset, 0);
    CHECK_RC(aclDestroyDataBuffer(buffer), 0);
    CHECK_RC(aclmdlDestroyDataset(dataset), 0);
}

static inline uint32_t load_bytes(const bytes_t *file) {
    uint32_t model = 0;
    CHECK_RC(aclmdlLoadFromMem(file->bytes, file->size, &model), 0);
    return model;
}

static inline uint32_t load_plain(void) {
    static bytes_t file;
    put_plain(&file, ROWS, COLUMNS, "model");
    return load_bytes(&file);
}

#endif
