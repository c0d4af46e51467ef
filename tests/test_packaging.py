"""What is said of versions and platforms in several files agrees: pyproject.toml, the workflow, the changelog, docs/platforms.md."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import sardonyx

ROOT = Path(__file__).parent.parent
PROJECTS = [ROOT / "pyproject.toml", *(ROOT / "packaging" / name / "pyproject.toml" for name in ("minimal", "kernels"))]
PROJECT = tomllib.loads(PROJECTS[0].read_text())["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
PLATFORMS = (ROOT / "docs" / "platforms.md").read_text()


def versions(text: str) -> set[str]:
    return set(re.findall(r"\b3\.\d\d\b", text))


@pytest.mark.parametrize("path", PROJECTS, ids=["whole", "minimal", "kernels"])
def test_the_version_stands_in_the_package_alone(path: Path) -> None:
    project = tomllib.loads(path.read_text())
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "sardonyx.__version__"}


def test_the_changelog_knows_the_version() -> None:
    assert re.search(rf"^## {re.escape(sardonyx.__version__)}$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_pythons_are_the_same_everywhere() -> None:
    promised = {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)}
    table = PLATFORMS[PLATFORMS.index("| Python |") : PLATFORMS.index("`.github/")]
    matrices = "".join(re.findall(r"^ +python: \[(.+)\]$", WORKFLOW, re.MULTILINE))
    assert promised == versions(table) == versions(matrices)
    assert min(promised, key=lambda version: int(version[2:])) == PROJECT["requires-python"].removeprefix(">=")


def test_the_workflow_runs_on_every_system_that_is_promised() -> None:
    assert {"ubuntu-latest", "ubuntu-24.04-arm", "macos-latest", "windows-latest"} <= set(
        re.findall(r"[\w.-]+-[\w.-]+", WORKFLOW)
    )
    for system in ("Linux", "macOS", "Windows"):
        assert f"| {system} |" in PLATFORMS


def test_commits_are_checked_as_the_makefile_checks() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    for program in re.findall(r"@\$\(BIN\)/(\w+(?: \w+)?)", recipe[1]):
        assert f".venv/bin/{program}" in hooks, f"no hook runs {program}"
