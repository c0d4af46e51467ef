"""LSTM, GRU and RNN in generated code agree with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sardonyx.errors import Fail, InvalidArgument
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
TYPES = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16, np.float64: TensorProto.DOUBLE}


def numbers(*shape: int, seed: int = 0, scale: float = 1.0, dtype: Any = np.float32) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def layer(
    op: str,
    steps: int,
    batch: int,
    size: int,
    hidden: int,
    *,
    lengths: list[int] | None = None,
    initial: tuple[bool, bool] = (True, True),
    bias: bool = True,
    peepholes: bool = False,
    outputs: tuple[bool, ...] = (True, True, True),
    dtype: Any = np.float32,
    fixed: bool = False,
    constant: bool = True,
    **attributes: Any,
) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """A model of one layer with random weights, and inputs for it. Steps and batch are symbolic unless `fixed`."""
    gates, directions = GATES[op], 2 if attributes.get("direction") == "bidirectional" else 1
    layout = attributes.get("layout", 0)
    scale = 1 / np.sqrt(hidden)
    weights = {
        "W": numbers(directions, gates * hidden, size, seed=1, scale=scale, dtype=dtype),
        "R": numbers(directions, gates * hidden, hidden, seed=2, scale=scale, dtype=dtype),
    }
    if bias:
        weights["B"] = numbers(directions, 2 * gates * hidden, seed=3, dtype=dtype)
    if peepholes:
        weights["P"] = numbers(directions, 3 * hidden, seed=4, dtype=dtype)
    feeds = {"X": numbers(*((batch, steps) if layout else (steps, batch)), size, seed=5, dtype=dtype)}
    if lengths is not None:
        feeds["sequence_lens"] = np.array(lengths, np.int32)
    for name, wanted in zip(("initial_h", "initial_c"), initial if op == "LSTM" else initial[:1]):
        if wanted:
            feeds[name] = numbers(*((batch, directions) if layout else (directions, batch)), hidden, seed=6, dtype=dtype)
    if not constant:
        feeds |= weights
        weights = {}
    order = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    names = [name if name in feeds or name in weights else "" for name in order]
    while not names[-1]:
        names.pop()
    wanted = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    made = [name if keep else "" for name, keep in zip(wanted, outputs)]
    node = helper.make_node(op, names, made, hidden_size=hidden, **attributes)
    symbols = {"X": ("b", "s") if layout else ("s", "b"), "sequence_lens": ("b",)}

    def shape(name: str) -> list[Any]:
        given = list(feeds[name].shape)
        if fixed or name not in ("X", "sequence_lens", "initial_h", "initial_c"):
            return given
        axes = symbols.get(name, ("b", directions) if layout else (directions, "b"))
        return [*axes, *given[len(axes) :]]

    graph = helper.make_graph(
        [node],
        "layer",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(feeds[name].dtype), shape(name))
            for name in feeds
        ],
        [helper.make_tensor_value_info(name, TYPES[dtype], None) for name in made if name],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), feeds


BOUNDED = ["Sigmoid", "Tanh", "tanh", "ScaledTanh", "HardSigmoid", "Softsign"]
UNBOUNDED = ["Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "Elu", "Softplus"]
"""Through many steps these may grow without end, and every rounding with them."""


@pytest.mark.parametrize("op", ["LSTM", "RNN"])
def test_a_slope_of_minus_zero_is_not_that_of_zero(op: str) -> None:
    """One after the other, as kernels are remembered. A negative number times 0 is -0, and one divided by that shows it."""
    signs = []
    for slope in (0.0, -0.0):
        count = ACTIVATIONS[op]
        given = {"activations": ["LeakyRelu"] * count, "activation_alpha": [slope] * count}
        model, feeds = layer(op, 2, 2, 3, 5, outputs=(True, False, False), **given)
        model.graph.node.append(helper.make_node("Reciprocal", ["Y"], ["inverse"]))
        model.graph.output[0].name = "inverse"
        assert_agrees(model, feeds)
        signs.append(np.sign(execute(native_plan(model), feeds)[0]))
    assert (signs[0] != signs[1]).any()


@st.composite
def layers(draw: st.DrawFn) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    op = draw(st.sampled_from(list(GATES)))
    steps, batch = draw(st.sampled_from([0, 1, 2, 7, 17])), draw(st.sampled_from([0, 1, 1, 1, 2, 3, 9]))
    size, hidden = draw(st.sampled_from([1, 3, 16, 20])), draw(st.sampled_from([1, 5, 16, 33]))
    options: dict[str, Any] = {"direction": draw(st.sampled_from(["forward", "reverse", "bidirectional"]))}
    options["layout"] = draw(st.integers(0, 1))
    options["fixed"] = draw(st.booleans())
    options["bias"] = draw(st.booleans())
    options["initial"] = draw(st.tuples(st.booleans(), st.booleans()))
    options["outputs"] = draw(
        st.sampled_from([(True, True, True), (True, False, False), (False, True, True), (True, False, True)])
    )
    if op != "LSTM" and not any(options["outputs"][:2]):
        options["outputs"] = (True, True, True)
    if draw(st.booleans()):
        options["lengths"] = draw(st.lists(st.integers(0, steps), min_size=batch, max_size=batch))
    if draw(st.booleans()):
        count = ACTIVATIONS[op] * (2 if options["direction"] == "bidirectional" else 1)
        known = BOUNDED if steps > 2 else BOUNDED + UNBOUNDED
        options["activations"] = draw(st.lists(st.sampled_from(known), min_size=count, max_size=count))
        options["activation_alpha"] = draw(st.lists(st.sampled_from([0.25, 0.5, 0.75]), min_size=1, max_size=count))
        options["activation_beta"] = draw(st.lists(st.sampled_from([0.25, 0.5]), min_size=1, max_size=count))
    if draw(st.booleans()):
        options["clip"] = draw(st.sampled_from([0.5, 2.0]))
    if op == "LSTM":
        options["peepholes"], options["input_forget"] = draw(st.booleans()), int(draw(st.booleans()))
    if op == "GRU":
        options["linear_before_reset"] = int(draw(st.booleans()))
    return op, (steps, batch, size, hidden), options


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(layers())
@example(("LSTM", (9, 1, 3, 5), {"lengths": [6], "direction": "bidirectional"}))
@example(("GRU", (17, 1, 20, 33), {"direction": "reverse", "linear_before_reset": 0}))
@example(("LSTM", (3, 2, 1, 1), {"lengths": [0, 3], "direction": "bidirectional"}))
def test_any_layer_agrees(case: tuple[str, tuple[int, ...], dict[str, Any]]) -> None:
    op, sizes, options = case
    assert_agrees(*layer(op, *sizes, **options), tolerance=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("op", GATES)
def test_other_types_agree(op: str, dtype: Any) -> None:
    model, feeds = layer(op, 5, 1, 7, 19, dtype=dtype, direction="bidirectional")
    assert_agrees(model, feeds, tolerance=2e-3 if dtype == np.float16 else 1e-12)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("op, hidden, linear", [("LSTM", 128, None), ("GRU", 150, 0), ("GRU", 150, 1)])
def test_threads_that_share_each_step_agree(op: str, hidden: int, linear: int | None, batch: int) -> None:
    options = {} if linear is None else {"linear_before_reset": linear}
    model, feeds = layer(op, 40, batch, 24, hidden, lengths=[40, 0, 13][:batch], **options)
    assert_agrees(model, [feeds] * 5, tolerance=1e-5)


def test_one_program_serves_all_sizes() -> None:
    model, feeds = layer("LSTM", 6, 1, 8, 20, direction="bidirectional")
    more = [
        layer("LSTM", steps, batch, 8, 20, direction="bidirectional")[1]
        for steps, batch in ((0, 1), (1, 2), (23, 1), (5, 17), (4, 0))
    ]
    assert_agrees(model, [feeds, *more], tolerance=1e-5)


def test_only_the_way_that_is_taken_counts_as_work() -> None:
    """Sizes choose among the ways through a recurrence."""
    model, feeds = layer("GRU", 10, 1, 8, 32)
    (program,) = programs(native_plan(model))
    _, times = program.run_timed(list(feeds.values()))
    ways = [one.flops for one in times if one.kernel == "recurrence"]
    assert sum(map(bool, ways)) == 1  # smaller CPUs have one way alone


def test_nan_and_infinities_spread_as_in_numpy() -> None:
    for batch in (1, 2):
        model, feeds = layer("LSTM", 6, batch, 5, 18)
        feeds["X"][3, 0, 2] = np.nan
        other = feeds | {"X": np.where(np.isnan(feeds["X"]), np.float32(np.inf), feeds["X"])}
        assert_agrees(model, [feeds, other], tolerance=1e-5)


def test_a_transposed_input_is_read_in_place() -> None:
    text = """g (float[b,s,6] x, float[1,b,20] h) => (float[s,1,b,20] Y)
    <float[1,60,6] W = {WEIGHTS_W}, float[1,60,20] R = {WEIGHTS_R}> {
        X = Transpose<perm=[1,0,2]>(x)
        Y = GRU<hidden_size=20>(X, W, R, , , h)
    }"""
    for name, count in (("WEIGHTS_W", 360), ("WEIGHTS_R", 1200)):
        text = text.replace(name, ",".join(f"{value:.4f}" for value in numbers(count, seed=count, scale=0.2)))
    for batch in (1, 4):
        feeds = {"x": numbers(batch, 9, 6), "h": numbers(1, batch, 20, seed=8)}
        assert_agrees(text, feeds, tolerance=1e-5)


@pytest.mark.parametrize("lengths", [[3, 8], [-1, 4], [2]])
def test_wrong_lengths_are_an_error(lengths: list[int]) -> None:
    model, feeds = layer("RNN", 7, 2, 3, 4, lengths=[7, 7])
    with pytest.raises(InvalidArgument, match="sequence_lens"):
        execute(native_plan(model), feeds | {"sequence_lens": np.array(lengths, np.int32)})


def test_an_initial_state_of_another_batch_is_refused() -> None:
    model, feeds = layer("GRU", 3, 2, 3, 4)
    with pytest.raises(Fail, match=r"Input initial_h must have shape \{1,2,4\}. Actual:\{1,5,4\}"):
        execute(native_plan(model), feeds | {"initial_h": numbers(1, 5, 4)})


def test_an_initial_state_of_unknown_batch_is_checked_by_the_run() -> None:
    model, feeds = layer("GRU", 3, 2, 3, 40)
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "other"
    assert_agrees(model, feeds, tolerance=1e-5)
    with pytest.raises(Fail, match="Input initial_h must have shape"):
        execute(native_plan(model), feeds | {"initial_h": numbers(1, 1, 40)})


@pytest.mark.parametrize("options", [{"activations": ["Swish"]}, {"activations": ["Tanh"], "direction": "bidirectional"}])
def test_what_is_not_known_is_left_to_numpy(options: dict[str, Any]) -> None:
    model, _ = layer("RNN", 3, 2, 3, 4, **options)
    assert not programs(native_plan(model))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("op, hidden", [("LSTM", 16), ("LSTM", 128), ("GRU", 16), ("GRU", 160), ("RNN", 16), ("RNN", 256)])
def test_a_run_can_be_stopped_between_two_steps_of_a_sequence(op: str, hidden: int, batch: int) -> None:
    """The word that stops the run is an element of Y: the layer itself sets it, at a step that is known."""
    steps, last = 40, 11
    model, feeds = layer(op, steps, batch, 8, hidden, outputs=(True, False, False))
    (program,) = programs(native_plan(model, threads=2))
    (whole,) = program(list(feeds.values()))
    Y = np.zeros((steps, 1, batch, hidden), np.float32)
    program(list(feeds.values()), stop=Y[last].ctypes.data, destinations=[Y])
    np.testing.assert_array_equal(Y[: last + 1], whole[: last + 1])
    assert not Y[last + 1 :].any() and whole[last + 1 :].any()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_weights_that_are_computed(op: str, direction: str, dtype: Any) -> None:
    for bias in (True, False):
        assert_agrees(*layer(op, 5, 3, 7, 11, constant=False, bias=bias, direction=direction, dtype=dtype))


def test_computed_weights_beside_the_gates() -> None:
    assert_agrees(*layer("LSTM", 4, 2, 5, 9, constant=False, peepholes=True))
    for bias in (True, False):
        assert_agrees(*layer("GRU", 4, 2, 5, 9, constant=False, bias=bias, linear_before_reset=1))


def test_a_state_tells_the_batch_that_the_input_leaves_open() -> None:
    text = """g (float[1,N,3] x, float[1,1,2] h) => (float[2] y) {
        W = ConstantOfShape<value = float[1] {0.5}>(w) R = ConstantOfShape<value = float[1] {-0.25}>(r)
        a, b = GRU<hidden_size=2>(x, W, R, , , h)
        y = Squeeze(a) }""".replace(") {", ") <int64[3] w = {1,6,3}, int64[3] r = {1,6,2}> {", 1)
    given = {"x": numbers(1, 1, 3), "h": numbers(1, 1, 2, seed=3)}
    assert_agrees(text, given)
    with pytest.raises((Fail, InvalidArgument), match="initial_h"):
        execute(native_plan(text), {**given, "x": numbers(1, 2, 3)})
