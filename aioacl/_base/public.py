"""Sets `__module__` of public names to the module from which users import them.

So tracebacks, pickles and documentation do not name the private file of a class. A pickle can be read after the class
has moved to another file. The annotations of a class are evaluated first, because typing looks up their names in the
module that `__module__` names. `inspect.getsource` searches that module too, so it fails for public classes, as it does
in trio and anyio.

A package publishes the names that it imports. A file that is imported late publishes its own names, because it may be
imported before the package looks them up.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterable


def publish(module: str, names: Iterable[str], *, of: str | None = None) -> None:
    """Sets `__module__` of the classes and functions with these names to `module`.

    `of` is the module that contains them; None means `module` itself.
    """
    things = vars(sys.modules[of or module])
    for name in names:
        thing = things[name]
        own = inspect.get_annotations(thing) if inspect.isclass(thing) else {}
        if any(isinstance(each, str) for each in own.values()):
            hints = get_type_hints(thing, include_extras=True)
            thing.__annotations__ = {each: hints[each] for each in own}
        if inspect.isclass(thing) or inspect.isfunction(thing):
            thing.__module__ = module
        if "__firstlineno__" in vars(thing):  # Python 3.13 sets it to a line of the private file
            delattr(thing, "__firstlineno__")
