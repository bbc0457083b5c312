"""What aioacl assumes about an ACL runtime, and a check for each assumption.

    _records    what an assumption is, and the result of its check
    _bench      tools for the checks: calls, handles that are released at the end, held streams
    _threads    threads for the checks, and their time limits
    _runner     the parent: a child process for each family, a time limit for each check
    __main__    the child: loads the library, runs checks, and reports each by a line on a pipe
    others      the families, one file each

Only `_cli/selftest.py` imports this package. The command is `python -m aioacl selftest`.
"""
