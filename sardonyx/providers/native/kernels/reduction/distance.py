"""CDist of com.microsoft: distances between all points of two sets, as a reduction of differences. The table of lowerings holds it."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Node, Value, dim
from sardonyx.ops.reading import constant, operand
from sardonyx.providers.native.kernels.reduction.kernels import Reduction
from sardonyx.providers.native.kernels.reduction.operators import fold_steps
from sardonyx.providers.native.program.chain import Apply, Chain, Load, pattern, stride_arguments
from sardonyx.providers.native.program.chain_lowering import Source
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, rank_of, required, shape_of
from sardonyx.providers.native.program.views import View
from sardonyx.providers.provider import CannotCompile
from sardonyx.providers.scalars.table import name_of, newest_scalar

METRICS = {"sqeuclidean": "SumSquare", "euclidean": "L2", "cityblock": "L1"}


def _claims(node: Node) -> bool:
    known = all(value is not None and shape_of(value) is not None for value in node.inputs)
    return known and operand(node, "metric") in METRICS


@lower("CDist", domain="com.microsoft", claims=_claims)
def c_dist(lowerer: Lowerer, node: Node) -> None:
    """Vectors run along the points of B, of which one feature after the other is read."""
    A, B = (required(value) for value in node.inputs)
    (rows, features), (columns, others) = dims(A), dims(B)
    lowerer.require(features, others)
    type = element_of(A)
    assert type is not None
    first, second = lowerer.view(A), _features_first(lowerer, B)
    strides = (first.strides[0], first.strides[1], 0), (0, *second.strides)
    difference = Apply(name_of(newest_scalar("Sub")), (0, 1), type)
    chain = Chain(3, (*(Load(type, pattern(steps)) for steps in strides), difference), ())
    arguments = [*stride_arguments(first, strides[0]), *stride_arguments(second, strides[1])]
    sink = lowerer.sink(node, (1, 1))
    reduction = Reduction(METRICS[operand(node, "metric")], "add", type, "KRK", chain, sink.chain)
    fold_steps(lowerer, reduction, Source(chain, arguments), sink, (rows, features, columns))


def _features_first(lowerer: Lowerer, B: Value) -> View:
    """Points as columns that lie in a row."""
    known, view = constant(B), lowerer.view(B)
    if known is not None:
        array = np.ascontiguousarray(known.T)
        return View(lowerer.constant(array), view.type, array.shape, (array.shape[1], 1))
    turned = view.transposed((1, 0))
    if turned.strides[1] == 1:
        return turned
    features, points = turned.shape
    copy = View(lowerer.scratch(features * points * view.type.bytes), view.type, turned.shape, (points, 1))
    lowerer.copy(turned, copy)
    return copy


@compose("CDist", domain="com.microsoft")
def other_distances(op: Composer, A: Value, B: Value, metric: str) -> Value:
    """Metrics that are no sums of what single features contribute, in float64 as NumPy has them."""
    if rank_of(A) != 2 or rank_of(B) != 2:
        raise CannotCompile("points must be rows of features", quiet=True)
    (rows, features), (columns, others) = dims(A), dims(B)
    op.require(features, others)
    first, second = (op.cast_to(points, dtypes.float64) for points in (A, B))
    if metric == "chebyshev":
        op.require(dim.maximum(features, 1), features)  # of nothing there is no maximum
        difference = op.Sub(op.reshape(first, rows, 1, features), op.reshape(second, 1, columns, features))
        largest: Value = op.ReduceMax(op.Abs(difference), op.constant([2]), keepdims=0)
        return largest
    if metric != "cosine":
        raise CannotCompile(f"the metric is {metric}", quiet=True)
    lengths = [op.Sqrt(op.ReduceSumSquare(points, op.constant([1]))) for points in (first, second)]
    product = op.MatMul(first, op.Transpose(second, perm=[1, 0]))
    similarity = op.Div(product, op.Mul(lengths[0], op.Transpose(lengths[1], perm=[1, 0])))
    made: Value = op.Sub(op.number(1, product), similarity)
    return made
