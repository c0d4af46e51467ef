"""Batches in parts: which clusters may be cut, and that the parts together give what the whole would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.compiler import caches
from sardonyx.providers.native.execution import argument_table
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.providers.native.program import budgets
from sardonyx.providers.native.program.parts import entries_at_once
from tests.providers.native.agreement import assert_agrees, change_budgets, native_plan, programs

CAN_BE_CUT = {
    "elementwise": "g (float[N,8] x, float[8] b) => (float[N,8] y) { t = Add(x, b) y = Mul(t, x) }",
    "convolutions": """g (float[N,3,H,W] x, float[8,3,3,3] w) => (float[N,8,P,Q] y) {
        t = Conv<pads=[1,1,1,1]>(x, w) u = Relu(t) y = MaxPool<kernel_shape=[2,2]>(u) }""",
    "product": "g (float[N,8] x, float[8,5] w) => (float[N,5] y) { t = MatMul(x, w) y = Softmax<axis=-1>(t) }",
    "products of matrices": "g (float[N,4,8] x, float[N,8,5] z) => (float[N,4,5] y) { y = MatMul(x, z) }",
    "transposed": "g (float[N,4,8] x) => (float[N,8,4] y) { t = Transpose<perm=[0,2,1]>(x) y = Exp(t) }",
    "joined": "g (float[N,4] x, float[N,5] z) => (float[N,9] y) { t = Concat<axis=1>(x, z) y = Neg(t) }",
    "reduced": "g (float[N,4,8] x) => (float[N,4] y) { a = Constant<value_ints=[2]>() t = ReduceSum<keepdims=0>(x, a) y = Exp(t) }",
}
CANNOT = {
    "softmax over the batch": "g (float[N,8] x) => (float[N,8] y) { y = Softmax<axis=0>(x) }",
    "sum over the batch": "g (float[N,8] x) => (float[N,8] y) { t = ReduceSum<keepdims=1>(x) y = Add(x, t) }",
    "batch broadcast along another axis": "g (float[N,N] x, float[N] z) => (float[N,N] y) { y = Add(x, z) }",
    "rows by columns": "g (float[N,8] x) => (float[N,N] y) { t = Transpose<perm=[1,0]>(x) y = MatMul(x, t) }",
    "a content that tells the batch": """g (float[N,8] x) => (float[N,8] y) {
        s = Shape(x) z = Constant<value_ints=[0]>() n = Gather(s, z) f = Cast<to=1>(n) y = Mul(x, f) }""",
    "places among all entries": """g (float[N,2,4] x) => (float[N,2,2] y, int64[N,2,2] i) {
        t = Relu(x) y, i = MaxPool<kernel_shape=[2], strides=[2]>(t) }""",
    "no batch": "g (float[8] x) => (float[8] y) { t = Exp(x) y = Neg(t) }",
}


def batch_in(text: str) -> Any:
    (program,) = programs(native_plan(text))
    assert isinstance(program, CompiledProgram)
    return program.argument_table.tables.batch


@pytest.mark.parametrize("name", CAN_BE_CUT)
def test_rows_by_themselves_can_be_cut(name: str) -> None:
    assert batch_in(CAN_BE_CUT[name]).symbol == "N"


@pytest.mark.parametrize("name", CANNOT)
def test_rows_that_meet_cannot(name: str) -> None:
    assert batch_in(CANNOT[name]) is None


def feeds(name: str, count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(count)
    shapes = {
        "elementwise": {"x": (count, 8), "b": (8,)},
        "convolutions": {"x": (count, 3, 9, 10), "w": (8, 3, 3, 3)},
        "product": {"x": (count, 8), "w": (8, 5)},
        "products of matrices": {"x": (count, 4, 8), "z": (count, 8, 5)},
        "transposed": {"x": (count, 4, 8)},
        "joined": {"x": (count, 4), "z": (count, 5)},
        "reduced": {"x": (count, 4, 8)},
    }
    return {key: random.standard_normal(shape).astype(np.float32) for key, shape in shapes[name].items()}


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("name", CAN_BE_CUT)
def test_parts_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch, name: str, count: int) -> None:
    monkeypatch.setattr(argument_table, "entries_at_once", lambda count, *_: min(count, 3))
    assert_agrees(CAN_BE_CUT[name], feeds(name, count))


def test_the_arena_is_that_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = programs(native_plan(CAN_BE_CUT["convolutions"]))
    shapes = ((8, 3, 9, 10), (8, 3, 3, 3))
    whole = program.argument_table.words_for(shapes)
    change_budgets(monkeypatch, arena=whole.arena // 4)
    cut = program.argument_table.words_for(shapes)
    assert (whole.parts, cut.parts) == (1, 4) and cut.arena < whole.arena
    symbols = {"N": 8, "H": 9, "W": 10, "P": 4, "Q": 5}
    assert program.workspace.bytes_for(symbols) == cut.arena


def test_how_many_entries_a_part_has() -> None:
    cached = budgets.of(caches.here()).arena
    large = 100 * cached
    assert entries_at_once(1, large, 10**12, 0) == 1
    assert entries_at_once(8, cached, 10**12, 0) == 8
    assert entries_at_once(200, large, 10**12, 0) == 2
    assert entries_at_once(8, large, 10**12, 0) == 1
    assert entries_at_once(8, large, 10**6, 10**6) == 8  # reading the weights again would take longer
