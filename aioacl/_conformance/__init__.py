"""Conformance vectors: sequences of ACL calls, with the answers that the real runtime gave.

    _vectors    what a vector is, reading files of them, comparing answers
    _specs      which parameters of a function are outputs, and what of them is compared
    _symbols    the names that a vector gives to handles and memory, and the values of arguments
    _player     one vector, in a process of its own: logical threads, calls, a watchdog
    _runner     the parent: forks a process for each vector, several at a time

Everything is plain Python over ctypes, so an installed wheel needs no compiler. The command is
`python -m aioacl simulator conformance`.
"""
