"""Puts Ctrl-C off while the main thread drives a batcher."""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_main: Final = threading.main_thread().ident
_sigint: Final = int(signal.SIGINT)
# The functions in C. Those of `signal` try to make an enum of each handler, which takes longer than all the rest.
_in_c: Any = import_module("_signal")
_handler_of: Final[Callable[[int], object]] = _in_c.getsignal
_set_handler: Final[Callable[[int, Any], object]] = _in_c.signal


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
