"""The parts of the container of offline models that aioacl itself reads; `simulator._om` describes the whole."""

from typing import Final

MAGIC_BYTES: Final = b"IMOD"
HEADER_BYTES: Final = 256
MARKER: Final = b"AIOACL-SIMULATED"
MARKER_AT: Final = 208
SHAPE_DATA: Final = "ascend_mbatch_shape_data"
"""The input that selects the gear."""


def is_simulated(head: bytes) -> bool:
    """Whether `simulator atc` made the file that begins with these bytes, so that only the simulator executes it."""
    if not head.startswith(MAGIC_BYTES):
        return False
    return head[MARKER_AT : MARKER_AT + len(MARKER)] == MARKER
