"""Cases of If, Loop and Scan."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from sardonyx import formats, ops
from sardonyx.errors import Fail
from sardonyx.ir import described
from sardonyx.providers.cpu.control import loop
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.runtime.execution.executor import execute
from tests.ops.cases import case, f32, refuse, typed
from tests.runtime.models import plan_of

# --- If ---------------------------------------------------------------------------------------------------------------

ONE = "t () => (float[1] y) { y = Constant <value_floats = [1.0]> () }"
TWO = "e () => (float[2] z) { z = Constant <value_floats = [2.0, 3.0]> () }"

for _condition, _expected in ((True, [1]), (False, [2, 3])):
    case(
        "If",
        cond=np.array(_condition),
        then_branch=ONE,
        else_branch=TWO,
        since=12,
        sizes_known=False,
        expect=np.array(_expected, np.float32),
    )
    case("If", cond=np.array([_condition]), then_branch=ONE, else_branch=TWO, since=12, expect=np.array(_expected, np.float32))
refuse("If", cond=np.array([True, False]), then_branch=ONE, else_branch=TWO, since=12, match="one element")
refuse(
    "If",
    cond=np.array([[True]]),  # of a rank that no view makes a constant of: then only the branch that is taken must fit
    then_branch=ONE,
    else_branch="e () => (int64 z) { z = Constant <value_int = 1> () }",
    since=12,
    match="type",
)

# --- Loop -------------------------------------------------------------------------------------------------------------

DOUBLE = "b (int64 i, bool c, float[2] s) => (bool d, float[2] t) { d = Identity(c) t = Add(s, s) }"
COUNT = "b (int64 i, bool c, float[2] s) => (bool d, float[2] t, int64 n) { d = Identity(c) t = Add(s, s) n = Identity(i) }"
STOP = """b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
    two = Constant <value_int = 2> () d = Less(i, two) t = Add(s, s)
}"""
S = f32(2)

case("Loop", M=np.int64(3), cond=np.array(True), v_initial=[S], body=DOUBLE, since=14, expect=8 * S)
case("Loop", M=np.int64(3), v_initial=[S], body=DOUBLE, since=14, expect=8 * S)
case("Loop", M=[3], v_initial=[S], body=DOUBLE, since=14, expect=8 * S)
case("Loop", M=np.int64(0), v_initial=[S], body=DOUBLE, since=14, expect=S)
case("Loop", M=np.int64(-1), v_initial=[S], body=DOUBLE, since=14, expect=S)
case("Loop", M=np.int64(3), cond=np.array(False), v_initial=[S], body=DOUBLE, since=14, expect=S)
case("Loop", cond=np.array(True), v_initial=[S], body=STOP, since=14, expect=8 * S)
case("Loop", v_initial=[S], body=STOP, since=14, expect=8 * S)
case("Loop", M=np.int64(2), v_initial=[S], body=STOP, since=14, expect=4 * S)
case("Loop", M=np.int64(3), v_initial=[S], body=COUNT, since=14, sizes_known=False, expect=(8 * S, np.arange(3)))
case("Loop", M=np.int64(0), v_initial=[S], body=COUNT, since=14, sizes_known=False, expect=(S, np.zeros(0, np.int64)))
case(
    "Loop", M=np.int64(0), v_initial=[S], since=14, sizes_known=False,
    body="b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] e) { d = Identity(c) t = Identity(s) e = Identity(s) }",
    expect=(S, np.zeros((0, 2), np.float32)),
)  # fmt: skip
case(
    "Loop", M=np.int64(2), v_initial=[S], since=14, sizes_known=False,
    body="b (int64[1] i, bool[1] c, float[2] s) => (bool[1] d, float[2] t, int64[1] n) { d = Identity(c) t = Identity(s) n = Shape(i) }",
    expect=(S, np.array([[1], [1]])),
)  # fmt: skip
case(
    "Loop", M=np.int64(3), v_initial=[S], since=14, sizes_known=False,
    body="b (int64 i, bool c, float[a] s) => (bool d, float[b] t) { d = Identity(c) t = Concat <axis = 0> (s, s) }",
    expect=np.tile(S, 8),
)  # fmt: skip
case(
    "Loop", M=np.int64(2), v_initial=[typed([], "seq(tensor(float))")], since=14,
    body="""b (int64 i, bool c, seq(float[n]) s) => (bool d, seq(float[n]) t) {
        d = Identity(c) x = Constant <value_floats = [1.0, 2.0]> () t = SequenceInsert(s, x)
    }""",
    expect=[np.array([1, 2], np.float32)] * 2,
)  # fmt: skip
refuse("Loop", M=np.int64(1), v_initial=[S, S], body=DOUBLE, since=14, outputs=2, match="inputs")
refuse(
    "Loop", M=np.int64(2), v_initial=[S], since=14, outputs=2, match="may not change between iterations",
    body="b (int64 i, bool c, float[a] s) => (bool d, float[b] t, float[a] e) { d = Identity(c) t = Concat <axis=0> (s, s) e = Neg(s) }",
)  # fmt: skip


def test_an_optional_loop_state_is_none_or_a_value():
    def body(i, cond, state):
        return [np.array(i < 2), np.float32(i) if state is None else state + 1]

    assert loop(body, [None], output_count=1, output_types=(None,)) == (2.0,)


# --- Scan -------------------------------------------------------------------------------------------------------------

SUM = "b (float[n] s, float[n] x) => (float[n] t, float[n] y) { t = Add(s, x) y = Identity(t) }"
ROWS, START = f32(3, 2), f32(2)


def running(start, rows):
    return np.cumsum(np.concatenate([start[None], rows]), axis=0)[1:]


case(
    "Scan",
    initial_state_and_scan_inputs=[START, ROWS],
    num_scan_inputs=1,
    body=SUM,
    since=9,
    expect=(START + ROWS.sum(axis=0), running(START, ROWS)),
)
case(
    "Scan", initial_state_and_scan_inputs=[START, ROWS], num_scan_inputs=1, body=SUM, scan_input_directions=[1], since=9,
    expect=(START + ROWS.sum(axis=0), running(START, ROWS[::-1])),
)  # fmt: skip
case(
    "Scan", initial_state_and_scan_inputs=[START, ROWS], num_scan_inputs=1, body=SUM, scan_output_directions=[1], since=9,
    expect=(START + ROWS.sum(axis=0), running(START, ROWS)[::-1]),
)  # fmt: skip
case(
    "Scan", initial_state_and_scan_inputs=[START, ROWS.T.copy()], num_scan_inputs=1, body=SUM, scan_input_axes=[-1], scan_output_axes=[1],
    since=11, expect=(START + ROWS.sum(axis=0), running(START, ROWS).T),
)  # fmt: skip
case(
    "Scan", initial_state_and_scan_inputs=[ROWS, ROWS], num_scan_inputs=2, since=9,
    body="b (float[n] x, float[n] y) => (float[n] z) { z = Mul(x, y) }", expect=ROWS * ROWS,
)  # fmt: skip
case(
    "Scan", initial_state_and_scan_inputs=[START, f32(0, 2)], num_scan_inputs=1, since=9,
    body="b (float[2] s, float[2] x) => (float[2] t, float[2] y) { t = Add(s, x) y = Identity(t) }",
    expect=(START, np.zeros((0, 2), np.float32)),
)  # fmt: skip
refuse(
    "Scan", initial_state_and_scan_inputs=[ROWS, f32(2, 2)], num_scan_inputs=2, since=9, match="length",
    body="b (float[n] x, float[n] y) => (float[n] z) { z = Mul(x, y) }",
)  # fmt: skip

BATCHES, STARTS = f32(2, 3, 2), f32(2, 2)

case(
    "Scan", initial_state_and_scan_inputs=[STARTS, BATCHES], num_scan_inputs=1, body=SUM, until=8,
    expect=(STARTS + BATCHES.sum(axis=1), np.stack([running(STARTS[b], BATCHES[b]) for b in range(2)])),
)  # fmt: skip
case(
    "Scan", sequence_lens=[1, 2], initial_state_and_scan_inputs=[STARTS, BATCHES], num_scan_inputs=1, body=SUM, directions=[1], until=8,
    expect=(
        np.stack([STARTS[0] + BATCHES[0, 0], STARTS[1] + BATCHES[1, :2].sum(axis=0)]),
        np.stack([
            np.concatenate([running(STARTS[0], BATCHES[0, :1]), np.zeros((2, 2), np.float32)]),
            np.concatenate([running(STARTS[1], BATCHES[1, 1::-1]), np.zeros((1, 2), np.float32)]),
        ]),
    ),
)  # fmt: skip
refuse(
    "Scan",
    sequence_lens=[1, 4],
    initial_state_and_scan_inputs=[STARTS, BATCHES],
    num_scan_inputs=1,
    body=SUM,
    until=8,
    outputs=2,
    match="sequence_lens",
)


# --- graphs around them -----------------------------------------------------------------------------------------------


def load(graph: str):
    return formats.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}'))


def run(graph: str, **feeds):
    return execute(plan_of(load(graph), [CPUExecutionProvider()]), {name: np.asarray(value) for name, value in feeds.items()})


NESTED = """g (int64 m, float[N] x, float[N] w, bool up) => (float[N] y) {
    y = Loop (m, "", x) <body = b (int64 i, bool c, float[N] s) => (bool d, float[N] t) {
        d = Identity(c)
        t = If (up) <
            then_branch = p () => (float[N] u) { u = Add(s, w) },
            else_branch = q () => (float[N] v) { v = Sub(s, w) }
        >
    }>
}"""


@pytest.mark.parametrize("up, expected", [(True, [7, 20]), (False, [-5, -16])])
def test_bodies_read_values_of_all_graphs_around_them(up, expected):
    x, w = np.array([1, 2], np.float32), np.array([2, 6], np.float32)
    np.testing.assert_array_equal(run(NESTED, m=3, x=x, w=w, up=up)[0], expected)


def types_of(graph: str) -> dict[str, str]:
    model = load(graph)
    ops.infer(model, evaluate)
    return {value.name: described(value.type) for value in model.graph.values()}


def test_a_size_that_a_loop_leaves_alone_stays_known():
    types = types_of("""g (int64 m, float[N] x) => (float[N] y, float[k, N] z) {
        y, z = Loop (m, "", x) <body = b (int64 i, bool c, float[p] s) => (bool d, float[q] t, float[r] e) {
            d = Identity(c) t = Neg(s) e = Identity(s)
        }>
    }""")
    assert types["y"] == "float[N]"
    assert types["z"].endswith(", N]")


def test_a_size_that_a_loop_changes_is_a_new_one():
    types = types_of("""g (int64 m, float[N, 3] x) => (y) {
        y = Loop (m, "", x) <body = b (int64 i, bool c, s) => (bool d, t) { d = Identity(c) t = Concat <axis = 0> (s, s) }>
    }""")
    assert types["y"].startswith("float[?")
    assert types["y"].endswith(", 3]")


def test_a_known_number_of_rounds_is_the_size_of_scan_outputs():
    types = types_of("""g (float[N] x) => (y, z) {
        m = Constant <value_int = 4> ()
        y, z = Loop (m, "", x) <body = b (int64 i, bool c, s) => (bool d, t, e) { d = Identity(c) t = Neg(s) e = Identity(s) }>
    }""")
    assert types["z"] == "float[4, N]"


def test_branches_of_different_shape_have_what_they_share():
    types = types_of("""g (bool c, float[N, 2] x) => (y) {
        y = If (c) <then_branch = p () => (u) { u = Neg(x) }, else_branch = q () => (v) { v = Concat <axis = 1> (x, x) }>
    }""")
    assert types["y"].startswith("float[N, ?")


def test_a_branch_that_never_runs_need_not_take_the_shapes():
    types = types_of("""g (float[2, 3] x) => (y) {
        c = Constant <value_int = 0> () t = Cast <to = 9> (c) axes = Constant <value_ints = [1]> ()
        y = If (t) <then_branch = p () => (u) { u = Squeeze(x, axes) }, else_branch = q () => (v) { v = Neg(x) }>
    }""")
    assert types["y"] == "float[2, 3]"


def test_branches_of_different_type_are_refused():
    with pytest.raises(Fail, match="type"):
        types_of("""g (bool c, float[N, 2] x) => (y) {
            y = If (c) <then_branch = p () => (u) { u = Neg(x) }, else_branch = q () => (v) { v = Shape(x) }>
        }""")
