"""Ops on strings, in NumPy and Python's own text methods: no locale of the system is asked. The CPU table calls them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.re2 import matcher
from sardonyx.providers.cpu.shape import bounded, braced
from sardonyx.providers.cpu.table import cpu


def strings(items, shape) -> np.ndarray:
    """A tensor of strings from its elements in row-major order."""
    return np.fromiter(items, object, len(items)).reshape(shape)


def padded(rows, pad_value, shape) -> np.ndarray:
    """Lists of strings as a tensor whose last axis is as long as the longest."""
    longest = max(map(len, rows), default=0)
    if len(rows) == 1:
        return strings(rows[0], (*shape, longest))
    bounded((len(rows), longest), np.dtype(object))
    flat = []
    for row in rows:
        flat += row
        flat += [pad_value] * (longest - len(row))
    return np.fromiter(flat, object, len(flat)).reshape(*shape, longest)


@cpu.kernel("StringConcat", plain=True)
def string_concat(X, Y):
    return np.asarray(np.add(X, Y), dtype=object)


def _word_changes(case_change_action="NONE", is_case_sensitive=0, locale="en_US", stopwords=()):
    """What is made of each word, if anything; how words are compared, and those that are left out."""
    if case_change_action not in ("NONE", "LOWER", "UPPER"):
        raise KernelError(f"case_change_action is NONE, LOWER or UPPER, not {case_change_action!r}", InvalidArgument)
    lower, upper = _case_changes(locale)
    compared = str if is_case_sensitive else lower
    return {"LOWER": lower, "UPPER": upper}.get(case_change_action), compared, {compared(word) for word in stopwords}


def _case_changes(locale: str) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """To lower and to upper case. Turkish and Azeri are the only locales in which single letters change in another way."""
    if re.split("[_.@-]", locale.lower())[0] not in ("tr", "az"):
        return str.lower, str.upper
    return lambda text: text.replace("İ", "i").replace("I", "ı").lower(), lambda text: text.replace("i", "İ").upper()


@cpu.kernel("StringNormalizer", plain=True, derive={"changes": _word_changes})
def string_normalizer(X, changes):
    if X.ndim not in (1, 2) or (X.ndim == 2 and X.shape[0] != 1):
        raise KernelError(f"Input dimensions are either [C > 0] or [1][C > 0] allowed, not {braced(X.shape)}", InvalidArgument)
    change, compared, dropped = changes
    kept = X.ravel().tolist()
    if dropped:
        kept = [word for word in kept if compared(word) not in dropped]
    if change is not None:
        kept = list(map(change, kept))
    kept = kept or [""]
    return strings(kept, (len(kept),) if X.ndim == 1 else (1, len(kept)))


@cpu.kernel("StringSplit", plain=True)
def string_split(X, delimiter=None, maxsplit=None):
    limit = -1 if maxsplit is None else maxsplit
    # an empty string has no parts, also with a delimiter, for which Python would count one
    texts = X.reshape(-1).tolist()
    if delimiter:
        parts = [text.split(delimiter, limit) if text else [] for text in texts]
    elif limit < 0:
        parts = list(map(str.split, texts))
    else:
        parts = [text.strip().split(None, limit) for text in texts]
    counts = np.fromiter(map(len, parts), np.int64, len(parts)).reshape(X.shape)
    return padded(parts, "", X.shape), counts


def _full_matches(pattern):
    return matcher(pattern).fullmatches


@cpu.kernel("RegexFullMatch", plain=True, derive={"matches": _full_matches})
def regex_full_match(X, matches):
    return matches(X.reshape(-1).tolist()).reshape(X.shape)
