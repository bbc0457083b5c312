"""All assumptions, in the order in which they are tested."""

from __future__ import annotations

from typing import Final

from aioacl._selftest.aborts import ABORTS
from aioacl._selftest.contexts import CONTEXTS
from aioacl._selftest.copies import COPIES
from aioacl._selftest.errors import ERRORS, TEXT
from aioacl._selftest.events import EVENTS
from aioacl._selftest.hostfuncs import HOSTFUNCS
from aioacl._selftest.model_resets import MODEL_RESETS
from aioacl._selftest.models import MODELS
from aioacl._selftest.othercode import OTHER_CODE
from aioacl._selftest.process import PROCESS
from aioacl._selftest.reports import REPORTS
from aioacl._selftest.resets import RESETS
from aioacl._selftest.states import STATES
from aioacl._selftest.streams import STREAMS
from aioacl._selftest.waits import WAITS

FAMILIES: Final = (
    PROCESS,
    CONTEXTS,
    STREAMS,
    EVENTS,
    WAITS,
    COPIES,
    ABORTS,
    HOSTFUNCS,
    TEXT,
    ERRORS,
    REPORTS,
    MODELS,
    STATES,
    RESETS,
    OTHER_CODE,
    MODEL_RESETS,
)
ASSUMPTIONS: Final = {each.id: each for family in FAMILIES for each in family.members}
