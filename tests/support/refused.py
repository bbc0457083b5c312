"""Tables of refused arguments: the objects that their rows use, and the check of a row."""

from __future__ import annotations

import mmap
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.kit import no_call
from tests.support.dlpack import EXTENSION, READ_ONLY, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import aioacl

SIZE: Final = 64
HUGE: Final = 10**5000  # Python does not convert an int with more than 4300 digits to text
SHOWN: Final = "an int of 16610 bits"  # HUGE in a message
CLOSED: Final = "device 0: the {} is closed. Make a new {}."


class Scene:
    """What the rows use. The attributes have no types, because the rows pass arguments of wrong types."""

    def __init__(self, device: aioacl.Device, other: aioacl.Device) -> None:
        self.made: list[Producer] = []
        self.device: Any = device
        self.stream: Any = device.create_stream().result()
        self.memory: Any = device.allocate(SIZE).result()
        self.pinned: Any = device.pinned(SIZE).result()
        self.tensor: Any = device.from_dlpack(self.producer(flags=READ_ONLY))
        self.event: Any = self.stream.record()
        self.foreign: Any = other.allocate(SIZE).result()
        self.foreign_stream: Any = other.create_stream().result()
        self.foreign_event: Any = other.create_event().result()
        self.closed: Any = device.allocate(SIZE).result()
        self.closed_pinned: Any = device.pinned(SIZE).result()
        self.closed_stream: Any = device.create_stream().result()
        for thing in (self.closed, self.closed_pinned, self.closed_stream):
            thing.close().result()
        self.made.clear()  # the tensor above was not refused

    def producer(self, shape: tuple[int, ...] = (SIZE,), **options: Any) -> Any:
        """Returns a tensor of another library, in the memory of `memory`."""
        self.made.append(Producer(options.pop("address", self.memory.address), shape, **options))
        return self.made[-1]

    def take(self, shape: tuple[int, ...] = (SIZE,), **options: Any) -> object:
        """Imports such a tensor."""
        return self.device.from_dlpack(self.producer(shape, **options))

    def close(self) -> None:
        """Closes what is open."""
        opened = (self.tensor, self.event, self.stream, self.memory, self.pinned)
        for thing in (*opened, self.foreign_stream, self.foreign_event, self.foreign):
            thing.close().result()


class Refusal(NamedTuple):
    """The class and the whole message of an error, and the calls that raise it.

    In the message, `{}` stands for the part that differs between the rows, and `...` for words of Python itself.
    """

    kind: type[Exception]
    message: str
    rows: dict[str, tuple[str, Callable[[Scene], object]]]


class Case(NamedTuple):
    """One row of a table."""

    call: Callable[[Scene], object]
    kind: type[Exception]
    message: str

    def check(self, scene: Scene) -> None:
        """Makes the call; checks the error, that no ACL function was called, and that tensors were deleted once."""
        error: Exception | None = None
        with no_call():
            try:
                self.call(scene)
            except Exception as caught:
                error = caught.with_traceback(None)
        assert type(error) is self.kind
        for tensor in scene.made:
            assert len(tensor.deletes) == len(tensor.requests)
        pattern = re.escape(self.message).replace(re.escape("..."), ".+")
        assert re.fullmatch(pattern, str(error)), f"expected {self.message!r}, got {str(error)!r}"


def cases(table: Sequence[Refusal]) -> dict[str, Case]:
    """Returns the rows by their names, which must be unique."""
    found: dict[str, Case] = {}
    for kind, message, rows in table:
        for name, (part, call) in rows.items():
            assert name not in found, f"expected unique names, got {name} twice"
            found[name] = Case(call, kind, message.replace("{}", part))
    return found


class Unreadable:
    """A number whose value cannot be read."""

    def __index__(self) -> int:
        raise ZeroDivisionError("broken")


class Unshowable:
    """An object whose repr cannot be made."""

    def __repr__(self) -> str:
        raise ZeroDivisionError("broken")


class Half:
    """An object that has only one of the two methods of DLPack."""

    def __dlpack__(self) -> None: ...


class Returning:
    """An object whose two methods of DLPack return fixed values."""

    def __init__(self, capsule: object, device: object = (EXTENSION, 0)) -> None:
        self._capsule, self._device = capsule, device

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> object:
        return self._device


def released() -> memoryview:
    """Returns a memoryview that is released."""
    view = memoryview(bytearray(8))
    view.release()
    return view


def unmapped() -> mmap.mmap:
    """Returns a mapping that is closed."""
    mapping = mmap.mmap(-1, 8)
    mapping.close()
    return mapping
