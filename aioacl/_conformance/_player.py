"""Runs one vector in the current process.

Each logical thread is a real thread that runs the steps given to it. The main thread starts one step at a time and
waits for it, so the state in this module needs no lock. The vector ends at a step that does not return within the
watchdog's time, and at a step that cannot be run.
"""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from aioacl._conformance._specs import Output, Spec, spec_of
from aioacl._conformance._symbols import Arguments, Callbacks, Symbols, Unbound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioacl._conformance._vectors import Answer, Step, Vector

WATCHDOG_SECONDS: Final = 3.0
OUTPUT_BYTES: Final = 512
NUMBER_BYTES: Final = 4
ROW: Final = bytes(i * 7 & 0xFF for i in range(256))
TWICE: Final = bytes(range(256)) * 2
UNWRITTEN: Final = b"\xa5" * 16
NUMBERS: Final = {
    "i": ctypes.c_int32,
    "u": ctypes.c_uint32,
    "l": ctypes.c_int64,
    "t": ctypes.c_uint64,
    "M": ctypes.c_int32,
}


class _Worker:
    """A logical thread."""

    def __init__(self, number: int, callbacks: Callbacks, perform: Callable[[Step], Answer]) -> None:
        self.answer: Answer = {}
        self._steps: SimpleQueue[Step | None] = SimpleQueue()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._busy = False
        self._callbacks = callbacks
        self._perform = perform
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._thread.ident is not None
        self.ident = self._thread.ident
        callbacks.threads[self.ident] = number

    def _run(self) -> None:
        while (step := self._steps.get()) is not None:
            self._answers.put(self._perform(step))

    def give(self, step: Step) -> None:
        """Starts the step on the thread."""
        self._busy = True
        self._steps.put(step)

    def done(self, seconds: float) -> bool:
        """Waits until the thread has no step to run. Returns False after `seconds`."""
        if self._busy:
            try:
                self.answer = self._answers.get(timeout=seconds)
            except Empty:
                return False
            self._busy = False
        return True

    def end(self) -> None:
        """Ends the thread, and waits until the library's work at the end of a thread is done too."""
        there = Path(f"/proc/self/task/{self._thread.native_id}")
        del self._callbacks.threads[self.ident]
        self._steps.put(None)
        self._thread.join()
        while there.exists():
            time.sleep(0.0002)


class Player:
    """A library, and the objects that a vector has made in it."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._workers: dict[int, _Worker] = {}
        self._symbols = Symbols()
        self._callbacks = Callbacks()
        self._arguments = Arguments(self._symbols, self._callbacks, lambda number: self._worker(number).ident)

    def begin(self) -> None:
        """Makes the simulator read its settings, as the first call does. An invalid setting ends the process."""
        if hasattr(self._library, "aclsim_release_all"):
            self._library.aclsim_release_all()

    def play(self, vector: Vector) -> Iterator[Answer]:
        """Yields the result of each step."""
        for step in vector.steps:
            answer = self._step(step)
            yield answer
            if answer.keys() & {"missing", "unbound", "blocks"}:
                return

    def _worker(self, number: int) -> _Worker:
        worker = self._workers.get(number)
        if worker is None:
            worker = self._workers[number] = _Worker(number, self._callbacks, self._perform)
        return worker

    def _step(self, step: Step) -> Answer:
        worker = self._worker(step.thread)
        if not worker.done(WATCHDOG_SECONDS):
            return {"blocks": "the previous step on this thread blocks"}
        if step.call == "respawn":
            worker.end()
            del self._workers[step.thread]
            self._worker(step.thread)
            return {"rc": 0}
        if step.call == "join":
            return worker.answer
        worker.give(step)
        if step.wait_ms is not None:
            done = worker.done(step.wait_ms / 1000)
            return {**worker.answer, "done": True} if done else {"done": False}
        return worker.answer if worker.done(WATCHDOG_SECONDS) else {"blocks": "the call blocks"}

    # --- on the logical thread ----------------------------------------------------------------------------------------

    def _perform(self, step: Step) -> Answer:
        try:
            return self._call(step) if step.call.startswith("acl") else self._pseudo(step)
        except Unbound as name:
            return {"unbound": f"{name} is not bound"}
        except Exception as error:  # noqa: BLE001 - otherwise the thread would end, and be reported as blocked
            return {"unbound": f"the step is invalid: {error!r}"}

    def _call(self, step: Step) -> Answer:
        spec = spec_of(step.call)
        if spec is None or not hasattr(self._library, step.call):
            return {"missing": "the library lacks the function" if spec else "no header has the function"}
        outputs: list[tuple[Output, ctypes.Array[ctypes.c_char]]] = []
        words = list(self._words(step, spec, outputs))
        value = self._function(step.call, len(words))(*words)
        if spec.returns_pointer:
            return self._pointer(step, value)
        if spec.returns_size:
            return {"rc": 0, "out": {"size": value}}
        code = ctypes.c_int32(value).value
        out = self._success(step, spec, words, outputs) if code == 0 else {}
        return {"rc": code, "out": out} if out and not step.quiet else {"rc": code}

    def _function(self, name: str, words: int) -> Callable[..., int]:
        """Returns the library's function, with machine words as arguments and a word as result."""
        function = getattr(self._library, name)
        function.argtypes = [ctypes.c_uint64] * words
        function.restype = ctypes.c_int64
        called: Callable[..., int] = function
        return called

    def _words(
        self, step: Step, spec: Spec, outputs: list[tuple[Output, ctypes.Array[ctypes.c_char]]]
    ) -> Iterator[int]:
        given = iter(step.arguments)
        for output in spec.parameters:
            if output is None:
                yield self._arguments.word(next(given, "missing:argument"))
            elif output.kind == "M":
                yield from self._changed(next(given, "missing:argument"), output, outputs)
            elif output.name in step.null:
                yield 0
            else:
                start = b"" if output.kind in "HPS" else UNWRITTEN
                memory = ctypes.create_string_buffer(start, OUTPUT_BYTES)
                outputs.append((output, memory))
                yield ctypes.addressof(memory)

    def _changed(
        self, given: Any, output: Output, outputs: list[tuple[Output, ctypes.Array[ctypes.c_char]]]
    ) -> Iterator[int]:
        """Yields the address of a number that the vector gives and the function changes, or 0."""
        address = self._arguments.word(given)
        if address:
            outputs.append((output, (ctypes.c_char * NUMBER_BYTES).from_address(address)))
        yield address

    def _pointer(self, step: Step, value: int) -> Answer:
        if value and step.binds:
            self._symbols.bind(step.binds[0], value)
        return {"rc": 0, "out": {"present": int(value != 0)}}

    def _success(
        self,
        step: Step,
        spec: Spec,
        words: list[int],
        outputs: list[tuple[Output, ctypes.Array[ctypes.c_char]]],
    ) -> dict[str, Any]:
        if spec.ends and words:
            self._symbols.end(words[0])
        binds, out = iter(step.binds), dict[str, Any]()
        for output, memory in outputs:
            out |= self._written(output, memory, spec, binds)
        return out

    # --- outputs ------------------------------------------------------------------------------------------------------

    def _written(
        self, output: Output, memory: ctypes.Array[ctypes.c_char], spec: Spec, binds: Iterator[str]
    ) -> dict[str, Any]:
        kind, name = output.kind, output.name
        if kind in "-S":
            return {}
        if kind in "HP":
            return self._handle(name, ctypes.c_uint64.from_buffer(memory).value, spec, next(binds, ""))
        if kind == "f":
            time_ms = ctypes.c_float.from_buffer(memory).value
            return {"sign": "+" if time_ms > 0 else "-" if time_ms < 0 else "0"}
        number = NUMBERS[kind].from_buffer(memory).value
        if kind == "t":
            return {"positive": int(number > 0)}
        if spec.same_as == "i":
            return self._same("i", name, number + 1000, next(binds, ""))  # no symbol may have the value zero
        return {name: number}

    def _handle(self, name: str, value: int, spec: Spec, bind: str) -> dict[str, Any]:
        if spec.same_as == "c":
            return self._context(name, value, bind)
        if spec.same_as:
            return self._same(spec.same_as, name, value, bind)
        if bind:
            self._symbols.bind(bind, value)
        return {} if value else {name: None}

    def _same(self, kind: str, name: str, value: int, bind: str) -> dict[str, Any]:
        alike = self._symbols.alike(kind, value, but=bind)
        if bind:
            self._symbols.bind(bind, value)
        return {name: alike[0] if alike else "new"}

    def _context(self, name: str, value: int, bind: str) -> dict[str, Any]:
        """Returns the symbol of an explicit context, or the device of a primary one."""
        alike = self._symbols.alike("c", value)
        found = max(alike) if alike else self._primary()
        if bind:
            self._symbols.bind(bind, value)
        return {name: found}

    def _primary(self) -> str:
        device = ctypes.c_int32(-1)
        code = self._function("aclrtGetDevice", 1)(ctypes.addressof(device))
        return f"primary:{device.value}" if code & 0xFFFFFFFF == 0 else "unknown"

    # --- steps that are not calls -------------------------------------------------------------------------------------

    def _pseudo(self, step: Step) -> Answer:
        words = [self._arguments.word(value) for value in step.arguments]
        out: dict[str, Any] | None = {}
        match step.call, words:
            case "sleep", [milliseconds]:
                time.sleep(milliseconds / 1000)
            case "release", [gate]:
                self._callbacks.open(gate)
            case "cblog", []:
                out = {"log": self._callbacks.take_log()}
            case "halloc", [size]:
                self._symbols.bind(step.binds[0], self._arguments.keep(bytes(size)))
            case _:
                out = _touch(step.call, words)
        if out is None:
            return {"missing": "expected a known step, got an unknown one"}
        return {"rc": 0, "out": out} if out else {"rc": 0}


def _touch(call: str, words: list[int]) -> dict[str, Any] | None:
    """Writes to or reads host memory. Returns None if the step is unknown."""
    match call, words:
        case "fill", [memory, offset, size, byte]:
            _write(memory + offset, bytes([byte & 0xFF]) * size)
        case "pattern", [memory, offset, size, seed]:
            _write(memory + offset, _pattern(size, seed))
        case "check", [memory, offset, size]:
            return {"byte": _only_byte(ctypes.string_at(memory + offset, size))}
        case "checkpat", [memory, offset, size, seed]:
            return {"match": int(ctypes.string_at(memory + offset, size) == _pattern(size, seed))}
        case _:
            return None
    return {}


def _write(address: int, content: bytes) -> None:
    ctypes.memmove(address, content, len(content))


def _pattern(size: int, seed: int) -> bytes:
    """Returns bytes: byte i is seed * 31 + i * 7 + (i >> 8) * 13, which repeats after 65536 bytes."""
    shifts = ((seed * 31 + row * 13) & 0xFF for row in range(min(256, size // 256 + 1)))
    period = b"".join(ROW.translate(TWICE[shift : shift + 256]) for shift in shifts)
    return (period * (size // len(period) + 1))[:size]


def _only_byte(content: bytes) -> int:
    """Returns the value that all bytes have, or -1."""
    return content[0] if content.count(content[:1]) == len(content) else -1
