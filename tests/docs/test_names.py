"""What the documentation names is there: files and folders, modules, identifiers, links and their anchors, make targets, commands."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from sardonyx import settings
from tests.docs.names import (
    LINK,
    PAGES,
    ROOT,
    SOURCES,
    anchors,
    dotted_in,
    exists,
    matches,
    paths_in,
    prose_of_page,
    prose_of_source,
    unknown_identifiers,
)

TEXTS = [*PAGES, *SOURCES]

ELSEWHERE = {
    "dist/": "made by `make release`",
    "_inlfunc_Function_name": "a name that onnxruntime makes",
    "CreateSessionWithPrepackedWeightsContainer": "a function of onnxruntime's C interface",
    "mypy": "a program",
    "make_table": "a function of the reader",
    "prepacked_1": "an entry of a file",
    "utils": "a name that we do not use",
    "sardonyx.x": "stands for any module",
}
"""Names that are right though nothing here is called so."""


@functools.cache
def prose_of(path: Path) -> str:
    return prose_of_page(path) if path.suffix == ".md" else prose_of_source(path)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_named_paths_are_there() -> None:
    named = {(text, path): matches(path, text) for text in TEXTS for path in paths_in(prose_of(text)) if path not in ELSEWHERE}
    assert len(named) > 200
    for (text, path), meant in named.items():
        assert meant, f"{name_of(text)} names {path}, which is not there"
        assert len(meant) == 1, f"{name_of(text)} names {path}, which may be any of {meant}: name the folder too"


def test_named_modules_are_there() -> None:
    unknown = [
        f"{name_of(text)}: {name}"
        for text in TEXTS
        for name in dotted_in(prose_of(text))
        if not (name in settings.SESSION or name in ELSEWHERE or exists(name))
    ]
    assert not unknown


def test_named_identifiers_are_in_the_code() -> None:
    unknown = [
        f"{name_of(text)}: {name}" for text in TEXTS for name in unknown_identifiers(prose_of(text)) if name not in ELSEWHERE
    ]
    assert not unknown


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in LINK.findall(prose_of_page(page)):
        linked = page.parent / target if target else page
        assert linked.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}#{anchor}, which is no heading there"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_and_commands_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"(?:`|\$ )(?:[A-Z]+=\S+ )*make ([a-z-]+)", text):
        assert target in targets, f"{page.name} names make {target}"
    commands = {path.stem for path in (ROOT / "sardonyx" / "cli").glob("*.py")}
    for command in re.findall(r"(?:`|\$ )sardonyx ([a-z]+)", text):
        assert command in commands, f"{page.name} names sardonyx {command}"


def test_every_page_is_reached_from_the_readme() -> None:
    linked = {target for target, _ in LINK.findall((ROOT / "README.md").read_text())}
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked
