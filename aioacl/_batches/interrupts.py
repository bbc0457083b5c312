"""Puts Ctrl-C off while the main thread drives a batcher."""

from __future__ import annotations

import signal
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_main: Final = threading.main_thread().ident
_sigint: Final = int(signal.SIGINT)
# The functions in C: those in Python convert each handler to an enum, which takes longer than all the rest.
_handler_of: Final[Callable[[int], object]] = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
_set_handler: Final[Callable[[int, Any], object]] = getattr(signal.signal, "__wrapped__", signal.signal)


def uninterrupted(function: Callable[[], object]) -> None:
    """Calls a function. If Ctrl-C is pressed meanwhile, raises KeyboardInterrupt afterwards.

    On other threads, and if another function handles the signal, there is nothing to put off.
    """
    if get_ident() != _main or _handler_of(_sigint) is not signal.default_int_handler:
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
