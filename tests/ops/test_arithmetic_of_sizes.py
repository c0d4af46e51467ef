"""Inference computes with sizes that are not numbers yet: what elementwise ops and reductions make of symbolic content."""

import numpy as np
import pytest

from sardonyx import dtypes, ops
from sardonyx.ir import Graph, Model, TensorType, Value, dim
from sardonyx.ops.builder import Builder
from sardonyx.ops.operand import sizes

N, M = dim.symbol("N"), dim.symbol("M")


def content_of(op, *contents, **attributes):
    """What is known of the op's output when its inputs, vectors or scalars, hold these; None where inference does not know."""
    graph = Graph("sizes")
    inputs = []
    for position, content in enumerate(contents):
        items = content if isinstance(content, list) else [content]
        value = np.array(items) if all(isinstance(item, (bool, int)) for item in items) else sizes(items)
        value = value if isinstance(content, list) else value.reshape(())
        dtype = dtypes.bool_ if value.dtype == np.bool_ else dtypes.int64
        inputs.append(graph.add_input(Value(f"i{position}", TensorType(dtype, value.shape))))
        inputs[-1].known = value
    output = getattr(Builder(graph), op)(*inputs, **attributes)
    graph.outputs.append(output)
    ops.infer(Model(graph, {"": 26}))
    return None if output.known is None else output.known.reshape(-1).tolist()


@pytest.mark.parametrize(
    ("op", "contents", "expected"),
    [
        ("Add", ([N, 3], [1, 2]), [N + 1, 5]),
        ("Add", ([N, M], [M]), [N + M, M * 2]),
        ("Sub", ([N, 3], [N, 1]), [0, 2]),
        ("Mul", ([N, 3], [M]), [N * M, M * 3]),
        ("Div", ([N * 4, 7], [2, 2]), [N * 2, 3]),
        ("Div", ([N, 7], [2, 2]), [dim.floordiv(N, 2), 3]),
        ("Div", ([N, 7], [2, 0]), None),
        ("Mod", ([N * 4 + 3, 7], [2, 4]), [1, 3]),
        ("Neg", ([N, 3],), [N * -1, -3]),
        ("Abs", ([N, 3],), [N, 3]),
        ("Abs", ([N - 5, 3],), None),
        ("Max", ([N, 3], [0, 5]), [N, 5]),
        ("Max", ([N, 3], [M, 5], [1]), [dim.maximum(N, M, 1), 5]),
        ("Min", ([N + 1, 3], [N, 5]), [N, 3]),
        ("Clip", ([N, -3], [0]), [N, 0]),
        ("Clip", ([N, 9], [0], [5]), [dim.minimum(N, 5), 5]),
        ("Identity", ([N, 3],), [N, 3]),
        ("Where", ([True, False], [1, 1], [N, M]), [1, M]),
        ("Where", ([True, False], [N, N], [-1, M]), [N, M]),
    ],
)
def test_arithmetic(op, contents, expected):
    assert content_of(op, *contents) == expected
    if expected is not None:
        assert content_of(op, *(content[0] for content in contents)) == expected[:1]


@pytest.mark.parametrize(
    ("op", "contents", "expected"),
    [
        ("Equal", ([N, 3], [-1, 3]), [False, True]),
        ("Equal", ([N, 3], [N, 4]), [True, False]),
        ("Equal", ([N, 3], [4, 3]), None),
        ("Greater", ([N + 1, 3], [0, 3]), [True, False]),
        ("Greater", ([N], [0]), None),
        ("Less", ([N, 3], [N + 2, 3]), [True, False]),
        ("GreaterOrEqual", ([N, 3], [0, 4]), [True, False]),
        ("LessOrEqual", ([N + 1, 3], [0, 4]), [False, True]),
        ("LessOrEqual", ([N], [M]), None),
    ],
)
def test_comparisons_are_decided_only_where_no_size_can_differ(op, contents, expected):
    assert content_of(op, *contents) == expected


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("ReduceSum", [N + M + 3]),
        ("ReduceProd", [N * M * 3]),
        ("ReduceMax", [dim.maximum(N, M, 3)]),
        ("ReduceMin", [dim.minimum(N, M, 3)]),
    ],
)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions(op, keepdims, expected):
    assert content_of(op, [N, 3, M], [0], keepdims=keepdims) == expected
    assert content_of(op, [N, 3, M], keepdims=keepdims) == expected
    assert content_of(op, [N, 3, M], noop_with_empty_axes=1, keepdims=keepdims) == [N, 3, M]


def test_sizes_survive_conversion_to_integers_only():
    assert content_of("Cast", [N, 3], to=dtypes.int32.code) == [N, 3]
    assert content_of("Cast", [N, 3], to=dtypes.float32.code) is None
