"""What aioacl takes for granted of an ACL runtime, and a check for each such assumption.

    _records    what an assumption is, and what became of its check
    _bench      what the checks are made of: calls, handles that are given back, threads, streams that stand still
    _runner     the parent: a child process for each family, a limit for each check
    __main__    the child: loads the library, runs checks, reports each by a line on a pipe
    others      the families, a file each

Nothing here is imported by the rest of the library. The command is `python -m aioacl selftest`.
"""
