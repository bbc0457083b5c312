"""`open_pool()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, SupportsIndex

from aioacl._base import origin, sync
from aioacl._base.errors import AclWarning, DeviceTimeout, ParameterError
from aioacl._base.options import (
    ContextKind,
    Strategy,
    deadline_of,
    must_be_bool,
    pauses_of,
    repr_of,
    whole_of,
)
from aioacl._base.public import publish
from aioacl._batches.opening import Options
from aioacl._handles.operation import Opening
from aioacl._models.model import number_of
from aioacl._models.source import Source
from aioacl._opening import check_kinds, list_devices
from aioacl._pool.member import Member, Settings, may_pass, spawn
from aioacl._pool.pool import Pool
from aioacl._wait.job_future import JobFuture

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from typing_extensions import Buffer

    from aioacl._base.options import Seconds

CLOSE_SECONDS: Final = 5.0  # the longest wait for the close of the devices before an error is raised
EACH: Final = "Pass for example [0, 1], or omit devices for all visible devices."


def open_pool(
    model: str | os.PathLike[str] | Buffer,
    devices: Iterable[SupportsIndex] | None = None,
    *,
    waits: Strategy = "watch",
    context: ContextKind = "primary",
    resets: bool = True,
    heal: bool = False,
    slots: SupportsIndex = 3,
    instances: SupportsIndex = 1,
    warm_up: bool = False,
    supervise: bool = True,
    pauses: Iterable[Seconds] = (0.5, 5.0, 50.0),
    foreign: bool = False,
    max_rows: int | None = None,
    limit: int = 1024,
    limit_per_key: int | None = None,
    in_flight: int = 2,
    hold: Seconds = 0.0,
    attempts: int = 2,
    timeout: Seconds | None = None,
) -> Opening[Pool]:
    """Opens devices, supervises them, loads a model on each, and opens one batcher over all of them.

    The devices are opened at the same time. If one of them does not open, or cannot execute the model, the pool works
    without it: it emits one AclWarning, and tries the device again after each of `pauses`. A device that opens then is
    added to the pool. A ParameterError, and other errors that no later try can change, are raised.

    Args:
        model: the path of an `.om` file, or its bytes.
        devices: the indexes of the devices; None is all visible devices.
        waits: as for `open_device`, like `context`, `resets` and `heal`.
        context: "primary", or "own" for contexts that aioacl makes.
        resets: if False, no device is reset, unless a caller of `force_reset(foreign=True)` asks for it.
        heal: whether a device that fails its first probe is reset.
        slots: as for `device.load_model`, like `instances` and `warm_up`; those of each device.
        instances: how often the model is loaded on each device.
        warm_up: whether each load executes the model once for each gear and slot. One execution is always made.
        supervise: whether the devices are supervised, as by `device.supervise()`. For other arguments of it, pass False
            and supervise `infer.devices`. For a second pool on the same devices, pass False: a device has one
            supervisor.
        pauses: the seconds between the tries to open a device; and as for `device.supervise`, like `foreign`.
        foreign: whether a supervisor may reset a device that other code of the process has perhaps set.
        max_rows: as for `open_batcher`, like `limit`, `limit_per_key`, `in_flight`, `hold` and `attempts`.
        limit: the most rows that wait.
        limit_per_key: likewise, for each key.
        in_flight: the most executions on each device that have begun and not ended.
        hold: the seconds that an idle device waits for more items.
        attempts: how many executions of an item may end with a failure of a device.
        timeout: the longest time in seconds for each try to open a device, load the model and execute it; None is no
            limit.

    Returns:
        An Opening of a Pool: await it, or enter it with `async with`. The end of the block closes the batcher, the
        models, the supervisors and the devices.

    Raises:
        ParameterError: an argument has a wrong value, a device does not exist or has a supervisor already, or the file
            is not a model. A wrong type or number is raised by the call itself.
        LibraryNotFound: no ACL library could be loaded.
        NotSupported: the model is for another chip, its inputs or outputs do not have the rows first, or NumPy is
            missing.
        AclError: no device has opened. This is the error of the first one: see `open_device` and `device.load_model`.
    """
    check_kinds(waits, context)
    named = {"resets": resets, "heal": heal, "warm_up": warm_up, "supervise": supervise, "foreign": foreign}
    for name, value in named.items():
        must_be_bool(name, value)
    deadline_of(timeout)  # raises now if it is wrong
    counts = number_of("slots", slots), number_of("instances", instances)
    options = Options(counts[0] * counts[1], max_rows, limit, limit_per_key, in_flight, hold, attempts)
    chosen = None if devices is None else _indexes(devices)
    settings = Settings(
        waits=waits,
        context=context,
        resets=resets,
        heal=heal,
        slots=counts[0],
        instances=counts[1],
        warm_up=warm_up,
        supervise=supervise,
        pauses=pauses_of(pauses),
        foreign=foreign,
        timeout=timeout,
        site=origin.site(),
    )
    return Opening("open_pool()", lambda: _open(model, chosen, settings, options))


def _indexes(devices: Any) -> tuple[int, ...]:
    try:
        given = tuple(devices)
    except TypeError:
        raise ParameterError(f"expected the indexes of devices, got {repr_of(devices)}", hint=EACH) from None
    found = tuple(whole_of(each) for each in given)
    if not found or None in found or len(set(found)) < len(found):
        raise ParameterError(
            f"expected the indexes of one or more different devices, got {repr_of(devices)}", hint=EACH
        )
    return tuple(each for each in found if each is not None)


async def _open(model: Any, chosen: tuple[int, ...] | None, settings: Settings, options: Options) -> Pool:
    def prepare() -> tuple[tuple[int, ...], Source]:
        """Runs on a thread, because it may load the library, and reads the file."""
        every = tuple(device.index for device in list_devices()) if chosen is None else chosen
        return every or (0,), Source(model)  # without a device, the error of the first open names the remedy

    prepared = JobFuture[tuple[tuple[int, ...], Source]]()
    spawn("aioacl-pool", prepare, prepared)
    await _ended(prepared.ended())
    indexes, source = prepared.result(0)
    members = [Member(index, source, settings) for index in indexes]
    try:
        for member in members:
            member.begin()
        for member in members:
            await _ended(member.tried.ended())
        return _made(members, settings, options)
    except BaseException as error:
        for member in members:
            member.stop()
        if isinstance(error, Exception):
            end = sync.monotonic() + CLOSE_SECONDS
            for member in members:
                await member.over.ended(end)
        raise


async def _ended(wait: Any) -> None:
    if not await wait:
        raise DeviceTimeout("the pool was not open in time", hint="Pass a longer timeout.")


def _made(members: Sequence[Member], settings: Settings, options: Options) -> Pool:
    """Makes the pool of those that are ready. Warns of the others, or raises their errors."""
    errors = [(member, error) for member in members if (error := member.take_error()) is not None]
    try:
        lasting = [error for _, error in errors if not may_pass(error)]
        if lasting or len(errors) == len(members):
            raise [*lasting, *(error for _, error in errors)][0]
        for member, error in errors:
            origin.warn(_late(member, error, settings), settings.site, 2, AclWarning)
    finally:
        del errors  # the tracebacks refer to this frame
        error = None
    ready = [member.model for member in members if member.model is not None]
    rows, rules = options.rules_for(ready[0])
    pool = Pool._make(rules, rows, members)
    pool._handed_out = True
    return pool


def _late(member: Member, error: BaseException, settings: Settings) -> str:
    again = ", ".join(f"{pause:g}" for pause in settings.pauses)
    what = f"it is tried again after {again} s" if again else "it is not tried again"
    return f"device {member.index} is not in the pool, and {what}: {error}"


publish("aioacl", ["open_pool"], of=__name__)
