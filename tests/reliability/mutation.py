"""Small changes to Python modules by mutmut's operators, such as a dropped argument or an inverted comparison.

Messages are not changed, and neither is code that only type checkers use.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators, operator_string
from mutmut.mutation.pragma_handling import IgnoredCode

if TYPE_CHECKING:
    from collections.abc import Iterator

OPERATORS: Final = [each for each in mutation_operators if each[1] is not operator_string]
FOR_TYPES: Final = ("TypeVar", "ParamSpec", "TYPE_CHECKING")


@dataclass(frozen=True)
class Mutant:
    """A module with one change."""

    module: str
    line: int
    was: str
    becomes: str
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: `{self.was}` became `{self.becomes}`"


class Mutants:
    """All mutants of a module, in the order of its lines. Each mutant is generated on request."""

    def __init__(self, module: str, text: str) -> None:
        self._module = module
        self._text = text
        wrapper = MetadataWrapper(cst.parse_module(text))
        visitor = MutationVisitor(OPERATORS, IgnoredCode(set(), set(), set()))
        wrapper.visit(visitor)
        self._tree = wrapper.module
        positions = wrapper.resolve(PositionProvider)
        lines = text.splitlines()
        self._changes = [
            change
            for change in visitor.mutations
            if not any(word in lines[positions[change.original_node].start.line - 1] for word in FOR_TYPES)
        ]

    def __len__(self) -> int:
        return len(self._changes)

    def __getitem__(self, number: int) -> Mutant:
        change = self._changes[number]
        tree = self._tree.deep_replace(change.original_node, change.mutated_node)
        assert isinstance(tree, cst.Module), "expected a module after the change"
        return compared(self._module, self._text, tree.code)

    def __iter__(self) -> Iterator[Mutant]:
        return (self[number] for number in range(len(self)))


def compared(module: str, before: str, after: str) -> Mutant:
    """Returns the mutant, with the changed lines before and after the change."""
    old, new = before.splitlines(), after.splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    parts = [part for part in matcher.get_opcodes() if part[0] != "equal"]
    first, last = parts[0], parts[-1]
    was = " ".join(line.strip() for line in old[first[1] : last[2]])
    becomes = " ".join(line.strip() for line in new[first[3] : last[4]])
    return Mutant(module, first[1] + 1, was, becomes, after)
