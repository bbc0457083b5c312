"""Conformance vectors: sequences of ACL calls, with the results that the real runtime returned.

    _vectors    what a vector is, reading files of vectors, comparing results
    _specs      which parameters of a function are outputs, and what is compared of them
    _symbols    the names that a vector gives to handles and memory, and the values of arguments
    _player     runs one vector, in its own process: logical threads, calls, a watchdog
    _runner     the parent: forks a process for each vector, several at the same time

The package is plain Python with ctypes, so an installed wheel needs no compiler. The command is
`python -m aioacl simulator conformance`.
"""
