"""Which files a tool works on."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable


def path_match_suffix_ignore_case(path: pathlib.Path | str, suffix: str) -> bool:
    """Whether a path ends so, in large or small letters."""
    return str(path).lower().endswith(suffix.lower())


def files_from_file_or_dir(
    file_or_dir_path: pathlib.Path | str, predicate: Callable[[pathlib.Path], bool] = lambda path: True
) -> list[pathlib.Path]:
    """The file, or all files below the directory, as far as they satisfy the predicate."""
    given = pathlib.Path(os.path.realpath(file_or_dir_path))
    if given.is_dir():
        found = sorted(path for path in given.rglob("*") if path.is_file())
    else:
        found = [given] if given.is_file() else []
    return [path for path in found if predicate(path)]
