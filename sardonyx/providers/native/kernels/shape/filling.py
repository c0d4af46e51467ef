"""Ops that make a tensor out of positions: ranges, unit and triangular matrices, one-hot vectors, reversed sequences."""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import BOOL, I64, U64, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import input_named, operand
from sardonyx.providers.native.kernels.shape.copying import PIECE_BYTES, copy_row, fill_row, raw
from sardonyx.providers.native.kernels.shape.views import axis_of, content
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, rank_of, required

_ZERO = np.zeros(1, np.int64)


def _rows_per_piece(length: Dim, type: Type) -> Dim:
    return dim.maximum(1, dim.floordiv(PIECE_BYTES // type.bytes, dim.maximum(1, length)))


def _is_number(value: Value | None) -> bool:
    return value is not None and dim.product(dims(value)) == 1


# --- Range ----------------------------------------------------------------------------------------------------------


def claims_range(node: Node) -> bool:
    """Only numbers that the shapes tell: the size of the result depends on them."""
    type = element_of(node.outputs[0])
    inputs = [value for value in node.inputs if value is not None]
    return (
        type is not None
        and type.is_integer
        and all(map(_is_number, inputs))
        and all(content(node, name) is not None for name in ("start", "limit"))
        and (input_named(node, "delta") is None or content(node, "delta") not in (None, [0]))
    )


@lower("Range", claims=claims_range, costly=False)
@lower("Range", domain="com.microsoft", claims=claims_range, costly=False)
def range_of_numbers(lowerer: Lowerer, node: Node) -> None:
    """Numbers at even distances."""
    (start,) = content(node, "start") or [0]
    (delta,) = content(node, "delta") or [1]
    target = lowerer.output(node.outputs[0])
    lowerer.call(
        range_kernel(lowerer.target, target.type),
        RangeArguments(start=start, delta=delta, target=target.place),
        target.shape[0],
        PIECE_BYTES // target.type.bytes,
        traffic=target.shape[0] * target.type.bytes,
    )


class RangeArguments(Arguments):
    start: Size
    delta: Size
    target: Pointer


@kernel("range", RangeArguments)
def range_kernel(f: KernelFunction, a: RangeArguments, type: Type) -> None:
    """Items are elements. What is out of the type's range wraps around."""
    with f.loop(f.begin, f.end) as item:
        f.store(f.convert(a.start + item * a.delta, type), a.target, item, type)


# --- matrices -------------------------------------------------------------------------------------------------------


@lower("EyeLike", claims=lambda node: rank_of(node.outputs[0]) == 2)
def eye_like(lowerer: Lowerer, node: Node) -> None:
    """Ones along a diagonal."""
    target = lowerer.output(node.outputs[0])
    rows, columns = target.shape
    k = int(operand(node, "k") or 0)
    lowerer.call(
        eye_kernel(lowerer.target, target.type),
        EyeArguments(target=target.place, columns=columns, diagonal=max(-(1 << 62), min(k, 1 << 62))),
        rows,
        _rows_per_piece(columns, target.type),
        traffic=rows * columns * target.type.bytes,
    )


class EyeArguments(Arguments):
    target: Pointer
    columns: Size
    diagonal: Size
    """The column of the first row's 1."""


@kernel("unit matrix", EyeArguments)
def eye_kernel(f: KernelFunction, a: EyeArguments, type: Type) -> None:
    """Items are rows."""
    zero, one = (f.const(type.computed, number) for number in (0, 1))
    with f.loop(f.begin, f.end) as row:
        line = f.address(a.target, row * a.columns, type)
        fill_row(f, zero, line, a.columns, type)
        place = row + a.diagonal
        with f.if_((place >= 0) & (place < a.columns)):
            f.store(one, line, place, type)


def _claims_trilu(node: Node) -> bool:
    k = node.inputs[1] if len(node.inputs) > 1 else None
    return rank_of(required(node.inputs[0])) >= 2 and (k is None or _is_number(k))


@lower("Trilu", claims=_claims_trilu, text=True)
@lower("Trilu", domain="com.microsoft", claims=_claims_trilu)
def trilu(lowerer: Lowerer, node: Node) -> None:
    """The part of matrices on one side of a diagonal, zeros elsewhere."""
    source = lowerer.contiguous(required(node.inputs[0]))
    k = node.inputs[1] if len(node.inputs) > 1 else None
    target, type = lowerer.output(node.outputs[0]), raw(source.type)
    upper = operand(node, "upper")
    diagonal = lowerer.constant(_ZERO) if k is None else lowerer.view(k).place
    *outer, rows, columns = source.shape
    total = dim.product(outer) * rows
    lowerer.call(
        trilu_kernel(lowerer.target, type, upper is None or bool(upper)),
        TriluArguments(source=source.place, target=target.place, diagonal=diagonal, rows=rows, columns=columns),
        total,
        _rows_per_piece(columns, type),
        traffic=2 * total * columns * type.bytes,
    )


class TriluArguments(Arguments):
    source: Pointer
    target: Pointer
    diagonal: Pointer
    """Where its number stands, an int64."""
    rows: Size
    columns: Size


@kernel("triangle", TriluArguments)
def trilu_kernel(f: KernelFunction, a: TriluArguments, type: Type, upper: bool) -> None:
    """Items are rows."""
    columns = a.columns
    diagonal = f.maximum(f.minimum(f.load(a.diagonal, 0, I64), columns + 1), -a.rows - 1)
    zero = f.const(type, 0)
    with f.loop(f.begin, f.end) as item:
        edge = (item % a.rows) + diagonal + (0 if upper else 1)
        edge = f.maximum(f.minimum(edge, columns), 0)
        line, result = (f.address(tensor, item * columns, type) for tensor in (a.source, a.target))
        after, after_result = (f.address(row, edge, type) for row in (line, result))
        if upper:
            fill_row(f, zero, result, edge, type)
            copy_row(f, after, after_result, columns - edge, type)
        else:
            copy_row(f, line, result, edge, type)
            fill_row(f, zero, after_result, columns - edge, type)


# --- OneHot ---------------------------------------------------------------------------------------------------------


def _claims_one_hot(node: Node) -> bool:
    """The depth must be known, for it is a size of the result."""
    depth = input_named(node, "depth")
    known = depth is not None and (depth.is_constant or depth.known is not None) and _is_number(depth)
    return known and marks_with_two_values(node)


def marks_with_two_values(node: Node) -> bool:
    """Whether the operands of OneHot are of the types and shapes that its kernel takes."""
    type, values = element_of(required(node.inputs[0])), input_named(node, "values")
    return type not in (None, BOOL) and values is not None and dims(values) == (2,)


@lower("OneHot", claims=_claims_one_hot, text=True)
def one_hot(lowerer: Lowerer, node: Node) -> None:
    """For each index a row of one value, with another one at its place."""
    indices, values = lowerer.contiguous(required(node.inputs[0])), input_named(node, "values")
    assert values is not None
    target = lowerer.output(node.outputs[0])
    axis = axis_of(node, len(target.shape), default=-1)
    inner, depth = dim.product(target.shape[axis + 1 :]), target.shape[axis]
    outer, type = dim.product(target.shape[:axis]), raw(target.type)
    lowerer.call(
        one_hot_kernel(lowerer.target, type, indices.type),
        OneHotArguments(
            indices=indices.place,
            values=lowerer.contiguous(values).place,
            target=target.place,
            depth=depth,
            inner=inner,
        ),
        outer,
        _rows_per_piece(depth * inner, type),
        traffic=outer * inner * (depth * type.bytes + indices.type.bytes),
    )


def _whole(f: KernelFunction, index: Code) -> Code:
    """An index as int64. One that is out of its range, or not a number, is out of any depth's range too."""
    if index.type == U64:
        whole = f.convert(index, I64)
        return f.select(whole < 0, -(1 << 62), whole)
    if not index.type.is_float:
        return f.convert(index, I64)
    fits = f.abs(index) < 2.0**62
    return f.select(fits, f.convert(f.select(fits, index, 0.0), I64), -(1 << 62))


class OneHotArguments(Arguments):
    indices: Pointer
    values: Pointer
    """What stands elsewhere, and what stands at an index."""
    target: Pointer
    depth: Size
    inner: Size


@kernel("one hot", OneHotArguments)
def one_hot_kernel(f: KernelFunction, a: OneHotArguments, type: Type, index_type: Type) -> None:
    """Items are blocks of `depth` rows of `inner` elements. An index out of range is marked nowhere."""
    off, on = f.load(a.values, 0, type), f.load(a.values, 1, type)
    with f.loop(f.begin, f.end) as item:
        block = f.address(a.target, item * a.depth * a.inner, type)
        fill_row(f, off, block, a.depth * a.inner, type)
        with f.loop(0, a.inner) as column:
            index = _whole(f, f.load(a.indices, item * a.inner + column, index_type))
            place = f.select(index < 0, index + a.depth, index)
            with f.if_((place >= 0) & (place < a.depth)):
                f.store(on, block, place * a.inner + column, type)


# --- ReverseSequence ------------------------------------------------------------------------------------------------


def _claims_reverse(node: Node) -> bool:
    axes = {int(operand(node, name)) for name in ("batch_axis", "time_axis")}
    return axes == {0, 1} and rank_of(required(node.inputs[0])) >= 2 and rank_of(required(node.inputs[1])) == 1


@lower("ReverseSequence", claims=_claims_reverse)
def reverse_sequence(lowerer: Lowerer, node: Node) -> None:
    """The first steps of each sequence backward, the rest as it is."""
    source, lengths = (lowerer.contiguous(value) for value in node.inputs if value is not None)
    batch_axis, time_axis = (int(operand(node, name)) for name in ("batch_axis", "time_axis"))
    lowerer.require(lengths.shape[0], source.shape[batch_axis])
    target, type = lowerer.output(node.outputs[0]), raw(source.type)
    inner = dim.product(source.shape[2:])
    batch, steps = source.shape[batch_axis], source.shape[time_axis]
    rows = batch * dim.maximum(steps, 1)  # lengths of empty sequences are looked at, too
    lowerer.call(
        reverse_kernel(lowerer.target, type, time_axis),
        ReverseArguments(
            source=source.place,
            lengths=lengths.place,
            target=target.place,
            second=batch if batch_axis else dim.maximum(steps, 1),
            steps=steps,
            inner=inner,
            status=lowerer.status(),
        ),
        rows,
        _rows_per_piece(inner, type),
        traffic=2 * rows * inner * type.bytes,
    )


class ReverseArguments(Arguments):
    source: Pointer
    lengths: Pointer
    target: Pointer
    second: Size
    """The size of the second axis, 1 if that is time and there is none."""
    steps: Size
    """The size of the axis of time."""
    inner: Size
    """Elements in a row."""
    status: Pointer


@kernel("reverse", ReverseArguments)
def reverse_kernel(f: KernelFunction, a: ReverseArguments, type: Type, time_axis: int) -> None:
    """Items are rows of the first two axes."""
    with f.loop(f.begin, f.end) as item:
        places: list[Code] = [item // a.second, item % a.second]
        time, batch = places[time_axis], places[1 - time_axis]
        length = f.load(a.lengths, batch, I64)
        bad = (length < 0) | (length > a.steps)
        with f.if_(bad):
            f.store(1, a.status, 0, I64)
        places[time_axis] = f.select((time < length) & ~bad, length - 1 - time, time)
        with f.if_(a.steps > 0):
            source = f.address(a.source, (places[0] * a.second + places[1]) * a.inner, type)
            copy_row(f, source, f.address(a.target, item * a.inner, type), a.inner, type)
