"""What lowerings of convolutions of 8-bit integers share: operands, where sums begin, padding, memory with the channels last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.target import Target
from sardonyx.compiler.types import I8, I32, U8, Type
from sardonyx.ir import Node, Value, dim
from sardonyx.providers.native.kernels.conv.form import Geometry, last_order
from sardonyx.providers.native.kernels.quantize.operands import fits_bytes, numbers_less_zero, product_for, zero_array
from sardonyx.providers.native.kernels.quantize.operators import single
from sardonyx.providers.native.program.chain import Apply, Item, Load
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.values import dims, stored
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides
from sardonyx.providers.scalars.quantize import added, center, flip, uncentered
from sardonyx.providers.scalars.table import name_of
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Integers:
    """The operands of a convolution of whole numbers."""

    x: Value
    w: Value
    x_zero: Value | None
    w_zero: Value | None
    bias: Value | None = None

    @property
    def filter_sources(self) -> list[Value]:
        return [self.w] if self.w_zero is None else [self.w, self.w_zero]

    @property
    def offset(self) -> int:
        """What bytes of the image have too much."""
        return 0 if stored(self.x) == U8 else 128

    @property
    def filter_offset(self) -> int:
        """What filters that keep their zero point are stored less of."""
        return 128 if stored(self.w) == U8 else 0

    def filters(self) -> np.ndarray:
        """Less their zero points."""
        return less_zero(*(required_array(value) for value in self.filter_sources))


def required_array(value: Value) -> np.ndarray:
    assert value.constant is not None
    return value.constant.numpy()


def less_zero(w: np.ndarray, zero: np.ndarray | None = None) -> np.ndarray:
    """Filters less one zero point, or one for each filter."""
    if zero is not None and zero.size > 1:
        zero = zero.reshape(-1, *(1,) * (w.ndim - 1))
    return numbers_less_zero(w, zero)


def multiplies_bytes(target: Target, found: Integers) -> bool:
    """Whether the CPU does, and filters are such."""
    return product_for(target, I8).row == U8 and has_byte_filters(found)


def has_byte_filters(found: Integers) -> bool:
    return fits_bytes(required_array(found.w), zero_array(found.w_zero), less_zero)


def sink_of(lowerer: Lowerer, node: Node, operations: Sequence[Operation], given: Type) -> Sink:
    rank = len(dims(node.outputs[0]))
    return lowerer.sink(node, (1, rank - 2, 1), operations=operations, order=last_order(rank), given=given)


def channels_last(lowerer: Lowerer, type: Type, shape: Dims) -> View:
    """Memory for an image (N, C, …) whose channels lie last."""
    batch, channels, *spatial = shape
    buffer = lowerer.scratch(dim.product(shape) * type.bytes)
    first, *steps, _ = contiguous_strides((batch, *spatial, channels))
    return View(buffer, type, shape, (first, 1, *steps))


def store_parts(lowerer: Lowerer, source: View, operations: Sequence[Operation], target: View) -> None:
    """Elements with at most one operation applied, between views whose channels are split into groups."""
    items: list[Item] = [Load(source.type, ())]
    views = [source]
    for operation in operations:
        zero = operation.operands[1] if len(operation.operands) > 1 else None
        entry = center if operation.op is center else flip
        inputs = (0, -1) if entry is center else (0,)
        if isinstance(zero, View):
            items.append(Load(zero.type, ()))
            views.append(zero)
            inputs = (0, 1)
        items.append(Apply(name_of(entry), inputs, target.type))
    lowerer.combine(items, views, target)


def first_sums(lowerer: Lowerer, geometry: Geometry, found: Integers, is_centered: bool) -> tuple[np.ndarray, list[Operation]]:
    """What the sum of each filter begins with, and what is left for later: a bias or a zero point that is known in runs only.

    With `is_centered` pixels are less their zero point already.
    """
    count = geometry.groups * geometry.filters
    first = np.zeros(count, np.int64)
    later: list[Operation] = []
    behind = len(geometry.kernel)
    if found.bias is not None and found.bias.constant is not None:
        first += required_array(found.bias).astype(np.int64)
    elif found.bias is not None:
        later.append(Operation(added, (None, lowerer.view(found.bias).with_axes_behind(behind)), type=I32))
    if not is_centered:
        filters = found.filters()
        sums = filters.sum(axis=tuple(range(1, filters.ndim)), dtype=np.int32)  # they wrap, as those of kernels do
        if found.x_zero is None or found.x_zero.constant is not None:
            zero = 0 if found.x_zero is None else int(required_array(found.x_zero).reshape(()))
            first -= (zero + found.offset) * sums.astype(np.int64)
        else:
            table = lowerer.table(sums)
            view = View(table, I32, (count,), (1,)).with_axes_behind(behind)
            zero_view = single(lowerer, found.x_zero)
            later.append(Operation(uncentered, (None, zero_view, view), (("offset", found.offset),), type=I32))
    return first.astype(np.int32), later


def padding_bytes(lowerer: Lowerer, found: Integers, count: int, offset: int) -> Buffer:
    """The zero point so many times, as a byte that has `offset` more."""
    if found.x_zero is None or found.x_zero.constant is not None:
        zero = 0 if found.x_zero is None else int(required_array(found.x_zero).reshape(()))
        return lowerer.table(np.full(count, (zero + offset) % 256, np.uint8))
    view = single(lowerer, found.x_zero)
    assert view is not None
    target = View(lowerer.scratch(count), U8 if offset else view.type, (count,), (1,))
    store_parts(lowerer, view, [Operation(flip, (None,), type=U8)] if offset else [], target)
    return target.buffer
