"""How long the steps of procedures may take, and how often they are tried.

The values are read at each use, because tests change them.
"""

from __future__ import annotations

from typing import Final

SETS_TRIED: Final = 3  # the highest number of sets, if a foreign reset follows each set
COUNTED_SETS: Final = 4096  # the highest number of sets by other code that a reset counts
LEAVE_SECONDS: Final = 0.5
EVENTS_SECONDS: Final = 5.0  # to destroy the native events before a reset
MODELS_SECONDS: Final = 10.0  # to unload the models before a reset
RESET_SECONDS: Final = 5.0
DROP_SECONDS: Final = 3.5  # to drop the work of one stream; the runtime drops one stream after the other
OPEN_SECONDS: Final = 60.0  # for each step of an open, because the driver may have to start the card
CLOSE_SECONDS: Final = 5.0
HOPELESS_SECONDS: Final = 1.0
SLOTS_SECONDS: Final = 1.0  # for calls of closed models whose callers do not take the results
# A barrier checks at this interval if the last user has closed the device.
LOOK_SECONDS: Final = 1.0
POOL_EVENTS: Final = 32
RESETS_TRIED: Final = 3
BARRIER_SECONDS: Final = 10.0
ABORT_SECONDS: Final = 2.0
SHORTEST_NAP: Final = 0.0002
LONGEST_NAP: Final = 0.005
