"""Arguments that `wrap_memory` and `from_dlpack` refuse before ACL is called, with the whole message of each."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

import aioacl
from tests.support.dlpack import ASCEND, EXTENSION, Producer
from tests.support.refused import (
    CLOSED,
    HUGE,
    SHOWN,
    Half,
    Refusal,
    Returning,
    Scene,
    Unreadable,
    Unshowable,
    cases,
)

P: Final = aioacl.ParameterError

WRAPS: Final = (
    Refusal(
        P,
        "address must be an int from 1 to 2**64 - 1, got {}. Pass the address of device memory, for example "
        "tensor.data_ptr().",
        {
            "wrap at text": ("'0x10'", lambda s: s.device.wrap_memory("0x10", 1)),
            "wrap at a float": ("16.0", lambda s: s.device.wrap_memory(16.0, 1)),
            "wrap at None": ("None", lambda s: s.device.wrap_memory(None, 1)),
            "wrap at a buffer": ("<DeviceBuffer of ...>", lambda s: s.device.wrap_memory(s.memory, 1)),
            "wrap at a bool": ("True", lambda s: s.device.wrap_memory(True, 1)),
            "wrap at 2**64": (str(1 << 64), lambda s: s.device.wrap_memory(1 << 64, 1)),
            "wrap at 0": ("0", lambda s: s.device.wrap_memory(0, 1)),
            "wrap at -16": ("-16", lambda s: s.device.wrap_memory(-16, 1)),
            "wrap at a huge int": (SHOWN, lambda s: s.device.wrap_memory(HUGE, 1)),
        },
    ),
    Refusal(
        P,
        "nbytes must be an int from 0 to 2**63 - 1, got {}. Pass a number of bytes.",
        {
            "wrap a float of bytes": ("1.0", lambda s: s.device.wrap_memory(16, 1.0)),
            "wrap None bytes": ("None", lambda s: s.device.wrap_memory(16, None)),
            "wrap a bool of bytes": ("False", lambda s: s.device.wrap_memory(16, False)),
            "wrap 2**63 bytes": (str(1 << 63), lambda s: s.device.wrap_memory(16, 1 << 63)),
            "wrap -1 bytes": ("-1", lambda s: s.device.wrap_memory(16, -1)),
            "wrap a huge number of bytes": (SHOWN, lambda s: s.device.wrap_memory(16, HUGE)),
        },
    ),
    Refusal(
        P,
        "{}",
        {
            "wrap at an unreadable address": (
                (
                    "expected a number, got an object of Unreadable whose value cannot be read: "
                    "ZeroDivisionError('broken'). Pass an int, or a float where one is allowed."
                ),
                lambda s: s.device.wrap_memory(Unreadable(), 1),
            ),
            "wrap beyond the last address": (
                (
                    "expected memory that ends at 2**64 or before, got 17 bytes at the address 0xfffffffffffffff0. "
                    "Pass the size of the memory in bytes."
                ),
                lambda s: s.device.wrap_memory((1 << 64) - 16, 17),
            ),
        },
    ),
)

# --- imports --------------------------------------------------------------------------------------------------------

HERE: Final = "device 0: expected a tensor on the DLPack device (12, 0) or (21, 0), got one on {}"
IMPORTS: Final = (
    Refusal(
        P,
        "expected a tensor with __dlpack__ and __dlpack_device__, got {}. Pass the tensor itself, not a capsule. Pass "
        "host memory to copy, upload or download.",
        {
            "import bytes": ("bytes", lambda s: s.device.from_dlpack(b"bytes")),
            "import None": ("NoneType", lambda s: s.device.from_dlpack(None)),
            "import a capsule": ("PyCapsule", lambda s: s.device.from_dlpack(Producer(16, (1,)).capsule())),
            "import a class": ("the class Producer", lambda s: s.device.from_dlpack(Producer)),
            "import half a tensor": ("Half", lambda s: s.device.from_dlpack(Half())),
        },
    ),
    Refusal(
        P,
        f"{HERE}. Pass the tensor itself to copy, upload or download.",
        {
            "import an array": ("(1, 0)", lambda s: s.device.from_dlpack(np.zeros(4))),
            "import pinned memory": ("(1, 0)", lambda s: s.device.from_dlpack(s.pinned)),
            "import memory pinned by CUDA": ("(3, 0)", lambda s: s.take(device=(3, 0))),
            "import memory pinned by ROCm": ("(11, 0)", lambda s: s.take(device=(11, 0))),
        },
    ),
    Refusal(
        P,
        f"{HERE}. Call from_dlpack of the device that has the tensor.",
        {
            "import from another index": ("(21, 1)", lambda s: s.take(device=(ASCEND, 1))),
            "import from the index -1": ("(12, -1)", lambda s: s.take(device=(EXTENSION, -1))),
            "import from a huge index": (
                f"(12, {SHOWN})",
                lambda s: s.device.from_dlpack(Returning(None, (EXTENSION, HUGE))),
            ),
            "import from another index inside": ("(12, 2)", lambda s: s.take(inside=(EXTENSION, 2))),
        },
    ),
    Refusal(
        P,
        f"{HERE}. Copy the tensor to host memory, and upload it.",
        {"import from CUDA": ("(2, 0)", lambda s: s.take(device=(2, 0)))},
    ),
    Refusal(
        P,
        "expected __dlpack_device__ to return a tuple of two ints, got {}. Correct the class of the tensor.",
        {
            "import from an int": ("12", lambda s: s.take(device=12)),
            "import from floats": ("(12.0, 0)", lambda s: s.device.from_dlpack(Returning(None, (12.0, 0)))),
            "import from three ints": (
                "(12, 0, 0)",
                lambda s: s.device.from_dlpack(Returning(None, (12, 0, 0))),
            ),
        },
    ),
    Refusal(
        P,
        "expected __dlpack__ to return a DLPack capsule that was not taken, got {}. Each capsule can be taken once: "
        "the producer has to make a new one at each call.",
        {
            "import None as capsule": ("None", lambda s: s.device.from_dlpack(Returning(None))),
            "import text as capsule": (
                "'dltensor'",
                lambda s: s.device.from_dlpack(Returning("dltensor")),
            ),
            "import an unshowable capsule": (
                "an object of Unshowable",
                lambda s: s.device.from_dlpack(Returning(Unshowable())),
            ),
        },
    ),
    Refusal(
        P,
        "expected a contiguous tensor in C order, got the shape {}. Pass a contiguous copy, for example "
        "tensor.contiguous().",
        {
            "import transposed": (
                "(2, 3) with the strides (1, 2)",
                lambda s: s.take((2, 3), strides=(1, 2)),
            ),
            "import every second": ("(4,) with the strides (2,)", lambda s: s.take((4,), strides=(2,))),
            "import reversed": ("(4,) with the strides (-1,)", lambda s: s.take((4,), strides=(-1,))),
            "import broadcast": (
                "(4, 4) with the strides (0, 1)",
                lambda s: s.take((4, 4), strides=(0, 1)),
            ),
        },
    ),
    Refusal(
        P,
        "expected a tensor with at most 64 dimensions of at least 0, got {}. Reshape the tensor.",
        {
            "import a negative shape": ("the shape (-4,)", lambda s: s.take((-4,))),
            "import 65 dimensions": ("no shape, or more dimensions", lambda s: s.take((1,) * 65)),
        },
    ),
    Refusal(
        P,
        "expected a tensor of {}",
        {
            "import half bytes": (
                "whole bytes, got 3 values of 4 bits. Pass a tensor whose values fill whole bytes.",
                lambda s: s.take((3,), dtype=(0, 4, 1)),
            ),
            "import values of no bits": (
                (
                    "values of at least 1 bit, got 1 lanes of 0 bits. Correct the producer: the type of its values has "
                    "no size."
                ),
                lambda s: s.take((4,), dtype=(0, 0, 1)),
            ),
            "import values of no lanes": (
                (
                    "values of at least 1 bit, got 0 lanes of 8 bits. Correct the producer: the type of its values has "
                    "no size."
                ),
                lambda s: s.take((4,), dtype=(0, 8, 0)),
            ),
            "import beyond the last address": (
                (
                    "at most 2**63 - 1 bytes that ends at 2**64 or before, got 64 bytes at 0xffffffffffffffc1 + 0. "
                    "Correct the producer: no memory has these addresses."
                ),
                lambda s: s.take(address=(1 << 64) - 63),
            ),
            "import from an offset beyond the last address": (
                (
                    f"at most 2**63 - 1 bytes that ends at 2**64 or before, got 64 bytes at 0x... + {(1 << 64) - 1}. "
                    "Correct the producer: no memory has these addresses."
                ),
                lambda s: s.take(offset=(1 << 64) - 1),
            ),
            "import too many bytes": (
                (
                    f"at most 2**63 - 1 bytes that ends at 2**64 or before, got {1 << 124} bytes at 0x... + 0. Correct "
                    "the producer: no memory has these addresses."
                ),
                lambda s: s.take((1 << 62, 1 << 62)),
            ),
            "import version 2": (
                (
                    "DLPack version 1, got one of version 2.1. The producer must honour max_version=(1, 0): use a "
                    "version of the library that does."
                ),
                lambda s: s.take(version=(2, 1)),
            ),
            "import version 0": (
                (
                    "DLPack version 1, got one of version 0.8. The producer must honour max_version=(1, 0): use a "
                    "version of the library that does."
                ),
                lambda s: s.take(version=(0, 8)),
            ),
        },
    ),
    Refusal(
        P,
        "expected a tensor with an address, got 64 bytes at 0x0 + {}. Pass a tensor whose memory is allocated.",
        {
            "import without an address": ("0", lambda s: s.take(address=None)),
            "import from an offset only": ("64", lambda s: s.take(address=None, offset=64)),
        },
    ),
    Refusal(
        P,
        "stream must be a Stream, the address of an aclrtStream, -1 or None, got {}. Pass the Stream that uses the "
        "buffer first.",
        {
            "import for the stream 0": ("0", lambda s: s.device.from_dlpack(s.producer(), stream=0)),
            "import for the stream -2": ("-2", lambda s: s.device.from_dlpack(s.producer(), stream=-2)),
            "import for text": ("'1'", lambda s: s.device.from_dlpack(s.producer(), stream="1")),
            "import for a huge stream": (SHOWN, lambda s: s.device.from_dlpack(s.producer(), stream=HUGE)),
            "import for a stream of 65 bits": (
                str(1 << 64),
                lambda s: s.device.from_dlpack(s.producer(), stream=1 << 64),
            ),
        },
    ),
    Refusal(
        P,
        "expected a stream of device 0, got one of device 1. Pass a stream of the device whose from_dlpack you call.",
        {
            "import for another device": (
                "",
                lambda s: s.device.from_dlpack(s.producer(), stream=s.foreign_stream),
            )
        },
    ),
    Refusal(
        P,
        CLOSED,
        {
            "import for a closed stream": (
                "stream",
                lambda s: s.device.from_dlpack(s.producer(), stream=s.closed_stream),
            )
        },
    ),
)

ROWS: Final = cases((*WRAPS, *IMPORTS))


@pytest.mark.parametrize("name", ROWS)
def test_wrap_or_import_of_unsuitable_memory_is_refused_with_the_remedy(scene: Scene, name: str) -> None:
    ROWS[name].check(scene)
