"""The command line: a file for each command, and shared code."""


class UserError(Exception):
    """An error that the user can correct. It is printed as one line on stderr, and the exit status is 2."""
