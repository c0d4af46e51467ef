"""What pages, docstrings and comments name: paths, dotted names of the package, links, make targets, commands."""

from __future__ import annotations

import ast
import functools
import importlib
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
]
SOURCES = [
    path for folder in ("sardonyx", "tests", "examples", "benchmarks", "docs") for path in sorted((ROOT / folder).rglob("*.py"))
]

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
PATH = re.compile(r"[\w.-]*(?:/[\w.-]+)*\w\.(?:py|md|txt|toml|svg|yml|yaml)|(?:[\w.-]+/)+")
"""A file of a kind that the repository has, or a folder with a slash behind it."""
DOTTED = re.compile(r"sardonyx(?:\.\w+)+")
LINK = re.compile(r"\[[^\]]+\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)")
NAMING_COMMENT = re.compile(r"#.*`")
"""What may be a comment that names something: to find comments for sure takes long."""
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


NAMING_FIELDS = ("id", "attr", "arg", "name", "asname", "module", "value")
"""Where the parts of a module's syntax keep names and texts."""


@functools.cache
def repository_paths() -> frozenset[str]:
    """Files and folders under version control or about to be, folders with a slash behind them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    files = [name for name in listed if (ROOT / name).exists()]
    return frozenset([*files, *(f"{folder}/" for name in files for folder in PurePosixPath(name).parents if folder.name)])


def matches(path: str, namer: Path) -> list[str]:
    """What a path may mean where it is named: what is near the one who names it, or else whatever has a name that ends so."""
    paths = repository_paths()
    for folder in _near(namer):
        name = (folder / path).resolve().as_posix().removeprefix(f"{ROOT.as_posix()}/") + ("/" if path.endswith("/") else "")
        if name in paths:
            return [name]
    return sorted(name for name in paths if name.endswith(f"/{path}"))


def _near(namer: Path) -> Iterator[Path]:
    """The package that a page is about; the folder of the one who names and those around it; the packages."""
    package = ROOT / "sardonyx"
    if namer.parent == ROOT / "docs":
        yield package / namer.stem
    yield namer.parent
    yield from (folder for folder in namer.parents if folder.is_relative_to(ROOT))
    yield package


def prose_of_page(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def prose_of_source(path: Path) -> str:
    """Docstrings, texts that stand alone, and comments of a module."""
    text = path.read_text(encoding="utf-8")
    alone = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr))
    documented = [node.value for node in alone if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join([*documented, *(comments_of(text) if NAMING_COMMENT.search(text) else ())])


def comments_of(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def paths_in(prose: str) -> Iterator[str]:
    for span in SPAN.findall(prose):
        yield from filter(PATH.fullmatch, span.split())


@functools.cache
def words() -> frozenset[str]:
    """All names and short texts in the code, the words of the tables that come with it, and the names of files."""
    found = {PurePosixPath(name).stem for name in repository_paths()}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for text in (getattr(node, field, None) for field in NAMING_FIELDS):
                if isinstance(text, (str, bytes)) and len(text) < 200:
                    found.update(re.findall(r"\w+", text if isinstance(text, str) else text.decode("latin-1")))
    for path in ROOT.rglob("sardonyx/**/*.txt"):
        found.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return frozenset(found)


def unknown_identifiers(prose: str) -> Iterator[str]:
    """Identifiers in backticks with a part that stands nowhere in the code."""
    for span in SPAN.findall(prose):
        if IDENTIFIER.fullmatch(span) and not words().issuperset(re.findall(r"\w+", span)):
            yield span


def dotted_in(prose: str) -> Iterator[str]:
    for span in SPAN.findall(prose):
        yield from DOTTED.findall(span)


def exists(dotted: str) -> bool:
    """Whether there is such a module, or such a name in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            target = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name == "torch":  # it is there, for who has torch
                return True
            continue
        try:
            functools.reduce(getattr, parts[length:], target)
        except AttributeError:
            return False
        except ModuleNotFoundError as error:
            return error.name == "torch"
        return True
    return False


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get where it is shown."""
    prose = prose_of_page(page)
    titles = (re.sub(r"\[([^\]]+)\]\([^)]*\)|`", r"\1", heading) for heading in HEADING.findall(prose))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
