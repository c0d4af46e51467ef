"""An axis that an operand does not have is refused: when the model is made if the rank is known then, else in the run."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import sardonyx
from sardonyx.errors import Fail, InvalidArgument, InvalidGraph, RuntimeException
from sardonyx.ops import load_families, schemas

CONTRIB = "com.microsoft"
RANK = 3
REFUSED = (Fail, InvalidGraph, InvalidArgument, RuntimeException)

SPECIAL = {
    "Compress": {"condition": np.ones(2, bool)},
    "CenterCropPad": {"shape": np.asarray([1])},
    "DequantizeLinear": {"x": np.zeros((2, 3, 4), np.uint8), "x_scale": np.ones(3, np.float32), "x_zero_point": None},
    "QuantizeLinear": {"y_scale": np.ones(3, np.float32), "y_zero_point": np.zeros(3, np.uint8)},
    "Gather": {"indices": np.asarray([0])},
    "GatherElements": {"indices": np.zeros((2, 3, 4), np.int64)},
    "ScatterElements": {"indices": np.zeros((2, 3, 4), np.int64)},
    "Scatter": {"indices": np.zeros((2, 3, 4), np.int64)},
    "LayerNormalization": {"Scale": np.ones(4, np.float32), "B": None},
    "RMSNormalization": {"scale": np.ones(4, np.float32)},
    "SimplifiedLayerNormalization": {"scale": np.ones(4, np.float32)},
    "OneHot": {"depth": np.asarray([5]), "values": np.asarray([0, 1], np.float32), "indices": np.zeros((2, 3, 4), np.int64)},
    "Pad": {"pads": np.asarray([1, 1]), "constant_value": None},
    "Resize": {"roi": None, "scales": np.asarray([2], np.float32), "sizes": None},
    "ReverseSequence": {"sequence_lens": np.asarray([1, 1, 1])},
    "Slice": {"starts": np.asarray([0]), "ends": np.asarray([1]), "steps": None},
    "TopK": {"K": np.asarray([1])},
    "GatherGrad": {"shape": np.asarray([2, 3, 4]), "indices": np.zeros(2, np.int64)},
    "GatherElementsGrad": {"shape": np.asarray([2, 3, 4]), "indices": np.zeros((2, 3, 4), np.int64)},
    "SliceGrad": {"shape": np.asarray([2, 3, 4]), "starts": np.asarray([0]), "ends": np.asarray([1]), "steps": None},
    "TensorScatter": {"write_indices": None},
    "DFT": {"dft_length": None},
    "Split": {"split": None},
    "SplitToSequence": {"split": None},
    "QLinearSoftmax": {
        "X_scale": np.float32(1),
        "x_zero_point": np.uint8(0),
        "y_scale": np.float32(1),
        "y_zero_point": np.uint8(0),
        "X": np.zeros((2, 3, 4), np.uint8),
    },
    "QLinearReduceMean": {
        "data_scale": np.float32(1),
        "data_zero_point": np.uint8(0),
        "reduced_scale": np.float32(1),
        "reduced_zero_point": np.uint8(0),
        "data": np.zeros((2, 3, 4), np.uint8),
    },
}
"""Operands that must be of their own; others are float32 of three axes, or absent for None."""
ATTRIBUTES = {
    "Slice": {"starts": [0], "ends": [1]},
    "TopK": {"k": 1},
    "Split": {"split": [1, 1]},
    "QLinearSoftmax": {"opset": 13},
    "QLinearReduceMean": {"keepdims": 1},
}
"""Attributes that some version asks for."""
LEFT_OUT = {
    ("", "Scan"): "a body of its own: `tests/ops/test_control.py`",
    ("", "ConcatFromSequence"): "a sequence: `tests/ops/test_sequence.py`",
    (CONTRIB, "GatherBlockQuantized"): "packed weights: `tests/ops/contrib/test_dequantize.py`",
    (CONTRIB, "QLinearConcat"): "triples of inputs: `tests/ops/contrib/test_qlinear.py`",
    (CONTRIB, "FusedMatMulActivation"): "activation_axis belongs to an activation that it cannot have",
    ("", "Tile"): "axis of version 1 is an input of the run's data",
}


OF_KNOWN_RANK = ("LayerNormalizationGrad", "InvertibleLayerNormalizationGrad", "SimplifiedLayerNormalizationGrad")
"""Ops of training graphs whose bodies are written for operands of known rank: others are refused for that."""

load_families()  # contributed ops are known when their modules are


def is_axis(name: str) -> bool:
    return name in ("axis", "axes") or (name.endswith(("_axis", "_axes")) and name not in ("new_axis", "noop_with_empty_axes"))


def versions():
    """Each version of each op that names axes, with the names of what does."""
    for domain in ("", CONTRIB):
        for op in schemas.operators(domain):
            if (domain, op) in LEFT_OUT:
                continue
            for since, signature in schemas.versions(domain, op).items():
                names = [name for name in (*signature.attributes, *(one.name for one in signature.inputs)) if is_axis(name)]
                yield from ((domain, op, since, name) for name in names)


def taken(array: np.ndarray, types) -> np.ndarray:
    """An array in its own type if an operand takes that, else in the first one that it does."""
    own = str(array.dtype)
    for dtype in (own, "float32", "int64", "int32", "uint8", "bool"):
        if f"tensor({dtype.replace('float32', 'float')})" in types:
            return array.astype(dtype)
    raise AssertionError(f"{own} is none of {sorted(types)}")


def model(domain: str, op: str, version: int, name: str, axis: int, is_declared: bool):
    """A node whose axis is given, and what it is fed with."""
    signature = schemas.versions(domain, op)[version]
    special = {signature.inputs[1].name: np.ones(3, np.float32)} if "broadcast" in signature.attributes else SPECIAL.get(op, {})
    inputs, constants, feeds = [], [], {}
    attributes = {
        key: value for key, value in {"broadcast": 1, **ATTRIBUTES.get(op, {})}.items() if key in signature.attributes
    }
    for parameter in signature.inputs:
        array = special.get(parameter.name, np.ones((2, 3, 4), np.float32))
        if parameter.name == name:
            array = np.asarray(axis if name == "axis" else [axis])
        elif parameter.optional and parameter.name not in special:
            array = None
        if array is None:
            inputs.append("")
            continue
        array = taken(np.asarray(array), parameter.types)
        inputs.append(parameter.name)
        if array.shape != (2, 3, 4):
            constants.append(
                helper.make_tensor(
                    parameter.name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.tobytes(), raw=True
                )
            )
        else:
            feeds[parameter.name] = array
    if name in signature.attributes:
        attributes[name] = axis if name.endswith("axis") else [axis]
    while inputs and not inputs[-1]:
        inputs.pop()
    outputs = [f"output{number}" for number in range(max(1, signature.min_outputs))]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, outputs, "the node", domain=domain, **attributes)],
        "g",
        [
            helper.make_tensor_value_info(
                key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape if is_declared else None
            )
            for key, array in feeds.items()
        ],
        [helper.make_empty_tensor_value_info(one) for one in outputs],
        constants,
    )
    imports = [helper.make_opsetid(domain, version)] + ([helper.make_opsetid("", 21)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString(), feeds


@pytest.mark.parametrize("axis", [RANK + 4, -RANK - 5])
@pytest.mark.parametrize(("domain", "op", "version", "name"), list(versions()))
def test_an_axis_out_of_range_is_refused_when_the_model_is_made(domain, op, version, name, axis):
    source, _ = model(domain, op, version, name, axis, is_declared=True)
    with pytest.raises(REFUSED, match=r"the node.*(axis|axes|perm)"):
        sardonyx.InferenceSession(source)


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("axis", [RANK + 4, -RANK - 5])
@pytest.mark.parametrize(("domain", "op", "version", "name"), [row for row in versions() if row[1] not in OF_KNOWN_RANK])
def test_an_axis_out_of_range_is_refused_in_the_run_if_the_rank_is_open(domain, op, version, name, axis, native):
    source, feeds = model(domain, op, version, name, axis, is_declared=False)
    with pytest.raises(REFUSED, match=r"the node.*(axis|axes)"):
        sardonyx.InferenceSession(source, providers=[("CPUExecutionProvider", {"native": native})]).run(None, feeds)
