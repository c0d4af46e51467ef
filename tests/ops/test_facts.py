"""What entries say about their ops is true of the results that the onnx package has for them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx import formats
from sardonyx.ir import Model, Node, dim
from sardonyx.ir.text import parse_model
from sardonyx.ops.facts import NO_FACTS, Facts, Operands
from sardonyx.ops.inference import infer
from sardonyx.ops.table import facts_of, inferences
from tests.conformance import suite
from tests.tolerance import assert_close

Arrays = Sequence[Any]


@functools.cache
def applications() -> list[tuple[str, onnx.ModelProto, Arrays, Arrays]]:
    """Models of one node, with operands and results that are tensors."""
    found = []
    for _, case in suite.load("node"):
        graph = case.model.graph
        if len(graph.node) != 1 or len(graph.node[0].input) != len(graph.input):
            continue
        for inputs, outputs in case.data_sets:
            if all(isinstance(array, np.ndarray) for array in (*inputs, *outputs)):
                found.append((case.name, case.model, inputs, outputs))
    return found


def described() -> Iterator[tuple[str, Node, Facts, onnx.ModelProto, Arrays, Arrays]]:
    """Those of them whose ops have facts."""
    for name, proto, inputs, outputs in applications():
        model = loaded(proto, inputs)
        (node,) = model.graph.nodes
        facts = facts_of(node)
        if facts is not NO_FACTS:
            yield name, node, facts, proto, inputs, outputs


def loaded(proto: onnx.ModelProto, inputs: Arrays) -> Model:
    """The model with all operands but the first as constants."""
    settled = onnx.ModelProto()
    settled.CopyFrom(proto)
    for value, array in zip(proto.graph.input[1:], inputs[1:]):
        settled.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    del settled.graph.input[1:]
    model = formats.load(settled.SerializeToString())
    infer(model)
    return model


def evaluated(proto: onnx.ModelProto, inputs: Arrays) -> Arrays:
    """By the reference, of inputs whose sizes may be others than the model says."""
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, {one.name: array for one, array in zip(model.graph.input, inputs)})


def is_below_zero(array: np.ndarray) -> bool:
    return bool(np.any(array.astype(np.float64) < 0))


def test_results_have_the_shape_of_what_is_taken_element_by_element() -> None:
    seen = set()
    for name, node, facts, _, inputs, outputs in described():
        if facts.elementwise is not Operands.NONE:
            taken = inputs if facts.elementwise is Operands.ALL else inputs[:1]
            assert outputs[0].shape == np.broadcast_shapes(*(array.shape for array in taken)), name
            seen.add(node.op_type)
    assert len(seen) > 60


def test_what_moves_makes_no_new_elements_and_what_reshapes_keeps_their_order() -> None:
    seen = set()
    for name, node, facts, _, inputs, outputs in described():
        if facts.moves:
            assert set(outputs[0].ravel().tolist()) <= set(inputs[0].ravel().tolist()), name
            seen.add(node.op_type)
        if facts.reshapes:
            assert facts.moves, name
            np.testing.assert_array_equal(outputs[0].ravel(), inputs[0].ravel(), name)
    assert seen >= {"Reshape", "Squeeze", "Transpose", "Slice", "Gather", "GatherND", "Expand", "Tile", "Split", "DepthToSpace"}


NOT_IN_REFERENCE = ("Scatter",)
"""Ops that the reference does not compute."""


def test_what_is_exact_gives_float16_for_float16() -> None:
    seen = set()
    for name, node, facts, proto, inputs, _ in described():
        is_float = any(array.dtype == np.float32 for array in inputs)
        if not is_float or not facts.is_exact(node) or node.op_type in NOT_IN_REFERENCE:
            continue
        for result in evaluated(proto, [rounded(array) for array in inputs]):
            np.testing.assert_array_equal(result, rounded(result), name)
        seen.add(node.op_type)
    assert seen >= {"Abs", "Ceil", "MaxPool", "Max", "ReduceMax", "Reshape", "ScatterND", "TopK", "Where"}, seen


def test_what_is_blind_says_the_same_of_rounded_numbers() -> None:
    seen = set()
    for name, node, facts, proto, inputs, outputs in described():
        if facts.is_blind(node) and inputs[0].dtype == np.float32:
            np.testing.assert_array_equal(evaluated(proto, [rounded(array) for array in inputs])[0], outputs[0], name)
            seen.add(node.op_type)
    assert seen >= {"Shape", "Size", "IsNaN"}


def rounded(array: np.ndarray) -> np.ndarray:
    """With the precision of float16, but in its own type."""
    return array.astype(np.float16).astype(array.dtype) if array.dtype == np.float32 else array


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = ScatterND(x, i, u)", True),
        ('y = ScatterND<reduction = "max">(x, i, u)', True),
        ('y = ScatterND<reduction = "add">(x, i, u)', False),
        ("y = Dropout(x)", True),
        ("t = Constant<value_int = 1>() b = Cast<to = 9>(t) y = Dropout(x, r, b)", False),
    ],
)
def test_whether_an_op_is_exact_depends_on_what_it_is_told(text: str, expected: bool) -> None:
    model = parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[4] x, int64[1,1] i, float[1] u, float r) => (y) {{ {text} }}'
    )
    infer(model)
    node = list(model.graph.nodes)[-1]
    assert facts_of(node).is_exact(node) is expected


@pytest.mark.parametrize(
    "text",
    [
        "float[4] x, bool[4] c) => (float[] y) { z = Compress(x, c)",
        "float[4] x) => (float[] y) { z = NonZero(x)",
        "float[4] x) => (float[] y) { z = Unique(x)",
        "float[1,6,4] b, float[1,1,6] s, int64 n) => (float[] y) { z = NonMaxSuppression(b, s, n)",
    ],
)
def test_sizes_of_what_is_counted_only_a_run_tells(text: str) -> None:
    model = parse_model(f'<ir_version: 8, opset_import: ["": 17]> g ({text} y = Cast<to = 1>(z) }}')
    infer(model)
    node = next(model.graph.nodes)
    assert any(map(dim.is_anonymous, node.outputs[0].type.shape))


def test_operands_that_may_change_places_give_the_same() -> None:
    seen = set()
    for name, node, facts, proto, inputs, outputs in described():
        if facts.commutative and len(inputs) == 2:
            np.testing.assert_array_equal(evaluated(proto, inputs[::-1])[0], outputs[0], name)
            seen.add(node.op_type)
    assert seen >= {"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "BitwiseAnd"}


def test_what_is_never_below_zero_is_not() -> None:
    seen = set()
    for name, node, facts, proto, inputs, outputs in described():
        needed = facts.non_negative(node)
        if needed is None or outputs[0].dtype.kind != "f":
            continue
        given = [np.abs(array) if value in needed else array for value, array in zip(node.inputs, inputs)]
        assert not is_below_zero(evaluated(proto, given)[0] if needed else outputs[0]), name
        seen.add(node.op_type)
    assert seen >= {"Relu", "Abs", "Exp", "Softmax", "Sqrt", "ReduceL2", "Add", "Mul", "Concat", "MaxPool", "AveragePool"}


JOINED = ("Concat", "Gemm", "MatMul")
"""Ops of which other operands than the first may be batches."""
MISCOUNTED = ("LRN",)
"""Of these the reference computes as many channels as there are entries."""


def test_entries_of_a_batch_that_are_treated_by_themselves_can_come_one_by_one() -> None:
    seen = set()
    for _, node, facts, proto, inputs, outputs in described():
        count = inputs[0].shape[0] if inputs and inputs[0].ndim else 0
        batched = [True, *(array.ndim > 1 and array.shape[0] == count and node.op_type in JOINED for array in inputs[1:])]
        if count < 2 or outputs[0].shape[:1] != (count,) or node.op_type in MISCOUNTED or not facts.rows(node, batched):
            continue
        entries = [
            evaluated(proto, [array[n : n + 1] if cut else array for array, cut in zip(inputs, batched)]) for n in range(count)
        ]
        for number, expected in enumerate(outputs):
            assert_close(np.concatenate([entry[number] for entry in entries]), expected)
        seen.add(node.op_type)
    assert seen >= {"Softmax", "MatMul", "Transpose", "ReduceSum", "ReduceL2", "Split", "LayerNormalization"}, seen


def test_what_takes_any_data_takes_zeros_and_numbers_beyond_all_bounds() -> None:
    seen = set()
    for _, node, facts, proto, inputs, _ in described():
        if not facts.takes_any_data(node) or node.op_type in seen or any(array.dtype.kind not in "fiub" for array in inputs):
            continue
        session = sardonyx.InferenceSession(proto.SerializeToString(), providers=[("CPUExecutionProvider", {"native": "0"})])
        first = 1 if facts.moves else len(inputs)  # the others say how
        for number in (0, -1, np.inf, np.nan):
            feeds = [filled(array, number) if place < first else array for place, array in enumerate(inputs)]
            session.run(None, {value.name: array for value, array in zip(node.inputs, feeds) if value is not None})
        seen.add(node.op_type)
    assert len(seen) > 60


def filled(array: np.ndarray, number: float) -> np.ndarray:
    if array.dtype.kind == "f":
        return np.full_like(array, number)
    limits = {0: 0, -1: 1} if array.dtype.kind == "b" else {0: 0, -1: np.iinfo(array.dtype).min}
    return np.full_like(array, limits.get(number, 1 if array.dtype.kind == "b" else np.iinfo(array.dtype).max))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int64[2] a, int64[2] b) => (int64[2] y) { y = Div(a, b)", False),
        ("float[2] a, float[2] b) => (float[2] y) { y = Div(a, b)", True),
        ("string[2] a) => (float[2] y) { y = Cast<to = 1>(a)", False),
        ("int64[2] a) => (float[2] y) { y = Cast<to = 1>(a)", True),
    ],
)
def test_whether_all_data_are_taken_depends_on_types(text: str, expected: bool) -> None:
    model = parse_model(f'<ir_version: 8, opset_import: ["": 17]> g ({text} }}')
    infer(model)
    (node,) = model.graph.nodes
    assert facts_of(node).takes_any_data(node) is expected


def test_an_op_that_nobody_knows_has_no_facts() -> None:
    assert facts_of(Node("Stranger", [], ["y"], domain="nobody's", version=1)) is NO_FACTS


def test_a_fact_that_is_misspelt_is_refused() -> None:
    from sardonyx.ops.table import infer as register

    with pytest.raises(TypeError, match="comutative"):
        register("Add", domain="test.facts", comutative=True)
    assert ("test.facts", "Add") not in inferences.operators()
