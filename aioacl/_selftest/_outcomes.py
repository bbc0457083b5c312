"""The exceptions of a check: the assumption does not hold, or cannot be tested."""


class Broken(Exception):
    """The runtime behaves differently; the text describes how."""


class NotTestable(Exception):
    """The assumption cannot be tested here; the text has the reason."""
