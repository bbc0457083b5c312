"""The general caller: makes a Python function from a row of the table.

A call goes to the C function that the build has made for the row (`aio_p_NAME`), which takes numbers in place of
pointers. cffi converts the arguments, and releases the GIL during the call. If cffi refuses an argument, the call finds
out which one. As in pyACL, an unsigned argument keeps its low bits only; every other misfit raises TypeError or
OverflowError. An error code is always returned, never raised.

The usual path of a call is short, because it may take at most 1.5 times as long as the call of cffi alone. Everything
that concerns errors is in functions that only a failing call reaches.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import codes
from aioacl._base.errors import AclWarning, error_for
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._base.options import repr_of
from aioacl._library import runtime
from aioacl._pyacl.arguments import check, encoded
from aioacl._pyacl.structures import read
from aioacl._pyacl.table import STRUCTURES, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, FunctionType

    from aioacl._base.ffi import CData

FORKED: Final = 100001  # ACL_ERROR_UNINITIALIZE; build_pyacl.py has this number too
UNSUPPORTED: Final = 200006  # ACL_ERROR_FEATURE_UNSUPPORTED
TRACE: Final = "AIOACL_PYACL_TRACE"

_C_TYPES: Final = {
    "pointer": "uint64_t *",
    "size": "uint64_t *",
    "uint": "uint32_t *",
    "int": "int32_t *",
    "long": "int64_t *",
    "float": "float *",
    **{kind: f"{c_type} *" for kind, c_type in STRUCTURES.items()},
}
_EMPTY: Final[dict[str, Any]] = {"text": "", "list": [], "array": None, "object": None, "float": 0.0}
# These functions return the last error of the thread or context, so their code is no failure of their own.
_ANSWERS: Final = frozenset({"aclrtPeekAtLastError", "aclrtGetLastError"})
# In place of the hint of ACL_ERROR_RT_CONTEXT_NULL, which names the handles of aioacl.
_HINTS: Final = {107002: "Call acl.rt.set_device or acl.rt.set_context on this thread first."}
_WAITS_IN_VAIN: Final = 107020  # ACL_ERROR_WAIT_CALLBACK_TIMEOUT: process_report found nothing to do

_new: Final = ffi.new
_cold = True
_warned: Final[set[str]] = set()


def warm() -> None:
    """Begins to use the library: from here on, aioacl notices resets by this module, and forked children get codes.

    The import of the module does not do this, so a program may import it and fork afterwards.
    """
    global _cold  # noqa: PLW0603 - there is one library in a process
    if not lib.aio_forked() and not sys.is_finalizing():
        runtime.load()
    _cold = False


def begin() -> bool:
    """Prepares a call of a function that is written by hand. Returns whether the process may call ACL."""
    if _cold:
        warm()
    return not lib.aio_forked()


# --- errors -------------------------------------------------------------------------------------------------------


def _level() -> int:
    """Returns the `stacklevel` with which the caller's warning names the program's line."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("aioacl._pyacl"):
        frame, level = frame.f_back, level + 1
    return level


def _warn_once(key: str, text: str) -> None:
    if key not in _warned:
        _warned.add(key)
        warnings.warn(text, AclWarning, stacklevel=_level())


def failed(row: Row, arguments: Sequence[object], code: int) -> int:
    """Returns the code that the program gets for a code of C. Warns and traces if the code calls for it."""
    if lib.aio_forked():
        _warn_once(
            "fork",
            f"{row.full_name}: this process was forked after its parent had used ACL, so each call returns {FORKED}; "
            'start processes with multiprocessing.get_context("spawn"), or fork before the first call of ACL',
        )
    if code == lib.AIO_ABSENT:
        code = UNSUPPORTED
        _warn_once(row.full_name, f"{row.full_name}: the loaded ACL library has no {row.c_name}")
    if os.environ.get(TRACE, "0") not in ("", "0") and row.c_name not in _ANSWERS and code != _WAITS_IN_VAIN:
        _trace(row, arguments, code)
    return code


def _trace(row: Row, arguments: Sequence[object], code: int) -> None:
    """Prints one line about a call that has failed."""
    error = error_for(code, row.c_name or row.full_name, message="")
    text = " ".join(text_of(lib.aio_error_text()).split())
    shown = ", ".join(_shown(each) for each in arguments)
    parts = [f"{row.full_name}({shown}) returned {code} {codes.lookup(code).name}", text]
    parts.append(_HINTS.get(code, error.hint))
    sys.stderr.write(f"aioacl: {'; '.join(part for part in parts if part)}\n")


def _shown(value: object) -> str:
    if isinstance(value, int) and value >= 1 << 32:  # such a number is an address
        return hex(value)
    return repr(os.fsdecode(value)) if isinstance(value, bytes) else repr_of(value)


# --- forms of results ---------------------------------------------------------------------------------------------


# A function with a fixed number of parameters is called faster than one with `*arguments`. So the usual forms are
# compiled once for each number of parameters, and each row gets the names of its own.
_BODY: Final = """
def make(row, native, c_type):
    def call({names}):
        if _cold:
            warm()
        {before}
        try:
            {value} = native({passed})
        except (TypeError, OverflowError):
            {value} = native(*check(row, ({listed})){out})
        {after}
    return call
"""
_PARTS: Final[dict[str, dict[str, str]]] = {
    "code": {
        "before": "",
        "value": "code",
        "after": "return failed(row, ({listed}), code) if code else code",
    },
    "result": {
        "before": "out = _new(c_type)",
        "value": "code",
        "after": "return out[0], (failed(row, ({listed}), code) if code else code)",
    },
    "value": {"before": "", "value": "value", "after": "return value"},
}


@cache
def _compiled(form: str, count: int) -> Callable[..., FunctionType]:
    """Returns a function that makes the Python function of a row."""
    names = [f"a{index}" for index in range(count)]
    listed = "".join(f"{name}, " for name in names)
    out = ["out"] if form == "result" else []
    parts = {
        "names": ", ".join([*names, "/"] if names else []),
        "passed": ", ".join([*names, *out]),
        "listed": listed,
        "out": "".join(f", {each}" for each in out),
        **_PARTS[form],
    }
    parts["after"] = parts["after"].format(listed=listed)
    made: dict[str, Any] = {}
    exec(_BODY.format(**parts), globals(), made)  # noqa: S102 - the text has no part from outside
    return made["make"]  # type: ignore[no-any-return]


def _usual(form: str) -> Callable[[Row, Any], Any]:
    def make_usual(row: Row, native: Any) -> Any:
        c_type = ffi.typeof(_C_TYPES[row.results[0].kind]) if form == "result" else None
        call = _compiled(form, len(row.arguments))(row, native, c_type)
        code, names = call.__code__, tuple(each.name for each in row.arguments)
        call.__code__ = code.replace(co_varnames=(*names, *code.co_varnames[len(names) :]))
        return call

    return make_usual


_codes_only: Final = _usual("code")
_one_result: Final = _usual("result")
_number: Final = _usual("value")


def _results(row: Row, native: Any) -> Any:
    """Several results, or structures."""
    kinds = [each.kind for each in row.results]
    c_types = [ffi.typeof(_C_TYPES[kind]) for kind in kinds]

    def call(*arguments: Any) -> tuple[Any, ...]:
        if _cold:
            warm()
        outs = [_new(c_type) for c_type in c_types]
        try:
            code = native(*arguments, *outs)
        except (TypeError, OverflowError):
            code = native(*check(row, arguments), *outs)
        code = failed(row, arguments, code) if code else code
        return (*map(_value, kinds, outs, [code] * len(kinds)), code)

    return call


def _value(kind: str, out: CData, code: int) -> Any:
    return read(kind, out[0], code) if kind in STRUCTURES else out[0]


def _given(row: Row, native: Any) -> Any:
    inner = _codes_only(row, native)

    def call(*arguments: Any) -> tuple[Any, int]:
        code = inner(*arguments)
        return arguments[0], code

    return call


def _text(row: Row, native: Any) -> Any:
    inner = _number(row, native)

    def call(*arguments: Any) -> str | None:
        value = inner(*arguments)
        return text_of(value) if value else None

    return call


def _with_texts(row: Row, call: Any) -> Any:
    """Checks and encodes the texts first."""

    def with_texts(*arguments: Any) -> Any:
        return call(*[encoded(each) if isinstance(each, str) else each for each in check(row, arguments)])

    return with_texts


def _form(row: Row) -> Any:
    native = getattr(lib, f"aio_p_{row.c_name}")
    if not row.code:
        make = _text if row.results[0].kind == "text" else _number
    elif not row.results:
        make = _codes_only
    elif row.results[0].kind == "given":
        make = _given
    elif len(row.results) == 1 and row.results[0].kind not in STRUCTURES:
        make = _one_result
    else:
        make = _results
    call = make(row, native)
    return _with_texts(row, call) if any(each.kind == "text" for each in row.arguments) else call


# --- functions that are not there ---------------------------------------------------------------------------------


def nothing(row: Row, code: int) -> Any:
    """Returns what a function returns that has failed with this code, in the form that its row declares."""
    if not row.code:
        kind = row.results[0].kind
        return {"none": None, "unsupported": code, "text": None}.get(kind, _EMPTY.get(kind, 0))
    if not row.results:
        return code
    return (*[_nothing(each.kind) for each in row.results], code)


def _nothing(kind: str) -> Any:
    if kind in STRUCTURES or kind == "dict":
        return {}
    empty = _EMPTY.get(kind, 0)
    return [] if empty == [] else empty


def unsupported(row: Row, why: str) -> Any:
    """A function that returns ACL_ERROR_FEATURE_UNSUPPORTED in the form of its row, and warns at its first call."""

    def call(*arguments: Any) -> Any:
        check(row, arguments)
        _warn_once(
            row.full_name, f"{row.full_name} returns {UNSUPPORTED} ({codes.lookup(UNSUPPORTED).name}): {why}"
        )
        result = nothing(row, failed(row, arguments, UNSUPPORTED))
        given = row.results and row.results[0].kind == "given"
        return (arguments[0], *result[1:]) if given else result

    return call


# --- making -------------------------------------------------------------------------------------------------------


def make(row: Row, by_hand: Callable[..., Any] | None, absent: frozenset[str]) -> Callable[..., Any]:
    """Returns the Python function of a row. `absent` are the ACL functions that the loaded library lacks."""
    call: Any
    if row.c_name in absent:
        call = unsupported(row, f"the loaded ACL library has no {row.c_name}")
    elif row.how == "unsupported":
        call = unsupported(row, "aioacl does not implement it")
    elif row.how == "hand":
        assert by_hand is not None, f"expected a function for {row.full_name}; write it in aioacl/_pyacl"
        call = _handmade(row, by_hand)
    else:
        call = _form(row)
    call.__name__ = call.__qualname__ = row.name
    call.__module__ = "acl" if row.module == "acl" else f"acl.{row.module}"
    call.__doc__ = describe(row)
    call.__signature__ = _signature(row)
    return call  # type: ignore[no-any-return]


def _handmade(row: Row, function: Callable[..., Any]) -> Any:
    def call(*arguments: Any) -> Any:
        checked = check(row, arguments)
        if row.c_name and not begin():
            return nothing(row, failed(row, arguments, FORKED))
        result: Any = function(*checked)
        if not row.code:
            return result
        *values, code = result if row.results else (result,)
        code = failed(row, arguments, code) if code else code
        return (*values, code) if values else code

    return call


def _signature(row: Row) -> inspect.Signature:
    return inspect.Signature(
        [
            inspect.Parameter(
                each.name,
                inspect.Parameter.POSITIONAL_ONLY,
                default=None if each.optional else inspect.Parameter.empty,
            )
            for each in row.arguments
        ]
    )


def describe(row: Row) -> str:
    """Returns one line on what a function calls and returns."""
    if row.how == "unsupported":
        return f"{row.signature} is not implemented: it returns {UNSUPPORTED} in the form of its results."
    names = [each.name or each.kind for each in row.results] + ["ret"] * row.code
    calls = f"calls {row.c_name}, and " if row.c_name else ""
    return f"{row.signature} {calls}returns {', '.join(names) if names != ['none'] else 'None'}."
