"""Operands of other shapes than an op takes are refused by every provider, in the run if the model leaves sizes open."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.errors import Fail, InvalidArgument

REFUSED = (Fail, InvalidArgument)
NATIVE = ("0", "1")


def recurrent(gates: int, layout: int = 0) -> dict[str, tuple[int, ...]]:
    """Shapes of a layer with 3 inputs and 4 units on 5 steps of 2 rows."""
    state = (2, 1, 4) if layout else (1, 2, 4)
    shapes = {"X": (2, 5, 3) if layout else (5, 2, 3), "W": (1, gates * 4, 3), "R": (1, gates * 4, 4), "B": (1, 2 * gates * 4)}
    shapes |= {"sequence_lens": (2,), "initial_h": state}
    return shapes | {"initial_c": state, "P": (1, 12)} if gates == 4 else shapes


CHANNELS = {"X": (2, 3, 4), "scale": (3,), "B": (3,)}
STATISTICS = CHANNELS | {"input_mean": (3,), "input_var": (3,)}
OPS = {
    "LSTM": (recurrent(4), {"hidden_size": 4}),
    "GRU": (recurrent(3), {"hidden_size": 4}),
    "RNN": (recurrent(1), {"hidden_size": 4}),
    "LSTM of rows first": (recurrent(4, layout=1), {"hidden_size": 4, "layout": 1}),
    "BatchNormalization": (STATISTICS, {}),
    "InstanceNormalization": (CHANNELS, {}),
    "GroupNormalization": (CHANNELS, {"num_groups": 3}),
    "LayerNormalization": ({"X": (2, 3, 4), "Scale": (4,), "B": (4,)}, {}),
    "RMSNormalization": ({"X": (2, 3, 4), "scale": (4,)}, {}),
    "Clip": ({"input": (2, 3), "min": (), "max": ()}, {}),
    "Range": ({"start": (), "limit": (), "delta": ()}, {}),
    "CumSum": ({"x": (2, 3), "axis": ()}, {}),
    "Trilu": ({"input": (2, 3), "k": ()}, {}),
    "DFT": ({"input": (1, 4, 1), "dft_length": (), "axis": ()}, {}),
}
INTEGERS = {"sequence_lens": TensorProto.INT32} | dict.fromkeys(("axis", "k", "dft_length"), TensorProto.INT64)
"""Operands that are no floats."""


def wrong_shapes(op: str):
    """Each operand but the first with one of its sizes doubled, and with an axis more."""
    shapes, _ = OPS[op]
    for name, shape in list(shapes.items())[1:]:
        yield from ((name, (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])) for axis in range(len(shape)))
        yield name, (2, *shape)


def model(op: str, shapes, is_open: bool) -> bytes:
    inputs = [
        helper.make_tensor_value_info(
            name,
            INTEGERS.get(name, TensorProto.FLOAT),
            [f"{name} {axis}" for axis in range(len(shape))] if is_open else shape,
        )
        for name, shape in shapes.items()
    ]
    node = helper.make_node(op.split()[0], list(shapes), ["Y"], "the node", **OPS[op][1])
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("Y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10).SerializeToString()


def feeds(shapes) -> dict[str, np.ndarray]:
    types = {name: helper.tensor_dtype_to_np_dtype(INTEGERS.get(name, TensorProto.FLOAT)) for name in shapes}
    return {name: np.ones(shape, types[name]) for name, shape in shapes.items()}


def run(source: bytes, native: str, values):
    return sardonyx.InferenceSession(source, providers=[("CPUExecutionProvider", {"native": native})]).run(None, values)


@pytest.mark.parametrize("op", OPS)
def test_operands_of_the_right_shapes_are_taken(op):
    shapes, _ = OPS[op]
    for is_open in (False, True):
        results = [run(model(op, shapes, is_open), native, feeds(shapes)) for native in NATIVE]
        np.testing.assert_allclose(*(result[0] for result in results), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op", "name", "shape"), [(op, *wrong) for op in OPS for wrong in wrong_shapes(op)])
def test_operands_of_other_shapes_are_refused_when_the_model_is_made(op, name, shape):
    with pytest.raises(REFUSED, match=f"the node.*{name}"):
        sardonyx.InferenceSession(model(op, OPS[op][0] | {name: shape}, is_open=False))


@pytest.mark.parametrize("native", NATIVE)
@pytest.mark.parametrize(("op", "name", "shape"), [(op, *wrong) for op in OPS for wrong in wrong_shapes(op)])
def test_operands_of_other_shapes_are_refused_in_the_run(op, name, shape, native):
    shapes = OPS[op][0] | {name: shape}
    with pytest.raises(REFUSED, match="the node"):
        run(model(op, shapes, is_open=True), native, feeds(shapes))


@pytest.mark.parametrize("native", NATIVE)
@pytest.mark.parametrize(("X", "slope"), [((), ()), ((), (1,)), ((), (3,)), ((3,), (1, 1)), ((1,), (3,)), ((2, 1), (2, 3))])
def test_prelu_has_the_shape_that_both_operands_broadcast_to(X, slope, native):
    values = {
        "X": np.full(X, -2, np.float32),
        "slope": np.arange(1, 1 + np.prod(slope, dtype=int), dtype=np.float32).reshape(slope),
    }
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in values.items()]
    nodes = [helper.make_node("PRelu", ["X", "slope"], ["Y"]), helper.make_node("Neg", ["Y"], ["Z"])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info(name) for name in "YZ"])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8).SerializeToString()
    Y, Z = run(source, native, values)
    np.testing.assert_array_equal(Y, -2 * values["slope"] + np.zeros(X, np.float32), strict=True)
    np.testing.assert_array_equal(Z, -Y, strict=True)
