/* Datasets: the lists of the buffers of an execution, and of descriptions of their shapes. */
#include <stdlib.h>

#include "model.h"

enum { FIRST_ROOM = 4, BUFFERS_MOST = 65536 };

dataset_t *dataset_find(const aclmdlDataset *handle, const char *what) {
    return described_find(KIND_DATASET, handle, what);
}

aclmdlDataset *do_aclmdlCreateDataset(void) {
    return described_new(KIND_DATASET);
}

static void clear_desc(dataset_entry_t *entry) {
    if (entry->desc != NULL) {
        tensor_end(entry->desc);
        entry->desc = NULL;
    }
}

/* Destroys the dataset and its descriptions, but neither the data buffers nor their memory. */
aclError do_aclmdlDestroyDataset(const aclmdlDataset *dataset) {
    SIM_GUARD();
    dataset_t *found = dataset_find(dataset, "dataset");
    if (found != NULL) {
        for (size_t i = 0; i < found->count; i++) {
            clear_desc(&found->entries[i]);
        }
        free(found->entries);
        object_kill(&found->object);
    }
    return found != NULL ? ACL_SUCCESS : ACL_INVALID_PARAM;
}

static bool grow(dataset_t *dataset) {
    if (dataset->count < dataset->room) {
        return true;
    }
    size_t room = dataset->room > 0 ? dataset->room * 2 : FIRST_ROOM;
    dataset_entry_t *grown = room <= BUFFERS_MOST ? realloc(dataset->entries, room * sizeof *grown) : NULL;
    if (grown == NULL) {
        return false;
    }
    dataset->entries = grown;
    dataset->room = room;
    return true;
}

aclError do_aclmdlAddDatasetBuffer(aclmdlDataset *dataset, aclDataBuffer *dataBuffer) {
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    dataset_t *found = dataset_find(dataset, "dataset");
    if (found != NULL && described_find(KIND_DATA_BUFFER, dataBuffer, "dataBuffer") != NULL) {
        rc = grow(found) ? ACL_SUCCESS : error_quiet(ACL_BAD_ALLOC, "dataset");
    }
    if (rc == ACL_SUCCESS) {
        found->entries[found->count++] = (dataset_entry_t){.buffer = dataBuffer};
    }
    return rc;
}

size_t do_aclmdlGetDatasetNumBuffers(const aclmdlDataset *dataset) {
    SIM_GUARD();
    const dataset_t *found = dataset_find(dataset, "dataset");
    return found != NULL ? found->count : 0;
}

aclDataBuffer *do_aclmdlGetDatasetBuffer(const aclmdlDataset *dataset, size_t index) {
    SIM_GUARD();
    const dataset_t *found = dataset_find(dataset, "dataset");
    aclDataBuffer *buffer = found != NULL && index < found->count ? found->entries[index].buffer : NULL;
    if (found != NULL && buffer == NULL) {
        error_quiet(ACL_INVALID_PARAM, "index");
    }
    return buffer;
}

static aclError set_desc(dataset_entry_t *entry, const aclTensorDesc *handle) {
    const tensor_desc_t *source = handle != NULL ? tensor_find(handle) : NULL;
    if (handle != NULL && source == NULL) {
        return ACL_INVALID_PARAM;
    }
    tensor_desc_t *copy = source != NULL ? tensor_copy(source) : NULL;
    if (source != NULL && copy == NULL) {
        return error_quiet(ACL_BAD_ALLOC, "tensorDesc");
    }
    clear_desc(entry);
    entry->desc = copy;
    return ACL_SUCCESS;
}

/* Stores a copy, so the client may destroy its description. NULL removes the description. */
aclError do_aclmdlSetDatasetTensorDesc(aclmdlDataset *dataset, aclTensorDesc *tensorDesc, size_t index) {
    aclError rc = ACL_INVALID_PARAM;
    SIM_GUARD();
    dataset_t *found = dataset_find(dataset, "dataset");
    if (found != NULL && index < found->count) {
        rc = set_desc(&found->entries[index], tensorDesc);
    } else if (found != NULL) {
        error_quiet(ACL_INVALID_PARAM, "index");
    }
    return rc;
}

/* The description stays the dataset's. */
aclTensorDesc *do_aclmdlGetDatasetTensorDesc(const aclmdlDataset *dataset, size_t index) {
    SIM_GUARD();
    const dataset_t *found = dataset_find(dataset, "dataset");
    tensor_desc_t *desc = found != NULL && index < found->count ? found->entries[index].desc : NULL;
    if (found != NULL && index >= found->count) {
        error_quiet(ACL_INVALID_PARAM, "index");
    }
    return (aclTensorDesc *)desc;
}

void dataset_set_shape(dataset_t *dataset, size_t index, aclDataType type, const int64_t *dims, size_t count) {
    dataset_entry_t *entry = index < dataset->count ? &dataset->entries[index] : NULL;
    if (entry == NULL) {
        return;
    }
    if (entry->desc == NULL) {
        entry->desc = object_new(KIND_TENSOR_DESC);
    }
    if (entry->desc != NULL) {
        entry->desc->type = type;
        entry->desc->origin.format = ACL_FORMAT_ND;
        entry->desc->storage.format = ACL_FORMAT_UNDEFINED;
        shape_set_dims(&entry->desc->origin, dims, (int)count);
    }
}
