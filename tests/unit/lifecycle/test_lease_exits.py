"""If a task leaves a lease or shared lease more often than it has entered it, the other holders keep the lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    import aioacl


@pytest.fixture
def lease(device: aioacl.Device) -> Generator[aioacl.Lease]:
    with device.lease() as entered:
        yield entered


KINDS = pytest.mark.parametrize("kind", [None, ValueError, GeneratorExit])


@KINDS
def test_shared_lease_exited_twice_keeps_the_hold_of_its_owner(
    device: aioacl.Device, lease: aioacl.Lease, kind: type[BaseException] | None
) -> None:
    shared = lease.share()
    shared.__enter__()
    shared.__exit__(None, None, None)
    shared.__exit__(kind)
    assert lease.held
    assert device.health.leases == 1


@KINDS
def test_shared_lease_left_without_entry_leaves_the_hold_of_its_owner(
    device: aioacl.Device, lease: aioacl.Lease, kind: type[BaseException] | None
) -> None:
    lease.share().__exit__(kind)
    assert lease.held
    assert device.health.leases == 1


@KINDS
def test_lease_exited_twice_keeps_the_hold_of_its_share(
    device: aioacl.Device, kind: type[BaseException] | None
) -> None:
    lease = device.lease().__enter__()
    with lease.share():
        lease.__exit__()
        lease.__exit__(kind)
        assert lease.held
    assert "left" in repr(lease)
    assert device.health.leases == 0
