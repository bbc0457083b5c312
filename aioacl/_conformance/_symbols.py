"""The symbols of a vector for handles and memory, and the values of its arguments.

A symbol is written $x1. Its first letter is its kind: s stream, e event, c context, d, h and p memory, n notify, i a
number. $x1+16 is the address 16 bytes further. A symbol is live until a call has ended the object that it names. After
that it keeps its value, but other outputs are no longer compared with it.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

WORD: Final = (1 << 64) - 1
NUMBER_BLOCK_BYTES: Final = 256
ARRAY_BYTES: Final = 512
ELEMENT_BYTES: Final = {"arr": 8, "w32": 4, "w64": 8}


class Unbound(Exception):
    """An argument uses a symbol that no call has bound."""


@dataclass
class _Symbol:
    value: int
    live: bool = True


class Symbols:
    """The objects that the calls of a vector have made so far, in that order."""

    def __init__(self) -> None:
        self._made: dict[str, _Symbol] = {}

    def bind(self, name: str, value: int) -> None:
        """Binds the name to the value."""
        self._made.pop(name, None)
        self._made[name] = _Symbol(value)

    def end(self, value: int) -> None:
        """Marks the symbols with this value as no longer live."""
        for symbol in self._made.values():
            symbol.live = symbol.live and symbol.value != value

    def value(self, text: str) -> int:
        """Returns the value of an argument such as $s1 or $d2+64."""
        name, _, offset = text.partition("+")
        symbol = self._made.get(name)
        if symbol is None or symbol.value == 0:
            raise Unbound(name)
        return symbol.value + int(offset or 0)

    def alike(self, kind: str, value: int, but: str = "") -> list[str]:
        """Returns the live symbols of a kind that have this value, oldest first."""
        return [
            name
            for name, symbol in self._made.items()
            if name[1] == kind and symbol.live and symbol.value == value and name != but
        ]


def _nothing(_: int | None) -> None:
    """A callback whose calls are not recorded."""


class Callbacks:
    """The three functions that a vector may give to the runtime, and the record of their calls."""

    def __init__(self) -> None:
        self.threads: dict[int, int] = {}  # the numbers of the logical threads, by the system's id
        self._log: list[str] = []
        self._gates: dict[int, threading.Event] = {}
        self._names: dict[str, int] = {}
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self._functions = {"@cb": kind(self._note), "@gate": kind(self._stop), "@exc": kind(_nothing)}

    def address(self, name: str) -> int:
        """Returns the address of the C function."""
        return ctypes.cast(self._functions[name], ctypes.c_void_p).value or 0

    def gate(self, name: str) -> int:
        """Returns the number of a gate, which @gate gets as its argument."""
        number = self._names.setdefault(name, len(self._names) + 1)
        self._gates.setdefault(number, threading.Event())
        return number

    def open(self, number: int) -> None:
        """Lets the calls that wait at the gate continue."""
        self._gates[number].set()

    def take_log(self) -> list[str]:
        """Returns what @cb has recorded since the last call of this method."""
        taken, self._log = self._log, []
        return taken

    def _note(self, tag: int | None) -> None:
        text = ctypes.string_at(tag).decode() if tag else "null"
        number = self.threads.get(threading.get_ident())
        self._log.append(f"{text}@other" if number is None else f"{text}@t{number}")

    def _stop(self, gate: int | None) -> None:
        self._gates[gate or 0].wait()


class Arguments:
    """Converts the arguments of a vector to machine words."""

    def __init__(self, symbols: Symbols, callbacks: Callbacks, thread: Callable[[int], int]) -> None:
        self._symbols = symbols
        self._callbacks = callbacks
        self._thread = thread
        self._kept: list[Any] = []  # memory that the library may still use

    def word(self, value: Any) -> int:
        """Returns the machine word of an argument. Raises Unbound."""
        if value is None:
            return 0
        return (self._of_text(value) if isinstance(value, str) else int(value)) & WORD

    def _of_text(self, text: str) -> int:
        if text.startswith("$"):
            return self._symbols.value(text)
        if text.startswith("@"):
            return self._callbacks.address(text)
        kind, colon, rest = text.partition(":")
        if not colon:
            return 0 if text == "null" else int(text, 0)
        return self._of_kind(kind, rest)

    def _of_kind(self, kind: str, rest: str) -> int:
        if kind == "gate":
            return self._callbacks.gate(rest)
        if kind == "tid":
            return self._thread(int(rest))
        if kind in ("pu32", "pu64"):
            number = int(rest, 0) & (WORD if kind == "pu64" else 0xFFFFFFFF)
            return self.keep(number.to_bytes(8, "little").ljust(NUMBER_BLOCK_BYTES, b"\0"))
        if kind in ELEMENT_BYTES:
            return self._array(rest.split("|"), ELEMENT_BYTES[kind])
        if kind in ("u", "str"):
            return self.keep(rest.encode() + b"\0")
        raise Unbound(f"{kind}:{rest}")

    def _array(self, elements: list[str], size: int) -> int:
        words = b"".join(self.word(each).to_bytes(8, "little")[:size] for each in elements if each)
        return self.keep(words.ljust(ARRAY_BYTES, b"\0"))

    def keep(self, content: bytes) -> int:
        """Copies the bytes to memory that is kept, and returns its address, a multiple of 64."""
        memory = ctypes.create_string_buffer(len(content) + 64)
        address = -(-ctypes.addressof(memory) // 64) * 64
        ctypes.memmove(address, content, len(content))
        self._kept.append(memory)
        return address
