"""Tokenizer of com.microsoft, in NumPy."""

from __future__ import annotations

import functools

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.re2 import matcher
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.cpu.text import padded

START, END = "\x02", "\x03"
SENTINEL = "\0"
"""Stands between the tokens of two texts."""


class Splitter:
    """Makes tokens of texts."""

    def __init__(self, one, all):
        self._one = one
        self._all = all

    def __call__(self, text):
        """The tokens of one text."""
        return self._one(text)

    @property
    def takes_many(self):
        return self._all is not None

    def all(self, texts):
        """The tokens of many texts, with the sentinel between them; None where a text has it, too."""
        joined = SENTINEL.join(texts)
        return self._all(joined) if joined.count(SENTINEL) == len(texts) - 1 else None


def _splitter(separators=None, tokenexp=None):
    """What makes tokens of a text; None if nothing says how."""
    if tokenexp == "." or (separators is not None and list(separators) == [""]):
        return Splitter(list, str)
    if tokenexp:
        pattern = matcher(tokenexp)
        return Splitter(pattern.findall, pattern.findall_with(SENTINEL))
    if not separators:
        return None
    at_once = functools.partial(_words, separators[0]) if len(separators) == 1 and _is_literal(separators[0]) else None
    return Splitter(functools.partial(_pieces, [matcher(one).split for one in separators]), at_once)


def _is_literal(pattern):
    """Whether a pattern is one character that means itself."""
    return len(pattern) == 1 and pattern not in ".^$*+?()[]{}|\\" + SENTINEL


def _words(separator, joined):
    return list(filter(None, joined.replace(SENTINEL, separator + SENTINEL + separator).split(separator)))


@cpu.kernel("Tokenizer", domain="com.microsoft", plain=True, derive={"split": _splitter})
def tokenizer(X, *, split, mark, mincharnum, pad_value):
    if X.ndim not in (1, 2):
        raise KernelError("Input dimensions are either [C] or [N][C] allowed", InvalidArgument)
    if mincharnum < 1:
        raise KernelError(f"attribute mincharnum must have a positive value, not {mincharnum}", InvalidArgument)
    if not X.size:
        return X.copy()
    if split is None:
        raise KernelError("one of the attributes separators and tokenexp must be set", InvalidArgument)
    rows = list(map(split, X.ravel().tolist()))
    if mincharnum > 1:
        rows = [[token for token in row if len(token) >= mincharnum] for row in rows]
    if mark and any(rows):
        rows = [[START, *row, END] for row in rows]
    return padded(rows, pad_value, X.shape)


def _pieces(splits, text):
    """What is left of a text when all separators are taken out."""
    first, *others = splits
    pieces = first(text)
    for split in others:
        pieces = [piece for whole in pieces for piece in split(whole)]
    return list(filter(None, pieces))
