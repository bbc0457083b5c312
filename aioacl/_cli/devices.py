"""`devices`: lists the devices that the runtime can see, with their status. Makes no context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.codes import lookup
from aioacl._base.ffi import ffi, lib
from aioacl._cli._library import add_option, described, load_or_explain
from aioacl._cli._screen import GREEN, YELLOW, Screen, put_json
from aioacl._opening import list_devices

if TYPE_CHECKING:
    from argparse import Namespace

NORMAL: Final = "normal"


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "devices",
        help="list the devices that the runtime can see",
        description="List the devices that the runtime can see, with chip and status. Opens no device.",
    )
    add_option(parser, default=None, otherwise="the usual search")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: Namespace) -> int:
    """Lists the devices; returns 0, even if there are none."""
    info = load_or_explain(arguments.library)
    found = [
        {"index": each.index, "soc": each.soc, "status": status_of(each.index)} for each in list_devices()
    ]
    if arguments.json:
        put_json({"backend": info.backend, "path": info.path, "devices": found})
    else:
        _show(described(info), found, Screen())
    return 0


def status_of(index: int) -> str:
    """Returns the status of a device in words (aclrtQueryDeviceStatus)."""
    status = ffi.new("aclrtDeviceStatus *")
    code = lib.aio_u_aclrtQueryDeviceStatus(index, status)
    if code == lib.AIO_ABSENT:
        return "unknown: the library lacks aclrtQueryDeviceStatus"
    if code:
        return f"unknown: {code} {lookup(code).name}"
    known = {lib.ACL_RT_DEVICE_STATUS_NORMAL: NORMAL, lib.ACL_RT_DEVICE_STATUS_ABNORMAL: "abnormal"}
    return known.get(int(status[0]), f"unknown: status {int(status[0])}")


def _show(backend: str, found: list[dict[str, Any]], screen: Screen) -> None:
    screen.heading(f"aioacl devices {'·' if screen.drawing else '-'} {backend}")
    if not found:
        screen.line("  none: run `python -m aioacl doctor` to find the reason")
    width = max((len(each["soc"]) for each in found), default=0)
    for each in found:
        style = GREEN if each["status"] == NORMAL else YELLOW
        screen.line(f"  {each['index']:>3}   {each['soc']:<{width}}   {screen.paint(each['status'], style)}")
