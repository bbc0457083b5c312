"""The version and the supported releases stand in one place; the workflows have few rights and fixed actions."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from mkdocs.utils.yaml import yaml_load

import aioacl
from scripts import release
from scripts.pages import ROOT
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

# The rights to write that a job may have, with the reason. All other jobs only read.
WRITES = {
    ("release", "publish"): {"id-token"},  # trusted publishing
    ("release", "announce"): {"contents"},  # makes the release of the tag
    ("release", "docs"): {"pages", "id-token"},  # for the jobs of docs.yml
    ("docs", "deploy"): {"pages", "id-token"},
}


# --- versions ------------------------------------------------------------------------------------------------------


def test_version_of_the_project_is_that_of_the_package() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "aioacl.__version__"}
    assert release.version() == aioacl.__version__


def test_documentation_names_no_other_version_of_aioacl() -> None:
    named = {
        match[1]
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        if page.name not in ("CHANGELOG.md", "performance.md")  # of older versions; of a recorded run
        for match in re.finditer(r"\baioacl[ =|]+v?(\d+\.\d+\.\d+)", page.read_text())
    }
    assert named <= {aioacl.__version__}


def supported_pythons() -> list[str]:
    return re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))


def part_of(name: str, pattern: str) -> str:
    found = re.search(pattern, (ROOT / name).read_text(), flags=re.MULTILINE)
    assert found, f"expected {pattern} in {name}"
    return found[1]


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("README.md", r"^\| Python \|.*\| (.*) \|$"),
        ("README.zh.md", r"^\| Python \|.*\| (.*) \|$"),
        ("docs/stability.md", r"^\| Python \| (.*?) \|"),
        (".github/workflows/ci.yml", r"^ +python: \[(.*)\]$"),
    ],
)
def test_page_and_workflow_name_the_python_versions_of_the_classifiers(name: str, pattern: str) -> None:
    assert re.findall(r"3\.\d+", part_of(name, pattern)) == supported_pythons()


def test_long_checks_run_each_python_version_but_the_oldest() -> None:
    oldest, *others = supported_pythons()
    assert PROJECT["project"]["requires-python"] == f">={oldest}"
    run = re.findall(r"^    pythons (.*)$", (ROOT / ".ci/slow").read_text(), re.MULTILINE)
    assert sorted(" ".join(run).split()) == others


# --- the notes of a release ----------------------------------------------------------------------------------------

CHANGELOG = """# Changelog

## [0.2.0] - 2027-01-31

### Added

- One.

## [0.1.0] - 2026-12-01

- Two.
"""


def test_notes_of_a_release_are_the_newest_section_of_the_changelog() -> None:
    assert release.notes("v0.2.0", "0.2.0", CHANGELOG) == "### Added\n\n- One."


@pytest.mark.parametrize(
    ("tag", "current", "changelog", "message"),
    [
        ("0.2.0", "0.2.0", CHANGELOG, "expected the tag v0.2.0, got 0.2.0"),
        ("v0.2.0", "0.3.0", CHANGELOG, "expected the tag v0.3.0, got v0.2.0"),
        ("v0.3.0", "0.3.0", CHANGELOG, r"a first section \[0.3.0\] in CHANGELOG.md, got 0.2.0"),
        ("v0.2.0", "0.2.0", "# Changelog\n", "in CHANGELOG.md, got none"),
        ("v0.2.0", "0.2.0", CHANGELOG.replace("2027-01-31", "unreleased"), "got `unreleased`; write YYYY"),
        (
            "v0.2.0",
            "0.2.0",
            CHANGELOG.replace("### Added\n\n- One.\n", ""),
            "expected changes in the section",
        ),
    ],
    ids=["no v", "other version", "no section", "no sections", "no date", "no changes"],
)
def test_tag_that_does_not_fit_the_sources_is_refused(
    tag: str, current: str, changelog: str, message: str
) -> None:
    with pytest.raises(release.Problem, match=message):
        release.notes(tag, current, changelog)


# --- workflows -----------------------------------------------------------------------------------------------------


def jobs() -> Iterator[tuple[str, str, Any]]:
    """Yields the workflow, the name and the content of each job."""
    for path in WORKFLOWS:
        for name, job in yaml_load(path.read_text())["jobs"].items():
            yield path.stem, name, job


def test_workflows_exist() -> None:
    assert {path.stem for path in WORKFLOWS} == {"ci", "docs", "release", "wheels"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_may_only_read_by_default(path: Any) -> None:
    assert yaml_load(path.read_text())["permissions"] == {"contents": "read"}


def test_only_the_named_jobs_may_write() -> None:
    writes = {
        (workflow, name): {right for right, value in job.get("permissions", {}).items() if value != "read"}
        for workflow, name, job in jobs()
    }
    assert {job: rights for job, rights in writes.items() if rights} == WRITES


def test_each_action_is_fixed_to_a_whole_version() -> None:
    used = [step["uses"] for _, _, job in jobs() for step in job.get("steps", ()) if "uses" in step]
    assert len(used) > 10
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", each)] == []


def test_no_checkout_keeps_its_credentials() -> None:
    checkouts = [
        step for _, _, job in jobs() for step in job.get("steps", ()) if "checkout@" in str(step.get("uses"))
    ]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_jobs_that_publish_have_an_environment() -> None:
    assert {
        (workflow, name): job["environment"]["name"] for workflow, name, job in jobs() if "environment" in job
    } == {("release", "publish"): "pypi", ("docs", "deploy"): "github-pages"}


# --- commits that moved files --------------------------------------------------------------------------------------


@pytest.mark.process
def test_ignored_commits_of_blame_exist_and_have_the_named_subjects() -> None:
    text = (ROOT / ".git-blame-ignore-revs").read_text()
    entries = re.findall(r"^# (.+)\n([0-9a-f]{40})$", text, flags=re.MULTILINE)
    assert len(entries) == len(re.findall(r"^[^#\n]", text, flags=re.MULTILINE)) == 3
    for subject, commit in entries:
        shown = finished(["git", "show", "--no-patch", "--format=%s", commit], cwd=ROOT)
        assert (shown.returncode, shown.stdout.strip()) == (0, subject), shown.stderr
