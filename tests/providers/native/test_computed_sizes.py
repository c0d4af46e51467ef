"""Results as large as numbers and data say that a run computes: they stay in one program, and are what NumPy gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sardonyx.errors import CODED
from sardonyx.providers.native.execution import argument_table
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import (
    CPUExecutionProvider,
    assert_agrees,
    compare,
    model_of,
    native_plan,
    programs,
)
from tests.providers.native.aot_models import check, write

Feeds = Mapping[str, Any]


def matrix(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def each(name: str, values: Sequence[Sequence[int]], rows: int = 6, columns: int = 5) -> list[Feeds]:
    return [{"x": matrix(rows, columns), name: ints(*one)} for one in values]


def masks(*shape: int) -> list[Feeds]:
    """Nothing, few, half and all of the elements."""
    random = np.random.default_rng(1).random(shape)
    return [{"x": random < share} for share in (0, 0.01, 0.5, 1)]


def pad(mode: str) -> tuple[str, list[Feeds]]:
    text = f'g (float[N,M] x, int64[4] p) => (float[a,b] y) {{ z = Pad<mode="{mode}">(x, p) y = Neg(z) }}'
    return text, each("p", [(3, 1, 0, 2), (0, 0, 0, 0), (1, 2, 4, 1)])


BOUNDS = [((3, 1), (5, 5)), ((-2, 0), (2**62, -1)), ((100, -300), (7, 2)), ((0, 4), (0, 3))]
BACKWARD = [((3, 1), (0, -100)), ((-1, 100), (-(2**63), 2**63 - 1)), ((0, -9), (4, 2))]

CASES: dict[str, tuple[str, Sequence[Feeds]]] = {
    "reshape": (
        "g (float[N,M] x, int64[2] s) => (float[a,b] y) { z = Reshape(x, s) y = Neg(z) }",
        each("s", [(3, 10), (0, -1), (-1, 1), (5, 6)]),
    ),
    "sums of reshaped ones, whose sizes are settled one after the other": (
        """g (float[N,M] x, int64[4] s, int64[4] t) => (float[a,b,c,d] y) {
            p = Reshape(x, s) q = Reshape(x, t) z = Add(p, q) y = Neg(z) }""",
        [{"x": matrix(6, 5), "s": ints(1, 5, 3, 2), "t": ints(*shape)} for shape in ((1, 5, 3, 2), (-1, 5, 3, 2))],
    ),
    "slice to a size that may be negative": (
        """g (float[N] x) => (float[a] y) <int64[1] zero = {0}, int64[1] two = {2}> {
            n = Shape(x) end = Sub(n, two) z = Slice(x, zero, end) y = Neg(z) }""",
        [{"x": matrix(1, rows)[0]} for rows in (0, 1, 2, 3, 9)],
    ),
    "reshape of nothing": (
        "g (float[N,M] x, int64[2] s) => (float[a,b] y) { z = Reshape<allowzero=1>(x, s) y = Neg(z) }",
        each("s", [(0, 10), (7, 0)], rows=0),
    ),
    "expand": (
        "g (float[N,M] x, int64[3] s) => (float[a,b,c] y) { z = Expand(x, s) y = Neg(z) }",
        [*each("s", [(3, 1, 1), (300, 6, 5)]), *each("s", [(2, 9, 5), (0, 9, 1), (1, 1, 1)], rows=1)],
    ),
    "constant of shape": (
        "g (int64[3] s) => (float[a,b,c] y) { z = ConstantOfShape(s) y = Exp(z) }",
        [{"s": ints(*one)} for one in ((3, 1, 1), (300, 6, 5), (2, 0, 5))],
    ),
    "tile": (
        "g (float[N,M] x, int64[2] r) => (float[a,b] y) { z = Tile(x, r) y = Neg(z) }",
        each("r", [(3, 1), (0, 7), (100, 7), (1, 1)]),
    ),
    "pad": pad("constant"),
    "pad by edges": pad("edge"),
    "pad by reflection": pad("reflect"),
    "pad by repeating": pad("wrap"),
    "pad some axes": (
        """g (float[N,M] x, int64[2] p, int64 v) => (float[N,b] y) <int64[1] last = {-1}> {
            f = Cast<to=1>(v) z = Pad(x, p, f, last) y = Neg(z) }""",
        [{**feeds, "v": np.array(7)} for feeds in each("p", [(0, 3), (2, 0)])],
    ),
    "slice": (
        "g (float[N,M] x, int64[2] s, int64[2] e) => (float[a,b] y) { z = Slice(x, s, e) y = Neg(z) }",
        [{"x": matrix(6, 5), "s": ints(*s), "e": ints(*e)} for s, e in BOUNDS],
    ),
    "slice backward": (
        """g (float[N,M] x, int64[2] s, int64[2] e) => (float[a,b] y) <int64[2] axes = {1, 0}, int64[2] steps = {-2, -1}> {
            z = Slice(x, s, e, axes, steps) y = Neg(z) }""",
        [{"x": matrix(rows, 5), "s": ints(*s), "e": ints(*e)} for s, e in BACKWARD for rows in (6, 1, 0)],
    ),
    "slice to a computed end of 32 bits": (
        """g (float[N,M] x, int32[1] e) => (float[a,M] y) <int32[1] none = {0}, int32[1] two = {2}> {
            z = Slice(x, none, e, none, two) y = Neg(z) }""",
        [{"x": matrix(6, 5), "e": np.array([end], np.int32)} for end in (-1, 0, 3, 99)],
    ),
    "split": (
        "g (float[N,M] x, int64[2] s) => (float[a,M] y, float[b,M] w) { z, v = Split<axis=0>(x, s) y = Neg(z) w = Exp(v) }",
        each("s", [(3, 3), (0, 6), (6, 0)]),
    ),
    "one hot": (
        "g (int64[N] x, int64 d, float[2] v) => (float[N,b] y) { z = OneHot(x, d, v) y = Neg(z) }",
        [{"x": ints(1, 2, -1, 7), "d": np.array(d), "v": np.float32([0, 1])} for d in (4, 0, 400)],
    ),
    "range": (
        "g (int64 a, int64 b, int64 c) => (int64[n] y) { z = Range(a, b, c) y = Neg(z) }",
        [
            dict(zip("abc", map(np.array, one)))
            for one in ((0, 5, 1), (0, 999, 3), (5, 0, -2), (5, 0, 1), (0, 0, 1), (-7, 8, 5))
        ],
    ),
    "range of floats": (
        "g (float a, float b, float c) => (float[n] y) { z = Range(a, b, c) y = Neg(z) }",
        [dict(zip("abc", map(np.float32, one))) for one in ((0, 5, 1), (0, 1000, 3.3), (5, 0, -2.1), (5, 0, 1))],
    ),
    "top k": (
        "g (float[N,M] x, int64[1] k) => (float[N,a] y, int64[N,a] p) { y, p = TopK(x, k) }",
        each("k", [(0,), (1,), (3,), (5,)]),
    ),
    "top k of columns": (
        "g (float[N,M] x, int64[1] k) => (float[a,M] y, int64[a,M] p) { z, p = TopK<axis=0, largest=0>(x, k) y = Neg(z) }",
        each("k", [(0,), (6,)]),
    ),
    "nonzero": (
        "g (bool[N,M] x) => (int64[2,k] y) { y = NonZero(x) }",
        [*masks(3, 5), *masks(0, 4), *masks(1, 1), *masks(7, 20000)],
    ),
    "nonzero of a number": (
        "g (float x) => (int64[0,k] y) { z = Neg(x) y = NonZero(z) }",
        [{"x": np.float32(number)} for number in (1, 0, np.nan)],
    ),
    "compress": (
        "g (float[N,M] x, bool[K] c) => (float[N,a] y) { z = Compress<axis=1>(x, c) y = Neg(z) }",
        [{"x": matrix(6, 5), "c": np.array(one, bool)} for one in ([1, 0, 1], [0] * 5, [1] * 7, [0, 0, 0, 0, 1, 1], [])],
    ),
    "compress elements": (
        "g (float[N,M] x, bool[K] c) => (float[a] y) { z = Compress(x, c) y = Neg(z) }",
        [{"x": matrix(6, 5), "c": np.array(one, bool)} for one in ([1, 0, 1], [0] * 5, [1] * 90, [])],
    ),
}

TAIL = """g (float[N,M] x, float t, int64 most) => (float[k,2] y, int64 n, float[j] best) <int64[1] one = {1}, int64[1] none = {0}> {
    m = Greater(x, t) p = NonZero(m) q = Transpose<perm=[1,0]>(p) v = GatherND(x, q)
    u = Cast<to=1>(q) w = Unsqueeze(v, one) z = Mul(u, w) y = Exp(z)
    n = Size(v) k0 = Min(n, most) k = Reshape(k0, one) best, places = TopK(v, k) }"""
"""What is above a threshold, and the best of it."""

DETECTOR = """g (float[1,n,4] boxes, float[1,c,n] scores) => (float[k,4] kept, float[k] s, int64[k] label) <int64[1] most = {20},
    float[1] overlap = {0.5}, float[1] least = {0.3}, int64[1] last = {2}, int64[1] end = {3}, int64[1] one = {1}, int64[1] none = {0}> {
    i = NonMaxSuppression(boxes, scores, most, overlap, least)
    box = Slice(i, last, end, one) image = Slice(i, none, one, one) at = Concat<axis=1>(image, box) kept = GatherND(boxes, at)
    s = GatherND(scores, i) l = Slice(i, one, last, one) label = Squeeze(l, one) }"""
"""The tail of a detector."""


def tail(rows: int, columns: int, threshold: float) -> Feeds:
    return {"x": matrix(rows, columns), "t": np.float32(threshold), "most": np.array(4)}


TAILS = [tail(*one) for one in ((3, 5, -9), (3, 5, 0), (40, 50, 0), (40, 50, 9), (40, 50, -9), (0, 3, 0), (1, 1, -9))]


def detections(count: int, seed: int = 0) -> Feeds:
    random = np.random.default_rng(seed)
    return {"boxes": np.float32(random.random((1, count, 4)) * 9), "scores": np.float32(random.random((1, 3, count)))}


@pytest.fixture
def always_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run is left to NumPy."""

    def refuse(program: CompiledProgram, inputs: Any, reason: str, has_unequal_sizes: bool = False) -> None:
        raise AssertionError(f"left to NumPy: {reason}")

    monkeypatch.setattr(CompiledProgram, "_left", refuse)


@pytest.mark.usefixtures("always_native")
@pytest.mark.parametrize("name", CASES)
def test_operands_may_be_computed(name: str) -> None:
    assert_agrees(*CASES[name])


@pytest.mark.usefixtures("always_native")
@pytest.mark.parametrize("type", ["float", "float16", "bfloat16", "double", "int8", "int32", "uint64"])
def test_numbers_of_all_types_are_counted(type: str) -> None:
    text = f"""g (float[N,M,L] x) => (int64[3,k] y, int64[k] q, {type}[k] v) <int64[1] axis = {{0}}> {{
        z = Cast<to={{to}}>(x) y = NonZero(z) q = ReduceSum<keepdims=0>(y, axis) p = Transpose(y) v = GatherND(z, p) }}"""
    codes = {"float": 1, "float16": 10, "bfloat16": 16, "double": 11, "int8": 3, "int32": 6, "uint64": 13}
    given = [{"x": np.float32(np.random.default_rng(2).integers(0, 2, shape))} for shape in ((3, 5, 1), (0, 4, 2), (9, 33, 3))]
    assert_agrees(text.replace("{to}", str(codes[type])), given)


@pytest.mark.usefixtures("always_native")
def test_tails_of_detectors_are_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for source, feeds in ((TAIL, TAILS), (DETECTOR, [detections(count) for count in (0, 1, 7, 90)])):
        assert len(programs(native_plan(source))) == 1
        assert_agrees(source, feeds)
    monkeypatch.setattr(argument_table, "FIRST_CAPACITY", 1)
    monkeypatch.setattr(argument_table, "FIRST_BYTES", 8)
    assert_agrees(TAIL, TAILS)
    assert_agrees(DETECTOR, [detections(count) for count in (3, 90)])


def test_threads_may_run_it_at_once_while_room_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argument_table, "FIRST_CAPACITY", 1)
    plan, reference = native_plan(TAIL, threads=2), make_plan(model_of(TAIL).graph, [CPUExecutionProvider()])
    wanted = [execute(reference, feeds) for feeds in TAILS]
    with ThreadPoolExecutor(4) as workers:
        for _ in range(4):
            for got, expected in zip(workers.map(lambda feeds: execute(plan, feeds), TAILS), wanted):
                compare(got, expected)


HOSTILE: dict[str, Sequence[Feeds]] = {
    "reshape": each("s", [(-1, -1), (4, 4), (-2, 15), (2**62, 2), (7, -1), (2**32, 2**32)]),
    "expand": each("s", [(2, 3, 5), (-1, 6, 5), (2**62, 1, 1)]),
    "constant of shape": [{"s": ints(*one)} for one in ((-1, 2, 3), (2**40, 2**40, 1), (2**62, 0, 1))],
    "tile": each("r", [(-1, 1), (2**62, 2**62)]),
    "pad": each("p", [(-2, 0, 0, -1), (2**62, 0, 0, 0)]),
    "pad by reflection": each("p", [(9, 0, 0, 0)]),
    "split": each("s", [(2, 3), (-1, 7), (2**62, 6 - 2**62)]),
    "one hot": [{"x": ints(1), "d": np.array(d), "v": np.float32([0, 1])} for d in (-1, 2**62)],
    "range": [dict(zip("abc", map(np.array, one))) for one in ((0, 5, 0), (-(2**62), 2**62, 1))],
    "range of floats": [dict(zip("abc", map(np.float32, one))) for one in ((0, 5, 0), (0, np.inf, 1), (np.nan, 5, 1))],
    "top k": each("k", [(-1,), (6,), (2**62,)]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_numbers_that_make_no_sense_are_refused_as_by_numpy(name: str) -> None:
    """Where NumPy has a result, it is that one."""
    source, sound = CASES[name]
    plan, reference = native_plan(source), make_plan(model_of(source).graph, [CPUExecutionProvider()])
    for feeds in HOSTILE[name]:
        try:
            wanted: Sequence[Any] | str = execute(reference, feeds)
        except CODED as error:
            wanted = str(error)
        if isinstance(wanted, str):
            with pytest.raises(CODED) as raised:
                execute(plan, feeds)
            assert str(raised.value) == wanted
        else:
            compare(execute(plan, feeds), wanted)
        compare(execute(plan, sound[0]), execute(reference, sound[0]))


def test_declared_sizes_must_be_true() -> None:
    """One name for two sizes, and a number that does not hold: NumPy computes, as the model says."""
    text = """g (bool[N] x, bool[N] z) => (int64[1,K] y, int64[1,K] w, int64[1,3] v) {
        y = NonZero(x) w = NonZero(z) v = NonZero(x) }"""
    flags = [np.array(one, bool) for one in ([1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 1])]
    reference = make_plan(model_of(text).graph, [CPUExecutionProvider()])
    plan = native_plan(text)
    for x in flags:
        for z in flags:
            compare(execute(plan, {"x": x, "z": z}), execute(reference, {"x": x, "z": z}))


PICKY = """g (bool c, float[N,4] x, float[M,4] z) => (float[K,4] y, float[K] s) <int64[3] pairs = {-1, 2, 4}, int64[1] one = {1}> {
    w = If(c) <then_branch = t () => (float[A,4] a) { h = Sub(x, z) p = Reshape(h, pairs) q = ReduceSum<keepdims=0>(p, one) a = Tanh(q) },
               else_branch = e () => (float[B,4] b) { b = Concat<axis=0>(x, z) }>
    y = Exp(w) s = ReduceSum<keepdims=0>(w, one) }"""
"""A branch for even numbers of rows that are equal, and one for all."""


def test_a_branch_may_be_for_some_shapes_alone(always_native: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def feeds(condition: bool, rows: int, others: int) -> Feeds:
        return {"c": np.array(condition), "x": matrix(rows, 4), "z": matrix(others, 4, seed=1)}

    sound = [feeds(False, 3, 5), feeds(True, 4, 4), feeds(False, 4, 4), feeds(True, 0, 0), feeds(False, 1, 300)]
    assert_agrees(PICKY, sound)
    monkeypatch.undo()
    plan = native_plan(PICKY)
    for wrong in (feeds(True, 3, 5), feeds(True, 3, 3)):
        with pytest.raises(CODED):
            execute(plan, wrong)
        compare(execute(plan, sound[0]), execute(make_plan(model_of(PICKY).graph, [CPUExecutionProvider()]), sound[0]))


RESIZE = """g (float[N,2,H,W] x, int64[2] s) => (float[N,2,a,b] y) <int64[1] none = {0}, int64[1] two = {2}> {
    h = Shape(x) f = Slice(h, none, two, none) t = Concat<axis=0>(f, s) z = Resize<mode="MODE">(x, , , t) y = Neg(z) }"""


@pytest.mark.usefixtures("always_native")
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_are_resized_to_computed_sizes(mode: str) -> None:
    image = np.random.default_rng(3).standard_normal((2, 2, 7, 9)).astype(np.float32)
    given = [{"x": image, "s": ints(*size)} for size in ((3, 5), (7, 9), (300, 2), (1, 1))]
    assert_agrees(RESIZE.replace("MODE", mode), given)


def test_it_is_compiled_ahead_of_time(tmp_path: Path) -> None:
    check(write(tmp_path / "tail.onnx", TAIL), *TAILS)
