"""Operands of matrix products in the order in which a micro-kernel reads them. Lowerings of products call it.

A packed operand is cut along its outer axis (rows of A, columns of B) into tiles; a tile holds for each k the `width` elements side by
side. Constants are packed when the model is lowered, everything else by a step of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from sardonyx.compiler.builder import Value
from sardonyx.compiler.jit import jit
from sardonyx.compiler.squares import transposed
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import F32, I64, U16, Type
from sardonyx.formats import mapping
from sardonyx.ir import Dim, dim
from sardonyx.ir import Value as Constant
from sardonyx.providers.native.execution.immediate import memory_of, run_now
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import View, collapse
from sardonyx.providers.native.program.weights import WeightMemory, aligned_empty
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.startup.records import dataclass

PIECE_ELEMENTS = 16384
"""How many elements are worth handing to another thread."""
WORTH_A_KERNEL = 1 << 20
"""From how many bytes on constants are packed by generated code: NumPy is slower, but needs nothing to be compiled."""
PIECE_BYTES = 8 << 20
"""How much of a mapped file is packed before its pages are given back."""
PANELS = PackedFormat("panels")


@dataclass(frozen=True)
class Packed:
    """Where a packed operand lies: tiles of `tile_stride` elements, one batch after the other."""

    buffer: Buffer
    type: Type
    tile_stride: Dim
    batch_stride: Dim


@dataclass(frozen=True)
class Packing:
    """What shapes the code that packs."""

    source: Type
    target: Type
    width: int
    limit: int
    """Into tiles of how many the outer axis is cut; there may be fewer in the last."""
    along: str
    """Which axis lies without gaps: "outer", "k" or "none"."""
    batch_axes: int

    def lanes(self, target: Target) -> int:
        """How many elements are moved at once."""
        return _lanes(target, self.target, self.width)


def _lanes(target: Target, type: Type, width: int) -> int:
    return min(width, target.lanes(type), target.lanes(F32))


def packed_weights(
    lowerer: Lowerer,
    value: Constant,
    arrangement: Hashable,
    arrange: Callable[[np.ndarray], np.ndarray],
    type: Type,
    width: int,
) -> Packed:
    """A constant in panels of `width` columns; `arrange` makes the factor (…, K, N) of its array, `arrangement` says how."""
    assert value.constant is not None
    factor = arrange(value.constant.peek())  # held until it is packed, so that a file is read once
    shape = factor.shape
    stride, panels = _panel_stride(lowerer.target, shape, type, width), -(-shape[-1] // width)
    memory = lowerer.weights
    (buffer,) = lowerer.packed(
        [value],
        PANELS,
        (arrangement, width, stride),
        [math.prod(shape[:-2]) * panels * stride * type.bytes],
        lambda array: [packed_constant(memory, arrange(array), type, width)[0]],
    )
    return Packed(buffer, type, stride, panels * stride)


def _is_large(shape: Sequence[int], type: Type) -> bool:
    return math.prod(shape) * type.bytes >= WORTH_A_KERNEL


def _panel_stride(target: Target, shape: Sequence[int], type: Type, width: int) -> int:
    """How many elements a panel takes: generated code writes whole vectors."""
    lanes = _lanes(target, type, width) if _is_large(shape, type) else 1
    return -(-shape[-2] // lanes) * lanes * width


def packed_constant(memory: WeightMemory, array: np.ndarray, type: Type, width: int) -> tuple[np.ndarray, int]:
    """Weights (…, K, N) in panels, and how many elements a panel takes. Large ones are packed by generated code, on all threads."""
    target = jit().target
    stride = _panel_stride(target, array.shape, type, width)
    if not _is_large(array.shape, type):
        return pack_columns(array, width), stride
    inner, columns = array.shape[-2:]
    packed = memory.empty((*array.shape[:-2], -(-columns // width), stride), array.dtype)
    # the kernel does not write all of what is filled up; equal weights shall have equal panels
    packed[..., inner * width :] = 0
    if columns % width:
        packed[..., -1, :] = 0
    at_once = -(-columns // width)
    # where what a panel is made of lies together, the rest need not be in memory
    if array.ndim == 2 and array.T.flags.c_contiguous:
        at_once = max(1, PIECE_BYTES // (inner * width * array.itemsize))
    for first in range(0, packed.shape[-2], at_once):
        part = array[..., first * width : (first + at_once) * width]
        _pack_now(part, packed[..., first : first + at_once, :], type, width, stride)
        mapping.give_back(part.T)
    return packed, stride


def _pack_now(array: np.ndarray, packed: np.ndarray, type: Type, width: int, stride: int) -> None:
    raw = type if type.bytes > 2 else U16
    target = jit().target
    outer = array.swapaxes(-1, -2)
    steps = [step // array.itemsize for step in outer.strides]
    batches, (strides,) = collapse(outer.shape[:-2], [tuple(steps[:-2])])
    packing = Packing(raw, raw, width, width, _unit_axis(steps[-2], steps[-1]), len(batches))
    arguments = PackArguments(
        source=memory_of(array),
        target=memory_of(packed),
        outer=outer.shape[-2],
        inner=outer.shape[-1],
        tile_stride=stride,
        outer_stride=steps[-2],
        inner_stride=steps[-1],
        batch_sizes=batches,
        batch_strides=strides,
    )
    run_now(pack_kernel(target, packing), arguments, items=packed.size // stride)


def _unit_axis(outer_step: Dim, inner_step: Dim) -> str:
    return "k" if inner_step == 1 else "outer" if outer_step == 1 else "none"


def pack_columns(weights: np.ndarray, width: int) -> np.ndarray:
    """(…, K, N) as (…, panels, K, width); what is missing in the last panel is 0."""
    *batch, inner, columns = weights.shape
    whole, rest = divmod(columns, width)
    packed = aligned_empty((*batch, whole + bool(rest), inner, width), weights.dtype)
    panels = weights[..., : whole * width].reshape(*batch, inner, whole, width)
    packed[..., :whole, :, :] = np.moveaxis(panels, -3, -2)
    if rest:
        packed[..., whole, :, :rest] = weights[..., whole * width :]
        packed[..., whole, :, rest:] = 0
    return packed


def packed_view(lowerer: Lowerer, view: View, type: Type, width: int, limit: int) -> Packed:
    """A view (batch…, outer, k) in tiles of `limit`, packed by a step that is added when it is first wanted."""
    key = (view, type, width, limit)
    if key not in lowerer.scope.packed_views:
        lowerer.scope.packed_views[key] = _pack_step(lowerer, view, type, width, limit)
    packed: Packed = lowerer.scope.packed_views[key]
    return packed


def _pack_step(lowerer: Lowerer, view: View, type: Type, width: int, limit: int) -> Packed:
    *batch, outer, inner = view.shape
    *steps, outer_step, inner_step = view.strides
    batches, (strides,) = collapse(tuple(batch), [tuple(steps)])
    packing = Packing(view.type, type, width, limit, _unit_axis(outer_step, inner_step), len(batches))
    lanes = packing.lanes(lowerer.target)
    tile_stride = dim.ceildiv(inner, lanes) * lanes * width
    tiles = dim.ceildiv(outer, limit)
    count = dim.product(batches)
    buffer = lowerer.scratch(count * tiles * tile_stride * type.bytes)
    lowerer.call(
        pack_kernel(lowerer.target, packing),
        PackArguments(
            source=view.place,
            target=buffer,
            outer=outer,
            inner=inner,
            tile_stride=tile_stride,
            outer_stride=outer_step,
            inner_stride=inner_step,
            batch_sizes=batches,
            batch_strides=strides,
        ),
        count * tiles,
        dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, inner * limit))),
        traffic=count * outer * inner * (view.type.bytes + type.bytes),
    )
    return Packed(buffer, type, tile_stride, tiles * tile_stride)


def batch_offset(f: KernelFunction, number: Value, sizes: Sequence[Value], strides: Sequence[Sequence[Value]]) -> list[Value]:
    """Where a batch begins in each of some operands."""
    if len(sizes) == 1:
        return [number * steps[0] for steps in strides]
    offsets = [f.const(I64, 0) for _ in strides]
    for axis in reversed(range(len(sizes))):
        coordinate = number % sizes[axis] if axis else number
        number = number // sizes[axis] if axis else number
        offsets = [offset + coordinate * steps[axis] for offset, steps in zip(offsets, strides)]
    return offsets


class PackArguments(Arguments):
    source: Pointer
    target: Pointer
    outer: Size
    """Rows of A or columns of B, in a batch."""
    inner: Size
    tile_stride: Size
    """From tile to tile of the target."""
    outer_stride: Size
    inner_stride: Size
    batch_sizes: Sequence[Size] = each(lambda packing: packing.batch_axes)
    batch_strides: Sequence[Size] = each(lambda packing: packing.batch_axes)


@kernel("pack", PackArguments)
def pack_kernel(f: KernelFunction, a: PackArguments, packing: Packing) -> None:
    """Items are tiles."""
    tiles = f.maximum((a.outer + (packing.limit - 1)) // packing.limit, 1)
    with f.loop(f.begin, f.end) as item:
        batch, tile = item // tiles, item % tiles
        (offset,) = batch_offset(f, batch, a.batch_sizes, [a.batch_strides])
        source = f.address(a.source, offset + tile * a.outer_stride * packing.limit, packing.source)
        target = f.address(a.target, item * a.tile_stride, packing.target)
        count = f.minimum(a.outer - tile * packing.limit, packing.limit)
        pack_tile = _transpose_tile if packing.along == "k" else _copy_tile
        pack_tile(f, a, packing, source, target, count)


def _copy_tile(f: KernelFunction, a: PackArguments, packing: Packing, source: Value, target: Value, count: Value) -> None:
    """The elements of one k after those of the other."""
    lanes = packing.lanes(f.target)
    with f.loop(0, a.inner) as k:
        row = f.address(source, k * a.inner_stride, packing.source)
        for first in range(0, packing.width, lanes):
            remaining = count - first
            if packing.along == "outer":
                elements = f.load(row, first, packing.source, lanes, remaining=remaining)
            else:
                indices = (f.iota(I64, lanes) + first) * f.splat(a.outer_stride, lanes)
                elements = f.gather(row, indices, packing.source, mask=f.first_lanes(remaining, lanes))
            f.store(elements, target, k * packing.width + first, packing.target)


def _transpose_tile(f: KernelFunction, a: PackArguments, packing: Packing, source: Value, target: Value, count: Value) -> None:
    """Squares of as many rows as a vector has lanes; rows that are not there are read as the last one."""
    lanes = packing.lanes(f.target)
    whole = (a.inner // lanes) * lanes
    with f.loop(0, f.minimum(count, packing.width), lanes) as first:
        places = [f.minimum(first + row, count - 1) * a.outer_stride for row in range(lanes)]
        rows = [f.address(source, place, packing.source) for place in places]

        def square(k: Value, remaining: Value | None) -> None:
            vectors = transposed(f, [f.load(row, k, packing.source, lanes, remaining=remaining) for row in rows])
            for number, vector in enumerate(vectors):
                f.store(vector, target, (k + number) * packing.width + first, packing.target)

        with f.loop(0, whole, lanes) as k:
            square(k, None)
        with f.if_(whole < a.inner):
            square(whole, a.inner - whole)
