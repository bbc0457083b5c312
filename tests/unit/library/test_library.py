"""Finding the library: the order of the search, and the files that it refuses. Tests of the search load no library."""

import os
import re
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from aioacl._base.errors import LibraryConflict, LibraryNotFound, ParameterError
from aioacl._library import load as _library
from aioacl._library.load import LibraryInfo, search
from aioacl._library.locate import (
    Candidate,
    Origin,
    Rules,
    Unusable,
    candidates,
    companions,
    inspect,
    requested,
)
from aioacl.simulator import library_path

TRUSTING = Rules(frozenset({0, os.geteuid()}))
STRICT = Rules(TRUSTING.owners, strict=True)
ELF = b"\x7fELF" + bytes(60)
NAMES = ("libascendcl.so", "libacl_rt.so")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that only its owner may write to, regardless of the umask."""
    made = tmp_path / "cann" / "lib64"
    for each in (made.parent, made):
        each.mkdir()
        each.chmod(0o755)
    return made


@pytest.fixture
def library(folder: Path) -> Path:
    path = folder / "libascendcl.so"
    path.write_bytes(ELF)
    path.chmod(0o644)
    return path


def named(path: Path | str) -> Candidate:
    return Candidate(str(path), "argument")


def loaded(candidate: Candidate, findings: tuple[str, ...]) -> LibraryInfo:
    return LibraryInfo("ascend", candidate.path, candidate.origin, findings=findings)


def refusing(_candidate: Candidate, _findings: tuple[str, ...]) -> LibraryInfo:
    raise Unusable("libruntime.so: cannot open shared object file")


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """The linker's configuration, which includes the files of a folder."""
    more = tmp_path / "ld.so.conf.d"
    more.mkdir()
    (more / "one.conf").write_text("# a comment\n/opt/one  # and one more\n")
    (more / "two.conf").write_text("/opt/two\nhwcap 0 nosegneg\n")
    path = tmp_path / "ld.so.conf"
    path.write_text("include ld.so.conf.d/*.conf nothing/*.conf\n/opt/own\n")
    return path


class TestOrder:
    def test_argument_comes_before_the_variable(self) -> None:
        environ = {"AIOACL_LIBRARY": "/b.so", "ASCEND_HOME_PATH": "/cann"}
        assert requested("/a.so", environ) == Candidate("/a.so", "argument")

    @pytest.mark.parametrize("value", ["/b.so", "simulator", "", "b.so"])
    def test_the_variable_is_the_request_without_an_argument(self, value: str) -> None:
        environ = {"AIOACL_LIBRARY": value, "ASCEND_HOME_PATH": "/cann"}
        assert requested(None, environ) == Candidate(value, "AIOACL_LIBRARY")

    def test_nothing_is_requested_without_an_argument_and_the_variable(self) -> None:
        assert requested(None, {"ASCEND_HOME_PATH": "/cann"}) is None

    def test_search_tries_the_environment_then_the_installation_then_the_linkers_folders(
        self, configuration: Path
    ) -> None:
        environ = {"ASCEND_TOOLKIT_HOME": "/toolkit", "ASCEND_HOME_PATH": "/home", "LD_LIBRARY_PATH": "/p;/q"}
        tries = [(each.path, each.origin) for each in candidates(environ, configuration)]
        folders = [
            ("/home/lib64/", "ASCEND_HOME_PATH"),
            ("/toolkit/lib64/", "ASCEND_TOOLKIT_HOME"),
            ("/usr/local/Ascend/cann/lib64/", "installation"),
            ("/usr/local/Ascend/ascend-toolkit/latest/lib64/", "installation"),
        ]
        linker = [("/p/", "LD_LIBRARY_PATH"), ("/q/", "LD_LIBRARY_PATH")]
        linker += [(f"/opt/{name}/", "linker") for name in ("one", "two", "own")]
        expected = [(folder + name, origin) for folder, origin in folders for name in NAMES]
        assert tries[: len(expected)] == expected
        rest = tries[len(expected) :]
        assert len(rest) % len(NAMES) == 0
        for number, name in enumerate(NAMES):
            of_name = rest[number * len(rest) // 2 : (number + 1) * len(rest) // 2]
            assert of_name[: len(linker)] == [(folder + name, origin) for folder, origin in linker]
            assert {f"/lib/{name}", f"/usr/lib/{name}"} <= {path for path, _ in of_name[len(linker) :]}

    @pytest.mark.parametrize(
        "line",
        [
            "include ld.so.conf",
            "include l*",
            "include inner/again.conf",
            "include a**b",
            "include /a\0/*",
            "include [",
            "include " + "x" * 300,
        ],
    )
    def test_recursive_or_invalid_include_of_the_linkers_configuration_is_skipped(
        self, configuration: Path, line: str
    ) -> None:
        inner = configuration.parent / "inner"
        inner.mkdir()
        (inner / "again.conf").write_text("include ../ld.so.conf\n")
        expected = candidates({}, configuration)
        configuration.write_text(configuration.read_text() + line + "\n")
        assert candidates({}, configuration) == expected

    def test_many_nested_includes_of_the_linkers_configuration_are_read(self, tmp_path: Path) -> None:
        files = [tmp_path / f"{number}.conf" for number in range(2000)]
        for file, after in pairwise(files):
            file.write_text(f"include {after}\n")
        files[-1].write_text("/opt/last\n")
        assert any(each.path == "/opt/last/libascendcl.so" for each in candidates({}, files[0]))

    def test_linker_without_a_configuration_has_its_own_folders_only(self, tmp_path: Path) -> None:
        origins = [each.origin for each in candidates({}, tmp_path / "nothing")]
        assert set(origins) == {"installation", "linker"}

    def test_folder_that_two_variables_name_is_tried_once_under_the_first(self) -> None:
        tries = candidates({"ASCEND_TOOLKIT_HOME": "/cann/", "ASCEND_HOME_PATH": "/cann"})
        origins = [each.origin for each in tries if each.path.startswith("/cann/")]
        assert origins == ["ASCEND_HOME_PATH"] * len(NAMES)

    def test_search_without_a_request_never_tries_the_simulator(self) -> None:
        assert [each for each in candidates({}) if "sim" in each.path] == []

    @pytest.mark.parametrize("home", ["", "cann", "./cann"])
    def test_a_home_that_is_not_absolute_makes_candidates_that_are_refused(self, home: str) -> None:
        first = candidates({"ASCEND_HOME_PATH": home})[0]
        assert first.origin == "ASCEND_HOME_PATH"
        with pytest.raises(Unusable, match="not absolute"):
            inspect(first, TRUSTING)

    @pytest.mark.parametrize("path", ["", ":", "x::/y", ".:", "./x", "x"])
    def test_elements_of_the_linkers_path_are_refused_unless_they_are_absolute(self, path: str) -> None:
        tries = [each for each in candidates({"LD_LIBRARY_PATH": path}) if each.origin == "LD_LIBRARY_PATH"]
        assert bool(tries) == bool(path)
        for each in tries:
            with pytest.raises(
                Unusable, match="no such file" if each.path.startswith("/y/") else "not absolute"
            ):
                inspect(each, TRUSTING)

    @pytest.mark.parametrize(("path", "count"), [("/x/libascendcl.so", 4), ("/x/libacl_rt.so", 3)])
    def test_companions_are_in_the_same_folder_and_exclude_the_library_itself(
        self, path: str, count: int
    ) -> None:
        beside = [each.path for each in companions(named(path))]
        assert len(beside) == count
        assert path not in beside
        assert {str(Path(each).parent) for each in beside} == {"/x"}


class TestInspect:
    def test_library_in_safe_folders_passes_without_a_finding_about_them(self, library: Path) -> None:
        assert [
            finding for finding in inspect(named(library), TRUSTING) if str(library.parent) in finding
        ] == []

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("", "empty"),
            ("/lib\0.so", "NUL"),
            ("/opt/$LIB/libascendcl.so", r"'\$'.*the dynamic linker may replace"),
            ("/opt/a$b/libascendcl.so", r"'\$'.*the dynamic linker may replace"),
            ("libascendcl.so", "not absolute"),
            ("./libascendcl.so", "not absolute"),
            ("~/libascendcl.so", "not absolute"),
            ("/nowhere/libascendcl.so", "no such file"),
            ("/\ud800/libascendcl.so", "a character that no file name can contain"),
            ("\ud800", "a character that no file name can contain"),
            ("/dev/null/libascendcl.so", "no such file"),
            ("/dev/null", "not a regular file"),
            ("/" + "a" * 300, "too long"),
        ],
    )
    def test_path_that_cannot_be_a_library_is_refused(self, path: str, reason: str) -> None:
        with pytest.raises(Unusable, match=reason):
            inspect(named(path), TRUSTING)

    @pytest.mark.parametrize("path", ["", "Simulator", "libascendcl.so"])
    @pytest.mark.parametrize(
        ("origin", "remedy"),
        [
            ("AIOACL_LIBRARY", "set AIOACL_LIBRARY to an absolute path or to 'simulator'"),
            ("argument", "pass use_library() an absolute path or 'simulator'"),
            ("LD_LIBRARY_PATH", "LD_LIBRARY_PATH must hold absolute paths"),
            ("ASCEND_HOME_PATH", "ASCEND_HOME_PATH must be an absolute path"),
        ],
    )
    def test_error_of_a_path_that_is_not_absolute_names_what_to_correct(
        self, path: str, origin: Origin, remedy: str
    ) -> None:
        with pytest.raises(Unusable, match=f"; {re.escape(remedy)}$"):
            inspect(Candidate(path, origin), TRUSTING)

    def test_a_folder_is_refused(self, folder: Path) -> None:
        with pytest.raises(Unusable, match="a folder"):
            inspect(named(folder), TRUSTING)

    def test_a_socket_is_refused(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")
            with pytest.raises(Unusable, match="not a regular file"):
                inspect(named(folder / "socket"), TRUSTING)

    @pytest.mark.parametrize("content", [b"", b"\x7fEL", b"#!/bin/sh\n", b"INPUT(libacl_rt.so)"])
    def test_a_file_that_is_not_elf_is_refused(self, library: Path, content: bytes) -> None:
        library.write_bytes(content)
        with pytest.raises(Unusable, match="not an ELF file"):
            inspect(named(library), TRUSTING)

    @pytest.mark.parametrize("size", [1 << 10, 1 << 16, 1 << 19])
    def test_truncated_library_is_refused(self, library: Path, size: int) -> None:
        whole = library_path().read_bytes()
        library.write_bytes(whole)
        assert inspect(named(library), TRUSTING) == ()
        library.write_bytes(whole[:size])
        with pytest.raises(Unusable, match="shorter than its program headers require"):
            inspect(named(library), TRUSTING)

    def test_cycle_of_symbolic_links_is_refused(self, folder: Path) -> None:
        (folder / "a").symlink_to("b")
        (folder / "b").symlink_to("a")
        with pytest.raises(Unusable, match="cannot be inspected"):
            inspect(named(folder / "a"), TRUSTING)


class TestPermissions:
    @pytest.mark.parametrize("mode", [0o666, 0o1666, 0o602])
    def test_library_that_any_user_may_write_to_is_refused(self, library: Path, mode: int) -> None:
        library.chmod(mode)
        with pytest.raises(Unusable, match=f"any user may write to {re.escape(str(library))}"):
            inspect(named(library), TRUSTING)

    @pytest.mark.parametrize("above", [1, 2])
    def test_library_below_a_folder_that_any_user_may_write_to_is_refused(
        self, library: Path, above: int
    ) -> None:
        open_to_all = library.parents[above - 1]
        open_to_all.chmod(0o777)
        with pytest.raises(Unusable, match=f"any user may write to {re.escape(str(open_to_all))}$"):
            inspect(named(library), TRUSTING)

    def test_folder_with_the_sticky_bit_is_accepted(self, library: Path) -> None:
        library.parent.chmod(0o1777)
        assert [
            finding for finding in inspect(named(library), TRUSTING) if str(library.parent) in finding
        ] == []

    @pytest.mark.parametrize("hop", ["file", "folder", "chain"])
    def test_link_does_not_hide_a_folder_that_any_user_may_write_to(
        self, library: Path, tmp_path: Path, hop: str
    ) -> None:
        exposed = tmp_path / "exposed"
        exposed.mkdir()
        if hop == "file":
            path = exposed / "libascendcl.so"
            path.symlink_to(library)
        elif hop == "folder":
            path = exposed / "latest" / "libascendcl.so"
            path.parent.symlink_to("../cann/lib64")
        else:
            (exposed / "second").symlink_to(library.parent)
            path = tmp_path / "first" / "libascendcl.so"
            path.parent.symlink_to("exposed/second")
        exposed.chmod(0o755)
        inspect(named(path), TRUSTING)
        exposed.chmod(0o777)
        with pytest.raises(Unusable, match=f"any user may write to {re.escape(str(exposed))}$"):
            inspect(named(path), TRUSTING)

    def test_dots_in_a_path_do_not_hide_a_folder(self, library: Path, tmp_path: Path) -> None:
        exposed = tmp_path / "exposed"
        exposed.mkdir()
        exposed.chmod(0o777)
        with pytest.raises(Unusable, match="exposed"):
            inspect(named(f"{exposed}/../cann/./lib64//{library.name}"), TRUSTING)

    def test_group_writable_library_is_a_finding_and_strict_refuses_it(self, library: Path) -> None:
        library.chmod(0o664)
        expected = f"may write to {library}"
        assert any(finding.endswith(expected) for finding in inspect(named(library), TRUSTING))
        with pytest.raises(Unusable, match=f"{re.escape(expected)}.*AIOACL_STRICT"):
            inspect(named(library), STRICT)

    def test_library_of_another_user_is_a_finding_and_strict_refuses_it(self, library: Path) -> None:
        owner = library.stat().st_uid
        expected = f"{library} belongs to user {owner}"
        assert expected in inspect(named(library), Rules(frozenset({owner + 1})))
        with pytest.raises(Unusable, match=re.escape(expected)):
            inspect(named(library), Rules(frozenset({owner + 1}), strict=True))


class TestSearch:
    def test_first_usable_candidate_is_loaded(self, library: Path) -> None:
        info = search([named("/nowhere.so"), named(library), named("/later.so")], TRUSTING, loaded)
        assert (info.path, info.origin) == (str(library), "argument")

    def test_findings_name_a_skipped_file_but_not_an_absent_one(self, library: Path, tmp_path: Path) -> None:
        text = tmp_path / "text.so"
        text.write_text("not a library")
        findings = search([named("/nowhere.so"), named(text), named(library)], TRUSTING, loaded).findings
        assert f"passed over {text}: it is not an ELF file" in findings
        assert not any("nowhere" in finding for finding in findings)

    def test_a_failed_search_lists_every_candidate_with_its_reason(self, library: Path) -> None:
        with pytest.raises(LibraryNotFound) as caught:
            search([named("/nowhere.so"), named(library), named("relative.so")], TRUSTING, refusing)
        assert caught.value.candidates == (
            ("/nowhere.so", "no such file"),
            (str(library), "libruntime.so: cannot open shared object file"),
            ("relative.so", "the path is not absolute; pass use_library() an absolute path or 'simulator'"),
        )

    @pytest.mark.parametrize("origin", ["AIOACL_LIBRARY", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"])
    def test_failed_search_names_the_variable_that_names_a_candidate(self, origin: Origin) -> None:
        with pytest.raises(LibraryNotFound) as caught:
            search([Candidate("/nowhere.so", origin)], TRUSTING, refusing)
        assert caught.value.candidates == (("/nowhere.so", f"no such file (from {origin})"),)

    def test_hint_of_a_failed_search_is_to_unset_a_wrong_variable(self) -> None:
        with pytest.raises(LibraryNotFound) as caught:
            search([Candidate("/nowhere.so", "AIOACL_LIBRARY")], TRUSTING, refusing)
        assert caught.value.hint.startswith("Unset AIOACL_LIBRARY")

    @pytest.mark.parametrize("origin", ["AIOACL_LIBRARY", "ASCEND_HOME_PATH", "argument"])
    def test_hint_of_a_library_without_the_driver_is_to_install_it(
        self, library: Path, origin: Origin
    ) -> None:
        def refuse(_candidate: Candidate, _findings: tuple[str, ...]) -> LibraryInfo:
            raise Unusable("libascend_hal.so: cannot open shared object file: No such file or directory")

        with pytest.raises(LibraryNotFound) as caught:
            search([Candidate(str(library), origin)], TRUSTING, refuse)
        assert caught.value.hint.startswith("Install the card's driver")

    def test_refused_candidate_is_not_loaded(self, library: Path) -> None:
        library.chmod(0o666)
        asked: list[str] = []

        def load(candidate: Candidate, findings: tuple[str, ...]) -> LibraryInfo:
            asked.append(candidate.path)
            return loaded(candidate, findings)

        with pytest.raises(LibraryNotFound):
            search([named(library)], TRUSTING, load)
        assert asked == []


@pytest.mark.parametrize("choice", [b"/a.so", bytearray(b"/a.so"), 3, None, Path])
def test_choice_that_is_not_text_or_a_path_is_refused(choice: Any) -> None:
    with pytest.raises(
        ParameterError, match=r"expected a path as str or os\.PathLike\[str\], or 'simulator', got "
    ):
        _library.use_library(choice)


def test_choice_by_a_path_of_bytes_raises_error_that_names_fsdecode() -> None:
    class Bytes:
        def __fspath__(self) -> bytes:
            return b"/a.so"

    with pytest.raises(ParameterError, match=r"os\.fsdecode"):
        _library.use_library(cast("os.PathLike[str]", Bytes()))


@pytest.mark.parametrize(
    "choice", ["/\ud800.so", "\ud800", "/a\0b", "a" * 5000, "/" + "a/" * 5000, "simulator\0"]
)
def test_choice_of_an_impossible_path_conflicts_with_the_loaded_library(choice: str) -> None:
    _library.library_info()
    with pytest.raises(LibraryConflict):
        _library.use_library(choice)


@pytest.mark.parametrize("effective", ["geteuid", "getegid"])
def test_search_in_a_setuid_or_setgid_process_ignores_the_environment_and_is_strict(
    monkeypatch: pytest.MonkeyPatch, effective: str
) -> None:
    monkeypatch.setenv("AIOACL_LIBRARY", "/b.so")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/c")
    monkeypatch.setenv("AIOACL_PLAIN_AWAITS", "1")
    monkeypatch.setenv("AIOACL_RECORDER", "/flight")
    monkeypatch.delenv("AIOACL_STRICT", raising=False)
    usual = _library._plan(_library._Native(), None, {})
    assert [each.origin for each in usual.tries] == ["AIOACL_LIBRARY"]
    assert (usual.rules.strict, usual.plain_awaits, usual.recorder) == (False, True, "/flight")
    monkeypatch.setattr(os, effective, lambda: -1)
    borrowed = _library._plan(_library._Native(), None, {})
    assert {each.origin for each in borrowed.tries} == {"installation", "linker"}
    assert (borrowed.rules.strict, borrowed.plain_awaits, borrowed.recorder) == (True, False, "")


@pytest.mark.parametrize(("value", "plain"), [("", False), ("0", False), ("1", True), ("yes", True)])
def test_variable_for_plain_awaits_is_on_unless_it_is_empty_or_0(
    monkeypatch: pytest.MonkeyPatch, value: str, plain: bool
) -> None:
    monkeypatch.setenv("AIOACL_PLAIN_AWAITS", value)
    assert _library._plan(_library._Native(), None, {}).plain_awaits is plain
