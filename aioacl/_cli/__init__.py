"""The command line: a file for each command, and what they share."""


class UserError(Exception):
    """Something that the caller can mend: one line on stderr, and exit status 2."""
