"""Sets of the device by other code: which resets they forbid, and when aioacl makes them again."""

from __future__ import annotations

from typing import Any

import pytest

import aioacl
from aioacl import simulator
from tests.kit import elsewhere
from tests.process.child import Child

pytestmark = pytest.mark.anyio

OLD_RELEASE = """
from aioacl._base.ffi import lib

async def main():
    async with open_device(0):  # loads the library
        pass
    for _ in range(3):
        lib.aio_u_aclrtSetDevice(0)
    async with open_device(0, {options}) as device:
        for foreign in (False, None, True):
            try:
                report = await device.force_reset(scope="device", foreign=foreign, grace=0)
                say(foreign, report.ok, report.scope)
            except aioacl.ParameterError as error:
                say(foreign, error, simulator.retain_count())

import warnings
warnings.simplefilter("ignore", aioacl.AclWarning)  # this release does not report failed tasks
use_library(simulator.library_path("8.1"))
anyio.run(main, backend=os.environ["TEST_BACKEND"])
"""
REFUSED = (
    "device 0 was not reset, because this release of CANN does not report whether other code of the process has set "
    "it. Pass foreign=True to reset it all the same, or "
)


@pytest.mark.process
@pytest.mark.parametrize(
    ("context", "sets", "instead"),
    [
        ("primary", 4, 'close the device and open it with context="own".'),
        ("own", 3, "omit the scope to replace only the context of aioacl."),
    ],
)
def test_46_reset_is_refused_where_the_sets_of_other_code_are_not_reported(
    context: str, sets: int, instead: str
) -> None:
    program = OLD_RELEASE.format(options=f"context={context!r}, resets=False")
    with Child(program) as child:
        code, output, _ = child.end()
    assert code == 0
    assert output.splitlines() == [
        f"False {REFUSED}{instead} {sets}",
        f"None {REFUSED}{instead} {sets}",
        "True True device",
    ]


@pytest.mark.parametrize(
    ("context", "cure"),
    [("primary", 'close the device and open it with context="own"'), ("own", "omit the scope")],
)
async def test_refused_reset_names_what_to_do(context: Any, cure: str) -> None:
    elsewhere("aclrtSetDevice")
    resets = simulator.resets()
    async with aioacl.open_device(0, context=context) as device:
        with pytest.raises(aioacl.ParameterError, match=f"Pass foreign=True .*{cure}"):
            await device.force_reset(scope="device", foreign=False)
        assert simulator.resets() == resets
    elsewhere("aclrtResetDevice")
