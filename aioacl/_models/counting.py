"""The counts of the calls of models, for the metrics: one native record for each device and label of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi, lib

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._models.slots import Slots

# The records are never freed, because a wait of a closed model may still count in its own. `totals.model_label` limits
# the number of labels.
_counts: Final[dict[tuple[int, str], CData]] = {}


def count_calls(slots: Slots, device: int, label: str) -> None:
    """From now on, counts the calls that get these slots. Without memory for a new record, they are not counted."""
    counts = _counts.get((device, label))
    if counts is None:
        made = lib.aio_model_counts_new(device)
        if made == ffi.NULL:
            return
        counts = _counts.setdefault((device, label), made)
    lib.aio_calls_count(ffi.cast("aio_calls *", slots.address), counts)


def read_calls() -> dict[tuple[int, str], CData]:
    """Returns a copy of the counts of each device and label. Takes no lock."""
    copies = dict[tuple[int, str], "CData"]()
    for key, counts in tuple(_counts.items()):
        copies[key] = ffi.new("aio_model_counts *")
        lib.aio_model_counts_read(counts, copies[key])
    return copies
