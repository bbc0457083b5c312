"""What kernels in Python and functions in place of models share: a Python function that the simulator calls by name.

The function is registered in C under its name. C passes the key of the registration back with each call. If a name is
registered again, the newer function replaces the older one.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import threading
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Self, SupportsIndex, TypeVar, cast

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi
from aioacl._base.options import repr_of
from aioacl.simulator._control import control_function
from aioacl.simulator._names import c_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData

CODES: Final = 1 << 31
EXPLAINED_BYTES: Final = 150
_REGISTER: Final = "int (*)(const char *, void *, void *)"
_lock: Final = threading.Lock()
_keys: Final = itertools.count(1)
Call = TypeVar("Call")


class Registration(Generic[Call]):
    """A registration of a Python function under a name. The subclasses say of what.

    Attributes:
        name: the name.
        errors: the exceptions that calls of the function have raised, oldest first.
    """

    __slots__ = ("__weakref__", "_function", "_key", "errors", "name")
    _noun: ClassVar[str]  # what the function stands for, in messages
    _failed: ClassVar[int]  # the code of a call whose function raised an exception
    _control: ClassVar[str]  # the function of aclsim.h that registers
    _registered: ClassVar[dict[int, Registration[object]]]  # by key

    def __init__(self, name: str, function: Callable[[Call], SupportsIndex | None]) -> None:
        self.name: Final = name
        self.errors: Final[list[BaseException]] = []
        self._function = function
        self._key = next(_keys)

    @classmethod
    def _c_name(cls, name: str, function: object) -> CData:
        """Returns the name for C. Raises ParameterError for a coroutine function, or a name that is no text of C."""
        if inspect.iscoroutinefunction(function):
            raise ParameterError(
                f"expected a plain function as the {cls._noun} {name!r}, got a coroutine function",
                hint="Pass a plain function: it runs on a thread of the simulator, without an event loop.",
            )
        return c_text(f"the name of a {cls._noun}", name)

    def _begin(self, c_name: CData, trampoline: CData) -> bool:
        """Registers the function. Returns False if C refuses the name."""
        with _lock:
            self._registered[self._key] = cast("Registration[object]", self)
            if (
                control_function(self._control, _REGISTER)(c_name, trampoline, ffi.cast("void *", self._key))
                < 0
            ):
                del self._registered[self._key]
                return False
            older = [
                key
                for key, other in self._registered.items()
                if other.name == self.name and other is not self
            ]
            for key in older:
                del self._registered[key]
        return True

    def _end(self) -> None:
        """Ends the registration, unless it has ended or a newer one has replaced it."""
        with _lock:
            mine = self._registered.pop(self._key, None)
            if mine is not None:  # so no newer registration has this name
                name = c_text(f"the name of a {self._noun}", self.name)
                control_function(self._control, _REGISTER)(name, ffi.NULL, ffi.NULL)

    def __exit__(self, *exc: object) -> None:
        self._end()

    def __enter__(self) -> Self:
        return self

    def _run(self, call: Call) -> int:
        """Calls the function, and returns the code for C."""
        try:
            return _code_of(self._function(call))
        except BaseException as error:  # noqa: BLE001 - `errors` reports it; the thread of the simulator must not end
            self.errors.append(error)
            _explain(error)
            return self._failed


def _code_of(answer: object) -> int:
    """The code that the function has returned."""
    if answer is None:
        return 0
    if inspect.iscoroutine(answer):
        answer.close()
    try:
        code = int(operator.index(cast("SupportsIndex", answer)))
    except TypeError:
        text = f"expected the function to return None, 0 or an error code, got {repr_of(answer)}; return one of these"
        raise TypeError(text) from None
    if not -CODES <= code < CODES:
        raise OverflowError(
            f"expected the function to return a code of 32 bits, got {code}; return an error code of ACL"
        )
    return code


def _explain(error: BaseException) -> None:
    """Adds the exception to the error text of the task's failure."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).replace("\0", "")
    cut = text.encode("utf-8", "replace")[:EXPLAINED_BYTES].decode("utf-8", "ignore")
    control_function("aclsim_explain", "void (*)(const char *)")(c_text("a text", cut))
