"""How long the steps of procedures may take, and how often they are tried. Read when used: tests change them."""

from __future__ import annotations

from typing import Final

SETS_TRIED: Final = 3  # if a foreign reset comes after each
LEAVE_SECONDS: Final = 0.5
EVENTS_SECONDS: Final = 5.0  # to destroy the native events before a reset
RESET_SECONDS: Final = 5.0
DROP_SECONDS: Final = 3.5  # what the runtime takes to drop the work of one stream, one after another
OPEN_SECONDS: Final = 60.0  # of each step of an open: the driver may start the card
CLOSE_SECONDS: Final = 5.0
HOPELESS_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 1.0  # how long a barrier may not notice that nobody has the device open any more
POOL_EVENTS: Final = 32
RESETS_TRIED: Final = 3
BARRIER_SECONDS: Final = 10.0
ABORT_SECONDS: Final = 2.0
SHORTEST_NAP: Final = 0.0002
LONGEST_NAP: Final = 0.005
