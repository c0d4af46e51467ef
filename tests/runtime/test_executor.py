"""Running plans: intermediate values, releases, subgraphs, errors that name the place, termination."""

from __future__ import annotations

import threading

import numpy as np
import onnx.parser
import pytest

from sardonyx import formats, ops
from sardonyx.errors import Fail
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import ABSENT, make_plan


def planned(text: str):
    model = formats.load(onnx.parser.parse_model(text))
    ops.infer(model, evaluate)
    return make_plan(model.graph, [CPUExecutionProvider()])


CHAIN = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[N] x) => (float[N] y) { a = Neg(x) b = Exp(a) c = Abs(x) y = Add(b, c) }
"""

NESTED = """
    <ir_version: 10, opset_import: ["" : 21]>
    outer (bool first, bool second, float[2] x) => (float[2] y) {
        a = Neg(x)
        y = If(first) <
            then_branch = t () => (float[2] p) {
                p = If(second) <
                    then_branch = tt () => (float[2] pp) { pp = Add(a, x) },
                    else_branch = te () => (float[2] pq) { pq = Mul(a, x) }
                >
            },
            else_branch = e () => (float[2] q) { q = Identity(a) }
        >
    }
"""


def test_any_value_can_be_fetched_and_unneeded_steps_are_left_out():
    plan = planned(CHAIN)
    x = np.array([1.0, 2.0], np.float32)
    b, x_again = execute(plan, {"x": x}, ["b", "x"])
    np.testing.assert_allclose(b, np.exp(-x), rtol=1e-6)
    assert x_again is x
    assert [step.node.op_type for step in plan.fetching(["b"]).steps] == ["Neg", "Exp"]


def test_a_slot_is_released_after_its_last_use_and_outputs_are_kept():
    plan = planned(CHAIN)
    released = [slot for step in plan.steps for slot in step.released]
    assert len(released) == len(set(released))
    assert set(released) == {plan.slots[name] for name in ("x", "a", "b", "c")}
    assert not set(released) & set(plan.outputs)
    assert ABSENT not in released


def test_bodies_read_values_of_all_graphs_around_them():
    plan = planned(NESTED)
    x = np.array([2.0, 3.0], np.float32)
    run = lambda first, second: execute(plan, {"first": np.array(first), "second": np.array(second), "x": x})[0]  # noqa: E731
    np.testing.assert_array_equal(run(True, True), [0, 0])
    np.testing.assert_array_equal(run(True, False), [-4, -9])
    np.testing.assert_array_equal(run(False, True), [-2, -3])


def test_an_error_names_node_operands_and_place():
    plan = planned("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (bool c, float[N] x, int64[M] shape) => (float[K] y) {
            y = If(c) <
                then_branch = t () => (float[K] p) { [broken] p = Reshape(x, shape) },
                else_branch = e () => (float[K] q) { q = Identity(x) }
            >
        }
    """)
    with pytest.raises(Fail) as caught:
        execute(plan, {"c": np.array(True), "x": np.zeros(4, np.float32), "shape": np.array([3])})
    text = str(caught.value)
    assert "Non-zero status code returned while running Reshape node. Name:'broken'" in text
    assert "x: float32[4], shape: int64[1]" in text
    assert "graph 'g': If 'y' > Reshape 'broken'" in text


def test_a_run_can_be_stopped():
    plan = planned(CHAIN)
    with pytest.raises(Fail, match="Exiting due to terminate flag being set to true"):
        execute(plan, {"x": np.zeros(2, np.float32)}, terminated=lambda: True)


def test_many_threads_share_one_plan():
    plan = planned(NESTED)
    wrong = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(2).astype(np.float32)
        for _ in range(50):
            (y,) = execute(plan, {"first": np.array(True), "second": np.array(seed % 2 == 0), "x": x})
            if not np.array_equal(y, -x + x if seed % 2 == 0 else -x * x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
