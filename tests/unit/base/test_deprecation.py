"""A deprecated name warns at the line of the user, with the version that may remove it."""

import linecache
import warnings
from types import ModuleType

import pytest

from aioacl._base.deprecation import deprecated, removal


@pytest.mark.parametrize(
    ("since", "removed"), [("0.1", "0.3"), ("0.9", "0.11"), ("1.0", "2.0"), ("1.7", "2.0"), ("12.3", "13.0")]
)
def test_removal_is_two_minor_versions_or_the_next_major_version_later(since: str, removed: str) -> None:
    assert removal(since) == removed


@pytest.fixture
def old() -> ModuleType:
    """A module of aioacl with a deprecated function, which another function of aioacl calls."""
    made = ModuleType("aioacl._old")
    made.__dict__["deprecated"] = deprecated
    exec(
        "def gone(): deprecated('gone()', since='0.3', instead='new()'); return 7\ndef outer(): return gone()",
        made.__dict__,
    )
    return made


@pytest.mark.parametrize("name", ["gone", "outer"])
def test_deprecated_function_works_and_warns_at_the_line_of_the_user(old: ModuleType, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=r"^gone\(\) is") as caught:
        returned = getattr(old, name)()
    assert returned == 7
    (warning,) = caught
    assert str(warning.message) == (
        "gone() is deprecated since aioacl 0.3 and may be removed in 0.5; use new()"
    )
    assert (warning.filename, linecache.getline(__file__, warning.lineno).strip()) == (
        __file__,
        "returned = getattr(old, name)()",
    )


def test_warning_is_emitted_once_for_each_line_of_the_user(old: ModuleType) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            old.gone()
        old.gone()
    assert len(caught) == 2
