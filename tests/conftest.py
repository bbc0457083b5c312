"""Before and after each test, the simulator must not be in use."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import os
import signal
from functools import wraps
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import uvloop
from hypothesis import given, settings, strategies

import aioacl
from aioacl import State, simulator, testing
from aioacl.testing._hooks import recover_all
from aioacl.testing._snapshot import growth, open_devices

pytest.register_assert_rewrite("tests.kit")

from tests import kit, selection  # noqa: E402 - pytest must rewrite its assertions first
from tests.support import hangs  # noqa: E402 - pytest must rewrite its assertions first

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl._lifecycle.manager import Manager
    from tests.kit import OpenDevice

HANG_SECONDS = 120
GUARD_SECONDS = 60
FREEZE_EVERY = 100  # tests
GARBAGE_SECONDS = 0.05  # most objects are released without the garbage collector, which is slow
FACTORS = {"slow": 5, "sweep": 30}  # of the limits, by marker; slow tests also run under sanitizers
STRATEGIES = ("watch", "thread")
_stderr = pytest.StashKey[int]()
_ended = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    selection.add_option(parser)
    parser.addoption(
        "--aioacl-waits",
        choices=STRATEGIES,
        default="watch",
        help="the strategy with which tests open devices",
    )
    parser.addoption(
        "--aioacl-context",
        choices=tuple(kit.CALLS_OF_RESETS),
        default="primary",
        help="the context with which tests open devices",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "leaves(name, ...): objects that the test may leave in the simulator; give the reason"
    )
    config.stash[_stderr] = os.dup(2)  # the real stderr; during a test, descriptor 2 belongs to pytest
    kit.context = config.getoption("--aioacl-context")
    selection.choose(config)
    _end_by_signals()


def _end_by_signals() -> None:
    """A run in the background may ignore these signals. Processes that the tests start would ignore them too."""
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str:
    return selection.header(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_stderr])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hides what exists before the first test from the garbage collector, so that a collection takes milliseconds."""
    gc.disable()
    try:
        _begin_hypothesis()
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@settings(max_examples=1, derandomize=True, database=None)
@given(strategies.none())
def _begin_hypothesis(_: None) -> None:
    """Makes hypothesis create its random numbers. It warns if their owner is hidden from the garbage collector."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection.mark(items)
    if config.getoption("--aioacl-waits") != "watch":
        _skip(items, "watch_only", "the test measures the watcher")
    if kit.context != "primary":
        _skip(items, "primary_only", "the test is about the primary context")


def _skip(items: list[pytest.Item], marker: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core, because a test waits for about half of its time."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with selection.guarded(item):
        result = yield
    if next(_ended) % FREEZE_EVERY == 0:
        _hide_from_the_collector()
    return result


def _hide_from_the_collector() -> None:
    """Hides what earlier tests have left, as pytest's reports. Otherwise each collection takes longer than the last."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Limits the time of an asynchronous test, so that an await that hangs fails this test."""
    if pyfuncitem.get_closest_marker("anyio") and inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _guarded(pyfuncitem.obj, GUARD_SECONDS * _factor(pyfuncitem))


def _factor(item: pytest.Item) -> int:
    return max((factor for name, factor in FACTORS.items() if item.get_closest_marker(name)), default=1)


def _guarded(test: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    @wraps(test)
    async def guarded(*args: Any, **kwargs: Any) -> None:
        with anyio.fail_after(seconds):
            await test(*args, **kwargs)

    return guarded


@pytest.fixture(scope="session", autouse=True)
def _simulator() -> None:
    """Loads the simulator, and creates the objects that exist once per process."""
    aioacl.use_library("simulator")
    uvloop.run(asyncio.sleep(0))  # uvloop opens two descriptors and keeps them
    for index in range(len(aioacl.list_devices())):
        device = aioacl.open_device(index).result()
        device.close().result()
    kit.until_now(lambda: not open_devices())


@pytest.fixture(autouse=True)
def _left_as_found(request: pytest.FixtureRequest) -> Generator[None]:
    simulator.forget()
    before = testing.snapshot()
    with hangs.Guard(HANG_SECONDS * _factor(request.node), request.config.stash[_stderr]) as guard:
        yield
    testing.release_everything()
    violations = simulator.violations()
    _must_be_closed()
    marker = request.node.get_closest_marker("leaves")
    allowed = marker.args if marker else ()
    now = before

    def has_no_more() -> bool:
        nonlocal now
        now = testing.snapshot()
        return not now.more_than(before, *allowed)

    assert _holds_in_the_end(has_no_more), (now.more_than(before, *allowed), growth(before, now))
    assert violations == []
    if guard.expired:
        pytest.fail(guard.text)
    if "offline_models" in allowed:
        kit.drop_abandoned()
    if "host_blocks" in allowed:
        kit.free_refused_memory()


def _must_be_closed() -> None:
    """Fails if a device is not closed, and then gives the next test working devices that are closed."""
    _holds_in_the_end(lambda: all(map(_is_final, open_devices())))
    if open_devices():
        left = [f"{manager.index}: {manager.admission.state.name}" for manager in open_devices()]
        testing.force_close()
        pytest.fail("\n".join([f"expected only closed devices, got open ones: {left}", *recover_all()]))


def _is_final(manager: Manager) -> bool:
    """Whether the device stays as it is, because nothing closes it any more."""
    return manager.admission.state is State.QUARANTINED and not (manager.procedure or manager.admission.opens)


def _holds_in_the_end(condition: Callable[[], object]) -> bool:
    """Collects garbage until the condition is true: a thread may drop a reference cycle at any time."""
    return kit.until_now(condition, GARBAGE_SECONDS) or kit.until_now(
        lambda: gc.collect() >= 0 and condition()
    )


@pytest.fixture
def waits(request: pytest.FixtureRequest) -> str:
    """The strategy under test."""
    return str(request.config.getoption("--aioacl-waits"))


@pytest.fixture
def open_device(waits: str, request: pytest.FixtureRequest) -> OpenDevice:
    """`aioacl.open_device` with the strategy under test."""
    return kit.opener(waits, cache=request.node.get_closest_marker("uncached") is None)


@pytest.fixture(params=list(kit.BACKENDS))
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return kit.BACKENDS[request.param]
