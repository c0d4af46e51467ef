"""Lowerings of ops that choose elements by rank, and of running sums and products. The table of lowerings holds them."""

from __future__ import annotations

from sardonyx.compiler.types import I64, Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.ops.reading import input_named, operand
from sardonyx.providers.native.kernels.reduction.domain import cheap_source, is_float, row_grain, strip_arguments
from sardonyx.providers.native.kernels.reduction.passes import RowArguments
from sardonyx.providers.native.kernels.selection.kernels import (
    STRIP,
    arg_rows_kernel,
    arg_strips_kernel,
    hardmax_kernel,
    scan_rows_kernel,
    scan_strips_kernel,
)
from sardonyx.providers.native.kernels.selection.topk_kernel import TopKArguments, top_k_kernel
from sardonyx.providers.native.program.computed_sizes import axes_of, has_numbers, numbers_of, settle_to
from sardonyx.providers.native.program.known import known_sizes
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, required, stored
from sardonyx.providers.native.program.views import View, contiguous_strides


def _axis(node: Node) -> int:
    return int(operand(node, "axis")) % len(dims(required(node.inputs[0])))


# --- where the extreme is -------------------------------------------------------------------------------------------


def _claims_arg(node: Node) -> bool:
    shape = dims(required(node.inputs[0]))
    return bool(shape) and shape[_axis(node)] != 0


@lower("ArgMax", "ArgMin", claims=_claims_arg)
def arg_extreme(lowerer: Lowerer, node: Node) -> None:
    value = required(node.inputs[0])
    shape, axis = dims(value), _axis(node)
    lowerer.require(dim.minimum(1, shape[axis]), 1)
    type = stored(value).computed
    how, last = ("max" if node.op_type == "ArgMax" else "min"), bool(operand(node, "select_last_index"))
    result_rank = len(dims(node.outputs[0]))
    total = dim.product(shape)
    if dim.product(shape[axis + 1 :]) == 1:
        source = cheap_source(lowerer, value, (axis, len(shape) - axis))
        sink = lowerer.sink(node, (result_rank,))
        lowerer.call(
            arg_rows_kernel(lowerer.target, source.chain, sink.chain, type, how, last),
            RowArguments(columns=shape[axis], source=source.arguments, sink=sink.arguments),
            dim.product(shape[:axis]),
            row_grain(shape[axis]),
            flops=total,
            traffic=total * type.bytes,
        )
        return
    source = lowerer.source(value, (axis, 1, len(shape) - axis - 1))
    sink = lowerer.sink(node, (axis, result_rank - axis))
    outer, _ = sink.shape
    arguments = strip_arguments(source, sink, shape[axis], STRIP)
    lowerer.call(
        arg_strips_kernel(lowerer.target, source.chain, sink.chain, type, how, last),
        arguments,
        outer * arguments.strips,
        row_grain(shape[axis] * arguments.width),
        flops=total,
        traffic=total * type.bytes,
    )


def _claims_hardmax(node: Node) -> bool:
    """Along rows; a single number and other axes are left to NumPy."""
    shape = dims(required(node.inputs[0]))
    return bool(shape) and is_float(node) and dim.product(shape[_axis(node) + 1 :]) == 1


def _claims_flattened(node: Node) -> bool:
    return is_float(node) and bool(dims(required(node.inputs[0])))


@lower("Hardmax", since=13, claims=_claims_hardmax)
def hardmax(lowerer: Lowerer, node: Node) -> None:
    _hardmax(lowerer, node, _axis(node))


@lower("Hardmax", until=12, claims=_claims_flattened)
def hardmax_flattened(lowerer: Lowerer, node: Node) -> None:
    """Up to opset 12 the axes from `axis` on were one flat row."""
    axis = int(operand(node, "axis"))
    _hardmax(lowerer, node, axis + len(dims(required(node.inputs[0]))) if axis < 0 else axis)


def _hardmax(lowerer: Lowerer, node: Node, axis: int) -> None:
    value = required(node.inputs[0])
    groups = (axis, len(dims(value)) - axis)
    source = cheap_source(lowerer, value, groups)
    sink = lowerer.sink(node, groups)
    rows, columns = sink.shape
    # rows without columns have no maximum to look for
    items = rows * dim.minimum(1, columns)
    kernel = hardmax_kernel(lowerer.target, source.chain, sink.chain, stored(value).computed)
    arguments = RowArguments(columns=columns, source=source.arguments, sink=sink.arguments)
    lowerer.call(kernel, arguments, items, row_grain(columns))


# --- running sums and products --------------------------------------------------------------------------------------


def _scanned_axis(node: Node) -> int | None:
    axis = operand(node, "axis")
    while isinstance(axis, list):
        axis = axis[0] if axis else None
    rank = len(dims(required(node.inputs[0])))
    return int(axis) % rank if isinstance(axis, int) and -rank <= axis < rank else None


def _claims_scan(node: Node) -> bool:
    type = element_of(required(node.inputs[0]))
    return type is not None and type.kind != "bool" and _scanned_axis(node) is not None


@lower("CumSum", "CumProd", claims=_claims_scan)
def scan(lowerer: Lowerer, node: Node) -> None:
    value = required(node.inputs[0])
    shape, axis = dims(value), _scanned_axis(node)
    assert axis is not None
    type: Type = stored(value).computed
    how = "add" if node.op_type == "CumSum" else "mul"
    form = (type, how, bool(operand(node, "exclusive")), bool(operand(node, "reverse")))
    total = dim.product(shape)
    traffic = total * type.bytes * 2
    if dim.product(shape[axis + 1 :]) == 1:
        groups: tuple[int, ...] = (axis, len(shape) - axis)
        source, sink = lowerer.source(value, groups), lowerer.sink(node, groups)
        rows, columns = sink.shape
        kernel = scan_rows_kernel(lowerer.target, source.chain, sink.chain, *form)
        row = RowArguments(columns=columns, source=source.arguments, sink=sink.arguments)
        lowerer.call(kernel, row, rows, row_grain(columns), flops=total, traffic=traffic)
        return
    groups = (axis, 1, len(shape) - axis - 1)
    source, sink = lowerer.source(value, groups), lowerer.sink(node, groups)
    outer, rows, _ = sink.shape
    kernel = scan_strips_kernel(lowerer.target, source.chain, sink.chain, *form)
    strip = strip_arguments(source, sink, rows, STRIP)
    lowerer.call(kernel, strip, outer * strip.strips, row_grain(rows * strip.width), flops=total, traffic=traffic)


# --- the k best -----------------------------------------------------------------------------------------------------


def _is_ranked(node: Node) -> bool:
    """Whether the results of TopK are sorted elements of a type that its kernel takes."""
    value = required(node.inputs[0])
    type = element_of(value)
    is_number = type is not None and type.kind != "bool"
    return is_number and bool(dims(value)) and operand(node, "sorted") != 0 and len(node.outputs) == 2


def _claims_top_k(node: Node) -> bool:
    """Results whose number is known when shapes are."""
    k = input_named(node, "K")
    return _is_ranked(node) and (k is None or k.known is not None or k.is_constant)


def _claims_computed_top_k(node: Node) -> bool:
    k = input_named(node, "K")
    return _is_ranked(node) and k is not None and known_sizes(k) is None and has_numbers(k) and dim.product(dims(k)) == 1


@lower("TopK", since=10, claims=_claims_computed_top_k, case="computed sizes", settles=True)
def top_of_computed_number(lowerer: Lowerer, node: Node) -> None:
    axis = _axis(node)
    (k,) = numbers_of(lowerer, required(node.inputs[1]))
    settle_to(lowerer, [pair for result in node.outputs for pair in axes_of(result, [(axis, k)])])
    top_k(lowerer, node)


@lower("TopK", claims=_claims_top_k)
def top_k(lowerer: Lowerer, node: Node) -> None:
    """Along the last axis; where it is another, in a copy whose results are looked at in the old order."""
    value = required(node.inputs[0])
    shape, axis = dims(value), _axis(node)
    k, size = dims(node.outputs[0])[axis], shape[axis]
    lowerer.require(dim.minimum(k, size), k)
    order = [*(other for other in range(len(shape)) if other != axis), axis]
    rows = dim.product(shape[other] for other in order[:-1])
    type = stored(value)
    if order == sorted(order):
        source = lowerer.contiguous(value)
        values, indices = (lowerer.output(output) for output in node.outputs)
    else:
        view = lowerer.view(value).transposed(order)
        source = _fresh(lowerer, type, view.shape)
        lowerer.copy(view, source)
        values, indices = (_fresh(lowerer, result_type, (*view.shape[:-1], k)) for result_type in (type, I64))
        back = [order.index(axis) for axis in range(len(shape))]
        for output, result in zip(node.outputs, (values, indices)):
            lowerer.set_view(output, result.transposed(back))
    lowerer.call(
        top_k_kernel(lowerer.target, type, operand(node, "largest") != 0),
        TopKArguments(source=source.place, columns=size, k=k, values=values.place, indices=indices.place),
        rows,
        row_grain(size),
        flops=rows * size,
        traffic=rows * size * type.bytes,
    )


def _fresh(lowerer: Lowerer, type: Type, shape: tuple[Dim, ...]) -> View:
    return View(lowerer.scratch(dim.product(shape) * type.bytes), type, shape, contiguous_strides(shape))
