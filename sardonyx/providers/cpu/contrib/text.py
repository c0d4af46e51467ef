"""Tokenizer of com.microsoft, in NumPy."""

from __future__ import annotations

import functools
import itertools

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.re2 import matcher
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.cpu.text import strings

START, END = "\x02", "\x03"


def _splitter(separators=None, tokenexp=None):
    """What makes a list of tokens of a text; None if nothing says how."""
    if tokenexp == "." or (separators is not None and list(separators) == [""]):
        return list
    if tokenexp:
        return functools.partial(_matches, matcher(tokenexp))
    return functools.partial(_pieces, list(map(matcher, separators))) if separators else None


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
    longest = max(map(len, rows))
    if mark and longest:
        rows = [[START, *row, END] for row in rows]
        longest += 2
    padded = [row if len(row) == longest else row + [pad_value] * (longest - len(row)) for row in rows]
    return strings(padded[0] if len(padded) == 1 else list(itertools.chain(*padded)), (*X.shape, longest))


def _pieces(patterns, text):
    """What is left of a text when all separators are taken out."""
    pieces = [text]
    for pattern in patterns:
        pieces = [piece for whole in pieces for piece in _split(pattern, whole)]
    return [piece for piece in pieces if piece]


def _split(pattern, text):
    start = 0
    for first, last in pattern.spans(text):
        yield text[start:first]
        start = last
    yield text[start:]


def _matches(pattern, text):
    return [text[first:last] for first, last in pattern.spans(text)]
