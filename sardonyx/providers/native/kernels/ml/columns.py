"""Columns of ai.onnx.ml: some of them by their numbers, and those of several tensors side by side."""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.ml.operators import DOMAIN, along, rank_of
from sardonyx.providers.native.kernels.reduction.domain import PIECE_ELEMENTS, row_grain
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import shape_of
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import replace

MAX_FIXED = 32
"""So many constant numbers of columns are written into the code."""


def _claims_extractor(node: Node) -> bool:
    shape = None if node.inputs[1] is None else shape_of(node.inputs[1])
    return rank_of(node) >= 1 and shape is not None and dim.product(shape) != 0


@lower("ArrayFeatureExtractor", domain=DOMAIN, claims=_claims_extractor, text=True)
def array_feature_extractor(lowerer: Lowerer, node: Node) -> None:
    """Columns by their numbers. What is not among them is NumPy's to complain about."""
    X, Y = (lowerer.contiguous(value) for value in node.inputs if value is not None)
    output = lowerer.output(node.outputs[0])
    fixed = _fixed_columns(node)
    if fixed is not None:
        _extract_fixed(lowerer, X, fixed, output)
        return
    rows, count = dim.product(X.shape[:-1]), dim.product(Y.shape)
    is_one_row = rows == 1
    checked = CheckArguments(columns=X.shape[-1], Y=Y.place, count=count, status=lowerer.status())
    # where nothing is asked for, a first item says so
    lowerer.call(column_check_kernel(lowerer.target), checked, dim.maximum(1, count), PIECE_ELEMENTS)
    lowerer.call(
        extract_kernel(lowerer.target, X.type, is_one_row),
        ExtractArguments(X=X.place, columns=X.shape[-1], Y=Y.place, count=count, output=output.place),
        count if is_one_row else rows,
        PIECE_ELEMENTS if is_one_row else row_grain(count),
        traffic=rows * count * 2 * X.type.bytes,
    )


def _fixed_columns(node: Node) -> tuple[int, ...] | None:
    """Numbers that are known to be right before the first run."""
    X, Y = node.inputs
    shape = None if X is None else shape_of(X)
    if Y is None or Y.constant is None or shape is None or not isinstance(shape[-1], int):
        return None
    numbers = np.asarray(Y.constant.numpy()).reshape(-1).tolist()
    return tuple(numbers) if len(numbers) <= MAX_FIXED and all(0 <= one < shape[-1] for one in numbers) else None


def _extract_fixed(lowerer: Lowerer, X: View, columns: tuple[int, ...], output: View) -> None:
    rows = dim.product(X.shape[:-1])
    arguments = FixedArguments(X=X.place, columns=X.shape[-1], output=output.place)
    traffic = rows * len(columns) * 2 * X.type.bytes
    lowerer.call(fixed_kernel(lowerer.target, X.type, columns), arguments, rows, row_grain(len(columns)), traffic=traffic)


class FixedArguments(Arguments):
    X: Pointer
    columns: Size
    output: Pointer


@kernel("extract fixed columns", FixedArguments)
def fixed_kernel(f: KernelFunction, a: FixedArguments, type: Type, columns: tuple[int, ...]) -> None:
    """Items are rows."""
    with f.loop(f.begin, f.end) as row:
        source, target = f.address(a.X, row * a.columns, type), f.address(a.output, row * len(columns), type)
        values = [f.load(source, column, type) for column in columns]
        for place, value in enumerate(values):
            f.store(value, target, place, type)


class CheckArguments(Arguments):
    columns: Size
    Y: Pointer
    """The numbers of the columns that are wanted."""
    count: Size
    """How many these are."""
    status: Pointer


@kernel("check columns", CheckArguments)
def column_check_kernel(f: KernelFunction, a: CheckArguments) -> None:
    """Items are numbers of columns. They are wrong even where there are no rows to take them from, and none is wrong, too."""
    with f.if_(a.count == 0):
        f.store(1, a.status, 0, I64)
    with f.loop(f.begin, f.minimum(f.end, a.count)) as place:
        column = f.load(a.Y, place, I64)
        with f.if_((column < 0) | (column >= a.columns)):
            f.store(1, a.status, 0, I64)


class ExtractArguments(Arguments):
    X: Pointer
    columns: Size
    Y: Pointer
    """The numbers of the columns that are wanted, which have been checked."""
    count: Size
    """How many these are."""
    output: Pointer


@kernel("extract columns", ExtractArguments)
def extract_kernel(f: KernelFunction, a: ExtractArguments, type: Type, is_one_row: bool) -> None:
    """Items are the numbers of one row, or rows."""
    if is_one_row:
        _extract_row(f, a, type, f.const(I64, 0), f.begin, f.end)
    else:
        with f.loop(f.begin, f.end) as row:
            _extract_row(f, a, type, row, f.const(I64, 0), a.count)


def _extract_row(f: KernelFunction, a: ExtractArguments, type: Type, row: Value, start: Value, stop: Value) -> None:
    lanes = f.lanes(I64)
    source, target = f.address(a.X, row * a.columns, type), f.address(a.output, row * a.count, type)

    def emit(place: Value, remaining: Value | None = None) -> None:
        column = f.load(a.Y, place, I64, lanes, remaining=remaining)
        f.store(f.gather(source, column, type), target, place, type, remaining=remaining)

    along(f, start, stop, lanes, emit)


def _claims_vectorizer(node: Node) -> bool:
    shapes = [None if value is None else shape_of(value) for value in node.inputs]
    if any(shape is None or len(shape) != 2 for shape in shapes):
        return False
    widths = all_attributes(node).get("inputdimensions") or [shape[1] for shape in shapes if shape is not None]
    return len(widths) == len(shapes) and all(
        not isinstance(shape[1], int) or shape[1] == width for shape, width in zip(shapes, widths) if shape is not None
    )


@lower("FeatureVectorizer", domain=DOMAIN, claims=_claims_vectorizer)
def feature_vectorizer(lowerer: Lowerer, node: Node) -> None:
    """Inputs side by side, as float32."""
    output = lowerer.output(node.outputs[0])
    start: Dim = 0
    widths = all_attributes(node).get("inputdimensions") or [None] * len(node.inputs)
    for value, width in zip(node.inputs, widths):
        assert value is not None
        view = lowerer.view(value)
        lowerer.require_shape(view.shape, (output.shape[0], view.shape[1] if width is None else width))
        lowerer.copy(view, replace(output, shape=view.shape, offset=output.offset + start))
        start = start + view.shape[1]
