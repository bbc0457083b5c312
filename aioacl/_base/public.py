"""Sets `__module__` of public names to the module from which users import them.

So tracebacks, pickles and documentation do not name the private file of a class. A pickle can be read after the class
has moved to another file. The annotations of a class are evaluated first, because typing looks up their names in the
module that `__module__` names. `inspect.getsource` searches that module too, so it fails for public classes, as it does
in trio and anyio.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterable


def publish(module: str, names: Iterable[str]) -> None:
    """Sets `__module__` of the classes and functions with these names to `module`, which must contain them."""
    for name in names:
        thing = vars(sys.modules[module])[name]
        if inspect.isclass(thing) and (own := inspect.get_annotations(thing)):
            hints = get_type_hints(thing, include_extras=True)
            thing.__annotations__ = {each: hints[each] for each in own}
        if inspect.isclass(thing) or inspect.isfunction(thing):
            thing.__module__ = module
        if "__firstlineno__" in vars(thing):  # Python 3.13 sets it to a line of the private file
            delattr(thing, "__firstlineno__")
