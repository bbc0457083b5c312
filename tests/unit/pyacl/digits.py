"""The digits model, loaded and executed through `acl`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioacl._base.late import late
from aioacl._base.paths import DATA

if TYPE_CHECKING:
    from numpy.typing import NDArray

    import aioacl.pyacl as acl
else:
    acl = late("aioacl.pyacl")

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
DIGITS = str(DATA / "digits.om")


class Digits:
    """The model, its memory and its datasets."""

    def __init__(self) -> None:
        self.model, code = acl.mdl.load_from_file(DIGITS)
        assert code == 0
        self.desc = acl.mdl.create_desc()
        assert acl.mdl.get_desc(self.desc, self.model) == 0
        self.sizes = [
            acl.mdl.get_input_size_by_index(self.desc, 0),
            acl.mdl.get_output_size_by_index(self.desc, 0),
        ]
        self.memory = [acl.rt.malloc(size, 0)[0] for size in self.sizes]
        self.buffers = [acl.create_data_buffer(*each) for each in zip(self.memory, self.sizes, strict=True)]
        self.datasets = [acl.mdl.create_dataset() for _ in self.sizes]
        for dataset, buffer in zip(self.datasets, self.buffers, strict=True):
            assert acl.mdl.add_dataset_buffer(dataset, buffer) == (dataset, 0)

    def run(self, x: NDArray[np.float32]) -> list[float]:
        data = x.tobytes()
        assert (
            acl.rt.memcpy(
                self.memory[0], self.sizes[0], acl.util.bytes_to_ptr(data), len(data), HOST_TO_DEVICE
            )
            == 0
        )
        assert acl.mdl.execute(self.model, *self.datasets) == 0
        host, code = acl.rt.malloc_host(self.sizes[1])
        assert code == acl.rt.memcpy(host, self.sizes[1], self.memory[1], self.sizes[1], DEVICE_TO_HOST) == 0
        result = acl.util.ptr_to_bytes(host, self.sizes[1])
        assert acl.rt.free_host(host) == 0
        return [float(each) for each in np.frombuffer(result, np.float32)]

    def close(self) -> None:
        for buffer, dataset, pointer in zip(self.buffers, self.datasets, self.memory, strict=True):
            assert (
                acl.destroy_data_buffer(buffer)
                == acl.mdl.destroy_dataset(dataset)
                == acl.rt.free(pointer)
                == 0
            )
        assert acl.mdl.unload(self.model) == acl.mdl.destroy_desc(self.desc) == 0
