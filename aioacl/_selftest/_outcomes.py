"""How a check says that an assumption does not hold, or cannot be tried."""


class Broken(Exception):
    """The runtime does something else; the text says what."""


class NotTestable(Exception):
    """It cannot be tried here; the text says why."""
