"""Where a model comes from: a file, or bytes that the program has."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aioacl._base.container import HEADER_BYTES, MAGIC_BYTES, is_simulated
from aioacl._base.errors import NotSupported, ParameterError
from aioacl._base.ffi import ffi, lib
from aioacl._base.options import repr_of
from aioacl._library.load import library_info

if TYPE_CHECKING:
    from io import BufferedReader

    from aioacl._base.ffi import CData


class Source:
    """A model's file, or its bytes, which are kept so that the model can be loaded again after a reset.

    Attributes:
        name: the path, or "a model of N bytes".
        label: the file's name without its folder, or "a model of N bytes".
        path: the path; None for bytes.
        for_simulator: whether the model, if it can be loaded, is an ONNX model, which only the simulator loads.
    """

    def __init__(self, model: Any) -> None:
        self.path: Path | None = None
        self._digest = b""
        if isinstance(model, str | os.PathLike):
            self.path = Path(os.fsdecode(cast("str | os.PathLike[str]", model)))
            self.name = str(self.path)
            self.label = self.path.name
            self._bytes: bytes | None = None
            head = self._head()
        else:
            self._bytes = _bytes_of(model)
            self.name = self.label = f"a model of {len(self._bytes)} bytes"
            head = self._bytes[:HEADER_BYTES]
        simulated = library_info().backend == "simulator"
        self.for_simulator = simulated and not head.startswith(MAGIC_BYTES)
        if is_simulated(head) and not simulated:
            raise NotSupported(
                f"expected a model for this chip, got {self.name}, which `simulator atc` made",
                hint="Convert the ONNX model with CANN's atc, or select the simulator: AIOACL_LIBRARY=simulator.",
            )

    def _head(self) -> bytes:
        assert self.path is not None, "only files have a head to read"
        try:
            with _opened(self.path) as file:
                return file.read(HEADER_BYTES)
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ParameterError:
        reason = getattr(error, "strerror", None) or str(error)
        return ParameterError(
            f"expected a file of a model, got {repr_of(self.name)}, which cannot be read: {reason}",
            hint="Pass the path of an .om file that this process can read.",
        )

    def must_be_unchanged(self) -> None:
        """Reads the file, at the first load and at each later one. Raises ParameterError if it has changed."""
        if self.path is None:
            return
        try:
            with _opened(self.path) as file:
                digest = hashlib.file_digest(file, "sha256").digest()
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        if self._digest and digest != self._digest:
            raise ParameterError(
                f"expected the file that was loaded before the reset, got a changed {repr_of(self.name)}",
                hint="Close the model, and load the new file with load_model().",
            )
        self._digest = digest

    def sizes(self) -> tuple[int, int, int]:
        """Returns a code, and the bytes of work memory and of weights (aclmdlQuerySize, aclmdlQuerySizeFromMem)."""
        work: Any = ffi.new("size_t *")
        weights: Any = ffi.new("size_t *")
        if self.path is not None:
            code = lib.aio_u_aclmdlQuerySize(os.fsencode(self.path), work, weights)
        else:
            code = lib.aio_u_aclmdlQuerySizeFromMem(*self._memory(), work, weights)
        return code, work[0], weights[0]

    def load(self, shown: int, id_place: CData, memory: tuple[CData, int, CData, int]) -> int:
        """Loads the model with its memory (aclmdlLoadFromFileWithMem, aclmdlLoadFromMemWithMem). Returns a code."""
        lib.aio_relax_captures()
        if self.path is not None:
            return lib.aio_g_aclmdlLoadFromFileWithMem(shown, os.fsencode(self.path), id_place, *memory)
        return lib.aio_g_aclmdlLoadFromMemWithMem(shown, *self._memory(), id_place, *memory)

    @property
    def call(self) -> str:
        """The ACL function that loads the model."""
        return "aclmdlLoadFromMemWithMem" if self.path is None else "aclmdlLoadFromFileWithMem"

    @property
    def size_call(self) -> str:
        """The ACL function that returns the sizes."""
        return "aclmdlQuerySizeFromMem" if self.path is None else "aclmdlQuerySize"

    def _memory(self) -> tuple[CData, int]:
        assert self._bytes is not None, "a model without a path has bytes"
        return ffi.from_buffer("char[]", self._bytes), len(self._bytes)


def _opened(path: Path) -> BufferedReader:
    """Opens a regular file. Raises OSError for a FIFO or a device, because a read could block or never end."""
    if "\0" in str(path):
        raise ValueError("the path contains a null byte")  # Python's own message depends on its version
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("it is not a regular file")
    return path.open("rb")


def _bytes_of(model: Any) -> bytes:
    try:
        copied = bytes(memoryview(model))
    except (TypeError, ValueError, BufferError) as error:
        raise ParameterError(
            f"expected the path of a model, or its bytes, got {repr_of(model)}",
            hint='Pass a str, a pathlib.Path or bytes: load_model("digits.om").',
        ) from error
    if not copied:
        raise ParameterError("expected a model, got 0 bytes", hint="Pass the contents of an .om file.")
    return copied
