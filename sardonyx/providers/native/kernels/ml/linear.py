"""LinearClassifier and LinearRegressor of ai.onnx.ml: a product of rows and few coefficients, finished by the code of `scores`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx import dtypes
from sardonyx.compiler import builder
from sardonyx.compiler.builder import Variable
from sardonyx.compiler.types import F32, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.ml.scores import TRANSFORMS, Scores, ScoreSpec, finish_scores
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, shape_of

ROWS = 4
"""How many rows are computed together."""
PRODUCTS_PER_PIECE = 100_000


def _claims(node: Node) -> bool:
    shape = None if node.inputs[0] is None else shape_of(node.inputs[0])
    named = [output.name for output in node.outputs if output.name]
    return (
        len(named) == (2 if node.op_type == "LinearClassifier" else 1)
        and shape is not None
        and len(shape) in (1, 2)
        and all_attributes(node)["post_transform"] in TRANSFORMS
    )


def _claims_regressor(node: Node, is_transformed: bool) -> bool:
    return _claims(node) and _fits(node, _targets(node)) and (_regressor_transform(node) != "NONE") == is_transformed


def _regressor_transform(node: Node) -> str:
    """What becomes of the sums: a single one knows but one transform."""
    transform = str(all_attributes(node)["post_transform"])
    return transform if _targets(node) > 1 or transform == "PROBIT" else "NONE"


@compose("LinearRegressor", domain="ai.onnx.ml", claims=lambda node: _claims_regressor(node, is_transformed=False))
def linear_regressor(op: Composer, X: Value, coefficients: list[float], intercepts: list[float] | None, targets: int) -> Value:
    """Without a transform it is a product like others."""
    features = _features(dims(X)[-1], coefficients, targets)
    op.require(dims(X)[-1], features)
    rows = op.cast_to(X if len(dims(X)) == 2 else op.reshape(X, 1, features), dtypes.float32)
    weights = np.asarray(coefficients[: targets * features], np.float32).reshape(targets, features)
    added = [op.constant(np.asarray(intercepts, np.float32))] if intercepts else []
    product: Value = op.Gemm(rows, op.constant(weights), *added, transB=1)
    return product


@lower("LinearRegressor", domain="ai.onnx.ml", claims=lambda node: _claims_regressor(node, is_transformed=True))
def transformed_regressor(lowerer: Lowerer, node: Node) -> None:
    attributes = all_attributes(node)
    scores = _products(lowerer, node, attributes["coefficients"], attributes.get("intercepts"), attributes["targets"])
    output = lowerer.output(node.outputs[0])
    finish_scores(lowerer, ScoreSpec(F32, F32, output.type, _regressor_transform(node)), scores, output, None)


@lower(
    "LinearClassifier",
    domain="ai.onnx.ml",
    claims=lambda node: len(node.outputs) == 2 and _claims(node) and _fits(node, _classes(node)),
)
def linear_classifier(lowerer: Lowerer, node: Node) -> None:
    attributes = all_attributes(node)
    count, labels, transform = _classes(node), attributes.get("classlabels_ints") or [], attributes["post_transform"]
    scores = _products(lowerer, node, attributes["coefficients"], attributes.get("intercepts"), count)
    second = ""
    if count == 1 and len(labels) == 2:
        second = "negative" if transform == "PROBIT" else "complement"
    elif count == 1:
        labels, transform = [0, 1], transform if transform == "PROBIT" else "NONE"
    scores.labels = labels
    output, label = lowerer.output(node.outputs[1]), lowerer.output(node.outputs[0])
    spec = ScoreSpec(F32, F32, output.type, transform, second, "best" if count > 1 else "above")
    finish_scores(lowerer, spec, scores, output, label)


def _features(columns: Dim, coefficients: Sequence[float], targets: int) -> int:
    """How many features rows have; where that is open, as many as there are coefficients for."""
    return columns if isinstance(columns, int) else len(coefficients) // max(1, targets)


def _columns(node: Node) -> Dim:
    assert node.inputs[0] is not None
    return (shape_of(node.inputs[0]) or (0,))[-1]


def _targets(node: Node) -> int:
    return int(all_attributes(node)["targets"])


def _classes(node: Node) -> int:
    """How many scores a classifier computes; where nothing else tells, as many as it has labels."""
    attributes, columns = all_attributes(node), _columns(node)
    intercepts, labels = (attributes.get(name) or () for name in ("intercepts", "classlabels_ints"))
    if intercepts or not isinstance(columns, int):
        return len(intercepts) or len(labels)
    return len(attributes.get("coefficients") or ()) // columns if columns else 0


def _fits(node: Node, targets: int) -> bool:
    """Whether there are as many coefficients and, if a class is chosen among scores, labels as it takes."""
    attributes = all_attributes(node)
    coefficients = attributes.get("coefficients")
    if targets < 1 or not coefficients or len(coefficients) < targets * _features(_columns(node), coefficients, targets):
        return False
    labels = attributes.get("classlabels_ints")
    return len(attributes.get("intercepts") or ()) in (0, targets) and (
        node.op_type == "LinearRegressor" or targets == 1 or (labels is not None and len(labels) >= targets)
    )


def _products(lowerer: Lowerer, node: Node, coefficients: list[float], intercepts: list[float] | None, targets: int) -> Scores:
    """Add the step that computes scores, [rows, targets filled up to whole vectors]."""
    assert node.inputs[0] is not None
    X = lowerer.contiguous(node.inputs[0])
    rows, features = (1, *X.shape)[-2], _features(X.shape[-1], coefficients, targets)
    lowerer.require(X.shape[-1], features)
    for value in node.outputs:
        lowerer.require((shape_of(value) or (0,))[0], rows)
    lanes = min(lowerer.target.lanes(F32), max(4, 1 << (targets - 1).bit_length()))
    padded = -(-targets // lanes) * lanes
    weights = np.zeros((features + 1, padded), np.float32)
    weights[:features, :targets] = np.asarray(coefficients[: targets * features], np.float32).reshape(targets, features).T
    weights[features, :targets] = 0 if not intercepts else np.asarray(intercepts, np.float32)
    place = lowerer.scratch(dim.ceildiv(rows, ROWS) * (ROWS * padded * 4))
    grain = max(1, PRODUCTS_PER_PIECE // max(1, features * padded * ROWS))
    arguments = ProductArguments(
        X=X.place, rows=rows, features=features, weights=lowerer.table(weights), padded=padded, scores=place
    )
    lowerer.call(
        product_kernel(lowerer.target, X.type, lanes),
        arguments,
        dim.ceildiv(rows, ROWS),
        grain,
        flops=rows * (2 * features * targets),
        traffic=rows * (features * X.type.bytes + targets * 4),
    )
    return Scores(place=place, stride=padded, rows=rows, count=targets)


class ProductArguments(Arguments):
    X: Pointer
    rows: Size
    features: Size
    weights: Pointer
    """[features + 1, padded]; the last row is added to the products."""
    padded: Size
    """How many scores a row has, filled up to whole vectors."""
    scores: Pointer


@kernel("linear", ProductArguments)
def product_kernel(f: KernelFunction, a: ProductArguments, type: Type, lanes: int) -> None:
    """Items are groups of `ROWS` rows; those behind the last row are like it."""
    with f.loop(f.begin, f.end) as item, f.loop(0, a.padded, lanes) as column:
        sums = [f.variable(f.const(F32.vector(lanes), 0.0)) for _ in range(ROWS)]
        intercept = f.load(a.weights, a.features * a.padded + column, F32, lanes)
        with f.if_else(a.rows == 1) as otherwise:
            f.store(_sum_in_parts(f, a, type, sums, column) + intercept, a.scores, column, F32)
            otherwise()
            rows = [item * ROWS + n for n in range(ROWS)]
            starts = [f.minimum(row, a.rows - 1) * a.features for row in rows]
            with f.loop(0, a.features) as feature:
                for start, total in zip(starts, sums):
                    _add_product(f, a, type, total, start + feature, feature, column)
            for row, total in zip(rows, sums):
                f.store(total.get() + intercept, a.scores, row * a.padded + column, F32)


def _sum_in_parts(
    f: KernelFunction, a: ProductArguments, type: Type, sums: Sequence[Variable], column: builder.Value
) -> builder.Value:
    """The products of a row that is alone. It is cut into as many parts as there are sums, for a single one would wait for itself."""
    part = a.features // ROWS
    with f.loop(0, part) as feature:
        for number, total in enumerate(sums):
            place = part * number + feature
            _add_product(f, a, type, total, place, place, column)
    with f.loop(part * ROWS, a.features) as feature:
        _add_product(f, a, type, sums[0], feature, feature, column)
    first, second, third, fourth = (total.get() for total in sums)
    return (first + second) + (third + fourth)


def _add_product(
    f: KernelFunction,
    a: ProductArguments,
    type: Type,
    total: Variable,
    place: builder.Value,
    feature: builder.Value,
    column: builder.Value,
) -> None:
    """Add the input at a place times the weights of a feature for the scores from `column` on."""
    factor = f.splat(f.convert(f.load(a.X, place, type), F32), total.type.lanes)
    weights = f.load(a.weights, feature * a.padded + column, F32, total.type.lanes)
    total.set(f.fma(factor, weights, total.get()))
