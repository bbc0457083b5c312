"""Buffers of every type that hold pointers are refused as the target and as the source of a copy."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

import aioacl
from aioacl._handles.formats import format_holds_pointers
from tests.kit import no_call_of_mine

if TYPE_CHECKING:
    from collections.abc import Callable


class Plain(ctypes.Structure):
    _fields_: ClassVar = [("OPz", ctypes.c_int), ("value", ctypes.c_double)]


class WithPointer(ctypes.Structure):
    _fields_: ClassVar = [("value", ctypes.c_int), ("pointer", ctypes.POINTER(ctypes.c_int))]


class Derived(WithPointer):
    _fields_: ClassVar = [("more", ctypes.c_int)]


class Either(ctypes.Union):
    _fields_: ClassVar = [("value", ctypes.c_int), ("pointer", ctypes.c_void_p)]


class Packed(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_: ClassVar = [("value", ctypes.c_char), ("text", ctypes.c_char_p)]


class Nested(ctypes.Structure):
    _fields_: ClassVar = [("plain", Plain * 2), ("either", Either * 2)]


class Hiding(ctypes.Structure):
    _fields_: ClassVar = [("x:", ctypes.c_int), ("y", ctypes.c_void_p)]


def objects() -> Any:
    return np.array([object()] * 8)


TIMES_AND_OBJECTS = np.dtype([("time", "M8[s]"), ("thing", "O")])
POINTERS: dict[str, Callable[[], Any]] = {
    "objects": lambda: np.array([object(), None] * 8),
    "objects in a record": lambda: np.zeros(8, [("number", "i4"), ("thing", "O")]),
    "objects in a nested record": lambda: np.zeros(8, [("inner", [("things", "O", (2,))])]),
    "objects beside times": lambda: np.zeros(8, TIMES_AND_OBJECTS),
    "view of objects": lambda: memoryview(objects()),
    "py_object": ctypes.py_object * 8,
    "char pointers": ctypes.c_char_p * 8,
    "wide char pointers": ctypes.c_wchar_p * 8,
    "void pointers": ctypes.c_void_p * 8,
    "pointers": ctypes.POINTER(ctypes.c_int) * 8,
    "functions": ctypes.CFUNCTYPE(ctypes.c_int) * 8,
    "array of arrays": (ctypes.c_char_p * 2) * 4,
    "structure": WithPointer * 8,
    "derived structure": Derived,
    "union": Either * 8,
    "view of a union": lambda: memoryview(Either()),
    "packed structure": Packed,
    "nested structure": Nested,
    "structure with a colon in a name": Hiding,
}
PLAIN: dict[str, Callable[[], Any]] = {
    "numbers": lambda: np.zeros(8),
    "complex numbers": lambda: np.zeros(4, np.complex128),
    "times": lambda: np.zeros(8, "M8[s]"),
    "records": lambda: np.zeros(4, [("O", "i4"), ("P", "f4")]),
    "strings": lambda: np.zeros(4, "S16"),
    "structures": Plain * 4,
    "characters": ctypes.c_char * 64,
}


@pytest.mark.parametrize("what", POINTERS)
def test_copy_from_or_to_memory_with_pointers_is_refused_before_c(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, what: str
) -> None:
    thing = POINTERS[what]()
    with no_call_of_mine():
        for call in (
            lambda: stream.copy(memory, thing),
            lambda: stream.copy(thing, memory, nbytes=8),
            lambda: stream.upload(memory, thing).result(),
            lambda: stream.download(thing, memory).result(),
        ):
            with pytest.raises(aioacl.ParameterError, match="expected a buffer of plain values, got"):
                call()


@pytest.mark.parametrize("what", PLAIN)
def test_copy_of_memory_without_pointers_works_in_both_directions(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, what: str
) -> None:
    source, target = PLAIN[what](), PLAIN[what]()
    stream.copy(memory, source).result()
    stream.copy(target, memory, nbytes=8).result()


buffers_of_classes = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="before 3.12, only types of C have the buffer protocol"
)


class Source:
    """Answers the first request for its buffer, or refuses it. Later requests get other memory."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.requests = 0

    def __buffer__(self, _flags: int) -> memoryview:
        self.requests += 1
        if self.requests == 1 and self.refuses:
            raise BufferError("not now")
        return memoryview(bytes(64) if self.requests == 1 else objects())


@buffers_of_classes
def test_copy_requests_the_buffer_of_its_source_once(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    source = Source(refuses=False)
    stream.copy(memory, source).result()
    assert source.requests == 1


@buffers_of_classes
def test_copy_does_not_request_a_buffer_again_after_a_refusal(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    source = Source(refuses=True)
    with pytest.raises(aioacl.ParameterError, match="can be copied from, got Source: not now"):
        stream.copy(memory, source)
    assert source.requests == 1


@pytest.mark.parametrize(
    ("layout", "holds"),
    [("B", False), ("Zd", False), ("T{Zf:P:3w:O:}", False), ("T{Z:a:d:b:}", True), ("(2,3)&<i", True)],
)
def test_format_is_searched_for_pointers_ignoring_names_of_fields(layout: str, *, holds: bool) -> None:
    assert format_holds_pointers(layout) is holds
