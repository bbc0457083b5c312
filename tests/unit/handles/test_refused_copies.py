"""Arguments that copies, fills, records and transfers refuse before ACL is called, with the whole message of each."""

from __future__ import annotations

import array
import ctypes
import weakref
from typing import ClassVar, Final
from unittest.mock import create_autospec

import numpy as np
import pytest

import aioacl
from tests.support.refused import (
    HUGE,
    SHOWN,
    SIZE,
    Refusal,
    Scene,
    Unshowable,
    cases,
    released,
    unmapped,
)

P: Final = aioacl.ParameterError
LONG: Final = (1 << 20) + 1


class Pointers(ctypes.Structure):
    """A structure that holds a pointer."""

    _fields_: ClassVar = [("text", ctypes.c_char_p)]


COPIES: Final = (
    Refusal(
        P,
        "expected memory that can be written to, got {}: .... The target comes first: pass a DeviceBuffer, a "
        "PinnedBuffer, or an object with a contiguous, writable buffer (a bytearray or a numpy array, for instance), "
        "or a contiguous tensor in host memory.",
        {
            "copy to None": ("NoneType", lambda s: s.stream.copy(None, s.memory)),
            "copy to text": ("str", lambda s: s.stream.copy("text", s.memory)),
            "copy to bytes": ("bytes", lambda s: s.stream.copy(bytes(8), s.memory[:8])),
            "copy to a list": ("list", lambda s: s.stream.copy([0] * 8, s.memory[:8])),
            "copy to a stream": ("Stream", lambda s: s.stream.copy(s.stream, s.memory)),
            "copy to a proxy": ("ProxyType", lambda s: s.stream.copy(weakref.proxy(s.memory), s.memory)),
            "copy to a read-only array": (
                "ndarray",
                lambda s: s.stream.copy(np.frombuffer(bytes(8)), s.memory[:8]),
            ),
            "copy to a read-only view": (
                "memoryview",
                lambda s: s.stream.copy(memoryview(bytes(8)), s.memory[:8]),
            ),
            "copy to a stepped array": (
                "ndarray",
                lambda s: s.stream.copy(np.zeros(16, np.uint8)[::2], s.memory[:8]),
            ),
            "copy to a released view": ("memoryview", lambda s: s.stream.copy(released(), s.memory[:8])),
            "download to bytes": ("bytes", lambda s: s.stream.download(bytes(SIZE), s.memory).result()),
        },
    ),
    Refusal(
        P,
        "expected memory that can be copied from, got {}: .... Pass a DeviceBuffer, a PinnedBuffer, or an object with "
        "a contiguous buffer (text.encode(), numpy.ascontiguousarray(a)), or a contiguous tensor in host memory.",
        {
            "copy from None": ("NoneType", lambda s: s.stream.copy(s.memory, None)),
            "copy from text": ("str", lambda s: s.stream.copy(s.memory, "text")),
            "copy from an int": ("int", lambda s: s.stream.copy(s.memory, 3)),
            "copy from a list": ("list", lambda s: s.stream.copy(s.memory, [1, 2])),
            "copy from an event": ("Event", lambda s: s.stream.copy(s.memory, s.event)),
            "copy from a proxy": ("ProxyType", lambda s: s.stream.copy(s.memory, weakref.proxy(s.memory))),
            "copy from a stepped array": (
                "ndarray",
                lambda s: s.stream.copy(s.memory, np.zeros(16, np.uint8)[::2]),
            ),
            "copy from a reversed array": (
                "ndarray",
                lambda s: s.stream.copy(s.memory, np.zeros(8, np.uint8)[::-1]),
            ),
            "copy from a transposed array": (
                "ndarray",
                lambda s: s.stream.copy(s.memory, np.zeros((2, 4), np.uint8).T),
            ),
            "copy from a broadcast array": (
                "ndarray",
                lambda s: s.stream.copy(s.memory, np.broadcast_to(np.uint8(1), (8,))),
            ),
            "copy from stepped times": (
                "ndarray",
                lambda s: s.stream.copy(s.memory, np.zeros(4, "M8[s]")[::2]),
            ),
            "copy from a stepped view": (
                "memoryview",
                lambda s: s.stream.copy(s.memory, memoryview(bytes(8))[::2]),
            ),
            "copy from a file that is unmapped": ("mmap", lambda s: s.stream.copy(s.memory, unmapped())),
            "upload text": ("str", lambda s: s.stream.upload(s.memory, "text").result()),
        },
    ),
    Refusal(
        P,
        "expected a buffer of plain values, got {}, which holds pointers. Pass a buffer of the values that the "
        "pointers refer to, for instance array.astype(float).",
        {
            "copy to objects": (
                "ndarray of the format 'O'",
                lambda s: s.stream.copy(np.array([object()]), s.memory[:8]),
            ),
            "copy from objects": (
                "ndarray of the format 'O'",
                lambda s: s.stream.copy(s.memory, np.array([object()])),
            ),
            "copy to a structure with a pointer": (
                "Pointers of the format 'T{<z:text:}'",
                lambda s: s.stream.copy(Pointers(), s.memory[:8]),
            ),
            "copy from wide pointers": (
                "c_wchar_p_Array_2 of the format '<Z'",
                lambda s: s.stream.copy(s.memory, (ctypes.c_wchar_p * 2)()),
            ),
            "copy from an address": (
                "c_void_p of the format '<P'",
                lambda s: s.stream.copy(s.memory, ctypes.c_void_p(16)),
            ),
        },
    ),
    Refusal(
        P,
        "expected a target that can be written to, got a buffer of a read-only DLPack tensor. Copy it to a buffer of "
        "device.allocate(n), and write to that buffer.",
        {
            "copy to a read-only tensor": ("", lambda s: s.stream.copy(s.tensor, bytes(8))),
            "copy to a view of a read-only tensor": ("", lambda s: s.stream.copy(s.tensor[:8], bytes(8))),
            "fill a read-only tensor": ("", lambda s: s.stream.fill(s.tensor, 0)),
            "upload to a read-only tensor": ("", lambda s: s.stream.upload(s.tensor, bytes(8)).result()),
        },
    ),
    Refusal(
        P,
        "expected a buffer of device {}. Copy between devices through pinned host memory.",
        {
            "copy to another device": (
                "0, got one of device 1",
                lambda s: s.stream.copy(s.foreign, s.pinned),
            ),
            "copy from another device": (
                "0, got one of device 1",
                lambda s: s.stream.copy(s.memory, s.foreign),
            ),
            "copy on a stream of another device": (
                "1, got one of device 0",
                lambda s: s.foreign_stream.copy(s.memory, s.pinned),
            ),
            "fill memory of another device": (
                "0, got one of device 1",
                lambda s: s.stream.fill(s.foreign[:8], 0),
            ),
        },
    ),
    Refusal(
        P,
        "expected a DeviceBuffer as source or target, got host memory as both. Copy host memory yourself.",
        {
            "copy pageable to pageable memory": ("", lambda s: s.stream.copy(bytearray(8), bytes(8))),
            "copy pinned to pinned memory": ("", lambda s: s.stream.copy(s.pinned[:8], s.pinned[8:16])),
            "copy pageable to pinned memory": ("", lambda s: s.stream.copy(s.pinned, bytes(8))),
        },
    ),
    Refusal(
        P,
        "expected operands that do not overlap, got {} bytes of the source in the target. Copy through another buffer.",
        {
            "copy to an overlapping view": ("4", lambda s: s.stream.copy(s.memory[:8], s.memory[4:12])),
            "copy from an overlapping tensor": (
                "62",
                lambda s: s.stream.copy(s.memory[1:], s.tensor[:-1]),
            ),
        },
    ),
    Refusal(
        P,
        "expected at most {}. Pass nbytes=, at most the smaller of the two sizes.",
        {
            "copy pageable memory that is too long": (
                "64 bytes, got 65: the source has 65 bytes, the target 64",
                lambda s: s.stream.copy(s.memory, bytes(SIZE + 1)),
            ),
            "copy pinned memory that is too long": (
                "8 bytes, got 64: the source has 64 bytes, the target 8",
                lambda s: s.stream.copy(s.memory[:8], s.pinned),
            ),
            "copy to memory that is too short": (
                "8 bytes, got 64: the source has 64 bytes, the target 8",
                lambda s: s.stream.copy(bytearray(8), s.memory),
            ),
            "copy more bytes than the source has": (
                "8 bytes, got 9: the source has 8 bytes, the target 64",
                lambda s: s.stream.copy(s.memory, s.pinned[:8], nbytes=9),
            ),
            "copy a huge number of bytes": (
                f"64 bytes, got {SHOWN}: the source has 64 bytes, the target 64",
                lambda s: s.stream.copy(s.memory, s.pinned, nbytes=HUGE),
            ),
            "upload too much": (
                "64 bytes, got 65: the source has 65 bytes, the target 64",
                lambda s: s.stream.upload(s.memory, bytes(SIZE + 1)).result(),
            ),
            "download to an array that is too short": (
                "8 bytes, got 64: the source has 64 bytes, the target 8",
                lambda s: s.stream.download(array.array("B", bytes(8)), s.memory).result(),
            ),
        },
    ),
    Refusal(
        P,
        "upload expected a DeviceBuffer as target and host memory as source, got {}",
        {
            "upload to host memory": (
                "bytearray and bytes. The target comes first. Copy host memory to host memory yourself.",
                lambda s: s.stream.upload(bytearray(8), bytes(8)).result(),
            ),
            "upload device memory": (
                "DeviceBuffer and DeviceBuffer. Use stream.copy(target, source) between two DeviceBuffers.",
                lambda s: s.stream.upload(s.memory[:8], s.memory[8:16]).result(),
            ),
            "upload nothing to host memory": (
                "bytearray and bytes. The target comes first. Copy host memory to host memory yourself.",
                lambda s: s.stream.upload(bytearray(), b"").result(),
            ),
            "upload to a source": (
                "bytearray and DeviceBuffer. The target comes first: exchange the two arguments, or call download.",
                lambda s: s.stream.upload(bytearray(SIZE), s.memory).result(),
            ),
        },
    ),
    Refusal(
        P,
        "download expected host memory as target and a DeviceBuffer as source, got {}",
        {
            "download from host memory": (
                "bytearray and bytes. The target comes first. Copy host memory to host memory yourself.",
                lambda s: s.stream.download(bytearray(8), bytes(8)).result(),
            ),
            "download to device memory": (
                "DeviceBuffer and DeviceBuffer. Use stream.copy(target, source) between two DeviceBuffers.",
                lambda s: s.stream.download(s.memory[:8], s.memory[8:16]).result(),
            ),
            "download to a source": (
                "DeviceBuffer and bytes. The target comes first: exchange the two arguments, or call upload.",
                lambda s: s.stream.download(s.memory, bytes(8)).result(),
            ),
        },
    ),
)
EVENTS: Final = (
    Refusal(
        P,
        "expected an Event, got an object of {}",
        {
            "record a mock": (
                "NonCallableMagicMock. Pass an Event made by device.create_event().",
                lambda s: s.stream.record(create_autospec(s.event, instance=True)),
            ),
            "wait for a mock": (
                "NonCallableMagicMock. Pass an Event that stream.record() returned.",
                lambda s: s.stream.wait_event(create_autospec(s.event, instance=True)),
            ),
        },
    ),
    Refusal(
        P,
        "expected an event of device 0, got one of device 1. Make the event from the stream's device.",
        {"record an event of another device": ("", lambda s: s.stream.record(s.foreign_event))},
    ),
)
FILLS: Final = (
    Refusal(
        P,
        "expected a DeviceBuffer or a PinnedBuffer to fill, got {}. Fill host memory yourself.",
        {
            "fill a bytearray": ("bytearray", lambda s: s.stream.fill(bytearray(8), 0)),
            "fill an array": ("ndarray", lambda s: s.stream.fill(np.zeros(8), 0)),
            "fill bytes": ("bytes", lambda s: s.stream.fill(b"", 0)),
            "fill None": ("NoneType", lambda s: s.stream.fill(None, 0)),
            "fill a proxy": ("ProxyType", lambda s: s.stream.fill(weakref.proxy(s.memory), 0)),
        },
    ),
    Refusal(
        P,
        "byte must be an int from 0 to 255, got {}. Pass an int in this range.",
        {
            "fill with 256": ("256", lambda s: s.stream.fill(s.memory, 256)),
            "fill with -1": ("-1", lambda s: s.stream.fill(s.memory, -1)),
            "fill with a float": ("1.0", lambda s: s.stream.fill(s.memory, 1.0)),
            "fill with bytes": ("an object of bytes with 1 bytes", lambda s: s.stream.fill(s.memory, b"a")),
            "fill with None": ("None", lambda s: s.stream.fill(s.memory, None)),
            "fill with a bool": ("True", lambda s: s.stream.fill(s.pinned, True)),
            "fill with a huge int": (SHOWN, lambda s: s.stream.fill(s.memory, HUGE)),
            "fill with an unshowable object": (
                "an object of Unshowable",
                lambda s: s.stream.fill(s.memory, Unshowable()),
            ),
        },
    ),
    Refusal(
        P,
        "nbytes must be at most 64, the size of the target, got {}. Pass nbytes=64 or less, or omit nbytes to fill the "
        "whole target.",
        {
            "fill 65 bytes of 64": ("65", lambda s: s.stream.fill(s.memory, 0, nbytes=SIZE + 1)),
            "fill a huge number of bytes": (SHOWN, lambda s: s.stream.fill(s.pinned, 0, nbytes=HUGE)),
        },
    ),
)

ROWS: Final = cases((*COPIES, *EVENTS, *FILLS))


@pytest.mark.parametrize("name", ROWS)
def test_copy_or_fill_of_unsuitable_memory_is_refused_with_the_remedy(scene: Scene, name: str) -> None:
    ROWS[name].check(scene)


def test_pageable_copy_above_1_mib_is_refused_with_the_remedy(device: aioacl.Device) -> None:
    with device.create_stream() as stream, device.allocate(LONG) as memory, pytest.raises(P) as caught:
        stream.copy(memory, bytes(LONG))
    assert str(caught.value) == (
        "expected at most 1048576 bytes for a copy from or to pageable memory, got 1048577: a longer copy would block "
        "the caller. Use memory of device.pinned(n), or `await stream.upload(...)` / `download(...)`."
    )
