"""Puts Ctrl-C off while the main thread drives a batcher."""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import bind_driver, interruptible

if TYPE_CHECKING:
    from collections.abc import Callable

# The function in C. That of `signal` tries to make an enum of the handler, which takes longer than all the rest.
_in_c: Any = import_module("_signal")
_set_handler: Final[Callable[[int, Any], object]] = _in_c.signal
_sigint: Final = int(signal.SIGINT)


def uninterrupted(function: Callable[[], object]) -> None:
    """Calls a function. If Ctrl-C is pressed meanwhile, raises KeyboardInterrupt afterwards.

    On other threads, and if another function handles the signal, there is nothing to put off.
    """
    if not interruptible():
        function()
        return
    came = list[bool]()

    def put_off(*_: object) -> None:
        came.append(True)

    _set_handler(_sigint, put_off)
    try:
        function()
    finally:
        _set_handler(_sigint, signal.default_int_handler)
        if came:
            raise KeyboardInterrupt


bind_driver(uninterrupted, threading.main_thread().ident)
