"""Loads of a model, and executions whose results the checks compare.

The checks know nothing about the model. They compare executions with an input of zeros with each other. Before an
execution, the memory of the outputs is filled with bytes that the execution must replace.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl import _digits
from aioacl._base.codes import lookup
from aioacl._base.ffi import Dataset, ffi, pointer
from aioacl._models.description import Desc, read_gears, read_tensors, split_inputs
from aioacl._models.slots import native_dataset
from aioacl._selftest._bench import call, download, expect, require, require_code
from aioacl._selftest._outcomes import Broken, NotTestable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench

BEFORE: Final = (0xA5, 0x5A)  # what the memory of the outputs contains before an execution
Memory = tuple[Any, int]  # the address, and the size


def om_file(bench: Bench) -> Path:
    """Returns the model to test: the file of the option --model, or the package's on the simulator."""
    return Path(bench.model) if bench.model else _digits.MODEL


def om_file_with_gears(bench: Bench) -> Path:
    """Returns the model to test, or the one of the package that has batch sizes."""
    return Path(bench.model) if bench.model else _digits.BATCH_MODEL


@dataclass(frozen=True, slots=True)
class Sizes:
    """The memory that a model needs."""

    work: int
    weights: int


def sizes_of(path: Path) -> Sizes:
    """Returns the sizes that aclmdlQuerySize gives."""
    work, weights = ffi.new("size_t *"), ffi.new("size_t *")
    expect(0, "aclmdlQuerySize", os.fsencode(path), work, weights)
    return Sizes(int(work[0]), int(weights[0]))


def room(bench: Bench, nbytes: int) -> CData:
    """Returns device memory; a model without weights gets one byte, because ACL takes no null pointer."""
    return bench.memory(max(nbytes, 1))


def described(model: int) -> Desc:
    """Returns the description of a loaded model. A failed call for it breaks the check."""
    return Desc(model, lambda code, call: Broken(f"{call} returned {code} {lookup(code).name}"))


def load(path: Path, sizes: Sizes, work: CData, weights: CData) -> int:
    """Loads the model into that memory, and returns its id."""
    place = ffi.new("uint32_t *")
    memory = (work, sizes.work, weights, sizes.weights)
    expect(0, "aclmdlLoadFromFileWithMem", os.fsencode(path), place, *memory)
    return int(place[0])


def loaded(bench: Bench, path: Path) -> int:
    """Returns the id of a model that is unloaded when the check ends."""
    sizes = sizes_of(path)
    model = load(path, sizes, room(bench, sizes.work), room(bench, sizes.weights))
    bench.keep("aclmdlUnload", model)
    return model


class Execution:
    """The memory and the datasets of the executions of a model. The input is zero.

    Attributes:
        gears: the batch sizes of the model; empty for fixed shapes.
        inputs, outputs: the memory of the tensors.
        input_data, output_data: the datasets.
    """

    def __init__(self, bench: Bench, model: int) -> None:
        with described(model) as desc:
            everything, outputs = read_tensors(desc, "Input"), read_tensors(desc, "Output")
            inputs, _ = split_inputs(everything)
            kind, values = read_gears(desc, inputs)
        if kind not in (None, "batch"):
            raise NotTestable(
                f"the model has gears of {kind}; pass one with fixed shapes, or with batch sizes"
            )
        self.gears: list[int] = values
        self.outputs = [_memory(bench, each.nbytes) for each in outputs]
        self.inputs = [_memory(bench, each.nbytes) for each in everything]
        self._model = model
        self._selector = len(inputs)  # the input that selects the gear comes after the others
        self._data = Dataset(_places(self.inputs)), Dataset(_places(self.outputs))
        self.input_data, self.output_data = map(native_dataset, self._data)
        for memory in self.inputs:
            set_memory(memory, 0)
        if self.gears:
            self.select(self.gears[-1])

    def select(self, batch: int) -> None:
        """Selects the gear of the next execution."""
        expect(0, "aclmdlSetDynamicBatchSize", self._model, self.input_data, self._selector, batch)

    def enqueue(self, stream: CData) -> int:
        """Enqueues an execution, and returns the code."""
        return int(call("aclmdlExecuteAsync", self._model, self.input_data, self.output_data, stream))

    def run(self, bench: Bench, stream: CData, before: int = BEFORE[0]) -> bytes:
        """Executes the model, and returns the outputs; their memory contains the byte `before` first."""
        for memory in self.outputs:
            set_memory(memory, before)
        require_code(0, self.enqueue(stream), "aclmdlExecuteAsync")
        bench.finish(stream)
        return b"".join(download(address, size) for address, size in self.outputs)

    def reference(self, bench: Bench, stream: CData) -> bytes:
        """Returns the outputs of an execution, which must be the same whatever their memory contains before."""
        first, second = (self.run(bench, stream, before) for before in BEFORE)
        if self.gears:  # the memory is as large as the largest gear needs, which is not always selected
            return first
        require(
            first == second, "two executions with the same input wrote different outputs, or not all of them"
        )
        return first


def _memory(bench: Bench, nbytes: int) -> Memory:
    return room(bench, nbytes), nbytes


def _places(memories: Sequence[Memory]) -> tuple[tuple[int, int], ...]:
    return tuple((pointer(address), size) for address, size in memories)


def set_memory(memory: Memory, byte: int) -> None:
    """Sets all bytes, and waits."""
    address, size = memory
    if size:
        expect(0, "aclrtMemset", address, size, byte, size)
