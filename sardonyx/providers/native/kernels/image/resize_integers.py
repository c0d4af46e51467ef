"""Resize of integers and truth values between pixels, whose results are cut off or rounded: there the last bit of a sum decides.

So sums are those of NumPy's provider to the bit: each axis is resized alone, the first one first, with its products added one by one.
`resize` calls it.
"""

from __future__ import annotations

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, F64, I64, Type
from sardonyx.ir import Node, dim
from sardonyx.providers.native.kernels.image.elements import element_of_sum
from sardonyx.providers.native.kernels.image.resize_form import Resizing, Table, resized_axes, table_of
from sardonyx.providers.native.kernels.reduction.passes import items, sweep
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.values import required
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.startup.records import dataclass

PIECE_TAPS = 32768
"""How many products are worth handing to another thread."""
VECTORS = 2
"""So many are summed side by side."""


@dataclass(frozen=True)
class Pass:
    """What shapes the code that resizes one axis."""

    source: Type
    target: Type
    working: Type
    """In which products are added up."""
    is_rounded: bool
    """Whether integers of the result are rounded, and not cut off."""
    along_axis: bool
    """Whether vectors run along the axis, which is the last one, and not behind it."""
    is_weighted: bool = True


def resize_integers(lowerer: Lowerer, node: Node, form: Resizing) -> None:
    """Axis by axis; what lies between two passes is of the type in which sums are made."""
    view = lowerer.contiguous(required(node.inputs[0]))
    working = F32 if view.type.bytes <= 2 else F64
    axes = resized_axes(node, form) or [0]
    for axis in axes:
        shape = (*view.shape[:axis], form.sizes[axis], *view.shape[axis + 1 :])
        if axis == axes[-1]:
            result = lowerer.output(node.outputs[0])
        else:
            result = View(lowerer.scratch(dim.product(shape) * working.bytes), working, shape, contiguous_strides(shape))
        table = table_of(lowerer, node, form, axis, working)
        is_last = dim.product(shape[axis + 1 :]) == 1
        _add_pass(lowerer, view, result, axis, table, Pass(view.type, result.type, working, form.antialias, is_last))
        view = result


def _add_pass(lowerer: Lowerer, view: View, result: View, axis: int, table: Table, sampling: Pass) -> None:
    outer, inner = dim.product(view.shape[:axis]), dim.product(view.shape[axis + 1 :])
    length, size = view.shape[axis], result.shape[axis]
    products = table.taps * (size if sampling.along_axis else inner)
    lowerer.call(
        resize_axis_kernel(lowerer.target, sampling),
        ResizeAxisArguments(source=view.place, target=result.place, length=length, size=size, inner=inner, table=table),
        outer if sampling.along_axis else outer * size,
        dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, products))),
        flops=outer * size * inner * (2 * table.taps),
        traffic=outer * inner * (length * view.type.bytes + size * result.type.bytes),
    )


class ResizeAxisArguments(Arguments):
    source: Pointer
    target: Pointer
    length: Size
    """Of the axis before it is resized."""
    size: Size
    """And afterwards."""
    inner: Size
    """Elements of a pixel of the axis."""
    table: Table


@kernel("resize axis", ResizeAxisArguments)
def resize_axis_kernel(f: KernelFunction, a: ResizeAxisArguments, sampling: Pass) -> None:
    """Items are pixels of the resized axis, or rows of them where each is one element."""
    with f.exact():
        (_rows if sampling.along_axis else _pixels)(f, a, sampling)


def _pixels(f: KernelFunction, a: ResizeAxisArguments, sampling: Pass) -> None:
    lanes = f.lanes(sampling.working)
    with items(f, [a.size]) as (item, (image, place)):

        def block(_: int, column: Value, remaining: Value | None) -> None:
            total = f.variable(f.const(sampling.working.vector(lanes), 0))
            with f.loop(0, a.table.taps) as tap:
                pixel = f.load(a.table.pixels, a.size * tap + place, I64)
                weight = f.load(_weights(a), a.size * tap + place, sampling.working)
                start = (image * a.length + pixel) * a.inner
                elements = f.load(a.source, start + column, sampling.source, lanes, remaining=remaining)
                total.set(total.get() + f.convert(elements, sampling.working) * f.splat(weight, lanes))
            result = element_of_sum(f, total.get(), sampling.target, sampling.is_rounded)
            f.store(result, a.target, item * a.inner + column, sampling.target, remaining=remaining)

        sweep(f, 0, a.inner, lanes, VECTORS, block)


def _rows(f: KernelFunction, a: ResizeAxisArguments, sampling: Pass) -> None:
    lanes = f.lanes(sampling.working)
    with items(f, []) as (_, (image,)):
        row = f.address(a.source, image * a.length, sampling.source)

        def block(_: int, column: Value, remaining: Value | None) -> None:
            total = f.variable(f.const(sampling.working.vector(lanes), 0))
            with f.loop(0, a.table.taps) as tap:
                pixels = f.load(a.table.pixels, a.size * tap + column, I64, lanes, remaining=remaining)
                weights = f.load(_weights(a), a.size * tap + column, sampling.working, lanes, remaining=remaining)
                elements = f.convert(f.gather(row, pixels, sampling.source), sampling.working)
                total.set(total.get() + elements * weights)
            result = element_of_sum(f, total.get(), sampling.target, sampling.is_rounded)
            f.store(result, a.target, image * a.size + column, sampling.target, remaining=remaining)

        sweep(f, 0, a.size, lanes, VECTORS, block)


def _weights(a: ResizeAxisArguments) -> Value:
    assert a.table.weights is not None
    weights: Value = a.table.weights
    return weights
