"""Arguments that `__dlpack__`, the buffer protocol and `lowlevel` refuse, with the whole message of each."""

from __future__ import annotations

import io
from typing import Final

import numpy as np
import pytest

import aioacl
from aioacl import lowlevel
from tests.support.dlpack import EXTENSION
from tests.support.refused import (
    CLOSED,
    HUGE,
    SHOWN,
    Refusal,
    Scene,
    cases,
)

P: Final = aioacl.ParameterError

EXPORTS: Final = (
    Refusal(
        BufferError,
        "expected copy=None or copy=False, got {}; an export of a ... buffer never copies: copy it to another "
        "buffer with `await stream.copy(other, buffer)`, and export that buffer",
        {
            "export a copy": ("True", lambda s: s.memory.__dlpack__(copy=True)),
            "export a copy of pinned memory": ("True", lambda s: s.pinned.__dlpack__(copy=True)),
            "export with the copy 'no'": ("'no'", lambda s: s.memory.__dlpack__(copy="no")),
            "export with an empty copy": (
                "an object of list with 0 items",
                lambda s: s.memory.__dlpack__(copy=[]),
            ),
            "export with an array as copy": (
                "an object of ndarray with the shape (2,)",
                lambda s: s.memory.__dlpack__(copy=np.zeros(2)),
            ),
        },
    ),
    Refusal(
        BufferError,
        "expected dl_device to be {}; an export never copies: copy the buffer to memory of the other device first",
        {
            "export to the host": (
                "(12, 0) or (21, 0) for this device buffer, got (1, 0)",
                lambda s: s.memory.__dlpack__(dl_device=(1, 0)),
            ),
            "export to another index": (
                "(12, 0) or (21, 0) for this device buffer, got (12, 1)",
                lambda s: s.memory.__dlpack__(dl_device=(EXTENSION, 1)),
            ),
            "export to an int": (
                "(12, 0) or (21, 0) for this device buffer, got 12",
                lambda s: s.memory[:8].__dlpack__(dl_device=12),
            ),
            "export to a huge device": (
                "(12, 0) or (21, 0) for this device buffer, got (an int of 16610 bits, 0)",
                lambda s: s.memory.__dlpack__(dl_device=(HUGE, 0)),
            ),
            "export pinned memory to a device": (
                "(1, 0) for this pinned buffer, got (12, 0)",
                lambda s: s.pinned.__dlpack__(dl_device=(EXTENSION, 0)),
            ),
        },
    ),
    Refusal(
        P,
        "max_version must be a tuple of two ints or None, got {}. Pass max_version=(1, 0), or omit it for a tensor "
        "without a version.",
        {
            "export in the version 1": ("1", lambda s: s.memory.__dlpack__(max_version=1)),
            "export in a version of floats": (
                "(1.0, 0)",
                lambda s: s.pinned.__dlpack__(max_version=(1.0, 0)),
            ),
            "export in a version of text": ("'1.0'", lambda s: s.memory.__dlpack__(max_version="1.0")),
        },
    ),
    Refusal(
        P,
        "stream must be {}. Omit stream after you have awaited the work, or pass -1 if you order the work yourself.",
        {
            "export for the stream 0": (
                "None, -1 or the address of an aclrtStream, got 0",
                lambda s: s.memory.__dlpack__(stream=0),
            ),
            "export for the stream -2": (
                "None, -1 or the address of an aclrtStream, got -2",
                lambda s: s.memory.__dlpack__(stream=-2),
            ),
            "export for a huge stream": (
                f"None, -1 or the address of an aclrtStream, got {SHOWN}",
                lambda s: s.memory.__dlpack__(stream=HUGE),
            ),
            "export for a stream of 65 bits": (
                f"None, -1 or the address of an aclrtStream, got {1 << 64}",
                lambda s: s.memory.__dlpack__(stream=1 << 64),
            ),
            "export for text": (
                "None, -1 or the address of an aclrtStream, got '1'",
                lambda s: s.memory.__dlpack__(stream="1"),
            ),
            "export for a Stream": (
                "None, -1 or the address of an aclrtStream, got <Stream ...>",
                lambda s: s.memory.__dlpack__(stream=s.stream),
            ),
            "export pinned memory for a stream": (
                "None or -1, got 16",
                lambda s: s.pinned.__dlpack__(stream=16),
            ),
        },
    ),
    Refusal(
        BufferError,
        "expected max_version=(1, 0) or later for a read-only device buffer, got {}; a tensor of an older version "
        "cannot be marked as read-only: copy the buffer, and export the copy",
        {
            "export a read-only tensor": ("None", lambda s: s.tensor.__dlpack__()),
            "export a read-only view": ("(0, 8)", lambda s: s.tensor[:8].__dlpack__(max_version=(0, 8))),
        },
    ),
    Refusal(
        P,
        CLOSED,
        {
            "export a closed buffer": ("device buffer", lambda s: s.closed.__dlpack__()),
            "export a closed pinned buffer": ("pinned buffer", lambda s: s.closed_pinned.__dlpack__()),
            "array of a closed pinned buffer": ("pinned buffer", lambda s: np.asarray(s.closed_pinned)),
            "memoryview of a closed pinned buffer": ("pinned buffer", lambda s: memoryview(s.closed_pinned)),
            "bytes of a closed pinned buffer": ("pinned buffer", lambda s: s.closed_pinned.view),
        },
    ),
    Refusal(
        TypeError,
        "expected memory of the host, got a DeviceBuffer; copy its bytes to an array or a bytearray with `await "
        "stream.download(array, buffer)`",
        {
            "bytes of device memory": ("", lambda s: bytes(s.memory)),
            "bytearray of device memory": ("", lambda s: bytearray(s.memory)),
            "write of device memory": ("", lambda s: io.BytesIO().write(s.memory)),
            "memoryview of a view": ("", lambda s: memoryview(s.memory[:8])),
            "array of device memory": ("", lambda s: np.asarray(s.memory)),
            "array of a type": ("", lambda s: np.asarray(s.memory, dtype=np.uint8)),
            "array from the buffer of device memory": ("", lambda s: np.frombuffer(s.memory)),
            "sum with device memory": ("", lambda s: np.add(s.memory, 1)),
            "array of a read-only tensor": ("", lambda s: np.array(s.tensor)),
        },
    ),
)

# --- lowlevel -------------------------------------------------------------------------------------------------------

FREED: Final = "aioacl frees and destroys what it made: call its close()."
BY_HAND: Final = (
    Refusal(
        P,
        f"aclrt{{}}: expected ... to be ..., got an aioacl .... {FREED} The function is aclError aclrt{{}}(...).",
        {
            "free a buffer": ("Free", lambda s: lowlevel.on(s.device).aclrtFree(s.memory)),
            "free a view": ("Free", lambda s: lowlevel.functions.aclrtFree(s.memory[8:])),
            "free a pinned buffer": (
                "FreeHost",
                lambda s: lowlevel.on(s.device).aclrtFreeHost(s.pinned),
            ),
            "free a pinned view": ("FreeHost", lambda s: lowlevel.functions.aclrtFreeHost(s.pinned[8:])),
            "free a tensor": (
                "FreeWithDevSync",
                lambda s: lowlevel.on(s.device).aclrtFreeWithDevSync(s.tensor),
            ),
            "destroy a stream": (
                "DestroyStream",
                lambda s: lowlevel.on(s.device).aclrtDestroyStream(s.stream),
            ),
            "destroy a stream by force": (
                "DestroyStreamForce",
                lambda s: lowlevel.on(s.device).aclrtDestroyStreamForce(s.stream),
            ),
            "destroy an event": ("DestroyEvent", lambda s: lowlevel.functions.aclrtDestroyEvent(s.event)),
        },
    ),
    Refusal(
        P,
        "aclrtMemset: expected devPtr to be void *, got a buffer of a read-only DLPack tensor. Copy it, and pass the "
        "copy. The function is aclError aclrtMemset(...).",
        {"fill a tensor by hand": ("", lambda s: lowlevel.on(s.device).aclrtMemset(s.tensor, 8, 0, 8))},
    ),
)

ROWS: Final = cases((*EXPORTS, *BY_HAND))


@pytest.mark.parametrize("name", ROWS)
def test_export_or_call_by_hand_with_a_bad_argument_is_refused_with_the_remedy(
    scene: Scene, name: str
) -> None:
    ROWS[name].check(scene)


@pytest.mark.parametrize("part", [slice(0, 0), slice(None)])
def test_view_of_a_pinned_buffer_of_no_bytes_is_exported(device: aioacl.Device, part: slice) -> None:
    with device.pinned(0) as pinned:
        view = pinned[part]
        assert bytes(memoryview(view)) == bytes(view.view) == b""
        assert np.from_dlpack(view).size == 0
