"""The container of offline models, `.om`: reads any, and writes those of the simulator.

All numbers are little-endian. The file begins with CANN's header of 256 bytes:

    0 magic "IMOD"    4 size of the header    8 version    76 bytes after the header, 32 bits    80 encrypted
    84 name, 32 bytes    156 number of models    184 bytes after the header, 64 bits    193 dynamic shapes

CANN reserves the bytes from 194 on. The simulator's files have a marker of 16 bytes at 208. After the header comes the
table of partitions: a count, padding, and for each partition {type u32, padding, offset u64, size u64}. Offsets count
from the end of the table. If the length at 184 is 0, the table has 32-bit fields without padding.

Partition 8 describes the inputs and outputs. It is a sequence of blocks {type u32, length u32, bytes}:

    0 inputs, 1 outputs    count u32, then for each tensor {bytes u64, format i32, data type i32, length of the name, of
                           the shape, of the shape before AIPP, and of the ranges, each in bytes, u32}, and these four
                           parts. A shape has 64-bit numbers. A range is a pair of them
    2 batch sizes          count u32, then a u64 each
    3 image sizes, 4 dims  count u32, then the number of values of each gear u32, then the values i64
    5 output shapes, 6 order of the inputs    count u32, then the length of each text u32, then the texts

An image size is height and width. A gear of dims has one value for each -1 in the shapes of the inputs. An output shape
is the text "gear,output,dim,dim...". If there are gears, the last input, `ascend_mbatch_shape_data`, selects one.

A partition of the simulator's own holds the ONNX model: the SHA-256 of the rest, version u32, padding, length u64, and
the bytes. Readers check every length before they use it.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from aioacl._base.container import HEADER_BYTES, MAGIC_BYTES, MARKER, MARKER_AT

MAGIC: Final = int.from_bytes(MAGIC_BYTES, "little")
VERSION: Final = 0x10000000
NAME_AT, NAME_BYTES = 84, 32
DYNAMIC_AT: Final = 193
DESCRIPTION: Final = 8
ONNX: Final = 0x41494F00
ONNX_VERSION: Final = 1

_INPUTS, _OUTPUTS, _BATCH_SIZES, _IMAGE_SIZES, _DIMS, _OUTPUT_SHAPES, _ORDER = range(7)
_TENSOR: Final = struct.Struct("<QiiIIII")
_DIGEST_BYTES: Final = 32
_AGAIN: Final = "convert the model again, or copy the file again"


class BadModel(ValueError):
    """A model cannot be used; the text says what was expected, what came and what to do."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output. Its data type and format are numbers of ACL.

    A dimension of -1 depends on the gear, or is known only when the model runs. `nbytes` is the size of the largest
    shape; 0 if there is none.
    """

    name: str
    dtype: int
    format: int
    shape: tuple[int, ...]
    nbytes: int
    unscaled: tuple[int, ...] = ()  # the shape before AIPP, in genuine files
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Description:
    """What a file states about its inputs and outputs. At most one kind of gears is not empty."""

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    image_sizes: tuple[tuple[int, ...], ...] = ()
    dims: tuple[tuple[int, ...], ...] = ()
    output_shapes: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def gear_shapes(self, output: int) -> list[tuple[int, ...]]:
        """Returns the shape of an output in each gear; an empty list if the file does not state them all.

        The texts of `output_shapes` are "gear,output,dim,dim...".
        """
        try:
            stated = [[*map(int, text.split(","))] for text in self.output_shapes]
        except ValueError:  # nothing has checked the texts of a genuine file
            return []
        shapes = [
            tuple(shape)
            for _, number, *shape in (each for each in stated if len(each) > 1)
            if number == output
        ]
        gears = len(self.batch_sizes or self.image_sizes or self.dims)
        same = len(shapes) == gears and len({*map(len, shapes)}) == 1
        return shapes if same else []


@dataclass(frozen=True, slots=True)
class Model:
    """The contents of a file. `onnx` and `sha256` are None in genuine files."""

    name: str
    description: Description | None  # genuine files may have none
    onnx: bytes | None
    sha256: str | None
    dynamic: bool = False  # some shapes are known only when the model runs

    @property
    def simulated(self) -> bool:
        """Whether the simulator can execute the file."""
        return self.onnx is not None


# --- writing ------------------------------------------------------------------------------------------------------


def write(name: str, description: Description, onnx: bytes, *, dynamic: bool = False) -> bytes:
    """Returns the bytes of a simulated `.om`."""
    private = struct.pack("<IIQ", ONNX_VERSION, 0, len(onnx)) + onnx
    partitions = (
        (DESCRIPTION, _described(description)),
        (ONNX, hashlib.sha256(private).digest() + private),
    )
    table = struct.pack("<II", len(partitions), 0)
    offset = 0
    for kind, content in partitions:
        table += struct.pack("<IIQQ", kind, 0, offset, len(content))
        offset += len(content)
    return b"".join(
        [_header(name, len(table) + offset, dynamic), table, *(content for _, content in partitions)]
    )


def _header(name: str, length: int, dynamic: bool) -> bytes:
    if length > 0xFFFFFFFF:
        raise BadModel(f"expected a model below 4 GiB, got {length} bytes; use a smaller model")
    header = bytearray(HEADER_BYTES)
    struct.pack_into("<III", header, 0, MAGIC, HEADER_BYTES, VERSION)
    struct.pack_into("<I", header, 76, length)
    struct.pack_into("<Q", header, 184, length)
    short = name.encode()[: NAME_BYTES - 1].decode(errors="ignore").encode()  # ends between two characters
    header[NAME_AT : NAME_AT + len(short)] = short
    header[DYNAMIC_AT] = dynamic
    header[MARKER_AT : MARKER_AT + len(MARKER)] = MARKER
    return bytes(header)


def _described(description: Description) -> bytes:
    blocks = {
        _INPUTS: _packed_tensors(description.inputs),
        _OUTPUTS: _packed_tensors(description.outputs),
        _BATCH_SIZES: _counted("Q", description.batch_sizes),
        _IMAGE_SIZES: _packed_gears(description.image_sizes),
        _DIMS: _packed_gears(description.dims),
        _OUTPUT_SHAPES: _packed_texts(description.output_shapes),
        _ORDER: _packed_texts(description.order),
    }
    return b"".join(
        struct.pack("<II", kind, len(content)) + content
        for kind, content in blocks.items()
        if kind in (_INPUTS, _OUTPUTS) or len(content) > struct.calcsize("I")
    )


def _packed_tensors(tensors: tuple[Tensor, ...]) -> bytes:
    return struct.pack("<I", len(tensors)) + b"".join(_packed_tensor(each) for each in tensors)


def _packed_tensor(tensor: Tensor) -> bytes:
    ends = [end for pair in tensor.ranges for end in pair]
    parts = [
        tensor.name.encode(),
        *(struct.pack(f"<{len(row)}q", *row) for row in (tensor.shape, tensor.unscaled, ends)),
    ]
    fixed = _TENSOR.pack(tensor.nbytes, tensor.format, tensor.dtype, *map(len, parts))
    return fixed + b"".join(parts)


def _counted(kind: str, values: tuple[int, ...]) -> bytes:
    return struct.pack(f"<I{len(values)}{kind}", len(values), *values)


def _packed_gears(gears: tuple[tuple[int, ...], ...]) -> bytes:
    sizes = _counted("I", tuple(len(gear) for gear in gears))
    return sizes + b"".join(struct.pack(f"<{len(gear)}q", *gear) for gear in gears)


def _packed_texts(texts: tuple[str, ...]) -> bytes:
    encoded = [text.encode() for text in texts]
    return _counted("I", tuple(len(text) for text in encoded)) + b"".join(encoded)


# --- reading ------------------------------------------------------------------------------------------------------


class _Cursor:
    """A place in bytes that only moves forward, and never beyond their end."""

    def __init__(self, content: memoryview) -> None:
        self._rest = content

    def __bool__(self) -> bool:
        return bool(self._rest)

    def take(self, count: int, what: str) -> memoryview:
        if count > len(self._rest):
            raise BadModel(f"expected {count} bytes of {what}, got {len(self._rest)}; {_AGAIN}")
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def rest(self) -> memoryview:
        return self._rest

    def numbers(self, kinds: str, what: str) -> tuple[int, ...]:
        layout = struct.Struct(f"<{kinds}")
        return layout.unpack(self.take(layout.size, what))

    def number(self, kind: str, what: str) -> int:
        return self.numbers(kind, what)[0]

    def many(self, kind: str, count: int, what: str) -> tuple[int, ...]:
        """Returns `count` numbers. The bytes are taken first, so a wrong count fails and does not use memory."""
        content = self.take(count * struct.calcsize(f"<{kind}"), what)
        return struct.unpack(f"<{count}{kind}", content)

    def text(self, count: int, what: str) -> str:
        """Returns a text. Genuine files may have names that are not UTF-8."""
        return bytes(self.take(count, what)).decode(errors="surrogateescape")


def read(content: bytes) -> Model:
    """Returns what a `.om` contains. Raises BadModel for any other bytes."""
    header = _Cursor(memoryview(content)).take(HEADER_BYTES, "the header of a .om file")
    magic, header_bytes = struct.unpack_from("<II", header)
    if magic != MAGIC:
        raise BadModel(
            f"expected a .om file, which begins with {MAGIC_BYTES!r}, got {bytes(header[:4])!r}; pass a .om file"
        )
    if header_bytes != HEADER_BYTES:
        raise BadModel(f"expected a header of {HEADER_BYTES} bytes, got {header_bytes}; {_AGAIN}")
    if header[80]:
        raise BadModel(
            "expected a .om file that is not encrypted, got an encrypted one; convert it without encryption"
        )
    (models,) = struct.unpack_from("<I", header, 156)
    if models > 1:
        raise BadModel(
            f"expected one model in the file, got {models}; convert each model to a file of its own"
        )
    partitions = _partitions(memoryview(content)[HEADER_BYTES:], header)
    described = partitions.get(DESCRIPTION)
    onnx, digest = _onnx(header, partitions)
    return Model(
        name=bytes(header[NAME_AT : NAME_AT + NAME_BYTES])
        .partition(b"\0")[0]
        .decode(errors="surrogateescape"),
        description=None if described is None else _description(_Cursor(described)),
        onnx=onnx,
        sha256=digest,
        dynamic=bool(header[DYNAMIC_AT]),
    )


def _partitions(body: memoryview, header: memoryview) -> dict[int, memoryview]:
    """Returns the first partition of each type."""
    (short,), (long,) = struct.unpack_from("<I", header, 76), struct.unpack_from("<Q", header, 184)
    if len(body) != (long or short):
        raise BadModel(f"expected {long or short} bytes after the header, got {len(body)}; {_AGAIN}")
    table, what = _Cursor(body), "the table of partitions"
    count = table.numbers("II" if long else "I", what)[0]
    rows = [table.numbers("I4xQQ" if long else "III", what) for _ in range(count)]
    content = table.rest()
    for kind, offset, size in rows:
        if offset > len(content) or size > len(content) - offset:
            raise BadModel(
                f"expected partition {kind} inside the {len(content)} bytes after the table, "
                f"got {size} bytes at {offset}; {_AGAIN}"
            )
    return {kind: content[offset : offset + size] for kind, offset, size in reversed(rows)}


def _onnx(header: memoryview, partitions: dict[int, memoryview]) -> tuple[bytes | None, str | None]:
    """Returns the ONNX model and the SHA-256 of its partition, or None for a genuine file."""
    if bytes(header[MARKER_AT : MARKER_AT + len(MARKER)]) != MARKER:
        return None, None
    if ONNX not in partitions:
        raise BadModel(
            f"expected the partition of the ONNX model in a simulated .om file, got none; {_AGAIN}"
        )
    cursor, what = _Cursor(partitions[ONNX]), "the partition of the ONNX model"
    digest = bytes(cursor.take(_DIGEST_BYTES, what))
    actual = hashlib.sha256(cursor.rest()).digest()
    if digest != actual:
        raise BadModel(
            f"expected an ONNX model with the SHA-256 {digest.hex()}, got {actual.hex()}; {_AGAIN}"
        )
    version, length = cursor.numbers("I4xQ", what)
    if version != ONNX_VERSION:
        raise BadModel(
            f"expected version {ONNX_VERSION} of the simulator's partition, got {version}; convert it again"
        )
    if length != len(cursor.rest()):
        raise BadModel(f"expected an ONNX model of {length} bytes, got {len(cursor.rest())}; {_AGAIN}")
    return bytes(cursor.rest()), digest.hex()


def _description(cursor: _Cursor) -> Description:
    blocks: dict[int, memoryview] = {}
    while cursor:
        kind, length = cursor.numbers("II", "a block of the description")
        blocks.setdefault(kind, cursor.take(length, f"block {kind} of the description"))

    def block(kind: int) -> _Cursor:
        return _Cursor(blocks.get(kind, memoryview(bytes(4))))  # a missing block is as one with a count of 0

    return Description(
        inputs=_tensors(block(_INPUTS), "an input"),
        outputs=_tensors(block(_OUTPUTS), "an output"),
        batch_sizes=_values(block(_BATCH_SIZES), "Q", "the batch sizes"),
        image_sizes=_gears(block(_IMAGE_SIZES), "the image sizes"),
        dims=_gears(block(_DIMS), "the gears of dims"),
        output_shapes=_texts(block(_OUTPUT_SHAPES), "the output shapes"),
        order=_texts(block(_ORDER), "the order of the inputs"),
    )


def _tensors(cursor: _Cursor, what: str) -> tuple[Tensor, ...]:
    return tuple(_tensor(cursor, what) for _ in range(cursor.number("I", what)))


def _tensor(cursor: _Cursor, what: str) -> Tensor:
    fixed = cursor.take(_TENSOR.size, what)
    nbytes, layout, dtype, name, *lengths = _TENSOR.unpack(fixed)
    text = cursor.text(name, f"the name of {what}")
    shape, unscaled, ends = (_row(cursor, length, f"the shape of {what}") for length in lengths)
    if len(ends) % 2:
        raise BadModel(
            f"expected ranges of {what} that are pairs of numbers, got {len(ends)} numbers; {_AGAIN}"
        )
    return Tensor(
        text, dtype, layout, shape, nbytes, unscaled, tuple(zip(ends[::2], ends[1::2], strict=True))
    )


def _row(cursor: _Cursor, length: int, what: str) -> tuple[int, ...]:
    if length % 8:
        raise BadModel(f"expected 64-bit numbers in {what}, got {length} bytes; {_AGAIN}")
    return cursor.many("q", length // 8, what)


def _values(cursor: _Cursor, kind: str, what: str) -> tuple[int, ...]:
    return cursor.many(kind, cursor.number("I", what), what)


def _gears(cursor: _Cursor, what: str) -> tuple[tuple[int, ...], ...]:
    return tuple(cursor.many("q", size, what) for size in _values(cursor, "I", what))


def _texts(cursor: _Cursor, what: str) -> tuple[str, ...]:
    return tuple(cursor.text(size, what) for size in _values(cursor, "I", what))
