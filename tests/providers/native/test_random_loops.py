"""Random loops agree with NumPy's provider: state that keeps its shape, grows or shrinks, branches and loops inside, any turns."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnx.parser
import pytest

import sardonyx
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import assert_agrees, model_of
from tests.tolerance import NATIVE_LOOPS

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'
CONSTANTS = """<bool yes = {1}, float half = {0.5}, int64 one = {1}, int64 two = {2}, int64 three = {3},
    int64[1] first = {0}, int64[1] next = {1}, int64[1] last = {1000}>"""


class Body:
    """Writes the graph of a loop, line by line. What decides about turns and shapes is made of whole numbers, which are exact."""

    def __init__(self, seed: int, lies: bool):
        self.random = random.Random(seed)
        self.lies = lies
        self.lines: list[str] = []
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def matrix_type(self) -> str:
        """A type of two sizes with names of their own, or with names that others have too."""
        return "float[P,Q]" if self.lies else f"float[{self.name()},{self.name()}]"

    def line(self, text: str) -> str:
        """A node whose one output has a new name."""
        name = self.name()
        self.lines.append(f"{name} = {text}")
        return name

    def choose(self, *choices: str) -> str:
        return self.random.choice(choices)

    def condition(self, count: str) -> str:
        odd = self.line(f"Mod({self.choose('i', count)}, two)")
        return self.line(f"Cast<to=9>({odd})")

    def branches(self, condition: str, then: str, other: str) -> str:
        """Both are a node each."""
        a, b = self.name(), self.name()
        return self.line(
            f"If({condition}) <then_branch = {a}g () => ({self.matrix_type()} {a}) {{ {a} = {then} }},"
            f" else_branch = {b}g () => ({self.matrix_type()} {b}) {{ {b} = {other} }}>"
        )

    def matrix(self, state: str, count: str) -> str:
        """A few steps that keep the shape."""
        for _ in range(self.random.randint(1, 3)):
            state = self.random.choice([self.arithmetic, self.branching, self.looping])(state, count)
        return state

    def arithmetic(self, state: str, count: str) -> str:
        return self.line(self.simple(state))

    def simple(self, state: str) -> str:
        return self.choose(
            *(f"{op}({state})" for op in ("Tanh", "Neg", "Softmax", "Identity")),
            *(f"{op}({state}, x)" for op in ("Add", "Mul", "Max")),
            f"MatMul({state}, w)",
            f"Mul({state}, half)",
        )

    def branching(self, state: str, count: str) -> str:
        return self.branches(self.condition(count), self.simple(state), self.simple(state))

    def looping(self, state: str, count: str) -> str:
        s, t, j, c = (self.name() for _ in range(4))
        turns, taken, given = self.choose("two", "i"), self.matrix_type(), self.matrix_type()
        return self.line(
            f"Loop({turns}, yes, {state}) <body = {s}g (int64 {j}, bool {c}, {taken} {s}) => (bool {c}, {given} {t})"
            f" {{ {t} = {self.simple(s)} }}>"
        )

    def growing(self, state: str, count: str) -> str:
        """Rows are added or taken away."""
        grown, shrunk = f"Concat<axis=0>({state}, x)", f"Slice({state}, next, last, first)"
        if self.random.random() < 0.5:
            return self.branches(self.condition(count), grown, self.choose(shrunk, f"Identity({state})"))
        return self.line(grown)

    def collected(self, matrix: str) -> tuple[str, str]:
        """What a turn makes of a matrix: its type and its name."""
        made = self.line(
            self.choose(f"Exp({matrix})", f"Transpose({matrix})", f"Concat<axis=1>({matrix}, {matrix})", f"Add({matrix}, x)")
        )
        return self.matrix_type(), made

    def counting(self, count: str) -> str:
        return self.line(self.choose(f"Add({count}, one)", f"Add({count}, i)", f"Sub({count}, one)", f"Mul({count}, two)"))

    def going(self, count: str) -> str:
        return self.line(self.choose("Identity(c)", "Less(i, three)", f"Less({count}, limit)"))


def random_loop(seed: int, lies: bool, collects: bool = False) -> str:
    """`collects` asks for rows of two axes too."""
    body = Body(seed, lies)
    count = body.counting("k")
    matrix, grown = body.matrix("s", count), body.growing("g", count)
    total = body.line(f"ReduceSum<keepdims=0>({body.choose(matrix, grown, 's')})")
    number = body.line(f"Identity({body.choose('i', count)})")
    rows = [body.collected(matrix), body.collected("s")] if collects else []
    going = body.going(count)
    turns = "m" if body.random.random() < 0.7 else ""
    going = body.line("Less(i, three)") if not turns else going  # it must end
    lines = "\n            ".join(body.lines)
    size = "C" if lies else "E"
    inner = "".join(f", {type} {name}" for type, name in rows)
    outer = [(f", float[T{number},P{number},Q{number}] r{number}", f", r{number}") for number, _ in enumerate(rows)]
    types, names = ("".join(texts) for texts in zip(*outer)) if outer else ("", "")
    return f"""g (int64 m, bool go, int64 limit, float[N,K] x, float[K,K] w)
        => (float[N,K] y, float[G,K] rows, int64 n, float[T] totals, int64[T] numbers{types}) {CONSTANTS} {{
        y, rows, n, totals, numbers{names} = Loop({turns}, go, x, x, one)
            <body = b (int64 i, bool c, float[A,B] s, float[C,D] g, int64 k)
                => (bool {going}, float[A,B] {matrix}, float[{size},D] {grown}, int64 {count}, float {total}, int64 {number}{inner}) {{
            {lines} }}> }}"""


def without_names(graph: onnx.GraphProto) -> None:
    """Leave all sizes open that have names."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            size.ClearField("dim_param")
    for node in graph.node:
        for attribute in node.attribute:
            without_names(attribute.g)


def feeds_of(seed: int) -> list[dict[str, np.ndarray]]:
    numbers = np.random.default_rng(seed)
    return [
        {
            "m": np.array(turns),
            "go": np.array(goes),
            "limit": np.array(limit),
            "x": numbers.standard_normal((rows, columns)).astype(np.float32),
            "w": numbers.standard_normal((columns, columns)).astype(np.float32) / 4,
        }
        for rows, columns in [(3, 4), (1, 1), (17, 9)]
        for turns, goes, limit in [(4, True, 3), (1, True, 0), (0, True, 9), (-1, True, 9), (3, False, 9), (7, True, 20)]
    ]


@pytest.mark.parametrize("seed", range(30))
def test_random_loops_agree_with_numpy(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    assert_agrees(random_loop(seed, lies=False), feeds_of(seed), tolerance=NATIVE_LOOPS)
    assert "NumPy computes what was compiled" not in caplog.text


@pytest.mark.parametrize("seed", range(30))
def test_random_loops_without_names_agree_with_numpy(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    model = onnx.parser.parse_model(HEADER + random_loop(seed, lies=False))
    without_names(model.graph)
    assert_agrees(model, feeds_of(seed), tolerance=NATIVE_LOOPS)
    assert "NumPy computes what was compiled" not in caplog.text


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("seed", range(15))
def test_rows_of_open_sizes_that_random_loops_collect_agree_with_numpy(
    seed: int, named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = onnx.parser.parse_model(HEADER + random_loop(seed, lies=False, collects=True))
    if not named:
        without_names(model.graph)
    feeds = [one for one in feeds_of(seed) if one["m"] > 0 and one["go"]]  # where nothing is collected, nobody knows the sizes
    assert_agrees(model, feeds, tolerance=NATIVE_LOOPS)
    assert "NumPy computes what was compiled" not in caplog.text


@pytest.mark.parametrize("seed", range(30))
def test_one_name_for_sizes_that_differ_changes_nothing(seed: int) -> None:
    assert_agrees(random_loop(seed, lies=True), feeds_of(seed), tolerance=NATIVE_LOOPS)


@pytest.mark.parametrize("seed", range(30))
def test_sessions_tell_sizes_of_one_name_apart(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    session = sardonyx.InferenceSession(onnx.parser.parse_model(HEADER + random_loop(seed, lies=True)).SerializeToString())
    for feeds in feeds_of(seed):
        session.run(None, feeds)
    assert caplog.text.count("NumPy computes what was compiled") <= 1
    caplog.clear()
    plan = make_plan(model_of(random_loop(seed, lies=True)).graph, [CPUExecutionProvider()])
    for feeds in feeds_of(seed):
        for ours, reference in zip(session.run(None, feeds), execute(plan, feeds), strict=True):
            assert ours.shape == reference.shape
            np.testing.assert_allclose(ours, reference, rtol=NATIVE_LOOPS, atol=NATIVE_LOOPS)
    assert "NumPy computes" not in caplog.text and "NumPy computed" not in session.explain()
