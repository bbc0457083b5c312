# The part of Ray that examples/ and benchmarks/ use. Ray is too large for the environment of the type checkers.

from typing import Any


def init(**options: Any) -> object: ...
def shutdown() -> None: ...
