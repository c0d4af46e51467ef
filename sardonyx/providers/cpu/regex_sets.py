"""Sets of characters in patterns: RE2's named classes, Unicode's categories, and letters that differ in case only."""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]
"""A set of characters as code points, first and last of each run: in order, with gaps between them."""

ALL: Ranges = ((0, sys.maxunicode),)
PERL: dict[str, Ranges] = {
    "d": ((48, 57),),
    "s": ((9, 10), (12, 13), (32, 32)),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
}
POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": ((48, 57),),
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": PERL["w"],
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CATEGORIES = re.compile("C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
LAST_WITH_CASE = 0x1EFFF
"""No letter behind this one has a form in another case."""


def union(runs: Iterable[tuple[int, int]]) -> Ranges:
    """Runs in any order as one set."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(runs):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(characters: Ranges) -> Ranges:
    ends = [-1, *(high for _, high in characters)]
    starts = [*(low for low, _ in characters), sys.maxunicode + 1]
    return tuple((end + 1, start - 1) for end, start in zip(ends, starts, strict=True) if end + 1 < start)


def contains(characters: Ranges, code: int) -> bool:
    at = bisect_right(characters, (code, sys.maxunicode)) - 1
    return at >= 0 and code <= characters[at][1]


@functools.lru_cache(maxsize=64)
def category(name: str) -> Ranges | None:
    """All characters of a Unicode category, of all those that begin with a letter, or of "Any"; None for other names."""
    if name == "Any":
        return ALL
    if not _CATEGORIES.fullmatch(name):
        return None
    codes = (code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith(name))
    return union((code, code) for code in codes if unicodedata.category(chr(code)) != "Cn")


@functools.lru_cache(maxsize=256)
def folded(characters: Ranges) -> Ranges:
    """A set with all characters that differ from one of it in case only."""
    more = [other for code, others in _orbits().items() if contains(characters, code) for other in others]
    return union([*characters, *((code, code) for code in more)])


@functools.cache
def _orbits() -> dict[int, list[int]]:
    """Characters that have other cases, with all of them."""
    alike: dict[str, list[int]] = {}
    for code in range(LAST_WITH_CASE + 1):
        alike.setdefault(_simple_fold(chr(code)), []).append(code)
    return {code: codes for codes in alike.values() if len(codes) > 1 for code in codes}


def _simple_fold(character: str) -> str:
    """Unicode's simple case folding: where the full one gives several characters, the lower case counts if that is one."""
    for form in (character.casefold(), character.lower()):
        if len(form) == 1:
            return form
    return character
