"""Makes the pages of docs/reference from the signatures and docstrings.

    .venv/bin/python scripts/reference.py            writes the pages
    .venv/bin/python scripts/reference.py --check    lists the pages that are not up to date; status 1 if there are any

A page has a template of the same name in docs/reference/_pages. Its text is written by hand; a line `::: aioacl.Stream`
is replaced by the signature, docstring and members of that name. `::: names`, `::: codes`, `::: functions`,
`::: metrics` and `::: pyacl` are replaced by the tables of all public names, of the error codes, of the ACL functions,
of the metrics and of the functions of `acl`.

The sources are read by griffe and not imported, except the tables of error codes and metrics, and build_ffi.py. What
the answers of the simulator are based on comes from the recordings and provenance.toml in tests/conformance.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import logging
import re
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import griffe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Item: TypeAlias = griffe.Class | griffe.Function | griffe.Attribute | griffe.Module

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ROOT / "docs" / "reference"
TEMPLATES: Final = PAGES / "_pages"
VECTORS: Final = ROOT / "tests" / "conformance"
PROVENANCE: Final = VECTORS / "provenance.toml"
COMMAND: Final = ".venv/bin/python scripts/reference.py"
MODULES: Final = ("aioacl", "aioacl.simulator", "aioacl.lowlevel", "aioacl.testing", "aioacl.torch")
PLUGIN: Final = "pytest_aioacl"
LINE: Final = 88
DIRECTIVE: Final = re.compile(r"^::: ([\w.]+)$", flags=re.MULTILINE)
SECTION: Final = re.compile(r"^(Raises|Warns):[ \t]*\n((?:[ \t]+\S.*(?:\n|\Z))+)", flags=re.MULTILINE)
BARE: Final = re.compile(r"^(\s+)(\w+(?:, \w+)*)\.?$")
HIDDEN: Final = frozenset({"default_action", "default_hint"})
"""Attributes that only aioacl itself uses, or that are shown in another way."""

INTERNAL: Final = {
    "DeviceExecutor": {"ended", "one_waits"},
    "DeviceEvent": {"after"},
    "Audit": {"counted", "expect", "expect_no_more", "finding_of", "left"},
}
"""Methods that other modules of aioacl call, by class; they are not public."""

PROTOCOLS: Final = {
    "__await__": "`await`",
    "__aenter__": "`async with`",
    "__enter__": "`with`",
    "__aiter__": "`async for`",
    "__iter__": "`for`",
    "__len__": "`len()`",
    "__buffer__": "the buffer protocol",
}
PARAMETERS: Final = {
    "timeout": "seconds to wait at most; `None` waits without a limit",
    "wait": "`False` raises `DeviceResetting` at once instead of waiting for a reset to end",
    "nbytes": "a size in bytes",
    "device": "the index of a device",
    "stream": "a Stream, or the raw handle of a stream",
    "function": "the C name of an ACL function",
    "code": "an ACL error code",
    "patience": "the time in seconds that threads and unfinished work may take to end",
    "seconds": "a time in seconds",
    "index": "the index of a device, from 0",
}
"""The meanings of parameters that a docstring does not describe."""

_TEXT: Final = frozenset({"text", "admonition"})
RENDERED: Final = {
    griffe.Module: _TEXT,
    griffe.Attribute: _TEXT | {"returns", "raises", "warns"},
    griffe.Function: _TEXT | {"parameters", "returns", "yields", "raises", "warns"},
    griffe.Class: _TEXT | {"parameters", "attributes", "raises", "warns"},
}
"""The sections of a docstring that the pages show."""


class Problem(Exception):
    """The sources or the templates have an error. The message is one line."""


class _Refusal(logging.Handler):
    """Raises Problem for each warning of griffe, such as a parameter that is not in the signature."""

    def emit(self, record: logging.LogRecord) -> None:
        raise Problem(f"expected a docstring of the Google style, got: {record.getMessage()}; correct it")


logging.getLogger("griffe").addHandler(_Refusal(logging.WARNING))


# --- sources -------------------------------------------------------------------------------------------------------


@cache
def package(name: str) -> griffe.Module:
    """The module or package of the repository, read from its sources."""
    found = griffe.load(
        name, search_paths=[ROOT], try_relative_path=False, docstring_parser="google", resolve_aliases=True
    )
    assert isinstance(found, griffe.Module)
    return found


def find(path: str) -> Item:
    """The object with a dotted path."""
    top, _, rest = path.partition(".")
    try:
        return final(package(top)[rest] if rest else package(top))
    except (KeyError, ImportError, griffe.AliasResolutionError):
        raise Problem(
            f"expected a name of aioacl, got {path}; correct the line `::: {path}`, or `__all__`"
        ) from None


def final(found: griffe.Object | griffe.Alias) -> Item:
    """The object that an import refers to, or the object itself."""
    target = found.final_target if isinstance(found, griffe.Alias) else found
    assert isinstance(target, (griffe.Class, griffe.Function, griffe.Attribute, griffe.Module)), target
    return target


def public_names() -> Iterator[tuple[str, str]]:
    """Each public name with its module."""
    for module in MODULES:
        found = find(module)
        names = [str(name) for name in found.exports or ()]
        for name in names:
            find(f"{module}.{name}")  # refuses a name that does not exist
            yield module, name
        for name, member in found.members.items():
            defined = isinstance(member, (griffe.Class, griffe.Function))
            if defined and not name.startswith("_") and name not in names:
                raise Problem(
                    f"expected `__all__` of {module} to have {name}, which {module} defines; "
                    "add it, or begin the name with `_`"
                )


def fixtures() -> list[str]:
    """The names of the fixtures of the pytest plugin."""
    return [
        name
        for name, member in package(PLUGIN).members.items()
        if isinstance(member, griffe.Function)
        and any("pytest.fixture" in str(each.value) for each in member.decorators)
    ]


# --- text ----------------------------------------------------------------------------------------------------------


def completed(text: str) -> str:
    """A docstring in which each line of `Raises:` has a description, as griffe requires; `-` means none."""

    def fill(match: re.Match[str]) -> str:
        lines = match[2].splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())  # a continuation line is indented further
        lines = [line if line[indent] == " " else BARE.sub(r"\1\2: -", line) for line in lines]
        return "\n".join([f"{match[1]}:", *lines, ""])

    return SECTION.sub(fill, text)


def sections(found: Item) -> list[griffe.DocstringSection]:
    """The parts of a docstring."""
    if found.docstring is None:
        return []
    text = completed(found.docstring.value)
    parsed = griffe.Docstring(text, lineno=found.docstring.lineno, parent=found).parse(
        "google", warn_missing_types=False
    )
    for section in parsed:
        if section.kind.value not in RENDERED[type(found)]:
            shown = ", ".join(sorted(RENDERED[type(found)] - _TEXT)) or "no section"
            raise Problem(
                f"expected {shown} in the docstring of {found.path}, got {section.kind.value}; "
                "no page would show it, so write it in a template of docs/reference/_pages"
            )
    return parsed


def summary(found: Item) -> str:
    """The first sentence of a docstring."""
    text = found.docstring.value.partition("\n\n")[0] if found.docstring else ""
    return re.split(r"(?<=[.;:]) (?=[A-Z`])", flat(text))[0].rstrip(":;")


def flat(text: str) -> str:
    """A text on one line, for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """A type or value as code in a cell of a table. Bars are replaced, because Markdown renderers differ about them."""
    return "`" + " ".join(str(text).split()).replace(" | ", " or ") + "`" if str(text) else ""


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table; an empty text if there are no rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *lines]) if lines else ""


# --- signatures ----------------------------------------------------------------------------------------------------


def signature(found: griffe.Function) -> str:
    """The call of a function, with types and defaults."""
    words: list[str] = []
    starred = False
    kinds = griffe.ParameterKind
    parameters = [each for each in found.parameters if each.name not in ("self", "cls")]
    for number, each in enumerate(parameters):
        kind = each.kind
        stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(
            kind or kinds.positional_or_keyword, ""
        )
        if kind is kinds.keyword_only and not starred:
            words.append("*")
        starred = starred or kind in (kinds.keyword_only, kinds.var_positional)
        word = stars + each.name + (f": {each.annotation}" if each.annotation is not None else "")
        if each.default is not None and not stars:
            word += f" = {each.default}" if each.annotation is not None else f"={each.default}"
        words.append(word)
        following = parameters[number + 1].kind if number + 1 < len(parameters) else None
        if kind is kinds.positional_only and following is not kinds.positional_only:
            words.append("/")
    answer = f" -> {found.returns}" if found.returns is not None else ""
    line = f"{found.name}({', '.join(words)}){answer}"
    if len(line) <= LINE:
        return line
    return "\n".join([f"{found.name}(", *(f"    {word}," for word in words), f"){answer}"])


def fenced(text: str) -> str:
    """A signature as a block that is marked `py`: the tests run each block that is marked `python`."""
    return f"```py\n{text}\n```"


def parameters_of(found: griffe.Function, told: dict[str, str]) -> str:
    """The table of a function's parameters."""
    rows: list[tuple[str, ...]] = []
    for each in found.parameters:
        meaning = told.get(each.name.lstrip("*")) or PARAMETERS.get(each.name, "")
        if each.name not in ("self", "cls") and meaning:
            rows.append((code(each.name), code(each.annotation or ""), flat(meaning)))
    return table(("parameter", "type", "meaning"), rows)


# --- rendering -----------------------------------------------------------------------------------------------------


def render(path: str, level: int = 2) -> str:
    """The text for a directive."""
    found = find(path)
    name = path.rpartition(".")[2]
    if isinstance(found, griffe.Class):
        return "\n\n".join(filter(None, class_text(found, name, level)))
    if isinstance(found, griffe.Module):
        return "\n\n".join([f"{'#' * level} {name}", *prose(found)])
    if path.startswith(f"{PLUGIN}.") and isinstance(found, griffe.Function):
        made = re.sub(r"^Generator\[(.*)\]$", r"\1", str(found.returns))
        return "\n\n".join([f"### {name}", fenced(f"{name}: {made}"), *prose(found), *answers(found)])
    return "\n\n".join(filter(None, member_text(found, name, level, own_module(path))))


def own_module(path: str) -> bool:
    """Whether the brackets in the docstring contain the ACL functions that the function calls."""
    return path.count(".") == 1


def class_text(found: griffe.Class, name: str, level: int) -> Iterator[str]:
    """A class: its description, its use, its attributes and its methods."""
    yield f"{'#' * level} {name}"
    bases = [base for base in map(str, found.bases) if not base.startswith("_") and base in SHOWN_BASES]
    if bases:
        yield fenced(f"class {name}({', '.join(bases)})")
    yield from prose(found)
    yield uses(found)
    yield remedy(found)
    yield attributes(found)
    if told := described(found):
        init = found.members["__init__"]
        assert isinstance(init, griffe.Function)
        yield fenced(signature(init).replace("__init__", name).removesuffix(" -> None"))
        yield parameters_of(init, told)
    yield from answers(found)
    for member in members(found):
        if isinstance(member, griffe.Function) or member.docstring is not None:
            yield from member_text(member, f"{name}.{member.name}", level + 1, acl=True)


SHOWN_BASES: Final = frozenset(
    {
        "AclError",
        "DeviceFault",
        "ValueError",
        "MemoryError",
        "TimeoutError",
        "RuntimeWarning",
        "AssertionError",
    }
)


def uses(found: griffe.Class) -> str:
    """The statements in which an object of the class can be used."""
    names = found.all_members
    refused = {"__enter__", "__aenter__"} if "_refuse_block" in names else set[str]()
    words = [
        word
        for name, word in PROTOCOLS.items()
        if name in names and not (name in refused and "_refuse_block" in final(names[name]).source)
    ]
    return f"It supports {', '.join(words)}." if words else ""


def remedy(found: griffe.Class) -> str:
    """The usual action and hint of an error."""
    if "AclError" not in {str(base) for base in lineage(found)} and found.name != "AclError":
        return ""
    values: dict[str, str] = {}
    for each in [found, *mro(found)]:
        for name in ("default_action", "default_hint"):
            member = each.members.get(name)
            if isinstance(member, griffe.Attribute) and member.value is not None:
                values.setdefault(name, literal(str(member.value)))
    return f"Usual action: `{values['default_action']}`. Usual hint: {values['default_hint']}"


def literal(text: str) -> str:
    """The value of a string literal, of a concatenation of literals, or of the constant with that name."""
    if text.isidentifier():
        constant = find(f"aioacl._base.errors.{text}")
        assert isinstance(constant, griffe.Attribute)
        text = str(constant.value)
    return str(ast.literal_eval(text))


def mro(found: griffe.Class) -> list[griffe.Class]:
    """The classes of aioacl that a class inherits from."""
    return [each for each in found.mro() if each.path.startswith("aioacl.")]


def lineage(found: griffe.Class) -> list[str]:
    """The names of the classes that a class inherits from."""
    return [each.name for each in mro(found)]


def members(found: griffe.Class) -> list[griffe.Function | griffe.Attribute]:
    """The public members: its own, in the order of the source, then the inherited ones."""
    own = [final(each) for each in found.members.values()]
    inherited = [final(each) for each in found.inherited_members.values()]
    kept: dict[str, griffe.Function | griffe.Attribute] = {}
    for each in own + inherited:
        if (
            isinstance(each, (griffe.Function, griffe.Attribute))
            and (not each.name.startswith("_") or each.name == "__call__")
            and each.name not in HIDDEN | INTERNAL.get(found.name, set())
            and each.path.startswith("aioacl.")
        ):
            kept.setdefault(each.name, each)
    return list(kept.values())


def attributes(found: griffe.Class) -> str:
    """The table of attributes from the docstring; without a table, a list of the names and types."""
    told = {
        item.name: item.description
        for section in sections(found)
        if isinstance(section, griffe.DocstringSectionAttributes)
        for item in section.value
    }
    fields = [
        each
        for each in members(found)
        if isinstance(each, griffe.Attribute)
        and each.docstring is None
        and "property" not in each.labels
        and "ClassVar" not in str(each.annotation)
        and (each.parent is found or each.name in told)
    ]
    if not told:
        kinds = [
            f"`{each.name}: {each.annotation}`" if each.annotation else f"`{each.name}`" for each in fields
        ]
        return f"Attributes: {', '.join(kinds)}." if kinds else ""
    rows = [(code(each.name), code(each.annotation or ""), flat(told.get(each.name, ""))) for each in fields]
    rows += [
        (code(name), "", flat(text)) for name, text in told.items() if name not in {f.name for f in fields}
    ]
    return table(("attribute", "type", "meaning"), rows)


def member_text(found: Item, name: str, level: int, acl: bool) -> Iterator[str]:
    """A function, method, property or constant."""
    yield f"{'#' * level} {name}"
    if isinstance(found, griffe.Function):
        yield fenced(signature(found))
    elif isinstance(found, griffe.Attribute):
        yield fenced(f"{found.name}: {found.annotation}" if found.annotation is not None else found.name)
    yield from prose(found)
    if isinstance(found, griffe.Function):
        yield parameters_of(found, described(found))
    yield from answers(found)
    if acl and found.docstring is not None:
        inside = " ".join(re.findall(r"\(([^()]*)\)", found.docstring.value))
        names = dict.fromkeys(re.findall(r"\bacl(?:rt)?[A-Z]\w+", inside))
        yield f"ACL: {', '.join(f'`{each}`' for each in names)}" if names else ""


def prose(found: Item) -> Iterator[str]:
    """The text of a docstring without its sections."""
    for section in sections(found):
        if isinstance(section, griffe.DocstringSectionText):
            yield section.value.strip()
        elif isinstance(section, griffe.DocstringSectionAdmonition):
            yield f"{section.title or section.value.kind}: {section.value.contents}"


def described(found: Item) -> dict[str, str]:
    """The descriptions of parameters in a docstring."""
    return {
        item.name.lstrip("*"): item.description
        for section in sections(found)
        if isinstance(section, griffe.DocstringSectionParameters)
        for item in section.value
    }


def answers(found: Item) -> Iterator[str]:
    """What a function or property returns, raises and warns of."""
    for section in sections(found):
        if isinstance(section, (griffe.DocstringSectionReturns, griffe.DocstringSectionYields)):
            word = "Returns" if isinstance(section, griffe.DocstringSectionReturns) else "Yields"
            yield f"{word}: " + " ".join(flat(item.description) for item in section.value)
        elif isinstance(section, (griffe.DocstringSectionRaises, griffe.DocstringSectionWarns)):
            rows = [
                (marked(str(item.annotation)), "" if item.description == "-" else flat(item.description))
                for item in section.value
            ]
            yield table((section.kind.value, "when"), rows)


def marked(names: str) -> str:
    """The text, with the names of errors as code; other words stay unchanged."""
    return re.sub(r"\b[A-Z]\w+", lambda match: f"`{match[0]}`", names.strip("()"))


# --- tables --------------------------------------------------------------------------------------------------------


def names_table() -> str:
    """All public names, each with the page that has it."""
    parts: list[str] = []
    for module in MODULES:
        rows = [
            (f"[`{name}`]({page_of(module, name)}.md#{name.lower()})", summary(find(f"{module}.{name}")))
            for owner, name in public_names()
            if owner == module
        ]
        parts.append(f"### `{module}`\n\n" + table(("name", "what it is"), rows))
    rows = [
        (f"[`{name}`](pytest-plugin.md#{name})", summary(find(f"{PLUGIN}.{name}"))) for name in fixtures()
    ]
    parts.append("### Fixtures of the pytest plugin\n\n" + table(("fixture", "what it is"), rows))
    return "\n\n".join(parts)


def page_of(module: str, name: str) -> str:
    """The page of a public name: the page with its directive, or the page of its module if that has its heading."""
    path, page = f"{module}.{name}", module.rpartition(".")[2]
    if path in placed():
        return placed()[path]
    template = TEMPLATES / f"{page}.md"
    text = template.read_text() if template.exists() else ""
    if not re.search(rf"^##+ {name}$", text, flags=re.MULTILINE | re.IGNORECASE):
        raise Problem(
            f"expected a line `::: {path}` in a template of docs/reference/_pages, got none; add it"
        )
    return page


@cache
def placed() -> dict[str, str]:
    """The page of each name that has a directive."""
    found: dict[str, str] = {}
    for template in sorted(TEMPLATES.glob("*.md")):
        for number, line in enumerate(template.read_text().splitlines(), 1):
            if not line.lstrip().startswith(":::"):
                continue
            place, match = f"docs/reference/_pages/{template.name}:{number}", DIRECTIVE.fullmatch(line)
            if match is None:
                raise Problem(f"{place}: expected a line `::: NAME`, got `{line}`; correct it")
            if match[1] in found:
                raise Problem(
                    f"{place}: expected `{line}` once, got it also in {found[match[1]]}.md; remove one"
                )
            found[match[1]] = template.stem
    return found


def codes_table() -> str:
    """ACL's error codes, with the error that each raises and what to do."""
    from aioacl._base import codes, errors  # noqa: PLC0415 - this import needs the built package

    rows = [
        (
            str(each.code),
            code(each.name),
            f"`{type(errors.error_for(each.code, '')).__name__}`",
            f"`{each.action}`",
        )
        for each in codes._codes().values()  # noqa: SLF001 - the table is private
        if each.code
    ]
    return table(("code", "name", "error", "action"), rows)


def metrics_table() -> str:
    """The metrics, with their types and labels."""
    from aioacl._metrics.table import PREFIX, TABLE  # noqa: PLC0415 - this import needs the built package

    rows = [
        (
            f"`{PREFIX}{each.name}`",
            each.type,
            ", ".join(f"`{label}`" for label in each.labels),
            each.help,
            each.known_as,
        )
        for each in TABLE
    ]
    return table(("metric", "type", "labels", "what it measures", "known elsewhere as"), rows)


def recorded_calls() -> tuple[Counter[str], Counter[str]]:
    """How often the recordings contain each function, and how often it did not fail."""
    calls: Counter[str] = Counter()
    successes: Counter[str] = Counter()
    for path in VECTORS.glob("*.jsonl*"):
        if path.name == "derived.jsonl":  # the only file that was not recorded
            continue
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in data.splitlines():
            steps = json.loads(line)["steps"]
            calls.update(step["call"] for step in steps)
            successes.update(step["call"] for step in steps if not step.get("rc"))
    return calls, successes


def provenance(functions: Iterable[str]) -> dict[str, str]:
    """What the simulator's answers are based on, for each function."""
    calls, successes = recorded_calls()
    beside = tomllib.loads(PROVENANCE.read_text())
    source = {name for names in beside["source"].values() for name in names}
    missing: dict[str, str] = beside["not_recorded"]
    answers: dict[str, str] = {}
    for name in functions:
        parts: list[str] = []
        if calls[name]:
            parts.append(f"recording: {calls[name]} calls" if calls[name] > 1 else "recording: 1 call")
            parts += [] if successes[name] else ["none succeeded"]
            parts += [f"without {missing[name]}"] if name in missing else []
        if name in source and not successes[name]:
            parts.append("source")
        answers[name] = ", ".join(parts) or "neither"
    unknown = (source | set(missing)) - set(answers) or {name for name in missing if not calls[name]}
    if unknown:
        raise Problem(
            f"expected {PROVENANCE.name} to name ACL functions, and recorded ones in [not_recorded], "
            f"got {', '.join(sorted(unknown))}; correct it"
        )
    return answers


def functions_table() -> str:
    """The ACL functions by the file of their family: release of CANN, and what the simulator's answers are based on."""
    import build_ffi  # noqa: PLC0415 - a module of the repository's root

    rows = {row.name: row for row in build_ffi.table()}
    answers = provenance(rows)
    parts: list[str] = []
    for path in sorted((ROOT / "aioacl" / "_native" / "api").glob("*.inc")):
        text = path.read_text()
        title = re.match(r"/\*\s*(.*?)\s*\*/", text, flags=re.DOTALL)
        names = [name for name in re.findall(r"\bacl\w+", text) if name in rows]
        cells = [
            (
                code(f"{rows[name].returns} {name}({' '.join(rows[name].params.split())})"),
                rows[name].since.strip('"'),
                answers[name],
            )
            for name in dict.fromkeys(names)
        ]
        heading = " ".join(title[1].split()) if title else path.stem
        parts.append(
            f"## {path.stem}\n\n{heading}.\n\n" + table(("function", "since CANN", "answers from"), cells)
        )
    return "\n\n".join(parts)


def pyacl_tables() -> str:
    """The functions of `acl` by module, with their arguments and results."""
    import build_pyacl  # noqa: PLC0415 - a module of the repository's root

    names = build_pyacl.read()
    parts: list[str] = []
    for module in names["MODULES"]:
        title = "acl" if module == "acl" else f"acl.{module}"
        cells = [
            (code(row.signature), row.c_name, code(", ".join(results_of(row))))
            for row in names["rows"]()
            if row.module == module
        ]
        parts.append(f"## {title}\n\n" + table(("function", "ACL function", "results"), cells))
    return "\n\n".join(parts)


def results_of(row: Any) -> list[str]:
    """The names of a row's results."""
    return [each.name or each.kind for each in row.results] + ["ret"] * row.code


TABLES: Final[dict[str, Callable[[], str]]] = {
    "pyacl": pyacl_tables,
    "names": names_table,
    "codes": codes_table,
    "functions": functions_table,
    "metrics": metrics_table,
}


# --- pages ---------------------------------------------------------------------------------------------------------


def pages() -> dict[Path, str]:
    """The text of each page, by its path."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    placed()  # refuses directives that are wrong
    note = f"\n<!-- Made by `{COMMAND}` from docs/reference/_pages and the docstrings: edit these. -->\n"

    def fill(match: re.Match[str]) -> str:
        return TABLES[match[1]]() if match[1] in TABLES else render(match[1])

    return {
        PAGES / template.name: DIRECTIVE.sub(fill, template.read_text()).rstrip() + "\n" + note
        for template in sorted(TEMPLATES.glob("*.md"))
    }


def outdated() -> list[str]:
    """The names of the pages that are missing, no longer needed, or different from the generated text."""
    made = pages()
    wrong = [path.name for path, text in made.items() if not path.exists() or path.read_text() != text]
    return wrong + [path.name for path in sorted(PAGES.glob("*.md")) if path not in made]


def main() -> int:
    """Writes the pages, or lists those that are not up to date; returns the exit status."""
    try:
        return _main()
    except Problem as problem:
        print(f"scripts/reference.py: {problem}", file=sys.stderr)
        return 1


def _main() -> int:
    parser = argparse.ArgumentParser(description="Makes the pages of docs/reference.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; list the pages that are not up to date"
    )
    if parser.parse_args().check:
        wrong = outdated()
        print(
            *(f"not up to date: docs/reference/{name}" for name in wrong), sep="\n", end="\n" if wrong else ""
        )
        if wrong:
            print(f"run: {COMMAND}")
        return bool(wrong)
    made = pages()
    for path in PAGES.glob("*.md"):
        if path not in made:
            path.unlink()
    for path, text in made.items():
        path.write_text(text)
    print(f"{len(made)} pages in docs/reference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
