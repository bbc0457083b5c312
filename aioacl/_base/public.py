"""The module that public names report: the one that users import them from.

So tracebacks, pickles and documentation do not name the file that a class happens to be in, and a pickle can be read
after the class has moved. Annotations of a class are evaluated first, because typing looks their names up in the module
that the class reports. `inspect.getsource` looks there too, and finds no public class, as with trio's and anyio's.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterable


def publish(module: str, names: Iterable[str]) -> None:
    """Makes the classes and functions of these names report `module`; they must be in it."""
    for name in names:
        thing = vars(sys.modules[module])[name]
        if inspect.isclass(thing) and (own := inspect.get_annotations(thing)):
            hints = get_type_hints(thing, include_extras=True)
            thing.__annotations__ = {each: hints[each] for each in own}
        if inspect.isclass(thing) or inspect.isfunction(thing):
            thing.__module__ = module
