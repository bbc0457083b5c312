"""Objects that exist once: a copy would close, leave or release the same thing a second time."""

from __future__ import annotations

from typing import NoReturn


class Unique:
    """The base of what cannot be copied or pickled. `noun` names it in the error, or its class does."""

    __slots__ = ()
    noun = ""

    def __reduce__(self) -> NoReturn:
        noun = self.noun or type(self).__name__
        article = "an" if noun[0] in "aeiou" else "a"
        raise TypeError(
            f"{article} {noun} cannot be copied or pickled: it names something on a device of this process; pass the "
            f"{noun} itself"
        )
