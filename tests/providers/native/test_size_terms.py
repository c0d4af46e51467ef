"""Sizes as plain lists: source, files and symbolic sizes agree with each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sardonyx.ir import Dim, dim
from sardonyx.providers.native.program.size_terms import (
    BadSize,
    Calls,
    CallsRead,
    CallsTold,
    depends,
    dim_of,
    source_of,
    terms_of,
)

NAMES = ("n", "m")
N, M = dim.symbol("n"), dim.symbol("m")


def halved(times: int) -> Dim:
    """A size as that of an image after some strided convolutions: each call has the one before in it."""
    size: Dim = N
    for _ in range(times):
        size = (dim.maximum(size, M) + 1) // 2
    return size


SIZES: list[Dim] = [7, N, N * M + 2, halved(1), halved(9), halved(9) * halved(8) * 3, dim.minimum(halved(5), M)]


def test_shared_calls_are_written_once_and_computed_alike() -> None:
    shared: dict[dim.Call, Any] = {}
    terms = [terms_of(size, {"n": 0, "m": 1}, shared) for size in SIZES]
    calls = Calls()
    sources = [source_of(size, NAMES, calls=calls) for size in terms]
    assert len(calls.names) < 30
    for n, m in ((5, 3), (640, 17)):
        scope: dict[str, Any] = {"n": n, "m": m, "max": max, "min": min}
        for text, name in calls.names.items():
            scope[name] = eval(text, scope)
        wanted = [dim.evaluate(size, {"n": n, "m": m}) for size in SIZES]
        assert [eval(text, scope) for text in sources] == wanted
        assert [eval(source_of(size, NAMES), scope) for size in terms] == wanted


def test_files_tell_shared_calls_once() -> None:
    shared: dict[dim.Call, Any] = {}
    terms = [terms_of(size, {"n": 0, "m": 1}, shared) for size in SIZES]
    told = CallsTold()
    stored = json.loads(json.dumps([[told.size(size) for size in terms], told.calls]))
    read = CallsRead(stored[1])
    again = [read.size(size) for size in stored[0]]
    assert again == terms and [dim_of(size, NAMES) for size in again] == SIZES
    assert len(told.calls) == len(shared) and len(json.dumps(stored)) < len(json.dumps(terms))


def test_what_a_size_depends_on() -> None:
    terms = [terms_of(size, {"n": 0, "m": 1}, {}) for size in SIZES]
    for symbol, name in enumerate(NAMES):
        known: dict[int, bool] = {}
        found = [depends(size, {symbol}, known) for size in terms]
        assert found == [any(one.name == name for one in dim.symbols(size)) for size in SIZES]


@pytest.mark.parametrize(
    "calls", [[["max", 1, [[1, [0]]]]], [["max", 1, 2], ["max", 1, [[1, [2]]]]], [["max", 1, [[1, ["0"]]]]]]
)
def test_calls_refer_to_those_before_them(calls: Any) -> None:
    with pytest.raises(BadSize):
        CallsRead(calls)


def test_calls_do_not_stand_in_each_other_without_end() -> None:
    with pytest.raises(BadSize, match="deep"):
        CallsRead([["max", 1, 2], *(["max", 1, [[1, [number]]]] for number in range(50))])
