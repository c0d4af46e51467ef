"""Gradients through If, Loop and Scan against central differences in float64, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from sardonyx.errors import Fail
from sardonyx.training import artifacts
from sardonyx.training.api import CheckpointState, Module
from tests.training.numeric import check, planned

RNG = np.random.default_rng(3)
DRAWN = {"a": RNG.uniform(0.5, 1.5, (2, 3)), "b": RNG.uniform(0.5, 1.5, (3,)), "c": RNG.uniform(0.5, 1.5, (4, 2, 3))}

BRANCHES = """
    y = If(k) <
        then_branch = then () => (double[2, 3] t) { u = Mul(a, b) t = Sin(u) },
        else_branch = other () => (double[2, 3] e) { v = Mul(a, a) e = Exp(v) }>
"""
ONE_BRANCH_PASSES_ON = """
    y, z = If(k) <
        then_branch = then () => (double[2, 3] t, double[2, 3] w) { t = Identity(a) w = Identity(a) },
        else_branch = other () => (double[2, 3] e, double[2, 3] f) { e = Exp(a) f = Mul(e, e) }>
"""
POWERS = """
    s, p = Loop(n, k, a) <
        body = round (int64 i, bool go, double[2, 3] x) => (bool on, double[2, 3] z, double[2, 3] q)
        { on = Identity(go) d = Cast<to = 11>(i) q = Sin(x) w = Mul(q, b) z = Add(w, d) }>
    m = ReduceSum<keepdims = 0>(p, zero) y = Mul(s, m)
"""
STOPPED = """
    y = Loop(n, k, a) <
        body = round (int64 i, bool go, double[2, 3] x) => (bool on, double[2, 3] z)
        { z = Mul(x, b) big = ReduceMax<keepdims = 0>(z) on = Less(big, limit) }>
"""
TWO_STATES = """
    s, t = Loop(n, , a, b) <
        body = round (int64 i, bool go, double[2, 3] x, double[3] w) => (bool on, double[2, 3] z, double[3] v)
        { on = Identity(go) z = Mul(x, w) v = ReduceMean<keepdims = 0>(z, zero) }>
    y = Add(s, t)
"""
SCANNED = """
    s, p = Scan(a, c) <num_scan_inputs = 1, {form},
        body = round (double[2, 3] x, double[2, 3] e) => (double[2, 3] z, double[2, 3] o)
        {{ u = Mul(x, e) z = Tanh(u) v = Add(z, b) o = Mul(v, e) }}>
    m = ReduceSum<keepdims = 0>(p, {axis}) y = Mul(s, m)
"""
NESTED = """
    y = Loop(n, k, a) <
        body = round (int64 i, bool go, double[2, 3] x) => (bool on, double[2, 3] z) {
            on = Identity(go) odd = Cast<to = 9>(i)
            z = If(odd) <then_branch = then () => (double[2, 3] t) { t = Mul(x, b) },
                         else_branch = other () => (double[2, 3] e) { e = Sin(x) }>
        }>
"""


@pytest.mark.parametrize("truth", [0, 1])
def test_only_the_branch_that_is_taken_has_gradients(truth: int) -> None:
    check(BRANCHES, {"a": DRAWN["a"], "b": DRAWN["b"]}, f"bool k = {{{truth}}}")
    check(ONE_BRANCH_PASSES_ON, {"a": DRAWN["a"]}, f"bool k = {{{truth}}}")


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_states_and_results_of_rounds(rounds: int) -> None:
    arrays = {"a": DRAWN["a"], "b": DRAWN["b"]}
    constants = f"int64 n = {{{rounds}}}, bool k = {{1}}, int64[1] zero = {{0}}"
    check(POWERS, arrays, constants)
    check(TWO_STATES, arrays, constants)
    check(NESTED, arrays, constants)


def test_rounds_that_end_early() -> None:
    check(STOPPED, {"a": DRAWN["a"], "b": DRAWN["b"] + 1}, "int64 n = {50}, bool k = {1}, double limit = {20.0}")


FORMS = [
    ("scan_input_directions = [0]", "zero"),
    ("scan_input_directions = [1], scan_output_directions = [1]", "zero"),
    ("scan_input_directions = [1], scan_output_axes = [1]", "one"),
]


@pytest.mark.parametrize(("form", "axis"), FORMS)
def test_slices_of_both_directions(form: str, axis: str) -> None:
    check(SCANNED.format(form=form, axis=axis), DRAWN, "int64[1] zero = {0}, int64[1] one = {1}")


def test_slices_along_another_axis() -> None:
    arrays = {**DRAWN, "c": np.moveaxis(DRAWN["c"], 0, 2).copy()}
    check(SCANNED.format(form="scan_input_axes = [2]", axis="zero"), arrays, "int64[1] zero = {0}")


GROWING = """
    s = Loop(n, k, a) <
        body = round (int64 i, bool go, double[r, 3] x) => (bool on, double[q, 3] z) { on = Identity(go) z = Concat<axis = 0>(x, x) }>
    y = ReduceSum<keepdims = 0>(s)
"""
RANDOM = """
    y = If(k) <then_branch = then () => (double[2, 3] t) { r = RandomNormalLike(a) t = Mul(r, a) },
               else_branch = other () => (double[2, 3] e) { e = Exp(a) }>
"""
LISTED = "s = SequenceConstruct(a, a) y = SequenceAt(s, zero)"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (GROWING, r"Loop '.*': there is no gradient for the state 'x', whose type or sizes may change from round to round"),
        (RANDOM, r"If '.*': RandomNormalLike '.*' inside it draws random numbers, and gradients compute it again"),
        (LISTED, r"SequenceAt 'y': there is no gradient for SequenceAt, through which the result depends on 's'"),
    ],
)
def test_what_has_no_gradient_is_refused(body: str, message: str) -> None:
    constants = "bool k = {1}, int64 n = {2}, int64 zero = {0}"
    gradient = 'd = ai.onnx.preview.training.Gradient<xs = ["a"], y = "y">(a)'
    with pytest.raises(Fail, match=message):
        planned(f"{body} {gradient}", "double[2, 3] a", "double[2, 3] d", constants)


RECURRENT = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[T, 2] x) => (float loss)
    <float[2, 3] W = {0.1, -0.2, 0.3, 0.4, 0.5, -0.6},
     float[3, 3] R = {0.2, 0.1, 0.0, -0.3, 0.4, 0.1, 0.5, 0.0, 0.2}> {
        start = Constant<value = float[1, 3] {0.0, 0.0, 0.0}>()
        one = Constant<value_ints = [1]>()
        rows = Unsqueeze(x, one)
        final, all = Scan(start, rows) <num_scan_inputs = 1,
            body = step (float[1, 3] h, float[1, 2] e) => (float[1, 3] next, float[1, 3] out)
            { w = MatMul(e, W) r = MatMul(h, R) s = Add(w, r) next = Tanh(s) out = Mul(next, next) }>
        loss = ReduceMean<keepdims = 0>(all)
    }
"""


def test_a_model_with_rounds_is_trained_from_files(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(RECURRENT)
    artifacts.generate_artifacts(model, ["W", "R"], artifact_directory=tmp_path, optimizer=artifacts.OptimType.SGD)
    onnx.checker.check_model(onnx.load(tmp_path / "eval_model.onnx"))
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    module = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    for length in (1, 5):
        x = RNG.normal(size=(length, 2)).astype(np.float32)
        parameters = {name: parameter.data.astype(np.float64) for name, parameter in state.parameters}
        module.lazy_reset_grad()
        np.testing.assert_allclose(module(x), _recurrent_loss(x, **parameters), rtol=1e-5)
        for name, parameter in state.parameters:
            np.testing.assert_allclose(parameter.grad, _differences(x, parameters, name), rtol=1e-3, atol=1e-6)


def _recurrent_loss(x: np.ndarray, W: np.ndarray, R: np.ndarray) -> float:
    h, rows = np.zeros((1, 3)), []
    for row in x:
        h = np.tanh(row[None] @ W + h @ R)
        rows.append(h * h)
    return float(np.mean(rows))


def _differences(x: np.ndarray, parameters: dict[str, np.ndarray], name: str) -> np.ndarray:
    gradient = np.zeros_like(parameters[name])
    for place in np.ndindex(*gradient.shape):
        sides = []
        for sign in (1, -1):
            moved = parameters[name].copy()
            moved[place] += sign * 1e-5
            sides.append(_recurrent_loss(x, **{**parameters, name: moved}))
        gradient[place] = (sides[0] - sides[1]) / 2e-5
    return gradient
